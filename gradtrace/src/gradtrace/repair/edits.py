"""A source file as a tree that keeps every space and comment, and changes to it as new text.

Built on LibCST.  A change names nodes of the tree; all else is copied to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

Small = cst.BaseSmallStatement
Loop = cst.For | cst.While
Function = cst.FunctionDef
Node = TypeVar("Node", bound=cst.CSTNode)
Changed = cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] | cst.RemovalSentinel
Change = Callable[[cst.CSTNode], Changed]  # receives the node with its children changed
Changes = dict[cst.CSTNode, Change]


class _Rewriter(cst.CSTTransformer):
    def __init__(self, changes: Changes):
        super().__init__()
        self._changes = changes

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Changed:  # type: ignore[override]
        change = self._changes.get(original_node)
        return updated_node if change is None else change(updated_node)


class Source:
    """A source file of the program.

    Raises:
        libcst.ParserSyntaxError: it is not Python.
        OSError, UnicodeDecodeError: it cannot be read.
    """

    def __init__(self, path: str):
        self.path = path
        module = cst.parse_module(Path(path).read_bytes())  # bytes: so line ends are kept
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = wrapper.module
        self.text = module.code
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def lines(self, node: cst.CSTNode) -> range:
        """Return the lines of a node, without the comments above it."""
        position = self._positions[node]
        return range(position.start.line, position.end.line + 1)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def edited(self, changes: Changes) -> str:
        """Return the text with these nodes changed."""
        module = self.module.visit(_Rewriter(changes))
        assert isinstance(module, cst.Module)
        return module.code

    # Queries.

    def all(self, kind: type[Node], root: cst.CSTNode | None = None) -> Iterator[Node]:
        """Yield the nodes of a kind in the file, or under a root, in the order of the text."""
        pending: list[cst.CSTNode] = [self.module if root is None else root]
        while pending:
            node = pending.pop()
            if isinstance(node, kind):
                yield node
            pending.extend(reversed(node.children))

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of a node, the nearest first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statements_at(self, line: int) -> list[Small]:
        """Return the simple statements that cover a line."""
        return [statement for statement in self.statements() if line in self.lines(statement)]

    def statements(self, root: cst.CSTNode | None = None) -> Iterator[Small]:
        """Yield the simple statements of the file, or under a root."""
        return self.all(cst.BaseSmallStatement, root)  # type: ignore[type-abstract]

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Iterator[Node]:
        """Yield the ancestors of these kinds, innermost first, up to the enclosing function."""
        for parent in self.parents(node):
            if isinstance(parent, kinds):
                yield parent
            if isinstance(parent, Function | cst.Lambda):
                return

    def function_of(self, node: cst.CSTNode) -> Function | None:
        return next((parent for parent in self.parents(node) if isinstance(parent, Function)), None)

    def scope_of(self, node: cst.CSTNode) -> Function | cst.Module:
        """Return the enclosing function, or the module."""
        return self.function_of(node) or self.module

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        classes = (parent for parent in self.parents(node) if isinstance(parent, cst.ClassDef))
        return next(classes, None)

    def suite_of(self, statement: cst.CSTNode) -> cst.CSTNode:
        """Return the block, module or one-line suite that contains a statement."""
        kinds = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)
        return next(parent for parent in self.parents(statement) if isinstance(parent, kinds))

    def line_of(self, statement: cst.CSTNode, suite: cst.CSTNode) -> cst.CSTNode:
        """Return the direct member of the suite that contains the statement."""
        member = statement
        for parent in self.parents(statement):
            if parent is suite:
                return member
            member = parent
        raise ValueError("the statement is not in this suite")

    def flat(self, suite: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the statements of a suite in order: simple ones, and compound ones as a whole."""
        statements: list[cst.CSTNode] = []
        for member in suite.body:  # type: ignore[attr-defined]
            if isinstance(member, cst.SimpleStatementLine):
                statements += member.body
            else:
                statements.append(member)
        return statements

    def before(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the statements before one in its suite."""
        statements = self.flat(self.suite_of(statement))
        return statements[: statements.index(statement)]

    # Changes.

    def parse(self, code: str) -> list[Small]:
        """Parse simple statements."""
        line = self.line(code)
        assert isinstance(line, cst.SimpleStatementLine)
        return list(line.body)

    def line(self, code: str) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
        """Parse a line of simple statements, or a compound statement."""
        return cst.parse_statement(code, config=self.module.config_for_parsing)

    def next_to(
        self, statement: cst.CSTNode, before: Sequence[str] = (), after: Sequence[str] = ()
    ) -> Changes:
        """Return the change that inserts statements before and after one.

        They stand on lines of their own, or after a semicolon if the statement shares its line.
        """
        return {self.anchor(statement): self.between(statement, before, after)}

    def anchor(self, statement: cst.CSTNode) -> cst.CSTNode:
        """Return the node beside which statements are inserted: a line of one statement, or it."""
        line = self._parents[statement]
        is_only_one = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        return line if is_only_one else statement

    def between(
        self, statement: cst.CSTNode, before: Sequence[str], after: Sequence[str] = ()
    ) -> Change:
        has_own_line = self.anchor(statement) is not statement or not isinstance(statement, Small)

        def change(updated: cst.CSTNode) -> Changed:
            if has_own_line:
                above = [self.line(code) for code in before]
                below = [self.line(code) for code in after]
                if above and hasattr(updated, "leading_lines"):
                    above[0] = above[0].with_changes(leading_lines=updated.leading_lines)
                    updated = updated.with_changes(leading_lines=())
                return cst.FlattenSentinel([*above, updated, *below])
            parts = [part for code in before for part in self.parse(code)]
            following = [part for code in after for part in self.parse(code)]
            semicolon = getattr(updated, "semicolon", cst.MaybeSentinel.DEFAULT)
            if following and isinstance(updated, Small):
                updated = updated.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                following[-1] = following[-1].with_changes(semicolon=semicolon)
            return cst.FlattenSentinel([*parts, updated, *following])

        return change

    def first_in(self, suite: cst.CSTNode, code: Sequence[str]) -> Changes:
        """Return the change that inserts statements at a block's beginning, after a docstring."""
        statements = self.flat(suite)
        first = statements[0]
        if len(statements) > 1 and _is_docstring(first):
            first = statements[1]
        return self.next_to(first, before=code)


def write(path: str, old: str, new: str) -> None:
    """Replace the text of a file, in the file's own encoding.

    Raises:
        ValueError: the file has changed since it was run.
        OSError: it cannot be written.
    """
    module = cst.parse_module(Path(path).read_bytes())
    if module.code != old:
        raise ValueError(f"{path} has changed since it was run: nothing was written")
    Path(path).write_bytes(new.encode(module.encoding))


def _is_docstring(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.Expr) and isinstance(
        statement.value, cst.SimpleString | cst.ConcatenatedString
    )


def removed(_: cst.CSTNode) -> cst.RemovalSentinel:
    return cst.RemoveFromParent()


def instead(statement: cst.CSTNode) -> Change:
    """Return the change that replaces a statement."""
    return lambda _: statement


def to(code: str) -> Change:
    """Return the change that replaces an expression by this text."""
    return lambda updated: cst.parse_expression(code)


def method(name: str) -> Change:
    """Return the change that calls a method on an expression, in parentheses if needed."""

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.BaseExpression)
        return cst.Call(cst.Attribute(in_parentheses(updated), cst.Name(name)))

    return change


_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.List, cst.Dict)


def in_parentheses(expression: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(expression, _ATOMS) or expression.lpar:
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def with_keyword(name: str, value: str) -> Change:
    """Return the change that gives a call this keyword, or replaces its value."""

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.Call)
        new = cst.parse_expression(value)
        arguments = list(updated.args)
        for i, argument in enumerate(arguments):
            if argument.keyword is not None and argument.keyword.value == name:
                arguments[i] = argument.with_changes(value=new)
                return updated.with_changes(args=arguments)
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        if arguments:
            arguments[-1] = arguments[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        arguments.append(cst.Arg(new, keyword=cst.Name(name), equal=equal))
        return updated.with_changes(args=arguments)

    return change


def keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == name:
            return argument.value
    return None


def method_called(call: cst.CSTNode) -> str:
    """Return the last name of the function: ``backward`` for ``loss.backward(…)``."""
    if not isinstance(call, cst.Call):
        return ""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def call_of(source: Source, statement: cst.CSTNode, *names: str) -> cst.Call | None:
    """Return the first call of a function or method of these names in a statement."""
    calls = source.all(cst.Call, statement)
    return next((call for call in calls if method_called(call) in names), None)
