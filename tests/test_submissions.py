"""What students hand in is found, opened without harm, and rebuilt from the master."""

import json
import os
import signal
import socket
import stat
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from backward_twice import cell_sources, misconceptions
from backward_twice.grading import GradingError, limited
from backward_twice.grading.intake.reading import Reader
from backward_twice.grading.intake.rebuild import answers
from backward_twice.grading.intake.submissions import (
    Handed,
    Rejected,
    SubmissionFolder,
    read,
    shown,
)
from backward_twice.grading.judging import master as masters
from backward_twice.grading.platforms.nbgrader.collected import find

CHECKOUT = Path(__file__).parents[1]
NAME = "two_losses"
MASTER = masters.read_master(CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb")
ONE, TRUNK = (answer.id for answer in MASTER.answers)


def notebook(name=NAME, folder="exercises"):
    return json.loads((CHECKOUT / folder / name / f"{name}.ipynb").read_text(encoding="utf-8"))


def answer_cell(found, id=ONE):
    return next(cell for cell in found["cells"] if cell["id"] == id)


def code(source, **more):
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": source} | more


@pytest.fixture
def hand_in(tmp_path):
    """Write what ada hands in, and read it as the grader does."""

    def hand_in(content=None, name=f"{NAME}.ipynb"):
        folder = tmp_path / "ada" / NAME
        folder.mkdir(parents=True, exist_ok=True)
        if content is not None:
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / name).write_bytes(content)
        return read(tmp_path, SubmissionFolder("ada", NAME))

    hand_in.folder = tmp_path / "ada" / NAME
    return hand_in


# Finding


def test_every_visible_entry_is_a_place_or_says_why_not(tmp_path):
    for folder in (
        *("ada/two_losses", "Zoë Müller/two_losses", "=1+1/two_losses", "empty", "ada/nowhere"),
        *(".hidden/two_losses", "__MACOSX/ada", "ada/.ipynb_checkpoints", "m/two_losses"),
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "export.zip").write_bytes(b"PK")
    (tmp_path / "m" / "submission.zip").write_bytes(b"PK")
    (tmp_path / "m" / "two_losses.ipynb").write_text("{}")
    (tmp_path / "m" / "notes.txt").write_text("a remark of the collector's")
    (tmp_path / "link").symlink_to(tmp_path / "ada")
    (tmp_path / "ada" / "linked").symlink_to(tmp_path / "ada" / "two_losses")
    os.mkfifo(tmp_path / "pipe")
    found = {(p.student, p.assignment): p.problem for p in find(tmp_path, {NAME})}
    assert {key for key, problem in found.items() if problem is None} == {
        (student, NAME) for student in ("ada", "Zoë Müller", "=1+1", "m")
    }
    for key, said in {
        ("empty", ""): "the folder is empty",
        ("ada", "nowhere"): "there is no assignment 'nowhere'; there is two_losses",
        ("export.zip", ""): "make collect",
        ("m", "submission.zip"): "make collect",
        ("m", "two_losses.ipynb"): "<student>/<assignment>/<assignment>.ipynb",
        ("link", ""): "links are not followed",
        ("ada", "linked"): "links are not followed",
        ("pipe", ""): "neither file nor folder",
    }.items():
        assert said in found.pop(key)
    assert set(found.values()) == {None}


def test_names_that_no_gradebook_takes(tmp_path):
    bad = os.fsencode(tmp_path) + b"/M\xfcller"
    Path(os.fsdecode(bad)).mkdir()
    (tmp_path / ("n" * 129)).mkdir()
    (tmp_path / "<svg onload=alert(1)>").mkdir()
    problems = {p.student: p.problem for p in find(tmp_path, {NAME})}
    assert "not UTF-8" in problems[os.fsdecode(b"M\xfcller")]
    assert "longer than 128" in problems["n" * 129]
    assert 'has one of < > "' in problems["<svg onload=alert(1)>"]
    assert shown(os.fsdecode(b"M\xfcller")) == r"M\udcfcller"


