"""flash-linear-attention: token mixers, chunked and recurrent, against naive float64 recurrences one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from fla.ops.attn.parallel import parallel_attn
from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
from fla.ops.forgetting_attn.parallel import parallel_forgetting_attn
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from fla.ops.generalized_delta_rule.dplr import chunk_dplr_delta_rule, fused_recurrent_dplr_delta_rule
from fla.ops.gla import chunk_gla, fused_recurrent_gla
from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
from fla.ops.kda import chunk_kda, fused_recurrent_kda
from fla.ops.lightning_attn import chunk_lightning_attn
from fla.ops.linear_attn import chunk_linear_attn, fused_recurrent_linear_attn
from fla.ops.retention import chunk_retention, fused_recurrent_retention, parallel_retention
from fla.ops.rwkv6 import chunk_rwkv6, fused_recurrent_rwkv6
from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla
from torch import Tensor

from tests.libraries import fla_modules
from tests.libraries.case import Case, Values, differentiable

#: float32 inputs, multiplied in tf32 where a kernel uses tl.dot.
TF32: Values = {"rtol": 1e-2, "atol": 1e-2}
#: float16 and bfloat16 inputs, whose intermediate states are rounded to that type between kernels.
HALF: Values = {"rtol": 2e-2, "atol": 2e-2}
ROUGH: Values = {"rtol": 5e-2, "atol": 1e-1}

LENGTHS = torch.tensor([0, 15, 79, 100])


def pieces(v: Values) -> Iterable[tuple[int, int, int]]:
    """(number, batch entry and slice) of each sequence: batch entries, or the parts that `cu_seqlens` cuts one into."""
    if "cu" in v:
        bounds = v["cu"].tolist()
        return [(0, a, b) for a, b in pairwise(bounds)]
    return [(b, 0, v["v"].shape[1]) for b in range(v["v"].shape[0])]


def scan(v: Values, step: Callable[[Values, Tensor], tuple[Tensor, Tensor]], per_token: str) -> Values:
    """Runs `step` over the tokens of every sequence; `per_token` names the values that have a token axis."""
    outputs, states = [], []
    for number, (entry, start, stop) in enumerate(pieces(v)):
        state = v["h0"][number]
        tokens = []
        for t in range(start, stop):
            now = {name: v[name][entry, t] for name in per_token.split()}
            out, state = step(now, state)
            tokens.append(out)
        outputs.append(torch.stack(tokens))
        states.append(state)
    joined = torch.cat(outputs)[None] if "cu" in v else torch.stack(outputs)
    return {"out": joined, "state": torch.stack(states)}


def outer(a: Tensor, b: Tensor) -> Tensor:
    return a[..., :, None] * b[..., None, :]


def read(q: Tensor, state: Tensor) -> Tensor:
    return (q[..., :, None] * state).sum(-2)


def scale(v: Values) -> float:
    return float(v["q"].shape[-1] ** -0.5)


def linear_attention(v: Values) -> Values:
    """state += k v'; where there are gates the state decays first: `g` per key channel or per head, `gamma` fixed per head."""

    def step(now: Values, state: Tensor) -> tuple[Tensor, Tensor]:
        if "g" in v:
            decay = now["g"].exp()
            state = state * (decay[..., None] if decay.dim() == 2 else decay[:, None, None])
        elif "gamma" in v:
            state = state * v["gamma"].to(state)[:, None, None]
        state = state + outer(now["k"], now["v"])
        return read(now["q"], state) * scale(v), state

    return scan(v, step, "q k v g" if "g" in v else "q k v")


def delta_rule(v: Values) -> Values:
    """What the state holds for k is read, and replaced by v in the proportion beta; `g` decays it before, per head or channel."""

    def step(now: Values, state: Tensor) -> tuple[Tensor, Tensor]:
        if "g" in v:
            decay = now["g"].exp()
            state = state * (decay[..., None] if decay.dim() == 2 else decay[:, None, None])
        error = (now["v"] - read(now["k"], state)) * now["beta"][:, None]
        state = state + outer(now["k"], error)
        return read(now["q"], state) * scale(v), state

    return scan(v, step, "q k v beta g" if "g" in v else "q k v beta")


def diagonal_plus_low_rank(v: Values) -> Values:
    def step(now: Values, state: Tensor) -> tuple[Tensor, Tensor]:
        removed = outer(now["b"], read(now["a"], state))
        state = state * now["g"].exp()[..., None] + removed + outer(now["k"], now["v"])
        return read(now["q"], state) * scale(v), state

    return scan(v, step, "q k v a b g")


