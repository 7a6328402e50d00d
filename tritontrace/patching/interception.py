"""Wrappers on Triton's launch entry points, there while at least one session is open.

Each entry point is one entry of a class dictionary, and the wrapper takes its place. `install` and `remove` count
sessions. When the last one has gone, the dictionaries hold the very objects that they held before, unless somebody has
put a patch of their own over ours: that stays, ours beneath it lets every launch through, and is taken out once it is
the top one again (at the next launch, or when a session opens or closes).

A launch that no scope sees goes straight on. So the cost of a session on another thread is one wrapper call and one look
at a `ContextVar`.

A kernel class that Triton does not define, with a ``run`` of its own (torch's inductor has one), is a launcher that
cannot be traced. Such classes are wrapped too, also those made while a session is open, so that their launches are
reported and not passed over in silence.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

import wrapt

from tritontrace import forking
from tritontrace.kernels import tuners
from tritontrace.patching import foreign
from tritontrace.patching.transaction import Transaction, add_note
from tritontrace.scopes import identity
from tritontrace.scopes.identity import LOCK, Scope, active_scopes, hold, release

__all__ = ["install", "remove"]

_log = logging.getLogger("tritontrace")

_sessions = 0
_points: dict[tuple[type, str], _Point] = {}
_kernel_interface: Any = None
# Kernel classes that need no second look. Only Triton's and ours: other people's may go.
_settled: set[type] = set()

# A FunctionWrapper is an ObjectProxy in wrapt 1 only.
_WRAPPERS: tuple[type, ...] = (wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper, wrapt.ObjectProxy, staticmethod, classmethod)

Handler = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any], tuple[Scope, ...]], Any]
"""(the original bound to the kernel, the kernel, arguments, keyword arguments, the scopes that are active) -> result."""


class _Wrapper(wrapt.FunctionWrapper):  # type: ignore[misc]  # wrapt ships no types
    """Ours, as told from other people's wrapt wrappers by its exact class.

    wrapt's own binding makes a wrapper object for each access, which alone would cost a launch that nobody watches
    more than 1.5 µs. Here an instance gets a bound plain function (0.4 µs), which looks the same from outside.
    """

    def __init__(self, wrapped: Any, handler: Handler) -> None:
        super().__init__(wrapped, functools.partial(_decide, handler))
        self._self_launch = _launcher(wrapped, handler)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return super().__get__(instance, owner)
        return MethodType(self._self_launch, instance)


def _launcher(wrapped: Any, handler: Handler) -> Callable[..., Any]:
    # Somebody else's patch may be any descriptor; a plain function is called as a method without making one.
    # By real classes here and below: a wrapt wrapper claims to be a function.
    direct = wrapped if type(wrapped) is FunctionType else None
    bind = MethodType if direct is not None else _bind

    def launch(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        # At the call and not where the method is looked up: a bound method that was fetched earlier is traced too.
        scopes = active_scopes()
        if scopes:
            return handler(bind(wrapped, self), self, args, kwargs, scopes)
        if not _sessions:
            _surfaced()
        if direct is not None:
            return direct(self, *args, **kwargs)
        return bind(wrapped, self)(*args, **kwargs)

    functools.update_wrapper(launch, wrapped)
    return launch


def _bind(wrapped: Any, instance: Any) -> Any:
    get = getattr(type(wrapped), "__get__", None)
    return wrapped if get is None else get(wrapped, instance, type(instance))


def _decide(handler: Handler, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call through the class, ``JITFunction.run(kernel, ...)``, which wrapt has taken apart."""
    scopes = active_scopes()
    if scopes:
        return handler(wrapped, instance, args, kwargs, scopes)
    if not _sessions:
        _surfaced()
    return wrapped(*args, **kwargs)


def _surfaced() -> None:
    """With no session open we are called: perhaps from beneath somebody's patch, perhaps that patch has gone."""
    with LOCK:
        if not _sessions:
            _take_all()


class _Point:
    """One entry of one class dictionary. All methods are called with `LOCK` held."""

    __slots__ = ("_beneath", "_handler", "_logged", "_wrapper", "name", "owner")

    def __init__(self, owner: type, name: str, handler: Handler) -> None:
        self.owner = owner
        self.name = name
        self._handler = handler
        self._wrapper: Any = None
        self._beneath: Any = None
        self._logged = False

    def put(self) -> None:
        """Make sure that launches come through our wrapper."""
        top = self.owner.__dict__.get(self.name)
        if top is None or type(top) is _Wrapper:
            return
        ours = self._wrapper
        if ours is None or self._beneath is not top:
            if ours is not None and _reaches(top, ours):
                # Still in place, beneath somebody's patch; a second one on top would take launches away from that patch.
                return
            ours = self._wrapper = _Wrapper(top, self._handler)
            self._beneath = top
        setattr(self.owner, self.name, ours)

    def take(self) -> None:
        """Take ours out, if it is the top one; otherwise leave the other patch alone and say so once."""
        if self._wrapper is not None and self.owner.__dict__.get(self.name) is self._wrapper and not self._logged:
            # The usual end: nobody else has ever been here.
            setattr(self.owner, self.name, self._beneath)
            return
        while type(top := self.owner.__dict__.get(self.name)) is _Wrapper:
            top = top.__wrapped__
            setattr(self.owner, self.name, top)
            self._logged = False
        if self._wrapper is not None and self._beneath is not top and not self._logged:
            self._logged = True
            _log.info(
                "%s.%s was patched over ours while a session was open; that patch stays, ours passes everything through "
                "and goes when it is the top one again",
                self.owner.__qualname__,
                self.name,
            )

    @property
    def adopted(self) -> bool:
        """True for a class that is not Triton's."""
        return self.owner not in _settled

    @property
    def buried(self) -> bool:
        """True while ours lies beneath somebody's patch."""
        return self._logged


