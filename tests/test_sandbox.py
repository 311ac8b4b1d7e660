"""Submissions that mean harm, each beside an honest question that must come out as ever.

A submission here is a set-up cell, one or more hostile cells, and questions.  The question is made
up by the set-up cell, so no exercise is needed: ``trial.double`` wants its input twice.  After each
test an honest submission is run, and this process may have no descendant but the warm process.
"""

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from backward_twice import checks
from backward_twice.checks import plain
from backward_twice.grading.sandbox import bubblewrap, events, protocol, seccomp, syscalls
from backward_twice.grading.sandbox.events import parsed
from backward_twice.grading.sandbox.forks import Sandbox
from backward_twice.grading.sandbox.limits import SandboxError, SubmissionLimits
from backward_twice.grading.sandbox.process import environment
from backward_twice.grading.sandbox.protocol import check_sandbox, run_steps

ROOT = Path(__file__).parents[1]
MB = 1 << 20
LIMITS = SubmissionLimits(
    seconds=5, clock=8, memory=512 * MB, processes=24, files=16 * MB, total=40
)
# What ends by processor time has much by the clock, for a busy machine; what waits has less.
FOR = {
    "timeout": replace(LIMITS, seconds=0.5, clock=80),
    "slow": replace(LIMITS, seconds=1, clock=4),
    "memory": replace(LIMITS, seconds=40, clock=80, memory=320 * MB),
}

TRIAL = """
import ctypes, gc, json, os, signal, socket, subprocess, sys, threading, time
from types import ModuleType
import torch
from backward_twice.checks import Task
trial = ModuleType("backward_twice.checks.trial")
trial.double = Task("double", None, expect=lambda x: {"result": 2 * x})
trial.raw = Task("raw", None, expect=lambda x: {"result": 2 * x})
sys.modules[trial.__name__] = trial
def double(x):
    return 2 * x
raw = double
"""


def cell(source, name="cell"):
    return {"kind": "cell", "id": name, "source": source}


def question(name="double", draws=2):
    texts = [plain.dumps({"x": number + 3}) for number in range(draws)]
    return {"kind": "question", "id": name, "question": f"trial.{name}", "draws": texts}


def observed(result):
    assert result["outcome"] == "done", result
    assert result["error"] is None, result
    return [json.loads(text) for text in result["observed"]]


DOUBLED = [{"result": 6}, {"result": 8}]


def descendants():
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            parents[int(path.parent.name)] = int(parent), state
    found = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


@pytest.fixture(scope="module")
def started():
    """The sandbox, its warm process started."""
    try:
        box = Sandbox()
        run_steps([cell("")], LIMITS, box)
    except SandboxError as error:
        if os.environ.get("SANDBOX") == "required":
            raise
        pytest.skip(f"no bubblewrap here: {error}")
    with box:
        yield box


@pytest.fixture
def box(started):
    """The sandbox; afterwards it must be as good as before, and nothing may be left."""
    before = descendants()
    yield started
    assert until(lambda: not descendants() - before), "processes are left"
    setup, answer = run_steps([cell(TRIAL), question()], LIMITS, started)
    assert setup["error"] is None
    assert observed(answer) == DOUBLED


def attack(box, *sources, limits=LIMITS, asked=("double",)):
    """The hostile cells' results; the set-up and an honest question are around them."""
    steps = [cell(TRIAL), *map(cell, sources), *map(question, asked)]
    results = run_steps(steps, limits, box)
    assert results[0]["outcome"] == "done", results[0]
    assert results[0]["error"] is None, results[0]
    return results[1:]


# What a step may do is its own affair


def test_a_notebook_s_language(box):
    """Magics, a shell's commands, top-level await, a last line that is shown."""
    results = attack(
        box,
        "import asyncio\nawait asyncio.sleep(0)\n'awaited'",
        "%time x = 1",
        "def run(word):\n    !printf 'from {word}\\377'; exit 7\nrun('the shell')\n_exit_code",
        "from IPython.display import HTML\nHTML('<b>bold</b>')",
        "from gradtrace import explain, snapshot, trace, watch",
    )
    assert [result["error"] for result in results] == [None] * 6
    assert "'awaited'" in results[0]["output"]
    assert "time" in results[1]["output"]
    assert "from the shell" in results[2]["output"] and "]: 7" in results[2]["output"]
    assert observed(results[-1]) == DOUBLED


RAISED = {
    "exit": ("sys.exit(3)", "SystemExit"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "own": ("class E(BaseException): pass\nraise E('x')", "E"),
    "generator": ("raise GeneratorExit", "GeneratorExit"),
    "input": ("input()", "EOFError"),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "refuses its text": ("class E(Exception):\n def __str__(self): raise E\nraise E", "E"),
    "wrong text": ("class E(Exception):\n def __str__(self): return 3\nraise E", "E|TypeError"),
    "lies": ("class E(Exception):\n __class__ = int\nraise E", "E"),
    "surrogates": ("raise ValueError(chr(0xD800) + chr(0))", "ValueError"),
}
NOT_COMPILED = {
    "syntax": ("def", "SyntaxError"),
    "nul": ("x = 1\0", "SyntaxError|ValueError"),
    "surrogate": ("x = '\ud800'\nprint(x)", "UnicodeEncodeError"),
}


@pytest.mark.parametrize("case", RAISED | NOT_COMPILED)
def test_whatever_a_cell_raises_costs_that_cell(box, case):
    source, name = (RAISED | NOT_COMPILED)[case]
    hostile, honest = attack(box, source)
    was_raised(hostile, name)
    assert observed(honest) == DOUBLED


@pytest.mark.parametrize("case", RAISED)
def test_whatever_an_answer_raises_costs_that_question(box, case):
    source, name = RAISED[case]
    body = source.replace("\n", "\n    ")
    _, hostile, honest = attack(box, f"def raw(x):\n    {body}", asked=("raw", "double"))
    was_raised(hostile, name)
    assert hostile["observed"] is None
    assert observed(honest) == DOUBLED


def was_raised(result, name):
    assert result["outcome"] == "done"
    assert re.fullmatch(name, result["ename"])
    assert result["error"].startswith(result["ename"])
    json.dumps(result, ensure_ascii=False).encode()


def test_leaving_as_one_leaves_a_notebook(box):
    hostile, honest = attack(box, "exit()\nquit()")
    assert hostile["outcome"] == "done"
    assert observed(honest) == DOUBLED


def test_output_is_kept_up_to_a_bound(box):
    results = attack(
        box,
        "print('x' * 200_000_000)",
        "for _ in range(200): print('x' * 1_000_000)",
        "chunk = b'x' * 1_000_000\nfor _ in range(200): os.write(1, chunk)",
        "subprocess.run('yes | head -c 200000000', shell=True)",
        "sys.stderr.write('y' * 50_000); print(file=sys.__stdout__)",
        "1 / 0  # " + "x" * 100_000,
        r"print('\ud800 \0 \x1b[31m \x85')",
        limits=SubmissionLimits(seconds=20, output=1000),
    )
    assert all(result["outcome"] == "done" for result in results)
    assert all(len(result["output"]) < 1200 for result in results)
    assert "and 199999001 more characters" in results[0]["output"]
    assert results[0]["output"].startswith("xxx")
    assert "\x1b" not in results[6]["output"]
    results[6]["output"].encode()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("(i for i in range(3))", "TypeError"),
        ("torch", "TypeError"),
        ("int", "TypeError"),
        ("type('L', (), {'__class__': dict, '__eq__': lambda *_: True})()", "TypeError"),
        ("type('L', (), {'__reduce__': lambda s: (os.system, ('id',))})()", "TypeError"),
        ("type('S', (str,), {'__eq__': lambda *_: True, '__hash__': None})('x')", None),
        ("torch.zeros(1).expand(10**9)", "ValueError"),
        ("torch.zeros(1).expand(10**9).to_sparse", "TypeError"),
        ("torch.zeros(10**10)", "MemoryError"),
        ("torch.empty(3, device='meta')", "NotImplementedError"),
        ("torch.tensor(1j)", "TypeError"),
        ("torch.zeros(3).to_sparse()", r"\w*Error"),
        ("{1: 2}", "TypeError"),
        ("{'result': [[]] * 3}", None),
        ("float('nan')", None),
        ("10 ** 5000", "ValueError"),
        ("'\\ud800'", None),
        ("eval('[' * 19 + ']' * 19)", None),
        ("eval('[' * 90 + ']' * 90)", "ValueError"),
    ],
)
def test_whatever_an_answer_gives_is_data_or_an_error(box, value, name):
    _, hostile, honest = attack(box, f"def raw(x): return {value}", asked=("raw", "double"))
    if name is None:
        assert hostile["error"] is None
        assert len(hostile["observed"]) == 2
    else:
        raised = name == "MemoryError"  # in the answer; all others return what is no plain data
        assert hostile["ename"] == (name if raised else "UnusableResult")
        assert raised or re.search(rf"\b{name}: ", hostile["error"])
        assert hostile["outcome"] == ("memory" if raised else "done")
    assert observed(honest) == DOUBLED


