"""What a release publishes, made without credentials: checked files in dist/<dist>/ and a list of their parts."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import nox

from tools import releasing, wheels
from tools.environment import DIST, build, uv
from tools.lock import LOCK
from tools.workspace import CORE, ROOT, Package, discover, find_links


def publish(session: nox.Session, package: Package) -> None:
    """The files of a release and its notes, in dist/publish/."""
    run(session, package, DIST / "publish")
    (DIST / "publish" / "notes.md").write_text(releasing.notes(package), encoding="utf-8")


def run(session: nox.Session, package: Package, out: Path) -> None:
    """sdist → wheel from it → metadata and contents checks → install and import outside the workspace → SBOM."""
    shutil.rmtree(out, ignore_errors=True)
    wheel = build(session, package.folder, out, sdist=True)
    session.run("twine", "check", "--strict", *(str(path) for path in sorted(out.iterdir())))
    if wrong := wheels.problems(wheel, package):
        session.error("; ".join(wrong))
    core = wheel if package.is_core else build(session, discover()[CORE].folder)
    with tempfile.TemporaryDirectory() as outside, session.chdir(outside):
        session.run(uv(), "venv", "--quiet", "venv", external=True)
        into = ["--quiet", "--python", "venv", "-c", str(LOCK), "--no-sources", *find_links()]
        session.run(uv(), "pip", "install", *into, str(core), str(wheel), external=True)
        inside = ["--no-project", "--python", "venv", "python", "-I", "-c", f"import {package.module}"]
        session.run(uv(), "run", *inside, external=True)
        listing = [uv(), "pip", "list", "--python", "venv", "--format", "json"]
        listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    parts_list(package, json.loads(listed), out / f"{package.dist}-{package.version}.sbom.json")


def parts_list(package: Package, installed: list[dict[str, str]], path: Path) -> None:
    """A CycloneDX list of what `pip install` of this release brought, at the locked versions."""
    parts = [
        {
            "type": "library",
            "name": part["name"],
            "version": part["version"],
            "purl": f"pkg:pypi/{part['name']}@{part['version']}",
        }
        for part in sorted(installed, key=lambda part: part["name"])
        if part["name"] != package.dist
    ]
    subject = {"type": "library", "name": package.dist, "version": package.version}
    content = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": subject}}
    path.write_text(json.dumps(content | {"components": parts}, indent=2) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(parts)} parts")
