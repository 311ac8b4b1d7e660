"""Questions about a syntax tree alone: which names it reads, writes and carries, in which order."""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef
# Functions whose result differs from call to call.
DRAWS = re.compile(r"\b(rand\w*|normal\w*|bernoulli|multinomial|rsample|sample|shuffle|next)\(")
# Names in a method by which its results lose their graph.
WITHOUT_GRAPH = re.compile(
    r"\b(autograd|data|detach_?|inference_mode|item|np|set_grad_enabled|tolist"
    r"|\w*(no_grad|numpy|tensor))\b|\bgrad\("
)
# Statements that detach the variable {0}, by its kind; a field {2} of a namedtuple is in {1}.
DETACHED = {
    "tensor": "{0} = {0}.detach()",
    "tuple": "{0} = tuple(tensor.detach() for tensor in {0})",
    "list": "{0} = [tensor.detach() for tensor in {0}]",
    "deque": "{0} = type({0})((tensor.detach() for tensor in {0}), {0}.maxlen)",
    "dict": "{0} = {{key: tensor.detach() for key, tensor in {0}.items()}}",
    "namedtuple": "{1} = {1}._replace({2}={0}.detach())",
    "nested": "{0} = [tuple(tensor.detach() for tensor in part) for part in {0}]",
}
_ADDERS = ("append", "appendleft", "extend", "insert", "add")


def reads_first(loop: Loop, name: str) -> bool:
    """Whether an iteration reads the variable before assigning it, so that it is carried over."""
    head = loop.test if isinstance(loop, ast.While) else loop.target
    return _first_access([head, *loop.body], name) is ast.Load


def _first_access(nodes: Iterable[ast.AST], name: str) -> type[ast.expr_context] | None:
    """Return the kind of the first access to a variable, ``ast.Load`` or ``ast.Store``, or None."""
    for node in nodes:
        if isinstance(node, ast.Name):
            if node.id == name:
                return type(node.ctx)
            continue
        if isinstance(node, ast.If):  # either branch may run
            ways = (node.body, node.orelse)
            accesses = [_first_access([node.test, *way], name) for way in ways]
            if ast.Load in accesses or None not in accesses:
                return ast.Load if ast.Load in accesses else ast.Store
            continue
        if isinstance(node, Function | ast.Lambda):
            continue
        first = _first_access(_as_they_run(node), name)
        if first is not None:
            return ast.Load if isinstance(node, ast.AugAssign) else first
    return None


