"""What Triton's compiler says of a kernel that it refuses: the reason, where it stands, and if only Python could run that."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from typing import TYPE_CHECKING, Any

from triton.compiler.errors import CompilationError

from tritontrace.kernels import compat

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PLAIN", "in_helper", "only_python", "reason"]

PLAIN = (int, float, bool, str, tuple)
"""Types of a module's variable that must be a ``tl.constexpr`` for a kernel to read it, as the compiler has it."""

_PYTHONS_OWN = re.compile(
    r"'(tuple|list)' object has no attribute '?(append|extend|insert|pop)\b|"
    r"'(append|extend|insert|pop)' is not in list|"  # Triton 3.6
    r"object has no attribute '?numpy\b|"
    r"'(In|NotIn)' object has no attribute '__name__'|"
    r"only tuple comprehensions are supported"
)
_UNKNOWN = re.compile(r"\b(\w+) is not defined")
_GLOBAL = re.compile(r"Cannot access global variable (\w+) from within")
_SET = re.compile("(__setitem__|Attribute assignment) is not supported in triton")
_RAISED = re.compile(r"""\w+\((?P<text>(['"]).*\2)\)""", re.DOTALL)


def only_python(error: BaseException, kernel: Any) -> bool:
    """True if the compiler met what only Python can run: a statement that it has not, ``breakpoint()``, a list to append to.

    What it refuses for types or shapes is no such thing: no engine takes that.
    """
    for cause in _causes(error):
        text = str(cause)
        if isinstance(cause, compat.UnsupportedLanguageConstruct):
            return True
        # of a helper, the error of the call is raised from that of the helper's line, which has only its text
        if isinstance(cause, (NameError, CompilationError)):
            unknown, outer = _UNKNOWN.search(text), _GLOBAL.search(text)
            if unknown is not None and hasattr(builtins, unknown[1]):
                return True
            if outer is not None and _reads_object(kernel, outer[1]):
                return True
        # a list of the kernel's own is a tuple to the compiler, and a block has no `numpy()` there
        if isinstance(cause, (AttributeError, ValueError, CompilationError)) and _PYTHONS_OWN.search(text):
            return True
        if isinstance(cause, CompilationError) and _SET.search(text) and _reads_object(kernel, _container(cause.node)):
            return True
    return False


def reason(error: BaseException, kernel: Any) -> str:
    """One line: what is wrong, behind the file and line of the innermost function that the compiler was in, where known."""
    refused = [cause for cause in _causes(error) if isinstance(cause, CompilationError)]
    if not refused:
        return (str(error).strip() or type(error).__name__).splitlines()[-1]
    innermost = refused[-1]
    said = _said(innermost)
    line = getattr(innermost.node, "lineno", None)
    for function in _functions(kernel):
        if line is not None and getattr(function, "src", None) == innermost.src:
            lines, first = inspect.getsourcelines(function.fn)
            # the compiler's text begins behind the decorators
            decorators = next((n for n, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
            inside = "" if function is kernel else f" in {function.fn.__name__}"
            return f"{function.fn.__code__.co_filename}:{first + decorators + line - 1}{inside}: {said}"
    return said


def in_helper(error: BaseException) -> bool:
    """True for an error about a line of a helper, whose own text shows the call of the helper only."""
    return isinstance(error, CompilationError) and any(isinstance(e, CompilationError) for e in _causes(error.__cause__))


def _said(error: CompilationError) -> str:
    text = (error.error_message or "").strip()
    raised = _RAISED.fullmatch(text)  # the compiler has the repr of what was raised
    if raised is not None:
        text = str(ast.literal_eval(raised["text"]))
    if _GLOBAL.match(text):
        text = text.partition(". ")[0]
    return text.splitlines()[0] if text else type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    cause = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _container(statement: Any) -> str:
    """``d`` of the statement ``d[key] = value`` or ``d.key = value``, or of one with more targets."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    named = [t.value.id for t in targets if isinstance(t, (ast.Subscript, ast.Attribute)) and isinstance(t.value, ast.Name)]
    return named[0] if named else ""


def _functions(kernel: Any) -> Iterator[Any]:
    """The kernel and the helpers that it reaches by a name of its module or closure."""
    waiting, known = [kernel], set()
    while waiting:
        function = waiting.pop()
        if not compat.is_function(function) or id(function) in known or not inspect.isfunction(function.fn):
            continue
        known.add(id(function))
        yield function
        waiting.extend(_outer(function).values())


def _outer(function: Any) -> dict[str, Any]:
    """The variables of its module and closure that a function reads."""
    read = inspect.getclosurevars(function.fn)
    return {**read.globals, **read.nonlocals}


def _reads_object(kernel: Any, name: str) -> bool:
    """True if a function of the kernel reads a variable of this name that the Python engine takes.

    A number that is no ``tl.constexpr`` is refused by both engines, and before anything has run.
    """
    found = [values[name] for values in map(_outer, _functions(kernel)) if name in values]
    return bool(found) and all(type(value) not in PLAIN for value in found)
