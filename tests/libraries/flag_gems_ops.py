"""FlagGems: its functions, called as ATen's are, against plain torch in float64. See `flag_gems_setup` for the import."""

from __future__ import annotations

from tests.libraries import flag_gems_index, flag_gems_linear, flag_gems_pointwise, flag_gems_random, flag_gems_reductions
from tests.libraries.case import Case

CASES: list[Case] = [
    *flag_gems_pointwise.CASES,
    *flag_gems_reductions.CASES,
    *flag_gems_linear.CASES,
    *flag_gems_index.CASES,
    *flag_gems_random.CASES,
]