def _as_they_run(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a statement or expression in the order in which Python evaluates them."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        value = node.value
        return [*([value] if value else []), *(part for part in parts if part is not value)]
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        return [node.iter, *(part for part in parts if part is not node.iter)]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        return [*node.generators, *(part for part in parts if part not in node.generators)]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [*node.items, *node.body]
    return parts


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names, and attributes such as ``self.mem``, that the code loads or stores."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute)))
    return {ast.unparse(node) for node in nodes if isinstance(node.ctx, context)}


def stored(statement: ast.AST) -> set[str]:
    """Return the variables, attributes and entries (``x['a']``) that a statement assigns."""
    nodes = (node for node in ast.walk(statement) if isinstance(node, _PLACES))
    return {ast.unparse(node) for node in nodes if isinstance(node.ctx, ast.Store)}


def targets_of(loop: Loop) -> set[str]:
    """Return the variables to which a ``for`` loop gives a value in each iteration."""
    return set() if isinstance(loop, ast.While) else names(loop.target, ast.Store)


def written_in_place(node: ast.AST) -> ast.expr | None:
    """Return the ``x`` that a node changes in place: ``x += …``, ``x[0] = …``, ``x.mul_(…)``."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str()))]):
            return None  # no tensor is indexed by a string, but dicts and os.environ are
        case ast.AugAssign(target=target) | ast.Assign(targets=[ast.Subscript() as target]):
            return without_index(target)
        case ast.Call(func=ast.Attribute(attr=name)):
            in_place = re.fullmatch(r"[a-z]\w*[a-z0-9]_", name) and name not in _NOT_IN_PLACE
            in_place = in_place or (name.islower() and is_true(node, "inplace"))
            tensor = without_index(operand_of(node))
            # A method that changes its tensor returns it: x.mul_(…).add_(…).
            return (written_in_place(tensor) or tensor) if in_place else None
    return None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value that a call gives to a keyword."""
    return next((argument.value for argument in call.keywords if argument.arg == name), None)


def is_true(call: ast.Call, name: str) -> bool:
    """Whether a call gives ``True`` to a keyword."""
    return getattr(keyword(call, name), "value", None) is True


def with_own_buffers(call: ast.Call) -> str | None:
    """Return the tensors for ``functional_call``, with copies of the buffers; None if unknown."""
    if len(call.args) < 2 or not ast.unparse(call.func).endswith("functional_call"):
        return None
    module, tensors = map(ast.unparse, call.args[:2])
    match call.args[1]:
        case ast.Tuple([parameters, buffers]):
            tensors, items = ast.unparse(parameters), f"{ast.unparse(buffers)}.items()"
        case _:
            items = f"{module}.named_buffers()"
    return f"({tensors}, {{key: value.clone() for key, value in {items}}})"


def operation_of(node: ast.AST) -> str:
    """Return the name, as in a node's, of an in-place operation: ``mul``, ``copyslices``."""
    match node:
        case ast.AugAssign(op=operator):
            return {"Mult": "mul"}.get(type(operator).__name__, type(operator).__name__.lower())
        case ast.Call(func=ast.Attribute(attr=name)):
            return name.replace("_", "")
    return "copyslices"


def straight_through(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return x and y of ``x + (y - x).detach()``, an expression with the gradient of ``x``."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            for tensor, rest in ((left, right), (right, left)):
                match rest:
                    case ast.Call(ast.Attribute(ast.BinOp(value, ast.Sub(), subtracted), "detach")):
                        if ast.unparse(subtracted) == ast.unparse(tensor):
                            return tensor, value
    return None


def operand_of(call: ast.Call) -> ast.expr:
    """Return the ``x`` of a call such as ``x.relu_()`` or, as a function, ``F.relu_(x)``."""
    assert isinstance(call.func, ast.Attribute)
    is_function = _MODULE.fullmatch(ast.unparse(call.func.value)) and call.args
    return call.args[0] if is_function else call.func.value


_MODULE = re.compile(r"torch|F|(torch\.)?(nn\.)?(functional|init)")
_NOT_IN_PLACE = (
    "requires_grad_", "share_memory_", "detach_", "retain_grad_", "clip_grad_norm_",
    "clip_grad_value_",
)  # fmt: skip


def passed_on(making: ast.stmt, reading: ast.stmt) -> str | None:
    """Return the only expression in which one statement reads what another assigns.

    >>> a, b = ast.parse("pair = f(x)\\nloss = g(pair[1].mean(), y) / len(pair[1])").body
    >>> passed_on(a, b)
    'pair[1]'
    """
    assigned = {
        ast.unparse(without_index(node))
        for node in ast.walk(making)
        if isinstance(node, _PLACES) and isinstance(node.ctx, ast.Store)
    }
    methods = {id(node.func) for node in ast.walk(reading) if isinstance(node, ast.Call)}
    read: set[str] = set()
    pending: list[ast.AST] = [reading]
    for node in pending:
        if isinstance(node, _PLACES) and isinstance(node.ctx, ast.Load) and id(node) not in methods:
            places = [ast.unparse(place) for place in _with_owners(node)]
            if not assigned.isdisjoint(places):
                read |= {places[0]} if not places[0].endswith(_NOT_TENSORS) else set()
                continue
        pending += ast.iter_child_nodes(node)
    return read.pop() if len(read) == 1 else None


_PLACES = ast.Name, ast.Attribute, ast.Subscript
_NOT_TENSORS = (".shape", ".device", ".dtype", ".ndim")


def _with_owners(place: ast.expr) -> Iterator[ast.expr]:
    """Yield ``x[0].y``, ``x[0]`` and ``x`` of ``x[0].y``."""
    yield place
    while isinstance(place, ast.Attribute | ast.Subscript):
        place = place.value
        yield place


def without_index(expression: ast.expr) -> ast.expr:
    """Return ``x`` of ``x[0][1]``."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression


def reads(*nodes: ast.AST) -> set[str]:
    """Return the names and attributes (``self.h``) that the nodes read.

    >>> sorted(reads(ast.parse("x[0] = a.b + 1; c += 1")))
    ['a', 'a.b', 'c', 'x']
    """
    changed = (n.target for node in nodes for n in ast.walk(node) if isinstance(n, ast.AugAssign))
    return set().union(map(ast.unparse, changed), *(names(node, ast.Load) for node in nodes))


def writes(*nodes: ast.AST) -> set[str]:
    """Return the names and attributes that the nodes assign."""
    return set().union(*(names(node, ast.Store) for node in nodes))


def carried_names(loop: Loop) -> list[str]:
    """Return the variables that an iteration reads before it assigns them."""
    assigned = sorted(filter(str.isidentifier, writes(loop)))
    return [name for name in assigned if reads_first(loop, name)]


def changes_in_place(statement: ast.AST) -> set[str]:
    """Return the names that a statement writes into: ``x[0] = …``, ``x += …``, ``x.mul_(…)``."""
    written = map(written_in_place, ast.walk(statement))
    return {ast.unparse(target) for target in written if target is not None}


def accumulated(statement: ast.AST) -> set[str]:
    """Return each ``x`` of ``x += …``, with any operator, or ``x.append(…)`` in a statement."""
    sums = {ast.unparse(n.target) for n in ast.walk(statement) if isinstance(n, ast.AugAssign)}
    return sums | {container for container, _ in additions(statement)}


def additions(root: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of ``append``, ``add`` and the like, each with the name of its receiver."""
    for call in ast.walk(root):
        match call:
            case ast.Call(func=ast.Attribute(value=container, attr=name), args=[_, *_]):
                if name in _ADDERS:
                    yield ast.unparse(container), call


ASSIGNMENTS = ast.Assign, ast.AnnAssign, ast.NamedExpr


def pairs_of(assign: Any) -> list[tuple[str, ast.expr]]:
    """Return the pairs (first target, value) of an assignment; tuples are split into elements.

    >>> [(target, ast.unparse(v)) for target, v in pairs_of(ast.parse("a, b = f(x)").body[0])]
    [('a', 'f(x)[0]'), ('b', 'f(x)[1]')]
    """
    target = assign.targets[0] if isinstance(assign, ast.Assign) else assign.target
    return [*_pairs(target, assign.value)] if assign.value else []


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    parts = getattr(target, "elts", [])
    if not parts or any(isinstance(part, ast.Starred) for part in parts):
        yield ast.unparse(target), value
        return
    for i, part in enumerate(parts):
        yield from _pairs(part, entry_of(value, ast.Constant(i)))


def entry_of(container: ast.expr, key: ast.expr) -> ast.expr:
    """Return the entry of a literal, else the expression ``container[key]``."""
    entries = {str(i): element for i, element in enumerate(getattr(container, "elts", []))}
    if isinstance(container, ast.Dict):
        pairs = zip(container.keys, container.values, strict=True)
        entries = {ast.unparse(k): value for k, value in pairs if k is not None}
    subscript = ast.copy_location(ast.Subscript(container, key, ast.Load()), container)
    return entries.get(ast.unparse(key), subscript)


def elements_of(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the pairs (target, value) of a loop, where the value is all that is iterated over."""
    match iterated:
        case ast.Call(func=ast.Name("zip"), args=parts):
            iterated = ast.Tuple(parts, ast.Load())
        case ast.Call(func=ast.Name("enumerate"), args=[values, *_]):
            iterated = ast.Tuple([ast.Constant(0), values], ast.Load())
        case ast.Call(func=ast.Attribute(value=values, attr="items")):
            iterated = ast.Tuple([ast.Constant(0), values], ast.Load())
    yield from _pairs(target, iterated)


def written_values(node: ast.AST) -> list[ast.expr]:
    """Return what a node writes in place: the value of an assignment, the arguments of a call."""
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else None
    return [] if value is None else [value]


def new_assignment(statement: ast.AST | None) -> str | None:
    """Return ``x = x + y`` for ``x += y``, and ``x = x.mul(y)`` for ``x.mul_(y)``, else None."""
    match statement:
        case ast.AugAssign(target=changed, op=operator, value=value):
            new = ast.unparse(ast.BinOp(changed, operator, value))
        case ast.Expr(value=changed) if written_in_place(changed):
            new = re.sub(r"(?<=\w)_\(", "(", ast.unparse(changed)).replace(", inplace=True", "")
            while isinstance(changed, ast.Call) and isinstance(changed.func, ast.Attribute):
                if _ONLY_IN_PLACE.match(changed.func.attr):
                    return None
                changed = operand_of(changed)  # x of x.sub_(y).mul_(z) or F.relu_(x)
        case _:
            return None
    # Assigning x.data gives x other memory, which the nodes that saved x read, too.
    is_variable = isinstance(changed, _PLACES) and getattr(changed, "attr", "") != "data"
    return f"{ast.unparse(changed)} = {new}" if is_variable else None


_ONLY_IN_PLACE = re.compile(r"(copy|exponential|fill|normal|random|set|uniform|zero)_$")


def statements_computing(statements: list[ast.stmt], names: set[str]) -> Iterator[ast.Assign]:
    """Yield the assignments from which these names are computed, the last one first."""
    needed = {*names}
    for statement in reversed(statements):
        if isinstance(statement, ast.Assign) and writes(statement) & needed:
            needed |= reads(statement)
            yield statement