def test_nested_without_end(box):
    source = "def raw(x):\n    v = []\n    for _ in range(10**6): v = [v]\n    return v"
    _, hostile, honest = attack(box, source, asked=("raw", "double"))
    assert "ValueError: " in hostile["error"] and "lists in lists" in hostile["error"]
    assert observed(honest) == DOUBLED


@pytest.mark.parametrize("name", ["", " ", "\\u2028", "\\n", " ' * 9000 + '"])
def test_an_error_has_words(box, name):
    source = f"raise type('{name}', (Exception,), {{}})()"
    hostile, honest = attack(box, source)
    assert hostile["error"] == "an error without a name"
    assert observed(honest) == DOUBLED


@pytest.mark.parametrize("answer", ["torch", "int", "'text'", "None", "lambda: 1", "..."])
def test_an_answer_that_is_no_such_function(box, answer):
    _, hostile, honest = attack(box, f"raw = {answer}", asked=("raw", "double"))
    assert hostile["outcome"] == "done"
    assert hostile["error"] or json.loads(hostile["observed"][0]) != DOUBLED[0]
    assert observed(honest) == DOUBLED


def test_an_answer_that_is_missing(box):
    _, hostile, honest = attack(box, "del raw", asked=("raw", "double"))
    assert hostile["error"] == "NameError: no cell defines raw"
    assert observed(honest) == DOUBLED


def test_the_same_twice_gives_the_same(box):
    source = "import random\nprint(torch.rand(3), random.random())"
    first, *_ = attack(box, "torch.rand(1)", source)[1:]
    second, *_ = attack(box, source)
    assert first["output"] == second["output"]


# What hangs, dies, or takes too much

MANY = """
import mmap
for _ in range(20):
    if os.fork() == 0:
        kept = []
        while True:{}
        time.sleep(1000)
time.sleep(1000)
"""
ENDS = {
    "loop": ("while True: pass", "timeout"),
    "swallow": (
        """
while True:
    try:
        while True: pass
    except BaseException: pass
""",
        "timeout",
    ),
    "signals": (
        """
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: time.sleep(100)
""",
        "slow",
    ),
    "sleep": ("time.sleep(1e6)", "slow"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", "slow"),
    "deadlock": ("lock = threading.Lock()\nlock.acquire()\nlock.acquire()", "slow"),
    "regex": ("import re\nre.match('(a*)*b', 'a' * 40)", "timeout"),
    "waiting": ("r, w = os.pipe()\nos.read(r, 1)", "slow"),
    "fork bomb": (
        """
while True:
    try: os.fork()
    except OSError: pass
""",
        "timeout",
    ),
    "_exit": ("os._exit(0)", "crashed"),
    "segfault": ("ctypes.string_at(0)", "crashed"),
    "abort": ("os.abort()", "crashed"),
    "kill self": ("os.kill(os.getpid(), signal.SIGKILL)", "crashed"),
    "kill all": ("os.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), 9)", "crashed"),
    "deep recursion": (
        "sys.setrecursionlimit(10**9)\nclass A:\n def __repr__(s): return repr(s)\nrepr(A())",
        "crashed|timeout|done",
    ),
    "exec": ("os.execv('/bin/true', ['true'])", "crashed"),
    "exec forever": ("os.execv('/bin/sleep', ['sleep', '1000'])", "slow"),
    "bytes": ("x = bytearray(100 << 30)", "memory"),
    "list": ("x = [0]\nwhile True: x = x + x", "memory"),
    "growing tensors": (
        "x = []\nwhile True: x.append(torch.ones(1 << 20))",
        "memory",
    ),
    "memory of many": (
        """
for _ in range(16):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20) * 100)
        time.sleep(1000)
time.sleep(1000)
""",
        "memory",
    ),
    "sockets of many": (
        MANY.format(
            """
            try: pair = socket.socketpair()
            except OSError: break
            kept.append(pair)
            for end in pair:
                end.setblocking(False)
                try:
                    while True: end.send(b"x" * 32768)
                except OSError: pass
            """
        ),
        "memory",
    ),
    "mappings of many": (
        MANY.format(
            """
            kept.append(mmap.mmap(-1, 250 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            start = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
            protect = ctypes.CDLL(None).mprotect
            protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            for place in range(0, 250 << 20, 8192): protect(start + place, 4096, 1)
            break
            """
        ),
        "memory",
    ),
    "memory of many, whose first thread has ended": (
        """
def fills():
    x = bytearray(os.urandom(1 << 20) * 100)
    time.sleep(1000)
for _ in range(8):
    if os.fork() == 0:
        threading.Thread(target=fills, daemon=True).start()
        ctypes.CDLL(None).syscall(EXIT, 0)
time.sleep(1000)
""".replace("EXIT", "60 if os.uname().machine == 'x86_64' else 93"),
        "memory",
    ),
    "memory of many, unreadable": (
        """
for _ in range(16):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(4, 0)
        x = bytearray(os.urandom(1 << 20) * 100)
        time.sleep(1000)
time.sleep(1000)
""",
        "memory",
    ),
}


WAITS = [name for name, (_, outcome) in ENDS.items() if outcome == "slow"]


@pytest.mark.parametrize("name", [name for name in ENDS if name not in WAITS])
def test_what_ends_a_sandbox_costs_its_own_step(box, name):
    ends_its_own_step(box, name)


@pytest.mark.parametrize("name", ["loop", "_exit", "segfault", "growing tensors"])
def test_the_same_in_a_question(box, name):
    ends_its_own_question(box, name)


def test_what_waits_costs_its_own_step(box):
    """All of them wait at once, each in a sandbox of its own."""
    with ThreadPoolExecutor(len(WAITS) + 1) as pool:
        waiting = [pool.submit(ends_its_own_step, box, name) for name in WAITS]
        waiting.append(pool.submit(ends_its_own_question, box, "sleep"))
    for each in waiting:
        each.result()


def ends_its_own_step(box, name):
    source, outcome = ENDS[name]
    hostile, honest = attack(box, source, limits=FOR.get(outcome, LIMITS))
    assert re.fullmatch(outcome, hostile["outcome"]), hostile
    assert hostile["error"] or outcome.endswith("done")
    assert observed(honest) == DOUBLED


def ends_its_own_question(box, name):
    source, outcome = ENDS[name]
    body = source.strip().replace("\n", "\n    ")
    answer, limits = f"def raw(x):\n    {body}", FOR.get(outcome, LIMITS)
    _, hostile, honest = attack(box, answer, asked=("raw", "double"), limits=limits)
    assert hostile["outcome"] == outcome
    assert hostile["observed"] is None
    assert observed(honest) == DOUBLED


def test_several_of_them_leave_the_rest_alone(box, monkeypatch):
    """What was answered before is not asked again; what comes after is."""
    asking = "def raw(x):\n    print('asked')\n    return x"
    steps = [
        *(cell(TRIAL), cell(asking), question("raw")),
        *(cell("os._exit(1)"), question(), cell("ctypes.string_at(0)"), question("raw")),
    ]
    runs, start, ask = [], box.start, events.Events.ask
    monkeypatch.setattr(box, "start", lambda *given: runs.append([]) or start(*given))
    monkeypatch.setattr(
        events.Events, "ask", lambda self, what: runs[-1].append(what) or ask(self, what)
    )
    results = run_steps(steps, LIMITS, box)
    said = [[what.get("question", "").removeprefix("trial.") for what in run] for run in runs]
    assert said == [
        ["", "", "raw", "raw", ""],
        ["", "", "double", "double", ""],
        ["", "", "raw", "raw"],
    ]
    outcomes = [result["outcome"] for result in results]
    assert outcomes == ["done", "done", "done", "crashed", "done", "crashed", "done"]
    assert observed(results[4]) == DOUBLED
    assert results[2]["output"] == results[6]["output"] == "asked\nasked\n"
    assert "exit code 1" in results[3]["error"]
    assert "SIGSEGV" in results[5]["error"]


NAPS = {
    "now and then": "while True: time.sleep(0.1)",
    # Never for long enough that a look sees nothing done since the one before.
    "between work": """
while True:
    began = time.process_time()
    while time.process_time() < began + 0.01: pass
    time.sleep(0.025)
""",
}


@pytest.mark.parametrize("name", [*WAITS, *NAPS])
def test_what_does_nothing_is_ended_soon_and_for_good(box, name):
    """However busy the machine is: it keeps nobody waiting who sleeps."""
    source = NAPS.get(name) or ENDS[name][0]
    hostile, honest = attack(box, source, limits=replace(LIMITS, idle=0.5, clock=80))
    assert hostile["outcome"] == "timeout"
    assert hostile["error"] == "did nothing for 0.5 s by the clock"
    assert observed(honest) == DOUBLED


def test_what_wants_to_run_is_not_idle(box):
    """Nor is what waits for its own threads, or has another process at work."""
    works = "for _ in range(3): sum(range(10**7))"
    thread = f"def work():\n    {works}\nt = threading.Thread(target=work); t.start(); t.join()"
    process = f"subprocess.run([sys.executable, '-c', {works!r}], check=True)"
    results = attack(box, works, thread, process, limits=replace(LIMITS, idle=0.3, clock=80))
    assert [result["outcome"] for result in results] == ["done"] * len(results)


def test_the_submission_s_time_is_bounded(box):
    loops = ["while True: pass"] * 6
    results = attack(box, *loops, limits=SubmissionLimits(seconds=1, total=2.5, clock=40))
    outcomes = [result["outcome"] for result in results]
    assert outcomes == ["timeout"] * 3 + ["skipped"] * 4
    assert results[0]["error"] == "took longer than 1 s of processor time"
    assert results[2]["error"] == "the submission took longer than 2.5 s of processor time"
    assert "2.5 s" in results[-1]["error"]


def test_its_time_by_the_clock_is_bounded_too(box):
    """But that is no last word: the machine may have been slow."""
    [asleep, unreached] = attack(
        box, "time.sleep(1000)", limits=SubmissionLimits(seconds=40, total=40, clock=0.1)
    )
    assert (asleep["outcome"], unreached["outcome"]) == ("slow", "slow")
    assert asleep["error"] == "the submission took longer than 4 s by the clock"


def test_the_processor_time_of_all_its_processes_counts(box):
    source = """
for _ in range(3):
    if os.fork() == 0:
        while True: pass
os.wait()
"""
    hostile, honest = attack(box, source, limits=FOR["timeout"])
    assert hostile["outcome"] == "timeout"
    assert hostile["seconds"] > 0.5 > honest["seconds"]
    assert observed(honest) == DOUBLED


def test_what_a_dead_process_used_is_used_up():
    limits = SubmissionLimits(seconds=100, total=10)
    budget, run = events.Budget(limits), Looked(2)
    stream = events.Events(run, limits, budget)
    stream.begin()
    assert stream.ask({}) == {"done": 0}
    run.takes = 0  # it died
    stream.end()
    assert budget.processor <= 6


class Looked:
    """A run that takes so much of the processor between two looks, and answers at the third."""

    def __init__(self, takes):
        self.status, _ = os.pipe()
        _, self.job = os.pipe()
        self.events, self.answer = os.pipe()
        self.takes, self.looks = takes, 0

    def processor(self):
        self.looks += 1
        if self.looks == 4:
            os.write(self.answer, b'{"done": 0}\n')
        return self.takes * self.looks

    def is_idle(self):
        return False

    def memory(self):
        return 0

    def how_ended(self): ...
    def close(self): ...


@pytest.mark.parametrize(
    ("takes", "clock", "came"),
    [(0.01, 10**6, {"done": 0}), (0.01, 4, "slow"), (0.6, 10**6, "timeout"), (0.6, 4, "slow")],
)
def test_time_is_that_of_the_processor(monkeypatch, takes, clock, came):
    """An hour goes by from look to look: the machine is busy."""
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    limits = SubmissionLimits(seconds=1, clock=clock)
    stream = events.Events(Looked(takes), limits, events.Budget(limits))
    stream.begin()
    event = stream.ask({})
    assert event == came or event[0] == came


class Never:
    """A sandbox whose process says something that is no event, or nothing, and is never there."""

    def __init__(self, says):
        self.says, self.runs = says, []

    def start(self, limits, exercises=()):
        run = Looked(0)
        run.patience = 0.1
        run.how_ended = lambda: "the process ended"
        run.close = lambda: self.runs.append(run)
        if self.says:
            os.write(run.answer, self.says)
            os.close(run.answer)
        return run


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"", r"it did not start within 0\.1 s"),
        (b"no module named torch", "ended no module named torch$"),
    ],
)
def test_what_does_not_start_is_tried_twice_and_said(says, why):
    box = Never(says)
    with pytest.raises(SandboxError, match=f"the sandbox did not start: .*{why}"):
        run_steps([cell("1")], LIMITS, box)
    assert len(box.runs) == 2


