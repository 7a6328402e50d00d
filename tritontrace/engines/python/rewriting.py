"""A kernel's source, rewritten so that it computes when Python runs it.

Calls, operators, assignments and loops go through a helper object (`language.Language`), whose one name is a closure
variable of the function: the module's globals, which stay the live ones, get no new name. File, lines and columns are the
user's, so that pdb, coverage and tracebacks show the kernel. The original function is only read.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import threading
import weakref
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from tritontrace.engines.python.sites import CodeInfo, register
from tritontrace.engines.python.targets import HELPER, OPERATORS, TRITON, Targets, at, is_constexpr
from tritontrace.errors import UnsupportedOpError
from tritontrace.forking import fork_safe
from tritontrace.kernels import compat
from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.parsing import undisturbed

__all__ = ["PROGRAM", "rewritten"]

PROGRAM = "__program__"
"""The parameter of every rewritten function that gets the ids of the running program."""

_COMPARISONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "in_",
    ast.NotIn: "not_in",
}

_LOCK = fork_safe(threading.Lock())
_REWRITTEN: WeakIdentityMap[dict[tuple[str, bool], Any]] = WeakIdentityMap()


class _Rewriter(Targets):
    """`outer`: the names that the function does not bind itself; `modules`: those of them that are modules now.

    With `lines` every statement tells that it is executed, and an ``if`` without an ``else`` that it is passed by.
    """

    def __init__(self, outer: frozenset[str] = frozenset(), modules: frozenset[str] = frozenset(), lines: bool = False) -> None:
        super().__init__()
        self.lines = lines
        self.outer = outer
        self.modules = modules
        self.ignored: set[tuple[int, int]] = set()
        self.nested = 0
        self.class_name = ""  # of the innermost class that is written in the kernel

    # -- helpers -------------------------------------------------------------------------------------------------------

    def later(self, value: ast.expr, where: ast.AST) -> ast.expr:
        """`value`, evaluated only when it is called for."""
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return at(ast.Lambda(nothing, value), where)  # type: ignore[no-any-return]  # made here

    def statements(self, body: list[Any]) -> list[Any]:
        """Visits each; one may become several."""
        out: list[Any] = []
        for statement in body:
            made = self.visit(statement)
            out.extend(made if isinstance(made, list) else [made])
        return out

    # -- statements ----------------------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        if not self.lines or not isinstance(node, ast.stmt) or isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return super().visit(node)
        mark = self.mark(node, True)
        made = super().visit(node)
        return [mark, *(made if isinstance(made, list) else [made])]

    def mark(self, node: ast.stmt, taken: bool) -> ast.stmt:
        line, way = at(ast.Constant(node.lineno), node), at(ast.Constant(taken), node)
        return ast.copy_location(ast.Expr(self.call(node, "executed", line, way)), node)

    def visit_If(self, node: ast.If) -> Any:
        passed = [self.mark(node, False)] if self.lines and not node.orelse else None
        self.generic_visit(node)
        if passed:
            node.orelse = passed
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            self.ignored.add((node.value.lineno, node.value.col_offset))
        node.value = self.visit(node.value)
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = node.msg or at(ast.Constant(""), node)
        if not (isinstance(message, ast.Constant) and isinstance(message.value, str)):
            message = self.later(self.visit(message), message)
        checked = self.call(node, "check", self.visit(node.test), message)
        return ast.copy_location(ast.Expr(checked), node)

    def visit_For(self, node: ast.For) -> Any:
        given = node.iter
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "range":
            calls = any(isinstance(part, ast.Call) for argument in given.args for part in ast.walk(argument))
            if calls and len(given.args) == 1 and "range" not in self.outer:
                # Triton's compiler visits the one argument of a range twice: what it loads is loaded twice.
                given.args.insert(0, at(ast.Constant(0), given.args[0]))
                given.args[1] = self.call(given.args[1], "second", copy.deepcopy(given.args[1]), given.args[1])
        carried = at(_names(_assigned_in(node)), node.iter)
        source = self.visit(node.iter)
        if isinstance(given, ast.Call) and isinstance(source, ast.Call):
            source.func = self.call(source.func, "loop", source.func)
        node.target = self.visit(node.target)
        node.iter = self.call(node.iter, "iterate", source, carried)
        node.body = self.statements(node.body)
        node.orelse = self.statements(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.temporaries += 1
        name = f"{HELPER}_loop{self.temporaries}"
        start = ast.copy_location(ast.Assign([at(ast.Name(name, ast.Store()), node)], self.call(node, "while_loop")), node)
        carried = at(_names(_assigned_in(node)), node)
        again = self.method(node, name, "again")
        node.test = ast.copy_location(ast.Call(again, [self.visit(node.test), carried], []), node.test)
        node.body = self.statements(node.body)
        node.orelse = self.statements(node.orelse)
        leave = self.method(node, name, "leave")
        end = ast.copy_location(ast.Expr(at(ast.Call(leave, [], []), node)), node)
        return [start, node, end]

    def _inside(self, node: Any) -> Any:
        self.nested += 1
        self.generic_visit(node)
        self.nested -= 1
        return node

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _inside

    # -- expressions ---------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        function = node.func
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        if isinstance(function, ast.Attribute):
            owner = self.owner(function.value)
            node.func = self.call(function, "member", owner, self.attribute(function))
        elif not isinstance(function, ast.Name):
            node.func = self.call(function, "bind", self.visit(function))
        elif function.id not in ("super", "locals", "vars", "dir", "eval"):
            node.func = self.call(function, "bind", function)
        return node

    def attribute(self, node: ast.Attribute) -> ast.expr:
        """The name of the attribute as text, in a class as the compiler of Python makes it of a private one."""
        name, owner = node.attr, self.class_name.lstrip("_")
        private = bool(owner) and name.startswith("__") and not name.endswith("__")
        return at(ast.Constant(f"_{owner}{name}" if private else name), node)  # type: ignore[no-any-return]  # made here

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        around, self.class_name = self.class_name, node.name
        try:
            return self.generic_visit(node)
        finally:
            self.class_name = around

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and node.id in self.outer:
            return self.call(node, "outer", at(ast.Constant(node.id), node), node)
        return node

    def owner(self, node: ast.expr) -> ast.expr:
        """What an attribute is taken of; a module needs no look."""
        return node if isinstance(node, ast.Name) and node.id in self.modules else self.visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.call(node, OPERATORS[type(node.op)], self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return self.call(node, "not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        operands = [self.visit(node.left), *map(self.visit, node.comparators)]
        if len(operands) == 2:
            return self.call(node, _COMPARISONS[type(node.ops[0])], *operands)
        names: list[ast.expr] = [at(ast.Constant(_COMPARISONS[type(op)]), node) for op in node.ops]
        return self.call(node, "chain", at(ast.Tuple(names, ast.Load()), node), *operands)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        name = "and" if isinstance(node.op, ast.And) else "or"
        result = self.visit(node.values[0])
        for following in node.values[1:]:
            value = self.visit(following)
            if self.nested:  # a comprehension has no variables of the function's
                result = self.call(node, f"lazy_{name}", result, self.later(value, following))
                continue
            variable = self.temporary()
            kept = at(ast.NamedExpr(at(ast.Name(variable, ast.Store()), node), result), node)
            decided = self.call(node, f"decides_{name}", kept)
            both = self.call(node, f"both_{name}", at(ast.Name(variable, ast.Load()), node), value)
            result = ast.copy_location(ast.IfExp(decided, at(ast.Name(variable, ast.Load()), node), both), node)
        return result

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.value = self.owner(node.value)
        if isinstance(node.ctx, ast.Load):
            return self.call(node, "get", node.value, self.attribute(node))
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = self.call(node.value, "plain", self.visit(node.value))
        return node


def _names(names: tuple[str, ...]) -> ast.expr:
    constant: Any = ast.Constant("")
    constant.value = names  # a tuple of constants is one constant to the compiler
    return constant  # type: ignore[no-any-return]  # made above


def _assigned_in(loop: ast.For | ast.While) -> tuple[str, ...]:
    """The names that a loop's body binds: what it carries from one iteration to the next, if they were there before."""
    nodes = (node for statement in loop.body for node in ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return tuple(sorted(name for name in names if not name.startswith(HELPER)))


def rewritten(function: Any, helper: Any, lines: bool = False) -> Any:
    """The rewritten Python function of `function` (a JITFunction or InterpretedFunction); made once for each source.

    `lines`: it tells of each statement of the user's that it executes (`Language.executed`).
    """
    original = function.fn
    text, first, indent = _source(function)
    known = _REWRITTEN.get_or_create(original, dict)
    key = text, lines
    new = known.get(key)
    if new is None:
        with _LOCK:
            new = known.get(key)
            if new is None:
                marked = lines and not original.__code__.co_filename.startswith(TRITON)
                new = known[key] = undisturbed(lambda: _rewrite(original, text, first, indent, helper, marked))
    return new


def _source(function: Any) -> tuple[str, int, int]:
    """(source from its ``def`` on, line of the ``def``, indentation)."""
    if isinstance(function, compat.JITFunction):
        lines, start = function.raw_src, function.starting_line_number
        text = getattr(function, "_src", None) or function.src
    else:
        lines, start = inspect.getsourcelines(function.fn)
        text = None
    skipped = next((i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), None)
    if skipped is None:
        raise UnsupportedOpError(f"{function.fn.__qualname__} is not a function with a def statement")
    body = "".join(lines[skipped:])
    indent = len(body) - len(body.lstrip())
    if text is None:
        text = textwrap.dedent(body)
    return text, start + skipped, indent


def _rewrite(original: Any, text: str, first: int, indent: int, helper: Any, lines: bool) -> Any:
    tree = ast.parse(text)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise UnsupportedOpError(f"{original.__qualname__} is not a plain function")
    for node in ast.walk(tree):
        if hasattr(node, "col_offset"):
            node.col_offset += indent
            if getattr(node, "end_col_offset", None) is not None:
                node.end_col_offset += indent  # type: ignore[attr-defined]  # seen above
    ast.increment_lineno(tree, first - 1)
    _prepare(definition)
    definition.name = f"{HELPER}_function"  # under its own name it would hide the one that a recursive call means
    rewriter = _Rewriter(*_outer_names(definition, original), lines)
    for node in ast.walk(definition):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            rewriter.outside.update(node.names)
    unread = _unread(definition)
    body = rewriter.statements(definition.body)
    documented = (
        isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
    )
    prologue = _prologue(definition, original, rewriter, definition.body[min(documented, len(definition.body) - 1)])
    # a parameter, so that it is there on the first line already, for a breakpoint's condition
    definition.args.kwonlyargs.append(at(ast.arg(PROGRAM), definition))
    definition.args.kw_defaults.append(None)
    definition.body = [*body[:documented], *prologue, *body[documented:]]
    cells = dict(zip(original.__code__.co_freevars, original.__closure__ or ()))
    parameters = [ast.arg(name) for name in [*cells, HELPER]]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    outer: Any = ast.FunctionDef(f"{HELPER}_outer", arguments, [definition], [], None)
    outer.type_params = []
    module = ast.Module([at(outer, definition)], [])
    ast.fix_missing_locations(module)
    compiled = compile(module, original.__code__.co_filename, "exec", dont_inherit=True)
    code: Any = _inner(_inner(compiled, f"{HELPER}_outer"), definition.name).replace(co_name=original.__name__)
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=original.__qualname__)
    ignored = frozenset(rewriter.ignored | unread)
    register(CodeInfo(code, original.__name__, rewriter.variables, ignored, weakref.ref(original)))
    closure = tuple([cells[name] if name in cells else CellType(helper) for name in code.co_freevars])
    new = FunctionType(code, original.__globals__, original.__name__, original.__defaults__, closure)
    new.__kwdefaults__ = original.__kwdefaults__
    new.__qualname__ = original.__qualname__
    new.__module__ = original.__module__
    return new


