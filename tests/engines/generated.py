"""Kernels drawn at random: source text over blocks, scalars, masks, loops, branches and reductions of all types."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import hypothesis.strategies as st

HEADER = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
_numbers = itertools.count()


def _binary(names: tuple[str, ...], inner: Any) -> Any:
    return st.tuples(st.sampled_from(names), inner, inner).map(lambda t: f"({t[1]} {t[0]} {t[2]})")


def _call(names: tuple[str, ...], *inner: Any) -> Any:
    return st.tuples(st.sampled_from(names), *inner).map(lambda t: f"{t[0]}({', '.join(t[1:])})")


def _conditions(inner: Any) -> Any:
    compared = _binary(("<", "<=", ">", ">=", "==", "!="), inner)
    return st.one_of(compared, _binary(("&", "|", "^", "and", "or"), compared), compared.map(lambda c: f"(not {c})"))


def _integers(leaf: Any) -> Any:
    def grow(inner: Any) -> Any:
        return st.one_of(
            _binary(("+", "-", "*", "&", "|", "^"), inner),
            inner.map(lambda e: f"({e} >> 3)"),
            inner.map(lambda e: f"({e} << 1)"),
            st.tuples(inner, st.sampled_from((2, 3, 7))).map(lambda t: f"({t[0]} // {t[1]})"),
            st.tuples(inner, st.sampled_from((2, 5))).map(lambda t: f"({t[0]} % {t[1]})"),
            _call(("tl.minimum", "tl.maximum"), inner, inner),
            st.tuples(_conditions(inner), inner, inner).map(lambda t: f"tl.where({', '.join(t)})"),
            st.tuples(inner, st.sampled_from(INTEGERS)).map(lambda t: f"tl.cast({t[0]}, tl.{t[1]})"),
            _call(("tl.sum", "tl.max", "tl.min"), inner.map(lambda e: f"({e}) + tl.zeros([B], tl.int32)"), st.just("axis=0")),
            inner.map(lambda e: f"(~{e})"),
        )

    return st.recursive(leaf, grow, max_leaves=6)


def _floats(leaf: Any) -> Any:
    def grow(inner: Any) -> Any:
        return st.one_of(
            _binary(("+", "-", "*", "/"), inner),
            _call(("tl.minimum", "tl.maximum"), inner, inner),
            st.tuples(_conditions(inner), inner, inner).map(lambda t: f"tl.where({', '.join(t)})"),
            st.tuples(inner, st.sampled_from(FLOATS)).map(lambda t: f"tl.cast({t[0]}, tl.{t[1]})"),
            _call(("tl.max", "tl.min"), inner.map(lambda e: f"({e}) + tl.zeros([B], tl.float32)"), st.just("axis=0")),
            _call(("tl.abs", "-"), inner),
            inner.map(lambda e: f"tl.floor(tl.cast({e}, tl.float32))"),
        )

    return st.recursive(leaf, grow, max_leaves=6)


@st.composite
def kernels(draw: Any) -> tuple[str, str]:
    """(source, the type of `x`, `y` and `out`)."""
    kind = draw(st.sampled_from((*INTEGERS, *FLOATS)))
    leaf = st.sampled_from(("x", "y", "s", "2", "n") if kind in INTEGERS else ("x", "y", "s", "0.5", "2"))
    expression = _integers(leaf) if kind in INTEGERS else _floats(leaf)
    compared = _conditions(st.sampled_from(("at", "n", "3", "pid")))
    lines = [
        "def kernel(x_ptr, y_ptr, out_ptr, n, B: tl.constexpr):",
        "    pid = tl.program_id(0)",
        "    at = pid * B + tl.arange(0, B)",
        f"    mask = (at < n) & {draw(compared)}",
        "    x = tl.load(x_ptr + at, mask=mask, other=1)",
        "    y = tl.load(y_ptr + at % 5, mask=at < n, other=0)",
        "    s = tl.load(y_ptr + pid)",
        f"    out = tl.cast({draw(expression)}, tl.{kind}) + tl.zeros([B], tl.{kind})",
    ]
    for _ in range(draw(st.integers(0, 2))):
        value = f"tl.cast({draw(expression)}, tl.{kind})"
        shape = draw(st.sampled_from(("if", "for", "while", "plain")))
        if shape == "if":
            lines += [f"    if pid {draw(st.sampled_from(('>', '==', '!=')))} 1:", f"        out = (out + {value}).to(tl.{kind})"]
        elif shape == "for":
            step = draw(st.sampled_from(("n % 4", "0, 5, 2", "pid, 4", "4, 0, -1")))
            lines += [f"    for i in range({step}):", f"        out = (out + {value} + i.to(tl.{kind})).to(tl.{kind})"]
        elif shape == "while":
            lines += ["    k = pid", "    while k < 3:", f"        out = (out - {value}).to(tl.{kind})", "        k += 1"]
        else:
            lines += [f"    out = tl.where({draw(compared)}, out, {value}).to(tl.{kind})"]
    lines += ["    tl.store(out_ptr + at, out, mask=at < n)"]
    return HEADER + "\n".join(lines) + "\n", kind


def load(source: str, folder: Path) -> Any:
    """The kernel of a source text, which must lie in a file: Triton reads it from there."""
    path = folder / f"generated_{next(_numbers)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel
