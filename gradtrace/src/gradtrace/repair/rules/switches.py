"""Repairs by one word: an option of a call, a mode, a cut that should not be there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradtrace.repair.edits import (
    Changed,
    Changes,
    Source,
    instead,
    keyword,
    method,
    method_called,
    removed,
    to,
    with_keyword,
)
from gradtrace.repair.repairs import (
    CREATE_GRAPH,
    KEEP_GRADIENT,
    MOVE_DETACH,
    REDUCE,
    SWITCH,
    TRAIN_MODE,
    USE_REENTRANT,
)
from gradtrace.repair.rule import Candidate, Rule, Scene, one_file, several_files
from gradtrace.repair.rules.losses import call_of

_FLAGS = re.compile(r"checkpoint|cache")
_OLD = re.compile(r"old|prev|last|target|teacher|ref|frozen|fixed|ema|const|base", re.IGNORECASE)
_CUTS = ("detach", "item", "numpy", "tolist")


def create_graph(scene: Scene) -> Iterator[Candidate]:
    """``create_graph=True`` where a gradient is computed that is used further."""
    # Of a backward it would only be another retain_graph there.
    names = ("grad",) if scene.family in ("freed", "modified") else ("grad", "backward")
    places = [*scene.at("began_at"), *scene.running]
    calls: dict[cst.Call, tuple[Source, int]] = {}
    for one in places:
        found = call_of(one.source, one.node, *names)
        if found is not None:
            calls[found] = one.source, one.place.line
    for one in scene.running:  # a gradient that was computed before in the same function
        inside = one.source.function_of(one.node) or one.source.module
        for call in one.source.all(cst.Call, inside):
            if method_called(call) == "grad":
                calls.setdefault(call, (one.source, one.source.lines(call)[0]))
    for call, (source, line) in calls.items():
        if keyword(call, "create_graph") is not None:
            continue

        def differentiable(updated: cst.CSTNode) -> Changed:
            assert isinstance(updated, cst.Call)
            kept = [
                a for a in updated.args if a.keyword is None or a.keyword.value != "retain_graph"
            ]
            return with_keyword("create_graph", "True")(updated.with_changes(args=kept))

        title = f"create_graph=True at line {line}"
        yield from one_file(CREATE_GRAPH, title, source, {call: differentiable})


def options(scene: Scene) -> Iterator[Candidate]:
    """``use_reentrant=False``, ``find_unused_parameters=True``, ``allow_unused=True``."""
    checkpoints: dict[Source, Changes] = {}
    for source in scene.sources:
        found: Changes = {}
        for call in source.all(cst.Call):
            name = method_called(call)
            if name in ("checkpoint", "checkpoint_sequential"):
                given = keyword(call, "use_reentrant")
                if given is not None and source.code(given) != "False":
                    found[call] = with_keyword("use_reentrant", "False")
            elif name in ("DistributedDataParallel", "DDP"):
                changes: Changes = {call: with_keyword("find_unused_parameters", "True")}
                title = "find_unused_parameters=True"
                yield from one_file(SWITCH, title, source, changes)
        if found:
            checkpoints[source] = found
    yield from several_files(USE_REENTRANT, "checkpoint(…, use_reentrant=False)", checkpoints)
    if scene.family == "unused_input":
        for one in scene.running:
            asked = call_of(one.source, one.node, "grad")
            if asked is not None:
                changes = {asked: with_keyword("allow_unused", "True")}
                yield from one_file(SWITCH, "allow_unused=True", one.source, changes)


def flags(scene: Scene) -> Iterator[Candidate]:
    """The program's own options for checkpoints and caches, switched off."""
    for source in scene.sources:
        for argument in source.all(cst.Arg):
            name = "" if argument.keyword is None else argument.keyword.value
            if _FLAGS.search(name) and source.code(argument.value) == "True":
                title = f"{name}=False at line {source.lines(argument)[0]}"
                yield from one_file(SWITCH, title, source, {argument.value: to("False")})
        for parameter in source.all(cst.Param):
            name, default = parameter.name.value, parameter.default
            if _FLAGS.search(name) and default is not None and source.code(default) == "True":
                title = f"{name}=False at line {source.lines(parameter)[0]}"
                yield from one_file(SWITCH, title, source, {default: to("False")})
        for assign in source.all(cst.Assign):
            name = source.code(assign.targets[0].target)
            if _FLAGS.search(name) and source.code(assign.value) == "True":
                title = f"{name} = False at line {source.lines(assign)[0]}"
                yield from one_file(SWITCH, title, source, {assign.value: to("False")})


