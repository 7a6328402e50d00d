"""Run functions of every kind inside something that is entered and left: plain, async and generator functions.

A generator's body runs in the context of whoever asks for its next value, so what it enters would stay entered there
while it waits at a ``yield``. Therefore the region is entered at each step and left again at each ``yield``.
A coroutine runs in its task's context only, and simply stays inside while it awaits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Protocol, TypeVar, cast

__all__ = ["Region", "around"]

F = TypeVar("F", bound=Callable[..., Any])


class Region(Protocol):
    """One call's stay: entered once, or once for each step of a generator; ended exactly once."""

    def enter(self) -> object:
        """Before the function's code runs."""

    def exit(self) -> object:
        """After it, or before it waits at a ``yield``."""

    def end(self) -> object:
        """The call is over."""


def around(function: F, region: Callable[[], Region]) -> F:
    """`function`, each call of which runs in a region of its own. Keeps its kind, name and signature."""
    subject: Any = function  # typed as a function; what comes may be anything
    if isinstance(subject, type) or not callable(subject):
        raise TypeError(f"this decorates functions, not {function!r}")
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(function, region)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, region)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, region)
    else:
        wrapper = _plain(function, region)
    # functools.partial objects and callable instances may lack some of the names; update_wrapper skips those.
    return cast(F, functools.update_wrapper(wrapper, function))


def _plain(function: Callable[..., Any], region: Callable[[], Region]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        here = region()
        try:
            here.enter()
            try:
                return function(*args, **kwargs)
            finally:
                here.exit()
        finally:
            here.end()

    return call


def _coroutine(function: Callable[..., Any], region: Callable[[], Region]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        here = region()
        try:
            here.enter()
            try:
                return await function(*args, **kwargs)
            finally:
                here.exit()
        finally:
            here.end()

    return call


def _generator(function: Callable[..., Any], region: Callable[[], Region]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        here = region()
        try:
            body = function(*args, **kwargs)
            step, payload = body.send, None
            while True:
                here.enter()
                try:
                    value = step(payload)
                except StopIteration as stop:
                    return stop.value
                finally:
                    here.exit()
                try:
                    payload, step = (yield value), body.send
                # Whatever is thrown in at the yield, GeneratorExit too, belongs to the body.
                except BaseException as error:
                    payload, step = error, body.throw
        finally:
            here.end()

    return call


def _async_generator(function: Callable[..., Any], region: Callable[[], Region]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        here = region()
        try:
            body = function(*args, **kwargs)
            step, payload = body.asend, None
            while True:
                here.enter()
                try:
                    value = await step(payload)
                except StopAsyncIteration:
                    return
                finally:
                    here.exit()
                try:
                    payload, step = (yield value), body.asend
                except BaseException as error:
                    payload, step = error, body.athrow
        finally:
            here.end()

    return call
