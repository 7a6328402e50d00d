"""Real compiles of a user's kernel, for any target, with nothing of the user's or of Triton's written.

A compile through the kernel itself would write hashes and recorded globals to it and to every helper that it reaches, would
stop at helpers decorated under ``TRITON_INTERPRET=1``, and ``tl.target_info`` would ask a driver that may not be there. So a
real compile runs on shadows as the engine's frontend does (`tritontrace.engines.ir.shadows`): traced helpers, whether
reached by name, through a closure, a module, an argument or a default, are plain JITFunctions there.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import re
import subprocess
import tempfile
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from tritontrace.kernels import compat
from tritontrace.kernels.arguments import BoundLaunch
from tritontrace.kernels.constants import hide_functions, reveal_functions
from tritontrace.kernels.targets import Target, backend_for
from tritontrace.kernels.watched import GlobalsWatch
from tritontrace.kernels.weak import WeakIdentityMap

__all__ = ["CompileRequest", "OfflineKernel", "real_compile"]


class _TensorStandIn:
    """What a compile needs to know of a tensor argument, without keeping the tensor alive."""

    __slots__ = ("_data_ptr", "_range", "dtype")

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        # A fake tensor warns when it is asked for an address; it may be as well aligned as any.
        self._data_ptr: int = 0 if type(tensor).__name__ == "FakeTensor" else tensor.data_ptr()
        base = getattr(tensor, "base", None) if not isinstance(tensor, torch.Tensor) else tensor
        with torch._C.DisableTorchFunctionSubclass():
            storage = base.untyped_storage().nbytes() if isinstance(base, torch.Tensor) else 0
            self._range = tensor.ptr_range() if hasattr(tensor, "ptr_range") else storage

    def data_ptr(self) -> int:
        return self._data_ptr

    def ptr_range(self) -> int:
        return self._range


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One specialization of a kernel to compile, with stand-ins for the tensors of the launch that it came from."""

    kernel: Any
    kernel_name: str
    target: Target
    values: dict[str, Any]
    options: dict[str, Any]
    key: Hashable

    @classmethod
    def of(cls, bound: BoundLaunch, target: Target | None = None) -> CompileRequest:
        """What `bound` would be compiled as, for its own target or another one."""
        values = {name: _without_tensors(value) for name, value in bound.values.items()}
        return cls(bound.kernel, bound.kernel_name, target or bound.target, values, bound.compile_options(), bound.key)


def _without_tensors(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is float or kind is bool or value is None:
        return value
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _TensorStandIn(value)
    if isinstance(value, tuple):
        items = [_without_tensors(item) for item in value]
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        described = copy.copy(value)
        described.base = _TensorStandIn(value.base)
        return described
    return value


class _ShadowSource(compat.ASTSource):  # type: ignore[misc]  # Triton's classes are untyped
    """Triton's source object over shadows."""

    def make_ir(self, *args: Any, **kwargs: Any) -> Any:
        from tritontrace.engines.ir.generator import ast_to_ttir  # as below

        given = inspect.signature(compat.ASTSource.make_ir).bind(self, *args, **kwargs).arguments
        return ast_to_ttir(
            self.fn,
            self,
            context=given["context"],
            options=given["options"],
            codegen_fns=given["codegen_fns"],
            module_map=given["module_map"],
        )

    def hash(self) -> str:
        # Not Triton's own entry of its disk cache: there `tl.target_info` may have answered for another device or for none.
        return hashlib.sha256(f"tritontrace-{super().hash()}".encode()).hexdigest()


class OfflineKernel(compat.CompiledKernel):  # type: ignore[misc]  # Triton's classes are untyped
    """A compiled kernel that knows its registers and spills without a device to load it on."""

    @property
    def _resources(self) -> tuple[int, int]:
        if "cubin" in self.asm:
            return _cuda_resources(self.asm["cubin"], self.name)
        return _amd_resources(self.asm["amdgcn"])

    @functools.cached_property
    def n_regs(self) -> int:
        """Registers per thread."""
        return self._resources[0]

    @functools.cached_property
    def n_spills(self) -> int:
        """Registers per thread that were spilled to memory, counted as Triton counts them (32-bit words)."""
        return self._resources[1]


@functools.lru_cache(maxsize=256)
def _cuda_resources(cubin: bytes, name: str) -> tuple[int, int]:
    tool = compat.require(triton.knobs.nvidia, "cuobjdump").path
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "kernel.cubin")
        file.write_bytes(cubin)
        shown = subprocess.run([tool, "--dump-resource-usage", file], capture_output=True, text=True, check=True).stdout
    usage = shown.partition(f"Function {name}:")[2] or shown
    counts = {key: int(count) for key, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}
    return counts.get("REG", 0), max(counts.get("STACK", 0), counts.get("LOCAL", 0)) // 4


