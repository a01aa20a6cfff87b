"""The equations of the paper as they stand, one node and message at a time; slow. It uses nothing of the package."""

import math

import torch

TARGETS = ((0.0, -1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0))
"""(re, im) of the types reverse, forward, both, none: the entries -i, i, 1, 0 of H."""


def hermitian(edges: list[tuple[int, int]], n: int) -> torch.Tensor:
    """The Hermitian adjacency matrix (paper, § of that name), (n, n) complex128."""
    present = {(u, v) for u, v in edges if u != v}
    h = torch.zeros(n, n, dtype=torch.complex128)
    for u in range(n):
        for v in range(n):
            there, back = (u, v) in present, (v, u) in present
            # pyrefly: ignore[unsupported-operation]
            h[u, v] = 1 if there and back else 1j if there else -1j if back else 0
    return h


def messages(edges: list[tuple[int, int]], n: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Sender, receiver -> (w_am, w_ph): phases of in-neighbours add up, those of out-neighbours are subtracted."""
    h = hermitian(edges, n)
    found = {}
    for u in range(n):
        found[u, u] = (1.0, 1.0)
        for v in range(n):
            if h[u, v] != 0:
                found[u, v] = (1.0, float(h[u, v].imag))
    return found


def decode(a: torch.Tensor, th: torch.Tensor, u: int, v: int) -> complex:
    """Entry (u, v) of the modelled H: sum over k of a_uk a_vk exp(i (th_uk - th_vk))."""
    return complex(sum(a[u, k] * a[v, k] * torch.exp(1j * (th[u, k] - th[v, k])) for k in range(a.shape[1])))


def loss(
    a: torch.Tensor, th: torch.Tensor, pairs: list[tuple[int, int]], types: list[int], ratio: float, lam: float
) -> float:
    """Cross entropy of the types with weights (1, 1, 1, 1/ratio), plus lam times that of "any edge"."""
    total = mass = connected = 0.0
    for (u, v), kind in zip(pairs, types, strict=True):
        entry = decode(a, th, u, v)
        logits = [-math.sqrt((entry.real - re) ** 2 + (entry.imag - im) ** 2 + 1e-12) for re, im in TARGETS]
        log_p = logits[kind] - math.log(sum(math.exp(x) for x in logits))
        weight = 1 / ratio if kind == 3 else 1.0
        total, mass = total - weight * log_p, mass + weight
        strength = float(sum(a[u] * a[v]))
        p = 1 / (1 + math.exp(-strength))
        connected -= math.log(p if kind != 3 else 1 - p)
    return total / mass + lam * connected / len(pairs)


def attention(
    x: torch.Tensor,
    w: torch.Tensor,
    att_src: torch.Tensor,
    att_dst: torch.Tensor,
    bias: torch.Tensor,
    edges: dict[tuple[int, int], float],
) -> torch.Tensor:
    """One graph attention with weights behind the softmax, one head: (n, o).

    Args:
        x: (n, f).
        w: (f, o).
        att_src: (o,).
        att_dst: (o,).
        bias: (o,).
        edges: sender, receiver -> weight.
    """
    h = x @ w
    rows = []
    for v in range(len(x)):
        senders = [u for u, receiver in edges if receiver == v]
        scores = [torch.nn.functional.leaky_relu(att_src @ h[u] + att_dst @ h[v], 0.2) for u in senders]
        alpha = torch.softmax(torch.stack(scores), 0) if senders else []
        heard = [alpha[i] * edges[u, v] * h[u] for i, u in enumerate(senders)]
        rows.append(sum(heard, torch.zeros_like(bias)) + bias)
    return torch.stack(rows)
