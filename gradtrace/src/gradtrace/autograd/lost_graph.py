"""Find in the source where a value lost its graph, for a watch that did not record it.

The expression on which ``backward()`` was called is followed through the assignments of its scope,
the functions of the program that it calls and, for an argument, the caller. It lost its graph only
if each of its operands did, so a detached target beside a prediction is no explanation. If the
source leaves an operand open, a lenient reader finds where the others may have lost it.
"""

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from gradtrace.autograd import source, syntax
from gradtrace.autograd.frames import Location, contents, is_users, reach, user_frame
from gradtrace.autograd.syntax import ASSIGNMENTS, Function, additions, elements_of, entry_of

# What a method or attribute of this name returns has no graph; the value says how it was lost.
_METHODS = {
    **dict.fromkeys(("item", "tolist", "numpy"), "copy"),
    **dict.fromkeys(("detach", "data"), "detach"),
    **dict.fromkeys(
        ("argmax", "argmin", "argsort", "indices", "long", "int", "bool", "sample"), "operation"
    ),
}
_COPIES = ("tensor", "as_tensor", "from_numpy", "float")  # functions that copy numbers
_OF_RECEIVER = ("view_as", "expand_as", "reshape_as", "type_as", "to")  # other arguments: no graph
_WITH_INDICES = ("max", "min", "topk", "sort", "mode", "median", "kthvalue", "cummax", "cummin")
_ITERATING = ast.For, ast.AsyncFor, ast.ListComp, ast.GeneratorExp
_COMBINATIONS = ast.BinOp, ast.UnaryOp, ast.Subscript, ast.List, ast.Tuple, ast.Dict
_MAX_CALLS = 5  # of the program's functions, one inside the other
_UNKNOWN = object()
_CONSTANTS = int, float, str, type(None), torch.dtype, torch.device, ModuleType


class Detachment(NamedTuple):
    """Where a value lost its graph, and how, as in :class:`gradtrace.watching.cuts.Cut`."""

    how: str  # "line" if the source does not show it, but an operand has a graph
    location: Location


_Result = list[Detachment] | None  # None if the value may have a graph, [] if it never had one


def find(frame: FrameType, lenient: bool = False) -> Detachment | None:
    """Return how and where the value on which a frame calls ``backward()`` lost its graph."""
    reader = _Reader.of(frame, lenient)
    if reader is None:
        return None
    roots = filter(None, map(_root, reader.calls_at(frame.f_lineno)))
    detachments = next(filter(None, map(reader.detachments, roots)), None)
    return None if detachments is None else detachments[0]


def value_of(frame: FrameType | None, expression: str) -> Any:
    """Return what a name, attribute or entry in the running function refers to, if known."""
    reader = None if frame is None or not expression else _Reader.of(frame)
    if reader is None:
        return None
    value = reader._value(ast.parse(expression, mode="eval").body)
    return None if value is _UNKNOWN else value


def tensors_read(frame: FrameType | None, expressions: Iterable[ast.expr]) -> list[torch.Tensor]:
    """Return the tensors that require grad from which the running function computes expressions."""
    reader = None if frame is None else _Reader.of(frame)
    tensors: list[torch.Tensor] = []
    pending: list[Any] = [] if reader is None else [*expressions]
    for node in pending:
        assert reader is not None
        value = reader._value(node)
        if isinstance(value, torch.Tensor | torch.nn.Module | list | tuple | dict):
            tensors += (item.value for item in reach({"": value}) if item.value.requires_grad)
        elif reader.detachments(node) is None:
            pending += ast.iter_child_nodes(node)
    return tensors


