"""The frontend on shadows: the compiler's IR for a kernel, with nothing of the user's or of Triton's touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import types
from collections import namedtuple
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import wrapt
from triton.compiler import ASTSource
from triton.language import arange, load, program_id, store
from triton.language.math import exp as math_exp
from triton.runtime import jit as triton_jit
from triton.tools.tensor_descriptor import TensorDescriptor

from tritontrace.engines.ir.frontend import UNTERMINATED, Lowered, lower
from tritontrace.errors import UntraceableLaunchError
from tritontrace.kernels import capabilities, compat
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.targets import Target, backend_for

CUDA = Target.parse("cuda:90")
HIP = Target.parse("hip:gfx942")

SCALE = tl.constexpr(3)
PLAIN_GLOBAL = 5
cast = tl.cast
helpers = types.ModuleType("helpers")


@triton.jit
def _scaled(x, factor=SCALE):
    return x * factor


@triton.jit
def _twice(x):
    return _scaled(_scaled(x))


_proxy_default = wrapt.ObjectProxy(_scaled)
helpers.twice = _twice  # type: ignore[attr-defined]


@triton.jit
def _larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + offsets, mask=offsets < n, other=-float("inf"))
    total = tl.sum(tl.exp(x - x.max()), 0) + tl.reduce(x, 0, _larger)
    tl.store(out_ptr + offsets, helpers.twice(tl.softmax(x)) / total + tl.cdiv(n, SCALE), mask=offsets < n)


def lowered(kernel: Any, *args: Any, target: Target = CUDA, **kwargs: Any) -> Lowered:
    return lower(bind(kernel, args, kwargs, target))


def states(*functions: Any) -> list[dict[str, Any]]:
    """All that Triton keeps on its function objects, with the dictionaries in it copied too."""
    found = []
    for function in functions:
        state = dict(vars(function))
        state["used_global_vals"] = dict(state.get("used_global_vals", {}))
        state["device_caches"] = dict(state.get("device_caches", {}))
        state["params"] = [dict(vars(param)) for param in state.get("params", ())]
        found.append(state)
    return found


def tensors(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(n), torch.ones(n)


def test_text_is_the_raw_module_in_generic_form() -> None:
    @triton.jit
    def dead_load(x_ptr, out_ptr):
        tl.load(x_ptr)
        tl.store(out_ptr, tl.load(x_ptr) + tl.load(x_ptr))

    out = lowered(dead_load, *tensors())
    assert out.entry == "dead_load"
    assert out.text.count('"tt.load"') == 3
    assert '"tt.func"()' in out.text and UNTERMINATED in out.text
    assert __file__ in out.text


def without_locations(text: str) -> list[str]:
    bare = (re.sub(r" ?loc\((?:[^()]|\([^()]*\))*\)", "", line) for line in text.splitlines())
    return [line for line in bare if not line.startswith("#loc")]


def test_same_ir_as_tritons_own_frontend() -> None:
    out, x = tensors()
    bound = bind(softmax_kernel, (out, x, 64), {"BLOCK": 64}, CUDA)
    ours = lower(bound).text

    # A copy of this module's kernel that Triton may write to.
    module = types.ModuleType("copy")
    vars(module).update(SCALE=SCALE, helpers=helpers, _larger=_larger, tl=tl, triton=triton)
    kernel = triton_jit.JITFunction(types.FunctionType(softmax_kernel.fn.__code__, vars(module), "softmax_kernel"))
    kernel.__module__ = softmax_kernel.__module__
    before = states(_scaled, _twice, _larger)
    try:
        from triton._C.libtriton import ir

        backend = backend_for(CUDA)
        options = backend.parse_options({"enable_fp_fusion": True})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        source = ASTSource(kernel, bound.signature, bound.constexprs, {})
        theirs = source.make_ir(
            CUDA.gpu_target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        builder = ir.builder(context)
        function = builder.get_or_insert_function(theirs, UNTERMINATED, builder.get_function_ty([], []), "private", False)
        theirs.push_back(function)
        function.add_entry_block()
        if capabilities.exact_locations():
            assert ours == theirs.str()
        else:  # ours are then more exact than Triton's
            assert without_locations(ours) == without_locations(theirs.str())
    finally:
        for function, state in zip((_scaled, _twice, _larger), before, strict=True):
            function.hash, function.used_global_vals = state["hash"], {}


def test_nothing_of_kernel_helpers_or_triton_is_written() -> None:
    functions = (softmax_kernel, _twice, _scaled, _larger, tl.sum, tl.softmax, tl.max, tl.cdiv, tl.target_info.is_cuda)
    registry = dict(compat.function_registry())
    namespaces = [dict(vars(space)) for space in (tl, tl.tensor, tl.core, tl.standard, tl.math, sys.modules[__name__])]
    before = states(*functions)
    out, x = tensors()
    assert lowered(softmax_kernel, out, x, 64, BLOCK=64).text
    assert states(*functions) == before
    assert all(function["hash"] is None for function in states(softmax_kernel, _twice, _scaled))
    after = [vars(space) for space in (tl, tl.tensor, tl.core, tl.standard, tl.math, sys.modules[__name__])]
    for old, new in zip(namespaces, after, strict=True):
        assert old.keys() == new.keys()
        assert all(new[name] is value for name, value in old.items())
    now = compat.function_registry()
    assert all(now[name] is function for name, function in registry.items())


def test_closures_captured_constants_and_imported_names() -> None:
    @triton.jit
    def helper(x):
        return x + 1.0

    factor = tl.constexpr(4)

    @triton.jit
    def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = program_id(0) * BLOCK + arange(0, BLOCK)
        x = cast(load(x_ptr + offsets), tl.float32)
        half: tl.constexpr = BLOCK.value // 2
        store(out_ptr + offsets, math_exp(helper(x)) * factor + half)

    text = lowered(kernel, *tensors(), BLOCK=64).text
    assert '"math.exp"' in text and "4.000000e+00" in text and "3.200000e+01" in text


def test_extras_and_libdevice() -> None:
    from triton.language.extra import libdevice

    @triton.jit
    def kernel(x_ptr, out_ptr):
        x = tl.load(x_ptr)
        tl.store(out_ptr, libdevice.atan(x) + tl.extra.cuda.libdevice.asin(x) + tl.extra.cuda.num_threads())

    text = lowered(kernel, *tensors(), num_warps=8).text
    assert "__nv_atanf" in text and "__nv_asinf" in text
    assert "256 : i32" in text or "2.560000e+02" in text


def test_proxies_are_their_functions() -> None:
    proxy = wrapt.ObjectProxy(_twice)
    space = types.ModuleType("space")
    space.inner = wrapt.ObjectProxy(proxy)  # type: ignore[attr-defined]

    @triton.jit
    def kernel(x_ptr, out_ptr, function: tl.constexpr, other: tl.constexpr = _proxy_default):
        x = tl.load(x_ptr)
        tl.store(out_ptr, proxy(x) + space.inner(x) + function(x) + other(x))

    @triton.jit
    def bare(x_ptr, out_ptr, function: tl.constexpr, other: tl.constexpr = _scaled):
        x = tl.load(x_ptr)
        tl.store(out_ptr, _twice(x) + _twice(x) + function(x) + other(x))

    before = states(_twice, _scaled)
    x, out = tensors()
    through_proxies = lowered(kernel, x, out, wrapt.ObjectProxy(_scaled)).text
    assert through_proxies.count('"tt.call"') == lowered(bare, x, out, _scaled).text.count('"tt.call"')
    assert states(_twice, _scaled) == before


def test_functions_in_tuples_and_as_defaults_of_helpers() -> None:
    functions = (_scaled, (_twice,))

    @triton.jit
    def apply(x, function: tl.constexpr = _scaled):
        return function(x)

    @triton.jit
    def kernel(x_ptr, out_ptr, given: tl.constexpr):
        x = tl.load(x_ptr)
        tl.store(out_ptr, apply(x) + apply(x, given[0]) + apply(x, given[1][0]))

    before = states(_twice, _scaled)
    x, out = tensors()
    assert lowered(kernel, x, out, functions).text.count("callee = @") >= 4
    assert states(_twice, _scaled) == before


@pytest.mark.parametrize(("target", "cuda", "hip"), [(CUDA, 1, 0), (HIP, 0, 1)])
def test_target_info_answers_from_the_target(target: Target, cuda: int, hip: int) -> None:
    @triton.constexpr_function
    def question():
        return 10 if tl.target_info.is_cuda() else 20

    @triton.jit
    def kernel(out_ptr):
        if tl.target_info.is_cuda():
            tl.store(out_ptr, 1001)
        if tl.target_info.is_hip():
            tl.store(out_ptr, 1002)
        if tl.target_info.cuda_capability_geq(9, 0):
            tl.store(out_ptr, 1003)
        tl.store(out_ptr, 5000 + question())

    before = states(question, tl.target_info.is_cuda)
    text = lowered(kernel, torch.zeros(1, dtype=torch.int32), target=target).text
    assert ("1001 : i32" in text, "1003 : i32" in text, "1002 : i32" in text) == (bool(cuda), bool(cuda), bool(hip))
    assert ("10 : i32" in text or "5010" in text) == bool(cuda)
    assert states(question, tl.target_info.is_cuda) == before


def test_descriptor_atomics_ask_the_target_and_no_driver() -> None:
    @triton.jit
    def kernel(descriptor, x_ptr):
        offsets = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        descriptor.atomic_min([0, 0], tl.load(x_ptr + offsets))

    x = torch.zeros(16, 16, dtype=torch.float16)
    assert '"tt.descriptor_reduce"' in lowered(kernel, TensorDescriptor.from_tensor(x, [16, 16]), x).text


def test_host_descriptor_slots() -> None:
    @triton.jit
    def kernel(out_ptr, descriptor, scale):
        block = descriptor.load([0, 0]) * scale
        offsets = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
        tl.store(out_ptr + offsets, block + descriptor.shape[0] + descriptor.strides[1])

    x = torch.zeros(4, 8)
    out = lowered(kernel, torch.zeros(32), TensorDescriptor.from_tensor(x, [4, 8]), 2.0)
    parts = ["desc", ("shape", 0), ("shape", 1), ("stride", 0), ("stride", 1)]
    assert out.slots == ((0, "value"), *((1, part) for part in parts), (2, "value"))
    head = next(line for line in out.text.splitlines() if "function_type" in line and '"kernel"' in line)
    types_in_order = head.partition("function_type = (")[2].partition(") ->")[0]
    assert types_in_order == "!tt.ptr<f32>, !tt.tensordesc<4x8xf32>, i32, i32, i64, i64, f32" or (
        types_in_order.replace("tensordesc<tensor<4x8xf32>>", "tensordesc<4x8xf32>")
        == "!tt.ptr<f32>, !tt.tensordesc<4x8xf32>, i32, i32, i64, i64, f32"
    )


def test_tuples_of_tensors() -> None:
    pair = namedtuple("pair", ["source", "sizes"])

    @triton.jit
    def kernel(out_ptr, given, more):
        x = tl.load(given.source) * given.sizes[0] + given.sizes[1]
        for i in tl.static_range(len(more)):
            x += tl.load(more[i])
        tl.store(out_ptr, x)

    x, out = tensors()
    result = lowered(kernel, out, pair(x, (2.5, 1)), (x, x, x))
    assert result.slots == tuple((index, "value") for index in range(6))
    assert result.text.count('"tt.load"') == 4


@pytest.mark.skipif(not capabilities.variadic_kernels(), reason="this Triton has no variadic kernels")
def test_variadic_kernel() -> None:
    @triton.jit
    def kernel(out_ptr, *inputs):
        x = tl.load(inputs[0]) + tl.load(inputs[1])
        tl.store(out_ptr, x)

    x, out = tensors()
    bound = bind(kernel, (out, x, x), {}, CUDA)
    assert [leaf.name for leaf in bound.leaves] == ["out_ptr", "inputs.0", "inputs.1"]
    assert lower(bound).text.count('"tt.load"') == 2


def test_what_a_target_would_refuse_is_lowered() -> None:
    @triton.jit
    def small_dot(x_ptr, out_ptr):
        offsets = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, tl.dot(x, x))

    @triton.jit
    def any_fp8(x_ptr, out_ptr):
        tl.store(out_ptr, tl.load(x_ptr).to(tl.float8e4b8).to(tl.float32))

    x, out = tensors()
    assert '"tt.dot"' in lowered(small_dot, x, out).text
    assert "f8E4M3FNUZ" in lowered(any_fp8, x, out).text


@pytest.mark.parametrize("target", [CUDA, HIP], ids=str)
def test_fp8e4b15_converts_without_inline_assembly(target: Target) -> None:
    @triton.jit
    def kernel(x_ptr, out_ptr):
        offsets = tl.arange(0, 16)
        x = tl.load(x_ptr + offsets).to(tl.float8e4b15)
        tl.store(out_ptr + offsets, x.to(tl.float16) + x.to(tl.bfloat16))

    text = lowered(kernel, *tensors(), target=target).text
    assert "elementwise_inline_asm" not in text and '"arith.shli"' in text


def test_names_noinline_and_repr() -> None:
    @triton.jit(noinline=True)
    def apart(x):
        return x + 1

    @triton.jit(repr=lambda specialization: f"renamed_{specialization.constants['BLOCK']}")
    def kernel(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr, apart(tl.load(x_ptr)) + BLOCK)

    out = lowered(kernel, torch.zeros(1), BLOCK=4)
    assert out.entry == "renamed_4" and "noinline = true" in out.text


def test_gluon_kernels_are_refused() -> None:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def kernel(x_ptr):
        gl.store(x_ptr, 1)

    with pytest.raises(UntraceableLaunchError, match="Gluon"):
        lowered(kernel, torch.zeros(1))


def test_device_assert_is_kept_when_debug_is_on() -> None:
    @triton.jit
    def kernel(x_ptr, n):
        tl.device_assert(n > 0, "n must be positive")
        tl.store(x_ptr, n)

    x = torch.zeros(1, dtype=torch.int32)
    assert '"tt.assert"' not in lowered(kernel, x, 5).text
    assert "n must be positive" in lowered(kernel, x, 5, debug=True).text


def test_a_global_that_is_no_constexpr_is_refused_with_tritons_message() -> None:
    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, PLAIN_GLOBAL)

    with pytest.raises(triton.CompilationError, match="Cannot access global variable PLAIN_GLOBAL"):
        lowered(kernel, torch.zeros(1))


def test_a_global_that_changed_is_refused_as_triton_does(tmp_path: Any) -> None:
    file = tmp_path / "changing.py"
    file.write_text(
        textwrap.dedent("""
        import triton, triton.language as tl
        K = tl.constexpr(2)
        UNUSED = tl.constexpr(1)

        @triton.jit
        def helper(x):
            return x * K

        @triton.jit
        def kernel(out_ptr, n):
            tl.store(out_ptr, helper(n))
        """)
    )
    module = types.ModuleType("changing")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    kernel, out = module.kernel, torch.zeros(1, dtype=torch.int32)
    before = states(kernel, module.helper)
    first = lowered(kernel, out, 7)
    first.globals_check()
    module.UNUSED = tl.constexpr(8)
    first.globals_check()
    module.K = tl.constexpr(2)
    first.globals_check()
    module.K = tl.constexpr(9)
    message = r"Global variable K has changed since we compiled this kernel, from constexpr\[2\] to constexpr\[9\]"
    with pytest.raises(RuntimeError, match=message):
        first.globals_check()
    with pytest.raises(RuntimeError, match=message):
        lowered(kernel, out, 2**40)
    assert states(kernel, module.helper) == before
    del module.K
    with pytest.raises(RuntimeError, match="to None"):
        first.globals_check()
    module.K = tl.constexpr(2)
    first.globals_check()


def test_string_annotations_are_constexpr_all_the_same() -> None:
    # This file has `from __future__ import annotations`, so every annotation here is a string.
    @triton.jit
    def kernel(out_ptr, BLOCK: "tl.constexpr", other: tl.constexpr = 3):  # noqa: UP037 - the point of the test
        tl.store(out_ptr + tl.arange(0, BLOCK), other)

    bound = bind(kernel, (torch.zeros(16), 16), {}, CUDA)
    assert bound.signature["BLOCK"] == bound.signature["other"] == "constexpr"
    assert "tensor<16x" in lower(bound).text


def test_errors_are_tritons_own() -> None:
    @triton.jit
    def kernel(out_ptr):
        x = 1
        for _ in range(4):
            x = x * 0.5
        tl.store(out_ptr, x)

    with pytest.raises(triton.CompilationError, match="loop"):
        lowered(kernel, torch.zeros(1))


def test_eight_threads_make_the_same_text() -> None:
    out, x = tensors()
    expected = {size: lowered(softmax_kernel, out, x, 64, BLOCK=size).text for size in (64, 128, 256)}
    problems: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(4):
            for size, text in expected.items():
                try:
                    if lowered(softmax_kernel, out, x, 64, BLOCK=size).text != text:
                        problems.append(size)
                except BaseException as error:
                    problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


INTERPRETED = """
import triton, triton.language as tl, torch
from triton.runtime.interpreter import InterpretedFunction
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.targets import Target
from tritontrace.engines.ir.frontend import lower