def rwkv6(v: Values) -> Values:
    """A token sees itself through the bonus `u`, the others through the decayed state."""

    def step(now: Values, state: Tensor) -> tuple[Tensor, Tensor]:
        new = outer(now["k"], now["v"])
        out = read(now["q"], state + v["u"][..., None] * new) * scale(v)
        return out, state * now["g"].exp()[..., None] + new

    return scan(v, step, "q k v g")


def hgrn(v: Values) -> Values:
    def step(now: Values, state: Tensor) -> tuple[Tensor, Tensor]:
        state = state * now["g"].exp() + now["v"]
        return state, state

    return scan(v, step, "v g")


def attention(v: Values) -> Tensor:
    """Causal softmax attention; `window` tokens back at most; `g` is a forget gate's log, summed between the two tokens."""
    groups = v["q"].shape[2] // v["k"].shape[2]
    outputs = []
    for entry, start, stop in pieces(v):
        q, k, value = (v[n][entry, start:stop].transpose(0, 1) for n in "qkv")
        k, value = (x.repeat_interleave(groups, 0) for x in (k, value))
        scores = q @ k.transpose(-1, -2) * scale(v)
        if "g" in v:
            total = v["g"][entry, start:stop].cumsum(0).t()
            scores = scores + total[..., :, None] - total[..., None, :]
        i, j = torch.meshgrid(torch.arange(stop - start), torch.arange(stop - start), indexing="ij")
        allowed = (j <= i) & (i - j < v.get("window", stop))
        outputs.append((scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ value).transpose(0, 1))
    return torch.cat(outputs)[None] if "cu" in v else torch.stack(outputs)


def heads(
    dtype: torch.dtype = torch.float32,
    *,
    gate: str = "",
    beta: bool = False,
    cu: Tensor | None = None,
    tokens: int = 80,
    keys: int = 32,
    values: int = 16,
    queries: int = 2,
    state: bool = True,
    low_rank: bool = False,
) -> Callable[[torch.Generator], Values]:
    """q, k, v of two sequences, or of those that `cu` cuts one into, with two heads. Keys have length one for the delta rules."""

    def inputs(generator: torch.Generator) -> Values:
        batch, length = (1, int(cu[-1])) if cu is not None else (2, tokens)
        randn = lambda *shape: torch.randn(*shape, generator=generator)
        v: Values = {
            "q": F.normalize(randn(batch, length, queries, keys), dim=-1) * 4,
            "k": F.normalize(randn(batch, length, 2, keys), dim=-1),
            "v": randn(batch, length, 2, values),
        }
        if state:
            v["h0"] = 0.5 * randn(batch if cu is None else len(cu) - 1, 2, keys, values)
        if gate == "channel":
            v["g"] = F.logsigmoid(randn(batch, length, 2, keys)) / 4
        if gate == "head":
            v["g"] = F.logsigmoid(randn(batch, length, queries)) / 4
        if beta:
            v["beta"] = torch.rand(batch, length, 2, generator=generator)
        if low_rank:
            direction = F.normalize(randn(batch, length, 2, keys), dim=-1)
            v |= {"a": -direction, "b": direction * torch.rand(batch, length, 2, keys, generator=generator)}
        halves = {n: x if n in ("h0", "g") else x.to(dtype) for n, x in v.items()}
        return halves if cu is None else halves | {"cu": cu}

    return inputs


def hgrn_inputs(cu: Tensor | None = None) -> Callable[[torch.Generator], Values]:
    def inputs(generator: torch.Generator) -> Values:
        batch, length = (1, int(cu[-1])) if cu is not None else (2, 80)
        v = {name: torch.randn(batch, length, 40, generator=generator) for name in "vg"}
        v["g"] = F.logsigmoid(v["g"])
        v["h0"] = torch.randn(batch if cu is None else len(cu) - 1, 40, generator=generator)
        return v if cu is None else v | {"cu": cu}

    return inputs


