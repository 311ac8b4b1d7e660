"""Who is who in a class: one row for each person, whatever lists and platforms say."""

import string
from collections import Counter
from copy import deepcopy
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backward_twice.grading import GradingError
from backward_twice.grading.collect import _folders
from backward_twice.grading.platforms.downloads import (
    CANVAS,
    FOLDER,
    GITHUB,
    MOODLE,
    Download,
    File,
)
from backward_twice.grading.platforms.owners import Owners, read_owners
from backward_twice.grading.platforms.people import (
    PEOPLE,
    Handle,
    Identity,
    People,
    read_people,
    write_people,
)
from backward_twice.grading.platforms.roster import read_roster
from backward_twice.grading.platforms.upload import Collected

LIST = """\
First name,Last name,ID number,Email address
Ada,Lovelace,1001,alovelace@uni.example
Mallory,Mal,1002,mallory@uni.example
Kim,Lee,1003,kim@uni.example
Kim,Lee,1004,lee@uni.example
"""
WORKSHEET = """\
Identifier,Full name,Email address,Grade
Participant 9001,Ada Lovelace,alovelace@uni.example,
Participant 9003,Kim Lee,kim@uni.example,
Participant 9004,Kim Lee,lee@uni.example,
"""


def roster(tmp_path, text):
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    return read_roster(path)


def handle(platform, name, number=""):
    return Handle(platform, name, number, (name,))


def test_a_list_with_other_numbers_names_those_who_may_be_one_person(tmp_path):
    other = roster(
        tmp_path,
        'Student,ID,SIS User ID,SIS Login ID,Section\n"Lovelace, Ada",200,S1,ada,One\n'
        '"Lee, Kim",201,S2,kim,One\n"Hopper, Grace",202,S3,grace,One\n',
    )
    people = People()
    people.add_list(roster(tmp_path, LIST.replace("Kim,Lee,1004,lee@uni.example\n", "")))
    _, [problem] = people.add_list(other)
    assert "2 in the class list" in problem and "ada (1001?), kim (1003?)" in problem
    write_people(tmp_path, people)
    text = (tmp_path / PEOPLE).read_text(encoding="utf-8")
    lines = [line + "1001" if line.startswith("ada,") else line for line in text.splitlines()]
    (tmp_path / PEOPLE).write_text("\n".join(lines), encoding="utf-8")
    people = read_people(tmp_path)
    for listed in (other, roster(tmp_path, LIST)):
        known, problems = people.add_list(listed)
        assert next(iter(known.values())).student == "1001" and not problems
    assert people.person("x", handle(CANVAS, "lovelaceada", "200")).student == "1001"
    assert people.person("ada", handle(FOLDER, "ada")).student == "1001"


def test_a_second_list_adds_to_the_first_and_renames_nobody(tmp_path):
    people = People()
    people.add_list(roster(tmp_path, LIST))
    before = [*people.rows]
    known, problems = people.add_list(roster(tmp_path, WORKSHEET))
    assert [*people.rows] == before and not problems
    assert [row.student for row in known.values()] == ["1001", "1003", "1004"]
    twin = Handle(MOODLE, "Kim Lee", "9004")  # two have the name, and the number tells them apart
    assert people.person("Kim Lee 9004", twin).student == "1004"
    assert people.person("Kim Lee", handle(MOODLE, "Kim Lee", "1")) is None


@pytest.mark.parametrize("account", ["alovelace", "1001", "uni.example", "Ada Lovelace", "Ada"])
def test_no_account_is_a_part_of_an_address_a_number_or_a_name(tmp_path, account):
    people = People()
    people.add_list(roster(tmp_path, LIST))
    assert people.person(account, handle(GITHUB, account)) is None


def test_a_teacher_confirms_a_guess_in_the_file(tmp_path):
    people = People()
    people.add_list(roster(tmp_path, LIST))
    account = handle(GITHUB, "alovelace")
    people.add_folder("alovelace", account)
    assert people.rows["alovelace"].same_as == "1001?"
    write_people(tmp_path, people)
    assert read_people(tmp_path).person("alovelace", account) is None
    path = tmp_path / PEOPLE
    path.write_text(path.read_text().replace("1001?", "1001"))
    assert read_people(tmp_path).person("alovelace", account).student == "1001"


