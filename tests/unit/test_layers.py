"""Autotuner and Heuristics layers of a traced launch: copies of the user's objects, in any nesting, with traces between."""

import gc
import warnings
import weakref

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner, Heuristics

import tritontrace
from tests.unit.layer_kernels import (
    AllConfigs,
    N,
    add_kernel,
    blocks,
    configs,
    copy_kernel,
    run,
    state,
)
from tritontrace.kernels.layers import Chain
from tritontrace.kernels.trace import TritonTrace
from tritontrace.tracing import trace

# -- which layers ------------------------------------------------------------------------------------------------------


def heuristic(function, **values):
    return triton.heuristics(values)(function)


STACKS = {
    "heuristics": lambda: triton.heuristics({"BLOCK": lambda a: 8, "EXTRA": lambda a: a["n"] - 13})(copy_kernel),
    "autotune over heuristics": lambda: triton.autotune(configs(8, 16), key=["n"])(
        triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel)
    ),
    "heuristics over autotune": lambda: triton.heuristics({"EXTRA": lambda a: a["n"] - 13})(
        triton.autotune(configs(8, 16), key=["n"])(copy_kernel)
    ),
    "heuristics over autotune over heuristics": lambda: triton.heuristics({"n": lambda a: N})(
        triton.autotune(configs(8, 16), key=[])(triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel))
    ),
    "heuristics over heuristics": lambda: triton.heuristics({"BLOCK": lambda a: 8})(
        triton.heuristics({"EXTRA": lambda a: a["BLOCK"] - 5})(copy_kernel)
    ),
}


@pytest.mark.parametrize("how", ["session", "trace"])
@pytest.mark.parametrize("stack", list(STACKS))
def test_layers_in_any_nesting_run_once_and_the_users_objects_stay_as_they_were(stack, how):
    kernel = STACKS[stack]()
    before = state(kernel)
    x, out = torch.arange(float(N)), torch.zeros(N)
    args = (x, out) if "n" in getattr(kernel, "values", {}) and "BLOCK" not in kernel.values else (x, out, N)
    launched = kernel
    if how == "trace":
        launched = trace(kernel)
        launched[blocks(N)](*args)
        launches = launched.launches
    else:
        launches = run(kernel, *args).launches
    assert torch.equal(out, x + 3)
    (launch,) = launches
    assert launch.completed and launch.grid == (2, 1, 1) and launch.argument("EXTRA").value == 3
    assert (launch.config is not None) == ("autotune" in stack)
    assert state(kernel) == before
    layer = kernel
    while not isinstance(layer, triton.JITFunction):
        assert not getattr(layer, "cache", None)
        layer = layer.fn


@pytest.mark.parametrize("stack", list(STACKS))
def test_an_exception_leaves_the_users_objects_as_they_were(stack):
    kernel = STACKS[stack]()
    before = state(kernel)

    def grid(meta):
        raise LookupError("grid")

    with pytest.raises(LookupError, match="grid"):
        run(kernel, torch.zeros(N), torch.zeros(N), *(() if "n" in getattr(kernel, "values", {}) else (N,)), grid=grid)
    with pytest.raises((TypeError, KeyError)):
        run(kernel)
    assert state(kernel) == before


def test_the_chosen_config_stands_in_the_launch():
    kernel = triton.autotune(configs(8, num_warps=2) + configs(16), key=["n"])(add_kernel)
    launch = run(kernel, torch.zeros(N), N).launches[0]
    assert launch.config == {"BLOCK": 8} and launch.options["num_warps"] == 2
    assert [trial.config for trial in launch.trials] == [{"BLOCK": 8}, {"BLOCK": 16}]


def test_a_subclass_of_the_users_keeps_its_say_once():
    calls = []

    class Mine(Autotuner):
        def run(self, *args, **kwargs):
            calls.append("run")
            return super().run(*args, **kwargs)

        def prune_configs(self, kwargs):
            calls.append("prune")
            self.cache["mine"] = self.configs[0]
            self.nargs["mine"] = 1
            return super().prune_configs(kwargs)[1:]

    kernel = Mine(add_kernel, add_kernel.arg_names, configs(4, 8, 16), ["n"], None, None)
    before = state(kernel)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N)) and session.launches[0].config == {"BLOCK": 8}
    assert calls == ["run", "prune"] and state(kernel) == before

    calls.clear()
    out.zero_()
    session = run(triton.heuristics({"n": lambda a: N})(kernel), out)
    assert torch.equal(out, torch.ones(N)) and len(session.launches) == 1
    assert calls == ["run"]
    assert state(kernel) == before


