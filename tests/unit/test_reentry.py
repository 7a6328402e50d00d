"""Torch's CPU functions may be replaced by a library's kernels; the engine computes with some of them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import threading, torch, triton, triton.language as tl, tritontrace

    @triton.jit
    def erf_kernel(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.erf(tl.load(x + i, mask=i < n, other=0.0)), mask=i < n)

    class Entry(triton.runtime.KernelInterface):
        def __init__(self, fn):
            self.fn, self.arg_names, self.lock = fn, fn.arg_names, threading.Lock()

        def run(self, *args, **kwargs):
            with self.lock:
                return self.fn.run(*args, **kwargs)

    kernel = {kernel}

    def erf(x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
        return out

    x = torch.randn(100)
    want = torch.erf(x)
    library = torch.library.Library("aten", "IMPL")
    library.impl("erf", erf, "CPU")
    with tritontrace.session() as session:
        for _ in range(2):
            try:
                torch.erf(x)
            except tritontrace.UntraceableLaunchError as error:
                print("refused:", error)
    library._destroy()
    with tritontrace.session():
        assert torch.equal(erf(x), want)
    print("right afterwards")
"""


@pytest.mark.parametrize("kernel", ["erf_kernel", "Entry(erf_kernel)", "tritontrace.trace(erf_kernel)"])
def test_a_kernel_in_place_of_what_the_engine_computes_with_is_refused(kernel, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM.replace("{kernel}", kernel)))
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, program], cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[-1] == "right afterwards" and len(lines) == 3
    refused = "refused: kernel 'erf_kernel' is launched by an implementation of torch.erf"
    assert all(line.startswith(refused) for line in lines[:2])
