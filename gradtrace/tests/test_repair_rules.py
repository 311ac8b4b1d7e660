"""The rules of repair: which candidates they list for a failure, and in which order."""

import ast
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from gradtrace.repair import kinds
from gradtrace.repair.edits import Source
from gradtrace.repair.rule import Candidate
from gradtrace.repair.rules import candidates
from gradtrace.repair.run.observations import (
    GraphVariable,
    ObservedCall,
    OptimizerInfo,
    ProgramLine,
    ProgramRun,
)

GAN = """\
for real in data:
    fake = G(noise)
    d_loss = D(real).mean() - D(fake).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = D(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
"""
ACCUMULATED = """\
loss = 0
loss += f(model(x))
out = model(y)
loss += f(out)
z = model(y)
loss = loss + f(z)
loss.backward()
opt.first_step()
loss.backward()
"""
UPDATED = """\
class Sign(torch.optim.Optimizer):
    def step(self):
        for p in self.parameters:
            p.add_(p.grad.sign())

def average(p, q):
    with torch.no_grad():
        p.mul_(0.9)
    q.mul_(2)
    return q
"""
ADVANTAGE = """\
values, old = critic(states), actor(states)
returns = gae(rewards, values)
advantage = returns - critic(states)
for epoch in range(4):
    loss = (actor(states) / old * advantage).mean()
    loss.backward()
"""
ROLLOUT = """\
rewards, log_probs = [], []
for episode in range(3):
    for state in rollout():
        log_probs.append(policy(state))
        rewards.append(reward(state))
    loss = -sum(r * p for r, p in zip(rewards, log_probs))
    loss.backward()
"""


CELL_ABOVE = """\
logits = x @ weight
loss = logits.exp().mean()
for step in range(3):
    loss.backward()
"""
CLOSURE = """\
def fit(pose):
    projected = points * pose.exp()
    residual = projected.pow(2).mean()
    def closure():
        residual.backward()
        return residual
    optimizer.step(closure)
"""
PROMPT = """\
def optimize(cond):
    loss = (latent - cond).pow(2).mean()
    loss.backward()
cond = encode(tokens)
for step in range(3):
    optimize(cond)
"""
CACHED_CONTEXT = """\
with parametrize.cached():
    for batch in loader:
        loss = model(batch)
        loss.backward()
"""
CRITIC_LOOP = """\
for epoch in range(3):
    fake = generator(noise)
    for _ in range(2):
        loss = critic(fake).mean() - critic(real).mean()
        loss.backward()
"""
STATES = """\
states = {"h": zeros, "c": [zeros, zeros]}
for x in data:
    states["h"], states["c"] = cell(x, states)
    loss = states["h"].mean()
    loss.backward()
"""
GRADIENTS = """\
def norms(loss, parameters):
    return [g.norm() for g in torch.autograd.grad(loss, parameters)]
"""


@pytest.fixture
def list_candidates(tmp_path):
    def list_candidates(
        text: str, *lines: int, variables=(), optimizers=1, consumers=(), earlier=(), **diagnosis
    ) -> list[Candidate]:
        path = tmp_path / "train.py"
        path.write_text(text, encoding="utf-8")
        raised_at = tuple(ProgramLine(str(path), line, "<module>") for line in lines)
        for key in ("began_at", "made_at", "raised_at", "stored_at"):
            if isinstance(diagnosis.get(key), int):
                diagnosis[key] = {"file": str(path), "line": diagnosis[key]}
        error = diagnosis.pop("error", "RuntimeError")
        run = ProgramRun("raised", error, raised_at, files=[*map(str, tmp_path.iterdir())])
        for name, kind, *line in variables:
            frame = ProgramLine(str(path), line[0], "<module>") if line else raised_at[0]
            run.graph_variables.append(GraphVariable(name, kind, frame, is_freed=True))
        calls = [*dict(earlier).items(), (lines[0] if lines else 0, consumers)]
        for line, used in calls:
            part = frozenset({9} if line in dict(earlier) else ())
            places = tuple((ProgramLine(str(path), place, "<module>"), part) for place in used)
            site = (ProgramLine(str(path), line, "<module>"),)
            none, number = frozenset(), len(run.events)
            call = ObservedCall(number, site, "", (), Counter(), 0, 0, none, none, none, places)
            run.events.append(call)
        run.calls[-1].failed = True
        run.optimizers = [OptimizerInfo(f"optimizer{i}", ()) for i in range(optimizers)]
        run.diagnosis = {"family": "freed", "cause": "shared_subgraph", **diagnosis}
        failures: list[str] = []
        found = candidates(run, {}, failures.append)
        assert failures == []
        return found

    return list_candidates


def test_the_textbook_idiom_comes_first(list_candidates):
    variables = [("fake", "tensor")]
    listed = list_candidates(GAN, 9, variables=variables, began_at=5, consumers=(3, 7))
    kinds = [one.repair.name for one in listed]
    order = ["add_losses", "detach_shared", "forward_again", "own_inputs", "retain_graph"]
    present = [kind for kind in dict.fromkeys(kinds) if kind in order]
    assert present == [kind for kind in order if kind in kinds]
    assert {"detach_shared", "own_inputs", "retain_graph"} <= set(kinds)


def test_a_loss_that_is_also_returned_is_not_computed_twice(list_candidates):
    text = "def f(z):\n    loss = D(z).mean()\n    loss.backward()\n    return loss\n"
    listed = list_candidates(text, 3, variables=[("z", "tensor")], consumers=(2,))
    assert not any("again before" in one.title for one in listed)


@pytest.mark.parametrize("key", ["weight", "net.weight", "net.0.weight"])
def test_entries_of_an_attribute_are_detached_whatever_their_keys_are(list_candidates, key):
    text = "for x in batches:\n    loss = model(x)\n    loss.backward()\n"
    listed = list_candidates(text, 3, variables=[(f"ema.shadow['{key}']", "dict")])
    line = "ema.shadow = {key: tensor.detach() for key, tensor in ema.shadow.items()}"
    assert f"    loss.backward()\n    {line}\n" in edited(listed, line)


def test_of_one_kind_the_smallest_edit_comes_first(list_candidates):
    again = [
        one.title for one in list_candidates(GAN, 9, began_at=5) if ", before line 9" in one.title
    ]
    assert len(again) > 1
    assert again == sorted(again, key=lambda title: title.count(";"))


def test_a_sum_is_repeated_from_its_beginning_only(list_candidates):
    for one in list_candidates(ACCUMULATED, 9, began_at=7):
        (text,) = one.edits.values()
        for term in ("f(model(x))", "f(out)", "f(z)"):
            assert text.count(term) <= text.count("loss = 0"), one.title


def test_a_tensor_that_is_updated_in_place_is_not_assigned_again(list_candidates):
    listed = list_candidates(UPDATED, 4, 8, 9, family="modified", cause="inplace_on_saved")
    text = "\n".join(text for one in listed for text in one.edits.values())
    assert "q = q.mul(2)" in text
    assert "p = p" not in text


def test_two_variables_of_the_advice_are_detached_together(list_candidates):
    variables = [("advantage", "tensor"), ("returns", "tensor")]
    listed = list_candidates(
        ADVANTAGE, 6, carried_by="advantage, returns", made_at=2, variables=variables
    )
    both = next(one for one in listed if one.title == "detach advantage and returns")
    assert both.question == "is the loss to use advantage, returns as a constant?"
    (text,) = both.edits.values()
    assert "advantage = advantage.detach()\nreturns = returns.detach()\nfor" in text


def test_lists_that_are_read_together_are_cleared_together(list_candidates):
    listed = list_candidates(ROLLOUT, 7, variables=[("log_probs[0]", "list")])
    (clear,) = [one for one in listed if one.repair.name == "clear"]
    assert clear.title == "log_probs.clear(); rewards.clear()"


def edited(listed: list[Candidate], title: str) -> str:
    (text,) = next(one.edits.values() for one in listed if one.title == title)
    return text


def test_a_cached_value_is_computed_again_with_its_operands(list_candidates):
    variables = [("logits", "tensor"), ("loss", "tensor")]
    listed = list_candidates(CELL_ABOVE, 4, variables=variables, made_at=2)
    assert edited(listed, "compute loss inside the loop at line 3") == (
        "for step in range(3):\n    logits = x @ weight\n    loss = logits.exp().mean()\n"
        "    loss.backward()\n"
    )
    variables = [("residual", "tensor"), ("projected", "tensor", 7)]
    listed = list_candidates(CLOSURE, 5, 7, variables=variables, made_at=3)
    assert (
        "    def closure():\n        projected = points * pose.exp()\n"
        "        residual = projected.pow(2).mean()\n        residual.backward()\n"
    ) in edited(listed, "compute residual where it is used")


def test_a_value_of_an_earlier_loop_is_computed_again_in_a_later_one(list_candidates):
    text = (
        "for x in data:\n    for j in range(2):\n        fake = netG(x)\n"
        "    for j in range(2):\n        netD(fake).backward()\n"
    )
    facts = {"family": "modified", "cause": "optimizer_step_between_backwards", "made_at": 3}
    listed = list_candidates(text, 5, variables=[("fake", "tensor")], **facts)
    again = edited(listed, "compute fake inside the loop at line 4")
    assert again == text.replace("        netD", "        fake = netG(x)\n        netD")


def test_a_tensor_that_a_loop_fills_is_detached_and_not_made_again(list_candidates):
    text = (
        "out = torch.empty(9)\nfor i in range(9):\n    out[i] = net(x)\n"
        "    out[i].backward()\nprint(out)\n"
    )
    listed = list_candidates(text, 4, variables=[("out", "tensor")], made_at=3, stored_at=1)
    assert "out = out.detach()" in {one.title for one in listed}
    assert "compute out inside the loop at line 2" not in {one.title for one in listed}


