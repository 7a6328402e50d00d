"""Parsing beside other threads that parse."""

from __future__ import annotations

import pytest

from tritontrace.parsing import undisturbed


@pytest.mark.parametrize(("failures", "answer"), [(0, "tree"), (3, "tree"), (4, None)])
def test_a_disturbed_parse_is_tried_again(failures: int, answer: str | None) -> None:
    left = failures

    def parse() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=57, after=246)")
        return "tree"

    if answer is None:
        with pytest.raises(SystemError):
            undisturbed(parse)
    else:
        assert undisturbed(parse) == answer
