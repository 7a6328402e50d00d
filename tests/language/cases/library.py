"""The device library in all its spellings, on both targets that have one, against scipy, numpy and exact fractions.

The kernels are one line each and are written to a file, because Triton reads a kernel's source from there.
"""

from __future__ import annotations

import importlib.util
import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special as sp
import torch

from tests.language.harness import CASES, Case, Run, installed

GENERIC, CUDA, HIP = "tl.extra.libdevice", "tl.extra.cuda.libdevice", "tl.extra.hip.libdevice"
TARGETS = {GENERIC: "cuda:90", CUDA: "cuda:90", HIP: "hip:gfx942"}

Reference = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """One function: its arguments (dtype by letter, domain), what it computes in float64 or exactly, and the result's dtype.

    A letter ``r`` stands for float32 and, in a second run, float64; so does the result ``r``. `rtol` and `atol` are for float32;
    for float64 they are divided by `finer`.
    """

    name: str
    letters: str
    reference: Reference
    low: float = -3.0
    high: float = 3.0
    result: str = "r"
    only: str = "fd"
    rtol: float = 2e-6
    finer: float = 1e6


DTYPES = {"f": np.float32, "d": np.float64, "i": np.int32, "u": np.uint32, "l": np.int64, "L": np.uint64, "b": np.int32}
ENTRIES: dict[str, list[Entry]] = {}


def entry(names: str, letters: str, reference: Reference, **settings: Any) -> None:
    """Add one function under each of `names`."""
    for name in names.split():
        ENTRIES.setdefault(name, []).append(Entry(name, letters, reference, **settings))


def fast(name: str, letters: str, reference: Reference, **settings: Any) -> None:
    """A function of float32 alone, and only approximate on a GPU."""
    entry(name, letters, reference, only="f", **settings)


