"""The profiler's facts about compiled kernels, against counts made another way: of the PTX by lines, of the SASS, by ptxas."""

from __future__ import annotations

import inspect
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from examples.kernels.matmul import matmul, matmul_kernel
from tritontrace.clients.profiling.devices import occupancy
from tritontrace.clients.profiling.machine import read_assembly
from tritontrace.clients.profiling.profile import Profile


@triton.jit
def scale_kernel(x, out, n, factor, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * factor, mask=at < n)


def traced(run: Any, target: str, **options: Any) -> tuple[Profile, Any]:
    """(profile, compiled kernel) of the one launch that `run` makes."""
    with tritontrace.session(tritontrace.Profiler(**options), target=target) as session:
        run()
    (launch,) = session.launches
    (found,) = launch.records["profiler"]
    (compiled,) = launch.compiled
    return found, compiled


def line_of(kernel: Any, text: str) -> int:
    """The number of the only line of the kernel's source that has `text`."""
    lines, first = inspect.getsourcelines(kernel.fn)
    (found,) = [number for number, line in enumerate(lines, first) if text in line]
    return found


def tool(name: str, *arguments: str) -> str:
    done = subprocess.run([getattr(triton.knobs.nvidia, name).path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def sass(compiled: Any, folder: Path) -> Counter[str]:
    """The mnemonics in the machine code."""
    file = folder / "kernel.cubin"
    file.write_bytes(compiled.asm["cubin"])
    return Counter(
        re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", tool("cuobjdump", "-sass", str(file)), re.M)
    )


def ptxas(compiled: Any, folder: Path) -> tuple[int, int]:
    """(registers, bytes of spill stores) as the assembler reports them for the PTX."""
    file = folder / "kernel.ptx"
    file.write_text(compiled.asm["ptx"])
    arch = re.search(r"\.target (sm_\w+)", compiled.asm["ptx"])[1]  # type: ignore[index]
    arguments = ("-v", f"--gpu-name={arch}", "-lineinfo", str(file), "-o", str(folder / "out.cubin"))
    try:
        said = tool("ptxas", *arguments)
    except subprocess.CalledProcessError:  # Triton has two, and the older one does not read the newest PTX
        said = tool("ptxas_blackwell", *arguments)
    return int(re.search(r"Used (\d+) registers", said)[1]), int(re.search(r"(\d+) bytes spill stores", said)[1])  # type: ignore[index]


def by_width(counts: Counter[str], mnemonic: str) -> dict[int, int]:
    """Bytes -> instructions of one SASS mnemonic."""
    out: Counter[int] = Counter()
    for name, count in counts.items():
        parts = name.split(".")
        if parts[0] == mnemonic:
            out[next((int(p) // 8 for p in parts if p in ("64", "128")), 4)] += count
    return dict(out)


@pytest.mark.parametrize("shift, n, width", [(0, 4096, 16), (1, 4096, 4), (0, 4001, 4)])
def test_widths_follow_what_is_known_of_alignment(tmp_path: Path, shift: int, n: int, width: int) -> None:
    x, out = torch.randn(5000)[shift:], torch.empty(5000)
    found, compiled = traced(lambda: scale_kernel[(4,)](x, out, n, 2.0, TILE=1024), "cuda:90")

    facts = found.compiled
    assert facts is not None
    load, store = line_of(scale_kernel, "tl.load"), line_of(scale_kernel, "tl.store")
    per_thread = 1024 // (32 * 4)
    assert facts.widths("load", __file__, load) == {width: per_thread * 4 // width}
    (loaded,) = [a for a in found.accesses if a.kind == "load"]
    assert loaded.widths == {width: per_thread * 4 // width}
    counts = sass(compiled, tmp_path)
    assert by_width(counts, "LDG") == facts.widths("load", __file__, load)
    assert by_width(counts, "STG") == facts.widths("store", __file__, store)
    assert (facts.registers, facts.spills) == (ptxas(compiled, tmp_path)[0], 0)
    assert ptxas(compiled, tmp_path)[1] == 0

    said = [hint for hint in found.hints if hint.startswith(f"line {load}: loads 4 bytes at a time")]
    assert bool(said) == (width == 4)
    if shift:
        assert "x does not begin at a multiple of 16 bytes (it is 4 past one)" in said[0]
        assert facts.unaligned == ("x",)
    elif width == 4:
        assert "see tl.multiple_of (n=4001: not a multiple of 16)" in said[0]


@pytest.mark.parametrize("target, machine, ptx", [("cuda:80", "HMMA", "mma.sync"), ("cuda:90", "HGMMA", "wgmma.mma_async")])
def test_tensor_cores_of_a_matmul(tmp_path: Path, target: str, machine: str, ptx: str) -> None:
    a, b = torch.randn(256, 128).half(), torch.randn(128, 128).half()
    found, compiled = traced(lambda: matmul(a, b, block=64, block_k=32), target)

    facts = found.compiled
    assert facts is not None and facts.target == target
    text = compiled.asm["ptx"]
    assert sum(facts.tensor_core.values()) == len(re.findall(rf"^\s*{re.escape(ptx)}\S*\.f32\.f16\.f16", text, re.M)) > 0
    counts = sass(compiled, tmp_path)
    assert sum(count for name, count in counts.items() if name.split(".")[0] == machine) == sum(facts.tensor_core.values())
    assert facts.registers == int(
        re.search(r"REG:(\d+)", tool("cuobjdump", "--dump-resource-usage", str(tmp_path / "kernel.cubin")))[1]
    )  # type: ignore[index]
    assert facts.shared == compiled.metadata.shared > 0
    # Copies from global to shared memory are loads, 16 bytes for each thread.
    asynchronous = re.findall(r"cp\.async\.cg\.shared\.global .*, 0x10,", text)
    lines = [line_of(matmul_kernel, f"tl.load({name}_ptrs") for name in "ab"]
    widths = [facts.widths("load", matmul_kernel.fn.__code__.co_filename, line) for line in lines]
    assert [set(found) for found in widths] == [{16}, {16}]
    assert sum(width[16] for width in widths) == len(asynchronous)
    assert not any("tensor-core" in hint for hint in found.hints)


def test_buffer_instructions_and_matrix_cores_on_amd() -> None:
    a, b = torch.randn(256, 128).half(), torch.randn(128, 128).half()
    found, compiled = traced(lambda: matmul(a, b, block=64, block_k=32), "hip:gfx942")

    facts = found.compiled
    assert facts is not None and found.roofline is not None and found.roofline.device == "MI300X"
    text = compiled.asm["amdgcn"]
    assert sum(facts.tensor_core.values()) == len(re.findall(r"^\s+v_mfma_", text, re.M)) > 0
    assert facts.buffer_instructions == len(re.findall(r"^\s+buffer_(?:load|store)_", text, re.M))
    assert sum(access.count for access in facts.accesses) == len(
        re.findall(r"^\s+(?:buffer|global|flat)_(?:load|store)_", text, re.M)
    )
    assert (facts.registers, facts.spills) == (
        int(re.search(r"\.vgpr_count:\s+(\d+)", text)[1]),  # type: ignore[index]
        int(re.search(r"\.vgpr_spill_count:\s+(\d+)", text)[1]),  # type: ignore[index]
    )
    wide = len(re.findall(r"(?:buffer|global)_load_dwordx4", text))
    assert sum(a.count for a in facts.accesses if a.kind == "load" and a.bytes == 16) == wide


@triton.jit
def heavy_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, n, TILE):
        values = tl.load(x + start + at[:, None] * TILE + at[None, :])
        total += values * tl.sum(values, axis=0)[None, :]
    tl.store(out + at[:, None] * TILE + at[None, :], total)


def test_spills(tmp_path: Path) -> None:
    x, out = torch.randn(36, 32), torch.empty(32, 32)
    found, compiled = traced(lambda: heavy_kernel[(1,)](x, out, 64, TILE=32, num_warps=1, maxnreg=32), "cuda:90")
    facts = found.compiled
    assert facts is not None and facts.spills > 0
    registers, spilled = ptxas(compiled, tmp_path)
    assert facts.registers == registers == 32
    assert spilled > 0
    assert any(hint.startswith(f"{facts.spills} registers of each thread are spilled") for hint in found.hints)


def test_without_a_compile_nothing_is_compiled() -> None:
    with tritontrace.session(tritontrace.Profiler(compile=False)) as session:
        scale_kernel[(4,)](torch.randn(4096), torch.empty(4096), 4096, 2.0, TILE=1024)
    (launch,) = session.launches
    assert launch.compiled == []
    (found,) = launch.records["profiler"]
    assert found.compiled is None and found.accesses[0].widths == {}


def test_the_facts_of_an_autotuned_kernel_are_those_of_the_config_that_ran() -> None:
    tuned = triton.autotune([triton.Config({"TILE": 256}, num_warps=2), triton.Config({"TILE": 2048}, num_warps=8)], key=["n"])(
        scale_kernel
    )
    x, out = torch.randn(4096), torch.empty(4096)
    with tritontrace.session("profiler") as session:
        tuned[lambda meta: (4096 // meta["TILE"],)](x, out, 4096, 2.0)
    (launch,) = session.launches
    (found,) = launch.records["profiler"]
    assert launch.config is not None
    assert found.compiled.constants["TILE"] == launch.config["TILE"]
    assert found.compiled.num_warps == {256: 2, 2048: 8}[launch.config["TILE"]]


@pytest.mark.parametrize(
    "line, kind, width",
    [
        ("ld.global.b32 { %r1 }, [ %rd1 + 0 ];", "load", 4),
        ("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", "load", 16),
        ("ld.global.nc.L1::evict_last.v2.b64 { %rd1, %rd2 }, [ %rd1 ];", "load", 16),
        ("ld.acquire.gpu.global.b64 %rd1, [%rd2];", "load", 8),
        ("@!%p1 st.global.v8.b32 [ %rd3 + 0 ], { %r3 };", "store", 32),
        ("st.global.b8 [ %rd3 + 0 ], { %r3 };", "store", 1),
        ("@%p2 atom.global.gpu.acq_rel.add.f32 %r1, [ %rd1 + 0 ], %r2;", "atomic", 4),
        ("red.global.gpu.relaxed.add.v4.f32 [%rd1], {%r1};", "atomic", 16),
        ("@%p0 cp.async.ca.shared.global [ %r1 ], [ %rd1 ], 0x4, %r2;", "load", 4),
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
            "load",
            None,
        ),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];", "store", None),
        ("buffer_load_dwordx3 v[1:3], v0, s[0:3], 0 offen", "load", 12),
        ("global_load_ushort v3, v[0:1], off", "load", 2),
        ("global_load_short_d16_hi v3, v[0:1], off", "load", 2),
        ("global_store_b128 v[0:1], v[2:5], off", "store", 16),
        ("global_atomic_add_f32 v[0:1], v2, off", "atomic", 4),
        ("buffer_atomic_add_x2 v[0:1], v2, s[0:3], 0 offen", "atomic", 8),
    ],
)
def test_instructions(line: str, kind: str, width: int | None) -> None:
    (one,), none = read_assembly(f'\t.file 1 "/a/kernel.py"\n\t.loc 1 7 9\n\t{line}\n')
    assert (one.kind, one.bytes, one.file, one.line, one.column, one.count) == (kind, width, "/a/kernel.py", 7, 9, 1)
    assert none == {}


def test_the_line_of_inline_assembly_is_where_it_begins() -> None:
    text = (
        "\t.loc 1 7 9\n\t// begin inline asm\n\t.loc 1 7 9\n\tmov.u32 %r1, 0x0;\n\t.loc 1 8 9\n\tmov.u32 %r2, 0x0;\n"
        "\t@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];\n\t// end inline asm\n\t.loc 1 9 3\n"
        "\tst.global.b32 [ %rd2 + 0 ], { %r1 };\n"
    )
    assert [(access.kind, access.line, access.column) for access in read_assembly(text)[0]] == [("load", 7, 9), ("store", 9, 3)]


@pytest.mark.parametrize(
    "line",
    [
        "ld.shared.b32 %r1, [%r2];",
        "st.shared::cta.v4.b32 [ %r75 + 0 ], { %r76 };",
        "cp.async.commit_group;",
        "cvta.to.global.u64 %rd1, %rd2;",
        "mov.b32 %r42, global_smem;",
        "s_load_dwordx4 s[12:15], s[0:1], 0x28",
        "// ld.global.b32 in a comment",
    ],
)
def test_what_does_not_access_global_memory(line: str) -> None:
    assert read_assembly(f"\t{line}\n") == ((), {})


@pytest.mark.parametrize(
    "target, warps, registers, shared, limit, programs",
    [
        ("cuda:90", 4, 64, 0, "registers", 8),  # 65536 / (64 * 128)
        ("cuda:90", 4, 32, 0, "warps", 16),
        ("cuda:90", 1, 16, 0, "programs", 32),
        ("cuda:90", 4, 32, 100 * 1024, "shared memory", 2),  # 228 KiB / (100 + 1)
        ("cuda:80", 8, 33, 0, "registers", 6),  # allotted in eights: 40
        ("cuda:80", 4, 32, 200 * 1024, "shared memory", 0),
        ("hip:gfx942", 4, 128, 0, "registers", 4),  # 512 / 128 waves on each of four SIMDs
        ("hip:gfx942", 4, 64, 64 * 1024, "shared memory", 1),
    ],
)
def test_occupancy(target: str, warps: int, registers: int, shared: int, limit: str, programs: int) -> None:
    found = occupancy(target, num_warps=warps, registers=registers, shared=shared)
    assert found is not None
    assert (found.limited_by, found.programs, found.warps) == (limit, programs, programs * warps)


def test_occupancy_of_an_unknown_device() -> None:
    assert occupancy("hip:gfx1100", num_warps=4, registers=64, shared=0) is None
