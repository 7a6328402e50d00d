"""Known faults 14 and 51: parameters of awkward names, and every way in which other code launches a kernel or looks at it."""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction, KernelInterface

import tritontrace


@triton.jit
def double(x_ptr, out_ptr, N: tl.constexpr = 8):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2)


# -- fault 14: names ------------------------------------------------------------------------------------------------


@triton.jit
def options_as_parameters(out_ptr, num_warps, num_stages: tl.constexpr, num_ctas, maxnreg, debug: tl.constexpr):
    tl.store(out_ptr + 0, num_warps)
    tl.store(out_ptr + 1, num_stages)
    tl.store(out_ptr + 2, num_ctas)
    tl.store(out_ptr + 3, debug)


@triton.jit
def words_of_launching(out_ptr, grid, warmup, stream, device, device_type):
    tl.store(out_ptr, grid + 10 * warmup + 100 * stream + 1000 * device + 10000 * device_type)


@triton.jit
def words_of_ours(
    out, kernel, args, kwargs, fn, instance, wrapped, target, scopes, entry, original, trial, name, bound, value, launch, clients
):
    total = kernel + args + kwargs + fn + instance + wrapped + target + scopes + entry + original + trial + name + bound + value
    tl.store(out, total + launch + clients)


@triton.jit
def words_of_python(
    out, key, config, configs, cls, nargs, hook, hooks, result, run, meta, func, function, engine, client, session
):
    total = key + config + configs + cls + nargs + hook + hooks + result + run + meta + func + function
    tl.store(out, total + engine + client + session)


