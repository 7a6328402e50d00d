"""Attributes in MLIR's generic text, decoded where they are simple.

``3 : i32`` is an int, ``1.0 : f32`` an array of shape ``()`` in its compute dtype, ``true`` a bool, ``unit`` (no
value) True, ``"text"`` and ``@symbol`` a str, ``array<i32: 1, 0>`` and ``[...]`` a list, ``{...}`` a dict,
``dense<...>`` a numpy array in the compute dtype of its element (shape ``()`` for a splat), a type a `Type`, and
``#dialect.name<...>`` its text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.locations import unescape
from tritontrace.engines.ir.tree import Type, parse_type

__all__ = ["AttributeSyntaxError", "parse_attributes", "scalar_constant"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w]))
    |(?P<symbol>@(?:[\w$.\-]+|"[^"\\]*(?:\\.[^"\\]*)*"))
    |(?P<word>[A-Za-z_][\w$.\-]*)
    |(?P<arrow>->)
    |(?P<other>.))""",
    re.X | re.S,
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class AttributeSyntaxError(ValueError):
    """The text of an attribute dictionary that this parser cannot read; `offset` says where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parse_attributes(text: str) -> dict[str, Any]:
    """The dictionary between (not including) the braces; a fresh dict whose arrays are read-only."""
    # attribute texts repeat endlessly (`axis = 0 : i32`), so they are parsed once; huge constants are not kept
    return dict(_parse_cached(text) if len(text) < 400 else _Reader(text).dictionary())


@lru_cache(maxsize=4096)
def _parse_cached(text: str) -> dict[str, Any]:
    return _Reader(text).dictionary()


def scalar_constant(value: Any, element: str) -> npt.NDArray[Any]:
    """An ``arith.constant``'s scalar as a read-only array of shape ``()`` in the compute dtype."""
    if isinstance(value, np.ndarray):
        return value
    # The same few integers come again and again; floats are not looked up, for 0.0 equals -0.0.
    return _whole_constant(value, element) if type(value) is int else _scalar_constant(value, element)


def _scalar_constant(value: Any, element: str) -> npt.NDArray[Any]:
    dtype = numerics.compute_dtype(element)
    if dtype.kind == "f":
        array = np.asarray(numerics.round_to(np.array(float(value), np.float64), element))
    else:
        array = _integer(int(value), dtype)
    array.flags.writeable = False
    return array


_whole_constant = lru_cache(maxsize=4096)(_scalar_constant)


