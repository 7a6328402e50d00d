"""The optimizer changes nothing that can be seen, and removes what it should."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.unit.ir_evaluator import effects
from tests.unit.ir_text import KERNELS, generic_text
from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.optimizer import is_pure, optimize
from tritontrace.engines.ir.parser import parse
from tritontrace.engines.ir.tree import Function, Module, Op, Region, free_values, walk

OBSERVABLE = {
    "tt.load",
    "tt.store",
    "tt.atomic_rmw",
    "tt.print",
    "tt.assert",
    "tt.dot",
    "tt.descriptor_load",
    "tt.reduce",
    "tt.scan",
}


def ops(function: Function) -> list[Op]:
    return list(walk(function.body))


def names(function: Function) -> Counter[str]:
    return Counter(op.name for op in ops(function))


def check(module: Module) -> None:
    """Every value is defined once, before its uses, knows its owner, and has an id of its own."""
    for function in module.functions.values():
        identifiers: list[int] = []
        assert not free_values(function.body)
        for op in ops(function):
            for index, result in enumerate(op.results):
                assert result.owner is op
                assert result.index == index
                identifiers.append(result.id)

        def blocks(region: Region, function: Function = function, identifiers: list[int] = identifiers) -> None:
            for block in region.blocks:
                for index, argument in enumerate(block.arguments):
                    assert argument.owner is block
                    assert argument.index == index
                    identifiers.append(argument.id)
                assert block.ops, function.name
                for op in block.ops:
                    for successor in op.successors:
                        assert successor.block in function.body.blocks
                        assert len(successor.arguments) == len(successor.block.arguments)
                    for inner in op.regions:
                        blocks(inner)

        blocks(function.body)
        assert len(identifiers) == len(set(identifiers))


def module_of(body: str, functions: str = "", arguments: str = "%x: i32, %p: !tt.ptr<f32>") -> Module:
    types = ", ".join(part.split(": ")[1] for part in arguments.split(", %"))
    return parse(
        f'"builtin.module"() ({{\n"tt.func"() <{{function_type = ({types}) -> (), sym_name = "k"}}> ({{\n'
        f'^bb0({arguments}):\n{body}\n"tt.return"() : () -> ()\n}}) : () -> ()\n{functions}}}) : () -> ()\n'
    )


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("overflow_checks", [False, True])
def test_effects_are_the_same(kernel: str, overflow_checks: bool) -> None:
    before = parse(generic_text(kernel, overflow_checks=overflow_checks))
    check(before)
    after = optimize(before, kernel)
    check(after)
    check(before)
    entry = before.functions[kernel]
    for number, program in ((5, 0), (2, 1), (7, 3)):
        arguments: list[Any] = []
        for index, argument in enumerate(entry.arguments):
            element = argument.type.element
            value = 4096 * (index + 1) if argument.type.is_pointer else number + index
            arguments.append(np.array([value], numerics.compute_dtype(element)))
        assert effects(before, kernel, arguments, program) == effects(after, kernel, arguments, program)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_optimizing_twice_changes_nothing_more(kernel: str) -> None:
    once = optimize(parse(generic_text(kernel)), kernel)
    twice = optimize(once, kernel)
    assert names(twice.functions[kernel]) == names(once.functions[kernel])


def test_memory_operations_are_never_dropped_or_merged() -> None:
    before = parse(generic_text("everything"))
    after = optimize(before, "everything")
    count = {name: n for name, n in names(after.functions["everything"]).items() if name in OBSERVABLE}
    assert count["tt.load"] == 4
    assert count["tt.store"] == 2
    assert count["tt.atomic_rmw"] == 1
    assert count["tt.print"] == count["tt.assert"] == 1


def test_calls_of_single_block_functions_are_inlined_with_their_call_stack() -> None:
    after = optimize(parse(generic_text("everything")), "everything")
    # only the function with an early return is still called
    assert [name.rpartition(".")[2].split("__")[0] for name in after.functions] == ["everything", "clipped"]
    products = [op for op in ops(after.functions["everything"]) if op.name == "arith.mulf" and op.location.call_stack]
    in_scaled = [op for op in products if op.location.location and op.location.location.function == "scaled"]
    assert len(in_scaled) == 2
    for op in in_scaled:
        assert [call.function for call in op.location.call_stack] == ["everything", "twice_scaled"]
        assert op.location.call_stack[0].line < op.location.location.line or op.location.call_stack[1].line > 0
    lines = [[call.line for call in op.location.call_stack] for op in in_scaled]
    assert lines[0][0] == lines[1][0]


def test_combine_functions_are_inlined_and_sealed() -> None:
    after = optimize(parse(generic_text("everything")), "everything")
    for op in ops(after.functions["everything"]):
        if op.name in ("tt.reduce", "tt.scan"):
            assert "tt.call" not in {inner.name for inner in walk(op.regions[0])}
            assert not free_values(op.regions[0])


def test_unused_pure_ops_go_and_unreachable_blocks_too() -> None:
    before = parse(generic_text("everything"))
    after = optimize(before, "everything")
    used = {value for function in after.functions.values() for op in ops(function) for value in op.operands}
    for function in after.functions.values():
        used.update(v for op in ops(function) for s in op.successors for v in s.arguments)
        for op in ops(function):
            if is_pure(op):
                assert any(result in used for result in op.results), op
    assert "ub.poison" not in names(after.functions["everything"])
    assert len(after.functions["everything"].body.blocks) == 3


def test_dead_carried_values_are_removed() -> None:
    after = optimize(parse(generic_text("everything")), "everything")
    loop = next(op for op in ops(after.functions["everything"]) if op.name == "scf.for")
    assert [result.name for result in loop.results] == ["acc"]
    assert len(loop.operands) == 4
    assert len(loop.regions[0].block.arguments) == 2


def test_carried_values_that_never_change_are_taken_out() -> None:
    module = module_of(
        """
        %c = "arith.constant"() <{value = 1 : i32}> : () -> i32
        %r:2 = "scf.for"(%c, %x, %c, %p, %x) ({
        ^bb0(%i: i32, %q: !tt.ptr<f32>, %s: i32):
          %v = "tt.load"(%q) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
          %t = "arith.addi"(%s, %i) : (i32, i32) -> i32
          "scf.yield"(%q, %t) : (!tt.ptr<f32>, i32) -> ()
        }) : (i32, i32, i32, !tt.ptr<f32>, i32) -> (!tt.ptr<f32>, i32)
        "tt.store"(%r#0, %r#1) : (!tt.ptr<f32>, i32) -> ()"""
    )
    function = optimize(module, "k").functions["k"]
    loop = next(op for op in ops(function) if op.name == "scf.for")
    assert len(loop.results) == 1
    store = next(op for op in ops(function) if op.name == "tt.store")
    assert store.operands == [function.arguments[1], loop.results[0]]
    check(Module({"k": function}))