def test_fault_14_parameters_named_like_options_are_both(traced: Any) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    options_as_parameters[(1,)](out, 8, 3, 1, None, True)
    assert out.tolist() == [8, 3, 1, 1]
    assert traced.launches[0].options == {}
    out.zero_()
    compiled = options_as_parameters[(1,)](out, num_warps=8, num_stages=3, num_ctas=1, maxnreg=None, debug=True)
    assert out.tolist() == [8, 3, 1, 1]
    assert traced.launches[1].options == {"num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
    assert (compiled.metadata.num_warps, compiled.metadata.num_stages) == (8, 3)


def test_fault_14_parameters_named_like_words_of_launching(traced: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    words_of_launching[(1,)](out, 2, 3, 4, 5, 6)
    assert out.item() == 65432
    compiled = words_of_launching.warmup(out, 2, 3, 4, 5, 6, grid=(1,))
    out.zero_()
    compiled[(1,)](out, 2, 3, 4, 5, 6)
    assert out.item() == 65432


def test_fault_14_words_of_launching_by_keyword_are_refused_as_by_triton(refused: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'grid'"):
        words_of_launching[(1,)](out, grid=2)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'warmup'"):
        words_of_launching[(1,)](out, 2, warmup=3)
    given = (out, 2, 3, 4, 5, 6)
    for count, word in ((3, "stream"), (4, "device"), (5, "device_type")):
        with pytest.raises((tritontrace.ArgumentError, TypeError), match=f"{word} option is deprecated|missing"):
            words_of_launching[(1,)](*given[:count], **{word: 7})
    with pytest.raises(tritontrace.ArgumentError, match="device_type option is deprecated"):
        words_of_launching[(1,)](*given[:5], device_type=7)
    assert not out.any()


@pytest.mark.parametrize("kernel", [words_of_ours, words_of_python], ids=lambda k: k.__name__)
@pytest.mark.parametrize("layer", ["plain", "run", "trace", "autotune", "heuristics", "trace of autotune", "compiled"])
def test_fault_14_no_name_of_ours_gets_in_the_way(kernel: Any, layer: str, traced: Any) -> None:
    names = kernel.arg_names[1:]
    words = {name: 2**i for i, name in enumerate(names)}
    out = torch.zeros(1, dtype=torch.int32)
    if layer == "run":
        kernel.run(out=out, grid=(1,), warmup=False, **words)
    elif layer == "trace":
        tritontrace.trace(kernel, clients=["tracer"])[(1,)](out=out, **words)
    elif layer == "autotune":
        triton.autotune([triton.Config({})], key=names[:1])(kernel)[(1,)](out=out, **words)
    elif layer == "heuristics":
        last = names[-1]
        given = {name: value for name, value in words.items() if name != last}
        triton.heuristics({last: lambda args: words[last]})(kernel)[(1,)](out=out, **given)
    elif layer == "trace of autotune":
        tritontrace.trace(triton.autotune([triton.Config({})], key=names[:1])(kernel), clients=[])[(1,)](out=out, **words)
    elif layer == "compiled":
        kernel.warmup(out=out, grid=(1,), **words)[(1,)](out, *words.values())
    else:
        kernel[(1,)](out=out, **words)
    assert out.item() == 2 ** len(names) - 1


# -- ways to launch ---------------------------------------------------------------------------------------------------


class Wrapper:
    """What libraries put around a kernel: it keeps `fn` and passes everything else on."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __getitem__(self, grid: Any) -> Any:
        return functools.partial(self.fn.run, grid=grid, warmup=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)


class Subclassed(KernelInterface):
    """What libraries derive from Triton's own interface."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **kwargs)


WAYS = {
    "item": lambda x, out: double[(2,)](x, out),
    "keywords": lambda x, out: double[(2,)](N=8, out_ptr=out, x_ptr=x),
    "run": lambda x, out: double.run(x, out, grid=(2,), warmup=False),
    "run by keyword": lambda x, out: double.run(grid=(2,), warmup=False, x_ptr=x, out_ptr=out, N=8),
    "kept": lambda x, out: functools.reduce(lambda f, _: f, range(3), double[(2,)])(x, out),
    "partial": lambda x, out: functools.partial(double[(2,)], x)(out),
    "partial of run": lambda x, out: functools.partial(double.run, grid=(2,), warmup=False)(x, out),
    "bound method": lambda x, out: double.__getitem__((2,))(x, out),
    "class": lambda x, out: JITFunction.run(double, x, out, grid=(2,), warmup=False),
    "wrapper": lambda x, out: Wrapper(double)[(2,)](x, out),
    "wrapper of a wrapper": lambda x, out: Wrapper(Wrapper(double))[(2,)](x, out),
    "interface": lambda x, out: Subclassed(double)[(2,)](x, out),
    "warmup": lambda x, out: double.warmup(x, out, grid=(2,))[(2,)](x, out),
    "warmup by dtype": lambda x, out: double.warmup(torch.float32, torch.float32, grid=(1,))[(2, 1, 1)](x, out),
    "what a launch returned": lambda x, out: double[(0,)](x, out)[(2,)](x, out, 8),
    "map": lambda x, out: list(map(double[(2,)], [x], [out])),
    "copied trace": lambda x, out: copy.deepcopy(tritontrace.trace(double, clients=[]))[(2,)](x, out),
}


@pytest.mark.parametrize("name", list(WAYS))
def test_every_way_to_launch(name: str, traced: Any) -> None:
    x, out = torch.arange(16.0), torch.zeros(16)
    WAYS[name](x, out)
    assert torch.equal(out, 2 * x)
    ran = [launch for launch in traced.launches if not launch.warmup and launch.n_programs]
    assert len(ran) == 1 and ran[0].completed and sum(r.n_programs for r in ran[0].records["tracer"]) == 4


@pytest.mark.parametrize("name", list(WAYS))
def test_every_way_to_launch_in_sessions_inside_sessions(name: str, traced: Any) -> None:
    x, out = torch.arange(16.0), torch.zeros(16)
    with tritontrace.session(clients=["sanitizer"]) as middle:
        with tritontrace.session(clients=["tracer"], scope="process") as innermost:
            WAYS[name](x, out)
        launches = [
            [launch for launch in s.launches if launch.n_programs and not launch.warmup] for s in (traced, middle, innermost)
        ]
    assert torch.equal(out, 2 * x)
    assert [len(some) for some in launches] == [1, 1, 1]
    assert len({id(some[0]) for some in launches}) == 3


@pytest.mark.parametrize("name", list(WAYS))
def test_every_way_to_launch_from_other_threads(name: str, traced: Any) -> None:
    tensors = [(torch.arange(16.0) + i, torch.zeros(16)) for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tritontrace.propagate(lambda pair: WAYS[name](*pair)), tensors))
    for x, out in tensors:
        assert torch.equal(out, 2 * x)
    ran = [launch for launch in traced.launches if not launch.warmup and launch.n_programs]
    assert len(ran) == 8 and all(launch.completed for launch in ran)


def test_from_a_thread_a_task_and_a_process_wide_session() -> None:
    x, outs = torch.arange(16.0), [torch.zeros(16) for _ in range(3)]

    async def task() -> None:
        await asyncio.sleep(0)
        double[(2,)](x, outs[0])

    async def main() -> None:
        await asyncio.gather(task(), asyncio.to_thread(double[(2,)], x, outs[1]))

    with tritontrace.session(clients=["sanitizer"], scope="process") as session:
        asyncio.run(main())
        thread = threading.Thread(target=double[(2,)], args=(x, outs[2]))
        thread.start()
        thread.join()
    assert all(torch.equal(out, 2 * x) for out in outs) and len(session.launches) == 3


def test_one_tensor_as_argument_of_launches_on_many_threads(traced: Any) -> None:
    @triton.jit
    def count(out_ptr, n):
        for i in range(n):
            tl.atomic_add(out_ptr + i, 1)

    out = torch.zeros(16, dtype=torch.int32)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tritontrace.propagate(lambda i: count[(3,)](out, i % 16 + 1)), range(32)))
    assert out.tolist() == [6 * (16 - i) for i in range(16)]


