"""Exercise ``broken_script``: a training script with one fault, to be repaired in few lines.

Three scripts are drawn: one raises because a graph was freed, one because a saved tensor was
changed in place, and one raises nothing but trains a part of the network wrongly.  A repaired
script is run, and its losses and parameters are those of the script without a fault,
``broken_script.txt``.
"""

import difflib
import linecache
from pathlib import Path

from backward_twice.checks.task import Task

_SCRIPT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
_FAULTS = (
    ("self.state = state.detach()", "self.state = state"),
    ("features = features * self.scale", "features *= self.scale"),
    ("self.predictor(features, self.state)", "self.predictor(features.detach(), self.state)"),
)
_MOST_CHANGED = 2
_FEW = f"at most {_MOST_CHANGED} lines are changed"


def _draw(draws):
    sizes = [
        {
            "seed": draws.integer(0, 9999),
            "features": draws.integer(3, 5),
            "hidden": draws.integer(4, 6),
            "steps": draws.integer(3, 5),
            "batch": draws.integer(2, 4),
            "rate": draws.integer(20, 40) / 100,
        }
        for _ in _FAULTS
    ]
    scripts = [
        _SCRIPT.format(**script_sizes).replace(*fault)
        for script_sizes, fault in zip(sizes, draws.shuffled(_FAULTS), strict=True)
    ]
    return {"scripts": scripts}


def _number_of_changes(script, repaired):
    matcher = difflib.SequenceMatcher(None, script.splitlines(), repaired.splitlines())
    return sum(max(b - a, d - c) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal")


def _run(answer, scripts):
    results = {}
    answers = [answer(script) for script in scripts]  # all of them first, for `calls`
    for number, (script, repaired) in enumerate(zip(scripts, answers, strict=True), 1):
        file = f"<script {number}>"
        # An error in it is shown with its line.
        linecache.cache[file] = len(repaired), None, repaired.splitlines(keepends=True), file
        names = {"__name__": "script"}
        exec(compile(repaired, file, "exec"), names)
        results |= {
            f"script {number}: losses": names["losses"],
            f"script {number}: validation loss": names["validation_loss"],
            f"script {number}: parameters": names["parameters"],
            f"script {number}: {_FEW}": _number_of_changes(script, repaired) <= _MOST_CHANGED,
        }
    return results


repair = Task("repair", _draw, run=_run)
