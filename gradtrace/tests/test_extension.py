"""``%load_ext gradtrace``: a notebook's errors are explained under their tracebacks."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("IPython")

# Classic failures, each a cell, with words of its cause.
CELLS = {
    "a state from the last iteration": """
model = torch.nn.GRUCell(4, 4)
state = torch.zeros(1, 4)
for step in range(3):
    state = model(torch.ones(1, 4), state)
    loss = state.pow(2).mean()
    loss.backward()
""",
    "two losses share a part of the graph": """
encoder, head1, head2 = (torch.nn.Linear(4, n) for n in (4, 1, 1))
features = torch.tanh(encoder(torch.ones(2, 4)))
loss1, loss2 = head1(features).mean(), head2(features).mean()
loss1.backward()
loss2.backward()
""",
    "the forward pass was not run again": """
loss = torch.ones(3, requires_grad=True).exp().sum()
loss.backward()
loss.backward()
""",
    "computed once and is used in every iteration": """
weight = torch.ones(3, requires_grad=True)
cached = (weight * 2).exp()
for step in range(2):
    loss = (cached * weight).sum()
    loss.backward()
""",
    "a tensor that an operation had saved for backward was changed in place": """
x = torch.ones(3, requires_grad=True).exp()
y = x * x
x.add_(1)
y.sum().backward()
""",
    "the optimizer changed weights in place": """
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.ones(2, 3)).mean()
loss.backward(retain_graph=True)
optimizer.step()
loss.backward()
""",
    "this loss contains a loss": """
model = torch.nn.Linear(3, 1)
total = 0
for step in range(3):
    total = total + model(torch.ones(2, 3)).pow(2).mean()
    total.backward()
""",
    "a part of the computation ran where gradients were disabled": """
model = torch.nn.Linear(3, 1)
with torch.no_grad():
    y = model(torch.ones(2, 3))
y.mean().backward()
""",
    "a tensor between the parameters and this loss was detached": """
y = torch.tensor(torch.nn.Linear(3, 1)(torch.ones(2, 3)).mean().item())
y.backward()
""",
    "a leaf that requires grad was changed in place": """
torch.ones(3, requires_grad=True).add_(1)
""",
}


@pytest.fixture(scope="module")
def run_cells(tmp_path_factory):
    """Run cells in one IPython; returns what each prints, on both streams."""

    def run(*cells):
        program = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.colors = "nocolor" if hasattr(shell, "theme_table") else "NoColor"
sys.stderr = sys.stdout
for cell in {list(cells)!r}:
    print("\\0", end="")
    shell.run_cell(cell, store_history=True)
"""
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path_factory.mktemp("notebook"),
            capture_output=True,
            text=True,
            check=True,
        )
        printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        return printed.split("\0")[1:]

    return run


def test_every_classic_failure_is_explained_under_its_traceback(run_cells):
    # IPython's own objects lead to all variables: a name for one of them must not mislead.
    load = "%load_ext gradtrace\nimport torch\nip = get_ipython()"
    first, *printed = run_cells(load, *CELLS.values())
    assert first == ""
    for cause, text in zip(CELLS, printed, strict=True):
        _, error, explanation = text.partition("RuntimeError: ")
        assert error, text
        assert re.search(rf"^gradtrace: .*{cause}", explanation, re.M), text
        assert explanation.count("gradtrace: ") == 1


def test_other_errors_are_left_alone_and_the_magic_says_it_again(run_cells):
    again = CELLS["the forward pass was not run again"]
    unwatched, _, late, other, _, watched, detail, help_text, refused, _, gone = run_cells(
        f"import torch\n{again}", "%load_ext gradtrace", "%explain", "1 / 0",
        "%reload_ext gradtrace", again, "%explain", "%explain --help", "%explain --fixx",
        "%unload_ext gradtrace", again,
    )  # fmt: skip
    assert "gradtrace: " not in unwatched
    assert late.startswith("gradtrace: ")
    assert "ZeroDivisionError" in other
    assert "gradtrace" not in other
    assert detail.strip() in watched
    assert help_text.startswith("  %explain [--fix] [--help]")
    assert "UsageError: unrecognized arguments: --fixx" in refused
    assert "RuntimeError" in gone
    assert "gradtrace: " not in gone
