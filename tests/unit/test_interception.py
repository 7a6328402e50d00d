"""The wrappers on Triton's launch entry points: what they catch, what they hand on, and what stays when they go.

What a launch does once it is caught is `test_trace_lifecycle`'s subject; here the `caught` fixture stands in for it.
"""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import wrapt
from triton.compiler.compiler import CompiledKernel
from triton.experimental import gluon
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelInterface, MockTensor

import tritontrace
from tritontrace.kernels import lifecycle
from tritontrace.patching import interception
from tritontrace.scopes import identity

ENTRIES = [
    (JITFunction, "run"),
    (Autotuner, "run"),
    (Autotuner, "warmup"),
    (Heuristics, "run"),
    (InterpretedFunction, "run"),
    (CompiledKernel, "__getitem__"),
]


@triton.jit
def kernel(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), n)


interpreted = InterpretedFunction(kernel.fn)


@gluon.jit
def gluon_kernel(x):
    pass


def dictionaries() -> list[dict[str, Any]]:
    return [dict(owner.__dict__) for owner in dict.fromkeys([owner for owner, _ in ENTRIES] + [KernelInterface])]


def same(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Equal by identity, and in the same order."""
    return all(list(a) == list(b) and all(a[name] is b[name] for name in a) for a, b in zip(before, after, strict=True))


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    before = dictionaries()
    yield
    assert same(before, dictionaries())
    assert interception._sessions == 0


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Every launch that reaches the lifecycle; it goes no further."""
    launches: list[SimpleNamespace] = []

    def launch(kernel: Any, scopes: Any, args: Any, kwargs: Any, **words: Any) -> Any:
        words.pop("original")
        launches.append(SimpleNamespace(kernel=kernel, scopes=scopes, args=args, kwargs=kwargs, **words))
        return "traced"

    monkeypatch.setattr(lifecycle, "launch", launch)
    return launches


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """`JITFunction.run` replaced by a recorder (there is no GPU here), before any session opens."""
    calls: list[tuple[Any, ...]] = []

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
        calls.append((self, args, grid, warmup, kwargs))
        return "plain"

    monkeypatch.setattr(JITFunction, "run", run)
    return calls


def test_the_classes_hold_the_very_same_objects_afterwards() -> None:
    before = dictionaries()
    with tritontrace.session():
        for owner, name in ENTRIES:
            value = owner.__dict__[name]
            assert isinstance(value, wrapt.FunctionWrapper)
            original = before[list(dict.fromkeys(owner for owner, _ in ENTRIES)).index(owner)][name]
            assert value.__wrapped__ is original
            assert inspect.signature(value) == inspect.signature(original) and value.__name__ == original.__name__
        with tritontrace.session(scope="process"):
            pass
        assert isinstance(JITFunction.__dict__["run"], wrapt.FunctionWrapper)
    assert same(before, dictionaries())


def test_importing_changes_nothing() -> None:
    code = """
        import os, sys, threading, types
        registered = []
        os.register_at_fork = lambda **hooks: registered.append(hooks)
        import torch, triton, triton.runtime.interpreter
        from triton.runtime.jit import JITFunction, KernelInterface
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.compiler.compiler import CompiledKernel
        registered.clear()
        classes = [JITFunction, KernelInterface, Autotuner, Heuristics, CompiledKernel]
        classes.append(triton.runtime.interpreter.InterpretedFunction)
        watched = [*classes, triton, triton.language, triton.language.core.tensor, triton.runtime.driver, torch, torch._C]
        before = [dict(vars(owner)) for owner in watched]
        threads = threading.enumerate()
        import tritontrace
        after = [dict(vars(owner)) for owner in watched]
        for owner, old, new in zip(watched, before, after):
            added = set(new) - set(old)  # submodules that somebody imported
            assert all(isinstance(new[name], types.ModuleType) for name in added), (owner, added)
            assert all(old[name] is new[name] for name in old), owner
        assert not registered and threading.enumerate() == threads
        assert not torch._C._is_key_in_tls("tritontrace.scopes")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=Path(__file__).parents[2], timeout=300)


@pytest.mark.parametrize("function", [kernel, interpreted], ids=["jit", "interpreted"])
def test_every_way_to_launch_is_caught(caught: list[SimpleNamespace], function: Any) -> None:
    with tritontrace.session() as session:
        assert function[(3,)](1, n=2, B=16) == "traced"
        assert function.run(1, 2, B=16, grid=(4,), warmup=False) == "traced"
        assert function.warmup(torch.float32, 2, B=16, grid=(5,)) == "traced"
        type(function).run(function, 1, 2, B=16, grid=(6,), warmup=False)
        bound = function.run
        bound(1, 2, B=16, grid=(7,), warmup=False)
        functools.partial(function.run, grid=(8,), warmup=False)(1, 2, B=16)
    assert [(c.grid, c.warmup) for c in caught] == [
        ((3,), False),
        ((4,), False),
        ((5,), True),
        ((6,), False),
        ((7,), False),
        ((8,), False),
    ]
    assert all(c.kernel is function and c.entry == "run" and [s.id for s in c.scopes] for c in caught)
    assert (caught[0].args, caught[0].kwargs) == ((1,), {"n": 2, "B": 16})
    # KernelInterface.warmup has put its stand-in there, as it does for Triton itself.
    assert isinstance(caught[2].args[0], MockTensor) and caught[2].args[0].dtype is torch.float32
    assert all(c.scopes[0].session is None for c in caught)  # released, and the session closed
    assert session.closed


def test_layers_are_caught_at_the_outermost(caught: list[SimpleNamespace]) -> None:
    heuristics = triton.heuristics({"B": lambda _: 16})(kernel)
    tuner = triton.autotune([triton.Config({"B": 16})], key=[])(kernel)
    before = dict(vars(tuner))
    with tritontrace.session():
        heuristics[(1,)](1, 2)
        tuner[(1,)](1, 2)
        tuner.warmup(1, 2, grid=(1,))
    assert [(c.kernel, c.entry, c.warmup) for c in caught] == [
        (heuristics, "run", False),
        (tuner, "run", False),
        (tuner, "warmup", True),
    ]
    assert vars(tuner) == before  # Triton's own warmup writes `nargs` to the user's object


def test_the_callers_dictionary_is_left_alone(caught: list[SimpleNamespace]) -> None:
    words = {"grid": (1,), "warmup": False, "n": 2, "B": 16}
    with tritontrace.session():
        kernel.run(1, **words)
    assert words == {"grid": (1,), "warmup": False, "n": 2, "B": 16} and caught[0].grid == (1,)


def test_a_launch_without_a_grid_is_an_error() -> None:
    with tritontrace.session(), pytest.raises(TypeError, match="'kernel' is launched without a grid"):
        kernel.run(1, 2, B=16, warmup=False)


def test_launches_that_nobody_watches_go_straight_on(caught: list[SimpleNamespace], plain: list[tuple[Any, ...]]) -> None:
    opened, end = threading.Event(), threading.Event()

    def other() -> None:
        with tritontrace.session():
            opened.set()
            end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    opened.wait()
    try:
        assert kernel[(1,)](1, n=2, B=16) == "plain"
        with tritontrace.session(), tritontrace.suspend():
            assert kernel[(2,)](1, n=2, B=16) == "plain"
        with tritontrace.session(kernels="other*"):
            assert kernel[(3,)](1, n=2, B=16) == "plain"
        with tritontrace.session(kernels=kernel):
            assert kernel[(4,)](1, n=2, B=16) == "traced"
    finally:
        end.set()
        thread.join()
    assert [call[2] for call in plain] == [(1,), (2,), (3,)]
    assert plain[0] == (kernel, (1,), (1,), False, {"n": 2, "B": 16})
    assert [c.grid for c in caught] == [(4,)]


def test_only_the_scopes_that_accept_the_kernel_are_handed_on(caught: list[SimpleNamespace]) -> None:
    with tritontrace.session(kernels="kern*"), tritontrace.session(kernels="other"), tritontrace.session():
        kinds = [scope.kernels for scope in identity.active_scopes()]
        kernel[(1,)](1, 2, B=16)
        assert kinds == [("kern*",), ("other",), None]
        assert [scope.kernels for scope in caught[0].scopes] == [("kern*",), None]


@pytest.mark.usefixtures("switch_everywhere")
def test_opening_and_closing_on_many_threads_leaves_the_classes_alone(
    caught: list[SimpleNamespace], plain: list[tuple[Any, ...]]
) -> None:
    # Counting sessions without LOCK loses counts: the wrappers then stay, or go while a session is open and a launch
    # inside comes back "plain".
    before = dictionaries()
    start = threading.Barrier(8)
    wrong: list[Any] = []

    def work() -> None:
        start.wait()
        for _ in range(60):
            with tritontrace.session():
                wrong.extend(answer for answer in [kernel[(1,)](1, 2, B=16)] if answer != "traced")
            wrong.extend(answer for answer in [kernel[(1,)](1, 2, B=16)] if answer != "plain")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(caught) == len(plain) == 480
    assert same(before, dictionaries())


def test_an_installation_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dictionaries()
    puts = []
    put = interception._Point.put

    def failing(self: Any) -> None:
        puts.append(self)
        if len(puts) == 4:
            raise OSError("no more")
        put(self)

    monkeypatch.setattr(interception._Point, "put", failing)
    session = tritontrace.session()
    with pytest.raises(OSError, match="no more"):
        session.open()
    assert len(puts) == 4 and same(before, dictionaries()) and identity.active_scopes() == ()
    monkeypatch.undo()
    with session:  # it has not been entered
        pass


# Other people's patches


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("tritontrace")]


def patch_over(style: str) -> Callable[[], None]:
    """Somebody's patch of JITFunction.run, in one of the styles people use; the result takes it out again."""
    saved = JITFunction.__dict__["run"]

    if style == "closure":

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ("patched", saved.__get__(self, type(self))(*args, **kwargs))

        JITFunction.run = patched
    elif style == "wraps":

        @functools.wraps(saved)
        def wrapping(self: Any, *args: Any, **kwargs: Any) -> Any:
            return ("patched", saved.__get__(self, type(self))(*args, **kwargs))

        JITFunction.run = wrapping
    else:
        JITFunction.run = wrapt.FunctionWrapper(saved, lambda w, i, a, k: ("patched", w(*a, **k)))

    def undo() -> None:
        JITFunction.run = saved

    return undo


@pytest.mark.parametrize("style", ["closure", "wraps", "wrapt"])
def test_a_patch_over_ours_stays_and_ours_goes_when_it_surfaces(
    style: str, caught: list[SimpleNamespace], plain: list[tuple[Any, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    original = JITFunction.__dict__["run"]
    with caplog.at_level(logging.INFO):
        with tritontrace.session():
            undo = patch_over(style)
            patch = JITFunction.__dict__["run"]
            assert kernel[(1,)](1, 2, B=16) == ("patched", "traced")
        assert JITFunction.__dict__["run"] is patch
        assert kernel[(1,)](1, 2, B=16) == ("patched", "plain")
        assert len(log_lines(caplog)) == 1 and "JITFunction.run" in log_lines(caplog)[0]
        for _ in range(3):
            with tritontrace.session():
                # Through the patch and then ours, which is still beneath it; no second one on top.
                assert kernel[(1,)](1, 2, B=16) == ("patched", "traced")
            assert JITFunction.__dict__["run"] is patch
        assert len(log_lines(caplog)) == 1
    undo()
    assert JITFunction.__dict__["run"] is not original
    assert kernel[(1,)](1, 2, B=16) == "plain"  # the launch that finds ours on top takes it out
    assert JITFunction.__dict__["run"] is original


def test_a_surfaced_wrapper_goes_at_the_next_session_too(plain: list[tuple[Any, ...]]) -> None:
    original = JITFunction.__dict__["run"]
    with tritontrace.session():
        undo = patch_over("closure")
    undo()
    with tritontrace.session():
        pass
    assert JITFunction.__dict__["run"] is original


def test_a_patch_that_hides_what_it_calls_gets_ours_on_top(caught: list[SimpleNamespace], plain: list[tuple[Any, ...]]) -> None:
    original = JITFunction.__dict__["run"]
    hidden = {"saved": None}

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ("patched", hidden["saved"].__get__(self, type(self))(*args, **kwargs))

    with tritontrace.session():
        hidden["saved"] = JITFunction.__dict__["run"]
        JITFunction.run = patched
    with tritontrace.session():
        # Whether ours is reached through it cannot be seen, so ours goes on top: traced once, whichever comes first.
        assert kernel[(1,)](1, 2, B=16) == "traced"
        assert len(caught) == 1
    assert JITFunction.__dict__["run"] is patched
    assert kernel[(1,)](1, 2, B=16) == ("patched", "plain")
    JITFunction.run = hidden["saved"]
    assert kernel[(1,)](1, 2, B=16) == "plain"
    assert JITFunction.__dict__["run"] is original


def test_a_patch_taken_out_while_a_session_is_open(caught: list[SimpleNamespace], plain: list[tuple[Any, ...]]) -> None:
    # It was there first; putting back what it saved throws ours out. The next session puts ours in again.
    original = JITFunction.__dict__["run"]
    undo = patch_over("closure")
    with tritontrace.session():
        assert kernel[(1,)](1, 2, B=16) == "traced"
        undo()
        assert JITFunction.__dict__["run"] is original
        with tritontrace.session():
            assert kernel[(1,)](1, 2, B=16) == "traced"
    assert JITFunction.__dict__["run"] is original


# What cannot be traced


def test_gluon_warns_once_names_the_kernel_and_runs(plain: list[tuple[Any, ...]]) -> None:
    with pytest.warns(RuntimeWarning, match=r"'gluon_kernel'.*Gluon") as warned, tritontrace.session() as session:
        for _ in range(3):
            assert gluon_kernel[(1,)](1) == "plain"
    assert len(warned) == 1 and warned[0].filename == __file__
    assert len(plain) == 3 and session.launches == []


def test_gluon_raises_in_a_strict_session(plain: list[tuple[Any, ...]]) -> None:
    with tritontrace.session(), tritontrace.session(strict=True):
        with pytest.raises(tritontrace.UntraceableLaunchError, match=r"'gluon_kernel'.*Gluon"):
            gluon_kernel[(1,)](1)
    assert plain == []


def test_gluon_outside_the_kernels_of_a_session_is_no_business_of_its(plain: list[tuple[Any, ...]]) -> None:
    with warnings.catch_warnings(), tritontrace.session(kernels="other", strict=True):
        warnings.simplefilter("error")
        assert gluon_kernel[(1,)](1) == "plain"


def launcher(inner: Any = None) -> Any:
    class OtherLauncher(KernelInterface):
        fn = inner

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            return "launched" if self.fn is None else self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)

    return OtherLauncher()


def test_another_launcher_is_reported() -> None:
    other = launcher()
    for _ in range(2):
        with tritontrace.session():
            with pytest.warns(RuntimeWarning, match=r"OtherLauncher.*not by Triton's JITFunction") as warned:
                assert other[(1,)](1) == "launched"
            assert warned[0].filename == __file__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert other[(1,)](1) == "launched"  # once in a session
    with tritontrace.session(strict=True):
        with pytest.raises(tritontrace.UntraceableLaunchError, match="OtherLauncher"):
            other[(1,)](1)
    assert not isinstance(type(other).__dict__["run"], wrapt.FunctionWrapper)


def test_a_launcher_whose_class_is_made_inside_a_session_is_reported_there() -> None:
    # As when torch's inductor is imported late.
    with tritontrace.session(strict=True):
        with pytest.raises(tritontrace.UntraceableLaunchError, match="OtherLauncher"):
            launcher()[(1,)](1)


def test_another_launcher_that_ends_in_triton_is_traced(caught: list[SimpleNamespace]) -> None:
    with warnings.catch_warnings(), tritontrace.session(strict=True):
        warnings.simplefilter("error")
        assert launcher(kernel)[(1,)](1, 2, B=16) == "traced"
    assert [c.kernel for c in caught] == [kernel]


def test_a_subclass_of_tritons_with_a_run_of_its_own(caught: list[SimpleNamespace]) -> None:
    class Logged(JITFunction):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            return ("logged", super().run(*args, **kwargs))

    class Silent(JITFunction):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            return "elsewhere"

    with tritontrace.session():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Logged(kernel.fn)[(1,)](1, 2, B=16) == ("logged", "traced")
        with pytest.warns(RuntimeWarning, match="Silent"):
            assert Silent(kernel.fn)[(1,)](1, 2, B=16) == "elsewhere"


def test_other_peoples_classes_are_not_kept_alive() -> None:
    other = launcher()
    gone = weakref.ref(type(other))
    with tritontrace.session():
        pass
    del other
    gc.collect()
    assert gone() is None


# Compiled kernels


def compiled_stub(function: Any = kernel, constants: dict[Any, Any] | None = None) -> Any:
    """A `CompiledKernel` as far as its launch is concerned; making a real one takes a compiler run."""
    stub = object.__new__(CompiledKernel)
    stub.module = stub._run = None
    stub.name = "kernel"
    stub.src = SimpleNamespace(fn=function, constants=constants if constants is not None else {(2,): 16})
    stub.metadata = SimpleNamespace(num_warps=8, num_stages=2, num_ctas=1)
    return stub


def test_a_compiled_kernel_from_outside_is_launched_traced(caught: list[SimpleNamespace]) -> None:
    compiled = compiled_stub()
    with tritontrace.session():
        launch = compiled[(3, 1, 1)]
        assert launch(1, 2, 99) == "traced"  # what was constant when it was compiled, stays
        assert launch(1, 2) == "traced"
        assert compiled[(4, 1, 1)](1, 2, 16, stream=7) == "traced"
    assert [(c.kernel, c.grid, c.args, c.warmup) for c in caught] == [
        (kernel, (3, 1, 1), (1, 2, 16), False),
        (kernel, (3, 1, 1), (1, 2, 16), False),
        (kernel, (4, 1, 1), (1, 2, 16), False),
    ]
    assert caught[0].kwargs == {"num_warps": 8, "num_stages": 2, "num_ctas": 1}


def test_constants_inside_tuples() -> None:
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    source = SimpleNamespace(constants={(0, 1): 5, (1, 0, 0): 6, (2,): None})
    assert interception._with_constants(source, ((1, 2), Pair((3,), 4))) == ((1, 5), Pair((6,), 4), None)


def test_a_compiled_kernels_launcher_that_outlives_the_session(
    caught: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        CompiledKernel, "__getitem__", lambda self, grid: lambda *args, stream=None: ("plain", grid, args, stream)
    )
    with tritontrace.session():
        launch = compiled_stub()[(3,)]
    assert launch(1, 2) == ("plain", (3,), (1, 2), None)
    assert launch(1, 2, stream=4) == ("plain", (3,), (1, 2), 4)
    assert caught == []


def test_a_kernel_compiled_from_ir_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledKernel, "__getitem__", lambda self, grid: lambda *args: "plain")
    compiled = compiled_stub(function=None)
    with tritontrace.session():
        with pytest.warns(RuntimeWarning, match="'kernel'.*IR"):
            assert compiled[(1,)](1) == "plain"
    with tritontrace.session(strict=True), pytest.raises(tritontrace.UntraceableLaunchError, match="IR"):
        compiled[(1,)](1)


def test_a_kernels_own_parameters_named_like_options_are_arguments(caught: list[SimpleNamespace]) -> None:
    @triton.jit
    def named(x, num_warps):
        pass

    with tritontrace.session():
        compiled_stub(named, {})[(1,)](1, 2)
    assert caught[0].args == (1, 2) and caught[0].kwargs == {"num_stages": 2, "num_ctas": 1}
