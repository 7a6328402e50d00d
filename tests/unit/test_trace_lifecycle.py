"""The life of a traced launch: one Launch each, the warmup vote, exclusive hooks, finalizing, and what is left behind."""

import copy
import gc
import itertools
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref
from collections import Counter

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import events
from tritontrace.clients.base import Client, ClientManager, LoopCallbacks, OpCallbacks
from tritontrace.errors import FindingError, HookConflictError, KernelError, OutOfBoundsError
from tritontrace.findings import Finding
from tritontrace.kernels.execution import settle
from tritontrace.kernels.trace import TritonTrace
from tritontrace.launch import Launch
from tritontrace.scopes.gates import gates_on
from tritontrace.tracing import trace

N = 16


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def checked(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.device_assert(value > 0, "must be positive")
    tl.store(x + i, value + 1)


@triton.jit
def twice(v):
    return v * 2


traced_twice = trace(twice)
module = types.SimpleNamespace(helper=traced_twice)


@triton.jit
def by_name(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, traced_twice(tl.load(x + i)))


helpers = types.ModuleType("helpers")
helpers.helper = traced_twice


@triton.jit
def by_module(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, helpers.helper(tl.load(x + i)))


@triton.jit
def by_argument(x, F: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, F(tl.load(x + i)))


@triton.jit
def by_default(x, BLOCK: tl.constexpr, F: tl.constexpr = traced_twice):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, F(tl.load(x + i)))


@triton.jit
def outer_helper(v):
    return traced_twice(v)


traced_outer = trace(outer_helper)


@triton.jit
def two_deep(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, traced_outer(tl.load(x + i)))


def make_by_closure():
    helper = trace(twice)

    @triton.jit
    def by_closure(x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, helper(tl.load(x + i)))

    return by_closure


class Watch(Client):
    """Hands out a fresh object for every launch and keeps them all, with what they were told."""

    def __init__(self, name="watch", vote=False, fails=None):
        self.name = name
        self.vote = vote
        self.fails = fails
        self.opened = []

    def for_launch(self, launch):
        one = _One(self, launch)
        self.opened.append(one)
        return one

    @property
    def only(self):
        (one,) = self.opened
        return one


class _One(Client):
    def __init__(self, watch, launch):
        self.name = watch.name
        self.watch = watch
        self.launch = launch
        self.calls = []
        self.compiled = []
        self.stores = 0

    def _said(self, what):
        self.calls.append(what)
        if self.watch.fails == what:
            raise LookupError(f"{self.name} {what}")

    def pre_warmup_callback(self, jit_fn, launch):
        self.jit_fn = jit_fn
        self._said("vote")
        return self.watch.vote

    def post_warmup_callback(self, jit_fn, compiled):
        assert jit_fn is self.jit_fn
        self.compiled.append(compiled)
        self._said("compiled")

    def register_op_callback(self, op):
        if op is events.Load:
            self._said("register op")
        return OpCallbacks(before=self._hook) if op is events.Store else None

    def _hook(self, event):
        self.stores += 1
        assert event.launch is self.launch
        if "hook" not in self.calls:
            self._said("hook")

    def register_for_loop_callback(self):
        self._said("register loop")

    def pre_run_callback(self, launch):
        assert launch is self.launch and launch.arguments
        self._said("pre")

    def post_run_callback(self, launch):
        self._said("post")

    def finalize(self):
        self._said("finalize")
        return [self.name]


ORDER = ["vote", "register op", "register loop", "pre", "hook", "post", "finalize"]


def launch(kernel, *args, clients=(), grid=(1,), session=None, **kwargs):
    with tritontrace.session(list(clients), **(session or {})) as opened:
        kernel[grid](*args, **kwargs)
    return opened


def with_notes(error):
    return [str(error), *getattr(error, "__notes__", [])]


# -- launches and clients ----------------------------------------------------------------------------------------------


def test_every_launch_has_its_own_launch_and_client():
    watch = Watch()
    x = torch.zeros(N)
    with tritontrace.session([watch]) as session:
        for _ in range(3):
            add_one[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.full((N,), 3.0))
    assert [launch.index for launch in session.launches] == [0, 1, 2]
    assert len({id(launch) for launch in session.launches}) == 3
    assert [one.launch for one in watch.opened] == session.launches
    for launch in session.launches:
        assert launch.kernel_name == "add_one" and launch.grid == (2, 1, 1) and launch.completed and launch.error is None
        assert launch.file == __file__ and launch.argument("x").data_ptr == x.data_ptr()
        assert launch.records == {"watch": ["watch"]} and launch.memory is None
    dictionaries = [launch.arguments for launch in session.launches]
    assert dictionaries[0] == dictionaries[1] and dictionaries[0] is not dictionaries[1]


