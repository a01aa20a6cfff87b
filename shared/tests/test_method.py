import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from offprints.claims import ClaimError, Method, MissingResource, Runs, Scale, exact, load_method, methods


def method() -> Method:
    return Method(dist="offprints", title="T", authors="A", field="f", summary="s", bibtex="b")


def claim(output: dict, **options: object) -> Method:
    made = method()
    made.claim("c", where="", says="", expect=[exact("gap")], smoke=Scale(seeds=1), cpu=Scale(seeds=2), **options)(
        lambda seed, scale, device: output
    )
    return made


def test_scale() -> None:
    scale = Scale(seeds=3, steps=40, needs="a GPU", widths=(1, 2))
    assert (scale.seeds, scale.steps, scale.widths, scale.needs) == (3, 40, (1, 2), "a GPU")
    assert repr(scale) == "Scale(seeds=3, steps=40, widths=(1, 2))"
    with pytest.raises(AttributeError, match="no size 'depth'; it has steps, widths"):
        _ = scale.depth
    twin = copy.deepcopy(scale)
    assert (twin.seeds, twin.sizes, twin.needs) == (3, scale.sizes, "a GPU")
    with pytest.raises(ValueError, match="seeds must be an integer at least 1, got 0"):
        Scale(seeds=0)


def test_measure_sorts_metrics_and_series() -> None:
    output = {"gap": np.float64(0), "curve": [1, 2], "n": 3}
    metrics, series = claim(output).claims["c"].measure(0, Scale(seeds=1), "cpu")
    assert (metrics, series) == ({"gap": 0.0, "n": 3.0}, {"curve": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"gab": 0.0}, "c, seed 4: no metric gap; got gab"),
        ({"gap": float("nan"), "x": float("inf")}, "c, seed 4: metrics must be finite, got gap = nan, x = inf"),
    ],
)
def test_measure_refuses(output: dict, text: str) -> None:
    with pytest.raises(ClaimError, match=text):
        claim(output).claims["c"].measure(4, Scale(seeds=1), "cpu")


def test_scales_and_picking() -> None:
    made = claim({})
    one = made.claims["c"]
    assert one.scale("cpu") is one.cpu
    with pytest.raises(ValueError, match="scale of c must be one of 'smoke', 'cpu', got 'full'"):
        one.scale("full")
    assert [c.id for c in made.pick(None)] == [c.id for c in made.pick(["c"])] == ["c"]
    with pytest.raises(ValueError, match="claim of offprints must be one of 'c', got 'd'"):
        made.pick(["d"])
    with pytest.raises(ValueError, match="id of its own"):
        made.claim("c", where="", says="", expect=[exact("g")], smoke=one.smoke, cpu=one.cpu)
    with pytest.raises(ValueError, match="at least one expectation"):
        made.claim("d", where="", says="", expect=[], smoke=one.smoke, cpu=one.cpu)


def test_runs() -> None:
    runs = Runs(
        (0, 1), ({"metrics": {"a": 1.0}, "series": {"s": [1.0]}}, {"metrics": {"a": 3.0}, "series": {"s": [2.0, 4.0]}})
    )
    assert runs.metrics == ["a"]
    assert runs.metric("a").tolist() == [1, 3]
    np.testing.assert_array_equal(runs.series("s"), [[1, np.nan], [2, 4]])


def test_entry_points(toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    toy()
    assert methods()["toy-method"].value == "toy_method.claims:METHOD"
    loaded = load_method("toy-method")
    assert (loaded.version, list(loaded.claims), list(loaded.figures)) == ("0.3.0", ["gain", "identity"], ["curve"])
    with pytest.raises(
        ValueError, match=r"method must be one of .*toy-method.*, got 'nothing'. Try pip install nothing"
    ):
        load_method("nothing")
    toy(dist="toy-other", name="toy-method")
    with pytest.raises(ValueError, match="two distributions register the method 'toy-method'"):
        methods()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"claims": ""}, ValueError, "toy-method has no claims file"),
        ({"target": "METHODS"}, ValueError, "nothing called toy_method.claims:METHODS"),
        ({"claims": "METHOD = 3"}, ValueError, "must be the Method of toy-method, got 3"),
        (
            {"claims": "import not_there_at_all"},
            MissingResource,
            r'needs not_there_at_all here: pip install "toy-method\[repro\]"',
        ),
    ],
)
def test_broken_packages(toy: Callable[..., Path], options: dict, kind: type[Exception], text: str) -> None:
    toy(**options)
    with pytest.raises(kind, match=text):
        load_method("toy-method")


def test_a_name_that_is_not_its_distribution(toy: Callable[..., Path]) -> None:
    toy(name="toy-alias")
    with pytest.raises(ValueError, match="must be the Method of toy-alias"):
        load_method("toy-alias")
