"""How the FlagGems cases are written: its functions are called as ATen's are, forward and backward apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.libraries.case import Case, Function, Results, Values, by_name, differentiable, to_float64

Inputs = Callable[[torch.Generator], Values]


def normal(dtype: torch.dtype = torch.float32, **shapes: Sequence[int]) -> Inputs:
    """Standard normal tensors."""
    return lambda g: {name: torch.randn(*shape, generator=g).to(dtype) for name, shape in shapes.items()}


def integers(low: int, high: int, dtype: torch.dtype = torch.int64, **shapes: Sequence[int]) -> Inputs:
    """Uniform integers of ``[low, high)``."""
    return lambda g: {n: torch.randint(low, high, tuple(shape), generator=g).to(dtype) for n, shape in shapes.items()}


def mapped(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """`inputs` with `change` applied to every tensor: into an operation's domain, another layout, ..."""
    return lambda g: {name: change(value) for name, value in inputs(g).items()}


def together(*parts: Inputs, **others: Any) -> Inputs:
    """The inputs of all `parts`."""

    def make(g: torch.Generator) -> Values:
        values: Values = dict(others)
        for part in parts:
            values |= part(g)
        return values

    return make


def forward(name: str, inputs: Inputs, ours: Function, reference: Function, **options: Any) -> Case:
    return differentiable(name, inputs, ours, reference, (), **options)


def backward(name: str, inputs: Inputs, ours: Function, reference: Function, wrt: Sequence[str], **options: Any) -> Case:
    """`ours` returns a dict of the outputs and, as "dx" for an input "x", of what FlagGems' backward function makes of `grad`,
    which is among the inputs. `reference` computes the outputs only; autograd differentiates the first one."""

    def run_reference(values: Values) -> Results:
        own = to_float64(values)
        for leaf in wrt:
            own[leaf] = own[leaf].detach().clone().requires_grad_()
        outputs = by_name(reference(own))
        grads = torch.autograd.grad(next(iter(outputs.values())), [own[leaf] for leaf in wrt], own["grad"])
        named = {f"d{leaf}": grad for leaf, grad in zip(wrt, grads, strict=True)}
        return {name: out.detach() for name, out in outputs.items()} | named

    return Case(name, inputs, lambda values: by_name(ours(values)), run_reference, **options)
