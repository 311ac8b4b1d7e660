"""Find in the source where a value lost its graph, for a watch that did not record it.

The expression on which ``backward()`` was called is followed through the assignments of its scope
and the functions of the program that it calls. It lost its graph only if each of its operands did,
so a detached target beside a prediction is no explanation.
"""

from __future__ import annotations

import ast
import inspect
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from gradtrace.autograd import source
from gradtrace.autograd.frames import Location, code_of, is_users, reach
from gradtrace.autograd.syntax import names

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
_MAX_CALLS = 5  # of the program's functions, one inside the other
_UNKNOWN = object()
_CONSTANTS = int, float, str, type(None), torch.dtype, torch.device, ModuleType


class Detachment(NamedTuple):
    """How a value lost its graph: ``"region"``, ``"copy"``, ``"detach"`` or ``"operation"``.

    ``"line"`` if the source does not show how, but the value has no graph and an operand has one.
    """

    how: str
    location: Location


def find(frame: FrameType) -> Detachment | None:
    """Return where the tensor on which the running line calls backward lost its graph, if known."""
    reader = _Reader.of(frame)
    if reader is None:
        return None
    for node in reader.nodes:
        if isinstance(node, ast.Call) and source.covers(node, frame.f_lineno):
            root = _root(node)
            detachments = None if root is None else reader.detachments(root)
            if detachments:
                return detachments[0]
    return None


