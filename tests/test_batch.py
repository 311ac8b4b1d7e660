"""Jobs on workers: none is lost with its worker, and what cannot be done is said soon."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from backward_twice.grading import GradingError
from backward_twice.grading.judging import batch

STEPS = [{"kind": "question", "id": "q", "question": "x.y", "points": 2.0, "answer": "a"}]


def jobs(folder, numbers):
    for number in numbers:
        said = {"student": str(number), "assignment": "a", "folder": str(folder)}
        yield number, said | {"steps": [step | {"missing": None} for step in STEPS]}


def done(job):
    return {"student": job["student"], "worker": os.getpid()}


def dies(job):
    """Student 3 takes a worker along once, student 5 each time; 7 meets a fault of the grader's."""
    tries = Path(job["folder"], job["student"])
    with tries.open("a") as file:
        file.write("x")
    if job["student"] == "5" or (job["student"] == "3" and tries.stat().st_size == 1):
        os._exit(1)
    if job["student"] == "7":
        raise ZeroDivisionError("a fault")
    return done(job)


def hurried(job):
    """All ran out of time by the clock, until each had a worker to itself."""
    running, tries = Path(job["folder"], "running"), Path(job["folder"], job["student"])
    with tries.open("a") as file:
        file.write("x")
    with running.open("a") as file:
        file.write("+")
        file.flush()
        time.sleep(0.05)
        beside = running.read_text().count("+") - running.read_text().count("-")
        file.write("-")
    again = tries.stat().st_size > 1
    return (
        done(job) | {"beside": beside} | ({} if again and job["student"] != "3" else {"slow": True})
    )


def unfit(job):
    raise GradingError("there is no sandbox here")


def slow(job):
    time.sleep(0.2)
    return done(job)


def long(job):
    """Student 1 takes a minute, and leaves a file when it is over."""
    if job["student"] == "1":
        time.sleep(60)
        Path(job["folder"], "over").touch()
    return done(job)


@pytest.fixture(scope="module")
def two_workers():
    with batch.Workers(2) as workers:
        yield workers


def test_every_job_has_its_result_and_few_are_drawn_ahead(two_workers, tmp_path):
    drawn = []

    def watched():
        for number, job in jobs(tmp_path, range(40)):
            drawn.append(number)
            yield number, job

    ahead, results = 0, {}
    for tag, result in batch.run(two_workers, watched(), done):
        results[tag] = result
        ahead = max(ahead, len(drawn) - len(results))
    assert {tag: r["student"] for tag, r in results.items()} == {n: str(n) for n in range(40)}
    assert len({r["worker"] for r in results.values()}) == 2
    assert len(drawn) == 40
    assert ahead <= 2 * 2  # of 2 workers 2 tasks each


def test_no_jobs(two_workers):
    assert list(batch.run(two_workers, iter([]), done)) == []


def test_a_killed_worker_costs_only_its_own_task(two_workers, tmp_path):
    results = dict(batch.run(two_workers, jobs(tmp_path, range(24)), dies))
    assert set(results) == set(range(24))
    assert results[3]["worker"]  # tried again, and done
    assert len((tmp_path / "3").read_text()) >= 2
    for number, why in [
        (5, "the process for it was ended"),
        (7, "ZeroDivisionError: a fault"),
    ]:
        assert results[number]["state"] == "crashed" and why in results[number]["detail"]
        assert results[number]["points"] == 0 and results[number]["again"]
    assert all("worker" in r for n, r in results.items() if n not in (5, 7))


def test_what_ran_out_of_time_is_tried_again_with_a_worker_to_itself(two_workers, tmp_path):
    results = dict(batch.run(two_workers, jobs(tmp_path, range(6)), hurried))
    assert set(results) == set(range(6))
    assert all(result["beside"] <= 2 and "slow" not in result for result in results.values())
    assert len({result["worker"] for result in results.values()}) == 2  # side by side
    assert all((tmp_path / str(number)).read_text() == "xx" for number in range(6))


def test_retries_hold_up_no_batch(two_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "RETRY_SECONDS", 0.0)
    results = dict(batch.run(two_workers, jobs(tmp_path, range(6)), hurried))
    assert set(results) == set(range(6))
    assert all("slow" not in result for result in results.values())
    assert all((tmp_path / str(number)).read_text() == "x" for number in range(6))


def test_a_worker_that_cannot_grade_stops_the_grading(two_workers, tmp_path):
    with pytest.raises(GradingError, match="no sandbox here"):
        list(batch.run(two_workers, jobs(tmp_path, range(10)), unfit))


def test_a_worker_that_is_at_a_job_ends_with_the_grading(tmp_path):
    with batch.Workers(1) as workers:
        _, result = next(batch.run(workers, jobs(tmp_path, range(2)), long))
    assert not psutil.pid_exists(result["worker"])
    assert not Path(tmp_path, "over").exists()


def test_a_worker_that_a_grading_leaves_behind_ends(tmp_path):
    """The grader is killed, so no process waits for the answer of its worker."""
    run, said = of_a_program(
        tmp_path,
        "results = batch.run(workers, given, test_batch.slow)\n"
        "        print(next(results)[1]['worker'], flush=True)\n"
        "        import os; os.kill(os.getpid(), 9)",
    )
    assert run == -9
    worker = int(said)
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != "zombie":
        time.sleep(0.1)  # for as long as a busy machine needs; a worker that stays makes this hang


def of_a_program(folder, code):
    """Run a program that grades with one worker; return its exit code and all that it printed."""
    script = folder / "grades.py"
    script.write_text(
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import test_batch; from backward_twice.grading.judging import batch\n"
        "if __name__ == '__main__':\n"
        "    given = test_batch.jobs(Path(sys.argv[2]), range(5))\n"
        f"    with batch.Workers(1) as workers:\n        {code}"
    )
    tries = folder / "tries"
    tries.mkdir()
    run = subprocess.run(
        [sys.executable, script, Path(__file__).parent, tries],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return run.returncode, run.stdout


def test_of_a_worker_that_dies_nothing_is_printed(tmp_path):
    code = "print(len(dict(batch.run(workers, given, test_batch.dies))))"
    assert of_a_program(tmp_path, code) == (0, "5\n")
    assert (tmp_path / "tries" / "3").stat().st_size == 2  # it did die
