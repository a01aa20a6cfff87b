"""Checks of what takes a graph, as `call(thing, edges, nodes)` with edges (2, E): the odd graphs of real data."""

from collections.abc import Callable

import numpy as np

from offprints.testing.conformance import Conformance, when
from offprints.testing.values import assert_close, assert_same, leaves, mapped, plain

_RING = ((0, 1, 2, 3, 4, 1, 0), (1, 2, 3, 4, 0, 3, 2))


def act(case: Conformance) -> Callable[[], object]:
    """One graph of five nodes."""
    return lambda: _run(case, _RING, 5)


def check_isolated_nodes(case: Conformance) -> None:
    """Nodes without edges."""
    _works(case, _RING, 7)


def check_self_loops(case: Conformance) -> None:
    """An edge from a node to itself."""
    _works(case, np.hstack((_RING, [[2], [2]])), 5)


def check_multi_edges(case: Conformance) -> None:
    """An edge given twice."""
    _works(case, np.hstack((_RING, [[0], [1]])), 5)


def check_empty_graph(case: Conformance) -> None:
    """No edges at all, and no nodes."""
    _works(case, np.empty((2, 0)), 3)
    _works(case, np.empty((2, 0)), 0)


def check_single_node(case: Conformance) -> None:
    """One node."""
    _works(case, np.empty((2, 0)), 1)


def check_relabelling(case: Conformance) -> None:
    """Other numbers for the nodes permute the result."""
    names = np.array([3, 0, 4, 1, 2])
    renamed = mapped(lambda x: x[names], _run(case, names[np.array(_RING)], 5))
    assert_close(renamed, _run(case, _RING, 5), case.tolerance, "the graph and its relabelling")


@when(lambda case: case.refits)
def check_refit(case: Conformance) -> None:
    """A clone made from `get_params`, and the thing itself used again, give the same."""
    thing = case.make()
    clone, edges = type(thing)(**thing.get_params()), _edges(case, _RING)
    case.call(thing, _edges(case, ((0,), (1,))), 2)
    assert_same(case.call(thing, edges, 5), case.call(clone, edges, 5), "refitted and cloned")


def _edges(case: Conformance, edges: object) -> object:
    array = np.asarray(edges, dtype=np.int64).reshape(2, -1)
    if case.framework == "numpy":
        return array
    import torch

    return torch.from_numpy(array)


def _run(case: Conformance, edges: object, nodes: int) -> object:
    return case.call(case.make(), _edges(case, edges), nodes)


def _works(case: Conformance, edges: object, nodes: int) -> None:
    """A finite result with one row for each node, or a refusal by ValueError."""
    try:
        result = _run(case, edges, nodes)
    except ValueError:
        return
    for x in leaves(result):
        assert len(x) == nodes, f"{nodes} nodes, {len(x)} rows"
        assert np.isfinite(plain(x)).all(), "NaN or inf"
