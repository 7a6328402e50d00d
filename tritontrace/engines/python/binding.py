"""What a rewritten kernel calls instead of each function that its source names: decided by the object, when it is called.

So aliases, closures and ``from triton.language import load`` need no names to be patched. What was found for an object is kept by
its identity; entries of objects that may die go with them.
"""

from __future__ import annotations

import builtins
import collections
import functools
import types
import weakref
from typing import Any

import numpy as np
import triton.language as tl

from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.loops import LoopRange, StaticRange, python_range
from tritontrace.engines.python.state import current
from tritontrace.engines.python.values import TracedTensor, adopt, injected, takes_semantic
from tritontrace.errors import UnsupportedOpError
from tritontrace.kernels import compat, originals, private

__all__ = ["Generator", "bind", "device_assert", "get", "member", "plain"]

_constexpr: Any = compat.constexpr
_core: Any = private.module(tl.core)
_BOUND: dict[int, tuple[Any, Any]] = {}
_PYTHONS = (list, dict, set, frozenset, str, tuple, collections.deque)
"""Whose methods know nothing of Triton: a constant that is looked up or appended is what it holds."""
_COLLECTIONS = (set, frozenset, dict, collections.Counter)


class Generator:
    """What Triton's builtins take as ``_generator``: they call functions of the user's through it."""

    def call_JitFunction(self, function: Any, args: Any, kwargs: Any, caller_context: Any = None) -> Any:
        result = bind(function)(*[adopt(a) for a in args], **kwargs)
        if isinstance(result, (bool, int, float, _constexpr)):
            return current().semantic.to_tensor(result)
        if isinstance(result, tuple):
            return tuple(current().semantic.to_tensor(r) for r in result)
        return result


def plain(value: Any) -> Any:
    """What Python's own containers get: of a compile-time constant, and of those in a tuple, what it holds."""
    kind = type(value)
    if kind is tuple or (kind is tl.tuple and value.type.fields is None):
        return tuple(map(plain, value))
    return value.value if kind is _constexpr else value


def bind(function: Any) -> Any:
    """What to call instead of `function`."""
    entry = _BOUND.get(id(function))
    if entry is not None and entry[0]() is function:
        return entry[1]
    return _bind(function)


def member(owner: Any, name: str) -> Any:
    """What to call instead of ``owner.name``."""
    if type(owner) is types.ModuleType:
        owner = _module(owner)
        return bind(_of_module(owner, name))
    if type(owner) is _constexpr and not hasattr(owner, name):
        owner = owner.value
    function = getattr(owner, name)
    if type(owner) is TracedTensor:
        return function
    if isinstance(owner, _core.base_value) and compat.is_function(compat.unwrap(function)) and not isinstance(owner, type):
        inner = bind(function)
        return lambda *args, **kwargs: inner(owner, *args, **kwargs)
    if type(function) is types.BuiltinFunctionType and isinstance(owner, _PYTHONS):
        return lambda *args, **kwargs: function(*map(plain, args), **kwargs)
    return bind(function)


def get(owner: Any, name: str) -> Any:
    """``owner.name`` that is not called; of a compile-time constant, the attribute of what it holds."""
    kind = type(owner)
    if kind is types.ModuleType:
        return _of_module(_module(owner), name)
    if kind is _constexpr and not hasattr(owner, name):
        owner = owner.value
    return getattr(owner, name)


def _of_module(owner: Any, name: str) -> Any:
    """``owner.name``, whatever Triton's interpreter has put there."""
    value = getattr(owner, name)
    return value if id(value) in _BOUND else originals.attribute(owner, name, value)


def _module(module: Any) -> Any:
    """The module that the target has in the place of a generic one (``tl.extra.libdevice``)."""
    mapped = current().builder.module_map
    while module.__name__ in mapped and mapped[module.__name__] is not module:
        module = mapped[module.__name__]
    return module


def _forget(bound: dict[int, Any], key: int, reference: Any) -> None:
    """Called at the end of the process, too, when this module's names are gone already."""
    bound.pop(key, None)


def _keep(function: Any, made: Any) -> Any:
    key = id(function)
    try:
        reference: Any = weakref.ref(function, functools.partial(_forget, _BOUND, key))
    except TypeError:

        def reference() -> Any:
            return function

    _BOUND[key] = (reference, made)
    return made