def test_an_argument_is_detached_where_it_is_read_or_passed(list_candidates):
    listed = list_candidates(PROMPT, 3, 6, variables=[("cond", "tensor", 6)], consumers=(2, 6))
    assert "(latent - cond.detach())" in edited(listed, "detach cond at line 2")
    assert "optimize(cond.detach())" in edited(listed, "detach cond at line 6")


def test_a_tensor_of_the_outer_loop_is_detached_where_a_loss_reads_it(list_candidates):
    variables = [("fake", "tensor"), ("loss", "tensor")]
    listed = list_candidates(CRITIC_LOOP, 5, variables=variables, optimizers=2, consumers=(4,))
    assert "critic(fake.detach()).mean() - critic(real)" in edited(listed, "detach fake at line 4")
    assert "detach loss at line 4" not in {one.title for one in listed}


def test_a_lambda_computes_what_it_reads(list_candidates):
    text = "def train():\n    x = batch\n    out, y = net(x), f(x)\n"
    text += "    opt.step(lambda: loss(out, x))\ntrain()\n"
    listed = list_candidates(text, 4, 5)
    new = edited(listed, "lambda: loss(net(x), x) at line 4")
    assert "    out, y = net(x), f(x)\n    opt.step(lambda: loss(net(x), x))\n" in new
    listed = list_candidates(text.replace("out, y", "out").replace(", f(x)", ""), 4, 5)
    new = edited(listed, "lambda: loss(net(x), x) at line 4")
    assert new.startswith("def train():\n    x = batch\n    opt.step(lambda: loss(net(x), x))\n")


def test_a_context_around_a_loop_is_opened_in_each_iteration(list_candidates):
    listed = list_candidates(CACHED_CONTEXT, 4)
    assert edited(listed, "parametrize.cached() inside the loop at line 2").startswith(
        "for batch in loader:\n    with parametrize.cached():\n        loss = model(batch)\n"
    )


def test_a_context_around_two_loops_is_opened_in_the_inner_one(list_candidates):
    program = "with autocast():\n    for epoch in range(2):\n        for batch in loader:\n"
    program += "            loss = model(batch)\n            loss.backward()\n"
    listed = list_candidates(program, 5)
    assert edited(listed, "autocast() inside the loop at line 3").startswith(
        "for epoch in range(2):\n    for batch in loader:\n        with autocast():\n"
    )


def test_a_list_that_is_filled_is_not_kept_with_detached_entries(list_candidates):
    listed = list_candidates(
        ROLLOUT.replace("log_probs", "self.log_probs"), 7, variables=[("self.log_probs[0]", "list")]
    )
    assert "detach_state" not in {one.repair.name for one in listed}


def test_entries_of_a_dict_are_detached_in_each_iteration(list_candidates):
    variables = [("states['h']", "dict"), ("states['c'][0]", "nested")]
    listed = list_candidates(STATES, 5, variables=variables)
    lines = (
        "    states['h'] = states['h'].detach()\n"
        "    states['c'] = tuple(tensor.detach() for tensor in states['c'])\n"
    )
    texts = [text for one in listed for text in one.edits.values() if lines in text]
    assert sorted(text.index(lines) for text in texts) == [
        STATES.index("    states"),
        len(STATES),
    ]  # at the beginning, or after backward


def test_a_gradient_that_may_be_missing_is_none_or_zeros(list_candidates):
    listed = list_candidates(GRADIENTS, 2, family="unused_input", cause="unused_input")
    assert "grad(loss, parameters, allow_unused=True)]" in edited(listed, "allow_unused=True")
    assert "grad(loss, parameters, materialize_grads=True)]" in edited(
        listed, "materialize_grads=True"
    )


@pytest.mark.parametrize(
    "line", ["y = nn.functional.relu(x) * 0", "y = -1 * x", "y = (yield x)", "y = torch.exp(x)"]
)
def test_every_candidate_compiles_and_calls_tensors_only(list_candidates, line):
    text = f"import torch\nfrom torch import nn\n\ndef f(x):\n    {line}\n    y.sum().backward()\n"
    listed = list_candidates(text, 6, made_at=5, family="modified", cause="inplace_on_saved")
    for one in listed:
        (edited,) = one.edits.values()
        compile(edited, "train.py", "exec")
        for wrong in ("nn.clone()", "torch.clone()", "functional.clone()", "0.clone", "1.clone"):
            assert wrong not in edited, one.title


def test_the_receiver_of_a_method_is_cloned_where_it_is_the_changed_tensor(list_candidates):
    text = (
        "import torch\ny = torch.cat([q, self.queue.detach()])\nself.queue[0] = q\ny.backward()\n"
    )
    facts = {"family": "modified", "cause": "inplace_on_saved", "carried_by": "model.queue"}
    listed = list_candidates(text, 4, made_at=2, **facts)
    assert "self.queue.clone().detach()" in edited(listed, "self.queue.clone() at line 2")


def test_an_entry_of_a_tensor_keeps_its_index_out_of_place(list_candidates):
    text = "h = w.exp()\nh[0] += a\nh.sum().backward()\n"
    listed = list_candidates(text, 3, began_at=2, family="modified", cause="inplace_on_saved")
    assert "\nh[0] = h[0] + a\n" in edited(listed, "h[0] = h[0] + a, at line 2")


@pytest.mark.parametrize("function", ["F.relu_(h, a)", "torch.nn.init.zeros_(h)", "torch.sin_(h)"])
def test_an_in_place_function_changes_its_first_argument(list_candidates, function):
    text = f"h = w.exp()\n{function}\nh.sum().backward()\n"
    listed = list_candidates(text, 3, began_at=2, family="modified", cause="inplace_on_saved")
    line = f"h = {function.replace('_(', '(')}"
    assert f"\n{line}\n" in edited(listed, f"{line}, at line 2")
    assert f"h = h.clone()\n{function}\n" in edited(listed, "h = h.clone() before line 2")


def test_a_list_is_not_cleared_in_the_loop_over_it(list_candidates):
    loop = "for loss, opt in zip(losses, opts):\n    loss.backward()\n    opt.step()\n"
    listed = list_candidates(loop, 2, variables=[("losses[0]", "list")])
    assert not [one for one in listed if "clear()" in one.title]


def test_a_forward_pass_is_moved_into_the_closure_that_alone_reads_it(list_candidates):
    text = (
        "pred = model(x)\ndef closure():\n    loss = f(pred)\n    loss.backward()\n"
        "    return loss\noptimizer.step(closure)\n"
    )
    moved = text.replace("pred = model(x)\n", "").replace("():\n", "():\n    pred = model(x)\n")
    for end, expected in (
        ("", moved),
        ("if pred.sum() > 0: stop()\n", "pred = model(x)\n" + moved),
    ):
        listed = list_candidates(text + end, 4, 6, variables=[("pred", "tensor", 6)])
        assert edited(listed, "compute pred where it is used") == expected + end


def test_what_two_losses_use_is_detached_in_one_of_them(list_candidates):
    text = (
        "fake = G(x)\nd_loss = D(fake)\nd_loss.backward()\nopt_d.step()\n"
        "g_loss = f(fake)\ng_loss.backward()\n"
    )
    variables, earlier = [("fake", "tensor")], {3: (2,)}
    listed = list_candidates(
        text, 6, variables=variables, optimizers=2, consumers=(5,), earlier=earlier
    )
    titles = {one.title for one in listed}
    assert {"detach fake at line 2", "detach fake at line 5"} <= titles


def test_a_part_that_a_loss_uses_on_two_lines_is_detached_on_both(list_candidates):
    text = "a = r * adv\nb = clamp(r) * adv\nloss = min(a, b)\nloss.backward()\n"
    listed = list_candidates(text, 4, variables=[("adv", "tensor")], consumers=(1, 2))
    assert edited(listed, "detach adv at line 1 and 2").count("* adv.detach()") == 2


def test_a_total_that_contains_a_loss_is_differentiated_alone(list_candidates):
    text = "a = f(x)\ntotal = a + g(x)\na.backward()\ntotal.backward()\n"
    assert edited(list_candidates(text, 4), "total.backward() alone") == text.replace(
        "a.backward()\n", ""
    )
    assert not any("alone" in one.title for one in list_candidates(text.replace("a +", "c +"), 4))


@pytest.mark.parametrize(
    ("returned", "repaired"),
    [("g", {"g, None", "None, g"}), ("(g, h)", {"g, h, None", "None, g, h"})],
)
def test_gradients_that_a_function_does_not_return_are_none(list_candidates, returned, repaired):
    text = (
        "class Sign(Function):\n    @staticmethod\n    def backward(ctx, g, h=None):\n"
        f"        return {returned}\n\nloss.backward()\n"
    )
    count = returned.count(",") + 1
    number = f"number of gradients (expected {count + 1}, got {count})"
    error = f"function SignBackward returned an incorrect {number}"
    listed = list_candidates(text, 6, error=error, family="unsupported", began_at=4)
    titles = {one.title for one in listed if one.repair.name == "return_none"}
    assert titles == {f"return {code}" for code in repaired}


@pytest.mark.parametrize(("second", "is_asked"), [("grad_weight", False), ("result", True)])
def test_gradients_that_a_function_only_computes_are_returned(list_candidates, second, is_asked):
    text = (
        "class Scale(Function):\n    @staticmethod\n    def forward(ctx, x, weight):\n"
        "        return x * weight\n\n    @staticmethod\n    def backward(ctx, g):\n"
        f"        grad_x = g * 2\n        grad_x = grad_x + 1\n        {second} = g.sum()\n"
        "\nloss.backward()\n"
    )
    error = "function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)"
    listed = list_candidates(text, 12, error=error, family="unsupported", began_at=10)
    (candidate,) = (one for one in listed if one.repair.name == "return_order")
    assert f"        return grad_x, {second}\n" in next(iter(candidate.edits.values()))
    assert bool(candidate.question) == is_asked