@pytest.mark.parametrize("again", range(3))
def test_processes_are_counted(box, again):
    """However many the runs before had: the count is of this submission alone."""
    source = """
children = 0
for _ in range(50):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        time.sleep(1000)
    children += 1
print(children)
"""
    hostile, honest = attack(box, source)
    assert LIMITS.processes - 6 <= int(hostile["output"]) < LIMITS.processes
    assert observed(honest) == DOUBLED


def test_threads_are_counted(box):
    source = """
def sleeps(): time.sleep(1000)
threads = 0
try:
    for _ in range(500):
        threading.Thread(target=sleeps, daemon=True).start()
        threads += 1
except RuntimeError: pass
print(threads)
"""
    hostile, honest = attack(box, source)
    assert LIMITS.processes - 6 <= int(hostile["output"]) < LIMITS.processes
    assert observed(honest) == DOUBLED


ALL_IT_MAY = """
while True:
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        time.sleep(1000)
"""
ONE = "pid = os.fork()\nif pid == 0:\n    os._exit(0)\nprint(os.waitpid(pid, 0)[1])"


def test_one_beside_another(box):
    """Each has its own number of processes, and the end of one is not the other's."""

    def does(stream, source):
        stream.begin()
        done = stream.ask({"kind": "cell", "source": source, "output": 100})
        assert isinstance(done, dict) and done["error"] is None, done
        return done["output"]

    def started():
        return protocol._started(LIMITS, box, events.Budget(LIMITS), [])

    other, of_other = started()
    with contextlib.closing(other):
        does(of_other, "import os")
        one, of_one = started()
        with contextlib.closing(one):
            does(of_one, "import os, time")
            does(of_one, ALL_IT_MAY)
            assert does(of_other, ONE) == "0\n"
        assert does(of_other, ONE) == "0\n"