def test_loop_invariants_are_hoisted_but_not_out_of_branches() -> None:
    after = optimize(parse(generic_text("arithmetic")), "arithmetic")
    loop = next(op for op in ops(after.functions["arithmetic"]) if op.name == "scf.for")
    inside = [op for op in loop.regions[0].block.ops if op.name in ("arith.divsi", "arith.constant")]
    assert not inside
    module = module_of(
        """
        %c = "arith.constant"() <{value = true}> : () -> i1
        %z = "arith.cmpi"(%x, %x) <{predicate = 2 : i64}> : (i32, i32) -> i1
        "scf.if"(%z) ({
          %t = "arith.muli"(%x, %x) : (i32, i32) -> i32
          "tt.store"(%p, %t) : (!tt.ptr<f32>, i32) -> ()
          "scf.yield"() : () -> ()
        }, {
        }) : (i1) -> ()"""
    )
    function = optimize(module, "k").functions["k"]
    branch = next(op for op in ops(function) if op.name == "scf.if")
    assert [op.name for op in branch.regions[0].block.ops] == ["arith.muli", "tt.store", "scf.yield"]
    assert not branch.regions[1].blocks


def folded(expression: str, type: str = "i32") -> Any:
    """The constant that is stored after optimizing `expression`, which defines %r."""
    module = module_of(f'{expression}\n"tt.store"(%p, %r) : (!tt.ptr<f32>, {type}) -> ()')
    function = optimize(module, "k").functions["k"]
    found = ops(function)
    assert [op.name for op in found] == ["arith.constant", "tt.store", "tt.return"], found
    assert found[0].results[0].type.element == type.split("x")[-1].rstrip(">")
    return found[0].attributes["value"]


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("addi", 2**31 - 1, 1, -(2**31)),
        ("subi", 3, 5, -2),
        ("muli", 2**20, 2**20, 0),
        ("divsi", -7, 2, -3),
        ("remsi", -7, 2, -1),
        ("divui", -1, 2, 2**31 - 1),
        ("remui", -1, 10, 5),
        ("andi", 12, 10, 8),
        ("ori", 12, 10, 14),
        ("xori", 12, 10, 6),
        ("shli", 1, 33, 0),
        ("shrui", -1, 31, 1),
        ("maxsi", -1, 1, 1),
        ("maxui", -1, 1, -1),
        ("minsi", -1, 1, -1),
        ("minui", -1, 1, 1),
    ],
)
def test_integer_constants_are_folded(name: str, a: int, b: int, expected: int) -> None:
    text = "".join(f'%{n} = "arith.constant"() <{{value = {v} : i32}}> : () -> i32\n' for n, v in (("a", a), ("b", b)))
    value = folded(text + f'%r = "arith.{name}"(%a, %b) : (i32, i32) -> i32')
    assert value.dtype == np.int32
    assert value.tolist() == expected


