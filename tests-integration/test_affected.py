"""SINCE=<rev>: which packages a change touches, on small histories."""

import pytest

from tools import workspace

PYPROJECT = '[project]\nname = "{0}"\nversion = "0.1.0"\ndescription = "{0}"\ndependencies = {1}\n'


@pytest.fixture
def history(repository):
    """A core and two methods, and a file outside them."""
    repository.write(
        {
            "shared/pyproject.toml": PYPROJECT.format("offprints", []),
            "packages/one-method/pyproject.toml": PYPROJECT.format("one-method", ["torch>=2.6"]),
            "packages/one-method/src/one_method/__init__.py": "",
            "packages/two-method/pyproject.toml": PYPROJECT.format("two-method", ["numpy>=1.26"]),
            "packages/two-method/src/two_method/__init__.py": "",
            "docs/index.md": "",
        }
    )
    repository.commit("start")
    return repository


def since(history, rev="HEAD"):
    return workspace.affected(rev, history.root)


def test_nothing_changed(history):
    assert since(history) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("packages/one-method/src/one_method/new.py", ["one-method"]),
        ("packages/two-method/README.md", ["two-method"]),
        ("shared/src/offprints/checks.py", ["offprints", "one-method", "two-method"]),
        ("noxfile.py", ["offprints", "one-method", "two-method"]),
        ("tools/suite.py", ["offprints", "one-method", "two-method"]),
        ("pyproject.toml", ["offprints", "one-method", "two-method"]),
        ("constraints.txt", ["offprints", "one-method", "two-method"]),
        ("docs/index.md", []),
        ("packages/README.md", []),
        ("packages/one-method-notes.txt", []),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_one_file_changed(history, path, expected, committed):
    start = history.git("rev-parse", "HEAD")
    history.write({path: "new"})
    if committed:
        history.commit()
    assert since(history, start) == expected


def test_two_packages_over_two_commits(history):
    start = history.git("rev-parse", "HEAD")
    history.write({"packages/two-method/a.py": ""})
    history.commit()
    history.write({"packages/one-method/b.py": ""})
    history.commit()
    assert since(history, start) == ["one-method", "two-method"]
    assert since(history, "HEAD~1") == ["one-method"]


def test_a_moved_file_touches_both_packages(history):
    start = history.git("rev-parse", "HEAD")
    history.git("mv", "packages/one-method/src/one_method/__init__.py", "packages/two-method/moved.py")
    history.commit()
    assert since(history, start) == ["one-method", "two-method"]


def test_a_deleted_file_and_a_deleted_package(history):
    start = history.git("rev-parse", "HEAD")
    history.git("rm", "--quiet", "packages/one-method/src/one_method/__init__.py")
    history.git("rm", "--quiet", "-r", "packages/two-method")
    history.commit()
    assert since(history, start) == ["one-method"]


def test_what_others_did_on_the_base_meanwhile_does_not_count(history):
    history.git("switch", "--quiet", "-c", "feature")
    history.write({"packages/one-method/a.py": ""})
    history.commit()
    history.git("switch", "--quiet", "main")
    history.write({"packages/two-method/a.py": ""})
    history.commit()
    history.git("switch", "--quiet", "feature")
    assert since(history, "main") == ["one-method"]


def test_an_unknown_revision_is_one_clear_line(history):
    with pytest.raises(SystemExit, match="nowhere"):
        since(history, "nowhere")


def test_shards_divide_what_is_affected(history, monkeypatch):
    monkeypatch.setenv("SINCE", "HEAD")
    history.write({"shared/x.py": ""})
    parts = []
    for index in (1, 2):
        monkeypatch.setenv("SHARD", f"{index}/2")
        parts.append(workspace.selected(history.root))
    assert parts == [["offprints", "two-method"], ["one-method"]]


@pytest.mark.parametrize("shard", ["0/2", "3/2", "one", "1"])
def test_a_shard_that_is_none_is_one_clear_line(history, monkeypatch, shard):
    monkeypatch.setenv("SHARD", shard)
    with pytest.raises(SystemExit, match="SHARD must be"):
        workspace.selected(history.root)


def test_packages_know_whether_they_need_torch(history):
    packages = workspace.discover(history.root)
    assert {dist: package.needs_torch for dist, package in packages.items()} == {
        "offprints": False,
        "one-method": True,
        "two-method": False,
    }


def test_an_unfinished_package_takes_part_only_when_asked(history, monkeypatch):
    pyproject = (history.root / "packages/two-method/pyproject.toml").read_text(encoding="utf-8")
    history.write({"packages/two-method/pyproject.toml": pyproject + '\n[tool.offprints]\nunfinished = "the claims"\n'})
    assert list(workspace.discover(history.root)) == ["offprints", "one-method"]
    assert [package.unfinished for package in workspace.members(history.root)] == ["", "", "the claims"]
    monkeypatch.setenv("UNFINISHED", "1")
    assert list(workspace.discover(history.root)) == ["offprints", "one-method", "two-method"]


def test_the_session_runs_only_the_affected_package(clone):
    methods = [dist for dist in workspace.discover(clone.root) if dist != "offprints"]
    everything = clone.nox("--list").stdout
    clone.write({f"packages/{methods[0]}/notes.txt": "changed"})
    listed = clone.nox("--list", SINCE="HEAD").stdout
    assert f"test({methods[0]})" in listed
    assert "test(offprints)" in everything
    assert "test(offprints)" not in listed
    assert all(f"test({name}" not in listed for name in methods[1:])


def test_a_package_that_is_not_there_is_one_clear_line(clone):
    done = clone.nox("-s", "reproduce", "--", "no-such-method", check=False)
    assert done.returncode != 0
    assert "no method named no-such-method here" in done.stdout + done.stderr