@pytest.mark.parametrize(
    ("text", "cause", "line", "expected"),
    [
        (
            "self.a.data = f(w)\nself.b.data = g(w)\n", "never_trained", 1,
            "new_a = f(w)\ndel self.a\nself.a = new_a\nnew_b = g(w)\ndel self.b\nself.b = new_b\n",
        ),
        ("y = f(h, scale=old).detach()\n", "never_trained", 1, "y = f(h, scale=old.detach())\n"),
        (
            "def update(value):\n    total.x = total.x + value\n\nupdate(loss)\n",
            "graph_grows", 2, "update(loss.item())\n",
        ),
        ("opt.zero_grad()\na.backward()\nopt.step()\nopt.zero_grad()\nb.backward()\nopt_d.step()\n",
         "gradient_leaks", 5, "opt_d.zero_grad()\nb.backward()"),
        ("self.m = [f(i) for i in x]\n", "in_no_optimizer", 1, "= torch.nn.ModuleList([f(i)"),
        ("self.m = {}\n", "in_no_optimizer", 1, "self.m = torch.nn.ModuleDict({})\n"),
    ],
)  # fmt: skip
def test_a_silent_failure_has_candidates(list_candidates, text, cause, line, expected):
    listed = list_candidates(
        text, line, family="silent", cause=cause, began_at=line, carried_by="net.m[0].weight"
    )
    assert any(expected in text for one in listed for text in one.edits.values())


def test_a_term_that_is_also_stored_stays_a_number(list_candidates):
    text = "c = g(x).item()\n{}\nloss = f(x) + c\nloss.backward()\n"
    places = {"family": "silent", "cause": "constant_term", "began_at": 1, "raised_at": 4}
    for line, is_offered in (("pass", True), ("history.append(c)", False)):
        listed = list_candidates(text.format(line), 4, **places)
        assert ("without .item() at line 1" in {c.title for c in listed}) is is_offered


def test_all_gradients_that_a_loss_compares_get_a_graph(list_candidates):
    text = "a = grad(f, w)\nb = grad(g, w)\n(a - b).backward()\n"
    missing = {"family": "silent", "cause": "create_graph_missing", "began_at": 1}
    kind = "create_graph"
    listed = [one.title for one in list_candidates(text, 3, **missing) if one.repair.name == kind]
    assert {f"create_graph=True at line {n}" for n in ("1", "1 and 2", "2")} <= set(listed)


def test_no_straight_through_estimator_is_removed(list_candidates):
    text = "q = x + (y - x).detach()\nloss(q).backward()\n"
    listed = list_candidates(text, 2, family="silent", cause="never_trained", began_at=1)
    assert {"keep_gradient", "move_detach"}.isdisjoint(one.repair.name for one in listed)


RESET = """\
class Cell(nn.Module):
    def __init__(self, size):
        self.h, self.size = None, size
        self.w = torch.zeros(self.number)
        self.register_buffer("cache", None, persistent=False)
for epoch in range(3):
    for x in data:
        loss = loss + net.cell(x)
    loss.backward()
"""


@pytest.mark.parametrize(
    ("name", "facts", "line"),
    [
        ("h", ["trained_only_there"], "net.cell.h = None"),
        ("w", ["trained_only_there"], "net.cell.w = torch.zeros(net.cell.number)"),
        ("cache", ["trained_only_there"], "net.cell.cache = None"),
        ("h", [], None),  # to detach it is enough
    ],
)
def test_a_state_is_reset_to_the_value_that_init_gives_it(list_candidates, name, facts, line):
    listed = list_candidates(RESET, 9, variables=[(f"net.cell.{name}", "tensor")], facts=facts)
    resets = [one for one in listed if one.repair.name == "reset_state"]
    title = f"{line} at the beginning of each iteration"
    assert [one.title for one in resets] == ([] if line is None else [title])
    if line is not None:
        assert f"in range(3):\n    {line}\n    for x" in edited(listed, title)


@pytest.mark.parametrize(
    ("given", "other", "expected"),
    [
        ("x", "y, w", {"net(x, w)"}),
        ("x", "y, params=w", {"net(x, params=w)"}),
        ("x, train=True", "y, params=w, train=False", {"net(x, params=w, train=True)"}),
        ("x", "y, True", set()),  # a constant connects nothing
        ("x, params=v", "y, params=w", set()),
        ("x, params=None", "y, params=w", {"net(x, params=w)"}),
        ("x, params=None", "y, w", {"net(x, w, params=None)", "net(x, params=w)"}),
    ],
)
def test_a_call_gets_the_argument_that_another_call_has(list_candidates, given, other, expected):
    text = f"loss = net({given})\ng = grad(loss, w)\nouter = net({other})\n"
    listed = list_candidates(text, 2, family="unused_input", cause="unused_input")
    titles = {one.title for one in listed if one.repair.name == "pass_argument"}
    assert titles == {f"{code} at line 1" for code in expected}


def test_attention_is_computed_by_parts_where_its_second_derivative_is_missing(list_candidates):
    error = "RuntimeError: derivative for aten::_scaled_dot_product_flash is not implemented"
    with_ = "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):\n    "
    text = (
        "y = F.scaled_dot_product_attention(q, k, v)\ngp = penalty(y)\n"
        "loss = gp + fake\nloss.backward()\n"
    )
    listed = list_candidates(text, 4, error=error, family="unsupported")
    assert edited(listed, "SDPBackend.MATH at line 1").startswith(f"{with_}y = F.scaled")
    text = text.replace("F.scaled_dot_product_attention", "encoder")  # in a library
    listed = list_candidates(text, 4, error=error, family="unsupported")
    assert f"{with_}gp = penalty(y)" in edited(listed, "SDPBackend.MATH at line 2")
    listed = list_candidates(text, 4, family="unsupported")
    assert not any("MATH" in one.title for one in listed)


def test_numbers_in_nested_lists_become_tensors_in_stacks(list_candidates):
    text = (
        "d = torch.tensor([[(a - b).norm().item() for b in y] for a in x])\n"
        "loss = d.mean()\nloss.requires_grad = True\nloss.backward()\n"
    )
    listed = list_candidates(text, 4, family="silent", cause="never_trained", began_at=1)
    title = "torch.stack in place of torch.tensor, which makes new numbers"
    stacked = "d = torch.stack([torch.stack([(a - b).norm() for b in y]) for a in x])\n"
    assert edited(listed, title).startswith(f"{stacked}loss = d.mean()\nloss.req")
    both = edited(listed, f"{title}; without loss.requires_grad = True")
    assert both == f"{stacked}loss = d.mean()\nloss.backward()\n"


def test_what_stays_detached_beside_a_stack_is_asked(list_candidates):
    text = (
        "def loss_of(probs, entropies):\n    p = torch.tensor([x.item() for x in probs])\n"
        "    return p.mean() - entropies.mean().detach()\n\nloss.backward()\n"
    )
    for program, question in (
        (text, "is entropies.mean() not to be trained?"),
        (text.replace(".detach()", ""), None),
    ):
        listed = list_candidates(program, 5, family="silent", cause="never_trained", began_at=2)
        stacks = [one for one in listed if "torch.stack" in one.title]
        assert [one.question for one in stacks] == [question]


@pytest.mark.parametrize("line", [1, 2])
def test_a_block_without_gradients_is_removed_or_ends_earlier(list_candidates, line):
    text = (
        "with torch.no_grad():\n    target = teacher(x)\n    y = student(x)\n"
        "loss = f(y, target)\nloss.backward()\n"
    )
    facts = {"family": "no_graph", "cause": "no_grad_region", "began_at": line}
    listed = list_candidates(text, 5, **facts)
    removed = edited(listed, "without torch.no_grad() at line 1")
    assert removed.startswith("target = teacher(x)\ny = student(x)\nloss")
    ended = edited(listed, "line 3 and those after it outside of torch.no_grad()")
    assert ended.startswith("with torch.no_grad():\n    target = teacher(x)\ny = student(x)\nloss")


@pytest.mark.parametrize(
    ("head", "left"),
    [
        ("torch.no_grad(), autocast()", "autocast()"),
        ("autocast(), torch.no_grad()", "autocast()"),
        ("(autocast(), torch.no_grad(), f())", "(autocast(), f())"),
    ],
)
def test_a_region_without_gradients_leaves_the_other_contexts(list_candidates, head, left):
    text = "with {}:\n    y = net(x)\ny.sum().backward()\n"
    facts = {"family": "no_graph", "cause": "no_grad_region", "began_at": 1}
    listed = list_candidates(text.format(head), 3, **facts)
    title = "without torch.no_grad() at line 1"
    assert edited(listed, title) == text.format(left)
    assert all(one.question for one in listed if one.title == title)  # the block may have targets


def test_a_field_of_a_named_tuple_is_detached_by_replacement(list_candidates):
    text = "for x in xs:\n    s = State(cell(x, s.h), 1)\n    s.h.sum().backward()\n"
    facts = {"family": "freed", "cause": "hidden_state_carried"}
    listed = list_candidates(text, 3, variables=[("s.h", "namedtuple")], consumers=[2], **facts)
    line = "s = s._replace(h=s.h.detach())"
    assert edited(listed, line) == f"{text}    {line}\n"
    at_use = next(one for one in listed if one.title == "detach s.h at line 2")
    assert at_use.repair == kinds.DETACH_STATE


def test_parameters_that_no_loss_reaches_are_connected_where_they_are_read(list_candidates):
    """The diagnosis names another line, which prints the parameter."""
    text = (
        "def forward(self, x):\n    self.base.weight.data = self.w0 + self.lora_B @ self.lora_A\n"
        "    return self.base(x * self.gate.detach())\n\nprint(net.lora_B.norm().item())\n"
    )
    for name, title, expected in (
        ("lora_B", "the tensors themselves in place of parameters with their values",
         "new_weight = self.w0 + self.lora_B @ self.lora_A\n    del self.base.weight\n"),
        ("gate", "without .detach() at line 3", "self.base(x * self.gate)"),
    ):  # fmt: skip
        facts = {"family": "silent", "cause": "never_trained", "carried_by": f"net.{name}"}
        assert expected in edited(list_candidates(text, 5, began_at=5, **facts), title)


