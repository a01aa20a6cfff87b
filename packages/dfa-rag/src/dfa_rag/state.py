"""The automaton of Section 3 as a JSON document, and back: what saving, editing by hand and graphs share."""

import json
import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from offprints import checkpoint

from dfa_rag._version import DIST, VERSION
from dfa_rag.automaton import Automaton
from dfa_rag.merging import Merge
from dfa_rag.schema import SETTINGS, check_document
from dfa_rag.tree import TURN_END

if TYPE_CHECKING:
    from dfa_rag.dfa import DialogueDFA

FORMAT = "dfa-rag.automaton/1"


def document(dfa: "DialogueDFA") -> dict:
    """Everything but the texts, as JSON values. A similarity of the user's own is written as "custom"."""
    lists = dfa.automaton
    settings = {name: getattr(dfa, name) for name in SETTINGS}
    if callable(settings["similarity"]):
        settings["similarity"] = "custom"
    states = [
        {
            "id": q, "name": lists.names[q], "role": lists.roles[q], "entry": lists.entry[q],
            "support": lists.support[q], "forbidden": q in lists.forbidden, "merge_into": None,
            "examples": list(lists.examples[q]), "visits": lists.visits[q].tolist(), "ends": lists.ends[q].tolist(),
        }
        for q in range(len(lists))
    ]  # fmt: skip
    tags = [None, *lists.tags]
    edges = [
        {"from": q, "tag": tags[letter], "to": child, "passes": lists.passes[q][letter]}
        for q, children in enumerate(lists.whole)
        for letter, child in sorted(children.items())
    ]
    return {
        "format": FORMAT, "settings": settings, "threshold": dfa.threshold, "tags": lists.tags, "states": states,
        "transitions": edges, "dialogues": lists.dialogues,
        "training": [[list(turn) for turn in dfa._training[name]] for name in lists.dialogues],
        "merges": [list(merge) for merge in dfa.merge_history],
        "joined": [[list(place) for place in pair] for pair in dfa._joined],
    }  # fmt: skip


def from_document(dfa: "DialogueDFA", content: Mapping, where: str) -> "DialogueDFA":
    """Fill a fresh `DialogueDFA` from a document, and apply the edits in it: forbidden, then merge_into.

    Raises:
        ValueError: listing all that is wrong with it.
    """
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        got = content.get("format") if isinstance(content, Mapping) else type(content).__name__
        raise ValueError(f"{where} must hold an automaton of format {FORMAT!r}, got {got!r}.")
    check_document(content, where)
    states, edges = content["states"], content["transitions"]
    settings = dict(content["settings"])
    if settings.get("similarity") == "custom":
        settings["similarity"] = "lookahead"
    try:
        dfa.__init__(**settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: settings: {error}") from error
    codes = {tag: code for code, tag in enumerate(content["tags"], 1)} | {None: TURN_END}
    children: list[dict[int, int]] = [{} for _ in states]
    passes: list[dict[int, int]] = [{} for _ in states]
    for edge in edges:
        children[edge["from"]][codes[edge["tag"]]] = edge["to"]
        passes[edge["from"]][codes[edge["tag"]]] = edge["passes"]
    dfa._automaton = Automaton(
        list(content["tags"]), children, passes, [s["role"] for s in states], [bool(s["entry"]) for s in states],
        [np.array(s["visits"], dtype=np.int64).reshape(-1, 2) for s in states],
        [np.array(s["ends"], dtype=np.int64) for s in states], [s["name"] for s in states],
        {q for q, s in enumerate(states) if s["forbidden"]}, [tuple(s["examples"]) for s in states],
        list(content["dialogues"]),
    )  # fmt: skip
    dfa.threshold = content.get("threshold")
    pairs = zip(content["dialogues"], content["training"], strict=True)
    dfa._training = {name: [tuple(turn) for turn in turns] for name, turns in pairs}
    dfa.merge_history = [Merge(*merge) for merge in content.get("merges", [])]
    dfa._joined = [((a[0], a[1]), (b[0], b[1])) for a, b in content.get("joined", [])]
    for name, into in [(s["name"], s["merge_into"]) for s in states if s.get("merge_into") is not None]:
        if name in dfa.automaton.names and into in dfa.automaton.names:  # an earlier merge may have folded it in
            dfa.merge_states(dfa.state(into), dfa.state(name))
    return dfa


def to_json(dfa: "DialogueDFA") -> str:
    """The document, one line a state or transition."""
    content = document(dfa)
    lines = ["{"]
    for name, value in content.items():
        if isinstance(value, list) and value:
            rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f' "{name}": [\n{rows}\n ],')
        else:
            lines.append(f' "{name}": {json.dumps(value, ensure_ascii=False)},')
    lines[-1] = lines[-1].rstrip(",")
    return "\n".join([*lines, "}"]) + "\n"