def test_a_guess_goes_when_it_is_known_and_what_a_teacher_wrote_stays(tmp_path):
    people = People()
    people.add_list(roster(tmp_path, LIST))
    people.add_folder("Kim Lee 9004", handle(MOODLE, "Kim Lee", "9004"))
    people.add_folder("kim", handle(GITHUB, "kim"))
    people.rows["kim"].same_as = "1003"
    for folder in ("Kim Lee 9004", "kim", "1003", "nobody"):
        people.drop_guess(folder)
    assert people.rows.keys() == {"1001", "1002", "1003", "1004", "kim"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("student,same as\nada,nobody\n", "which is no person's row"),
        ("student,same as\nada,bob\nbob,ada\n", "which is no person's row"),
        ("student,same as\nada,\nada,\n", "line 3: 'ada' is there before"),
        ("name\nada\n", "has no header"),
    ],
)
def test_what_a_teacher_wrote_by_mistake_is_said(tmp_path, text, said):
    (tmp_path / PEOPLE).write_text(text)
    with pytest.raises(GradingError, match=said):
        read_people(tmp_path)


# Whatever people and platforms are called

NAMES = st.one_of(
    st.sampled_from(
        ["Ada Lovelace", "Lovelace, Ada", "ada lovelace", "Kim Lee", "Kim-Lee", ".Net"]
    ),
    st.sampled_from(
        [".Net", "Zoë", "Zoe\u0308", "=1+1", "@ada", "Ada; Bob", "1001", "O'Neil", "李 小龍"]
    ),
    st.text(string.ascii_letters + " .'-;=,é\u0301İß", min_size=1, max_size=8).filter(str.strip),
)
NUMBERS = st.integers(1, 6).map(str)


NAMESAKES = st.sampled_from(["Ada Lovelace", "Lovelace, Ada", "Kim Lee", "Kim-Lee", "."])


@st.composite
def class_lists(draw, names=NAMES):
    """A list as some platform exports it, with some of the columns."""
    columns = draw(st.sets(st.sampled_from(["ID number", "Email address", "github_username"])))
    rows = draw(st.lists(st.tuples(names, NUMBERS, NUMBERS), min_size=1, max_size=4))
    lines = [["Full name", *sorted(columns)]]
    for name, number, address in rows:
        of = {"ID number": number, "Email address": f"{address}@x.example"}
        of["github_username"] = f"gh{number}"
        lines.append([name, *(of[column] for column in sorted(columns))])
    quoted = [",".join('"' + cell.replace('"', "") + '"' for cell in line) for line in lines]
    return "\n".join(quoted) + "\n"


@st.composite
def downloads(draw, names=NAMES):
    platform = draw(st.sampled_from([MOODLE, CANVAS, GITHUB, FOLDER]))
    students = draw(st.lists(st.tuples(names, NUMBERS), min_size=1, max_size=4, unique=True))
    numbered = platform in (MOODLE, CANVAS)
    whose = {(name, number if numbered else "") for name, number in students}
    return Download(platform, tuple(File(f"{n}{m}", n, m, "x.ipynb") for n, m in sorted(whose)))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(class_lists(), max_size=3), downloads(), st.randoms())
def test_everybody_has_one_folder_and_no_order_changes_whose_it_is(
    tmp_path_factory, lists, download, random
):
    """The class list comes before or after the work, and other lists between."""
    tmp_path = tmp_path_factory.mktemp("class")
    rosters = [read for text in lists if (read := read_or_none(tmp_path, text))]
    owned = []
    for turn in range(2):
        people, known = People(), Collected(download.platform)
        steps = [*rosters[1:], download]
        steps = steps if turn == 0 else random.sample(steps, len(steps))
        for step in steps:
            if step is not download:
                people.add_list(step)
                continue
            for _ in range(2):  # collected twice, it is as it was
                folders, _ = _folders(download, people, known, {"x": known}, None)
                assert len({folder.casefold() for folder in folders.values()}) == len(folders)
                assert set(folders) == {(file.student, file.number) for file in download.files}
                assert not known.students or known.folders == folders
                known.students = {folder: whose for whose, folder in folders.items()}
        write_people(tmp_path, people)
        if people.rows:
            assert stored(read_people(tmp_path)) == stored(people)
        if rosters:
            owners = read_owners(tmp_path, rosters[0], {"x": known})
            owned.append(
                {
                    whose: (person := owners.person((folder, "x"))) and person.cells
                    for folder, whose in known.students.items()
                }
            )
            several = Counter(cells for cells in owned[-1].values() if cells)
            for whose, cells in owned[-1].items():
                assert not cells or download.platform != GITHUB or whose[0].startswith("gh")
            assert download.platform == FOLDER or max(several.values(), default=1) == 1
        (tmp_path / PEOPLE).unlink(missing_ok=True)
    assert len(owned) < 2 or owned[0] == owned[1]


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(st.lists(class_lists(NAMESAKES), min_size=1, max_size=3), downloads(NAMESAKES))
def test_no_order_of_lists_and_work_changes_a_grade(tmp_path_factory, lists, download):
    """Lists with few names, which have namesakes who cannot be told apart, in every order."""
    tmp_path = tmp_path_factory.mktemp("class")
    rosters = [read for text in lists if (read := read_or_none(tmp_path, text))]
    first, *others = permutations([*rosters, download])
    owned = graded(first, rosters, download)
    for order in others:
        assert graded(order, rosters, download) == owned


