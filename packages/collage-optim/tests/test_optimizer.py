"""The optimizers: step by step the literal algorithm, torch's own where they should agree, and what state survives."""

import copy
import io
import pickle  # noqa: TID251 (optimizers are sent to worker processes; nothing is stored)

import optimi
import pytest
import torch
from collage_optim import CollageAdamW, CollageSGD, _reference, from_float, optimizer_bytes
from collage_optim.adamw import MODES
from collage_optim.parts import decoded, encoded, stored_value

BF16 = torch.bfloat16


def noise(*shape, seed, dtype=BF16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def parameters(dtype=BF16, shapes=((40, 7), (9,), (1,)), seed=0):
    return [torch.nn.Parameter(noise(*shape, seed=seed + k, dtype=dtype)) for k, shape in enumerate(shapes)]


def trained(make, steps=12, dtype=BF16, params=None, start=0):
    params = parameters(dtype) if params is None else params
    optimizer = make(params)
    go_on(optimizer, params, range(start, start + steps))
    return params, optimizer


def go_on(optimizer, params, steps):
    for step in steps:
        for k, p in enumerate(params):
            p.grad = noise(*p.shape, seed=1000 + 10 * step + k, dtype=p.dtype)
        optimizer.step()


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def values(optimizer, params):
    return [optimizer.expansion(p).value() for p in params]


@pytest.mark.parametrize("mode", ["plain", "light", "plus"])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_strict_steps_are_those_of_the_paper(mode, dtype):
    p = torch.nn.Parameter(noise(500, seed=0, dtype=dtype))
    names = ("m", "v", "low", "v_low")
    state = {"theta": p.detach().clone(), **{name: torch.zeros_like(p.detach()) for name in names}}
    settings = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0.1}
    optimizer = CollageAdamW([p], mode=mode, **settings)
    for t in range(1, 21):
        p.grad = noise(500, seed=t, dtype=dtype)
        optimizer.step()
        _reference.adamw_step(state, p.grad, t, mode=mode, beta2=from_float(0.999, dtype), **settings)
    found = optimizer.state[p]
    pairs = {"exp_avg": "m", "exp_avg_sq": "v"} | ({"param_lo": "low"} if mode != "plain" else {})
    pairs |= {"exp_avg_sq_lo": "v_low"} if mode == "plus" else {}
    assert torch.equal(p, state["theta"])
    assert all(torch.equal(found[ours], state[theirs]) for ours, theirs in pairs.items())
    assert found["step"] == 20


@pytest.mark.parametrize("beta2", [0.95, 0.99, 0.999])
def test_the_second_moment_settles_at_the_square(beta2):
    found = {}
    for mode in ("light", "plus"):
        p = torch.nn.Parameter(torch.ones(1, dtype=BF16))
        optimizer = CollageAdamW([p], lr=1e-6, betas=(0.9, beta2), mode=mode)
        p.grad = torch.full_like(p, 0.37)
        for _ in range(6000 if beta2 == 0.999 else 1500):
            optimizer.step()
        state = optimizer.state[p]
        found[mode] = sum(state[name].double().item() for name in ("exp_avg_sq", "exp_avg_sq_lo") if name in state)
    square = 0.369140625**2
    assert found["plus"] == pytest.approx(square, rel=0.01 if beta2 == 0.999 else 0.005)
    if beta2 == 0.999:
        assert found["light"] == 0.0625  # stalls at 46 %


@pytest.mark.parametrize("style", ["torch", "compact"])
def test_in_float64_it_is_torch(style):
    for decay in (0.0, 0.1) if style == "torch" else (0.0,):
        options = {"lr": 1e-2, "weight_decay": decay}
        ours, _ = trained(lambda ps, o=options: CollageAdamW(ps, decay_style=style, **o), 50, torch.float64)
        theirs, _ = trained(lambda ps, o=options: torch.optim.AdamW(ps, foreach=False, **o), 50, torch.float64)
        assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("style", "factor"), [("compact", 1.0), ("torch", 1.0), ("hf", 1.0)])
