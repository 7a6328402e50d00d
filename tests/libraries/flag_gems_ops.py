"""FlagGems: operations through the library against float64 references."""

from __future__ import annotations

from tests.libraries.case import Case

CASES: list[Case] = []
