"""What the compiler made of a kernel, read from its assembly: widths of memory instructions by source line, tensor-core use."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritontrace.clients.profiling.devices import Occupancy, occupancy

__all__ = ["CompileFacts", "MachineAccess", "facts_of", "read_assembly"]

_VECTOR = re.compile(r"\.v(\d)")
_TYPE = re.compile(r"\.[busf](8|16|32|64|128)\b")
_PTX_ACCESS = re.compile(r"^(?:@!?%\w+\s+)?(ld|st|atom|red)((?:\.[\w:]+)*?)\.global(?![\w:])((?:\.[\w:]+)*)\s")
_PTX_ASYNC = re.compile(r"^(?:@!?%\w+\s+)?cp\.async\.c[ag]\.shared(?:::\w+)?\.global[^,]*,[^,]*,\s*(0x[0-9a-f]+|\d+)")
_PTX_BULK = re.compile(r"^(?:@!?%\w+\s+)?(cp(?:\.reduce)?\.async\.bulk(?:\.tensor)?(?:\.[\w:]+)*)\s")
_PTX_TENSOR = re.compile(r"^(?:@!?%\w+\s+)?((?:wgmma\.mma_async|mma\.sync|mma\.sp|tcgen05\.mma|wmma\.mma)(?:\.[\w:]+)*)\s")
_AMD_ACCESS = re.compile(r"^(global|buffer|flat)_(load|store|atomic)_(\w+)")
_AMD_TENSOR = re.compile(r"^(v_(?:mfma|smfmac|wmma|swmmac)_\w+)")
_LOC = re.compile(r"^\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?")
_FILE = re.compile(r'^\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_INLINE = ("// begin inline asm", ";;#ASMSTART", "// end inline asm", ";;#ASMEND")
_AMD_BYTES = {
    "dword": 4,
    "dwordx2": 8,
    "dwordx3": 12,
    "dwordx4": 16,
    "b8": 1,
    "u8": 1,
    "i8": 1,
    "b16": 2,
    "u16": 2,
    "i16": 2,
    "b32": 4,
    "b64": 8,
    "b96": 12,
    "b128": 16,
    "ubyte": 1,
    "sbyte": 1,
    "byte": 1,
    "ushort": 2,
    "sshort": 2,
    "short": 2,
}


@dataclass(frozen=True, slots=True)
class MachineAccess:
    """One kind of global-memory instruction at one source line: `count` of them in the program text, each of which moves
    `bytes` bytes for one thread (None for a bulk copy, which moves a whole tile).

    `kind` is ``"load"``, ``"store"`` or ``"atomic"``; `line` and `column` are None where the compiler names none. Of code that
    came from a helper, `file` and `line` are the helper's.
    """

    kind: str
    instruction: str
    bytes: int | None
    file: str | None
    line: int | None
    column: int | None
    count: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CompileFacts:
    """One compiled kernel: `registers` and `spills` (32-bit words) a thread, `shared` bytes a program, its warps.

    `tensor_core` counts the tensor-core (matrix) instructions in the program text by name. `unaligned` are the pointer
    arguments of which the compiler does not know that they are multiples of 16 bytes.
    """

    target: str
    registers: int
    spills: int
    shared: int
    num_warps: int
    num_stages: int
    accesses: tuple[MachineAccess, ...]
    tensor_core: Mapping[str, int]
    occupancy: Occupancy | None
    constants: Mapping[str, Any] = field(default_factory=dict)
    unaligned: tuple[str, ...] = ()

    def widths(self, kind: str, file: str, line: int, column: int | None = None) -> dict[int | None, int]:
        """Bytes a thread moves with one instruction -> instructions, of the loads, stores or atomics of a line.

        With `column`, only of those there, if the compiler has kept it for any.
        """
        found = [a for a in self.accesses if a.kind == kind and a.line == line and _same_file(a.file, file)]
        there = [access for access in found if access.column == column]
        out: Counter[int | None] = Counter()
        for access in there or found:
            out[access.bytes] += access.count
        return dict(out)

    @property
    def buffer_instructions(self) -> int:
        """AMD's buffer loads, stores and atomics in the program text."""
        return sum(access.count for access in self.accesses if access.instruction.startswith("buffer_"))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "target": self.target,
            "registers": self.registers,
            "spills": self.spills,
            "shared_bytes": self.shared,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "accesses": [access.to_dict() for access in self.accesses],
            "tensor_core": dict(self.tensor_core),
            "buffer_instructions": self.buffer_instructions,
            "occupancy": None if self.occupancy is None else self.occupancy.to_dict(),
            "unaligned": list(self.unaligned),
        }


