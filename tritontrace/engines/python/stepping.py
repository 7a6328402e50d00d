"""What a debugger sees of a launch: the kernel's frames and the user's, none of those between them.

`sys.settrace` belongs to a thread and calls a debugger for every function. While a launch runs, a `bdb.Bdb`'s trace function
(pdb's, ipdb's) stands behind a `Followed`, which leaves out what the kernel's lines call in here and in Triton; the debugger
itself is not touched. Other trace functions (coverage.py, a profiler, the user's) see every frame. Nothing of this costs a launch
that nobody traces more than one look.

A program that waits for another one leaves it a thread of its own (`schedule`); what traces goes along with the turn.
"""

from __future__ import annotations

import bdb
import os
import sys
import sysconfig
from types import FrameType, FunctionType, MethodType
from typing import Any

import triton

import tritontrace
from tritontrace.engines.python import sites
from tritontrace.engines.python.state import CURRENT

__all__ = ["Tracing", "beneath_all", "follow", "follow_with", "hidden"]

_OURS, _LIBRARY, _USERS = range(3)
_ROOTS = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (tritontrace, triton))
_LIBRARIES = tuple({os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values()} - {os.sep})
_TYPED = ("<stdin", "<ipython")
"""What a person types; other code without a file is made by the standard library (``__init__`` of a dataclass)."""

_KINDS: dict[str, int] = {}
_HEAP_TYPE = 1 << 9
"""The flag of classes that Python code makes (CPython's ``Py_TPFLAGS_HEAPTYPE``)."""


def _kind(file: str) -> int:
    kind = _KINDS.get(file)
    if kind is None:
        if file.startswith(_ROOTS):
            kind = _OURS
        elif (file[:1] == "<" and not file.startswith(_TYPED)) or os.path.realpath(file).startswith(_LIBRARIES):
            kind = _LIBRARY
        else:
            kind = _USERS
        _KINDS[file] = kind
    return kind


def hidden(frame: FrameType | None) -> bool:
    """True for a frame of this library's or Triton's (whose own kernels count as such), and for what those call of others."""
    while frame is not None:
        kind = _kind(frame.f_code.co_filename)
        if kind == _OURS:
            return True
        if kind == _USERS or sites.is_kernel_code(frame.f_code):
            return False
        frame = frame.f_back
    return False


def beneath_all(frame: FrameType) -> bool:
    """True for the frames with which Python starts a thread or a module."""
    below: FrameType | None = frame
    while below is not None:
        if _kind(below.f_code.co_filename) != _LIBRARY:
            return False
        below = below.f_back
    return True


class Followed:
    """A debugger's trace function during a launch. After it, it takes itself away once the user's code calls something else."""

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.debugger: bdb.Bdb = trace.__self__

    def hides(self, frame: FrameType) -> bool:
        """Whether the debugger is not told of `frame`: it is told of files in which it has breakpoints."""
        return hidden(frame) and not self.debugger.break_anywhere(frame)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.hides(frame):
            return None
        if CURRENT.get(None) is None and not hidden(frame.f_back):
            sys.settrace(self.trace)
            return self.trace(frame, event, argument)
        return self.local(frame, event, argument)

    def local(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The trace function of a frame that is seen."""
        again = self.trace(frame, event, argument)
        if event == "return":
            self._step_out(frame)
        return None if again is None else self.local

    def _step_out(self, frame: FrameType) -> None:
        """A debugger that steps goes on in the caller, whom it has given a trace function for this: in the one that is seen."""
        caller = frame.f_back
        if caller is None or not self.hides(caller):
            return
        caller.f_trace = None
        while caller is not None and self.hides(caller):
            caller = caller.f_back
        steps = getattr(self.debugger, "stopframe", self) is None
        if steps and caller is not None and caller.f_trace is None and not beneath_all(caller):
            caller.f_trace = self.local

    def show(self, frame: FrameType | None, everything: bool = False) -> None:
        """Let the debugger see, of the stack from `frame` on, what it traces (or `everything`) and is not hidden."""
        while frame is not None:
            if self.hides(frame):
                frame.f_trace = None
            elif frame.f_trace is not None or (everything and not beneath_all(frame)):
                frame.f_trace = self.local
            frame = frame.f_back


def _is_debugger(trace: Any) -> bool:
    return isinstance(getattr(trace, "__self__", None), bdb.Bdb)


def follow() -> None:
    """From now on this thread's debugger, if there is one, sees no hidden frames."""
    trace = sys.gettrace()
    if trace is None or type(trace) is Followed or not _is_debugger(trace):
        return
    sys.settrace(None)  # nor this function's
    follow_with(trace, sys._getframe(1))


def follow_with(trace: Any, frame: FrameType) -> None:
    """As `follow`, with a debugger's trace function that is not set now."""
    followed = Followed(trace)
    followed.show(frame)
    sys.settrace(followed)


class Tracing:
    """What the running program is traced and profiled with, while the turn goes to another thread."""

    __slots__ = ("profile", "trace")

    def __init__(self) -> None:
        follow()
        self.trace: Any = sys.gettrace()
        self.profile: Any = sys.getprofile()

    def begin(self) -> None:
        """On a new thread. Functions that `threading.settrace` has put there stay, but for a debugger."""
        if type(self.trace) is Followed or (sys.gettrace() is None and _is_shared(self.trace)):
            sys.settrace(self.trace)
        if sys.getprofile() is None and _is_shared(self.profile):
            sys.setprofile(self.profile)

    @staticmethod
    def leave() -> None:
        """This thread's debugger has nothing more to see here."""
        if type(sys.gettrace()) is Followed:
            sys.settrace(None)

    def go_on(self) -> None:
        """On a thread that has its turn again: a debugger that was begun or left elsewhere is begun or left here, too."""
        mine = sys.gettrace()
        if type(self.trace) is Followed:
            sys.settrace(None)
            self.trace.show(sys._getframe(1), everything=True)
            sys.settrace(self.trace)
        elif self.trace is None and (type(mine) is Followed or _is_debugger(mine)):
            sys.settrace(None)


def _is_shared(function: Any) -> bool:
    """Whether a trace function may be called on several threads: those written in C keep the stack of one."""
    return isinstance(function, (FunctionType, MethodType)) or bool(callable(function) and type(function).__flags__ & _HEAP_TYPE)