def test_a_decorator_that_the_diagnosis_names_is_removed(list_candidates):
    text = "@torch.no_grad()\ndef sample(x):\n    return net(x)\n\nsample(x).backward()\n"
    facts = {"family": "no_graph", "cause": "no_grad_region", "began_at": 1}
    listed = list_candidates(text, 5, **facts)
    assert edited(listed, "without @torch.no_grad()") == text.partition("\n")[2]


NORMALIZE = """\
def normalize(batch):
    for img in batch:
        for t, m in zip(img, mean):
            t.sub_(m)
    return batch
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            NORMALIZE,
            "    batch = torch.stack([torch.stack([t.sub(m) for t, m in zip(img, mean)]) "
            "for img in batch])\n    return batch\n",
        ),
        (
            NORMALIZE.replace("t, m in zip(img, mean)", "i, t in enumerate(img)").replace(
                "t.sub_(m)", "t -= i"
            ),
            "    batch = torch.stack([torch.stack([t - i for i, t in enumerate(img)]) "
            "for img in batch])\n    return batch\n",
        ),
        (NORMALIZE.replace("t.sub_(m)", "t.sub_(m); n += 1"), None),
        (NORMALIZE.replace("t, m in zip(img, mean)", "t, m in pairs(img)"), None),
    ],
)
def test_new_parts_of_a_tensor_are_stacked_and_used(list_candidates, text, expected):
    """A new value of the loop's variable alone, or a clone of it, would be lost."""
    facts = {"family": "unsupported", "cause": "view_changed_inplace"}
    listed = list_candidates(f"{text}normalize(x)\n", 4, 6, **facts)
    texts = [text for one in listed for text in one.edits.values()]
    assert not any("t = t" in text for text in texts)
    stacked = [text for text in texts if "torch.stack" in text]
    assert [text.partition("batch):\n")[2].partition("normalize(x)")[0] for text in stacked] == (
        [] if expected is None else [expected]
    )


def test_a_view_is_detached_out_of_place(list_candidates):
    facts = {"family": "unsupported", "cause": "view_detached_inplace"}
    for call, line in (
        ("h[0].detach_()", "h = h.detach()"),
        ("self.h.detach_()", "self.h = self.h.detach()"),
    ):
        listed = list_candidates(f"h = f(x)\n{call}\n", 2, **facts)
        assert line in {one.title for one in listed}


def test_gradients_that_are_never_cleared_are_cleared(list_candidates):
    text = "opt.zero_grad()\nfor x in data:\n    loss.backward()\n    opt.step()\n"
    listed = list_candidates(text, 3, family="silent", cause="gradients_not_cleared")
    cleared = edited(listed, "opt.zero_grad() before line 3")
    assert cleared == text.replace("    loss", "    opt.zero_grad()\n    loss")


def test_entries_of_what_is_stored_are_detached(list_candidates):
    """In a method the container has another name than where it is found."""
    text = (
        "def put(self, e):\n    self.kept.append({k: f(v) for k, v in e})\n\nput(buffer, episode)\n"
    )
    facts = {"family": "silent", "cause": "graph_grows", "carried_by": "buffer.kept"}
    listed = list_candidates(text, 4, began_at=2, **facts)
    assert edited(listed, "f(v).detach() at line 2") == text.replace("f(v)", "f(v).detach()")


def test_an_argument_of_all_calls_of_one_function_is_detached(list_candidates):
    text = "def mean(new, old):\n    return new + old\n\na = mean(x, a)\nb = mean(y, b)\n"
    facts = {"family": "silent", "cause": "graph_grows", "carried_by": "a, b"}
    listed = list_candidates(text, 4, began_at=2, **facts)
    detached = edited(listed, "x.detach() at line 4 and y.detach() at line 5")
    assert detached == text.replace("(x,", "(x.detach(),").replace("(y,", "(y.detach(),")


def test_an_optimizer_is_created_again_after_its_model_was_replaced(list_candidates):
    text = (
        "net = Net()\nopt = SGD(net.parameters())\n\ndef train():\n    opt.step()\n\n"
        "net = Net()\ntrain()\n"
    )
    facts = {"family": "silent", "cause": "optimizer_holds_replaced", "began_at": 2}
    listed = list_candidates(text, 8, **facts)
    line = "opt = SGD(net.parameters())"
    again = edited(listed, f"{line} again, after line 7")
    assert again == text.replace("\ntrain()", f"\n{line}\ntrain()")


def test_a_tensor_is_cloned_before_each_of_its_changes(list_candidates):
    text = "h[0] = f(h)\nh[1] = f(h)\nh.sum().backward()\n"
    listed = list_candidates(text, 3, family="modified", cause="inplace_on_saved", began_at=2)
    cloned = edited(listed, "h = h.clone() before each in-place change")
    assert cloned == ("h, h[0] = h.clone(), f(h)\nh, h[1] = h.clone(), f(h)\nh.sum().backward()\n")
    listed = list_candidates(text.replace("f(h)", "z"), 3, cause="inplace_on_saved", began_at=2)
    cloned = edited(listed, "h = h.clone() before each in-place change")
    assert cloned == "h = h.clone()\nh[0] = z\nh = h.clone()\nh[1] = z\nh.sum().backward()\n"


def test_what_an_if_block_uses_is_computed_again_in_it(list_candidates):
    text = (
        "for i, x in enumerate(data):\n    out = net(x)\n    out.mean().backward()\n"
        "    opt.step()\n    if i % 2:\n        term = out.norm()\n        term.backward()\n"
    )
    listed = list_candidates(text, 7, began_at=3)
    again = edited(listed, "again, before line 7: out = net(x); term = out.norm()")
    repeated = "        out = net(x)\n        term = out.norm()\n"
    assert again == text.replace("        term.b", f"{repeated}        term.b")


def test_what_depends_on_no_trained_parameter_is_detached_where_it_is_made(list_candidates):
    text = "x = encode(raw) + 1\nfor y in data:\n    net(x, y).backward()\n    opt.step()\n"
    listed = list_candidates(text, 3, made_at=1, facts=["never_trained"])
    assert listed[0].title == "store without a graph, at line 1"
    assert edited(listed, listed[0].title) == text.replace(
        "encode(raw) + 1", "(encode(raw) + 1).detach()"
    )
    titles = [one.title for one in list_candidates(text, 3, made_at=1)]
    assert "store without a graph, at line 1" not in titles


def test_an_average_is_stored_without_a_graph_where_it_is_made_and_updated(list_candidates):
    text = (
        "decay, shadow = 0.9, [p.clone() for p in net.parameters()]\nfor x in data:\n"
        "    loss(net(x), shadow).backward()\n    shadow[0].mul_(decay).add_(net.p * 0.1)\n"
    )
    at = {"made_at": 4, "stored_at": 1, "carried_by": "shadow", "cause": "hidden_state_carried"}
    listed = list_candidates(text, 3, **at)
    assert edited(listed, "store without a graph, at line 1 and 4") == text.replace(
        "p.clone()", "p.clone().detach()"
    ).replace("    shadow[0].mul_", "    with torch.no_grad():\n        shadow[0].mul_")
    assert "is the loss to use shadow as a constant?" in {one.question for one in listed}
    titles = {
        one.title
        for one in list_candidates(
            text.replace(".mul_(decay).add_(net.p * 0.1)", " = f(shadow)"), 3, **at
        )
    }
    assert "store without a graph, at line 1 and 4" not in titles


@pytest.mark.parametrize(
    ("code", "is_asked"),
    [
        ("(x * 2).sum() * torch.exp(g)", False),
        ("g.detach() * 2", True),
        ("kernel(g, x)", True),
        ("torch.stack([g[t] * x[t] for t in reversed(range(len(x)))])", False),
        ("torch.stack([*map(kernel, g)])", True),
        ("library.kernel(g, x)", True),
        ("ctx.kernel(g, x)", True),
        ("g * torch.as_tensor(ctx.numbers)", True),
        ("g * torch.cos(x) if ctx.needs_input_grad[0] else None", False),
    ],
)
def test_a_function_is_declared_differentiable_twice(list_candidates, code, is_asked):
    """Whether it is, no run can tell if its ``backward()`` calls other code."""
    text = (
        "class Sine(torch.autograd.Function):\n    @staticmethod\n    @once_differentiable\n"
        f"    def backward(ctx, g):\n        (x,) = ctx.saved_tensors\n        return {code}\n"
        "loss.backward()\n"
    )
    (removed,) = (
        one
        for one in list_candidates(text, 7, family="unsupported", cause="once_differentiable")
        if one.title == "without @once_differentiable"
    )
    assert [*removed.edits.values()] == [text.replace("    @once_differentiable\n", "")]
    assert ("torch.autograd.gradgradcheck" in (removed.doubt or "")) is is_asked


@pytest.mark.parametrize(
    ("kept", "read"),
    [("    ctx.sig = sig\n", "ctx.sig"), ("    ctx.save_for_backward(x, sig)\n", "sig")],
)
def test_a_value_of_forward_is_computed_again_in_backward(list_candidates, kept, read):
    text = (
        "class Swish(torch.autograd.Function):\n  def forward(ctx, x):\n    y = -x\n"
        f"    sig = torch.sigmoid(y)\n{kept}    return x * sig\n"
        f"  def backward(ctx, g):\n    x, *rest = ctx.saved_tensors\n    return g * {read}\n"
        "loss.backward()\n"
    )
    facts = {"family": "silent", "cause": "intermediate_saved"}
    listed = list_candidates(text, 10, began_at=4, **facts)
    new = edited(listed, "y = -x; sig = torch.sigmoid(y) in backward()")
    lines = "    y = -x\n    sig = torch.sigmoid(y)\n"
    assert new.endswith(f"saved_tensors\n{lines}    return g * sig\nloss.backward()\n")
    assert new.count("None") == 1 and "(x, sig)" not in new


