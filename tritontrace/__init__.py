"""Shows what a Triton kernel does, launch by launch: every access, every fault, without a GPU.

::

    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        kernel[grid](...)
    print(session.report())
"""

from tritontrace import events
from tritontrace.clients.base import Client, ClientManager, LoopCallbacks, OpCallbacks
from tritontrace.clients.coverage import Coverage
from tritontrace.clients.numerics import Numerics
from tritontrace.clients.precision import Precision
from tritontrace.clients.profiler import Profiler
from tritontrace.clients.race_detector import RaceDetector
from tritontrace.clients.sanitizer import Sanitizer
from tritontrace.clients.tracer import Tracer
from tritontrace.determinism import Determinism, Difference, check_determinism
from tritontrace.engines.base import Order
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
    "Coverage",
    "DeadlockError",
    "Determinism",
    "Difference",
    "Finding",
    "FindingError",
    "HookConflictError",
    "KernelError",
    "Launch",
    "LoopCallbacks",
    "Numerics",
    "OpCallbacks",
    "Order",
    "OutOfBoundsError",
    "Precision",
    "Profiler",
    "RaceDetector",
    "Sanitizer",
    "Session",
    "SourceLocation",
    "Tracer",
    "TritonTrace",
    "TritonTraceError",
    "UnsupportedOpError",
    "UnsupportedTritonError",
    "UntraceableLaunchError",
    "check_determinism",
    "events",
    "propagate",
    "session",
    "suspend",
    "trace",
]
