"""Kernels whose raw TTIR the parser and optimizer tests read, and how to get that text."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.language.extra import libdevice

from tritontrace.kernels import capabilities


@triton.jit
def combine_max(value_a, index_a, value_b, index_b):
    greater = value_a > value_b
    return tl.where(greater, value_a, value_b), tl.where(greater, index_a, index_b)


@triton.jit
def scaled(x, y):
    return x * y + 1.5


@triton.jit
def twice_scaled(x, y):
    return scaled(scaled(x, y), y)


@triton.jit
def clipped(x, n):
    if n > 3:
        return x
    x = x + 1
    return x * 2


@triton.jit
def everything(x, y, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x + offs, mask=mask, other=float("inf"))
    w = tl.load(y + offs, mask=mask)
    tl.load(x + offs)  # unused, and still an access
    z = twice_scaled(v, w)
    z = clipped(z, n)
    if pid == 3:
        return
    s = tl.sum(z, 0)
    best, where = tl.reduce((z, offs), 0, combine_max)
    running = tl.cumsum(z, 0, reverse=True)
    acc = s
    unused = 0.0
    for i in range(n):
        unused += 1.0
        if i % 2 == 0:
            acc += tl.load(y + i)
        else:
            acc -= i * (n * 3)
    while acc > 10.0:
        acc = acc * 0.5
    t = libdevice.tanh(z.to(tl.float32))
    u = z.to(tl.bfloat16)
    u = u * u
    tl.device_print('hello "x" ', offs)
    tl.device_assert(n > 0, 'bad "n"\n')
    tl.store(out + offs, t + u.to(tl.float32) + acc + running + where + best, mask=mask)
    tl.atomic_add(y + offs, z, mask=mask)
    tl.store(out + offs, tl.rand(4, offs) + tl.flip(z, 0))


@triton.jit
def matrix(a, b, c, M, N, K, BM: tl.constexpr, BK: tl.constexpr):
    descriptor = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    offs = tl.arange(0, BM)
    acc = tl.zeros((BM, BM), tl.float32)
    for k in range(0, K, BK):
        tile = descriptor.load([0, k])
        other = tl.load(b + (k + tl.arange(0, BK))[:, None] * N + offs[None, :])
        acc = tl.dot(tile, other, acc)
    x = tl.trans(acc.to(tl.float16))
    first, second = tl.split(tl.join(x, x))
    y = tl.math.fma(first.to(tl.float32), second.to(tl.float32), tl.full((BM, BM), float("nan"), tl.bfloat16).to(tl.float32))
    y = tl.where(y > 0, y, -y)
    q = y.to(tl.int8).to(tl.uint8) // 3 + (offs.to(tl.uint32) % 5)[None, :].to(tl.uint8) >> 2
    tl.store(c + offs[:, None] * N + offs[None, :], q)


@triton.jit
def arithmetic(x, out, n, m, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(x + offs)
    total = a
    for i in range(n):
        j = i * 2 + m
        step = (m * 7 - 3) // 5  # the same in every iteration
        if j % 3 == 0:
            total += scaled(a, step)
        elif j % 3 == 1:
            total = tl.where(total > step, total - j, total)
        k = i
        while k > 2:
            k = k // 2
            total += k
        tl.store(out + offs + i * BLOCK, total)
    tl.store(out + offs, total * (m // 2) + (m // 2))


@triton.jit
def pointers(a, c, M, K, BM: tl.constexpr, BK: tl.constexpr):
    p = tl.make_block_ptr(a, (M, K), (K, 1), (0, 0), (BM, BK), (1, 0))
    acc = tl.zeros((BM, BK), tl.float32)
    for _ in range(0, K, BK):
        acc += tl.load(p, boundary_check=(0, 1), padding_option="nan")
        p = tl.advance(p, (0, BK))
    q = tl.make_block_ptr(c, (M, K), (K, 1), (0, 0), (BM, BK), (1, 0))
    tl.store(q, acc, boundary_check=(0,))


@triton.jit
def with_tuple(a, pair, function: tl.constexpr):
    tl.store(a, function(pair[0], pair[1]))
    both = tl.inline_asm_elementwise(
        'mov "a"; b', "=r,=r,r", [tl.arange(0, 16)], dtype=(tl.int32, tl.float32), is_pure=False, pack=1
    )
    tl.store(pair[2] + tl.arange(0, 16), both[1])


KERNELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "everything": (everything, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64}),
    "matrix": (
        matrix,
        {"a": "*fp16", "b": "*fp16", "c": "*u8", "M": "i32", "N": "i32", "K": "i32", "BM": "constexpr", "BK": "constexpr"},
        {"BM": 32, "BK": 16},
    ),
    "arithmetic": (arithmetic, {"x": "*fp32", "out": "*fp32", "n": "i32", "m": "i32", "BLOCK": "constexpr"}, {"BLOCK": 8}),
    "with_tuple": (
        with_tuple,
        {"a": "*fp32", "pair": ("fp32", "fp32", "*fp32"), "function": "constexpr"},
        {"function": scaled},
    ),
}
if capabilities.block_pointers():
    KERNELS["pointers"] = (
        pointers,
        {"a": "*fp32", "c": "*fp32", "M": "i32", "K": "i32", "BM": "constexpr", "BK": "constexpr"},
        {"BM": 32, "BK": 16},
    )


@cache
def generic_text(name: str, *, overflow_checks: bool = False) -> str:
    """The raw module of a kernel of this file in MLIR's generic form."""
    function, signature, constants = KERNELS[name]
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({"debug": True, "sanitize_overflow": overflow_checks, "enable_fp_fusion": True})
    code_generation = backend.get_codegen_implementation(options)
    source = ASTSource(function, signature, {(function.arg_names.index(k),): v for k, v in constants.items()}, {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    arguments = [options, code_generation, backend.get_module_map(), context]
    if len(inspect.signature(source.make_ir).parameters) == 5:
        arguments.insert(0, target)
    module = source.make_ir(*arguments)
    # a module that does not verify is printed in generic form
    builder = ir.builder(context)
    empty = builder.get_or_insert_function(module, "__unterminated", builder.get_function_ty([], []), "private", False)
    module.push_back(empty)
    empty.add_entry_block()
    return str(module.str())
