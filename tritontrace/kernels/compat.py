"""The one place that reaches into Triton's internals: every name is checked when it is taken.

Triton has no public API for binding a launch or for running its frontend alone. Everything that tritontrace takes from
inside Triton is taken here, so that a version that moved something fails with one sentence that names the missing part
and the versions that are supported, and not with an AttributeError in the middle of a launch.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import triton
import wrapt
from triton.backends.compiler import GPUTarget
from triton.compiler import code_generator as _code_generator
from triton.compiler import compiler as _compiler
from triton.runtime import jit as _jit

from tritontrace.errors import TritonTraceError

__all__ = [
    "AST_TO_TTIR",
    "ASTSource",
    "BoundConstexprFunction",
    "CodeGenerator",
    "CompiledKernel",
    "ConstexprFunction",
    "DependenciesFinder",
    "GPUTarget",
    "JITCallable",
    "JITFunction",
    "KernelParam",
    "MethodOfValue",
    "compile_source",
    "constexpr",
    "constexpr_value",
    "create_binder",
    "filter_traceback",
    "find_paths_if",
    "function_with_globals",
    "get_iterable_path",
    "interpreted_function_class",
    "ir",
    "is_function",
    "is_gluon",
    "is_namedtuple",
    "make_backend",
    "require",
    "specialize",
    "triton_version",
    "unwrap",
]


def triton_version() -> tuple[int, int]:
    """Major and minor version of the Triton that is installed."""
    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def require(owner: Any, name: str) -> Any:
    """`owner.name`, or an error that says which part of Triton is missing."""
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", None) or type(owner).__name__
        raise TritonTraceError(
            f"triton {triton.__version__} has no {where}.{name}, which tritontrace needs; it supports triton 3.6 to 3.9"
        ) from None


JITCallable: Any = require(_jit, "JITCallable")
JITFunction: Any = require(_jit, "JITFunction")
ConstexprFunction: Any = require(_jit, "ConstexprFunction")
BoundConstexprFunction: Any = require(_jit, "BoundConstexprFunction")
KernelParam: Any = require(_jit, "KernelParam")
create_binder: Callable[..., Any] = require(_jit, "create_function_from_signature")
specialize: Callable[..., Any] = require(_jit, "native_specialize_impl")
CompiledKernel: Any = require(_compiler, "CompiledKernel")
DependenciesFinder: Any = require(_jit, "DependenciesFinder")
compile_source: Callable[..., Any] = require(_compiler, "compile")
filter_traceback: Callable[[BaseException], None] = require(_compiler, "filter_traceback")
ASTSource: Any = require(_compiler, "ASTSource")
make_backend: Callable[[Any], Any] = require(_compiler, "make_backend")
CodeGenerator: Any = require(_code_generator, "CodeGenerator")
AST_TO_TTIR: Any = require(_code_generator, "ast_to_ttir")
MethodOfValue: Any = require(_code_generator, "BoundJITMethod")
find_paths_if: Callable[..., list[tuple[int, ...]]] = require(triton._utils, "find_paths_if")
get_iterable_path: Callable[..., Any] = require(triton._utils, "get_iterable_path")
is_namedtuple: Callable[[Any], bool] = require(triton._utils, "is_namedtuple")
constexpr: Any = require(triton.language, "constexpr")
ir: Any = require(_jit if hasattr(_jit, "ir") else _code_generator, "ir")

# wrapt 2 gave ObjectProxy a base of its own; a proxy is recognised by its real class, never by what it claims to be.
_PROXY_CLASS: type = getattr(wrapt, "BaseObjectProxy", wrapt.ObjectProxy)


def interpreted_function_class() -> type | None:
    """Triton's class of kernels decorated under ``TRITON_INTERPRET=1``, or None where nothing can be one.

    The interpreter's module is never imported for the question: an object of its class exists only if it already was.
    """
    module = sys.modules.get("triton.runtime.interpreter")
    return None if module is None else require(module, "InterpretedFunction")


def unwrap(value: Any) -> Any:
    """What a wrapt proxy (a `TritonTrace`) stands for; anything else as it is."""
    while issubclass(type(value), _PROXY_CLASS):
        value = value.__wrapped__
    return value


def is_function(value: Any) -> bool:
    """True for what ``@triton.jit`` and ``@triton.constexpr_function`` make, interpreted ones too; proxies not."""
    kind = type(value)
    if issubclass(kind, JITCallable):
        return True
    interpreted = interpreted_function_class()
    return interpreted is not None and issubclass(kind, interpreted)


def constexpr_value(value: Any) -> Any:
    """The value that a `tl.constexpr` holds; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


def is_gluon(value: Any) -> bool:
    """True for a Gluon kernel, which has a language and an IR of its own."""
    asked = getattr(type(value), "is_gluon", None)
    return bool(asked(value)) if callable(asked) else False


def function_with_globals(function: Any, replaced: dict[str, Any]) -> Any:
    """A copy of a plain Python function that sees other objects under some of its global names.

    This is how a private class stands in for one that Triton's code names globally, without writing to Triton's
    modules. Each replaced name must really be one that the function's code refers to; otherwise Triton has changed.
    """
    code = function.__code__
    missing = [name for name in replaced if name not in code.co_names]
    if missing:
        raise TritonTraceError(
            f"{function.__module__}.{function.__qualname__} of triton {triton.__version__} does not refer to "
            f"{', '.join(missing)} any more; tritontrace supports triton 3.6 to 3.9"
        )
    copy = types.FunctionType(
        code, {**function.__globals__, **replaced}, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy
