"""FlagGems: indexing, sorting, and everything that moves elements about."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from flag_gems import ops
from torch import Tensor

from tests.libraries.case import Case, Values
from tests.libraries.flag_gems_cases import Inputs, backward, forward, integers, mapped, normal, together

X = normal(x=(33, 70))
CUBE = normal(x=(6, 9, 14))


def moved(name: str, ours: Any, reference: Any, inputs: Inputs = X, **options: Any) -> Case:
    return forward(name, inputs, lambda v: ours(v["x"]), lambda v: reference(v["x"]), **options)


def in_place(name: str, ours: Any, reference: Any, inputs: Inputs) -> Case:
    """`ours` writes to a copy of x and returns what it returns."""
    return forward(name, inputs, lambda v: ours(v | {"x": v["x"].clone()}), reference)


INDEX = together(X, integers(0, 33, i=(20,)))
PLACES = together(X, integers(0, 33, i=(20, 50)), normal(src=(20, 50)))
DISTINCT = together(
    X, lambda g: {"i": torch.stack([torch.randperm(33, generator=g)[:20] for _ in range(50)], 1)}, normal(src=(20, 50))
)
PAIRS = together(X, integers(0, 33, i=(20,)), integers(0, 70, j=(20,)), normal(src=(20,)))
MASK = together(X, integers(0, 2, torch.bool, m=(33, 70)), normal(src=(2310,)))


RESTRIDED = (
    "the argument is a view with step 0 along the axis, from which the kernel reaches the whole tensor by a step of its own; "
    'all within the storage, so clean with `Sanitizer(bounds="storage")`'
)


def embedding(v: Values) -> dict[str, Tensor]:
    return {"out": ops.embedding(v["w"], v["i"]), "dw": ops.embedding_backward(v["grad"], v["i"], 50)}


INDEXING = [
    backward(
        "embedding",
        together(normal(w=(50, 24), grad=(4, 9, 24)), integers(0, 50, i=(4, 9))),
        embedding,
        lambda v: F.embedding(v["i"], v["w"]),
        ["w"],
    ),
    backward(
        "gather",
        together(normal(x=(33, 70), grad=(20, 50)), integers(0, 33, i=(20, 50))),
        lambda v: {"out": ops.gather(v["x"], 0, v["i"]), "dx": ops.gather_backward(v["grad"], v["x"], 0, v["i"], False)},
        lambda v: v["x"].gather(0, v["i"]),
        ["x"],
        finding=RESTRIDED,
    ),
    forward(
        "gather last axis",
        together(X, integers(0, 70, i=(20, 50))),
        lambda v: ops.gather(v["x"], 1, v["i"]),
        lambda v: v["x"].gather(1, v["i"]),
        finding=RESTRIDED,
    ),
    forward(
        "scatter", DISTINCT, lambda v: ops.scatter(v["x"], 0, v["i"], v["src"]), lambda v: v["x"].scatter(0, v["i"], v["src"])
    ),
    forward(
        "scatter add",
        PLACES,
        lambda v: ops.scatter(v["x"], 0, v["i"], v["src"], reduce="add"),
        lambda v: v["x"].scatter_add(0, v["i"], v["src"]),
    ),
    in_place(
        "scatter_add_",
        lambda v: ops.scatter_add_(v["x"], 0, v["i"], v["src"]),
        lambda v: v["x"].scatter_add(0, v["i"], v["src"]),
        PLACES,
    ),
    forward("index", PAIRS, lambda v: ops.index(v["x"], [v["i"], v["j"]]), lambda v: v["x"][v["i"], v["j"]]),
    forward("index_select", INDEX, lambda v: ops.index_select(v["x"], 0, v["i"]), lambda v: v["x"].index_select(0, v["i"])),
    forward(
        "index_put accumulate",
        PAIRS,
        lambda v: ops.index_put(v["x"], [v["i"], v["j"]], v["src"], True),
        lambda v: v["x"].index_put((v["i"], v["j"]), v["src"], True),
    ),
    forward(
        "index_add",
        together(X, integers(0, 33, i=(20,)), normal(src=(20, 70))),
        lambda v: ops.index_add(v["x"], 0, v["i"], v["src"], alpha=0.5),
        lambda v: v["x"].index_add(0, v["i"], v["src"], alpha=0.5),
    ),
    forward("masked_select", MASK, lambda v: ops.masked_select(v["x"], v["m"]), lambda v: v["x"].masked_select(v["m"])),
    forward(
        "masked_scatter",
        MASK,
        lambda v: ops.masked_scatter(v["x"], v["m"], v["src"]),
        lambda v: v["x"].masked_scatter(v["m"], v["src"]),
    ),
    moved("nonzero", ops.nonzero, torch.nonzero, mapped(integers(0, 3, x=(33, 70)), Tensor.float)),
    forward(
        "isin", integers(0, 60, x=(33, 70), y=(25,)), lambda v: ops.isin(v["x"], v["y"]), lambda v: torch.isin(v["x"], v["y"])
    ),
    forward(
        "take along a slice",
        together(X, normal(src=(33, 12))),
        lambda v: ops.slice_scatter(v["x"], v["src"], 1, 10, 46, 3),
        lambda v: v["x"].slice_scatter(v["src"], 1, 10, 46, 3),
    ),
    forward(
        "select_scatter",
        together(X, normal(src=(33,))),
        lambda v: ops.select_scatter(v["x"], v["src"], 1, 10),
        lambda v: v["x"].select_scatter(v["src"], 1, 10),
    ),
]

DISTINCT_VALUES = lambda *shape: lambda g: {"x": torch.randperm(torch.Size(shape).numel(), generator=g).float().view(shape)}
FEW = integers(0, 40, x=(600,))


def unique(v: Values) -> tuple[Tensor, Tensor, Tensor]:
    return ops._unique2(v["x"], True, True, True)


SORTING = [
    moved("sort", lambda x: tuple(ops.sort(x)), lambda x: tuple(torch.sort(x)), DISTINCT_VALUES(9, 300)),
    moved(
        "sort descending, first axis",
        lambda x: tuple(ops.sort(x, 0, True)),
        lambda x: tuple(torch.sort(x, 0, True)),
        DISTINCT_VALUES(50, 7),
    ),
    moved(
        "sort_stable int16",
        lambda x: tuple(ops.sort_stable(x, stable=True)),
        lambda x: tuple(torch.sort(x, stable=True)),
        integers(-50, 50, torch.int16, x=(5, 300)),
    ),
    moved("topk", lambda x: tuple(ops.topk(x, 7)), lambda x: tuple(torch.topk(x, 7)), DISTINCT_VALUES(9, 300)),
    moved(
        "topk smallest",
        lambda x: tuple(ops.topk(x, 5, largest=False)),
        lambda x: tuple(torch.topk(x, 5, largest=False)),
        DISTINCT_VALUES(9, 40),
    ),
    forward("unique", FEW, unique, lambda v: torch.unique(v["x"], True, True, True)),
    forward("unique of 9000", integers(0, 4000, x=(9000,)), unique, lambda v: torch.unique(v["x"], True, True, True)),
    forward(
        "unique_consecutive",
        integers(0, 3, x=(600,)),
        lambda v: ops.unique_consecutive(v["x"], True, True),
        lambda v: torch.unique_consecutive(v["x"], True, True),
    ),
]

MOVING = [
    *(
        moved(
            f"pad {mode}",
            lambda x, mode=mode: ops.pad(x, (2, 3, 1, 4), mode),
            lambda x, mode=mode: F.pad(x[None, None], (2, 3, 1, 4), mode)[0, 0],
        )
        for mode in ("constant", "reflect", "replicate", "circular")
    ),
    moved("reflection_pad1d", lambda x: ops.reflection_pad1d(x, (3, 5)), lambda x: F.pad(x, (3, 5), "reflect")),
    moved("replication_pad1d", lambda x: ops.replication_pad1d(x, (3, 5)), lambda x: F.pad(x, (3, 5), "replicate")),
    moved("flip", lambda x: ops.flip(x, [0, 2]), lambda x: x.flip(0, 2), CUBE),
    moved("roll", lambda x: ops.roll(x, 5, 1), lambda x: x.roll(5, 1), CUBE),
    moved("repeat", lambda x: ops.repeat(x, (2, 3, 1)), lambda x: x.repeat(2, 3, 1), CUBE),
    moved("tile", lambda x: ops.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3), CUBE),
    moved("repeat_interleave", lambda x: ops.repeat_interleave_self_int(x, 3, 1), lambda x: x.repeat_interleave(3, 1)),
    moved("cat", lambda x: ops.cat([x, x[:5], x], 0), lambda x: torch.cat([x, x[:5], x], 0)),
    moved("cat columns", lambda x: ops.cat([x, x[:, :5]], 1), lambda x: torch.cat([x, x[:, :5]], 1)),
    moved("stack", lambda x: ops.stack([x, x + 1, x * 2], 1), lambda x: torch.stack([x, x + 1, x * 2], 1)),
    moved("hstack", lambda x: ops.hstack([x, x[:, :5]]), lambda x: torch.hstack([x, x[:, :5]])),
    moved("vstack", lambda x: ops.vstack([x, x[:5]]), lambda x: torch.vstack([x, x[:5]])),
    moved("diag of a vector", lambda x: ops.diag(x, 2), lambda x: torch.diag(x, 2), normal(x=(40,))),
    moved("diag of a matrix", lambda x: ops.diag(x, -2), lambda x: torch.diag(x, -2)),
    moved("diag_embed", lambda x: ops.diag_embed(x, 1), lambda x: torch.diag_embed(x, 1)),
    moved("tril", lambda x: ops.tril(x, 3), lambda x: x.tril(3)),
    moved("triu", lambda x: ops.triu(x, -3), lambda x: x.triu(-3)),
    moved("pixel_unshuffle", lambda x: ops.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), normal(x=(2, 3, 8, 10))),
    moved("contiguous", ops.contiguous, Tensor.contiguous, mapped(X, lambda x: x.T)),
    moved("arange", lambda x: ops.arange_start(3, 95, 4, dtype=torch.int64, device="cpu"), lambda x: torch.arange(3, 95, 4)),
    moved(
        "linspace",
        lambda x: ops.linspace(-1.5, 7.0, 333, dtype=torch.float32, device="cpu"),
        lambda x: torch.linspace(-1.5, 7, 333),
    ),
    moved("eye", lambda x: ops.eye(37, device="cpu"), lambda x: torch.eye(37)),
    moved("full", lambda x: ops.full((33, 5), 2.5, device="cpu"), lambda x: torch.full((33, 5), 2.5)),
    moved(
        "zeros_like, ones_like",
        lambda x: (ops.zeros_like(x), ops.ones_like(x)),
        lambda x: (torch.zeros_like(x), torch.ones_like(x)),
    ),
]

CASES: list[Case] = [*INDEXING, *SORTING, *MOVING]
