"""``engine="auto"``: the IR engine, and the Python engine for what it cannot run.

The choice is made before anything has run: what the IR engine refuses, it refuses as it prepares a launch, memory untouched.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tritontrace import engines
from tritontrace.errors import UnsupportedOpError
from tritontrace.kernels.compiler_errors import in_helper, only_python, reason
from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.patching.transaction import add_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritontrace.engines.base import DryForm, Engine, EngineRun
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["AutoEngine", "explain"]

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


_said: WeakIdentityMap[set[str]] = WeakIdentityMap()


def _instead(error: Exception, bound: BoundLaunch, quiet: bool = False) -> Engine | None:
    """The engine that can run what `error` says the IR engine cannot, or None."""
    if not isinstance(error, UnsupportedOpError) and not only_python(error, bound.kernel):
        return None
    if not quiet:
        why = reason(error, bound.kernel)
        said = _said.get_or_create(bound.kernel, set)
        # A kernel that is launched a thousand times says it once.
        _log.log(
            logging.DEBUG if why in said else logging.WARNING, "kernel %r runs in the Python engine: %s", bound.kernel_name, why
        )
        said.add(why)
    return engines.get("python")


def explain(error: BaseException, engine: str, kernel: Any) -> None:
    """Says with an error of the compiler what is wrong in a helper, and where another engine runs what the kernel asks for."""
    if in_helper(error):
        add_note(error, reason(error, kernel))
    if engine == "ir" and only_python(error, kernel):
        add_note(error, "session(engine='python') runs the kernel's Python source, statement by statement, and takes this")
