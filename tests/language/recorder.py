"""What the frontend really looked up while it compiled a kernel: the proof that a case uses the names that it claims.

A name counts when the code generator resolved it in live code. Code in a branch that the compiler does not take, a name in a
comment or a string, and a function that is never called from the kernel leave no trace here.
"""

from __future__ import annotations

import ast
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton.language as tl

from tests.language.names import CLASSES, MODULES
from tritontrace.engines.ir.generator import ShadowCodeGenerator

__all__ = ["recording"]

_PREFIX_OF = {id(module): prefix for prefix, module in MODULES.items()}
_PREFIX_OF[id(tl.extra)] = "tl.extra"
_BLOCK_POINTER: Any = getattr(tl.core, "_block_ptr", ())
_current = threading.local()
_METHODS: dict[type, str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__",
    ast.LShift: "__lshift__",
    ast.RShift: "__rshift__",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
    ast.Eq: "__eq__",
    ast.NotEq: "__ne__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
    ast.USub: "__neg__",
    ast.Invert: "__invert__",
    ast.Not: "__not__",
    ast.And: "logical_and",
    ast.Or: "logical_or",
}


def _note(owner: Any, attribute: str) -> None:
    names: set[str] = _current.names
    if isinstance(owner, tl.constexpr):
        owner = owner.value
    prefix = _PREFIX_OF.get(id(owner))
    if prefix is not None:
        names.add(f"{prefix}.{attribute}")
        return
    if isinstance(owner, _BLOCK_POINTER):
        names.add(f"tensor.{attribute}")  # where they are not tensors, they take a tensor's place
    for label, kind in CLASSES.items():
        if isinstance(owner, kind) or owner is kind:
            names.add(f"{label}.{attribute}")


def _written_module(generator: Any, node: ast.expr) -> Any:
    """The module that a bare name stands for in the source; the compiler may have put a target's own in its place."""
    function = generator.jit_fn.shadow_of.fn
    if isinstance(node, ast.Name):
        found = function.__globals__.get(node.id)
        return found if isinstance(found, types.ModuleType) else None
    return None


class _Watch:
    """The methods that stand in for the code generator's while a recording runs."""

    def __init__(self) -> None:
        self.original = {name: getattr(ShadowCodeGenerator, name) for name in self.watched}

    watched = (
        "visit",
        "visit_arguments",
        "visit_Attribute",
        "visit_BinOp",
        "visit_UnaryOp",
        "visit_Compare",
        "visit_BoolOp",
        "visit_Subscript",
    )

    def install(self) -> None:
        original = self.original

        def visit(generator: Any, node: Any) -> Any:
            value = original["visit"](generator, node)
            if getattr(_current, "names", None) is not None and isinstance(node, ast.expr):
                _current.values[id(node)] = (node, value)
            return value

        def visit_attribute(generator: Any, node: Any) -> Any:
            value = original["visit_Attribute"](generator, node)
            if getattr(_current, "names", None) is not None:
                owner = _written_module(generator, node.value)
                _note(_value(node.value) if owner is None else owner, node.attr)
            return value

        def visit_arguments(generator: Any, node: Any) -> Any:
            if getattr(_current, "names", None) is not None:
                for argument in node.args:
                    annotation = argument.annotation
                    if isinstance(annotation, ast.Attribute):
                        _note(_written_module(generator, annotation.value), annotation.attr)
            return original["visit_arguments"](generator, node)

        def operation(method: str) -> Any:
            def visit_operation(generator: Any, node: Any) -> Any:
                value = original[method](generator, node)
                if getattr(_current, "names", None) is not None:
                    for operator, left, right in _operands(node):
                        if type(operator) in _METHODS:
                            _note_operator(_METHODS[type(operator)], left, right)
                return value

            return visit_operation

        def visit_subscript(generator: Any, node: Any) -> Any:
            value = original["visit_Subscript"](generator, node)
            if getattr(_current, "names", None) is not None:
                _note(_value(node.value), "__getitem__")
            return value

        ShadowCodeGenerator.visit = visit
        ShadowCodeGenerator.visit_arguments = visit_arguments
        ShadowCodeGenerator.visit_Attribute = visit_attribute
        ShadowCodeGenerator.visit_BinOp = operation("visit_BinOp")
        ShadowCodeGenerator.visit_UnaryOp = operation("visit_UnaryOp")
        ShadowCodeGenerator.visit_Compare = operation("visit_Compare")
        ShadowCodeGenerator.visit_BoolOp = operation("visit_BoolOp")
        ShadowCodeGenerator.visit_Subscript = visit_subscript

    def remove(self) -> None:
        for name, method in self.original.items():
            if name in self.own:
                setattr(ShadowCodeGenerator, name, method)
            else:
                delattr(ShadowCodeGenerator, name)

    own = frozenset(name for name in watched if name in vars(ShadowCodeGenerator))


def _value(node: ast.expr) -> Any:
    return _current.values.get(id(node), (None, None))[1]


def _operands(node: Any) -> list[tuple[Any, Any, Any]]:
    if isinstance(node, ast.BinOp):
        return [(node.op, _value(node.left), _value(node.right))]
    if isinstance(node, ast.UnaryOp):
        return [(node.op, _value(node.operand), None)]
    if isinstance(node, ast.Compare):
        return [(node.ops[0], _value(node.left), _value(node.comparators[0]))]
    return [(node.op, _value(node.values[0]), _value(node.values[1]))]


def _note_operator(name: str, left: Any, right: Any) -> None:
    if isinstance(left, tl.tensor):
        _note(left, name)
    elif isinstance(right, tl.tensor):
        _note(right, "__r" + name[2:])


@contextmanager
def recording(names: set[str]) -> Iterator[None]:
    """Adds to `names` all public names that kernels use which are compiled on this thread meanwhile."""
    watch = _Watch()
    _current.names, _current.values = names, {}
    watch.install()
    try:
        yield
    finally:
        watch.remove()
        _current.names, _current.values = None, {}
