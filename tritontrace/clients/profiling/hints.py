"""What the figures of a launch suggest, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritontrace.clients.profiling.machine import CompileFacts
    from tritontrace.clients.profiling.profile import AccessProfile
    from tritontrace.launch import ArgumentInfo

__all__ = ["hints"]

_WIDEST = 16
"""Bytes that one thread can move with one instruction."""
_VERBS = {"load": "loads", "store": "stores", "atomic": "updates"}
_ALIGNMENT = 16


def hints(
    accesses: tuple[AccessProfile, ...],
    compiled: CompileFacts | None,
    flops: Mapping[str, int],
    arguments: Mapping[str, ArgumentInfo],
) -> tuple[str, ...]:
    """Advice for each access, in the order of the source, then for the kernel as a whole; each said once."""
    out: list[str] = []
    for access in sorted(accesses, key=lambda a: (a.location.line, a.location.column) if a.location else (0, 0)):
        where = f"line {access.location.line}" if access.location else "somewhere"
        for text in _of_access(access, compiled, arguments):
            out.append(f"{where}: {text}")
    if compiled is not None:
        out.extend(_of_kernel(compiled, flops))
    return tuple(dict.fromkeys(out))


def _of_access(access: AccessProfile, compiled: CompileFacts | None, arguments: Mapping[str, ArgumentInfo]) -> Iterator[str]:
    what = f"{_VERBS[access.kind]} {access.tensor or 'memory'}"
    if compiled is not None and access.kind != "atomic":
        yield from _narrow(access, compiled, arguments)
    if access.sector_ratio >= 1.5 and math.prod(access.block) > 1 and access.kind != "atomic":
        yield (
            f"{what} in {access.sector_ratio:.1f}x the 32-byte sectors that it needs; neighbouring lanes should access "
            "neighbouring elements (transpose the tile's order, or the data)"
            if access.contiguity < 32 / access.element_bytes
            else f"{what} in {access.sector_ratio:.1f}x the 32-byte sectors that it needs; rows that began at multiples of "
            "32 bytes would not"
        )
    if access.lanes and access.masked_lanes >= 0.25 * access.lanes:
        share = 100 * access.masked_lanes / access.lanes
        yield f"{what} with {share:.0f}% of the lanes masked off; a smaller tile would waste less"
    contention = access.contention if access.active_lanes >= 1024 else None
    if contention is not None and contention.elements and contention.most > 4 * access.active_lanes / contention.elements:
        element = "" if contention.hottest is None else f" {contention.hottest}"
        yield f"{what} atomically; {contention.most} of {access.active_lanes} updates hit element{element}"
    elif contention is not None and contention.most >= 1024:
        yield f"{what} atomically; each element is hit up to {contention.most} times: combine within the program first"


def _narrow(access: AccessProfile, compiled: CompileFacts, arguments: Mapping[str, ArgumentInfo]) -> Iterator[str]:
    widths = [width for width in access.widths if width is not None]
    elements = math.prod(access.block)
    if not widths or elements == 1:
        return
    width = max(widths)
    if width >= _WIDEST or access.contiguity * access.element_bytes <= width:
        return  # as wide as can be, or there is nothing next to an element
    threads = compiled.num_warps * (64 if compiled.target.startswith("hip:gfx9") else 32)
    share = elements / threads * access.element_bytes
    text = f"{_VERBS[access.kind]} {width} bytes at a time"
    if share <= width:
        yield (
            f"{text}; a tile of {elements} elements gives each of {threads} threads no more: "
            "a larger tile or fewer warps would allow wider ones"
        )
        return
    info = arguments.get(access.tensor) if access.tensor is not None else None
    if access.tensor in compiled.unaligned and info is not None and info.data_ptr % _ALIGNMENT:
        rest = info.data_ptr % _ALIGNMENT
        yield f"{text}; {access.tensor} does not begin at a multiple of {_ALIGNMENT} bytes (it is {rest} past one)"
        return
    odd = [
        f"{name}={value.value}"
        for name, value in arguments.items()
        if isinstance(value.value, int) and value.type.startswith(("i", "u")) and value.value % _ALIGNMENT and value.value != 1
    ]
    text += "; the pointer's alignment is unknown: see tl.multiple_of"
    yield f"{text} ({', '.join(odd)}: not a multiple of {_ALIGNMENT})" if odd else text


def _of_kernel(compiled: CompileFacts, flops: Mapping[str, int]) -> Iterator[str]:
    if compiled.spills:
        yield (
            f"{compiled.spills} registers of each thread are spilled to memory ({compiled.registers} are used): "
            "smaller tiles or more warps would need fewer"
        )
    if flops.get("tensor_core") and not compiled.tensor_core:
        yield "no tensor-core instruction was generated for the dots: their operand types or tile sizes do not allow it"
    limit = compiled.occupancy
    if limit is not None and limit.programs == 0:
        yield f"the kernel does not fit on the device: too many {limit.limited_by} ({compiled.shared} bytes of shared memory)"
    elif limit is not None and limit.fraction <= 0.25 and limit.limited_by in ("registers", "shared memory"):
        yield f"{limit.warps} of {limit.max_warps} warps fit on a multiprocessor at once, limited by {limit.limited_by}"
    if compiled.target.startswith("hip:"):
        plain = sum(a.count for a in compiled.accesses if a.instruction.startswith(("global_", "flat_")))
        if plain and not compiled.buffer_instructions:
            yield (
                "no buffer_load or buffer_store is used: for the compiler to use them, offsets must be 32-bit and not negative, "
                "and tensors below 2 GiB"
            )
