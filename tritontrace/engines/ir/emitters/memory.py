"""Loads, stores, atomics, descriptors and block pointers."""

from __future__ import annotations

from typing import Any

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.atomics import RMW_NAMES
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.registry import array_list, assign, integer, operation
from tritontrace.engines.ir.tree import Op, Type, Value

SEMANTICS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
SCOPES = {1: "gpu", 2: "cta", 3: "sys"}


def is_block_pointer(kind: Type) -> bool:
    """True for the type of a block pointer (triton 3.6)."""
    return kind.is_pointer and kind.element.startswith("ptr<tensor")


def checked_axes(op: Op) -> tuple[int, ...]:
    """The axes along which an access through a block pointer is checked against its shape."""
    return tuple(int(i) for i in op.attributes.get("boundaryCheck") or ())


def tile_shape(of: Op) -> tuple[int, ...]:
    """The shape of the tile that an operation on a descriptor or block pointer moves."""
    kind = of.operands[0].type
    if of.name == "tt.descriptor_scatter":
        return of.operands[3].type.shape
    return (kind.pointee if is_block_pointer(kind) else kind.block).shape


def inside(scope: Scope, of: Op, tile: list[Value]) -> str:
    """The expression of the mask of what of a tile lies inside the tensor; `tile` as `companions.tile_of` gives it."""
    name, offsets = scope.name(tile[0]), tile[1:]
    if of.name == "tt.descriptor_scatter":
        return f"{name}.rows({', '.join(scope.array(value) for value in offsets)})[1]"
    if is_block_pointer(tile[0].type):
        return f"{name}.tile({name}.offsets, {checked_axes(of)})[1]"
    return f"{name}.tile({array_list(scope, offsets)})[1]"


def as_tile(scope: Scope, value: Value, shape: tuple[int, ...]) -> str:
    """The expression of a value in the shape of a tile, which may have more axes of length 1."""
    array = scope.array(value)
    return array if value.type.shape == shape else f"reshape({array}, {value.type.shape}, {shape})"


def fixed_attributes(op: Op, used: bool) -> dict[str, Any]:
    """What a client is told of an access before it runs; `used`: whether its result is."""
    name = op.name
    if name == "tt.load":
        return {"volatile": bool(op.attributes.get("isVolatile"))}
    if "atomic" not in name:
        return {}
    kind = {"tt.atomic_cas": "cas", "tt.atomic_load": "load", "tt.atomic_store": "store"}.get(name)
    default = {"tt.atomic_load": 2, "tt.atomic_store": 3}.get(name, 4)
    return {
        "operation": RMW_NAMES[integer(op, "atomic_rmw_op")] if kind is None else kind,
        "sem": SEMANTICS.get(integer(op, "sem", default), SEMANTICS[default]),
        "scope": SCOPES.get(integer(op, "scope", 1), "gpu"),
        "used": used,
    }


@operation("tt.load")
def _load(scope: Scope, op: Op, lines: Lines) -> None:
    pointer = op.operands[0]
    kind = op.results[0].type
    site = scope.site(op, kind, pointer, **fixed_attributes(op, True))
    if is_block_pointer(pointer.type):
        padding = op.attributes.get("padding")
        fill = "nan" if padding is not None and int(padding) == 2 else "zero"
        text = f"load_tile(F, {site}, {scope.name(pointer)}, None, {checked_axes(op)}, {fill!r})"
    else:
        sizes = op.attributes.get("operandSegmentSizes") or [1, int(len(op.operands) > 1), int(len(op.operands) > 2)]
        mask = scope.name(op.operands[1]) if sizes[1] else "None"
        other = scope.array(op.operands[-1]) if sizes[2] else "None"
        text = f"load(F, {site}, {scope.name(pointer)}, {mask}, {other})"
    assign(scope, op, lines, text)


