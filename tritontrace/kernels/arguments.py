"""Binding the arguments of a launch and giving them Triton's types, without a driver and without touching the kernel."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton

from tritontrace.engines.pointers import is_pointer_like, memory_of, view_shape
from tritontrace.kernels import compat
from tritontrace.kernels.targets import Target, backend_for
from tritontrace.kernels.weak import WeakIdentityMap, identity_token
from tritontrace.launch import ArgumentInfo

if TYPE_CHECKING:
    from tritontrace.engines.phantom import Phantoms

__all__ = ["BoundLaunch", "Leaf", "argument_infos", "bind", "grid", "hide_functions", "reveal_functions"]

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One run-time value of a launch: `name` ("x_ptr", "tensors.0"), Triton's `type` of it, and the user's object."""

    name: str
    type: str
    value: Any


@dataclass(slots=True, eq=False)
class BoundLaunch:
    """A launch whose arguments are bound and typed.

    `kernel` is the user's function, not a proxy. `values` maps parameters to the user's objects, defaults filled in.
    `signature` maps them to Triton's type strings, nested tuples for tuples, ``"constexpr"`` for what is compiled in.
    `constexprs` maps paths ((parameter number, index in a tuple, ...)) to values; Triton compiles in every None and every
    integer 1 too. `options` are the compile options that the launch named. `leaves` are the other values, in the order of
    the compiled function's arguments. `key` is equal for two launches of one kernel exactly if they need the same IR.
    """

    kernel: Any
    kernel_name: str
    target: Target
    values: dict[str, Any]
    signature: dict[str, Any]
    constexprs: dict[Path, Any]
    options: dict[str, Any]
    debug: bool
    key: tuple[Hashable, ...]
    leaves: tuple[Leaf, ...]
    phantoms: Phantoms | None = None
    """The addresses of a dry run's tensors that have no memory."""

    def compile_options(self) -> dict[str, Any]:
        """The keyword arguments for the ``parse_options`` of the target's backend."""
        return {**self.options, "debug": self.debug}

    def key_without_options(self) -> Hashable:
        """Equal for two launches of one kernel that may differ in nothing but `options`."""
        types, _, *others = self.key
        return (types, *others)