@pytest.mark.parametrize("mode", ["plain", "light", "plus", "kahan"])
def test_decay_by_hand(style, factor, mode):
    """One step in float64: -eta g/|g| - eta lambda theta, with theta of before (compact, torch) or after (hf)."""
    p = torch.nn.Parameter(torch.tensor([2.0, -3.0], dtype=torch.float64))
    p.grad = torch.tensor([1.0, 5.0], dtype=torch.float64)
    CollageAdamW([p], lr=0.1, eps=0.0, weight_decay=0.5, mode=mode, decay_style=style).step()
    kept = torch.tensor([2.0, -3.0], dtype=torch.float64)
    expected = (kept - 0.1) * 0.95 if style == "hf" else kept * 0.95 - 0.1
    assert torch.allclose(p, expected, rtol=1e-14)


@pytest.mark.parametrize("style", ["compact", "torch", "hf"])
@pytest.mark.parametrize("math", ["strict", "fp32"])
def test_decay_that_bfloat16_would_lose_is_kept(style, math):
    """eta lambda = 1e-4 is below 2^-9: theta (1 - eta lambda) = theta in bfloat16."""
    p = torch.nn.Parameter(torch.full((4,), 1.5, dtype=BF16))
    optimizer = CollageAdamW([p], lr=1e-3, weight_decay=0.1, mode="light", decay_style=style, math=math)
    p.grad = torch.zeros_like(p)
    for _ in range(1000):
        optimizer.step()
    assert optimizer.expansion(p).value()[0].item() == pytest.approx(1.5 * (1 - 1e-4) ** 1000, rel=2e-3)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_master_weights_are_those_of_torch(decay):
    ours, optimizer = trained(
        lambda ps: CollageAdamW(ps, lr=1e-2, weight_decay=decay, mode="fp32_master", decay_style="torch"), 50
    )
    theirs = [torch.nn.Parameter(p.detach().float()) for p in parameters()]
    twin = torch.optim.AdamW(theirs, lr=1e-2, weight_decay=decay, foreach=False)
    for step in range(50):
        for k, p in enumerate(theirs):
            p.grad = noise(*p.shape, seed=1000 + 10 * step + k).float()
        twin.step()
    assert same([optimizer.state[p]["master"] for p in ours], theirs)
    assert same(ours, [p.detach().to(BF16) for p in theirs])


def test_plain_is_torch_in_bfloat16():
    ours, _ = trained(lambda ps: CollageAdamW(ps, mode="plain", decay_style="torch", weight_decay=0.1))
    theirs, _ = trained(lambda ps: torch.optim.AdamW(ps, weight_decay=0.1, foreach=False))
    assert same(ours, theirs)


