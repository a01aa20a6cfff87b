"""EDQ by hand, of whole optimizers, and what it costs when nobody measures; bytes; suggestions; migration."""

import math

import pytest
import torch
from collage_optim import (
    CollageAdamW,
    CollageSGD,
    PrecisionMonitor,
    bytes_per_param,
    edq,
    from_adamw,
    memory_report,
    optimizer_bytes,
    suggest,
)
from collage_optim.adamw import MODES

BF16 = torch.bfloat16


def test_edq_by_hand():
    raw, zero = torch.tensor([3.0, 4.0]), torch.zeros(2)
    assert edq(raw, zero, raw) == (5.0, 1.0)
    assert edq(raw, zero, zero) == (0.0, 0.0)
    assert edq(raw, zero, torch.tensor([3.0, 0.0])) == pytest.approx((9 / 5, 9 / 25))
    assert edq(raw, torch.ones(2), torch.tensor([4.0, 1.0])) == pytest.approx((9 / 5, 9 / 25))
    assert edq(7 * raw, zero, 7 * torch.tensor([3.0, 0.0]))[1] == pytest.approx(9 / 25)
    assert all(map(math.isnan, edq(zero, zero, raw)))


def step(mode, value=200.0, lr=0.1, n=6, **options):
    p = torch.nn.Parameter(torch.full((n,), value, dtype=BF16))
    optimizer = CollageAdamW([p], lr=lr, eps=0.0, weight_decay=0.0, mode=mode, **options)
    monitor = PrecisionMonitor(optimizer)
    p.grad = torch.ones_like(p)
    optimizer.step()
    return p, optimizer, monitor


@pytest.mark.parametrize("math", ["strict", "fp32"])
def test_lost_updates_are_seen(math):
    report = step("plain", math=math)[2].last
    assert (report.edq, report.edq_ratio, report.lost_fraction) == (0.0, 0.0, 1.0)
    assert report.recommended_mode == "plus"
    kept = step("light", math=math)[2].last
    assert kept.edq_ratio == pytest.approx(1, abs=2e-3)
    assert kept.edq == pytest.approx(0.1 * 6**0.5, rel=2**-7)
    assert (kept.lost_fraction, kept.visible_lost, kept.recommended_mode) == (0.0, 1.0, "plus")
    assert kept.low_norm == pytest.approx(0.1 * 6**0.5, rel=2**-7)
    assert kept.low_edq == pytest.approx(kept.edq)
    assert set(kept.as_dict()) == {"edq", "edq_ratio", "lost_fraction", "low_norm", "low_edq", "visible_lost"}


def test_the_visible_part_alone_looks_worse():
    p = torch.nn.Parameter(torch.full((2,), 200.0, dtype=BF16))
    optimizer = CollageSGD([p], lr=0.1)
    seen, whole = PrecisionMonitor(optimizer, view="visible"), PrecisionMonitor(optimizer)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert (seen.last.edq_ratio, seen.last.lost_fraction) == (0.0, 1.0)
    assert whole.last.edq_ratio == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_the_raw_update_is_what_was_asked_for(mode):
    """Without decay and eps the first update is -lr sign(g), whatever the mode stores."""
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=BF16))
    optimizer = CollageAdamW([p], lr=0.5, eps=0.0, weight_decay=0.1, mode=mode)
    seen = []
    optimizer._observers.append(
        type(
            "See", (), {"begin": lambda _: True, "end": lambda _: None, "chunk": lambda _, *parts: seen.append(parts)}
        )()
    )
    p.grad = torch.tensor([1.0, -4.0, 0.25], dtype=BF16)
    optimizer.step()
    (number, before, after, raw), expected = seen[0], torch.tensor([-0.55, 0.6, -0.65], dtype=torch.float64)
    assert number == 0
    assert torch.allclose(raw, expected, atol=4e-3)
    assert before.hi.tolist() == [1.0, -2.0, 3.0]
    moved = (after.hi + after.lo) - (before.hi + before.lo)
    assert torch.allclose(moved, expected, atol=2**-6)  # a last place of 2 in bfloat16


def test_sums_run_over_tensors_and_groups():
    params = [
        torch.nn.Parameter(torch.full((n,), value, dtype=BF16)) for n, value in ((3, 200.0), (5, 0.5), (70_000, 0.5))
    ]
    optimizer = CollageSGD([{"params": params[:1]}, {"params": params[1:]}], lr=0.125, mode="plain")
    with PrecisionMonitor(optimizer) as monitor, PrecisionMonitor(optimizer, groups=[1]) as second:
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
        report = monitor.last
        assert report.groups[0].edq_ratio == 0.0
        assert report.groups[1].edq_ratio == 1.0
        assert report.edq_ratio == pytest.approx(70_005 / 70_008)
        assert report.edq == pytest.approx(0.125 * 70_005 / 70_008**0.5)
        assert report.lost_fraction == pytest.approx(3 / 70_008)
        assert second.last.edq_ratio == 1.0
    optimizer.step()
    assert len(monitor.history) == 1
    assert not optimizer._observers
    monitor.detach()


def test_every_other_step_is_measured():
    p, optimizer, _ = step("plus")
    monitor = PrecisionMonitor(optimizer, every=2)
    for _ in range(5):
        optimizer.step()
    assert [report.step for report in monitor.history] == [2, 4]
    assert p.grad is not None


