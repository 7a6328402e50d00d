"""Binding the arguments of a launch and giving them Triton's types, without a driver and without touching the kernel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton

from tritontrace.engines.pointers import is_pointer_like, memory_of, plain, points_elsewhere, view_shape
from tritontrace.errors import ArgumentError
from tritontrace.kernels import compat
from tritontrace.kernels.constants import constant_key, hide_functions, option_key, reveal_functions, tuple_key
from tritontrace.kernels.refusals import explained
from tritontrace.kernels.targets import Target, backend_for
from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.launch import ArgumentInfo

if TYPE_CHECKING:
    from tritontrace.engines.phantom import Phantoms

__all__ = ["BoundLaunch", "Leaf", "argument_infos", "bind"]

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
        except Exception as error:  # the explanation is raised, or the error as it was
            raise explained(error, self.kernel_name, self.params, self.backend, args, kwargs) from None
        types_key: list[Hashable] = []
        for (kind, _), (name, given) in zip(specialization, values.items(), strict=True):
            if type(kind) is str and kind != "constexpr":
                types_key.append(kind)
                continue
            try:
                types_key.append(constant_key(given) if kind == "constexpr" else (kind, tuple_key(kind, given)))
            except TypeError as error:
                # Triton looks a launch up by its compile-time values, so they need a hash.
                raise ArgumentError(
                    f"{error} (compile-time argument {name!r} of kernel {self.kernel_name!r}; a list can be a tuple)"
                ) from None
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
            elif name in _DEPRECATED:
                raise ArgumentError(f"{name} option is deprecated; current {_DEPRECATED[name]} will be used ({self.kernel_name})")
            elif name not in values:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised (launch of {self.kernel_name})")
        debug = bool(debug or triton.knobs.runtime.debug)
        key: tuple[Hashable, ...] = (
            tuple(types_key),
            tuple([(name, option_key(options[name])) for name in sorted(options)]) if options else (),
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


# Triton refuses these words, even for a parameter of the name.
_DEPRECATED = {"device_type": "target", "device": "device", "stream": "stream"}
_PLAIN = frozenset({type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter, torch.dtype})
_binders: WeakIdentityMap[dict[Target, _KernelBinder]] = WeakIdentityMap()


def bind(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Target) -> BoundLaunch:
    """Bind a launch of `kernel` (a JITFunction or an InterpretedFunction; a proxy is unwrapped) for `target`.

    Raises what Triton raises for arguments that do not fit: `TypeError` for a missing or surplus argument, `KeyError` for a
    keyword that is neither a parameter nor a compile option; and `ArgumentError` for a value that no kernel takes. Nothing
    is written to the kernel.
    """
    kernel = compat.unwrap(kernel)
    binders = _binders.get(kernel)
    if binders is None:
        binders = _binders.get_or_create(kernel, dict)
    binder = binders.get(target)
    if binder is None:
        binder = binders.setdefault(target, _KernelBinder(kernel, target))
    return binder.bind(kernel, args, kwargs if type(kwargs) is dict else dict(kwargs))


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
        while isinstance(tensor, (compat.TensorWrapper, compat.TensorDescriptor)):
            tensor = tensor.base
        if points_elsewhere(tensor) if isinstance(tensor, torch.Tensor) else is_pointer_like(tensor):
            memory = memory_of(tensor)
            shown = ArgumentInfo(name, kind, _shown(kind, value))
            infos[name] = shown if memory is None else _pointer_info(name, kind, tensor, memory)
            return
    if not isinstance(tensor, torch.Tensor):
        infos[name] = ArgumentInfo(name, kind, _shown(kind, value))
        return
    try:
        infos[name] = _tensor_info(name, kind, value, tensor, phantoms)
    except (RuntimeError, NotImplementedError):  # a nested tensor has no shape, others no storage
        infos[name] = ArgumentInfo(name, kind, _shown(kind, value))


def _shown(kind: Any, value: Any) -> Any:
    """What is kept of a value that is no tensor: itself if it is a number or a text, else how it looks."""
    value = compat.constexpr_value(value)
    if value is None or isinstance(value, (int, float, str)):
        return value
    if kind == "constexpr":
        return repr(value)
    return f"<{type(value).__module__}.{type(value).__qualname__}>"  # a stranger with a data_ptr: its repr may print it all


def _tensor_info(name: str, kind: Any, value: Any, tensor: torch.Tensor, phantoms: Phantoms | None) -> ArgumentInfo:
    wrapped = tensor is not value
    place = None if phantoms is None else phantoms.storage(tensor)
    if phantoms is not None and place is not None:
        data_ptr, (storage_ptr, storage_bytes) = phantoms.address(tensor) or 0, place
    elif type(tensor).__name__ == "FakeTensor":  # it is refused later; it would warn when asked for an address
        data_ptr = storage_ptr = storage_bytes = 0
    else:
        tensor = plain(tensor)
        storage = tensor.untyped_storage()
        data_ptr, storage_ptr, storage_bytes = tensor.data_ptr(), storage.data_ptr(), storage.nbytes()
    shape, stride, dtype = tensor.shape, tensor.stride(), tensor.dtype
    if wrapped:
        shape, stride, dtype = value.shape, getattr(value, "strides", stride), getattr(value, "dtype", dtype)
    return ArgumentInfo(
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
