"""The chapter in a real JupyterLab: its controls are ipywidgets and Python sees them change."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

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
def lab(tmp_path_factory):
    """The address of a JupyterLab that serves a copy of the notebooks."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, root / "notebooks")
    tracker = root / "settings" / "@jupyterlab" / "notebook-extension"
    tracker.mkdir(parents=True)
    # Render every cell, not only those in view.
    (tracker / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
         "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=",
         "--ServerApp.disable_check_xsrf=True", "--LabApp.expose_app_in_browser=True",
         f"--ServerApp.root_dir={root}", f"--LabApp.user_settings_dir={root / 'settings'}",
         f"--LabApp.workspaces_dir={root / 'workspaces'}", "--LabApp.news_url=None"],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield found[0]
                break
        else:
            pytest.fail("JupyterLab did not start")
    finally:
        server.terminate()
        server.wait(30)


def test_the_live_controls_drive_the_player_and_python_sees_it(visit, lab):
    page = visit(f"{lab}lab/tree/notebooks/01_two_networks.ipynb", lab)
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady")
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    live = page.locator(".widget-vbox", has=page.locator("text=def shared_encoder(")).first
    live.locator(".player").wait_for(timeout=120_000)
    ask = "print(shared_encoder.setting['fix'], shared_encoder.player.step)"
    live.locator(".box.choice", has_text="TanhBackward0").click()
    live.get_by_role("button", name="Check").click()
    assert live.locator(".reply").inner_text().startswith("✓ Right.")
    page.wait_for_timeout(300)
    chosen = "p = shared_encoder.player; print(p.trace['nodes'][p.answer[0]]['name'])"
    assert page.evaluate(RUN_IN_KERNEL, chosen) == "TanhBackward0"
    live.get_by_label("Last step").press("Enter")
    assert "RuntimeError" in live.locator(".outcome").inner_text()

    live.locator(".widget-dropdown select").select_option("add the losses")
    live.locator(".outcome", has_text="Ends without an error").wait_for()
    fix, step = page.evaluate(RUN_IN_KERNEL, ask).rsplit(" ", 1)
    assert fix == "add the losses"

    live.get_by_label("Step back").click()
    position = live.locator(".bar span").first
    assert position.inner_text().startswith(f"step {step} of")
    page.wait_for_timeout(300)
    assert page.evaluate(RUN_IN_KERNEL, ask).endswith(f" {int(step) - 1}")

    page.evaluate(RUN_IN_KERNEL, "shared_encoder.player.step = 0")
    live.locator(".bar span", has_text="step 1 of").wait_for()
    assert "No graph" in live.locator(".graph").inner_text()
