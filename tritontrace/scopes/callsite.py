"""The user's line from which a call into the library came, for warnings and for naming a session."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["user_frame", "user_line", "warn"]

# Layers between the user's line and us: ours, the wrappers', Triton's launch code and the standard library's decorators.
_LAYERS = frozenset({"tritontrace", "triton", "wrapt", "contextlib", "functools"})


def user_frame() -> FrameType | None:
    """The innermost frame outside these layers, or None (a callback straight from C)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LAYERS:
        frame = frame.f_back
    return frame


def user_line() -> tuple[str, int]:
    """File and line of `user_frame`."""
    frame = user_frame()
    return ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the user's line, however many layers lie between (a fixed ``stacklevel`` cannot know)."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    # The module's own registry, as warnings.warn would take: the user's filters ("once", "default") work as usual.
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__") or "<unknown>",
        registry=registry,
        source=None,
    )
