"""The exceptions that tritontrace raises, all under `TritonTraceError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton.errors import TritonError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritontrace.findings import Finding
    from tritontrace.source import SourceLocation

__all__ = [
    "ArgumentError",
    "DeadlockError",
    "FindingError",
    "HookConflictError",
    "KernelError",
    "OutOfBoundsError",
    "TritonTraceError",
    "UnsupportedOpError",
    "UnsupportedTritonError",
    "UntraceableLaunchError",
]


class TritonTraceError(Exception):
    """Base of every exception that tritontrace itself raises."""


class ArgumentError(TritonTraceError, TypeError, ValueError, OverflowError):
    """A launch got an argument or a grid that its kernel cannot run with; nothing was changed.

    Where Triton itself refuses the value, its words are in the message, and what the caller can pass instead. It can be caught
    as the `TypeError`, `ValueError` or `OverflowError` that Triton raises for some of these.
    """


class HookConflictError(TritonTraceError):
    """Two clients claim one exclusive hook of one launch; nothing was installed.

    `hook` names the hook (for instance ``"replace Load"``), `clients` names both claimants.
    """

    def __init__(self, hook: str, clients: tuple[str, str], kernel: str | None = None) -> None:
        self.hook = hook
        self.clients = clients
        self.kernel = kernel
        where = f" of kernel {kernel!r}" if kernel else ""
        super().__init__(
            f"clients {clients[0]!r} and {clients[1]!r} both claim the exclusive hook {hook!r}{where}; "
            "open the session with only one of them"
        )


class FindingError(TritonTraceError):
    """Raised after a launch by ``session(on_finding="raise")``; `findings` holds the launch's findings."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        lines = [finding.message for finding in self.findings]
        super().__init__("\n".join(lines) if lines else "a client reported a finding")


class KernelLocatedError(TritonTraceError):
    """An error that belongs to a place in a kernel: `kernel`, `location` and `programs` say where."""

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        location: SourceLocation | None = None,
        programs: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self.kernel = kernel
        self.location = location
        self.programs = tuple(programs)
        parts = []
        if kernel:
            parts.append(f"kernel {kernel!r}")
        if location is not None:
            parts.append(f"{location.file}:{location.line}")
        if self.programs:
            shown = ", ".join(str(tuple(p)) for p in self.programs[:4])
            more = f" and {len(self.programs) - 4} more" if len(self.programs) > 4 else ""
            parts.append(f"program{'s' if len(self.programs) > 1 else ''} {shown}{more}")
        super().__init__(f"{message} [{', '.join(parts)}]" if parts else message)


class OutOfBoundsError(KernelLocatedError):
    """A launch accessed memory outside its tensors and no session had a sanitizer to report it.

    The access was not performed: loads gave `other` or 0, stores wrote nothing.
    """


class UnsupportedOpError(KernelLocatedError):
    """The engine cannot run an operation; raised before the launch writes anything where that can be known."""


class DeadlockError(KernelLocatedError):
    """Every program that is still alive waits for memory that nobody will write any more."""


class KernelError(KernelLocatedError, TritonError):  # type: ignore[misc]  # Triton ships no types
    """The kernel itself failed; the original exception is `__cause__`.

    It is a `triton.TritonError` as well, like what Triton's compiler and interpreter raise for such a kernel.
    """


class UntraceableLaunchError(TritonTraceError):
    """``session(strict=True)`` met a launch that cannot be traced (another language or launcher)."""


class UnsupportedTritonError(TritonTraceError):
    """The installed Triton is too old, or lacks a private part that tritontrace needs; raised when a session opens."""
