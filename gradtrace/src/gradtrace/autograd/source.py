"""Questions about the program's source text: which loop encloses a line, what a line assigns."""

import ast
import functools
import linecache
import re
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from gradtrace.autograd import syntax
from gradtrace.autograd.frames import Chain, Location, running_ipython, user_frames
from gradtrace.autograd.syntax import Function, Loop, reads

Scope = ast.Module | Function
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
SCOPES = ast.Module, *FUNCTIONS
GRADIENTS_DISABLED = r"no_grad|inference_mode|set_grad_enabled\(False"
SWITCHED_OFF = r"no_grad|inference_mode|set_grad_enabled\((?!True)"  # where gradients are off
# A condition that is the same in each iteration: it asks for the program's name, or a value's type.
_OF_KIND = r"\b__name__\b|^(not )?(isinstance|(torch\.)?is_tensor)\([^()]*(\([^()]*\))?\)$"
_STRING = r"'[^']*'|\"[^\"]*\""  # may mention no_grad without entering it


def loop_around(frame: FrameType) -> Loop | None:
    """Return the innermost loop of the frame's own code that encloses the running line."""
    line, scope = frame.f_lineno, scope_of(frame)
    if scope is None:
        return None
    loops = [node for node in ast.walk(scope) if isinstance(node, Loop) and covers(node, line)]
    return max(loops, key=lambda node: node.lineno, default=None)


def outer_loop_around(frame: FrameType | None) -> Loop | None:
    """Return the innermost loop around the running line, if it contains another loop."""
    loop = None if frame is None else loop_around(frame)
    nodes = () if loop is None else ast.walk(loop)
    return loop if any(isinstance(node, Loop) for node in nodes if node is not loop) else None


def is_run_each_time(frame: FrameType, pattern: str) -> bool:
    """Whether the body of the loop around the running line, or of the function, surely runs a call.

    Only its own statements count, and none after the line if a statement can leave the body there.
    """
    body, line = loop_around(frame) or scope_of(frame), frame.f_lineno
    can_leave = any(isinstance(node, ast.Continue | ast.Return) for node in own_nodes(body))
    calls = (node for node in getattr(body, "body", ()) if isinstance(node, ast.Expr))
    running = (call for call in calls if call.lineno < line or not can_leave)
    return any(re.search(pattern, ast.unparse(call)) for call in running)


def covers(statement: ast.stmt | ast.expr, line: int) -> bool:
    """Whether the line belongs to the statement or expression."""
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def is_written(file: str, expression: str) -> bool:
    """Whether the file contains this variable, attribute or entry of a container as it stands."""
    nodes = _nodes(file, ast.Name, ast.Attribute, ast.Subscript)
    return any(ast.unparse(node) == expression for node in nodes)


def reads_before_last(file: str, name: str) -> bool:
    """Whether the file reads ``x[-2]``, or an earlier entry, of a variable or attribute ``x``."""
    items = (i for i in _nodes(file, ast.Subscript) if isinstance(i.ctx, ast.Load))
    pairs = (
        (ast.unparse(item.value).rpartition(".")[2], ast.unparse(item.slice)) for item in items
    )
    return any(read == name and re.fullmatch(r"-([2-9]|\d\d+)", at) for read, at in pairs)


def expression_read(made: Chain, read: Chain) -> str | None:
    """Return the expression by which one chain of calls reads a value that another one assigned.

    It is ``actions[1]`` if one line assigns ``actions``, and the other reads only that entry.
    """
    for (code, made_at), (other, read_at) in zip(made.lines[::-1], read.lines[::-1], strict=False):
        if code is not other:
            return None
        if made_at != read_at:
            file = code.co_filename
            making, reading = (simple_statement(file, line) for line in (made_at, read_at))
            return None if making is None or reading is None else syntax.passed_on(making, reading)
    return None


def simple_statement(file: str, line: int) -> ast.stmt | None:
    """Return the statement at a line, unless it contains others."""
    statements = (node for node in _nodes(file, ast.stmt) if not hasattr(node, "body"))
    return next((node for node in statements if covers(node, line)), None)


