"""Triton's language as our frontends see it: private copies of its functions, over namespaces of their own.

The copies have the code of Triton's functions and the originals' settings; their globals are private modules, filled once
with originals (see `originals`). So what runs for a launch of ours never looks at what ``triton.language`` holds at that moment,
and nothing is written there. Classes are shared, as types are compared and users hold them. Those of values whose methods are
Triton's builtins have a private subclass each, which the copies use; a value that a shared type made, as the class itself, is
changed to it (`adopt`).

A user's own builtin (``@tl.core.builtin``, ``@tl.core.extern``) is copied over a namespace that asks the user's module whenever
it is asked itself, and translates the answer.
"""

from __future__ import annotations

import builtins
import dis
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton
import triton.language as tl

from tritontrace.forking import fork_safe
from tritontrace.kernels import compat, originals
from tritontrace.kernels.weak import WeakIdentityMap

__all__ = ["adopt", "copied", "method", "module", "subclass", "translated", "value_class"]

_LANGUAGE = "triton.language"
_EXTRA = "triton.language.extra"
_CODE_GENERATOR = "triton.compiler.code_generator"

# Not all that the interpreter adds to `tl.tensor` has an original; Python's own conduct then.
_PYTHONS_OWN = {"__bool__": lambda self: True, "__repr__": object.__repr__}

_LOCK = fork_safe(threading.RLock())
_depth = 0
_modules: dict[int, types.ModuleType] = {}
"""By the id of the namespace that it is a copy of; Triton's modules live for ever."""
_copies: dict[int, tuple[Any, Any]] = {}
"""id of a function of Triton's -> (it, its copy); a copy is its own."""
# What is being made: others must not see a copy before its namespace is full.
_new_modules: dict[int, types.ModuleType] = {}
_new_copies: dict[int, tuple[Any, Any]] = {}
_users: WeakIdentityMap[Any] = WeakIdentityMap()
_classes: dict[type, type] = {}


@contextmanager
def _making() -> Iterator[None]:
    global _depth
    with _LOCK:
        _depth += 1
        try:
            yield
            if _depth == 1:
                _copies.update(_new_copies)
                _modules.update(_new_modules)
        finally:
            _depth -= 1
            if _depth == 0:
                _new_copies.clear()
                _new_modules.clear()


def _is_tritons(name: Any) -> bool:
    return isinstance(name, str) and (name in (_LANGUAGE, _CODE_GENERATOR) or name.startswith(f"{_LANGUAGE}."))


# -- modules --------------------------------------------------------------------------------------------------------------


def module(original: types.ModuleType) -> Any:
    """The private copy of a module of Triton's language (of ``triton`` itself, one in which ``language`` is private)."""
    key = id(vars(original))
    known = _modules.get(key)
    if known is not None:
        return known
    with _making():
        known = _modules.get(key) or _new_modules.get(key)
        if known is None:
            known = _new_modules[key] = types.ModuleType(original.__name__, original.__doc__)
            vars(known)["__builtins__"] = builtins
            _fill(known, original)
    return known


def _fill(copy: types.ModuleType, original: types.ModuleType) -> None:
    namespace = vars(copy)
    if original is triton:
        namespace.update(vars(original))
        namespace["language"] = module(tl)
        return
    for name, value in originals.originals(original).items():
        namespace[name] = _in_namespace(value, vars(original))
    for name, value in list(namespace.items()):
        if isinstance(value, type):
            namespace[name] = value_class(value)
    if original.__name__ == _CODE_GENERATOR:
        from tritontrace.kernels.building import code_generators_own

        namespace.update(code_generators_own(namespace))


def _in_namespace(value: Any, home: dict[str, Any]) -> Any:
    """What a private namespace has where `home`, whose copy it is, has `value`."""
    kind = type(value)
    if kind is types.ModuleType:
        # `extra` has hundreds of functions, which only a kernel that asks for them needs
        extra = value.__name__.startswith(_EXTRA) and not str(home.get("__name__")).startswith(_EXTRA)
        return module(value) if value is triton or (_is_tritons(value.__name__) and not extra) else value
    if kind is types.FunctionType and value.__globals__ is home:
        return copied(value)
    return translated(value)


# -- functions ------------------------------------------------------------------------------------------------------------


def translated(value: Any) -> Any:
    """What a frontend uses where the user's code has `value`: the private copy of a builtin; anything else as it is."""
    value = originals.function(value)
    if type(value) is types.FunctionType:
        known = _copies.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        return copied(value) if getattr(value, "__triton_builtin__", False) else value
    return value


def copied(function: Any) -> Any:
    """The private copy of a function: one for each, and none of our own functions."""
    home, namespace = function.__module__, function.__globals__
    if str(home).startswith("tritontrace."):
        return function
    if not _is_tritons(home):
        return _users.get_or_create(function, lambda: _filled(_bare(function, _namespace(namespace)), function))
    with _making():
        known = _copies.get(id(function)) or _new_copies.get(id(function))
        if known is not None:
            return known[1]
        made = _bare(function, _namespace(namespace))
        known = _new_copies.get(id(function))  # making its namespace may have made it
        if known is not None:
            return known[1]
        _new_copies[id(made)] = (made, made)
        _new_copies[id(function)] = (function, made)
        return _filled(made, function)


