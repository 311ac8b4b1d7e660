"""What platforms offer for download is sorted into folders, and feedback goes back the same way.

The archives are made here by the rules in the platforms' own code, which
:mod:`backward_twice.grading.platforms.downloads` names.
"""

import csv
import io
import json
import os
import shutil
import stat
import subprocess
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from test_roster import CANVAS, GITHUB, WORKSHEET, roster_of, set_due
from test_submissions import CHECKOUT
from test_teacher import Here, answered, table

from backward_twice.grading import GradingError, collect
from backward_twice.grading.intake import unpacking
from backward_twice.grading.intake.submissions import MAX_BYTES
from backward_twice.grading.limited import Limited
from backward_twice.grading.platforms import clones
from backward_twice.grading.platforms.downloads import File

NAME = "two_losses"
RIGHT = json.dumps(answered()).encode()
WRONG = b"nonsense"
FILE = f"{NAME}.ipynb"


@pytest.fixture
def here(tmp_path, monkeypatch, empty_gradebook):
    return Here(tmp_path, monkeypatch, empty_gradebook)


@pytest.fixture
def collected(here, capsys):
    """Collect files given by their paths in a zip; what was printed."""

    def collected(files, *options, unpacked=False, name="AG-Two losses-4711"):
        folder = here.submissions.parent
        if unpacked:
            download = folder / name
            for path, content in files.items():
                (download / path).parent.mkdir(parents=True, exist_ok=True)
                (download / path).write_bytes(content)
        else:
            download = folder / f"{name}.zip"
            with zipfile.ZipFile(download, "w") as archive:
                for path, content in files.items():
                    archive.writestr(path, content)
        code = collect.main([str(download), NAME, "--into", str(here.submissions), *options])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out + said.err

    return collected


def handed_in(here):
    """Of each student the names of the files that were collected."""
    return {
        path.name: sorted(file.name for file in (path / NAME).iterdir())
        for path in here.submissions.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    }


# Moodle

MOODLE = {
    "4.1 and newer": "{student}_assignsubmission_file/{file}",
    "before 4.1": "{student}_assignsubmission_file_/{file}",
    "all in one folder": "{student}_assignsubmission_file_{file}",
    "unpacked by hand": "AG-Two losses-4711/{student}_assignsubmission_file/{file}",
    "in a student's subfolder": "{student}_assignsubmission_file/my work/v2/{file}",
}