# powers, exponentials, logarithms
entry("sqrt", "r", np.sqrt, low=0.1)
fast("rsqrt_rn", "r", lambda x: 1 / np.sqrt(x), low=0.1)
entry("rsqrt", "r", lambda x: 1 / np.sqrt(x), low=0.1)
entry("cbrt", "r", np.cbrt)
entry("rcbrt", "r", lambda x: 1 / np.cbrt(x))
entry("hypot", "rr", np.hypot)
entry("rhypot", "rr", lambda x, y: 1 / np.hypot(x, y))
entry("norm3d", "rrr", lambda *v: np.sqrt(sum(x * x for x in v)))
entry("norm4d", "rrrr", lambda *v: np.sqrt(sum(x * x for x in v)))
entry("rnorm3d", "rrr", lambda *v: 1 / np.sqrt(sum(x * x for x in v)))
entry("rnorm4d", "rrrr", lambda *v: 1 / np.sqrt(sum(x * x for x in v)))
entry("pow", "rr", np.power, low=0.2, rtol=4e-6)
entry("pow", "ri", lambda x, n: np.power(x, n.astype(float)), rtol=4e-6)
entry("exp", "r", np.exp)
entry("exp2", "r", np.exp2)
entry("exp10", "r", lambda x: 10**x)
entry("expm1", "r", np.expm1)
entry("log", "r", np.log, low=0.1)
entry("log2", "r", np.log2, low=0.1)
entry("log10", "r", np.log10, low=0.1)
entry("log1p", "r", np.log1p, low=-0.9)
entry("logb", "r", lambda x: np.floor(np.log2(np.abs(x))), low=-100, high=100)
entry("ilogb", "r", lambda x: np.floor(np.log2(np.abs(x))), result="i", low=-100, high=100)
entry("ldexp scalbn", "ri", lambda x, n: np.ldexp(x, n))
fast("fast_expf", "r", np.exp)
fast("fast_exp10f", "r", lambda x: 10**x)
fast("fast_logf", "r", np.log, low=0.1)
fast("fast_log2f", "r", np.log2, low=0.1)
fast("fast_log10f", "r", np.log10, low=0.1)
fast("fast_powf", "rr", np.power, low=0.2, rtol=4e-6)
fast("fast_dividef", "rr", np.divide)
# trigonometry
entry("sin", "r", np.sin)
entry("cos", "r", np.cos)
entry("tan", "r", np.tan, low=-1.4, high=1.4)
fast("fast_sinf", "r", np.sin)
fast("fast_cosf", "r", np.cos)
fast("fast_tanf", "r", np.tan, low=-1.4, high=1.4)
fast("fast_tanhf", "r", np.tanh)
entry("sinpi", "r", lambda x: np.sin(np.pi * x), low=-0.9, high=0.9)
entry("cospi", "r", lambda x: np.cos(np.pi * x), low=-0.4, high=0.4)
entry("asin", "r", np.arcsin, low=-0.99, high=0.99)
entry("acos", "r", np.arccos, low=-0.99, high=0.99)
entry("atan", "r", np.arctan)
entry("atan2", "rr", np.arctan2)
entry("sinh", "r", np.sinh)
entry("cosh", "r", np.cosh)
entry("tanh", "r", np.tanh)
entry("asinh", "r", np.arcsinh)
entry("acosh", "r", np.arccosh, low=1.1, high=9)
entry("atanh", "r", np.arctanh, low=-0.95, high=0.95)
# error function, gamma, Bessel
entry("erf", "r", sp.erf)
entry("erfc", "r", sp.erfc)
entry("erfinv", "r", sp.erfinv, low=-0.95, high=0.95)
entry("erfcinv", "r", sp.erfcinv, low=0.05, high=1.95)
entry("erfcx", "r", sp.erfcx)
entry("normcdf", "r", sp.ndtr)
entry("normcdfinv", "r", sp.ndtri, low=0.05, high=0.95)
entry("lgamma", "r", sp.gammaln, low=0.3, high=9)
entry("tgamma", "r", sp.gamma, low=0.3, high=5)
entry("j0", "r", sp.j0)
entry("j1", "r", sp.j1)
entry("y0", "r", sp.y0, low=0.2)
entry("y1", "r", sp.y1, low=0.2)
entry("jn", "ir", lambda n, x: sp.jv(np.abs(n), x) * np.where(n < 0, (-1.0) ** n, 1), low=0.2, high=5, rtol=1e-5)
entry("yn", "ir", lambda n, x: sp.yn(n, x), low=0.2, high=5, rtol=1e-5)
entry("cyl_bessel_i0", "r", sp.i0)
entry("cyl_bessel_i1", "r", sp.i1)
# rounding, sign, comparison
entry("abs", "r", np.abs)
entry("abs", "i", np.abs, low=-1000, high=1000, result="i")
entry("abs", "l", np.abs, low=-(2**40), high=2**40, result="l")
entry("floor", "r", np.floor)
entry("ceil", "r", np.ceil)
entry("trunc", "r", np.trunc)
entry("rint nearbyint", "r", np.rint)
entry("round", "r", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x))
entry("llrint", "r", np.rint, result="l", low=-1e6, high=1e6)
entry("llround", "r", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), result="l", low=-1e6, high=1e6)
entry("copysign", "rr", np.copysign)
entry("nextafter", "rr", np.nextafter)
entry("fmod", "rr", np.fmod)
entry("remainder", "rr", lambda x, y: x - y * np.rint(x / y))
entry("fdim", "rr", lambda x, y: np.maximum(x - y, 0))
entry("fma", "rrr", lambda x, y, z: x * y + z)
fast("saturatef", "r", lambda x: np.clip(x, 0, 1))
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-30] * 2)
entry("isnan", "s", np.isnan, result="b")
entry("isinf", "s", np.isinf, result="b")
entry("signbit", "s", np.signbit, result="b")
entry("finitef", "s", np.isfinite, result="b", only="f")
entry("isfinited", "s", np.isfinite, result="b", only="d")
# integers and bits
U32, U64 = 2**32, 2**64


