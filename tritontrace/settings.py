"""The settings of a session, checked where it is made, not at a launch: `ValueError` or `TypeError` for anything wrong."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tritontrace.engines import prints as printing
from tritontrace.engines.asm import normalized
from tritontrace.engines.base import Order
from tritontrace.scopes import identity

if TYPE_CHECKING:
    from tritontrace.clients.base import Client

__all__ = ["clients", "engine_name", "inline_asm", "kernels", "one_of", "order", "positive", "prints", "programs", "target_name"]


def one_of(name: str, value: object, known: tuple[str | None, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def positive(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} must be a positive integer or None, not {value!r}")


def clients(clients: Any) -> tuple[Client, ...]:
    from tritontrace.clients import registry

    return registry.resolve(clients)


def engine_name(engine: object) -> str:
    if not isinstance(engine, str):
        raise TypeError(f"engine must be a name, not {engine!r}")
    from tritontrace import engines

    if engine not in engines.names():
        engines.get(engine)  # raises, and lists the names
    return engine


def target_name(target: Any) -> str | None:
    if target is None:
        return None
    from tritontrace.kernels.targets import Target

    return str(Target.parse(target))


def programs(programs: Any) -> tuple[tuple[int, int, int], ...] | None:
    if programs is None:
        return None
    if not isinstance(programs, Iterable) or isinstance(programs, (str, bytes)):
        raise ValueError(f"programs= takes a list of program ids such as [(0, 1, 0)], not {programs!r}")
    programs = list(programs) if not isinstance(programs, tuple) else programs
    if not len(programs):
        raise ValueError("programs= names no program; leave it out to run them all")
    if isinstance(programs, tuple) and not any(isinstance(program, Iterable) for program in programs):
        # it would be programs 3 and 0 of (3, 0, 0)
        raise ValueError(f"programs={programs!r} lacks the brackets of a list: programs=[{programs!r}]")
    out = []
    for program in programs:
        entries = program if isinstance(program, Iterable) else (program,)
        try:
            ids = [operator.index(entry) for entry in entries]
        except TypeError:
            ids = []
        if not 1 <= len(ids) <= 3 or min(ids) < 0:
            raise ValueError(f"programs= takes program ids such as (0, 1, 0), not {program!r}")
        x, y, z = (*ids, 0, 0)[:3]
        out.append((x, y, z))
    return tuple(out)


def kernels(kernels: Any) -> tuple[Any, ...] | None:
    """Names stay; kernel objects become their Python functions, so that every layer of decorators matches."""
    if kernels is None:
        return None
    if isinstance(kernels, str) or hasattr(kernels, "fn") or not isinstance(kernels, Iterable):
        kernels = (kernels,)
    out = []
    for kernel in kernels:
        if not isinstance(kernel, str):
            kernel = identity.base_function(kernel)
            if not hasattr(kernel, "__code__"):
                raise TypeError(f"kernels= takes names and kernels, not {kernel!r}")
        out.append(kernel)
    return tuple(out)


def inline_asm(callbacks: Any) -> dict[str, Callable[..., Any]]:
    """The callbacks by the text of the assembly, with every run of white space as one space."""
    if callbacks is None:
        return {}
    if not isinstance(callbacks, Mapping):
        raise TypeError(f"inline_asm takes a mapping from the text of the assembly to a function, not {callbacks!r}")
    for text, function in callbacks.items():
        if not isinstance(text, str) or not callable(function):
            raise TypeError(f"inline_asm maps the text of the assembly to a function, not {text!r} to {function!r}")
    return {normalized(text): function for text, function in callbacks.items()}


def prints(destination: Any) -> printing.Destination:
    """Where ``tl.device_print`` goes."""
    if destination is None or isinstance(destination, str):
        one_of("prints", destination, printing.NAMES)
    elif not callable(destination) and not callable(getattr(destination, "write", None)):
        raise TypeError(f"prints takes {', '.join(map(repr, printing.NAMES))}, a function or a text stream, not {destination!r}")
    made: printing.Destination = destination
    return made


def order(order: Any) -> Order | None:
    """The order of programs."""
    if order is None or isinstance(order, Order):
        made: Order | None = order
    elif isinstance(order, int) and not isinstance(order, bool):
        made = Order("random", order)
    else:
        made = Order(str(order))
    if made is not None:
        one_of("order", made.kind, ("forward", "reverse", "random"))
        positive("order.batch", made.batch)
    return made