def _amd_resources(assembly: str) -> tuple[int, int]:
    counts = {key: int(count) for key, count in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s*(\d+)", assembly)}
    return counts.get("vgpr_count", 0), counts.get("vgpr_spill_count", 0)


_Handed = tuple[OfflineKernel, Any, Any, Any]


class _Compiles:
    """The compiles of one kernel.

    `by_source` has them by Triton's own specialization, `by_request` by what can be told of a request without it, which is
    coarser in nothing (see `_alike`). Both hold for the globals that the kernel was compiled with.
    """

    def __init__(self) -> None:
        self.by_source: dict[Hashable, OfflineKernel] = {}
        self.by_request: dict[Hashable, _Handed] = {}
        self.globals = GlobalsWatch()

    def forget_old(self) -> None:
        """Forget all if a global has another value now: Triton would refuse to launch; asked for a compile, make it."""
        if self.globals.changed() is not None:
            self.by_source, self.by_request, self.globals = {}, {}, GlobalsWatch()


_compiles: WeakIdentityMap[_Compiles] = WeakIdentityMap()


def real_compile(jit_fn: Any, bound: BoundLaunch | CompileRequest, target: Target | None = None) -> OfflineKernel:
    """Compile `jit_fn` to machine code for what `bound` says, offline, for its target or another one.

    Nothing is written to the kernel, to its helpers or to ``triton.language``. The result is remembered as long as the
    kernel lives. Raises Triton's own errors for a kernel that does not compile.
    """
    # Not before: shadows are built on more of Triton than a version may have that the package is only imported with.
    from tritontrace.engines.ir.shadows import ShadowWorld

    request = bound if isinstance(bound, CompileRequest) and target is None else None
    if request is None:
        request = CompileRequest.of(bound, target) if isinstance(bound, BoundLaunch) else bound
    kernel = compat.unwrap(jit_fn)
    known = _compiles.get_or_create(kernel, _Compiles)
    known.forget_old()
    by_source, by_request = known.by_source, known.by_request
    backend = backend_for(request.target)
    alike = _alike(request, backend)
    if alike is not None and (found := by_request.get(alike)) is not None:
        return _copy(kernel, *found)
    world = ShadowWorld(request.target, tritons_locations=True)
    function = world.shadow(kernel)
    options, signature, constants, attributes = _specialize(function, backend, request)
    constants = {path: reveal_functions(value) for path, value in constants.items()}
    key = (request.target, request.key, str(attributes), str(options), _environment())
    compiled = by_source.get(key)
    if compiled is None:
        shadows = {path: world.shadow(value) for path, value in constants.items()}
        source = _ShadowSource(function, signature, shadows, attributes)
        compiled = compat.compile_source(source, target=request.target.gpu_target, options=vars(options))
        compiled.__class__ = OfflineKernel
        compiled.src = None  # it leads to the kernel, which must not be kept alive by what is remembered about it
        world.record_dependencies()
        known.globals.add(world.used_globals)
        compiled = by_source.setdefault(key, compiled)
    if alike is not None:
        by_request[alike] = (compiled, signature, constants, attributes)
    return _copy(kernel, compiled, signature, constants, attributes)


def _copy(kernel: Any, compiled: OfflineKernel, signature: Any, constants: Any, attributes: Any) -> OfflineKernel:
    """An object of the caller's own: loading it on a device writes to it."""
    handed_out: OfflineKernel = copy.copy(compiled)
    handed_out.src = compat.ASTSource(kernel, signature, constants, attributes)
    return handed_out


def _environment() -> Hashable:
    """The environment variables that Triton's compiler reads itself."""
    return tuple(sorted(compat.compiler_environment().items()))


_WITHOUT_ALIGNMENT = frozenset({float, bool, str, type(None), compat.dtype, torch.dtype})


def _alike(request: CompileRequest, backend: Any) -> Hashable | None:
    """Equal for requests that compile to the same, made without Triton's specialization; None where that is not plain to see.

    The request's key has the kernel's source, the types and the compile-time values. What Triton specializes on besides is
    the alignment of addresses and integers and, on AMD, whether a tensor is small enough for buffer instructions.
    """
    facts: list[bool] = []
    for value in request.values.values():
        kind = type(value)
        if kind is _TensorStandIn:
            facts += (value.data_ptr() % 16 == 0, value.ptr_range() < 2**31)
        elif kind is int:
            facts.append(value % 16 == 0)
        elif kind not in _WITHOUT_ALIGNMENT:
            return None
    # The options with all that knobs add to them; the knob does not count among options.
    options = str(backend.parse_options(request.options))
    return request.target, request.key, options, tuple(facts), _environment(), bool(triton.knobs.amd.use_buffer_ops)


def _specialize(function: Any, backend: Any, request: CompileRequest) -> tuple[Any, dict[str, Any], dict[Any, Any], Any]:
    """Triton's own specialization of the arguments, with alignment: options, signature, constants, attributes."""
    parameters = [
        parameter.replace(default=hide_functions(getattr(parameter.default, "shadow_of", parameter.default)))
        for parameter in function.signature.parameters.values()
    ]
    params = [
        compat.KernelParam(param.num, parameter, param.do_not_specialize, param.do_not_specialize_on_alignment)
        for param, parameter in zip(function.params, parameters, strict=True)
    ]
    binder = compat.create_binder(function.signature.replace(parameters=parameters), params, backend)
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    for parameter in parameters:
        value = hide_functions(request.values[parameter.name])
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            by_name[parameter.name] = value
        else:
            positional.append(value)
    values, specialization, _ = binder(*positional, **by_name)
    options, signature, constants, attributes = function._pack_args(backend, request.options, values, specialization, None)
    return options, signature, constants, attributes
