"""flash-linear-attention: operations against naive float64 recurrences."""

from __future__ import annotations

from tests.libraries.case import Case

CASES: list[Case] = []
