"""The op tree: what the parser makes of a kernel's TTIR, and what optimizer and code generator work on.

Values are objects: identity is the object, `Value.id` is only a number that is unique in its function. There
are no use lists; whoever needs uses walks the tree once (`walk`, `free_values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tritontrace.source import SourceLocation

__all__ = [
    "NO_LOCATION",
    "Block",
    "Function",
    "Module",
    "Op",
    "OpLocation",
    "Region",
    "Successor",
    "Type",
    "Value",
    "free_values",
    "walk",
]


class Type:
    """A value's type: `shape` (empty for a scalar) and `element`.

    `element` is MLIR's name without the dialect: ``"f32"``, ``"bf16"``, ``"f8E4M3FN"``, ``"i1"``, ``"i64"``,
    ``"index"``, ``"ptr<f32>"``, ``"ptr<tensor<32x16xf32>>"`` (a block pointer, shape empty),
    ``"tensordesc<32x16xf16>"``, ``"token"``. Types are interned by the parser, and compare by value.
    """

    __slots__ = ("element", "shape")

    def __init__(self, shape: tuple[int, ...], element: str) -> None:
        self.shape = shape
        self.element = element

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.shape == other.shape and self.element == other.element

    def __hash__(self) -> int:
        return hash((self.shape, self.element))

    def __repr__(self) -> str:
        return "x".join([*map(str, self.shape), self.element])

    @property
    def is_pointer(self) -> bool:
        """A pointer or a tensor of pointers (block pointers too)."""
        return self.element.startswith("ptr<")

    @property
    def is_float(self) -> bool:
        """A floating-point scalar or tensor."""
        return self.element[0] in "fb" and self.element[1:2].isalnum() and not self.is_pointer

    @property
    def is_integer(self) -> bool:
        """An integer scalar or tensor, ``i1`` and ``index`` too."""
        return self.element == "index" or (self.element[0] == "i" and self.element[1:].isdigit())

    @property
    def pointee(self) -> Type:
        """What a pointer points to: a scalar type, for a block pointer the tensor type."""
        if not self.is_pointer:
            raise ValueError(f"{self!r} is not a pointer")
        return parse_type(self.element[4:-1])

    @property
    def block(self) -> Type:
        """The tensor type that a tensor descriptor or a block pointer moves."""
        if self.element.startswith("tensordesc<"):
            inner = self.element[len("tensordesc<") : -1]
            block = parse_type(inner if inner.startswith("tensor<") else f"tensor<{inner}>")
            # Descriptors of integers say their sign (si16, ui8); the tiles that they move do not.
            return Type(block.shape, block.element[1:]) if block.element[:2] in ("si", "ui") else block
        return self.pointee

    @property
    def is_unsigned_descriptor(self) -> bool:
        """A tensor descriptor of unsigned integers."""
        return self.element.startswith("tensordesc<") and "xui" in self.element


_DIMENSIONS = re.compile(r"((?:\d+x)*)(.*)$", re.S)


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The `Type` that an MLIR type's text names; an unknown type becomes a scalar with its text as element."""
    body = text.strip()
    shape: tuple[int, ...] = ()
    if body.startswith("tensor<") and body.endswith(">"):
        match = _DIMENSIONS.match(body[7:-1])
        assert match is not None  # the pattern matches every string
        shape = tuple(int(size) for size in match.group(1).split("x") if size)
        body = _before_comma(match.group(2))
    return Type(shape, _element(body))


def _element(body: str) -> str:
    body = body.strip()
    for prefix in ("!tt.ptr<", "ptr<"):
        if body.startswith(prefix) and body.endswith(">"):
            # the address space after the comma says nothing to us
            inner = _before_comma(body[len(prefix) : -1])
            return f"ptr<{inner if inner.startswith('tensor<') else _element(inner)}>"
    if body.startswith("!"):
        body = body[1:].removeprefix("tt.").removeprefix("async.")
    if body.startswith("tensordesc<"):
        inner = _before_comma(body[len("tensordesc<") : -1])
        # 3.6 writes tensordesc<tensor<32x16xf16>>, later versions tensordesc<32x16xf16>
        return f"tensordesc<{_before_comma(inner[7:-1]) if inner.startswith('tensor<') else inner}>"
    return body


def _before_comma(text: str) -> str:
    """`text` up to the first comma that is in no bracket (what follows is an encoding or an address space)."""
    depth = 0
    for index, char in enumerate(text):
        if char in "<([{":
            depth += 1
        elif char in ">)]}":
            depth -= 1
        elif char == "," and depth == 0:
            return text[:index].strip()
    return text.strip()


