"""The contract itself: what a subclass may say, what it may not skip, and what the meta-test demands."""

import types

import numpy as np
import pytest
from offprints.claims import ClaimError, Method, Scale, less
from offprints.testing import Conformance, assert_all_covered, readme_blocks, run_smoke, skipped_checks
from offprints.testing.values import assert_close, assert_same, cast, error, leaves, scale, spoilt


class Tanh(Conformance):
    kind = "function"
    framework = "numpy"

    def make(self):
        return np.tanh

    def inputs(self, gen, **factory):
        return (gen.normal(size=(3, 4)).astype(factory["dtype"]),)


def subclass(**attributes):
    return type("TestThing", (Tanh,), attributes)


def refuse():
    raise TypeError("rows must be alone")


def test_a_skip_needs_a_reason_and_a_refusal():
    case = subclass(skip={"rows": "rows belong together"}, refusals={"rows": refuse})
    case().test_rows()
    assert skipped_checks({"TestThing": case, "Tanh": Tanh}) == {"TestThing": {"rows": "rows belong together"}}
    with pytest.raises(ValueError, match="TestThing skips 'rows': give a reason, and the refused call"):
        subclass(skip={"rows": "a reason"})
    with pytest.raises(ValueError, match="give a reason"):
        subclass(skip={"rows": " "}, refusals={"rows": refuse})


def test_a_refusal_must_refuse_and_say_why():
    with pytest.raises(AssertionError, match="nothing refuses it"):
        subclass(skip={"rows": "a reason"}, refusals={"rows": lambda: None})().test_rows()

    def silent():
        raise ValueError

    with pytest.raises(AssertionError, match="says nothing"):
        subclass(skip={"rows": "a reason"}, refusals={"rows": silent})().test_rows()


@pytest.mark.parametrize("attribute", ["skip", "refusals"])
def test_unknown_checks_and_kinds_are_refused(attribute):
    with pytest.raises(ValueError, match="a skipped check of TestThing must be one of"):
        subclass(**{attribute: {"gradient": "numpy has none"}})
    with pytest.raises(ValueError, match="kind must be one of 'module'"):
        subclass(kind="layer")


def test_an_inherited_check_cannot_be_overridden():
    with pytest.raises(ValueError, match="overrides the inherited test_rows"):
        subclass(test_rows=lambda self: None)


def test_what_is_not_defined_is_named():
    bare = type("TestBare", (Conformance,), {"kind": "function", "framework": "numpy"})
    with pytest.raises(AttributeError, match="'TestBare' object has no attribute 'make'"):
        bare().test_dtype()


def test_a_base_without_kind_has_no_checks():
    base = type("Base", (Conformance,), {})
    assert not [name for name in dir(base) if name.startswith("test_")]


def package():
    public = types.ModuleType("thing")
    public.Thing, public.Other = type("Thing", (), {}), type("Other", (), {})
    public.Broken = type("Broken", (Exception,), {})
    public.function, public.__all__ = abs, ["Broken", "Other", "Thing", "function"]
    return public


def test_every_public_class_needs_a_case():
    here = {"TestThing": subclass(), "Tanh": Tanh, "np": np}
    with pytest.raises(AssertionError, match="no conformance test for Other$"):
        assert_all_covered(package(), here)
    assert_all_covered(package(), {"TestThing": subclass(covers=("Other",))})
    assert_all_covered(package(), here, exempt={"Other": "holds data"})
    module = types.ModuleType("test_conformance")
    module.TestThing, module.TestOther = subclass(), subclass()
    assert_all_covered(package(), module)


@pytest.mark.parametrize("exempt", [{"Other": ""}, {"Other": "data", "Thing": "no"}, {"Other": "data", "Gone": "no"}])
def test_exemptions_are_needed_and_explained(exempt):
    with pytest.raises(AssertionError, match="exempt without need or reason"):
        assert_all_covered(package(), {"TestThing": subclass()}, exempt)


def test_run_smoke_gives_the_metrics_of_seed_0():
    method = Method(dist="m", title="", authors="", field="", summary="", bibtex="")

    def declare(name, function):
        scales = {"smoke": Scale(seeds=2, steps=3), "cpu": Scale(seeds=5)}
        method.claim(name, where="", says="", expect=[less("ours", than="peer")], **scales)(function)

    declare("good", lambda seed, scale, device: {"ours": seed, "peer": scale.steps, "curve": [1.0, 2.0]})
    declare("nan", lambda seed, scale, device: {"ours": float("nan"), "peer": 1.0})
    declare("wrong-key", lambda seed, scale, device: {"ours": 1.0})
    assert run_smoke(method, "good") == {"ours": 0.0, "peer": 3.0}
    for name in ("nan", "wrong-key"):
        with pytest.raises(ClaimError):
            run_smoke(method, name)
    with pytest.raises(KeyError):
        run_smoke(method, "unknown")


def test_readme_blocks_keep_their_line_numbers(tmp_path):
    file = tmp_path / "README.md"
    text = "# T\n\n```python\nx = 1\n```\n\n```bash\nls\n```\n```python skip\nno()\n```\n```python\nx = 2\n1 / 0\n```\n"
    file.write_text(text)
    first, second = readme_blocks(file)
    names = {}
    exec(compile(first, str(file), "exec"), names)
    assert names["x"] == 1
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(second, str(file), "exec"), {})
    assert caught.traceback[-1].lineno + 1 == 15


def test_results_are_compared_by_structure_shape_and_value():
    assert error([np.ones(2), {"a": 1.0}], [np.ones(2), {"a": 3.0}]) == 2.0
    assert error(np.array([True]), np.array([False])) == 1.0
    assert error(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])) == 0.0
    assert error(np.array([np.nan]), np.ones(1)) == np.inf
    assert error(np.empty(0), np.empty(0)) == 0.0
    assert scale([np.array([-3.0, 1.0]), 2]) == 3.0
    assert scale("nothing") == 0.0
    with pytest.raises(AssertionError, match=r"shapes \[\(2,\)\] and \[\(3,\)\] differ"):
        assert_close(np.ones(2), np.ones(3), 1e-8, "two")
    with pytest.raises(AssertionError, match="two: off by 1, more than 2e-08"):
        assert_close(np.ones(2), 2 * np.ones(2), 1e-8, "two")
    with pytest.raises(AssertionError, match="bits"):
        assert_same(np.ones(1), np.ones(1) + 1e-15, "bits")
    assert cast((1, np.ones(1), np.ones(1, int)), "float32")[1].dtype == np.float32


@pytest.mark.parametrize(
    "value", [np.array([1.0, -4.0]), np.zeros(2), np.array([1, 2]), np.array([True]), np.float32(2), 3, 2.0, True, 1j]
)
def test_spoilt_values_keep_their_kind(value):
    (wrong,) = spoilt(value)
    assert type(wrong) is type(value)
    assert error(wrong, value) >= 0.049 * scale(value)
    assert len(list(spoilt([value, {"a": value}, np.empty(0), "text"]))) == 2


def test_spoilt_tensors_keep_their_kind():
    torch = pytest.importorskip("torch")
    for value in (torch.ones(2, 2).T, torch.ones(1, dtype=torch.bfloat16), torch.tensor(2), torch.tensor([True])):
        (wrong,) = spoilt(value)
        assert (wrong.dtype, wrong.shape) == (value.dtype, value.shape)
        assert error(wrong, value) >= 0.04
        assert len(leaves(wrong)) == 1
