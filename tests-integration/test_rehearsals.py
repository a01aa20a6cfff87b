"""What is done rarely, rehearsed: a new package, a release, a publication. In a copy; nothing leaves this machine."""

import json
import sys

import pytest

from tools import lock, rehearsal, workspace

pytestmark = pytest.mark.slow


def test_a_new_package_passes_lint_and_test_and_edits_nothing_else(clone):
    clone.nox("-s", "new", "--", "soft-demo", "Shrinks what is small.")
    changed = clone.git("status", "--porcelain").splitlines()
    assert changed == ["?? packages/soft-demo/"]
    card = (clone.root / "packages/soft-demo/README.md").read_text(encoding="utf-8")
    assert "✓ holds" in card
    assert len(card.splitlines()) <= 150
    claims = json.loads((clone.root / "packages/soft-demo/claims.json").read_text(encoding="utf-8"))
    assert [claim["verdict"] for claim in claims["claims"]] == ["holds"]
    clone.commit("a package more")
    clone.nox("-s", "lint", "test(soft-demo)")
    again = clone.nox("-s", "new", "--", "soft-demo", "Once more.", check=False)
    assert again.returncode != 0
    assert "exists already" in again.stdout + again.stderr
    bad = clone.nox("-s", "new", "--", "Soft_Demo", "A name that is none.", check=False)
    assert "lower-case words" in bad.stdout + bad.stderr


def torch_free_method():
    methods = [package for package in workspace.discover().values() if not package.is_core and not package.is_draft]
    return next(package for package in methods if not package.needs_torch)


def test_a_release_bumps_writes_the_changelog_tests_commits_and_tags(clone):
    package = torch_free_method()
    folder = clone.root / "packages" / package.dist
    refused = clone.nox("-s", "release", "--", package.dist, "minor", check=False)
    assert "Release offprints first" in refused.stdout + refused.stderr
    clone.git("tag", f"offprints-v{workspace.discover()['offprints'].version}")
    (folder / "stray.txt").write_text("not committed")
    refused = clone.nox("-s", "release", "--", package.dist, "minor", check=False)
    assert "not clean" in refused.stdout + refused.stderr
    (folder / "stray.txt").unlink()

    head = clone.git("rev-parse", "HEAD")
    done = clone.nox("-s", "release", "--", package.dist, "minor")
    major, minor, _ = map(int, package.version.split("."))
    version = f"{major}.{minor + 1}.0"
    assert clone.git("tag", "--points-at", "HEAD") == f"{package.dist}-v{version}"
    assert clone.git("rev-parse", "HEAD~1") == head
    assert clone.git("status", "--porcelain") == ""
    assert workspace.Package(folder).version == version
    assert f"## {package.dist} {version}" in (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not list((folder / "changes").glob("*.md"))
    files = clone.git("diff", "--name-only", head, "HEAD").splitlines()
    assert all(name.startswith(f"packages/{package.dist}/") for name in files)
    ran = done.stdout + done.stderr
    assert all(f"Session {name}({package.dist}) was successful" in ran for name in ("test", "lowest", "api"))


@pytest.fixture
def index(tmp_path):
    """An empty package index on loopback."""
    (tmp_path / "index").mkdir()
    with rehearsal.served(tmp_path / "index") as address:
        yield address


def test_what_is_published_installs_by_name_and_measures_its_claims(clone, index, tmp_path):
    package = torch_free_method()
    clone.nox("-s", "package(offprints)", f"package({package.dist})")
    built = clone.root / "dist"
    for dist in ("offprints", package.dist):
        files = sorted(str(path) for path in (built / dist).glob("*.[wt]*"))
        assert sorted(path.rsplit(".", 1)[1] for path in files) == ["gz", "whl"]
        clone.run("uv", "publish", "--publish-url", f"{index}/", "--username", "x", "--password", "x", *files)
        parts = json.loads(next((built / dist).glob("*.sbom.json")).read_text(encoding="utf-8"))["components"]
        assert "numpy" in {part["name"] for part in parts}

    outside = type(clone)(tmp_path / "elsewhere")
    outside.root.mkdir()
    outside.run(sys.executable, "-m", "venv", "venv")
    pip = ["venv/bin/pip", "install", "--quiet", "--extra-index-url", f"{index}/simple/"]
    core = f"offprints=={workspace.discover()['offprints'].version}"
    outside.run(*pip, "-c", lock.LOCK, f"{package.dist}[repro]=={package.version}", core)
    where = outside.run(
        "venv/bin/python", "-I", "-c", f"import {package.module}; print({package.module}.__file__)"
    ).stdout
    assert str(outside.root) in where
    outside.run("venv/bin/offprints", "reproduce", package.dist, "--scale", "smoke", "--out", "results")
    assert (outside.root / "results" / package.dist / "report.html").stat().st_size > 10_000
