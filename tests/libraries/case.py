"""One operation of a library: inputs, how the library computes it, and what it should come to, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

Values = dict[str, Any]
Results = dict[str, Tensor]
Function = Callable[[Values], "Tensor | tuple[Tensor, ...] | Results"]

#: (rtol, atol) by the type of a result. float32 leaves room for sums in another order, not for tf32: a case whose kernel
#: multiplies in tf32 says so with tolerances of its own.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-4),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}
EXACT = (0.0, 0.0)


@dataclass(frozen=True)
class Case:
    """An operation that is run forward, and backward where it has a backward.

    `inputs` makes the arguments from a seeded generator. `run` computes through the library and `reference` with plain torch
    in float64; both return outputs and gradients by name, the same names. They get the same values and must not write to them.
    """

    name: str
    inputs: Callable[[torch.Generator], Values]
    run: Callable[[Values], Results]
    reference: Callable[[Values], Results]
    #: By default what TOLERANCES says for the type of each result.
    rtol: float | None = None
    atol: float | None = None
    #: What the sanitizer rightly finds in the library's kernel, in a sentence. None: it finds nothing.
    finding: str | None = None
    #: More than about ten seconds.
    slow: bool = False

    def make_inputs(self) -> Values:
        return self.inputs(torch.Generator().manual_seed(0))

    def check(self, got: Results, want: Results) -> None:
        """AssertionError that names the result which differs."""
        assert got.keys() == want.keys(), f"{self.name}: got {sorted(got)}, want {sorted(want)}"
        assert want, f"{self.name}: nothing to compare"
        for name, value in want.items():
            default = TOLERANCES.get(got[name].dtype, EXACT)
            assert_close(
                got[name].detach().cpu().to(value.dtype),
                value.detach(),
                rtol=default[0] if self.rtol is None else self.rtol,
                atol=default[1] if self.atol is None else self.atol,
                equal_nan=True,
                msg=lambda text, name=name: f"{self.name}: {name}: {text}",
            )


def by_name(out: Tensor | Sequence[Tensor] | Results) -> Results:
    if isinstance(out, Tensor):
        return {"out": out}
    if isinstance(out, dict):
        return out
    return {f"out{i}": value for i, value in enumerate(out)}


def gradients(function: Function, values: Values, wrt: Sequence[str]) -> Results:
    """Outputs of `function`, and the gradients of `wrt` for a fixed random gradient of every output that has one.

    Floating tensors come as fresh leaves, so that `function` may write into clones of them and no call sees another's graph.
    The random gradients are drawn in float64 and rounded, so that a float64 reference gets the same ones.
    """
    own = {k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in values.items()}
    for name in wrt:
        own[name].requires_grad_()
    outputs = by_name(function(own))
    generator = torch.Generator().manual_seed(1)
    # Even where the library returns bf16 and the reference float64, both must start from the same gradient.
    grad_dtype = next((own[name].dtype for name in wrt), torch.float32)
    grad_dtype = torch.float32 if grad_dtype == torch.float64 else grad_dtype
    roots, root_grads = [], []
    for out in outputs.values():
        gradient = torch.randn(out.shape, generator=generator).to(values.get("grad_dtype", grad_dtype))
        if out.requires_grad:
            roots.append(out)
            root_grads.append(gradient.to(out.dtype))
    results = {name: out.detach() for name, out in outputs.items()}
    if wrt:
        grads = torch.autograd.grad(roots, [own[name] for name in wrt], root_grads, allow_unused=True)
        missing = [name for name, grad in zip(wrt, grads, strict=True) if grad is None]
        assert not missing, f"no gradient for {missing}"
        results |= {f"d{name}": grad for name, grad in zip(wrt, grads, strict=True)}
    return results


def to_float64(values: Values) -> Values:
    return {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in values.items()}


def differentiable(
    name: str,
    inputs: Callable[[torch.Generator], Values],
    ours: Function,
    reference: Function,
    wrt: Sequence[str] = (),
    **options: Any,
) -> Case:
    """A Case from two plain functions of the inputs, with the gradients of the inputs named `wrt` (none: forward only).

    The functions return a tensor, several, or a dict. `reference` is given the inputs in float64.
    """

    def reference_results(values: Values) -> Results:
        dtype = next((values[n].dtype for n in wrt), torch.float32)
        return gradients(reference, to_float64(values) | {"grad_dtype": dtype}, wrt)

    return Case(name, inputs, lambda values: gradients(ours, values, wrt), reference_results, **options)


def maker(**shapes: Sequence[int]) -> Callable[..., Callable[[torch.Generator], Values]]:
    """Inputs that are all standard normal: ``maker(x=(4, 8), w=(8,))(torch.bfloat16, eps=1e-6)`` is an `inputs`."""

    def of(dtype: torch.dtype = torch.float32, **others: Any) -> Callable[[torch.Generator], Values]:
        def inputs(generator: torch.Generator) -> Values:
            return {k: torch.randn(tuple(shape), generator=generator).to(dtype) for k, shape in shapes.items()} | others

        return inputs

    return of
