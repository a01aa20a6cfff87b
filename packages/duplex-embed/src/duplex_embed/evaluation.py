"""The four link tasks, with one embedding, and the slices of low-degree nodes (paper, § experiments)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from offprints.checks import require_choice
from offprints.seeding import rng
from sklearn.metrics import roc_auc_score

from duplex_embed.graph import Graph
from duplex_embed.pairs import BOTH, FORWARD, NONE, REVERSE
from duplex_embed.splits import PairSet

TASKS = ("existence", "direction", "three", "type")
SLICES = ("low_in", "low_out", "low")
COLUMNS = {"three": (REVERSE, FORWARD, NONE), "type": (REVERSE, FORWARD, BOTH, NONE)}


class Scorer(Protocol):
    """What scores pairs; see `LinkModel`."""

    def predict_edges(self, pairs: torch.Tensor, task: str = "type") -> np.ndarray:
        """Scores of the pairs."""
        ...


class LinkModel(Protocol):
    """What can be evaluated: DUPLEX and every baseline.

    `graph` is the graph of training edges. `predict_edges(pairs, task)` gives (m,) scores for "existence" (an edge
    u->v) and "direction" (u->v rather than v->u), (m, 3) or (m, 4) for "three" and "type"; a model without type
    read-out raises `NotImplementedError` there.
    """

    @property
    def graph(self) -> Graph:
        """The training graph."""
        ...

    def predict_edges(self, pairs: torch.Tensor, task: str = "type") -> np.ndarray:
        """Scores of the pairs."""
        ...


@dataclass(frozen=True)
class Task:
    """(m, 2) pairs and their (m,) labels."""

    pairs: torch.Tensor
    labels: np.ndarray


@dataclass
class LinkReport:
    """What `evaluate` found.

    Attributes:
        scores: by name: `ep_auc`, `dp_auc`, `type3_accuracy`, `type4_accuracy`, `type4_auc` (types in equal
            numbers), `natural_accuracy` (of the four types, over all test pairs), and AUCs by slice.
        counts: test pairs behind each.
        notes: what could not be measured, and why.
        protocol: whether test edges carried messages.
    """

    scores: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    protocol: str = ""

    def __getitem__(self, name: str) -> float:
        return self.scores[name]

    def __str__(self) -> str:
        rows = [f"{name:<18} {value:.4f}  ({self.counts[name]} pairs)" for name, value in self.scores.items()]
        return "\n".join([f"protocol: {self.protocol}", *rows, *self.notes])


def link_tasks(test: PairSet, seed: int = 0) -> dict[str, Task]:
    """The four test sets of the paper, § experiments, from one set of pairs; a task without pairs is left out.

    existence: with m = floor((one-way + both) / 3), m one-way pairs are turned around and m non-edges added (label 0),
    the other pairs have label 1. direction: one-way pairs, half of them turned around. three and type: reverse,
    forward, (both,) none in equal numbers, by leaving out.
    """
    generator = rng(seed)
    pairs, types = test.pairs, test.types
    one_way = torch.cat((pairs[types == FORWARD], pairs[types == REVERSE].flip(1)))
    one_way = one_way[torch.from_numpy(generator.permutation(len(one_way)))]
    both, none = pairs[types == BOTH], pairs[types == NONE]
    found: dict[str, Task] = {}
    m = min((len(one_way) + len(both)) // 3, len(none), len(one_way))
    if m:
        there = torch.cat((one_way[m:], both))
        found["existence"] = _task([there, torch.cat((one_way[:m].flip(1), none[:m]))], [1, 0])
    half = len(one_way) // 2
    if half:
        found["direction"] = _task([one_way[:half], one_way[half : 2 * half].flip(1)], [1, 0])
    groups = {REVERSE: one_way[half : 2 * half].flip(1), FORWARD: one_way[:half], BOTH: both, NONE: none}
    for name, columns in COLUMNS.items():
        chosen = [c for c in columns if len(groups[c])]
        least = min((len(groups[c]) for c in chosen), default=0)
        kept = [groups[c][torch.from_numpy(generator.permutation(len(groups[c]))[:least])] for c in chosen]
        if len(chosen) > 1:
            found[name] = _task(kept, chosen)
    return found


def _task(groups: Sequence[torch.Tensor], labels: Sequence[int]) -> Task:
    return Task(torch.cat(list(groups)), np.repeat(labels, [len(group) for group in groups]))


def low_degree(graph: Graph, pairs: torch.Tensor) -> dict[str, torch.Tensor]:
    """(m,) booleans: whose target has no in-edge in training, whose source has no out-edge, and either ("low")."""
    into, out = graph.degrees()
    low_in, low_out = into[pairs[:, 1]] == 0, out[pairs[:, 0]] == 0
    return {"low_in": low_in, "low_out": low_out, "low": low_in | low_out}


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve; NaN where there is one class only."""
    # pyrefly: ignore[bad-argument-type]
    return float(roc_auc_score(labels, scores)) if 0 < labels.sum() < len(labels) else float("nan")


