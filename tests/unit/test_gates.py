"""Gates go away by identity, in any order and on any thread, and leave nothing on the object."""

import itertools
import threading
from contextvars import copy_context

import pytest
import triton
import triton.language as tl

from tritontrace.patching.warmup import patch_warmup
from tritontrace.scopes.gates import GateStack, active_gate, close_gate, gates_on, open_gate


@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0.0)


def call(*args, **kwargs):
    return "called"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_gates_of_overlapping_scopes_leave_in_any_order(order):
    before = dict(vars(kernel))
    gates = [open_gate(kernel, f"scope {i}", call) for i in range(4)]
    left = list(range(4))
    for index in order:
        assert active_gate(kernel) is gates[max(left)]
        close_gate(gates[index])
        left.remove(index)
        assert gates_on(kernel) == len(left)
        assert vars(kernel) == before
    assert active_gate(kernel) is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_gates_leave_on_other_threads_than_they_came(order):
    before = dict(vars(kernel))
    gates = {}
    threads = [threading.Thread(target=lambda i=i: gates.update({i: open_gate(kernel, i, call)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gates_on(kernel) == 3
    for index in order:
        leaver = threading.Thread(target=close_gate, args=(gates[index],))
        leaver.start()
        leaver.join()
    assert gates_on(kernel) == 0
    assert vars(kernel) == before


def test_a_gate_acts_only_for_the_context_that_went_through_it():
    gate = open_gate(kernel, "scope", call)
    try:
        assert active_gate(kernel) is gate
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(active_gate(kernel)))
        thread.start()
        thread.join()
        assert elsewhere == [None]
        inherited = copy_context()
        assert inherited.run(active_gate, kernel) is gate
    finally:
        close_gate(gate)
    assert inherited.run(active_gate, kernel) is None
    close_gate(gate)
    assert active_gate(kernel) is None


def test_gates_of_two_objects_are_apart():
    @triton.jit
    def other(x):
        tl.store(x, 0.0)

    one, two = open_gate(kernel, "a", call), open_gate(other, "a", call)
    assert active_gate(kernel) is one and active_gate(other) is two
    close_gate(one)
    assert active_gate(kernel) is None and active_gate(other) is two
    close_gate(two)


def test_patch_warmup_writes_nothing_and_keeps_what_the_user_set():
    def mine(*args, **kwargs):
        return "mine"

    kernel.warmup = mine
    try:
        before = dict(vars(kernel))
        with patch_warmup(kernel, ["a", "b"], call):
            assert gates_on(kernel) == 2
            assert vars(kernel) == before and kernel.warmup is mine
            with patch_warmup(kernel, ["c"], call):
                assert active_gate(kernel).owner == "c"
            assert active_gate(kernel).owner == "b"
        assert gates_on(kernel) == 0 and vars(kernel) == before and kernel.warmup is mine
    finally:
        del kernel.warmup
    assert "warmup" not in vars(kernel)


def test_patch_warmup_is_undone_when_the_block_raises():
    with pytest.raises(KeyError), patch_warmup(kernel, ["a"], call):
        raise KeyError
    assert gates_on(kernel) == 0


def test_overlapping_votes_on_threads_in_every_exit_order():
    before = dict(vars(kernel))
    for order in itertools.permutations(range(3)):
        entered = threading.Barrier(4)
        leave = [threading.Event() for _ in range(3)]
        left = [threading.Event() for _ in range(3)]
        seen = []

        def vote(i):
            with patch_warmup(kernel, [i], call):
                entered.wait()
                leave[i].wait()
                seen.append(active_gate(kernel).owner == i)
            left[i].set()

        threads = [threading.Thread(target=vote, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        entered.wait()
        for count, index in enumerate(order, 1):
            leave[index].set()
            left[index].wait()
            assert gates_on(kernel) == 3 - count
        for thread in threads:
            thread.join()
        assert seen == [True] * 3
    assert vars(kernel) == before


def test_a_stack_removes_a_gate_once():
    stack = GateStack()
    gate = open_gate(kernel, "a", call)
    stack.push(gate)
    assert stack.remove(gate) and not stack.remove(gate) and len(stack) == 0
    close_gate(gate)
