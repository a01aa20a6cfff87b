"""The workflows only call nox sessions, pin every action by hash, and give a job no more rights than it uses."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOX = re.compile(r"uvx --python (3\.11|\"\$PYTHONS\") --from ['\"]nox\[uv\]['\"] nox -s ([\w\" $]+)")
OTHER = (re.compile(r'test "\$FAILED" = false'), re.compile(r'gh release create "\$TAG" --verify-tag .*'))


def jobs():
    for path in FILES:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield pytest.param(job, id=f"{path.stem}-{name}")


def test_the_four_workflows_are_there():
    assert {path.stem for path in FILES} == {"ci", "nightly", "release", "docs"}


@pytest.mark.parametrize("job", list(jobs()))
def test_steps_call_nox_or_a_pinned_action(job):
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
            continue
        if any(pattern.fullmatch(step["run"]) for pattern in OTHER):
            continue
        called = NOX.fullmatch(step["run"])
        assert called, step["run"]
        matrix = job.get("strategy", {}).get("matrix", {})
        sessions = matrix["session"] if "$SESSION" in called[2] else called[2].split()
        assert all(f"\ndef {session}(session" in noxfile for session in sessions), sessions


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_permitted_for_a_whole_workflow(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {}
    assert "concurrency" in content
    assert all("permissions" in job and "timeout-minutes" in job for job in content["jobs"].values())


def test_the_job_that_publishes_builds_nothing_and_the_one_that_builds_has_no_rights():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert [step["uses"].split("@")[0] for step in jobs["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def test_one_job_waits_for_all_others():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert set(jobs["required"]["needs"]) == set(jobs) - {"required"}