def test_the_calls_of_a_client_in_order():
    watch = Watch()
    launch(add_one, torch.zeros(N), N, BLOCK=8, grid=(2,), clients=[watch])
    assert watch.only.calls == ORDER
    assert watch.only.jit_fn is add_one


@pytest.mark.parametrize("compiles", [True, False])
def test_the_vote_is_asked_at_every_launch(compiles):
    watch = Watch(vote=compiles)
    with tritontrace.session([watch]):
        for _ in range(3):
            add_one[(1,)](torch.zeros(N), N, BLOCK=16)
    assert [one.calls.count("vote") for one in watch.opened] == [1, 1, 1]
    assert [len(one.compiled) for one in watch.opened] == [compiles] * 3


def test_sessions_that_nest_observe_one_run_and_have_launches_of_their_own():
    outer, inner, own = Watch("outer"), Watch("inner"), Watch("own")
    x = torch.zeros(N)
    traced = trace(add_one, clients=[own])
    with tritontrace.session([outer]) as first, tritontrace.session([inner]) as second:
        traced[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.ones(N))
    launches = [first.launches[0], second.launches[0], traced.launches[0]]
    assert len({id(launch) for launch in launches}) == 3 and all(launch.completed for launch in launches)
    assert [watch.only.launch for watch in (outer, inner, own)] == launches
    assert outer.only.stores == inner.only.stores == own.only.stores > 0