def test_new_weights_are_used_without_a_copy(list_candidates):
    text = (
        "def adapt(net, x):\n    for _ in range(2):\n"
        "        grads = grad(f(net(x)), net.parameters(), create_graph=True)\n"
        "        fast = updated(net.named_parameters(), grads)\n"
        "        net.load_state_dict(fast)\n"
        "    return net(x)\nadapt(net, x).backward()\n"
    )
    facts = {"family": "silent", "cause": "written_without_graph"}
    listed = list_candidates(text, 7, began_at=5, **facts)
    call = "torch.func.functional_call(net, tensors, (x,))"
    assert edited(listed, "torch.func.functional_call(net, …) from line 1 on") == (
        "def adapt(net, x):\n    tensors = dict(net.named_parameters())\n    for _ in range(2):\n"
        f"        grads = grad(f({call}), tensors.values(), create_graph=True)\n"
        "        fast = updated(tensors.items(), grads)\n        tensors = fast\n"
        f"    return {call}\nadapt(net, x).backward()\n"
    )


def test_gradients_of_all_calls_of_a_loop_are_cleared_before_it(list_candidates):
    text = "for part in batch:\n    opt.zero_grad()\n    f(part).backward()\nopt.step()\n"
    facts = {"family": "silent", "cause": "gradients_discarded"}
    new = edited(list_candidates(text, 4, began_at=2, **facts), "opt.zero_grad(), before line 1")
    assert new == "opt.zero_grad()\nfor part in batch:\n    f(part).backward()\nopt.step()\n"


def test_gradients_of_calls_that_are_counted_are_cleared_after_the_step(list_candidates):
    text = (
        "for x in batch:\n    opt.zero_grad()\n    f(x).backward()\n    if n:\n        opt.step()\n"
    )
    facts = {"family": "silent", "cause": "gradients_discarded"}
    listed = list_candidates(text, 5, began_at=2, raised_at=5, **facts)
    assert edited(listed, "opt.zero_grad(), after line 5") == (
        "for x in batch:\n    f(x).backward()\n    if n:\n        opt.step()\n"
        "        opt.zero_grad()\n"
    )


def test_autocast_casts_again_where_it_is_called_or_given_arguments(list_candidates):
    text = (
        "cast = partial(torch.autocast, 'cpu')\nwith cast():\n    for x in batch:\n"
        "        f(x).backward()\nother = torch.autocast('cpu')\nf = partial(g, autocast)\n"
    )
    facts = {"family": "silent", "cause": "autocast_stale"}
    new = edited(list_candidates(text, 4, began_at=2, **facts), "autocast(…, cache_enabled=False)")
    assert new.splitlines()[0] == "cast = partial(torch.autocast, 'cpu', cache_enabled=False)"
    assert new.endswith("torch.autocast('cpu', cache_enabled=False)\nf = partial(g, autocast)\n")


@pytest.mark.parametrize(
    ("given", "buffers"), [("weights", "net.named_buffers()"), ("(weights, b)", "b.items()")]
)
def test_functional_call_gets_copies_of_the_buffers(list_candidates, given, buffers):
    text = f"def f(weights, x):\n    return functional_call(net, {given}, (x,))\ngrad(f)(w, x)\n"
    tensors = f"(weights, {{key: value.clone() for key, value in {buffers}}})"
    facts = {"family": "unsupported", "cause": "captured_changed_inplace"}
    listed = list_candidates(text, 3, began_at=2, **facts)
    assert edited(listed, f"functional_call(…, {tensors}, …) at line 2") == text.replace(
        f"net, {given}", f"net, {tensors}"
    )


def test_a_target_is_compared_with_the_value_before_an_estimator(list_candidates):
    text = (
        "def quantize(x):\n    y = nearest(x)\n    z = x + (y - x).detach()\n    return z\n"
        "z = quantize(h)\nloss = mse(z, h.detach())\nother = mse(h, z.detach())\nf(z, h)\n"
    )
    facts = {"family": "silent", "cause": "never_trained"}
    listed = list_candidates(text, 8, began_at=3, **facts)
    new = edited(listed, "x.quantized = y; mse(h.quantized, h.detach()) at line 6")
    assert "    x.quantized = y\n    z = x + " in new and "f(z, h)" in new
    assert not any("f(" in one.title for one in listed)


def test_what_is_computed_once_is_no_state(list_candidates):
    text = "for x in batches:\n    loss = model(x)\n    loss.backward()\n"
    variables = [("net.scale", "tensor")]
    for cause, is_listed in (("computed_once_outside_loop", False), ("buffer_has_graph", True)):
        listed = list_candidates(text, 3, variables=variables, cause=cause)
        assert ("net.scale = net.scale.detach()" in {one.title for one in listed}) is is_listed


def test_what_the_advice_names_is_detached_after_it_is_made(list_candidates):
    text = (
        "a, b = actor(x)\nlosses = [q(a) - b for q in critics]\n"
        "for loss in losses:\n    loss.backward()\n"
    )
    variables = [("a", "tensor"), ("b", "tensor")]
    listed = list_candidates(text, 4, variables=variables, carried_by="a, b")
    detached = edited(listed, "detach a and b")
    assert detached == text.replace("(x)\n", "(x)\na = a.detach()\nb = b.detach()\n")


def test_a_variable_of_a_loop_that_is_read_later_is_changed_out_of_place(list_candidates):
    text = NORMALIZE.replace("t.sub_(m)", "t.sub_(m); out.append(t)")
    facts = {"family": "modified", "cause": "inplace_on_saved"}
    for line, is_listed in ((text, True), (NORMALIZE, False)):
        titles = {one.title for one in list_candidates(line, 4, **facts)}
        assert ("t = t.clone() before line 4" in titles) == is_listed
        assert ("t = t.sub(m), at line 4" in titles) == is_listed


def test_losses_that_are_differentiated_under_a_condition_get_their_own_inputs(list_candidates):
    text = (
        "opt_d = SGD(D)\nopt_g = SGD(G)\nif d_loss is not None:\n    d_loss.backward()\n"
        "opt_d.step()\nif g_loss is not None:\n    g_loss.backward()\nopt_g.step()\n"
    )
    listed = list_candidates(text, 7, family="modified", began_at=5, optimizers=2)
    own = edited(listed, "d_loss.backward(inputs=list(D)); g_loss.backward(inputs=list(G))")
    assert own.endswith(
        "    d_loss.backward(inputs=list(D), retain_graph=True)\nif g_loss is not None:\n"
        "    g_loss.backward(inputs=list(G))\nopt_d.step()\nopt_g.step()\n"
    )


def test_losses_whose_optimizers_step_under_a_condition_get_their_own_inputs(list_candidates):
    text = """\
class Trainer:
    def __init__(self, model):
        ae = model.encoder
        self.opt_ae, self.opt_disc = SGD(ae), SGD(model.disc)

    def step(self, x):
        loss_ae.backward()
        loss_disc.backward()
        if self.count % 2 == 0:
            self.opt_ae.step()
            self.opt_disc.step()
"""
    listed = list_candidates(text, 8, family="silent", cause="gradient_leaks", began_at=7)
    own = next(one for one in listed if one.repair == kinds.OWN_INPUTS).title
    groups = '[p for group in self.opt_ae.param_groups for p in group["params"]]'
    assert own == f"loss_ae.backward(inputs={groups})"
    assert any(one.title.startswith(f"{own}; loss_disc.backward(") for one in listed)


def test_an_optimizer_that_steps_beside_other_statements_has_its_own_loss(list_candidates):
    """Its parameters are attributes of ``self``, which each method can read."""
    text = """\
class Trainer:
    def __init__(self):
        self.ae, self.disc = Encoder(), Critic()
        self.opt_ae = SGD(self.ae.parameters())
        self.opt_disc = SGD(self.disc.parameters())

    def step(self, x):
        loss_ae.backward()
        if self.count % 2 == 0:
            self.opt_ae.step()
        loss_disc.backward()
        if self.count % 2 == 0:
            self.opt_disc.step()
            self.steps += 1
"""
    listed = list_candidates(text, 8, family="silent", cause="gradient_leaks", began_at=8)
    own = next(one for one in listed if one.repair == kinds.OWN_INPUTS).title
    assert own == "loss_ae.backward(inputs=list(self.ae.parameters()))"


def test_calls_on_a_name_that_is_assigned_again_are_all_limited(list_candidates):
    text = (
        "g_loss.backward()\nopt_g.step()\n"
        "d_loss = f(real)\nd_loss.backward()\nopt_d.step()\n"
        "d_loss = f(fake)\nd_loss.backward()\nopt_d.step()\n"
    )
    listed = list_candidates(text, 1, family="silent", cause="gradient_leaks", began_at=1)
    limited = [text for one in listed for text in one.edits.values() if "inputs=" in text]
    assert {text.count("inputs=") for text in limited} == {1, 3}


def test_a_checkpoint_restores_the_random_state_again(list_candidates):
    text = "h = checkpoint(block, x, preserve_rng_state=flag)\nh.sum().backward()\n"
    facts = {"cause": "checkpoint_differs", "facts": ["draws_unrestored"]}
    listed = list_candidates(text, 2, family="checkpoint", **facts)
    restored = edited(listed, "preserve_rng_state=True at line 1")
    assert restored == text.replace("flag", "True")


