"""Runs behind the claims about bounds: random heads, the adversarial data of Section 5, large radius (Section 3)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from offprints.seeding import rng, spawn
from torch import Tensor

from attention_lipschitz.bounds import (
    ball,
    bound_table,
    general,
    large_radius_limit,
    local,
    lower,
    masked_mean_field,
    mean_field,
    sharp,
)
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.measure import local_lipschitz
from attention_lipschitz.worst import worst_case

Metrics = dict[str, float | Sequence[float]]
SLACK = 1 + 1e-9
RADIUS = 0.2
"""δ of the ball certificates."""
RADII = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)


def _normal(gen: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(gen.standard_normal(shape))


def _exact(layer: AttentionLayer, X: Tensor) -> float:
    return local_lipschitz(layer, X, method="dense").value


def random_heads(seed: int, cases: int) -> Metrics:
    """How many bounds are below the exact constant, and medians of bound ÷ constant; random (A, V, X), both masks."""
    gen, violations, ratios = rng(seed), 0, {}
    for case in range(cases):
        n, d = int(gen.integers(1, 13)), int(gen.integers(1, 7))
        causal = case % 2 == 1
        A = float(gen.uniform(0.1, 1.0)) * _normal(gen, d, d)
        X, one = _normal(gen, n, d), AttentionHead(A=A, V=_normal(gen, d, d))
        layer = one.layer(causal)
        exact, R = _exact(layer, X), float(torch.linalg.vector_norm(X, dim=-1).max())
        norms = float(torch.linalg.matrix_norm(A, 2)), float(torch.linalg.matrix_norm(one.V, 2))
        found = {
            "general": general(n, R, *norms),
            "sharp": sharp(n, R, *norms, causal=causal),
            "mean_field": masked_mean_field(R, *norms) if causal else mean_field(R, *norms),
            "local": local(layer, X),
            "ball": ball(layer, X, RADIUS),
        }
        violations += sum(exact > bound * SLACK for bound in found.values())
        paper = found["general"] if causal else min(found["general"], found["mean_field"])
        violations += found["sharp"] > paper * SLACK
        E = _normal(gen, n, d)
        violations += _exact(layer, X + RADIUS * E / torch.linalg.vector_norm(E)) > found["ball"] * SLACK
        for name, bound in found.items():
            ratios.setdefault(name, []).append(bound / exact)
    return {"violations": float(violations)} | {f"ratio_{name}": float(np.median(r)) for name, r in ratios.items()}


def _planted(seed: int, values: str, d: int = 4) -> AttentionHead:
    """A symmetric A whose least eigenvalue is −1, in a random basis; V a random rotation, or "random" altogether."""
    gen = rng(seed)
    basis = torch.linalg.qr(_normal(gen, d, d))[0]
    spectrum = torch.from_numpy(np.concatenate([[-1.0], gen.uniform(-0.5, 0.5, d - 1)]))
    V = _normal(gen, d, d)
    if values == "rotation":
        V = torch.linalg.qr(V)[0]
    return AttentionHead(A=basis @ torch.diag(spectrum) @ basis.mT, V=V)


def adversarial_growth(seed: int, radii: Sequence[float], lengths: Sequence[int], values: str, causal: bool) -> Metrics:
    """Constants at the adversarial tokens over ‖Vu‖, by radius and length, between the lower and the sharp bound."""
    one = _planted(seed, values)
    gain = lower(1, 1.0, one.A, one.V)[0]
    layer = one.layer(causal)
    norms = float(torch.linalg.matrix_norm(one.A, 2)), float(torch.linalg.matrix_norm(one.V, 2))
    found: Metrics = {}
    violations, loose = 0, 1.0
    for R in radii:
        for n in lengths:
            least, tokens = lower(n, R, one.A, one.V, causal=causal)
            exact = local_lipschitz(layer, tokens, rtol=1e-9).value
            most = sharp(n, R, *norms, causal=causal)
            if causal:
                most = min(most, masked_mean_field(R, *norms))
            violations += not least <= exact * SLACK <= most * SLACK**2
            loose = max(loose, exact / least)
            found[f"L_{R:g}_{n}"] = exact / gain
    return found | {"violations": float(violations), "looseness": loose} | _by_radius(one, layer, causal)


def _by_radius(one: AttentionHead, layer: AttentionLayer, causal: bool, n: int = 30) -> Metrics:
    """Series over R at n = 30: the constant at the adversarial tokens, the lower bound, and all upper ones."""
    norms = float(torch.linalg.matrix_norm(one.A, 2)), float(torch.linalg.matrix_norm(one.V, 2))
    rows = []
    for R in RADII:
        least, tokens = lower(n, R, one.A, one.V, causal=causal)
        free = masked_mean_field(R, *norms) if causal else mean_field(R, *norms)
        exact = local_lipschitz(layer, tokens, rtol=1e-9).value
        rows.append((exact, least, general(n, R, *norms), free, sharp(n, R, *norms, causal=causal)))
    names = ("exact", "lower", "general", "mean_field", "sharp")
    return {
        f"by_radius_{name}": [float(x) for x in column]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def hard_attention(seed: int, cases: int) -> Metrics:
    """Relative distance of ‖D_{rX} f‖ from its limit at three r, medians; limits above v √n."""
    gen, violations = rng(seed), 0
    gaps: dict[int, list[float]] = {10: [], 100: [], 1000: []}
    for case in range(cases):
        n, d = int(gen.integers(2, 13)), int(gen.integers(1, 7))
        one, X = AttentionHead(A=_normal(gen, d, d), V=_normal(gen, d, d)), _normal(gen, n, d)
        layer = one.layer(case % 2 == 1)
        limit = large_radius_limit(layer, X)
        violations += limit > float(torch.linalg.matrix_norm(one.V, 2)) * math.sqrt(n) * SLACK
        for r, found in gaps.items():
            found.append(abs(_exact(layer, r * X) - limit) / limit)
    return {f"gap_{r}": float(np.median(found)) for r, found in gaps.items()} | {"violations": float(violations)}


def ascent(seed: int, layers: int, n: int, steps: int) -> Metrics:
    """In how many random layers ascent beats the best of its starts by 1 %, and how far it stays below U3."""
    improved, ratios = 0, []
    for draw in spawn(seed, layers):
        gen = rng(draw)
        heads = [AttentionHead(A=0.5 * _normal(gen, 6, 6), V=_normal(gen, 6, 6)) for _ in range(3)]
        layer = AttentionLayer(heads, causal=bool(gen.integers(2)))
        start = worst_case(layer, n, 1.5, steps=0, seed=draw).value
        end = worst_case(layer, n, 1.5, steps=steps, seed=draw).value
        improved += end > 1.01 * start
        ratios.append(bound_table(layer, n, 1.5).sharp / end)
    return {"improved": float(improved), "layers": float(layers), "bound_over_worst": float(np.median(ratios))}
