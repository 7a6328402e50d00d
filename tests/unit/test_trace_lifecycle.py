"""The life of a traced launch: one Launch each, clients in order, exclusive hooks, finalizing, and what is left behind.

Beside it: the layers (`test_layers`, `test_tuning`), the warmup vote (`test_warmup_vote`, `test_gates`), traces
(`test_triton_trace`), and the manager of the clients (`test_clients_base`).
"""

import gc
import sys
import threading
import time
import weakref
from collections import Counter

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit import lifecycle_kernels
from tests.unit.lifecycle_kernels import ORDER, N, Watch, add_one, checked, launch, with_notes
from tritontrace import events
from tritontrace.clients.base import Client, ClientManager, LoopCallbacks, OpCallbacks
from tritontrace.errors import FindingError, HookConflictError, KernelError, OutOfBoundsError
from tritontrace.findings import Finding
from tritontrace.kernels.execution import settle
from tritontrace.launch import Launch
from tritontrace.scopes.gates import gates_on
from tritontrace.tracing import trace

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
    for each in session.launches:
        assert each.kernel_name == "add_one" and each.grid == (2, 1, 1) and each.completed and each.error is None
        assert each.file == lifecycle_kernels.__file__ and each.argument("x").data_ptr == x.data_ptr()
        assert each.records == {"watch": ["watch"]} and each.memory is None
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
    assert caught.value.kernel == "checked" and caught.value.location.file == lifecycle_kernels.__file__
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
