"""The paper's Section 3 written out: prefix tree, φ_sim, look-ahead, merging of all pairs, walking. Slow and obvious.

States are sets of dialogue ids in plain dictionaries; nothing is indexed or remembered. "⊣" ends a turn; a tag is held
as ("tag", name), so that it cannot be the end.
"""

import math

END = ("end",)


class State:
    """A state: successors by letter, I(q), the passes through each edge, role, whether a turn begins here."""

    def __init__(self, role: int, entry: bool, ids: set) -> None:
        self.next: dict = {}
        self.passes: dict = {}
        self.role, self.entry, self.ids, self.ends = role, entry, set(ids), set()


def letters(state: State) -> set:
    """T(q) = letters with a successor at q."""
    return set(state.next)


def tree(dialogues: dict, tau: int, share: float | None = None) -> State:
    """Step 2. `dialogues`: id -> list of sets of tags, the user's first; with a share, rarer branches too."""

    def build(q: State, r: int, remaining: dict) -> None:
        rest = dict(remaining)
        enough = tau if share is None else min(tau, max(3, math.ceil(share * len(rest) - 1e-9)))
        while True:
            every = sorted({t for tags in rest.values() for t in tags})
            counted = [(-len([i for i in rest if t in rest[i]]), t) for t in every]
            if not counted or -min(counted)[0] < enough:
                break
            t = min(counted)[1]
            ids = {i for i in rest if t in rest[i]}
            c = q.next["tag", t] = State(r % 2, False, ids)
            q.passes["tag", t] = len(ids)
            build(c, r, {i: rest[i] - {t} for i in ids})
            rest = {i: tags for i, tags in rest.items() if i not in ids}
        going = {i for i in rest if r + 1 < len(dialogues[i])}
        q.ends = set(rest) - going
        if going:
            e = q.next[END] = State((r + 1) % 2, True, going)
            q.passes[END] = len(going)
            build(e, r + 1, {i: set(dialogues[i][r + 1]) for i in going})

    start = State(0, True, set(dialogues))
    build(start, 0, {i: set(turns[0]) for i, turns in dialogues.items()})
    return start


def phi_sim(q: State, other: State) -> float:
    """Σ_{t ∈ T(q) ∩ T(q')} |I(δ(q,t))| |I(δ(q',t))| / (Σ_{t ∈ T(q)} |I(δ(q,t))| · Σ_{t ∈ T(q')} |I(δ(q',t))|)."""
    top = sum(len(q.next[t].ids) * len(other.next[t].ids) for t in letters(q) & letters(other))
    below = sum(len(q.next[t].ids) for t in letters(q)) * sum(len(other.next[t].ids) for t in letters(other))
    return top / below if below else 0.0


def phi_ahead(q: State, other: State, k: int) -> float:
    """cos(n_q, n_q') Σ_t w_t φ_{k-1}(δ(q,t), δ(q',t)) / Σ_t w_t, w_t = min(n_q(t), n_q'(t)), shared t; φ_0 = 1."""
    if k == 0:
        return 1.0
    if not letters(q) or not letters(other):
        return 1.0 if not letters(q) and not letters(other) else 0.0
    shared = letters(q) & letters(other)
    if not shared:
        return 0.0
    dot = sum(q.passes[t] * other.passes[t] for t in shared)
    norms = sum(n**2 for n in q.passes.values()) * sum(n**2 for n in other.passes.values())
    w = {t: min(q.passes[t], other.passes[t]) for t in shared}
    ahead = sum(w[t] * phi_ahead(q.next[t], other.next[t], k - 1) for t in shared) / sum(w.values())
    return dot / norms**0.5 * ahead


def fold(p: State, q: State) -> list:
    """I(p) ∪= I(q); for each letter of q: both have it, then fold the successors too; else move the edge."""
    touched = [p]
    p.ids |= q.ids
    p.ends |= q.ends
    for t in letters(q):
        p.passes[t] = p.passes.get(t, 0) + q.passes[t]
        if t in p.next:
            touched += fold(p.next[t], q.next[t])
        else:
            p.next[t] = q.next[t]
    return touched


def order(letter: tuple) -> tuple:
    """⊣ first, then tags in lexicographic order."""
    return (0, "") if letter == END else (1, letter[1])


def merge(start: State, similarity, threshold: float) -> State:
    """Step 3 in red-blue order: each new entry state is compared with all red entry states of its role."""
    red, queue = [start], [start]
    while queue:
        q = queue.pop(0)
        for t in sorted(letters(q), key=order):
            c = q.next[t]
            if any(c is r for r in red):
                continue
            top, best = 0.0, None
            for r in red if c.entry else []:
                if r.entry and r.role == c.role:
                    value = round(similarity(r, c), 12)
                    if value > top:
                        top, best = value, r
            if best is not None and top >= threshold:
                q.next[t] = best
                touched = fold(best, c)
                queue += [r for r in red if any(r is s for s in touched)]
            else:
                red.append(c)
                queue.append(c)
    return start


def reachable(start: State) -> list:
    """All states, breadth first, letters in order."""
    found, queue = [start], [start]
    while queue:
        q = queue.pop(0)
        for t in sorted(letters(q), key=order):
            if not any(q.next[t] is s for s in found):
                found.append(q.next[t])
                queue.append(q.next[t])
    return found


def step(q: State, tags: set) -> tuple:
    """Step 4: again and again the available letter with the largest |I(δ(q,t))|, then ⊣; (state, matched)."""
    matched = []
    while True:
        here = sorted((-len(q.next["tag", t].ids), t) for t in tags - set(matched) if ("tag", t) in q.next)
        if not here:
            break
        matched.append(here[0][1])
        q = q.next["tag", here[0][1]]
    return q.next.get(END, q), matched


def forward(start: State, turns: list, drop: float, insert: float, letters_of_role: list) -> dict:
    """The posterior over states after some turns, whose tags were dropped and inserted (no restarts); start known.

    P(tags | path through one turn with letters P) = Π_{t ∈ P} (1 - d if t seen, else d) · Π_{t seen, not in P} i / |Σ|.
    """
    belief = {id(start): (start, 1.0)}
    for place, tags in enumerate(turns):
        after: dict = {}
        for q, p in belief.values():
            pending = [(q, set(), 1.0)]
            while pending:
                x, path, share = pending.pop()
                total = sum(x.passes.values()) + len(x.ends)
                for t, child in x.next.items():
                    part = share * x.passes[t] / total
                    if t != END:
                        pending.append((child, path | {t[1]}, part))
                        continue
                    seen = (1 - drop) ** len(path & tags) * drop ** len(path - tags)
                    extra = (insert / letters_of_role[place % 2]) ** len(tags - path)
                    _, before = after.get(id(child), (child, 0.0))
                    after[id(child)] = (child, before + p * part * seen * extra)
        total = sum(p for _, p in after.values())
        if not total:
            return {}
        belief = {key: (q, p / total) for key, (q, p) in after.items()}
    return {q: p for q, p in belief.values()}