def constant_state(reference: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """For functions of the library whose backward takes no gradient of the final state."""

    def run(v: Values) -> Values:
        out = reference(v)
        return out | {"state": out["state"].detach()}

    return run


def mixer(function: Any, names: str, state: bool = True, constant: bool = False, **options: Any) -> Callable[[Values], Any]:
    """Calls a library function with the values named (``library_name=ours``, or one name for both).

    `state`: it takes an initial state and gives the final one; `constant`: it gives that no gradient.
    """
    pairs = [pair.split("=") if "=" in pair else (pair, pair) for pair in names.split()]

    def run(v: Values) -> Any:
        arguments = {theirs: v[ours] for theirs, ours in pairs}
        if state:
            arguments |= {"initial_state": v["h0"], "output_final_state": True}
        if "cu" in v:
            arguments["cu_seqlens"] = v["cu"]
        out = function(**arguments, **options)
        if not state:
            return out
        return {"out": out[0], "state": out[1].detach() if constant else out[1]}

    return run


def with_bonus(inputs: Callable[[torch.Generator], Values]) -> Callable[[torch.Generator], Values]:
    return lambda generator: inputs(generator) | {"u": torch.randn(2, 32, generator=generator)}


def with_gamma(inputs: Callable[[torch.Generator], Values], gamma: Tensor) -> Callable[[torch.Generator], Values]:
    return lambda generator: inputs(generator) | {"gamma": gamma}


#: Retention forgets 1/32 and 1/64 of its state at each token, in its two heads.
RETENTION = 1 - 2.0 ** (-5 - torch.arange(2).double())
#: Lightning attention's decay, from the layer's place in the model (here the first of 12) and the number of heads.
LIGHTNING = (-8 / 2 * (1 - 0 / 12) * torch.arange(2).double()).exp()
BF16 = torch.bfloat16
QKV = ["q", "k", "v"]
STATE = [*QKV, "h0"]

CASES: list[Case] = [
    *fla_modules.CASES,
    differentiable(
        "linear_attn recurrent", heads(), mixer(fused_recurrent_linear_attn, "q k v", normalize=False), linear_attention, STATE
    ),
    differentiable(
        "linear_attn chunk", heads(), mixer(chunk_linear_attn, "q k v", normalize=False), linear_attention, STATE, **TF32
    ),
    differentiable(
        "retention recurrent", with_gamma(heads(), RETENTION), mixer(fused_recurrent_retention, "q k v"), linear_attention, STATE
    ),
    differentiable(
        "retention chunk", with_gamma(heads(), RETENTION), mixer(chunk_retention, "q k v"), linear_attention, STATE, **TF32
    ),
    # Tokens fill the chunks: in a cut last chunk the library multiplies the absent tokens' zeros by exp2 of how far they lie
    # past the end times the decay, which is infinite for a head that forgets this fast, and the final state is NaN.
    differentiable(
        "lightning_attn chunk", with_gamma(heads(tokens=128), LIGHTNING),
        mixer(chunk_lightning_attn, "q k v", layer_idx=0, num_layers=12), linear_attention, STATE, **TF32,
    ),
    differentiable(
        "simple_gla recurrent", heads(gate="head"), mixer(fused_recurrent_simple_gla, "q k v g"), linear_attention, [*STATE, "g"]
    ),
    differentiable(
        "simple_gla chunk", heads(gate="head"), mixer(chunk_simple_gla, "q k v g"), linear_attention, [*STATE, "g"], **TF32
    ),
    differentiable(
        "simple_gla chunk, varlen", heads(gate="head", cu=LENGTHS), mixer(chunk_simple_gla, "q k v g"), linear_attention,
        [*STATE, "g"], **TF32,
    ),
    differentiable(
        "simple_gla chunk bfloat16", heads(BF16, gate="head"), mixer(chunk_simple_gla, "q k v g"), linear_attention,
        [*STATE, "g"], **ROUGH,
    ),
    differentiable(
        "gla recurrent", heads(gate="channel"), mixer(fused_recurrent_gla, "q k v gk=g"), linear_attention, [*STATE, "g"]
    ),
    differentiable(
        "gla recurrent, varlen", heads(gate="channel", cu=LENGTHS), mixer(fused_recurrent_gla, "q k v gk=g"), linear_attention,
        [*STATE, "g"],
    ),
    differentiable("gla chunk", heads(gate="channel"), mixer(chunk_gla, "q k v g"), linear_attention, [*STATE, "g"], **TF32),
    differentiable(
        "gla chunk, varlen", heads(gate="channel", cu=LENGTHS), mixer(chunk_gla, "q k v g"), linear_attention,
        [*STATE, "g"], **TF32,
    ),
    differentiable(
        "delta_rule recurrent", heads(beta=True), mixer(fused_recurrent_delta_rule, "q k v beta"), delta_rule, [*STATE, "beta"]
    ),
    differentiable(
        "delta_rule chunk float16", heads(torch.float16, beta=True), mixer(chunk_delta_rule, "q k v beta"), delta_rule,
        [*STATE, "beta"], **HALF,
    ),
    differentiable(
        "gated_delta_rule recurrent", heads(gate="head", beta=True),
        mixer(fused_recurrent_gated_delta_rule, "q k v g beta"), delta_rule,
    ),
    differentiable(
        "gated_delta_rule recurrent, varlen", heads(gate="head", beta=True, cu=LENGTHS),
        mixer(fused_recurrent_gated_delta_rule, "q k v g beta"), delta_rule,
    ),
    differentiable(
        "gated_delta_rule chunk float16", heads(torch.float16, gate="head", beta=True),
        mixer(chunk_gated_delta_rule, "q k v g beta"), delta_rule, [*STATE, "g", "beta"], **HALF,
    ),
    differentiable(
        "gated_delta_rule chunk bfloat16", heads(BF16, gate="head", beta=True),
        mixer(chunk_gated_delta_rule, "q k v g beta"), delta_rule, [*STATE, "g", "beta"], **ROUGH,
    ),
    differentiable(
        "gated_delta_rule chunk, varlen", heads(torch.float16, gate="head", beta=True, cu=LENGTHS),
        mixer(chunk_gated_delta_rule, "q k v g beta"), delta_rule, [*STATE, "g", "beta"], **HALF,
    ),
    differentiable(
        "kda recurrent", heads(gate="channel", beta=True), mixer(fused_recurrent_kda, "q k v g beta"), delta_rule
    ),
    differentiable(
        "kda chunk float16", heads(torch.float16, gate="channel", beta=True), mixer(chunk_kda, "q k v g beta"), delta_rule,
        [*STATE, "g", "beta"], slow=True, **HALF,
    ),
    differentiable(
        "dplr_delta_rule recurrent", heads(gate="channel", low_rank=True),
        mixer(fused_recurrent_dplr_delta_rule, "q k v a b gk=g"), diagonal_plus_low_rank,
    ),
    differentiable(
        "dplr_delta_rule chunk float16", heads(torch.float16, gate="channel", low_rank=True),
        mixer(chunk_dplr_delta_rule, "q k v a b gk=g"), diagonal_plus_low_rank, [*STATE, "a", "b", "g"], slow=True, **HALF,
    ),
    differentiable(
        "rwkv6 recurrent", with_bonus(heads(gate="channel")), mixer(fused_recurrent_rwkv6, "r=q k v w=g u", constant=True),
        constant_state(rwkv6), [*STATE, "g", "u"],
    ),
    differentiable(
        "rwkv6 chunk", with_bonus(heads(gate="channel")), mixer(chunk_rwkv6, "r=q k v w=g u"), rwkv6, [*STATE, "g", "u"],
        slow=True, **TF32,
    ),
    differentiable(
        "rwkv6 chunk, varlen", with_bonus(heads(gate="channel", cu=LENGTHS)), mixer(chunk_rwkv6, "r=q k v w=g u"), rwkv6,
        [*STATE, "g", "u"], slow=True, **TF32,
    ),
    differentiable("hgrn recurrent", hgrn_inputs(), mixer(fused_recurrent_hgrn, "x=v g"), hgrn, ["v", "g", "h0"]),
    differentiable("hgrn recurrent, varlen", hgrn_inputs(LENGTHS), mixer(fused_recurrent_hgrn, "x=v g"), hgrn, ["v", "g", "h0"]),
    differentiable("hgrn chunk", hgrn_inputs(), mixer(chunk_hgrn, "x=v g", constant=True), constant_state(hgrn), ["v", "g"]),
    differentiable(
        "parallel_retention", with_gamma(heads(state=False), RETENTION),
        mixer(lambda **k: parallel_retention(**k)[0], "q k v", state=False),
        lambda v: linear_attention(v | {"h0": torch.zeros(2, 2, 32, 16, dtype=torch.float64)})["out"], QKV, **TF32,
    ),
    *(
        differentiable(f"parallel_attn{name}", inputs, mixer(parallel_attn, "q k v", state=False), attention, QKV, **TF32)
        for name, inputs in {
            "": heads(state=False),
            ", grouped queries": heads(state=False, queries=4),
            ", varlen": heads(state=False, cu=LENGTHS),
        }.items()
    ),
    differentiable(
        "parallel_attn bfloat16", heads(BF16, state=False), mixer(parallel_attn, "q k v", state=False), attention, QKV, **HALF
    ),
    differentiable(
        "parallel_attn, window", lambda generator: heads(state=False)(generator) | {"window": 9},
        mixer(parallel_attn, "q k v window_size=window", state=False), attention, QKV, **TF32,
    ),
    differentiable(
        "forgetting_attn", heads(gate="head", state=False), mixer(parallel_forgetting_attn, "q k v g", state=False), attention,
        [*QKV, "g"], **TF32,
    ),
]  # fmt: skip