def each(function: Callable[..., int]) -> Reference:
    """A function of Python integers, applied to each element."""
    return lambda *arrays: np.array([function(*map(int, values)) for values in zip(*arrays, strict=True)], object)


WHOLE = {"low": -(2**31), "high": 2**31 - 1}
LONG = {"low": -(2**62), "high": 2**62}
COUNT = {"low": 0, "high": 2**32 - 1}
entry("clz", "i", each(lambda x: 32 - (x % U32).bit_length()), result="i", **WHOLE)
entry("clz", "l", each(lambda x: 64 - (x % U64).bit_length()), result="i", **LONG)
entry("popc", "i", each(lambda x: (x % U32).bit_count()), result="i", **WHOLE)
entry("popc", "l", each(lambda x: (x % U64).bit_count()), result="i", **LONG)
entry("ffs", "i", each(lambda x: (x & -x).bit_length()), result="i", **WHOLE)
entry("ffs", "l", each(lambda x: (x & -x).bit_length()), result="i", **LONG)
entry("brev", "i", each(lambda x: int(f"{x % U32:032b}"[::-1], 2)), result="i", **WHOLE)
entry("brev", "l", each(lambda x: int(f"{x % U64:064b}"[::-1], 2)), result="l", **LONG)


def permuted(x: int, y: int, selector: int) -> int:
    both = (x % U32).to_bytes(4, "little") + (y % U32).to_bytes(4, "little")
    return int.from_bytes(bytes(both[(selector >> 4 * place) & 7] for place in range(4)), "little")


entry("byte_perm", "iii", each(permuted), result="i", **WHOLE)
entry("mulhi", "ii", each(lambda x, y: x * y >> 32), result="i", **WHOLE)
entry("mulhi", "uu", each(lambda x, y: x * y >> 32), result="u", **COUNT)
entry("mulhi", "ll", each(lambda x, y: x * y >> 64), result="l", **LONG)
entry("mul24", "ii", each(lambda x, y: x * y), result="i", low=-2000, high=2000)
entry("mul24", "uu", each(lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)), result="u", **COUNT)
entry("sad", "iiu", each(lambda x, y, z: abs(x - y) + z), result="i", low=0, high=2**20)
entry("sad", "uuu", each(lambda x, y, z: abs(x - y) + z), result="u", low=0, high=2**31)
entry("hadd", "ii", each(lambda x, y: (x + y) >> 1), result="i", **WHOLE)
entry("hadd", "uu", each(lambda x, y: (x + y) >> 1), result="u", **COUNT)
entry("rhadd", "ii", each(lambda x, y: (x + y + 1) >> 1), result="i", **WHOLE)
entry("rhadd", "uu", each(lambda x, y: (x + y + 1) >> 1), result="u", **COUNT)
entry("float_as_int", "f", lambda x: x.astype(np.float32).view(np.int32), result="i")
entry("float_as_uint", "f", lambda x: x.astype(np.float32).view(np.uint32), result="u")
entry("int_as_float", "i", lambda x: x.view(np.float32), result="f", low=0, high=0x7F000000)
entry("uint_as_float", "u", lambda x: x.view(np.float32), result="f", low=0, high=0x7F000000)
entry("double_as_longlong", "d", lambda x: x.view(np.int64), result="l")
entry("longlong_as_double", "l", lambda x: x.view(np.float64), result="d", low=0, high=0x7FE0 << 48)
entry("double2hiint", "d", lambda x: x.view(np.int64) >> 32, result="i")
entry("double2loint", "d", lambda x: x.view(np.int64).astype(np.int32), result="i")
entry(
    "hiloint2double",
    "ii",
    lambda high, low: ((high.astype(np.int64) << 32) | (low.astype(np.int64) & 0xFFFFFFFF)).view(np.float64),
    result="d",
    low=0,
    high=0x7FE00000,
)
entry("rcp64h", "d", lambda x: ((1 / x).view(np.int64) >> 32 << 32).view(np.float64), result="d", rtol=1e-5, finer=1)


