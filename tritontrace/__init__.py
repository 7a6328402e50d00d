"""Shows what a Triton kernel does, launch by launch: every access, every fault, without a GPU.

::

    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        kernel[grid](...)
    print(session.report())
"""

from tritontrace import events
from tritontrace.clients.base import Client, ClientManager, LoopCallbacks, OpCallbacks
from tritontrace.clients.profiler import Profiler
from tritontrace.clients.sanitizer import Sanitizer
from tritontrace.clients.tracer import Tracer
from tritontrace.errors import (
    ArgumentError,
    DeadlockError,
    FindingError,
    HookConflictError,
    KernelError,
    OutOfBoundsError,
    TritonTraceError,
    UnsupportedOpError,
    UnsupportedTritonError,
    UntraceableLaunchError,
)
from tritontrace.findings import Finding
from tritontrace.kernels.trace import TritonTrace
from tritontrace.launch import Launch
from tritontrace.session import Session, propagate, session, suspend
from tritontrace.source import SourceLocation
from tritontrace.tracing import trace

__all__ = [
    "ArgumentError",
    "Client",
    "ClientManager",
    "DeadlockError",
    "Finding",
    "FindingError",
    "HookConflictError",
    "KernelError",
    "Launch",
    "LoopCallbacks",
    "OpCallbacks",
    "OutOfBoundsError",
    "Profiler",
    "Sanitizer",
    "Session",
    "SourceLocation",
    "Tracer",
    "TritonTrace",
    "TritonTraceError",
    "UnsupportedOpError",
    "UnsupportedTritonError",
    "UntraceableLaunchError",
    "events",
    "propagate",
    "session",
    "suspend",
    "trace",
]