def test_no_two_submissions_at_one_time_are_one_user(monkeypatch):
    uid_map = "0 0 4294967295\n"
    monkeypatch.setattr(bubblewrap.Path, "read_text", lambda _: uid_map)
    assert len({bubblewrap._user_beside(pid) for pid in range(1, 1 << 16)}) == (1 << 16) - 1
    uid_map = "0 1000 1\n1 100000 65536\n"
    users = {bubblewrap._user_beside(pid) for pid in range(1 << 10)}
    assert len(users) == 1 << 10 and min(users) > 32_000 and max(users) < 65_536
    # Two numbers that give the same user there.
    first, claim = bubblewrap._claimed_user(7)
    with claim:
        second, other_claim = bubblewrap._claimed_user(7 + 65_536 // 4)
        with other_claim:
            assert bubblewrap._user_beside(7 + 65_536 // 4) == first != second
    third, claim = bubblewrap._claimed_user(7)
    claim.close()
    assert third == first  # it is free again


def test_root_without_users_to_spare_is_told_so(monkeypatch):
    monkeypatch.setattr(bubblewrap.Path, "read_text", lambda _: "0 1000 1\n")
    with pytest.raises(SandboxError, match="1 users here"):
        bubblewrap._user_beside(7)


def test_a_daemon_ends_with_its_submission(box):
    source = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 200)
        time.sleep(1000)
    os._exit(0)
os.wait()
print(len([p for p in os.listdir('/proc') if p.isdigit()]))
"""
    hostile, honest = attack(box, source)
    assert int(hostile["output"]) >= 4
    assert observed(honest) == DOUBLED


def test_a_copy_of_the_submission_does_not_go_on(box):
    hostile, honest = attack(box, "pid = os.fork()\nprint('here')")
    assert hostile["output"] == "here\n"
    assert observed(honest) == DOUBLED


# What a submission can reach


def told(box, *sources, **options):
    """The last line that each cell prints; it must not fail."""
    results = attack(box, *sources, **options)
    assert observed(results[-1]) == DOUBLED
    assert all(result["error"] is None for result in results), results
    return [result["output"].strip() for result in results[:-1]]


def test_its_namespaces_are_its_own(box):
    """An argument missing from the policy shows here."""
    [said] = told(
        box, "print({n: os.readlink(f'/proc/self/ns/{n}') for n in os.listdir('/proc/self/ns')})"
    )
    inside = eval(said)
    names = {"mnt", "pid", "net", "ipc", "uts"} | ({"user"} if os.geteuid() else set())
    for name in names:
        assert inside[name] != str(Path(f"/proc/self/ns/{name}").readlink()), name


def test_its_privileges_are_gone(box):
    [said] = told(box, "print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    if os.geteuid() == 0:
        assert all(uid != "0" for uid in (status["Uid"] + status["Gid"]).split())
        assert not status["Groups"].split()


def test_it_sees_no_process_but_its_own(box):
    [said] = told(
        box,
        "print([pid for pid in os.listdir('/proc') if pid.isdigit()])",
    )
    assert len(eval(said)) == 3


def test_it_signals_no_process_but_its_own(box):
    [said] = told(
        box,
        f"""
reached = []
for pid in (os.getppid(), 1, {os.getpid()}, {os.getppid()}):
    try:
        if pid: os.kill(pid, signal.SIGKILL); reached.append(pid)
    except OSError: pass
print(reached)
""",
    )
    # Pid 1 of its namespace does not mind.
    assert eval(said) in ([], [1])


SECRET = "a-word-that-is-nowhere-in-the-sandbox"


def test_it_has_no_other_submission_in_memory(box):
    told(box, f"secret = '{SECRET}'.upper()\nkept = [secret * 3] * 1000")
    needle = f"('{SECRET[:10]}' + '{SECRET[10:]}').upper().encode()"
    [said] = told(
        box,
        f"""
found = 0
with open('/proc/self/mem', 'rb', 0) as memory:
    for line in open('/proc/self/maps'):
        start, end = (int(n, 16) for n in line.split()[0].split('-'))
        if ' rw' in line:
            memory.seek(start)
            while start < end:
                try: part = memory.read(min(1 << 20, end - start))
                except OSError: break
                if not part: break
                found += part.count({needle})
                start += len(part)
print('found', found)
""",
    )
    # once or twice, because it has just made the word itself to look for it
    assert int(said.split()[1]) < 20


def test_it_cannot_look_ahead(box):
    """What is asked later is nowhere yet: in no frame, not on the heap, not in the pipe."""
    later = [plain.dumps({"x": number}) for number in (918273645, 918273646)]
    hidden = [question("raw") | {"draws": [text]} for text in later]
    looks = """
frame, found = sys._getframe(), []
while frame:
    if frame.f_globals is not globals():
        found.append(repr(frame.f_locals))
    frame = frame.f_back
found += [repr(o) for o in gc.get_objects() if isinstance(o, dict) and {"draws", "inputs"} & {*o}]
for fd in range(3, 60):
    try:
        os.set_blocking(fd, False)
        found.append(str(os.read(fd, 100_000)))
    except OSError: pass
print(len(found) > 0, [text for text in found if "91827364" in text])
"""
    results = run_steps([cell(TRIAL), cell(looks), *hidden], SubmissionLimits(), box)
    assert results[1]["output"] == "True []\n", results[1]
    asked = """
def raw(x):
    frame = sys._getframe()
    while frame:
        print(frame.f_locals)
        frame = frame.f_back
"""
    results = run_steps([cell(TRIAL), cell(asked), *hidden], SubmissionLimits(output=10**6), box)
    assert "918273645" in results[2]["output"] and "918273646" not in results[2]["output"]


def test_a_forger_of_all_ends_gets_the_last_inputs_too_late(box):
    """It may answer for all that is to come; what it then knows is in no output before."""
    secret = plain.dumps({"x": 918273645})
    steps = [cell(TRIAL), cell(FORGES_ALL), cell("print('mine')"), question("raw")]
    steps[3]["draws"] = [secret]
    results = run_steps(steps, FOR["slow"], box)
    said = [result["output"] for result in results[:3]]
    assert said[2] == "mine, forged"
    assert not any("918273645" in text for text in said)


FORGES_ALL = """
import json, os, time
def others():
    for fd in range(3, 60):
        try: os.fstat(fd)
        except OSError: continue
        yield fd
def say(number, output="", observed=None):
    end = {"done": number, "output": output, "error": None, "ename": None, "observed": observed}
    for fd in others():
        try: os.write(fd, json.dumps(end).encode() + b'\\n')
        except OSError: pass
say(1)
say(2, "mine, forged")
time.sleep(0.5)
known = b""
for fd in others():
    try:
        os.set_blocking(fd, False)
        known += os.read(fd, 100_000)
    except OSError: pass
open('/tmp/known', 'wb').write(known)
os._exit(0)
"""


def test_it_finds_no_file_of_the_course_s_or_the_grader_s(box, tmp_path):
    (tmp_path / "gradebook.db").write_text(SECRET)
    places = [ROOT / "solutions", ROOT / "tests", ROOT / ".git", ROOT / "book", tmp_path]
    places += [Path.home() / ".bashrc", Path("/etc/passwd"), Path("/etc/shadow"), Path("/sys")]
    places += [Path("/home"), Path("/var"), Path("/run"), Path("/dev/sda"), Path("/dev/kmsg")]
    places += [Path("/dev/zero")]  # memory that no process is charged for
    prefixes = ["", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/..", "/proc/2/root"]
    paths = [prefix + str(place) for prefix in prefixes for place in places]
    [said] = told(box, f"print([path for path in {paths} if os.path.exists(path)])")
    assert eval(said) == []


def test_it_finds_nothing_else_of_the_checkout(box):
    ours = [ROOT / name for name in (".venv", "gradtrace/src/gradtrace", "src/backward_twice")]
    assert all(path.is_dir() for path in ours[1:])
    [said] = told(
        box,
        f"""
found = []
for folder, folders, files in os.walk({str(ROOT)!r}):
    folders[:] = [n for n in folders if os.path.join(folder, n) not in {[*map(str, ours)]}]
    found += [os.path.join(folder, name) for name in files]
print(found)
""",
    )
    assert eval(said) == []


TRUTH = f"""
import gc, glob, os, sys
from backward_twice import checks
from backward_twice.checks import question
asked = question("two_losses.one_update")
for part in ("expect", "draw"):
    try: print(getattr(asked, part)())
    except LookupError as error: print(type(error).__name__)
loaded = [module for name, module in sys.modules.items() if name.startswith(checks.__name__ + ".")]
print([name for module in loaded for name in vars(module)
       if name.startswith(("_expect", "_draw"))],
    glob.glob({str(ROOT)!r} + "/src/backward_twice/*"),
    [o.__qualname__ for o in gc.get_objects() if type(o).__name__ == "function"
     and o.__qualname__.startswith(("_expect", "_draw"))],
    os.path.exists(checks.__file__))
"""


def test_what_is_right_is_not_there(box):
    """Neither in the questions nor as a file: an answer cannot be had by asking the judge."""
    name = "two_losses.one_update"
    asked = {"kind": "question", "id": name, "question": name}
    asked["draws"] = [checks.question(name).inputs(0)]
    told, _ = run_steps([cell(TRUTH), asked], LIMITS, box)
    expected = ["LookupError", "LookupError", "[] [] [] False"]
    assert told["output"].splitlines() == expected


def test_it_writes_nowhere_but_in_its_own_folder(box):
    [said] = told(
        box,
        """
written = []
seen = set()
for folder, folders, _ in os.walk('/'):
    if folder.count('/') > 6 or folder.startswith(('/proc', '/tmp', '/usr/share')):
        folders.clear()
        continue
    try:
        open(folder + '/mine', 'w').close()
        written.append(folder)
    except OSError: pass
for path in ('/proc/self/mem', '/proc/self/oom_score_adj', '/proc/sys/kernel/core_pattern',
             '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches',
             sys.executable, torch.__file__, '/usr/bin/env', '/dev/null/x'):
    try:
        open(path, 'r+b').close()
        written.append(path)
    except OSError: pass
open('/tmp/mine', 'w').close()
print(written)
print([line.split()[1] for line in open('/proc/self/mounts') if line.split()[3].startswith('rw')])
""",
        limits=SubmissionLimits(),
    )
    written, mounts = map(eval, said.splitlines())
    assert written == []
    assert set(mounts) - {"/tmp"} == {path for path in mounts if path.startswith("/dev/")}


def test_its_files_are_bounded(box):
    said = told(
        box,
        """
total = 0
try:
    for number in range(100):
        with open(f'/tmp/{number}', 'wb') as file:
            total += file.write(bytes(1 << 20))
except OSError as error: print(error.errno)
print(total)
""",
        "for made in os.listdir('/tmp'):\n    if made.isdigit(): os.remove(f'/tmp/{made}')",
        """
made = 0
try:
    for number in range(100_000):
        os.mkdir(f'/tmp/d{number}')
        made += 1
except OSError: pass
print(made)
for number in range(made): os.rmdir(f'/tmp/d{number}')
""",
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open('/tmp/sparse', 'wb') as file:
    for size in (1 << 20, 1 << 40):
        try: file.truncate(size); print(size)
        except OSError: pass
""",
        "print(os.path.realpath('/dev/shm'))",
        limits=SubmissionLimits(seconds=10, files=16 * MB),
    )
    assert 12 * MB < int(said[0].splitlines()[-1]) <= 16 * MB
    assert 4000 < int(said[2]) <= 4096
    assert said[3] == str(1 << 20)
    assert said[4] == "/tmp"