def _integer(value: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.kind == "b":
        return np.array(bool(value & 1))
    # MLIR prints some widths unsigned (255 : i8), numpy refuses what does not fit: wrap
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return np.array(value - (1 << bits) if value >> (bits - 1) else value, dtype)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    # -- tokens
    def fail(self, message: str) -> AttributeSyntaxError:
        return AttributeSyntaxError(message, self.at)

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match.group().lstrip() if match else ""

    def next(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.fail("unexpected end")
        self.at = match.end()
        kind = match.lastgroup or ""
        return kind, match.group(kind)

    def accept(self, token: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        if match is not None and match.group().lstrip() == token:
            self.at = match.end()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(f"expected {token!r}")

    def balanced(self, stops: str) -> str:
        """The raw text up to (not including) one of `stops` outside all brackets, or to the end."""
        start = self.at
        closers: list[str] = []
        while True:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                if closers:
                    raise self.fail(f"expected {closers[-1]!r}")
                return self.text[start:].strip()
            token = match.group().lstrip()
            if not closers and token in stops:
                return self.text[start : self.at].strip()
            if token in _CLOSING:
                closers.append(_CLOSING[token])
            elif closers and token == closers[-1]:
                closers.pop()
            self.at = match.end()

    def bracketed(self) -> str:
        """The raw text inside ``<...>``, which comes next."""
        self.expect("<")
        inner = self.balanced(">")
        self.expect(">")
        return inner

    # -- grammar
    def dictionary(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.peek():
            kind, key = self.next()
            if kind == "string":
                key = unescape(key[1:-1])
            elif kind != "word":
                raise self.fail(f"expected an attribute's name, not {key!r}")
            found[key] = self.value() if self.accept("=") else True
            if not self.accept(","):
                break
        if self.peek():
            raise self.fail("expected ','")
        return found

    def value(self) -> Any:
        start = self.at
        kind, token = self.next()
        if kind == "string":
            self.type_suffix()
            return unescape(token[1:-1])
        if kind == "symbol":
            return self.symbol(token)
        if kind == "number":
            return self.number(token)
        if kind == "word":
            handler = getattr(self, f"word_{token}", None)
            if handler is not None:
                return handler()
            self.at = start
            return self.type_or_text()
        if token == "[":
            return self.sequence("]")
        if token == "{":
            inner = self.balanced("}")
            self.expect("}")
            return _Reader(inner).dictionary()
        self.at = start
        return self.type_or_text()

    def type_suffix(self) -> Type | None:
        return parse_type(self.balanced(",]}")) if self.accept(":") else None

    def symbol(self, token: str) -> str:
        name = unescape(token[2:-1]) if token.startswith('@"') else token[1:]
        while self.accept(":"):  # @outer::@inner
            self.expect(":")
            name += "::" + self.symbol(self.next()[1])
        return name

    def number(self, token: str) -> Any:
        kind = self.type_suffix()
        if kind is not None and (kind.is_float or token.startswith(("0x", "-0x"))):
            # kept as an array: 0x7FC0 has a meaning in its own format only
            return _frozen(numerics.parse_float(token, kind.element)) if kind.is_float else int(token, 16)
        if "." in token or ("e" in token.lower() and not token.startswith("0x")):
            return float(token)
        return int(token, 0)

    def word_true(self) -> bool:
        return True

    def word_false(self) -> bool:
        return False

    def word_unit(self) -> bool:
        return True

    def word_array(self) -> list[Any]:
        inner = self.bracketed()
        _, _, items = inner.partition(":")
        return [_plain(item.strip()) for item in items.split(",") if item.strip()]

    def word_dense(self) -> Any:
        inner = self.bracketed()
        self.expect(":")
        return _frozen(_dense(inner, parse_type(self.balanced(",]}"))))

    def word_loc(self) -> str:
        self.expect("(")
        inner = self.balanced(")")
        self.expect(")")
        return inner

    def sequence(self, closer: str) -> list[Any]:
        items: list[Any] = []
        while not self.accept(closer):
            items.append(self.value())
            if not self.accept(","):
                self.expect(closer)
                break
        return items

    def type_or_text(self) -> Any:
        text = self.balanced(",]}")
        if not text:
            raise self.fail("expected a value")
        if text.startswith("#") or "->" in text:
            return text
        return parse_type(text)


def _plain(item: str) -> Any:
    if item in ("true", "false"):
        return item == "true"
    return float(item) if "." in item else int(item, 0)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


_ITEM = re.compile(r"true|false|-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def _dense(inner: str, kind: Type) -> npt.NDArray[Any]:
    """The elements of ``dense<inner>``: of shape ``()`` for a splat, else of the type's shape."""
    element = kind.element
    dtype = numerics.compute_dtype(element)
    if inner.startswith('"0x'):
        return _dense_blob(bytes.fromhex(inner[3:-1]), kind)
    if not inner:
        return np.zeros(kind.shape, dtype)
    items = _ITEM.findall(inner)
    if dtype.kind == "f":
        values = np.array([numerics.parse_float(item, element) for item in items], dtype)
    else:
        values = np.array([_integer(_whole(item), dtype) for item in items], dtype)
    return values.reshape(kind.shape if inner.startswith("[") else ())


def _whole(item: str) -> int:
    return int(item == "true") if item in ("true", "false") else int(item, 0)


def _dense_blob(blob: bytes, kind: Type) -> npt.NDArray[Any]:
    """Large constants are printed as their bytes; i1 as one byte an element or, in older versions, as bits."""
    memory = numerics.memory_dtype(kind.element)
    count = int(np.prod(kind.shape, dtype=np.int64))
    if kind.element == "i1" and len(blob) != count:
        if len(blob) == 1:
            return np.array(blob[0] != 0)
        bits = np.unpackbits(np.frombuffer(blob, np.uint8), bitorder="little")
        return bits[:count].astype(np.bool_).reshape(kind.shape)
    raw = np.frombuffer(blob, memory.newbyteorder("<")).astype(memory)
    shape = () if raw.size == 1 and count != 1 else kind.shape
    return np.array(numerics.from_memory(raw.reshape(shape), kind.element))