def _reaches(top: Any, wanted: Any) -> bool:
    """True if the patch `top` visibly leads to `wanted`: by ``__wrapped__``, a closure, a partial or a bound function."""
    seen: set[int] = set()
    pending = [top]
    while pending and len(seen) < 64:
        value = pending.pop()
        if value is wanted:
            return True
        if id(value) in seen:
            continue
        seen.add(id(value))
        # Only kinds that patches are made of: a closure may hold anything, and asking anything for attributes runs code.
        if type(value) is FunctionType:
            pending.append(value.__dict__.get("__wrapped__"))
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    pending.append(cell.cell_contents)
        elif issubclass(type(value), _WRAPPERS):
            pending.append(value.__wrapped__)
        elif type(value) is functools.partial:
            pending.append(value.func)
        elif type(value) is MethodType:
            pending.append(value.__func__)
    return False


def install() -> None:
    """A session opens. All entry points are wrapped, or none and the error is raised."""
    global _sessions
    with LOCK:
        points = _all_points()
        with Transaction("the interception of launches") as steps:
            if _sessions == 0:
                forking.in_child(_restore_in_child)
                # Told before the first step: a step that fails half way is taken back too.
                steps.on_undo(_take_all)
                _watch_new_classes()
                tuners.install(_autotuner())
            for point in points:
                point.put()
        _sessions += 1


def remove() -> None:
    """A session has closed."""
    global _sessions
    with LOCK:
        _sessions -= 1
        if _sessions == 0:
            _take_all()


def _take_all() -> None:
    adopted = []
    for key, point in _points.items():
        point.take()
        if point.adopted and not point.buried:
            adopted.append(key)
    # Other people's classes are not kept alive by a list of ours.
    for key in adopted:
        del _points[key]
    _stop_watching()
    tuners.remove(_autotuner())


def _autotuner() -> type:
    from triton.runtime.autotuner import Autotuner

    kind: type = Autotuner
    return kind


def _restore_in_child() -> None:
    global _sessions
    if _sessions:
        _sessions = 0
        _take_all()


def _all_points() -> Iterable[_Point]:
    """Triton's own entry points, and the ``run`` of every other kernel class that exists now."""
    global _kernel_interface
    if _kernel_interface is None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction, KernelInterface

        own: tuple[tuple[type, str, Handler], ...] = (
            (JITFunction, "run", _on_run),
            (Autotuner, "run", _on_run),
            (Autotuner, "warmup", _on_warmup),
            (Heuristics, "run", _on_run),
            (InterpretedFunction, "run", _on_run),
            (CompiledKernel, "__getitem__", _on_getitem),
        )
        _settled.update(owner for owner, _, _ in own)
        _points.update({(owner, name): _Point(owner, name, handler) for owner, name, handler in own})
        _kernel_interface = KernelInterface
    for kind in _subclasses(_kernel_interface):
        if kind not in _settled:
            _adopt(kind)
    return _points.values()


def _subclasses(kind: type) -> list[type]:
    found: list[type] = type.__subclasses__(kind)
    # The list grows while it is walked, to the bottom.
    for below in found:
        found += type.__subclasses__(below)
    return found


def _adopt(kind: type) -> _Point | None:
    """Take a kernel class that has a ``run`` of its own into the list, unless it is there or is ours."""
    key = (kind, "run")
    # A plain method only: what a property or a static method would launch, nobody can tell from here.
    if key in _points or not issubclass(type(kind.__dict__.get("run")), (FunctionType, wrapt.FunctionWrapper)):
        return None
    if kind.__module__.startswith("tritontrace."):
        _settled.add(kind)
        return None
    point = _points[key] = _Point(kind, "run", _on_run if tuners.tunes_itself(kind) else foreign.launched)
    return point


_watching: Any = None


