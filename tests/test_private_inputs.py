"""Answers broken at random, really run: of private inputs no word is in any output.

Each answer tries to tell what it is called with, by a way drawn at random: it prints, raises, names
types and results, ends its process, writes to every file that is open, or leaves something behind
for later.  ``BROKEN=10000`` runs that many of them.
"""

import json
import os
import random
import textwrap

import pytest
from test_grading import CHECKOUT, MASTER, MASTERS, NAME

from backward_twice.grading.feedback import tables
from backward_twice.grading.feedback.student_page import page
from backward_twice.grading.judging import grader
from backward_twice.grading.judging.draws import read_draws
from backward_twice.grading.judging.master import Answers
from backward_twice.grading.platforms.nbgrader.autograded import notebook

BROKEN = int(os.environ.get("BROKEN", 40))
NEEDLES = ("7341.0625", "QZXW")
PRIVATE = """
import torch
def one_update(generator):
    def all_alike(*shape):
        return torch.full(shape, 7341.0625)
    names = ("trunk's first layer", "trunk's second layer", "head a", "head b")
    shapes = ((4, 3), (4, 4), (1, 4), (2, 4))
    return {
        "weights": {f"QZXW {n}": all_alike(*s) for n, s in zip(names, shapes)},
        "x": all_alike(5, 3), "targets": [all_alike(5, 1), all_alike(5, 2)], "rate": 7341.0625,
    }
trunk_gradients = one_update
"""

# All that an answer can lay hands on: what it was called with, and the frames above it.
SEES = """
import contextlib, gc, io, json, os, signal, sys, threading, warnings
def _seen(*given):
    found, frame = [repr(given)], sys._getframe()
    while frame:
        with contextlib.suppress(Exception):
            found += [repr(v)[:5000] for v in list(frame.f_locals.values())]
        frame = frame.f_back
    for thing in given:
        with contextlib.suppress(Exception):
            found += [str(p.data.tolist()) for p in thing.parameters()]
    return " ".join(found)
def _only_private(seen):
    return "7341" + ".0625" in seen
def _all_files():
    for fd in range(3, 60):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            yield fd
"""
WHEN = ("True", "_only_private(seen)", "not _only_private(seen)", "len(seen) % 2")
WAYS = (
    "print(seen[:9000])",
    "print(seen[:9000], file=sys.__stderr__)",
    "raise ValueError(seen[:1500])",
    "raise type(seen[:200], (Exception,), {})(seen[:900])",
    "raise type('NotImplementedError', (NotImplementedError,), {})(seen[:900])",
    "raise NotImplementedError(seen[:900])",
    "raise type('MemoryError', (MemoryError,), {})(seen[:900])",
    "raise KeyboardInterrupt(seen[:900])",
    "sys.exit(seen[:900])",
    "return {seen[:900]: 1.0}",
    "return {'result': seen[:900]}",
    "return [seen[:900]] * 3",
    "return seen[:900], seen[:900], seen[:900]",
    "return object()",
    "os._exit(len(seen) % 256)",
    "os.kill(os.getpid(), signal.SIGKILL)",
    "one_update.__globals__['one_update'] = seen",
    "warnings.warn(seen[:900])",
    "for fd in _all_files(): os.write(fd, (seen[:900] + chr(10)).encode())",
    "for fd in _all_files(): os.write(fd, _end(0, seen))",
    "for n in range(20): [os.write(fd, _end(n, seen)) for fd in _all_files()]",
    "open('/tmp/seen', 'a').write(seen[:900])",
    "given[0].__class__.__name__ = seen[:900]",
    "given[0].__class__.__repr__ = lambda self: seen[:900]",
    "sys.modules['backward_twice.checks.two_losses'].one_update.__dict__['answer'] = seen[:90]",
    "setattr(torch, 'float32', seen[:90])",
    "threading.Thread(target=print, args=(seen[:900],)).start()",
    "os.fork() or print(seen[:900])",
    "get_ipython().ex('raise ValueError(' + repr(seen[:900]) + ')')",
    "exec('raise ' + 'E' + 'xception(seen[:900])')",
    "raise ExceptionGroup(seen[:300], [ValueError(seen[:300])])",
    "raise ValueError from type(seen[:90], (Exception,), {})(seen[:90])",
    "bytearray(1 << 42)",
    "(lambda f: f(f))(lambda f: f(f))",
    "pass",
)
ENDS = """
def _end(number, text):
    end = {"done": number, "output": text[:900], "error": text[:900], "ename": text[:90]}
    return (json.dumps(end | {"observed": None}) + chr(10)).encode()
"""
BEFORE = (
    "",
    "open('/tmp/seen').read() if os.path.exists('/tmp/seen') else None",
    "print(_seen())",
    "found = [repr(o)[:300] for o in gc.get_objects() if type(o) is dict and 'draws' in o]\n"
    "print(found)",
    "for fd in _all_files(): os.set_blocking(fd, False)",
    "raise ValueError(_seen())",
)


def solutions():
    """The right answers' sources, by the answer's id."""
    text = (CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb").read_text(encoding="utf-8")
    right = {}
    for cell in json.loads(text)["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        right[grade_id] = "".join(cell["source"])
    return {answer.id: right[answer.id] for answer in MASTER.answers}


RIGHT = solutions()


def broken(chance):
    """The answers of somebody who is after the inputs."""
    sources = {}
    for answer in MASTER.answers:
        [name] = answer.defines
        ways = [(chance.choice(WHEN), chance.choice(WAYS)) for _ in range(chance.randint(1, 3))]
        body = "".join(f"    if {when}:\n        {way}\n" for when, way in ways)
        ask_right = chance.choice(["return _right(*given)", "result = _right(*given)", "pass"])
        first = chance.random() < 0.5
        lines = f"    {ask_right}\n"
        source = (
            f"{SEES}{ENDS}{chance.choice(BEFORE)}\n"
            f"{RIGHT[answer.id]}\n_right = {name}\n"
            f"def {name}(*given):\n    seen = _seen(*given)\n"
            f"{body + lines if first else lines.replace('return', 'result =') + body}"
            "    return locals().get('result')\n"
        )
        sources[answer.id] = (textwrap.dedent(source),)
    return Answers(sources, {}, ())


@pytest.fixture
def settings(bubblewrap):
    return {
        "limits": {"seconds": 3.0, "total": 12.0, "memory": 1 << 30},
        "hide": [],
    }


def test_broken_answers_tell_nothing_of_private_inputs(settings, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / f"{NAME}.py").write_text(PRIVATE)
    draws = read_draws(tmp_path, tmp_path / "private", MASTERS)
    master = CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb"
    told, passed = 0, 0
    for seed in range(BROKEN):
        given = broken(random.Random(seed))
        asked = grader.job("eve", MASTER, given, draws, settings)
        result = grader.grade(asked)
        outputs = json.dumps(
            [
                result,
                tables.row(result, []).detail,
                page(result, MASTER, []),
                notebook(result, master),
            ]
        )
        assert not [needle for needle in NEEDLES if needle in outputs], (seed, given)
        told += "weights" in outputs or "0." in outputs
        passed += result["points"]
    assert told and passed < 3 * BROKEN


def test_the_ways_do_tell_where_inputs_are_public(settings, tmp_path):
    """The same answers, asked of inputs that are not private: there the words are shown."""
    draws = read_draws(tmp_path, None, MASTERS)
    ways = " ".join(
        json.dumps(
            grader.grade(grader.job("eve", MASTER, broken(random.Random(seed)), draws, settings))
        )
        for seed in range(10)
    )
    assert "Linear(in_features" in ways
