"""Kernels whose accesses are affine in the program ids: then the corners of the grid tell of all its programs.

An address ``a + b * x + c * y + d * z`` of the program ``(x, y, z)`` is smallest and largest at corners of the grid, and
so is each side of a mask's comparison. `by_corners` proves of a slice that all its accesses are of that kind, that every
program executes the same ones, and that no two numbers are added that may both wrap at 32 bits along an axis, and could hide
each other's wrapping: an address that is affine at the corners and beside one of them is affine everywhere then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir.definedness import SEED, SINK
from tritontrace.engines.ir.slicing import PROBE
from tritontrace.engines.ir.tree import Function, Op, Region, Value, free_values

__all__ = ["by_corners"]

Int64s = npt.NDArray[np.int64]

_ORDERS = range(2, 6)  # signed <, <=, >, >= among the predicates of arith.cmpi
_SUMS = frozenset({"arith.addi", "arith.subi", "tt.addptr"})
_SAME = frozenset({"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "ttg.convert_layout"})
_POINTERS = frozenset({"tt.make_tensor_ptr", "tt.advance"})


@dataclass(frozen=True, slots=True)
class _Form:
    """How a value depends on the program ids: not at all, affinely along `axes`, or in no way that is looked into.

    `wraps`: those of the axes along which a 32-bit sum may have wrapped before it was made wider. `mask`: a conjunction of
    comparisons of such values. `raw`: a program id itself.
    """

    axes: frozenset[int] = frozenset()
    wraps: frozenset[int] = frozenset()
    mask: bool = False
    raw: bool = False
    other: bool = False

    @property
    def same(self) -> bool:
        """The same for all programs."""
        return not self.axes and not self.other


_SAME_FOR_ALL = _Form()
_OTHER = _Form(other=True)


def by_corners(function: Function) -> bool:
    """Whether the accesses of a slice's only function can be told from the corners of the grid.

    Where undefined lanes are followed under a mask that depends on the program, the corners tell only where there are none: then
    the operation gets the attribute ``by_program``.
    """
    if len(function.body.blocks) != 1:
        return False
    proof = _Proof()
    try:
        proof.region(function.body)
        proof.final = True
        proof.region(function.body)
    except _NotAffine:
        return False
    for op in proof.masked:
        op.attributes = {**op.attributes, "by_program": True}
    return True


class _NotAffine(Exception):
    """The corners do not decide."""


class _Proof:
    def __init__(self) -> None:
        self.forms: dict[Value, _Form] = {}
        self.final = False
        self.masked: list[Op] = []

    def form(self, value: Value) -> _Form:
        return self.forms.get(value, _SAME_FOR_ALL)  # an argument of the kernel

    def region(self, region: Region) -> list[_Form]:
        """What its terminator yields."""
        if len(region.blocks) != 1:
            raise _NotAffine
        for op in region.block.ops:
            if op.name == "scf.yield":
                return [self.form(value) for value in op.operands]
            self.op(op)
        return []

    def op(self, op: Op) -> None:
        if op.name == "scf.for":
            self.loop(op)
        elif op.name == "scf.if":
            self.need_same(op.operands[:1])
            yielded = [self.region(region) for region in op.regions if region.blocks]
            self.give(op.results, [_join(forms) for forms in zip(*yielded)])
        elif op.name == PROBE:
            self.probe(op)
        elif op.name == SEED:
            self.mask(op, op.operands)
            self.give(op.results, [_SAME_FOR_ALL])  # 0 where all lanes are on; elsewhere it is not asked for
        elif op.name == SINK:
            self.need_same(op.operands[:1])
            if "tile" not in op.attributes:
                self.mask(op, op.operands[1:])
            elif self.final:
                self.masked.append(op)  # what lies inside the tensor is another thing in other programs
        elif op.successors or op.name in ("scf.while", "tt.call") or "atomic" in op.name:
            raise _NotAffine
        else:
            form = self.result(op)
            self.give(op.results, [form] * len(op.results))

    def need_same(self, values: list[Value]) -> None:
        if not all(self.form(value).same for value in values):
            raise _NotAffine

    def mask(self, op: Op, masks: list[Value]) -> None:
        """The mask of an operation on undefined lanes, if it has one."""
        for form in map(self.form, masks):
            if form.mask and self.final:
                self.masked.append(op)
            elif not form.mask and not form.same:
                raise _NotAffine

    def give(self, results: list[Value], forms: list[_Form]) -> None:
        self.forms.update(zip(results, forms))

    def loop(self, op: Op) -> None:
        self.need_same(op.operands[:3])
        carried = [self.form(value) for value in op.operands[3:]]
        region = op.regions[0]
        while True:  # forms only ever get worse
            self.give(region.block.arguments, [_SAME_FOR_ALL, *carried])
            after = [_join(pair) for pair in zip(carried, self.region(region), strict=True)]
            if after == carried:
                break
            carried = after
        self.give(op.results, carried)

    def probe(self, op: Op) -> None:
        if not self.final:
            return
        pointer, *rest = [self.form(value) for value in op.operands]
        if "descriptor" in op.attributes["of"].name:
            pointer = _sum([pointer, *(_widened(form) for form in rest)])
            rest = []
        if pointer.other or pointer.mask or any(form.other or (form.axes and not form.mask) for form in rest):
            raise _NotAffine

    def result(self, op: Op) -> _Form:
        name = op.name
        forms = [self.form(value) for value in op.operands]
        if name == "tt.get_program_id":
            return _Form(frozenset({int(op.attributes["axis"])}), raw=True)
        if all(form.same for form in forms) and all(self.form(v).same for region in op.regions for v in free_values(region)):
            return _SAME_FOR_ALL
        if name in _SAME:
            return forms[0]
        if name == "arith.andi" and all(form.same or form.mask for form in forms) and op.results[0].type.element == "i1":
            return _join(forms) if all(form.mask for form in forms) else next(form for form in forms if form.mask)
        if any(form.other or form.mask for form in forms):
            return _OTHER
        if name == "arith.extsi":
            return _widened(forms[0])
        if name == "tt.addptr":
            narrow = op.operands[1].type.element not in ("i64", "index")
            return _sum([forms[0], _widened(forms[1]) if narrow else forms[1]])
        if name in _SUMS:
            return _sum(forms)
        if name == "arith.muli" and any(form.same for form in forms):
            return _Form(forms[0].axes | forms[1].axes, forms[0].wraps | forms[1].wraps)
        if name == "arith.cmpi" and op.attributes.get("predicate") in _ORDERS:
            total = _sum([_widened(form) for form in forms])
            return total if total.other else _Form(total.axes, total.wraps, mask=True)
        if name in _POINTERS:
            return _sum([_widened(form) for form in forms])
        return _OTHER


def _widened(form: _Form) -> _Form:
    return form if form.same or form.raw else _Form(form.axes, form.wraps | form.axes)


def _sum(forms: list[_Form]) -> _Form:
    """Of a sum: two terms that may both have wrapped along an axis could wrap in opposite ways, and look affine together."""
    axes: frozenset[int] = frozenset()
    wraps: frozenset[int] = frozenset()
    for form in forms:
        if form.other or form.mask or form.wraps & wraps:
            return _OTHER
        axes, wraps = axes | form.axes, wraps | form.wraps
    return _Form(axes, wraps)


def _join(forms: tuple[_Form, ...] | list[_Form]) -> _Form:
    """Of a value that is one or another of these."""
    axes: frozenset[int] = frozenset()
    wraps: frozenset[int] = frozenset()
    depending = [form for form in forms if not form.same]
    for form in depending:
        if form.other or form.mask != depending[0].mask:
            return _OTHER
        axes, wraps = axes | form.axes, wraps | form.wraps
    return _Form(axes, wraps, mask=bool(depending) and depending[0].mask)
