"""How each structural, memory and tile operation is written: one entry an operation.

Pure elementwise operations are in `ops.ELEMENTWISE`. An emitter gets (scope, op, lines) and adds the lines for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.atomics import RMW_NAMES
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import Op, Region, Type
from tritontrace.engines.ir.values import Axis, Separable

__all__ = ["EMITTERS", "emit", "knows"]

EmitFunction = Callable[[Scope, Op, Lines], None]
EMITTERS: dict[str, EmitFunction] = {}
"""Operation name -> emitter."""

NOTHING = frozenset(
    {
        "gpu.barrier",
        "ttg.barrier",
        "ttg.local_barrier",
        "llvm.intr.assume",
        "nvvm.barrier0",
        "tt.func",
    }
)
"""Operations that leave no trace in a lockstep execution."""

_SEMANTICS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
_SCOPES = {1: "gpu", 2: "cta", 3: "sys"}
_PRECISIONS = {0: "tf32", 1: "tf32x3", 2: "ieee", 3: "bf16x3", 4: "bf16x6"}


def operation(*names: str) -> Callable[[EmitFunction], EmitFunction]:
    """Register an emitter for `names`."""

    def register(function: EmitFunction) -> EmitFunction:
        for name in names:
            EMITTERS[name] = function
        return function

    return register


def knows(name: str) -> bool:
    """True if the engine can run the operation at all."""
    return name in EMITTERS or name in ELEMENTWISE or name in NOTHING


def emit(scope: Scope, op: Op, lines: Lines) -> None:
    """Write one op; raises `UnsupportedOpError` for one that nobody knows."""
    emitter = EMITTERS.get(op.name)
    if emitter is not None:
        emitter(scope, op, lines)
        return
    elementwise = ELEMENTWISE.get(op.name)
    if elementwise is not None:
        text = elementwise(op, [scope.array(v) for v in op.operands], scope.emitter)
        lines.add(f"{', '.join(scope.name(r) for r in op.results)} = {text}", op.location.location)
        for r in op.results:
            _note_block(scope, r.type)
        return
    if op.name not in NOTHING:
        raise scope.emitter.unsupported(op, "no engine entry for this operation", scope.location(op))


def _note_block(scope: Scope, kind: Type) -> None:
    if kind.shape:
        size = 1
        for n in kind.shape:
            size *= n
        scope.emitter.max_block = max(scope.emitter.max_block, size)


def _set(scope: Scope, op: Op, lines: Lines, text: str) -> None:
    lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)
    scope.mark(op.results, op.name)
    _note_block(scope, op.results[0].type)


def _integer(op: Op, name: str, default: int = 0) -> int:
    value = op.attributes.get(name, default)
    return int(value)


# -- constants and shapes ------------------------------------------------------------------------------------------------


@operation("arith.constant")
def _constant(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    value = np.asarray(op.attributes["value"], numerics.compute_dtype(kind.element))
    if value.size == 1:
        value = value.reshape((1,) * (1 + len(kind.shape)))
    else:
        value = value.reshape((1, *kind.shape))
    scope.constant(op.results[0], value)


@operation("ub.poison")
def _poison(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    dtype = np.int64 if kind.is_pointer else numerics.compute_dtype(kind.element)
    scope.constant(op.results[0], np.zeros((1,) * (1 + len(kind.shape)), dtype))


@operation("tt.make_range")
def _make_range(scope: Scope, op: Op, lines: Lines) -> None:
    start, end = _integer(op, "start"), _integer(op, "end")
    axis = Axis(np.arange(start, end, dtype=np.int64), 1)
    scope.constant(op.results[0], Separable(0, None, (axis,), 32))
    scope.lazy.add(op.results[0])
    _note_block(scope, op.results[0].type)


@operation("tt.get_program_id")
def _program_id(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, f"F.ids[{_integer(op, 'axis')}]")


@operation("tt.get_num_programs")
def _num_programs(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, f"F.rt.sizes[{_integer(op, 'axis')}]")


@operation("tt.splat")
def _splat(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, f"splat({scope.array(op.operands[0])}, {len(op.results[0].type.shape)})")


@operation("tt.unsplat")
def _unsplat(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, f"_flat({scope.array(op.operands[0])})")


@operation("tt.broadcast", "ttg.convert_layout")
def _broadcast(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, scope.name(op.operands[0]))
    if op.operands[0] in scope.lazy:
        scope.lazy.add(op.results[0])


@operation("tt.expand_dims")
def _expand_dims(scope: Scope, op: Op, lines: Lines) -> None:
    _set(scope, op, lines, f"expand_dims({scope.name(op.operands[0])}, {_integer(op, 'axis')})")


@operation("tt.trans")
def _trans(scope: Scope, op: Op, lines: Lines) -> None:
    order = tuple(int(i) for i in op.attributes["order"])
    _set(scope, op, lines, f"transpose({scope.name(op.operands[0])}, {order})")


@operation("tt.reshape")
def _reshape(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    _set(scope, op, lines, f"reshape({scope.name(source)}, {source.type.shape}, {op.results[0].type.shape})")


@operation("tt.join")
def _join(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    _set(scope, op, lines, f"join({scope.array(a)}, {scope.array(b)}, {a.type.shape})")


@operation("tt.split")
def _split(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    target = ", ".join(scope.name(r) for r in op.results)
    lines.add(f"{target} = split({scope.array(source)}, {source.type.shape})", op.location.location)


@operation("tt.cat")
def _cat(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    _set(scope, op, lines, f"cat({scope.array(a)}, {scope.array(b)}, {a.type.shape}, {b.type.shape})")


@operation("tt.gather")
def _gather(scope: Scope, op: Op, lines: Lines) -> None:
    source, index = op.operands
    text = f"gather({scope.array(source)}, {scope.array(index)}, {source.type.shape}, {index.type.shape}, {_integer(op, 'axis')})"
    _set(scope, op, lines, text)


@operation("tt.histogram")
def _histogram(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    mask = scope.name(op.operands[1]) if len(op.operands) > 1 else "None"
    kind = op.results[0].type
    dtype = scope.emitter.bind("np_" + numerics.compute_dtype(kind.element).name, numerics.compute_dtype(kind.element))
    _set(scope, op, lines, f"histogram({scope.array(source)}, {mask}, {source.type.shape}, {kind.shape[0]}, {dtype})")


# -- integers that may stay lazy -------------------------------------------------------------------------------------------


def _lazy_integer(function: str) -> EmitFunction:
    def emitter(scope: Scope, op: Op, lines: Lines) -> None:
        kind = op.results[0].type
        if kind.shape and kind.element in ("i32", "i64"):
            a, b = op.operands
            _set(scope, op, lines, f"{function}({scope.name(a)}, {scope.name(b)}, {kind.element[1:]})")
        else:
            text = ELEMENTWISE[op.name](op, [scope.array(v) for v in op.operands], scope.emitter)
            lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)

    return emitter


EMITTERS["arith.addi"] = _lazy_integer("iadd")
EMITTERS["arith.subi"] = _lazy_integer("isub")
EMITTERS["arith.muli"] = _lazy_integer("imul")


def _plain(scope: Scope, op: Op, lines: Lines) -> None:
    text = ELEMENTWISE[op.name](op, [scope.array(v) for v in op.operands], scope.emitter)
    lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)
    _note_block(scope, op.results[0].type)


@operation("arith.extsi")
def _extsi(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    if kind.shape and kind.element == "i64" and op.operands[0].type.element == "i32":
        _set(scope, op, lines, f"sext({scope.name(op.operands[0])}, 64)")
    else:
        _plain(scope, op, lines)


@operation("arith.cmpi")
def _cmpi(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    predicate = _integer(op, "predicate")
    if a.type.shape and predicate < 6 and a.type.element in ("i32", "i64"):
        _set(scope, op, lines, f"compare({scope.name(a)}, {scope.name(b)}, {predicate})")
    else:
        _plain(scope, op, lines)


@operation("arith.andi")
def _andi(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    if a.type.shape and a.type.element == "i1":
        _set(scope, op, lines, f"land({scope.name(a)}, {scope.name(b)})")
    else:
        _plain(scope, op, lines)


@operation("tt.addptr")
def _addptr(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, offset = op.operands
    kind = op.results[0].type
    size = numerics.element_bytes(kind.pointee.element)
    if kind.shape:
        _set(scope, op, lines, f"addptr({scope.name(pointer)}, {scope.name(offset)}, {size})")
    else:
        _set(scope, op, lines, f"{scope.name(pointer)} + {scope.name(offset)}.astype(np.int64) * {size}")


# -- memory ------------------------------------------------------------------------------------------------------------------


def _is_block_pointer(kind: Type) -> bool:
    return kind.is_pointer and kind.element.startswith("ptr<tensor")


def _checked(op: Op) -> tuple[int, ...]:
    return tuple(int(i) for i in op.attributes.get("boundaryCheck") or ())


@operation("tt.load")
def _load(scope: Scope, op: Op, lines: Lines) -> None:
    pointer = op.operands[0]
    kind = op.results[0].type
    site = scope.site(op, kind, pointer)
    if _is_block_pointer(pointer.type):
        padding = op.attributes.get("padding")
        fill = "nan" if padding is not None and int(padding) == 2 else "zero"
        text = f"load_tile(F, {site}, {scope.name(pointer)}, None, {_checked(op)}, {fill!r})"
    else:
        sizes = op.attributes.get("operandSegmentSizes") or [1, int(len(op.operands) > 1), int(len(op.operands) > 2)]
        mask = scope.name(op.operands[1]) if sizes[1] else "None"
        other = scope.array(op.operands[-1]) if sizes[2] else "None"
        text = f"load(F, {site}, {scope.name(pointer)}, {mask}, {other})"
    _set(scope, op, lines, text)


@operation("tt.store")
def _store(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, value = op.operands[:2]
    site = scope.site(op, value.type, pointer)
    if _is_block_pointer(pointer.type):
        text = f"store_tile(F, {site}, {scope.name(pointer)}, None, {scope.array(value)}, {_checked(op)})"
    else:
        mask = scope.name(op.operands[2]) if len(op.operands) > 2 else "None"
        text = f"store(F, {site}, {scope.name(pointer)}, {scope.array(value)}, {mask})"
    lines.add(text, op.location.location)


@operation("tt.atomic_rmw")
def _atomic_rmw(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, value = op.operands[:2]
    site = scope.site(op, value.type, pointer)
    mask = scope.name(op.operands[2]) if len(op.operands) > 2 else "None"
    name = RMW_NAMES[_integer(op, "atomic_rmw_op")]
    used = scope.uses.get(op.results[0], 0) > 0
    sem, where = _SEMANTICS.get(_integer(op, "sem", 4), "acq_rel"), _SCOPES.get(_integer(op, "scope", 1), "gpu")
    text = f"atomic_rmw(F, {site}, {name!r}, {scope.name(pointer)}, {scope.array(value)}, {mask}, {used}, {sem!r}, {where!r})"
    _set(scope, op, lines, text)


@operation("tt.atomic_cas")
def _atomic_cas(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, compare, value = op.operands
    site = scope.site(op, value.type, pointer)
    sem, where = _SEMANTICS.get(_integer(op, "sem", 4), "acq_rel"), _SCOPES.get(_integer(op, "scope", 1), "gpu")
    text = f"atomic_cas(F, {site}, {scope.name(pointer)}, {scope.array(compare)}, {scope.array(value)}, {sem!r}, {where!r})"
    _set(scope, op, lines, text)


def _list(scope: Scope, values: Any) -> str:
    return "[" + ", ".join(scope.array(v) for v in values) + "]"


@operation("tt.make_tensor_descriptor")
def _make_descriptor(scope: Scope, op: Op, lines: Lines) -> None:
    base, *rest = op.operands
    block = op.results[0].type.block
    rank = len(block.shape)
    padding = "nan" if _integer(op, "padding", 1) == 2 else "zero"
    size = numerics.element_bytes(block.element)
    text = f"Descriptor({scope.name(base)}, {_list(scope, rest[:rank])}, {_list(scope, rest[rank:])}, {block.shape}, {size}, {padding!r})"
    _set(scope, op, lines, text)


@operation("tt.make_tensor_ptr")
def _make_tensor_pointer(scope: Scope, op: Op, lines: Lines) -> None:
    base, *rest = op.operands
    block = op.results[0].type.pointee
    rank = len(block.shape)
    size = numerics.element_bytes(block.element)
    shape, strides, offsets = rest[:rank], rest[rank : 2 * rank], rest[2 * rank :]
    text = (
        f"Descriptor({scope.name(base)}, {_list(scope, shape)}, {_list(scope, strides)}, {block.shape}, {size}, 'zero', "
        f"{_list(scope, offsets)})"
    )
    _set(scope, op, lines, text)


@operation("tt.advance")
def _advance(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, *offsets = op.operands
    _set(scope, op, lines, f"{scope.name(pointer)}.advanced({_list(scope, offsets)})")


@operation("tt.descriptor_load")
def _descriptor_load(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, *offsets = op.operands
    kind = op.results[0].type
    block = descriptor.type.block.shape
    site = scope.site(op, kind, descriptor, block)
    text = f"load_tile(F, {site}, {scope.name(descriptor)}, {_list(scope, offsets)}, None, None)"
    if kind.shape != block:
        text = f"reshape({text}, {block}, {kind.shape})"
    _set(scope, op, lines, text)


@operation("tt.descriptor_store", "tt.descriptor_reduce")
def _descriptor_store(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, value, *offsets = op.operands
    block = descriptor.type.block.shape
    site = scope.site(op, value.type, descriptor, block)
    data = scope.array(value)
    if value.type.shape != block:
        data = f"reshape({data}, {value.type.shape}, {block})"
    place = f"F, {site}, {scope.name(descriptor)}, {_list(scope, offsets)}, {data}"
    if op.name == "tt.descriptor_store":
        lines.add(f"store_tile({place}, None)", op.location.location)
    else:
        kind = value.type.element
        lines.add(f"reduce_tile({place}, {_reduce_kind(_integer(op, 'kind'), kind)!r})", op.location.location)


_DESCRIPTOR_REDUCE = {1: "add", 2: "min", 3: "max", 4: "inc", 5: "dec", 6: "and", 7: "or", 8: "xor"}


def _reduce_kind(code: int, element: str) -> str:
    name = _DESCRIPTOR_REDUCE.get(code, "add")
    return "fadd" if name == "add" and element[0] in "fb" else name


@operation("tt.descriptor_gather")
def _descriptor_gather(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, rows, column = op.operands
    site = scope.site(op, op.results[0].type, descriptor)
    _set(scope, op, lines, f"load_rows(F, {site}, {scope.name(descriptor)}, {scope.array(rows)}, {scope.array(column)})")


@operation("tt.descriptor_scatter")
def _descriptor_scatter(scope: Scope, op: Op, lines: Lines) -> None:
    descriptor, rows, column, value = op.operands
    site = scope.site(op, value.type, descriptor)
    text = f"store_rows(F, {site}, {scope.name(descriptor)}, {scope.array(rows)}, {scope.array(column)}, {scope.array(value)})"
    lines.add(text, op.location.location)


# -- compute -----------------------------------------------------------------------------------------------------------------


@operation("tt.dot")
def _dot(scope: Scope, op: Op, lines: Lines) -> None:
    a, b, c = op.operands
    precision = op.attributes.get("inputPrecision", 0)
    name = precision if isinstance(precision, str) and not precision.isdigit() else _PRECISIONS.get(int(precision), "ieee")
    where = scope.location(op)
    site = scope.event_site(op, where, op.results[0].type.shape, op.results[0].type.element)
    bound = scope.emitter.bind(f"D{site.id}", site)
    elements = (a.type.element, b.type.element)
    text = (
        f"dot_op(F, {bound}, {scope.array(a)}, {scope.array(b)}, {scope.array(c)}, {a.type.shape}, {b.type.shape}, "
        f"{op.results[0].type.element!r}, {elements}, {name!r})"
    )
    _set(scope, op, lines, text)


_EXACT = {
    "arith.addi": np.add,
    "arith.addf": np.add,
    "arith.muli": np.multiply,
    "arith.mulf": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}


def _ufunc_of(region: Region, element: str) -> Any:
    """The numpy function that a combine region is, or None."""
    block = region.block
    if len(block.ops) != 2 or len(block.arguments) != 2:
        return None
    op, end = block.ops
    if end.operands != op.results or op.operands != block.arguments:
        return None
    if op.name in ("arith.addf", "arith.mulf") and element not in ("f32", "f64"):
        return None  # narrow floats round at every step
    if element == "i1" and op.name in ("arith.addi", "arith.muli"):
        return np.bitwise_xor if op.name == "arith.addi" else np.bitwise_and
    return _EXACT.get(op.name)


@operation("tt.reduce", "tt.scan")
def _reduce(scope: Scope, op: Op, lines: Lines) -> None:
    axis = _integer(op, "axis")
    source = op.operands[0].type
    kind = op.name[3:]
    reverse = bool(op.attributes.get("reverse", False))
    where = scope.location(op)
    site = scope.event_site(op, where, source.shape, source.element)
    bound = scope.emitter.bind(f"R{site.id}", site)
    ufunc = _ufunc_of(op.regions[0], source.element) if len(op.operands) == 1 else None
    target = "[" + ", ".join(scope.name(r) for r in op.results) + "]"
    inputs = _list(scope, op.operands)
    if ufunc is not None:
        name = scope.emitter.bind("np_" + ufunc.__name__, ufunc)
        combine, free = name, "None"
    else:
        combine, free = scope.region(op.regions[0], kind)
    text = f"{target} = {kind}_op(F, {bound}, {combine}, {free}, {inputs}, {source.shape}, {axis}, {reverse})"
    lines.add(text, op.location.location)


@operation("tt.map_elementwise")
def _map_elementwise(scope: Scope, op: Op, lines: Lines) -> None:
    region = op.regions[0]
    pack = _integer(op, "pack", 1)
    results = ", ".join(scope.name(r) for r in op.results)
    if len(region.blocks) == 1:
        name, free = scope.region(region, "map")
    else:
        from tritontrace.engines.ir.flatten import nested_region

        name, free = nested_region(scope, region)
    shape = op.operands[0].type.shape
    lines.add(f"[{results}] = map_op(F, {name}, {free}, {_list(scope, op.operands)}, {shape}, {pack})", op.location.location)


@operation("tt.print")
def _print(scope: Scope, op: Op, lines: Lines) -> None:
    where = scope.location(op)
    site = scope.event_site(op, where, op.operands[0].type.shape if op.operands else (), "")
    bound = scope.emitter.bind(f"P{site.id}", site)
    prefix = str(op.attributes.get("prefix", ""))
    hexadecimal = bool(op.attributes.get("hex", False))
    values = "[" + ", ".join(scope.array(v) for v in op.operands) + "]"
    lines.add(f"print_op(F, {bound}, {prefix!r}, {values}, {hexadecimal})", op.location.location)


@operation("tt.assert")
def _assert(scope: Scope, op: Op, lines: Lines) -> None:
    where = scope.location(op)
    condition = op.operands[0]
    site = scope.event_site(op, where, condition.type.shape, "i1")
    bound = scope.emitter.bind(f"A{site.id}", site)
    mask = scope.array(op.operands[1]) if len(op.operands) > 1 else "None"
    message = str(op.attributes.get("message", ""))
    lines.add(f"assert_op(F, {bound}, {scope.array(condition)}, {message!r}, {mask})", op.location.location)


@operation("tt.elementwise_inline_asm")
def _inline_asm(scope: Scope, op: Op, lines: Lines) -> None:
    text = str(op.attributes.get("asm_string", ""))
    callback = scope.emitter.inline_asm.get(text.strip())
    if callback is None:
        why = f"inline assembly {text!r} has no Python callback; give one with session(inline_asm={{asm: function}})"
        raise scope.emitter.unsupported(op, why, scope.location(op))
    name = scope.emitter.bind(scope.emitter.fresh("asm"), callback)
    target = "[" + ", ".join(scope.name(r) for r in op.results) + "]"
    arguments = ", ".join(scope.array(v) for v in op.operands)
    dtypes = [numerics.compute_dtype(r.type.element) for r in op.results]
    kinds = scope.emitter.bind(scope.emitter.fresh("kinds"), dtypes)
    lines.add(f"{target} = asm_op({name}, {kinds}, {arguments})", op.location.location)


# -- control -----------------------------------------------------------------------------------------------------------------


@operation("scf.yield", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
def _yield(scope: Scope, op: Op, lines: Lines) -> None:
    lines.add("return [" + ", ".join(scope.name(v) for v in op.operands) + "]", op.location.location)


@operation("scf.condition")
def _condition(scope: Scope, op: Op, lines: Lines) -> None:
    values = ", ".join(scope.name(v) for v in op.operands[1:])
    lines.add(f"return {scope.array(op.operands[0])}, [{values}]", op.location.location)


def loop_site(scope: Scope, op: Op) -> str:
    """Bind the event site of a loop."""
    site = scope.event_site(op, scope.location(op), (), "")
    return scope.emitter.bind(f"L{site.id}", site)


@operation("scf.for")
def _for(scope: Scope, op: Op, lines: Lines) -> None:
    name, free = scope.region(op.regions[0], "loop", op.location.location)
    lower, upper, step, *inits = op.operands
    carried = "[" + ", ".join(scope.name(v) for v in inits) + "]"
    unsigned = "unsignedCmp" in op.attributes
    target = scope.results(op)
    bounds = f"{scope.name(lower)}, {scope.name(upper)}, {scope.name(step)}"
    lines.add(f"{target}run_for(F, {name}, {free}, {bounds}, {carried}, {loop_site(scope, op)}, {unsigned})", op.location.location)


@operation("scf.if")
def _if(scope: Scope, op: Op, lines: Lines) -> None:
    then, then_free = scope.region(op.regions[0], "then")
    other, other_free = "None", "None"
    if len(op.regions) > 1 and op.regions[1].blocks:
        other, other_free = scope.region(op.regions[1], "other")
    target = scope.results(op)
    condition = scope.array(op.operands[0])
    lines.add(f"{target}run_if(F, {condition}, {then}, {then_free}, {other}, {other_free})", op.location.location)


@operation("scf.while")
def _while(scope: Scope, op: Op, lines: Lines) -> None:
    before, before_free = scope.region(op.regions[0], "test")
    after, after_free = scope.region(op.regions[1], "loop")
    carried = "[" + ", ".join(scope.name(v) for v in op.operands) + "]"
    target = scope.results(op)
    text = f"{target}run_while(F, {before}, {before_free}, {after}, {after_free}, {carried}, {loop_site(scope, op)})"
    lines.add(text, op.location.location)


@operation("tt.call")
def _call(scope: Scope, op: Op, lines: Lines) -> None:
    from tritontrace.engines.ir.flatten import nested_call

    name = nested_call(scope, op)
    arguments = "[" + ", ".join(scope.name(v) for v in op.operands) + "]"
    lines.add(f"{scope.results(op)}{name}(F, {arguments})", op.location.location)