def is_conditional(place: Location) -> bool:
    """Whether a line is in an ``if`` that depends on values, or in ``set_grad_enabled(flag)``."""
    nodes = _nodes(place.file, ast.If, ast.IfExp, ast.Call)
    return any(_depends(node) for node in nodes if covers(node, place.line))


def branches_at(place: Location, name: str = "") -> set[Location]:
    """Return the first lines of the branches around a line whose ``if`` depends on values.

    ``if x is None: … else: …`` does not count for ``x``, because a later iteration runs the other.
    """
    tests = [node for node in _nodes(place.file, ast.If) if _depends(node)]
    words = {node: re.findall(r"\w+", ast.unparse(node.test)) for node in tests if node.orelse}
    tests = [node for node in tests if name not in words.get(node, ())]
    parts = (part for test in tests for part in (test.body, test.orelse) if part)
    around = (part for part in parts if any(covers(node, place.line) for node in part))
    return {Location(place.file, part[0].lineno) for part in around}


def repeats_before(way: list[Location], call: Location) -> bool:
    """Whether a line runs once after several runs of another, as the source alone decides.

    ``way`` are the lines that lead to it from the function of both. A ``for`` loop without a
    ``break`` is around the other line only, or each ``if`` around the way, or before it with a
    ``continue``, counts.
    """
    loops = [loop for loop in _nodes(call.file, ast.For) if covers(loop, call.line)]
    loops = [loop for loop in loops if not covers(loop, way[-1].line)]
    if loops:
        return not any(isinstance(node, ast.Break) for loop in loops for node in ast.walk(loop))
    conditions = (
        (place.file, node.test)
        for place in way
        for node in _nodes(place.file, ast.If)
        if covers(node, place.line)
        or (node.lineno < place.line and any(isinstance(n, ast.Continue) for n in ast.walk(node)))
        if _depends(node)
    )
    return all(_counts(*condition) for condition in conditions)


def _counts(file: str, test: ast.expr) -> bool:
    """Whether a test, or the value of a name in it, has a ``%``, or a name counts by ``+= 1``."""
    names = syntax.reads(test)
    values = (value for name in names for value in values_of(file, name))
    return any(isinstance(n, ast.Mod) for tree in (test, *values) for n in ast.walk(tree)) or any(
        isinstance(n.value, ast.Constant) and ast.unparse(n.target) in names
        for n in _nodes(file, ast.AugAssign)
    )


def _depends(node: Any) -> bool:
    """Whether a node is an ``if`` that depends on values, or a call ``set_grad_enabled(flag)``."""
    if not isinstance(node, ast.Call):
        return re.search(_OF_KIND, ast.unparse(node.test)) is None
    switches = ast.unparse(node.func).rpartition(".")[2] == "set_grad_enabled"
    return switches and not all(isinstance(argument, ast.Constant) for argument in node.args)


def region_around(frame: FrameType | None, pattern: str) -> Location | None:
    """Return the line of the innermost matching ``with`` or decorator around the running line."""
    regions = (region_at(Location.of(running), pattern) for running in user_frames(frame))
    return next(filter(None, regions), None)


def region_at(place: Location, pattern: str) -> Location | None:
    """Return the line of the innermost matching ``with`` or decorator around a line."""
    scope = _scope_at(place)
    region = None if scope is None else region_in(scope, place.line, pattern)
    return None if region is None else Location(place.file, region.lineno)


def _scope_at(place: Location) -> Scope | None:
    """Return the innermost function, or the module, that contains a line."""
    scopes = [node for node in _nodes(place.file, *FUNCTIONS) if covers(node, place.line)]
    module = next(_nodes(place.file, ast.Module), None)
    return max(scopes, key=lambda node: node.lineno, default=module)