def test_a_folder_of_very_many_entries_is_not_listed(tmp_path, monkeypatch):
    monkeypatch.setattr("backward_twice.grading.intake.submissions.MAX_ENTRIES", 3)
    for number in range(4):
        (tmp_path / "ada" / f"a{number}").mkdir(parents=True)
    assert [p.problem for p in find(tmp_path, {NAME})] == ["more than 3 entries in the folder"]


# Opening


def test_an_honest_notebook(hand_in):
    handed = hand_in(notebook())
    assert handed.notes == () and handed.timestamp is None
    assert handed.cells == notebook()["cells"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "an empty file"),
        (b" \n", "an empty file"),
        (b"{", "not JSON"),
        (b"[]", "not a notebook"),
        (b"1", "not a notebook"),
        (b"null", "not a notebook"),
        (b'{"cells": []}', "not a notebook"),
        (b'{"nbformat": true, "cells": []}', "not a notebook"),
        (b'{"nbformat": "4", "cells": []}', "not a notebook"),
        (b'{"nbformat": 4}', "no cells"),
        (b'{"nbformat": 4, "cells": []}', "no cells"),
        (b'{"nbformat": 4, "cells": {"a": 1}}', "no cells"),
        (b'{"nbformat": 4, "cells": [1, null, "x", [[]]]}', "no cells"),
        (b'{"nbformat": 99, "cells": [{}]}', "of format 99"),
        (b'{"nbformat": 3, "worksheets": []}', "of format 3"),
        ("{'a': 'ä'}".encode("latin-1"), "not UTF-8"),
        ('{"nbformat": 4}'.encode("utf-16"), "not UTF-8"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 500_000, "nested too deeply"),
        (b"9" * 100_000, "not JSON"),
        (b" " * 5_000_001, "too large: 5 MB"),
        (b"\x00" * 100, "not JSON"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else None,
)
def test_what_is_no_notebook_is_rejected_with_a_reason(hand_in, content, why):
    with pytest.raises(Rejected, match=why):
        hand_in(content)


def test_what_is_no_file_is_not_opened(hand_in, tmp_path):
    hand_in.folder.mkdir(parents=True)
    path = hand_in.folder / f"{NAME}.ipynb"
    secret = tmp_path / "secret.ipynb"
    secret.write_text(json.dumps(notebook(folder="solutions")))
    path.symlink_to(secret)
    with pytest.raises(Rejected, match="a link; links are not followed"):
        hand_in()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Rejected, match="a FIFO"):
        hand_in()
    path.unlink()
    path.mkdir()
    with pytest.raises(Rejected, match="not a file but a folder"):
        hand_in()
    path.rmdir()
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        try:
            os.chdir(hand_in.folder)  # a socket's path may not be long
            listening.bind(path.name)
        finally:
            os.chdir(here)
        with pytest.raises(Rejected, match="a socket"):
            hand_in()
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(Rejected, match="a link"):
        hand_in()
    path.unlink()
    if os.geteuid() == 0:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except OSError:
            pytest.skip("devices cannot be made here")
        with pytest.raises(Rejected, match="a device"):
            hand_in()


def test_a_folder_that_became_a_link_is_not_followed(hand_in, tmp_path):
    hand_in(notebook())
    hand_in.folder.rename(tmp_path / "elsewhere")
    hand_in.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Rejected, match="cannot be read"):
        read(tmp_path, SubmissionFolder("ada", NAME))


def test_a_large_file_is_not_read(hand_in):
    with pytest.raises(Rejected):
        hand_in(b"{}")
    os.truncate(hand_in.folder / f"{NAME}.ipynb", 200_000_000)
    tracemalloc.start()
    with pytest.raises(Rejected, match=r"too large: 200 MB, at most 5 MB"):
        hand_in()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("became", ["link", "FIFO"])
