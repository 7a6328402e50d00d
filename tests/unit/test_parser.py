"""The parser reads what Triton prints, and says clearly what it cannot read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.ir_text import KERNELS, generic_text
from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.locations import python_name, unescape
from tritontrace.engines.ir.parser import IRSyntaxError, parse
from tritontrace.engines.ir.tree import Function, Op, Type, free_values, parse_type, walk
from tritontrace.errors import TritonTraceError


def function_of(body: str, arguments: str = "%x: i32, %f: f32", aliases: str = "") -> Function:
    module = parse(
        f'"builtin.module"() ({{\n  "tt.func"() <{{function_type = (i32, f32) -> (), sym_name = "k"}}> ({{\n'
        f'  ^bb0({arguments}):\n{body}\n    "tt.return"() : () -> () loc(#loc)\n  }}) {{noinline = false}} : () -> () loc(#loc)\n'
        f"}}) : () -> () loc(#loc)\n#loc = loc(unknown)\n{aliases}"
    )
    return module.functions["k"]


def first(body: str, **more: str) -> Op:
    return function_of(body, **more).body.blocks[0].ops[0]


def constant(text: str, kind: str) -> Any:
    op = first(f'    %c = "arith.constant"() <{{value = {text}}}> : () -> {kind} loc(#loc)')
    assert isinstance(op.attributes["value"], np.ndarray)
    assert not op.attributes["value"].flags.writeable
    return op.attributes["value"]


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("overflow_checks", [False, True])
def test_real_kernels(kernel: str, overflow_checks: bool) -> None:
    module = parse(generic_text(kernel, overflow_checks=overflow_checks))
    assert next(iter(module.functions)) == kernel
    assert "__unterminated" not in module.functions
    for function in module.functions.values():
        assert not free_values(function.body)
        seen = {argument.id for argument in function.arguments}
        for op in walk(function.body):
            for result in op.results:
                assert result.id not in seen
                seen.add(result.id)
                assert result.owner is op


def test_sources_and_variables_of_a_real_kernel() -> None:
    module = parse(generic_text("everything"))
    function = module.functions["everything"]
    assert [argument.name for argument in function.arguments] == ["x", "y", "out", "n"]
    assert [argument.type for argument in function.arguments] == [Type((), "ptr<f32>")] * 3 + [Type((), "i32")]
    ops = list(walk(function.body))
    load = next(op for op in ops if op.name == "tt.load")
    assert load.results[0].name == "v"
    assert load.results[0].type == Type((64,), "f32")
    assert load.location.location is not None
    assert load.location.location.file.endswith("ir_text.py")
    assert load.location.location.function == "everything"
    assert load.attributes["operandSegmentSizes"] == [1, 1, 1]
    other = load.operands[2].owner
    assert isinstance(other, Op)
    assert other.attributes["value"] == np.inf
    loop = next(op for op in ops if op.name == "scf.for")
    assert sorted(str(result.name) for result in loop.results) == ["acc", "unused"]
    assert [argument.name for argument in loop.regions[0].block.arguments] == ["i", *(r.name for r in loop.results)]
    branch = next(op for op in ops if op.name == "cf.cond_br")
    assert len(branch.operands) == 1
    assert [len(successor.arguments) for successor in branch.successors] == [0, 0]
    assert branch.successors[0].block in function.body.blocks
    printed = next(op for op in ops if op.name == "tt.print")
    assert printed.attributes["prefix"] == ' hello "x": '
    assertion = next(op for op in ops if op.name == "tt.assert")
    assert assertion.attributes["message"] == 'bad "n"\n'
    reduce = next(op for op in ops if op.name == "tt.reduce")
    assert [result.type for result in reduce.results] == [Type((), "f32"), Type((), "i32")]
    assert len(reduce.regions[0].block.arguments) == 4


def test_inline_assembly_text() -> None:
    module = parse(generic_text("with_tuple"))
    op = next(op for op in walk(module.functions["with_tuple"].body) if op.name == "tt.elementwise_inline_asm")
    assert op.attributes["asm_string"] == 'mov "a"; b'
    assert op.attributes["pure"] is False
    assert len(op.results) == 2


@pytest.mark.parametrize(
    ("text", "shape", "element"),
    [
        ("i32", (), "i32"),
        ("tensor<4x8xbf16>", (4, 8), "bf16"),
        ("tensor<64x!tt.ptr<f32>>", (64,), "ptr<f32>"),
        ("!tt.ptr<f8E4M3FN, 1>", (), "ptr<f8E4M3FN>"),
        ("!tt.ptr<!tt.ptr<i8>>", (), "ptr<ptr<i8>>"),
        ("!tt.ptr<tensor<32x16xf32>>", (), "ptr<tensor<32x16xf32>>"),
        ("!tt.tensordesc<tensor<32x16xf16>>", (), "tensordesc<32x16xf16>"),
        ("!tt.tensordesc<32x16xf16, #shared>", (), "tensordesc<32x16xf16>"),
        ("tensor<16x16xf32, #ttg.blocked<{sizePerThread = [1, 4], order = [1, 0]}>>", (16, 16), "f32"),
        ("!ttg.async.token", (), "ttg.async.token"),
        ("tensor<4xindex>", (4,), "index"),
    ],
)
def test_types(text: str, shape: tuple[int, ...], element: str) -> None:
    assert parse_type(text) == Type(shape, element)


def test_what_types_point_to() -> None:
    assert parse_type("tensor<4x!tt.ptr<bf16>>").pointee == Type((), "bf16")
    assert parse_type("!tt.ptr<tensor<32x16xf32>>").block == Type((32, 16), "f32")
    assert parse_type("!tt.tensordesc<32x16xf16>").block == Type((32, 16), "f16")
    assert parse_type("!tt.ptr<f32>").is_pointer
    assert not parse_type("!tt.ptr<f32>").is_float
    assert parse_type("tensor<4xf8E5M2>").is_float
    assert parse_type("i1").is_integer
    with pytest.raises(ValueError, match="not a pointer"):
        _ = parse_type("i32").pointee


def test_integer_constants() -> None:
    assert constant("-7 : i32", "i32") == -7
    assert constant("-7 : i32", "i32").dtype == np.int32
    assert constant("true", "i1").dtype == np.bool_
    assert constant("255 : i8", "i8") == -1
    assert constant("18446744073709551615 : i64", "i64") == -1
    assert constant("3 : index", "index") == 3
    assert constant("dense<5> : tensor<4x8xi32>", "tensor<4x8xi32>").shape == ()
    assert constant("dense<[[1, -2], [3, 4]]> : tensor<2x2xi16>", "tensor<2x2xi16>").tolist() == [[1, -2], [3, 4]]
    assert constant("dense<[true, false]> : tensor<2xi1>", "tensor<2xi1>").tolist() == [True, False]
    assert constant("dense<true> : tensor<2xi1>", "tensor<2xi1>").tolist() is True
    blob = np.arange(4, dtype="<i4").tobytes().hex().upper()
    assert constant(f'dense<"0x{blob}"> : tensor<4xi32>', "tensor<4xi32>").tolist() == [0, 1, 2, 3]
    assert constant('dense<"0x0100000100"> : tensor<5xi1>', "tensor<5xi1>").tolist() == [True, False, False, True, False]


def test_float_constants() -> None:
    assert constant("1.500000e+00 : f32", "f32") == 1.5
    assert constant("0x7F800000 : f32", "f32") == np.inf
    assert constant("0xFF800000 : f32", "f32") == -np.inf
    assert np.isnan(constant("0x7FC0 : bf16", "bf16"))
    assert constant("0x3F80 : bf16", "bf16") == 1.0
    assert constant("0x7C00 : f16", "f16") == np.inf
    assert constant("0x7FF0000000000000 : f64", "f64") == np.inf
    assert constant("0x7E : f8E4M3FN", "f8E4M3FN") == 448
    assert constant("1.007810e+00 : bf16", "bf16") == np.float32(1.0078125)
    assert constant("-0.000000e+00 : f32", "f32").tobytes() == np.float32(-0.0).tobytes()
    assert constant("dense<0xFF800000> : tensor<8xf32>", "tensor<8xf32>") == -np.inf
    assert constant("dense<[1.0, 2.5e+00]> : tensor<2xf16>", "tensor<2xf16>").tolist() == [1.0, 2.5]
    blob = np.array([1.0, -2.0], "<f4").tobytes().hex()
    assert constant(f'dense<"0x{blob}"> : tensor<2xf32>', "tensor<2xf32>").tolist() == [1.0, -2.0]
    for element in ("f16", "bf16", "f8E5M2", "f64"):
        value = constant(f"dense<1.0> : tensor<2x{element}>", f"tensor<2x{element}>")
        assert value.dtype == numerics.compute_dtype(element)


def test_attributes() -> None:
    op = first(
        '    "test.op"() <{a = 3 : i32, b = "t\\22x\\0A{", c = array<i32: 1, -2>, d = [1 : i32, "s", @f],'
        " e = {x = 1 : i64, y = [true]},"
        " f = @__main__.g__fp32, g = @outer::@inner, h = #arith.fastmath<none>, i, j = tensor<4xf32>, k = array<i1: true, false>,"
        " l = array<i32>, m = (i32, f32) -> i32, n = unit, o = 2.5 : f64, p = false, q = dense<1> : tensor<2xi32>,"
        ' r = loc("a":1:2), "s t" = -1 : i8, u = @"quoted(1,)\\22"}> {tt.num_stages = 3 : i32} : () -> () loc(#loc)'
    )
    attributes = op.attributes
    assert attributes["a"] == 3
    assert attributes["b"] == 't"x\n{'
    assert attributes["c"] == [1, -2]
    assert attributes["d"] == [1, "s", "f"]
    assert attributes["e"] == {"x": 1, "y": [True]}
    assert attributes["f"] == "__main__.g__fp32"
    assert attributes["g"] == "outer::inner"
    assert attributes["h"] == "#arith.fastmath<none>"
    assert attributes["i"] is True
    assert attributes["j"] == Type((4,), "f32")
    assert attributes["k"] == [True, False]
    assert attributes["l"] == []
    assert attributes["m"] == "(i32, f32) -> i32"
    assert attributes["n"] is True
    assert attributes["o"] == 2.5
    assert attributes["p"] is False
    assert attributes["q"].tolist() == 1
    assert attributes["s t"] == -1
    assert attributes["u"] == 'quoted(1,)"'
    assert attributes["tt.num_stages"] == 3


def test_attributes_of_one_op_are_its_own() -> None:
    function = function_of('    "t.a"() <{n = 1 : i32}> : () -> () loc(#loc)\n    "t.b"() <{n = 1 : i32}> : () -> () loc(#loc)')
    one, other = function.body.blocks[0].ops[:2]
    one.attributes["more"] = 1
    assert "more" not in other.attributes


def test_locations() -> None:
    aliases = (
        '#loc1 = loc("/a b/file (1).py":10:5)\n#loc2 = loc("/x.py":3:1)\n#loc3 = loc("name"(#loc1))\n'
        "#loc4 = loc(callsite(#loc3 at #loc2))\n#loc5 = loc(fused[#loc, #loc1])\n#loc6 = loc(callsite(#loc4 at #loc1))\n"
    )

    def at(text: str) -> Any:
        return first(f'    "t.o"() : () -> () loc({text})', aliases=aliases).location

    plain = at("#loc1").location
    assert (plain.file, plain.line, plain.column, plain.function) == ("/a b/file (1).py", 10, 5, "k")
    assert at("#loc3").variable == "name"
    assert at('"direct"(#loc2)').location.line == 3
    called = at("#loc4")
    assert called.location.line == 10
    assert [call.line for call in called.call_stack] == [3]
    assert called.call_stack[0].function == "k"
    assert called.location.function is None
    assert called.variable == "name"
    deep = at("#loc6")
    assert [call.line for call in deep.call_stack] == [10, 3]
    assert at("#loc5").location.line == 10
    assert at('fused<"meta">["/x.py":7:1]').location.line == 7
    assert at('callsite("/c.py":1:2 at callsite("/d.py":2:3 at #loc2))').call_stack[0].line == 3
    assert at("unknown").location is None
    assert at("#missing").location is None


def test_blocks_may_use_what_later_text_defines() -> None:
    function = function_of(
        '    "cf.br"()[^bb2] : () -> () loc(#loc)\n'
        "  ^bb1:  // pred: ^bb2\n"
        '    "t.use"(%v) : (i32) -> () loc(#loc)\n'
        '    "cf.cond_br"(%c, %v, %x, %v)[^bb3, ^bb3] <{operandSegmentSizes = array<i32: 1, 1, 2>}>'
        " : (i1, i32, i32, i32) -> () loc(#loc)\n"
        "  ^bb2:\n"
        '    %v = "t.make"() : () -> i32 loc("v"(#loc))\n'
        '    %c = "t.flag"() : () -> i1 loc(#loc)\n'
        '    "cf.br"()[^bb1] : () -> () loc(#loc)\n'
        "  ^bb3(%a: i32 loc(unknown), %b: i32):  // 2 preds: ^bb1, ^bb1"
    )
    blocks = function.body.blocks
    assert [block.label for block in blocks] == ["^bb0", "^bb1", "^bb2", "^bb3"]
    value = blocks[1].ops[0].operands[0]
    assert value is blocks[2].ops[0].results[0]
    assert (value.type, value.name, value.owner) == (Type((), "i32"), "v", blocks[2].ops[0])
    branch = blocks[1].ops[1]
    assert [len(s.arguments) for s in branch.successors] == [1, 2]
    assert len(branch.operands) == 1


def test_regions_may_reuse_names() -> None:
    function = function_of(
        '    "scf.if"(%x) ({\n      %0 = "t.a"() : () -> i32 loc(#loc)\n      "scf.yield"() : () -> () loc(#loc)\n    }, {\n'
        '      %0 = "t.b"() : () -> f32 loc(#loc)\n      "t.use"(%0) : (f32) -> () loc(#loc)\n    }) : (i32) -> () loc(#loc)\n'
        '    %0 = "t.c"() : () -> i64 loc(#loc)\n    "t.use"(%0) : (i64) -> () loc(#loc)'
    )
    ops = function.body.blocks[0].ops
    other = ops[0].regions[1].block
    assert other.ops[1].operands[0] is other.ops[0].results[0]
    assert ops[2].operands[0] is ops[1].results[0]
    assert ops[1].results[0].type.element == "i64"


def test_several_results() -> None:
    function = function_of(
        '    %r:3 = "t.a"() : () -> (i32, f32, tensor<4x!tt.ptr<f32>>) loc(#loc)\n'
        '    %s, %t:2 = "t.b"(%r#2, %r#0) : (tensor<4x!tt.ptr<f32>>, i32) -> (i1, i8, i16) loc(#loc)\n'
        '    "t.use"(%t#1, %s) : (i16, i1) -> () loc(#loc)'
    )
    a, b, use = function.body.blocks[0].ops[:3]
    assert b.operands == [a.results[2], a.results[0]]
    assert use.operands == [b.results[2], b.results[0]]
    assert [result.index for result in a.results] == [0, 1, 2]


def test_an_empty_region_has_no_blocks() -> None:
    op = first('    "scf.if"(%x) ({\n      "scf.yield"() : () -> () loc(#loc)\n    }, {\n    }) : (i32) -> () loc(#loc)')
    assert len(op.regions[0].blocks) == 1
    assert op.regions[1].blocks == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k", "k"),
        ("__main__.helper__fp32S64S_i32", "helper"),
        ("pkg.mod.my__helper__i32", "my"),  # Triton's separator may stand in a name; this is for display
        ("triton.language.standard.sum__fp32S64S__(1,)cconstexpr_0__(2,)cconstexpr_False_", "sum"),
        ("triton.language.standard._sum_combine__fp32_fp32", "_sum_combine"),
        ("test_x.outer.<locals>.inner__i32", "inner"),
    ],
)
def test_python_names_of_symbols(text: str, expected: str) -> None:
    assert python_name(text) == expected


def test_string_escapes() -> None:
    assert unescape("plain") == "plain"
    assert unescape('a\\22b\\\\n\\0A\\t\\C3\\A9"') == 'a"b\\n\n\té"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "builtin.module"),
        ("module {\n}", "builtin.module"),
        ('"builtin.module"() ({\n', "expected an operation"),
        ('"builtin.module"() ({\n  oops\n}) : () -> ()', "oops"),
        ('"builtin.module"() ({\n  "tt.func"() <{x = 1 : i32}> ({\n  }) : () -> ()\n}) : () -> ()', "sym_name"),
    ],
)
def test_text_that_is_no_module(text: str, message: str) -> None:
    with pytest.raises(IRSyntaxError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('    "t.use"(%nowhere) : (i32) -> () loc(#loc)', "%nowhere is used but never defined"),
        ('    %c = "arith.constant"() <{value = dense<[1, 2, 3]> : tensor<2xi32>}> : () -> tensor<2xi32> loc(#loc)', "dense<"),
        ('    %c = "arith.constant"() : () -> i32 loc(#loc)', "without a value"),
        ('    "t.o"() <{a = }> : () -> () loc(#loc)', "attributes"),
        ('    "t.o"() <{a = {b = [1}> : () -> () loc(#loc)', "bracket"),
        ('    "t.o"() : (i32 -> () loc(#loc)', "types"),
        ('    "t.o"() loc(#loc)', "types"),
        ('    "cf.br"()[^bb9] : () -> () loc(#loc)', "bb9"),
        ('    %a:2 = "t.o"() : () -> i32 loc(#loc)', "result types"),
        ("    what is this", "what is this"),
    ],
)
def test_errors_show_the_text(body: str, message: str) -> None:
    with pytest.raises(IRSyntaxError, match=message.replace("[", r"\[")) as caught:
        function_of(body)
    assert isinstance(caught.value, TritonTraceError)
    assert caught.value.line >= 1
    assert str(caught.value.line) in str(caught.value)