def test_a_client_that_returns_itself_serves_launches_of_several_threads():
    class Counts(Client):
        name = "counts"

        def __init__(self):
            self.stores = self.finalized = 0

        def register_op_callback(self, op):
            return OpCallbacks(before=self.hear) if op is events.Store else None

        def hear(self, event):
            count = self.stores
            time.sleep(0)  # lets another thread come in, if it may
            self.stores = count + len(event)

        def finalize(self):
            count = self.finalized
            time.sleep(0)
            self.finalized = count + 1
            return []

    client = Counts()
    errors = []

    def work():
        try:
            x = torch.zeros(N)
            with tritontrace.session([client]):
                for _ in range(10):
                    add_one[(2,)](x, N, BLOCK=8)
            assert torch.equal(x, torch.full((N,), 10.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert client.stores == 6 * 10 * 2 and client.finalized == 60


def test_one_client_class_on_many_threads_counts_every_launch_apart():
    errors = []

    def work():
        try:
            watch = Watch()
            with tritontrace.session([watch]) as session:
                for _ in range(10):
                    add_one[(2,)](torch.zeros(N), N, BLOCK=8)
            assert len(session.launches) == 10 and len({one.stores for one in watch.opened}) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("grid", [(0,), (2, 0), (1, 1, 0), [0, 4]])
def test_an_empty_grid_runs_nothing(grid):
    watch = Watch()
    x = torch.zeros(N)
    session = launch(add_one, x, N, BLOCK=8, grid=grid, clients=[watch])
    assert x.sum() == 0 and session.launches[0].completed and session.launches[0].n_programs == 0
    assert watch.only.calls == [call for call in ORDER if call != "hook"]


def test_no_tensor_is_kept_by_a_finished_launch():
    x = torch.zeros(N)
    dead = weakref.ref(x)
    with tritontrace.session([Watch(vote=True)]) as session:
        compiled = add_one[(2,)](x, N, BLOCK=8)
        with pytest.raises(OutOfBoundsError):
            add_one[(2,)](x, 1000, BLOCK=512)
    del x
    gc.collect()
    assert dead() is None
    assert len(session.launches) == 2 and compiled is not None
    assert isinstance(session.launches[1].error, OutOfBoundsError) and session.launches[1].error.__traceback__ is None


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["vote", "register op", "register loop", "pre", "hook", "post", "finalize"])
def test_a_clients_exception_reaches_the_caller_unchanged_and_all_are_finalized(when):
    before, fails, after = Watch("before"), Watch("fails", fails=when), Watch("after")
    x = torch.zeros(N)
    with tritontrace.session([before, fails, after]) as session:
        with pytest.raises(LookupError, match=f"fails {when}") as caught:
            add_one[(2,)](x, N, BLOCK=8)
        assert type(caught.value) is LookupError and caught.value.__cause__ is None and caught.value.__context__ is None
        assert [watch.only.calls.count("finalize") for watch in (before, fails, after)] == [1, 1, 1]
        if when in ("vote", "register op", "register loop", "pre"):
            assert x.sum() == 0
        fails.fails = None
        x.zero_()
        add_one[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.ones(N))
    assert [type(launch.error) for launch in session.launches] == [LookupError, type(None)]
    assert [one.calls for one in after.opened][1] == ORDER


def test_an_interrupt_ends_the_launch_as_any_error_does():
    class Interrupts(Client):
        name = "interrupts"

        def register_op_callback(self, op):
            return OpCallbacks(before=self.interrupt) if op is events.Store else None

        def interrupt(self, event):
            raise KeyboardInterrupt

    watch = Watch()
    x = torch.zeros(N)
    with tritontrace.session([Interrupts(), watch]) as session, pytest.raises(KeyboardInterrupt):
        add_one[(2,)](x, N, BLOCK=8)
    assert watch.only.calls[-1] == "finalize" and x.sum() == 0
    assert not session.launches[0].completed and isinstance(session.launches[0].error, KeyboardInterrupt)
    assert gates_on(add_one) == 0


def test_a_session_that_closes_during_a_launch_still_gets_it():
    class Closes(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)
            one.pre_run_callback = lambda launch: session.close()
            return one

    watch = Closes()
    session = tritontrace.session([watch]).open()
    x = torch.zeros(N)
    add_one[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.ones(N)) and watch.only.stores > 0 and watch.only.calls[-1] == "finalize"
    assert session.launches[0].completed


def test_programs_of_several_sessions_all_run():
    x = torch.zeros(32)
    with tritontrace.session([], programs=[(0, 0, 0)]), tritontrace.session([], programs=[(2, 0, 0)]):
        add_one[(4,)](x, 32, BLOCK=8)
    assert x[:8].sum() == 8 and x[16:24].sum() == 8
    with tritontrace.session([], programs=[(0, 0, 0)]), tritontrace.session([]):
        add_one[(4,)](x.zero_(), 32, BLOCK=8)
    assert torch.equal(x, torch.ones(32))


def test_a_client_that_cannot_be_opened_ends_the_launch():
    class Fails(Watch):
        def for_launch(self, launch):
            raise LookupError("open")

    before, after = Watch("before"), Watch("after")
    x = torch.zeros(N)
    with pytest.raises(LookupError, match="open"):
        launch(add_one, x, N, BLOCK=8, clients=[before, Fails("fails"), after])
    assert before.only.calls == ["finalize"] and not after.opened and x.sum() == 0


def test_finalize_reaches_all_clients_and_the_first_failure_is_raised():
    watches = [Watch("a", fails="finalize"), Watch("b"), Watch("c", fails="finalize")]
    with pytest.raises(LookupError, match="a finalize") as caught:
        launch(add_one, torch.zeros(N), N, BLOCK=8, grid=(2,), clients=watches)
    assert all(watch.only.calls[-1] == "finalize" for watch in watches)
    if sys.version_info >= (3, 11):
        assert any("c finalize" in note for note in with_notes(caught.value))


def test_the_kernels_error_comes_before_those_of_finalizing():
    watches = [Watch("a", fails="finalize"), Watch("b"), Watch("c", fails="finalize")]
    x = torch.zeros(N)
    with tritontrace.session(watches) as session, pytest.raises(KernelError, match="must be positive") as caught:
        checked[(1,)](x, BLOCK=16, debug=True)
    assert caught.value.kernel == "checked" and caught.value.location.file == __file__
    assert [watch.only.calls.count("finalize") for watch in watches] == [1, 1, 1]
    assert all("post" not in watch.only.calls for watch in watches)
    if sys.version_info >= (3, 11):
        notes = " ".join(with_notes(caught.value))
        assert "a finalize" in notes and "c finalize" in notes
    (launch,) = session.launches
    assert not launch.completed and isinstance(launch.error, KernelError)


def test_a_clients_error_that_an_engine_reports_as_the_kernels_is_still_the_clients():
    watch = Watch(fails="pre")
    manager = ClientManager([watch], Launch("k"))
    with pytest.raises(LookupError) as caught:
        manager.members[0].call("_said", "pre")
    reported = KernelError("a hook failed", kernel="k")
    reported.__cause__ = caught.value
    assert settle(manager, reported) is caught.value
    own = KernelError("the kernel failed", kernel="k")
    own.__cause__ = ValueError()
    assert settle(ClientManager([Watch()], Launch("k")), own) is own


def test_findings_raise_after_everyone_is_finalized():
    class Finds(Client):
        name = "finds"

        def for_launch(self, launch):
            return Finds()

        def finalize(self):
            return [Finding("race", "a race", "finds")]

    watch = Watch()
    x = torch.zeros(N)
    with tritontrace.session([watch]) as outer, tritontrace.session([Finds()], on_finding="raise") as inner:
        with pytest.raises(FindingError, match="a race") as caught:
            add_one[(2,)](x, N, BLOCK=8)
        assert watch.only.calls[-1] == "finalize" and torch.equal(x, torch.ones(N))
    assert list(caught.value.findings) == inner.findings and not outer.findings
    assert inner.findings[0].launch is inner.launches[0]
    assert inner.launches[0].completed and inner.launches[0].error is None


def test_an_error_of_the_arguments_opens_no_client():
    watch = Watch()
    with tritontrace.session([watch]) as session, pytest.raises(TypeError):
        add_one[(1,)](torch.zeros(N))
    assert not watch.opened and isinstance(session.launches[0].error, TypeError)


@pytest.mark.parametrize("how", ["one session", "two sessions", "trace and session"])
@pytest.mark.parametrize("claim", ["replace", "override", "override without loops"])
def test_a_hook_conflict_is_named_and_undone(how, claim):
    class Claims(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)
            if claim == "replace":
                one.register_op_callback = lambda op: OpCallbacks(replace=lambda e: e) if op is events.Load else None
            else:
                one.register_for_loop_callback = lambda: LoopCallbacks(override=lambda loop: None)
            return one

    @triton.jit
    def loops(x, n, BLOCK: tl.constexpr):
        for i in range(n):
            tl.store(x + i, tl.load(x + i) + 1)

    kernel = loops if claim == "override" else add_one
    a, b, x = Claims("a"), Claims("b"), torch.zeros(N)
    watch = Watch()
    with pytest.raises(HookConflictError) as caught:
        if how == "one session":
            launch(kernel, x, N, BLOCK=16, clients=[watch, a, b])
        elif how == "two sessions":
            with tritontrace.session([watch, a]):
                launch(kernel, x, N, BLOCK=16, clients=[b])
        else:
            launch(trace(kernel, clients=[b]), x, N, BLOCK=16, clients=[watch, a])
    assert set(caught.value.clients) == {"a", "b"} and "'a'" in str(caught.value) and "'b'" in str(caught.value)
    assert caught.value.hook == ("replace Load" if claim == "replace" else "override loop")
    assert x.sum() == 0
    assert [one.only.calls.count("finalize") for one in (watch, a, b)] == [1, 1, 1]
    assert "pre" not in watch.only.calls
    launch(kernel, x, N, BLOCK=16, clients=[watch])
    assert torch.equal(x, torch.ones(N)), "the next launch is untouched"


def test_one_claim_is_honoured():
    class Sevens(Client):
        name = "sevens"

        def register_op_callback(self, op):
            return OpCallbacks(replace=lambda event: torch.full((1, 8), 7.0).numpy()) if op is events.Load else None

    x = torch.zeros(N)
    launch(add_one, x, N, BLOCK=8, grid=(2,), clients=[Watch(), Sevens()])
    assert torch.equal(x, torch.full((N,), 8.0))


# -- the warmup vote ---------------------------------------------------------------------------------------------------

WAYS = {
    "global name": lambda: (by_name, {}),
    "closure": lambda: (make_by_closure(), {}),
    "module attribute": lambda: (by_module, {}),
    "constexpr argument": lambda: (by_argument, {"F": traced_twice}),
    "parameter default": lambda: (by_default, {}),
    "two helpers deep": lambda: (two_deep, {}),
}


def language_state():
    return {part.__name__: dict(vars(part)) for part in (tl, tl.core, tl.tensor, tl.math, tl.standard)}


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_voted_compile_of_a_kernel_that_calls_a_traced_helper(way, target):
    kernel, keywords = WAYS[way]()
    state = (dict(vars(kernel)), dict(vars(twice)), dict(vars(outer_helper)), dict(globals()), dict(vars(helpers)))
    language = language_state()
    during = []

    class Looks(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)
            one.post_warmup_callback = lambda jit_fn, compiled: (
                during.append((language_state() == language, dict(globals()) == state[3])),
                one.compiled.append(compiled),
            )
            return one

    voter, other = Looks("voter", vote=True), Watch("other")
    calls = len(traced_twice.launches)
    x = torch.ones(N)
    session = launch(kernel, x, BLOCK=16, clients=[voter, other], session={"target": target}, **keywords)
    assert torch.equal(x, torch.full((N,), 2.0))
    (compiled,) = voter.only.compiled
    binary = "cubin" if target.startswith("cuda") else "hsaco"
    assert compiled.asm[binary] and f"{compiled.metadata.target.backend}:{compiled.metadata.target.arch}" == target
    assert not other.only.compiled
    assert session.launches[0].target == target and session.launches[0].compiled == [compiled]
    assert during == [(True, True)] and language_state() == language
    assert (dict(vars(kernel)), dict(vars(twice)), dict(vars(outer_helper)), dict(globals()), dict(vars(helpers))) == state
    assert len(traced_twice.launches) == calls, "a helper's call is no launch"


@pytest.mark.parametrize("raises", [None, "compiled", "vote"])
def test_every_client_is_asked_and_only_the_voters_are_told(raises):
    watches = [Watch("yes", vote=True, fails=raises), Watch("no"), Watch("also", vote=True), Watch("never")]
    if raises is None:
        launch(add_one, torch.zeros(N), N, BLOCK=16, clients=watches)
    else:
        with pytest.raises(LookupError, match=f"yes {raises}"):
            launch(add_one, torch.zeros(N), N, BLOCK=16, clients=watches)
    assert [watch.only.calls.count("vote") for watch in watches] == [1, 1, 1, 1]
    told = [0, 0, 0, 0] if raises == "vote" else [1, 0, 1, 0]
    assert [len(watch.only.compiled) for watch in watches] == told
    assert [watch.only.calls.count("finalize") for watch in watches] == [1, 1, 1, 1]
    assert gates_on(add_one) == 0


def test_a_layered_kernel_is_compiled_once_for_each_config_at_every_launch():
    kernel = triton.autotune([triton.Config({"BLOCK": 8}, num_warps=2), triton.Config({"BLOCK": 16})], key=["n"])(
        triton.heuristics({"n": lambda a: N})(add_one)
    )
    before = dict(vars(kernel))
    watch = Watch(vote=True)
    x = torch.zeros(N)
    with tritontrace.session([watch]) as session:
        for _ in range(2):
            kernel[lambda meta: (N // meta["BLOCK"],)](x)
    assert torch.equal(x, torch.full((N,), 2.0))
    assert len(watch.opened) == 2, "trials are not the voters' launches"
    for one in watch.opened:
        assert one.calls.count("vote") == 1
        assert [compiled.metadata.num_warps for compiled in one.compiled] == [2, 4]
    assert [len(launch.compiled) for launch in session.launches] == [2, 2]
    assert vars(kernel) == before


def test_a_compile_sees_what_a_config_hook_sets():
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def fill(desc, BLOCK: tl.constexpr):
        desc.store([tl.program_id(0) * BLOCK, 0], desc.load([tl.program_id(0) * BLOCK, 0]) + 1)

    def pre(named):
        named["desc"].block_shape = [named["BLOCK"], 16]

    kernel = triton.autotune([triton.Config({"BLOCK": block}, pre_hook=pre) for block in (4, 8)], key=[])(fill)
    out = torch.zeros(8, 16)
    watch = Watch(vote=True)
    desc = TensorDescriptor.from_tensor(out, [1, 16])
    launch(kernel, desc, grid=lambda meta: (8 // meta["BLOCK"],), clients=[watch])
    assert ["8x16x" in compiled.asm["ttir"] for compiled in watch.only.compiled] == [False, True]
    assert torch.equal(out, torch.ones(8, 16))
    assert desc.block_shape == [4, 16], "the chosen config's hook was the last to set it"


def test_a_config_that_cannot_be_compiled_is_left_out_and_no_more():
    @triton.jit
    def picky(out, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 8)
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    kernel = triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=[])(picky)
    watch = Watch(vote=True)
    launch(kernel, torch.zeros(N), clients=[watch])
    assert len(watch.only.compiled) == 1


def test_the_users_own_warmup_inside_a_session():
    yes, no = Watch("yes", vote=True), Watch("no")
    x = torch.zeros(N)
    with tritontrace.session([yes, no]) as session:
        compiled = add_one.warmup(torch.float32, N, BLOCK=8, grid=(1,))
        assert yes.only.calls == ["vote", "compiled", "finalize"] and no.only.calls == ["vote", "finalize"]
        (warm,) = session.launches
        assert warm.warmup and not warm.completed and len(warm.compiled) == 1 and warm.argument("n").value == N
        assert compiled.metadata.num_warps == 4 and compiled.n_regs > 0 and "ptx" in compiled.asm
        compiled[(2, 1, 1)](x, N)
        compiled[(2, 1, 1)](x, N, 8)
    assert torch.equal(x, torch.full((N,), 2.0))
    assert [launch.warmup for launch in session.launches] == [True, False, False]


def test_warmup_called_by_a_client_during_the_vote_compiles_and_is_no_launch():
    class Compiles(Watch):
        def for_launch(self, launch):
            one = super().for_launch(launch)

            def vote(jit_fn, launch):
                one.own = jit_fn.warmup(torch.float32, N, BLOCK=32, grid=(1,))
                return False

            one.pre_warmup_callback = vote
            return one

    watch = Compiles()
    session = launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[watch])
    assert len(session.launches) == 1 and "ptx" in watch.only.own.asm


def test_a_users_warmup_attribute_stays():
    mine = lambda *args, **kwargs: "mine"
    add_one.warmup = mine
    try:
        seen = []

        class Sees(Watch):
            def for_launch(self, launch):
                one = super().for_launch(launch)
                one.post_warmup_callback = lambda jit_fn, compiled: seen.append(vars(jit_fn)["warmup"] is mine)
                return one

        before = dict(vars(add_one))
        launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[Sees(vote=True)])
        assert seen == [True] and vars(add_one) == before and add_one.warmup is mine
    finally:
        del add_one.warmup


def test_votes_of_overlapping_scopes_on_threads_leave_nothing_in_any_order():
    before = dict(vars(add_one))
    for order in itertools.permutations(range(3)):
        voting = threading.Barrier(4)
        go = [threading.Event() for _ in range(3)]
        done = [threading.Event() for _ in range(3)]
        errors = []

        class Waits(Watch):
            def __init__(self, index, voting=voting, go=go):
                super().__init__(f"waits {index}")
                self.index, self.voting, self.go = index, voting, go

            def for_launch(self, launch):
                one = super().for_launch(launch)

                def vote(jit_fn, launch):
                    self.voting.wait()
                    self.go[self.index].wait()
                    return False

                one.pre_warmup_callback = vote
                return one

        def work(index, waits=Waits, done=done, errors=errors):
            try:
                launch(add_one, torch.zeros(N), N, BLOCK=16, clients=[waits(index)])
            except BaseException as error:
                errors.append(error)
            finally:
                done[index].set()

        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        voting.wait()
        assert gates_on(add_one) == 3 and vars(add_one) == before
        for left, index in zip((2, 1, 0), order, strict=True):
            go[index].set()
            done[index].wait()
            assert gates_on(add_one) == left
        for thread in threads:
            thread.join()
        assert not errors
    assert vars(add_one) == before


# -- Triton's hooks ----------------------------------------------------------------------------------------------------


def test_tritons_launch_hooks_fire_once_for_each_launch_of_the_user():
    fired = Counter()
    metadata = []

    def enter(lazy):
        fired["enter"] += 1
        metadata.append(lazy.get())

    def leave(lazy):
        fired["exit"] += 1

    def pre_run(*args, **kwargs):
        fired["pre_run"] += 1
        assert isinstance(args[0], torch.Tensor) and "BLOCK" in kwargs and "debug" in kwargs

    @triton.jit(launch_metadata=lambda grid, metadata, args: {"grid": grid, "flops": args["n"] * metadata.num_warps})
    def described(x, n, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    described.add_pre_run_hook(pre_run)
    kernel = triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=["n"])(described)
    triton.knobs.runtime.launch_enter_hook.add(enter)
    triton.knobs.runtime.launch_exit_hook.add(leave)
    try:
        with tritontrace.session([]), tritontrace.session(["sanitizer"]) as session:
            kernel[(1,)](torch.zeros(N), N)
            assert len(session.launches[0].trials) == 2
            assert fired == {"enter": 1, "exit": 1, "pre_run": 1}
            kernel[(1,)](torch.zeros(N), N)
            assert fired == {"enter": 2, "exit": 2, "pre_run": 2}
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(enter)
        triton.knobs.runtime.launch_exit_hook.remove(leave)
    assert metadata[0]["name"] == "described" and metadata[0]["flops"] == N * 4 and metadata[0]["grid"] == (1, 1, 1)


# -- TritonTrace -------------------------------------------------------------------------------------------------------


def test_a_trace_called_outside_raises_type_error():
    for called in (traced_twice, trace(triton.heuristics({"n": lambda a: N})(add_one))):
        with pytest.raises(TypeError, match="launch it with a grid"):
            called(1)
    with tritontrace.session([]), pytest.raises(TypeError, match="launch it with a grid"):
        traced_twice(1)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_trace_called_from_a_traced_kernel_runs(way):
    kernel, keywords = WAYS[way]()
    x = torch.ones(N)
    trace(kernel)[(1,)](x, BLOCK=16, **keywords)
    assert torch.equal(x, torch.full((N,), 2.0))


def test_a_trace_is_its_kernel_to_others():
    traced = trace(add_one)
    assert isinstance(traced, triton.JITFunction) and type(traced) is TritonTrace
    fn = traced
    while not isinstance(fn, triton.JITFunction):
        fn = fn.fn
    assert traced.fn is add_one.fn and traced.src == add_one.src and traced.arg_names == add_one.arg_names
    assert traced.signature == add_one.signature and traced.__name__ == "add_one"
    own = copy.copy(add_one.__dict__)
    assert "launches" not in own and "_self_scope" not in own


def test_a_trace_records_its_launches_and_those_of_nobody_else():
    traced, x = trace(add_one, clients=["sanitizer"]), torch.zeros(N)
    traced[(2,)](x, N, BLOCK=8)
    traced.run(x, N, BLOCK=8, grid=(2,), warmup=False)
    assert traced.warmup(torch.float32, N, BLOCK=8, grid=(1,)) is not None
    with tritontrace.suspend():
        traced[(2,)](x, N, BLOCK=8)
    assert torch.equal(x, torch.full((N,), 3.0))
    assert [launch.warmup for launch in traced.launches] == [False, False, True, False]
    assert not traced.findings and "add_one" in traced.report()
    with pytest.raises(Exception, match="driver"):
        add_one[(2,)](x, N, BLOCK=8)
    assert len(traced.launches) == 4


def test_tracing_a_trace_again_adds_clients():
    first, second = Watch("first"), Watch("second")
    traced = trace(trace(add_one, clients=[first]), clients=[second])
    traced[(2,)](torch.zeros(N), N, BLOCK=8)
    assert traced.__wrapped__ is add_one and len(traced.launches) == 1
    assert first.only.calls == second.only.calls == ORDER


def test_trace_is_a_decorator_with_and_without_settings():
    @tritontrace.tracing.trace
    @triton.jit
    def plain(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    @trace(clients=["sanitizer"], on_finding="raise", keep=1)
    @triton.jit
    def strict(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    x = torch.zeros(N)
    plain[(1,)](x, BLOCK=16)
    assert x.sum() == N and len(plain.launches) == 1
    for _ in range(2):
        with pytest.raises(FindingError):
            strict[(1,)](x, BLOCK=32)
    assert len(strict.launches) == 1


@pytest.mark.parametrize("odd", [print, 3, add_one.fn, torch.zeros(1)])
def test_only_kernels_can_be_traced(odd):
    with pytest.raises(TypeError, match="cannot be traced"):
        trace(odd)


def test_the_clients_of_a_trace_are_resolved_as_those_of_a_session():
    with pytest.raises(ValueError, match="sanitizer"):
        trace(add_one, clients=["sanitiser"])


def test_the_state_of_a_trace_is_its_own_and_an_attribute_is_the_kernels():
    traced = trace(twice)
    before = dict(vars(twice))
    traced.add_clients([Watch()])
    assert vars(twice) == before
    traced.mark = 1
    try:
        assert twice.mark == 1
    finally:
        del twice.mark


def test_copies_of_a_trace_trace_the_same_kernel_and_launch_apart():
    watch = Watch()
    traced = trace(add_one, clients=[watch], keep=3)
    traced[(2,)](torch.zeros(N), N, BLOCK=8)
    for made in (copy.copy(traced), copy.deepcopy(traced), copy.deepcopy({"k": [traced]})["k"][0]):
        assert type(made) is TritonTrace and made.__wrapped__ is add_one and made is not traced
        assert made.launches == [] and made.clients == traced.clients
        made[(2,)](torch.zeros(N), N, BLOCK=8)
        assert len(made.launches) == 1 and len(traced.launches) == 1


def test_a_trace_is_pickled_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or types.SimpleNamespace(**globals()))
    traced = trace(add_one, clients=["sanitizer"])
    again = pickle.loads(pickle.dumps(traced))
    assert type(again) is TritonTrace and again.__wrapped__ is add_one
    assert [client.name for client in again.clients] == ["sanitizer"]

    @triton.jit
    def local(x):
        tl.store(x, 1.0)

    with pytest.raises(pickle.PicklingError, match="local"):
        pickle.dumps(trace(local))


def test_changing_a_global_between_traced_launches_writes_nothing_to_the_kernel():
    before = (dict(vars(by_name)), dict(vars(twice)))
    for _ in range(2):
        launch(by_name, torch.ones(N), BLOCK=16, clients=[Watch(vote=True)])
    assert (dict(vars(by_name)), dict(vars(twice))) == before


# -- Triton's interpreter ----------------------------------------------------------------------------------------------

INTERPRETED = """
    import torch, triton, triton.language as tl, tritontrace
    from triton.runtime.interpreter import InterpretedFunction
    from tritontrace.tracing import trace

    @trace
    @triton.jit
    def helper(v):
        return v * 2 + tl.sum(v, 0)

    @triton.jit
    def kernel(x, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x + i, helper(tl.load(x + i)))

    @triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=[])
    @triton.heuristics({"EXTRA": lambda a: a["BLOCK"]})
    @triton.jit
    def layered(x, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i) + EXTRA)
"""


def interpreted(tmp_path, body):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(INTERPRETED) + textwrap.dedent(body))
    import os

    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_trace_called_from_a_kernel_in_tritons_interpreter_runs(tmp_path):
    interpreted(
        tmp_path,
        """
        assert isinstance(kernel, InterpretedFunction)
        x = torch.ones(16)
        kernel[(1,)](x, BLOCK=16)
        assert torch.equal(x, torch.full((16,), 18.0)), x
        assert not helper.launches
        try:
            helper(1)
        except TypeError as error:
            assert "launch it with a grid" in str(error)
        else:
            raise AssertionError
        """,
    )


def test_interpreted_kernels_are_traced_too(tmp_path):
    interpreted(
        tmp_path,
        """
        before = dict(vars(kernel)), dict(vars(layered)), dict(vars(layered.fn)), dict(globals())
        x = torch.ones(16)
        with tritontrace.session(["sanitizer"]) as session:
            kernel[(1,)](x, BLOCK=16)
            assert torch.equal(x, torch.full((16,), 18.0)), x
            x.zero_()
            layered[lambda meta: (16 // meta["BLOCK"],)](x)
            assert torch.equal(x, torch.full((16,), 8.0)), x
            warm = kernel.warmup(torch.float32, BLOCK=16, grid=(1,))
            assert warm.metadata.num_warps == 4
        assert [launch.kernel_name for launch in session.launches] == ["kernel", "layered", "kernel"]
        assert len(session.launches[1].trials) == 2 and not session.findings
        traced = trace(kernel)
        x = torch.ones(16)
        traced[(1,)](x, BLOCK=16)
        assert torch.equal(x, torch.full((16,), 18.0)) and len(traced.launches) == 1
        after = {name: value for name, value in globals().items() if name in before[3]}
        same = lambda a, b: set(a) == set(b) and all(a[k] is b[k] for k in a)
        assert same(vars(kernel), before[0]) and same(vars(layered), before[1]) and same(vars(layered.fn), before[2])
        """,
    )


# -- launches that cannot be traced ------------------------------------------------------------------------------------


def test_a_gluon_kernel_is_named_and_not_traced():
    gluon = pytest.importorskip("triton.experimental.gluon")

    @gluon.jit
    def other(x):
        pass

    with pytest.raises(TypeError, match="Gluon"):
        trace(other)
    x = torch.zeros(N)
    with tritontrace.session([]) as session, pytest.warns(RuntimeWarning, match="'other'.*Gluon"), pytest.raises(Exception):  # noqa: B017
        other[(1,)](x)
    assert not session.launches
    with tritontrace.session([], strict=True), pytest.raises(tritontrace.UntraceableLaunchError, match="other"):
        other[(1,)](x)
