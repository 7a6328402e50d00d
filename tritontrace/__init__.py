"""Shows what a Triton kernel does, launch by launch: every access, every fault, without a GPU."""

from tritontrace.errors import (
    DeadlockError,
    FindingError,
    HookConflictError,
    KernelError,
    OutOfBoundsError,
    TritonTraceError,
    UnsupportedOpError,
    UntraceableLaunchError,
)
from tritontrace.findings import Finding
from tritontrace.launch import Launch
from tritontrace.session import Session, propagate, session, suspend
from tritontrace.source import SourceLocation

__all__ = [
    "DeadlockError",
    "Finding",
    "FindingError",
    "HookConflictError",
    "KernelError",
    "Launch",
    "OutOfBoundsError",
    "Session",
    "SourceLocation",
    "TritonTraceError",
    "UnsupportedOpError",
    "UntraceableLaunchError",
    "propagate",
    "session",
    "suspend",
]