def test_a_layer_of_somebody_elses_is_copied_too():
    class Logs(triton.runtime.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names, self.log = fn, fn.arg_names, []

        def run(self, *args, **kwargs):
            self.log.append(kwargs["BLOCK"])
            return self.fn.run(*args, **kwargs)

    middle = Logs(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(middle)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N))
    assert len(session.launches) == 1 and len(session.launches[0].trials) == 2
    assert middle.fn is add_kernel and middle.log == [8, 16, 8]


# -- traces between layers ---------------------------------------------------------------------------------------------


def test_a_trace_over_the_decorators():
    kernel = triton.autotune(configs(8, 16), key=["n"])(add_kernel)
    before = state(kernel)
    traced = trace(kernel, clients=["sanitizer"])
    assert isinstance(traced, Autotuner) and isinstance(trace(heuristic(add_kernel, n=lambda a: N)), Heuristics)
    out = torch.zeros(N)
    traced[blocks(N)](out, N)
    assert torch.equal(out, torch.ones(N))
    assert len(traced.launches) == 1 and len(traced.launches[0].trials) == 2
    assert state(kernel) == before


def test_a_trace_under_the_decorators_inside_a_session():
    traced = trace(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(traced)
    out = torch.zeros(N)
    session = run(kernel, out, N)
    assert torch.equal(out, torch.ones(N))
    for launches in (session.launches, traced.launches):
        assert len(launches) == 1 and not launches[0].trial and len(launches[0].trials) == 2
    assert session.launches[0] is not traced.launches[0]


def test_a_trace_under_a_tuner_of_tritons_outside_a_session_marks_the_trials():
    traced = trace(add_kernel)

    def bench(call, quantiles):
        call()
        call()
        return [1.0, 1.0, 1.0]

    kernel = triton.autotune(configs(8, 16), key=["n"], do_bench=bench)(triton.heuristics({"n": lambda a: N})(traced))
    kernel[blocks(N)](torch.zeros(N))
    assert [launch.trial for launch in traced.launches] == [True] * 4 + [False]
    kernel[blocks(N)](torch.zeros(N))
    assert [launch.trial for launch in traced.launches] == [True] * 4 + [False] * 2


def test_without_a_driver_a_tuner_over_a_trace_says_what_to_do():
    if torch.cuda.is_available():
        pytest.skip("there is a driver here")
    traced = trace(add_kernel)
    kernel = triton.autotune(configs(8, 16), key=["n"])(traced)
    with pytest.raises(tritontrace.TritonTraceError, match="trace over the decorator"):
        kernel[blocks(N)](torch.zeros(N), N)
    assert kernel.arg_names == add_kernel.arg_names and "n" in kernel.arg_names and "m" not in kernel.arg_names
    out = torch.zeros(N)
    trace(kernel)[blocks(N)](out, N)
    assert torch.equal(out, torch.ones(N))


def test_the_chain_of_a_kernel():
    traced = trace(add_kernel)
    inner = triton.heuristics({"n": lambda a: N})(traced)
    outer = trace(triton.autotune(configs(8), key=[])(inner))
    chain = Chain(outer)
    assert chain.leaf is add_kernel and chain.layers == [outer.__wrapped__, inner]
    assert len(chain.scopes) == 2
    assert type(traced) is TritonTrace


def test_warnings_are_not_raised_for_ordinary_layers():
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"])(add_kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(kernel, torch.zeros(N), N)


@pytest.mark.parametrize("clients", [[], ["sanitizer"]])
def test_a_layered_launch_lets_go_of_its_tensors_at_once(clients):
    kernel = triton.autotune(configs(8, 16), key=["n"], reset_to_zero=["out"], restore_value=["x"])(
        triton.heuristics({"EXTRA": lambda a: 1})(copy_kernel)
    )
    run(kernel, torch.zeros(N), torch.zeros(N), N, clients=clients)
    gc.collect()
    gc.disable()
    try:
        for n in (N, 8):
            x, out = torch.zeros(N), torch.zeros(N)
            dead = [weakref.ref(x), weakref.ref(out)]
            session = run(kernel, x, out, n, clients=clients)
            del x, out
            assert [reference() for reference in dead] == [None, None] and len(session.launches) == 1
    finally:
        gc.enable()


def test_a_layer_that_launches_twice_makes_two_launches():
    class Twice(triton.runtime.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names = fn, fn.arg_names

        def run(self, *args, **kwargs):
            self.fn.run(*args, **kwargs)
            return self.fn.run(*args, **kwargs)

    traced = trace(Twice(add_kernel), clients=[AllConfigs()])
    out = torch.zeros(N)
    with tritontrace.session([]) as session:
        traced[blocks(N)](out, N, BLOCK=8)
    assert torch.equal(out, torch.full((N,), 2.0))
    for launches in (session.launches, traced.launches):
        assert len(launches) == 2 and all(launch.completed for launch in launches)
        assert [launch.index for launch in launches] == [0, 1]
