"""constraints.txt: versions and markers only, and every requirement of every package met by it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock, workspace

ROOT = Path(__file__).resolve().parent.parent
LINES = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
PINS = [Requirement(line) for line in LINES]
WANTED = lock.requirements(
    {one.dist: one for one in workspace.members()}, tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
)


def test_every_line_is_a_version_and_at_most_a_marker():
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [^/@]+)?", line) for line in LINES)
    assert not {canonicalize_name(pin.name) for pin in PINS} & set(workspace.discover())


@pytest.mark.parametrize("line", WANTED)
def test_a_locked_version_meets_each_requirement(line):
    wanted = Requirement(line)
    found = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
    assert found, f"nothing locked for {line}"
    for pin in found:
        (version,) = pin.specifier
        assert wanted.specifier.contains(version.version, prereleases=True)


def test_members_stand_for_their_requirements_not_for_themselves(repository):
    text = '[project]\nname = "{}"\nversion = "0"\ndescription = "x"\ndependencies = {}\n'
    repository.write(
        {
            "shared/pyproject.toml": text.format("offprints", '["numpy>=1.26"]')
            + '[project.optional-dependencies]\nrepro = ["scipy>=1.15"]\n',
            "packages/a/pyproject.toml": text.format("a", '["offprints[repro]>=0.1,<1"]')
            + '[dependency-groups]\ntest = ["pytest>=8", {include-group = "more"}]\nmore = ["hypothesis>=6"]\n',
        }
    )
    found = lock.requirements(workspace.discover(repository.root), {"dependency-groups": {"lint": ["ruff>=0.9"]}})
    assert found == ["hypothesis>=6", "numpy>=1.26", "pytest>=8", "ruff>=0.9", "scipy>=1.15"]


def test_the_machine_may_offer_folders_of_wheels(monkeypatch):
    monkeypatch.setenv("UV_FIND_LINKS", "first,second")
    monkeypatch.setenv("PIP_FIND_LINKS", "third fourth")
    flags = workspace.find_links()
    assert flags == [word for name in ("first", "second", "third", "fourth") for word in ("--find-links", name)]