# directed rounding
def root(value: Fraction) -> Fraction:
    """The square root to 300 bits, exact for squares."""
    scale = 1 << 600
    return Fraction(math.isqrt(value.numerator * value.denominator * scale * scale), value.denominator * scale)


EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rcp": lambda x: 1 / x,
    "sqrt": root,
    "fma": lambda x, y, z: x * y + z,
    "cast": lambda x: x,
}


def to_float(value: Fraction, mode: str, kind: Any) -> Any:
    """`value` rounded to `kind` by ``rn``, ``rz``, ``rd`` or ``ru``."""
    near = kind(float(value))
    below = near if Fraction(float(near)) <= value else np.nextafter(near, kind(-np.inf))
    above = below if Fraction(float(below)) == value else np.nextafter(below, kind(np.inf))
    if mode == "rz":
        mode = "rd" if value > 0 else "ru"
    if mode in ("rd", "ru"):
        return below if mode == "rd" else above
    low, high = value - Fraction(float(below)), Fraction(float(above)) - value
    if low == high:
        return below if int(below.view(f"u{below.itemsize}")) % 2 == 0 else above
    return below if low < high else above


TO_INTEGER = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}
ARITHMETIC = re.compile(r"(add|sub|mul|div|rcp|sqrt|fma)_(rn|rz|rd|ru)$")
CONVERSION = re.compile(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(rn|rz|rd|ru)$")
LETTER = {"float": "f", "double": "d", "int": "i", "uint": "u", "ll": "l", "ull": "L"}


def directed(operation: str, mode: str, result: str | None) -> Reference:
    def reference(*arrays: Any) -> Any:
        kind = arrays[0].dtype.type if result is None else DTYPES[result]
        values = [[Fraction(float(v)) if a.dtype.kind == "f" else Fraction(int(v)) for v in a] for a in arrays]
        return np.array([to_float(EXACT[operation](*row), mode, kind) for row in zip(*values, strict=True)])

    return reference


def convert(name: str) -> Entry:
    source, target, mode = CONVERSION.fullmatch(name).groups()  # type: ignore[union-attr]
    a, b = LETTER[source], LETTER[target]
    bits = 30 if target in ("int", "uint") or source in ("int", "uint") else 61
    low = 0.0 if "u" in (source[0], target[0]) else -(2.0**bits)
    if b in "fd":
        if a == "d":
            low, bits = -100.0, 7
        return Entry(name, a, directed("cast", mode, b), low, 2.0**bits, result=b)
    spread = 1000.0 if a == "f" else 1e6  # with halves, so that the mode matters
    integers = lambda x: np.array([TO_INTEGER[mode](Fraction(float(v))) for v in x], object)
    return Entry(name, a, integers, 0.0 if low == 0 else -spread, spread, result=b)


def entries(name: str) -> list[Entry]:
    """What is known of a function; nothing for one that this table lacks."""
    if name in ENTRIES:
        return ENTRIES[name]
    arithmetic = ARITHMETIC.fullmatch(name)
    if arithmetic:
        operation, mode = arithmetic.groups()
        count = {"rcp": 1, "sqrt": 1, "fma": 3}.get(operation, 2)
        low = 0.1 if operation == "sqrt" else -3.0
        return [Entry(name, "r" * count, directed(operation, mode, None), low, rtol=0)]
    return [convert(name)] if CONVERSION.fullmatch(name) else []


def arguments(item: Entry, real: str) -> list[Any]:
    """16 values for each argument, spread over the domain, no two arguments alike."""
    out = []
    generator = np.random.default_rng(sum(map(ord, item.name)))
    for place, letter in enumerate(item.letters):
        if letter == "s":
            out.append(SPECIAL.astype(DTYPES[real]))
            continue
        kind = DTYPES[real if letter == "r" else letter]
        if np.dtype(kind).kind in "iu":
            low, high = (item.low, item.high) if "r" not in item.letters else (0 if item.name[1] == "n" else -3, 4)
            out.append(generator.integers(int(low), int(high), 16, dtype=np.int64 if high < 2**63 else np.uint64).astype(kind))
        else:
            out.append((generator.permutation(16) / 15 * (item.high - item.low) + item.low + 0.001 * (place + 1)).astype(kind))
    return out


@cache
def kernels() -> Any:
    """The module of all kernels."""
    lines = ["import triton", "import triton.language as tl", "import triton.language.extra.libdevice", "", ""]
    counts = {item.name: len(item.letters) for name in all_names() for item in entries(name)}
    for spelling in (GENERIC, CUDA, HIP):
        for name in all_names():
            if f"{spelling}.{name}" in installed() and name in counts:
                pointers = [f"p{k}" for k in range(counts[name])]
                loads = ", ".join(f"tl.load({p} + i)" for p in pointers)
                lines += [
                    "@triton.jit",
                    f"def {spelling.replace('.', '_')}_{name}({', '.join(pointers)}, out):",
                    "    i = tl.arange(0, 16)",
                    f"    tl.store(out + i, {spelling}.{name}({loads}))",
                    "",
                    "",
                ]
    path = Path(tempfile.mkdtemp(prefix="tritontrace-language-")) / "library_kernels.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("library_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def all_names() -> tuple[str, ...]:
    """Every function's name, without its spelling."""
    return tuple(sorted({name.rpartition(".")[2] for name in installed() if ".libdevice." in name}))


TORCH = {np.dtype(np.uint32): torch.uint32, np.dtype(np.uint64): torch.uint64}


def check(run: Run, name: str) -> None:
    for spelling, target in TARGETS.items():
        if f"{spelling}.{name}" not in installed():
            continue
        kernel = getattr(kernels(), f"{spelling.replace('.', '_')}_{name}")
        targets = [target]
        if spelling == GENERIC:
            has_cuda, has_hip = f"{CUDA}.{name}" in installed(), f"{HIP}.{name}" in installed()
            targets = ["cuda:90"] * has_cuda + ["hip:gfx942"] * has_hip
        for chosen in targets:
            for item in entries(name):
                for real in item.only if any(letter in "rs" for letter in item.letters) else "f":
                    compare(run, kernel, item, real, chosen)


def compare(run: Run, kernel: Any, item: Entry, real: str, target: str) -> None:
    values = arguments(item, real)
    kind = DTYPES[real if item.result == "r" else item.result]
    exact = np.dtype(kind).kind in "iu" or item.rtol == 0 or CONVERSION.fullmatch(item.name) or item.name == "nextafter"
    inputs = values if exact else [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
    wanted = np.asarray(item.reference(*inputs))
    out = run.out(16, dtype=getattr(torch, np.dtype(kind).name))
    run(kernel, (1,), *(torch.from_numpy(v) for v in values), out, target=target)
    if np.dtype(kind).kind in "iu":
        bits = np.dtype(kind).itemsize * 8
        whole = np.array([int(v) % (1 << bits) for v in wanted], f"u{bits // 8}").view(kind)
        run.equal(out, whole)
    elif exact:
        run.equal(out, wanted.astype(kind))
    else:
        tolerance = item.rtol / (item.finer if real == "d" else 1)
        run.close(out, wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def make(name: str) -> Case:
    spelled = frozenset(f"{spelling}.{name}" for spelling in TARGETS)
    modules = frozenset({GENERIC, CUDA, HIP}) if name == "sin" else frozenset()
    return Case(f"library.{name}", spelled | modules, lambda run: check(run, name))


CASES.extend(make(name) for name in all_names() if entries(name))