@dataclass(eq=False)
class _Reader:
    """Finds where the values in one scope of a file lost their graphs.

    ``variables`` maps names to their values. ``arguments`` maps each parameter to the expression
    that the caller passes, with the caller's reader. A ``lenient`` reader takes values that the
    source leaves open for constants, and all assignments of a variable for possible.
    """

    file: str
    scope: source.Scope
    variables: Mapping[str, Any]
    arguments: dict[str, tuple["_Reader", ast.expr]]
    lenient: bool = False
    depth: int = 0

    def __post_init__(self) -> None:
        self._read: set[str] = set()  # the variables whose assignments are being read
        self.nodes = list(source.own_nodes(self.scope))

    @classmethod
    def of(cls, frame: FrameType, lenient: bool = False, depth: int = 0) -> "_Reader | None":
        """Return the reader of a frame's code, with the values that its variables have now."""
        scope, caller = source.scope_of(frame), user_frame(frame.f_back)
        if scope is None:
            return None
        variables = {**frame.f_globals, **frame.f_locals}
        reader = cls(frame.f_code.co_filename, scope, variables, {}, lenient, depth)
        if isinstance(scope, Function) and caller is not None and depth < _MAX_CALLS:
            outer = cls.of(caller, lenient, depth + 1)
            calls = [] if outer is None else outer.calls_at(caller.f_lineno)
            calls = [call for call in calls if _name(call) == scope.name]
            if outer is not None and len(calls) == 1:
                reader.arguments = outer._passed(calls[0], scope)
        return reader

    def calls_at(self, line: int) -> list[ast.Call]:
        """Return the calls in this scope that cover a line."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return [call for call in calls if source.covers(call, line)]

    def detachments(self, expression: ast.expr) -> _Result:
        """Return where an expression's operands lost their graphs; None if one may have a graph."""
        value = self._value(expression)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return None
        detachments: _Result
        match expression:
            case ast.Constant():
                return []
            case ast.Compare():  # unless what it compares had lost its graph before
                detachments = self._together(_operands(expression)) or self._lost(
                    "operation", expression
                )
            case ast.Attribute(attr="grad"):
                detachments = self._lost("first_order", expression)
            case ast.Attribute(attr=attribute) if attribute in _METHODS:
                detachments = self._lost(_METHODS[attribute], expression)
            case ast.NamedExpr(value=assigned):
                detachments = self._of_result(assigned)
            case ast.IfExp(body=body, orelse=other):
                detachments = _any(map(self.detachments, (body, other)))
            case ast.Subscript(slice=ast.Constant()):
                detachments = self._of_entry(expression)
            case ast.Name() | ast.Attribute():
                detachments = self._of_variable(expression)
            case ast.Call():
                detachments = self._of_call(expression)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                detachments = self.detachments(element)
            case _ if isinstance(expression, _COMBINATIONS):
                detachments = self._together(_operands(expression))
            case _:
                detachments = [] if self.lenient else None
        return [] if detachments is None and isinstance(value, _CONSTANTS) else detachments

    def _value(self, expression: ast.expr) -> Any:
        """Return the value of a name or attribute, if known, without running any code."""
        if isinstance(expression, ast.Name):
            if expression.id in self.variables:
                return self.variables[expression.id]
            reader, argument = self.arguments.get(expression.id, (None, expression))
            if reader is not None:
                return reader._value(argument)
            return getattr(builtins, expression.id, _UNKNOWN)
        if isinstance(expression, ast.Attribute):
            owner = self._value(expression.value)
            for part in ("_modules", "_parameters") if isinstance(owner, torch.nn.Module) else ():
                if expression.attr in vars(owner)[part]:
                    return vars(owner)[part][expression.attr]
            return inspect.getattr_static(owner, expression.attr, _UNKNOWN)
        if isinstance(expression, ast.Subscript):
            owner = self._value(expression.value)
            # A part of a tensor has a graph just where the tensor has one.
            is_tensor = isinstance(owner, torch.Tensor)
            return owner if is_tensor else _entry(owner, self._value(expression.slice))
        return expression.value if isinstance(expression, ast.Constant) else _UNKNOWN

    def _lost(self, how: str, node: ast.expr) -> list[Detachment]:
        return [Detachment(how, Location(self.file, node.lineno))]

    def _together(self, expressions: list[ast.expr]) -> _Result:
        return _all(map(self.detachments, expressions))

    def _assignments(self, variable: ast.expr) -> list[Any]:
        """Return the assignments of a variable, of a strict reader those before this use of it."""
        name = ast.unparse(variable)
        assignments = [
            node
            for node in self.nodes
            if isinstance(node, (ast.AugAssign, *ASSIGNMENTS))
            and (self.lenient or node.lineno < variable.lineno)
            and name in syntax.stored(node)
        ]
        return sorted(assignments, key=lambda node: node.lineno)

    def _of_entry(self, entry: ast.Subscript) -> _Result:
        """Return where an entry of a container, or of what a call returns, lost its graph."""
        container, key = entry.value, entry.slice
        if isinstance(container, ast.Call):
            if ast.unparse(key) == "1" and _name(container) in _WITH_INDICES:
                return self._together(_operands(container)) or self._lost("operation", container)
            return self._of_call(container, key)
        name, assignments = ast.unparse(container), self._assignments(container)
        value = source.value_of(assignments[0], name) if len(assignments) == 1 else None
        if value is None or self._assignments(entry):
            return self._of_variable(entry)
        result = entry_of(value, key)
        return self._once(ast.unparse(entry), lambda: self._of_result(result))

    def _of_variable(self, variable: ast.expr) -> _Result:
        """Return where a variable's last assigned value lost its graph; None if it may have one."""
        name, tensor = ast.unparse(variable), self._value(variable)
        assignments = self._assignments(variable)
        if self.lenient and assignments:
            return self._of_any(name, assignments)
        assignment = assignments[-1] if assignments else None
        if assignment is None and isinstance(variable, ast.Subscript):
            return self.detachments(variable.value)
        if assignment is None:
            reader, argument = self.arguments.get(name, (None, variable))
            if reader is not None:
                return reader.detachments(argument)
            if lost := self._of_elements(name, variable.lineno):
                return lost
            if isinstance(tensor, torch.Tensor):
                return []
            if isinstance(variable, ast.Attribute):
                return self.detachments(variable.value)
            return [] if self.lenient else None
        value = source.value_of(assignment, name)
        detachments = None if value is None else self._of_result(value)
        if detachments is None and isinstance(tensor, torch.Tensor):  # it has no graph
            return self._of_line(tensor, assignment)
        return detachments

    def _of_elements(self, name: str, line: int) -> _Result:
        """Return where all that a loop or comprehension gives a variable lost its graph."""
        around = [n for n in self.nodes if isinstance(n, _ITERATING) and source.covers(n, line)]
        heads = [head for node in around for head in getattr(node, "generators", [node])]
        pairs = [pair for h in heads for pair in elements_of(h.target, h.iter)]
        iterated = next((value for target, value in reversed(pairs) if target == name), None)
        return None if iterated is None else self._once(name, lambda: self.detachments(iterated))

    def _once(self, name: str, find: Callable[[], _Result]) -> _Result:
        """Return where a variable's value lost its graph; nothing if the value contains it."""
        if name in self._read:
            return []
        self._read.add(name)
        detachments = find()
        self._read.discard(name)
        return detachments

    def _of_any(self, name: str, assignments: list[Any]) -> _Result:
        """Return where any value of a variable lost its graph; None if each may have one."""
        values = [source.value_of(statement, name) or statement.value for statement in assignments]
        added = (call for node in self.nodes for place, call in additions(node) if place == name)
        values += [call.args[-1] for call in added if call not in values]
        results = (self._of_result(value) for value in values if value is not None)
        # The last value in the text is the likeliest to be the present one.
        return self._once(name, lambda: _any([*results][::-1]))

    def _of_line(self, tensor: torch.Tensor, assignment: Any) -> _Result:
        """Return where an assigned tensor lost its operands' graph, at the latest in this line."""
        read = [node for node in ast.walk(assignment) if isinstance(node, ast.Name | ast.Attribute)]
        owners = {id(node.value) for node in read if isinstance(node, ast.Attribute)}
        values = [self._value(node) for node in read if id(node) not in owners]
        if not any(map(_has_graph, values)):
            frozen = any(isinstance(v, torch.nn.Module) and [*v.parameters()] for v in values)
            return None if frozen else []  # frozen parameters may be the reason
        line = Detachment("line", Location(self.file, assignment.lineno))
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return [line._replace(how="operation")]
        scope = self.file, self.scope, self.variables, self.arguments
        return _Reader(*scope, lenient=True)._of_result(assignment.value) or [line]

    def _of_result(self, value: ast.expr) -> _Result:
        """Return where a value of this scope lost its graph; None if it may have a graph."""
        region = source.region_in(self.scope, value.lineno, source.GRADIENTS_DISABLED)
        return self.detachments(value) if region is None else self._lost("region", region)

    def _of_call(self, call: ast.Call, key: ast.expr | None = None) -> _Result:
        function, name = call.func, _name(call)
        receiver = [function.value] if isinstance(function, ast.Attribute) else []
        operands = [*call.args, *(keyword.value for keyword in call.keywords)]
        if _is_grad(call):
            return None if _sets(call, "create_graph") else self._lost("first_order", call)
        if name == "checkpoint" and self.lenient and _sets(call, "use_reentrant", default=True):
            return self._lost("checkpoint", call)
        if name in _COPIES and call.args:
            computed = any(isinstance(node, ast.Call) for node in ast.walk(call.args[0]))
            computed |= _has_graph(self._value(call.args[0]))
            return self._lost("copy", call) if computed else self.detachments(call.args[0]) or []
        if name in _METHODS and receiver:
            return self._lost(_METHODS[name], call)
        value = self._value(function.func if isinstance(function, ast.Call) else function)
        called = _of_program(value)
        if called is not None or value is _UNKNOWN:
            detachments = self._of_function(name, called, call, key)
            if detachments is not None:
                return detachments
        if _only_computes(value):
            of_tensor = receiver and isinstance(self._value(receiver[0]), torch.Tensor)
            detachments = self._together(receiver + operands if of_tensor else operands)
            # Frozen parameters may be the reason where nothing else is.
            frozen = isinstance(value, torch.nn.Module) and [*value.parameters()]
            return (detachments or None) if frozen else detachments
        if receiver and not isinstance(value, torch.nn.Module):
            return self._together(receiver if name in _OF_RECEIVER else receiver + operands)
        return None

    def _of_function(
        self, name: str, called: FunctionType | None, call: ast.Call, key: ast.expr | None
    ) -> _Result:
        """Return where a result, or its entry ``key``, lost its graph; None if it may have one."""
        if called is None:
            file, function = self.file, source.function_named(self.file, name)
            variables = {n: v for n, v in self.variables.items() if isinstance(v, ModuleType)}
        else:  # a local variable or parameter may have a global's name
            code = called.__code__
            file, function = code.co_filename, source.function_of(code)
            variables = {n: v for n, v in called.__globals__.items() if n not in code.co_varnames}
        if function is None or self.depth == _MAX_CALLS:
            return None
        arguments, depth = self._passed(call, function), self.depth + 1
        reader = _Reader(file, function, variables, arguments, self.lenient, depth)
        returned = (node.value for node in reader.nodes if isinstance(node, ast.Return))
        values = (v if key is None else entry_of(v, key) for v in returned if v is not None)
        results = [*map(reader._of_result, values)]
        return _any(results) if self.lenient or not results else _all(results)

    def _passed(self, call: ast.Call, function: Function) -> dict[str, tuple["_Reader", ast.expr]]:
        """Return the expression that a call passes for each parameter of a function."""
        called, parameters = call.func, [parameter.arg for parameter in function.args.args]
        passed = [*call.args]
        if parameters[:1] == ["self"]:
            if isinstance(called, ast.Attribute) and called.attr == function.name:
                called = called.value  # the object of the method, not a module that is called
            passed.insert(0, called)
        arguments = {p: (self, value) for p, value in zip(parameters, passed, strict=False)}
        return arguments | {kw.arg: (self, kw.value) for kw in call.keywords if kw.arg is not None}


