"""A real JupyterLab and Notebook 7: live players, what is kept, what is shown untrusted."""

import importlib.util
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
import torch
from playwright.sync_api import expect

from gradtrace import snapshot, trace

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

# The module that serves, its name in options, and where it opens a notebook.
APPS = {
    "JupyterLab": ("jupyterlab", "LabApp", "lab/tree"),
    "Notebook 7": ("notebook", "JupyterNotebookApp", "notebooks"),
}

RUN_IN_KERNEL = """
code => new Promise(resolve => {
  let text = "";
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code });
  future.onIOPub = message => { text += message.content.text ?? ""; };
  future.done.then(() => resolve(text.trim()));
})
"""


@pytest.fixture(scope="module")
def jupyter(request, tmp_path_factory):
    """A server of JupyterLab or Notebook: the address of a notebook's page, and the folder."""
    command, app, page = APPS[request.param]
    if importlib.util.find_spec(command) is None:
        pytest.skip(f"{request.param} is not installed")
    root = tmp_path_factory.mktemp(command)
    shutil.copytree(NOTEBOOKS, root / "notebooks")
    tracker = root / "settings" / "@jupyterlab" / "notebook-extension"
    tracker.mkdir(parents=True)
    # Render every cell, not only those in view.
    (tracker / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    server = subprocess.Popen(
        [sys.executable, "-m", command, "--no-browser", "--allow-root", "--port=0",
         "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=",
         "--ServerApp.disable_check_xsrf=True", f"--{app}.expose_app_in_browser=True",
         f"--ServerApp.root_dir={root}", f"--{app}.user_settings_dir={root / 'settings'}",
         f"--{app}.workspaces_dir={root / 'workspaces'}", "--LabApp.news_url=None"],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                # Unread, its log would fill the pipe, and then the server would wait for ever.
                threading.Thread(target=server.stderr.read, daemon=True).start()
                await_listening(server, found[0])
                yield found[0], page, root
                break
        else:
            pytest.fail(f"{request.param} did not start")
    finally:
        server.terminate()
        server.wait(120)


def await_listening(server, address):
    """Jupyter tells its address before it listens there."""
    parts = urlsplit(address)
    while server.poll() is None:
        try:
            socket.create_connection((parts.hostname, parts.port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.1)
    pytest.fail("the server ended")


@pytest.fixture
def open_notebook(visit, jupyter):
    """Open a notebook, by its path below the server's folder."""
    address, page, _ = jupyter

    def open_notebook(name):
        # With ?reset, JupyterLab does not open what an earlier test had open.
        shown = visit(f"{address}{page}/{name}?reset", address)
        ready(shown)
        return shown

    return open_notebook


def ready(page):
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady")


def command(page, name, **arguments):
    page.evaluate("([name, given]) => jupyterapp.commands.execute(name, given)", [name, arguments])


def until(page, code, expected):
    """Ask the kernel until it says what is expected: what the player tells it is on its way."""
    for _ in range(100):
        if page.evaluate(RUN_IN_KERNEL, code).endswith(expected):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"{code} never gave {expected!r}")


@pytest.mark.parametrize("jupyter", ["JupyterLab"], indirect=True)
def test_the_live_controls_drive_the_player_and_python_sees_it(open_notebook):
    page = open_notebook("notebooks/01_two_networks.ipynb")
    command(page, "notebook:run-all-cells")
    live = page.locator('.gradtrace[data-function="shared_encoder"]').first
    live.scroll_into_view_if_needed(timeout=120_000)
    live.locator(".player").wait_for(timeout=120_000)
    page.wait_for_function("place => place.gradtrace.model", arg=live.element_handle())
    ask = "print(shared_encoder.setting['edits'], shared_encoder.player.step)"
    live.locator(".box.choice", has_text="TanhBackward0").click()
    live.get_by_role("button", name="Check").click()
    assert live.locator(".reply").inner_text().startswith("✓ Right.")
    chosen = "print(*(shared_encoder.trace().nodes[i].name for i in shared_encoder.player.answer))"
    until(page, chosen, "TanhBackward0")
    live.get_by_label("Last step").press("Enter")
    assert "RuntimeError" in live.locator(".outcome").inner_text()

    live.locator(".can-edit", has_text="loss2").click()
    live.locator(".outcome", has_text="Ends without an error").wait_for()
    until(page, "print(shared_encoder.setting['edits'])", "add the losses")
    assert "(loss1 + loss2).backward()" in live.locator(".added").inner_text()

    _, step = page.evaluate(RUN_IN_KERNEL, ask).rsplit(" ", 1)
    live.get_by_label("Step back").click()
    position = live.locator(".position")
    assert position.inner_text().startswith(f"step {step} of")
    until(page, ask, f" {int(step) - 1}")

    page.evaluate(RUN_IN_KERNEL, "shared_encoder.player.step = 0")
    live.locator(".position", has_text="step 1 of").wait_for()
    assert live.locator(".empty").is_visible()  # there is no graph yet

    edits = "shared_encoder.controls['edits'].widget"
    page.evaluate(RUN_IN_KERNEL, f"{edits}.value = 'as written'")
    expect(live.locator(".added")).to_have_count(0)
    live.get_by_label("Last step").click()
    assert "RuntimeError" in live.locator(".outcome").inner_text()

    live.get_by_role("button", name="Edit the program").click()
    own = live.get_by_role("textbox", name="Your program")
    own.fill(own.input_value().replace("loss1.backward()", "loss1.neg().backward()"))
    live.get_by_role("button", name="Run this program").click()
    live.locator(".lines", has_text="loss1.neg().backward()").wait_for()
    until(page, "print(shared_encoder.setting['edits'])", "None")


def write(jupyter, name, cells):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(notebook, jupyter[2] / f"{name}.ipynb")


CELLS = [
    "import torch\nfrom gradtrace import explore, snapshot, trace\n"
    "from gradtrace.questions import WhichLineRaises\n%load_ext gradtrace",
    "@explore(retain_graph=[False, True], ask=WhichLineRaises())\n"
    "def twice(retain_graph):\n"
    "    loss = torch.ones(3, requires_grad=True).exp().sum()\n"
    "    loss.backward(retain_graph=retain_graph)\n"
    "    loss.backward()",
    "twice",
    "def step():\n"
    "    loss = torch.ones(3, requires_grad=True).exp().sum()\n"
    "    loss.backward()\n"
    "trace(step)",
    "loss = torch.ones(3, requires_grad=True).exp().sum()\nloss.backward()\nsnapshot(loss)",
    "loss.backward()",
    "%explain",
]


@pytest.mark.parametrize("jupyter", APPS, indirect=True)
def test_a_notebook_plays_and_draws_what_its_cells_show(open_notebook, jupyter):
    raises = {"tags": ["raises-exception"]}
    write(jupyter, "every", [nbformat.v4.new_code_cell(text, metadata=raises) for text in CELLS])
    page = open_notebook("every.ipynb")
    command(page, "notebook:run-all-cells")
    cells = page.locator(".jp-CodeCell")
    _, asked, again, traced, drawn, _, explained = (cells.nth(i) for i in range(7))
    explained.get_by_text("gradtrace: ").wait_for(timeout=120_000)
    assert "fix:" in explained.inner_text()

    asked.locator(".choice", has_text="loss.backward()").click()
    asked.get_by_role("button", name="Check").click()
    assert asked.locator(".reply").inner_text().startswith("✓ Right.")
    until(page, "print(twice.player.answer)", "[5]")
    asked.get_by_label("First step").click()
    again.scroll_into_view_if_needed()  # only then it is built
    again.locator(".position", has_text="step 1 of 4").wait_for()
    again.get_by_role("combobox", name="retain_graph").select_option("True")
    expect(asked.locator(".outcome")).to_contain_text("Ends without an error")
    until(page, "print(twice.setting['retain_graph'], twice.player.trace['error'])", "True None")

    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    asked.locator('.player[data-theme="dark"]').wait_for()
    traced.scroll_into_view_if_needed()
    traced.locator('.player[data-theme="dark"]').wait_for()
    assert drawn.locator("svg", has_text="ExpBackward0  freed").is_visible()

    page.evaluate("jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    page.wait_for_function("!document.gradtraceModels.size")  # nobody is joined to what is gone
    ready(page)
    command(page, "notebook:run-all-cells")
    until(page, "print(twice.player.answer)", "[]")
    asked.locator(".gradtrace").scroll_into_view_if_needed()
    asked.get_by_role("button", name="Show me").click()  # asked anew
    asked.get_by_label("Step back").click()
    until(page, "print(twice.player.step)", "2")

    command(page, "docmanager:save")
    page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.reload()
    ready(page)
    asked.scroll_into_view_if_needed()
    asked.get_by_role("button", name="Show me").click()
    assert "RuntimeError" in asked.locator(".outcome").inner_text()
    asked.get_by_role("combobox", name="retain_graph").select_option("True")
    assert "Ends without an error" in asked.locator(".outcome").inner_text()
    assert page.get_by_text("Error displaying widget").count() == 0
    traced.scroll_into_view_if_needed()
    traced.get_by_label("Last step").click()
    assert "step 3 of 3" in traced.locator(".position").inner_text()
    assert drawn.locator("svg", has_text="ExpBackward0").is_visible()


@pytest.mark.parametrize("jupyter", APPS, indirect=True)
def test_a_notebook_that_is_not_trusted_says_in_words_what_it_cannot_show(open_notebook, jupyter):
    def failing():
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()

    graph = snapshot(torch.ones(3, requires_grad=True).exp().sum())
    cells = []
    for shown in (trace(failing), graph):
        data = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
        output = nbformat.v4.new_output("execute_result", data)
        cells.append(nbformat.v4.new_code_cell("0", outputs=[output]))
    write(jupyter, "foreign", cells)
    page = open_notebook("foreign.ipynb")
    played, drawn = (page.locator(".jp-OutputArea-output").nth(i) for i in range(2))
    expect(played).to_contain_text("run the cell or trust the notebook", timeout=30_000)
    assert "Trying to backward" in played.inner_text()
    assert drawn.locator("svg").count() == 0
    assert "Not drawn here: this notebook is not trusted" in drawn.inner_text()
    assert "ExpBackward0, ■ result [3]," in drawn.inner_text()