# -- fault 51: the kernel and what a launch returns, as objects -----------------------------------------------------------


def innermost(kernel: Any) -> Any:
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def as_library(kernel: Any, x: torch.Tensor, out: torch.Tensor) -> dict[str, Any]:
    """What a launcher of a library's own asks of a kernel."""
    jit = innermost(kernel)
    assert isinstance(jit, JITFunction)
    told = {
        "parameters": list(jit.signature.parameters),
        "defaults": {name: p.default for name, p in jit.signature.parameters.items() if p.default is not p.empty},
        "arg_names": jit.arg_names,
        "constexprs": jit.constexprs,
        "params": [(p.num, p.name, p.is_constexpr, p.has_default) for p in jit.params],
        "key": jit.cache_key,
        "source": jit.src,
        "name": jit.__name__,
        "module": jit.__module__,
        "python": jit.fn.__code__.co_firstlineno,
    }
    compiled = kernel[(2,)](x, out)
    told["metadata"] = (compiled.metadata.num_warps, compiled.metadata.name, compiled.metadata.shared)
    told["registers"] = (compiled.n_regs > 0, compiled.n_spills)
    told["asm"] = sorted(compiled.asm)
    told["name of the compiled"] = compiled.name
    assert "double" in compiled.asm["ttir"] and ".entry double" in compiled.asm["ptx"]
    return told


def test_fault_51_a_library_that_looks_at_kernels(traced: Any) -> None:
    x = torch.arange(16.0)
    told = []
    for kernel in (
        double,
        tritontrace.trace(double, clients=["tracer"]),
        tritontrace.trace(tritontrace.trace(double), clients=[]),
    ):
        out = torch.zeros(16)
        told.append(as_library(kernel, x, out))
        assert torch.equal(out, 2 * x)
    assert told[0] == told[1] == told[2]
    assert told[0]["parameters"] == ["x_ptr", "out_ptr", "N"] and told[0]["defaults"] == {"N": 8} and told[0]["constexprs"] == [2]
    assert told[0]["metadata"][:2] == (4, "double") and told[0]["registers"] == (True, 0)
    assert {"ttir", "ttgir", "llir", "ptx", "cubin"} <= set(told[0]["asm"])


def test_fault_51_before_during_and_after_a_session_a_kernel_is_the_same() -> None:
    def facts(kernel: Any) -> Any:
        return kernel.cache_key, kernel.signature, kernel.arg_names, kernel.src, type(kernel), kernel.fn

    before = facts(double)
    with tritontrace.session(clients=["tracer"]):
        double[(2,)](torch.arange(16.0), torch.zeros(16))
        during = facts(double)
    assert before == during == facts(double)


def test_an_argument_too_many_for_a_compiled_kernel_is_refused(traced: Any) -> None:
    x, out = torch.arange(16.0), torch.zeros(16)
    compiled = double.warmup(x, out, N=8, grid=(2,))
    with pytest.raises(TypeError, match=r"double\(\) takes from 2 to 3 positional arguments but 4 were given"):
        compiled[(2,)](x, out, 8, 9)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'out_ptr'"):
        compiled[(2,)](x)
    assert not out.any()


@pytest.mark.parametrize("layer", ["autotune", "heuristics", "both"])
def test_fault_51_what_a_decorated_kernel_returns(layer: str, traced: Any) -> None:
    kernel: Any = double
    if layer in ("heuristics", "both"):
        kernel = triton.heuristics({"N": lambda args: 8})(kernel)
    if layer in ("autotune", "both"):
        configs = [triton.Config({} if layer == "both" else {"N": 8}, num_warps=w) for w in (2, 4)]
        kernel = triton.autotune(configs, key=[])(kernel)
    x, out = torch.arange(16.0), torch.zeros(16)
    compiled = kernel[(2,)](x, out)
    assert torch.equal(out, 2 * x)
    assert compiled.metadata.num_warps in (2, 4) and compiled.n_regs > 0 and "ptx" in compiled.asm
    out.zero_()
    compiled[(2,)](x, out)
    assert torch.equal(out, 2 * x)
