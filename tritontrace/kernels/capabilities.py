"""What the Triton that is installed can do, and which Triton tritontrace runs with: the one place that is asked.

Triton has no public API for most of what a tracer needs, and its versions differ. Three kinds of question are answered here:

- *Is this version good enough?* `ensure_supported`, asked when a session opens or a trace is made. A version that is too old,
  or that lacks a private piece, is an `UnsupportedTritonError` then; importing the package works with any Triton, so that
  ``tritontrace doctor`` can say what is wrong. A version newer than any tested is one warning for the process.
- *Where is this private piece?* `take`, which gives a stand-in that refuses to be used where the piece is missing.
- *Which of two behaviours is this?* The functions marked `capability`. Each looks at the thing itself, not at a version number,
  so that a development build or a patched Triton is judged by what it does. A difference between versions that somebody needs
  to know about, in the package or in a test, becomes a capability here and nothing else.
"""

from __future__ import annotations

import functools
import importlib
import re
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

import triton

from tritontrace.errors import UnsupportedTritonError
from tritontrace.forking import fork_safe
from tritontrace.kernels.originals import behind
from tritontrace.scopes import callsite

__all__ = [
    "NEWEST_TESTED",
    "OLDEST",
    "TESTED",
    "Answer",
    "answers",
    "atomic_poll",
    "batched_scales",
    "block_pointer_operations",
    "block_pointers",
    "ensure_supported",
    "exact_locations",
    "function_registry",
    "keyword_only_parameters",
    "lacking",
    "lacks",
    "problem",
    "take",
    "tested",
    "triton_version",
    "tunes_a_single_config",
    "tuning_listener",
    "variadic_kernels",
    "verdict",
]

OLDEST = (3, 6)
TESTED = ((3, 6), (3, 8), (3, 9))
"""The versions that the test suite is run on."""
NEWEST_TESTED = TESTED[-1]


def tested() -> str:
    """The tested versions as text."""
    return ", ".join(f"{major}.{minor}" for major, minor in TESTED)


def triton_version() -> tuple[int, int]:
    """Major and minor version of the Triton that is installed; (0, 0) for a version that cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", triton.__version__)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


# -- private pieces -----------------------------------------------------------------------------------------------

_lacking: list[str] = []


def take(path: str) -> Any:
    """The piece of Triton at `path` ("triton.runtime.jit.JITFunction").

    Where there is none, a class that can be derived from and asked about with `isinstance`, and that raises
    `UnsupportedTritonError` when it is called. What was missing is remembered (`lacking`), and no session opens.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        if path not in _lacking:
            _lacking.append(path)
        return _stand_in(path, name)


def _stand_in(path: str, name: str) -> type:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedTritonError(lacks(path))

    return type(name, (), {"__new__": refuse, "__doc__": f"Stands for {path}, which this Triton lacks."})


def lacking() -> tuple[str, ...]:
    """The private pieces that were asked for so far and are not there."""
    return tuple(_lacking)


def lacks(*paths: str) -> str:
    """The sentence about private pieces that are missing."""
    return (
        f"triton {triton.__version__} has no {', no '.join(paths)}, which tritontrace needs; "
        f"it is tested with triton {tested()}: use one of these"
    )


# -- the version as a whole ---------------------------------------------------------------------------------------


def problem() -> str | None:
    """Why no session can open with this Triton, and what to do; None if one can."""
    # An unreadable version is judged by its pieces alone.
    if (0, 0) < triton_version() < OLDEST:
        return (
            f"triton {triton.__version__} is too old: tritontrace needs triton {OLDEST[0]}.{OLDEST[1]} or newer "
            f"(tested with {tested()}); install one, for instance with: pip install 'triton>={OLDEST[0]}.{OLDEST[1]}'"
        )
    # Not before: everything that is taken must have been asked for.
    importlib.import_module("tritontrace.kernels.compat")
    return lacks(*_lacking) if _lacking else None


def verdict() -> str:
    """One phrase about this Triton, for ``tritontrace doctor``."""
    reason = problem()
    if reason is not None:
        return f"unsupported: {reason}"
    version = triton_version()
    if version in TESTED:
        return "tested"
    return f"newer than any tested ({tested()})" if version > NEWEST_TESTED else f"not itself tested ({tested()} are)"


_LOCK = fork_safe(threading.Lock())
_settled = False