class _StandIn(compat.JITCallable):  # type: ignore[misc]  # Triton's classes are untyped
    """Takes a function's place while arguments are specialized: Triton asks every JITFunction for its cache key there,
    and computing one writes to the function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    @property
    def cache_key(self) -> str:
        return f"function:{identity_token(self.function)}"

    __hash__ = object.__hash__


class _FakeStandIn:
    """Takes a fake tensor's place there: Triton asks for the address, and a fake tensor warns when it is asked."""

    __slots__ = ("dtype", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype

    def data_ptr(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all launches with one key share."""

    signature: dict[str, Any]
    constexpr_paths: tuple[Path, ...]
    leaves: tuple[tuple[str, str, Path], ...]
    flat: bool


class _KernelBinder:
    """Binds the launches of one kernel for one backend; made once, used from every thread."""

    def __init__(self, kernel: Any, target: Target) -> None:
        self.kernel_name: str = kernel.__name__
        self.backend = backend_for(target)
        self.target = target
        signature = inspect.signature(kernel.fn)
        settings = kernel if isinstance(kernel, compat.JITFunction) else None
        given = {} if settings is not None else compat.require(kernel, "kwargs")
        unspecialized = (settings.do_not_specialize if settings is not None else given.get("do_not_specialize")) or ()
        self.default_debug = settings.debug if settings is not None else given.get("debug")
        # Parameters of our own: Triton's cache what is asked of them, and these leave alignment out.
        self.params = [
            compat.KernelParam(number, parameter, number in unspecialized or parameter.name in unspecialized, True)
            for number, parameter in enumerate(signature.parameters.values())
        ]
        self.names = tuple(signature.parameters)
        parameters = [parameter.replace(default=hide_functions(parameter.default)) for parameter in signature.parameters.values()]
        self._bind = compat.create_binder(signature.replace(parameters=parameters), self.params, self.backend)
        probe = self.backend.parse_options({"debug": False, "enable_fp_fusion": True})
        self.option_names = frozenset(vars(probe))
        self.plans: dict[Hashable, _Plan] = {}

    def bind(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundLaunch:
        try:
            values, specialization, _ = self._bind(
                *[arg if type(arg) in _PLAIN else hide_functions(arg) for arg in args],
                **{name: arg if type(arg) in _PLAIN else hide_functions(arg) for name, arg in kwargs.items()},
            )
        except TypeError as error:
            raise self._explained(error, args, kwargs) from None
        types_key: list[Hashable] = []
        for (kind, _), given in zip(specialization, values.values(), strict=True):
            if type(kind) is str:
                types_key.append(_constant_key(given) if kind == "constexpr" else kind)
            else:
                types_key.append((kind, _tuple_key(kind, given)))
        for name, value in values.items():
            if type(value) not in _PLAIN:
                values[name] = reveal_functions(value)
        options = {}
        option_names = self.option_names
        debug = self.default_debug
        for name, value in kwargs.items():
            if name in option_names:
                if name == "debug":
                    debug = value or debug
                else:
                    options[name] = value
            elif name not in values:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised (launch of {self.kernel_name})")
        debug = bool(debug or triton.knobs.runtime.debug)
        key: tuple[Hashable, ...] = (
            tuple(types_key),
            tuple([(name, _constant_key(options[name])) for name in sorted(options)]) if options else (),
            debug,
            self.target,
            getattr(kernel, "_src", None),
        )
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans.setdefault(key, self._plan(specialization, values))
        if plan.flat:
            leaves = tuple([Leaf(name, kind, values[name]) for name, kind, _ in plan.leaves])
            names = self.names
            constexprs = {path: values[names[path[0]]] for path in plan.constexpr_paths}
        else:
            in_order = list(values.values())
            leaves = tuple([Leaf(name, kind, compat.get_iterable_path(in_order, path)) for name, kind, path in plan.leaves])
            constexprs = {path: compat.get_iterable_path(in_order, path) for path in plan.constexpr_paths}
        return BoundLaunch(kernel, self.kernel_name, self.target, values, plan.signature, constexprs, options, debug, key, leaves)

    def _plan(self, specialization: list[Any], values: dict[str, Any]) -> _Plan:
        kinds = [kind for kind, _ in specialization]
        constexpr_paths = tuple(compat.find_paths_if(kinds, lambda _, kind: kind == "constexpr"))
        leaves = []
        for path in compat.find_paths_if(kinds, lambda _, kind: kind != "constexpr"):
            name = ".".join([self.names[path[0]], *map(str, path[1:])])
            leaves.append((name, compat.get_iterable_path(kinds, path), path))
        signature = dict(zip(self.names, kinds, strict=True))
        return _Plan(signature, constexpr_paths, tuple(leaves), all(type(kind) is str for kind in kinds))

    def _explained(self, error: TypeError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        """The error of Triton's generated binder, with the kernel and the argument it is about."""
        text = str(error)
        if "dynamic_func()" in text:
            return TypeError(text.replace("dynamic_func()", f"{self.kernel_name}()"))
        if text.startswith("failed to specialize argument"):
            for name, value in [*zip(self.names, args, strict=False), *kwargs.items()]:
                param = next((param for param in self.params if param.name == name), None)
                if param is None or param.is_constexpr:
                    continue
                try:
                    compat.specialize(self.backend, hide_functions(value), False, True, False)
                except TypeError:
                    return TypeError(f"{text} (argument {name!r} of kernel {self.kernel_name!r})")
        return error


_PLAIN = frozenset({type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter, torch.dtype})
_binders: WeakIdentityMap[dict[Target, _KernelBinder]] = WeakIdentityMap()


def bind(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Target) -> BoundLaunch:
    """Bind a launch of `kernel` (a JITFunction or an InterpretedFunction; a proxy is unwrapped) for `target`.

    Raises what Triton raises for arguments that do not fit: `TypeError` for a missing or unsupported argument, `KeyError`
    for a keyword that is neither a parameter nor a compile option. Nothing is written to the kernel.
    """
    kernel = compat.unwrap(kernel)
    binders = _binders.get(kernel)
    if binders is None:
        binders = _binders.get_or_create(kernel, dict)
    binder = binders.get(target)
    if binder is None:
        binder = binders.setdefault(target, _KernelBinder(kernel, target))
    return binder.bind(kernel, args, kwargs if type(kwargs) is dict else dict(kwargs))


def hide_functions(value: Any) -> Any:
    """`value` with a stand-in for every function and every fake tensor in it."""
    if isinstance(value, torch.Tensor):
        return _FakeStandIn(value) if type(value).__name__ == "FakeTensor" else value
    if isinstance(value, (tuple, list)):
        items = [hide_functions(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(type(value), "_fields") else type(value)(items)
    bare = compat.unwrap(value)
    if compat.is_function(bare):
        return _StandIn(bare)
    if type(value) is compat.constexpr:
        inner = hide_functions(value.value)
        return value if inner is value.value else compat.constexpr(inner)
    return value


def reveal_functions(value: Any) -> Any:
    """The inverse of `hide_functions`."""
    if type(value) is _StandIn:
        return value.function
    if type(value) is _FakeStandIn:
        return value.tensor
    if isinstance(value, (tuple, list)):
        items = [reveal_functions(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(type(value), "_fields") else type(value)(items)
    if type(value) is compat.constexpr:
        inner = reveal_functions(value.value)
        return value if inner is value.value else compat.constexpr(inner)
    return value


def _constant_key(value: Any) -> Hashable:
    """A hashable that is equal for two compile-time values exactly if they compile to the same."""
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        # True == 1 and both hash alike: the type must stand beside the value.
        return (kind, value)
    if kind is float:
        return (kind, value.hex())  # -0.0 and 0.0 are equal but compile differently, and nan is not equal to itself
    if kind is compat.constexpr:
        return _constant_key(value.value)
    if kind is tuple or kind is list or isinstance(value, tuple):
        return (kind, tuple(map(_constant_key, value)))
    if kind is _StandIn:
        return (kind, identity_token(value.function))
    if kind is dict:
        return (kind, tuple((_constant_key(name), _constant_key(item)) for name, item in value.items()))
    return (kind, repr(value))


def _tuple_key(kinds: Any, values: Any) -> Hashable:
    """The compile-time values inside a tuple argument."""
    return (
        type(values),
        tuple(
            _constant_key(value) if kind == "constexpr" else None if type(kind) is str else _tuple_key(kind, value)
            for kind, value in zip(kinds, values, strict=True)
        ),
    )


def grid(grid: Any, bound: BoundLaunch) -> tuple[int, int, int]:
    """The three entries of a launch's grid, from a list, tuple, tensor, or a callable of the bound arguments.

    An entry may be any integer-like object (numpy, a one-element tensor). Raises `TypeError` for something else and
    `ValueError` for no entry, more than three or a negative one.
    """
    if type(grid) is tuple and len(grid) == 3 and all(type(entry) is int and entry >= 0 for entry in grid):
        return grid
    if callable(grid):
        grid = grid(dict(bound.values))
    try:
        entries = [operator.index(entry) for entry in grid]
    except TypeError:
        raise TypeError(f"the grid of kernel {bound.kernel_name!r} must be one to three integers, not {grid!r}") from None
    if not 1 <= len(entries) <= 3:
        raise ValueError(f"the grid of kernel {bound.kernel_name!r} must have one to three entries, not {len(entries)}: {grid!r}")
    if min(entries) < 0:
        raise ValueError(f"the grid of kernel {bound.kernel_name!r} has a negative entry: {grid!r}")
    x, y, z = [*entries, 1, 1][:3]
    return x, y, z


def argument_infos(bound: BoundLaunch) -> dict[str, ArgumentInfo]:
    """The arguments of a launch described for its record, without holding a tensor; tuples are flattened."""
    infos: dict[str, ArgumentInfo] = {}
    for name, value in bound.values.items():
        _describe(name, bound.signature[name], value, infos, bound.phantoms)
    return infos


def _describe(name: str, kind: Any, value: Any, infos: dict[str, ArgumentInfo], phantoms: Phantoms | None) -> None:
    if isinstance(value, (tuple, list)) and not isinstance(kind, str):
        for index, (item_kind, item) in enumerate(zip(kind, value, strict=True)):
            _describe(f"{name}.{index}", item_kind, item, infos, phantoms)
        return
    plain = type(value)
    if plain is int or plain is bool or plain is str or value is None:
        infos[name] = _scalar_info(name, kind, value)
        return
    tensor = value
    if kind != "constexpr":
        # A host TensorDescriptor and a reinterpreted tensor both hold the tensor they are about in `base`.
        while not isinstance(tensor, torch.Tensor) and hasattr(tensor, "base"):
            tensor = tensor.base
    if not isinstance(tensor, torch.Tensor) and kind != "constexpr" and is_pointer_like(value):
        memory = memory_of(value)
        if memory is not None:
            infos[name] = _pointer_info(name, kind, value, memory)
            return
    if not isinstance(tensor, torch.Tensor):
        value = compat.constexpr_value(value)
        infos[name] = ArgumentInfo(name, kind, value if value is None or isinstance(value, (int, float, str)) else repr(value))
        return
    place = None if phantoms is None else phantoms.storage(tensor)
    if phantoms is not None and place is not None:
        data_ptr, (storage_ptr, storage_bytes) = phantoms.address(tensor) or 0, place
    else:
        storage = tensor.untyped_storage()
        data_ptr, storage_ptr, storage_bytes = tensor.data_ptr(), storage.data_ptr(), storage.nbytes()
    shape, stride, dtype = tensor.shape, tensor.stride(), tensor.dtype
    if tensor is not value:
        shape, stride, dtype = value.shape, getattr(value, "strides", stride), getattr(value, "dtype", dtype)
    infos[name] = ArgumentInfo(
        name,
        kind,
        shape=tuple(shape),
        stride=tuple(stride),
        dtype=_text(dtype),
        device=_text(tensor.device),
        data_ptr=data_ptr,
        storage_ptr=storage_ptr,
        storage_bytes=storage_bytes,
        element_bytes=tensor.element_size(),
    )


def _pointer_info(name: str, kind: Any, value: Any, memory: torch.Tensor) -> ArgumentInfo:
    """An object that only points to memory: its view is what it says of itself."""
    shape, stride = view_shape(value) or (None, None)
    dtype = value.dtype
    size = dtype.itemsize if isinstance(dtype, torch.dtype) else max(1, dtype.primitive_bitwidth // 8)
    return ArgumentInfo(
        name,
        kind,
        shape=shape,
        stride=stride,
        dtype=_text(dtype),
        device=_text(memory.device),
        data_ptr=int(value.data_ptr()),
        storage_ptr=memory.data_ptr(),
        storage_bytes=memory.numel(),
        element_bytes=size,
    )


# The same few descriptions come with every launch of a kernel; they are immutable, so launches share them.
@functools.lru_cache(maxsize=4096, typed=True)
def _scalar_info(name: str, kind: Any, value: Any) -> ArgumentInfo:
    return ArgumentInfo(name, kind, value)


@functools.lru_cache(maxsize=256)
def _text(of_torch: Any) -> str:
    return str(of_torch).removeprefix("torch.")
