"""What rewritten code calls for the parts of the language that Python would do otherwise.

Operators, ``and``/``or``/``not`` and comparisons work on blocks element by element; numbers become tensors when they are bound to
a name, as in Triton's compiler; ``range`` counts in Triton's integers.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np
import triton.language as tl

from tritontrace import events
from tritontrace.engines.ir.shadows import note_global
from tritontrace.engines.python import binding, loops
from tritontrace.engines.python.sites import original_of
from tritontrace.engines.python.state import current
from tritontrace.engines.python.targets import OPERATORS, TRITON, is_constexpr
from tritontrace.engines.python.values import TracedTensor, given
from tritontrace.kernels import compat
from tritontrace.kernels.compiler_errors import PLAIN

__all__ = ["LANGUAGE", "Language", "constant"]

_constexpr: Any = compat.constexpr
_tuple: Any = tl.tuple


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _constexpr) else value


def constant(value: Any) -> Any:
    """A compile-time constant; a tuple is one of constants in the versions whose compiler takes it apart."""
    if type(value) is TracedTensor:
        raise TypeError(f"a tl.constexpr must be known when the kernel is compiled; this is {value}")
    if isinstance(value, np.generic):
        value = value.item()
    plain = _plain(value)
    if not compat.SPLITS_CONSTANT_TUPLES or not isinstance(plain, (tuple, _tuple)):
        return value if isinstance(value, _constexpr) else _constexpr(value)
    items = [constant(item) for item in plain]
    fields = getattr(type(plain), "_fields", None) if isinstance(plain, tuple) else plain.type.fields
    return _tuple(items, None if fields is None else tl.core.tuple_type([item.type for item in items], fields))


def _binary(function: Any) -> Any:
    def apply(a: Any, b: Any) -> Any:
        # tl.constexpr's own operators would wrap a tensor in a constexpr
        if isinstance(a, _constexpr) and not isinstance(b, _constexpr):
            return function(a.value, b) if isinstance(b, tl.core.base_value) else function(a, b)
        if isinstance(b, _constexpr) and not isinstance(a, (tl.core.base_value, tuple, list)):
            return function(_constexpr(a), b)  # as every constant is one to the compiler; not every operator has a reflected one
        if isinstance(b, _tuple) and isinstance(a, tuple):
            a = _tuple(a)
        return function(a, b)

    return staticmethod(apply)


_SEQUENCES = frozenset({str, bytes, list, tuple})


def _times(a: Any, b: Any) -> Any:
    """``*``; a sequence of the user's is repeated as often as a scalar says."""
    if type(b) is TracedTensor and type(a) in _SEQUENCES:
        return a * b.__index__()
    if type(a) is TracedTensor and type(b) in _SEQUENCES:
        return a.__index__() * b
    if type(b) is _constexpr and type(a) in (list, tuple):
        return a * b.value
    if type(a) is _constexpr and type(b) in (list, tuple):
        return a.value * b
    return a * b


_NUMBERS = frozenset({TracedTensor, _constexpr, bool, int, float, str, tuple, _tuple})


def _augmented(name: str, lists: bool) -> Any:
    """``a += b`` (`name` is the operator's): in place where Python would, but numbers and, if `lists`, lists make new ones."""
    in_place = getattr(operator, f"i{name.rstrip('_')}")

    def apply(a: Any, b: Any) -> Any:
        kind = type(a)
        if kind is list and lists and name == "add":
            return LANGUAGE.assign_new([*a, *b])
        if kind in _NUMBERS or (kind is list and lists):
            made = getattr(LANGUAGE, name)(a, b)
            return made if type(made) is TracedTensor else LANGUAGE.assign_new(made) if lists else LANGUAGE.keep(made)
        return in_place(a, list(map(binding.plain, b)) if type(b) is list else _plain(b))

    return staticmethod(apply)