def region_in(scope: Scope, line: int, pattern: str) -> ast.expr | None:
    """Return the expression of the innermost matching ``with`` or decorator around a line."""
    regions = [*getattr(scope, "decorator_list", ())]
    for node in own_nodes(scope):
        if isinstance(node, ast.With | ast.AsyncWith) and covers(node, line):
            regions = [*(item.context_expr for item in node.items), *regions]
    lines = (n.value for n in own_nodes(scope) if isinstance(n, ast.Expr) and n.lineno < line)
    switches = (node for node in lines if "set_grad_enabled" in ast.unparse(node))
    regions += sorted(switches, key=lambda node: node.lineno)[-1:]
    codes = ((region, re.sub(_STRING, "", ast.unparse(region))) for region in regions)
    return next((region for region, code in codes if re.search(pattern, code)), None)


def only_line(files: Iterable[str], pattern: str) -> Location | None:
    """Return the only matching line of the first file with code that matches the pattern."""
    for file in files:
        nodes = _nodes(file, ast.Call, ast.Assign, ast.Attribute)
        lines = {node.lineno for node in nodes if re.fullmatch(pattern, ast.unparse(node))}
        if lines:
            return Location(file, lines.pop()) if len(lines) == 1 else None
    return None


class Write(NamedTuple):
    """A line that modifies a tensor in place, and the ``values`` assigned to the tensor's name."""

    place: Location
    name: str
    values: tuple[ast.expr, ...]
    node: ast.stmt | ast.expr
    function: int  # the line of the function around it, 0 in a module
    loops: tuple[Loop, ...]  # around it

    @property
    def over_parameters(self) -> bool:
        """Whether a loop over the parameters or the state of a module gives the tensor its name."""
        own = (loop for loop in self.loops if self.name in syntax.targets_of(loop))
        heads = [getattr(loop, "iter", loop) for loop in own]
        heads += [v for head in heads for n in reads(head) for v in values_of(self.place.file, n)]
        return any(re.search(r"(parameters|state_dict)\(\)", ast.unparse(h)) for h in heads)

    @property
    def of_a_part(self) -> bool:
        """Whether the line writes into an entry or a slice: ``x[i] = …``, ``x[i].copy_(…)``."""
        match self.node:
            case ast.Call() as call:
                return isinstance(syntax.operand_of(call), ast.Subscript)
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                return isinstance(target, ast.Subscript)
        return False

    @property
    def of_an_element(self) -> bool:
        """Whether a loop's variable is changed, but not read afterwards in the loop."""
        own = [loop for loop in self.loops if self.name in syntax.targets_of(loop)]
        parts = [part for loop in own for part in ast.walk(loop)]
        results = [part.value for part in parts if isinstance(part, ast.Expr)]
        is_statement = isinstance(self.node, ast.AugAssign) or self.node in results
        end = self.node.end_lineno or self.node.lineno
        names = [part for part in parts if isinstance(part, ast.Name) and part.lineno > end]
        return bool(own) and is_statement and self.name not in {name.id for name in names}


def in_place_writes(file: str) -> Iterator[Write]:
    """Yield the lines of a file that modify a value in place."""
    for scope in _nodes(file, *SCOPES):
        nodes = [*own_nodes(scope)]
        loops = [node for node in nodes if isinstance(node, Loop)]
        for node in nodes:
            target = syntax.written_in_place(node)
            if target is not None and isinstance(node, ast.stmt | ast.expr):
                name = ast.unparse(target)
                values = tuple(filter(None, (value_of(node, name) for node in nodes)))
                around = tuple(loop for loop in loops if covers(loop, node.lineno))
                place, function = Location(file, node.lineno), getattr(scope, "lineno", 0)
                yield Write(place, name, values, node, function, around)


def writes_at(place: Location) -> list[Write]:
    """Return the in-place writes of the statement or expression at a line."""
    return [write for write in in_place_writes(place.file) if covers(write.node, place.line)]


def calls_of(files: Iterable[str], names: list[str]) -> list[Location]:
    """Return the lines that call a function, or an attribute of any object, by one of the names."""
    called = ((file, call.func) for file in files for call in _nodes(file, ast.Call))
    pairs = ((file, f.lineno, getattr(f, "attr", getattr(f, "id", None))) for file, f in called)
    return [Location(file, line) for file, line, name in pairs if name in names]


