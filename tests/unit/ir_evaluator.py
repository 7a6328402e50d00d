"""A slow, literal evaluator of parsed IR: what a function does to memory, as a list of effects.

It exists to compare a module with its optimized form, so memory is a stub: a load gives numbers made from its
addresses, and every access is appended to the list with the values it was given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import Block, Function, Module, Op, Region, Value

Effect = tuple[Any, ...]


class _Names:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {"np": np}

    def bind(self, name: str, value: Any) -> str:
        self.names[name] = value
        return name


class Evaluator:
    """Runs one program of a module's function."""

    def __init__(self, module: Module, program: int = 0) -> None:
        self.module = module
        self.program = program
        self.values: dict[Value, Any] = {}
        self.effects: list[Effect] = []

    def call(self, function: Function, arguments: list[Any]) -> list[Any]:
        block = function.body.blocks[0]
        while True:
            for old, value in zip(block.arguments, arguments, strict=True):
                self.values[old] = value
            last = self.straight(block)
            if last.name == "tt.return":
                return self.get(last.operands)
            chosen = 0
            if last.name == "cf.cond_br":
                chosen = 0 if self.values[last.operands[0]].item() else 1
            successor = last.successors[chosen]
            arguments = self.get(successor.arguments)
            block = successor.block

    def get(self, values: list[Value]) -> list[Any]:
        return [self.values[value] for value in values]

    def straight(self, block: Block) -> Op:
        for op in block.ops[:-1]:
            self.op(op)
        return block.ops[-1]

    def region(self, region: Region, arguments: list[Any]) -> Op:
        block = region.block
        for old, value in zip(block.arguments, arguments, strict=True):
            self.values[old] = value
        return self.straight(block)

    def set(self, op: Op, values: list[Any]) -> None:
        for result, value in zip(op.results, values, strict=True):
            self.values[result] = value

    def op(self, op: Op) -> None:
        operands = self.get(op.operands)
        method = getattr(self, "op_" + op.name.replace(".", "_"), None)
        if method is not None:
            result = method(op, operands)
        elif op.name in ELEMENTWISE:
            names = _Names()
            args = [f"a{i}" for i in range(len(operands))]
            expression = ELEMENTWISE[op.name](op, args, names)
            with np.errstate(all="ignore"):
                result = eval(expression, {**names.names, **dict(zip(args, operands, strict=True))})
            result = list(result) if isinstance(result, tuple) else [result]
        else:
            result = self.stub(op, operands)
        self.set(op, result)

    def stub(self, op: Op, operands: list[Any]) -> list[Any]:
        """An effect: recorded with its place and its operands; results are numbers made from the operands."""
        full = [self.full(v, o) for v, o in zip(operands, op.operands, strict=True)]
        place = op.location.location
        seen = tuple((a.shape, a.tobytes()) if isinstance(a, np.ndarray) else a for a in full)
        self.effects.append((op.name, place and (place.file, place.line), seen))
        results = []
        for result in op.results:
            try:
                dtype = numerics.compute_dtype(result.type.element)
            except ValueError:
                results.append(("opaque", op.name, seen))
                continue
            size = int(np.prod(result.type.shape, dtype=int))
            seed = hash((op.name, len(self.effects))) % 1000
            numbers = (np.arange(size) * 7 + seed) % 23 - 5
            results.append(numbers.astype(dtype).reshape(1, *result.type.shape))
        return results

    @staticmethod
    def full(value: Any, old: Value) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return np.ascontiguousarray(np.broadcast_to(value, (1, *old.type.shape)))

    # -- operations that the table does not have
    def op_arith_constant(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.array(np.broadcast_to(op.attributes["value"], (1, *op.results[0].type.shape)))]

    def op_tt_get_program_id(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.array([self.program if op.attributes["axis"] == 0 else 0], np.int32)]

    def op_tt_make_range(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None]]

    def op_tt_splat(self, op: Op, operands: list[Any]) -> list[Any]:
        shape = op.results[0].type.shape
        return [np.broadcast_to(operands[0].reshape(1, *[1] * len(shape)), (1, *shape))]

    def op_tt_broadcast(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.broadcast_to(operands[0], (1, *op.results[0].type.shape))]

    def op_tt_expand_dims(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.expand_dims(self.full(operands[0], op.operands[0]), op.attributes["axis"] + 1)]

    def op_tt_reshape(self, op: Op, operands: list[Any]) -> list[Any]:
        return [self.full(operands[0], op.operands[0]).reshape(1, *op.results[0].type.shape)]

    def op_tt_trans(self, op: Op, operands: list[Any]) -> list[Any]:
        order = [axis + 1 for axis in op.attributes["order"]]
        return [self.full(operands[0], op.operands[0]).transpose(0, *order)]

    def op_tt_join(self, op: Op, operands: list[Any]) -> list[Any]:
        return [np.stack([self.full(v, o) for v, o in zip(operands, op.operands, strict=True)], -1)]

    def op_tt_split(self, op: Op, operands: list[Any]) -> list[Any]:
        full = self.full(operands[0], op.operands[0])
        return [full[..., 0], full[..., 1]]

    def op_tt_addptr(self, op: Op, operands: list[Any]) -> list[Any]:
        pointee = op.results[0].type.pointee
        return [operands[0] + operands[1].astype(np.int64) * numerics.element_bytes(pointee.element)]

    def op_tt_call(self, op: Op, operands: list[Any]) -> list[Any]:
        # its own values: the function may be active already in another place
        outer, self.values = self.values, {}
        result = self.call(self.module.functions[op.attributes["callee"]], operands)
        self.values = outer
        return result

    def op_tt_reduce(self, op: Op, operands: list[Any]) -> list[Any]:
        axis = op.attributes["axis"] + 1
        parts = [np.moveaxis(self.full(v, o), axis, 0) for v, o in zip(operands, op.operands, strict=True)]
        state = [part[0] for part in parts]
        for i in range(1, len(parts[0])):
            state = self.get(self.region(op.regions[0], [*state, *(part[i] for part in parts)]).operands)
        self.effects.append((op.name, tuple(s.tobytes() for s in state)))
        return state

    def op_tt_scan(self, op: Op, operands: list[Any]) -> list[Any]:
        axis = op.attributes["axis"] + 1
        parts = [np.moveaxis(self.full(v, o), axis, 0) for v, o in zip(operands, op.operands, strict=True)]
        if op.attributes.get("reverse"):
            parts = [part[::-1] for part in parts]
        state = [part[0] for part in parts]
        out = [list(state)]
        for i in range(1, len(parts[0])):
            state = self.get(self.region(op.regions[0], [*state, *(part[i] for part in parts)]).operands)
            out.append(list(state))
        stacked = [np.stack([row[j] for row in out]) for j in range(len(parts))]
        if op.attributes.get("reverse"):
            stacked = [s[::-1] for s in stacked]
        return [np.moveaxis(s, 0, axis) for s in stacked]

    def op_scf_if(self, op: Op, operands: list[Any]) -> list[Any]:
        region = op.regions[0 if operands[0].item() else 1]
        return self.get(self.region(region, []).operands) if region.blocks else []

    def op_scf_for(self, op: Op, operands: list[Any]) -> list[Any]:
        low, high, step = (int(v.item()) for v in operands[:3])
        carried = operands[3:]
        for i in range(low, high, step):
            index = np.array([i], operands[0].dtype)
            carried = self.get(self.region(op.regions[0], [index, *carried]).operands)
        return carried

    def op_scf_while(self, op: Op, operands: list[Any]) -> list[Any]:
        carried = operands
        while True:
            condition, *passed = self.get(self.region(op.regions[0], carried).operands)
            if not condition.item():
                return passed
            carried = self.get(self.region(op.regions[1], passed).operands)


def effects(module: Module, entry: str, arguments: list[Any], program: int = 0) -> list[Effect]:
    """What one program of `entry` does, in order."""
    evaluator = Evaluator(module, program)
    evaluator.call(module.functions[entry], arguments)
    return evaluator.effects
