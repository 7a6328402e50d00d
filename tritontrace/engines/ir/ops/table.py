"""What the rooms of the operation table share: the shape of an entry, and the small factories for common ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.tree import Op, Type
from tritontrace.errors import UnsupportedOpError

__all__ = [
    "Emit",
    "Environment",
    "attribute",
    "call",
    "cast",
    "elements",
    "infix",
    "result_element",
    "rounded",
    "scalar_condition",
    "unsupported",
]


class Environment(Protocol):
    """Where generated source finds objects by name."""

    def bind(self, name: str, value: Any) -> str:
        """Make `value` a global of the generated module; returns the name it got (`name` where that is free)."""


Emit = Callable[[Op, Sequence[str], Environment], str]


def elements(op: Op) -> list[str]:
    """The element types of the operands."""
    return [value.type.element for value in op.operands]


def result_element(op: Op) -> str:
    """The element type of the (first) result."""
    return op.results[0].type.element


def attribute(op: Op, name: str, default: int) -> int:
    """An integer attribute that the text may leave out."""
    value = op.attributes.get(name, default)
    return value if isinstance(value, int) else default


def rounded(expression: str, element: str, env: Environment) -> str:
    """`expression`, a float32 or float64 computation of `element` values, rounded to `element`."""
    if element in ("f32", "f64"):
        return expression
    if element == "f16":
        return f"{env.bind('round_f16', numerics.round_f16)}({expression})"
    if element == "bf16":
        return f"{env.bind('round_bf16', numerics.round_bf16)}({expression})"
    return f"{env.bind('round_to', numerics.round_to)}({expression}, {element!r})"


def cast(expression: str, element: str, env: Environment) -> str:
    """`expression` as an array of `element`'s compute dtype (a plain numpy cast)."""
    dtype = numerics.compute_dtype(element)
    return f"{expression}.astype({env.bind(f'dtype_{dtype.name}', dtype)})"


def infix(operator: str, *, exact: bool = False) -> Emit:
    """An entry for ``a <operator> b`` on floats; `exact` results need no rounding."""

    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        expression = f"({args[0]} {operator} {args[1]})"
        return expression if exact else rounded(expression, result_element(op), env)

    return emit


def call(function: Callable[..., Any], *, exact: bool = False, name: str | None = None) -> Emit:
    """An entry for ``function(a, ...)`` on floats; `exact` results need no rounding."""
    bound = name or f"f_{function.__name__}"

    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        expression = f"{env.bind(bound, function)}({', '.join(args)})"
        return expression if exact else rounded(expression, result_element(op), env)

    return emit


def unsupported(op: Op, why: str) -> UnsupportedOpError:
    """The error for an operation that the table has but cannot run in this form."""
    return UnsupportedOpError(f"the IR engine cannot run {op.name!r}: {why}", location=op.location.location)


def scalar_condition(condition: str, kind: Type, result: Type) -> str:
    """A scalar condition's array with as many axes as the tile it chooses for."""
    missing = len(result.shape) - len(kind.shape)
    return f"{condition}[:{', None' * missing}]" if missing > 0 else condition
