"""What may be released, and which version comes next."""

import pytest

from tools import releasing, workspace

PYPROJECT = '[project]\nname = "{0}"\nversion = "{1}"\ndescription = "x"\ndependencies = {2}\n'


@pytest.fixture
def house(repository):
    """A core and a method that needs it; in a repository of their own."""
    repository.write(
        {
            "shared/pyproject.toml": PYPROJECT.format("offprints", "0.1.0", '["numpy>=1.26"]'),
            "shared/changes/+first.feature.md": "The core.\n",
            "packages/some-method/pyproject.toml": PYPROJECT.format("some-method", "0.1.0", '["offprints>=0.1,<1"]'),
            "packages/some-method/changes/+first.feature.md": "The method.\n",
        }
    )
    repository.commit("start")
    return repository


def member(house, dist):
    return workspace.discover(house.root)[dist]


@pytest.mark.parametrize(
    ("current", "part", "expected"),
    [
        ("0.1.0", "minor", "0.2.0"),
        ("0.1.3", "patch", "0.1.4"),
        ("0.9.9", "major", "1.0.0"),
        ("0.1.0", "first", "0.1.0"),
        ("0.0.0", "minor", "0.1.0"),
    ],
)
def test_the_next_version(current, part, expected):
    assert releasing.next_version(current, part) == expected


@pytest.mark.parametrize(
    ("before", "after", "may"),
    [
        ("0.1.0", "0.1.1", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.1.0", "1.2.0", False),
        ("1.1.0", "2.0.0", True),
    ],
)
def test_which_versions_may_break_the_interface(before, after, may):
    assert releasing.permits_breaking(before, after) is may


def test_the_core_may_be_released_as_it_stands_once(house):
    assert releasing.refusal(member(house, "offprints"), "first") is None
    house.git("tag", "offprints-v0.1.0")
    assert "was released before" in releasing.refusal(member(house, "offprints"), "first")


def test_a_method_waits_for_the_core_that_it_requires(house):
    assert "no tag offprints-v0.1.0" in releasing.refusal(member(house, "some-method"), "minor")
    house.git("tag", "offprints-v0.1.0")
    assert releasing.refusal(member(house, "some-method"), "minor") is None


def test_a_dirty_tree_is_refused(house):
    house.write({"stray.txt": "x"})
    assert "not clean" in releasing.refusal(member(house, "offprints"), "first")


def test_a_release_without_news_is_refused(house):
    house.git("rm", "--quiet", "shared/changes/+first.feature.md")
    house.commit()
    assert "no news" in releasing.refusal(member(house, "offprints"), "first")


def test_a_removal_needs_a_version_that_may_break(house):
    house.write({"shared/changes/+gone.removal.md": "Gone.\n"})
    house.commit()
    house.git("tag", "offprints-v0.1.0")
    assert "breaks the interface" in releasing.refusal(member(house, "offprints"), "patch")
    assert releasing.refusal(member(house, "offprints"), "minor") is None


def test_an_unknown_part_is_refused(house):
    assert "must be one of" in releasing.refusal(member(house, "offprints"), "huge")


def test_the_version_is_written_in_the_project_table_only(house):
    releasing.set_version(member(house, "some-method"), "0.2.0")
    assert member(house, "some-method").version == "0.2.0"


def test_the_last_tag_is_the_highest_of_its_own_distribution(house):
    for tag in ("offprints-v0.2.0", "offprints-v0.10.0", "some-method-v0.11.0"):
        house.git("tag", tag)
    assert workspace.last_tag("offprints", house.root) == "offprints-v0.10.0"
    assert workspace.last_tag("nothing", house.root) is None


def test_the_notes_are_the_newest_section(house):
    text = "# Changelog\n\n<!-- towncrier release notes start -->\n\n## b 0.2.0\n\n- New.\n\n## b 0.1.0\n\n- Old.\n"
    house.write({"packages/some-method/CHANGELOG.md": text})
    assert releasing.notes(member(house, "some-method")) == "## b 0.2.0\n\n- New.\n"