REFUSED = """
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*arguments)
    return name if result != -1 else None
reached = [
    call("unshare", 0x10000000), call("unshare", 0x20000), call("unshare", 0x40000000),
    call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    call("mount", b"none", b"/tmp", b"tmpfs", 0, None), call("umount", b"/tmp"),
    call("chroot", b"/tmp"), call("sethostname", b"x", 1), call("setuid", 0), call("setgid", 0),
    call("ptrace", 16, 1, 0, 0), call("memfd_create", b"x", 0), call("shmget", 0, 1 << 20, 0o1600),
    call("prctl", 24, 0), call("mknod", b"/tmp/disk", 0o060666, 0x800), call("reboot", 0),
    call("syscall", 250 if os.uname().machine == "x86_64" else 219, 1, None),
    call("syscall", 321 if os.uname().machine == "x86_64" else 280, 0, None, 0),
    call("syscall", 425, 1, None), call("syscall", 435, None, 0),
]
print([name for name in reached if name])
"""


def test_system_calls_that_it_has_no_use_for(box):
    [said] = told(box, REFUSED)
    assert eval(said) in ([], ["prctl"])  # dropping a capability is no harm


# Of each kind of harm the system calls to do it with; the second list has those of which only some
# arguments are refused: the call, the argument's number, its value.
HARMFUL = {
    "memory charged to nobody": (
        "vmsplice splice tee sendfile copy_file_range memfd_create memfd_secret shmget shmat "
        "msgget msgsnd semget mq_open add_key request_key keyctl bpf io_uring_setup io_uring_enter "
        "userfaultfd perf_event_open setxattr lsetxattr fsetxattr timer_create timerfd_create "
        "signalfd signalfd4 mlock mlock2 mlockall remap_file_pages fanotify_init",
        [
            *(("fcntl", 1, F_SETPIPE_SZ := 1031), ("fcntl", 1, F_GETLK := 5), ("fcntl", 1, 36)),
            *(("mmap", 3, MAP_SHARED_ANONYMOUS := 0x21), ("mmap", 3, 0x23)),
            *[(name, 1, kind) for name in ("socket", "socketpair") for kind in (2, 3, 5, 0x802)],
        ],
    ),
    "others wait": (
        "inotify_init inotify_init1 inotify_add_watch fanotify_mark sync syncfs readahead "
        "fadvise64 setpriority ioprio_set sched_setscheduler sched_setattr sched_setparam "
        "process_madvise move_pages migrate_pages quotactl swapon name_to_handle_at mknod mknodat",
        [
            *(
                ("fcntl", 1, F_SETLEASE := 1024),
                ("fcntl", 1, F_NOTIFY := 1026),
                ("fcntl", 1, 1 << 31),
            ),
            *(("fcntl", 1, 1024 | 1 << 32), ("madvise", 2, MADV_PAGEOUT := 21), ("madvise", 2, 20)),
        ],
    ),
    "others are reached": (
        "ptrace process_vm_readv process_vm_writev pidfd_getfd pidfd_open kcmp process_mrelease "
        "open_by_handle_at lookup_dcookie personality seccomp",
        [
            *(("prctl", 0, PR_SET_DUMPABLE := 4), ("prctl", 0, PR_SET_PTRACER := 0x59616D61)),
            *(("prctl", 0, PR_SET_MM := 35), ("prctl", 0, PR_SET_CHILD_SUBREAPER := 36)),
            *(("prlimit64", 0, 1), ("ioctl", 1, TIOCSTI := 0x5412), ("ioctl", 1, 0x40049409)),
            *(("clone", 0, CLONE_PARENT := 0x8000), ("clone", 0, CLONE_PTRACE := 0x2000)),
        ],
    ),
    "another world": (
        "unshare setns mount umount2 pivot_root chroot fsopen fsmount move_mount open_tree "
        "setuid setreuid setresuid setgid setgroups sethostname init_module kexec_load reboot "
        "clone3 execveat acct",
        [("clone", 0, 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)],
    ),
    "the network": (
        "sendmmsg recvmmsg",
        [
            *[(name, 0, family) for name in ("socket", "socketpair") for family in (0, 2, 10, 16)],
            *(("socket", 0, AF_ALG := 38), ("socket", 0, AF_VSOCK := 40), ("socket", 0, 17)),
            *(("setsockopt", 1, 41), ("setsockopt", 2, SO_SNDBUF := 7)),
        ],
    ),
}
NUMBER = seccomp.library().seccomp_syscall_resolve_name if sys.platform == "linux" else None


def refused_calls(box, asked):
    """Which of these calls, by number and six arguments, fail as a call that is not there."""
    source = f"""
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] + [ctypes.c_ulong] * 6
answers = []
for asked in {asked!r}:
    ctypes.set_errno(0)
    answers.append(libc.syscall(*asked) == -1 and ctypes.get_errno() == {errno.ENOSYS})
print(answers)
"""
    [said] = told(box, source)
    return eval(said)


@pytest.mark.parametrize("harm", HARMFUL)
def test_calls_that_do_harm(box, harm):
    names, with_arguments = HARMFUL[harm]
    asked = {name: [NUMBER(name.encode()), *[0] * 6] for name in names.split()}
    for name, place, value in with_arguments:
        asked[name, place, value] = call = [NUMBER(name.encode()), *[0] * 6]
        call[1 + place] = value
        if name == "setsockopt" and place == 2:
            call[2] = int(socket.SOL_SOCKET)
        elif name in ("socket", "socketpair") and place == 1:
            call[1] = int(socket.AF_UNIX)
    asked = {name: call for name, call in asked.items() if call[0] >= 0}  # those of this machine
    answers = dict(zip(asked, refused_calls(box, list(asked.values())), strict=True))
    assert len(answers) > 5 and [name for name, refused in answers.items() if not refused] == []