def test_a_repair_that_leaves_a_checkpoint_out_comes_last_and_tells_its_price(list_candidates):
    text = "h = f(x)\nh = checkpoint(block, h, use_reentrant=True)\nh.sum().backward()\n"
    listed = list_candidates(text, 3, family="checkpoint", cause="checkpoint_differs", began_at=2)
    left_out = next(one for one in listed if "h = block(h)\n" in "".join(one.edits.values()))
    assert "memory" in left_out.title
    later = listed[listed.index(left_out) + 1 :]
    assert all(one.repair == kinds.RETAIN_GRAPH for one in later)


def test_a_change_of_data_becomes_one_of_a_clone_but_no_assignment_of_data(list_candidates):
    """An assignment would give other memory to what earlier operations saved of the tensor."""
    text = "y = f(x)\ny.data.mul_(0.5)\nloss = g(y)\nloss.backward()\n"
    listed = list_candidates(text, 4, family="silent", cause="data_edit_silent", began_at=2)
    texts = [text for one in listed for text in one.edits.values()]
    assert texts and not any("y.data =" in text for text in texts)
    titles = {one.title for one in listed if one.question and "before each" not in one.title}
    assert titles == {"y = y.clone(); y.mul_(0.5)", "y = y.clone() before line 2"}


@pytest.mark.parametrize("reads_older", [True, False])
def test_the_entries_of_a_list_are_detached_if_an_older_one_is_read(list_candidates, reads_older):
    """A list that is read as a whole, or only its newest entry, would grow for ever."""
    text = (
        "class Steps:\n    def __init__(self):\n        self.kept = []\n"
        "    def step(self, x):\n        self.kept.append(x)\n"
        "        return x - self.kept[-2]\n"
        "for i in range(3):\n    loss = steps.step(f(i))\n    loss.backward()\n"
    )
    facts = ["trained_only_there", *(["reads_older_entries"] if reads_older else [])]
    listed = list_candidates(text, 9, variables=[("steps.kept[0]", "list")], facts=facts)
    texts = [text for one in listed for text in one.edits.values()]
    detached = "steps.kept = [tensor.detach() for tensor in steps.kept]\n"
    assert any(detached in text for text in texts) is reads_older
    # Whether the list is to begin empty is a question, so no other kind of repair empties it.
    assert not any("steps.kept = []" in text for text in texts)


@pytest.mark.parametrize("cause", ["gradients_not_cleared", "data_edit_silent"])
def test_only_old_values_are_computed_again_where_nothing_is_raised(list_candidates, cause):
    text = "loss = f(model(x))\nstate.copy_(y)\nloss.backward()\n"
    listed = list_candidates(text, 3, family="silent", cause=cause, began_at=3)
    kinds_listed = {one.repair for one in listed}
    assert (kinds.FORWARD_AGAIN in kinds_listed) is (cause == "data_edit_silent")
    assert kinds.RETAIN_GRAPH not in kinds_listed
    assert (kinds.CREATE_GRAPH in kinds_listed) is (cause == "data_edit_silent")


def test_a_loss_that_only_its_own_call_reads_is_computed_later(list_candidates):
    """If it was repeated, the first pass would draw random numbers for nothing."""
    text = """\
def learn(batch):
    policy_loss = policy(batch)
    update(opt_q, q_loss)
    update(opt_p, policy_loss)

def update(opt, loss):
    loss.backward()
    opt.step()

learn(batch)
"""
    listed = list_candidates(text, 7, 4, 10, family="modified", began_at=8)
    later = (
        "    update(opt_q, q_loss)\n    policy_loss = policy(batch)\n    update(opt_p, policy_loss)"
    )
    moved = edited(listed, "later, before line 4: policy_loss = policy(batch)")
    assert later in moved and moved.count("policy(batch)") == 1
    logged = text.replace("update(opt_q, q_loss)", "update(opt_q, q_loss, policy_loss)")
    again = edited(
        list_candidates(logged, 7, 4, 10, family="modified", began_at=8),
        "again, before line 4: policy_loss = policy(batch)",
    )
    assert again.count("policy(batch)") == 2


@pytest.mark.parametrize("reader, is_offered", [("pass", False), ("loss = f(weight)", True)])
def test_no_clone_is_written_that_nothing_reads(list_candidates, reader, is_offered):
    text = f"""\
for layer in layers:
    weight = layer.weight
    weight[:, 0] -= old
    weight[:, 1] += new
    {reader}
"""
    titles = {one.title for one in list_candidates(text, 3, family="leaf_inplace")}
    assert ("weight = weight.clone() before line 3" in titles) is is_offered


def test_an_entry_of_a_container_is_cloned_before_its_change(list_candidates):
    text = 'def f(out):\n    out["h"][0][i] = g(out["h"][0][i])\n\nf(out)\nloss.backward()\n'
    listed = list_candidates(text, 5, family="modified", began_at=2)
    line = 'out["h"][0] = out["h"][0].clone()'
    assert f"    {line}\n" in edited(listed, f"{line} before line 2")


@pytest.mark.parametrize("facts, asks", [((), True), (("updates_a_parameter",), False)])
def test_an_update_of_a_parameter_is_not_differentiated(list_candidates, facts, asks):
    text = "weight[0] -= old\nf(weight)\n"
    listed = list_candidates(
        text, 1, family="leaf_inplace", variables=[("old", "tensor")], facts=facts
    )
    assert any(one.repair == kinds.CLONE_WRITTEN for one in listed) is asks  # it would be lost
    questions = {one.question for one in listed if one.repair == kinds.NO_GRAD}
    asked = "is old not to be trained through this change?"
    assert questions == {asked if asks else None}


def test_a_value_from_init_is_computed_in_the_method_that_reads_it(list_candidates, tmp_path):
    text = """\
class Speller(nn.Module):
    def __init__(self):
        self.mask = self.embedding(MASK)
        self.head = head

    def forward(self, x):
        return self.head(x * self.mask)

net = Speller()
for x in data:
    loss = net(x)
    loss.backward()
"""
    through = [{"file": str(tmp_path / "train.py"), "line": line} for line in (3, 9)]
    fields = {"family": "modified", "made_through": through}
    listed = list_candidates(text, 12, variables=[("net.mask", "tensor")], **fields)
    assert not any("compute net" in one.title for one in listed)
    moved = edited(listed, "compute self.mask where it is used")
    line = "        self.mask = self.embedding(MASK)\n"
    assert f"def forward(self, x):\n{line}" in moved and moved.count(line) == 1


@pytest.mark.parametrize("code, is_offered", [("net.start()", False), ("pass", True)])
def test_a_state_is_not_reset_where_the_program_resets_it_itself(list_candidates, code, is_offered):
    text = f"""\
class Net:
    def start(self):
        self.h = None

for document in documents:
    {code}
    for part in document:
        loss = net(part)
        loss.backward()
"""
    listed = list_candidates(text, 9, variables=[("net.h", "tensor")])
    assert (kinds.RESET_STATE in {one.repair for one in listed}) is is_offered


SCALE = """\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, k, w):
        return k * x * w

    @staticmethod
    def backward(ctx, g):
        return {gradients}

loss.backward()
"""


@pytest.mark.parametrize(
    ("gradients", "error", "facts", "expected"),
    [
        ("g_x, g_w, None", "None at position 2", [], {"g_x, None, g_w": False}),
        ("a, b, None", "None at position 2", [], {"a, None, b": True}),
        ("a, None", "None at position 1", [], {"None, a": False}),
        ("g_w, g_x", "gradient at index 0", ["fits_another_input"], {"g_x, g_w": False}),
        ("g_w, g_x", "gradient at index 0", ["other_size"], {}),
        ("g_w, g_x", "gradient at index 0", ["fits_an_output"], {}),
        ("a, b, c", "gradient at index 0", ["fits_another_input"], {"b, a, c": 1, "c, b, a": 1}),
    ],
)
def test_gradients_are_exchanged_where_their_shapes_say_so(
    list_candidates, gradients, error, facts, expected
):
    text = SCALE.format(gradients=gradients)
    fields = {"family": "unsupported", "began_at": 8, "facts": facts}
    listed = list_candidates(text, 10, error=error, **fields)
    asked = {c.title: bool(c.question) for c in listed if c.repair == kinds.RETURN_ORDER}
    assert asked == {f"return {order}": bool(is_asked) for order, is_asked in expected.items()}


@pytest.mark.parametrize("gradients", ["a, g * 2", "(a, g * 2)"])
def test_a_gradient_gets_the_shape_of_an_output_if_its_elements_are_in_order(
    list_candidates, gradients
):
    fields = {"family": "unsupported", "began_at": 8, "facts": ["fits_an_output"]}
    for index, new in enumerate(("a.view_as(g), g * 2", "a, (g * 2).view_as(g)")):
        error = f"ScaleBackward returned an invalid gradient at index {index} - got [6]"
        listed = list_candidates(SCALE.format(gradients=gradients), 10, error=error, **fields)
        (candidate,) = (c for c in listed if c.repair == kinds.RESHAPE)
        assert new in candidate.title and "in the order of those of g?" in candidate.question


@pytest.mark.parametrize("unit", ["\t", "  ", "    "])
def test_an_update_gets_no_gradient_in_the_indentation_of_its_file(list_candidates, unit):
    lines = ["def update(net):", f"{unit}for p in net:", f"{unit * 2}p.mul_(0.9).add_(1)"]
    text = "\n".join([*lines, "update(net)", ""])
    listed = list_candidates(text, 3, family="leaf_inplace", facts=["updates_a_parameter"])
    (candidate,) = (c for c in listed if c.repair == kinds.NO_GRAD)
    inner = "\t" if unit == "\t" else "    "
    block = f"{unit * 2}with torch.no_grad():\n{unit * 2}{inner}p.mul_(0.9)"
    assert block in next(iter(candidate.edits.values()))


