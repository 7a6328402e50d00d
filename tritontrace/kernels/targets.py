"""The device that a launch is compiled for, which need not be in this machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tritontrace.kernels.compat import make_backend

__all__ = ["DEFAULT_TARGET", "Target", "backend_for"]

DEFAULT_TARGET = "cuda:90"
"""The target of a launch where there is no GPU and none was asked for."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a kernel is compiled for: `backend` (``"cuda"``, ``"hip"``), `arch` (90, ``"gfx942"``), `warp_size`."""

    backend: str
    arch: int | str
    warp_size: int

    @classmethod
    def parse(cls, target: str | Target | GPUTarget | None) -> Target:
        """The target that ``"cuda:90"``, ``"hip:gfx942"`` or a `GPUTarget` names; None is the current GPU, else cuda:90.

        Raises `ValueError` for anything else.
        """
        if type(target) is str:
            return _parse_text(target)
        if target is None:
            return _current() or _parse_text(DEFAULT_TARGET)
        if isinstance(target, Target):
            return target
        if isinstance(target, GPUTarget):
            return cls(target.backend, target.arch, target.warp_size)
        raise ValueError(f"a target is 'cuda:90', 'hip:gfx942' or a GPUTarget, not {target!r}")

    @property
    def gpu_target(self) -> GPUTarget:
        """Triton's object for this target."""
        return GPUTarget(self.backend, self.arch, self.warp_size)

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


@functools.lru_cache(maxsize=64)
def _parse_text(text: str) -> Target:
    backend, separator, arch = text.partition(":")
    if separator and backend == "cuda":
        digits = arch.removeprefix("sm_").rstrip("af")
        if digits.isdigit():
            return Target("cuda", int(digits), 32)
    elif separator and backend == "hip" and arch.startswith("gfx") and len(arch) >= 6:
        # CDNA and GCN (gfx9 and before) run 64 lanes to a wave, RDNA and gfx12 run 32.
        try:
            major = int(arch.removeprefix("gfx")[:-2])
        except ValueError:
            major = -1
        if major >= 0:
            return Target("hip", arch, 32 if major >= 10 else 64)
    raise ValueError(
        f"unknown target {text!r}; write it as 'cuda:90' (H100; the compute capability times 10) or 'hip:gfx942' (MI300)"
    )


def _current() -> Target | None:
    """The target of the GPU that Triton would launch on, or None without a usable driver."""
    # Asking for a driver where there is none probes every backend, milliseconds each time. The answer is remembered,
    # but a driver that somebody set meanwhile (set_active) is seen.
    known = getattr(driver, "_active", None)
    if known is None:
        if _no_driver():
            return None
        known = driver.active
    current: Any = known.get_current_target()
    return Target(current.backend, current.arch, current.warp_size)


@functools.lru_cache(maxsize=1)
def _no_driver() -> bool:
    try:
        driver.active  # noqa: B018 - the property does the probing
    except Exception:  # a backend's probe may fail in its own ways; none of them leaves a GPU to launch on
        return True
    return False


@functools.lru_cache(maxsize=64)
def backend_for(target: Target) -> Any:
    """Triton's backend object for a target; it holds no state of a launch, so all threads share one."""
    return make_backend(target.gpu_target)
