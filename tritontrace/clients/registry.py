"""From what a user names as clients to client objects."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import logging
from collections.abc import Iterable
from typing import Any

from tritontrace.clients.base import Client

__all__ = ["BUILT_IN", "ENTRY_POINT_GROUP", "known_names", "resolve"]

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "tritontrace.clients"
"""The entry-point group under which other packages register their clients: ``name = "module:Class"``."""

BUILT_IN = {
    "profiler": "tritontrace.clients.profiler:Profiler",
    "tracer": "tritontrace.clients.tracer:Tracer",
    "sanitizer": "tritontrace.clients.sanitizer:Sanitizer",
    "numerics": "tritontrace.clients.numerics:Numerics",
    "coverage": "tritontrace.clients.coverage:Coverage",
    "race_detector": "tritontrace.clients.race_detector:RaceDetector",
}
"""The clients of this package, by name; they work without installed metadata, and their names are taken."""


def resolve(clients: Any) -> tuple[Client, ...]:
    """Client objects for names, `Client` classes or instances, or for one of these alone.

    A class is called without arguments. Raises `ValueError` for a name that nobody registered (with the known names and the
    nearest), `TypeError` for anything that is no client.
    """
    if clients is None:
        return ()
    if isinstance(clients, (str, type)) or _is_client(clients):
        return (_one(clients),)
    if not isinstance(clients, Iterable):
        raise TypeError(f"clients must be names, Client classes or Client instances, not {clients!r}")
    return tuple(_one(client) for client in clients)


def known_names() -> list[str]:
    """Every name that `resolve` understands, sorted."""
    return sorted({*BUILT_IN, *(entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))})


def _one(client: Any) -> Client:
    if isinstance(client, str):
        return _by_name(client)
    if isinstance(client, type):
        if not issubclass(client, Client):
            raise TypeError(f"{client.__qualname__} is not a Client class")
        return client()
    if _is_client(client):
        found: Client = client
        return found
    raise TypeError(f"clients must be names, Client classes or Client instances, not {client!r}")


def _is_client(value: Any) -> bool:
    return isinstance(value, Client)


def _by_name(name: str) -> Client:
    target = BUILT_IN.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    else:
        factory = _registered(name)
    made = factory()
    if not _is_client(made):
        raise TypeError(f"the client {name!r} is registered as {factory!r}, which makes {made!r} and not a Client")
    client: Client = made
    return client


def _registered(name: str) -> Any:
    entries = list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not entries:
        raise ValueError(_unknown(name))
    if len({entry.value for entry in entries}) > 1:
        logger.warning("several packages register a client %r: %s; the first is taken", name, [entry.value for entry in entries])
    return entries[0].load()


def _unknown(name: str) -> str:
    known = known_names()
    folded = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower().replace("-", "_"), folded, n=1, cutoff=0.0)
    hint = f"; the nearest is {folded[near[0]]!r}" if near else ""
    return f"no client is named {name!r}; known clients: {', '.join(map(repr, known))}{hint}"