def _bind(function: Any) -> Any:
    plain = originals.function(compat.unwrap(function))
    if plain is not function:
        return bind(plain)
    kind = type(function)
    if kind is _constexpr:
        return bind(function.value)
    if function is builtins.breakpoint or (getattr(function, "__module__", None) == "pdb" and function.__name__ == "set_trace"):
        from tritontrace.engines.python.debugger import breakpoint_of  # pdb takes a while to import

        return breakpoint_of(function)
    special = _SPECIAL.get(id(function))
    if special is None and getattr(function, "__module__", None) == _core.__name__:
        special = _TRITONS.get(getattr(function, "__qualname__", ""))
    if special is not None:
        return _keep(function, special)
    if compat.is_function(function):
        return _keep(function, _of_triton(function))
    if kind is types.FunctionType:
        if getattr(function, "__module__", None) in current().builder.module_map:
            return bind(getattr(current().builder.module_map[function.__module__], function.__name__))
        return _keep(function, injected(private.copied(function)) if takes_semantic(function) else _plain(function))
    if kind is types.MethodType:
        owner = function.__self__
        if isinstance(owner, _core.base_value) and not isinstance(owner, TracedTensor) and takes_semantic(function):
            return injected(private.method(function))
        return function
    if kind is types.BuiltinFunctionType:
        return _keep(function, _plain(function)) if _owner(function) in ("builtins", "math", "numpy") else function
    if isinstance(function, type):
        if getattr(function, "__triton_aggregate__", False):
            return _aggregate(function)
        if function in _COLLECTIONS or (_owner(function) in ("builtins", "numpy") and not issubclass(function, BaseException)):
            return _keep(function, _plain(function))
        return function
    if _owner(kind) == "numpy":  # a ufunc, or what is dispatched
        return _keep(function, _plain(function))
    if getattr(function, "__triton_builtin__", False) and takes_semantic(function):
        return injected(function)
    return function


def _plain(function: Any) -> Any:
    """A function that knows nothing of Triton gets the values of compile-time constants."""
    if function in _COLLECTIONS or "numpy" in (_owner(function), _owner(type(function))):
        return lambda *args, **kwargs: function(*map(_deep, args), **{name: _deep(value) for name, value in kwargs.items()})
    if _owner(function) not in ("builtins", "math"):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[a.value if isinstance(a, _constexpr) else a for a in args], **kwargs)

    return call


def _owner(function: Any) -> str:
    """The package that a function or class of Python's or numpy's belongs to."""
    return str(getattr(function, "__module__", None)).partition(".")[0]


def _deep(value: Any) -> Any:
    """As `plain`, and in a list, for what reads it at once."""
    return list(map(_deep, value)) if type(value) is list else plain(value)


def _of_triton(function: Any) -> Any:
    if isinstance(function, compat.BoundConstexprFunction):
        owner, inner = function.__self__, function.__func__
        return lambda *args, **kwargs: _evaluated(inner, (owner, *args), kwargs)
    if isinstance(function, compat.ConstexprFunction):
        return lambda *args, **kwargs: _evaluated(function, args, kwargs)
    if compat.is_gluon(function):
        raise UnsupportedOpError(f"{function!r} is written in Gluon, which the Python engine does not run")
    return _helper(function)


def _evaluated(function: Any, args: Any, kwargs: Any) -> Any:
    """A ``@triton.constexpr_function``: plain values in, a compile-time constant out."""

    def value(given: Any) -> Any:
        return given.value if isinstance(given, _constexpr) else given

    inner = function.fn
    if "current_target" in inner.__code__.co_names and inner.__globals__.get("current_target") is _CURRENT_TARGET:
        # Triton asks the driver, which may be another one or none.
        inner = compat.function_with_globals(inner, {"current_target": _current_target})
    result = inner(*map(value, args), **{name: value(v) for name, v in kwargs.items()})
    return result if isinstance(result, _constexpr) else _constexpr(result)


