"""``engine="python"``: Python's own constructs around a kernel's values, and what becomes of those outside a launch."""

from __future__ import annotations

import collections
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.errors import KernelError

KEPT: dict[Any, Any] = {}
COUNTS: collections.Counter[Any] = collections.Counter()
ALLOWED = {0, 2}
NAMES = {0: "zero", 2: "two", 4: "four"}


class _Box:
    number = 0


BOX = _Box()


def _launch(kernel: Any, *args: Any, grid: int = 1, **constants: Any) -> None:
    with tritontrace.session(engine="python"):
        kernel[(grid,)](*args, **constants)


# -- range ----------------------------------------------------------------------------------------------------------------


@triton.jit
def ranges(out_ptr, n, B: tl.constexpr):
    KEPT["list"] = list(range(n))
    KEPT["reversed"] = [i + 0 for i in reversed(range(1, B))]
    KEPT["sum"] = sum(i * 2 for i in range(B))
    KEPT["zip"] = list(zip(range(2), "ab"))
    KEPT["nested"] = [(i, j) for i in range(2) for j in range(i)]
    KEPT["tl"] = list(tl.range(0, 3, 2))
    total = 0
    for i, step in enumerate(range(0, B, 2)):
        total += i * step
    tl.store(out_ptr, total)
    counted = range(B)
    for i in counted:
        tl.store(out_ptr + 1, i.to(tl.int64))
    for i in range(3):
        tl.store(out_ptr + 2, i.to(tl.int64))
    tl.store(out_ptr + 3, len(range(5)))


def test_range_outside_the_head_of_a_loop_is_pythons() -> None:
    KEPT.clear()
    out = torch.zeros(4, dtype=torch.int32)
    _launch(ranges, out, 3, B=4)
    assert KEPT == {
        "list": [0, 1, 2],
        "reversed": [3, 2, 1],
        "sum": 12,
        "zip": [(0, "a"), (1, "b")],
        "nested": [(1, 0)],
        "tl": [0, 2],
    }
    assert json.dumps(KEPT["list"]) == "[0, 1, 2]"
    assert out.tolist() == [2, 3, 2, 5]


# -- keys -----------------------------------------------------------------------------------------------------------------


@triton.jit
def keys(out_ptr, B: tl.constexpr):
    program = tl.program_id(0)
    if program in ALLOWED:
        COUNTS[program] += 1
    if program not in ALLOWED:
        COUNTS["others"] += 1
    if B in {4: True}:
        KEPT["constant", B, program] = NAMES[B]
    two = 2
    KEPT["made"] = {two: B, B: two}[4] == 2
    KEPT[two] = NAMES[two], NAMES.get(two), NAMES.get(B)
    KEPT["names"] = {NAMES[i] for i in range(0, B, 2)}
    seen = set()
    seen.add(B)
    seen.add(program)
    KEPT["seen"] = 4 in seen, 3 in seen


def test_scalars_and_constants_are_keys_by_the_number_that_they_hold() -> None:
    KEPT.clear()
    COUNTS.clear()
    _launch(keys, torch.zeros(1), grid=3, B=4)
    assert COUNTS == {0: 1, 2: 1, "others": 1}
    assert [type(key) for key in COUNTS] == [int, str, int]
    assert KEPT["constant", 4, 1] == "four"
    assert KEPT["made"] and KEPT["seen"] == (True, False)
    assert KEPT[2] == ("two", "two", "four")
    assert KEPT["names"] == {"zero", "two"}


@triton.jit
def block_as_a_key(x_ptr):
    KEPT[tl.load(x_ptr + tl.arange(0, 4))] = 1


def test_a_block_is_no_key() -> None:
    with pytest.raises(KernelError, match="a block is no key; take numbers, as tuple"):
        _launch(block_as_a_key, torch.zeros(4))


# -- what the user keeps -----------------------------------------------------------------------------------------------------


@triton.jit
def keeping(x_ptr, B: tl.constexpr):
    KEPT["n"] += 1
    KEPT["n"] = KEPT["n"] * 2
    KEPT["B"] = B
    KEPT["pair"] = [(B, 2), {"B": B}]
    BOX.number += 1
    local, BOX.other = 7, 8
    both = BOX.both = 3
    KEPT["types"] = [type(v).__name__ for v in (local, both)]
    KEPT["log"] += [B]
    KEPT.setdefault("calls", []).append(B)
    KEPT["calls"].append((B, B))
    KEPT["local"] = local
    KEPT["sum"] = tl.sum(tl.load(x_ptr + tl.arange(0, B)))
    KEPT["block"] = tl.load(x_ptr + tl.arange(0, B))
    KEPT["unsigned"] = tl.full((), 3000000000, tl.uint32)