def facts_of(compiled: Any, target: str) -> CompileFacts:
    """The facts about Triton's compiled kernel, for the target that it was compiled for."""
    asm, metadata = compiled.asm, compiled.metadata
    accesses, tensor_core = read_assembly(asm["ptx"] if "ptx" in asm else asm.get("amdgcn", ""))
    registers, spills, shared = int(compiled.n_regs), int(compiled.n_spills), int(metadata.shared)
    warps = int(metadata.num_warps)
    constants, unaligned = _arguments(compiled.src)
    return CompileFacts(
        target,
        registers,
        spills,
        shared,
        warps,
        int(getattr(metadata, "num_stages", 0)),
        accesses,
        tensor_core,
        occupancy(target, num_warps=warps, registers=registers, shared=shared),
        constants,
        unaligned,
    )


def _arguments(source: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(constants by name, pointers of unknown alignment) of a compile's source object."""
    names = list(getattr(source, "signature", {}) or {})
    constants = {
        names[path[0]]: value
        for path, value in (getattr(source, "constants", {}) or {}).items()
        if len(path) == 1 and isinstance(value, (int, float, str, bool))
    }
    attributes = getattr(source, "attrs", {}) or {}
    aligned = {path[0] for path, found in attributes.items() if any(entry[0] == "tt.divisibility" for entry in found)}
    pointers = (i for i, name in enumerate(names) if str(source.signature[name]).startswith("*"))
    return constants, tuple(names[i] for i in pointers if i not in aligned)


@functools.lru_cache(maxsize=64)
def read_assembly(text: str) -> tuple[tuple[MachineAccess, ...], Mapping[str, int]]:
    """(accesses to global memory, tensor-core instructions by name) of PTX or AMD GCN assembly."""
    accesses: Counter[tuple[str, str, int | None, tuple[str | None, int | None, int | None]]] = Counter()
    tensor_core: Counter[str] = Counter()
    files: dict[str, str] = {}
    place: tuple[str | None, int | None, int | None] = (None, None, None)
    inline = 0  # within inline assembly: locations met so far, plus one
    for line in text.splitlines():
        line = line.strip()
        if line.startswith(_INLINE):
            inline = int(line.startswith(_INLINE[:2]))
        elif line.startswith(".loc"):
            # LLVM counts up the source line with each line of inline assembly; only the first is the operation's.
            found = None if inline > 1 else _LOC.match(line)
            inline += inline > 0
            if found is not None:
                place = (found[1], int(found[2]) or None, int(found[3] or 0) or None)
        elif line.startswith(".file"):
            found = _FILE.match(line)
            if found is not None:
                files[found[1]] = f"{found[2]}/{found[3]}" if found[3] else found[2]
        for kind, name, size in _instruction(line):
            if kind == "tensor":
                tensor_core[name] += 1
            else:
                accesses[kind, name, size, place] += 1
    # The files may be named at the end.
    merged = tuple(
        MachineAccess(kind, name, size, files.get(file) if file is not None else None, line, column, count)
        for (kind, name, size, (file, line, column)), count in accesses.items()
    )
    return merged, dict(tensor_core)


def _instruction(line: str) -> Iterator[tuple[str, str, int | None]]:
    """(kind, name, bytes a thread) of an instruction that matters; kind ``"tensor"`` for matrix instructions."""
    if "mma" in line or "mfma" in line or "smfmac" in line:
        found = _PTX_TENSOR.match(line) or _AMD_TENSOR.match(line)
        if found is not None:
            yield "tensor", found[1], None
            return
    if "global" not in line and "buffer_" not in line and "flat_" not in line:
        return
    found = _PTX_ACCESS.match(line)
    if found is not None:
        suffix = found[3]
        size = _TYPE.findall(suffix)
        vector = _VECTOR.search(suffix)
        kind = {"ld": "load", "st": "store"}.get(found[1], "atomic")
        nbytes = int(size[-1]) // 8 * (int(vector[1]) if vector else 1) if size else None
        yield kind, f"{found[1]}{found[2]}.global{suffix}", nbytes
        return
    found = _PTX_ASYNC.match(line)
    if found is not None:
        yield "load", "cp.async", int(found[1], 0)
        return
    found = _PTX_BULK.match(line)
    if found is not None:
        name = found[1]
        if "prefetch" in name:
            return
        reduces = name.startswith("cp.reduce")
        yield "atomic" if reduces else "store" if ".global.shared" in name else "load", name, None
        return
    found = _AMD_ACCESS.match(line)
    if found is not None:
        kind, suffix = found[2], found[3]
        nbytes = next((_AMD_BYTES[part] for part in suffix.split("_") if part in _AMD_BYTES), None)
        if kind == "atomic":
            nbytes = 8 if suffix.endswith(("_x2", "64")) else 4
        yield kind, found[0], nbytes


def _same_file(a: str | None, b: str) -> bool:
    # Compilers shorten and join paths; the names of the files decide.
    return a is not None and (a == b or os.path.basename(a) == os.path.basename(b))