SCALE = tl.constexpr(3)

@triton.jit
def helper(x, y=SCALE):
    return x * y

@triton.jit
def larger(a, b):
    return tl.maximum(a, b)

@triton.jit
def kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + offsets, mask=offsets < n)
    total = tl.sum(x, 0) + x.max() + tl.reduce(x, 0, larger) + tl.cdiv(n, 4)
    y = tl.cumsum(tl.sort(x), 0) + tl.associative_scan(x, 0, larger) + tl.argmax(x, 0) + tl.flip(x, 0)
    y += tl.zeros_like(x) + tl.sigmoid(x) + tl.full((BLOCK,), 1, tl.float32).sum(axis=0)
    tl.store(out_ptr + offsets, helper(tl.softmax(x)) + y + total + tl.rand(0, offsets), mask=offsets < n)

assert type(kernel).__name__ == EXPECTED
assert type(tl.sum).__name__ == EXPECTED
functions = [kernel, helper, larger, tl.sum, tl.max, tl.softmax, tl.cdiv]
spaces = [tl, tl.tensor, tl.core, tl.standard]
before = [dict(vars(o)) for o in [*functions, *spaces]]
x = torch.zeros(64)
text = lower(bind(kernel, (x, x, 64), {"BLOCK": 64}, Target.parse("cuda:90"))).text
after = [dict(vars(o)) for o in [*functions, *spaces]]
for old, new in zip(before, after):
    assert old.keys() == new.keys() and all(new[k] is old[k] for k in old)
print(text)
"""


def test_kernels_decorated_under_triton_interpret(tmp_path: Any) -> None:
    """`TRITON_INTERPRET=1` before the import: tl.sum and the user's functions are InterpretedFunctions; the IR is the same."""
    texts = []
    script = tmp_path / "kernels.py"
    for interpret, expected in (("1", "InterpretedFunction"), ("0", "JITFunction")):
        script.write_text(INTERPRETED.replace("EXPECTED", repr(expected)))
        environment = {**os.environ, "TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        texts.append([line for line in done.stdout.splitlines() if line.startswith("  ")])
    assert [line.partition(" loc(")[0] for line in texts[0]] == [line.partition(" loc(")[0] for line in texts[1]]
    assert '"tt.reduce"' in "".join(texts[0])


def test_kernel_is_not_kept_alive() -> None:
    import gc
    import weakref

    @triton.jit
    def kernel(out_ptr):
        tl.store(out_ptr, SCALE)

    lowered(kernel, torch.zeros(1))
    alive = weakref.ref(kernel)
    registry = compat.function_registry()
    for name in [name for name, function in registry.items() if function is kernel]:
        del registry[name]  # Triton's own reference, for good
    del kernel
    gc.collect()
    assert alive() is None