def cuts(scene: Scene) -> Iterator[Candidate]:
    """Where the graph was cut: without the cut, or with the cut further in."""
    if scene.family not in ("no_graph", None, "unused_input") and not _is_cut_off(scene):
        return
    question = _question(scene)
    for one in [*scene.at("began_at"), *scene.running]:
        source = one.source
        for call in source.all(cst.Call, one.node):
            if method_called(call) not in _CUTS or not isinstance(call.func, cst.Attribute):
                continue
            inner = call.func.value
            what = source.code(call)
            title = f"without .{method_called(call)}() at line {one.place.line}"
            without: Changes = {call: to(source.code(inner))}
            yield from one_file(KEEP_GRADIENT, title, source, without, question)
            for part in _operands(source, inner):
                name = source.code(part)
                yield from one_file(
                    MOVE_DETACH,
                    f"detach {name} only, in {what}",
                    source,
                    {part: method("detach"), call: _receiver},
                    f"is {name} what is not to be trained?",
                )
        for attribute in source.all(cst.Attribute, one.node):
            if attribute.attr.value == "data":
                code = source.code(attribute.value)
                title = f"{code} in place of {code}.data"
                yield from one_file(KEEP_GRADIENT, title, source, {attribute: to(code)}, question)
        yield from _stacked(source, one.node)


def _is_cut_off(scene: Scene) -> bool:
    """Whether what an optimizer holds is cut off, and nothing raises."""
    return scene.diagnosis.get("cause") == "never_trained"


def _question(scene: Scene) -> str | None:
    """It may be meant not to be trained, though an optimizer holds it."""
    return f"is {' and '.join(scene.carried)} to be trained?" if _is_cut_off(scene) else None


