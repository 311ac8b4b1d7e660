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
Change = Callable[[cst.CSTNode], Changed]  # gets the node with what is inside it changed
Changes = dict[cst.CSTNode, Change]


class _Rewriter(cst.CSTTransformer):
    def __init__(self, changes: Changes):
        super().__init__()
        self._changes = changes

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Changed:  # type: ignore[override]
        change = self._changes.get(original_node)
        return updated_node if change is None else change(updated_node)


class Source:
    """A file of the program.

    Raises:
        libcst.ParserSyntaxError: it is not Python.
        OSError, UnicodeDecodeError: it cannot be read.
    """

    def __init__(self, path: str):
        self.path = path
        module = cst.parse_module(Path(path).read_bytes())  # bytes: it keeps the line ends
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = wrapper.module
        self.text = module.code
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)

    def lines(self, node: cst.CSTNode) -> range:
        """The lines of a node, without the comments above it."""
        found = self._positions[node]
        return range(found.start.line, found.end.line + 1)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def edited(self, changes: Changes) -> str:
        """The text with these nodes changed."""
        module = self.module.visit(_Rewriter(changes))
        assert isinstance(module, cst.Module)
        return module.code

    # Finding.

    def all(self, kind: type[Node], inside: cst.CSTNode | None = None) -> Iterator[Node]:
        """The nodes of a kind, in the order of the text."""
        pending: list[cst.CSTNode] = [self.module if inside is None else inside]
        while pending:
            node = pending.pop()
            if isinstance(node, kind):
                yield node
            pending.extend(reversed(node.children))

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """From the nearest outward."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statements_at(self, line: int) -> list[Small]:
        """The simple statements that cover a line."""
        return [one for one in self.all(cst.BaseSmallStatement) if line in self.lines(one)]  # type: ignore[type-abstract]

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Iterator[Node]:
        """The nodes of these kinds around it, innermost first, up to the function it is in."""
        for parent in self.parents(node):
            if isinstance(parent, kinds):
                yield parent
            if isinstance(parent, Function | cst.Lambda):
                return

    def function_of(self, node: cst.CSTNode) -> Function | None:
        return next((one for one in self.parents(node) if isinstance(one, Function)), None)

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        return next((one for one in self.parents(node) if isinstance(one, cst.ClassDef)), None)

    def suite_of(self, statement: cst.CSTNode) -> cst.CSTNode:
        """The block, module or one-line suite that a small or compound statement stands in."""
        kinds = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)
        return next(one for one in self.parents(statement) if isinstance(one, kinds))

    def line_of(self, statement: cst.CSTNode, suite: cst.CSTNode) -> cst.CSTNode:
        """The direct member of the suite that holds the statement."""
        inner = statement
        for parent in self.parents(statement):
            if parent is suite:
                return inner
            inner = parent
        raise ValueError("the statement is not in this suite")

    def flat(self, suite: cst.CSTNode) -> list[cst.CSTNode]:
        """What runs one after the other in a suite: small statements, and compound ones whole."""
        found: list[cst.CSTNode] = []
        for member in suite.body:  # type: ignore[attr-defined]
            if isinstance(member, cst.SimpleStatementLine):
                found += member.body
            else:
                found.append(member)
        return found

    # Changing.

    def parse(self, code: str) -> list[Small]:
        """Small statements from text."""
        line = self.line(code)
        assert isinstance(line, cst.SimpleStatementLine)
        return list(line.body)

    def line(self, code: str) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
        """A line of small statements, or a compound statement, from text."""
        return cst.parse_statement(code, config=self.module.config_for_parsing)

    def next_to(
        self, statement: cst.CSTNode, before: Sequence[str] = (), after: Sequence[str] = ()
    ) -> Changes:
        """Statements before and after one: on lines of their own, or behind a semicolon."""
        return {self.anchor(statement): self.between(statement, before, after)}

    def anchor(self, statement: cst.CSTNode) -> cst.CSTNode:
        """The node that gets neighbours: the statement's line if it has that line to itself."""
        line = self._parents[statement]
        alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        return line if alone else statement

    def between(
        self, statement: cst.CSTNode, before: Sequence[str], after: Sequence[str] = ()
    ) -> Change:
        own_line = self.anchor(statement) is not statement or not isinstance(statement, Small)

        def change(updated: cst.CSTNode) -> Changed:
            if own_line:
                above = [self.line(code) for code in before]
                below = [self.line(code) for code in after]
                if above and hasattr(updated, "leading_lines"):
                    above[0] = above[0].with_changes(leading_lines=updated.leading_lines)
                    updated = updated.with_changes(leading_lines=())
                return cst.FlattenSentinel([*above, updated, *below])
            parts = [part for code in before for part in self.parse(code)]
            rest = [part for code in after for part in self.parse(code)]
            semicolon = getattr(updated, "semicolon", cst.MaybeSentinel.DEFAULT)
            if rest and isinstance(updated, Small):
                updated = updated.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                rest[-1] = rest[-1].with_changes(semicolon=semicolon)
            return cst.FlattenSentinel([*parts, updated, *rest])

        return change

    def first_in(self, suite: cst.CSTNode, code: Sequence[str]) -> Changes:
        """Statements at the beginning of a block, behind its docstring."""
        statements = self.flat(suite)
        first = statements[0]
        if len(statements) > 1 and _is_docstring(first):
            first = statements[1]
        return self.next_to(first, before=code)


def write(path: str, old: str, new: str) -> None:
    """Put a file's new text in place of the old one, in the file's own encoding.

    Raises:
        ValueError: the file is no longer what it was.
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
    """Replace a statement by this one."""
    return lambda _: statement


def to(code: str) -> Change:
    """Replace an expression by this text."""
    return lambda updated: cst.parse_expression(code)


def method(name: str) -> Change:
    """Call a method on an expression: ``.detach()``, in parentheses where they are needed."""

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
    """A call with this keyword, in place of the one of that name if it has one."""

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
    return next(
        (one.value for one in call.args if one.keyword is not None and one.keyword.value == name),
        None,
    )


def method_called(call: cst.CSTNode) -> str:
    """The last name of what is called: ``backward`` for ``loss.backward(…)``."""
    if not isinstance(call, cst.Call):
        return ""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""
