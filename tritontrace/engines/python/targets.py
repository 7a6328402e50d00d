"""Assignments and subscripts in rewritten source.

What is bound to a name of the kernel becomes a value of the kernel, as in Triton's compiler. That knows no other targets: what is
stored in the user's own dictionaries, lists and objects stays what Python has, and so do the keys.
"""

from __future__ import annotations

import ast
import os
from typing import Any

import triton

__all__ = ["HELPER", "OPERATORS", "TRITON", "Targets", "at", "is_constexpr"]

HELPER = "_tritontrace"
"""The helper object's name, and what every name that the rewriting adds begins with: one underscore, because two would be mangled
in a class."""
TRITON = os.path.dirname(triton.__file__) + os.sep
"""Where Triton's own functions for kernels are."""

OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}


def at(node: Any, where: ast.AST) -> Any:
    """`node` at the place of `where`."""
    return ast.copy_location(node, where)


def is_constexpr(annotation: Any) -> bool:
    """Whether a parameter's annotation, given as text too, says that it is a compile-time constant."""
    if isinstance(annotation, str):
        return "constexpr" in annotation
    return "constexpr" in getattr(annotation, "__name__", str(annotation))


class Targets(ast.NodeTransformer):
    """The part of the rewriter that knows what is stored where."""

    def __init__(self) -> None:
        self.temporaries = 0
        self.variables: dict[tuple[int, int], str] = {}
        self.outside: set[str] = set()
        """Names that a ``global`` or ``nonlocal`` statement says are not the kernel's."""
        self.announced: set[str] = set()
        """Names that ``name: tl.constexpr`` says will be compile-time constants, until they are bound."""

    def call(self, node: ast.AST, name: str, *args: ast.expr) -> ast.expr:
        """A call of the helper, at the place of `node`."""
        return ast.copy_location(ast.Call(self.method(node, HELPER, name), list(args), []), node)

    @staticmethod
    def method(node: Any, owner: str, name: str) -> ast.expr:
        """``owner.name`` for a call at the place of `node`."""
        variable = ast.copy_location(ast.Name(owner, ast.Load()), node)
        function = ast.copy_location(ast.Attribute(variable, name, ast.Load()), node)
        # Of a method call whose name ends on another line than it begins, CPython reports the end.
        for part in (variable, function):
            part.end_lineno, part.end_col_offset = part.lineno, part.col_offset
        return function

    def temporary(self) -> str:
        """A new name for a value that is needed twice."""
        self.temporaries += 1
        return f"{HELPER}_{self.temporaries}"

    # -- assignments ---------------------------------------------------------------------------------------------------

    def kept(self, target: ast.expr) -> Any:
        """What becomes of what `target` gets; of several targets, a tuple of that.

        True: it stays what Python has. False: it becomes a value of the kernel, as all that a name is bound to.
        ``"constant"``: a compile-time constant.
        """
        if isinstance(target, ast.Name):
            return "constant" if target.id in self.announced else target.id in self.outside
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = tuple([self.kept(part) for part in target.elts])
            return parts[0] if parts and all(part is parts[0] for part in parts) and parts[0] in (True, False) else parts
        return self.kept(target.value) if isinstance(target, ast.Starred) else True

    def assigned(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """`value` as `target` gets it."""
        if isinstance(target, ast.Name):
            self.variables[(value.lineno, value.col_offset)] = target.id
        kept = self.kept(target)
        if kept is False:
            return self.own(value)
        if kept is True and isinstance(value, (ast.List, ast.Tuple)):
            value.elts = [item if isinstance(item, ast.Starred) else self.assigned(target, item) for item in value.elts]
            return value
        return self.into(value, self.visit(value), kept)

    def into(self, node: ast.expr, value: ast.expr, kept: Any) -> ast.expr:
        """The visited `value` for targets of which `kept` says what they keep."""
        if kept == "constant":
            return self.call(node, "constant", value)
        if isinstance(kept, bool):
            return self.call(node, "keep" if kept else "assign", value)
        parts = at(ast.Constant(kept), node)
        return self.call(node, "spread", value, parts)

    def own(self, value: ast.expr) -> ast.expr:
        """`value` bound to a name: what a list that is made here holds is bound, too, as lists are tuples to the compiler."""
        if isinstance(value, ast.List) and not any(isinstance(item, ast.Starred) for item in value.elts):
            value.elts = [self.own(item) for item in value.elts]
            return value
        fresh = isinstance(value, (ast.List, ast.ListComp, ast.BinOp))
        return self.call(value, "assign_new" if fresh else "assign", self.visit(value))

    def visit_Assign(self, node: ast.Assign) -> Any:
        """``target = value``; each target of several gets what it should have."""
        kinds = [self.kept(target) for target in node.targets]
        bound = [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        try:
            return self._assign(node, kinds)
        finally:
            self.announced.difference_update(bound)

    def _assign(self, node: ast.Assign, kinds: list[Any]) -> Any:
        if all(kind == kinds[0] for kind in kinds):
            node.value = self.assigned(node.targets[0], node.value)
            node.targets = [self.visit(target) for target in node.targets]
            return node
        name, where = self.temporary(), node.value
        made: list[ast.stmt] = [at(ast.Assign([at(ast.Name(name, ast.Store()), where)], self.visit(node.value)), node)]
        for target, kind in zip(node.targets, kinds):
            value = self.into(where, at(ast.Name(name, ast.Load()), where), kind)
            made.append(at(ast.Assign([self.visit(target)], value), node))
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """``target: annotation = value``."""
        if node.value is None:
            if isinstance(node.target, ast.Name) and is_constexpr(ast.unparse(node.annotation)):
                self.announced.add(node.target.id)
            return node
        if is_constexpr(ast.unparse(node.annotation)):
            value = self.call(node.value, "constant", self.visit(node.value))
        else:
            value = self.assigned(node.target, node.value)
        return ast.copy_location(ast.Assign([self.visit(node.target)], value), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """``target += value``: the target is read and stored, so it needs two nodes."""
        before: list[ast.stmt] = []
        if any(isinstance(part, (ast.Call, ast.NamedExpr)) for part in ast.walk(node.target)):
            before = self.hold(node.target)
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        for part in ast.walk(read):
            ast.copy_location(part, node.target)
        kept = self.kept(node.target)
        name = f"i{OPERATORS[type(node.op)].rstrip('_')}" + ("_kept" if kept else "")
        total = self.call(node, name, self.visit(read), self.visit(node.value))
        return [*before, ast.copy_location(ast.Assign([self.visit(node.target)], total), node)]

    def hold(self, target: Any) -> list[ast.stmt]:
        """Names the parts of a target that is evaluated once but used twice."""
        made: list[ast.stmt] = []
        for field in ("value", "slice"):
            part = getattr(target, field, None)
            if isinstance(part, ast.expr) and not any(isinstance(inner, ast.Slice) for inner in ast.walk(part)):
                name = self.temporary()
                made.append(at(ast.Assign([at(ast.Name(name, ast.Store()), part)], self.visit(part)), target))
                setattr(target, field, at(ast.Name(name, ast.Load()), part))
        return made

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        """``name := value``."""
        node.value = self.into(node.value, self.visit(node.value), self.kept(node.target))
        return node

    # -- keys ----------------------------------------------------------------------------------------------------------

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """``container[key]``; what is written as a number or a slice needs no look."""
        plain = _written(node.slice)
        node.value = self.visit(node.value)
        node.slice = self.visit(node.slice)
        if plain:
            return node
        if isinstance(node.ctx, ast.Load):
            return self.call(node, "item", node.value, node.slice)
        node.slice = self.call(node.slice, "key", node.slice)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        """``{key: value}``."""
        node.keys = [key and self.key(key) for key in node.keys]
        node.values = [
            self.visit(value) if key is None or isinstance(value, ast.Constant) else self.into(value, self.visit(value), True)
            for key, value in zip(node.keys, node.values)
        ]
        return node

    def visit_Set(self, node: ast.Set) -> Any:
        """``{key, key}``."""
        node.elts = [self.key(key) for key in node.elts]
        return node

    def key(self, key: ast.expr) -> ast.expr:
        """What Python looks a visited `key` up by."""
        if isinstance(key, (ast.Constant, ast.Starred)):
            return self.visit(key)  # type: ignore[no-any-return]  # an expression for an expression
        return self.call(key, "key", self.visit(key))


def _written(index: ast.expr) -> bool:
    """True for an index of constants and slices."""
    if isinstance(index, ast.Tuple):
        return all(map(_written, index.elts)) or any(isinstance(part, ast.Slice) for part in index.elts)
    if isinstance(index, ast.UnaryOp):
        return _written(index.operand)
    return isinstance(index, (ast.Constant, ast.Slice))