def test_a_file_that_became_another_after_the_first_look(hand_in, tmp_path, monkeypatch, became):
    hand_in(notebook())
    path = hand_in.folder / f"{NAME}.ipynb"
    before = path.stat()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere") if became == "link" else os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda *_, **__: before)
    with pytest.raises(Rejected, match="FIFO" if became == "FIFO" else "cannot be read"):
        read(tmp_path, SubmissionFolder("ada", NAME))


def test_which_notebook_counts(hand_in):
    with pytest.raises(Rejected, match="the folder is empty"):
        hand_in()
    hand_in(notebook(), "Untitled.ipynb")
    assert hand_in().notes == (f"named Untitled.ipynb instead of {NAME}.ipynb",)
    (hand_in.folder / ".ipynb_checkpoints").mkdir()
    assert len(hand_in().notes) == 1
    (hand_in.folder / "other.ipynb").write_text("{}")
    with pytest.raises(
        Rejected, match=r"several notebooks with other names: Untitled\.ipynb, other"
    ):
        hand_in()
    assert hand_in(notebook()).notes == (
        f"only {NAME}.ipynb counts, not Untitled.ipynb, other.ipynb",
    )


def test_no_notebook(hand_in):
    hand_in.folder.mkdir(parents=True)
    (hand_in.folder / "two_losses.zip").write_bytes(b"PK")
    with pytest.raises(Rejected, match=r"an archive, two_losses\.zip; hand in the notebook"):
        hand_in()
    (hand_in.folder / "two_losses.zip").rename(hand_in.folder / "two_losses.py")
    with pytest.raises(Rejected, match=r"no notebook in the folder, only two_losses\.py"):
        hand_in()


@pytest.mark.parametrize(
    ("written", "when"),
    [
        ("2026-03-01 12:30:00.5 UTC", "2026-03-01T12:30:00.500000"),
        ("2026-03-01 12:30:00 +0100\n", "2026-03-01T11:30:00"),
        ("2026-03-01T12:30:00", "2026-03-01T12:30:00"),
        ("", None),
        ("2026-03-01 12:30:00 Nowhere", None),
        ("2026-03-01 12:30:00 ../../x", None),
        ("2026-99-99 12:30:00 UTC", None),
        ("2026-03-01 12:30:00 /etc/passwd", None),
        ("yesterday", None),
        ("\0" * 5000, None),
    ],
)
def test_the_time_that_nbgrader_noted(hand_in, written, when):
    hand_in(notebook())
    (hand_in.folder / "timestamp.txt").write_text(written)
    handed = hand_in()
    assert handed.timestamp == when
    assert (handed.notes == ()) == (when is not None)


# Rebuilding


def rebuilt(found):
    return answers(found["cells"], MASTER)


def test_only_answer_cells_are_taken():
    honest = rebuilt(notebook())
    assert honest.notes == () and honest.missing == {}
    tampered = notebook()
    for cell in tampered["cells"]:
        nbgrader = cell["metadata"].get("nbgrader", {})
        if nbgrader.get("grade"):
            nbgrader["points"] = 1_000
            cell["source"] = "pass"
        nbgrader |= {"locked": False, "schema_version": 77}
    tampered["cells"].insert(0, code("import torch; torch.allclose = True"))
    tampered["cells"].reverse()
    tampered["metadata"] = {"kernelspec": {"name": "bash"}, "nbgrader": []}
    assert rebuilt(tampered).digest == honest.digest
    assert [asked.points for asked in MASTER.questions] != [1_000, 1_000]


def test_test_cells_deleted():
    found = notebook()
    found["cells"] = [
        c for c in found["cells"] if not c["metadata"].get("nbgrader", {}).get("grade")
    ]
    assert rebuilt(found).digest == rebuilt(notebook()).digest