def test_amsgrad_is_that_of_torch():
    options = {"lr": 1e-2, "weight_decay": 0.0, "amsgrad": True}
    ours, _ = trained(lambda ps: CollageAdamW(ps, **options), 20, torch.float64)
    theirs, _ = trained(lambda ps: torch.optim.AdamW(ps, foreach=False, **options), 20, torch.float64)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))
    wide, _ = trained(lambda ps: CollageAdamW(ps, mode="fp32_master", **options), 20)
    close, _ = trained(lambda ps: CollageAdamW(ps, mode="plus", math="fp32", **options), 20)
    assert all(torch.allclose(a.float(), b.float(), atol=0.05) for a, b in zip(wide, close, strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("math", ["strict", "fp32"])
@pytest.mark.parametrize("options", [{}, {"maximize": True}, {"amsgrad": True}])
def test_packed_and_single_parameters_take_the_same_steps(mode, math, options):
    shapes = ((300, 300), (7,), (), (0, 3), (40, 40), (5,))
    runs = []
    for foreach in (None, False, True):
        params = [torch.nn.Parameter(noise(*shape, seed=k)) for k, shape in enumerate(shapes)]
        runs.append(
            trained(
                lambda ps, f=foreach: CollageAdamW(ps, mode=mode, math=math, foreach=f, **options), 4, params=params
            )
        )
    if mode != "stochastic":
        assert same(runs[0][0], runs[1][0])
    assert same(runs[0][0], runs[2][0])
    for params, optimizer in runs:
        assert all(torch.isfinite(p).all() for p in params)
        assert optimizer.state[params[2]]["step"] == 4


def test_the_order_of_parameters_does_not_matter():
    first = parameters()
    second = parameters()[::-1]
    for params in (first, second):
        optimizer = CollageAdamW(params)
        for step in range(5):
            for p in params:
                p.grad = noise(*p.shape, seed=100 * step + p.numel())
            optimizer.step()
    assert same(first, second[::-1])


@pytest.mark.parametrize("math", ["strict", "fp32"])
def test_any_layout_in_memory(math):
    runs = []
    for layout in ("plain", "transposed", "strided", "channels"):
        value, step = noise(8, 6, 4, 4, seed=0), [noise(8, 6, 4, 4, seed=k) for k in (1, 2, 3)]
        if layout == "transposed":
            p = torch.nn.Parameter(value.transpose(0, 1).contiguous().transpose(0, 1))
        elif layout == "strided":
            p = torch.nn.Parameter(torch.empty(8, 6, 4, 8, dtype=BF16)[..., ::2].copy_(value))
        else:
            p = torch.nn.Parameter(value.clone(memory_format=torch.channels_last if layout == "channels" else None))
        other = torch.nn.Parameter(torch.ones(3, dtype=BF16))
        optimizer = CollageAdamW([p, other], math=math)
        for g in step:
            p.grad, other.grad = g.clone(), torch.ones(3, dtype=BF16)
            optimizer.step()
        runs.append((p.detach().contiguous(), optimizer.expansion(p).lo.contiguous()))
    assert all(same(run, runs[0]) for run in runs)


@pytest.mark.parametrize("mode", [*MODES, "three", "float8"])
@pytest.mark.parametrize("how", ["state_dict", "torch.save", "deepcopy", "pickle"])
def test_resumed_runs_equal_straight_ones(mode, how):
    options = {
        "three": {"mode": "plus", "components": 3},
        "float8": {"mode": "light", "low_dtype": torch.float8_e4m3fn},
    }.get(mode, {"mode": mode})
    if (mode, how) == ("float8", "pickle"):
        return  # torch cannot unpickle 8-bit tensors; torch.save and deepcopy can
    make = lambda ps: CollageAdamW(ps, lr=1e-2, **options)  # noqa: E731
    straight, whole = trained(make, 20)
    params, optimizer = trained(make, 10)
    if how in ("deepcopy", "pickle"):
        copier = copy.deepcopy if how == "deepcopy" else lambda x: pickle.loads(pickle.dumps(x))
        params, optimizer = copier((params, optimizer))
    else:
        state = optimizer.state_dict()
        if how == "torch.save":
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)  # noqa: TID251 (its own safe mode)
        params = [torch.nn.Parameter(p.detach().clone()) for p in params]
        optimizer = make(params)
        optimizer.load_state_dict(state)
    go_on(optimizer, params, range(10, 20))
    assert same(params, straight)
    for p, q in zip(params, straight, strict=True):
        assert {n: (x.dtype, x.double().tolist()) for n, x in optimizer.state[p].items()} == {
            n: (x.dtype, x.double().tolist()) for n, x in whole.state[q].items()
        }


def test_groups_may_have_modes_of_their_own():
    params = parameters()
    groups = [
        {"params": params[:1], "mode": "plain"},
        {"params": params[1:2], "mode": "fp32_master", "lr": 1e-2},
        {"params": params[2:]},
    ]
    optimizer = CollageAdamW(groups, mode="plus")
    go_on(optimizer, params, range(3))
    assert [set(optimizer.state[p]) - {"step", "exp_avg", "exp_avg_sq"} for p in params] == [
        set(), {"master"}, {"param_lo", "exp_avg_sq_lo"}
    ]  # fmt: skip
    for mode, p, start, lr in (("plain", params[0], 0, 1e-3), ("fp32_master", params[1], 1, 1e-2)):
        alone = torch.nn.Parameter(parameters()[start].detach().clone())
        single = CollageAdamW([alone], mode=mode, lr=lr)
        for step in range(3):
            alone.grad = noise(*alone.shape, seed=1000 + 10 * step + start)
            single.step()
        assert torch.equal(alone, p)


def test_rates_and_betas_that_a_schedule_changes():
    params = parameters()
    optimizer = CollageAdamW(params, lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=20)
    betas = set()
    for step in range(10):
        go_on(optimizer, params, [step])
        schedule.step()
        betas.add(optimizer.param_groups[0]["betas"][0])
    assert len(betas) == 10
    assert all(torch.isfinite(p).all() for p in params)


def test_a_closure_gives_its_loss():
    p = torch.nn.Parameter(torch.ones(3, dtype=BF16))
    optimizer = CollageAdamW([p])

    def closure():
        optimizer.zero_grad()
        loss = p.float().square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3.0
    assert p[0] < 1 or optimizer.expansion(p).lo[0] < 0
    assert optimizer.step() is None


def test_kahan_agrees_with_torch_optimi():
    ours, _ = trained(lambda ps: CollageAdamW(ps, lr=1e-3, mode="kahan", weight_decay=0.0, eps=1e-6), 60)
    theirs, _ = trained(lambda ps: optimi.AdamW(ps, lr=1e-3, kahan_sum=True, weight_decay=0.0, eps=1e-6), 60)
    assert all(torch.allclose(a.float(), b.float(), rtol=2e-2, atol=2e-3) for a, b in zip(ours, theirs, strict=True))


def test_stochastic_rounding_is_unbiased():
    p = torch.nn.Parameter(torch.full((40_000,), 200.0, dtype=BF16))
    optimizer = CollageAdamW([p], lr=0.1, weight_decay=0.0, eps=0.0, mode="stochastic", seed=3)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert set(p.tolist()) == {200.0, 199.0}
    assert p.double().mean().item() == pytest.approx(199.9, abs=0.01)
    plain = torch.nn.Parameter(torch.full((4,), 200.0, dtype=BF16))
    plain.grad = torch.ones_like(plain)
    CollageAdamW([plain], lr=0.1, weight_decay=0.0, eps=0.0, mode="plain").step()
    assert (plain == 200).all()


def test_three_components_go_where_two_stall():
    found = {}
    for components in (2, 3):
        p = torch.nn.Parameter(torch.full((1,), 200.0, dtype=BF16))
        optimizer = CollageSGD([p], lr=0.001, components=components)
        p.grad = torch.ones_like(p)
        for _ in range(2000):
            optimizer.step()
        found[components] = optimizer.export_fp32(torch.nn.ParameterList([p]))["0"].item()
    assert found[2] == 199.5
    assert abs(found[3] - 198) < 0.01


@pytest.mark.parametrize("components", [2, 3])
def test_three_components_follow_float32_master_weights_more_closely(components):
    """100 updates of 1e-4 at most, each rounded to 8 bits and divided by a root of 8 bits; two components also lose
    what is below |theta| 2^-17."""
    ours, optimizer = trained(lambda ps: CollageAdamW(ps, lr=1e-4, mode="plus", components=components), 100)
    theirs, twin = trained(lambda ps: CollageAdamW(ps, lr=1e-4, mode="fp32_master"), 100)
    rounding = 100 * 1e-4 * 2**-7
    for p, q in zip(ours, theirs, strict=True):
        lost = 100 * 2**-17 * p.detach().float().abs() if components == 2 else 0.0
        gap = (optimizer.expansion(p).value() - twin.state[q]["master"]).abs()
        assert (gap < rounding + lost).all()
        assert gap.max() > 1e-3 * rounding  # they are not the same computation


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_low_parts_in_eight_bits(dtype):
    p = torch.nn.Parameter(torch.tensor([200.0, -0.001, 0.0, 3e-5], dtype=BF16))
    optimizer = CollageAdamW([p], lr=1e-4, eps=0.0, weight_decay=0.0, mode="light", low_dtype=dtype)
    p.grad = torch.ones_like(p)
    for _ in range(100):
        optimizer.step()
    assert optimizer.state[p]["param_lo"].dtype is dtype
    assert optimizer_bytes(optimizer) == 4 * (2 + 2 + 1)
    assert optimizer.expansion(p).value()[1].item() == pytest.approx(-0.011, rel=0.02)
    low = torch.tensor([0.3, -1e-6, 0.0, 1e-8], dtype=BF16)
    back = decoded(p.detach(), encoded(p.detach(), low, dtype))
    assert back[0].item() == pytest.approx(0.3, rel=0.15)


def test_weights_in_float32_from_an_expansion():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).to(BF16)
    frozen = model[1].weight
    for mode in ("plus", "fp32_master", "plain"):
        optimizer = CollageAdamW([p for p in model.parameters() if p is not frozen], mode=mode)
        go_on(optimizer, [p for p in model.parameters() if p is not frozen], range(5))
        exported = optimizer.export_fp32(model)
        assert set(exported) == {name for name, _ in model.named_parameters()}
        for name, p in model.named_parameters():
            assert exported[name].dtype is torch.float32
            assert torch.equal(exported[name].to(BF16), p)
        finer = not torch.equal(exported["0.weight"], model[0].weight.float())
        assert finer == (mode != "plain")
        assert torch.equal(exported["1.weight"], frozen.float())


