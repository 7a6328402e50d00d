"""Cases: small kernels that are run under a session and compared with a reference that knows nothing of the engine.

A case names what it covers. That claim is checked twice: the compiler must have met each name in the kernels that the case
launched (`recorder`), and every output that the case compares must fail that comparison in the state it had before the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

import tritontrace
from tests.language.names import public_names
from tests.language.recorder import recording

__all__ = ["CASES", "Case", "Run", "cases_of", "covers", "installed"]


@cache
def installed() -> frozenset[str]:
    """The public names of this version."""
    return frozenset(public_names())


class Run:
    """What a case launches and compares with."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.compared = 0
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.kernels: set[Any] = set()
        self.findings: list[Any] = []
        self.compiled = True

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *args: Any, target: str | None = None, session: Any = None, **kwargs: Any
    ) -> Any:
        """Launch `kernel` traced and sanitized; no access may be out of bounds."""
        with (
            tritontrace.session(clients=["tracer", "sanitizer"], target=target, **(session or {})) as opened,
            recording(self.names),
        ):
            kernel[grid](*args, **kwargs)
        self.findings += opened.findings
        self.compiled &= opened.engine != "python"
        assert not opened.findings, [finding.message for finding in opened.findings]
        return opened.launches[-1]

    def out(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor to be written, full of 77 (True for bools)."""
        return self.inout(torch.full(shape, True if dtype is torch.bool else 77).to(dtype))

    def inout(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`, to be changed."""
        self.before.append((tensor, tensor.clone()))
        return tensor

    def equal(self, out: torch.Tensor, expected: Any) -> None:
        """Bit for bit, NaN being equal to NaN."""
        self.close(out, expected, rtol=0, atol=0)

    def close(self, out: torch.Tensor, expected: Any, rtol: float = 1e-6, atol: float = 1e-6) -> None:
        """Within tolerance of a reference."""
        wanted = _array(expected)
        before = next((old for tensor, old in self.before if tensor is out), None)
        assert before is not None, "compare what out() or inout() gave"
        problem = _difference(_array(out), wanted, rtol, atol)
        assert problem is None, problem
        assert _difference(_array(before), wanted, rtol, atol) is not None, "the comparison would hold without the launch"
        self.compared += 1


def _array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype.is_floating_point and value.element_size() < 4:
            value = value.double()
        value = value.numpy()
    value = np.asarray(value)
    return value.astype(np.float64) if value.dtype.kind == "f" and value.dtype.itemsize < 8 else value


def _difference(out: Any, expected: Any, rtol: float, atol: float) -> str | None:
    try:
        if rtol == 0 and atol == 0:
            np.testing.assert_array_equal(out, expected)
        else:
            np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
    except AssertionError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Case:
    """`run` launches kernels that use all of `names`, as far as the installed version has them."""

    name: str
    names: frozenset[str]
    run: Callable[[Run], None]
    needs: frozenset[str] = field(default_factory=frozenset)

    @property
    def possible(self) -> bool:
        """False where the installed version lacks what the case is about."""
        return self.needs <= installed() and bool(self.names & installed() or not self.names)

    def check(self) -> None:
        """Raises what is wrong with it."""
        run = Run()
        self.run(run)
        assert run.compared, f"{self.name} compares nothing"
        unused = (self.names & installed()) - run.names if run.compiled else set()
        assert not unused, f"{self.name} claims names that its kernels do not use: {sorted(unused)}"


CASES: list[Case] = []


def covers(*names: str, needs: tuple[str, ...] = ()) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Makes a case of a function that takes a `Run`; `names` may each hold several, separated by spaces.

    It is run where the installed version has all of `needs`.
    """
    split = [name for text in names for name in text.split()]

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        CASES.append(Case(name, frozenset(split), function, frozenset(needs)))
        return function

    return register


@cache
def cases_of(name: str) -> tuple[Case, ...]:
    """The cases that cover `name`."""
    return tuple(case for case in CASES if name in case.names)