def test_every_call_that_is_not_on_the_list(box):
    """Of this machine's table, and of the tables beside it; those of tomorrow's kernels too."""
    answered = {*syscalls.ALLOWED, *syscalls.TAKEN_FOR_GRANTED}
    allowed = {NUMBER(name.encode()) for name in answered}
    if os.uname().machine == "x86_64":
        allowed |= {335, 336}  # by which the kernel calls itself; it kills whoever else does
    others = [number for number in range(600) if number not in allowed]
    others += [0x40000000 + number for number in range(600)]
    assert all(refused_calls(box, [[number, *[0] * 6] for number in others]))


ONE_OF_EACH = {
    "a file": "path = '/tmp/a'\nopen(path, 'w').write('x')\nos.rename(path, path + 'b')",
    "a copy": "import shutil\nopen('/tmp/a', 'w').close()\nshutil.copy('/tmp/a', '/tmp/b')",
    "a temporary file": "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x')",
    "threads": "torch.set_num_threads(3)\nx = torch.randn(900, 900) @ torch.randn(900, 900)",
    "a subprocess": "assert subprocess.run(['ls', '/tmp'], capture_output=True).returncode == 0",
    "a shell": "!ls | sort > /tmp/listed; cp /tmp/listed /tmp/again; mv /tmp/again /tmp/listed",
    "another Python": "subprocess.run([sys.executable, '-c', 'import numpy'], check=True)",
    "await": "import asyncio\nassert (await asyncio.create_subprocess_shell('true')) is not None",
    "a pool": (
        "import multiprocessing as m\n"
        "with m.get_context('fork').Pool(2) as pool: pool.map(abs, [1])"
    ),
    "a loader": (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "for _ in DataLoader(TensorDataset(torch.ones(8, 2)), num_workers=4): pass"
    ),
    "a saved tensor": "torch.save(torch.ones(3), '/tmp/t')\ntorch.load('/tmp/t')",
    "shared memory": "torch.ones(3).share_memory_()",
    "a picture": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/tmp/x.png')",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 100)\nsignal.alarm(0)",
    "a database": (
        "import sqlite3\nwith sqlite3.connect('/tmp/d') as d:\n"
        "    d.execute('create table t(x)')\n    d.execute('insert into t values (1)')\n"
        "assert sqlite3.connect('/tmp/d').execute('select x from t').fetchall() == [(1,)]"
    ),
    "a process spawned": (
        "import multiprocessing as m\np = m.get_context('spawn').Process(target=abs, args=(1,))\n"
        "p.start(); p.join()\nassert p.exitcode == 0"
    ),
    "a profile": (
        "from torch.profiler import profile, ProfilerActivity\n"
        "with profile(activities=[ProfilerActivity.CPU]): torch.ones(3).sum()"
    ),
}


@pytest.mark.parametrize("what", ONE_OF_EACH)
def test_what_honest_work_does_is_allowed(box, what):
    told(box, ONE_OF_EACH[what], limits=SubmissionLimits())


def test_a_refused_call_is_named_as_the_reason(box):
    hostile, honest = attack(box, "os.setxattr('/tmp', 'user.a', b'1')")
    assert hostile["error"].endswith("(the sandbox refuses a system call that this needs)")
    assert observed(honest) == DOUBLED


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(program, architecture, number, arguments=()):
    """What a filter says of a call: an interpreter of the few instructions that filters use."""
    packed = struct.pack("iIQ6Q", number, architecture, 0, *(*arguments, *[0] * 6)[:6])
    accumulator, at = 0, 0
    instructions = list(struct.iter_unpack("HBBI", program))
    while True:
        code, true, false, k = instructions[at]
        at += 1
        if code == 0x20:
            [accumulator] = struct.unpack_from("I", packed, k)
        elif code == 0x54:
            accumulator &= k
        elif code == 0x05:
            at += k
        elif code == 0x06:
            return k
        else:
            compare = {0x15: int.__eq__, 0x25: int.__gt__, 0x35: int.__ge__}[code]
            at += true if compare(accumulator, k) else false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_list_is_the_same_on_each_machine(machine):
    allow, grant, refuse = 0x7FFF0000, 0x50000, 0x50000 | errno.ENOSYS
    program = seccomp.compiled(syscalls.ALLOWED, syscalls.TAKEN_FOR_GRANTED, machine=machine)
    library = seccomp.library()
    library.seccomp_syscall_resolve_num_arch.argtypes = [ctypes.c_uint32, ctypes.c_int]
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_char_p
    token = library.seccomp_arch_resolve_name(machine.encode())
    names = [library.seccomp_syscall_resolve_num_arch(token, number) for number in range(600)]
    assert len([name for name in names if name]) > 250
    for number, name in enumerate(names):
        freely = name is not None and syscalls.ALLOWED.get(name.decode()) == [{}]
        said = verdict(program, ARCHITECTURES[machine], number, [0xDEAD] * 6)
        assert said == (allow if freely else grant if name == b"flock" else refuse), name
    numbers = {name.decode(): number for number, name in enumerate(names) if name}
    for name, argument, good, bad in [
        *(("fcntl", 1, 1030, 1024), ("prctl", 0, 15, 4), ("socket", 0, 1, 2)),
        *(("clone", 0, 0x3D0F00, 0x10000000), ("madvise", 2, 4, 21), ("prlimit64", 0, 0, 1)),
        *(("mmap", 3, 0x22, 0x21), ("mmap", 3, 0x1, 0x33), ("socket", 1, 0x80801, 0x80802)),
    ]:
        for value, expected in ((good, allow), (bad, refuse)):
            arguments = [name == "socket", name == "socket", 0, 0, 0, 0]
            arguments[argument] = value
            said = verdict(program, ARCHITECTURES[machine], numbers[name], arguments)
            assert said == expected, (name, value)
    for command, said in ((6, grant), (7, grant), (5, refuse), (1024, refuse)):
        assert verdict(program, ARCHITECTURES[machine], numbers["fcntl"], [1, command]) == said
    assert verdict(program, 0x40000003, numbers["read"]) == refuse  # the calls of 32-bit machines


def test_a_lock_is_taken_for_granted_and_makes_nobody_wait(box):
    [said] = told(
        box,
        """
import fcntl
lock = fcntl.LOCK_EX | fcntl.LOCK_NB
with open(sys.executable, "rb") as ours, open(sys.executable, "rb") as anothers:
    for file in (ours, anothers):
        fcntl.flock(file, lock)
with open("/tmp/locked", "w") as file:
    fcntl.lockf(file, lock)
    if os.fork() == 0:
        fcntl.lockf(open("/tmp/locked", "w"), lock)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
""",
    )
    assert said == "7"


def test_other_processes_of_its_own_cannot_be_traced(box):
    [said] = told(
        box,
        """
child = os.fork()
if child == 0: time.sleep(1000)
libc = ctypes.CDLL(None)
print(libc.ptrace(16, child, 0, 0), libc.ptrace(16, 1, 0, 0), libc.ptrace(16, 2, 0, 0))
""",
    )
    assert said == "-1 -1 -1"


def test_bubblewrap_s_own_processes_are_no_way_out(box):
    """A normal user's submission can write to their memory: they are bound as it is."""
    [said] = told(
        box,
        """
for pid in (1, 2):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    limits = {line[:26].strip(): line.split()[-3] for line in open(f"/proc/{pid}/limits")}
    print(status["CapEff"], status["CapPrm"], status["NoNewPrivs"], status["Seccomp"],
          limits["Max address space"], limits["Max file size"], limits["Max processes"])
try: os.open("/proc/2/mem", os.O_RDWR); print("open")
except OSError: print("closed")
""",
    )
    *both, memory = said.splitlines()
    zero = "0" * 16
    for line in both:
        *capabilities, privileges, seccomp, space, size, processes = line.split()
        assert capabilities == [zero, zero]
        assert (privileges, seccomp) == ("1", "2")
        assert int(space) <= 64 * MB
        assert (int(size), int(processes)) == (LIMITS.files, LIMITS.processes)
    assert memory == "closed" or os.geteuid() != 0


