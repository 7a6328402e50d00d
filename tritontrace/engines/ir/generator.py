"""Triton's code generator over shadows and private copies: it meets nothing of the user's, and nothing that may be replaced."""

from __future__ import annotations

import ast
import logging
import os
import types
from typing import Any, ClassVar

import triton
import triton.language as tl
from triton.language import semantic as _semantic

from tritontrace.engines.ir.lines import statement_mark
from tritontrace.engines.ir.recursion import ReturnTypes
from tritontrace.engines.ir.shadows import PLAIN, TENSOR, ShadowFunction, ShadowWorld
from tritontrace.kernels import compat, originals, private
from tritontrace.kernels.building import file_columns

__all__ = ["ShadowCodeGenerator", "ast_to_ttir"]

logger = logging.getLogger(__name__)


class _TargetSemantic(private.subclass(compat.require(_semantic, "TritonSemantic"))):  # type: ignore[misc]  # made at run time
    """Triton's semantics, except that what the target can do is asked of the world and not of a driver."""

    shadow_world: ShadowWorld
    tensor = TENSOR

    def _has_native_tma(self) -> bool:
        target = self.shadow_world.target
        return target.backend == "cuda" and int(target.arch) >= 90


_TRITON = os.path.dirname(triton.__file__) + os.sep


class Skipped(ast.Pass):
    """The ``else`` of an ``if`` that has none, where lines are marked."""


_Private: Any = private.subclass(compat.CodeGenerator)


def _translated_key(function: Any) -> Any:
    # Python's print stands for static_print, if Triton's module came to be while its interpreter's functions were in place.
    return private.module(tl.core).static_print if function is print else private.translated(function)


class ShadowCodeGenerator(_Private):  # type: ignore[misc]  # made at run time
    """Triton's code generator over shadows: every function it looks up or is given goes through the world."""

    builtin_namespace: ClassVar[Any] = {name: private.translated(value) for name, value in _Private.builtin_namespace.items()}
    statically_implemented_functions: ClassVar[Any] = {
        _translated_key(function): way for function, way in _Private.statically_implemented_functions.items()
    }
    builder: Any
    function_ret_types: Any

    def __init__(self, context: Any, prototype: Any, gscope: Any, *args: Any, jit_fn: ShadowFunction, **kwargs: Any) -> None:
        self.shadow_world = jit_fn.shadow_world
        super().__init__(context, prototype, gscope, *args, jit_fn=jit_fn, **kwargs)
        returned: Any = self.function_ret_types
        if not isinstance(returned, ReturnTypes):  # the kernel's own; callees get the kernel's
            self.function_ret_types = ReturnTypes(returned)
        self._keeps_locations = self.shadow_world.keeps_locations
        if not self._keeps_locations:
            self.builder = file_columns(context, self.builder, jit_fn, kwargs["file_name"], kwargs["begin_line"])
        self.semantic = _TargetSemantic(self.builder)
        self.semantic.shadow_world = self.shadow_world

    def _define_name_lookup(self) -> Any:
        lookup = super()._define_name_lookup()
        world = self.shadow_world

        def shadow_lookup(name: str) -> Any:
            value = lookup(name)
            if name not in self.lscope and name in self.gscope and not self.visiting_arg_default_value:
                world.record_global(self.jit_fn, name, value)
            return value

        return shadow_lookup

    def visit(self, node: Any) -> Any:
        if self.shadow_world.lines and isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
            self._mark_statement(node)
            if type(node) is ast.If and not node.orelse:
                # Where the condition is false there is nothing to see, unless something stands there.
                node = ast.copy_location(ast.If(test=node.test, body=node.body, orelse=[Skipped()]), node)
                ast.copy_location(node.orelse[0], node)
        if self._keeps_locations:
            value = super().visit(node)
        else:
            outer = self.builder.get_loc()
            value = super().visit(node)
            if outer:
                self.builder.set_loc(outer)
        return value if type(value) in PLAIN else self.shadow_world.shadow(private.adopt(value, TENSOR))

    def set_value(self, name: str, value: Any) -> None:
        super().set_value(name, private.adopt(value, TENSOR))

    def _mark_statement(self, node: Any) -> None:
        if self.file_name.startswith(_TRITON) or not hasattr(node, "lineno"):
            return  # Triton makes statements of its own for parameters with a default value
        taken = not isinstance(node, Skipped)
        self.builder.create_print(statement_mark(self.file_name, self.begin_line + node.lineno, taken), False, [], [])

    def visit_Skipped(self, node: Any) -> None:
        """What stands for the ``else`` that an ``if`` has not."""

    def get_Attribute(self, lhs: Any, attr: Any) -> Any:
        value = super().get_Attribute(lhs, attr)
        if type(lhs) is types.ModuleType:
            value = originals.attribute(lhs, attr, value)
        return self.shadow_world.member(lhs, value)

    def call_JitFunction(self, fn: Any, args: Any, kwargs: Any, *rest: Any, **named: Any) -> Any:
        # Built-in operations call this with combine functions that never went through a lookup.
        for value in (*args, *kwargs.values()):
            private.adopt(value, TENSOR)
        return private.adopt(_call_jit_function(self, self.shadow_world.shadow(fn), args, kwargs, *rest, **named), TENSOR)


# Triton's code names the class it makes for a callee, and for the kernel itself, by a global name.
_call_jit_function = compat.function_with_globals(
    compat.require(_Private, "call_JitFunction"), {"CodeGenerator": ShadowCodeGenerator}
)


def _print_module(module: Any) -> None:
    logger.debug("the module that did not verify:\n%s", module)


ast_to_ttir = compat.function_with_globals(
    private.copied(compat.AST_TO_TTIR), {"CodeGenerator": ShadowCodeGenerator, "print": _print_module}
)