@pytest.mark.parametrize("form", MOODLE.values(), ids=MOODLE)
@pytest.mark.parametrize("unpacked", [False, True])
def test_moodles_download(here, collected, form, unpacked):
    students = ["Ada Lovelace_9001", "Bob Kahn_9002", "Zoë Müller-O'Hara_9003"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    assert "3 submissions of two_losses, from Moodle" in collected(files, unpacked=unpacked)
    assert handed_in(here) == {student.split("_")[0]: [FILE] for student in students}
    assert here.grade() == 0 and set(here.points().values()) == {3}


def test_moodles_two_students_of_one_name_keep_their_number(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    students = ["Ada Lovelace_9001", "Ada Lovelace_9002", "Bob Kahn_9003"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    said = collected(files)
    assert "several students are called ada lovelace: Moodle's number distinguishes them" in said
    assert handed_in(here).keys() == {"Ada Lovelace 9001", "Ada Lovelace 9002", "Bob Kahn"}


def test_moodles_second_student_of_a_name_takes_nothing_from_the_first(here, collected):
    form = MOODLE["4.1 and newer"]
    first, second = (form.format(student=f"Ada Lovelace_{n}", file=FILE) for n in (9001, 9002))
    collected({first: RIGHT})
    collected({second: b"{}"})  # only what is new was downloaded
    assert handed_in(here).keys() == {"Ada Lovelace", "Ada Lovelace 9002"}
    collected({first: RIGHT, second: b"{}"})
    assert handed_in(here).keys() == {"Ada Lovelace", "Ada Lovelace 9002"}
    assert here.grade() == 0 and here.points() == {"Ada Lovelace": 3, "Ada Lovelace 9002": 0}
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        assert "3 of 3 points" in archive.read(first.replace(".ipynb", ".html")).decode()


@pytest.mark.parametrize("form", [*MOODLE.values(), "{student}_5_{file}", "{student}/{file}"])
def test_what_a_student_hands_in_does_not_choose_the_platform(here, collected, form):
    """A folder with Moodle's name for another student, and a clone's, in what one hands in."""
    students = ["ada_101", "bob_102", "zoe_103"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    before = collected(files)
    expected = handed_in(here).keys()
    mine = form.format(student="bob_102", file="")  # a folder, or what Canvas puts before a name
    for inner in ("zoe_103_assignsubmission_file/x.ipynb", ".git/HEAD"):
        name = inner if mine.endswith("/") else inner.replace("/", "_")
        files[f"{mine}{name}"] = b"{}"
    assert collected(files, name="again").splitlines()[0] == before.splitlines()[0]
    assert handed_in(here).keys() == expected and FILE in handed_in(here)[sorted(expected)[2]]


@pytest.mark.parametrize("form", [MOODLE["4.1 and newer"], "{student}/{file}"])
def test_a_name_is_the_same_in_other_writings_of_unicode(here, collected, form):
    """As some systems write it that a download is unpacked on."""
    composed, apart = "Zo\u00eb M\u00fcller_9003", "Zoe\u0308 Mu\u0308ller_9003"
    collected({form.format(student=composed, file=FILE): b"{}"})
    collected({form.format(student=apart, file=FILE): RIGHT}, unpacked=True, name="again")
    [folder] = handed_in(here)
    assert (here.submissions / folder / NAME / FILE).read_bytes() == RIGHT


def test_files_in_folders_are_not_canvass_whatever_they_are_called(here, collected):
    said = collected({f"{student}/week_3_1_{FILE}": RIGHT for student in ("ada", "bob")})
    assert "2 submissions of two_losses, from folder" in said
    assert handed_in(here).keys() == {"ada", "bob"}


def test_a_folder_of_clones_in_which_one_looks_like_moodles(here, collected):
    clones = ["two-losses-ada", "two-losses-bob", "two-losses-zoe"]
    files = {f"{clone}/{name}": RIGHT for clone in clones for name in (FILE, ".git/HEAD")}
    files["two-losses-bob/zoe_103_assignsubmission_file/two_losses.ipynb"] = b"{}"
    said = collected(files, unpacked=True, name="two-losses-submissions")
    assert "3 submissions of two_losses, from GitHub Classroom" in said
    assert handed_in(here).keys() == {"ada", "bob", "zoe"}


def test_nobody_is_known_by_a_name_that_two_have(here, collected, tmp_path):
    """A student may call oneself as one likes; only the class list's own number says who it is."""
    form = MOODLE["4.1 and newer"]
    students = ["Bob Kahn_9001", "Bob Kahn_9002", "bob@example.org_9003"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    listed = roster_of(tmp_path, "Full name,Email address\nBob Kahn,bob@example.org\n")
    [first, *_] = files
    collected({first: RIGHT}, "--roster", str(listed))
    assert handed_in(here).keys() == {"bob@example.org"}  # nobody else has the name, so far
    said = collected(files, "--roster", str(listed))
    assert "3 not found in the class list" in said
    folders = {"bob@example.org", "Bob Kahn 9002", "bob@example.org 9003"}
    assert handed_in(here).keys() == folders  # the first one keeps the folder of the first time
    assert here.grade("--roster", str(listed)) == 0
    names = {student: row["name"] for student, row in table(here.out).items()}
    assert set(names.values()) == {"", "Bob Kahn"}  # who handed in nothing that is known as his
    assert names["Bob Kahn 9002"] == names["bob@example.org 9003"] == ""
    assert "\nBob Kahn,bob@example.org,\n" in (here.out / "class.csv").read_text()


def test_nobody_takes_anothers_place_where_the_class_list_comes_later(
    here, collected, tmp_path, capsys
):
    form = MOODLE["4.1 and newer"]
    students = ["bob_9001", "bob@example.org_9002", "Zoë Müller_9003"]
    collected({form.format(student=student, file=FILE): RIGHT for student in students})
    assert handed_in(here).keys() == {"bob", "bob@example.org", "Zoë Müller"}
    assert here.grade("--roster", roster_of(tmp_path, WORKSHEET)) == 0
    rows = {row["name"] or row["student"]: row["state"] for row in table(here.out).values()}
    assert rows["Bob Kahn"] == "nothing handed in" and rows["Zoë Müller"] == "graded"
    said = "2 not found in the class list, or ambiguous there: bob, bob@example.org"
    assert said in capsys.readouterr().err
    assert here.grade("--student", "Bob Kahn", "--again") == 2


def test_a_class_list_given_later_renames_no_folder(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    students = ["Ada Lovelace_9001", "Eve_9004"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    collected(files)
    said = collected(files, "--roster", str(roster_of(tmp_path, WORKSHEET)))
    assert handed_in(here).keys() == {"Ada Lovelace", "Eve"}
    assert "1 not found in the class list, or ambiguous there: Eve; say who they are" in said
    assert here.grade("--roster", tmp_path / "class list.csv") == 0
    names = {student: row["name"] for student, row in table(here.out).items()}
    assert names["Ada Lovelace"] == "Ada Lovelace" and names["Eve"] == ""


def test_moodles_worksheet_says_who_is_who(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    students = ["Ada Lovelace_9001", "Ada Lovelace_9002", "Eve_9004"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    twins = WORKSHEET.replace("Bob Kahn,bob@", "Ada Lovelace,ada2@")
    said = collected(files, "--roster", str(roster_of(tmp_path, twins)))
    assert handed_in(here).keys() == {"ada@example.org", "ada2@example.org", "Eve"}
    assert "1 not found in the class list" in said and ": Eve; say" in said


def test_moodles_hidden_names_and_groups(here, collected):
    form = MOODLE["4.1 and newer"]
    students = ["Participant_9001", "Participant_9002", "Team A_12", "Default group"]
    collected({form.format(student=students[0], file=FILE): RIGHT})
    assert handed_in(here).keys() == {"Participant 9001"}
    collected({form.format(student=student, file=FILE): RIGHT for student in students})
    assert handed_in(here).keys() == {
        *("Participant 9001", "Participant 9002", "Team A", "Default group")
    }


# As clean_filename leaves them: "_" is a space, and there is no apostrophe.
MEMBERS = (
    "Group A-Ada Lovelace_9001",
    "Group A-Kahn, Anne-Marie_9004",
    "Team-B 2-Siobhán OHara_9005",
)


def test_a_groups_number_is_not_taken_for_a_participants(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    listed = (
        'Full name,Email address,Groups\nAda Lovelace,ada@example.org,"Team-A 1, Lab"\n'
        "Bob Kahn,bob@example.org,Lab\n"
    )
    teams = {form.format(student=s, file=FILE): RIGHT for s in ("Team-A 1_12", "Bob Kahn_9002")}
    said = collected(teams, "--roster", str(roster_of(tmp_path, listed)))
    assert (
        "1 are groups (Team-A 1): with this class list their members get" in said
        and "not found" not in said
    )
    assert handed_in(here).keys() == {"Team-A 1", "bob@example.org"}
    assert here.grade() == 0 and here.points()["Team-A 1"] == 3
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        assert [name.partition("_")[0] for name in archive.namelist()] == ["Bob Kahn"]


GROUPS = """\
Full name,Email address,Groups
Ada Lovelace,ada@example.org,"Team-A 1, Lab"
Bob Kahn,bob@example.org,"Team B, Lab"
Zoë Müller,zoe@example.org,Team B
Eve Roe,eve@example.org,
"""


def points_of_all(here):
    with (here.out / "class.csv").open(encoding="utf-8", newline="") as file:
        return {row[1] or row[0]: row[-1] for row in [*csv.reader(file)][1:]}


def test_a_groups_members_get_its_points(here, collected, tmp_path, capsys):
    form = MOODLE["4.1 and newer"]
    listed = str(roster_of(tmp_path, GROUPS))
    teams = {"Team-A 1_12": RIGHT, "Team B_13": WRONG}
    collected({form.format(student=s, file=FILE): work for s, work in teams.items()})
    assert here.grade("--roster", listed) == 0
    everybody = {"ada@example.org": "3", "bob@example.org": "0", "zoe@example.org": "0"}
    assert points_of_all(here) == everybody | {"eve@example.org": ""}
    states = {student: row["state"] for student, row in table(here.out).items()}
    assert states["ada@example.org"] == "in a group" and states["Team-A 1"] == "graded"
    assert states["eve@example.org"] == "nothing handed in"
    printed = capsys.readouterr()
    assert "     3 in a group\n" in printed.out and "     2 submissions\n" in printed.out
    assert "not found" not in printed.err
    collected({form.format(student=s, file=FILE): RIGHT for s in (*teams, "Lab_14")})
    assert here.grade() == 0
    assert points_of_all(here) == everybody | {
        **{"ada@example.org": "", "bob@example.org": "", "zoe@example.org": "3"},
        "eve@example.org": "",
    }
    said = "Ada Lovelace is in Lab and Team-A 1, and each handed in two_losses: class.csv has no"
    assert said in capsys.readouterr().err


def test_a_groups_members_get_its_feedback(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    worksheet = (
        "Identifier,Full name,Email address,Status,Group,Grade\n"
        'Participant 9001,Ada_B Lovelace,ada@example.org,x,"Team 7, evening",\n'
        'Participant 9002,Bob Kahn,bob@example.org,x,"Team 7, evening",\n'
        "Participant 9003,Zoë Müller,zoe@example.org,x,Team 8,\n"
    )
    work = {form.format(student=s, file=FILE): RIGHT for s in ("Team 7, evening_12", "Team 8_9002")}
    collected(work, "--roster", str(roster_of(tmp_path, worksheet)))
    assert here.grade("--roster", roster_of(tmp_path, worksheet)) == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        back = {
            is_valid_filename_for_import(path): archive.read(path) for path in archive.namelist()
        }
    assert back.keys() == {(9001, f"{NAME}.html"), (9002, f"{NAME}.html"), (9003, f"{NAME}.html")}
    page = here.out / "feedback" / "Team 7, evening" / NAME / f"{NAME}.html"
    assert back[9001, f"{NAME}.html"] == back[9002, f"{NAME}.html"] == page.read_bytes()
    collected(work)  # with the groups' numbers, one of which a participant has too
    listed = roster_of(tmp_path, worksheet.replace("Identifier", "Number"))
    assert here.grade("--roster", listed, "--drop-missing") == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        assert archive.namelist() == []


def test_who_is_called_as_a_group_gives_nobody_points(here, collected, tmp_path, capsys):
    form = MOODLE["4.1 and newer"]
    names = ["Eve Roe_9004", "Team B_9009"]
    collected({form.format(student=name, file=FILE): RIGHT for name in names})
    assert here.grade("--roster", roster_of(tmp_path, GROUPS)) == 0
    points = points_of_all(here)
    assert points.pop("eve@example.org") == points.pop("Team B") == "3"
    assert set(points.values()) == {""}
    assert "1 not found in the class list, or ambiguous there: Team B" in (capsys.readouterr().err)


def test_moodles_members_of_groups_without_a_class_list(here, collected):
    form = MOODLE["before 4.1"]
    hidden = ["Group A-Participant_9008", "Group B-Participant_9009"]
    collected({form.format(student=s, file=FILE): RIGHT for s in (*MEMBERS, *hidden)})
    assert handed_in(here).keys() == {
        *(student.partition("_")[0] for student in MEMBERS),
        *(student.replace("_", " ") for student in hidden),
    }


def test_a_name_with_a_dash_is_not_taken_for_another_persons(here, collected, tmp_path):
    form = MOODLE["4.1 and newer"]
    listed = "Full name,Email address\nLuc Picard,luc@example.org\nAda Lovelace,ada@example.org\n"
    students = ["Jean-Luc Picard_9001", "Ada Lovelace_9002"]
    files = {form.format(student=student, file=FILE): RIGHT for student in students}
    said = collected(files, "--roster", str(roster_of(tmp_path, listed)))
    assert "1 not found in the class list" in said
    assert handed_in(here).keys() == {"Jean-Luc Picard", "ada@example.org"}


def test_moodles_other_files_do_not_hide_the_notebook(here, collected):
    text = "Ada_9001_assignsubmission_onlinetext/onlinetext.html"
    files = {
        text: b"<p>see my file</p>",
        "Ada_9001_assignsubmission_file/notes.pdf": b"%PDF",
        f"Ada_9001_assignsubmission_file/{FILE}": RIGHT,
        f"Ada_9001_assignsubmission_file/.ipynb_checkpoints/{FILE}": b"{}",
        f"__MACOSX/Ada_9001_assignsubmission_file/{FILE}": b"{}",
        "Bob_9002_assignsubmission_onlinetext/onlinetext.html": b"<p>my answer</p>",
    }
    collected(files)
    assert FILE in handed_in(here)["Ada"] and handed_in(here)["Bob"] == ["onlinetext.html"]
    assert here.grade() == 0 and here.points() == {"Ada": 3, "Bob": 0}


def is_valid_filename_for_import(path):
    """Moodle's rule (mod/assign/feedback/file/importziplib.php): participant and file name."""
    parts = path.split("/")
    while parts:
        info = parts.pop(0).split("_", 4)
        if len(info) < 4 or not info[1].isdigit() or info[2] != "assignsubmission":
            continue
        return int(info[1]), "/".join([*info[4:], *parts]).lstrip("/")
    return None


@pytest.mark.parametrize("form", MOODLE.values(), ids=MOODLE)
def test_moodle_takes_the_feedback_back(here, collected, form):
    students = ["Ada Lovelace_9001", "Ada Lovelace_9002", "Bob_9003"]
    collected({form.format(student=student, file=FILE): RIGHT for student in students})
    assert here.grade() == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        found = {is_valid_filename_for_import(name): name for name in archive.namelist()}
        assert found.keys() == {(number, f"{NAME}.html") for number in (9001, 9002, 9003)}
        page = archive.read(found[9002, f"{NAME}.html"]).decode()
    assert "Ada Lovelace 9002" in page and "3 of 3 points" in page


# Canvas


def canvas(student, attachment, name=FILE):
    return f"{student}_{attachment}_{name}"


def test_canvas_download(here, collected):
    files = {
        canvas("lovelaceada_101", 5551): RIGHT,
        canvas("kahnbob_LATE_102", 5552, "two_losses-1.ipynb"): RIGHT,
        canvas("müllerzoë_103", 5553, "my_two_2_losses_7_.ipynb"): RIGHT,
        canvas("de_souzaeve_104", 5554): RIGHT,
        canvas("lovelaceada_105", 5555): RIGHT,
        canvas("lovelaceada_105", 5556, "notes.txt"): b"...",
        "nemo_106_text.html": b"<p>my answer</p>",
        "nemo_LATE_107_link.html": b"<a>...</a>",
    }
    said = collected(files, name="submissions")
    assert "7 submissions of two_losses, from Canvas" in said
    found = handed_in(here)
    assert found["kahnbob 102"] == ["two_losses-1.ipynb"]
    assert found["lovelaceada 105"] == ["notes.txt", FILE]
    assert found.keys() == {
        *("lovelaceada 101", "kahnbob 102", "müllerzoë 103", "de_souzaeve 104", "lovelaceada 105"),
        *("nemo 106", "nemo 107"),
    }
    assert here.grade() == 0
    with (here.out / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert "late, says Canvas" in rows["kahnbob 102"]["detail"]
    assert "late" not in rows["lovelaceada 101"]["detail"]
    assert "no notebook in the folder, only 106_text.html" in rows["nemo 106"]["state"]


def test_canvas_class_list_gives_the_names_and_takes_the_points(here, collected, tmp_path):
    roster = str(roster_of(tmp_path, CANVAS))
    files = {canvas("lovelaceada_101", 5551): RIGHT, canvas("kahnbob_102", 5552): RIGHT}
    collected(files, "--roster", roster, name="submissions")
    assert handed_in(here).keys() == {"ada", "bob"}
    assert here.grade("--roster", roster) == 0
    with (here.out / "class.csv").open(encoding="utf-8") as file:
        assert [row[-1] for row in csv.reader(file)] == ["two_losses (4711)", "3", "3", "1", ""]


def test_canvas_hidden_names(here, collected):
    collected({canvas("anon_x7Yz1", 5551): RIGHT, canvas("LATE_anon_aB3cD", 5552): RIGHT})
    assert handed_in(here).keys() == {"anon x7Yz1", "anon aB3cD"}


def test_canvas_gets_no_feedback_for_what_is_no_notebook(here, collected):
    collected({canvas("lovelaceada_101", 5551, "a.txt"): b"", canvas("eve_102", 5552): RIGHT})
    assert here.grade() == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        assert archive.namelist() == [canvas("eve_102", 5552)]


def test_canvas_takes_the_feedback_back(here, collected):
    names = [canvas("lovelaceada_101", 5551), canvas("kahnbob_LATE_102", 5552, "my.ipynb")]
    collected({name: RIGHT for name in names} | {"nemo_106_text.html": b"..."}, name="submissions")
    assert here.grade() == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        # Canvas finds submission and file by the first two numbers among the name's parts.
        assert sorted(archive.namelist()) == sorted(names)
        notebook = json.loads(archive.read(names[0]))
    [first] = notebook["cells"][1]["outputs"]
    assert first["text"].startswith("3 of 3 points")


# GitHub Classroom, a folder


def clone(folder, path=FILE):
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(RIGHT)
    (folder / "README.md").write_text("# two losses")


@pytest.mark.parametrize("above", ["autograd-week-1-submissions", "clones"])
def test_clones_of_github_classroom(here, tmp_path, above, capsys):
    download = tmp_path / above
    for student in ("ada", "bob-k", "zoe"):
        clone(download / f"autograd-week-1-{student}", f"exercises/{NAME}/{FILE}")
    roster = str(roster_of(tmp_path, GITHUB))
    arguments = [str(download), NAME, "--into", str(here.submissions)]
    assert collect.main(arguments) == 0
    assert "from GitHub Classroom" in capsys.readouterr().out
    assert handed_in(here) == {s: ["README.md", FILE] for s in ("ada", "bob-k", "zoe")}
    assert collect.main([*arguments, "--roster", roster]) == 0
    assert handed_in(here).keys() == {"ada", "bob-k", "zoe"}
    assert here.grade("--roster", roster) == 0
    names = {student: row["name"] for student, row in table(here.out).items()}
    assert names == {"ada": "Ada Lovelace", "bob-k": "Bob Kahn", "zoe": "Zoë Müller"}


def test_a_clones_lateness_is_by_its_notebooks_last_commit(here, tmp_path):
    download = tmp_path / "week-submissions"
    notebook = f"exercises/{NAME}/{FILE}"
    for student in ("ada", "bob"):
        folder = download / f"week-{student}"
        clone(folder, notebook)
        shutil.rmtree(folder / ".git")
        for day, changed in ((1, notebook), (9, "README.md")):
            when = f"2026-03-0{day}T12:00:00+01:00"
            (folder / "timestamp.txt").write_text("2020-01-01 00:00:00 UTC")  # of the student's
            for command in (["init", "-q"], ["add", changed], ["commit", "-qm", "work"]):
                git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *command]
                env = os.environ | {"GIT_COMMITTER_DATE": when}
                subprocess.run(git, cwd=folder, check=True, env=env)
    shutil.rmtree(download / "week-bob" / ".git" / "objects")  # damaged
    assert collect.main([str(download), NAME, "--into", str(here.submissions)]) == 0
    stamp = here.submissions / "ada" / NAME / "timestamp.txt"
    assert stamp.read_text() == "2026-03-01T12:00:00+01:00"
    assert not (here.submissions / "bob" / NAME / "timestamp.txt").exists()
    assert here.grade() == 0
    set_due(here, datetime(2026, 2, 28, 11))
    assert here.grade("--late", "10") == 0 and here.points() == {"ada": 2.7, "bob": 1}


def git(folder, *arguments, **options):
    name = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    run = subprocess.run(
        ["git", *name, *arguments], cwd=folder, check=True, capture_output=True, **options
    )
    return run.stdout.decode().strip()


SIGNED = """tree {tree}
author x <x@example.org> 1772362800 +0100
committer x <x@example.org> 1772362800 +0100
gpgsig -----BEGIN PGP SIGNATURE-----
 .
 -----END PGP SIGNATURE-----

work
"""


@pytest.mark.parametrize("hardened", [True, False])
def test_no_program_of_a_clones_configuration_runs(tmp_path, monkeypatch, hardened):
    """Each setting names a program; git by itself runs some, to answer the same question."""
    if not hardened:
        monkeypatch.setattr(clones, "_ENVIRONMENT", {})
        monkeypatch.setattr(clones, "_OPTIONS", ())
    ran, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    program.chmod(0o755)
    for fetches in (False, True):
        folder = tmp_path / f"fetches-{fetches}"
        clone(folder)
        git(folder, "add", FILE)
        tree = git(folder, "write-tree")
        signed = SIGNED.format(tree=tree).encode()
        commit = git(folder, "hash-object", "-t", "commit", "-w", "--stdin", input=signed)
        git(folder, "update-ref", "HEAD", commit)
        settings = {
            **dict.fromkeys(("gpg.program", "core.fsmonitor", "core.pager"), program),
            **dict.fromkeys(("core.sshCommand", "diff.external", "diff.x.textconv"), program),
            "log.showSignature": "true",
            "core.hooksPath": tmp_path,
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "origin",
            "remote.origin.promisor": "true",
            "remote.origin.url": f"ext::{program}",
            "protocol.allow": "always",
            "alias.log": f"!{program}",
        }
        for key, value in settings.items():
            git(folder, "config", key, value)
        (folder / ".gitattributes").write_text("* diff=x\n")
        if fetches:
            (folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
        time = clones.commit_time(folder)
        assert ran.exists() is not hardened
        ran.unlink(missing_ok=True)
        if hardened:
            assert time == ("" if fetches else "2026-03-01T12:00:00+01:00")


def test_no_other_repository_says_when_a_clone_was_committed_to(tmp_path):
    clone(tmp_path)
    git(tmp_path, "add", FILE)
    git(tmp_path, "commit", "-qm", "the teacher's")
    student = tmp_path / "ada"
    student.mkdir()
    assert clones.commit_time(student) == ""
    (student / ".git").symlink_to(tmp_path / ".git")
    assert clones.commit_time(student) == ""
    assert clones.commit_time(tmp_path) != ""


@pytest.mark.parametrize(
    ("files", "students"),
    [
        (["ada/two_losses.ipynb", "bob/Untitled.ipynb"], {"ada", "bob"}),
        (["week 1/ada/two_losses.ipynb", "week 1/bob/two_losses.ipynb"], {"ada", "bob"}),
        (["ada.ipynb", "bob.ipynb"], {"ada", "bob"}),
        (["ada_two_losses.ipynb", "two_losses-bob.ipynb"], {"ada", "bob"}),
        (["ada/work/two_losses.ipynb", "bob/two_losses/two_losses.ipynb"], {"ada", "bob"}),
        (["Zoë Müller/two_losses.ipynb"], {"Zoë Müller"}),
        # Numbers in a student's own files do not make it a download of Canvas's.
        (["ada/two_losses.ipynb", "ada/plot_1_2_3.png", "bob/two_losses.ipynb"], {"ada", "bob"}),
    ],
)
@pytest.mark.parametrize("unpacked", [False, True])
def test_a_folder(here, collected, files, students, unpacked):
    said = collected(dict.fromkeys(files, RIGHT), unpacked=unpacked)
    assert "from folder" in said and handed_in(here).keys() == students
    assert here.grade() == 0 and here.graded == sorted(students)


# What students hand in, and what a teacher does


def test_a_students_zip_is_looked_into(here, collected):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(f"my work/{FILE}", RIGHT)
        archive.writestr(f"__MACOSX/{FILE}", b"")
    files = {"ada/work.zip": inner.getvalue(), "bob/work.zip": b"PK no zip"}
    collected(files)
    assert handed_in(here) == {"ada": [FILE], "bob": ["work.zip"]}
    assert here.grade() == 0 and here.points() == {"ada": 3, "bob": 0}


def test_nothing_of_a_students_leaves_its_folder_or_fills_the_disk(here, collected):
    files = {
        f"../../../evil_{NAME}.ipynb": RIGHT,
        "ada/../../evil.ipynb": RIGHT,
        "ada/C:\\evil.ipynb": RIGHT,
        "bob/large.ipynb": b" " * (2 * MAX_BYTES),
        **{f"eve/{number}.ipynb": RIGHT for number in range(100)},
    }
    collected(files)
    root = here.submissions.parent
    written = [path for path in root.rglob("*") if path.is_file()]
    assert all(
        path.is_relative_to(here.submissions) or path.parent == root or here.out in path.parents
        for path in written
    )
    assert not [path for path in root.parent.glob("evil*")] and not list(root.glob("evil*"))
    large = here.submissions / "bob" / NAME / "large.ipynb"
    assert large.stat().st_size == 2 * MAX_BYTES > large.stat().st_blocks * 512
    assert len(handed_in(here)["eve"]) == 20


def zipped(method=zipfile.ZIP_DEFLATED, **files):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(f"{name}.ipynb", content)
    return inner.getvalue()


def test_a_hostile_zip_costs_nobody_else(here, collected):
    """What it wants of memory, what it says of its size, and names that no disk takes."""
    dictionary = b"\x09\x04\x05\x00\x5d"  # of LZMA's properties what stands before its size
    much = zipped(zipfile.ZIP_LZMA, a=RIGHT)
    at = much.index(dictionary) + len(dictionary)
    much = much[:at] + b"\xff\xff\xff\xff" + much[at + 4 :]
    lies = zipped(a=RIGHT)
    central = lies.index(b"PK\x01\x02")
    lies = lies[: central + 24] + b"\xfe\xff\xff\xff" + lies[central + 28 :]
    no_text = zipped(ééé=RIGHT).replace("ééé".encode(), b"\xff\xff\xff\xff\xff\xff")
    files = {"eve/much.zip": much, "joe/lies.zip": lies, "kim/no_text.zip": no_text}
    files |= {"zoe/long.zip": zipped(**{"長" * 300: RIGHT}), f"ada/{FILE}": RIGHT}
    collected(files)
    assert here.grade() == 0
    assert here.points() == {"ada": 3, "eve": 0, "joe": 0, "kim": 0, "zoe": 3}


def test_a_zip_that_takes_long_to_unpack_is_left_as_it_is(tmp_path):
    bomb = zipped(**{f"{n}": bytes(MAX_BYTES) for n in range(20)})
    (tmp_path / "bomb.zip").write_bytes(bomb)
    file = File("bomb.zip", "eve", "", "bomb.zip")
    with Limited(seconds=0.1) as limited:
        said = collect._copied(limited, tmp_path, [file], tmp_path / "eve", NAME)
    assert said == ["a zip in the submission was not opened: it cannot be read within 0.1 s"]
    assert (tmp_path / "eve" / NAME / "bomb.zip").read_bytes() == bomb


def test_a_link_is_said_and_not_followed(here, tmp_path, capsys):
    download = tmp_path / "download"
    (download / "ada").mkdir(parents=True)
    (download / "ada" / FILE).symlink_to("/etc/passwd")
    (download / "bob").mkdir()
    os.mkfifo(download / "bob" / FILE)
    archived = tmp_path / "archived.zip"
    with zipfile.ZipFile(archived, "w") as archive:
        link = zipfile.ZipInfo(f"eve/{FILE}")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    for source in (download, archived):
        assert collect.main([str(source), NAME, "--into", str(here.submissions)]) == 0
    said = capsys.readouterr().err
    assert all(f"{student}: {FILE} cannot be read" in said for student in ("ada", "bob", "eve"))
    assert handed_in(here) == {"ada": [], "bob": [], "eve": []}


def test_who_hands_in_again_is_replaced_and_nobody_else(here, collected):
    form = MOODLE["4.1 and newer"]
    ada = form.format(student="Ada_9001", file="old.ipynb")
    collected({ada: RIGHT, form.format(student="Bob_9002", file=FILE): RIGHT})
    collected({form.format(student="Ada_9001", file=FILE): RIGHT})
    assert handed_in(here) == {"Ada": [FILE], "Bob": [FILE]}
    assert here.grade() == 0
    with zipfile.ZipFile(here.out / "upload" / f"{NAME}.zip") as archive:
        assert len(archive.namelist()) == 2


def test_names_that_some_file_systems_take_for_one_are_two_folders(here, collected):
    collected({"Ada.ipynb": RIGHT, "ada.ipynb": RIGHT})
    assert handed_in(here).keys() == {"Ada", "ada (2)"}


def test_what_may_not_be_read_costs_nobody_what_was_there(
    here, collected, tmp_path, bound_by_permissions
):
    collected({f"{student}/{FILE}": RIGHT for student in ("ada", "bob")}, unpacked=True, name="d")
    download = tmp_path / "d"
    again = "-m", collect.__name__, download, NAME, "--into", here.submissions
    (download / "eve").mkdir()
    (download / "eve" / FILE).write_bytes(RIGHT)
    for student in ("bob", "eve"):
        (download / student / FILE).chmod(0)
    ended = bound_by_permissions(*again, "--solutions", CHECKOUT / "solutions")
    assert ended.returncode == 0 and "3 submissions" in ended.stdout
    for student in ("bob", "eve"):
        said = f"{student}: {download}/{student}/{FILE}: Permission denied (give the user who runs"
        assert said in ended.stderr and "the earlier collection stays unchanged" in ended.stderr
    assert handed_in(here) == {"ada": [FILE], "bob": [FILE]}
    (download / "bob").chmod(0)
    ended = bound_by_permissions(*again, "--solutions", CHECKOUT / "solutions")
    assert ended.returncode == 2 and f"error: {download}/bob: Permission denied" in ended.stderr
    (tmp_path / "d.zip").write_bytes(zipped())
    (tmp_path / "d.zip").chmod(0)
    ended = bound_by_permissions(*again[:2], tmp_path / "d.zip", *again[3:])
    assert ended.returncode == 2 and "d.zip: Permission denied" in ended.stderr
    assert handed_in(here) == {"ada": [FILE], "bob": [FILE]}


def test_files_of_nobodys_are_said(here, collected):
    files = {f"Ada_9001_assignsubmission_file/{FILE}": RIGHT, "read me.txt": b"..."}
    assert "1 file has the name of no student: read me.txt" in collected(files)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no"),
        (lambda path: path.write_bytes(b"Rar!"), "neither a folder nor a zip"),
        (lambda path: path.mkdir(), "no submission found"),
    ],
)
def test_what_is_no_download_is_said(tmp_path, capsys, make, said):
    make(tmp_path / "download.rar")
    arguments = ["--into", str(tmp_path / "submitted")]
    assert collect.main([str(tmp_path / "download.rar"), NAME, *arguments]) == 2
    assert said in capsys.readouterr().err
    assert collect.main([str(tmp_path), "Two", *arguments]) == 2
    assert "there is no exercise 'Two'; there is accumulated_gradients" in capsys.readouterr().err


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_download_with_too_many_files_is_refused_and_not_cut(tmp_path, monkeypatch, is_zip):
    monkeypatch.setattr(unpacking, "_MOST_MEMBERS", 3)
    for number in range(4):
        (tmp_path / "work" / str(number)).mkdir(parents=True)
        (tmp_path / "work" / str(number) / FILE).write_bytes(RIGHT)
    download = tmp_path / "work"
    if is_zip:
        download = Path(shutil.make_archive(str(download), "zip", download))
    with pytest.raises(GradingError, match="has more than 3 files"):
        unpacking.listed(download)


def test_a_folder_that_is_full_is_named(here, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(collect, "copied", _full)
    download = tmp_path / "work"
    download.mkdir()
    (download / "ada.ipynb").write_bytes(RIGHT)
    assert collect.main([str(download), NAME, "--into", str(here.submissions)]) == 2
    assert f"error: {here.submissions}: No space left on device" in capsys.readouterr().err


def _full(*_):
    raise OSError(28, "No space left on device")
