"""Steps that are installed together are undone together."""

from __future__ import annotations

import sys

import pytest

from tritontrace.patching.transaction import Transaction


def test_a_failure_undoes_the_done_steps_in_reverse_and_reaches_the_caller() -> None:
    done: list[str] = []
    error = ValueError("third")

    def fail() -> None:
        raise error

    with pytest.raises(ValueError) as caught, Transaction("steps") as steps:
        assert steps.do(lambda: done.append("a") or 7, undo=lambda: done.append("undo a")) == 7
        steps.do(lambda: done.append("b"), undo=lambda: done.append("undo b"))
        steps.do(fail, undo=lambda: done.append("undo of what never happened"))
    assert caught.value is error
    assert done == ["a", "b", "undo b", "undo a"]


def test_steps_stay_until_undo_and_are_undone_once() -> None:
    done: list[str] = []
    with Transaction() as steps:
        steps.do(lambda: None, undo=lambda: done.append("a"))
        steps.on_undo(lambda: done.append("b"))
    assert done == [] and len(steps) == 2
    steps.undo()
    steps.undo()
    assert done == ["b", "a"]


def test_every_undo_runs_and_the_first_error_stays_the_error() -> None:
    done: list[str] = []

    def broken() -> None:
        raise OSError("cannot take it out")

    with pytest.raises(KeyError, match="the cause") as caught, Transaction("hooks") as steps:
        steps.on_undo(lambda: done.append("a"))
        steps.on_undo(broken)
        steps.on_undo(lambda: done.append("c"))
        raise KeyError("the cause")
    assert done == ["c", "a"]
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["while undoing hooks: OSError: cannot take it out"]


def test_undo_raises_the_first_failure_and_notes_the_others() -> None:
    def broken(text: str) -> None:
        raise OSError(text)

    with Transaction() as steps:
        steps.on_undo(lambda: broken("second"))
        steps.on_undo(lambda: broken("first"))
    with pytest.raises(OSError, match="first") as caught:
        steps.undo()
    if sys.version_info >= (3, 11):
        assert "second" in caught.value.__notes__[0]


def test_a_keyboard_interrupt_undoes_too() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Transaction() as steps:
        steps.on_undo(lambda: done.append("a"))
        raise KeyboardInterrupt
    assert done == ["a"]
