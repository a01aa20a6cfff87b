"""Graphviz, Mermaid and networkx views of the automaton (the drawings of Section 3: user states blue, system green).

Tags and names come from logs and models, so every label is escaped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dfa_rag.automaton import Automaton
from dfa_rag.data import USER
from dfa_rag.tree import TURN_END

if TYPE_CHECKING:
    import networkx

COLOURS = {"user": ("#cfe3f5", "#0072B2"), "system": ("#d3efe3", "#009E73")}


def written(text: str, path: str | Path | None) -> str:
    """The text, also in a file if a path is given."""
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def dot_label(text: str) -> str:
    """A quoted string of the DOT language, in which no backslash escape is left to work."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def mermaid_label(text: str) -> str:
    """A quoted Mermaid label: every sign but letters, digits, spaces and -_.,? as a character code."""
    safe = [c if c.isalnum() or c in " -_.,?" else f"#{ord(c)};" for c in text.replace("\n", " ")]
    return '"' + "".join(safe) + '"'


def dot(lists: Automaton) -> str:
    """DOT source: entry states as boxes, states inside a turn as points, edge width by passes."""
    most = max((n for passes in lists.passes for n in passes.values()), default=1)
    lines = ["digraph dialogue {", '  rankdir="LR";', '  node [fontname="Helvetica", style="filled"];']
    for q, name in enumerate(lists.names):
        fill, line = COLOURS[lists.roles[q]]
        shape = "box" if lists.entry[q] else "ellipse"
        double = 2 if len(lists.ends[q]) else 1
        label = dot_label(f"{name} ({lists.support[q]})")
        lines.append(
            f'  n{q} [label={label}, shape="{shape}", fillcolor="{fill}", color="{line}", peripheries={double}];'
        )
    for q, edges in enumerate(lists.children):
        for letter, child in edges.items():
            label = dot_label("" if letter == TURN_END else lists.tags[letter - 1])
            passes = lists.passes[q][letter]
            style = "dashed" if letter == TURN_END else "solid"
            lines.append(f'  n{q} -> n{child} [label={label}, penwidth={1 + 4 * passes / most:.2f}, style="{style}"];')
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(lists: Automaton) -> str:
    """Mermaid flowchart source: rectangles for entry states, rounded for those inside a turn; dotted = end of turn."""
    lines = ["flowchart LR"]
    for q, name in enumerate(lists.names):
        label = mermaid_label(f"{name}, {lists.support[q]}")
        lines.append(f"  n{q}[{label}]" if lists.entry[q] else f"  n{q}({label})")
    for q, edges in enumerate(lists.children):
        for letter, child in edges.items():
            if letter == TURN_END:
                lines.append(f"  n{q} -.-> n{child}")
            else:
                lines.append(f"  n{q} -->|{mermaid_label(lists.tags[letter - 1])}| n{child}")
    for role, (fill, line) in COLOURS.items():
        lines.append(f"  classDef {role} fill:{fill},stroke:{line}")
        members = [f"n{q}" for q, own in enumerate(lists.roles) if own == role]
        if members:
            lines.append(f"  class {','.join(members)} {role}")
    return "\n".join(lines) + "\n"


def to_networkx(content: Mapping) -> "networkx.MultiDiGraph":
    """The document of an automaton as a graph: states are nodes, transitions edges, the rest hangs on the graph."""
    import networkx

    rest = {name: value for name, value in content.items() if name not in ("states", "transitions")}
    graph = networkx.MultiDiGraph(**json.loads(json.dumps(rest)))
    for record in content["states"]:
        accepting = bool(record["ends"])
        graph.add_node(record["id"], **{k: v for k, v in record.items() if k != "id"}, accepting=accepting)
    for edge in content["transitions"]:
        graph.add_edge(edge["from"], edge["to"], tag=edge["tag"], passes=edge["passes"])
    return graph


def from_networkx(graph: "networkx.MultiDiGraph") -> dict:
    """The document of a graph that `to_networkx` made.

    Raises:
        ValueError: if its nodes are not 0, 1, …, or one lacks what the document needs.
    """
    if sorted(graph.nodes) != list(range(len(graph))):
        raise ValueError("the nodes of graph must be the states 0, 1, …, got others. Start from to_networkx().")
    states = [{"id": q} | {k: v for k, v in graph.nodes[q].items() if k != "accepting"} for q in range(len(graph))]
    edges = [
        {"from": p, "tag": data.get("tag"), "to": q, "passes": data.get("passes", 0)}
        for p, q, data in graph.edges(data=True)
    ]
    edges.sort(key=lambda edge: (edge["from"], edge["tag"] is not None, edge["tag"] or ""))
    return dict(graph.graph) | {"states": states, "transitions": edges}


def layout(lists: Automaton, busiest: int = 0) -> tuple[list[int], dict[int, tuple[float, float]]]:
    """Entry states and their places for a drawing: columns by turns from the start, rows by support.

    Args:
        lists: the automaton.
        busiest: keep only so many entry states, those with the largest support; 0 keeps all.
    """
    column, queue = {0: 0}, [0]
    while queue:
        q = queue.pop(0)
        for path in lists.turn_paths(q):
            if path.to >= 0 and path.to not in column:
                column[path.to] = column[q] + 1
                queue.append(path.to)
    kept = sorted(column, key=lambda q: (-lists.support[q], q))[: busiest or None]
    rows: dict[int, int] = {}
    places = {}
    for q in kept:
        row = rows.get(column[q], 0)
        rows[column[q]] = row + 1
        places[q] = (float(column[q]), float(-row if lists.roles[q] == USER else -row - 0.35))
    return kept, places
