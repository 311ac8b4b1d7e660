"""What a release, a development container and a pre-commit hook rely on."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from backward_twice.address import main

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECTS = {"gradtrace": ROOT / "gradtrace", "backward-twice": ROOT}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture
def release(tmp_path):
    """Run the release workflow's check of a tag beside the given distribution and changelog."""
    workflow = yaml.safe_load(read(".github/workflows/release.yml"))
    step = next(s for s in workflow["jobs"]["build"]["steps"] if s.get("id") == "tag")
    for name in ("dist/gradtrace/gradtrace-0.2.0", "dist/backward-twice/backward_twice-0.1.0"):
        archive = tmp_path / f"{name}.tar.gz"
        archive.parent.mkdir(parents=True)
        archive.touch()
    (tmp_path / "gradtrace").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("## [0.1.0] - 2027-01-31\n")
    (tmp_path / "gradtrace" / "CHANGELOG.md").write_text("## [Unreleased]\n")

    def check(tag):
        environment = os.environ | {"GITHUB_REF_NAME": tag, "GITHUB_OUTPUT": str(tmp_path / "out")}
        return subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment,
            capture_output=True, text=True,
        )  # fmt: skip

    return check


def test_a_tag_releases_what_it_names(release, tmp_path):
    done = release("backward-twice-0.1.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out").read_text() == "distribution=backward-twice\n"


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("backward-twice-0.1.1", "asks for version 0.1.1"),
        ("gradtrace-0.1.0", "asks for version 0.1.0"),
        ("gradtrace-0.2.0", r"gradtrace/CHANGELOG.md has no heading '## \[0.2.0\] - YYYY-MM-DD'"),
    ],
)
def test_a_tag_that_sources_or_changelog_contradict_is_refused(release, tag, reason):
    done = release(tag)
    assert done.returncode == 1
    assert re.search(reason, done.stdout)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "gradtrace/CHANGELOG.md"])
def test_a_changelog_follows_keep_a_changelog(name):
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    headings = re.findall(r"^(#+) (.+)$", read(name), re.M)
    versions = [text for level, text in headings if level == "##"]
    assert versions[0] == "[Unreleased]"
    for version in versions[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version), version
    assert {text for level, text in headings if level == "###"} <= kinds


def test_the_author_is_the_same_everywhere():
    author = yaml.safe_load(read("_config.yml"))["author"]
    assert yaml.safe_load(read("CITATION.cff"))["authors"] == [{"name": author}]
    for folder in PROJECTS.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["authors"] == [{"name": author}]


def test_the_readme_installs_from_the_address(tmp_path):
    """The derived line, word for word."""
    documents = ("README.md", "gradtrace/README.md", "pyproject.toml", "gradtrace/pyproject.toml")
    others = ("_config.yml", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml")
    for name in (*documents, *others, "gradtrace/src/gradtrace/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(read(name), encoding="utf-8")
    url = "https://github.com/somebody/a-fork"
    main([url], tmp_path)
    lines = {
        line
        for name in ("README.md", "gradtrace/README.md")
        for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()
        if line.startswith('pip install "gradtrace @ git+')
    }
    (line,) = lines
    # Git takes this checkout where it is told to take the address.
    instead = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{ROOT.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": url,
    }
    options = ["--dry-run", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line), *options],
        env=os.environ | instead, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would install gradtrace-" in done.stdout


def test_hooks_and_container_run_targets_that_exist():
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == ["make style", "make types", "make test"]
    recipe = MAKEFILE.partition("\ntest: $(FULL)")[2].partition("\n\n")[0]
    assert "$(MAKE) style" in recipe
    assert "types" in recipe
    text = re.sub(r"^\s*//.*$", "", read(".devcontainer/devcontainer.json"), flags=re.M)
    container = json.loads(text)
    assert container["postCreateCommand"] == "make .venv/.full"
    packages = container["onCreateCommand"].partition("--no-install-recommends ")[2].split()
    assert set(packages) <= set(re.findall(r"install ([\w-]+)", read(".ci/run")))


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing")
def test_without_a_network_npm_says_why_and_the_tests_skip(tmp_path):
    """`make` goes on, with the reason in words of npm's and of ours."""
    recipe = re.search(r"\n\$\(FROM_NPM\):.*\n((?:\t.*\n)+)", MAKEFILE)[1]
    (tmp_path / "Makefile").write_text(f"axe:\n{recipe}\nafter: axe\n\t@echo went on\n")
    browser = tmp_path / "tests" / "browser"
    browser.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        (browser / name).write_text(
            read(f"tests/browser/{name}").replace("registry.npmjs.org", "127.0.0.1:9")
        )
    environment = os.environ | {
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_cache": str(tmp_path / "cache"),
        "npm_config_fetch_retry_mintimeout": "10",
    }
    done = subprocess.run(
        ["make", "after"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "ECONNREFUSED" in done.stderr
    assert "for the reason above" in done.stdout
    assert "went on" in done.stdout
