"""FlagGems on CPU tensors, unmodified: what it asks of a device, answered by torch's own CPU device.

FlagGems looks for an accelerator when it is imported, and fails without one. It chooses a vendor by an environment variable;
that vendor's description says which torch device its tensors lie on, and is changed here from "cuda" to "cpu". FlagGems
then asks ``torch.cpu`` what it would ask ``torch.cuda``; the little that ``torch.cpu`` lacks is added.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
import triton

from tritontrace.kernels import capabilities

ENVIRONMENT = {
    "GEMS_VENDOR": "nvidia",
    # Generated sources and tuned configs; not the user's.
    "FLAGGEMS_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"tritontrace-flag-gems-{triton.__version__}"),
}


class Philox:
    """A generator whose state is seed and offset, as that of a GPU; FlagGems draws its random numbers from those."""

    def __init__(self) -> None:
        self.state = torch.tensor([20261202, 0], dtype=torch.int64)

    def get_state(self) -> torch.Tensor:
        return self.state.clone().view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        self.state = state.clone().view(torch.int64)

    def manual_seed(self, seed: int) -> None:
        self.state = torch.tensor([seed, 0], dtype=torch.int64)


PHILOX = Philox()


@functools.cache
def prepare() -> None:
    """Once in a process, before flag_gems is imported."""
    spec = importlib.util.find_spec("flag_gems")
    assert spec is not None and spec.submodule_search_locations
    # FlagGems itself imports its vendors from this folder, by these names.
    sys.path.append(str(Path(spec.submodule_search_locations[0]) / "runtime" / "backend"))
    vendor = importlib.import_module("_nvidia").vendor_info
    vendor.device_name, vendor.triton_extra_name = "cpu", "cuda"

    # An H100's number of multiprocessors and cache, but no architecture that FlagGems has special kernels for.
    properties = types.SimpleNamespace(multi_processor_count=132, L2_cache_size=50 << 20, major=0, minor=0)
    devices: list[Any] = [torch.cpu]
    if not torch.cuda.is_available():
        devices.append(torch.cuda)  # which some of the vendor's heuristics ask by name
    for device in devices:
        device.current_device = lambda: 0
        device.get_device_properties = lambda device=None: properties
        device.get_device_capability = lambda device=None: (0, 0)
    cpu = devices[0]
    cpu.device = lambda device: contextlib.nullcontext()
    cpu.default_generators = (PHILOX,)

    import flag_gems  # noqa: F401
    from flag_gems.utils.codegen_config_utils import get_codegen_config

    if not capabilities.block_pointer_operations():
        # Its generated kernels ask a block pointer for `.type.element_ty`, which only those with a type of their own have.
        get_codegen_config().prefer_block_pointer = False
