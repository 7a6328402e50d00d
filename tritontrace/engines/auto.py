"""``engine="auto"``: the IR engine, and the Python engine for what it cannot run.

The choice is made before anything has run: what the IR engine refuses, it refuses as it prepares a launch, memory untouched.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from triton.compiler.errors import CompilationError

from tritontrace import engines
from tritontrace.errors import UnsupportedOpError
from tritontrace.kernels import compat
from tritontrace.patching.transaction import add_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritontrace.engines.base import DryForm, Engine, EngineRun
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["AutoEngine", "point_to_python"]

_log = logging.getLogger(__name__)


class AutoEngine:
    """Chooses for each launch. A kernel that Triton's compiler refuses for its types stays refused: it would not run on a GPU."""

    name = "auto"

    def prepare(
        self,
        bound: BoundLaunch,
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> Any:
        """What the chosen engine needs; logs the reason where that is the Python engine."""
        engine, prepared = self._choose(bound, inline_asm, instruments)
        return prepared if engine is None else engine.prepare(bound, inline_asm, instruments=instruments)

    def dry_form(
        self,
        bound: BoundLaunch,
        storages: Mapping[str, int],
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> DryForm:
        """See `Engine.dry_form`."""
        try:
            return engines.get("ir").dry_form(bound, storages, inline_asm, instruments=instruments)
        except Exception as error:  # what the IR engine cannot run; anything else is raised again
            other = _instead(error, bound)
            if other is None:
                raise
            return other.dry_form(bound, storages, inline_asm, instruments=instruments)

    def run(self, run: EngineRun) -> None:
        """Execute the launch in the engine that `prepare` chose."""
        engine, _ = self._choose(run.bound, run.options.get("inline_asm"), run.instruments, quiet=True)
        (engine or engines.get("ir")).run(run)

    def _choose(
        self, bound: BoundLaunch, inline_asm: Any, instruments: frozenset[str], quiet: bool = False
    ) -> tuple[Engine | None, Any]:
        """(None, what the IR engine prepared), or (the other engine, None)."""
        try:
            return None, engines.get("ir").prepare(bound, inline_asm, instruments=instruments)
        except Exception as error:  # as in `dry_form`
            other = _instead(error, bound, quiet)
            if other is None:
                raise
            return other, None


_PYTHONS_OWN = re.compile(
    r"'(tuple|list)' object has no attribute '?(append|extend|insert|pop)\b|"
    r"'(append|extend|insert|pop)' is not in list|"  # Triton 3.6
    r"object has no attribute '?numpy\b"
)


def _instead(error: Exception, bound: BoundLaunch, quiet: bool = False) -> Engine | None:
    """The engine that can run what `error` says the IR engine cannot, or None."""
    if not isinstance(error, UnsupportedOpError) and not _only_python(error):
        return None
    if not quiet:
        _log.warning("kernel %r runs in the Python engine: %s", bound.kernel_name, str(error).strip().splitlines()[-1])
    return engines.get("python")


def point_to_python(error: BaseException, engine: str) -> None:
    """Says with an error of the IR engine that another one runs what the kernel asks for."""
    if engine == "ir" and _only_python(error):
        add_note(error, "session(engine='python') runs the kernel's Python source, statement by statement, and takes this")


def _only_python(error: BaseException) -> bool:
    """True if the compiler met what only Python can run: a statement that it has not, or ``breakpoint()``."""
    cause: BaseException | None = error
    while cause is not None:
        # of a helper, the error of the call is raised from that of the helper's line, which has only its text
        if isinstance(cause, (NameError, CompilationError)) and "breakpoint is not defined" in str(cause):
            return True
        if isinstance(cause, compat.UnsupportedLanguageConstruct):
            return True
        # a list of the kernel's own is a tuple to the compiler, and a block has no `numpy()` there
        if isinstance(cause, (AttributeError, ValueError, CompilationError)) and _PYTHONS_OWN.search(str(cause)):
            return True
        cause = cause.__cause__
    return False