def test_casts_comparisons_and_shapes_of_constants_are_folded() -> None:
    a = '%a = "arith.constant"() <{value = -1 : i32}> : () -> i32\n'
    assert folded(a + '%r = "arith.extsi"(%a) : (i32) -> i64', "i64").tolist() == -1
    assert folded(a + '%r = "arith.extui"(%a) : (i32) -> i64', "i64").tolist() == 2**32 - 1
    assert folded(a + '%r = "arith.sitofp"(%a) : (i32) -> f32', "f32").tolist() == -1.0
    assert folded(a + '%r = "arith.uitofp"(%a) : (i32) -> f32', "f32").tolist() == 2.0**32
    assert folded(a + '%r = "arith.cmpi"(%a, %a) <{predicate = 5 : i64}> : (i32, i32) -> i1', "i1").tolist() is True
    splat = folded(a + '%r = "tt.splat"(%a) : (i32) -> tensor<4x8xi32>', "tensor<4x8xi32>")
    assert splat.shape == ()
    flag = '%a = "arith.constant"() <{value = true}> : () -> i1\n'
    assert folded(flag + '%r = "arith.extsi"(%a) : (i1) -> i32', "i32").tolist() == -1
    real = '%a = "arith.constant"() <{value = 1.007 : f32}> : () -> f32\n'
    assert folded(real + '%r = "arith.truncf"(%a) : (f32) -> bf16', "bf16").tolist() == 1.0078125


def test_division_of_constants_by_zero_is_left_alone() -> None:
    module = module_of(
        """
        %z = "arith.constant"() <{value = 0 : i32}> : () -> i32
        %r = "arith.divsi"(%z, %z) : (i32, i32) -> i32
        "tt.store"(%p, %r) : (!tt.ptr<f32>, i32) -> ()"""
    )
    assert names(optimize(module, "k").functions["k"])["arith.divsi"] == 1


@pytest.mark.parametrize(
    ("name", "neutral"), [("addi", 0), ("subi", 0), ("muli", 1), ("ori", 0), ("xori", 0), ("andi", -1), ("divsi", 1)]
)
def test_neutral_operands_disappear(name: str, neutral: int) -> None:
    module = module_of(
        f"""
        %n = "arith.constant"() <{{value = {neutral} : i32}}> : () -> i32
        %r = "arith.{name}"(%x, %n) : (i32, i32) -> i32
        "tt.store"(%p, %r) : (!tt.ptr<f32>, i32) -> ()"""
    )
    function = optimize(module, "k").functions["k"]
    assert names(function) == {"tt.store": 1, "tt.return": 1}


def test_ops_that_differ_only_in_an_attribute_are_not_shared() -> None:
    module = module_of(
        """
        %a = "arith.cmpi"(%x, %x) <{predicate = 2 : i64}> : (i32, i32) -> i1
        %b = "arith.cmpi"(%x, %x) <{predicate = 6 : i64}> : (i32, i32) -> i1
        %c = "arith.cmpi"(%x, %x) <{predicate = 2 : i64}> : (i32, i32) -> i1
        %d = "arith.constant"() <{value = 0.0 : f32}> : () -> f32
        %e = "arith.constant"() <{value = -0.0 : f32}> : () -> f32
        "tt.print"(%a, %b, %c, %d, %e) : (i1, i1, i1, f32, f32) -> ()"""
    )
    function = optimize(module, "k").functions["k"]
    assert names(function) == {"arith.cmpi": 2, "arith.constant": 2, "tt.print": 1, "tt.return": 1}


def test_impure_external_functions_stay() -> None:
    module = module_of(
        """
        %f = "arith.sitofp"(%x) : (i32) -> f32
        %a = "tt.extern_elementwise"(%f) <{symbol = "__nv_sinf", pure = false}> : (f32) -> f32
        %b = "tt.extern_elementwise"(%f) <{symbol = "__nv_sinf", pure = true}> : (f32) -> f32"""
    )
    assert names(optimize(module, "k").functions["k"])["tt.extern_elementwise"] == 1


def test_a_recursive_call_is_not_inlined_for_ever() -> None:
    module = module_of('"tt.call"(%x, %p) <{callee = @k}> : (i32, !tt.ptr<f32>) -> ()')
    assert names(optimize(module, "k").functions["k"])["tt.call"] == 1
