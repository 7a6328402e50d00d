"""The one place that reaches into Triton's internals: every name is checked when it is taken.

Triton has no public API for binding a launch or for running its frontend alone. Everything that tritontrace takes from
inside Triton is taken here, so that a version that moved something fails, when the first session opens, with one sentence
that names the missing parts and the versions that are tested, and not with an AttributeError in the middle of a launch.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import triton
import wrapt

from tritontrace.errors import UnsupportedTritonError
from tritontrace.kernels import capabilities
from tritontrace.kernels.capabilities import lacks, take

__all__ = [
    "AST_TO_TTIR",
    "ASTSource",
    "BoundConstexprFunction",
    "CodeGenerator",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "ConstexprFunction",
    "DependenciesFinder",
    "GPUTarget",
    "JITCallable",
    "JITFunction",
    "KernelParam",
    "LazyDict",
    "MethodOfValue",
    "MockTensor",
    "OutOfResources",
    "PTXASError",
    "TensorDescriptor",
    "TensorWrapper",
    "UnsupportedLanguageConstruct",
    "compile_source",
    "compiler_environment",
    "constexpr",
    "constexpr_value",
    "create_binder",
    "dtype",
    "filter_traceback",
    "find_paths_if",
    "function_registry",
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
    "unwrap",
]


def require(owner: Any, name: str) -> Any:
    """`owner.name`, or an error that says which part of Triton is missing. For what cannot be taken at import."""
    try:
        return getattr(owner, name)
    except AttributeError:
        where = getattr(owner, "__name__", None) or type(owner).__name__
        raise UnsupportedTritonError(lacks(f"{where}.{name}")) from None


JITCallable: Any = take("triton.runtime.jit.JITCallable")
JITFunction: Any = take("triton.runtime.jit.JITFunction")
ConstexprFunction: Any = take("triton.runtime.jit.ConstexprFunction")
BoundConstexprFunction: Any = take("triton.runtime.jit.BoundConstexprFunction")
KernelParam: Any = take("triton.runtime.jit.KernelParam")
create_binder: Callable[..., Any] = take("triton.runtime.jit.create_function_from_signature")
specialize: Callable[..., Any] = take("triton.runtime.jit.native_specialize_impl")
CompiledKernel: Any = take("triton.compiler.compiler.CompiledKernel")
DependenciesFinder: Any = take("triton.runtime.jit.DependenciesFinder")
compiler_environment: Callable[[], dict[str, str]] = take("triton._C.libtriton.get_cache_invalidating_env_vars")
compile_source: Callable[..., Any] = take("triton.compiler.compiler.compile")
filter_traceback: Callable[[BaseException], None] = take("triton.compiler.compiler.filter_traceback")
ASTSource: Any = take("triton.compiler.compiler.ASTSource")
make_backend: Callable[[Any], Any] = take("triton.compiler.compiler.make_backend")
CodeGenerator: Any = take("triton.compiler.code_generator.CodeGenerator")
AST_TO_TTIR: Any = take("triton.compiler.code_generator.ast_to_ttir")
MethodOfValue: Any = take("triton.compiler.code_generator.BoundJITMethod")
find_paths_if: Callable[..., list[tuple[int, ...]]] = take("triton._utils.find_paths_if")
get_iterable_path: Callable[..., Any] = take("triton._utils.get_iterable_path")
is_namedtuple: Callable[[Any], bool] = take("triton._utils.is_namedtuple")
constexpr: Any = take("triton.language.constexpr")
dtype: Any = take("triton.language.dtype")
ir: Any = take("triton._C.libtriton.ir")
GPUTarget: Any = take("triton.backends.compiler.GPUTarget")
LazyDict: Any = take("triton.compiler.compiler.LazyDict")
TensorDescriptor: Any = take("triton.tools.tensor_descriptor.TensorDescriptor")
TensorWrapper: Any = take("triton.runtime.jit.TensorWrapper")
MockTensor: Any = take("triton.runtime.jit.MockTensor")
PTXASError: Any = take("triton.runtime.errors.PTXASError")
OutOfResources: Any = take("triton.runtime.errors.OutOfResources")
CompileTimeAssertionFailure: Any = take("triton.compiler.errors.CompileTimeAssertionFailure")
UnsupportedLanguageConstruct: Any = take("triton.compiler.errors.UnsupportedLanguageConstruct")

SPLITS_CONSTANT_TUPLES: bool = hasattr(sys.modules[CodeGenerator.__module__], "normalize_value")
"""True where the compiler makes a tuple of constants out of a constant tuple (from Triton 3.8 on)."""

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


def function_registry() -> dict[str, Any]:
    """Triton's registry of JIT functions by name, which making one writes to; an empty dict where there is none."""
    registry: dict[str, Any] = triton.runtime.jit._triton_jit_function_registry if capabilities.function_registry() else {}
    return registry


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
        raise UnsupportedTritonError(
            f"{function.__module__}.{function.__qualname__} of triton {triton.__version__} does not refer to "
            f"{', '.join(missing)}, as tritontrace expects; it is tested with triton {capabilities.tested()}"
        )
    copy = types.FunctionType(
        code, {**function.__globals__, **replaced}, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    return copy