def test_numbers_in_the_users_own_objects_stay_numbers() -> None:
    KEPT.clear()
    log: list[int] = []
    KEPT.update(n=3, log=log)
    BOX.number = 1
    _launch(keeping, torch.arange(4.0), B=4)
    plain = {name: KEPT[name] for name in ("n", "B", "pair", "calls")}
    assert json.loads(json.dumps([plain, BOX.number, vars(BOX)["other"], vars(BOX)["both"], log])) == [
        {"n": 8, "B": 4, "pair": [[4, 2], {"B": 4}], "calls": [4, [4, 4]]},
        2,
        8,
        3,
        [4],
    ]
    assert KEPT["log"] is log
    assert KEPT["types"] == ["TracedTensor", "TracedTensor"]


def test_values_that_outlive_their_launch() -> None:
    test_numbers_in_the_users_own_objects_stay_numbers()
    local, total, block, unsigned = (KEPT[name] for name in ("local", "sum", "block", "unsigned"))
    assert (repr(local), f"{total:.2f}", int(local), float(total)) == ("int32 7", "6.00", 7, 6.0)
    assert local == 7 and not (local == 8) and local != 8
    assert local < 8 and 8 > local and 6 < local <= 7
    assert total != local and total < local
    assert {local: "seven"}[7] == "seven"
    assert (block == np.arange(4)).all() and (block > 1).tolist() == [False, False, True, True]
    assert np.asarray(block).tolist() == [0, 1, 2, 3]
    assert (int(unsigned), unsigned.numpy().item(), repr(unsigned)) == (3000000000, 3000000000, "uint32 3000000000")
    for compute in (lambda: local + 1, lambda: block.max(), lambda: -local):
        with pytest.raises(RuntimeError, match=r"computes only in a launch; print it, compare it, or keep int\(x\)"):
            compute()


HELD = [1.0]


def _next_place() -> int:
    COUNTS["places"] += 1
    return 0


@triton.jit
def augmenting(out_ptr):
    HELD[_next_place()] += 0.5
    found = HELD
    same = {1}
    other = same
    same |= {2}
    KEPT["same"] = other
    tl.store(out_ptr, found[0])


def test_an_augmented_target_is_evaluated_once() -> None:
    COUNTS.clear()
    HELD[:] = [1.0]
    out = torch.zeros(1)
    _launch(augmenting, out)
    assert COUNTS["places"] == 1 and out.item() == 1.5
    assert KEPT["same"] == {1, 2}  # a set is changed in place, as in Python


@triton.jit
def lists(out_ptr):
    numbers = [-7, 2]
    tl.store(out_ptr, numbers[0] // numbers[1])
    a, b = [-7, 2]
    tl.store(out_ptr + 1, a // b)
    made = [v + 0 for v in (-7, 2)]
    tl.store(out_ptr + 2, made[0] // made[1])
    longer = numbers
    longer += [-9]
    tl.store(out_ptr + 3, longer[2] // numbers[1])
    tl.store(out_ptr + 4, len(numbers))


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_list_bound_to_a_name_holds_the_kernels_numbers(engine: str) -> None:
    out = torch.zeros(5, dtype=torch.int32)
    with tritontrace.session(engine=engine):
        lists[(1,)](out)
    assert out.tolist() == [-3, -3, -3, -4, 2]  # Triton's // goes towards 0


# -- numbers in Python's own functions -----------------------------------------------------------------------------------------


@triton.jit
def in_pythons_functions(x_ptr):
    c = 3
    s = tl.load(x_ptr + 1)
    block = tl.load(x_ptr + tl.arange(0, 2))
    KEPT["format"] = f"{s:.2f} {c:03d} {block:.1f} {c}", "%.3f %d" % (s, c)  # noqa: UP031 - is what is tested
    KEPT["abs"] = float(abs(s)), abs(block).numpy().tolist()
    KEPT["round"] = round(s), round(s, 1)
    KEPT["times"] = "ab" * c, c * [0]
    KEPT["big"] = 2**70
    KEPT["whole"] = math.trunc(s), math.floor(s), math.ceil(s), math.floor(tl.full((), 2**62 + 1, tl.int64)) - 2**62
    KEPT["json"] = json.dumps({"c": int(c), "s": float(s)})


def test_scalars_in_pythons_own_functions() -> None:
    KEPT.clear()
    _launch(in_pythons_functions, torch.tensor([1.0, -2.75]))
    assert KEPT == {
        "format": ("-2.75 003 fp32[2] [1.0 -2.8] int32 3", "-2.750 3"),
        "abs": (2.75, [1.0, 2.75]),
        "round": (-3, -2.8),
        "times": ("ababab", [0, 0, 0]),
        "whole": (-2, -3, -2, 1),
        "big": 2**70,
        "json": '{"c": 3, "s": -2.75}',
    }


@triton.jit
def powers(x_ptr):
    c = 3
    tl.store(x_ptr, c**2)


@triton.jit
def rounds_a_block(x_ptr):
    round(tl.load(x_ptr + tl.arange(0, 4)))


@triton.jit
def takes_one(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(x_ptr, x[0])


@triton.jit
def takes_one_by_scalar(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(x_ptr, x[tl.program_id(0)])


@triton.jit
def iterates(x_ptr):
    for x in tl.load(x_ptr + tl.arange(0, 4)):
        tl.store(x_ptr, x)


@triton.jit
def adds_three(x_ptr):
    tl.store(x_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)) + np.ones(3))


@triton.jit
def adds_text(x_ptr):
    tl.store(x_ptr, np.array(["a", "b"]))


@triton.jit
def adds_torch(x_ptr):
    tl.load(x_ptr + tl.arange(0, 4)) + torch.ones(4)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (powers, r"Triton has no \*\* for values of a kernel, and a number bound to a name is one"),
        (rounds_a_block, "is no number; reduce it"),
        (takes_one, r"unsupported tensor index: constexpr\[0\]; x.numpy\(\) has"),
        (takes_one_by_scalar, "unsupported tensor index: int32 0"),
        (iterates, "nothing iterates over a block"),
        (adds_three, r"an array of shape \[3\] is no block: the sides of one are powers of two"),
        (adds_text, "is no block: Triton has no such type"),
        (adds_torch, r"torch.Tensor is no value of a kernel; t.numpy\(\) is one"),
    ],
)
def test_what_stays_refused_says_what_to_do(kernel: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        _launch(kernel, torch.zeros(4))


# -- numpy ------------------------------------------------------------------------------------------------------------------


@triton.jit
def helper(x, B: tl.constexpr):
    return tl.arange(0, B) * x


@triton.jit
def with_numpy(x_ptr, out_ptr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, np.sort(x.numpy())[::-1])
    tl.store(out_ptr + 4, np.float32(3))
    tl.store(out_ptr + 5 + at, np.float32(1) + x + np.float64(0.5) + np.int32(1))
    tl.store(out_ptr + 9 + at, np.ones(4, np.float32) + x * np.arange(4))
    tl.store(out_ptr + 13 + at, np.exp(x) - np.exp(x))
    tl.store(out_ptr + 17 + at, x, mask=np.array([True, False, True, False]))
    tl.store(out_ptr + 21, np.median(x))
    tl.store(out_ptr + 22 + tl.arange(0, 1), np.array([2**32 - 2], np.uint32) // tl.full((1,), 2, tl.uint32))
    tl.store(out_ptr + 23, tl.sum(np.arange(4), 0) + tl.max(tl.dot(np.ones((16, 16), np.float32), np.ones((16, 16), np.float32))))
    tl.store(out_ptr + 24 + at, helper(np.float32(0.5), np.int64(4)))
    KEPT["asarray"] = np.asarray(x).tolist()
    KEPT["functions"] = float(np.sum(x)), float(np.max(x)), np.concatenate([x, x]).shape
    KEPT["types"] = type(np.ones(4) + x).__name__, str((np.ones(4, np.float16) + at).dtype), str((x + np.ones(4)).dtype)
    total = np.zeros(4)
    alias = total
    total += x
    KEPT["total"] = alias.tolist()
    copied = x.numpy()
    copied[:] = 9
    KEPT["unchanged"] = x.numpy().tolist()


def test_numpys_numbers_and_arrays_in_a_kernel() -> None:
    KEPT.clear()
    x = torch.tensor([2.0, 0.0, 3.0, 1.0])
    out = torch.zeros(28)
    _launch(with_numpy, x, out)
    values = out.tolist()
    assert values[:5] == [3, 2, 1, 0, 3]
    assert values[5:9] == [4.5, 2.5, 5.5, 3.5]
    assert values[9:13] == [1, 1, 7, 4]
    assert values[13:17] == [0, 0, 0, 0]
    assert values[17:21] == [2, 0, 3, 0]
    assert values[21] == 1.5
    assert values[22] == 2.0**31
    assert values[23] == 6 + 16
    assert values[24:28] == [0, 0.5, 1, 1.5]
    assert KEPT["asarray"] == [2, 0, 3, 1]
    assert KEPT["functions"] == (6.0, 3.0, (8,))
    assert KEPT["types"] == ("TracedTensor", "fp16", "fp64")
    assert KEPT["total"] == [2, 0, 3, 1]
    assert KEPT["unchanged"] == [2, 0, 3, 1]


# -- assert ------------------------------------------------------------------------------------------------------------------


@triton.jit
def asserts(out_ptr, B: tl.constexpr):
    assert B == 8, "B must be 8"
    tl.store(out_ptr, 1)


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_plain_assert_of_a_constant_is_checked_with_debug_only(engine: str) -> None:
    out = torch.zeros(1)
    with tritontrace.session(engine=engine):
        asserts[(1,)](out, B=4)
    assert out.item() == 1
    with tritontrace.session(engine=engine), pytest.raises(KernelError, match="device_assert failed: B must be 8"):
        asserts[(1,)](out, B=4, debug=True)


MISSING: list[int] = []


@triton.jit
def asserts_with_a_text(x_ptr, B: tl.constexpr):
    assert not MISSING, f"first: {MISSING[0]}"
    assert tl.program_id(0) < B, f"{tl.program_id(0):02d} of {B}"
    assert np.allclose(tl.load(x_ptr + tl.arange(0, 4)), 0), "not zero"


def test_the_text_of_an_assert_is_made_when_it_fails() -> None:
    for x, limit, text in ((0.0, 1, "01 of 1"), (1.0, 2, "not zero")):
        with tritontrace.session(engine="python"), pytest.raises(KernelError, match=f"device_assert failed: {text}"):
            asserts_with_a_text[(2,)](torch.full((4,), x), B=limit, debug=True)


@triton.jit
def constants_in_functions(out_ptr, E: tl.constexpr, B: tl.constexpr):
    tl.store(out_ptr, float(E) + int(E))
    tl.store(out_ptr + 1, float(B))


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_constant_is_what_it_holds_in_pythons_functions(engine: str) -> None:
    out = torch.zeros(2)
    with tritontrace.session(engine=engine):
        constants_in_functions[(1,)](out, E=1.5, B=4)
    assert out.tolist() == [2.5, 4]


@triton.jit
def constants_in_more_functions(E: tl.constexpr, B: tl.constexpr, SHAPE: tl.constexpr):
    KEPT[SHAPE] = SHAPE
    KEPT["shape"] = np.zeros(SHAPE).shape, {(4, 2): "found"}[SHAPE], 2 in SHAPE
    KEPT["set"] = 4 in set([B]), 4 in frozenset((B, 1)), dict([(B, 1)]), collections.Counter([B, B])  # noqa: C405, C406
    KEPT["full"] = np.full((B,), E), np.array([E, 1]), np.float32(E), str(B)


def test_a_constant_is_what_it_holds_in_collections_and_numpy() -> None:
    KEPT.clear()
    _launch(constants_in_more_functions, E=0.5, B=4, SHAPE=(4, 2))
    assert KEPT[4, 2] == (4, 2) and type(KEPT[4, 2]) is tuple
    assert KEPT["shape"] == ((4, 2), "found", True)
    assert KEPT["set"] == (True, True, {4: 1}, {4: 2})
    full, pair, one, text = KEPT["full"]
    assert full.dtype == np.float64 and full.tolist() == [0.5] * 4 and pair.tolist() == [0.5, 1]
    assert one == 0.5 and text == "4"


@triton.jit
def a_global_of_the_users():
    global TOTAL
    TOTAL += 2


TOTAL = 1


def test_a_global_that_the_kernel_declares_stays_a_number() -> None:
    global TOTAL
    TOTAL = 1
    _launch(a_global_of_the_users, grid=3)
    assert TOTAL == 7 and type(TOTAL) is int


def test_comparisons_of_numpys_operators_are_the_kernels() -> None:
    @triton.jit
    def kernel(out_ptr):
        at = tl.arange(0, 4)
        tl.store(out_ptr + at, np.array([0, 2, 2, 2]) == at)

    out = torch.zeros(4, dtype=torch.int32)
    _launch(kernel, out)
    assert out.tolist() == [1, 0, 1, 0]


def test_a_class_with_methods_and_private_attributes() -> None:
    @triton.jit
    def kernel(out_ptr, n):
        class Base:
            def start(self):
                return 1

        class Sum(Base):
            __step = 3

            def start(self):
                return super().start() + self.__more()

            def __more(self):
                total = 0
                for i in range(2):
                    total = total + self.__step if i >= 0 and n > 0 else 100
                return total

        tl.store(out_ptr, Sum().start() + n)

    out = torch.zeros(1, dtype=torch.int32)
    _launch(kernel, out, 5)
    assert out.item() == 1 + 6 + 5
