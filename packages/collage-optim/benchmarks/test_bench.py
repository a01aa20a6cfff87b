"""Duels: one optimizer step against what one would use instead, in bfloat16, on one thread."""

import optimi
import torch
from collage_optim import CollageAdamW

BF16 = torch.bfloat16
SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}


class Training:
    """Weights and gradients of one optimizer; a step returns what the weights are, in float32."""

    def __init__(self, sizes):
        gen = torch.Generator().manual_seed(0)
        self.start = [torch.randn(n, generator=gen).to(BF16) for n in sizes]
        self.grads = [torch.randn(n, generator=gen).mul(0.01).to(BF16) for n in sizes]
        self.ready = {}

    def params(self):
        params = [torch.nn.Parameter(x.clone()) for x in self.start]
        for p, g in zip(params, self.grads, strict=True):
            p.grad = g
        return params

    def step(self, name, make):
        """A step of the optimizer of that name, made at its first one; all have taken equally many steps."""
        if name not in self.ready:
            params = self.params()
            self.ready[name] = (params, make(params))
        params, optimizer = self.ready[name]
        optimizer.step()
        return params, optimizer


def one(n):
    return Training([n])


def many(n):
    return Training([4096] * n)


def collage(mode, **options):
    def run(training):
        make = lambda params: CollageAdamW(params, mode=mode, **SETTINGS, **options)  # noqa: E731
        return training.step((mode, *options.items()), make)[0]

    return run


def torch_adamw(training):
    return training.step("torch", lambda params: torch.optim.AdamW(params, foreach=True, **SETTINGS))[0]


def torch_fused(training):
    return training.step("fused", lambda params: torch.optim.AdamW(params, fused=True, **SETTINGS))[0]


def optimi_kahan(training):
    make = lambda params: optimi.AdamW(params, kahan_sum=True, **SETTINGS)  # noqa: E731
    return training.step("optimi", make)[0]


class MasterWeights:
    """Mixed precision as it is usually written: a float32 copy, stepped by torch's AdamW, rounded back."""

    def __init__(self, params):
        self.params = params
        self.master = [torch.nn.Parameter(p.detach().float()) for p in params]
        for q in self.master:
            q.grad = torch.zeros_like(q)
        self.optimizer = torch.optim.AdamW(self.master, foreach=True, **SETTINGS)

    @torch.no_grad()
    def step(self):
        torch._foreach_copy_([q.grad for q in self.master], [p.grad for p in self.params])
        self.optimizer.step()
        torch._foreach_copy_(self.params, self.master)


def master_weights(training):
    return training.step("master", MasterWeights)[0]


class Released:
    """Mode plus as in the released code: whole tensors, new ones at every operation (its faults put right)."""

    def __init__(self, params):
        self.state = [(p, *(torch.zeros_like(p) for _ in range(4))) for p in params]
        self.t = 0
        high = torch.tensor(SETTINGS["betas"][1], dtype=torch.float64)
        self.beta = high.to(BF16), (high - high.to(BF16).double()).to(BF16)

    @torch.no_grad()
    def step(self):
        self.t += 1
        lr, (b1, b2), eps, wd = SETTINGS.values()
        for p, low, m, v, v_low in self.state:
            g = p.grad
            m.mul_(b1).add_(g, alpha=1 - b1)
            x = v * self.beta[0]
            e = torch.addcmul(-x, v, self.beta[0]) + v * self.beta[1] + v_low * self.beta[0]
            high = x + e
            self.grow(high, e - (high - x), g * g * (1 - b2), v, v_low)
            denominator = v.sqrt() / (1 - b2**self.t) ** 0.5 + eps
            update = m / denominator * (-lr / (1 - b1**self.t)) - p * (lr * wd)
            self.grow(p.clone(), low.clone(), update, p, low)

    @staticmethod
    def grow(high, low, c, into, low_into):
        u = high + c
        w = low + (c - (u - high))
        into.copy_(u + w)
        low_into.copy_(w - (into - u))


def released(training):
    return training.step("released", Released)[0]


def near(ours, theirs):
    """Weights after equally many steps, apart by the last place of bfloat16 (2^-8) at most, and by less on average."""
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=2**-6, atol=2**-6)
        assert (a.float() - b.float()).abs().mean() < 2**-7


MILLIONS = [1 << 20, 1 << 22]


def test_plus(duel):
    duel(
        sizes=MILLIONS,
        make=one,
        ours=collage("plus", math="fp32"),
        peers={
            "torch AdamW, foreach": torch_adamw,
            "float32 master weights, foreach": master_weights,
            "released code": released,
        },
        same=near,
        target={"torch AdamW, foreach": 0.25, "float32 master weights, foreach": 1.0, "released code": 1.667},
        growth="n",
    )


def test_plus_compiled(duel):
    duel(
        sizes=MILLIONS,
        make=one,
        ours=collage("plus", math="fp32", compile=True),
        peers={
            "torch AdamW, foreach": torch_adamw,
            "torch AdamW, fused": torch_fused,
            "float32 master weights, foreach": master_weights,
        },
        same=near,
        target={"torch AdamW, foreach": 1.0, "torch AdamW, fused": 1.0, "float32 master weights, foreach": 2.0},
        growth="n",
    )


def test_plus_strict(duel):
    duel(
        sizes=MILLIONS[1:],
        make=one,
        ours=collage("plus"),
        peers={
            "torch AdamW, foreach": torch_adamw,
            "float32 master weights, foreach": master_weights,
            "released code": released,
        },
        same=near,
        target={"torch AdamW, foreach": 0.25, "float32 master weights, foreach": 1.0, "released code": 1.0},
    )


def test_light(duel):
    duel(
        sizes=MILLIONS,
        make=one,
        ours=collage("light", math="fp32"),
        peers={
            "torch AdamW, foreach": torch_adamw,
            "float32 master weights, foreach": master_weights,
            "torch-optimi, Kahan": optimi_kahan,
        },
        same=near,
        target={"torch AdamW, foreach": 0.333, "float32 master weights, foreach": 1.0, "torch-optimi, Kahan": 1.0},
        growth="n",
    )


def test_light_strict(duel):
    duel(
        sizes=MILLIONS[1:],
        make=one,
        ours=collage("light"),
        peers={"torch AdamW, foreach": torch_adamw, "float32 master weights, foreach": master_weights},
        same=near,
        target={"torch AdamW, foreach": 0.333, "float32 master weights, foreach": 1.0},
    )


def test_light_compiled(duel):
    duel(
        sizes=MILLIONS,
        make=one,
        ours=collage("light", math="fp32", compile=True),
        peers={"torch AdamW, foreach": torch_adamw, "torch-optimi, Kahan": optimi_kahan},
        same=near,
        target={"torch AdamW, foreach": 1.0, "torch-optimi, Kahan": 1.0},
        growth="n",
    )


def test_many_small_tensors(duel):
    duel(
        sizes=[100, 400],
        make=many,
        ours=collage("plus", math="fp32", foreach=True),
        peers={
            "a loop over parameters": collage("plus", math="fp32", foreach=False),
            "float32 master weights, foreach": master_weights,
        },
        same=near,
        target={"a loop over parameters": 3.0, "float32 master weights, foreach": 1.0},
        growth="n",
    )
