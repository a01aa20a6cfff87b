import subprocess
import sys

import numpy as np
import pytest
import torch
from offprints.checks import (
    Problems,
    require_choice,
    require_finite,
    require_kind,
    require_range,
    require_same_device,
    require_shape,
)


def test_range_says_what_got_expected_hint() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole text is compared)
        require_range(
            "slots", 256, low=1, high=128, because="the key length", hint="Lower slots or pass a longer cache."
        )
    assert str(error.value) == (
        "slots must be between 1 and 128 (the key length), got 256. Lower slots or pass a longer cache."
    )


@pytest.mark.parametrize(
    ("options", "good", "bad", "words"),
    [
        ({"low": 0}, 0, -1, "at least 0"),
        ({"low": 0, "low_open": True}, 1e-9, 0, "greater than 0"),
        ({"high": 1}, 1, 1.5, "at most 1"),
        ({"high": 1, "high_open": True}, 0.5, 1, "less than 1"),
        ({"low": 0, "high": 1, "low_open": True}, 1, 0, "greater than 0 and at most 1"),
        ({"low": 0, "high": 1, "high_open": True}, 0, 1, "at least 0 and less than 1"),
        ({"low": 0, "high": 1}, 0, 2, "between 0 and 1"),
        ({"low": 1, "integer": True}, np.int64(3), 0, "an integer at least 1"),
        ({}, -1e300, float("nan"), "a number"),
    ],
)
def test_range_ends(options: dict, good: float, bad: float, words: str) -> None:
    assert require_range("x", good, **options) is good
    with pytest.raises(ValueError, match=f"x must be {words}, got"):
        require_range("x", bad, **options)


@pytest.mark.parametrize("value", [True, np.bool_(True), "3", None, 1.0])
def test_range_wrong_kind(value: object) -> None:
    with pytest.raises(TypeError, match=r"n must be an integer at least 1, got .* \("):
        require_range("n", value, low=1, integer=True)


def test_shape() -> None:
    x = np.zeros((2, 5, 5))
    require_shape("x", x, (2, "n", "n"))
    require_shape("x", torch.zeros(2, 5, 8), (None, "n", 8))
    require_shape("x", x, ("...", 5))
    require_shape("x", np.zeros(5), ("...", 5))
    for shape in ((2, "n"), ("n", "n", "n"), ("...", 4), ("...", 1, 2, 5, 5)):
        with pytest.raises(ValueError, match=r"x must be of shape \(.*\), got \(2, 5, 5\)\. Look\."):
            require_shape("x", x, shape, hint="Look.")
    with pytest.raises(TypeError, match=r"x must be an array of shape \(any, 3\), got list"):
        require_shape("x", [1, 2], (None, 3))  # type: ignore[arg-type]


def test_finite() -> None:
    require_finite("x", np.ones(3))
    require_finite("x", torch.ones(3, dtype=torch.bfloat16))
    require_finite("x", torch.full((3,), float("nan"), device="meta"))
    with pytest.raises(ValueError, match=r"x must be finite, got 2 NaN or inf of 4 entries, the first at \(0, 1\)"):
        require_finite("x", np.array([[1, np.inf], [np.nan, 1]]))
    with pytest.raises(ValueError, match=r"1 NaN or inf of 3 entries, the first at \(2,\)"):
        require_finite("x", torch.tensor([1.0, 2.0, float("nan")]))


def test_finite_is_passed_over_while_tracing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        require_finite("x", torch.ones(3))

    @torch.compile(fullgraph=True, backend="eager")
    def traced(x: torch.Tensor) -> torch.Tensor:
        require_finite("x", x)
        return x + 1

    assert traced(torch.full((2,), float("nan"))).isnan().all()


def test_choice_kind_device() -> None:
    assert require_choice("mode", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="mode must be one of 'a', 'b', got 'c'"):
        require_choice("mode", "c", ("a", "b"))
    require_kind("x", 1, (int, str))
    with pytest.raises(TypeError, match="x must be of type int or str, got float"):
        require_kind("x", 1.0, (int, str))
    with pytest.raises(TypeError, match="x must be of type int, got float"):
        require_kind("x", 1.0, int)
    require_same_device(x=torch.ones(1), y=torch.ones(1), z=None)
    with pytest.raises(ValueError, match="x and y must be on one device, got x on cpu, y on meta"):
        require_same_device(x=torch.ones(1), y=torch.ones(1, device="meta"))


def test_problems_come_all_at_once() -> None:
    def two() -> None:
        with Problems("cannot convert") as problems:
            problems.check(require_range, "k", 0, low=1)
            problems.check(require_range, "k", 1, low=1)
            problems.add("no head")

    def another() -> None:
        with Problems("another error wins") as problems:
            problems.add("x")
            raise KeyError("k")

    with pytest.raises(ValueError, match=r"convert: 2 problems\.\n  - k must be at least 1, got 0\.\n  - no head"):
        two()
    with pytest.raises(ValueError, match=r"one: 1 problem\."), Problems("one") as problems:
        problems.add("x")
    with Problems("none"):
        pass
    with pytest.raises(KeyError):
        another()


def test_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, offprints.checkpoint\n"
        "from offprints import checks as c, device as d, seeding as s\n"
        "c.require_finite('x', np.ones(2)); s.rng(0).random(); d.memory_stats()\n"
        "with s.isolated(0): pass\n"
        "print(d.in_chunks(lambda x: x + 1, np.zeros(3), 2).sum())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout.strip()) == (0, "3.0"), found.stderr
