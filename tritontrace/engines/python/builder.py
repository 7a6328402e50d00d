"""A builder for Triton's frontend that executes each operation at once instead of writing it down.

Triton's semantics (`TritonSemantic`: types, promotions, broadcasting, what is refused) call ``create_*`` and ``get_*`` of a
builder. This one has the same methods; its "values" are arrays (`Handle`). So types and error messages are the compiler's
without a second implementation, integers have no sign but in the operation that is chosen for them, and nothing of Triton's has
to be patched. What a method computes is the IR engine's (`engines.ir`); the values have one program (P = 1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tritontrace.engines.ir import integers, numerics, tensors
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.elementwise import COMPARISONS, NAMES, evaluator
from tritontrace.engines.python.handles import Handle, constant
from tritontrace.errors import UnsupportedOpError

__all__ = ["Builder"]

_SCALARS: dict[str, str] = {
    "void": "none",
    "int1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    # asked for by `to_ir` only while Triton's interpreter has put its own in the place of that
    **{f"uint{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    "fp8e4nv": "f8E4M3FN",
    "fp8e5": "f8E5M2",
    "fp8e4b8": "f8E4M3FNUZ",
    "fp8e5b16": "f8E5M2FNUZ",
    "fp8e4b15": "i8",  # MLIR has no such type; Triton's compiler moves its bits
    "half": "f16",
    "bf16": "bf16",
    "float": "f32",
    "double": "f64",
}
_TYPES = {name: Type((), element) for name, element in _SCALARS.items()}
_I1 = _TYPES["int1"]


@lru_cache(maxsize=1024)
def _rounded(text: str, name: str) -> Any:
    """A number (as text, in which 0.0 and -0.0 differ) as an array; nobody changes the arrays of values."""
    return numerics.round_to(np.array([float.fromhex(text)], np.float64), _TYPES[name].element)


class Builder:
    """The operations that need neither memory nor clients. One builder belongs to one launch; `Operations` adds the others.

    `options` and `codegen_fns` are the target's, as the compiler's builder has them.
    """

    def __init__(self, options: Any, codegen_functions: dict[str, Any], module_map: dict[str, Any]) -> None:
        self.options = options
        self.codegen_fns = codegen_functions
        self.module_map = module_map
        self.recording: list[tuple[str, list[Handle], Handle]] | None = None
        """While a combine function is looked at: each elementwise operation that it makes."""
        self.returned: Any = None
        """What the combine function that ran last has returned."""
        self.closed = 0
        """Above 0 while a combine function runs: its values are followed by nobody (`watching`)."""
        self.mapping = 0
        """Above 0 while `tl.map_elementwise` runs its function for one lane."""
        self.checks_overflow = False
        """Whether signed integer arithmetic is looked at."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("create_", "get_")):
            raise UnsupportedOpError(f"the Python engine has no {name.partition('_')[2]!r}")
        raise AttributeError(name)

    @contextlib.contextmanager
    def map(self) -> Iterator[None]:
        """Around a function of one lane."""
        self.closed += 1
        self.mapping += 1
        try:
            yield
        finally:
            self.closed -= 1
            self.mapping -= 1

    # -- types ---------------------------------------------------------------------------------------------------------

    def get_ptr_ty(self, element: Type, address_space: int = 1) -> Type:
        return Type((), f"ptr<{element!r}>")

    def get_block_ty(self, element: Type, shape: Any) -> Type:
        return Type(tuple(int(n) for n in shape), element.element)

    # -- constants -----------------------------------------------------------------------------------------------------

    def get_null_value(self, type: Type) -> Handle:
        return Handle(np.zeros((1,) * (1 + len(type.shape)), numerics.compute_dtype(type.element)), type)

    def get_all_ones_value(self, type: Type) -> Handle:
        dtype = numerics.compute_dtype(type.element)
        ones = np.ones(1, dtype) if dtype.kind == "b" else np.full(1, -1, dtype)
        return Handle(ones.reshape((1,) * (1 + len(type.shape))), type)

    def get_int1(self, value: Any) -> Handle:
        return constant(bool(value), _I1, np.bool_)

    def _integer(self, value: Any, bits: int) -> Handle:
        wrapped = np.array([int(value) & ((1 << bits) - 1)], f"u{bits // 8}").view(f"i{bits // 8}")
        return Handle(wrapped, _TYPES[f"int{bits}"])

    def _float(self, value: Any, name: str) -> Handle:
        return Handle(_rounded(float(value).hex(), name), _TYPES[name])

    # -- elementwise ---------------------------------------------------------------------------------------------------

    def apply(self, name: str, result: Type, *operands: Handle, **attributes: Any) -> Handle:
        """One elementwise operation of the table."""
        function = evaluator(name, tuple([o.type for o in operands]), result, tuple(attributes.items()))
        out = Handle(np.asarray(function(*[o.value for o in operands])), result)
        if self.recording is not None:
            self.recording.append((name, list(operands), out))
        return out

    def create_clampf(self, x: Handle, low: Handle, high: Handle, propagate_nan: Any) -> Handle:
        return self.apply("tt.clampf", x.type, x, low, high, propagateNan=int(propagate_nan.name != "NONE"))

    def create_select(self, condition: Handle, x: Handle, y: Handle) -> Handle:
        out = self.apply("arith.select", x.type, condition, x, y)
        out.root = x.root if x.root == y.root else None
        return out

    def create_int_cast(self, value: Handle, type: Type, signed: bool) -> Handle:
        element, target = value.type.element, type.element
        type = Type(value.type.shape, target)
        if element == target:
            return Handle(value.value, type)
        if _bits(element) > _bits(target):
            return self.apply("arith.trunci", type, value)
        return self.apply("arith.extsi" if signed else "arith.extui", type, value)

    def create_fp_to_fp(self, value: Handle, type: Type, rounding: Any) -> Handle:
        towards_zero = rounding is not None and getattr(rounding, "name", "") == "RTZ"
        return self.apply("tt.fp_to_fp", type, value, rounding=0 if towards_zero else 1)

    def create_bitcast(self, value: Handle, type: Type) -> Handle:
        out = self.apply("tt.bitcast", type, value)
        out.root = value.root
        return out

    def create_addptr(self, pointer: Handle, offset: Handle) -> Handle:
        size = numerics.element_bytes(pointer.type.pointee.element)
        shape = pointer.type.shape or offset.type.shape
        moved = pointer.value + offset.value.astype(np.int64) * size
        return Handle(moved, Type(shape, pointer.type.element), pointer.root)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, arguments: list[Handle], type: Type, pure: bool
    ) -> Handle:
        return self.apply("tt.extern_elementwise", type, *arguments, symbol=symbol)

    # -- shapes --------------------------------------------------------------------------------------------------------

    def create_make_range(self, type: Type, start: int, end: int) -> Handle:
        return Handle(np.arange(start, end, dtype=np.int32)[None], type)

    def create_splat(self, type: Type, value: Handle) -> Handle:
        lanes = value.value.reshape(1, *(1,) * len(type.shape)) if value.value.size == 1 else value.value
        return Handle(lanes, Type(type.shape, value.type.element), value.root)

    def create_unsplat(self, value: Handle) -> Handle:
        return Handle(value.value.reshape(-1)[:1], Type((), value.type.element), value.root)

    def create_broadcast(self, value: Handle, shape: Any) -> Handle:
        return Handle(value.value, Type(tuple(int(n) for n in shape), value.type.element), value.root)

    def create_expand_dims(self, value: Handle, axis: int) -> Handle:
        shape = list(value.type.shape)
        shape.insert(axis, 1)
        return Handle(np.expand_dims(value.value, axis + 1), Type(tuple(shape), value.type.element), value.root)

    def create_trans(self, value: Handle, order: Any) -> Handle:
        order = [int(axis) for axis in order]
        shape = tuple(value.type.shape[axis] for axis in order)
        moved = value.value.transpose(0, *[axis + 1 for axis in order])
        return Handle(moved, Type(shape, value.type.element), value.root)

    def create_reshape(self, value: Handle, shape: Any, reorder: bool = False) -> Handle:
        shape = tuple(int(n) for n in shape)
        lanes = integers.broadcast_to(value.value, value.type.shape).reshape(1, *shape)
        return Handle(lanes, Type(shape, value.type.element), value.root)

    def create_join(self, a: Handle, b: Handle) -> Handle:
        shape = a.type.shape
        return Handle(tensors.join(a.value, b.value, shape), Type((*shape, 2), a.type.element))

    def create_split(self, value: Handle) -> tuple[Handle, Handle]:
        a, b = tensors.split(value.value, value.type.shape)
        half = Type(value.type.shape[:-1], value.type.element)
        return Handle(a, half), Handle(b, half)

    def create_cat(self, a: Handle, b: Handle) -> Handle:
        shape = (a.type.shape[0] + b.type.shape[0], *a.type.shape[1:])
        return Handle(tensors.cat(a.value, b.value, a.type.shape, b.type.shape), Type(shape, a.type.element))

    def create_gather(self, source: Handle, index: Handle, axis: int) -> Handle:
        lanes = tensors.gather(source.value, index.value, source.type.shape, index.type.shape, axis)
        return Handle(lanes, Type(index.type.shape, source.type.element))

    def create_histogram(self, value: Handle, bins: int, mask: Any = None) -> Handle:
        given = getattr(mask, "handle", mask)
        lanes = tensors.histogram(value.value, None if given is None else given.value, value.type.shape, bins, np.dtype(np.int32))
        return Handle(lanes, Type((bins,), "i32"))

    # -- regions: Triton's code fills the region of a reduction by calling the combine function on the region's arguments ----

    def create_block_with_parent(self, region: Any, types: Any) -> Any:
        return region

    def create_reduce_ret(self, *results: Handle) -> None:
        self.returned = list(results)

    create_scan_ret = create_reduce_ret

    def get_insertion_point(self) -> None:
        return None

    def restore_insertion_point(self, point: Any) -> None:
        return None

    # -- what only a compiler needs --------------------------------------------------------------------------------------

    def create_barrier(self) -> None:
        return None  # a program is one thread here

    def create_assume(self, condition: Handle) -> None:
        return None

    def create_grid_dependency_wait(self) -> None:
        return None  # launches run one after another

    def create_grid_dependency_launch_dependents(self) -> None:
        return None

    def get_cache_policy(self, *policy: Any) -> None:
        return None

    def get_loc(self) -> None:
        return None

    def set_loc(self, location: Any) -> None:
        return None

    def create_name_loc(self, name: str, location: Any) -> None:
        return None