def _helper(function: Any) -> Any:
    from tritontrace.engines.python.language import LANGUAGE
    from tritontrace.engines.python.rewriting import rewritten

    reference = weakref.ref(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        state = current()
        builder = state.builder
        frame, spins = builder.frame, builder.spins
        run = rewritten(reference(), LANGUAGE, state.lines)
        try:
            return run(*args, **kwargs, __program__=builder.program)
        finally:
            # a return from inside a loop leaves the loop too
            builder.frame, builder.spins = frame, spins

    return call


def _aggregate(kind: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        state = current()
        return adopt(kind(*args, _semantic=state.semantic, _generator=state.generator, **kwargs))

    return make


# -- what computes otherwise here than in a compiler ----------------------------------------------------------------------


_CURRENT_TARGET: Any = compat.require(tl.target_info, "current_target")


def _current_target() -> Any:
    return current().target.gpu_target


def _static_assert(condition: Any, message: Any = "", **ignored: Any) -> None:
    if not condition:
        text = message.value if isinstance(message, _constexpr) else message
        raise AssertionError(text or "tl.static_assert failed")


def _static_print(*values: Any, **options: Any) -> None:
    print(*[v.value if isinstance(v, _constexpr) else v for v in values])  # noqa: T201 - the kernel's own print


def _hint(function: Any) -> Any:
    builtin = injected(function)

    def call(block: Any, values: Any) -> Any:
        return builtin(block, _constexpr(values) if isinstance(values, int) else values)

    return call


def _dot_scaled(*args: Any, **kwargs: Any) -> Any:
    # the names of formats are constants to the compiler, and 3.6 looks into them
    def given(value: Any) -> Any:
        return _constexpr(value) if isinstance(value, str) else value

    return injected(_core.dot_scaled)(*map(given, args), **{name: given(value) for name, value in kwargs.items()})


def _condition(test: Any, *options: Any, **named: Any) -> Any:
    return test


def _map_elementwise(scalar_function: Any, *args: Any, pack: Any = 1) -> Any:
    """`tl.map_elementwise`: `scalar_function` of `pack` neighbours, one group after another."""
    state = current()
    pack = pack.value if isinstance(pack, _constexpr) else pack
    function = bind(scalar_function)
    inputs = state.semantic.broadcast_tensors(*args)
    shape = inputs[0].handle.type.shape
    lanes = [np.broadcast_to(x.handle.value, (1, *shape)).reshape(-1) for x in inputs]
    rows: list[list[Any]] = []
    single = True
    for start in range(0, len(lanes[0]), pack):
        scalars = [
            TracedTensor(Handle(v[start + j : start + j + 1], Type((), x.handle.type.element)), x.dtype)
            for v, x in zip(lanes, inputs)
            for j in range(pack)
        ]
        with state.builder.map():
            results = function(*scalars)
        single = not isinstance(results, (tuple, tl.tuple))
        rows.append([state.semantic.to_tensor(r) for r in ((results,) if single else results)])
    out = []
    for first in range(0, len(rows[0]), pack):
        values = np.concatenate([row[first + j].handle.value.reshape(-1) for row in rows for j in range(pack)])
        scalar = rows[0][first]
        element = scalar.handle.type.element
        out.append(
            TracedTensor(Handle(values.reshape(1, *shape), Type(shape, element)), inputs[0].type.with_element_ty(scalar.dtype))
        )
    state.builder.mixed("tt.map_elementwise", [x.handle for x in inputs], [x.handle for x in out])
    return out[0] if single and len(out) == 1 else tuple(out)


def _or_tensors(name: str, python: Any) -> Any:
    builtin = injected(getattr(_core, name))
    plain = _plain(python)

    def call(*args: Any, **kwargs: Any) -> Any:
        return builtin(*args, **kwargs) if any(isinstance(a, tl.tensor) for a in args) else plain(*args, **kwargs)

    return call


def _print(*values: Any, **options: Any) -> None:
    """``print``: tl.device_print where it would take the arguments, as in the compiler, else Python's own."""
    prefix = values[0] if values else None
    prefix = prefix.value if isinstance(prefix, _constexpr) else prefix
    numbers = all(isinstance(v, (tl.tensor, int, float, _constexpr)) for v in values[1:])
    if not options and isinstance(prefix, str) and prefix.isascii() and prefix.isprintable() and len(values) > 1 and numbers:
        _device_print(prefix, *values[1:])
    else:
        print(*[v.value if isinstance(v, _constexpr) else v for v in values], **options)  # noqa: T201 - the kernel's own print


_device_print = injected(_core.device_print)
device_assert = injected(_core.device_assert)
_SPECIAL: dict[int, Any] = {
    id(_CURRENT_TARGET): _current_target,
    id(builtins.range): python_range,
    id(builtins.print): _print,
    id(builtins.min): _or_tensors("builtin_min", builtins.min),
    id(builtins.max): _or_tensors("builtin_max", builtins.max),
}
# By name: what the interpreter has replaced may have been defined again (`originals`), and is another object then.
_TRITONS: dict[str, Any] = {
    "range": LoopRange,
    "static_range": StaticRange,
    "static_assert": _static_assert,
    "static_print": _static_print,
    "map_elementwise": _map_elementwise,
    "dot_scaled": _dot_scaled,
    "condition": _condition,
    **{name: _hint(getattr(_core, name)) for name in ("multiple_of", "max_contiguous", "max_constancy")},
}