def test_a_block_loses_its_head_in_the_indentation_of_its_file():
    text = "def f(x):\n\twith torch.no_grad():\n\t\ty = g(x)\n\t\treturn y\n"
    source = Source("train.py", text)
    (block,) = source.all(ast.With)
    assert source.edited(source.unindent(block)) == "def f(x):\n\ty = g(x)\n\treturn y\n"


def test_all_lists_of_modules_in_no_optimizer_are_registered(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("self.a, self.b = [], []\nloss.backward()\n")
    run = ProgramRun(files=[str(path)])
    names = ("net.a[0].weight", "net.b[0].weight")
    run.findings = [{"cause": "in_no_optimizer", "carried_by": name} for name in names]
    run.diagnosis = run.findings[0]
    (both,) = candidates(run, {}, pytest.fail)
    assert "= torch.nn.ModuleList([]), torch.nn.ModuleList([])\n" in both.edits[str(path)]


def test_a_part_of_what_is_never_trained_is_not_chosen_for_the_reader(list_candidates):
    text = "with torch.no_grad():\n    a = f(x)\n    b = f(y).detach()\nloss(a, b).backward()\n"
    listed = list_candidates(text, 4, family="silent", cause="never_trained", began_at=3)
    assert not any(one.repair == kinds.MOVE_DETACH for one in listed)
    regions = [one.repair for one in listed if "no_grad" in one.title]
    assert regions == [kinds.KEEP_GRADIENT, kinds.NARROW_REGION]  # the whole block first


def test_a_term_that_is_a_number_is_not_repaired_by_inputs(list_candidates):
    text = "a.backward()\nopt_a.step()\nb.backward()\nopt_b.step()\n"
    for cause, is_offered in (("constant_term", False), ("gradient_leaks", True)):
        fields = {"family": "silent", "cause": cause, "began_at": 1}
        listed = {one.repair for one in list_candidates(text, 3, optimizers=2, **fields)}
        assert (kinds.STEP_LATER in listed) is is_offered


def test_an_optimizer_is_made_later_with_its_groups(list_candidates):
    text = "groups = [net.a]\nopt = SGD(groups)\nnet.resize()\nopt.step()\n"
    fields = {"family": "silent", "cause": "optimizer_holds_replaced", "began_at": 2}
    wanted = "net.resize()\ngroups = [net.a]\nopt = SGD(groups)\nopt.step()\n"
    assert edited(list_candidates(text, 4, **fields), "opt = SGD(groups), before line 4") == wanted


def test_an_optimizer_that_was_used_is_made_again_after_a_replacement(list_candidates):
    text = (
        "opt = SGD(net.parameters(), lr=lr)\nfor epoch in range(2):\n    train(net, opt)\n"
        "prune(net)\nfor epoch in range(2):\n    train(net, opt)\n"
    )
    fields = {"family": "silent", "cause": "optimizer_holds_replaced", "began_at": 1}
    title = "opt = SGD(net.parameters(), lr=lr) again, before line 5"
    again = edited(list_candidates(text, 6, **fields), title)
    assert "prune(net)\nopt = SGD(net.parameters(), lr=lr)\nfor" in again
    assert again.startswith("opt =")
    listed = list_candidates(text.replace("prune(net)", "lr = prune(net)"), 6, **fields)
    assert not any("before line 5" in candidate.title for candidate in listed)


def test_a_leaf_is_made_before_the_forward_pass_that_is_to_use_it(list_candidates):
    text = "y = net(x)\nz = prior()\nx = x.detach().requires_grad_()\ng = grad(y.sum(), x)\n"
    fields = {"family": "unused_input", "cause": "unused_input"}
    leaf = "x = x.detach().requires_grad_()"
    title = f"{leaf}, before line 1"
    moved = edited(list_candidates(text, 4, **fields), title)
    assert moved == f"{leaf}\ny = net(x)\nz = prior()\ng = grad(y.sum(), x)\n"
    for unmoved in ("x.mul_(2)", "x = next(data)"):  # the leaf has this value
        listed = list_candidates(text.replace("z = prior()", unmoved), 4, **fields)
        assert title not in {candidate.title for candidate in listed}


def test_gradients_are_cleared_before_backward_and_not_before_the_step(list_candidates):
    text = (
        "scaler.scale(loss_a).backward()\nscaler.step(opt_a)\n"
        "scaler.scale(a).backward()\nscaler.scale(b).backward()\n"
        "opt.zero_grad()\nscaler.step(opt)\n"
    )
    title = "opt.zero_grad(), before line 3"
    listed = list_candidates(text, 6, cause="scaler_without_gradients")
    titles = {one.title for one in listed if one.repair == kinds.CLEAR_GRADIENTS}
    assert titles == {title}  # and not before the step of another optimizer
    assert edited(listed, title).endswith("scaler.scale(b).backward()\nscaler.step(opt)\n")
    listed = list_candidates(text, 6, cause="unknown")
    assert not any(one.repair == kinds.CLEAR_GRADIENTS for one in listed)


def test_a_distance_is_computed_by_parts_where_its_second_derivative_is_missing(list_candidates):
    error = "NotImplementedError: the derivative for '_cdist_backward' is not implemented."
    text = "d = torch.cdist(x + 1, net.y)\ngp = penalty(d)\ngp.backward()\n"
    code = "((x + 1).unsqueeze(-2) - net.y.unsqueeze(-3)).pow(2).sum(-1).sqrt()"
    listed = list_candidates(text, 3, error=error, family="unsupported")
    assert edited(listed, f"{code} at line 1").startswith(f"d = {code}\n")
    x, y = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    torch.testing.assert_close(
        eval(code, {"x": x - 1, "net": SimpleNamespace(y=y)}), torch.cdist(x, y)
    )
    for other in ("torch.cdist(x, x)", "torch.cdist(x, y, p=1)"):
        text = f"d = {other}\ngp = penalty(d)\ngp.backward()\n"
        listed = list_candidates(text, 3, error=error, family="unsupported")
        assert not any("unsqueeze" in one.title for one in listed)


@pytest.mark.parametrize("value, is_offered", [("None", True), ("torch.zeros(2)", False)])
def test_a_buffer_that_begins_as_none_is_reset(list_candidates, value, is_offered):
    text = RESET.replace('"cache", None', f'"cache", {value}')
    variables = [("net.cell.cache", "tensor")]
    listed = list_candidates(text, 9, variables=variables, cause="buffer_has_graph")
    assert (kinds.RESET_STATE in {one.repair for one in listed}) is is_offered


def test_what_a_growing_program_stores_is_detached(list_candidates):
    text = "def insert(episode):\n    episodes.append(torch.stack(episode))\n\nloss.backward()\n"
    listed = list_candidates(text, 4, family="silent", cause="graph_grows", began_at=4)
    title = "torch.stack(episode).detach() at line 2"
    assert "append(torch.stack(episode).detach())" in edited(listed, title)


def test_a_loss_of_several_elements_is_averaged(list_candidates):
    text = "loss = a * b\n(loss * 2).backward()\n"
    listed = list_candidates(text, 2, family="not_scalar", cause="not_scalar")
    (mean,) = (one for one in listed if one.repair == kinds.AVERAGE)
    assert "((loss * 2).mean()).backward()" in edited(listed, mean.title)
    assert mean.question == "is the loss the mean of loss * 2, not the sum?"


def test_a_graph_that_only_training_mode_gives_is_always_created(list_candidates):
    text = "forces = torch.autograd.grad(e, x, create_graph=self.training)\nloss.backward()\n"
    listed = list_candidates(text, 2, began_at=1)
    wanted = "torch.autograd.grad(e, x, create_graph=True)"
    assert wanted in edited(listed, "create_graph=True at line 1")
    listed = list_candidates(text.replace("self.training", "True"), 2, began_at=1)
    assert not any("create_graph" in one.title for one in listed)


def test_an_operand_of_a_returned_value_is_cloned(list_candidates):
    text = "def forward(x):\n    return net(x)\n\nforward(x)\n"
    listed = list_candidates(text, 4, family="modified", made_at=2)
    assert "return net(x.clone())" in edited(listed, "x.clone() at line 2")


def test_a_silent_failure_does_not_blame_the_backward_calls(tmp_path):
    """A graph of the gradients would silence some warnings, and train nothing else."""
    path = tmp_path / "train.py"
    path.write_text("layers = [nn.Linear(2, 2)]\nloss = f(layers)\nloss.backward()\n")
    none = frozenset()
    site = (ProgramLine(str(path), 3, "<module>"),)
    call = ObservedCall(1, site, "", (), Counter(), 0, 0, none, none, none)
    run = ProgramRun(events=[call], files=[str(path)])
    places = [{"file": str(path), "line": line} for line in (1, 3)]
    run.diagnosis = {"family": "silent", "cause": "in_no_optimizer"}
    run.diagnosis |= dict(zip(("began_at", "raised_at"), places, strict=True))
    listed = candidates(run, {}, pytest.fail)
    assert {one.repair.name for one in listed}.isdisjoint({"create_graph", "retain_graph"})


def test_a_state_for_which_gradients_are_requested_stays_a_leaf(list_candidates):
    text = """\
for x in data:
    slope, = torch.autograd.grad(loss_of(w, x), w, create_graph=True)
    w = w - rate * slope
    loss = loss_of(w, x)
    loss.backward()
"""
    titles = [one.title for one in list_candidates(text, 5, variables=[("w", "tensor")])]
    assert titles.index("w = w.detach()") < titles.index("w = w.detach().requires_grad_()")
    others = list_candidates(text.replace("autograd.grad", "func"), 5, variables=[("w", "tensor")])
    assert not any("requires_grad_" in one.title for one in others)


@pytest.mark.parametrize(
    ("update", "is_mean"),
    [
        ("mean = 0.9 * mean + 0.1 * loss", True),
        ("mean = mean * 0.9 + loss * 0.1", True),
        ("mean = torch.lerp(mean, loss, 0.1)", True),
        ("mean = loss if step == 0 else 0.9 * mean + 0.1 * loss", True),
        ("mean = mean + 0.1 * loss", False),  # a sum, in which each term keeps its weight
        ("mean = loss + mean", False),
        ("mean = loss * 2", False),  # carries nothing
    ],
)
def test_whether_a_running_mean_is_to_be_trained_is_a_question(list_candidates, update, is_mean):
    text = f"for step in range(3):\n    loss = f(step)\n    {update}\n    mean.backward()\n"
    variables = [("mean", "tensor"), ("loss", "tensor")]
    listed = list_candidates(text, 4, variables=variables)
    questions = [c.question for c in listed if c.repair == kinds.DETACH_STATE]
    assert all(bool(question) == is_mean for question in questions)
    assert questions or not is_mean


@pytest.mark.parametrize(("value", "is_listed"), [("False", True), ("True", False)])
def test_a_gradient_without_its_graph_may_be_retained(list_candidates, value, is_listed):
    text = f"for k in range(3):\n    g = torch.autograd.grad(loss, w, create_graph={value})\n"
    listed = list_candidates(text, 2)
    assert (kinds.RETAIN_GRAPH in {c.repair for c in listed}) is is_listed
    asked = [c for c in listed if c.repair == kinds.CREATE_GRAPH]
    assert [bool(c.question) for c in asked] == [True] * is_listed


def test_a_function_with_inplace_is_made_to_return_a_new_tensor(list_candidates):
    text = "h = w.sigmoid()\nF.relu(h, inplace=True)\ny = h * 2\ny.sum().backward()\n"
    listed = list_candidates(text, 4, family="modified", cause="inplace_on_saved", began_at=2)
    assert "h = F.relu(h)\n" in edited(listed, "h = F.relu(h), at line 2")


def test_a_model_is_not_compiled(list_candidates):
    text = (
        "@torch.compile\ndef f(x):\n    return x\n\nm.compile()\nm = torch.compile(m, mode='d')\n"
    )
    listed = list_candidates(text, 6, family="unsupported", cause="double_backward_compiled")
    lines = text.splitlines()
    removed = [
        lines[1:],
        [*lines[:4], lines[5]],
        [*lines[:5], "m = m"],
    ]
    edits = [edited([c], c.title).splitlines() for c in listed if c.title.startswith("without ")]
    assert sorted(edits) == sorted(removed)


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("raw.exp()", True),
        ("torch.ones(2, requires_grad=True) * 2", False),
        ("raw.exp()\nw.requires_grad_()", False),
    ],
)
def test_whether_a_result_is_to_be_trained_is_asked_if_its_leaf_has_a_name(
    list_candidates, text, is_asked
):
    program = f"w = {text}\nopt = SGD([w], 0.1)\n"
    facts = {"family": "unsupported", "cause": "optimizer_of_result", "carried_by": "w"}
    (leaf,) = [
        c for c in list_candidates(program, 2, began_at=1, **facts) if c.repair == kinds.LEAF
    ]
    assert bool(leaf.question) is is_asked