def _bits(element: str) -> int:
    return int(element[1:]) if element[0] == "i" and element[1:].isdigit() else 64


def _typed(kind: Type) -> Any:
    return lambda self: kind


def _elementwise(name: str) -> Any:
    def create(self: Builder, first: Handle, *others: Handle) -> Handle:
        return self.apply(name, first.type, first, *others)

    return create


def _comparison(name: str, predicate: int) -> Any:
    def create(self: Builder, a: Handle, b: Handle) -> Handle:
        return self.apply(name, Type(a.type.shape, "i1"), a, b, predicate=predicate)

    return create


def _conversion(name: str) -> Any:
    def create(self: Builder, value: Handle, type: Type) -> Handle:
        return self.apply(name, Type(value.type.shape, type.element), value)

    return create


def _add_methods() -> None:
    for name, kind in _TYPES.items():
        setattr(Builder, f"get_{name}_ty", _typed(kind))
    for bits in (8, 16, 32, 64):
        for prefix in ("int", "uint"):
            setattr(Builder, f"get_{prefix}{bits}", lambda self, value, bits=bits: self._integer(value, bits))
    for name, float_name in (("fp16", "half"), ("bf16", "bf16"), ("fp32", "float"), ("fp64", "double")):
        setattr(Builder, f"get_{name}", lambda self, value, name=float_name: self._float(value, name))
    for name, operation in NAMES.items():
        setattr(Builder, f"create_{name}", _elementwise(operation))
    for name, (operation, predicate) in COMPARISONS.items():
        setattr(Builder, f"create_{name}", _comparison(operation, predicate))
    for name, conversion in (
        ("fp_trunc", "arith.truncf"),
        ("fp_ext", "arith.extf"),
        ("si_to_fp", "arith.sitofp"),
        ("ui_to_fp", "arith.uitofp"),
        ("fp_to_si", "arith.fptosi"),
        ("fp_to_ui", "arith.fptoui"),
        ("ptr_to_int", "tt.ptr_to_int"),
        ("int_to_ptr", "tt.int_to_ptr"),
    ):
        setattr(Builder, f"create_{name}", _conversion(conversion))


_add_methods()