def from_json(dfa: "DialogueDFA", source: str | Path) -> "DialogueDFA":
    """Read a document, from a file or from the text itself."""
    inline = isinstance(source, str) and source.lstrip().startswith("{")
    where = "the text" if inline else str(source)
    text = source if inline else Path(source).read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}:{error.lineno}: not JSON ({error.msg}).") from error
    return from_document(dfa, content, where)


def save(dfa: "DialogueDFA", path: str | Path) -> Path:
    """Arrays as tensors, the rest as the checkpoint's configuration."""
    content, tensors = document(dfa), {}
    for field in ("visits", "ends"):
        parts = [np.array(s.pop(field), dtype=np.int64) for s in content["states"]]
        width = (-1, 2) if field == "visits" else (-1,)
        tensors[field] = np.concatenate([part.reshape(width) for part in parts])
        tensors[f"{field}_offsets"] = np.cumsum([0, *(len(part) for part in parts)])
    codes = dfa.automaton.codes
    turns = [turn for turns in content.pop("training") for turn in turns]
    tensors["training"] = np.array([codes[tag] for turn in turns for tag in turn], dtype=np.int64)
    tensors["training_turns"] = np.cumsum([0, *map(len, turns)])
    rounds = [len(dfa._training[name]) for name in content["dialogues"]]
    tensors["training_dialogues"] = np.cumsum([0, *rounds])
    return checkpoint.save(path, tensors, method=DIST, version=VERSION, config=content)


def load(dfa: "DialogueDFA", path: str | Path) -> "DialogueDFA":
    """Read what `save` wrote."""
    read = checkpoint.load(path, method=DIST)
    _warn_of_edits(path, read.config)
    content: dict[str, Any] = dict(read.config)
    try:
        _unpack(content, {name: np.asarray(value) for name, value in read.tensors.items()})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must hold an automaton as `save` writes it, got one with a fault: {error}."
        ) from error
    return from_document(dfa, content, str(path))


def _unpack(content: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Put what `save` wrote as tensors back into the document."""
    for field in ("visits", "ends"):
        bounds = pairwise(tensors[f"{field}_offsets"].tolist())
        for record, (a, b) in zip(content["states"], bounds, strict=True):
            record[field] = tensors[field][a:b].tolist()
    tags, codes = content["tags"], tensors["training"].tolist()
    turns = [[tags[code - 1] for code in codes[a:b]] for a, b in pairwise(tensors["training_turns"].tolist())]
    content["training"] = [turns[a:b] for a, b in pairwise(tensors["training_dialogues"].tolist())]


def _warn_of_edits(path: str | Path, config: Mapping) -> None:
    """The JSON beside the tensors is for reading: what somebody changed there would be lost without a word."""
    sidecar = Path(str(path).removesuffix(".json").removesuffix(".safetensors") + ".json")
    try:
        beside = json.loads(sidecar.read_text(encoding="utf-8"))["config"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        beside = None
    if beside != config:
        warnings.warn(
            f"{sidecar} differs from the tensor file beside it, which alone is read. Edit what to_json() writes and "
            "read it with from_json().", stacklevel=4,
        )  # fmt: skip