@operation("tt.store")
def _store(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, value = op.operands[:2]
    site = scope.site(op, value.type, pointer)
    if is_block_pointer(pointer.type):
        text = f"store_tile(F, {site}, {scope.name(pointer)}, None, {scope.array(value)}, {checked_axes(op)})"
    else:
        mask = scope.name(op.operands[2]) if len(op.operands) > 2 else "None"
        text = f"store(F, {site}, {scope.name(pointer)}, {scope.array(value)}, {mask})"
    lines.add(text, op.location.location)


@operation("tt.atomic_rmw")
def _atomic_rmw(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, value = op.operands[:2]
    mask = scope.name(op.operands[2]) if len(op.operands) > 2 else "None"
    used = scope.uses.get(op.results[0], 0) > 0
    fixed = fixed_attributes(op, used)
    name, sem, where = fixed["operation"], fixed["sem"], fixed["scope"]
    site = scope.site(op, value.type, pointer, **fixed)
    text = f"atomic_rmw(F, {site}, {name!r}, {scope.name(pointer)}, {scope.array(value)}, {mask}, {used}, {sem!r}, {where!r})"
    assign(scope, op, lines, text)


@operation("tt.atomic_cas")
def _atomic_cas(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, compare, value = op.operands
    fixed = fixed_attributes(op, True)
    site = scope.site(op, value.type, pointer, **fixed)
    operands = f"{scope.name(pointer)}, {scope.array(compare)}, {scope.array(value)}"
    text = f"atomic_cas(F, {site}, {operands}, {fixed['sem']!r}, {fixed['scope']!r})"
    assign(scope, op, lines, text)


@operation("tt.atomic_load")
def _atomic_load(scope: Scope, op: Op, lines: Lines) -> None:
    pointer = op.operands[0]
    mask = scope.name(op.operands[1]) if len(op.operands) > 1 else "None"
    fixed = fixed_attributes(op, True)
    site = scope.site(op, op.results[0].type, pointer, **fixed)
    assign(scope, op, lines, f"atomic_load(F, {site}, {scope.name(pointer)}, {mask}, {fixed['sem']!r}, {fixed['scope']!r})")


@operation("tt.atomic_store")
def _atomic_store(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, value = op.operands[:2]
    mask = scope.name(op.operands[2]) if len(op.operands) > 2 else "None"
    fixed = fixed_attributes(op, False)
    site = scope.site(op, value.type, pointer, **fixed)
    operands = f"{scope.name(pointer)}, {scope.array(value)}, {mask}"
    text = f"atomic_store(F, {site}, {operands}, {fixed['sem']!r}, {fixed['scope']!r})"
    lines.add(text, op.location.location)


@operation("tt.make_tensor_descriptor")
def _make_descriptor(scope: Scope, op: Op, lines: Lines) -> None:
    base, *rest = op.operands
    block = op.results[0].type.block
    rank = len(block.shape)
    padding = "nan" if integer(op, "padding", 1) == 2 else "zero"
    size = numerics.element_bytes(block.element)
    shape, strides = array_list(scope, rest[:rank]), array_list(scope, rest[rank:])
    text = f"Descriptor({scope.name(base)}, {shape}, {strides}, {block.shape}, {size}, {padding!r})"
    assign(scope, op, lines, text)


@operation("tt.make_tensor_ptr")
def _make_tensor_pointer(scope: Scope, op: Op, lines: Lines) -> None:
    base, *rest = op.operands
    block = op.results[0].type.pointee
    rank = len(block.shape)
    size = numerics.element_bytes(block.element)
    shape, strides = array_list(scope, rest[:rank]), array_list(scope, rest[rank : 2 * rank])
    offsets = array_list(scope, rest[2 * rank :])
    text = f"Descriptor({scope.name(base)}, {shape}, {strides}, {block.shape}, {size}, 'zero', {offsets})"
    assign(scope, op, lines, text)


@operation("tt.advance")
def _advance(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, *offsets = op.operands
    assign(scope, op, lines, f"{scope.name(pointer)}.advanced({array_list(scope, offsets)})")


@operation("tt.descriptor_load")
def _descriptor_load(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, *offsets = op.operands
    kind = op.results[0].type
    block = descriptor.type.block.shape
    site = scope.site(op, kind, descriptor, block)
    text = f"load_tile(F, {site}, {scope.name(descriptor)}, {array_list(scope, offsets)}, None, None)"
    if kind.shape != block:
        text = f"reshape({text}, {block}, {kind.shape})"
    assign(scope, op, lines, text)


@operation("tt.descriptor_store", "tt.descriptor_reduce")
def _descriptor_store(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, value, *offsets = op.operands
    block = descriptor.type.block.shape
    reduces = op.name == "tt.descriptor_reduce"
    kind = reduce_kind(integer(op, "kind"), value.type.element, descriptor.type) if reduces else ""
    fixed: dict[str, Any] = {"operation": kind, "sem": "relaxed", "scope": "gpu", "used": False} if reduces else {}
    site = scope.site(op, value.type, descriptor, block, **fixed)
    data = scope.array(value)
    if value.type.shape != block:
        data = f"reshape({data}, {value.type.shape}, {block})"
    place = f"F, {site}, {scope.name(descriptor)}, {array_list(scope, offsets)}, {data}"
    if not reduces:
        lines.add(f"store_tile({place}, None)", op.location.location)
    else:
        lines.add(f"reduce_tile({place}, {kind!r})", op.location.location)


_DESCRIPTOR_REDUCE = {1: "add", 2: "min", 3: "max", 4: "inc", 5: "dec", 6: "and", 7: "or", 8: "xor"}


def reduce_kind(code: int, element: str, descriptor: Type) -> str:
    """The atomic operation of a ``tt.descriptor_reduce`` of `element`s; integers have their sign from the descriptor."""
    name = _DESCRIPTOR_REDUCE.get(code, "add")
    if name in ("min", "max") and descriptor.is_unsigned_descriptor:
        return f"u{name}"
    return "fadd" if name == "add" and element[0] in "fb" else name


@operation("tt.descriptor_gather")
def _descriptor_gather(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, rows, column = op.operands
    site = scope.site(op, op.results[0].type, descriptor)
    assign(scope, op, lines, f"load_rows(F, {site}, {scope.name(descriptor)}, {scope.array(rows)}, {scope.array(column)})")


@operation("tt.descriptor_scatter")
def _descriptor_scatter(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, rows, column, value = op.operands
    site = scope.site(op, value.type, descriptor)
    text = f"store_rows(F, {site}, {scope.name(descriptor)}, {scope.array(rows)}, {scope.array(column)}, {scope.array(value)})"
    lines.add(text, op.location.location)
