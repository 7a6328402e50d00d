"""The builder's operations on memory, and those that clients watch: each sends the events that the IR engine sends."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines import asm
from tritontrace.engines.ir import compute_ops, memory_ops, numerics
from tritontrace.engines.ir.atomics import RMW_NAMES
from tritontrace.engines.ir.descriptors import Descriptor
from tritontrace.engines.ir.integers import broadcast_to
from tritontrace.engines.ir.runtime import AsmSite, Frame, MemorySite, Runtime
from tritontrace.engines.ir.scaled import Operand, dot_scaled_op
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.builder import Builder
from tritontrace.engines.python.handles import Handle, block_of
from tritontrace.engines.python.sites import Sites, result_is_read
from tritontrace.errors import UnsupportedOpError

__all__ = ["Operations"]

_SEMANTICS = {"ACQUIRE_RELEASE": "acq_rel", "ACQUIRE": "acquire", "RELEASE": "release", "RELAXED": "relaxed"}
_SCOPES = {"GPU": "gpu", "CTA": "cta", "SYSTEM": "sys"}
_POLLS = 1 << 16


class _Results:
    def __init__(self, handles: list[Handle]) -> None:
        self.handles = handles

    def get_result(self, index: int) -> Handle:
        return self.handles[index]


class Operations(Builder):
    """A launch's builder. `program` are the running program's ids, `frame` is it and the loops around the place where it stands.

    `spins` is set while a while loop runs: what the current iteration read, for telling a wait from work.
    """

    frame: Frame
    program: tuple[int, int, int]

    def __init__(self, runtime: Runtime, options: Any, codegen_functions: dict[str, Any], module_map: dict[str, Any]) -> None:
        super().__init__(options, codegen_functions, module_map)
        self.rt = runtime
        self.sites = Sites()
        self.spins: list[Any] | None = None
        self.wait: Any = None

    # -- what `watching` adds to ------------------------------------------------------------------------------------------

    def branch(self, value: Handle) -> None:
        """Control flow is about to depend on `value`."""

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        """A reduction or scan is done."""

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], **attributes: Any) -> None:
        """An operation is done whose lanes may depend on any lane."""

    def overflow(self, left: Any, right: Any, operation: str) -> bool:
        """True if integer arithmetic on these tensors, which is about to be done, has been looked at; False: nobody looks."""
        return False

    # -- program ids ---------------------------------------------------------------------------------------------------

    def create_get_program_id(self, axis: int) -> Handle:
        return Handle(self.frame.ids[axis], Type((), "i32"))

    def create_get_num_programs(self, axis: int) -> Handle:
        return Handle(self.rt.sizes[axis], Type((), "i32"))

    # -- loads and stores ----------------------------------------------------------------------------------------------

    def _site(self, op: str, pointer: Handle, element: str, block: tuple[int, ...] | None = None) -> MemorySite:
        return self.sites.memory(op, block_of(pointer) if block is None else block, element, pointer.root)

    def _read(self, pointer: Any, value: Any) -> Any:
        if self.spins is not None:
            self.spins.append((np.asarray(pointer).tobytes(), np.asarray(value).tobytes()))
        return value

    def create_load(self, pointer: Handle, *cache: Any) -> Handle:
        return self.create_masked_load(pointer, None, None)

    def create_masked_load(self, pointer: Handle, mask: Handle | None, other: Handle | None, *cache: Any) -> Handle:
        element = pointer.type.pointee.element
        site = self._site("tt.load", pointer, element)
        value = memory_ops.load(self.frame, site, pointer.value, mask and mask.value, other and other.value)
        return Handle(self._read(pointer.value, value), Type(pointer.type.shape, element))

    def create_store(self, pointer: Handle, value: Handle, *cache: Any) -> None:
        self._store(pointer, value, None)

    def create_masked_store(self, pointer: Handle, value: Handle, mask: Handle, *cache: Any) -> None:
        self._store(pointer, value, mask)

    def _store(self, pointer: Handle, value: Handle, mask: Handle | None) -> None:
        site = self._site("tt.store", pointer, pointer.type.pointee.element)
        memory_ops.store(self.frame, site, pointer.value, value.value, mask and mask.value)

    # -- atomics -------------------------------------------------------------------------------------------------------

    def create_atomic_rmw(
        self, operation: Any, pointer: Handle, value: Handle, mask: Handle | None, sem: Any, scope: Any
    ) -> Handle:
        name = operation.name.lower()
        if name not in RMW_NAMES.values():
            raise UnsupportedOpError(f"the Python engine has no atomic {name!r}")
        site = self._site("tt.atomic_rmw", pointer, value.type.element)
        order, reach = _SEMANTICS[sem.name], _SCOPES[scope.name]
        given = mask.value if mask is not None else None
        used = result_is_read()
        old = memory_ops.atomic_rmw(self.frame, site, name, pointer.value, value.value, given, used, order, reach)
        if old is None:  # somebody may look at it all the same, in a debugger
            return Handle(np.zeros((1,) * (1 + len(value.type.shape)), site.zero.dtype), value.type)
        return Handle(self._read(pointer.value, old), value.type)

    def create_atomic_cas(self, pointer: Handle, compare: Handle, value: Handle, sem: Any, scope: Any) -> Handle:
        site = self._site("tt.atomic_cas", pointer, value.type.element)
        order, reach = _SEMANTICS[sem.name], _SCOPES[scope.name]
        old = memory_ops.atomic_cas(self.frame, site, pointer.value, compare.value, value.value, order, reach)
        return Handle(self._read(pointer.value, old), value.type)

    def create_atomic_load(self, pointer: Handle, mask: Handle | None, sem: Any, scope: Any) -> Handle:
        element = pointer.type.pointee.element
        site = self._site("tt.atomic_load", pointer, element)
        order, reach = _SEMANTICS[sem.name], _SCOPES[scope.name]
        value = memory_ops.atomic_load(self.frame, site, pointer.value, mask and mask.value, order, reach)
        return Handle(self._read(pointer.value, value), Type(pointer.type.shape, element))

    def create_atomic_store(self, pointer: Handle, value: Handle, mask: Handle | None, sem: Any, scope: Any) -> None:
        site = self._site("tt.atomic_store", pointer, value.type.element)
        order, reach = _SEMANTICS[sem.name], _SCOPES[scope.name]
        memory_ops.atomic_store(self.frame, site, pointer.value, value.value, mask and mask.value, order, reach)

    def create_atomic_poll(self, pointer: Handle, expected: Handle, timeout: Any, sem: Any, scope: Any) -> Handle:
        """Reads until every element has once had the expected value; a timeout counts rounds, as in the IR engine."""
        element = pointer.type.pointee.element
        site = self._site("tt.atomic_load", pointer, element)
        order, reach = _SEMANTICS[sem.name], _SCOPES[scope.name]
        limit = min(int(timeout.value.view(np.uint64)[0]), _POLLS) if isinstance(timeout, Handle) else None
        done: Any = np.zeros(1, bool)
        rounds = 0
        while True:
            value = memory_ops.atomic_load(self.frame, site, pointer.value, None, order, reach)
            done = done | (value == expected.value)
            if done.all() or (limit is not None and rounds >= limit):
                return Handle(np.broadcast_to(done, (1, *pointer.type.shape)), Type(pointer.type.shape, "i1"))
            rounds += 1
            self.rt.step(self.frame, site.event.location)
            self.wait(site.event.location, limit is not None)

    # -- descriptors and block pointers ----------------------------------------------------------------------------------

    def create_tensor_descriptor_type(self, block: Type, signed: bool) -> Type:
        prefix = "" if block.element[0] != "i" else "s" if signed else "u"
        return Type((), f"tensordesc<{'x'.join([*map(str, block.shape), prefix + block.element])}>")

    def create_make_tensor_descriptor(
        self, base: Handle, shape: list[Handle], strides: list[Handle], block: Any, signed: bool, padding: Any
    ) -> Handle:
        kind = Type(tuple(int(n) for n in block), base.type.pointee.element)
        fill = "nan" if padding.name == "PAD_NAN" else "zero"
        size = numerics.element_bytes(kind.element)
        value = Descriptor(base.value, [n.value for n in shape], [n.value for n in strides], kind.shape, size, fill)
        return Handle(value, self.create_tensor_descriptor_type(kind, signed), base.root)

    def create_make_block_ptr(
        self, base: Handle, shape: list[Handle], strides: list[Handle], offsets: list[Handle], block: Any, order: Any
    ) -> Handle:
        kind = Type(tuple(int(n) for n in block), base.type.pointee.element)
        size = numerics.element_bytes(kind.element)
        parts = [[n.value for n in part] for part in (shape, strides, offsets)]
        value = Descriptor(base.value, parts[0], parts[1], kind.shape, size, "zero", parts[2])
        return Handle(value, Type((), f"ptr<tensor<{kind!r}>>"), base.root)

    def create_advance(self, pointer: Handle, offsets: list[Handle]) -> Handle:
        return Handle(pointer.value.advanced([n.value for n in offsets]), pointer.type, pointer.root)

    def create_tensor_pointer_load(self, pointer: Handle, checked: Any, padding: Any, *cache: Any) -> Handle:
        kind = pointer.type.block
        fill = "nan" if getattr(padding, "name", "") == "PAD_NAN" else "zero"
        site = self._site("tt.load", pointer, kind.element, kind.shape)
        axes = tuple(int(axis) for axis in checked)
        return Handle(memory_ops.load_tile(self.frame, site, pointer.value, None, axes, fill), kind)

    def create_tensor_pointer_store(self, pointer: Handle, value: Handle, checked: Any, *cache: Any) -> None:
        site = self._site("tt.store", pointer, value.type.element, value.type.shape)
        axes = tuple(int(axis) for axis in checked)
        memory_ops.store_tile(self.frame, site, pointer.value, None, value.value, axes)

    def create_descriptor_load(self, descriptor: Handle, offsets: list[Handle], *cache: Any) -> Handle:
        kind = descriptor.type.block
        site = self._site("tt.descriptor_load", descriptor, kind.element, kind.shape)
        return Handle(
            memory_ops.load_tile(self.frame, site, descriptor.value, [n.value for n in offsets], None, None),
            kind,
        )

    def create_descriptor_store(self, descriptor: Handle, value: Handle, offsets: list[Handle]) -> None:
        kind = descriptor.type.block
        site = self._site("tt.descriptor_store", descriptor, kind.element, kind.shape)
        data = broadcast_to(value.value, value.type.shape).reshape(1, *kind.shape)
        memory_ops.store_tile(self.frame, site, descriptor.value, [n.value for n in offsets], data, None)

    def create_descriptor_reduce(self, kind: Any, descriptor: Handle, value: Handle, offsets: list[Handle]) -> None:
        block = descriptor.type.block
        name = kind.name.lower()
        if name in ("min", "max") and descriptor.type.is_unsigned_descriptor:
            name = f"u{name}"
        elif name == "add" and block.element[0] in "fb":
            name = "fadd"
        site = self._site("tt.descriptor_reduce", descriptor, block.element, block.shape)
        data = broadcast_to(value.value, value.type.shape).reshape(1, *block.shape)
        memory_ops.reduce_tile(self.frame, site, descriptor.value, [n.value for n in offsets], data, name)

    def create_descriptor_gather(self, descriptor: Handle, rows: Handle, column: Handle, type: Type) -> Handle:
        site = self._site("tt.descriptor_gather", descriptor, type.element, type.shape)
        lanes = broadcast_to(rows.value, rows.type.shape)
        return Handle(memory_ops.load_rows(self.frame, site, descriptor.value, lanes, column.value), type)

    def create_descriptor_scatter(self, descriptor: Handle, value: Handle, rows: Handle, column: Handle) -> None:
        site = self._site("tt.descriptor_scatter", descriptor, value.type.element, value.type.shape)
        lanes = broadcast_to(rows.value, rows.type.shape)
        memory_ops.store_rows(self.frame, site, descriptor.value, lanes, column.value, value.value)

    # -- dot -----------------------------------------------------------------------------------------------------------

    def create_dot(self, a: Handle, b: Handle, c: Handle, precision: Any, max_imprecise: Any = None) -> Handle:
        kind = c.type
        site = self.sites.event("tt.dot", kind.shape, kind.element)
        operands = (a.type.element, b.type.element)
        shapes = (a.type.shape, b.type.shape)
        name = precision.name.lower()
        out = compute_ops.dot_op(self.frame, site, a.value, b.value, c.value, *shapes, kind.element, operands, name)
        return Handle(out, kind)

    def create_dot_scaled(
        self,
        a: Handle,
        a_scale: Any,
        a_format: Any,
        b: Handle,
        b_scale: Any,
        b_format: Any,
        fast_math: bool,
        a_packed: bool,
        b_packed: bool,
        c: Handle,
    ) -> Handle:
        kind = c.type
        site = self.sites.event("tt.dot_scaled", kind.shape, kind.element)
        sides: list[Any] = []
        scales: list[Any] = []
        for value, scale, form, along_k, packed in ((a, a_scale, a_format, 1, a_packed), (b, b_scale, b_format, 0, b_packed)):
            given = scale if isinstance(scale, Handle) else None
            axis = (along_k if packed else 1 - along_k) if form.name == "E2M1" else None
            shape, element = ((), "") if given is None else (given.type.shape, given.type.element)
            sides.append(Operand(value.type.shape, axis, along_k, shape, element))
            scales.append(None if given is None else given.value)
        left, right = sides
        out = dot_scaled_op(self.frame, site, left, right, a.value, b.value, c.value, scales[0], scales[1], kind.element)
        return Handle(out, kind)

    # -- prints, assertions, assembly --------------------------------------------------------------------------------------

    def create_print(self, prefix: str, hexadecimal: bool, values: list[Handle], signed: list[bool]) -> None:
        site = self.sites.event("tt.print", block_of(values[0]) if values else (), "")
        kinds = []
        for value, has_sign in zip(values, signed):
            element = value.type.element
            unsigned = element[0] == "i" and element != "i1" and not has_sign
            kinds.append("pointer" if value.type.is_pointer else "unsigned" if unsigned else "")
        compute_ops.print_op(self.frame, site, prefix, [v.value for v in values], kinds, hexadecimal)

    def create_assert(self, condition: Handle, message: str, mask: Handle | None = None) -> None:
        site = self.sites.event("tt.assert", block_of(condition), "i1")
        compute_ops.assert_op(self.frame, site, condition.value, message, mask and mask.value)

    def create_inline_asm(
        self, text: str, constraints: str, values: list[Handle], types: list[Type], pure: bool, pack: int
    ) -> _Results:
        place = self.sites.event("tt.elementwise_inline_asm", types[0].shape if types else (), "").location
        site = AsmSite(asm.normalized(text), [kind.element for kind in types], types[0].shape if types else (), place)
        if asm.find(site.text, self.rt.inline_asm) is None:
            raise UnsupportedOpError(
                f"inline assembly {site.text!r} has no Python callback; give one with session(inline_asm={{text: function}})",
                kernel=self.rt.launch.kernel_name,
                location=place,
            )
        out = compute_ops.asm_op(self.frame, site, *[v.value for v in values])
        return _Results([Handle(value, kind) for value, kind in zip(out, types)])