class Language:
    """The helper of rewritten code; it holds nothing, so that all launches share one."""

    __slots__ = ()

    bind = staticmethod(binding.bind)
    member = staticmethod(binding.member)
    get = staticmethod(binding.get)
    keep = staticmethod(binding.plain)
    iterate = staticmethod(loops.iterate)
    while_loop = staticmethod(loops.WhileLoop)
    plain = staticmethod(_plain)

    @staticmethod
    def loop(function: Any) -> Any:
        """What is called in the head of a ``for``: there, ``range`` is Triton's."""
        return loops.LoopRange if function is loops.python_range else function

    add = _binary(operator.add)
    sub = _binary(operator.sub)
    mul = _binary(_times)
    truediv = _binary(operator.truediv)
    floordiv = _binary(operator.floordiv)
    mod = _binary(operator.mod)
    pow = _binary(operator.pow)
    lshift = _binary(operator.lshift)
    rshift = _binary(operator.rshift)
    and_ = _binary(operator.and_)
    or_ = _binary(operator.or_)
    xor = _binary(operator.xor)
    matmul = _binary(operator.matmul)
    eq = _binary(operator.eq)
    ne = _binary(operator.ne)
    lt = _binary(operator.lt)
    le = _binary(operator.le)
    gt = _binary(operator.gt)
    ge = _binary(operator.ge)

    @staticmethod
    def outer(name: str, value: Any) -> Any:
        """A module's or a closure's variable that the kernel reads: the compiler takes constants only, and none that changes."""
        kind = type(value)
        if kind is _constexpr:
            frame = sys._getframe(1)
            original = original_of(frame.f_code)
            if original is not None:
                note_global(current().used_globals, original, name, value)
        elif kind in PLAIN and not _declared(sys._getframe(1).f_globals, name):
            raise NameError(
                f"Cannot access global variable {name} from within @jit'ed function. Triton kernels can only access global "
                f"variables that are instanstiated as constexpr (`x = triton.language.constexpr(42)`). Write "
                f"`{name} = tl.constexpr({value!r})`."
            )
        return value

    @staticmethod
    def second(first: Any, second: Any) -> Any:
        """What is evaluated twice."""
        return second

    @staticmethod
    def executed(line: int, taken: bool) -> None:
        """A statement begins; see `events.Executed` for `taken`. Clients are told once in a launch."""
        state = current()
        statement = (sys._getframe(1).f_code.co_filename, line, taken)
        if statement not in state.executed:
            state.executed.add(statement)
            rt, builder = state.rt, state.builder
            site = builder.sites.event("tritontrace.lines", (), "")
            rt.before(events.Executed(rt.launch, site, builder.frame, (statement,)))

    @staticmethod
    def is_(a: Any, b: Any) -> bool:
        return _plain(a) is _plain(b)

    @staticmethod
    def is_not(a: Any, b: Any) -> bool:
        return _plain(a) is not _plain(b)

    @staticmethod
    def in_(a: Any, b: Any) -> Any:
        return _sought(a) in _plain(b)

    @staticmethod
    def not_in(a: Any, b: Any) -> Any:
        return _sought(a) not in _plain(b)

    @staticmethod
    def chain(names: tuple[str, ...], *operands: Any) -> Any:
        """``a < b < c``, every operand evaluated once and, for blocks, element by element."""
        result: Any = None
        for name, a, b in zip(names, operands, operands[1:]):
            one = getattr(LANGUAGE, name)(a, b)
            result = one if result is None else LANGUAGE.both_and(result, one) if not LANGUAGE.decides_and(result) else result
        return result

    # -- and, or, not: a constant decides alone, tensors are combined ------------------------------------------------------

    @staticmethod
    def decides_and(value: Any) -> bool:
        return not isinstance(value, TracedTensor) and not value

    @staticmethod
    def decides_or(value: Any) -> bool:
        return not isinstance(value, TracedTensor) and bool(value)

    @staticmethod
    def both_and(a: Any, b: Any) -> Any:
        if not isinstance(a, TracedTensor):
            return b
        if not isinstance(b, TracedTensor):
            return a if b else b
        return a.logical_and(b)

    @staticmethod
    def both_or(a: Any, b: Any) -> Any:
        if not isinstance(a, TracedTensor):
            return b
        if not isinstance(b, TracedTensor):
            return b if b else a
        return a.logical_or(b)

    @staticmethod
    def lazy_and(a: Any, b: Any) -> Any:
        return a if LANGUAGE.decides_and(a) else LANGUAGE.both_and(a, b())

    @staticmethod
    def lazy_or(a: Any, b: Any) -> Any:
        return a if LANGUAGE.decides_or(a) else LANGUAGE.both_or(a, b())

    @staticmethod
    def not_(value: Any) -> Any:
        return value.__not__() if isinstance(value, (TracedTensor, _constexpr)) else not value

    # -- binding names -----------------------------------------------------------------------------------------------------

    @staticmethod
    def assign(value: Any) -> Any:
        """What a name is bound to by ``name = value``: numbers become tensors, as in the compiler."""
        kind = type(value)
        if kind is TracedTensor:
            return value
        if kind is _constexpr:
            value = value.value
            kind = type(value)
        if kind is bool or kind is int or kind is float:
            return current().semantic.to_tensor(value)
        if kind is tuple:
            return tuple([LANGUAGE.assign(item) for item in value])
        if kind is _tuple:
            value.values = [LANGUAGE.assign(item) for item in value.values]
        return value

    @staticmethod
    def assign_new(value: Any) -> Any:
        """As `assign`, of what an expression has just made: lists are tuples to the compiler."""
        if type(value) is list:
            value[:] = [LANGUAGE.assign(item) for item in value]
            return value
        return LANGUAGE.assign(value)

    @staticmethod
    def spread(value: Any, kept: tuple[Any, ...]) -> Any:
        """What several targets get, `kept` being `Targets.kept` of each."""
        if isinstance(value, (tuple, list, _tuple)) and len(value) == len(kept):
            return [_placed(item, kind) for item, kind in zip(value, kept)]
        return value

    # -- keys --------------------------------------------------------------------------------------------------------------

    @staticmethod
    def key(key: Any) -> Any:
        """What Python looks `key` up by: the number that a scalar of the kernel or a compile-time constant holds."""
        kind = type(key)
        if kind is TracedTensor:
            return key.number() if key.is_number() else key
        if kind is tuple or kind is _tuple:
            return tuple(map(LANGUAGE.key, key))
        return key.value if kind is _constexpr else key

    @staticmethod
    def item(container: Any, key: Any) -> Any:
        """``container[key]``."""
        kind = type(container)
        if kind is TracedTensor or (kind not in (_tuple, _constexpr) and isinstance(container, tl.core.base_value)):
            return container[key]
        return _plain(container)[LANGUAGE.key(key)]

    @staticmethod
    def constant(value: Any) -> Any:
        """A constexpr parameter, or ``name: tl.constexpr = value``."""
        return constant(value)

    @staticmethod
    def parameter(value: Any) -> Any:
        """A parameter that is not marked: what is no tensor is a compile-time constant all the same."""
        kind = type(value)
        if kind is bool or kind is int or kind is float or kind is str or kind is tl.dtype or value is None:
            return _constexpr(value)
        if kind is tuple:
            return _tuple([LANGUAGE.parameter(item) for item in value])
        if isinstance(value, np.generic):
            return _constexpr(value.item())
        if kind is np.ndarray and sys._getframe(1).f_code.co_filename.startswith(TRITON):
            return given(value)  # Triton's own functions, as tl.sum
        return value

    @staticmethod
    def check(condition: Any, message: Any) -> None:
        """``assert``, which is tl.device_assert to the compiler, of constants too. What is no text yet is made when it fails."""
        if not isinstance(condition, (TracedTensor, _constexpr)):
            condition = bool(condition)
        if callable(message):
            holds = condition.handle.value.all() if type(condition) is TracedTensor else bool(condition)
            message = "" if holds or not current().builder.options.debug else str(_plain(message()))
        binding.device_assert(condition, message)


def _sought(value: Any) -> Any:
    """What ``in`` looks for; what is found decides what the kernel does."""
    if type(value) is TracedTensor and value.is_number():
        current().builder.branch(value.handle)
    return LANGUAGE.key(value)


def _placed(value: Any, kept: Any) -> Any:
    if isinstance(kept, tuple):
        return LANGUAGE.spread(value, kept)
    if kept == "constant":
        return constant(value)
    return LANGUAGE.keep(value) if kept else LANGUAGE.assign(value)


def _declared(namespace: dict[str, Any], name: str) -> bool:
    from triton import knobs

    annotations = namespace.get("__annotations__", {})
    return (name in annotations and is_constexpr(annotations[name])) or bool(knobs.compilation.allow_non_constexpr_globals)


for _name in OPERATORS.values():
    setattr(Language, f"i{_name.rstrip('_')}", _augmented(_name, lists=True))
    setattr(Language, f"i{_name.rstrip('_')}_kept", _augmented(_name, lists=False))
LANGUAGE = Language()
