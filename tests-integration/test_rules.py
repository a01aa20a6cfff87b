"""Each rule of the house refuses a small package that breaks it and nothing else."""

import pytest

from tools import docstrings, files, imports, wheels
from tools.workspace import Package

PYPROJECT = """
[project]
name = "some-method"
version = "0.1.0"
description = "x"
dependencies = ["offprints>=0.1,<1", "numpy>=1.26"]
[project.optional-dependencies]
plots = ["matplotlib>=3.8"]
[project.entry-points."offprints.methods"]
some-method = "some_method.claims:METHOD"
"""
GOOD = {
    "pyproject.toml": PYPROJECT,
    "changes/+first.feature.md": "First.\n",
    "src/some_method/__init__.py": 'from some_method.idea import act\n\n__all__ = ["act"]\n',
    "src/some_method/idea.py": (
        "import numpy\nfrom offprints.checks import require_range\n\n\ndef act(x: float) -> float:\n"
        '    """Act (Eq. 2).\n\n    Raises:\n        ValueError: always.\n    """\n    raise ValueError(x)\n'
    ),
    "src/some_method/_reference.py": "import numpy\n",
    "src/some_method/claims.py": "from offprints.claims import Method\n\nfrom some_method import figures, idea\n",
    "src/some_method/figures.py": "from offprints import plot\n",
}
MODULES = {"some_method", "other_method", "offprints"}


@pytest.fixture
def package(repository):
    """A package that breaks no rule."""
    folder = repository.root / "packages" / "some-method"
    repository.write({f"packages/some-method/{name}": text for name, text in GOOD.items()})
    repository.write({"LICENSE": "MIT"})
    (folder / "LICENSE").symlink_to("../../LICENSE")
    repository.commit("start")
    return Package(folder)


def breaches(package):
    docstrings.definitions.cache_clear()
    docstrings.cites.cache_clear()
    found = [*imports.import_problems(package, MODULES), *imports.optional_problems(package)]
    found += [*docstrings.docstring_problems(package), *docstrings.any_problems(package)]
    return [
        *found,
        *files.news_problems(package),
        *files.requirement_problems(package),
        *files.text_problems(package.root),
    ]


def test_the_good_package_breaks_nothing(package):
    assert breaches(package) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("src/some_method/idea.py", "import numpy", "import other_method", "imports the method other_method"),
        ("src/some_method/idea.py", "offprints.checks", "offprints.claims", "method code imports offprints.claims"),
        (
            "src/some_method/idea.py",
            "import numpy",
            "from some_method import claims",
            "claims are for",
        ),
        ("src/some_method/idea.py", "import numpy", "from . import claims", "claims are for"),
        (
            "src/some_method/_reference.py",
            "import numpy",
            "from some_method import idea",
            "equations stand alone",
        ),
        ("src/some_method/_reference.py", "import numpy", "from . import idea", "equations stand alone"),
        ("src/some_method/idea.py", "import numpy", "import matplotlib", "which only an extra brings"),
        ("src/some_method/idea.py", "import numpy", "from some_method import figures", "imports offprints.plot"),
        ("src/some_method/idea.py", "(Eq. 2)", "", "names an equation, table or section"),
        ("src/some_method/idea.py", "Raises:", "Returns:", "no `Raises:`"),
        ("src/some_method/idea.py", "x: float", "x: Any", "Any in the public signature"),
        ("src/some_method/idea.py", "raise ValueError(x)", "raise ValueError(x)  # pragma: " + "no cover", "exclusion"),
        ("src/some_method/idea.py", "import numpy", "HOST = 'https://py" + "pi.org/simple'", "package index host"),
        ("src/some_method/idea.py", "import numpy", "FILE = '/ro" + "ot/data/x'", "path of one machine"),
        ("pyproject.toml", '"numpy>=1.26"', '"numpy>=1.26,<3"', "capped, pinned or an address"),
        ("pyproject.toml", '"numpy>=1.26"', '"numpy"', "no tested floor"),
        ("pyproject.toml", ".claims:METHOD", ".other:METHOD", "entry point"),
        ("changes/+first.feature.md", "First.\n", "First.\nSecond.\n", "one line"),
    ],
)
def test_a_breach_is_named(package, name, old, new, message):
    path = package.folder / name
    before = path.read_text(encoding="utf-8")
    assert old in before
    path.write_text(before.replace(old, new), encoding="utf-8")
    found = breaches(Package(package.folder))
    assert len(found) in {1, 2}, found  # an import of a name is seen as module and as member
    assert all(message in line for line in found), found


def test_a_change_without_news_and_a_fragment_of_no_kind(package):
    fragment = package.folder / "changes" / "+first.feature.md"
    fragment.rename(fragment.with_name("first.txt"))
    assert "name it" in breaches(package)[0]
    fragment.with_name("first.txt").unlink()
    assert "no news fragment" in breaches(package)[0]


def test_a_licence_that_is_no_link(package):
    (package.folder / "LICENSE").unlink()
    (package.folder / "LICENSE").write_text("MIT")
    assert "no link" in breaches(package)[0]


def test_lazy_and_typing_imports_of_an_extra_are_fine(package):
    path = package.folder / "src/some_method/idea.py"
    lazy = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import matplotlib\n\n\n"
    lazy += "def draw():\n    import matplotlib\n"
    path.write_text(path.read_text(encoding="utf-8") + lazy, encoding="utf-8")
    assert breaches(package) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["tests/test_x.py"], "holds more than the package"),
        (["some_method/tests/test_x.py"], "nobody should install"),
    ],
)
def test_what_a_wheel_may_not_hold(package, tmp_path, names, message):
    import zipfile

    wheel = tmp_path / "some_method-0.1.0-py3-none-any.whl"
    info = "some_method-0.1.0.dist-info"
    good = ["some_method/__init__.py", "some_method/py.typed", f"{info}/METADATA", f"{info}/licenses/LICENSE"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in good:
            archive.writestr(name, "")
    assert wheels.problems(wheel, package) == []
    with zipfile.ZipFile(wheel, "a") as archive:
        for name in names:
            archive.writestr(name, "")
    assert message in wheels.problems(wheel, package)[0]


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path):
    text = (
        '"""Module,\n\ntwo lines."""\n\nX = """a\nb"""  # text\n# comment\n\n\ndef f():\n    """Doc."""\n    return 1\n'
    )
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    assert files.code_lines(tmp_path / "module.py") == 4
