"""Tuners of other people's: subclasses of Triton's Autotuner that measure for themselves, and what `best_config` says."""

import warnings

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner

import tritontrace
from tests.unit.layer_kernels import N, add_kernel, blocks, configs, copy_kernel, run, state
from tritontrace.kernels.tuners import tunes_itself
from tritontrace.tracing import trace


class OwnTuner(Autotuner):
    """As FlagGems' LibTuner: chooses by its own measurements, and keeps them in a store of its own."""

    store: list[str] = []

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        timings = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs(kwargs)}
        self.store.append("measured")
        self.best_config = min(timings, key=timings.get)
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


class OwnTunerBelow(OwnTuner):
    pass


class Entry(triton.runtime.KernelInterface):
    """As FlagGems' LibEntry: the first launch goes down, later ones to the compiled kernel that it returned."""

    def __init__(self, fn):
        self.fn, self.arg_names, self.compiled, self.config = fn, fn.arg_names, None, None

    def run(self, *args, grid, **kwargs):
        if self.compiled is None:
            self.compiled = self.fn.run(*args, grid=grid, **kwargs)
            self.config = self.fn.best_config
        else:
            self.compiled[grid({**kwargs, **self.config.kwargs})](*args)
        return self.compiled


def tuner(kind, function=add_kernel, **words):
    return kind(function, function.arg_names, configs(8, 16), ["n"], None, None, **words)


@pytest.fixture(autouse=True)
def nothing_measured():
    OwnTuner.store.clear()
    yield
    assert OwnTuner.store == []


@pytest.mark.parametrize("kind", [OwnTuner, OwnTunerBelow])
@pytest.mark.parametrize("how", ["session", "trace", "under heuristics", "trace under heuristics"])
def test_a_tuner_that_never_hands_over_is_not_let_measure(kind, how):
    kernel = tuner(kind)
    before = state(kernel)
    launched = triton.heuristics({"n": lambda a: N})(kernel) if "heuristics" in how else kernel
    args = () if "heuristics" in how else (N,)
    out = torch.zeros(N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if "trace" in how:
            launched = trace(launched, clients=["sanitizer"])
            launched[blocks(N)](out, *args)
            launches = launched.launches
        else:
            launches = run(launched, out, *args, clients=["sanitizer"]).launches
    assert torch.equal(out, torch.ones(N))
    (launch,) = launches
    assert launch.config == {"BLOCK": 8} and len(launch.trials) == 2
    assert state(kernel) == before


def test_a_tuner_above_one_that_measures():
    class Counting(OwnTuner):
        calls = 0

        def run(self, *args, **kwargs):
            Counting.calls += 1
            return super().run(*args, **kwargs)

    out = torch.zeros(N)
    session = run(tuner(Counting), out, N)
    assert torch.equal(out, torch.ones(N)) and Counting.calls == 1 and len(session.launches) == 1


def test_a_tuner_whose_class_is_made_inside_a_session():
    with tritontrace.session() as session:

        class Late(Autotuner):
            def run(self, *args, **kwargs):
                raise AssertionError("it must not be let run")

        out = torch.zeros(N)
        tuner(Late)[blocks(N)](out, N)
    assert torch.equal(out, torch.ones(N)) and len(session.launches) == 1


class Zero(Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)


class Named(Autotuner):
    def run(self, *args, **kwargs):
        return super(Named, self).run(*args, **kwargs)  # noqa: UP008


class ByClass(Autotuner):
    def run(self, *args, **kwargs):
        return Autotuner.run(self, *args, **kwargs)


class ByModule(Autotuner):
    def run(self, *args, **kwargs):
        return triton.runtime.autotuner.Autotuner.run(self, *args, **kwargs)


class Inside(Autotuner):
    def run(self, *args, **kwargs):
        return (lambda: super(Inside, self).run(*args, **kwargs))()


class NoMethod(Autotuner):
    run = property(lambda self: None)


@pytest.mark.parametrize("kind", [Autotuner, Zero, Named, ByClass, ByModule, Inside, NoMethod, Entry])
def test_who_hands_over(kind):
    assert not tunes_itself(kind)


@pytest.mark.parametrize("kind", [OwnTuner, OwnTunerBelow])
@pytest.mark.parametrize("session", [False, True])
def test_who_never_hands_over(kind, session):
    if session:
        with tritontrace.session():
            assert tunes_itself(kind)
    else:
        assert tunes_itself(kind)


# -- best_config -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Autotuner, OwnTuner])
def test_a_launcher_that_reads_the_chosen_config_and_keeps_the_compiled_kernel(kind):
    kernel = Entry(tuner(kind))
    outs = [torch.zeros(N) for _ in range(3)]
    with warnings.catch_warnings(), tritontrace.session(strict=True) as session:
        warnings.simplefilter("error")
        for out in outs:
            kernel[blocks(N)](out, N)
        assert kernel.config is kernel.fn.configs[0]
    assert all(torch.equal(out, torch.ones(N)) for out in outs)
    assert len(session.launches) == 3 and all(launch.completed for launch in session.launches)
    # The compiled kernel is traced by whatever session is open when it is launched.
    with tritontrace.session(strict=True) as later:
        kernel[blocks(N)](outs[0], N)
    assert len(later.launches) == 1 and torch.equal(outs[0], torch.full((N,), 2.0))


def test_the_chosen_config_is_read_while_the_session_is_open():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    before = state(kernel)
    with tritontrace.session():
        with pytest.raises(AttributeError, match="'Autotuner' object has no attribute 'best_config'"):
            _ = kernel.best_config
        kernel[blocks(N)](torch.zeros(N), N)
        assert kernel.best_config is kernel.configs[0] and "best_config" not in vars(kernel)
        with tritontrace.session(kernels="none of these"):
            assert kernel.best_config is kernel.configs[0]
        with tritontrace.suspend(), pytest.raises(AttributeError):
            _ = kernel.best_config
        assert not hasattr(Autotuner, "best_config")
    assert not hasattr(kernel, "best_config") and state(kernel) == before


def test_a_config_that_triton_has_chosen_comes_back():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    kernel.best_config = kernel.configs[1]
    with tritontrace.session():
        assert kernel.best_config is kernel.configs[1]
        kernel[blocks(N)](torch.zeros(N), N)
        assert kernel.best_config is kernel.configs[0]
        kernel.best_config = "set by the user"
    assert kernel.best_config == "set by the user"
    with tritontrace.session():
        del kernel.best_config
        with pytest.raises(AttributeError):
            del kernel.best_config
    assert not hasattr(kernel, "best_config") and "best_config" not in vars(Autotuner)


def test_the_chosen_config_of_one_config_and_of_each_tuner_in_a_stack():
    one = triton.autotune(configs(16), key=[])(copy_kernel)
    stack = triton.heuristics({"EXTRA": lambda a: 1})(one)
    with tritontrace.session():
        stack[blocks(N)](torch.zeros(N), torch.zeros(N), N)
        assert one.best_config is one.configs[0]


def test_the_chosen_config_of_a_trace():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    traced = trace(kernel)
    assert not hasattr(traced, "best_config")
    traced[blocks(N)](torch.zeros(N), N)
    assert traced.best_config is kernel.configs[0] and not hasattr(kernel, "best_config")
    assert not hasattr(trace(add_kernel), "best_config")