def _receiver(updated: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(updated, cst.Call) and isinstance(updated.func, cst.Attribute)
    return updated.func.value


def _operands(source: Source, expression: cst.CSTNode) -> list[cst.Name]:
    """The variables that an expression computes with."""
    found = []
    for name in source.all(cst.Name, expression):
        parent = next(source.parents(name))
        if isinstance(parent, cst.BinaryOperation | cst.UnaryOperation) or (
            isinstance(parent, cst.Arg) and parent.keyword is not name
        ):
            found.append(name)
    found.sort(key=lambda name: not _OLD.search(name.value))
    return found[:4]


def _stacked(source: Source, node: cst.CSTNode) -> Iterator[Candidate]:
    """``torch.tensor([a, b])``, which copies numbers, as ``torch.stack``, which keeps the graph."""
    for call in source.all(cst.Call, node):
        if source.code(call.func) not in ("torch.tensor", "torch.FloatTensor", "torch.Tensor"):
            continue
        if not call.args:
            continue
        value = call.args[0].value
        inside = source.code(value)
        if isinstance(value, cst.ListComp | cst.List | cst.Tuple | cst.Name):
            new = f"torch.stack([torch.as_tensor(value) for value in {inside}])"
            if isinstance(value, cst.Name):
                yield from one_file(
                    KEEP_GRADIENT, f"{inside}, not a copy", source, {call: to(inside)}
                )
            title = f"torch.stack in place of {source.code(call.func)}, which makes new numbers"
            yield from one_file(KEEP_GRADIENT, title, source, {call: to(new)})


def regions(scene: Scene) -> Iterator[Candidate]:
    """Without the ``torch.no_grad()`` around it."""
    if scene.family != "no_graph" and not _is_cut_off(scene):
        return
    question = _question(scene)
    for one in [*scene.at("began_at"), *scene.running]:
        source = one.source
        for block in source.around(one.node, cst.With):
            if "no_grad" not in source.code(block.items[0].item) or len(block.items) != 1:
                continue

            title = f"without torch.no_grad() at line {source.lines(block)[0]}"
            yield from one_file(KEEP_GRADIENT, title, source, {block: _opened}, question)
        function = source.function_of(one.node)
        for decorator in function.decorators if function is not None else ():
            if "no_grad" in source.code(decorator) or "inference_mode" in source.code(decorator):
                title = f"without {source.code(decorator).strip()}"
                yield from one_file(KEEP_GRADIENT, title, source, {decorator: removed}, question)


def for_the_block_only(scene: Scene) -> Iterator[Candidate]:
    """``torch.set_grad_enabled(False)`` as a ``with torch.no_grad():`` around what follows."""
    if scene.family != "no_graph":
        return
    for one in scene.at("began_at"):
        source, suite = one.source, one.source.suite_of(one.node)
        switched = call_of(source, one.node, "set_grad_enabled")
        line = source.anchor(one.node)
        if switched is None or line is one.node or not isinstance(suite, cst.IndentedBlock):
            continue
        rest = suite.body[suite.body.index(line) + 1 :]
        item = cst.WithItem(cst.parse_expression("torch.no_grad()"))
        block = cst.With([item], cst.IndentedBlock(rest))
        changes: Changes = dict.fromkeys(rest, removed)
        changes[line] = instead(block)
        title = f"with torch.no_grad(): from line {one.place.line} to the end of its block"
        yield from one_file(KEEP_GRADIENT, title, source, changes)


def all_regions(scene: Scene) -> Iterator[Candidate]:
    """Without any ``torch.no_grad()`` in the file: where there are several, one is not enough."""
    if scene.family != "no_graph":
        return
    for source in {one.source: None for one in [*scene.at("began_at"), *scene.running]}:
        changes: Changes = {}
        for block in source.all(cst.With):
            if len(block.items) == 1 and "no_grad" in source.code(block.items[0].item):
                changes[block] = _opened
        for decorator in source.all(cst.Decorator):
            if "no_grad" in source.code(decorator):
                changes[decorator] = removed
        if len(changes) > 1:
            yield from one_file(KEEP_GRADIENT, "without any torch.no_grad()", source, changes)


def _opened(updated: cst.CSTNode) -> Changed:
    assert isinstance(updated, cst.With)
    if isinstance(updated.body, cst.IndentedBlock):
        return cst.FlattenSentinel(updated.body.body)
    return updated


def train_mode(scene: Scene) -> Iterator[Candidate]:
    """An RNN's forward pass in train mode, or without cuDNN."""
    if scene.diagnosis.get("cause") not in ("cudnn_rnn_eval", "double_backward_unsupported"):
        return
    for source in scene.sources:
        for call in source.all(cst.Call):
            if method_called(call) != "eval" or not isinstance(call.func, cst.Attribute):
                continue
            line = source.lines(call)[0]
            changes: Changes = {call: to(f"{source.code(call.func.value)}.train()")}
            yield from one_file(TRAIN_MODE, f".train() at line {line}", source, changes)


def reductions(scene: Scene) -> Iterator[Candidate]:
    """``loss.mean().backward()``, ``loss.sum().backward()``."""
    if scene.family != "not_scalar":
        return
    for one in scene.running[:1]:
        call = call_of(one.source, one.node, "backward")
        if call is None or not isinstance(call.func, cst.Attribute):
            continue
        for name in ("mean", "sum"):
            title = f"{one.source.code(call.func.value)}.{name}().backward()"
            changes: Changes = {call.func.value: method(name)}
            yield from one_file(REDUCE, title, one.source, changes)


RULES: tuple[Rule, ...] = (
    create_graph,
    options,
    flags,
    cuts,
    regions,
    for_the_block_only,
    all_regions,
    train_mode,
    reductions,
)
