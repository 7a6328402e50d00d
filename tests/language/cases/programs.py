"""Programs, loops, hints, and what the target says of itself."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.language.harness import Run, covers, installed

N = tl.constexpr(8)


@triton.jit
def program_ids(o_ptr):
    x = tl.program_id(0)
    y = tl.program_id(axis=1)
    z = tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(axis=0) + x
    tl.store(o_ptr + at, x + 10 * y + 100 * z + 1000 * tl.num_programs(2))


@covers("tl.program_id tl.num_programs")
def who_am_i(run: Run) -> None:
    out = run.out(2, 3, 4, dtype=torch.int32)
    run(program_ids, (4, 3, 2), out)
    z, y, x = np.indices((2, 3, 4))
    run.equal(out, x + 10 * y + 100 * z + 2000)


@triton.jit
def loops(o_ptr, n):
    total = 0
    for i in tl.range(0, n, num_stages=3):
        total += i
    tl.store(o_ptr + 0, total)
    total = 0
    for i in tl.range(n, 0, -2, loop_unroll_factor=2):
        total += i * 100
    tl.store(o_ptr + 1, total)
    total = 0
    for i in tl.range(n, disallow_acc_multi_buffer=True, flatten=True, warp_specialize=False, disable_licm=True):
        for j in tl.range(i):
            total += j
    tl.store(o_ptr + 2, total)
    total = 0
    for i in tl.static_range(4):
        total += i * n
    tl.store(o_ptr + 3, total)
    total = 0
    for i in tl.static_range(10, 2, -3):
        total += i
    tl.store(o_ptr + 4, total)
    for i in tl.range(1, 4, 1, warp_specialize=True):
        tl.store(o_ptr + 4 + i, i * n)


@covers("tl.range tl.static_range")
def counted_loops(run: Run) -> None:
    out = run.out(8, dtype=torch.int32)
    run(loops, (1,), out, 7)
    run.equal(out, [21, 100 * (7 + 5 + 3 + 1), sum(j for i in range(7) for j in range(i)), 6 * 7, 10 + 7 + 4, 7, 14, 21])


@triton.jit
def conditional_loop(o_ptr, n):
    i = 0
    while tl.condition(i * i < n, disable_licm=True):
        i += 1
    tl.store(o_ptr, i)


@covers("tl.condition", needs=("tl.condition",))
def loop_conditions(run: Run) -> None:
    out = run.out(1, dtype=torch.int32)
    run(conditional_loop, (1,), out, 50)
    run.equal(out, [8])


@triton.jit
def hinted(x_ptr, o_ptr, n):
    tl.assume(n > 0)
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, N), N), N)
    i = tl.max_constancy(i, 1)
    x = tl.load(x_ptr + i)
    tl.debug_barrier()
    tl.store(o_ptr + i, x * n)


@covers("tl.assume tl.max_contiguous tl.multiple_of tl.max_constancy tl.debug_barrier")
def hints(run: Run) -> None:
    out = run.out(8)
    run(hinted, (1,), torch.arange(8.0), out, 3)
    run.equal(out, 3 * np.arange(8.0))


@triton.jit
def expecting(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, tl.expect_zero(x, i < 4))


@covers("tl.expect_zero", needs=("tl.expect_zero",))
def expectations(run: Run) -> None:
    # The values are zero where the kernel says so; the function gives its argument back.
    x = torch.tensor([0.0, 0, 0, 0, 5, 6, 7, 8])
    out = run.out(8)
    run(expecting, (1,), x, out)
    run.equal(out, x)


@triton.jit
def targets(o_ptr):
    tl.store(o_ptr + 0, tl.target_info.is_cuda() + 0)
    tl.store(o_ptr + 1, tl.target_info.is_hip() + 0)
    tl.store(o_ptr + 2, tl.target_info.is_hip_cdna3() + 0)
    tl.store(o_ptr + 3, tl.target_info.is_hip_cdna4() + 0)
    tl.store(o_ptr + 4, tl.target_info.cuda_capability_geq(9) + 0)
    tl.store(o_ptr + 5, tl.target_info.cuda_capability_geq(10, 0) + 0)
    tl.store(o_ptr + 6, (tl.target_info.current_target().backend == "cuda") + 0)


@triton.jit
def newest_target(o_ptr):
    tl.store(o_ptr, tl.target_info.is_hip_gfx1250() + 0)


@covers(
    "tl.target_info tl.target_info.is_cuda tl.target_info.is_hip tl.target_info.is_hip_cdna3 tl.target_info.is_hip_cdna4",
    "tl.target_info.cuda_capability_geq tl.target_info.current_target tl.target_info.is_hip_gfx1250",
)
def what_the_target_says(run: Run) -> None:
    expected = {
        "cuda:90": [1, 0, 0, 0, 1, 0, 1],
        "cuda:80": [1, 0, 0, 0, 0, 0, 1],
        "cuda:100": [1, 0, 0, 0, 1, 1, 1],
        "hip:gfx942": [0, 1, 1, 0, 0, 0, 0],
        "hip:gfx950": [0, 1, 0, 1, 0, 0, 0],
    }
    for target, wanted in expected.items():
        out = run.out(7, dtype=torch.int32)
        run(targets, (1,), out, target=target)
        run.equal(out, wanted)
    if "tl.target_info.is_hip_gfx1250" in installed():
        out = run.out(1, dtype=torch.int32)
        run(newest_target, (1,), out, target="hip:gfx1250")
        run.equal(out, [1])


@triton.jit
def cuda_sizes(o_ptr):
    tl.store(o_ptr, tl.extra.cuda.num_threads())
    tl.store(o_ptr + 1, tl.extra.cuda.num_warps())


@triton.jit
def hip_sizes(o_ptr):
    tl.store(o_ptr, tl.extra.hip.num_threads())
    tl.store(o_ptr + 1, tl.extra.hip.num_warps())


@covers("tl.extra tl.extra.cuda tl.extra.cuda.num_threads tl.extra.cuda.num_warps")
def sizes_of_a_program(run: Run) -> None:
    out = run.out(2, dtype=torch.int32)
    run(cuda_sizes, (1,), out, num_warps=8, target="cuda:90")
    run.equal(out, [256, 8])


@covers("tl.extra.hip.num_threads tl.extra.hip.num_warps", needs=("tl.extra.hip.num_threads",))
def sizes_of_a_program_on_amd(run: Run) -> None:
    out = run.out(2, dtype=torch.int32)
    run(hip_sizes, (1,), out, num_warps=2, target="hip:gfx942")
    run.equal(out, [128, 2])


@triton.jit
def tuples(o_ptr, x):
    pair = (x, 2)
    both = tl.tuple([x + 1, 5])
    a, b = both
    tl.store(o_ptr + 0, pair[0] + pair[1])
    tl.store(o_ptr + 1, a)
    tl.store(o_ptr + 2, b)
    longer = pair + both
    tl.store(o_ptr + 3, longer[-1] + len(longer[1:]))
    k: tl.constexpr = tl.constexpr(3)
    tl.store(o_ptr + 4, k + tl.to_tensor(4))
    tl.static_print("k is", k)
    tl.static_assert(k == 3, "three")
    tl.static_assert(tl.TRITON_MAX_TENSOR_NUMEL >= 1048576)


@covers("tl.tuple tl.constexpr tl.to_tensor tl.static_print tl.static_assert tl.TRITON_MAX_TENSOR_NUMEL", needs=("tl.to_tensor",))
def tuples_and_constants(run: Run) -> None:
    out = run.out(5, dtype=torch.int32)
    run(tuples, (1,), out, 10)
    run.equal(out, [12, 11, 5, 8, 7])


@triton.jit
def older_tuples(o_ptr, x):
    a, b = tl.tuple([x + 1, 5])
    k: tl.constexpr = tl.constexpr(3)
    tl.static_print("k is", k)
    tl.store(o_ptr + 0, a * b * k)
    tl.store(o_ptr + 1, tl.TRITON_MAX_TENSOR_NUMEL // 1048576)


@covers("tl.tuple tl.constexpr tl.static_print tl.TRITON_MAX_TENSOR_NUMEL")
def tuples_and_constants_of_all_versions(run: Run) -> None:
    out = run.out(2, dtype=torch.int32)
    run(older_tuples, (1,), out, 9)
    run.equal(out, [150, 1])


@triton.jit
def addresses(p_ptr, o_ptr):
    address = tl.load(p_ptr)
    floats = address.to(tl.pointer_type(tl.float32))
    tl.store(o_ptr, tl.load(floats + 2))
    whole = address.to(tl.pi32_t)
    tl.store(o_ptr + 1, tl.load(whole + 2).to(tl.float32, bitcast=True))
    tl.store(o_ptr + 2, tl.load(address.to(tl.pointer_type(tl.dtype("fp32"))) + 3))


@covers("tl.pointer_type tl.pi32_t tl.dtype")
def pointers_from_integers(run: Run) -> None:
    x = torch.arange(4.0) + 40
    out = run.out(3)
    run(addresses, (1,), torch.tensor([x.data_ptr()]), out)
    run.equal(out, [42, 42, 43])