def validation_auc(model: "Scorer", val: PairSet) -> float:
    """What models are chosen by: the mean of existence and direction AUC; without either, accuracy of the types."""
    tasks = link_tasks(val)
    found = [
        auc(tasks[name].labels, model.predict_edges(tasks[name].pairs, name))
        for name in ("existence", "direction")
        if name in tasks
    ]
    found = [score for score in found if not np.isnan(score)]
    if found:
        return float(np.mean(found))
    return float((model.predict_edges(val.pairs).argmax(1) == val.types.numpy()).mean())


def evaluate(
    model: LinkModel, test: PairSet, slices: Sequence[str] = ("low_in", "low_out"), seed: int = 0
) -> LinkReport:
    """Measure a model on the four link tasks.

    Args:
        model: DUPLEX or a baseline, fitted.
        test: of `split_edges`.
        slices: of existence: "low_in" (target without training in-edge), "low_out" (source without training
            out-edge), "low" (either).
        seed: of the test sets.

    Raises:
        ValueError: if a slice is unknown, or nothing can be measured.
    """
    for name in slices:
        require_choice("slices", name, SLICES)
    report = LinkReport(protocol=test.protocol)
    tasks = link_tasks(test, seed)
    if not tasks:
        raise ValueError("test must hold pairs of at least two types, got " + f"{len(test)} pairs of fewer.")
    if "existence" in tasks:
        _existence(model, tasks["existence"], slices, report)
    else:
        report.notes.append("existence: no one-way edges or no non-edges among the test pairs")
    if "direction" in tasks:
        task = tasks["direction"]
        _note(report, "dp_auc", auc(task.labels, model.predict_edges(task.pairs, "direction")), len(task.pairs))
    else:
        report.notes.append("direction: no one-way edges among the test pairs")
    for name, short in (("three", "type3"), ("type", "type4")):
        if name in tasks:
            _types(model, tasks[name], name, short, report)
    _natural(model, test, report)
    if not (test.types == BOTH).any():
        report.notes.append("type: no reciprocal pairs among the test pairs, so the class 'both' is left out")
    return report


def _note(report: LinkReport, name: str, value: float, count: int) -> None:
    if np.isnan(value):
        report.notes.append(f"{name}: one class only among {count} pairs")
    else:
        report.scores[name], report.counts[name] = value, count


def _existence(model: LinkModel, task: Task, slices: Sequence[str], report: LinkReport) -> None:
    scores = model.predict_edges(task.pairs, "existence")
    _note(report, "ep_auc", auc(task.labels, scores), len(task.pairs))
    within = low_degree(model.graph, task.pairs)
    for name in slices:
        chosen = within[name].numpy()
        _note(report, f"ep_auc_{name}", auc(task.labels[chosen], scores[chosen]), int(chosen.sum()))


def _types(model: LinkModel, task: Task, name: str, short: str, report: LinkReport) -> None:
    try:
        scores = model.predict_edges(task.pairs, name)
    except NotImplementedError:
        report.notes.append(f"{name}: the model has no read-out of types")
        return
    columns = np.array(COLUMNS[name])
    here = np.unique(task.labels)
    scores = scores[:, : len(columns)][:, np.isin(columns, here)]
    _note(report, f"{short}_accuracy", float((here[scores.argmax(1)] == task.labels).mean()), len(task.labels))
    each = [auc((task.labels == c).astype(int), scores[:, i]) for i, c in enumerate(here)]
    _note(report, f"{short}_auc", float(np.mean(each)), len(task.labels))


def _natural(model: LinkModel, test: PairSet, report: LinkReport) -> None:
    """Accuracy of the types over all test pairs, as often as they occur."""
    plain = test.types <= NONE
    try:
        scores = model.predict_edges(test.pairs[plain], "type")
    except NotImplementedError:
        return
    right = scores.argmax(1) == test.types[plain].numpy()
    _note(report, "natural_accuracy", float(right.mean()), len(right))


def degree_buckets(
    model: LinkModel, test: PairSet, edges: Sequence[int] = (0, 1, 2, 4, 8), seed: int = 0
) -> dict[str, tuple[float, int]]:
    """Existence AUC and number of test pairs by the smaller of source's out-degree and target's in-degree in training.

    Args:
        model: fitted.
        test: of `split_edges`.
        edges: lower ends of the buckets.
        seed: of the test set.

    Returns:
        Bucket -> (AUC, pairs); buckets of one class only are left out.
    """
    task = link_tasks(test, seed)["existence"]
    into, out = model.graph.degrees()
    least = torch.minimum(out[task.pairs[:, 0]], into[task.pairs[:, 1]]).numpy()
    scores = model.predict_edges(task.pairs, "existence")
    found = {}
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        chosen = (least >= low) & (least < high)
        value = auc(task.labels[chosen], scores[chosen])
        name = f"{low}+" if high == np.inf else f"{low}" if high == low + 1 else f"{low}-{int(high) - 1}"
        if not np.isnan(value):
            found[name] = (value, int(chosen.sum()))
    return found
