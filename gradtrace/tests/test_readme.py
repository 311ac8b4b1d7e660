"""The first example of the README ends, and is repaired, as the README says; its question asks."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gradtrace._torch import outputs_of

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(
    not outputs_of(torch.ones(1, requires_grad=True).exp().grad_fn),
    reason="this PyTorch does not tell what an operation made: the cause is only likely",
)
def test_the_note_is_what_the_program_gets(tmp_path):
    program = re.search(r"```python\n(.*?)```", README, re.S)[1]
    note = re.search(r"```text\n(.*?)```", README, re.S)[1]
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "gradtrace", "--strict", "train.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.replace(f"{tmp_path}/", "").endswith(f"\n{note}")


def test_the_repair_is_what_the_program_gets(tmp_path):
    program = re.search(r"```python\n(.*?)```", README, re.S)[1]
    said = next(text for text in re.findall(r"```text\n(.*?)```", README, re.S) if "Proven" in text)
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "gradtrace", "fix", "train.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(said.strip())


def test_the_picture_of_a_snapshot_is_made_as_the_readme_says(tmp_path):
    program = next(
        text for text in re.findall(r"```python\n(.*?)```", README, re.S) if "svg" in text
    )
    (tmp_path / "picture.py").write_text(program)
    command = [sys.executable, "picture.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "layers.0 to 11 × 12" in (tmp_path / "graph.svg").read_text(encoding="utf-8")
    nodes, activations = map(int, run.stdout.split())
    assert nodes > 500 and activations > 1_000_000


def test_the_question_is_asked(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ipywidgets")
    monkeypatch.syspath_prepend(tmp_path)
    program = next(
        text for text in re.findall(r"```python\n(.*?)```", README, re.S) if "ask=" in text
    )
    (tmp_path / "asking.py").write_text(f"import torch\n{program}")
    question = importlib.import_module("asking").step.question
    assert [question.kind, len(question.right)] == ["line", 1]
    assert "nothing has been freed yet" in " ".join(question.replies.values())
