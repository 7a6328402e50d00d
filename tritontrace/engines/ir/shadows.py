"""Stand-ins for the functions of a kernel while Triton's frontend runs, so that none of the originals is touched.

Triton's frontend hashes every JITFunction it meets, and hashing one computes its cache key and writes `hash` and
`used_global_vals` to it; a stale `used_global_vals` makes a later launch of the user's own kernel fail. Under
``TRITON_INTERPRET=1`` the functions of ``triton.language`` themselves are `InterpretedFunction` objects that the frontend
cannot compile. So the frontend never sees an original. A `ShadowWorld` belongs to one lowering, on one thread; it makes a
shadow of each function that the kernel reaches (by global name, closure, attribute, tensor member, argument, default) and
a private code generator asks it about everything it looks up.

The world also knows the target. ``tl.target_info`` asks the driver for it, which may be another one or none; the shadows
of its functions ask the world.
"""

from __future__ import annotations

import ast
import copy
import functools
import threading
import types
import weakref
from typing import Any

import triton
import triton.language as tl

from tritontrace.forking import fork_safe
from tritontrace.kernels import capabilities, compat, private
from tritontrace.kernels.targets import Target
from tritontrace.kernels.watched import UsedGlobal
from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.parsing import undisturbed

__all__ = ["PLAIN", "TENSOR", "ShadowFunction", "ShadowWorld", "note_global"]

TENSOR: Any = private.value_class(tl.tensor)
"""The class of all tensors in here."""

# Values of these types hold no function and are met most often.
PLAIN = frozenset({type(None), bool, int, float, str, TENSOR, tl.dtype, types.ModuleType, types.BuiltinFunctionType})

_CURRENT_TARGET: Any = compat.require(tl.target_info, "current_target")
_templates: WeakIdentityMap[dict[str, Any]] = WeakIdentityMap()


class _Shadow:
    """What the shadows have in common: identity instead of Triton's content hash, and a world."""

    shadow_world: ShadowWorld
    shadow_of: Any

    # Triton's JITCallable.__hash__ is the cache key, which walks all dependencies; identity is what the frontend needs.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def cache_key(self) -> str:
        """Triton's hash of the source and of all that it depends on, computed on shadows; only a real compile asks."""
        finder = functools.partial(_ShadowDependenciesFinder, self.shadow_world)
        compute = compat.function_with_globals(compat.JITCallable.cache_key.fget, {"DependenciesFinder": finder})
        key: str = compute(self)
        return key

    def _take_state(self, original: Any, state: dict[str, Any], world: ShadowWorld) -> None:
        vars(self).update(state)
        self.hash = None
        self.used_global_vals: dict[Any, Any] = {}
        self._hash_lock = fork_safe(threading.RLock())
        self.shadow_of = original
        self.shadow_world = world


