"""A builder that follows values: what the IR engine writes into a kernel's IR as companions, handles carry here.

A `Follower` looks for one thing. It puts a *companion* on the handles that it has something to say of (an array of
the same rank; none means 0), moves it with the lanes, and tells clients what arrives in memory. What companions are is written
in `engines.ir` (`undefined`, `nonfinite`, `shadow64`); that nothing is written into any IR makes this the smaller half.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tritontrace.engines.ir.descriptors import Descriptor
from tritontrace.engines.ir.overflow import OVERFLOW_OP, overflow_op
from tritontrace.engines.ir.runtime import MemorySite, Runtime
from tritontrace.engines.ir.shadow64 import NO_TWIN, SAME
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.handles import Handle, block_of
from tritontrace.engines.python.operations import Operations

__all__ = ["Attributes", "Follower", "NoTwinError", "Watched"]

Attributes = dict[str, Any]


class NoTwinError(Exception):
    """A combine function does something that cannot be done once more in float64. Never leaves the engine."""


class Follower:
    """What follows values; all methods do nothing. `operands` and `results` are the operation's handles, in the IR's order.

    `key` names its companions, `element` is the IR type of one of their lanes.
    """

    key = ""
    element = "i64"

    def __init__(self, builder: Watched) -> None:
        self.builder = builder

    def parts(self) -> list[Follower]:
        """Itself, after those whose companions it makes."""
        return [self]

    def get(self, handle: Handle) -> Any:
        """The companion of a value, or None."""
        companions = getattr(handle, "companions", None)
        return None if companions is None else companions.get(self.key)

    def put(self, handle: Handle, companion: Any) -> None:
        """Gives a value its companion; None takes it away."""
        companions = getattr(handle, "companions", None)
        if companions is None:
            if companion is None:
                return
            companions = handle.companions = {}
        companions[self.key] = companion

    def default(self, handle: Handle) -> Any:
        """The companion of a value that has none."""
        return np.zeros((1,) * (1 + len(block_of(handle))), np.int64)

    def full(self, handle: Handle) -> Any:
        """The companion of a value, whether it has one or not."""
        found = self.get(handle)
        return self.default(handle) if found is None else found

    def any_of(self, operands: Iterable[Handle]) -> bool:
        """Whether one of them has a companion."""
        return any(self.get(handle) is not None for handle in operands)

    def moves(self, operands: Iterable[Handle]) -> bool:
        """Whether what only moves these values' lanes has anything to move."""
        return self.any_of(operands)

    inside_maps = False
    """Whether it is told of what `tl.map_elementwise` does for each lane."""
    gathers = True
    """Whether a companion goes with a lane that is gathered."""

    def passed(self, operands: Iterable[Handle], results: Iterable[Handle], name: str = "") -> None:
        """The lanes of `operands`, and companions if there are any, have been moved to `results` (by the operation `name`)."""

    def elementwise(self, name: str, operands: list[Handle], result: Handle, attributes: Attributes) -> None:
        """An operation that does the same in every lane."""

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], attributes: Attributes) -> None:
        """An operation whose lanes may depend on any lane."""

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        """A reduction or scan; `write` calls the combine function (see `folds`)."""

    def dot(self, operands: list[Handle], result: Handle, precision: str) -> None:
        """A product of matrices and its accumulator."""

    def histogram(self, value: Handle, mask: Handle | None, result: Handle) -> None:
        """A histogram."""

    def loaded(self, site: MemorySite, mask: Handle | None, other: Handle | None, result: Handle) -> None:
        """A load through pointers has given `result`."""

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        """A memory operation is about to use these values, each as ``"address"``, ``"mask"`` or ``"value"``."""

    def branch(self, value: Handle) -> None:
        """Control flow depends on `value`."""


