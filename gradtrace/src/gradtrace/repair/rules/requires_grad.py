"""Repairs of the choice of trained parameters: what is frozen, asked for or registered."""

import ast
import itertools
import re
from collections.abc import Iterator

from gradtrace.autograd.syntax import writes
from gradtrace.repair import kinds
from gradtrace.repair.edits import Edit, call_of, method_called
from gradtrace.repair.rule import Candidate, Failure, edit

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "NAdam", "RAdam")


def unfreeze(failure: Failure) -> Iterator[Candidate]:
    """Remove the line that freezes parameters, with a loop around it that does nothing else."""
    for source, node, place in failure.at("began_at", "frozen_parameters"):
        loop = next(source.around(node, ast.For), None)
        removable = loop if loop is not None and loop.body == [node] else node
        title = f"without line {place.line}: {source.code(node)}"
        yield from edit(kinds.SWITCH_ON, title, source.remove(removable))


def ask_for_trained_parameters(failure: Failure) -> Iterator[Candidate]:
    """Replace ``net.parameters()`` by the parameters that require a gradient."""
    for source in failure.sources if failure.cause == "input_off" else ():
        for call in source.calls("parameters"):
            outer = [parent for parent in source.parents(call) if isinstance(parent, ast.Call)]
            is_passed_on = outer and not any(method_called(o) in _OPTIMIZERS for o in outer)
            if call.args or not is_passed_on:
                continue
            code = f"p for p in {source.code(call)} if p.requires_grad"
            parent = source.parent(call)
            is_only_argument = isinstance(parent, ast.Call) and len(parent.args) == 1
            edits = source.replace(call, code if is_only_argument else f"({code})")
            yield from edit(kinds.ASK_LESS, f"{code}, at line {call.lineno}", edits)


def register_modules(failure: Failure) -> Iterator[Candidate]:
    """Put modules that plain lists or dicts hold into ``nn.ModuleList`` or ``nn.ModuleDict``."""
    findings = [f for f in failure.run.findings if f["cause"] == "in_no_optimizer"]
    names = (f.get("carried_by") or "" for f in (failure.diagnosis, *findings))
    attributes = set(re.findall(r"\w+", " ".join(names)))
    titles: list[str] = []
    together: list[Edit] = []
    for source in failure.sources if failure.cause == "in_no_optimizer" else ():
        prefix = "nn." if re.search(r"\bnn\.Module\b", source.text) else "torch.nn."
        for target, value in source.assignments():
            is_dict = isinstance(value, ast.Dict | ast.DictComp)
            is_list = isinstance(value, ast.List | ast.ListComp)
            if target.rpartition(".")[2] in attributes and (is_dict or is_list):
                container = f"{prefix}Module{'Dict' if is_dict else 'List'}"
                titles.append(f"{target} = {container}(…)")
                together += source.replace(value, f"{container}({source.code(value)})")
    yield from edit(kinds.REGISTER, "; ".join(titles), together)


def train_whole_module(failure: Failure) -> Iterator[Candidate]:
    """Give the optimizer all parameters of the module that holds the trained and these others."""
    for source, node, place in failure.at("began_at", "in_no_optimizer"):
        for call in source.calls("parameters", under=node):
            if isinstance(call.func, ast.Attribute):
                names = [source.code(call.func.value), *failure.carried]
                levels = zip(*(name.split(".") for name in names), strict=False)
                shared = itertools.takewhile(lambda level: len({*level}) == 1, levels)
                whole = ".".join(level[0] for level in shared)
                if whole:
                    title = f"{whole}.parameters() at line {place.line}"
                    yield from edit(kinds.REGISTER, title, source.replace(call.func.value, whole))


def guard_hook(failure: Failure) -> Iterator[Candidate]:
    """Register a hook only where its tensor requires a gradient: ``if p.requires_grad:``."""
    is_refused = failure.cause == "hook_without_gradient"
    is_frozen = any("requires_grad" in s.source.code(s.node) for s in failure.at("began_at"))
    for source, node, place in failure.running[:1] if is_refused else ():
        call = call_of(source, node, "register_hook")
        if call is not None and isinstance(call.func, ast.Attribute) and source.has_own_lines(node):
            tensor = source.code(call.func.value)
            question = None if is_frozen else f"is {tensor} to have no gradient?"
            edits = source.indent_under(f"if {tensor}.requires_grad:", [node])
            title = f"if {tensor}.requires_grad, at line {place.line}"
            yield from edit(kinds.ASK_LESS, title, edits, question)


_LINES = {  # for a tensor of which a gradient is wanted
    "optimizer_of_result": (kinds.LEAF, "{0} = {0}.detach().requires_grad_()"),
    "grad_of_result": (kinds.RETAIN_GRADIENT, "{0}.retain_grad()"),
    "input_off": (kinds.REQUIRE_GRADIENT, "{0}.requires_grad_()"),
}


def want_gradient_of_tensor(failure: Failure) -> Iterator[Candidate]:
    """Make a computed tensor a leaf, keep its ``.grad`` or let it require a gradient."""
    kind, form = _LINES.get(failure.cause or "", (kinds.LEAF, ""))
    making = [*failure.at("made_at"), *failure.at("began_at")]
    for name in failure.carried if form else ():
        line = form.format(name)
        statements = [statement for statement in making if name in writes(statement.node)]
        for source, node, place in statements:
            # A leaf that is made in the same statement has no other name, and what is asked to
            # require a gradient is to be one.
            is_leaf = re.search(r"\brequires_grad|\bParameter\(", source.code(node))
            later = map(source.code, source.after(node))
            is_asked = any(code.startswith(f"{name}.requires_grad") for code in later)
            asks = kind == kinds.LEAF and not (is_leaf or is_asked)
            question = f"is {name} to be trained, not what it is made from?" if asks else None
            title = f"{line} after line {place.line}"
            yield from edit(kind, title, source.insert(node, after=[line]), question)
        for source, node, _ in [] if statements else failure.running[:1]:
            scope = source.scope_of(node)
            if name in {argument.arg for argument in source.all(ast.arg, scope)}:
                title = f"{line} before line {scope.body[0].lineno}"
                yield from edit(kind, title, source.first_in(scope.body, [line]))