def _all(parts: Iterable[list[Detachment] | None]) -> _Result:
    """Return the detachments of values that are used together; None if one may have a graph."""
    detachments: list[Detachment] = []
    for part in parts:
        if part is None:
            return None
        detachments += part
    return detachments


def _any(parts: Iterable[list[Detachment] | None]) -> _Result:
    """Return the detachments of the possible values; None if each of them may have a graph."""
    lost = [part for part in parts if part is not None]
    return _all(lost) if lost else None


def _root(call: ast.Call) -> ast.expr | None:
    """Return the tensor of a call: ``x.backward()``, ``grad(x, …)``."""
    function = call.func
    if _is_grad(call) or ast.unparse(function).endswith("autograd.backward"):
        outputs = (k.value for k in call.keywords if k.arg in ("outputs", "tensors"))
        return next(iter((*call.args[:1], *outputs)), None)
    if isinstance(function, ast.Attribute) and function.attr == "backward":
        return function.value
    return None


def _is_grad(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "grad" or ast.unparse(call.func).endswith("autograd.grad")


def _sets(call: ast.Call, keyword: str, default: bool = False) -> bool:
    """Whether a call may pass a true value for this keyword argument."""
    value = next((k.value for k in call.keywords if k.arg == keyword), ast.Constant(default))
    return not isinstance(value, ast.Constant) or bool(value.value)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _entry(container: Any, index: Any) -> Any:
    """Return an entry of a list, a dict or a container of modules, if it has one."""
    entries = dict(contents(container))
    if isinstance(index, int) and index < 0 and not isinstance(container, dict):
        index += len(entries)
    return entries.get(f"[{index!r}]", entries.get(f".{index}", _UNKNOWN))


def _only_computes(function: Any) -> bool:
    """Whether a function's result can get a graph only from its arguments."""
    if isinstance(function, torch.nn.Module):
        return not any(parameter.requires_grad for parameter in function.parameters())
    module = getattr(function, "__module__", None) if callable(function) else None
    return (module or "").partition(".")[0] in ("torch", "builtins")


def _of_program(function: Any) -> FunctionType | None:
    """Return a function of the program without its decorators, of an object what a call runs."""
    method = "forward" if isinstance(function, torch.nn.Module) else "__call__"
    called = inspect.getattr_static(type(function), method, None)
    function = called if isinstance(called, FunctionType) else function
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if isinstance(function, FunctionType) and is_users(function.__code__) else None


def _has_graph(value: Any) -> bool:
    """Whether a value is or contains a tensor that requires grad, such as a module's parameter."""
    return any(variable.value.requires_grad for variable in reach({"": value}))


def _operands(expression: ast.expr) -> list[ast.expr]:
    if isinstance(expression, ast.Subscript):
        return [expression.value]
    return [node for node in ast.iter_child_nodes(expression) if isinstance(node, ast.expr)]