def _watch_new_classes() -> None:
    """While a session is open a kernel class that comes into being is adopted (torch's inductor is imported late)."""
    global _watching
    interface = _kernel_interface
    if "__init_subclass__" in interface.__dict__:
        return

    def init_subclass(cls: type, /, **kwargs: Any) -> None:
        super(interface, cls).__init_subclass__(**kwargs)
        with LOCK:
            point = _adopt(cls) if _sessions else None
            if point is not None:
                point.put()

    _watching = classmethod(init_subclass)
    interface.__init_subclass__ = _watching


def _stop_watching() -> None:
    global _watching
    if _watching is not None and _kernel_interface.__dict__.get("__init_subclass__") is _watching:
        del _kernel_interface.__init_subclass__
    _watching = None


def _on_run(
    wrapped: Callable[..., Any], kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scopes: tuple[Scope, ...]
) -> Any:
    return _traced(wrapped, kernel, args, kwargs, scopes, "run")


def _on_warmup(
    wrapped: Callable[..., Any], kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scopes: tuple[Scope, ...]
) -> Any:
    return _traced(wrapped, kernel, args, kwargs, scopes, "warmup")


def _accepting(scopes: tuple[Scope, ...], kernel: object) -> tuple[Scope, ...]:
    return tuple(scope for scope in scopes if scope.accepts(kernel))


def _left_out(kernel: Any, original: Callable[[], Any]) -> Any:
    """A launch that every session's ``kernels=`` leaves out; where it fails for want of a GPU, it must not seem a traced one."""
    try:
        return original()
    except Exception as error:
        name = getattr(identity.base_function(kernel), "__name__", type(kernel).__name__)
        note = f"kernels= of the session leaves kernel {name!r} out: it was launched without being traced"
        if note not in getattr(error, "__notes__", ()):  # a tuner's launch comes by here twice
            add_note(error, note)
        raise


def _traced(
    wrapped: Callable[..., Any],
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    scopes: tuple[Scope, ...],
    entry: str,
) -> Any:
    def original() -> Any:
        return wrapped(*args, **kwargs)

    held = hold(_accepting(scopes, kernel))
    try:
        if not held:
            return _left_out(kernel, original)
        foreign.note_traced_launch()
        words = dict(kwargs)
        grid = words.pop("grid", None)
        warmup = bool(words.pop("warmup", False)) or entry == "warmup"
        if grid is None and not warmup:
            name = getattr(identity.base_function(kernel), "__name__", type(kernel).__name__)
            raise TypeError(f"kernel {name!r} is launched without a grid: kernel[grid](...) or kernel.run(..., grid=...)")
        from tritontrace.kernels import lifecycle

        return lifecycle.launch(kernel, held, args, words, grid=grid, warmup=warmup, entry=entry, original=original)
    finally:
        release(held)


def _on_getitem(
    wrapped: Callable[..., Any], compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scopes: tuple[Scope, ...]
) -> Any:
    """``compiled[grid]`` of a `CompiledKernel` that was made outside: what it gives launches traced, if called inside."""
    (grid,) = args

    # The original needs a driver as soon as it is subscripted, so it is asked only if it is to launch.
    def runner(*values: Any, stream: Any = None) -> Any:
        def original() -> Any:
            return wrapped(grid)(*values, **({} if stream is None else {"stream": stream}))

        scopes = active_scopes()
        if not scopes:
            return original()
        function = getattr(compiled.src, "fn", None)
        if function is None:
            held = hold(_accepting(scopes, str(compiled.name)))
            try:
                foreign.refuse(str(compiled.name), "it was compiled from IR, without Python source", held)
                return original()
            finally:
                release(held)
        held = hold(_accepting(scopes, function))
        try:
            if not held:
                return original()
            foreign.note_traced_launch()
            from tritontrace.kernels import lifecycle

            return lifecycle.launch(
                function,
                held,
                _with_constants(compiled.src, values),
                _compiled_options(compiled),
                grid=grid,
                warmup=False,
                entry="run",
                original=original,
            )
        finally:
            release(held)

    return runner


def _with_constants(source: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a compiled kernel's launch: what was constant when it was compiled stays what it was."""
    out: list[Any] = list(values)
    constants = {path if isinstance(path, tuple) else (path,): value for path, value in source.constants.items()}
    for path, value in constants.items():
        if path[0] < len(out):
            out[path[0]] = _replaced(out[path[0]], path[1:], value)
        elif len(path) == 1 and path[0] == len(out):
            out.append(value)
    return tuple(out)


def _replaced(value: Any, path: tuple[int, ...], new: Any) -> Any:
    if not path:
        return new
    items = list(value)
    items[path[0]] = _replaced(items[path[0]], path[1:], new)
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _compiled_options(compiled: Any) -> dict[str, Any]:
    names = ("num_warps", "num_stages", "num_ctas")
    found = {name: getattr(compiled.metadata, name, None) for name in names}
    # A kernel may have parameters of these names; then they stand among the arguments.
    parameters = set(compiled.src.fn.arg_names)
    return {name: value for name, value in found.items() if value is not None and name not in parameters}
