"""Binding and typing the arguments of a launch, without a driver."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
import wrapt
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

from tritontrace.kernels.arguments import BoundLaunch, argument_infos, bind
from tritontrace.kernels.grids import grid
from tritontrace.kernels.targets import Target

CUDA = Target.parse("cuda:90")
HIP = Target.parse("hip:gfx942")


@triton.jit
def helper(x):
    return x


@triton.jit
def other_helper(x):
    return -x


@triton.jit
def one(value):
    pass


@triton.jit
def kernel(x_ptr, n, eps, BLOCK: tl.constexpr, mode: tl.constexpr = "sum", limit=7):
    pass


def bound_one(value: Any, target: Target = CUDA) -> BoundLaunch:
    return bind(one, (value,), {}, target)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, "i32"),
        (2, "i32"),
        (-1, "i32"),
        (2**31 - 1, "i32"),
        (2**31, "i64"),
        (-(2**31), "i32"),
        (-(2**31) - 1, "i64"),
        (2**32, "i64"),
        (2**63 - 1, "i64"),
        (2**63, "u64"),
        (True, "u1"),
        (False, "u1"),
        (1, "constexpr"),
        (None, "constexpr"),
        (1.5, "fp32"),
        (torch.zeros(2), "*fp32"),
        (torch.zeros(2, dtype=torch.bfloat16), "*bf16"),
        (torch.zeros(2, dtype=torch.bool), "*i1"),
        (torch.zeros(2, dtype=torch.uint8), "*u8"),
        (torch.zeros(2, dtype=torch.float8_e5m2), "*fp8e5"),
        (torch.zeros(()), "*fp32"),
        (torch.zeros(0), "*fp32"),
        (torch.zeros(8)[3:], "*fp32"),
        (triton.reinterpret(torch.zeros(2, dtype=torch.int8), tl.float8e5), "*fp8e5"),
        ((torch.zeros(2), 1, 2, (3.0, None)), ("*fp32", "constexpr", "i32", ("fp32", "constexpr"))),
        (TensorDescriptor.from_tensor(torch.zeros(16, 16), [8, 4]), "tensordesc<fp32[8, 4]>"),
    ],
)
@pytest.mark.parametrize("target", [CUDA, HIP], ids=str)
def test_types_are_tritons(value: Any, kind: Any, target: Target) -> None:
    kind = "*u1" if kind == "*i1" else kind
    assert bound_one(value, target).signature == {"value": kind}


def test_values_leaves_and_constants() -> None:
    x = torch.zeros(4)
    bound = bind(kernel, (x, 1), {"eps": 1e-6, "BLOCK": 64, "num_warps": 8}, CUDA)
    assert bound.kernel is kernel and bound.kernel_name == "kernel"
    assert list(bound.values) == ["x_ptr", "n", "eps", "BLOCK", "mode", "limit"]
    assert bound.values["x_ptr"] is x and bound.values["mode"] == "sum" and bound.values["limit"] == 7
    assert bound.constexprs == {(1,): 1, (3,): 64, (4,): "sum"}
    assert [(leaf.name, leaf.type) for leaf in bound.leaves] == [("x_ptr", "*fp32"), ("eps", "fp32"), ("limit", "i32")]
    assert bound.leaves[0].value is x
    assert bound.options == {"num_warps": 8} and bound.debug is False


def test_leaves_of_tuples_are_in_the_order_of_the_compiled_function() -> None:
    x, y = torch.zeros(1), torch.zeros(1)
    bound = bound_one((x, 1, (y, None, 5)))
    leaves = [("value.0", "*fp32"), ("value.2.0", "*fp32"), ("value.2.2", "i32")]
    assert [(leaf.name, leaf.type) for leaf in bound.leaves] == leaves
    assert bound.leaves[1].value is y
    assert bound.constexprs == {(0, 1): 1, (0, 2, 1): None}


def test_a_parameter_named_like_an_option_is_both_as_in_compiled_mode() -> None:
    @triton.jit
    def named(x_ptr, num_stages: tl.constexpr, num_warps, grid):
        pass

    x = torch.zeros(1)
    by_name = bind(named, (x,), {"num_stages": 4, "num_warps": 8, "grid": 3}, CUDA)
    assert by_name.values["num_stages"] == 4 and by_name.values["num_warps"] == 8 and by_name.values["grid"] == 3
    assert by_name.options == {"num_stages": 4, "num_warps": 8}
    assert by_name.compile_options()["num_warps"] == 8
    positional = bind(named, (x, 4, 8, 3), {}, CUDA)
    assert positional.values == by_name.values and positional.options == {}
    assert [leaf.name for leaf in positional.leaves] == ["x_ptr", "num_warps", "grid"]


def test_annotations_and_do_not_specialize() -> None:
    @triton.jit(do_not_specialize=["plain"])
    def annotated(plain, wide: tl.int64, half: tl.float16, flag: "tl.constexpr"):  # noqa: UP037 - a string annotation
        pass

    bound = bind(annotated, (1, 3, 2.0, True), {}, CUDA)
    assert bound.signature == {"plain": "i32", "wide": "i64", "half": "fp16", "flag": "constexpr"}


def test_keys_tell_apart_what_compiles_differently() -> None:
    x = torch.zeros(64)

    def key(*args: Any, **kwargs: Any) -> Any:
        return bind(kernel, args, {"BLOCK": 64, **kwargs}, kwargs.pop("target", CUDA)).key

    same = key(x, 5, 0.5)
    assert same == key(torch.ones(3)[1:], 16, 2.5) and hash(same) == hash(key(x, 6, 1.0))
    different = [
        key(x.half(), 5, 0.5),
        key(x, 1, 0.5),
        key(x, True, 0.5),
        key(x, 2**31, 0.5),
        key(x, 5, 0.5, BLOCK=128),
        key(x, 5, 0.5, BLOCK=64.0),
        key(x, 5, 0.5, BLOCK=1),
        key(x, 5, 0.5, BLOCK=True),
        key(x, 5, 0.5, BLOCK=0.0),
        key(x, 5, 0.5, BLOCK=-0.0),
        key(x, 5, 0.5, BLOCK=(1, 2)),
        key(x, 5, 0.5, BLOCK=(1, True)),
        key(x, 5, 0.5, BLOCK=helper),
        key(x, 5, 0.5, BLOCK=other_helper),
        key(x, 5, 0.5, BLOCK=torch.float16),
        key(x, 5, 0.5, BLOCK=tl.float16),
        key(x, 5, 0.5, mode="max"),
        key(x, 5, 0.5, num_warps=8),
        key(x, 5, 0.5, debug=True),
        bind(kernel, (x, 5, 0.5, 64), {}, HIP).key,
    ]
    assert len({same, *different}) == len(different) + 1
    assert key(x, 5, 0.5, BLOCK=tl.constexpr(64)) == same
    assert key(x, 5, 0.5, BLOCK=wrapt.ObjectProxy(helper)) == key(x, 5, 0.5, BLOCK=helper)


def test_tuple_keys_hold_the_constants_in_them() -> None:
    assert bound_one((1, 2)).key == bound_one((1, 3)).key
    assert bound_one((1, 2)).key != bound_one((2, 1)).key
    assert bound_one((None, 2)).key != bound_one((1, 2)).key


def test_functions_as_arguments_are_not_hashed() -> None:
    before = [dict(vars(function)) for function in (helper, other_helper, kernel)]
    proxy = wrapt.ObjectProxy(other_helper)
    bound = bind(wrapt.ObjectProxy(kernel), (torch.zeros(1), helper, 0.5), {"BLOCK": (proxy, helper)}, CUDA)
    assert bound.kernel is kernel
    assert bound.signature["n"] == "constexpr" and bound.constexprs[(1,)] is helper
    assert bound.constexprs[(3,)][0] is other_helper
    assert [dict(vars(function)) for function in (helper, other_helper, kernel)] == before
    assert helper.hash is None


def test_a_changed_source_needs_other_ir() -> None:
    @triton.jit
    def changing(x_ptr):
        tl.store(x_ptr, 1.0)

    x = torch.zeros(1)
    first = bind(changing, (x,), {}, CUDA).key
    changing._unsafe_update_src(changing.src.replace("1.0", "2.0"))
    assert bind(changing, (x,), {}, CUDA).key != first


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((torch.zeros(1),), {}, TypeError, r"kernel\(\) missing 3 required positional arguments: 'n', 'eps', and 'BLOCK'"),
        ((1, 2, 3.0, 4), {"n": 5}, TypeError, r"kernel\(\) got multiple values for argument 'n'"),
        ((1, 2, 3.0, 4), {"unknown": 5}, KeyError, "unknown was specified but unrecognised"),
        (("text", 2, 3.0, 4), {}, TypeError, "str.*argument 'x_ptr' of kernel 'kernel'"),
        ((1, 2, [object()], 4), {}, TypeError, "argument 'eps'"),
    ],
)
def test_errors_name_the_kernel_and_the_argument(args: Any, kwargs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bind(kernel, args, kwargs, CUDA)


def test_debug_comes_from_the_launch_the_kernel_or_the_knob() -> None:
    @triton.jit(debug=True)
    def debugged(x):
        pass

    assert bind(debugged, (1,), {}, CUDA).debug is True
    assert bind(one, (1,), {"debug": True}, CUDA).debug is True
    assert "debug" not in bind(one, (1,), {"debug": True}, CUDA).options
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.debug = True
        assert bind(one, (1,), {}, CUDA).debug is True
    assert bind(one, (1,), {}, CUDA).debug is False


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((4,), (4, 1, 1)),
        ([4, np.int64(3)], (4, 3, 1)),
        ((1, 2, 3), (1, 2, 3)),
        ((0,), (0, 1, 1)),
        ((torch.tensor(5), torch.tensor([2])), (5, 2, 1)),
        (torch.Size([2, 3]), (2, 3, 1)),
        (np.array([4, 5]), (4, 5, 1)),
        ((tl.constexpr(3),), (3, 1, 1)),
        (lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), meta["limit"]), (2, 7, 1)),
    ],
)
def test_grids(given: Any, expected: tuple[int, int, int]) -> None:
    bound = bind(kernel, (torch.zeros(1), 100, 0.5, 64), {}, CUDA)
    found = grid(given, bound)
    assert found == expected and all(type(entry) is int for entry in found)


@pytest.mark.parametrize(
    ("given", "error"),
    [((), ValueError), ((1, 2, 3, 4), ValueError), ((-1,), ValueError), ((1.5,), TypeError), (5, TypeError), (None, TypeError)],
)
def test_bad_grids_name_the_kernel(given: Any, error: type[Exception]) -> None:
    bound = bind(kernel, (torch.zeros(1), 100, 0.5, 64), {}, CUDA)
    with pytest.raises(error, match="'kernel'"):
        grid(given, bound)


def test_a_grid_callable_cannot_change_the_launch() -> None:
    bound = bind(kernel, (torch.zeros(1), 100, 0.5, 64), {}, CUDA)

    def change(meta: dict[str, Any]) -> tuple[int]:
        meta["n"] = 0
        return (1,)

    grid(change, bound)
    assert bound.values["n"] == 100


def test_argument_infos_describe_without_holding() -> None:
    base = torch.zeros(10, 8)
    view = base[2:6, ::2]
    infos = argument_infos(bind(kernel, (view, 5, 0.5, 64), {}, CUDA))
    x = infos["x_ptr"]
    assert (x.shape, x.stride, x.dtype, x.type) == ((4, 4), (8, 2), "float32", "*fp32")
    assert x.data_ptr == view.data_ptr() and x.storage_ptr == base.data_ptr() and x.storage_bytes == 320
    assert x.element_bytes == 4 and x.is_tensor
    assert infos["n"].value == 5 and infos["n"].type == "i32" and not infos["n"].is_tensor
    assert infos["BLOCK"].type == "constexpr" and infos["BLOCK"].value == 64

    described = argument_infos(bound_one((base, (2, view))))
    assert list(described) == ["value.0", "value.1.0", "value.1.1"]
    descriptor = argument_infos(bound_one(TensorDescriptor.from_tensor(base, [2, 4])))["value"]
    assert descriptor.shape == (10, 8) and descriptor.stride == (8, 1) and descriptor.dtype == "float32"
    wrapped = argument_infos(bound_one(triton.reinterpret(torch.zeros(4, dtype=torch.int8), tl.float8e5)))["value"]
    assert wrapped.shape == (4,) and wrapped.dtype == "fp8e5" and wrapped.element_bytes == 1


@pytest.mark.parametrize(
    ("given", "text", "warp_size"),
    [
        ("cuda:90", "cuda:90", 32),
        ("cuda:sm_80", "cuda:80", 32),
        ("hip:gfx942", "hip:gfx942", 64),
        ("hip:gfx1100", "hip:gfx1100", 32),
        (GPUTarget("cuda", 75, 32), "cuda:75", 32),
        (CUDA, "cuda:90", 32),
    ],
)
def test_targets(given: Any, text: str, warp_size: int) -> None:
    target = Target.parse(given)
    assert str(target) == text and target.warp_size == warp_size
    assert target.gpu_target == GPUTarget(target.backend, target.arch, warp_size)


@pytest.mark.parametrize("given", ["cuda", "cuda:", "cuda:x", "hip:942", "hip:gfx", "metal:1", "", 90, object()])
def test_bad_targets(given: Any) -> None:
    with pytest.raises(ValueError, match="target"):
        Target.parse(given)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_target_without_a_gpu_is_cuda_90() -> None:
    assert str(Target.parse(None)) == "cuda:90"


def test_threads_bind_one_kernel_at_once() -> None:
    @triton.jit
    def fresh(x_ptr, n, BLOCK: tl.constexpr):
        pass

    x = torch.zeros(4)
    keys: list[Any] = []
    problems: list[BaseException] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        try:
            for block in range(2, 200):
                bound = bind(fresh, (x, number + 2), {"BLOCK": block}, CUDA)
                assert bound.values["n"] == number + 2 and bound.constexprs[(2,)] == block
                keys.append(bound.key)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and len(set(keys)) == 198
