"""Jobs on Dask workers: none is lost with its worker, and what cannot be done is said soon."""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask
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
    for name in ("distributed.worker", "distributed.client", "tornado.application", "asyncio"):
        logging.getLogger(name).error("a worker's own trouble")
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
    raise GradingError("a worker has other checks")


def slow(job):
    time.sleep(0.2)
    return done(job)


@pytest.fixture(scope="module")
def two_workers():
    with batch.workers(None, 2) as client:
        yield client


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
    for number, why in [(5, "the worker that graded it died"), (7, "ZeroDivisionError: a fault")]:
        assert results[number]["state"] == "crashed" and why in results[number]["detail"]
        assert results[number]["points"] == 0 and results[number]["again"]
    assert all("worker" in r for n, r in results.items() if n not in (5, 7))


def test_what_ran_out_of_time_is_tried_again_with_a_worker_to_itself(two_workers, tmp_path):
    two_workers.wait_for_workers(2)  # one that died in another test is started again
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
    with pytest.raises(GradingError, match="other checks"):
        list(batch.run(two_workers, jobs(tmp_path, range(10)), unfit))


def test_workers_that_do_not_come_back_are_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "_NO_WORKERS_SECONDS", 1)
    with batch.workers(None, 1) as client:
        results = batch.run(client, jobs(tmp_path, range(1000)), slow)
        next(results)
        client.cluster.scale(0)
        with pytest.raises(GradingError, match="all workers died; the results so far are saved"):
            list(results)


def test_a_result_that_is_lost_with_the_last_worker_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "_NO_WORKERS_SECONDS", 1)
    with batch.workers(None, 1) as client:

        class Late(batch.as_completed):
            """A task has ended, and before its result is asked for its worker is gone."""

            def __next__(self):
                future = super().__next__()
                client.cluster.scale(0)
                while client.nthreads():
                    time.sleep(0.01)
                return future

        monkeypatch.setattr(batch, "as_completed", Late)
        with pytest.raises(GradingError, match="all workers died; the results so far are saved"):
            list(batch.run(client, jobs(tmp_path, range(3)), done))


def test_a_worker_may_take_its_time_to_come_back(tmp_path):
    dies_once = jobs(tmp_path, range(5))
    at_once = {"distributed.deploy.lost-worker-timeout": "1ms"}
    with dask.config.set(at_once), batch.workers(None, 1) as client:
        results = dict(batch.run(client, dies_once, dies))
    assert set(results) == set(range(5)) and results[3]["worker"]


def test_a_worker_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "_CLOSE_SECONDS", 0.001)
    with batch.workers(None, 1) as client:
        (_, result), *_ = batch.run(client, jobs(tmp_path, range(1)), done)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(result["worker"]).wait(10)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{free}", "rubbish", "http://localhost:1"])
def test_no_scheduler_there_is_said(address):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = address.format(free=found.getsockname()[1])
    with pytest.raises(GradingError, match="no Dask scheduler at"), batch.workers(address, 1):
        pass


def test_a_scheduler_that_dies_is_said_and_what_was_done_is_kept(tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    dask = [sys.executable, "-m", "distributed.cli"]
    port = ["--port", address.rpartition(":")[2], "--no-dashboard"]
    started = []
    try:
        for command in ("dask_scheduler", *port), ("dask_worker", address, "--nthreads", "1"):
            program = [*dask[:2], f"distributed.cli.{command[0]}", *command[1:]]
            env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}  # the tasks of this file
            more = ["--no-dashboard", "--no-nanny"] if command[0] == "dask_worker" else []
            started.append(subprocess.Popen([*program, *more], stderr=subprocess.DEVNULL, env=env))
        deadline = time.monotonic() + 60
        while True:
            try:
                with batch.workers(address, 1) as client:
                    client.wait_for_workers(1, timeout=60)
                    timer = threading.Timer(1, started[0].kill)
                    results = []
                    with pytest.raises(
                        GradingError, match="went away; the results so far are saved"
                    ):
                        for tag, _ in batch.run(client, jobs(tmp_path, range(1000)), slow):
                            results.append(tag)
                            if len(results) == 1:
                                timer.start()
                break
            except GradingError:
                if time.monotonic() > deadline:
                    raise
        assert 0 < len(results) < 1000
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_what_dask_says_does_not_reach_the_teacher(tmp_path):
    """A worker dies and is started again, and nothing of it is printed, in whatever process."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "import test_batch; from backward_twice.grading.judging import batch\n"
        "if __name__ == '__main__':\n"
        "    with batch.workers(None, 1) as client:\n"
        "        found = dict(batch.run(client, test_batch.jobs(Path(sys.argv[2]), range(5)), "
        "test_batch.dies))\n"
        "    print(len(found))"
    )
    script = tmp_path / "grades.py"
    script.write_text(code)
    folder = tmp_path / "tries"
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, script, Path(__file__).parent, folder], capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("5\n", "")
    assert (folder / "3").stat().st_size == 2  # it did die
