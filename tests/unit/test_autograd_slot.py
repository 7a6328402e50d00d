"""The slot holds what is put there, also in a torch that forgets to."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from tritontrace.scopes import autograd


class Slots:
    """torch's slots; with ``holds=False`` as in torch 2.11: no reference is taken, and one is let go of."""

    def __init__(self, holds: bool) -> None:
        self.holds = holds
        self.addresses: dict[str, int] = {}

    def put(self, key: str, value: Any) -> None:
        if self.holds:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        self.remove(key)
        self.addresses[key] = id(value)

    def remove(self, key: str) -> None:
        address = self.addresses.pop(key, None)
        if address is not None:
            ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))


@pytest.mark.parametrize("removable", [True, False])
@pytest.mark.parametrize("holds", [True, False])
def test_references_are_in_balance(holds: bool, removable: bool) -> None:
    slots = Slots(holds)
    put = autograd.holding(slots.put, slots.remove if removable else None)
    first, second = object(), object()
    counts = sys.getrefcount(first), sys.getrefcount(second)
    for _ in range(10):
        put("slot", first)
        assert sys.getrefcount(first) == counts[0] + 1
        put("slot", second)
        assert (sys.getrefcount(first), sys.getrefcount(second)) == (counts[0], counts[1] + 1)
    slots.remove("slot")
    assert (sys.getrefcount(first), sys.getrefcount(second)) == counts


def test_the_stand_in_shows_the_fault() -> None:
    slots = Slots(holds=False)
    value = object()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))  # so that this test does not free it
    before = sys.getrefcount(value)
    slots.put("slot", value)
    slots.put("slot", None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
    assert sys.getrefcount(value) == before - 1