def test_where_memory_runs_out_it_is_the_first_to_be_ended(box):
    [said] = told(box, "print(open('/proc/self/oom_score_adj').read())")
    assert int(said) == 1000


def test_programs_that_make_root(box):
    [said] = told(
        box,
        """
for command in (["su", "-c", "id -u"], ["mount", "-t", "tmpfs", "none", "/tmp"],
                ["unshare", "-Ur", "id", "-u"], ["passwd"], ["sudo", "-n", "id", "-u"],
                ["bwrap", "--ro-bind", "/", "/", "id", "-u"], ["newgrp"], ["chfn"]):
    try: result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError: continue
    if result.returncode == 0: print(command, result.stdout)
print(os.getuid() == os.geteuid())
""",
    )
    assert said == "True"


def test_no_network(box, tmp_path):
    """Listeners of the host's, at every kind of address, hear nothing."""
    reached = []
    tcp, path, abstract = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    )
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    name = f"\0gradtrace-test-{os.getpid()}"
    abstract.bind(name)
    file = Path("/tmp") / f"gradtrace-test-{os.getpid()}"
    path.bind(str(file))
    with tcp, udp, path, abstract:
        for listener in (path, abstract):
            listener.listen()
        for listener in (tcp, udp, path, abstract):
            listener.settimeout(0.05)
        [said] = told(
            box,
            f"""
reached = []
def attempt(what, how):
    try: how(); reached.append(what)
    except (OSError, UnicodeError): pass
def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(1)
        s.connect(address)
        s.send(b"x")
port, udp = {tcp.getsockname()[1]}, {udp.getsockname()[1]}
attempt("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", port)))
attempt("far", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
attempt("udp", lambda: connect(socket.AF_INET, ("127.0.0.1", udp), socket.SOCK_DGRAM))
attempt("tcp6", lambda: connect(socket.AF_INET6, ("::1", port)))
attempt("dns", lambda: socket.getaddrinfo("example.org", 80))
attempt("abstract", lambda: connect(socket.AF_UNIX, {name!r}))
attempt("path", lambda: connect(socket.AF_UNIX, {str(file)!r}))
attempt("raw", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
print(reached, [line.split(":")[0].strip() for line in open("/proc/net/dev")][2:])
""",
        )
        file.unlink()
        for listener in (tcp, path, abstract):
            with contextlib.suppress(TimeoutError):
                listener.accept()
                reached.append(listener)
        with contextlib.suppress(TimeoutError):
            reached.append(udp.recv(1))
    assert not reached
    assert said == "[] ['lo']"


# Forged events

FIND = """
def others():
    found = []
    for fd in range(3, 200):
        try: os.fstat(fd)
        except OSError: continue
        found.append(fd)
    return found
def say(data):
    for fd in others():
        try: os.write(fd, data)
        except OSError: pass
"""
FORGED = {
    "rubbish": "b'rubbish\\n'",
    "no text": "b'\\xff\\xfe\\n'",
    "empty": "b'\\n'",
    "no object": "b'[]\\n'",
    "deep": "b'[' * 1_000_000 + b'\\n'",
    "deep objects": "b'{\"a\":' * 1_000_000 + b'\\n'",
    "huge number": "b'{\"done\": ' + b'9' * 100_000 + b'}\\n'",
    "nan": "b'{\"done\": NaN}\\n'",
    "twice": 'b\'{"done": 1, "done": 1}\\n\'',
    "ready": "b'{\"ready\": true}\\n'",
    "earlier": (
        'b\'{"done": 0, "output": "", "error": null, "ename": null, "observed": null}\\n\''
    ),
    "truth": (
        'b\'{"done": true, "output": "", "error": null, "ename": null, "observed": null}\\n\''
    ),
    "types": 'b\'{"done": 1, "output": 3, "error": [], "ename": {}, "observed": 1}\\n\'',
    "another step's": (
        'b\'{"done": 2, "output": "", "error": null, "ename": null, "observed": null}\\n\''
    ),
    "half": 'b\'{"done": 1, "output": ""}\\n\'',
    "observed": (
        'b\'{"done": 1, "output": "", "error": null, "ename": null, "observed": ["1"]}\\n\''
    ),
}


@pytest.mark.parametrize("said", FORGED, ids=str)
def test_forged_events_are_those_of_its_own_step(box, said):
    hostile, honest = attack(box, f"{FIND}\nsay({FORGED[said]})")
    assert hostile["outcome"] == "crashed"
    assert hostile["error"].startswith("returned data that is no event of this step")
    assert observed(honest) == DOUBLED


def test_a_well_forged_event_moves_nothing(box):
    """It may pass for the end of its own step.  Then the true end is out of order."""
    event = {"done": 1, "output": "forged", "error": None, "ename": None, "observed": None}
    source = f"{FIND}\nsay({json.dumps(event).encode()!r} + b'\\n')"
    hostile, honest = attack(box, source)
    assert (hostile["outcome"], hostile["output"]) == ("done", "forged")
    assert honest["outcome"] == "crashed"
    assert honest["observed"] is None


def test_a_forger_answers_with_what_is_judged(box):
    """Forging the end of a question is to hand in an answer, which others judge."""
    end = {"output": "", "error": None, "ename": None}
    ends = [end | {"done": n, "observed": "{}" if n > 1 else None} for n in (1, 2, 3)]
    data = "".join(json.dumps(each) + "\n" for each in ends).encode()
    source = f"{FIND}\nsay({data!r})\ntime.sleep(1000)"
    hostile, answer = attack(box, source)
    assert hostile["outcome"] == "done"
    assert observed(answer) == [{}, {}]


def test_a_flood(box):
    hostile, honest = attack(box, f"{FIND}\nwhile True: say(b'x' * 65536)")
    assert hostile["outcome"] == "crashed"
    assert "more than" in hostile["error"]
    assert observed(honest) == DOUBLED


@pytest.mark.parametrize(
    "source",
    [
        "os.closerange(0, 1000)",
        f"{FIND}\nfor fd in others(): os.close(fd)\ntime.sleep(1000)",
        f"{FIND}\nfor fd in others(): os.dup2(os.open('/dev/null', os.O_RDWR), fd)",
        f"{FIND}\nfor fd in others(): os.dup2(1, fd)\nos.fork()",
        "json.dumps = lambda *a, **k: '{\"done\": 7}'",
        "os.write = lambda *a: 1/0",
        "os.getpid = lambda: 0",
        "import builtins\nbuiltins.type = builtins.len = builtins.str = None",
        "sys.modules.clear()",
        "from backward_twice.grading.sandbox import runner\nrunner._emit = print\ntime.sleep(1000)",
        "threading.Timer(0.01, os._exit, [0]).start()\ntime.sleep(1)",
        "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(1)",
        "sys.stdout = sys.stderr = None",
        "sys.settrace(lambda *a: 1/0)",
        "gc.collect = None\ngc.disable()\nsys.setswitchinterval(1e9)",
        "f = sys._getframe()\nwhile f:\n    f.f_locals.clear(); f.f_globals.clear(); f = f.f_back",
    ],
)
def test_sabotage_of_the_runner_costs_the_saboteur(box, source):
    """The step ends one way or another, and the questions after it are answered or are not."""
    hostile, honest = attack(box, source, limits=FOR["slow"])
    assert hostile["outcome"] in ("done", "crashed", "slow")
    if honest["outcome"] == "done" and honest["error"] is None:
        assert [json.loads(text) for text in honest["observed"]] == DOUBLED


@pytest.mark.parametrize(
    "source",
    [
        "get_ipython().input_transformers_post.append(lambda lines: ['pass'])",
        """
import ast
class Strip(ast.NodeTransformer):
    def visit_FunctionDef(self, node): node.body = [ast.Pass()]; return node
    def visit_Assert(self, node): return ast.Pass()
get_ipython().ast_transformers.append(Strip())
""",
        "torch.allclose = torch.equal = lambda *a, **k: True",
        "torch.Tensor.backward = lambda *a, **k: None",
        "folder = '/tmp/x'\nos.mkdir(folder)\nos.chdir(folder)\nos.rmdir(folder)",
        "class All:\n    __eq__ = lambda *_: True\ntrial.double.__dict__['answer'] = All()",
    ],
)
def test_what_others_fall_for(box, source):
    """Here a question is no cell, and nothing is compared inside."""
    hostile, honest = attack(box, source)
    assert hostile["error"] is None
    if "answer" not in source:
        assert observed(honest) == DOUBLED


