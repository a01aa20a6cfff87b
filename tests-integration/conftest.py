import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["offprints.testing.plugin"]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # tools/, which no wheel carries

OURS = (
    "NOX_",
    "SINCE",
    "SHARD",
    "PYTHONS",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "COVERAGE",
    "COV_",
    "UV_PYTHON",
    "CONDA",
    "GIT_",
)


def clean_environment(**more):
    """The environment without what this very session put in."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    who = {f"GIT_{role}_{what}": "test@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return kept | who | {"GIT_CONFIG_GLOBAL": os.devnull} | more


class Repository:
    """A git repository in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command, check=True, **environment):
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.root,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}")
        return done

    def git(self, *words):
        return self.run("git", *words).stdout.strip()

    def nox(self, *words, check=True, **environment):
        return self.run(sys.executable, "-m", "nox", *words, check=check, **environment)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def commit(self, message="change"):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    """An empty repository."""
    made = Repository(tmp_path / "repository")
    made.root.mkdir()
    made.git("init", "--quiet", "--initial-branch=main")
    return made


@pytest.fixture(scope="session")
def tree():
    """This work tree itself, for sessions that leave it as it is."""
    return Repository(ROOT)


@pytest.fixture
def clone(repository):
    """This work tree as it stands, committed, beside the original: what a session does to it leaves no trace."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, repository.root / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    repository.commit("the tree as it stands")
    return repository
