"""Parser of MLIR's generic text form, as Triton prints its TTIR.

    %y:2 = "dialect.op"(%a, %b)[^bb1] <{inherent attributes}> ({ regions }) {attributes} : (types) -> types loc(...)

Nearly all ops stand alone on one line, and their attributes, signatures and locations repeat, so one regular
expression takes an op apart and the parts are looked up by their text. Whatever the expression does not cover
(braces in attributes, regions) is read by recursive descent from the same position.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn

from tritontrace.engines.ir.attributes import AttributeSyntaxError, parse_attributes, scalar_constant
from tritontrace.engines.ir.locations import Locations, python_name
from tritontrace.engines.ir.tree import (
    NO_LOCATION,
    Block,
    Function,
    Module,
    Op,
    OpLocation,
    Region,
    Successor,
    Type,
    Value,
    parse_type,
)
from tritontrace.errors import TritonTraceError

__all__ = ["IRSyntaxError", "parse"]


class IRSyntaxError(TritonTraceError):
    """Text of a kernel's IR that the parser does not understand. `line` counts from 1 in the IR text."""

    def __init__(self, message: str, line: int, text: str) -> None:
        self.line = line
        self.text = text
        super().__init__(f"cannot read Triton's IR: {message} at line {line}: {text.strip()[:300]}")


_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# results, name, operands, successors, inherent attributes (without nested braces)
_HEAD = re.compile(
    rf"""\s*(?:(%[^="\n]+?)\ =\ )?"([^"\n]+)"\(([^)\n]*)\)(?:\[([^\]\n]*)\])?
    (?:\ <\{{([^"{{}}\n]*(?:{_STRING}[^"{{}}\n]*)*)\}}>)?""",
    re.X,
)
_BLOCK = re.compile(r"\s*(\^[\w.$-]+)(\(|:)")
_ARGUMENT = re.compile(r"\s*(%[\w.$#-]+): ")
_LINE_REST = re.compile(r":?[ \t]*(?://[^\n]*)?\n?")
_ALIAS = re.compile(r"^(#[\w.$-]+) = (.*)$", re.M)
_CLOSERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_BRACKETS = re.compile(rf"{_STRING}|->|[<>()\[\]{{}},:]|loc\(")


def parse(text: str) -> Module:
    """The module that generic MLIR text holds. Functions without a body, or with an empty one, are left out.

    Raises:
        IRSyntaxError: the text is not what Triton prints; the message shows the line.
    """
    return _Parser(text).module()


@lru_cache(maxsize=4096)
def _signature(text: str) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """(operand types, result types) of ``(i32, f32) -> f32`` and the like."""
    position, inputs = _parenthesized_types(text, 0)
    if not text.startswith(" -> ", position):
        raise ValueError("expected '->'")
    rest = text[position + 4 :]
    if rest.startswith("("):
        position, outputs = _parenthesized_types(rest, 0)
        if rest[position:].strip():
            raise ValueError("unexpected text after the result types")
        return inputs, outputs
    return inputs, (parse_type(rest),)


