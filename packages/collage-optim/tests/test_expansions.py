"""What is stored beyond the model's weights: saved, loaded, migrated, and measured as it is stored."""

import copy
import warnings

import pytest
import torch
from collage_optim import (
    CollageAdamW,
    CollageSGD,
    PrecisionMonitor,
    from_adamw,
    from_float,
    grow,
    mul,
)

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2


def model(dtype=BF16, seed=0):
    made = torch.nn.Linear(40, 30).to(dtype)
    gen = torch.Generator().manual_seed(seed)
    for p in made.parameters():
        p.data = torch.randn(p.shape, generator=gen, dtype=torch.float64).to(dtype)
    return made


def trained(kind=CollageAdamW, dtype=BF16, steps=20, **options):
    made = model(dtype)
    optimizer = kind(made.parameters(), lr=1e-4, **options)
    gen = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for p in made.parameters():
            p.grad = torch.randn(p.shape, generator=gen).to(dtype)
        optimizer.step()
    return made, optimizer


def apart(a, b):
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "light"}, {"components": 3}, {"mode": "fp32_master"}, {"low_dtype": E4M3}, {"mode": "plain"}],
)
def test_what_was_saved_comes_back_whole_and_stays_at_the_next_step(options, tmp_path):
    old, before = trained(**options)
    before.save_expansion(tmp_path / "weights", old)
    new = model(seed=5)
    after = CollageAdamW(new.parameters(), lr=0.0, weight_decay=0.0, **options)
    for p in new.parameters():  # it has a past of its own, that must not stay
        p.grad = torch.ones_like(p)
    after.step()
    after.load_expansion(tmp_path / "weights", new)
    wanted = before.export_fp32(old)
    assert apart(after.export_fp32(new), wanted) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after.step()
    assert apart(after.export_fp32(new), wanted) == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [({"components": 3}, 1e-7), ({}, 2**-15), ({"mode": "fp32_master"}, 1e-7), ({"low_dtype": E4M3}, 2**-12)],
)
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_another_mode_or_type_takes_as_much_as_it_can_hold(options, error, dtype, tmp_path):
    old, before = trained(mode="fp32_master")
    before.save_expansion(tmp_path / "weights", old)
    new = model(dtype, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # float32 weights need no low part
        after = CollageAdamW(new.parameters(), **options)
    after.load_expansion(tmp_path / "weights", new)
    assert apart(after.export_fp32(new), before.export_fp32(old)) <= 4 * error


def test_a_low_part_makes_up_for_a_cast_from_float16(tmp_path):
    old, before = trained(dtype=torch.float16, eps=1e-6)
    before.save_expansion(tmp_path / "weights", old)
    new = model(seed=5)
    after = CollageAdamW(new.parameters())
    after.load_expansion(tmp_path / "weights", new)
    assert apart(after.export_fp32(new), before.export_fp32(old)) <= 4 * 2**-16


def test_files_of_another_model_are_refused(tmp_path):
    old, before = trained()
    before.save_expansion(tmp_path / "weights", old)
    other = torch.nn.Linear(40, 31).to(BF16)
    with pytest.raises(ValueError, match="must hold the parameters of this model.*weight"):
        CollageAdamW(other.parameters()).load_expansion(tmp_path / "weights", other)
    smaller = torch.nn.Linear(40, 30, bias=False).to(BF16)
    with pytest.raises(ValueError, match="must hold the parameters of this model"):
        CollageAdamW(smaller.parameters()).load_expansion(tmp_path / "weights", smaller)


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_exported_weights_are_copies(dtype):
    made = model(dtype)
    exported = CollageAdamW(made.parameters(), mode="plain").export_fp32(made)
    exported["weight"].zero_()
    assert made.weight.any()


@pytest.mark.parametrize(
    ("options", "error"), [({"low_dtype": E4M3}, 2**-12), ({"components": 3}, 2**-23), ({}, 2**-15)]
)
def test_migration_keeps_what_the_low_parts_can_hold(options, error):
    wide = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    p = torch.nn.Parameter(wide.to(BF16))
    new = from_adamw(torch.optim.AdamW([p]), "light", weights={p: wide}, **options)
    assert ((new.export_fp32(torch.nn.ParameterList([p]))["0"] - wide).abs() <= error * wide.abs() + 1e-12).all()


# ---- measured as it is stored


@pytest.mark.parametrize("kind", [CollageAdamW, CollageSGD])
def test_updates_lost_in_eight_bits_are_seen(kind):
    p = torch.nn.Parameter(torch.full((4,), 200.0, dtype=BF16))
    optimizer = kind([p], lr=1e-3, mode="light", low_dtype=E4M3, weight_decay=0)
    monitor = PrecisionMonitor(optimizer)
    p.grad = torch.ones_like(p)
    for _ in range(200):
        optimizer.step()
    assert 200 - optimizer.expansion(p).value()[0] < 0.1  # it stalls, far from 0.2
    assert (monitor.last.edq_ratio, monitor.last.lost_fraction) == (0.0, 1.0)


def test_what_the_model_reads_of_a_master_copy():
    p = torch.nn.Parameter(torch.full((4,), 200.0, dtype=BF16))
    optimizer = CollageAdamW([p], lr=1e-3, mode="fp32_master", weight_decay=0)
    seen, whole = PrecisionMonitor(optimizer, view="visible"), PrecisionMonitor(optimizer)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert (seen.last.edq_ratio, seen.last.lost_fraction) == (0.0, 1.0)
    assert whole.last.edq_ratio == pytest.approx(1, abs=0.01)
    assert whole.last.low_norm == pytest.approx(2e-3, rel=0.02)


# ---- steps of their own, draws of their own


def test_parameters_that_join_late_are_corrected_for_their_own_step():
    values = []
    for capturable in (True, False):
        a, b = (torch.nn.Parameter(torch.ones(2, dtype=BF16)) for _ in range(2))
        optimizer = CollageAdamW([a, b], lr=1e-3, math="fp32", capturable=capturable, weight_decay=0)
        for i in range(100):
            a.grad = torch.ones_like(a)
            b.grad = torch.ones_like(b) if i >= 90 else None
            optimizer.step()
        values.append(optimizer.expansion(b).value())
    assert torch.allclose(*values, atol=2**-15)


def test_stochastic_rounding_does_not_depend_on_how_tensors_are_grouped():
    made = []
    for foreach in (None, False):
        gen = torch.Generator().manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(n, generator=gen).to(BF16)) for n in (5, 70_000, 11)]
        optimizer = CollageAdamW(params, mode="stochastic", foreach=foreach)
        for _ in range(3):
            for p in params:
                p.grad = torch.randn(p.shape, generator=gen).to(BF16)
            optimizer.step()
        made.append(params)
    assert all(torch.equal(p, q) for p, q in zip(*made, strict=True))


