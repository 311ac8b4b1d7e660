"""A source file with its syntax tree, and edits that leave the rest of its text as it is."""

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from gradtrace.autograd.syntax import Function, Loop, keyword, pairs_of

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


class Edit(NamedTuple):
    """A replacement of the bytes from ``start`` to before ``end`` of a file's text in UTF-8."""

    source: "Source"
    start: int
    end: int
    text: str


class Source:
    """A source file of the program; methods such as :meth:`insert` return edits, and apply none.

    Raises:
        SyntaxError: it is not Python.
        OSError, UnicodeDecodeError: it cannot be read.
    """

    def __init__(self, path: str, text: str | None = None):
        self.path = path
        self.text = _decoded(Path(path).read_bytes())[0] if text is None else text
        self.tree = ast.parse(self.text)
        self._bytes = self.text.encode()
        lines = self._bytes.splitlines(keepends=True)
        self._starts = [0, *itertools.accumulate(map(len, lines))]
        self._newline = "\r\n" if lines and lines[0].endswith(b"\r\n") else "\n"
        self._parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    # Positions.

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the byte offsets at which a node's text begins and ends, without decorators."""
        assert isinstance(node, ast.stmt | ast.expr | ast.keyword)
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def lines(self, node: ast.stmt | ast.expr) -> range:
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)

    def code(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def code_with(self, node: ast.AST, edits: Sequence[Edit]) -> str:
        """Return the text of a node with edits inside it applied."""
        start, end = self.span(node)
        added = sum(len(edit.text.encode()) - (edit.end - edit.start) for edit in edits)
        return self.edited(edits).encode()[start : end + added].decode()

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the file's text with these edits of it applied."""
        parts, position = [], 0
        for _, start, end, text in sorted(edits, key=lambda edit: edit[1:3]):
            parts += [self._bytes[position:start], text.encode()]
            position = max(position, end)
        return b"".join([*parts, self._bytes[position:]]).decode()

    # Queries.

    def all(self, kind: type[Node], *roots: ast.AST) -> Iterator[Node]:
        """Yield the nodes of a kind in the file, or under some roots, in the order of the text."""
        pending = [*reversed(roots or (self.tree,))]
        while pending:
            node = pending.pop()
            if isinstance(node, kind):
                yield node
            pending.extend(reversed([*ast.iter_child_nodes(node)]))

    def calls(self, *names: str, under: ast.AST | None = None) -> Iterator[ast.Call]:
        """Yield the calls, in the file or under a node, of functions or methods of these names."""
        calls = self.all(ast.Call, *([] if under is None else [under]))
        return (call for call in calls if method_called(call) in names)

    def assignments(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield the targets and values of the assignments; ``a, b = f(), g()`` are two."""
        return itertools.chain.from_iterable(map(pairs_of, self.all(ast.Assign)))

    def parent(self, node: ast.AST) -> ast.AST:
        return self._parents[node]

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, the nearest first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statements_at(self, line: int) -> list[ast.stmt]:
        """Return the simple statements that cover a line."""
        return [statement for statement in self.statements() if line in self.lines(statement)]

    def statements(self, *roots: ast.AST) -> Iterator[ast.stmt]:
        """Yield the simple statements of the file, or under some roots."""
        return filter(is_simple, self.all(ast.stmt, *roots))

    def around(self, node: ast.AST, kind: type[Node]) -> Iterator[Node]:
        """Yield the ancestors of a kind, innermost first, up to the enclosing function."""
        for parent in self.parents(node):
            if isinstance(parent, kind):
                yield parent
            if isinstance(parent, Function | ast.Lambda):
                return

    def loops_around(self, node: ast.AST) -> Iterator[Loop]:
        return (loop for loop in self.around(node, ast.stmt) if isinstance(loop, Loop))

    def scope_of(self, node: ast.AST) -> Scope:
        """Return the enclosing function, or the module."""
        functions = (parent for parent in self.parents(node) if isinstance(parent, Function))
        return next(functions, self.tree)

    def decorators_of(self, node: ast.AST) -> list[ast.expr]:
        """Return the decorators of the enclosing function, if any."""
        return [*getattr(self.scope_of(node), "decorator_list", ())]

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        classes = (parent for parent in self.parents(node) if isinstance(parent, ast.ClassDef))
        return next(classes, None)

    def suite_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the block of statements, or the module's, that contains a statement."""
        blocks = (block for _, block in ast.iter_fields(self._parents[statement]))
        return next(block for block in blocks if isinstance(block, list) and statement in block)

    def member_of(self, suite: Sequence[ast.stmt], statement: ast.stmt) -> ast.stmt:
        """Return the direct member of the suite that contains the statement."""
        ancestors = (statement, *self.parents(statement))
        return next(node for node in ancestors if isinstance(node, ast.stmt) and node in suite)

    def before(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements that precede this one in its suite."""
        suite = self.suite_of(statement)
        return suite[: suite.index(statement)]

    def after(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements that follow this one in its suite."""
        suite = self.suite_of(statement)
        return suite[suite.index(statement) + 1 :]

    # Edits.

    def insert(
        self, statement: ast.stmt, before: Sequence[str] = (), after: Sequence[str] = ()
    ) -> list[Edit]:
        """Insert code before and after a statement, with ";" if the statement shares its line."""
        start, end = self.span(statement)
        line_start, line_end = self._whole_lines(statement)
        indent = self._bytes[line_start:start].decode()
        edits = []
        if before and not indent.strip():
            text = "".join(f"{self._indented(code, indent)}{self._newline}" for code in before)
            edits.append(Edit(self, line_start, line_start, text))
        elif before:
            edits.append(Edit(self, start, start, "".join(f"{code}; " for code in before)))
        if after and self.has_own_lines(statement):
            text = "".join(f"{self._indented(code, indent)}{self._newline}" for code in after)
            is_last = not self._bytes[:line_end].endswith((b"\n", b"\r"))
            edits.append(Edit(self, line_end, line_end, self._newline * is_last + text))
        elif after:
            edits.append(Edit(self, end, end, "".join(f"; {code}" for code in after)))
        return edits

    def first_in(self, suite: Sequence[ast.stmt], code: Sequence[str]) -> list[Edit]:
        """Insert statements at a block's beginning, after a docstring."""
        match suite:
            case [ast.Expr(ast.Constant(str())), second, *_]:
                return self.insert(second, before=code)
        return self.insert(suite[0], before=code)

    def remove(self, *statements: ast.stmt) -> list[Edit]:
        """Remove statements; ``pass`` takes the place of a block's only statement."""
        edits = []
        for statement in statements:
            start, end = self.span(statement)
            previous, following = self.before(statement), self.after(statement)
            if not previous and not following:
                edits.append(Edit(self, start, end, "pass"))
            elif self.has_own_lines(statement):
                edits.append(Edit(self, *self._whole_lines(statement), ""))
            elif following and following[0].lineno == statement.end_lineno:
                edits.append(Edit(self, start, self.span(following[0])[0], ""))
            else:
                edits.append(Edit(self, self.span(previous[-1])[1], end, ""))
        return edits

    def remove_line(self, node: ast.expr) -> list[Edit]:
        """Remove the lines of an expression, such as a decorator."""
        return [Edit(self, *self._whole_lines(node), "")]

    def replace(self, node: ast.AST, text: str) -> list[Edit]:
        return [Edit(self, *self.span(node), text)]

    def remove_entry(self, entries: Sequence[ast.expr], i: int) -> list[Edit]:
        """Remove one of several expressions that commas separate."""
        (start, end), neighbour = self.span(entries[i]), self.span(entries[i - 1 if i else 1])
        return [Edit(self, *((neighbour[1], end) if i else (start, neighbour[0])), "")]

    def call_method(self, node: ast.expr, name: str, argument: str = "") -> list[Edit]:
        """Call a method on an expression, in parentheses if needed."""
        start, end = self.span(node)
        if isinstance(node, _ATOMS):
            return [Edit(self, end, end, f".{name}({argument})")]
        return [Edit(self, start, start, "("), Edit(self, end, end, f").{name}({argument})")]

    def drop_call(self, call: ast.Call) -> list[Edit]:
        """Replace a method call by the object on which it is called, and its parentheses."""
        assert isinstance(call.func, ast.Attribute)
        end = self.span(call.func.value)[1]
        closing = re.match(rb"[\s)]*\)", self._bytes[end:])
        start = end if closing is None else end + closing.end()
        return [Edit(self, start, self.span(call)[1], "")]

    def set_keywords(self, call: ast.Call, **values: str) -> list[Edit]:
        """Give a call these keywords, or replace their values."""
        edits, missing = [], []
        for name, value in values.items():
            present = keyword(call, name)
            if present is None:
                missing.append(f"{name}={value}")
            else:
                edits += self.replace(present, value)
        end = self.span(call)[1] - 1
        arguments = [*call.args, *(argument.value for argument in call.keywords)]
        last = max((self.span(argument)[1] for argument in arguments), default=end)
        if missing and arguments and b"," not in self._bytes[last:end]:
            missing[0] = f", {missing[0]}"
        return [*edits, Edit(self, end, end, ", ".join(missing))]

    def unindent(self, block: ast.If | ast.With | ast.AsyncWith, kept: int = 0) -> list[Edit]:
        """Remove a block's head, or move all but the first ``kept`` statements out of the block."""
        start, end = self._whole_lines(block)
        first = self._starts[block.body[kept].lineno - 1]
        if first == start:  # the block stands on the line of its head
            head = self.span(block)[0], self.span(block.body[0])[0]
            return [] if kept else [Edit(self, *head, "")]
        added = self._bytes[first:][block.col_offset : block.body[0].col_offset]
        lines = self._bytes[first:end].splitlines(keepends=True)
        text = b"".join(line.removeprefix(added) for line in lines).decode()
        return [Edit(self, first if kept else start, end, text)]

    def move_head(self, outer: ast.With, loops: Sequence[Loop]) -> list[Edit]:
        """Move the head of a ``with`` into loops, each of which is the only statement around."""
        starts = [self.span(node)[0] for node in (outer, *loops, loops[-1].body[0])]
        heads = [self._bytes[a:b].rstrip() for a, b in itertools.pairwise(starts)]
        moved = zip(starts, heads, (*heads[1:], heads[0]), strict=False)
        return [Edit(self, start, start + len(old), new.decode()) for start, old, new in moved]

    def indent_under(self, head: str, statements: Sequence[ast.stmt]) -> list[Edit]:
        """Put consecutive statements into a block under this header."""
        start, _ = self._whole_lines(statements[0])
        _, end = self._whole_lines(statements[-1])
        indent = self._bytes[start : self.span(statements[0])[0]].decode()
        lines = self._bytes[start:end].decode().splitlines(keepends=True)
        unit = "\t" if indent.startswith("\t") else "    "
        block = "".join(f"{unit}{line}" if line.strip() else line for line in lines)
        return [Edit(self, start, end, f"{indent}{head}{self._newline}{block}")]

    def has_own_lines(self, node: ast.stmt | ast.expr) -> bool:
        """Whether nothing but a comment shares the lines of a node."""
        (start, end), (line_start, line_end) = self.span(node), self._whole_lines(node)
        rest = self._bytes[end:line_end].strip()
        return not self._bytes[line_start:start].strip() and (not rest or rest.startswith(b"#"))

    def _whole_lines(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        lines = self.lines(node)
        return self._starts[lines[0] - 1], self._starts[lines[-1]]

    def _indented(self, code: str, indent: str) -> str:
        """Indent the first line of the code, and all lines if it opens a block."""
        if "\n" not in code or is_simple(ast.parse(code).body[0]):
            return f"{indent}{code}"
        return self._newline.join(f"{indent}{line}" for line in code.splitlines())


_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Dict, ast.ListComp)


def is_simple(node: ast.AST) -> bool:
    """Whether a node is a statement without a block."""
    has_block = hasattr(node, "body") or isinstance(node, ast.Match)
    return isinstance(node, ast.stmt) and not has_block


def _decoded(raw: bytes) -> tuple[str, str]:
    """Return a file's text and encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return raw.decode(encoding), encoding


def write(path: str, old: str, new: str) -> None:
    """Replace the text of a file, in the file's own encoding.

    Raises:
        ValueError: the file has changed since it was run.
        OSError: it cannot be written.
    """
    text, encoding = _decoded(Path(path).read_bytes())
    if text != old:
        raise ValueError(f"{path} has changed since it was run: nothing was written")
    Path(path).write_bytes(new.encode(encoding))


def method_called(call: ast.AST) -> str:
    """Return the last name of the function: ``backward`` for ``loss.backward(…)``."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
    return ""


def call_of(source: Source, root: ast.AST, *names: str) -> ast.Call | None:
    """Return the first call, under a node, of a function or method with one of these names."""
    return next(source.calls(*names, under=root), None)
