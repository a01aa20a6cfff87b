"""The fused step: the same answers, through compilers that keep the roundings; refused where they are not kept."""

import pytest
import torch
from collage_optim import CollageAdamW, PrecisionMonitor, _reference, fused

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """The compiler's front end with an eager back end: Inductor itself is tried in the slow test."""
    fused.compiled.cache_clear()
    monkeypatch.setattr(fused, "BACKEND", "eager")
    yield
    fused.compiled.cache_clear()


def trained(steps=12, dtype=BF16, **options):
    gen = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=gen).to(dtype)) for shape in ((60, 9), (5,), (3,))]
    optimizer = CollageAdamW(params, lr=1e-3, weight_decay=0.1, **options)
    monitor = PrecisionMonitor(optimizer, every=steps)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=gen).to(dtype)
        optimizer.step()
    return params, optimizer, monitor


def near(ours, theirs, dtype=BF16):
    for p, q in zip(ours[0], theirs[0], strict=True):
        a, b = ours[1].expansion(p).value(), theirs[1].expansion(q).value()
        assert torch.allclose(a, b, rtol=2**-15, atol=2**-15 * 1e-1)
        state, other = ours[1].state[p], theirs[1].state[q]
        assert torch.allclose(state["exp_avg_sq"].double(), other["exp_avg_sq"].double(), rtol=2**-7)


@pytest.mark.parametrize("mode", ["plain", "light", "plus", "kahan"])
@pytest.mark.parametrize("style", ["compact", "hf"])
@pytest.mark.parametrize("which", ["compile", "capturable"])
def test_the_fused_step_is_the_wide_one(mode, style, which):
    ours = trained(mode=mode, math="fp32", decay_style=style, **{which: True})
    theirs = trained(mode=mode, math="fp32", decay_style=style)
    if mode != "plain":
        near(ours, theirs)
    else:
        assert all(torch.allclose(p.float(), q.float(), rtol=2**-7) for p, q in zip(ours[0], theirs[0], strict=True))
    assert ours[2].last.edq_ratio == pytest.approx(theirs[2].last.edq_ratio, rel=2e-2, abs=2e-2)


def test_float16_too():
    near(
        trained(dtype=torch.float16, eps=1e-7, math="fp32", compile=True),
        trained(dtype=torch.float16, eps=1e-7, math="fp32"),
    )


def test_capturable_state_stays_on_the_device():
    params, optimizer, _ = trained(math="fp32", capturable=True)
    assert optimizer.state[params[0]]["step"] == 12
    assert optimizer.state[params[0]]["step"].device == params[0].device


def test_capturable_takes_a_rate_that_lives_on_the_device():
    gen = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter(torch.randn(9, generator=gen).to(BF16))
    optimizer = CollageAdamW([p], lr=torch.tensor(1e-3), math="fp32", capturable=True)
    p.grad = torch.ones_like(p)
    before = optimizer.expansion(p).value()
    optimizer.step()
    assert torch.allclose(optimizer.expansion(p).value(), before * (1 - 1e-5) - 1e-3, atol=1e-6)


def test_a_compiler_that_deletes_the_compensation_is_refused(monkeypatch):
    """`float()` of a rounded value taken for the value itself: what fusing without the roundings comes to."""

    def fast(param, grad, exp_avg, exp_avg_sq, param_lo, exp_avg_sq_lo, k):
        fused.fused_step(param, grad, exp_avg, exp_avg_sq, None, None, k)

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fast)
    p = torch.nn.Parameter(torch.ones(4, dtype=BF16))
    p.grad = torch.ones_like(p)
    optimizer = CollageAdamW([p], math="fp32", compile=True)
    with pytest.raises(RuntimeError, match="compensation optimised away"):
        optimizer.step()
    assert (p == 1).all()


def test_a_step_inside_torch_compile_is_left_alone():
    """torch.compile of a training step calls the optimizer as it stands: bit-equal, nothing is fused away."""
    results = []
    for compiled in (False, True):
        p = torch.nn.Parameter(torch.full((8,), 200.0, dtype=BF16))
        optimizer = CollageAdamW([p], lr=0.1, eps=0.0, weight_decay=0.0)
        p.grad = torch.ones_like(p)
        step = torch.compile(lambda o=optimizer: o.step(), backend="eager") if compiled else optimizer.step
        for _ in range(10):
            step()
        results.append(optimizer.expansion(p))
    assert torch.equal(results[0].hi, results[1].hi)
    assert torch.equal(results[0].lo, results[1].lo)
    assert results[0].value()[0].item() == pytest.approx(199, abs=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what the compiler imports
def test_a_compiled_grow_loses_the_error_unless_roundings_are_kept(kept):
    """Why `step` is never traced, and what `compile=True` asks of Inductor: 200 + 0.1 is (200, 0.1) or (200, 0)."""
    high, low, c = (torch.full((64,), x, dtype=BF16) for x in (200.0, 0.0, 0.1))
    grow = torch.compile(_reference.grow, options={"emulate_precision_casts": kept})
    h, error = grow(high, low, c)
    assert (h == 200).all()
    assert (error == (0.10009765625 if kept else 0.0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "plus"])
def test_inductor_keeps_the_compensation(mode, monkeypatch):
    monkeypatch.setattr(fused, "BACKEND", "inductor")
    near(trained(mode=mode, math="fp32", compile=True), trained(mode=mode, math="fp32"))