def test_expansions_on_disk(tmp_path):
    model = torch.nn.Linear(4, 3).to(BF16)
    optimizer = CollageAdamW(model.parameters())
    go_on(optimizer, list(model.parameters()), range(4))
    optimizer.save_expansion(tmp_path / "weights", model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.json", "weights.safetensors"]
    twin = torch.nn.Linear(4, 3).to(BF16)
    other = CollageAdamW(twin.parameters())
    other.load_expansion(tmp_path / "weights", twin)
    assert same(values(other, twin.parameters()), values(optimizer, model.parameters()))
    with pytest.raises(ValueError, match="must hold the parameters of this model"):
        other.load_expansion(tmp_path / "weights", torch.nn.Linear(5, 3).to(BF16))
    eight = CollageAdamW(twin.parameters(), mode="light", low_dtype=torch.float8_e4m3fn)
    eight.load_expansion(tmp_path / "weights", twin)
    assert all(
        torch.allclose(a, b, rtol=2**-9)
        for a, b in zip(values(eight, twin.parameters()), values(optimizer, model.parameters()), strict=True)
    )


def test_values_in_float64_count_all_parts():
    ones = torch.ones(2, dtype=BF16)
    found = stored_value({"param": ones, "param_lo": ones * 2**-9, "param_lo2": ones * 2**-18})
    assert found.lo[0].item() == 2**-9 + 2**-18
    assert [part[0].item() for part in stored_value({"param": ones, "master": 3 * ones.float()})] == [1, 2]


# ---- SGD


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
        {"maximize": True},
    ],
)
@pytest.mark.parametrize("mode", ["plain", "light", "fp32_master"])
def test_sgd_is_torch_in_float64(options, mode):
    ours, _ = trained(lambda ps: CollageSGD(ps, lr=1e-2, mode=mode, **options), 20, torch.float64)
    theirs, _ = trained(lambda ps: torch.optim.SGD(ps, lr=1e-2, foreach=False, **options), 20, torch.float64)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("options", [{}, {"math": "fp32"}, {"components": 3}, {"robust": True}])
