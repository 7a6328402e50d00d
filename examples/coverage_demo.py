"""Which lines of a kernel its tests execute: coverage.py data from the coverage client."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Coverage


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "relu":
        return tl.maximum(x, 0.0)
    else:
        return x * tl.sigmoid(x)


@triton.jit
def layer_kernel(source, out, n, scale, KIND: tl.constexpr, TILE: tl.constexpr):
    start = tl.program_id(0) * TILE
    if start >= n:
        return
    at = start + tl.arange(0, TILE)
    x = tl.load(source + at, mask=at < n, other=0.0)
    y = activate(x, KIND)
    if scale != 1.0:
        y *= scale
    tl.store(out + at, y, mask=at < n)


def main() -> None:
    source, out = torch.randn(100), torch.empty(100)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "coverage"
        # What a test suite with one case too few would run: no scale but 1, and only one kind of activation.
        with tritontrace.session(clients=[Coverage(data_file=data)]):
            layer_kernel[(4,)](source, out, 100, 1.0, KIND="relu", TILE=32)
        torch.testing.assert_close(out, torch.relu(source))
        command = [sys.executable, "-m", "coverage", "report", f"--data-file={data}", "--show-missing"]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