def receiver_at(place: Location | None, method: str) -> str | None:
    """Return the ``x`` of a line's only call ``x.method()`` that has no positional arguments."""
    if place is None:
        return None
    calls = (c for c in _nodes(place.file, ast.Call) if covers(c, place.line))
    methods = (c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == method)
    found = [ast.unparse(c.func.value) for c in methods if not c.args]
    return found[0] if len(found) == 1 else None


def has_straight_through(place: Location) -> bool:
    """Whether a line adds ``(y - x).detach()`` to ``x``."""
    sums = (node for node in _nodes(place.file, ast.BinOp) if covers(node, place.line))
    return any(map(syntax.straight_through, sums))


def value_of(node: ast.AST, name: str) -> ast.expr | None:
    """Return the value that an assignment gives to a name; for tuples the value at its position."""
    pairs = syntax.pairs_of(node) if isinstance(node, syntax.ASSIGNMENTS) else []
    return next((value for target, value in pairs if target == name), None)


def values_of(file: str, name: str) -> list[ast.expr]:
    """Return the values that a file assigns to a variable, an attribute or an entry of either."""
    last = re.compile(rf"(.*\.)?{re.escape(name.rpartition('.')[2])}(\[.*\])?")
    assignments = _nodes(file, *syntax.ASSIGNMENTS)
    pairs = (pair for node in assignments for pair in syntax.pairs_of(node))
    return [value for target, value in pairs if last.fullmatch(target)]


def filled_at(file: str, name: str, path: str = "", in_init: bool = True) -> list[Location]:
    """Return the lines of a file that give a variable ``x`` or attribute ``.x`` a computed value.

    An element that is added to a container is such a value, but not below another key than in a
    ``path`` such as ``x['a'][0]``. Lines in ``__init__`` come first.
    """
    return [
        place
        for is_outside, place in sorted(_filling(file, name, path))
        if (in_init or is_outside) and not _is_constant(place, name)
    ]


def _is_constant(place: Location, name: str) -> bool:
    """Whether a line assigns a number, ``None``, or a new container to a variable or attribute."""
    statement, name = simple_statement(*place), f".{name.lstrip('.')}"
    pairs = syntax.pairs_of(statement) if isinstance(statement, syntax.ASSIGNMENTS) else []
    values = (value for target, value in pairs if f".{target.partition('[')[0]}".endswith(name))
    return any(_CONSTANT.fullmatch(ast.unparse(value)) for value in values)


def _filling(file: str, name: str, path: str = "") -> Iterator[tuple[bool, Location]]:
    """Yield the lines that give a variable any value, and whether they are outside ``__init__``."""
    for scope in _nodes(file, *SCOPES):
        for target in _filled(scope):
            text = ast.unparse(syntax.without_index(target))
            is_same = text == name or (name[0] == "." and text.endswith(name))
            keys = {*_KEY.findall(ast.unparse(target))}
            if is_same and (not path or keys <= {*_KEY.findall(path)}):
                yield getattr(scope, "name", "") != "__init__", Location(file, target.lineno)


_CONSTANT = re.compile(r"None|True|False|[\d.]+|\[\]|\{\}|\(\)|(list|dict|deque)\(.*\)")
_KEY = re.compile(r"\['\w+'\]")
_CHANGES = ("add", "append", "appendleft", "copy_", "extend", "insert", "pop", "popleft",
            "setdefault", "update")  # fmt: skip


def _filled(scope: ast.AST | None) -> Iterator[ast.expr]:
    """Yield the variables and attributes to which a function gives a value or an element."""
    for node in own_nodes(scope):
        match node:
            case ast.Name() | ast.Attribute() | ast.Subscript() if isinstance(node.ctx, ast.Store):
                yield node
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name in _CHANGES:
                yield target


def last_return(code: CodeType) -> tuple[Location | None, list[str]]:
    """Return the line of a function's last ``return`` statement, and the source of its values.

    If a function returns nothing, this is its last line.
    """
    function = function_of(code)
    returns = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    if not returns:
        place = Location(code.co_filename, function.body[-1].lineno) if function else None
        return place, []
    last = max(returns, key=lambda node: node.lineno)
    value = last.value or ast.Constant(None)
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    return Location(code.co_filename, last.lineno), [ast.unparse(value) for value in values]


