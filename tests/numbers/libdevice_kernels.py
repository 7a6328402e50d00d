"""Kernels that call each libdevice function that the installed Triton declares, written to a file and imported from it.

Triton replaces the generic module ``triton.language.extra.libdevice`` by the target's only where a kernel names it in its
source, so the calls have to stand in one.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import triton.language.extra.cuda.libdevice as cuda
import triton.language.extra.hip.libdevice as hip

from tests.numbers.common import launch

MODULES = {
    "generic": "triton.language.extra.libdevice",
    "cuda": "triton.language.extra.cuda.libdevice",
    "hip": "triton.language.extra.hip.libdevice",
}
Signature = tuple[tuple[str, ...], str]
"""(types of the operands, type of the result), as Triton names them."""


def declared(module: Any) -> dict[str, list[Signature]]:
    """Function -> its signatures, as the source of a target's module has them."""
    found: dict[str, list[Signature]] = {}
    text = Path(module.__file__).read_text()
    for name, body in re.findall(r"\ndef (\w+)\([^)]*\):(.*?)(?=\n@|\ndef |\Z)", text, re.S):
        for operands, result in re.findall(
            r'\(((?:\s*core\.dtype\("\w+"\),?\s*)+)\):\s*\("\w+",\s*core\.dtype\("(\w+)"\)\)', body
        ):
            found.setdefault(name, []).append((tuple(re.findall(r'"(\w+)"', operands)), result))
    return found


def symbols(module: Any) -> dict[tuple[str, tuple[str, ...]], str]:
    """(function, types of the operands) -> the device library's name for it."""
    found = {}
    text = Path(module.__file__).read_text()
    for name, body in re.findall(r"\ndef (\w+)\([^)]*\):(.*?)(?=\n@|\ndef |\Z)", text, re.S):
        for operands, symbol in re.findall(r'\(((?:\s*core\.dtype\("\w+"\),?\s*)+)\):\s*\("(\w+)"', body):
            found[name, tuple(re.findall(r'"(\w+)"', operands))] = symbol
    return found


CUDA, HIP = declared(cuda), declared(hip)

_TEMPLATE = """

@triton.jit
def {name}_kernel({pointers}, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    out = libdevice.{name}({loads})
    tl.store(out_ptr + offsets, out, mask=mask)
"""


def write(folder: Path, spelling: str) -> Any:
    """A module with one kernel for each function, which call them by one of the three spellings."""
    path = folder / f"libdevice_{spelling}.py"
    text = f"import triton\nimport triton.language as tl\nimport {MODULES[spelling]} as libdevice\n"
    for name, signatures in (HIP if spelling == "hip" else CUDA).items():
        count = len(signatures[0][0])
        pointers = ", ".join(f"x{i}_ptr" for i in range(count))
        loads = ", ".join(f"tl.load(x{i}_ptr + offsets, mask=mask)" for i in range(count))
        text += _TEMPLATE.format(name=name, pointers=pointers, loads=loads)
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(module: Any, name: str, signature: Signature, *arrays: Any, target: str = "cuda:90") -> Any:
    """The function of arrays whose dtypes are those of the signature."""
    operands, result = signature
    kernel = getattr(module, f"{name}_kernel")
    return launch(kernel, list(zip(arrays, operands, strict=True)), result, target=target)