class OpLocation:
    """Where an op comes from.

    `location` is the innermost place; `call_stack` holds the calls that lead there, outermost first, without
    `location`; `variable` is the Python variable that the result was bound to.
    """

    __slots__ = ("call_stack", "location", "variable")

    def __init__(
        self,
        location: SourceLocation | None = None,
        call_stack: tuple[SourceLocation, ...] = (),
        variable: str | None = None,
    ) -> None:
        self.location = location
        self.call_stack = call_stack
        self.variable = variable

    def called_from(self, caller: OpLocation) -> OpLocation:
        """This location, of an op that was inlined at `caller`."""
        if caller.location is None:
            return self
        return OpLocation(self.location, (*caller.call_stack, caller.location, *self.call_stack), self.variable)

    def __repr__(self) -> str:
        return f"OpLocation({self.location}, {[str(call) for call in self.call_stack]}, {self.variable!r})"


NO_LOCATION = OpLocation()


class Value:
    """An SSA value. `owner` is the op that makes it or the block whose argument it is; `index` its position there.

    `name` is the Python variable it was bound to, where the compiler knew one.
    """

    __slots__ = ("id", "index", "name", "owner", "type")

    def __init__(self, type: Type, name: str | None, id: int, owner: Op | Block | None = None, index: int = 0) -> None:
        self.type = type
        self.name = name
        self.id = id
        self.owner = owner
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.id}{'(' + self.name + ')' if self.name else ''}: {self.type!r}"


class Successor:
    """Where a terminator may branch to, and what it passes as the block's arguments."""

    __slots__ = ("arguments", "block")

    def __init__(self, block: Block, arguments: list[Value]) -> None:
        self.block = block
        self.arguments = arguments


class Op:
    """One operation.

    Operands that a branch passes to a successor stand in `successors` only, so ``cf.br`` has no operands and
    ``cf.cond_br`` has one. `attributes` holds inherent and discardable attributes together, decoded (see the parser).
    """

    __slots__ = ("attributes", "location", "name", "operands", "regions", "results", "successors")

    def __init__(
        self,
        name: str,
        operands: list[Value],
        results: list[Value],
        attributes: dict[str, Any],
        regions: list[Region],
        successors: list[Successor],
        location: OpLocation,
    ) -> None:
        self.name = name
        self.operands = operands
        self.results = results
        self.attributes = attributes
        self.regions = regions
        self.successors = successors
        self.location = location

    def __repr__(self) -> str:
        results = ", ".join(map(repr, self.results))
        operands = ", ".join(f"%{value.id}" for value in self.operands)
        return f"{results + ' = ' if results else ''}{self.name}({operands}) {self.attributes}"


class Block:
    """A list of ops, the last of which is the terminator. `label` is the text's, for messages."""

    __slots__ = ("arguments", "label", "ops")

    def __init__(self, arguments: list[Value], ops: list[Op], label: str = "") -> None:
        self.arguments = arguments
        self.ops = ops
        self.label = label


class Region:
    """A list of blocks, entry first. An absent region (``scf.if`` without else) has no blocks."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks

    @property
    def block(self) -> Block:
        """The only block of a structured region."""
        if len(self.blocks) != 1:
            raise ValueError(f"a region of {len(self.blocks)} blocks where one was expected")
        return self.blocks[0]


class Function:
    """A ``tt.func``. `name` is its symbol, `python_name` the name it has in Python (a guess for display)."""

    __slots__ = ("attributes", "body", "location", "name", "python_name", "result_types")

    def __init__(
        self,
        name: str,
        result_types: tuple[Type, ...],
        body: Region,
        attributes: dict[str, Any],
        location: OpLocation = NO_LOCATION,
        python_name: str = "",
    ) -> None:
        self.name = name
        self.result_types = result_types
        self.body = body
        self.attributes = attributes
        self.location = location
        self.python_name = python_name or name

    @property
    def arguments(self) -> list[Value]:
        """The entry block's arguments."""
        return self.body.blocks[0].arguments if self.body.blocks else []


class Module:
    """The functions of a kernel's module by symbol name, in the order of the text."""

    __slots__ = ("functions",)

    def __init__(self, functions: dict[str, Function]) -> None:
        self.functions = functions


def walk(region: Region) -> Iterator[Op]:
    """Every op in `region`, nested ones too, an op before those in its regions."""
    for block in region.blocks:
        for op in block.ops:
            yield op
            for inner in op.regions:
                yield from walk(inner)


def free_values(region: Region) -> list[Value]:
    """The values that `region` uses but does not define, each once, in the order of first use."""
    defined: set[Value] = set()
    used: dict[Value, None] = {}
    _collect(region, defined, used)
    return [value for value in used if value not in defined]


def _collect(region: Region, defined: set[Value], used: dict[Value, None]) -> None:
    for block in region.blocks:
        defined.update(block.arguments)
        for op in block.ops:
            for value in op.operands:
                used[value] = None
            for successor in op.successors:
                for value in successor.arguments:
                    used[value] = None
            defined.update(op.results)
            for inner in op.regions:
                _collect(inner, defined, used)
