"""What nbval does not look at.

nbval re-runs each notebook and compares outputs, but it compares nothing for a cell that was never
executed, accepts a ``raises-exception`` cell that no longer raises when no error is stored, and
skips images and tracebacks.  The rules here close these holes; the last test shows that rules and
nbval together catch each way in which a stored output can go wrong.
"""

import ast
import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from backward_twice.execute import execute_notebook
from backward_twice.verdicts import MIME, read_ledger, stored_verdicts, updated_ledger

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*/*.ipynb"))
ARTICLES = yaml.safe_load((ROOT / "book" / "articles.yml").read_text("utf-8"))
MACHINE = re.compile(
    r"0x[0-9a-fA-F]{6,}"  # an object's address
    r"|(?<![\w.])/(?:home|root|tmp|usr|opt|work|Users|content|private)/"
    r"|[A-Z]:\\\\"
    r"|site-packages|ipykernel_\d"
)


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def tags(cell):
    return set(cell.metadata.get("tags", ()))


def violations(notebook) -> list[str]:
    """The rules that a stored notebook breaks, in words."""
    found = []
    if "widgets" in notebook.metadata:
        found.append("widget state is stored")
    for number, cell in enumerate(code_cells(notebook), 1):
        name = f"cell {cell.id}"
        if cell.execution_count != number:
            found.append(f"{name}: not executed in order from a fresh kernel")
        errors = [o for o in cell.outputs if o.output_type == "error"]
        if len(errors) != ("raises-exception" in tags(cell)):
            found.append(f"{name}: stored errors and the tag raises-exception disagree")
        if any(tag.startswith("nbval") for tag in tags(cell)):
            found.append(f"{name}: nbval is told to look away")
        if any(o.get("name") == "stderr" for o in cell.outputs):
            found.append(f"{name}: something on standard error")
        stored = {mime for o in cell.outputs for mime in o.get("data", {})}
        if "application/vnd.jupyter.widget-view+json" in stored:
            found.append(f"{name}: a widget view, dead without its kernel, is stored")
        if "image/png" in stored and "assert " not in cell.source:
            found.append(f"{name}: a picture is not compared, so its point must be asserted")
        if "image/png" in stored and not cell.metadata.get("mystnb", {}).get("image", {}).get(
            "alt"
        ):
            found.append(f"{name}: a picture without alternative text")
        for output in cell.outputs:
            output = copy.deepcopy(output)
            output.get("data", {}).pop("image/png", None)
            if match := MACHINE.search(str(output)):
                found.append(f"{name}: {match[0]!r} of this machine in an output")
    return found


def typed_observations(notebook) -> list[str]:
    """Observations handed to ``verdict`` or ``quiz`` that are typed rather than computed."""
    trees = [ast.parse(re.sub(r"^[%!].*$", "", c.source, flags=re.M)) for c in code_cells(notebook)]
    typed_names = {
        target.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for call in (node for tree in trees for node in ast.walk(tree)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        if call.func.id == "verdict":
            what = f"claim {call.args[0].value}"
            values = call.args[1].values
        elif call.func.id == "quiz":
            what = "quiz"
            values = [c.elts[0] for choices in call.args[0].values for c in choices.values]
        else:
            continue
        for value in values:
            names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            if not names or (isinstance(value, ast.Name) and value.id in typed_names):
                found.append(f"{what}: {ast.unparse(value)}")
    return found


def read(path):
    return nbformat.read(path, as_version=4)


def test_stored_as_executed(subtests):
    for path in (*NOTEBOOKS, *SOLUTIONS):
        with subtests.test(notebook=path.stem):
            assert violations(read(path)) == []


def test_every_verdict_is_computed(subtests):
    for path in NOTEBOOKS:
        with subtests.test(notebook=path.stem):
            assert typed_observations(read(path)) == []


def pages_of(chapter):
    """The notebooks of a chapter: its own, and those below it in the table of contents."""
    contents = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text("utf-8"))
    (found,) = (
        [entry, *entry.get("sections", ())]
        for part in contents["parts"]
        for entry in part["chapters"]
        if entry["file"] == f"notebooks/{chapter}"
    )
    return [ROOT / f"{entry['file']}.ipynb" for entry in found]


@pytest.mark.parametrize(("number", "article"), list(enumerate(ARTICLES, 1)))
def test_every_claim_of_the_article_is_judged_in_its_chapter(number, article):
    claims = {row["id"] for row in read_ledger() if row["id"].split(".")[0] == str(number)}
    assert set(stored_verdicts(pages_of(article["notebook"]))) == claims


def test_the_page_prints_the_verdict_that_was_computed(subtests):
    cells = [(path, cell) for path in NOTEBOOKS for cell in read(path).cells]
    for path, output in ((path, o) for path, cell in cells for o in cell.get("outputs", ())):
        if stored := output.get("data", {}).get(MIME):
            with subtests.test(notebook=path.stem, claim=stored["id"]):
                words = f"Claim {stored['id']} {stored['verdict']}"
                assert words in output.data["text/plain"]
                assert words in output.data["text/html"]


def test_the_ledger_is_what_the_notebooks_computed():
    assert read_ledger() == updated_ledger(read_ledger(), NOTEBOOKS)


def misquoted_cells(notebook) -> list[str]:
    """The lines of cells that an output quotes, but that the cells do not have."""
    found = []
    cells = {cell.execution_count: cell for cell in code_cells(notebook)}
    for cell in cells.values():
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            for number, line, quoted in re.findall(r"Cell In\[(\d+)\]:(\d+)(?:  (.+))?", text):
                source = cells[int(number)].source.splitlines()[int(line) - 1].strip()
                if quoted not in ("", source):
                    found.append(f"cell {cell.id}: {quoted!r} is not {source!r}")
    return found


def test_a_cell_that_an_output_names_has_the_line_it_quotes(subtests):
    """nbval does not compare the numbers of cells: tests/nbval.cfg."""
    for path in NOTEBOOKS:
        with subtests.test(notebook=path.stem):
            assert misquoted_cells(read(path)) == []


SMALL = """
def program(retain_graph):
    import torch
    y = torch.ones(3, requires_grad=True).exp().sum()
    y.backward(retain_graph=retain_graph)
    y.backward()
"""


def _stream(notebook):
    notebook.cells[0].outputs[0].text = "3.15\n"


def _html(notebook):
    data = notebook.cells[2].outputs[0].data
    data["text/html"] = data["text/html"].replace(",12,null,", ",13,null,", 1)  # a tensor's bytes


def _error_name(notebook):
    notebook.cells[1].outputs[0].ename = "KeyError"


def _error_text(notebook):
    notebook.cells[1].outputs[0].evalue = "seven"


def _no_longer_raises(notebook):
    notebook.cells[1].source = "pass"


def _error_forgotten(notebook):
    notebook.cells[1].outputs = []


def _output_forgotten(notebook):
    notebook.cells[0].outputs = []


def _not_executed(notebook):
    notebook.cells[0].outputs = []
    notebook.cells[0].execution_count = None


CHANGES = [
    _stream,
    _html,
    _error_name,
    _error_text,
    _no_longer_raises,
    _error_forgotten,
    _output_forgotten,
    _not_executed,
]


def test_nothing_stored_can_change_unseen(tmp_path):
    """Change one thing at a time in a good notebook: nbval or a rule above must object."""
    cell = nbformat.v4.new_code_cell
    raising = cell("raise ValueError('six')", metadata={"tags": ["raises-exception"]})
    player = cell(
        f"from gradtrace import explore{SMALL}\nexplore(program, retain_graph=True) and None"
    )
    good = nbformat.v4.new_notebook(cells=[cell("print(3.14)"), raising, player])
    nbformat.write(good, tmp_path / "good.ipynb")
    execute_notebook(tmp_path / "good.ipynb")
    stored = nbformat.read(tmp_path / "good.ipynb", as_version=4)
    changed = {}
    for change in CHANGES:
        changed[change.__name__] = copy.deepcopy(stored)
        change(changed[change.__name__])
        assert changed[change.__name__] != stored
        nbformat.write(changed[change.__name__], tmp_path / f"{change.__name__}.ipynb")
    nbval = ["-m", "pytest", "-p", "warm_kernels", "--nbval"]  # as `make test` has it
    run = subprocess.run(
        [sys.executable, *nbval, "-q", "-rf", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    refused = set(re.findall(r"FAILED (\w+)\.ipynb", run.stdout))
    refused |= {name for name, notebook in changed.items() if violations(notebook)}
    assert refused == set(changed), run.stdout