def made_at(code: CodeType, name: str) -> Location | None:
    """Return the last line of a function that gives a variable more than a copy of its value."""
    lines = lines_that_assign(function_of(code), name)
    places = (Location(code.co_filename, line) for line in lines)
    copies = re.compile(r"= *\w+\.(clone|contiguous|detach)\(\)$")
    return max((place for place in places if not copies.search(place.text)), default=None)


def _used(scope: Scope | None) -> dict[str, ast.expr]:
    """Return the variables, attributes and entries that a function uses, by name."""
    nodes = [*own_nodes(scope)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    # Not layers that it calls; and in states.append(x), not what states contains.
    unused = {id(call.func) for call in calls}
    changes = (call.func for call in calls if id(call) in statements)
    unused |= {id(f.value) for f in changes if isinstance(f, ast.Attribute) and f.attr in _CHANGES}
    read = (n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Load))
    return {ast.unparse(n): n for n in read if isinstance(n, ast.expr) and id(n) not in unused}


def state_changed(codes: list[CodeType]) -> dict[str, Location]:
    """Return the state outside of functions (``self.n``, ``cache``) that they change and use."""
    changed = dict[str, Location]()
    for code in codes:
        scope = function_of(code)
        for target in _filled(scope):
            name = ast.unparse(syntax.without_index(target))
            if not lines_that_assign(scope, root_of(name)):
                changed.setdefault(name, Location(code.co_filename, target.lineno))
    used = set().union(*(_used(function_of(code)) for code in codes))
    return {name: place for name, place in changed.items() if name in used}


def assigned_elsewhere(codes: list[CodeType]) -> dict[str, Location]:
    """Return the state that functions use and other code changes later, each with a line."""
    changed = dict[str, Location]()
    for code in codes:
        file, own = code.co_filename, {line for *_, line in code.co_lines()}
        for name, node in _used(function_of(code)).items():
            is_global = root_of(name) in {*code.co_names} - {*code.co_varnames}
            if isinstance(node, ast.Attribute):
                filling = sorted(_filling(file, f".{name.rpartition('.')[2]}"))
            else:  # the first line defines a global variable
                filling = sorted(_filling(file, root_of(name), name))[1:] if is_global else []
            places = (p for is_outside, p in filling if is_outside and p.line not in own)
            for place in places:
                changed.setdefault(name, place)
    return changed


def draw_elsewhere(code: CodeType) -> Location | None:
    """Return where a function draws from another generator than PyTorch's, if it sets no seed."""
    calls = [node for node in own_nodes(function_of(code)) if isinstance(node, ast.Call)]
    draws = []
    for call in calls:
        name = ast.unparse(call.func)
        if name.endswith("seed"):
            return None
        if syntax.keyword(call, "generator") is not None or _DRAW.match(name):
            draws.append(call.lineno)
    return Location(code.co_filename, min(draws)) if draws else None


_DRAW = re.compile(r"(np\.|numpy\.)?random\.")


def draws(code: CodeType) -> bool:
    """Whether a function calls one whose result differs from call to call, such as rand()."""
    calls = (node for node in own_nodes(function_of(code)) if isinstance(node, ast.Call))
    return any(syntax.DRAWS.search(ast.unparse(call)) for call in calls)


def assigned_at(frame: FrameType, name: str) -> int | None:
    """Return the line that last assigned the variable in this frame, maybe an iteration ago."""
    lines, loop = lines_that_assign(scope_of(frame), name), loop_around(frame)
    last = max((line for line in lines if line <= frame.f_lineno), default=None)
    again = [line for line in lines if loop is not None and covers(loop, line)]
    return max(again) if again and last not in again else last


def assigned_once(frame: FrameType, name: str) -> bool:
    """Whether the variable is assigned, but neither in a loop nor by another function."""
    file = frame.f_code.co_filename
    is_local = name in frame.f_code.co_varnames
    scope = scope_of(frame) if is_local else next(_nodes(file, ast.Module), None)
    if scope is None or any(name in n.names for n in _nodes(file, ast.Global, ast.Nonlocal)):
        return False
    lines = lines_that_assign(scope, name)
    loops = [node for node in own_nodes(scope) if isinstance(node, Loop)]
    return bool(lines) and not any(covers(loop, line) for loop in loops for line in lines)


