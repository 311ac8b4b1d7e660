"""Parts of `make gpu-check`: one test each, on a CUDA device, and a record of what was seen.

Without such a device every part is skipped.  With ``--record FILE`` the outcome of each part is
stored in that file, with the date and the versions: ``book/gpu.yml``, from which pages say what has
run on a GPU.  The first line of a test's docstring is the part's title, what it puts into
``figures`` is shown beside it, and the reason of a skip or a failure as well.
"""

import gc
import platform
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
import yaml

HEAD = "# Written by: make gpu-check\n"


@pytest.fixture
def device():
    """The type of the device, with an allocator that caches nothing and has no peak yet."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    return "cuda"


@pytest.fixture
def figures(request):
    """What was measured, by its name: goes into the record."""
    measured = {}
    request.node.user_properties.append(("figures", measured))
    return measured


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, metavar="FILE", help="store what was seen in FILE")


def pytest_configure(config):
    if path := config.getoption("--record", None):
        if not torch.cuda.is_available():
            raise pytest.UsageError("no CUDA device: nothing ran, and the record stays as it is")
        config.pluginmanager.register(Record(path))


class Record:
    """Collects the outcome of each part and writes the file when the last one has run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, dict[str, object]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        for item in items:
            title = (item.function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            self.parts[part_name(item.nodeid)] = {
                "title": title,
                "outcome": "not run",
                "reason": "left out of this run",
            }

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown" and report.passed:
            return
        if report.when == "setup" and report.passed:
            return
        part = self.parts[part_name(report.nodeid)]
        part.pop("reason", None)
        part["outcome"] = "not run" if report.skipped else report.outcome
        if report.skipped:
            part["reason"] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            part["reason"] = reason_of(report)
        part["figures"] = dict(report.user_properties).get("figures", {})

    def pytest_sessionfinish(self):
        record = {**machine(), "parts": self.parts}
        text = yaml.safe_dump(record, sort_keys=False, width=100, allow_unicode=True)
        self.path.write_text(HEAD + text, encoding="utf-8")


def part_name(nodeid: str) -> str:
    return nodeid.rpartition("::")[2].removeprefix("test_")


def reason_of(report) -> str:
    """The first line of the failure's message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).strip().partition("\n")[0]


def machine() -> dict[str, object]:
    """When and on what the parts ran."""
    cudnn, nccl = torch.backends.cudnn.version(), torch.cuda.nccl.version()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "devices": torch.cuda.device_count(),
        "torch": str(torch.__version__),  # a subclass of str, which YAML cannot write
        "cuda": torch.version.cuda,
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "nccl": ".".join(map(str, nccl)),
        "python": platform.python_version(),
    }