def graded(order, rosters, download):
    """The cells of each submission's owner, with each of the lists as the class list."""
    people, known = People(), Collected(download.platform)
    for step in order:
        if step is not download:
            people.add_list(step)
            continue
        folders, _ = _folders(download, people, known, {"x": known}, None)
        known.students = {folder: whose for whose, folder in folders.items()}
    owned = []
    for roster in rosters:
        again = People(deepcopy([*people.rows.values()]))
        owners = Owners(roster, again, again.add_list(roster)[0], {"x": known})
        assert len(again.rows) == len(people.rows), "a list that is known adds nobody"
        persons = {whose: owners.person((f, "x")) for f, whose in known.students.items()}
        owned.append({whose: person and person.cells for whose, person in persons.items()})
    return owned


ORDERS = {
    "one of two namesakes is listed alone": (
        ["ID number\nAda,1\nAda,2", "ID number\nAda,1"],
        {"Ada": None},
    ),
    "namesakes without numbers, then one of them": (
        ["\nKim\nKim", "\nKim", "ID number\nKim,1"],
        {"Kim": None},
    ),
    "two lists that only a name joins, and another of that name": (
        ["Email address\nAda,a@x", "ID number\nAda,1", "ID number\nAda,2"],
        {"Ada": None, "1": None, "a@x": 0},
    ),
    "two lists that a third joins": (
        ["Email address\nAda,a@x", "ID number\nBob,1", "Email address,ID number\nAda,a@x,1"],
        {"Ada": 0, "1": 0, "a@x": 0},
    ),
    "namesakes of whom one has a number": (
        ["ID number\nAda,\nAda,2", "ID number\nKim,3"],
        {"Ada": None, "2": 1, "3": None},
    ),
    "two lists that only a name joins": (
        ["Email address\nAda,a@x\nBob,b@x", "ID number\nAda,1\nBob,2"],
        {"Ada": 0, "2": 1},
    ),
}
"""Lists by their columns after the name, and whose work it is in the first one, by its line."""


@pytest.mark.parametrize(("lists", "owners"), ORDERS.values(), ids=ORDERS)
def test_orders_that_once_changed_whose_work_it_is(tmp_path, lists, owners):
    texts = ["Full name" + ("" if text[0] == "\n" else ",") + text + "\n" for text in lists]
    rosters = [roster(tmp_path, text) for text in texts]
    download = Download(FOLDER, tuple(File(name, name, "", "x.ipynb") for name in owners))
    cells = [person.cells for person in rosters[0].people]
    wanted = {(name, ""): None if at is None else cells[at] for name, at in owners.items()}
    for order in permutations([*rosters, download]):
        assert graded(order, rosters, download)[0] == wanted


def test_nobody_takes_the_folder_of_a_row_that_was_joined_to_another(tmp_path):
    people, known = People(), Collected(MOODLE)
    for text in ("number\nBob,1", "Email address\nAda,a@x", "Email address,ID number\nAda,a@x,1"):
        people.add_list(roster(tmp_path, f"Full name,{text}\n".replace(",number", ",ID number")))
    assert people.rows["a@x"].same_as == "1" or people.rows["1"].same_as == "a@x"
    download = Download(MOODLE, tuple(File(n, n, "7", "x.ipynb") for n in ("a@x", "1")))
    folders, _ = _folders(download, people, known, {"x": known}, None)
    for (name, number), folder in folders.items():
        assert people.person(folder, handle(MOODLE, name, number)) is None


def read_or_none(tmp_path, text):
    try:
        return roster(tmp_path, text)
    except GradingError:
        return None


def stored(people):
    return {
        row.student: ({k: v for k, v in row.marks.items() if v}, row.same_as)
        for row in people.rows.values()
    }


def test_an_identity_is_known_by_each_of_its_marks():
    row = Identity("1001")
    row.add({"email": "Ada@Uni.example", "number": "1001"})
    row.add({"email": "ada@uni.example", "login": "ada"})
    assert row.marks == {"email": ["Ada@Uni.example"], "number": ["1001"], "login": ["ada"]}
    assert row.has("email", "ADA@uni.example") and not row.has("login", "ada@uni.example")