class _ShadowDependenciesFinder(compat.DependenciesFinder):  # type: ignore[misc]  # Triton's classes are untyped
    """Triton's walk over what a function depends on, which meets shadows instead of the functions themselves."""

    def __init__(self, world: ShadowWorld, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shadow_world = world

    def record_reference(self, val: Any, var_dict: Any = None, name: Any = None) -> None:
        super().record_reference(self.shadow_world.shadow(val), var_dict, name)


class ShadowFunction(_Shadow, compat.JITFunction):  # type: ignore[misc]  # Triton's classes are untyped
    """The stand-in of one ``@triton.jit`` function: same source, same settings, other names for other functions."""

    signature: Any

    def __init__(self, original: Any, world: ShadowWorld) -> None:
        # Not JITFunction.__init__: that would read the source again and write to Triton's registry of functions.
        state = vars(original) if isinstance(original, compat.JITFunction) else _interpreted_state(original)
        self._take_state(original, state, world)
        self.pre_run_hooks: list[Any] = []
        self.device_caches: dict[Any, Any] = {}
        self._tree: ast.Module | None = None
        # call_JitFunction takes a parameter's default from here; it may be a function.
        parameters = self.signature.parameters.values()
        if any(world.has_functions(parameter.default) for parameter in parameters):
            self.signature = self.signature.replace(
                parameters=[parameter.replace(default=world.shadow(parameter.default)) for parameter in parameters]
            )

    def parse(self) -> ast.Module:
        if self._tree is None:
            self._tree = undisturbed(super().parse)
        return self._tree

    def get_capture_scope(self) -> dict[str, Any]:
        """The globals and closure variables that the source names, with every function in them shadowed."""
        function = self.fn
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        scope: dict[str, Any] = {}
        # Only names in the source can be looked up; a module may hold thousands of others.
        for name in {node.id for node in ast.walk(self.parse()) if isinstance(node, ast.Name)}:
            if name in cells:
                try:
                    scope[name] = self.shadow_world.shadow(cells[name].cell_contents)
                except ValueError:  # the variable has no value yet; the frontend says so if the kernel needs it
                    continue
            elif name in function.__globals__:
                scope[name] = self.shadow_world.shadow(function.__globals__[name])
        return scope


class ShadowConstexprFunction(_Shadow, compat.ConstexprFunction):  # type: ignore[misc]  # Triton's classes are untyped
    """The stand-in of one ``@triton.constexpr_function``; it answers questions about the target from the world."""

    def __init__(self, original: Any, world: ShadowWorld) -> None:
        self._take_state(original, vars(original), world)
        self.fn = world.on_target(original.fn)

    def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        # Triton's own __call__ returns a bare value under TRITON_INTERPRET=1, where this is the compiler all the same.
        result = self.fn(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        return result if _semantic is None else compat.constexpr(result)


class ShadowWorld:
    """The shadows of one lowering, and what it learned: the globals that were read. Belongs to one thread.

    With `tritons_locations` the code has the locations that this Triton gives it, also where later ones are more exact.
    With `lines` the frontend marks where statements begin (see `lines`).
    """

    def __init__(self, target: Target, *, tritons_locations: bool = False, lines: bool = False) -> None:
        self.target = target
        self.lines = lines
        self.keeps_locations = tritons_locations or capabilities.exact_locations()
        self.used_globals: dict[tuple[str, int], UsedGlobal] = {}
        self._shadows: dict[int, Any] = {}
        self._on_target: dict[int, tuple[Any, Any]] = {}
        gpu_target = target.gpu_target

        def current_target() -> Any:
            return gpu_target

        current_target.__triton_builtin__ = True  # type: ignore[attr-defined]  # how Triton marks what a kernel may call
        self._current_target = current_target

    # -- functions ------------------------------------------------------------------------------------------------

    def has_functions(self, value: Any) -> bool:
        """True if `shadow` would return another object."""
        return self.shadow(value) is not value

    def shadow(self, value: Any) -> Any:
        """What the frontend sees instead of `value`: the shadow of a function, a container of shadows, else itself."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is compat.constexpr:
            inner = self.shadow(value.value)
            return value if inner is value.value else compat.constexpr(inner)
        if kind is tuple or kind is list or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            items = [self.shadow(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if issubclass(kind, _Shadow):
            return value
        value = compat.unwrap(value)
        if compat.is_function(value):
            return self._shadow_of(value)
        if value is _CURRENT_TARGET:
            return self._current_target
        return private.translated(value)

    def _shadow_of(self, function: Any) -> Any:
        known = self._shadows.get(id(function))
        if known is not None:
            return known
        made: Any
        if isinstance(function, compat.BoundConstexprFunction):
            made = compat.BoundConstexprFunction(function.__self__, self.shadow(function.__func__))
        elif isinstance(function, compat.ConstexprFunction):
            made = ShadowConstexprFunction(function, self)
        elif compat.is_gluon(function):
            return function
        else:
            made = ShadowFunction(function, self)
        self._shadows[id(function)] = made
        # A bound function is made anew at each access; keep it, or its id may come again for another one.
        made.shadow_of = function
        return made

    def member(self, owner: Any, value: Any) -> Any:
        """What ``owner.attribute`` is, given what Triton's own lookup found for it."""
        kind = type(value)
        if kind is compat.MethodOfValue:
            return compat.MethodOfValue(value.__self__, self.shadow(value.__func__))
        if kind is types.MethodType:
            # Under TRITON_INTERPRET=1 `x.sum` is a plain function that forwards to the InterpretedFunction.
            inner = _forwarded(value.__func__)
            if inner is not None:
                return compat.MethodOfValue(value.__self__, self.shadow(inner))
            return private.method(value)
        shadow = self.shadow(value)
        if shadow is not value and isinstance(shadow, ShadowFunction) and isinstance(owner, tl.core.base_value):
            # Triton bound a JITFunction to its value already; an interpreted one or a proxy came through as it was.
            return shadow if isinstance(owner, compat.constexpr) else compat.MethodOfValue(owner, shadow)
        return shadow

    # -- the target -----------------------------------------------------------------------------------------------

    def on_target(self, function: Any) -> Any:
        """A plain Python function, as it is or as a copy whose global names about the target ask this world."""
        if not isinstance(function, types.FunctionType):
            return function
        known = self._on_target.get(id(function))
        if known is not None:
            return known[1]
        self._on_target[id(function)] = (function, function)  # ends the recursion of functions that call each other
        replaced: dict[str, Any] = {}
        names = _names_in(function.__code__)
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                if isinstance(value, types.ModuleType) and value is not tl.target_info and "target_info" not in names:
                    continue  # nothing about the target is reached through this module
                other = self._host_value(value)
                if other is not value:
                    replaced[name] = other
        cells = function.__closure__ or ()
        contents = [_contents(cell) for cell in cells]
        new_contents = [self._host_value(value) for value in contents]
        if not replaced and all(new is old for new, old in zip(new_contents, contents, strict=True)):
            return function
        changed = types.FunctionType(
            function.__code__,
            {**function.__globals__, **replaced},
            function.__name__,
            function.__defaults__,
            tuple(
                cell if new is old else types.CellType(new) for cell, new, old in zip(cells, new_contents, contents, strict=True)
            )
            or None,
        )
        changed.__kwdefaults__ = function.__kwdefaults__
        changed.__qualname__ = function.__qualname__
        self._on_target[id(function)] = (function, changed)
        return changed

    def _host_value(self, value: Any) -> Any:
        """What Python code that runs at compile time sees for a global of its own."""
        if value is _CURRENT_TARGET:
            return self._current_target
        if isinstance(value, types.ModuleType):
            return self._host_module(value)
        if isinstance(value, compat.ConstexprFunction) and not isinstance(value, _Shadow):
            return self._shadow_of(value) if self.on_target(value.fn) is not value.fn else value
        return value

    def _host_module(self, module: types.ModuleType) -> types.ModuleType:
        # `tl.target_info.is_cuda()` in Python code goes through modules: copies of the (at most three) modules on the
        # way, with the functions replaced. Triton's own modules stay as they are.
        known = self._on_target.get(id(module))
        if known is not None:
            other: types.ModuleType = known[1]
            return other
        replaced: dict[str, Any] = {}
        if module is tl.target_info:
            replaced = {
                name: self.shadow(value)
                for name, value in vars(module).items()
                if value is _CURRENT_TARGET or isinstance(value, compat.ConstexprFunction)
            }
        elif module is tl:
            replaced = {"target_info": self._host_module(tl.target_info)}
        elif module is triton:
            replaced = {"language": self._host_module(tl)}
        if not replaced:
            return module
        copied = types.ModuleType(module.__name__, module.__doc__)
        vars(copied).update(vars(module))
        vars(copied).update(replaced)
        self._on_target[id(module)] = (module, copied)
        return copied

    # -- what was read --------------------------------------------------------------------------------------------

    def record_global(self, function: ShadowFunction, name: str, value: Any) -> None:
        """Remember that `function` read the global `name`, as Triton does for what may change between launches."""
        note_global(self.used_globals, function.fn, name, value)

    def record_dependencies(self) -> None:
        """The same for all that Triton's walk for its hash met: a compile that a cache on disk answers looks nothing up."""
        functions = [shadow for shadow in self._shadows.values() if isinstance(shadow, ShadowFunction)]
        readers = {id(function.fn.__globals__): function for function in functions}
        for function in functions:  # Triton 3.6 does not give a caller what its helpers use
            for (name, namespace), (value, _) in function.used_global_vals.items():
                if namespace in readers:
                    self.record_global(readers[namespace], name, value)


def note_global(used: dict[tuple[str, int], UsedGlobal], reader: Any, name: str, value: Any) -> None:
    """Add to `used` that the Python function `reader` read the global `name`, if that may change."""
    namespace = reader.__globals__
    key = (name, id(namespace))
    # A closure variable is not watched, as Triton does not: a kernel made in a loop keeps what it was compiled with.
    if key in used or name in reader.__code__.co_freevars or name not in namespace:
        return
    if value is None or not _can_change(value):
        return
    original = namespace[name]
    try:
        value_then = copy.deepcopy(original)
    except Exception:  # whatever an object's own copying raises; it can still be told from another object
        value_then = original
    used[key] = (name, weakref.ref(reader), original, value_then)


def _can_change(value: Any) -> bool:
    """Triton's rule for a global worth watching: not a module, a function, or something of the language itself."""
    if isinstance(value, types.ModuleType) or getattr(value, "__triton_builtin__", False):
        return False
    if isinstance(value, compat.constexpr):
        return not isinstance(value.value, compat.JITCallable)
    return not callable(value)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names_in(code: types.CodeType) -> set[str]:
    """The global and attribute names in a function's code and in the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, compat.constexpr) else value


def _forwarded(function: Any) -> Any:
    """The InterpretedFunction that a member function of ``tl.tensor`` forwards to, or None."""
    interpreted = compat.interpreted_function_class()
    if interpreted is None or getattr(function, "__module__", None) != tl.core.__name__:
        return None
    for cell in getattr(function, "__closure__", None) or ():
        value = _contents(cell)
        if type(value) is interpreted:
            return value
    return None


def _interpreted_state(original: Any) -> dict[str, Any]:
    """The attributes that a JITFunction of an InterpretedFunction's source has; kept while the original lives."""

    def create() -> dict[str, Any]:
        made = object.__new__(compat.JITFunction)
        initialise = compat.JITFunction.__init__
        if capabilities.function_registry():
            # The registry is for kernels of the user; the entry there, if any, is not ours to replace.
            initialise = compat.function_with_globals(initialise, {"_triton_jit_function_registry": {}})
        initialise(made, original.fn, **compat.require(original, "kwargs"))
        # Kept only while the original lives: nothing in here may lead back to it.
        return {name: value for name, value in vars(made).items() if name not in ("fn", "__globals__", "device_caches")}

    state = _templates.get_or_create(original, create)
    return {**state, "fn": original.fn, "__globals__": original.fn.__globals__}
