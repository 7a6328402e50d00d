"""Inline assembly by callback: how its text is compared, and the pieces of Triton's own whose effect is known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["KNOWN", "find", "normalized"]


def normalized(text: str) -> str:
    """The text with every run of white space as one space."""
    return " ".join(text.split())


def _clock() -> Any:
    return np.array([time.monotonic_ns()])


def _nothing() -> Any:
    return np.zeros(1, np.int32)


KNOWN: Mapping[str, Callable[..., Any]] = {
    # Clocks count up; nothing else of them can be relied on.
    "mov.u64 $0, %globaltimer;": _clock,
    "s_memrealtime $0 s_waitcnt vmcnt(0)": _clock,
    "s_sendmsg_rtn_b64 $0, sendmsg(MSG_RTN_GET_REALTIME) s_waitcnt lgkmcnt(0)": _clock,
    "s_sendmsg_rtn_b64 $0, sendmsg(MSG_RTN_GET_REALTIME) s_wait_kmcnt 0": _clock,
    # All programs run as on a device with one processor.
    "mov.u32 $0, %smid;": _nothing,
    # Launches run one after another: there is nothing to wait for, and the next one needs no sign.
    "griddepcontrol.wait; // dummy $0": _nothing,
    "griddepcontrol.launch_dependents; // dummy $0": _nothing,
}
"""What ``tl.extra`` writes itself."""

_PROCESSOR = re.compile(r"s_getreg_b32 \$0, hwreg\(\d+, \d+, \d+\)")


def find(text: str, callbacks: Mapping[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    """The function for a piece of assembly, `text` being normalized: the user's first."""
    found = callbacks.get(text) or KNOWN.get(text)
    if found is None and _PROCESSOR.fullmatch(text):
        return _nothing
    return found
