"""The paper's transformations: exact where they say so, to the last digit of worked numbers."""

import ml_dtypes
import numpy as np
import pytest
import torch
from collage_optim import (
    MCF,
    _reference,
    fast_two_sum,
    from_float,
    grow,
    grow_,
    mul,
    scale,
    to_float64,
    two_prod,
    two_sum,
)
from collage_optim.mcf import grow_three_
from hypothesis import given
from hypothesis import strategies as st

BF16, FP16 = torch.bfloat16, torch.float16
PAIRS = 1_000_000


def draw(dtype, seed, binades=40):
    """Random numbers of both signs over many binades."""
    gen = torch.Generator().manual_seed(seed)
    span = binades if dtype is BF16 else 12
    exponent = torch.randint(-span // 2, span // 2, (PAIRS,), generator=gen)
    mantissa = 1 + torch.rand(PAIRS, generator=gen, dtype=torch.float64)
    sign = 2 * torch.randint(0, 2, (PAIRS,), generator=gen) - 1
    return torch.ldexp(sign * mantissa, exponent).to(dtype)


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_sums_are_exact(dtype):
    a, b = draw(dtype, 0), draw(dtype, 1)
    assert torch.equal(to_float64(two_sum(a, b)), a.double() + b.double())
    large, small = torch.where(a.abs() >= b.abs(), a, b), torch.where(a.abs() >= b.abs(), b, a)
    assert torch.equal(to_float64(fast_two_sum(large, small)), a.double() + b.double())
    wrong = to_float64(fast_two_sum(small, large)) != a.double() + b.double()
    assert wrong.double().mean() > 0.2  # its condition matters
    for x, y in ((two_sum(a, b), _reference.two_sum(a, b)), (fast_two_sum(a, b), _reference.fast_two_sum(a, b))):
        assert torch.equal(x.hi, y[0])
        assert torch.equal(x.lo, y[1])


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_products_are_exact(dtype):
    a, b = draw(dtype, 2), draw(dtype, 3)
    if dtype is FP16:  # where the error does not underflow, nor the product overflow
        product = (a.double() * b.double()).abs()
        a, b = a[(product > 2**-3) & (product < 2**15)], b[(product > 2**-3) & (product < 2**15)]
    assert len(a) > 100_000
    assert torch.equal(to_float64(two_prod(a, b)), a.double() * b.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_wider_types_are_exact_too(dtype):
    gen = torch.Generator().manual_seed(0)
    a, b = (torch.randn(1000, generator=gen, dtype=dtype) for _ in range(2))
    x, e = two_prod(a, b)
    assert torch.equal(x, a * b)
    if dtype is torch.float32:
        assert torch.equal(x.double() + e.double(), a.double() * b.double())
    else:
        exact = [float(np.longdouble(p) * np.longdouble(q) - np.longdouble(r)) for p, q, r in zip(a, b, x, strict=True)]
        assert torch.allclose(e, torch.tensor(exact, dtype=dtype), rtol=1e-2, atol=1e-19)


def test_rounding_is_that_of_ml_dtypes():
    a, b = draw(BF16, 4), draw(BF16, 5)
    x, y = (part.float().numpy().astype(ml_dtypes.bfloat16) for part in (a, b))
    for ours, theirs in ((a + b, x + y), (a * b, x * y), (a / b, x / y)):
        assert np.array_equal(ours.float().numpy(), theirs.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "high", "low"),
    [
        (0.9, 0.8984375, 0.00156402587890625),
        (0.95, 0.94921875, 0.000782012939453125),
        (0.98, 0.98046875, -0.000469207763671875),
        (0.99, 0.98828125, 0.00171661376953125),
        (0.999, 1.0, -0.00099945068359375),
        (0.9999, 1.0, -0.00010013580322265625),
    ],
)
def test_betas_are_split_from_float64(value, high, low):
    split = from_float(value, BF16)
    assert (split.hi.item(), split.lo.item()) == (high, low)
    assert split.hi.dtype is BF16


@given(st.floats(-1e30, 1e30), st.sampled_from([BF16, torch.float32]))
def test_splitting_rounds_once(value, dtype):
    bits, lowest = {BF16: (8, -133), torch.float32: (24, -149)}[dtype]
    high = _reference.nearest(value, bits, lowest)
    split = from_float(value, dtype)
    assert split.hi.item() == high
    assert split.lo.item() == _reference.nearest(value - high, bits, lowest)
    assert from_float(1.0 + 2.0**-8 + 2.0**-40, BF16).hi.item() == 1.0 + 2.0**-7  # by float32 it would be 1


def test_special_numbers_are_split():
    assert from_float(float("inf"), BF16).hi.item() == float("inf")
    assert from_float(0.0, FP16) == (torch.tensor(0.0, dtype=FP16), torch.tensor(0.0, dtype=FP16))


@pytest.mark.parametrize(("dtype", "low", "plain"), [(BF16, 0.16796875, 200.0), (FP16, -0.0244140625, 256.0)])
def test_a_thousand_small_additions(dtype, low, plain):
    start, c = torch.tensor(200.0, dtype=dtype), torch.tensor(0.1, dtype=dtype)
    one = grow(start, torch.zeros_like(start), c)
    if dtype is BF16:
        assert (one.hi.item(), one.lo.item()) == (200.0, 0.10009765625)
    expansion, simple = MCF(start, torch.zeros_like(start)), start
    for _ in range(1000):
        expansion, simple = grow(*expansion, c), simple + c
    assert (expansion.hi.item(), expansion.lo.item(), simple.item()) == (300.0, low, plain)


@pytest.mark.parametrize("robust", [False, True])
def test_the_error_of_grow_is_bounded(robust):
    a, b, c = draw(BF16, 6, 10), draw(BF16, 7, 10), draw(BF16, 8, 10)
    h, low = two_sum(a, b * 2**-9)
    c = torch.where(h.abs() >= c.abs(), c, c * 2**-12)
    keep = h.abs() >= c.abs()
    h, low, c = h[keep], low[keep], c[keep]
    grown = grow(h, low, c, robust=robust)
    error = (to_float64(grown) - (h.double() + low.double() + c.double())).abs()
    assert (error <= 2.0**-14 * torch.maximum(h.double().abs(), grown.hi.double().abs())).all()
    assert torch.equal(grown.hi, to_float64(grown).to(BF16))  # h = RN(h + l)
    again = fast_two_sum(*grown)
    assert torch.equal(again.hi, grown.hi)
    assert torch.equal(again.lo, grown.lo)
    if not robust:
        expected = _reference.grow(h, low, c)
        assert torch.equal(grown.hi, expected[0])
        assert torch.equal(grown.lo, expected[1])


def test_robust_grow_is_exact_for_updates_larger_than_the_weight():
    h, c = torch.tensor([2.0**-12], dtype=BF16), torch.tensor([1.0], dtype=BF16)
    assert to_float64(grow(h, torch.zeros_like(h), c, robust=True)).item() == 1.0 + 2.0**-12
    assert to_float64(grow(h, torch.zeros_like(h), c)).item() == 1.0


def test_products_of_expansions():
    three = MCF(torch.tensor(3.0, dtype=BF16), torch.tensor(0.0078125, dtype=BF16))
    found = mul(*three, from_float(0.95, BF16))
    assert (found.hi.item(), found.lo.item()) == (2.859375, -0.001953125)
    assert scale(*three, 0.95) == found
    a, b = draw(BF16, 9, 10), draw(BF16, 10, 10)
    x, y = two_sum(a, a * 2**-9), two_sum(b, b * 2**-9)
    product = mul(*x, y)
    relative = to_float64(product) / (to_float64(x) * to_float64(y)) - 1
    assert relative.abs().max() <= 2.0**-14
    expected = _reference.mul(*x, *y)
    assert torch.equal(product.hi, expected[0])
    assert torch.equal(product.lo, expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expansions_of_wider_types(dtype):
    one = MCF(torch.ones(1, dtype=dtype), torch.zeros(1, dtype=dtype))
    tiny = torch.full((1,), torch.finfo(dtype).eps / 8, dtype=dtype)
    for _ in range(8):
        one = grow(*one, tiny)
    assert one.hi.item() + one.lo.item() == 1 + torch.finfo(dtype).eps
    tripled = mul(*one, from_float(3.0, dtype))
    assert tripled.value().dtype is torch.float64
    assert tripled.value().item() == pytest.approx(3 * (1 + torch.finfo(dtype).eps), rel=1e-15)
    assert MCF(torch.ones(1, dtype=BF16), torch.ones(1, dtype=BF16)).value().dtype is torch.float32


def test_two_components_stall_where_three_go_on():
    start, c = torch.tensor([200.0], dtype=BF16), torch.tensor([-0.001], dtype=BF16)
    two = MCF(start.clone(), torch.zeros_like(start))
    high, low, lowest = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for _ in range(2000):
        grow_(two, c)
        grow_three_(high, low, lowest, c)
    assert to_float64(two).item() == 199.5
    assert abs((high.double() + low.double() + lowest.double()).item() - 198) < 0.01


@pytest.mark.parametrize("function", [two_sum, fast_two_sum, two_prod])
def test_overflow_leaves_no_nan_in_the_error(function):
    big = torch.tensor([3e38, -3e38, float("nan")], dtype=BF16)
    found = function(big, big)
    assert found.hi[:2].isinf().all() or function is two_prod
    assert found.hi[2].isnan()
    assert found.lo.isfinite().all()
    grown = grow(big, torch.zeros_like(big), big)
    assert grown.lo.isfinite().all()
    assert grown.hi[0].isinf()


def test_subnormal_numbers():
    tiny = torch.tensor([1e-39, 3e-40], dtype=BF16)
    assert torch.equal(to_float64(two_sum(tiny, tiny * 0.5)), tiny.double() + (tiny * 0.5).double())


def test_in_place_twins_change_what_they_are_given():
    h, low, c = (draw(BF16, seed, 8)[:1000] for seed in (1, 2, 3))
    low = low * 2**-12
    pure = grow(h, low, c)
    kept = (h.clone(), low.clone())
    grow_(MCF(h, low), c)
    assert torch.equal(h, pure.hi)
    assert torch.equal(low, pure.lo)
    assert not torch.equal(h, kept[0])
