"""nbgrader's Formgrader, asked over HTTP: each submission opens, what is entered stays."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import pytest
from test_roster import roster_of
from test_teacher import CHECKOUT, SCRIPT, Here, answered, write

NAME = "two_losses"
TOKEN = "of the test"


class Server:
    """A Jupyter server with nbgrader's extensions, started in the folder of a course."""

    def __init__(self, course, runtime):
        self.runtime = runtime
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--port=0"],
            cwd=course,
            env=os.environ
            | {
                "JUPYTER_RUNTIME_DIR": str(runtime),
                "JUPYTER_CONFIG_DIR": str(runtime / "config"),
                "JUPYTER_DATA_DIR": str(runtime / "data"),
                "IPYTHONDIR": str(runtime / "ipython"),
                "JUPYTER_TOKEN": TOKEN,
            },
            stdout=subprocess.DEVNULL,
            stderr=(runtime / "log").open("w"),
        )
        self.address = None

    def ask(self, path, content=None):
        """The answer to a request, its status and its text."""
        request = urllib.request.Request(
            self.address + quote(path, safe="/?=&"),
            data=None if content is None else json.dumps(content).encode(),
            method="GET" if content is None else "PUT",
            headers={"Authorization": f"token {TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait(self):
        for _ in range(1200):
            assert self.process.poll() is None, (self.runtime / "log").read_text()
            for found in self.runtime.glob("jpserver-*.json"):
                try:
                    about = json.loads(found.read_text())
                    self.address = f"http://127.0.0.1:{about['port']}/"
                    self.ask("api")
                    return
                except (ValueError, urllib.error.URLError):
                    pass
            time.sleep(0.1)
        pytest.fail(f"no server: {(self.runtime / 'log').read_text()}")


@pytest.fixture
def course(tmp_path, monkeypatch, empty_gradebook):
    """A folder like the clone, where the teacher grades into and opens Formgrader."""
    folder = tmp_path / "course"
    folder.mkdir()
    shutil.copy(CHECKOUT / "nbgrader_config.py", folder)
    shutil.copy(empty_gradebook, folder / "gradebook.db")
    shutil.copytree(CHECKOUT / "solutions" / NAME, folder / "solutions" / NAME)
    shutil.copytree(CHECKOUT / "exercises" / NAME, folder / "exercises" / NAME)
    monkeypatch.chdir(folder)
    here = Here(folder, monkeypatch, empty_gradebook)
    here.folder = folder
    return here


@pytest.fixture
def server(course, tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    running = Server(course.folder, runtime)
    try:
        running.wait()
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


def submissions(server):
    status, text = server.ask(f"formgrader/api/submitted_notebooks/{NAME}/{NAME}")
    assert status == 200
    return {each["student"]: each for each in json.loads(text)}


def test_formgrader_opens_each_submission_and_keeps_what_is_entered(course, server):
    course.hand_in("ada", "bob")
    written = answered(one=f"print({SCRIPT!r})\nraise ValueError({SCRIPT!r})")
    write(course.submissions, course.out, "Zoë O'Neill", written)
    path = course.submissions / "eve" / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text("nonsense")
    people = f'First name,Last name,Username\nAda,{SCRIPT},ada\nKim,Kim,"""+alert(2)+"""\n'
    listed = roster_of(course.folder, people)
    assert course.grade("--formgrader", "--roster", listed) == 0

    for page in ("manage_assignments", "gradebook", f"gradebook/{NAME}/{NAME}", "manage_students"):
        assert server.ask(f"formgrader/{page}")[0] == 200
    found = submissions(server)
    assert found.keys() == {"ada", "bob", "Zoë O'Neill", "eve"}
    assert {student: each["score"] for student, each in found.items()} == {
        "ada": 3,
        "bob": 1,
        "Zoë O'Neill": 3,
        "eve": 0,
    }
    pages = {}
    for student, each in found.items():
        status, pages[student] = server.ask(f"formgrader/submissions/{each['id']}/")
        assert status == 200, student
    assert "one_update: passed, 2 of 2" in pages["ada"] and "3 of 3 points" in pages["ada"]
    assert "one_update: failed, 0 of 2" in pages["bob"] and "missing" in pages["bob"]
    assert "not JSON" in pages["eve"]
    assert SCRIPT not in pages["Zoë O'Neill"] and "alert(1)" in pages["Zoë O'Neill"]
    assert SCRIPT not in pages["ada"] and "alert(1)" in pages["ada"]  # in the name, on the list
    assert not [page for page in pages.values() if "HIDDEN TESTS" in page]
    students = json.loads(server.ask("formgrader/api/students")[1])
    [kim] = [student["id"] for student in students if "alert(2)" in student["id"]]
    assert '""+alert(2)' not in server.ask(f"formgrader/manage_students/{kim}")[1]

    of_bob = found["bob"]["id"]
    grades = json.loads(server.ask(f"formgrader/api/grades?submission_id={of_bob}")[1])
    [lost] = [grade for grade in grades if grade["auto_score"] == 0]
    assert server.ask(f"formgrader/api/grade/{lost['id']}", {"manual_score": 1.5})[0] == 200
    comments = json.loads(server.ask(f"formgrader/api/comments?submission_id={of_bob}")[1])
    said = {"manual_comment": "half of it is right"}
    assert server.ask(f"formgrader/api/comment/{comments[0]['id']}", said)[0] == 200

    assert course.grade("--formgrader", "--again") == 0
    assert submissions(server)["bob"]["score"] == 2.5
    comments = json.loads(server.ask(f"formgrader/api/comments?submission_id={of_bob}")[1])
    assert "half of it is right" in [comment["manual_comment"] for comment in comments]
    assert server.ask(f"formgrader/submissions/{of_bob}/")[0] == 200