# ---- state


def test_loading_another_mode_is_told():
    old, before = trained(mode="plain")
    after = CollageAdamW(model().parameters(), mode="plus")
    with pytest.warns(UserWarning, match="goes on in its mode 'plain', not in 'plus'"):
        after.load_state_dict(before.state_dict())
    assert after.param_groups[0]["mode"] == "plain"
    assert len(list(old.parameters())) == 2


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"mode": "stochastic"}, TypeError, "rounds to bfloat16"),
        ({"low_dtype": E5M2}, ValueError, "the loaded low part is of torch.float16"),
        ({"math": "exact"}, ValueError, "math must be one of"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, error, text):
    _, before = trained(dtype=torch.float16, eps=1e-6)
    state = before.state_dict()
    state["param_groups"][0] |= change
    after = CollageAdamW(model(torch.float16).parameters(), eps=1e-6)
    with pytest.raises(error, match=text):
        after.load_state_dict(state)
    assert not after.state
    assert after.param_groups[0]["mode"] == "plus"


def test_coupled_decay_is_refused():
    p = torch.nn.Parameter(torch.ones(3, dtype=BF16))
    state = torch.optim.Adam([p], weight_decay=0.1).state_dict()
    state["param_groups"][0]["decoupled_weight_decay"] = False  # as newer versions of torch write it
    with pytest.raises(ValueError, match="weight_decay must be decoupled"):
        CollageAdamW([p]).load_state_dict(state)