# The grader's side


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"null", b'"text"', b"1e999", b"{", b"\xff", b"{'a': 1}", b'{"a": NaN}'),
        *(b'{"a": 1, "a": 2}', b'{"a": Infinity}', b"1" * 10**5, b"[" * 10**6, b'{"a":' * 10**5),
    ],
    ids=lambda line: line[:20].decode("latin-1"),
)
def test_a_line_that_is_no_event_is_an_outcome(line):
    assert parsed(line) == ("crashed", "returned data that is no event of this step")


ENDED = {"done": 1, "output": "", "error": None, "ename": None, "observed": "{}"}
RAISED_INSTEAD = {"error": "E: no", "ename": "E", "observed": None}
NEARLY = {
    "another step": {"done": 2},
    "a step that is a truth": {"done": True},
    "one key more": {"points": 3},
    "no text": {"output": None},
    "an error without a name": RAISED_INSTEAD | {"ename": None},
    "a name without an error": {"ename": "E"},
    "an error that is no text": RAISED_INSTEAD | {"error": 1},
    "a name that is no text": RAISED_INSTEAD | {"ename": ["E"]},
    "an error and an answer": RAISED_INSTEAD | {"observed": "{}"},
    "no answer": {"observed": None},
    "an answer that is no text": {"observed": {}},
    "several answers": {"observed": ["{}", "{}"]},
}


def test_the_end_of_a_draw():
    assert protocol._is_end(ENDED, 1, "question")
    assert protocol._is_end(ENDED | RAISED_INSTEAD, 1, "question")
    assert not protocol._is_end(ENDED, 1, "cell")
    assert protocol._is_end(ENDED | {"observed": None}, 1, "cell")


@pytest.mark.parametrize("change", NEARLY)
def test_what_is_nearly_the_end_of_a_draw_is_none(change):
    assert not protocol._is_end(ENDED | NEARLY[change], 1, "question")


@pytest.mark.parametrize("key", ENDED)
def test_an_end_lacks_nothing(key):
    event = {name: value for name, value in ENDED.items() if name != key}
    assert not protocol._is_end(event, 1, "question")


def test_runs_leave_nothing_open(box):
    def count():
        both = ("self", box._process.pid)
        return [len(list(Path(f"/proc/{process}/fd").iterdir())) for process in both]

    before = count()
    for _ in range(25):  # each takes two sandboxes
        run_steps([cell("1"), cell("import os; os._exit(1)"), cell("2")], LIMITS, box)
    assert count() == before


@pytest.fixture(scope="module")
def fresh(started):
    """Another sandbox, whose warm process was started where the environment has a secret."""
    with pytest.MonkeyPatch.context() as patch, Sandbox() as box:
        patch.setenv("GRADER_TOKEN", SECRET)
        outputs = from_threads_that_end(box)
        yield box, outputs


def from_threads_that_end(box):
    outputs = []

    def work():
        outputs.append(run_steps([cell("print(1)")], LIMITS, box)[0]["output"])

    for _ in range(3):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outputs


def test_from_threads_that_end(fresh):
    """A caller's threads come and go; the warm process outlives the one that started it."""
    _, outputs = fresh
    assert outputs == ["1\n"] * 6


def test_it_has_no_environment_of_the_grader_s(fresh):
    [said] = told(
        fresh[0],
        """
import glob
found = repr(os.environ)
for path in glob.glob('/proc/*/environ'):
    try: found += open(path).read()
    except OSError: pass
print(found)
""",
    )
    assert "PATH" in said
    assert SECRET not in said
    assert "GRADER" not in said


def test_the_warm_process_is_started_again(fresh):
    box, _ = fresh
    os.kill(box._process.pid, signal.SIGKILL)
    [result] = run_steps([cell("print(1)")], LIMITS, box)
    assert result["output"] == "1\n"
    box.close()
    assert box._process is None


def test_nothing_outlives_a_grader_that_is_killed(started):
    """Neither bubblewrap, nor the warm process, nor what the student started."""
    program = (
        "from backward_twice.grading.sandbox.forks import Sandbox\n"
        "from backward_twice.grading.sandbox.protocol import SubmissionLimits, run_steps\n"
        "box = Sandbox()\n"
        "source = 'import os, time; os.fork(); time.sleep(1000)'\n"
        "steps = [{'kind': 'cell', 'id': 'x', 'source': s} for s in ('', source)]\n"
        "run_steps(steps[:1], SubmissionLimits(), box)\n"
        "print('warm', flush=True)\n"
        "run_steps(steps, SubmissionLimits(), box)\n"
    )
    before = descendants()
    grader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert grader.stdout.readline() == b"warm\n"
        # warm process, keeper, bubblewrap twice, cat, and the student's two
        family = until(lambda: len(found := descendants() - before) >= 8 and found)
        assert family
    finally:
        grader.kill()
        grader.wait()
        grader.stdout.close()
    assert until(lambda: not [pid for pid in family if alive(pid)])


def until(true, seconds=20):
    """What ``true`` gives, as soon as that is something."""
    give_up = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_hidden_folders_within_what_is_shown(started, tmp_path):
    """Something shown may lie within something hidden, and that within something shown."""
    library = Path(sys.prefix, "lib")
    secret = tmp_path / "submissions"
    with Sandbox(hide=[library, tmp_path]) as box:
        said = told(
            box,
            f"from glob import glob\nprint(glob({str(library)!r} + '/*/*'))",
            "import this, sympy.geometry",
            f"print(os.path.exists({str(secret)!r}))",
            f"[mount] = [m for m in open('/proc/self/mounts') if ' {library} ' in m]\n"
            "print(mount.split()[3][:2])",
        )
    assert [Path(path).name for path in eval(said[0])] == ["site-packages"]
    assert said[2:] == ["False", "ro"]


def test_without_any_sandbox_it_refuses(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SandboxError, match="install bubblewrap") as refused:
        check_sandbox()
    assert "virtual machine" in str(refused.value)


def test_without_libseccomp_it_refuses(monkeypatch):
    monkeypatch.setattr(seccomp, "_LIBRARY", "libnothing.so.2")
    syscalls.program.cache_clear()
    try:
        with pytest.raises(SandboxError, match="apt install libseccomp2"):
            check_sandbox()
    finally:
        syscalls.program.cache_clear()


# Other users


@pytest.mark.early
def test_as_a_normal_user(started):
    """A part of this again, under a user who is nobody."""
    if os.geteuid() != 0:
        pytest.skip("this is a normal user")
    chosen = (
        "namespaces or privileges or process or signals or network or system_calls or traced or "
        "make_root or finds or writes or files or counted or daemon or forges or language or "
        "(ends and (loop or fork or many or kill)) or what_is_right or no_way_out or "
        "environment or do_harm or on_the_list or look_ahead or forger"
    )
    program = f"""
import os, sys
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
os.execv(sys.executable, [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
         {__file__!r}, "-k", {chosen!r}])
"""
    ran = subprocess.run(
        [*readable_to_all(), sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SANDBOX": "required", "HOME": "/tmp"},
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 25


def readable_to_all():
    """A bubblewrap in which every user can read Python, wherever it is; else it is the host."""
    arguments = ["bwrap", "--dev-bind", "/", "/", "--cap-add", "ALL"]
    for folder in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        closed = [above for above in reversed(folder.parents) if not above.stat().st_mode & 1]
        if closed:
            arguments += ["--perms", "0755", "--tmpfs", str(closed[0])]
            within = folder.relative_to(closed[0]).parents
            arguments += [
                argument
                for above in list(reversed(within))[1:]
                for argument in ("--perms", "0755", "--dir", str(closed[0] / above))
            ]
            arguments += ["--bind", str(folder), str(folder)]
    return arguments


def test_a_warm_process_that_nobody_waits_for_ends_without_a_word():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    module = "backward_twice.grading.sandbox.forkserver"
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            env=environment(),
        )
    ours.close()
    assert process.communicate()[1] == b"" and process.returncode == 0