def test_sgd_keeps_small_updates(options):
    p = torch.nn.Parameter(torch.full((3,), 200.0, dtype=BF16))
    optimizer = CollageSGD([p], lr=0.01, momentum=0.5, **options)
    p.grad = torch.ones_like(p)
    for _ in range(500):
        optimizer.step()
    assert optimizer.expansion(p).value()[0].item() == pytest.approx(200 - 0.02 * 499, abs=0.2)
    plain = torch.nn.Parameter(torch.full((3,), 200.0, dtype=BF16))
    plain.grad = torch.ones_like(plain)
    CollageSGD([plain], lr=0.01, mode="plain").step()
    assert plain[0] == 200


def test_sgd_with_a_low_part_in_eight_bits():
    p = torch.nn.Parameter(torch.full((3,), 200.0, dtype=BF16))
    optimizer = CollageSGD([p], lr=0.1, low_dtype=torch.float8_e4m3fn)
    p.grad = torch.ones_like(p)
    for _ in range(200):
        optimizer.step()
    assert optimizer.expansion(p).value()[0].item() == pytest.approx(180, abs=0.7)


def test_sgd_with_master_weights_is_sgd_in_float32():
    ours, optimizer = trained(lambda ps: CollageSGD(ps, lr=1e-2, momentum=0.9, mode="fp32_master"), 20)
    theirs = [torch.nn.Parameter(p.detach().float()) for p in parameters()]
    twin = torch.optim.SGD(theirs, lr=1e-2, momentum=0.9, foreach=False)
    for step in range(20):
        for k, p in enumerate(theirs):
            p.grad = noise(*p.shape, seed=1000 + 10 * step + k).float()
        twin.step()
    assert all(torch.allclose(optimizer.state[p]["master"], q, atol=1e-6) for p, q in zip(ours, theirs, strict=True))