def _parenthesized_types(text: str, position: int) -> tuple[int, tuple[Type, ...]]:
    if not text.startswith("(", position):
        raise ValueError("expected '('")
    types = []
    depth = 0
    start = position + 1
    for match in _BRACKETS.finditer(text, position):
        token = match.group()
        if token == "->" or token[0] in '":':
            continue
        if token[-1] in "<([{":
            depth += 1
        elif token in ">)]}":
            depth -= 1
        if depth == 0 or (depth == 1 and token == ","):
            if text[start : match.start()].strip():
                types.append(parse_type(text[start : match.start()]))
            start = match.end()
            if depth == 0:
                return start, tuple(types)
    raise ValueError("unbalanced brackets")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        aliases: dict[str, str] = {}
        start = text.find("#")
        if start >= 0:
            for name, value in _ALIAS.findall(text):
                aliases[name] = value
        self.locations = Locations(aliases)
        self.functions: dict[str, Function] = {}
        # state of the function being read
        self.values: dict[str, Value] = {}
        self.pending: dict[str, Value] = {}
        self.scope: list[tuple[str, Value | None]] = []
        self.blocks: dict[str, Block] = {}
        self.function_name: str | None = None
        self.next_id = 0

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        position = self.at if position is None else position
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        begin = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        raise IRSyntaxError(message, self.text.count("\n", 0, position) + 1, self.text[begin : end if end >= 0 else None])

    # -- module and functions
    def module(self) -> Module:
        self.skip_aliases()
        match = _HEAD.match(self.text, self.at)
        if match is None or match.group(2) != "builtin.module":
            self.fail("expected a builtin.module in generic form")
        self.at = match.end()
        self.skip(" (")
        self.skip("{")
        while not self.accept("}"):
            if self.accept("^"):  # ^bb0: of a module that names its block
                self.at = self.text.find(":", self.at) + 1
                continue
            self.top_level()
        return Module(self.functions)

    def skip_aliases(self) -> None:
        while True:
            match = re.compile(r"\s*(?:#[^\n]*|//[^\n]*)\n").match(self.text, self.at)
            if match is None:
                return
            self.at = match.end()

    def top_level(self) -> None:
        start = self.at
        match = _HEAD.match(self.text, self.at)
        if match is None:
            self.fail("expected an operation")
        if match.group(2) != "tt.func":
            self.op()
            return
        attributes = self.head_attributes(match)
        symbol = attributes.get("sym_name")
        if not isinstance(symbol, str):
            self.fail("a tt.func without sym_name", start)
        self.values, self.pending, self.scope, self.next_id = {}, {}, [], 0
        self.function_name = python_name(symbol)
        regions = self.regions()
        attributes.update(self.discardable())
        _, _, location = self.tail()
        if self.pending:
            self.fail(f"{next(iter(self.pending))} is used but never defined in {symbol!r}", start)
        function_type = attributes.pop("function_type", "() -> ()")
        try:
            results = _signature(function_type)[1]
        except (ValueError, TypeError) as error:
            self.fail(f"function type: {error}", start)
        body = regions[0] if regions else Region([])
        if body.blocks and any(block.ops for block in body.blocks):
            self.functions[symbol] = Function(symbol, results, body, attributes, location, self.function_name)
        self.function_name = None

    # -- ops
    def op(self) -> Op:
        text = self.text
        start = self.at
        match = _HEAD.match(text, start)
        if match is None:
            self.fail("expected an operation")
        result_names, name, operand_names, successor_names, attribute_text = match.groups()
        at = match.end()
        if attribute_text is None:
            attributes: dict[str, Any] = {}
            if text.startswith(" <{", at):
                attributes = self.head_attributes(match)
                at = self.at
        else:
            attributes = self.attributes(attribute_text, start)
        values = self.values
        operands = []
        if operand_names:
            names = operand_names.split(", ")
            try:
                operands = [values[operand] for operand in names]
            except KeyError:
                operands = [values[operand] if operand in values else self.forward(operand) for operand in names]
        successors = self.successors(successor_names, operands, attributes, name) if successor_names else []
        regions: list[Region] = []
        if not text.startswith(" : ", at):
            self.at = at
            regions = self.regions()
            attributes.update(self.discardable())
            at = self.at
        # the tail, inline because every op has one: ` : (types) -> types loc(...)` to the end of the line
        end = text.find("\n", at)
        if end < 0:
            end = len(text)
        split = text.find(" loc(", at, end)
        if split < 0:
            self.at = at
            _, result_types, location = self.tail()
            end = self.at
        else:
            try:
                result_types = _signature(text[at + 3 : split])[1]
            except ValueError as error:
                self.fail(f"types: {error}", start)
            location = self.locations.resolve(text[split + 5 : end - 1], self.function_name)
        self.at = end
        op = Op(name, operands, [], attributes, regions, successors, location)
        if result_names is not None:
            if regions or len(result_types) != 1 or self.pending or ":" in result_names or "," in result_names:
                self.define_results(op, result_names, result_types, start)
            else:
                # `define`, inline because nearly every op has one result
                value = Value(result_types[0], location.variable, self.next_id, op, 0)
                self.next_id += 1
                op.results.append(value)
                self.scope.append((result_names, values.get(result_names)))
                values[result_names] = value
        if name == "arith.constant":
            self.constant(op, start)
        return op

    def attributes(self, text: str, start: int) -> dict[str, Any]:
        try:
            return parse_attributes(text)
        except AttributeSyntaxError as error:
            self.fail(f"attributes: {error}, near {text[max(0, error.offset - 20) : error.offset + 40]!r}", start)
        except (ValueError, OverflowError) as error:
            self.fail(f"attributes: {error}", start)

    def head_attributes(self, match: re.Match[str]) -> dict[str, Any]:
        """The inherent attributes after an op's head, also with nested braces; leaves `at` behind them."""
        self.at = match.end()
        if match.group(5) is not None:
            return self.attributes(match.group(5), match.start())
        if not self.text.startswith(" <{", self.at):
            return {}
        begin = self.at + 2
        self.at = self.matching(begin)
        inner = self.text[begin + 1 : self.at - 1]
        self.skip(">")
        return self.attributes(inner, begin)

    def discardable(self) -> dict[str, Any]:
        if not self.text.startswith(" {", self.at):
            return {}
        begin = self.at + 1
        self.at = self.matching(begin)
        return self.attributes(self.text[begin + 1 : self.at - 1], begin)

    def tail(self) -> tuple[tuple[Type, ...], tuple[Type, ...], OpLocation]:
        """` : signature loc(...)`; the location may be missing."""
        text = self.text
        if not text.startswith(" : ", self.at):
            self.fail("expected ' : ' and the types")
        end = text.find("\n", self.at)
        if end < 0:
            end = len(text)
        split = text.find(" loc(", self.at, end)
        try:
            inputs, outputs = _signature(text[self.at + 3 : split if split >= 0 else end].rstrip())
        except ValueError as error:
            self.fail(f"types: {error}")
        location = NO_LOCATION
        if split >= 0:
            location = self.locations.resolve(text[split + 5 : end].rstrip()[:-1], self.function_name)
        self.at = end
        return inputs, outputs, location

    def constant(self, op: Op, start: int) -> None:
        if len(op.results) != 1 or "value" not in op.attributes:
            self.fail("arith.constant without a value", start)
        try:
            op.attributes["value"] = scalar_constant(op.attributes["value"], op.results[0].type.element)
        except (ValueError, TypeError) as error:
            self.fail(f"constant: {error}", start)

    def successors(self, names: str, operands: list[Value], attributes: dict[str, Any], name: str) -> list[Successor]:
        """Branch targets; the operands that they are passed are taken out of `operands`."""
        labels = [label.strip() for label in names.split(",")]
        if name == "cf.br":
            counts = [len(operands)]
        else:
            segments = attributes.get("operandSegmentSizes", [len(operands), *([0] * len(labels))])
            counts = segments[len(segments) - len(labels) :]
        found = []
        first = position = len(operands) - sum(counts)
        for label, count in zip(labels, counts, strict=True):
            block = self.blocks.get(label)
            if block is None:
                block = self.blocks[label] = Block([], [], label)
            found.append(Successor(block, operands[position : position + count]))
            position += count
        del operands[first:]
        return found

    # -- regions and blocks
    def regions(self) -> list[Region]:
        found: list[Region] = []
        if not self.text.startswith(" (", self.at):
            return found
        self.at += 2
        while True:
            found.append(self.region())
            if self.accept(","):
                continue
            self.skip(")")
            return found

    def region(self) -> Region:
        self.skip("{")
        outer_scope, self.scope = self.scope, []
        outer_blocks, self.blocks = self.blocks, {}
        block = Block([], [])
        blocks: list[Block] = []
        text = self.text
        while True:
            at = self.at
            while text[at : at + 1] in (" ", "\n", "\t"):
                at += 1
            char = text[at : at + 1]
            if char == '"' or char == "%":
                if not blocks:
                    blocks.append(block)  # an entry block without a header
                blocks[-1].ops.append(self.op())
            elif char == "^":
                self.at = at
                blocks.append(self.block_header())
            elif char == "}":
                self.at = at + 1
                break
            elif text.startswith("//", at):
                end = text.find("\n", at)
                self.at = end if end >= 0 else len(text)
            else:
                self.at = at
                self.fail("expected an operation, a block or '}'" if char else "unexpected end of the text")
        for label, referenced in self.blocks.items():
            if referenced not in blocks:
                self.fail(f"block {label} is branched to but not defined")
        for name, before in reversed(self.scope):
            if before is None:
                del self.values[name]
            else:
                self.values[name] = before
        self.scope = outer_scope
        self.blocks = outer_blocks
        return Region(blocks)

    def block_header(self) -> Block:
        match = _BLOCK.match(self.text, self.at)
        if match is None:
            self.fail("expected a block")
        label = match.group(1)
        block = self.blocks.get(label)
        if block is None:
            block = self.blocks[label] = Block([], [], label)
        self.at = match.end()
        if match.group(2) == "(":
            while not self.accept(")"):
                argument = _ARGUMENT.match(self.text, self.at)
                if argument is None:
                    self.fail("expected a block argument")
                self.at = argument.end()
                kind, location = self.argument_type()
                value = self.define(argument.group(1), kind, location.variable, block, len(block.arguments))
                block.arguments.append(value)
                self.accept(",")
        rest = _LINE_REST.match(self.text, self.at)
        if rest is not None:
            self.at = rest.end()
        return block

    def argument_type(self) -> tuple[Type, OpLocation]:
        """A block argument's type and its location."""
        text = self.text
        start = self.at
        depth = 0
        for match in _BRACKETS.finditer(text, start):
            token = match.group()
            if token == "->" or token[0] in '":':
                continue
            if depth == 0 and token == "loc(":
                close = self.matching(match.end() - 1)
                self.at = close
                location = self.locations.resolve(text[match.end() : close - 1], self.function_name)
                return parse_type(text[start : match.start()]), location
            if depth == 0 and token in ",)":
                self.at = match.start()
                return parse_type(text[start : match.start()]), NO_LOCATION
            depth += 1 if token[-1] in "<([{" else -1 if token in ">)]}" else 0
        self.fail("expected the type of a block argument")

    # -- values
    def define(self, name: str, kind: Type, variable: str | None, owner: Op | Block, index: int) -> Value:
        before = self.pending.pop(name, None)
        if before is not None:  # it was used before it was met: fill in what is now known
            before.type, before.name, before.owner, before.index = kind, variable, owner, index
            self.scope.append((name, None))
            return before
        value = Value(kind, variable, self.next_id, owner, index)
        self.next_id += 1
        self.scope.append((name, self.values.get(name)))
        self.values[name] = value
        return value

    def define_results(self, op: Op, names: str, types: tuple[Type, ...], start: int) -> None:
        results = op.results
        variable = op.location.variable
        if op.regions and op.name in ("scf.for", "scf.while"):
            self.define_carried(op, names, types, start)
            return
        if len(types) == 1 and "," not in names and ":" not in names:
            results.append(self.define(names, types[0], variable, op, 0))
            return
        # the op's name belongs to one of the results only, and nothing says to which
        self.define_several(op, names, types, [None] * len(types), start)

    def define_carried(self, op: Op, names: str, types: tuple[Type, ...], start: int) -> None:
        """A loop's results are the variables that its block's arguments are."""
        block = op.regions[-1].blocks[0] if op.regions[-1].blocks else None
        if block is None or len(block.arguments) < len(types):
            self.fail(f"{op.name} whose body takes less than it gives", start)
        arguments = block.arguments
        carried = [argument.name for argument in arguments[len(arguments) - len(types) :]]
        self.define_several(op, names, types, carried, start)

    def define_several(self, op: Op, names: str, types: tuple[Type, ...], variables: list[str | None], start: int) -> None:
        results = op.results
        texts: list[str] = []
        for group in names.split(", "):
            name, _, count = group.partition(":")
            texts.extend([f"{name}#{part}" for part in range(int(count))] if count else [name])
        if len(texts) != len(types):
            self.fail(f"{len(types)} result types for the results {names}", start)
        for index, text in enumerate(texts):
            results.append(self.define(text, types[index], variables[index], op, index))

    def forward(self, name: str) -> Value:
        """A value that is used before its definition stands in the text (blocks come in any order)."""
        if not name.startswith("%"):
            self.fail(f"expected an operand, not {name!r}")
        if self.function_name is None:
            self.fail(f"{name} is not defined")
        value = Value(Type((), "none"), None, self.next_id)
        self.next_id += 1
        self.values[name] = self.pending[name] = value
        return value

    # -- characters
    def accept(self, token: str) -> bool:
        """Skips white space, and `token` if it comes next."""
        at = self.at
        text = self.text
        while at < len(text) and text[at].isspace():
            at += 1
        if text.startswith(token, at):
            self.at = at + len(token)
            return True
        return False

    def skip(self, token: str) -> None:
        if not self.accept(token.strip()):
            self.fail(f"expected {token.strip()!r}")

    def matching(self, position: int) -> int:
        """The position behind the bracket that closes the one at `position`; strings are skipped."""
        closers: list[str] = []
        for match in _BRACKETS.finditer(self.text, position):
            token = match.group()
            if token == "->" or token[0] in '",:':
                continue
            if token[-1] in _CLOSERS:
                closers.append(_CLOSERS[token[-1]])
            elif closers.pop() != token:
                break
            elif not closers:
                return match.end()
        self.fail("a bracket that is not closed", position)