@pytest.mark.parametrize("lost", ["nbgrader", "grade_id", "id", "renamed", "all"])
def test_an_answer_is_known_though_metadata_was_lost(lost):
    found = notebook()
    answer_cell(found)["source"] = "one_update = print"
    for cell in found["cells"]:
        if lost == "nbgrader":
            cell["metadata"].pop("nbgrader", None)
        elif lost == "grade_id":
            cell["metadata"].get("nbgrader", {}).pop("grade_id", None)
        elif lost == "renamed" and "nbgrader" in cell["metadata"]:
            cell["metadata"]["nbgrader"]["grade_id"] += "-renamed"
        elif lost == "id":
            del cell["id"]
        elif lost == "all":
            cell["metadata"] = {}
            del cell["id"]
    given = rebuilt(found)
    assert given.sources[ONE] == ("one_update = print",)
    assert set(given.sources) == {ONE, TRUNK}
    remark = "a cell without an id was taken as {}, whose name it defines"
    taken = [remark.format(id) for id in (ONE, TRUNK)]
    assert list(given.notes) == (taken if lost == "all" else [])


def test_a_copied_cell_runs_in_the_notebooks_order():
    found = notebook()
    place = found["cells"].index(answer_cell(found))
    copy = json.loads(json.dumps(found["cells"][place])) | {"source": "one_update = len"}
    found["cells"].insert(place + 1, copy)
    first, second = rebuilt(found).sources[ONE]
    assert first.startswith("def one_update") and second == "one_update = len"


def test_a_cell_copied_without_end_is_one_step():
    found = notebook()
    found["cells"] += [answer_cell(found) | {"source": "one_update = len"}] * 10_000
    assert len(rebuilt(found).sources[ONE]) == 1


SPLIT = ["def one_update(*given):\n    a = (1 +", "         2)", "    return a\n"]


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("parts", [["%time 1\n" + SPLIT[0] + " 3)", SPLIT[2]], SPLIT])
def test_a_split_cell_is_joined(parts, with_ids):
    found = notebook()
    place = found["cells"].index(answer_cell(found))
    metadata = found["cells"][place]["metadata"]
    rest = [code(part, metadata=metadata if with_ids else {}) for part in parts[1:]]
    found["cells"][place : place + 1] = [code(parts[0], metadata=metadata), *rest]
    assert rebuilt(found).sources[ONE] == ("\n".join(parts),)


def test_a_split_that_needs_no_joining_stays_apart():
    found = notebook()
    place = found["cells"].index(answer_cell(found))
    metadata = found["cells"][place]["metadata"]
    parts = ["def step(x):\n    return x", "def one_update(x):\n    return step(x)"]
    found["cells"][place : place + 1] = [code(part, metadata=metadata) for part in parts]
    assert rebuilt(found).sources[ONE] == tuple(parts)


def test_a_missing_answer_is_said(hand_in):
    found = notebook()
    found["cells"].remove(answer_cell(found))
    given = rebuilt(found)
    assert given.missing == {ONE: "the answer cell is not there"} and set(given.sources) == {TRUNK}
    found = notebook()
    answer_cell(found)["cell_type"] = "markdown"
    assert rebuilt(found).missing == {ONE: "the answer cell is not a code cell but markdown"}


def test_no_answer_at_all_says_whose_cells_these_are(tmp_path):
    others = {
        NAME: MASTER,
        "other": masters.Master("other", (masters.AnswerCell("a", "b", ("f",)),), frozenset()),
    }
    with pytest.raises(Rejected, match="it has no answer cell of two_losses, but those of other"):
        answers([code("f = 1", id="b")], MASTER, others)
    with pytest.raises(Rejected, match=r"it has no answer cell of two_losses$"):
        answers([code("f = 1")], MASTER, others)


USES = "def one_update(*given):\n    return helper(np.ones(3), torch, len)"