def test_a_step_without_updates_has_no_quality():
    p = torch.nn.Parameter(torch.ones(2, dtype=BF16))
    optimizer = CollageSGD([p])
    monitor = PrecisionMonitor(optimizer)
    optimizer.step()
    assert math.isnan(monitor.last.edq_ratio)
    assert monitor.last.lost_fraction == 0
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert math.isnan(monitor.last.low_edq)
    assert monitor.last.lost_fraction == 0  # an update of zero is not lost


# ---- bytes


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("bf16", 8),
        ("plain", 8),
        ("light", 10),
        ("plus", 12),
        ("fp32_states", 12),
        ("fp32_master", 16),
        ("kahan", 10),
        ("stochastic", 8),
    ],
)
def test_bytes_per_parameter(mode, size):
    assert bytes_per_param(mode) == size
    assert bytes_per_param(mode, grads=False) == size - 2
    if mode == "bf16":
        return
    p = torch.nn.Parameter(torch.ones(1000, dtype=BF16))
    optimizer = CollageAdamW([p], mode=mode)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer_bytes(optimizer) + 4 * 1000 == 1000 * size


def test_bytes_of_other_types():
    assert bytes_per_param("plus", components=3) == 14
    assert bytes_per_param("light", low_dtype=torch.float8_e5m2) == 9
    assert bytes_per_param("fp32_master", torch.float32) == 20
    assert bytes_per_param("light", torch.float32) == 20


@pytest.mark.parametrize(
    ("name", "count"),
    [("125M", 125_000_000), ("1.3B", 1_300_000_000), ("2.7B", 2_700_000_000), ("6.7B", 6_700_000_000)],
)
def test_the_report(name, count):
    lines = memory_report(count, ("bf16", "light", "plus", "fp32_master")).splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["8", "10", "12", "16"]
    assert [line.split()[3] for line in lines[1:]] == ["50.0%", "62.5%", "75.0%", "100.0%"]
    assert float(lines[4].split()[2]) == pytest.approx(16 * count / 2**30, abs=1e-3)
    assert memory_report(torch.nn.Linear(3, 2)).splitlines()[1].split()[:2] == ["bf16", "8"]


# ---- before training


def test_suggestions():
    model = torch.nn.ParameterDict({"large": torch.full((10,), 8.0), "small": torch.full((30,), 0.01)})
    found = suggest(model, lr=1e-3)
    assert found.rounding_betas == ("beta_2",)
    assert found.lost_by_tensor == {"large": 1.0, "small": 0.0}
    assert (found.lost_fraction, found.mode) == (0.25, "plus")
    assert suggest(model, lr=1e-3, betas=(0.9, 0.95)).mode == "light"
    assert suggest(model, lr=0.1, betas=(0.9, 0.95)).mode == "plain"
    assert suggest(model, lr=1e-3, dtype=torch.float16).rounding_betas == ()
    alone = suggest(torch.nn.ParameterList([torch.tensor([200.0])]), lr=0.1, betas=(0.9, 0.95))
    assert (alone.lost_fraction, alone.mode) == (1.0, "light")
    assert suggest(torch.nn.ParameterList([torch.empty(0)]), lr=1e-3, betas=(0.9, 0.95)).lost_fraction == 0


# ---- migration


@pytest.mark.parametrize("mode", ["plus", "fp32_master", "plain", "light"])
def test_a_running_adamw_goes_on(mode):
    gen = torch.Generator().manual_seed(0)
    wide = torch.nn.Parameter(torch.randn(500, generator=gen))
    narrow = torch.nn.Parameter(wide.detach().to(BF16))
    idle = torch.nn.Parameter(torch.ones(2, dtype=BF16))
    old = torch.optim.AdamW([wide], lr=1e-3, weight_decay=0.1)
    half = torch.optim.AdamW([{"params": [narrow], "lr": 2e-3}, {"params": [idle]}], weight_decay=0.1)
    for _ in range(30):
        wide.grad = torch.randn(500, generator=gen)
        old.step()
    half.state[narrow] = {name: value.clone() for name, value in old.state[wide].items()}
    new = from_adamw(half, mode, weights={narrow: wide.detach()})
    state = new.state[narrow]
    assert state["step"] == 30
    assert (new.param_groups[0]["lr"], new.param_groups[0]["mode"], len(new.param_groups)) == (2e-3, mode, 2)
    second = state["exp_avg_sq"].double() + (state["exp_avg_sq_lo"].double() if mode == "plus" else 0)
    assert torch.allclose(second, old.state[wide]["exp_avg_sq"].double(), rtol=2**-16 if mode == "plus" else 2**-8)
    exported = new.export_fp32(torch.nn.ParameterList([narrow]))["0"]
    assert torch.allclose(exported, wide.detach(), rtol={"fp32_master": 0, "plain": 2**-8}.get(mode, 2**-16), atol=0)
    assert idle not in new.state
    narrow.grad = torch.randn(500, generator=gen).to(BF16)
    new.step()
    assert state["step"] == 31


def test_migration_without_wide_weights_starts_low_parts_at_zero():
    p = torch.nn.Parameter(torch.ones(3, dtype=BF16))
    old = torch.optim.AdamW([p], lr=1e-3)
    p.grad = torch.ones_like(p)
    old.step()
    new = from_adamw(old, robust=True)
    assert not new.state[p]["param_lo"].any()
    assert new.param_groups[0]["robust"] is True
