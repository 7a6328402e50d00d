"""What a kernel computes, counted: how many scalar operations of each kind one program performs in each basic block.

The counts are static, so executing a kernel has only to say which blocks ran: `count_operations` puts one *tally* at the
head of every block that computes, and the code generator turns it into one `events.Work` for each execution. An operation on
a tile counts once for each element of the tile, masked or not. A reduction of n elements combines n - 1 times.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from tritontrace.engines.ir.codegen import triton_dtype
from tritontrace.engines.ir.ops import is_elementwise
from tritontrace.engines.ir.tree import Block, Module, Op, OpLocation, Region, Value

__all__ = ["SCALED_FORMATS", "TALLY", "count_operations"]

TALLY = "tritontrace.tally"
"""An operation that tells of the block it heads; its attribute ``operations`` is the count of one execution."""

_PRECISION = {0: "tf32", 1: "tf32x3", 2: "ieee", 3: "bf16x3", 4: "bf16x6"}
SCALED_FORMATS = {
    "E4M3": "fp8e4nv",
    "E5M2": "fp8e5",
    "E2M3": "fp8",
    "E3M2": "fp8",
    "E2M1": "fp4",
    "BF16": "bf16",
    "FP16": "fp16",
}
"""Triton's ScaleDotElemType, in the order of its numbers."""

_SCALED = dict(enumerate(SCALED_FORMATS.values()))

Counts = Counter[tuple[str, str]]


def count_operations(module: Module) -> None:
    """Puts a tally at the head of every block of `module` (optimized; nobody else's) that computes something."""
    for function in module.functions.values():
        _insert(function.body)


def _insert(region: Region) -> None:
    for block in region.blocks:
        counts = _block(block)
        for op in block.ops:
            if op.name in ("scf.for", "scf.if", "scf.while"):
                for inner in op.regions:
                    _insert(inner)
        if counts:
            block.ops.insert(0, Op(TALLY, [], [], {"operations": dict(counts)}, [], [], _place(block)))


def _place(block: Block) -> OpLocation:
    return next((op.location for op in block.ops if op.location.location is not None), block.ops[0].location)


def _block(block: Block) -> Counts:
    counts: Counts = Counter()
    for op in block.ops:
        if not _free(op):
            _operation(op, counts)
    return counts


def _free(op: Op) -> bool:
    """True for what is no operation of its own: adding a dot to an accumulator (part of the dot, however it is written), and
    a sign change that is written as a difference from zero (triton 3.6)."""
    if op.name in ("arith.addf", "arith.addi"):
        return any(_bare_dot(value) for value in op.operands)
    return op.name == "arith.subf" and _zero(op.operands[0])


def _bare_dot(value: Value) -> bool:
    """True for a dot that starts from zero."""
    owner = value.owner
    return isinstance(owner, Op) and owner.name == "tt.dot" and _zero(owner.operands[2])


def _zero(value: Value) -> bool:
    """True for a constant of zeros."""
    source = value.owner
    while isinstance(source, Op) and source.name in ("tt.splat", "tt.broadcast"):
        source = source.operands[0].owner
    return isinstance(source, Op) and source.name == "arith.constant" and not np.any(source.attributes["value"])


def _operation(op: Op, counts: Counts) -> None:
    name = op.name
    if name == "tt.dot":
        a, b = op.operands[0].type, op.operands[1].type
        counts[name, _dot_element(op, a.element)] += math.prod(a.shape) * b.shape[-1]
    elif name == "tt.dot_scaled":
        shape = op.results[0].type.shape
        a = op.operands[0].type
        code = int(op.attributes.get("a_elem_type", 0))
        packed = 2 if code == 4 and bool(op.attributes.get("lhs_k_pack", True)) else 1
        counts[name, _SCALED.get(code, "fp8")] += math.prod(shape) * a.shape[-1] * packed
    elif name in ("tt.reduce", "tt.scan"):
        shape = op.operands[0].type.shape
        n = shape[int(op.attributes.get("axis", 0))]
        _combine(op.regions[0], math.prod(shape) // n * (n - 1), counts)
    elif name == "tt.map_elementwise":
        _combine(op.regions[0], math.prod(op.operands[0].type.shape) // int(op.attributes.get("pack", 1)), counts)
    elif is_elementwise(op) or name == "tt.extern_elementwise":
        if name == "tt.extern_elementwise":
            name = f"{name}:{op.attributes.get('symbol', '')}"
        kind = op.results[0].type
        counts[name, triton_dtype(kind.element)] += math.prod(kind.shape)


def _combine(region: Region, times: int, counts: Counts) -> None:
    inner: Counts = Counter()
    for block in region.blocks:
        inner.update(_block(block))
    for key, count in inner.items():
        if times:
            counts[key] += count * times


def _dot_element(op: Op, element: str) -> str:
    if element != "f32":
        return triton_dtype(element)
    precision = op.attributes.get("inputPrecision", 0)
    name = precision if isinstance(precision, str) and not precision.isdigit() else _PRECISION.get(int(precision), "ieee")
    return "fp32" if name == "ieee" else name