def method(bound: types.MethodType) -> Any:
    """The private copy of a bound method that takes ``_semantic``, as those of a user's own value classes may."""
    function = bound.__func__
    if type(function) is not types.FunctionType or "_semantic" not in function.__code__.co_varnames:
        return bound
    return types.MethodType(copied(function), bound.__self__)


def _namespace(original: dict[str, Any]) -> dict[str, Any]:
    name = original.get("__name__")
    owner = sys.modules.get(name) if isinstance(name, str) and _is_tritons(name) else None
    return vars(module(owner)) if owner is not None and vars(owner) is original else _UsersNamespace(original)


class _UsersNamespace(dict[str, Any]):
    """The globals of a user's builtin: what its module has at that moment, translated."""

    def __init__(self, original: dict[str, Any]) -> None:
        super().__init__({"__builtins__": original.get("__builtins__", builtins), "__name__": original.get("__name__")})
        self._original = original

    def __missing__(self, name: str) -> Any:
        return _in_namespace(self._original[name], self._original)


def _bare(function: Any, namespace: dict[str, Any]) -> Any:
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    made = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__dict__.update(function.__dict__)
    return made


def _filled(made: Any, function: Any) -> Any:
    """`made` with what the closure of `function` holds: a decorator's wrapper has the function that it wraps there."""
    for cell, original in zip(made.__closure__ or (), function.__closure__ or ()):
        try:
            contents = original.cell_contents
        except ValueError:
            continue
        cell.cell_contents = copied(contents) if type(contents) is types.FunctionType else translated(contents)
    return made


# -- classes --------------------------------------------------------------------------------------------------------------


def subclass(cls: type) -> Any:
    """A private subclass of a class of Triton's, in which all functions of its own and of its bases there are copies."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not _is_tritons(base.__module__):
            continue
        for name, value in originals.originals(base).items():
            copied = _member(value)
            if copied is not None:
                members[name] = copied
            elif name in members:
                members[name] = value
    bases = (cls, *(value_class(base) for base in cls.__bases__ if value_class(base) is not base))
    return type(cls)(cls.__name__, bases, {**members, "__module__": cls.__module__, "__qualname__": cls.__qualname__})


def _member(value: Any) -> Any:
    kind = type(value)
    if kind is types.FunctionType:
        return copied(value)
    if kind is property:
        fget, fset, fdel = (part and _member(part) for part in (value.fget, value.fset, value.fdel))
        return property(fget, fset, fdel, value.__doc__)
    if kind is staticmethod or kind is classmethod:
        inner = _member(value.__func__)
        return None if inner is None else kind(inner)
    return None


def value_class(cls: type) -> Any:
    """The private subclass of a class of values in which the interpreter may have replaced something; others as they are."""
    known = _classes.get(cls)
    if known is None:
        if not _is_tritons(cls.__module__) or not issubclass(cls, tl.core.base_value):
            return cls
        with _making():
            module(tl.core)  # which makes those of its classes
            known = _classes.get(cls)
            if known is None:
                known = cls
                if _has_builtins(cls):
                    known = subclass(cls)
                    for name, function in _PYTHONS_OWN.items():
                        if name not in vars(known):
                            setattr(known, name, function)
                _classes[cls] = known
                _classes[known] = known
    return known


def _has_builtins(cls: type) -> bool:
    """Whether methods of `cls` are builtins, or call one by its name in their module."""
    core = module(tl.core)
    for base in cls.__mro__:
        for value in originals.originals(base).values() if _is_tritons(base.__module__) else ():
            if type(value) is types.FunctionType:
                if getattr(value, "__triton_builtin__", False):
                    return True
                named = {name for name in value.__code__.co_names if getattr(vars(core).get(name), "__triton_builtin__", False)}
                if named and any(i.opname == "LOAD_GLOBAL" and i.argval in named for i in dis.get_instructions(value)):
                    return True
    return False


_tuple: Any = compat.require(tl, "tuple")


def adopt(value: Any, tensor: type) -> Any:
    """`value` with every plain `tl.tensor` in it made a `tensor`, and descriptors and block pointers made private.

    Values are made anew by the builtins of one launch, so nobody else has them.
    """
    kind = type(value)
    if kind is tensor or kind is compat.constexpr:
        return value
    if kind is tl.tensor or kind is value_class(tl.tensor):
        value.__class__ = tensor
    elif kind is tuple or kind is list:
        for item in value:
            adopt(item, tensor)
    elif kind is _tuple:
        adopt(value.values, tensor)
    elif isinstance(value, tl.core.base_value):
        private = value_class(kind)
        if private is not kind:
            object.__setattr__(value, "__class__", private)
        if isinstance(value, tl.core.tensor_descriptor_base):
            for part in ("shape", "strides"):
                adopt(getattr(value, part, None), tensor)
        elif getattr(kind, "__triton_aggregate__", False):
            adopt(list(vars(value).values()), tensor)
    return value
