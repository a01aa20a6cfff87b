"""What a wheel of this repository may hold, and what an environment made of them may share."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tools.workspace import Package


def top_level(names: list[str]) -> set[str]:
    return {name.split("/")[0] for name in names}


def problems(wheel: Path, package: Package) -> list[str]:
    """Lines that say what is wrong with the contents of `wheel`; empty when it may be published."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wrong: list[str] = []
    info = f"{package.module}-{package.version}.dist-info"
    extra = top_level(names) - {package.module, info}
    if extra:
        wrong.append(f"holds more than the package {package.module}: {sorted(extra)}")
    unwanted = [name for name in names if "tests" in Path(name).parts[:-1] or name.endswith((".pyc", ".orig", ".rej"))]
    if unwanted:
        wrong.append(f"holds files that nobody should install: {unwanted[:3]}")
    wanted = [f"{package.module}/__init__.py", f"{package.module}/py.typed", f"{info}/licenses/LICENSE"]
    wanted += [f"{package.module}/{name}" for name in ("claims.json", "bench.json") if (package.source / name).exists()]
    wrong += [f"lacks {name}" for name in wanted if name not in names]
    return [f"{wheel.name} {line}" for line in wrong]