@functools.cache
def is_unread_and_reset(place: Location) -> bool:
    """Whether no code reads the ``x`` of ``x += y`` at a line, and ``x`` starts again and again.

    A loop around the line assigns it, or a function does that has no other loop around the line.
    """
    target, scope = getattr(simple_statement(*place), "target", None), _scope_at(place)
    is_shared = isinstance(scope, ast.Module) and running_ipython() is not None  # with other cells
    if not isinstance(target, ast.Name) or is_shared or any(_nodes(place.file, ast.Global)):
        return False
    lines = {*lines_that_assign(scope, target.id)} - {target.lineno}
    loops = [n for n in own_nodes(scope) if isinstance(n, Loop) and covers(n, place.line)]
    regions = [scope] if isinstance(scope, Function) and len(loops) == 1 else loops
    scopes = _nodes(place.file, *SCOPES, ast.Lambda)
    reading = (s for s in scopes if s is scope or not lines_that_assign(s, target.id))
    return any(covers(region, line) for region in regions for line in lines) and not any(
        target.id in _used(other) for other in reading
    )


def lines_that_assign(scope: ast.AST | None, name: str) -> list[int]:
    """Return the lines of a scope, without the functions inside it, that assign this variable."""
    return [
        node.lineno
        for node in own_nodes(scope)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]


def lines_that_read(frame: FrameType, name: str, span: range) -> list[int]:
    """Return the lines of a span of the running function that read its variable's last value."""
    scope = scope_of(frame)
    assigned = max((n for n in lines_that_assign(scope, name) if n in span), default=0)
    nodes = (node for node in own_nodes(scope) if isinstance(node, ast.Name))
    reading = {n.lineno for n in nodes if n.id == name and isinstance(n.ctx, ast.Load)}
    return sorted(line for line in reading if line in span and line > assigned)


def root_of(name: str) -> str:
    """Return the variable at the start of an expression such as ``model.layers[0]``."""
    return re.split(r"[.\[]", name)[0]


def scope_of(frame: FrameType) -> Scope | None:
    """Return the syntax node of the module or function that a frame runs; None if there is none."""
    return _scope(frame.f_code, frame.f_lineno)


def function_named(file: str, name: str) -> Function | None:
    """Return the only function of this name in a file, or None."""
    functions = [node for node in _nodes(file, *FUNCTIONS) if node.name == name]
    return functions[0] if len(functions) == 1 else None


def function_of(code: CodeType) -> Function | None:
    """Return the function definition from which a code object was compiled, or None."""
    scope = _scope(code, max(line for *_, line in code.co_lines() if line is not None))
    return scope if isinstance(scope, Function) else None


def _scope(code: CodeType, line: int) -> Scope | None:
    """Return the module or function definition from which a code object was compiled, or None."""
    name = code.co_name
    outer = (ast.Module,) if name == "<module>" else SCOPES if name in _INLINED else FUNCTIONS
    scopes = [
        node
        for node in _nodes(code.co_filename, *outer)
        if isinstance(node, ast.Module) or (covers(node, line) and name in (node.name, *_INLINED))
    ]
    return max(scopes, key=lambda node: getattr(node, "lineno", 0), default=None)


_INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")  # into the code around, from Python 3.12 on


def own_nodes(scope: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the nodes of a module or function, if any, without those of functions inside it."""
    pending = [] if scope is None else list(ast.iter_child_nodes(scope))
    for node in pending:
        yield node
        if not isinstance(node, Function | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def _nodes(file: str, *kinds: type[ast.AST]) -> Iterator[Any]:
    """Yield a file's syntax nodes of these kinds; none if parsing fails."""
    try:
        tree = _parsed("".join(linecache.getlines(file)))
    except (SyntaxError, SystemError):  # magics in a cell; Python 3.11 parses in one thread only
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, kinds))


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)