def test_what_an_answer_uses_of_other_cells_is_taken_with_it():
    found = notebook()
    answer_cell(found)["source"] = USES
    found["cells"][3:3] = [
        code("import numpy as np\nunused = torch = 1\nprint('nobody needs this')"),
        code(
            "def inner(x):\n    return FACTOR * x\nFACTOR = 2; OTHER = 3\nFACTOR += 1\nFACTOR += 1"
        ),
    ]
    found["cells"] += [code("while True: pass"), code("def helper(*x):\n    return inner(x[0])")]
    given = rebuilt(found)
    helpers = given.sources[ONE][0].splitlines()
    assert helpers == [
        *("import numpy as np", "def inner(x):", "    return FACTOR * x", "FACTOR = 2; OTHER = 3"),
        *("FACTOR += 1", "FACTOR += 1", "def helper(*x):", "    return inner(x[0])"),
    ]
    assert given.sources[ONE][1:] == (USES,) and len(given.sources[TRUNK]) == 1
    assert given.notes == (f"taken from other cells for {ONE}: FACTOR, OTHER, helper, inner, np",)


@pytest.mark.parametrize(
    "change", ["x[i] = n", "x[i], y = n, 2", "[*x[i:], (y, x[i].n)] = n", "x.n[i] += n"]
)
def test_a_change_in_place_defines_neither_its_index_nor_its_value(change):
    cells = ["i, n, x = 0, 1, []", change, "k = [n for i in x]"]
    assert cell_sources.needed({"i", "n"}, cells, ()) == (cells[0],)
    assert cell_sources.needed({"x"}, cells, ()) == tuple(cells[:2])


def test_of_a_line_that_statements_share_only_what_is_used_is_taken():
    """However deep it is: Python reads deeper sources than it writes."""
    found = notebook()
    answer_cell(found)["source"] = USES
    found["cells"] += [code("nobody = (1,\n 'ß'); helper = 0" + " + 1" * 1_000 + "; late = 1")]
    assert rebuilt(found).sources[ONE] == ("helper = 0" + " + 1" * 1_000, USES)


def test_an_import_added_to_the_set_up_is_taken():
    found = notebook()
    answer_cell(found)["source"] = USES
    set_up = next(cell for cell in found["cells"] if cell["id"] == "set-up")
    set_up["source"] = ["import numpy as np\n", "def helper(*x): pass\n", *set_up["source"]]
    assert rebuilt(found).sources[ONE][0] == "import numpy as np\ndef helper(*x): pass"


def test_a_name_of_an_answers_own_is_not_looked_for_elsewhere():
    found = notebook()
    answer_cell(found)["source"] = "def one_update(*given):\n    loss = 1\n    return loss"
    found["cells"].append(code("loss = 1 / 0"))
    assert rebuilt(found).sources[ONE] == (answer_cell(found)["source"],)


def test_an_answer_typed_into_the_test_cell_is_said():
    found = notebook()
    test = next(cell for cell in found["cells"] if cell["id"] == "one-update")
    test["source"] = "def one_update(*given): pass\ncheck('two_losses.one_update', one_update)"
    assert rebuilt(found).notes == (
        "only the answer cell counts, no other cell that defines one_update",
    )


def test_the_solution_itself_has_nothing_to_remark():
    """Its starter defines what is asked for, too: that is the master's own cell."""
    assert rebuilt(notebook(folder="solutions")).notes == ()


def test_what_installs_something_is_not_run():
    found = notebook()
    lines = "%matplotlib inline\n!pip install x\nif 1:\n    %pip install y\n"
    answer_cell(found)["source"] = f"{lines}def one_update(*given): pass"
    given = rebuilt(found)
    [source] = given.sources[ONE]
    assert not [line for line in source.splitlines() if line.lstrip().startswith(("%", "!"))]
    assert cell_sources.read(source).tree is not None and len(given.notes) == 2
    assert "not run during grading: lines with pip" in given.notes


def test_a_remainder_is_no_magic():
    found = notebook()
    answer_cell(found)["source"] = "def one_update(pip):\n    return (7\n        % pip)"
    assert rebuilt(found).sources[ONE] == (answer_cell(found)["source"],)


