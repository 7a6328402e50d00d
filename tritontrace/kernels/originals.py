"""Triton's own functions of ``triton.language``, whatever its interpreter has put in their places.

While Triton's interpreter (``TRITON_INTERPRET=1``) runs a kernel on any thread, the functions of ``triton.language``, its
``core`` and ``math``, and methods of its classes are the interpreter's for the whole process; some of them stay so afterwards. A
launch of ours must not depend on that. Most replacements hold what they stand for. The others are found in what was seen when
tritontrace was imported, under the same name elsewhere, or, where nobody has it any more, by running the definition in
Triton's source again.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import threading
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import triton
import triton.language as tl

from tritontrace.errors import UnsupportedTritonError
from tritontrace.forking import fork_safe
from tritontrace.parsing import undisturbed

__all__ = ["attribute", "behind", "function", "is_replacement", "originals"]

_INTERPRETER = "triton.runtime.interpreter"

_MODULES: tuple[ModuleType, ...] = tuple(
    module for module in (tl, getattr(tl, "core", None), getattr(tl, "math", None)) if isinstance(module, ModuleType)
)
"""The modules in which the interpreter replaces functions."""

_BY_HINT = {"tt.divisibility": "multiple_of", "tt.contiguity": "max_contiguous", "tt.constancy": "max_constancy"}
_BY_NAME = {
    "_new_reduce": "reduce",
    "_new_scan": "associative_scan",
    "_new_static_assert": "static_assert",
    "_new_range": "range",
}


def _classes(module: ModuleType) -> list[type]:
    return [value for value in list(vars(module).values()) if isinstance(value, type) and value.__module__ == module.__name__]


_SEEN: dict[Any, dict[str, Any]] = {owner: dict(vars(owner)) for module in _MODULES for owner in (module, *_classes(module))}
"""What modules and classes held when tritontrace was imported, which is usually before the interpreter has run."""

_LOCK = fork_safe(threading.RLock())
_FOUND: dict[tuple[Any, str], Any] = {}


def is_replacement(value: Any) -> bool:
    """True for what the interpreter puts in the place of a function, a method or a property."""
    kind = type(value)
    if kind is functools.partial:
        value = value.func
    elif kind is property:
        value = value.fget
    # The interpreter also adds its own functions to the modules of kernels; those are no closures.
    return type(value) is FunctionType and value.__module__ == _INTERPRETER and "<locals>" in value.__qualname__


def behind(value: Any) -> Any:
    """What the replacement `value` stands for, through any number of them; None where it does not say. Others as they are."""
    while is_replacement(value):
        value = (getattr(value, "__kwdefaults__", None) or {}).get("member")
    return value


def function(value: Any) -> Any:
    """What a replacement stands for, found by its name if it does not hold it; others as they are."""
    if not is_replacement(value):
        return value
    original = behind(value)
    if original is None:
        name = _BY_HINT.get(value.keywords.get("name", "")) if type(value) is functools.partial else _BY_NAME.get(value.__name__)
        original = value if name is None else _original(tl, name, (vars(tl).get(name), _SEEN[tl].get(name)))
    return original


def attribute(owner: Any, name: str, value: Any) -> Any:
    """`value`, which is ``owner.name`` now (of a module or a class), or the original if it is a replacement.

    None for a name that the interpreter has added to a class.
    """
    # static_print is replaced by Python's own print, which says nothing
    if is_replacement(value) or (value is builtins.print and name == "static_print"):
        return _original(owner, name, (value, _SEEN.get(owner, {}).get(name)))
    return value


def originals(owner: Any) -> dict[str, Any]:
    """The attributes of `owner` (a module or a class) as they are now, with the originals for the interpreter's replacements."""
    found = {name: attribute(owner, name, value) for name, value in list(vars(owner).items())}
    return {name: value for name, value in found.items() if value is not None or vars(owner).get(name) is None}


def _original(owner: Any, name: str, candidates: tuple[Any, ...]) -> Any:
    if owner is tl and hasattr(tl.core, name):
        owner = tl.core  # whose functions are there under their own names: one original for both
    with _LOCK:
        if (owner, name) not in _FOUND:
            _FOUND[owner, name] = _search(owner, name, candidates)
        return _FOUND[owner, name]


def _search(owner: Any, name: str, candidates: tuple[Any, ...]) -> Any:
    """The original, or None for a name that the interpreter has added to a class."""
    if isinstance(owner, ModuleType):
        others = [seen.get(name) for module, seen in _SEEN.items() if isinstance(module, ModuleType)]
        candidates = (*candidates, *others, *(vars(module).get(name) for module in _MODULES), *_held(name))
    for candidate in candidates:
        value = behind(candidate)
        if value is not None and not (value is builtins.print and name == "static_print"):
            return value
    if isinstance(owner, type) and name not in _SEEN.get(owner, {name}):
        return None  # not there before the interpreter
    return _defined_again(owner, name)


def _held(name: str) -> list[Any]:
    """Functions and classes of ``triton.language.core`` that others of Triton's hold for good."""
    from tritontrace.kernels.compat import CodeGenerator

    static = [f for f in getattr(CodeGenerator, "statically_implemented_functions", {}) if getattr(f, "__name__", "") == name]
    values = [c for c in tl.core.base_value.__subclasses__() if c.__name__ == name and c.__module__ == tl.core.__name__]
    return static + values


def _defined_again(owner: Any, name: str) -> Any:
    """What the definition in Triton's source makes, in the module's own namespace, to which nothing is written."""
    module = owner if isinstance(owner, ModuleType) else tl.core
    for node in _definitions(module, None if isinstance(owner, ModuleType) else owner.__name__):
        if node.name == name:
            code = undisturbed(functools.partial(_compiled, node, str(module.__file__)))
            made: dict[str, Any] = {"_tensor_member_fn": lambda function: function}
            exec(code, vars(module), made)
            return made[name]
    if isinstance(owner, ModuleType):
        raise UnsupportedTritonError(
            f"triton's interpreter has replaced {module.__name__}.{name} of triton {triton.__version__}, and its source is not "
            "to be found; import tritontrace before the first launch that is interpreted"
        )
    return None


def _definitions(module: ModuleType, of: str | None) -> list[Any]:
    try:
        body: list[Any] = undisturbed(functools.partial(_parsed, str(module.__file__)))
    except OSError:
        return []
    if of is not None:
        body = next((list(node.body) for node in body if isinstance(node, ast.ClassDef) and node.name == of), [])
    return [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


@functools.lru_cache(maxsize=2)
def _parsed(file: str) -> list[Any]:
    return list(ast.parse(Path(file).read_text(encoding="utf-8")).body)


def _compiled(node: Any, file: str) -> CodeType:
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(ast.Module([node], []), file, "exec", flags, dont_inherit=True)
    return code