def ensure_supported() -> None:
    """Raise `UnsupportedTritonError` for a Triton that cannot do; warn, once for the process, about one newer than tested."""
    global _settled
    if _settled:
        return
    reason = problem()
    if reason is not None:
        raise UnsupportedTritonError(reason)
    with _LOCK:
        first, _settled = not _settled, True
    if first and triton_version() > NEWEST_TESTED:
        callsite.warn(
            f"triton {triton.__version__} is newer than any that tritontrace was tested with ({tested()}); "
            "it should run, but where a result surprises you, try one of these"
        )


# -- capabilities -------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """A capability of this Triton: its name, whether it has it, and in one sentence what it is."""

    name: str
    present: bool
    meaning: str


_capabilities: dict[str, Callable[[], bool]] = {}


def capability(probe: Callable[[], bool]) -> Callable[[], bool]:
    """Mark a question about Triton: asked at most once a process; its docstring's first sentence says what a yes means."""
    asked = functools.cache(probe)
    _capabilities[probe.__name__] = asked
    return asked


def answers() -> list[Answer]:
    """All capabilities of this Triton, by name."""
    return [
        Answer(name, probe(), " ".join((probe.__doc__ or "").partition("\n\n")[0].split()))
        for name, probe in sorted(_capabilities.items())
    ]


def _names(code: CodeType) -> Iterator[str]:
    """The global and attribute names in `code` and in the code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _mentions(function: Any, name: str) -> bool:
    """Whether a Python function of Triton's refers to `name`; False for anything that is no such function."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return code is not None and name in _names(code)


@capability
def block_pointers() -> bool:
    """`tl.make_block_ptr` makes block pointers.

    3.6 has operations for them, 3.8's frontend takes them apart, and 3.9 keeps the name only to say that they are gone.
    """
    make = behind(getattr(triton.language, "make_block_ptr", None))
    return make is not None and not _mentions(make, "NotImplementedError")


@capability
def block_pointer_operations() -> bool:
    """Block pointers are values of the IR, with operations and a type of their own (3.6)."""
    return hasattr(take("triton._C.libtriton.ir").builder, "create_make_block_ptr")


@capability
def atomic_poll() -> bool:
    """`tl.atomic_poll` waits for a value in memory."""
    return hasattr(triton.language, "atomic_poll")


@capability
def batched_scales() -> bool:
    """`tl.dot_scaled` takes operands, and so scales, of a batch."""
    return hasattr(take("triton.language.semantic.TritonSemantic"), "deduce_scale_factor")


@capability
def variadic_kernels() -> bool:
    """A kernel may have a `*args` parameter (3.6 cannot bind one)."""
    return _mentions(take("triton.runtime.jit.create_function_from_signature"), "VAR_POSITIONAL")


@capability
def keyword_only_parameters() -> bool:
    """A kernel may have keyword-only parameters, after a bare `*` (before 3.9 the frontend refuses them)."""
    return _mentions(take("triton.runtime.jit.create_function_from_signature"), "KEYWORD_ONLY")


@capability
def exact_locations() -> bool:
    """An operation's location is where its expression begins in the file, with columns from 1.

    3.6 counts columns from 0, in the source without its indentation, and gives an expression the place of its last part.
    """
    return _mentions(getattr(take("triton.runtime.jit.JITCallable"), "__init__", None), "def_file_col_number")


@capability
def function_registry() -> bool:
    """Making a JIT function writes to a registry of Triton's, by the function's name."""
    return _mentions(getattr(take("triton.runtime.jit.JITFunction"), "__init__", None), "_triton_jit_function_registry")


@capability
def tuning_listener() -> bool:
    """An Autotuner tells `knobs.autotuning.listener` what it chose."""
    return hasattr(triton.knobs.autotuning, "listener")


@capability
def tunes_a_single_config() -> bool:
    """A config that pruning left alone is benchmarked all the same, and `reset_to_zero` applied (3.6)."""
    # Nothing but its conduct tells: Triton's own `run` is given a tuner that has two configs and keeps one.
    config = triton.Config({})

    class Benchmarked(Exception):
        pass

    class Tuner:
        arg_names: tuple[str, ...] = ()
        keys: tuple[str, ...] = ()
        configs = (config, config)
        cache: dict[Any, Any]
        cache_results = False

        def prune_configs(self, kwargs: Any) -> list[Any]:
            return [config]

        def _bench(self, *args: Any, **kwargs: Any) -> Any:
            raise Benchmarked

    tuner = Tuner()
    tuner.cache = {}
    try:
        take("triton.runtime.autotuner.Autotuner").run(tuner)
    except Benchmarked:
        return True
    except Exception:  # the launch that the tuner would make, of no kernel
        return False
    return False