@pytest.mark.parametrize(
    "cell",
    [
        {},
        {"cell_type": "code"},
        {"cell_type": ["code"], "source": 1, "metadata": 2, "id": []},
        {"cell_type": "code", "source": [1, None, ["x"]], "metadata": {"nbgrader": 5}},
        {"cell_type": "code", "source": {"a": 1}, "metadata": {"nbgrader": {"grade_id": {}}}},
        {"cell_type": "code", "source": "(" * 150_000, "metadata": {"nbgrader": {"grade_id": ONE}}},
        {"cell_type": "code", "source": "-" * 150_000, "metadata": {"nbgrader": {"grade_id": ONE}}},
        {
            "cell_type": "code",
            "source": "1" + "+1" * 70_000,
            "metadata": {"nbgrader": {"grade_id": ONE}},
        },
        {"cell_type": "code", "source": "a\0b\ud800", "metadata": {"nbgrader": {"grade_id": ONE}}},
    ],
)
def test_cells_that_are_no_cells_do_no_harm(cell):
    found = notebook()
    found["cells"][2:2] = [cell]
    assert set(rebuilt(found).sources) == {ONE, TRUNK}
    "".join(sum(rebuilt(found).sources.values(), ())).encode()


def test_many_cells_and_much_text(hand_in):
    found = notebook()
    found["cells"][3:3] = [
        code(f"x{i} = one_update if {i} else (", id=f"x{i}") for i in range(3000)
    ]
    found["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "a" * 4_000_000})
    handed = hand_in(found)
    assert rebuilt({"cells": handed.cells}).sources == rebuilt(notebook()).sources


def test_answers_of_endless_length_are_rejected():
    found = notebook()
    answer_cell(found)["source"] = "# " + "x" * 200_000
    with pytest.raises(Rejected, match="at most 200000"):
        rebuilt(found)


def test_what_is_too_long_or_too_deep_is_not_parsed():
    assert cell_sources.read("1" + " " * 200_000).tree is None
    assert cell_sources.read("1" + "+1" * 90_000).tree is None
    assert cell_sources.read("%time\nx = 1").tree is not None
    assert cell_sources.read("x = (1\n     % 2)").tree is not None


# Reading in a process of its own


def opened(cells, how=None):
    """What somebody hands in; a function that the other process can import."""
    if how == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "waits":
        signal.pause()
    if how == "much":
        bytearray(100 << 30)
    if how == "rejected":
        raise Rejected("it is a link")
    return Handed(cells, ("a note",), "2026-03-01T12:00:00")


@pytest.fixture(scope="module")
def reader():
    with Reader({NAME: MASTER}, seconds=1) as reader:
        yield reader


def test_a_submission_is_read_elsewhere_and_is_the_same(reader):
    found, about = reader.read(NAME, partial(opened, notebook()["cells"]))
    assert found == rebuilt(notebook())
    assert about == {"notes": ["a note"], "timestamp": "2026-03-01T12:00:00"}


def slow_to_parse(n):
    """Valid, and takes Python's parser time that grows with the square of ``n``."""
    return "def one_update(*a):\n    x = '''" + "\n" * n + "''' " + "f'{a}'" * (n // 2) + "\n"


@pytest.fixture(scope="module")
def hurried():
    """Ten times what an honest notebook takes, and a fraction of what the slow ones do."""
    with Reader({NAME: MASTER}, seconds=0.3) as reader:
        yield reader


def test_a_notebook_that_keeps_a_parser_busy_is_rejected(hurried):
    found = notebook()
    answer_cell(found)["source"] = slow_to_parse(40_000)
    place = found["cells"].index(answer_cell(found)) + 1
    found["cells"][place:place] = [code("    y = 1\n", id=f"rest{n}") for n in range(30)]
    with pytest.raises(Rejected, match=r"cannot be read within 0\.3 s"):
        hurried.read(NAME, partial(opened, found["cells"]))
    assert hurried.read(NAME, partial(opened, notebook()["cells"]))[0].sources


def test_another_cell_that_keeps_a_parser_busy_is_parsed_there_too(hurried):
    found = notebook()
    helper = code(slow_to_parse(49_000).replace("one_update", "helper"), id="helper")
    found["cells"].insert(0, helper)
    answer_cell(found)["source"] = "def one_update(*a):\n    return helper(*a)\n"
    with pytest.raises(Rejected, match=r"cannot be read within 0\.3 s"):
        hurried.read(NAME, partial(opened, found["cells"]))
    helper["source"] = "def helper(*a): ...\n"
    given, about = hurried.read(NAME, partial(opened, found["cells"]))
    assert given == rebuilt(found)
    assert "taken from other cells" in about["notes"][-1]


@pytest.mark.parametrize(
    ("how", "why"),
    [("dies", "was ended"), ("much", "1024 MB of memory"), ("rejected", "it is a link")],
)
def test_what_cannot_be_read_costs_nobody_else(reader, how, why):
    with pytest.raises(Rejected, match=why):
        reader.read(NAME, partial(opened, [], how))
    assert reader.read(NAME, partial(opened, notebook()["cells"]))[0].sources


def test_a_process_that_ended_between_two_calls_costs_nobody(reader):
    reader.read(NAME, partial(opened, notebook()["cells"]))
    reader._process.kill()
    reader._process.wait()
    assert reader.read(NAME, partial(opened, notebook()["cells"]))[0].sources


def test_what_waits_for_ever_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(limited, "_BY_THE_CLOCK", 0.2)
    with (
        Reader({NAME: MASTER}) as reader,
        pytest.raises(Rejected, match=r"within 0\.2 s by the clock"),
    ):
        reader.read(NAME, partial(opened, [], "waits"))


def test_a_reader_that_does_not_start_rejects_nobody(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with Reader({NAME: MASTER}) as reader, pytest.raises(GradingError, match="did not start"):
        reader.read(NAME, partial(opened, []))


def test_the_reader_imports_no_torch(hand_in, tmp_path):
    hand_in(notebook())
    with Reader({NAME: MASTER}) as reader:
        assert reader.read(NAME, partial(read, tmp_path, SubmissionFolder("ada", NAME)))[0].sources
        assert "torch" not in Path(f"/proc/{reader._process.pid}/maps").read_text()


# Masters


def test_a_master_that_cannot_be_graded_by_is_refused(tmp_path):
    with pytest.raises(masters.GradingError, match="no master notebooks"):
        masters.read_masters(tmp_path)
    path = tmp_path / NAME / f"{NAME}.ipynb"
    path.parent.mkdir()
    for old, new, said in [
        ("two_losses.one_update", "two_losses.nothing", "has no question 'nothing'"),
        ("check(", "checked(", "asks one question"),
        ("def one_update", "def another", "no answer cell before two_losses.one_update defines"),
        ('"cells"', '"sells"', "cannot be read"),
        ('"grade": true', '"grade": false', "nothing to grade"),
    ]:
        text = (CHECKOUT / "solutions" / NAME / path.name).read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(masters.GradingError, match=said):
            masters.read_masters(tmp_path)


def test_a_question_that_nothing_answers_is_refused(tmp_path, monkeypatch):
    """Else every answer to it would be wrong."""
    monkeypatch.setattr(misconceptions, "FOLDER", tmp_path / "src" / "package" / "misconceptions")
    misconceptions.code_cells.cache_clear()
    path = CHECKOUT / "solutions" / NAME / f"{NAME}.ipynb"
    with pytest.raises(masters.GradingError, match="no stored solution"):
        masters.read_master(path)
    monkeypatch.undo()
    misconceptions.code_cells.cache_clear()
    assert masters.read_master(path).questions


def test_what_only_the_solution_shows_is_not_run():
    ids = [cell.id for cell in MASTER.cells]
    assert "set-up" in ids and "bootstrap" not in ids
    assert not any(id.startswith("starter") for id in ids)