class Watched(Operations):
    """`Operations` whose values are followed by `followers`, and whose integers are checked if `checks_overflow`.

    Inside a combine function nothing is followed (`closed`).
    """

    def __init__(self, runtime: Runtime, options: Any, codegen_functions: dict[str, Any], module_map: dict[str, Any]) -> None:
        super().__init__(runtime, options, codegen_functions, module_map)
        self.followers: list[Follower] = []
        self.twin = False
        """While a combine function is run once more, in float64."""

    def apply(self, name: str, result: Type, *operands: Handle, **attributes: Any) -> Handle:
        if self.twin:
            return self._twin(name, result, operands, attributes)
        out = super().apply(name, result, *operands, **attributes)
        for follower in self.followers:
            if not self.closed or (self.mapping and follower.inside_maps):
                follower.elementwise(name, list(operands), out, attributes)
        return out

    def _twin(self, name: str, result: Type, operands: tuple[Handle, ...], attributes: Attributes) -> Handle:
        """`apply` with f64 in place of every float."""
        if name in NO_TWIN or any(v.type.is_float and v.type.element != "f64" for v in operands):
            raise NoTwinError
        if name in SAME:
            return operands[0]
        kind = Type(result.shape, "f64") if result.is_float else result
        return super().apply(name, kind, *operands, **attributes)

    def branch(self, value: Handle) -> None:
        if not self.closed:
            for follower in self.followers:
                follower.branch(value)

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        if not self.closed:
            for follower in self.followers:
                follower.folded(kind, operands, results, axis, reverse, write)

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], **attributes: Any) -> None:
        if not self.closed:
            for follower in self.followers:
                follower.mixed(name, operands, results, attributes)

    def overflow(self, left: Any, right: Any, operation: str) -> bool:
        kind = left.type.scalar
        if self.checks_overflow and kind.int_bitwidth < 64 and kind.is_int_signed() and not kind.is_bool():
            site = self.sites.event(OVERFLOW_OP, left.handle.type.shape, "")
            overflow_op(self.frame, site, left.handle.value, right.handle.value, operation, kind.int_bitwidth)
        return self.checks_overflow

    # -- what is no elementwise operation of the table -----------------------------------------------------------------

    def create_int_cast(self, value: Handle, type: Type, signed: bool) -> Handle:
        out = super().create_int_cast(value, type, signed)
        if value.type.element == type.element:
            _copy(value, out)
        return out

    def create_addptr(self, pointer: Handle, offset: Handle) -> Handle:
        out = super().create_addptr(pointer, offset)
        if not self.closed:
            for follower in self.followers:
                follower.elementwise("tt.addptr", [pointer, offset], out, {})
        return out

    def create_gather(self, source: Handle, index: Handle, axis: int) -> Handle:
        out = super().create_gather(source, index, axis)
        for follower in self.followers:
            if follower.get(index) is not None:
                follower.mixed("tt.gather", [source, index], [out], {})
            elif follower.gathers and follower.moves([source]):
                follower.put(out, super().create_gather(_companion(follower, source), index, axis).value)
                follower.passed([source], [out], "tt.gather")
        return out

    def create_histogram(self, value: Handle, bins: int, mask: Any = None) -> Handle:
        out = super().create_histogram(value, bins, mask)
        for follower in self.followers:
            follower.histogram(value, getattr(mask, "handle", mask), out)
        return out

    def create_dot(self, a: Handle, b: Handle, c: Handle, precision: Any, max_imprecise: Any = None) -> Handle:
        out = super().create_dot(a, b, c, precision, max_imprecise)
        for follower in self.followers:
            follower.dot([a, b, c], out, precision.name.lower())
        return out

    def create_dot_scaled(self, a: Handle, a_scale: Any, a_format: Any, *rest: Any) -> Handle:
        out = super().create_dot_scaled(a, a_scale, a_format, *rest)
        operands = [v for v in (a, a_scale, *rest) if isinstance(v, Handle)]
        self.mixed("tt.dot_scaled", operands, [out], format=a_format.name, packed=rest[4])
        return out

    def create_inline_asm(
        self, text: str, constraints: str, values: list[Handle], types: list[Type], pure: bool, pack: int
    ) -> Any:
        out = super().create_inline_asm(text, constraints, values, types, pure, pack)
        self.mixed("tt.elementwise_inline_asm", values, out.handles)
        return out

    # -- memory --------------------------------------------------------------------------------------------------------

    def _use(self, op: str, pointer: Handle, element: str, block: Any, operands: Any, mask: Any = None) -> MemorySite:
        site = self._site(op, pointer, element, block)
        for follower in self.followers:
            follower.used(site, operands, mask)
        return site

    def create_load(self, pointer: Handle, *cache: Any) -> Handle:
        return self.create_masked_load(pointer, None, None)

    def create_masked_load(self, pointer: Handle, mask: Handle | None, other: Handle | None, *cache: Any) -> Handle:
        site = self._use(
            "tt.load", pointer, pointer.type.pointee.element, None, [(pointer, "address"), (mask, "mask")], mask and mask.value
        )
        out = super().create_masked_load(pointer, mask, other, *cache)
        for follower in self.followers:
            follower.loaded(site, mask, other, out)
        return out

    def _store(self, pointer: Handle, value: Handle, mask: Handle | None) -> None:
        used = [(pointer, "address"), (value, "value"), (mask, "mask")]
        self._use("tt.store", pointer, pointer.type.pointee.element, None, used, mask and mask.value)
        super()._store(pointer, value, mask)

    def create_atomic_rmw(
        self, operation: Any, pointer: Handle, value: Handle, mask: Handle | None, sem: Any, scope: Any
    ) -> Handle:
        used = [(pointer, "address"), (value, "value"), (mask, "mask")]
        self._use("tt.atomic_rmw", pointer, value.type.element, None, used, mask and mask.value)
        return super().create_atomic_rmw(operation, pointer, value, mask, sem, scope)

    def create_atomic_cas(self, pointer: Handle, compare: Handle, value: Handle, sem: Any, scope: Any) -> Handle:
        used = [(pointer, "address"), (compare, "compared"), (value, "value")]
        self._use("tt.atomic_cas", pointer, value.type.element, None, used)
        return super().create_atomic_cas(pointer, compare, value, sem, scope)

    def create_atomic_load(self, pointer: Handle, mask: Handle | None, sem: Any, scope: Any) -> Handle:
        used = [(pointer, "address"), (mask, "mask")]
        self._use("tt.atomic_load", pointer, pointer.type.pointee.element, None, used, mask and mask.value)
        return super().create_atomic_load(pointer, mask, sem, scope)

    def create_atomic_store(self, pointer: Handle, value: Handle, mask: Handle | None, sem: Any, scope: Any) -> None:
        used = [(pointer, "address"), (value, "value"), (mask, "mask")]
        self._use("tt.atomic_store", pointer, value.type.element, None, used, mask and mask.value)
        super().create_atomic_store(pointer, value, mask, sem, scope)

    # -- descriptors and block pointers ----------------------------------------------------------------------------------

    def create_make_tensor_descriptor(self, base: Handle, shape: Any, strides: Any, *rest: Any) -> Handle:
        out = super().create_make_tensor_descriptor(base, shape, strides, *rest)
        self.mixed("tt.make_tensor_descriptor", [base, *shape, *strides], [out])
        return out

    def create_make_block_ptr(self, base: Handle, shape: Any, strides: Any, offsets: Any, *rest: Any) -> Handle:
        out = super().create_make_block_ptr(base, shape, strides, offsets, *rest)
        self.mixed("tt.make_tensor_ptr", [base, *shape, *strides, *offsets], [out])
        return out

    def create_advance(self, pointer: Handle, offsets: list[Handle]) -> Handle:
        out = super().create_advance(pointer, offsets)
        self.mixed("tt.advance", [pointer, *offsets], [out])
        return out

    def create_tensor_pointer_load(self, pointer: Handle, *rest: Any) -> Handle:
        kind = pointer.type.block
        self._use("tt.load", pointer, kind.element, kind.shape, [(pointer, "address")])
        return super().create_tensor_pointer_load(pointer, *rest)

    def create_tensor_pointer_store(self, pointer: Handle, value: Handle, checked: Any, *cache: Any) -> None:
        _, inside = pointer.value.tile(pointer.value.offsets, tuple(int(axis) for axis in checked))
        used = [(pointer, "address"), (value, "value")]
        self._use("tt.store", pointer, value.type.element, value.type.shape, used, inside)
        super().create_tensor_pointer_store(pointer, value, checked, *cache)

    def create_descriptor_load(self, descriptor: Handle, offsets: list[Handle], *cache: Any) -> Handle:
        self._tile("tt.descriptor_load", descriptor, offsets)
        return super().create_descriptor_load(descriptor, offsets, *cache)

    def create_descriptor_store(self, descriptor: Handle, value: Handle, offsets: list[Handle]) -> None:
        self._tile("tt.descriptor_store", descriptor, offsets, value)
        super().create_descriptor_store(descriptor, value, offsets)

    def create_descriptor_reduce(self, kind: Any, descriptor: Handle, value: Handle, offsets: list[Handle]) -> None:
        self._tile("tt.descriptor_reduce", descriptor, offsets, value)
        super().create_descriptor_reduce(kind, descriptor, value, offsets)

    def _tile(self, op: str, descriptor: Handle, offsets: list[Handle], value: Handle | None = None) -> None:
        kind = descriptor.type.block
        used: list[tuple[Handle | None, str]] = [(offset, "address") for offset in offsets]
        inside = None
        if value is not None:
            _, inside = descriptor.value.tile([n.value for n in offsets])
            used.append((reshaped(self, value, kind.shape), "value"))
        self._use(op, descriptor, kind.element, kind.shape, used, inside)

    def create_descriptor_gather(self, descriptor: Handle, rows: Handle, column: Handle, type: Type) -> Handle:
        self._use("tt.descriptor_gather", descriptor, type.element, type.shape, [(rows, "address"), (column, "address")])
        return super().create_descriptor_gather(descriptor, rows, column, type)

    def create_descriptor_scatter(self, descriptor: Handle, value: Handle, rows: Handle, column: Handle) -> None:
        used = [(value, "value"), (rows, "address"), (column, "address")]
        _, inside = descriptor.value.rows(np.atleast_2d(rows.value), column.value)
        self._use("tt.descriptor_scatter", descriptor, value.type.element, value.type.shape, used, inside)
        super().create_descriptor_scatter(descriptor, value, rows, column)


