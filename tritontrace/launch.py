"""What one traced launch was and did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace.engines.memory import AddressSpace

__all__ = ["LAUNCH_SCHEMA_VERSION", "ArgumentInfo", "Launch"]

LAUNCH_SCHEMA_VERSION = 1
"""Version of the dictionaries that `Launch.to_dict` returns; raised when a key changes its meaning."""


@dataclass(frozen=True, slots=True)
class ArgumentInfo:
    """One argument of a launch, described without holding the tensor.

    For a tensor: `shape`, `stride` (elements), `dtype` (torch's name without the prefix), `device`, `data_ptr`
    (byte address that the kernel saw), `storage_ptr` and `storage_bytes` (the whole storage it lies in). `shape` and
    `stride` are None for an object of another kind that points to memory and says nothing of a view.
    For anything else `value` is the argument itself where it is a plain constant, and its repr otherwise.
    `type` is Triton's type of the parameter (``"*fp32"``, ``"i32"``, ``"constexpr"``).
    """

    name: str
    type: str
    value: Any = None
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    data_ptr: int = 0
    storage_ptr: int = 0
    storage_bytes: int = 0
    element_bytes: int = 0

    @property
    def is_tensor(self) -> bool:
        """True for an argument that points to memory."""
        return self.shape is not None or self.storage_bytes > 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        out: dict[str, Any] = {"name": self.name, "type": self.type}
        if self.is_tensor:
            shape, stride = ([*numbers] if numbers is not None else None for numbers in (self.shape, self.stride))
            out.update(shape=shape, stride=stride, dtype=self.dtype, device=self.device)
        else:
            plain = self.value is None or isinstance(self.value, (int, float, str, bool))
            out["value"] = self.value if plain else repr(self.value)
        return out


@dataclass(eq=False, repr=False)
class Launch:
    """One traced launch; a session has a `Launch` of its own for each, shared with nobody.

    `index` counts a session's launches from 0. `grid` is always three entries. `arguments` maps parameter names to
    `ArgumentInfo` (tuples of tensors are flattened to ``"name.0"``, ``"name.1"``). `options` are the compile options
    (``num_warps`` ...) that the launch named. `config` is the chosen `triton.Config`'s keyword dictionary under an autotuner.
    `programs` are those that ran, where a session's ``programs=`` chose: sorted, without those that the grid does not have.
    `completed` is True once every program, or each of these, has run to its end, `dry` if the launch was only analysed,
    nothing executed.
    `error` is the exception that ended it, if any.
    `records` maps a client's name to what its `finalize` returned.
    """

    kernel_name: str
    index: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    target: str = "cuda:90"
    engine: str = "ir"
    arguments: dict[str, ArgumentInfo] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    file: str | None = None
    line: int | None = None
    trial: bool = False
    warmup: bool = False
    completed: bool = False
    dry: bool = False
    error: BaseException | None = None
    programs: tuple[tuple[int, int, int], ...] | None = None
    trials: list[Launch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    records: dict[str, list[Any]] = field(default_factory=dict)
    compiled: list[Any] = field(default_factory=list)
    memory: AddressSpace | None = field(default=None, repr=False)
    """The memory that the launch may touch while it runs; None before and after."""

    def argument(self, name: str) -> ArgumentInfo:
        """The argument `name`; raises `KeyError` that lists the names there are."""
        try:
            return self.arguments[name]
        except KeyError:
            raise KeyError(f"launch of {self.kernel_name!r} has no argument {name!r}; it has {list(self.arguments)}") from None

    def __repr__(self) -> str:
        state = "completed" if self.completed else "dry run" if self.dry else "warmup" if self.warmup else "not completed"
        found = f", {len(self.findings)} finding{'s' if len(self.findings) != 1 else ''}" if self.findings else ""
        return f"<Launch {self.index} of {self.kernel_name} grid={self.grid} {state}{found}>"

    @property
    def n_programs(self) -> int:
        """The number of programs in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary with ``schema_version``."""
        return {
            "schema_version": LAUNCH_SCHEMA_VERSION,
            "kernel": self.kernel_name,
            "index": self.index,
            "grid": list(self.grid),
            "target": self.target,
            "engine": self.engine,
            "file": self.file,
            "line": self.line,
            "arguments": [info.to_dict() for info in self.arguments.values()],
            "options": {k: v for k, v in self.options.items() if isinstance(v, (int, float, str, bool))},
            "config": None if self.config is None else {k: repr(v) for k, v in self.config.items()},
            "trial": self.trial,
            "warmup": self.warmup,
            "completed": self.completed,
            "dry": self.dry,
            "programs": None if self.programs is None else [list(program) for program in self.programs],
            "error": None if self.error is None else f"{type(self.error).__name__}: {self.error}",
            "trials": [trial.to_dict() for trial in self.trials],
            "findings": [finding.to_dict() for finding in self.findings],
        }
