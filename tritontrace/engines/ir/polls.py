"""``tt.atomic_poll`` as the loop that it is, so that programs which wait in it can be parked like any others.

An element that has once had the expected value stays done. A timeout is counted in rounds, one nanosecond each, up to
`ROUNDS`: there is no clock here that would say anything about a GPU's, and programs that are waited for get their turns
meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tritontrace.engines.ir.tree import Block, Module, Op, Region, Type, Value, parse_type, walk

__all__ = ["expand_polls"]

ROUNDS = 1 << 16

_I1, _I64 = parse_type("i1"), parse_type("i64")


def expand_polls(module: Module) -> Module:
    """`module`, in which every poll has become a loop (in place)."""
    for function in module.functions.values():
        if any(op.name == "tt.atomic_poll" for op in walk(function.body)):
            numbers = itertools.count(1 + _largest(function.body))
            _expand(function.body, numbers)
    return module


def _largest(region: Region) -> int:
    largest = 0
    for block in region.blocks:
        values = [*block.arguments, *(result for op in block.ops for result in op.results)]
        largest = max([largest, *(value.id for value in values), *(_largest(inner) for op in block.ops for inner in op.regions)])
    return largest


def _expand(region: Region, numbers: Iterator[int]) -> None:
    for block in region.blocks:
        ops: list[Op] = []
        for op in block.ops:
            for inner in op.regions:
                _expand(inner, numbers)
            ops.extend(_loop(op, numbers) if op.name == "tt.atomic_poll" else [op])
        block.ops[:] = ops


class _Writer:
    """Makes ops at one place, with fresh values."""

    def __init__(self, op: Op, numbers: Iterator[int]) -> None:
        self.location = op.location
        self.numbers = numbers

    def value(self, kind: Type) -> Value:
        return Value(kind, None, next(self.numbers))

    def block(self, kinds: list[Type]) -> Block:
        block = Block([self.value(kind) for kind in kinds], [])
        for index, argument in enumerate(block.arguments):
            argument.owner, argument.index = block, index
        return block

    def op(self, name: str, operands: list[Value], kinds: list[Type], **attributes: object) -> Op:
        made = Op(name, operands, [self.value(kind) for kind in kinds], dict(attributes), [], [], self.location)
        for index, result in enumerate(made.results):
            result.owner, result.index = made, index
        return made


def _loop(poll: Op, numbers: Iterator[int]) -> list[Op]:
    pointer, expected = poll.operands[:2]
    timeout = poll.operands[2] if len(poll.operands) > 2 else None
    writer = _Writer(poll, numbers)
    tile = poll.results[0].type
    nothing = writer.op("arith.constant", [], [tile], value=np.array(False))
    prelude = [nothing]
    carried = [nothing.results[0]]
    kinds = [tile]
    before, after = writer.block([tile, *([_I64] if timeout else [])]), writer.block([tile, *([_I64] if timeout else [])])
    load = writer.op("tt.atomic_load", [pointer], [expected.type], **poll.attributes)
    equal = writer.op("arith.cmpi", [load.results[0], expected], [tile], predicate=0)
    done = writer.op("arith.ori", [before.arguments[0], equal.results[0]], [tile])
    before.ops += [load, equal, done]
    more = writer.op("tritontrace.not_all", [done.results[0]], [_I1])
    before.ops.append(more)
    if timeout is not None:
        zero, one, last = (writer.op("arith.constant", [], [_I64], value=np.array(n, np.int64)) for n in (0, 1, ROUNDS))
        prelude += [zero, one, last]
        carried.append(zero.results[0])
        kinds.append(_I64)
        rounds = before.arguments[1]
        for limit in (timeout, last.results[0]):
            short = writer.op("arith.cmpi", [rounds, limit], [_I1], predicate=2)
            more = writer.op("arith.andi", [more.results[0], short.results[0]], [_I1])
            before.ops += [short, more]
        count = writer.op("arith.addi", [after.arguments[1], one.results[0]], [_I64])
        after.ops.append(count)
        sent = [after.arguments[0], count.results[0]]
        forwarded = [done.results[0], rounds]
    else:
        sent, forwarded = [after.arguments[0]], [done.results[0]]
    before.ops.append(writer.op("scf.condition", [more.results[0], *forwarded], []))
    after.ops.append(writer.op("scf.yield", sent, []))
    loop = writer.op("scf.while", carried, kinds)
    loop.regions.extend([Region([before]), Region([after])])
    # What used the poll's result uses the loop's.
    result = poll.results[0]
    result.owner, result.index = loop, 0
    loop.results[0] = result
    return [*prelude, loop]