def reshaped(builder: Watched, value: Handle, shape: tuple[int, ...]) -> Handle:
    """`value` in the shape of a descriptor's tile, which may have more axes of length 1."""
    return value if value.type.shape == shape else builder.create_reshape(value, shape)


def _copy(value: Handle, out: Handle) -> None:
    companions = getattr(value, "companions", None)
    if companions is not None:
        out.companions = dict(companions)


def _companion(follower: Follower, value: Any) -> Any:
    """A handle of the companion; what is no value of the kernel's stays as it is."""
    if not isinstance(value, Handle) or isinstance(value.value, Descriptor):
        return value
    return Handle(follower.full(value), Type(value.type.shape, follower.element))


def _moving(name: str) -> Any:
    plain = getattr(Operations, name)

    def create(self: Watched, *arguments: Any, **named: Any) -> Any:
        out = plain(self, *arguments, **named)
        if not self.closed:
            values = [a for a in arguments if isinstance(a, Handle)]
            for follower in self.followers:
                if follower.moves(values):
                    moved = plain(self, *[_companion(follower, a) for a in arguments], **named)
                    for one, companion in zip(_each(out), _each(moved)):
                        follower.put(one, companion.value)
                follower.passed(values, _each(out))
        return out

    return create


def _each(made: Any) -> Any:
    return made if isinstance(made, tuple) else (made,)


for _name in ("splat", "unsplat", "broadcast", "expand_dims", "trans", "reshape", "join", "split", "cat"):
    setattr(Watched, f"create_{_name}", _moving(f"create_{_name}"))