def _inner(code: CodeType, name: str) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType) and constant.co_name == name)


def _prepare(definition: ast.FunctionDef) -> None:
    """Drop what was evaluated when the user's module was imported: decorators, annotations, default values."""
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    arguments.defaults = [at(ast.Constant(None), default) for default in arguments.defaults]
    arguments.kw_defaults = [default and at(ast.Constant(None), default) for default in arguments.kw_defaults]


def _outer_names(definition: ast.FunctionDef, original: Any) -> tuple[frozenset[str], frozenset[str]]:
    """(the module's and closures' names that the function reads, those of them that are modules)."""
    names = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    known = original.__globals__
    outer = {node.id for node in names if node.id in known or node.id in original.__code__.co_freevars} - bound
    return frozenset(outer), frozenset(name for name in outer if isinstance(known.get(name), ModuleType))


def _unread(definition: ast.FunctionDef) -> set[tuple[int, int]]:
    """Where values begin that are bound to a name which nothing reads."""
    read = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            (target, *more) = node.targets
            if isinstance(target, ast.Name) and not more and target.id not in read:
                found.add((node.value.lineno, node.value.col_offset))
    return found


def _prologue(definition: ast.FunctionDef, original: Any, rewriter: _Rewriter, first: ast.stmt) -> list[ast.stmt]:
    """What a call does to its arguments in Triton: numbers and constexpr parameters become compile-time constants.

    It has the line of the `first` statement, where a debugger stops that has a breakpoint on the function.
    """
    annotations = getattr(original, "__annotations__", {})
    statements: list[ast.stmt] = []
    given = definition.args
    for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
        how = "constant" if is_constexpr(annotations.get(argument.arg, "")) else "parameter"
        value = rewriter.call(definition, how, ast.Name(argument.arg, ast.Load()))
        statements.append(ast.Assign([ast.Name(argument.arg, ast.Store())], value))
        argument.annotation = None
    for rest in (given.vararg, given.kwarg):
        if rest is not None:
            rest.annotation = None
    if given.vararg is not None:
        name = given.vararg.arg
        value = rewriter.call(definition, "parameter", ast.Name(name, ast.Load()))
        statements.append(ast.Assign([ast.Name(name, ast.Store())], value))
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (ast.expr, ast.stmt)):
                node.lineno = node.end_lineno = first.lineno
                node.col_offset = node.end_col_offset = first.col_offset
    return statements
