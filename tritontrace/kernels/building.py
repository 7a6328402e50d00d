"""What Triton's code generator builds with: its IR builder, with what the types of ``triton.language`` ask of it.

The types are shared with the process, and their `to_ir` is the interpreter's own while that runs on any thread. It asks for
unsigned types, which MLIR has not, and leaves a check out. A builder that answers and checks gives the same types either way.
(Triton 3.6's interpreter has no fp8e4b8 and no fp8e5b16: a kernel with these is refused there at such a moment.)
"""

from __future__ import annotations

import inspect
import re
import types
from typing import Any

import triton.language as tl

from tritontrace.kernels import compat, private

__all__ = ["Builder", "code_generators_own", "file_columns"]

_FP8 = ("fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")


class Builder(compat.ir.builder):  # type: ignore[misc]  # Triton's classes are untyped
    """A builder for any `to_ir`, Triton's or its interpreter's."""

    def get_uint8_ty(self) -> Any:
        return self.get_int8_ty()

    def get_uint16_ty(self) -> Any:
        return self.get_int16_ty()

    def get_uint32_ty(self) -> Any:
        return self.get_int32_ty()

    def get_uint64_ty(self) -> Any:
        return self.get_int64_ty()


def _checked(name: str) -> Any:
    inherited = getattr(compat.ir.builder, f"get_{name}_ty")

    def get(self: Any) -> Any:
        supported = self.options.supported_fp8_dtypes
        if name not in supported:
            raise ValueError(f"type {name} not supported in this architecture. The supported fp8 dtypes are {supported}")
        return inherited(self)

    return get


for _name in _FP8:
    if hasattr(compat.ir.builder, f"get_{_name}_ty"):
        setattr(Builder, f"get_{_name}_ty", _checked(_name))


def code_generators_own(namespace: dict[str, Any]) -> dict[str, Any]:
    """What Triton's code generator has to see otherwise than its own module's private `namespace` says."""
    ir = types.ModuleType(compat.ir.__name__, compat.ir.__doc__)
    vars(ir).update(vars(compat.ir))
    vars(ir)["builder"] = Builder
    # The types, which are shared, make values of the shared classes; the generator compares the classes of values.
    makers = ("unflatten_ir_values", "_clone_triton_value")
    # of the classes that it uses, those that call functions of the module
    classes = ("enter_sub_region", "ASTFunction")
    made: dict[str, Any] = {name: _adopting(namespace[name]) for name in makers if name in namespace}
    made.update({name: private.subclass(namespace[name]) for name in classes if name in namespace})
    return {"ir": ir, **made}


def _adopting(make: Any) -> Any:
    tensor = private.value_class(tl.tensor)
    if inspect.isgeneratorfunction(make):
        return lambda *args: (private.adopt(value, tensor) for value in make(*args))
    return lambda *args: private.adopt(make(*args), tensor)


_DEFINITION = re.compile(r"^([ \t]*)def\s", re.MULTILINE)


class _FileColumns(Builder):
    """A builder whose locations have the columns that the file has, counted from 1, as those of later Tritons do."""

    first_column = 1

    def create_loc(self, file: str, line: int, column: int) -> Any:
        return super().create_loc(file, line, self.first_column + column)


def file_columns(context: Any, fresh: Any, function: Any, file: str, line: int) -> Any:
    """A `_FileColumns` in place of `fresh`, a code generator's builder that has built nothing yet."""
    # The frontend reads the source without the indentation that a kernel inside a function or a class has.
    definition = _DEFINITION.search("".join(function.raw_src))
    builder = _FileColumns(context)
    builder.first_column = 1 + (len(definition.group(1)) if definition else 0)
    builder.set_loc(file, line, builder.first_column)
    builder.options, builder.codegen_fns, builder.module_map = fresh.options, fresh.codegen_fns, fresh.module_map
    return builder