def test_momentum_of_torch_goes_on():
    p, q = (torch.nn.Parameter(torch.ones(3, dtype=BF16)) for _ in range(2))
    old = torch.optim.SGD([p], lr=0.5, momentum=0.5)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        old.step()
    new = CollageSGD([q], lr=0.5, momentum=0.5)
    with pytest.warns(UserWarning, match="has no"):
        new.load_state_dict(old.state_dict())
    q.grad = torch.ones_like(q)
    new.step()
    assert torch.allclose(new.state[q]["momentum_buffer"], old.state[p]["momentum_buffer"] * 0.5 + 1)


def test_a_group_that_is_refused_does_not_stay():
    optimizer = CollageAdamW(model().parameters())
    with pytest.raises(TypeError, match="parameters must be of"):
        optimizer.add_param_group({"params": [torch.ones(2, dtype=torch.int64)]})
    assert len(optimizer.param_groups) == 1


def test_a_gradient_that_does_not_fit_stops_the_step_of_all_groups(monkeypatch):
    p, q = (torch.nn.Parameter(torch.ones(3, dtype=BF16)) for _ in range(2))
    optimizer = CollageAdamW([{"params": [p]}, {"params": [q]}])
    p.grad = torch.ones_like(p)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (3,), dtype=BF16, check_invariants=True)
    q.grad = sparse
    with pytest.raises(RuntimeError, match="sparse/complex gradients"):
        optimizer.step()
    assert p.detach().tolist() == [1.0, 1.0, 1.0]
    assert not optimizer.state


def test_every_swap_is_told():
    p = torch.nn.Parameter(torch.ones(3, dtype=BF16))
    optimizer = CollageAdamW([p])
    for _ in range(2):
        p.grad = torch.ones_like(p)
        optimizer.step()
        with torch.no_grad():
            p.fill_(5.0)
        with pytest.warns(UserWarning, match="changed outside of the optimizer"):
            optimizer.step()


def test_a_mode_may_change_and_must_be_one():
    made, optimizer = trained(mode="plain")
    optimizer.param_groups[0]["mode"] = "light"
    optimizer.step()
    assert all(optimizer.state[p]["param_lo"].any() for p in made.parameters())
    optimizer.param_groups[0]["mode"] = "fp32_master"  # whose moments are in float32
    with pytest.raises(RuntimeError, match="choose the mode"):
        optimizer.step()
    optimizer.param_groups[0]["mode"] = "nonsense"
    with pytest.raises(ValueError, match="mode must be one of"):
        optimizer.step()


def test_copies_serve_gradient_scalers():
    _, optimizer = trained()
    assert copy.deepcopy(optimizer)._step_supports_amp_scaling


def test_a_scaler_divides_in_float32_for_float32_moments():
    """1e-7 is two units of float16's last place: divided there, it would be rounded to 1.19e-7."""
    p = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = CollageAdamW([p], mode="fp32_master")
    optimizer.grad_scale = torch.tensor(1024.0)
    p.grad = torch.tensor([1e-7, 7e-8, 5e-8, 1e-8]).mul(1024).half()
    optimizer.step()
    assert torch.allclose(
        optimizer.state[p]["exp_avg"], 0.1 * torch.tensor([1e-7, 7e-8, 5e-8, 1e-8]), rtol=1e-2, atol=0
    )


# ---- arithmetic at the edge


def test_overflow_in_the_second_addition_leaves_no_low_part():
    most, unit = 3.3895313892515355e38, 2.0**120
    hi, lo, c = (torch.tensor([x], dtype=torch.float64).to(BF16) for x in (most - unit, 0.45 * unit, 1.4375 * unit))
    grown = grow(hi, lo, c)
    assert (grown.hi.item(), grown.lo.item()) == (float("inf"), 0.0)


def test_numbers_beyond_the_largest_have_no_low_part():
    assert [part.item() for part in from_float(-1e39, BF16)] == [-float("inf"), 0.0]
    assert [part.item() for part in from_float(65520.0, torch.float16)] == [float("inf"), 0.0]
    assert from_float(65519.0, torch.float16).hi.item() == 65504.0


def test_components_broadcast_and_carry_no_gradient():
    hi = torch.ones(3, dtype=BF16, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        product = mul(hi, torch.tensor(0.0, dtype=BF16), from_float(0.9, BF16))
        total = grow(hi, torch.tensor(0.0, dtype=BF16), torch.full((3,), 0.1, dtype=BF16))
    assert product.lo.shape == total.lo.shape == (3,)
    assert not product.hi.requires_grad
