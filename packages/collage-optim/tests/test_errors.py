"""Bad input: what, where, got, expected; and nothing is lost."""

import copy
import warnings

import pytest
import torch
from collage_optim import (
    CollageAdamW,
    CollageSGD,
    PrecisionMonitor,
    bytes_per_param,
    edq,
    from_adamw,
    from_float,
    grow,
    memory_report,
    suggest,
    two_prod,
    two_sum,
)
from collage_optim.data import batches, load_tokens, standard_library_text

BF16 = torch.bfloat16


def weight(dtype=BF16, size=4):
    return torch.nn.Parameter(torch.ones(size, dtype=dtype))


ONE, HALF = torch.ones(2, dtype=BF16), torch.ones(2, dtype=torch.float16)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: CollageAdamW([weight()], lr=-1.0), ValueError, "lr must be at least 0"),
        (lambda: CollageAdamW([weight()], lr=float("nan")), ValueError, "lr must be"),
        (lambda: CollageAdamW([weight()], betas=(1.0, 0.9)), ValueError, "beta_1 must be"),
        (lambda: CollageAdamW([weight()], betas=(0.9, -0.1)), ValueError, "beta_2 must be"),
        (lambda: CollageAdamW([weight()], betas=(0.9,)), ValueError, "betas must be two numbers"),
        (lambda: CollageAdamW([weight()], betas=0.9), ValueError, "betas must be two numbers"),
        (lambda: CollageAdamW([weight()], lr=None), TypeError, "lr must be"),
        (lambda: CollageAdamW([weight()], lr="1e-3"), TypeError, "lr must be"),
        (lambda: CollageAdamW([weight()], lr=float("inf")), ValueError, "lr must be"),
        (lambda: CollageAdamW([weight()], seed=-1), ValueError, "seed must be"),
        (lambda: CollageAdamW([weight()], foreach="no"), ValueError, "foreach must be one of"),
        (
            lambda: CollageAdamW([weight()], components=3, low_dtype=torch.float8_e5m2),
            ValueError,
            "low_dtype must be .*two components",
        ),
        (lambda: CollageAdamW([weight()], eps=-1e-8), ValueError, "eps must be"),
        (lambda: CollageAdamW([weight()], weight_decay=-1.0), ValueError, "weight_decay must be"),
        (lambda: CollageAdamW([weight()], mode="fast"), ValueError, "mode must be one of 'plain', 'light', 'plus'"),
        (lambda: CollageAdamW([weight()], decay_style="l2"), ValueError, "decay_style must be one of"),
        (lambda: CollageAdamW([weight()], math="bf16"), ValueError, "math must be one of"),
        (lambda: CollageAdamW([weight()], nonfinite="ignore"), ValueError, "nonfinite must be one of"),
        (lambda: CollageAdamW([weight()], components=4), ValueError, "components must be one of 2, 3"),
        (lambda: CollageAdamW([weight()], components=3, mode="plain"), ValueError, "components=3 needs mode"),
        (lambda: CollageAdamW([weight()], components=3, math="fp32"), ValueError, "float32 cannot hold three"),
        (lambda: CollageAdamW([weight()], low_dtype=BF16), ValueError, "low_dtype must be None or one of"),
        (lambda: CollageAdamW([weight()], low_dtype=torch.float8_e5m2, mode="plain"), ValueError, "low_dtype must"),
        (lambda: CollageAdamW([weight()], compile=True), ValueError, 'compile=True needs math="fp32"'),
        (lambda: CollageAdamW([weight()], capturable=True), ValueError, 'capturable=True needs math="fp32"'),
        (
            lambda: CollageAdamW([weight(torch.float64)], compile=True, math="fp32"),
            TypeError,
            "are for 16-bit parameters",
        ),
        (lambda: CollageAdamW([weight(torch.float16)], mode="stochastic"), TypeError, "rounds to bfloat16"),
        (lambda: CollageAdamW([weight(torch.complex64)]), RuntimeError, "does not support sparse/complex"),
        (lambda: CollageAdamW([torch.ones(2, dtype=torch.int64)]), TypeError, "parameters must be of"),
        (lambda: CollageAdamW([{"params": [weight()], "mode": "x"}]), ValueError, "mode must be one of"),
        (lambda: CollageAdamW([]), ValueError, "empty parameter list"),
        (lambda: CollageSGD([weight()], momentum=-1.0), ValueError, "momentum must be"),
        (lambda: CollageSGD([weight()], nesterov=True), ValueError, "nesterov=True needs momentum"),
        (
            lambda: CollageSGD([weight()], mode="plus"),
            ValueError,
            "mode must be one of 'plain', 'light', 'fp32_master'",
        ),
        (lambda: CollageSGD([weight()], dampening=float("nan")), ValueError, "dampening must be"),
        (lambda: two_sum(ONE, HALF), TypeError, "one type of .*got a torch.bfloat16, b torch.float16"),
        (lambda: two_prod(ONE, 2.0), TypeError, "b must be of type Tensor"),
        (lambda: grow(ONE.int(), ONE.int(), ONE.int()), TypeError, "components must be of one type"),
        (lambda: from_float(0.9, torch.int8), TypeError, "dtype must be one of"),
        (lambda: from_float("0.9", BF16), TypeError, "value must be"),
        (lambda: edq([1.0], [0.0], [1.0]), TypeError, "raw must be of type Tensor"),
        (lambda: PrecisionMonitor(torch.optim.AdamW([weight()])), TypeError, "optimizer must be of type Collage"),
        (lambda: suggest(torch.nn.Linear(2, 2), 1e-3, dtype="bf16"), ValueError, "dtype must be one of"),
        (lambda: bytes_per_param("kahan", components=3), ValueError, "components=3 needs mode"),
        (lambda: CollageAdamW([weight()]).reset_low(weight()), KeyError, "no such parameter"),
        (
            lambda: from_adamw(torch.optim.Adam([weight()], weight_decay=0.1)),
            ValueError,
            "weight_decay must be decoupled",
        ),
        (
            lambda: from_adamw(torch.optim.AdamW([weight()]), weights={"weight": torch.ones(4)}),
            ValueError,
            r"by parameter of the optimizer, got other keys: \['weight'\]",
        ),
        (
            lambda: CollageAdamW([weight()]).load_state_dict(torch.optim.SGD([weight()]).state_dict()),
            ValueError,
            r"like CollageAdamW, got none of \['betas'\]",
        ),
        (lambda: edq(ONE, ONE, torch.ones(3)), ValueError, "after must"),
        (lambda: PrecisionMonitor(CollageAdamW([weight()]), view="both"), ValueError, "view must be one of"),
        (lambda: PrecisionMonitor(CollageAdamW([weight()]), groups=[1]), ValueError, "a group must be one of 0"),
        (lambda: PrecisionMonitor(CollageAdamW([weight()]), every=0), ValueError, "every must be"),
        (lambda: bytes_per_param("fp8"), ValueError, "mode must be one of"),
        (lambda: bytes_per_param("plus", components=1), ValueError, "components must be one of"),
        (lambda: bytes_per_param("plus", torch.int8), ValueError, "dtype must be one of"),
        (lambda: memory_report(0), ValueError, "the number of parameters must be"),
        (lambda: memory_report(10, ["fp8"]), ValueError, "mode must be one of"),
        (lambda: from_adamw(torch.optim.SGD([weight()], lr=1.0)), TypeError, "optimizer must be of type Adam"),
        (
            lambda: from_adamw(torch.optim.AdamW([w := weight()]), weights={w: torch.ones(3)}),
            ValueError,
            "weights must",
        ),
        (lambda: suggest(torch.nn.Linear(2, 2), lr=0.0), ValueError, "lr must be"),
        (lambda: CollageAdamW([weight()]).expansion(weight()), KeyError, "no such parameter"),
        (lambda: load_tokens("nowhere.bin"), FileNotFoundError, "no token file"),
        (lambda: standard_library_text(1.0), ValueError, "share must be"),
        (lambda: batches(torch.arange(5), 5, 1, torch.Generator()), ValueError, "more than a window of 5, got 5"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_token_files_of_a_wrong_size(tmp_path):
    file = tmp_path / "train.bin"
    file.write_bytes(b"abc")
    with pytest.raises(ValueError, match=r"train\.bin must hold uint16 tokens of 2 bytes, got 3 bytes"):
        load_tokens(file)
    file.with_suffix(".idx").write_bytes(b"NOTANIDX")
    with pytest.raises(ValueError, match="must be an index of Megatron"):
        load_tokens(file)


def stepped(optimizer, p):
    """State and weights, to see that nothing changed."""
    return copy.deepcopy((p.detach(), optimizer.state_dict()["state"]))


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (
            torch.sparse_coo_tensor([[0]], [1.0], (4,), dtype=BF16, check_invariants=True),
            RuntimeError,
            "sparse/complex",
        ),
        (torch.ones(4, dtype=torch.complex64), RuntimeError, "sparse/complex"),
        (torch.ones(4), TypeError, "must be of its parameter's type torch.bfloat16, got torch.float32"),
    ],
)
def test_gradients_that_do_not_fit_change_nothing(bad, error, text, monkeypatch):
    p = weight()
    optimizer = CollageAdamW([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    before = stepped(optimizer, p)
    monkeypatch.setattr(torch.nn.Parameter, "grad", property(lambda _: bad), raising=False)  # torch refuses some itself
    with pytest.raises(error, match=text):
        optimizer.step()
    monkeypatch.undo()
    now = stepped(optimizer, p)
    assert torch.equal(now[0], before[0])
    assert all(torch.equal(now[1][0][name], value) for name, value in before[1][0].items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite(bad):
    for policy in ("raise", "skip", "propagate"):
        p = weight()
        optimizer = CollageAdamW([p], nonfinite=policy)
        p.grad = torch.ones_like(p)
        optimizer.step()
        before = stepped(optimizer, p)
        p.grad = torch.tensor([1.0, bad, 1.0, 1.0], dtype=BF16)
        if policy == "raise":
            with pytest.raises(ValueError, match="parameter 0 of shape .*nothing was changed"):
                optimizer.step()
        else:
            optimizer.step()
        if policy == "propagate":
            assert p[1].isnan()
            assert p[0].isfinite()
            assert optimizer.state[p]["param_lo"].isfinite().all()
        else:
            now = stepped(optimizer, p)
            assert torch.equal(now[0], before[0])
            assert all(torch.equal(now[1][0][name], value) for name, value in before[1][0].items())
            assert optimizer.skipped == (policy == "skip")


@pytest.mark.parametrize("mode", ["plus", "fp32_master"])
@pytest.mark.parametrize("change", ["cast", "half"])
def test_a_model_that_is_cast_afterwards_is_refused(change, mode):
    model = torch.nn.Linear(3, 2).to(BF16)
    optimizer = CollageAdamW(model.parameters(), mode=mode)
    model(torch.ones(1, 3, dtype=BF16)).sum().backward()
    optimizer.step()
    model = model.float() if change == "cast" else model.half()
    with pytest.raises(RuntimeError, match="no longer matches"):
        optimizer.step()


def test_float32_weights_are_told_once():
    with pytest.warns(UserWarning, match="fp32 weights already") as told:
        optimizer = CollageAdamW([weight(torch.float32), weight(torch.float32)], mode="light")
    assert len(told) == 1
    optimizer.param_groups[0]["params"][0].grad = torch.ones(4)
    optimizer.step()
    assert optimizer.state[optimizer.param_groups[0]["params"][0]]["param_lo"].dtype is torch.float32


def test_a_beta_that_sixteen_bits_cannot_hold_is_told():
    with pytest.warns(UserWarning, match="beta_1 = 0.999 is nearly 1 in 16 bits"):
        CollageAdamW([weight()], betas=(0.999, 0.999))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CollageAdamW([weight()], betas=(0.999, 0.999), mode="fp32_master")


def test_what_float16_cannot_hold_is_told():
    with pytest.warns(UserWarning, match="eps = 1e-08 is 0 in float16"):
        CollageAdamW([weight(torch.float16)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CollageAdamW([weight(torch.float16)], eps=1e-7)
        CollageAdamW([weight(torch.float16)], mode="fp32_master")


def test_a_state_of_torch_is_accepted_with_a_warning():
    p, q = weight(), weight()
    old = torch.optim.AdamW([p], lr=0.5)
    p.grad = torch.ones_like(p)
    old.step()
    optimizer = CollageAdamW([q], mode="plus")
    with pytest.warns(UserWarning, match="low parts at zero"):
        optimizer.load_state_dict(old.state_dict())
    group = optimizer.param_groups[0]
    assert (group["mode"], group["lr"]) == ("plus", 0.5)
    q.grad = torch.ones_like(q)
    optimizer.step()
    assert optimizer.state[q]["step"] == 2
    assert torch.equal(
        optimizer.state[q]["exp_avg"], (old.state[p]["exp_avg"] * 0.9).add(torch.ones(4), alpha=0.1).to(BF16)
    )


@pytest.mark.parametrize("mode", ["light", "fp32_master", "plain"])
@pytest.mark.parametrize("how", ["copy", "data"])
def test_weights_that_others_changed_are_noticed(mode, how):
    p = weight()
    optimizer = CollageAdamW([p], mode=mode)
    p.grad = torch.ones_like(p)
    optimizer.step()
    with torch.no_grad():
        if how == "copy":
            p.copy_(torch.full((4,), 5.0))
        else:
            p.data = torch.full((4,), 5.0, dtype=BF16)
    if mode == "plain":
        optimizer.step()
        return
    with pytest.warns(UserWarning, match=r"Call reset_low\(\)"):
        optimizer.step()
    with torch.no_grad():
        p.copy_(torch.full((4,), 7.0))
    optimizer.reset_low()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    value = optimizer.state[p]["master"] if mode == "fp32_master" else optimizer.expansion(p).value()
    assert value[0].item() == pytest.approx(7.0, abs=2e-3)
    assert value[0].item() != 7.0


def test_one_parameter_may_be_reset():
    p, q = weight(), weight()
    optimizer = CollageAdamW([p, q], components=3)
    p.grad = q.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.reset_low(p)
    assert not optimizer.state[p]["param_lo"].any()
    assert optimizer.state[q]["param_lo"].any()


def test_tied_frozen_and_idle_parameters():
    shared = torch.nn.Linear(3, 3, bias=False).to(BF16)
    model = torch.nn.ModuleDict({"a": shared, "b": shared, "idle": torch.nn.Linear(2, 2).to(BF16)})
    model["idle"].weight.requires_grad_(False)
    optimizer = CollageAdamW([{"params": list(model.parameters())}, {"params": []}])
    model["b"](model["a"](torch.ones(1, 3, dtype=BF16))).sum().backward()
    idle = model["idle"].bias.detach().clone()
    optimizer.step()
    assert optimizer.state[shared.weight]["step"] == 1
    assert torch.equal(model["idle"].bias, idle)
    assert len(optimizer.state) == 1


def test_overflow_of_a_weight_leaves_its_low_part_finite():
    for math in ("strict", "fp32"):
        p = torch.nn.Parameter(torch.tensor([3.38e38, 1e-39, 1.0], dtype=BF16))
        optimizer = CollageAdamW([p], lr=2e36, weight_decay=0.0, math=math)
        p.grad = torch.tensor([-1.0, 1.0, 1.0], dtype=BF16)
        for _ in range(3):
            optimizer.step()
        assert p[0].isinf()
        assert optimizer.state[p]["param_lo"].isfinite().all()


@pytest.mark.parametrize("math", ["strict", "fp32"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_overflow_under_sgd_leaves_no_low_part(math, sign):
    """Where h is infinite or NaN, l is 0."""
    p = torch.nn.Parameter(torch.tensor([3.38e38 * sign, 3.38e38, 1.0], dtype=BF16))
    optimizer = CollageSGD([p], lr=1e38, math=math)
    p.grad = torch.tensor([-3.0 * sign, float("nan"), 0.0], dtype=BF16)
    optimizer.step()
    assert p[0].isinf()
    assert p[1].isnan()
    assert (optimizer.state[p]["param_lo"] == 0).all()
