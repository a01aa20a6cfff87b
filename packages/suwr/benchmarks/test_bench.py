"""Duels: unmasking in blocks, the incremental first layer, the linear program, the dynamic program."""

from functools import cache, lru_cache

import numpy as np
import torch
from offprints.seeding import isolated, rng
from scipy.optimize import linprog
from suwr import DiscreteProblem, _reference, make_and_toy, unmask
from suwr.policy import SequentialPolicy

D, H, T = 784, 200, 20


@lru_cache(maxsize=8)
def network(d=D, hidden=H):
    with isolated(0):
        made = SequentialPolicy(d, 10, hidden=hidden, layers=3).eval().requires_grad_(False)
        made.stop.bias.fill_(-2.0)  # most rows go to the budget
    return made


def rows(n, d=D):
    return torch.randn(n, d, generator=rng(0, "cpu"))


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# ---- predict


def ours(x):
    return unmask(network(), x, T).output


@torch.no_grad()
def loop_over_rows(x):
    net, out = network(), []
    for row in x:
        mask, told = torch.zeros(1, D, dtype=torch.bool), None
        for t in range(T + 1):
            told = net(row[None], mask)
            if t == T or told.stop[0] >= 0:
                break
            mask[0, told.select[0].masked_fill(mask[0], float("-inf")).argmax()] = True
        out.append(told.output[0])
    return torch.stack(out)


@torch.no_grad()
def all_rows_at_once(x, size=2000):
    """What one would write in torch: every row to the budget, the whole network at every step."""
    net, out = network(), []
    for part in x.split(size):
        mask = torch.zeros(part.shape, dtype=torch.bool)
        done, output = torch.zeros(len(part), dtype=torch.bool), None
        for t in range(T + 1):
            told = net(part, mask)
            output = told.output if output is None else torch.where(done[:, None], output, told.output)
            done = done | (told.stop >= 0)
            if t == T or bool(done.all()):
                break
            unit = told.select.masked_fill(mask, float("-inf")).argmax(dim=1, keepdim=True)
            mask = mask.scatter(1, unit, ~done[:, None] | mask.gather(1, unit))
        out.append(output)
    return torch.cat(out)


def test_predict(duel):
    duel(
        sizes=[500, 2000],
        make=rows,
        ours=ours,
        peers={
            "loop over rows": loop_over_rows,
            "torch, all rows at once": {
                "in one batch": all_rows_at_once,
                "batches of 256": lambda x: all_rows_at_once(x, 256),
            },
        },
        same=same,
        target={"loop over rows": 50.0, "torch, all rows at once": 1.5},
        growth="n",
    )


# ---- the first layer

W = network().bodies[0][0]
VALUES, PRESENCE = W.weight[:, :D].t().contiguous(), W.weight[:, D:].t().contiguous()


def reveals(n):
    """Rows, a mask of ten features in each, and the next one."""
    x = rows(n)
    mask = torch.zeros(n, D, dtype=torch.bool)
    mask[:, :10] = True
    return x, mask, torch.randint(10, D, (n,), generator=rng(1, "cpu")), before(x, mask)


def before(x, mask):
    return W(torch.cat([torch.where(mask, x, torch.zeros_like(x)), mask.to(x.dtype)], dim=1))


def incremental(data):
    x, _, unit, pre = data
    return pre + torch.addcmul(PRESENCE[unit], x.gather(1, unit[:, None]), VALUES[unit])


def recomputed(data):
    x, mask, unit, _ = data
    return before(x, mask.scatter(1, unit[:, None], True))


def values_by_sparse_product(data):
    """Only the revealed columns, by an embedding bag with weights."""
    x, _, unit, _ = data
    shown = torch.cat([torch.arange(10).expand(len(x), 10), unit[:, None]], dim=1)
    bag = torch.nn.functional.embedding_bag
    seen = bag(shown, VALUES, per_sample_weights=x.gather(1, shown), mode="sum")
    return W.bias + seen + bag(shown, PRESENCE, mode="sum")


def test_first_layer(duel):
    duel(
        sizes=[256, 1024],
        make=reveals,
        ours=incremental,
        peers={"full recomputation": recomputed, "torch embedding_bag": values_by_sparse_product},
        same=same,
        target={"full recomputation": 1.5, "torch embedding_bag": 1.0},
        growth="n",
    )


# ---- exact optima


def toy(d):
    X, y = make_and_toy(d)
    return X, y.astype(float)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-7)


def dense_program(data):
    X, y = data
    return np.array([_reference.best_without_leakage(X, np.full(len(X), 1 / len(X)), y, 0.2)])


def dense_vectorised(data):
    """The same program with numpy groups, handed to HiGHS as a dense matrix."""
    X, y = data
    n, d = X.shape
    costs, parts = [], []
    for s in range(2**d):
        shown = [j for j in range(d) if s >> j & 1]
        _, cell = np.unique(X[:, shown], axis=0, return_inverse=True) if shown else (None, np.zeros(n, int))
        cell = cell.ravel()
        mass = np.bincount(cell)
        mean, second = np.bincount(cell, y) / mass, np.bincount(cell, y**2) / mass
        costs.append(mass / n * (second - mean**2 + 0.2 * len(shown)))
        parts.append((cell[:, None] == np.arange(len(mass))).astype(float))
    found = linprog(np.concatenate(costs), A_eq=np.hstack(parts), b_eq=np.ones(n), bounds=(0, None), method="highs")
    return np.array([found.fun])


def test_linear_program(duel):
    duel(
        sizes=[6, 8],
        make=toy,
        ours=lambda data: np.array([DiscreteProblem.from_arrays(*data).solve_lp(0.2).objective]),
        peers={"literal, dense": dense_program, "numpy groups, dense": dense_vectorised},
        same=close,
        target={"literal, dense": 2.0, "numpy groups, dense": 1.0},
    )


def memoised(data):
    """Cells keyed by their values, in a dictionary: dynamic programming as one would write it."""
    X, y = data
    n, d = X.shape
    rows = X.tolist()

    @cache
    def value(state):
        kept = [i for i in range(n) if all(v is None or rows[i][j] == v for j, v in enumerate(state))]
        part = y[kept]
        best = part.var() + 0.2 * sum(v is not None for v in state)
        for j in range(d):
            if state[j] is None:
                total = 0.0
                for v in (0, 1):
                    share = sum(rows[i][j] == v for i in kept)
                    if share:
                        total += share * value((*state[:j], v, *state[j + 1 :]))
                best = min(best, total / len(kept))
        return best

    return np.array([value((None,) * d)])


def test_dynamic_program(duel):
    duel(
        sizes=[6, 8],
        make=toy,
        ours=lambda data: np.array([DiscreteProblem.from_arrays(*data).solve_sequential(0.2).objective]),
        peers={"numpy, one cell at a time": memoised},
        same=close,
        target={"numpy, one cell at a time": 5.0},
    )
