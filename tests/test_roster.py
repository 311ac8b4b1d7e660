"""Class lists as Canvas, Moodle and GitHub Classroom export them, and the table that goes back."""

import csv
import re
import shutil
from datetime import datetime

import pytest
from test_teacher import RIGHT, Here, answered, gradebook_in, write

from backward_twice.grading import GradingError
from backward_twice.grading.platforms.owners import read_owners
from backward_twice.grading.platforms.roster import read_roster

NAME = "two_losses"

# The forms are those of lib/gradebook_importer.rb (github.com/instructure/canvas-lms), of Moodle's
# list of participants and of its grading worksheet (mod/assign/feedback/offline in
# github.com/moodle/moodle), and of GitHub Classroom's roster.
CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,two_losses (4711),Essay (12),Current Score
    Points Possible,,,,,3,10,(read only)
,,,,,Manual Posting,,
"Lovelace, Ada",101,s-1,ada,Autograd,,,90
"Kahn, Bob",102,s-2,bob,Autograd,,5,80
"Müller, Zoë",103,s-3,zoe,Autograd,,,70
"Student, Test",104,,0f3a9c,Autograd,,,
"""
MOODLE = """\
First name,Last name,ID number,Email address,Assignment: two_losses (Real),Course total (Real)
Ada,Lovelace,77001,ada@example.org,-,-
Bob,Kahn,77002,bob@example.org,-,-
Zoë,Müller,77003,zoe@example.org,-,-
"""
WORKSHEET = """\
Identifier,Full name,Email address,Status,Grade,Maximum Grade
Participant 9001,Ada Lovelace,ada@example.org,Submitted for grading,,3.00
Participant 9002,Bob Kahn,bob@example.org,Submitted for grading,,3.00
Participant 9003,Zoë Müller,zoe@example.org,No submission,,3.00
"""
GITHUB = """\
"identifier","github_username","github_id","name"
"77001","ada","1","Ada Lovelace"
"77002","bob-k","2","Bob Kahn"
"77003","zoe","3","Zoë Müller"
"""


@pytest.fixture
def here(tmp_path, monkeypatch, empty_gradebook):
    return Here(tmp_path, monkeypatch, empty_gradebook)


def roster_of(tmp_path, text, encoding="utf-8-sig"):
    path = tmp_path / "class list.csv"
    path.write_bytes(text.encode(encoding))
    return path


def owners_of(tmp_path, text):
    owners = read_owners(tmp_path, read_roster(roster_of(tmp_path, text)), {})
    assert not owners.problems
    return owners


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        (CANVAS, ["ada", "101", "s-1", "Ada Lovelace", "Lovelace, Ada", "lovelaceada 101"]),
        (MOODLE, ["77001", "ada@example.org", "ADA LOVELACE", "Lovelace Ada"]),
        (WORKSHEET, ["9001", "Ada Lovelace 9001", "Ada Lovelace", "ada@example.org"]),
        (GITHUB, ["ada", "77001", "Ada Lovelace"]),
        (MOODLE.replace(",", ";"), ["ada@example.org", "77001"]),
        ("sep=;\n" + MOODLE.replace(",", ";"), ["ada@example.org", "77001"]),
        (MOODLE.replace("\n", "\r"), ["ada@example.org", "77001"]),
        ("name\nAda Lovelace\nBob Kahn\n", ["ada lovelace"]),
    ],
)
def test_a_student_is_found_by_what_the_folder_may_be_called(tmp_path, text, folders):
    owners = owners_of(tmp_path, text)
    for folder in folders:
        assert owners.find(folder) and owners.find(folder).name == "Ada Lovelace", folder
    for folder in ("eve", "", "Lovelace", "Bob Kahn 9001", "Kahn 101", "99", "ada@", "example.org"):
        assert owners.find(folder) is None, folder


def test_nobody_is_known_by_a_part_of_an_address(tmp_path):
    owners = owners_of(tmp_path, MOODLE)
    assert owners.find("ada") is None and owners.find("7700") is None


def test_a_class_list_whose_cells_tabs_separate(tmp_path):
    text = MOODLE.replace(",", "\t").replace("\n", "\r\n")
    assert read_roster(roster_of(tmp_path, text)).people[2].name == "Zoë Müller"


def test_names_in_other_writings_of_unicode(tmp_path):
    assert owners_of(tmp_path, MOODLE).find("Zoe\u0308 Mu\u0308ller").name == "Zoë Müller"


def test_two_of_one_name_are_told_apart_by_their_number_only(tmp_path):
    twins = WORKSHEET.replace("Bob Kahn,bob@", "Ada Lovelace,ada2@")
    owners = owners_of(tmp_path, twins)
    assert owners.find("Ada Lovelace") is None
    assert owners.find("Ada Lovelace 9001").email == "ada@example.org"
    assert owners.find("Ada Lovelace 9002").email == "ada2@example.org"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"colour,size\nred,1\n", "no column that identifies"),
        ("name\nZoë\n".encode("latin-1"), "not UTF-8"),
        ("name\nZoë\n".encode("utf-16")[:-1], "not UTF-8"),
        (f"name\n{'x' * 200_000}\n".encode(), "not a CSV file"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_class_list_is_said(tmp_path, content, said):
    path = tmp_path / "class list.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GradingError, match=said):
        read_roster(path)


def test_canvas_takes_the_table_back(here, tmp_path):
    here.hand_in("lovelaceada 101", "bob")
    assert here.grade("--roster", roster_of(tmp_path, CANVAS)) == 0
    header, possible, *people = table(here.out / "class.csv")
    # What Canvas's importer looks at: Student, ID, …, Section, then titles with the ids it gave.
    assert header == CANVAS.partition(",Essay")[0].split(",")
    assert possible == ["    Points Possible", "", "", "", "", "3"]
    assert people == [
        ["Lovelace, Ada", "101", "s-1", "ada", "Autograd", "3"],
        ["Kahn, Bob", "102", "s-2", "bob", "Autograd", "1"],
        ["Müller, Zoë", "103", "s-3", "zoe", "Autograd", ""],
    ]


def test_moodle_takes_the_table_back(here, tmp_path):
    here.hand_in("Ada Lovelace", "bob@example.org")
    assert here.grade("--roster", roster_of(tmp_path, MOODLE)) == 0
    header, *people = table(here.out / "class.csv")
    assert header == [
        *("First name", "Last name", "ID number", "Email address"),
        "Assignment: two_losses (Real)",
    ]
    assert [(row[2], row[4]) for row in people] == [("77001", "3"), ("77002", "1"), ("77003", "")]


def test_who_handed_in_nothing_has_a_row_and_a_name(here, tmp_path, capsys):
    here.hand_in("Ada Lovelace", "bob@example.org", "eve")
    assert here.grade("--roster", roster_of(tmp_path, MOODLE)) == 0
    header, *rows = table(here.out / "grades.csv")
    found = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(r["student"], r["name"], r["identifier"], r["points"], r["state"]) for r in found] == [
        ("Ada Lovelace", "Ada Lovelace", "77001", "3", "graded"),
        ("bob@example.org", "Bob Kahn", "77002", "1", "graded"),
        ("eve", "", "", "3", "graded"),
        ("77003", "Zoë Müller", "77003", "0", "nothing handed in"),
    ]
    printed = capsys.readouterr()
    assert "1 not found in the class list, or ambiguous there: eve" in printed.err
    assert "     1 nothing handed in\n" in printed.out
    assert table(here.out / "class.csv")[-1] == ["eve", "", "", "", "3"]
    with gradebook_in(here.out) as gradebook:
        zoe = gradebook.find_student("77003")
        assert (zoe.first_name, zoe.last_name, zoe.email) == ("Zoë", "Müller", "zoe@example.org")
        zoe.first_name = "Z."
        gradebook.db.commit()
    assert here.grade("--roster", roster_of(tmp_path, MOODLE)) == 0
    with gradebook_in(here.out) as gradebook:
        assert gradebook.find_student("77003").first_name == "Z."
        assert gradebook.find_student("bob@example.org").last_name == "Kahn"


def test_one_person_under_two_names_is_no_ones_loss_in_silence(here, tmp_path, capsys):
    here.hand_in("77001", "Ada Lovelace")
    assert here.grade("--roster", roster_of(tmp_path, MOODLE)) == 0
    assert "77001 and Ada Lovelace are the same person in the class list" in capsys.readouterr().err
    assert table(here.out / "class.csv")[1][-1] == ""


def test_a_formula_in_a_name_is_text_and_an_identifier_stays(here, tmp_path):
    evil = MOODLE.replace("Bob,Kahn", '"=HYPERLINK(""x"")",+1').replace("77002", "=1+1")
    here.hand_in("ada")
    assert here.grade("--roster", roster_of(tmp_path, evil)) == 0
    cells = [cell for row in table(here.out / "class.csv") for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@")]
    assert "77001" in cells and "ada@example.org" in cells


def test_one_table_of_students_and_exercises_without_a_class_list(here):
    here.hand_in("ada", "bob")
    path = here.submissions / "ada" / "hidden_state" / "hidden_state.ipynb"
    path.parent.mkdir()
    path.write_text("nonsense")
    assert here.grade() == 0
    assert table(here.out / "class.csv") == [
        ["student", "hidden_state", "two_losses"],
        ["ada", "0", "3"],
        ["bob", "", "1"],
    ]


def test_one_student_is_graded_again_and_nobody_is_lost(here, capsys):
    here.hand_in("ada", "bob")
    here.grade()
    before = (here.out / "grades.csv").read_bytes()
    write(here.submissions, here.out, "bob", answered(one=RIGHT["answer-one-update"] + "\n"))
    here.hand_in("eve")
    assert here.grade("--student", "ada") == 0 and here.graded == []
    assert here.grade("--student", "ada", "--again") == 0 and here.graded == ["ada"]
    assert (here.out / "grades.csv").read_bytes() == before
    assert here.grade("--student", "eve", "--student", "ada") == 0 and here.graded == ["eve"]
    assert here.points() == {"ada": 3, "bob": 1, "eve": 3}
    assert here.grade("--again") == 0 and here.graded == ["ada", "bob", "eve"]
    capsys.readouterr()
    assert here.grade("--student", "Ada") == 2 and here.graded == []
    assert "no submission of 'Ada'" in capsys.readouterr().err


def test_the_remarks_on_others_stay_too(here):
    here.hand_in("ada", "bob")
    folder = here.submissions / "bob" / NAME
    (folder / f"{NAME}.ipynb").rename(folder / "Untitled.ipynb")
    here.grade()
    before = (here.out / "grades.csv").read_text()
    assert "named Untitled.ipynb" in before
    shutil.rmtree(folder.parent)
    assert here.grade("--student", "ada") == 0
    assert (here.out / "grades.csv").read_text() == before


def test_the_table_is_never_shortened(here, capsys):
    here.hand_in("ada", "bob")
    here.grade()
    shutil.rmtree(here.submissions / "bob")
    capsys.readouterr()
    assert here.grade() == 0 and here.points() == {"ada": 3, "bob": 1}
    said = capsys.readouterr().err
    assert "warning: 1 graded submissions are no longer in" in said and "bob (two_losses)" in said
    assert here.grade("--drop-missing") == 0 and here.points() == {"ada": 3}
    assert "warning" not in capsys.readouterr().err
    assert here.grade() == 0 and here.points() == {"ada": 3} and here.graded == []
    here.hand_in("bob")
    assert here.grade() == 0 and here.graded == ["bob"]


def test_a_folder_named_otherwise_is_rejected_and_named(here):
    here.hand_in("ada")
    (here.submissions / "ada" / NAME).rename(here.submissions / "ada" / "Two Losses")
    assert here.grade() == 0
    state = table(here.out / "grades.csv")[1][4]
    assert state.startswith("rejected: there is no assignment 'Two Losses'; there is ")


def late(here, student, when):
    here.hand_in(student)
    (here.submissions / student / NAME / "timestamp.txt").write_text(when)


def set_due(here, when):
    with gradebook_in(here.out) as gradebook:
        gradebook.find_assignment(NAME).duedate = when
        gradebook.db.commit()


def test_what_lateness_costs_is_taken_off_everywhere(here):
    late(here, "ada", "2026-03-01 12:00:00 UTC")
    late(here, "bob", "2026-03-01 12:10:00 UTC")
    late(here, "eve", "2026-03-03 12:00:00 UTC")
    here.grade()
    set_due(here, datetime(2026, 3, 1, 12))
    assert here.grade("--late", 10, "--grace", 15) == 0 and here.graded == []
    assert here.points() == {"ada": 3, "bob": 1, "eve": pytest.approx(2.4)}
    with (here.out / "grades.csv").open() as file:
        said = {row["student"]: row["detail"] for row in csv.DictReader(file)}
    assert said["bob"] == "late by 0:10:00"
    assert said["eve"] == "late by 2 days, 0:00:00, 0.6 points off"
    assert table(here.out / "class.csv")[3] == ["eve", "2.4"]
    with gradebook_in(here.out) as gradebook:
        found = gradebook.find_submission_notebook(NAME, NAME, "eve")
        assert (found.score, found.late_submission_penalty) == (3, pytest.approx(0.6))
        found.late_submission_penalty = 1  # by hand, or by a plugin of nbgrader's
        gradebook.db.commit()
    assert here.grade() == 0 and here.points()["eve"] == 3
    with gradebook_in(here.out) as gradebook:
        assert gradebook.find_submission_notebook(NAME, NAME, "eve").late_submission_penalty == 1


def test_names_that_moodle_hides_stay_hidden(here, tmp_path):
    """A worksheet of an assignment with hidden names has no names."""
    hidden = "Identifier,Status,Grade\nParticipant 9001,x,\nParticipant 9002,x,\n"
    here.hand_in("Participant 9001")
    assert here.grade("--roster", roster_of(tmp_path, hidden)) == 0
    assert table(here.out / "class.csv") == [
        ["Identifier", NAME],
        ["Participant 9001", "3"],
        ["Participant 9002", ""],
    ]


def test_the_class_list_is_kept_and_its_names_are_understood(here, tmp_path, capsys):
    here.hand_in("ada@example.org", "77002")
    assert here.grade("--roster", roster_of(tmp_path, MOODLE)) == 0
    before = (here.out / "grades.csv").read_bytes(), (here.out / "class.csv").read_bytes()
    assert "     2 submissions\n" in capsys.readouterr().out
    assert here.grade("--student", "Bob Kahn", "--again") == 0 and here.graded == ["77002"]
    assert ((here.out / "grades.csv").read_bytes(), (here.out / "class.csv").read_bytes()) == before
    assert here.grade("--student", "Zoë Müller") == 2
    assert "no submission of 'Zoë Müller'" in capsys.readouterr().err
    assert here.grade("--roster", here.out / "roster.csv") == 0
    assert (here.out / "grades.csv").read_bytes() == before[0]


def test_a_regrade_shows_what_changed_and_a_scores_history(here, capsys):
    here.hand_in("ada", "bob")
    assert here.grade() == 0 and "other points" not in capsys.readouterr().out
    (here.submissions / "ada" / NAME / f"{NAME}.ipynb").write_text("nonsense")
    assert here.grade() == 0
    said = capsys.readouterr().out
    assert "1 with points that have changed" in said and "ada, two_losses: 3 → 0 points" in said
    assert here.grade("--again") == 0 and "other points" not in capsys.readouterr().out
    here.hand_in("ada")
    assert here.grade() == 0 and "0 → 3 points" in capsys.readouterr().out
    header, ada, bob = table(here.out / "grades.csv")
    assert header[-1] == "earlier_points" and bob[-1] == ""
    assert re.fullmatch(r"3 \(\d{4}-\d\d-\d\d\); 0 \(\d{4}-\d\d-\d\d\)", ada[-1])


def test_an_extension_is_one_students_and_stays(here, capsys):
    for student in ("ada", "bob"):
        late(here, student, "2026-03-03 12:00:00 UTC")
    here.grade()
    set_due(here, datetime(2026, 3, 1, 12))
    assert here.grade("--late", 10, "--extension", "bob", NAME, "1.5") == 0
    assert here.points() == {"ada": 2.4, "bob": 0.9}
    assert here.grade("--late", 10) == 0 and here.points() == {"ada": 2.4, "bob": 0.9}
    assert here.grade("--extension", "bob", NAME, "x") == 2
    assert here.grade("--extension", "eve", NAME, "1") == 2
    said = capsys.readouterr().err
    assert "'x' is not a number of days" in said and "no submission of 'eve'" in said