def _root(call: ast.Call) -> ast.expr | None:
    """Return ``x`` of ``x.backward()``, or of ``grad(x, …)`` and ``backward(x)`` of autograd."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ("backward", "grad"):
        return None
    if ast.unparse(function.value).endswith("autograd"):
        return call.args[0] if call.args else None
    return function.value if function.attr == "backward" else None


def has_no_graph(frame: FrameType, expression: ast.expr) -> bool:
    """Whether the source shows that an expression of the running function has no graph."""
    reader = _Reader.of(frame)
    return reader is not None and reader.detachments(expression) is not None


class _Reader:
    """Finds where the values in one scope of a file lost their graphs.

    ``variables`` maps names to their values. ``arguments`` maps each parameter to the expression
    that the caller passes, with the caller's reader.
    """

    def __init__(
        self,
        file: str,
        scope: source.Scope,
        variables: dict[str, Any],
        arguments: dict[str, tuple[_Reader, ast.expr]],
        depth: int = 0,
    ):
        self._file, self._variables, self._arguments = file, variables, arguments
        self._scope, self._depth = scope, depth
        self.nodes = list(source.own_nodes(scope))

    @classmethod
    def of(cls, frame: FrameType) -> _Reader | None:
        """Return the reader of a frame's code, with the values that its variables have now."""
        scope = source.scope_of(frame)
        variables = {**frame.f_globals, **frame.f_locals}
        return None if scope is None else cls(frame.f_code.co_filename, scope, variables, {})

    def detachments(self, expression: ast.expr) -> list[Detachment] | None:
        """Return where the operands lost their graphs; None if one may have a graph.

        Numbers and external data never had a graph; for these the list is empty.
        """
        value = self._value(expression)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return None
        match expression:
            case ast.Constant():
                return []
            case ast.Name():
                detachments = self._of_variable(expression)
            case ast.Compare():  # unless what it compares had lost its graph before
                detachments = self._together(_operands(expression)) or self._lost(
                    "operation", expression
                )
            case ast.Attribute(attr=attribute) if attribute in _METHODS:
                detachments = self._lost(_METHODS[attribute], expression)
            case ast.Attribute():
                detachments = self._of_variable(expression)
            case ast.Call():
                detachments = self._of_call(expression)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.Subscript()
                | ast.List()
                | ast.Tuple()
                | ast.Dict()
            ):
                detachments = self._together(_operands(expression))
            case _:
                detachments = None
        return [] if detachments is None and isinstance(value, _CONSTANTS) else detachments

    def _value(self, expression: ast.expr) -> Any:
        """Return the value of a name or attribute, if known, without running any code."""
        if isinstance(expression, ast.Name):
            reader, argument = self._arguments.get(expression.id, (None, expression))
            if reader is not None:
                return reader._value(argument)
            return self._variables.get(expression.id, _UNKNOWN)
        if isinstance(expression, ast.Attribute):
            owner = self._value(expression.value)
            for part in ("_modules", "_parameters") if isinstance(owner, torch.nn.Module) else ():
                if expression.attr in vars(owner)[part]:
                    return vars(owner)[part][expression.attr]
            return inspect.getattr_static(owner, expression.attr, _UNKNOWN)
        return _UNKNOWN

    def _lost(self, how: str, node: ast.expr) -> list[Detachment]:
        return [Detachment(how, Location(self._file, node.lineno))]

    def _together(self, expressions: list[ast.expr]) -> list[Detachment] | None:
        detachments: list[Detachment] = []
        for expression in expressions:
            operand_detachments = self.detachments(expression)
            if operand_detachments is None:
                return None
            detachments += operand_detachments
        return detachments

    def _of_variable(self, variable: ast.Name | ast.Attribute) -> list[Detachment] | None:
        """Return where a variable's last assigned value lost its graph; None if it may have one."""
        name, tensor = ast.unparse(variable), self._value(variable)
        assignments = [
            node
            for node in self.nodes
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
            and node.lineno < variable.lineno
            and name in names(node, ast.Store)
        ]
        assignment = max(assignments, key=lambda node: node.lineno, default=None)
        if assignment is None:
            reader, argument = self._arguments.get(name, (None, variable))
            if reader is not None:
                return reader.detachments(argument)
            if isinstance(tensor, torch.Tensor):
                return []
            return None if isinstance(variable, ast.Name) else self.detachments(variable.value)
        value = source.value_of(assignment, name)
        detachments = None if value is None else self._of_result(value)
        if detachments is None and isinstance(tensor, torch.Tensor):  # it has no graph
            return self._of_line(tensor, assignment)
        return detachments

    def _of_line(self, tensor: torch.Tensor, assignment: ast.stmt) -> list[Detachment] | None:
        """Return the line that assigns a tensor without a graph, if an operand has a graph.

        If none has, return None if frozen parameters may be the reason, else an empty list.
        """
        read = [node for node in ast.walk(assignment) if isinstance(node, ast.Name | ast.Attribute)]
        owners = {id(node.value) for node in read if isinstance(node, ast.Attribute)}
        values = [self._value(node) for node in read if id(node) not in owners]
        if any(map(_has_graph, values)):
            integers = not (tensor.is_floating_point() or tensor.is_complex())
            how = "operation" if integers else "line"
            return [Detachment(how, Location(self._file, assignment.lineno))]
        frozen = any(isinstance(v, torch.nn.Module) and [*v.parameters()] for v in values)
        return None if frozen else []

    def _of_result(self, value: ast.expr) -> list[Detachment] | None:
        """Return where a value of this scope lost its graph; None if it may have a graph."""
        region = source.region_in(self._scope, value.lineno, source.GRADIENTS_DISABLED)
        return self.detachments(value) if region is None else self._lost("region", region)

    def _of_call(self, call: ast.Call) -> list[Detachment] | None:
        function = call.func
        operands = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(function, ast.Attribute):
            name, receiver = function.attr, [function.value]
        else:
            name, receiver = ast.unparse(function), []
        if name in _COPIES and call.args:
            computed = any(isinstance(node, ast.Call) for node in ast.walk(call.args[0]))
            computed |= _has_graph(self._value(call.args[0]))
            return self._lost("copy", call) if computed else self.detachments(call.args[0]) or []
        if name in _METHODS and receiver:
            return self._lost(_METHODS[name], call)
        value = self._value(function.func if isinstance(function, ast.Call) else function)
        code = _code_of(value)
        if code is not None and (detachments := self._of_function(name, code, call)) is not None:
            return detachments
        if _only_computes(value):
            detachments = self._together(operands)
            # Frozen parameters may be the reason where nothing else is.
            frozen = isinstance(value, torch.nn.Module) and [*value.parameters()]
            return (detachments or None) if frozen else detachments
        if receiver:
            return self._together(receiver if name in _OF_RECEIVER else receiver + operands)
        return self._of_function(name, None, call)

    def _of_function(
        self, name: str, code: CodeType | None, call: ast.Call
    ) -> list[Detachment] | None:
        """Return where a function's return value lost its graph; None if it may have one."""
        file = self._file if code is None else code.co_filename
        function = source.function_named(file, name) if code is None else source.function_of(code)
        if function is None or self._depth == _MAX_CALLS:
            return None
        called, parameters = call.func, [parameter.arg for parameter in function.args.args]
        passed = [*call.args]
        if parameters[:1] == ["self"]:
            if isinstance(called, ast.Attribute) and called.attr == function.name:
                called = called.value  # the object of the method, not a module that is called
            passed.insert(0, called)
        arguments = {p: (self, value) for p, value in zip(parameters, passed, strict=False)}
        arguments |= {kw.arg: (self, kw.value) for kw in call.keywords if kw.arg is not None}
        modules = {n: v for n, v in self._variables.items() if isinstance(v, ModuleType)}
        reader = _Reader(file, function, modules, arguments, self._depth + 1)
        results = [node.value for node in reader.nodes if isinstance(node, ast.Return)]
        result = results[0] if len(results) == 1 else None
        return None if result is None else reader._of_result(result)


def _only_computes(function: Any) -> bool:
    """Whether a function's result can get a graph only from its arguments."""
    if isinstance(function, torch.nn.Module):
        return not any(parameter.requires_grad for parameter in function.parameters())
    module = getattr(function, "__module__", None) if callable(function) else None
    return (module or "").partition(".")[0] == "torch"


def _code_of(function: Any) -> CodeType | None:
    """Return the code of a function of the program, or of a module's forward()."""
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    code = code_of(function) if isinstance(function, FunctionType | MethodType) else None
    return code if code is not None and is_users(code) else None


def _has_graph(value: Any) -> bool:
    """Whether a value is or contains a tensor that requires grad, such as a module's parameter."""
    return any(found.value.requires_grad for found in reach({"": value}))


def _operands(expression: ast.expr) -> list[ast.expr]:
    if isinstance(expression, ast.Subscript):
        return [expression.value]
    return [node for node in ast.iter_child_nodes(expression) if isinstance(node, ast.expr)]