def test_what_numpy_cannot_take_is_computed_by_torch_or_detached(list_candidates):
    text = "total = np.sum([n * x for n, x in pairs], 0)\n"
    listed = list_candidates(text, 1, family="unsupported", cause="numpy_of_graph")
    (asked,) = [c for c in listed if c.question and "torch.stack" in c.title]
    assert [*asked.edits.values()] == [
        "total = torch.sum(torch.stack([n * x for n, x in pairs]), 0)\n"
    ]
    edited(listed, "x.detach() at line 1")
    listed = list_candidates("np.mean(xs)\n", 1, family="unsupported", cause="numpy_of_graph")
    assert edited(listed, "[x.detach() for x in xs] at line 1") == (
        "np.mean([x.detach() for x in xs])\n"
    )


def test_all_arrays_of_a_function_are_detached_together(list_candidates):
    text = (
        "def predict(x):\n    u = net(x).numpy()\n    f = v.numpy()\n    return u, f\npredict(x)\n"
    )
    listed = list_candidates(text, 2, family="unsupported", cause="numpy_of_graph")
    assert "u = net(x).detach().numpy()\n    f = v.detach().numpy()\n" in edited(
        listed, "detach() before each numpy()"
    )


@pytest.mark.parametrize(
    ("lines", "is_asked"),
    [
        (["loss = 0.9 * loss + net(x, h)"], True),
        (["loss, h = net(x, h)", "loss = loss.mean().type_as(loss)"], False),
        (["loss = loss + net(x, h)"], False),
    ],
)
def test_a_state_is_detached_without_a_question_unless_the_loss_is_a_running_mean(
    list_candidates, lines, is_asked
):
    body = "".join(f"    {line}\n" for line in [*lines, "h = net.step(h)", "loss.backward()"])
    text = f"for x in batches:\n{body}"
    listed = list_candidates(text, len(lines) + 3, variables=[("h", "tensor")])
    detached = [c for c in listed if c.title.startswith("h = h.detach()")]
    assert detached and all(bool(c.question) is is_asked for c in detached)


def test_a_tensor_whose_gradient_is_requested_requires_one(list_candidates):
    text = "x = a * real\ny = D(x)\ng = grad(y, x)\n"
    facts = {"family": "unused_input", "cause": "input_off", "carried_by": "x"}
    listed = list_candidates(text, 3, began_at=1, **facts)
    new = edited(listed, "x.requires_grad_() after line 1")
    assert new == text.replace("y =", "x.requires_grad_()\ny =")
    text = "def slope(D, x):\n    y = D(x)\n    return grad(y, x)\n"
    new = edited(list_candidates(text, 3, **facts), "x.requires_grad_() before line 2")
    assert new == text.replace("    y =", "    x.requires_grad_()\n    y =")


def test_tensors_of_a_list_are_replaced_by_new_ones(list_candidates):
    text = "for w, g in zip(fast, grads):\n    w -= lr * g\nloss(fast).backward()\n"
    facts = {"family": "modified", "cause": "inplace_on_saved", "facts": ["of_an_element"]}
    line = "fast = [w - lr * g for w, g in zip(fast, grads)]"
    new = edited(list_candidates(text, 3, began_at=2, **facts), line)
    assert new == f"{line}\nloss(fast).backward()\n"


def test_a_parameter_made_of_a_result_is_replaced_by_the_result(list_candidates):
    text = "self.conv.weight = nn.Parameter(W)\ny = self.conv(x)\n"
    facts = {"family": "silent", "cause": "never_trained", "carried_by": "net.w0"}
    title = "the tensors themselves in place of parameters with their values"
    new = edited(list_candidates(text, 2, began_at=1, **facts), title)
    assert new.startswith("new_weight = W\ndel self.conv.weight\nself.conv.weight = new_weight\n")


def test_a_parameter_of_another_shape_is_a_new_one(list_candidates):
    text = "fc.weight.data = fc.weight.data[keep]\nfc.bias.data = b\nloss.backward()\n"
    facts = {"family": "others", "cause": "leaf_reshaped", "carried_by": "net.fc.weight"}
    line = "fc.weight = torch.nn.Parameter(fc.weight.data[keep])"
    new = edited(list_candidates(text, 3, **facts), f"{line}, at line 1")
    assert new == text.replace("fc.weight.data = fc.weight.data[keep]", line)


@pytest.mark.parametrize("has_inner_loop", [True, False])
def test_a_state_over_a_sequence_may_begin_anew(list_candidates, has_inner_loop):
    inner = "for x in xs:\n        h = cell(x, h)" if has_inner_loop else "h = cell(xs[0], h)"
    text = f"h = zeros(4)\nfor epoch in range(5):\n    {inner}\n    h.sum().backward()\n"
    listed = list_candidates(text, len(text.splitlines()), variables=[("h", "tensor")])
    reset = [c.title for c in listed if c.repair == kinds.RESET_STATE]
    assert reset == ["h = zeros(4) at the beginning of each iteration"] * has_inner_loop


@pytest.mark.parametrize(("text", "is_asked"), [("p.requires_grad = False", False), ("", True)])
def test_whether_a_hook_may_be_left_out_is_asked_unless_its_tensor_was_frozen(
    list_candidates, text, is_asked
):
    program = f"{text or 'p = x * 2'}\np.register_hook(print)\n"
    facts = {"family": "unsupported", "cause": "hook_without_gradient", "carried_by": "p"}
    (guard,) = [
        c for c in list_candidates(program, 2, began_at=1, **facts) if c.repair == kinds.ASK_LESS
    ]
    assert edited([guard], guard.title).endswith(
        "if p.requires_grad:\n    p.register_hook(print)\n"
    )
    assert bool(guard.question) is is_asked


def test_a_clone_of_what_is_read_comes_before_one_of_what_is_written(list_candidates):
    text = "z = f(h)\nh[0] = z * 2\nh.sum().backward()\n"
    facts = {"family": "modified", "cause": "inplace_on_saved", "carried_by": "h"}
    listed = [c.repair for c in list_candidates(text, 3, began_at=2, made_at=1, **facts)]
    assert listed.index(kinds.CLONE_USED) < listed.index(kinds.CLONE_WRITTEN)


def test_whether_a_change_of_data_is_to_have_a_gradient_is_asked(list_candidates):
    text = "x.data[0] = x.data[0] * s\nf(x).backward()\n"
    facts = {"family": "silent", "cause": "data_edit_silent"}
    listed = [c for c in list_candidates(text, 2, began_at=1, **facts) if "each" not in c.title]
    clones = {c.question: "".join(c.edits.values()) for c in listed if c.question}
    assert clones == {
        "is this change of x to have no gradient?": text.replace(
            "x.data[0] = ", "x, x.data[0] = x.clone(), "
        ),
        "is this change of x to have a gradient?": (
            "x, x[0] = x.clone(), x[0] * s\nf(x).backward()\n"
        ),
    }
