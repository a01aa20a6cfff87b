"""What an automaton's JSON document must look like, checked before one is built from it: people edit it (Section 3)."""

from collections.abc import Mapping

import numpy as np
from offprints.checks import Problems

from dfa_rag.data import ROLES

SETTINGS = ("min_support", "merge_threshold", "similarity", "lookahead", "max_states", "on_repeat", "min_share")
KINDS = {
    "settings": Mapping, "tags": list, "states": list, "transitions": list, "dialogues": list, "training": list,
    "merges": list, "joined": list,
}  # fmt: skip
LATER = ("merges", "joined")
"""Fields that may be missing."""


def check_document(content: Mapping, where: str) -> None:
    """Check the fields of a document, then its states, transitions and training tags (Section 3).

    Raises:
        ValueError: listing all that is wrong with it.
    """
    missing = [name for name in KINDS if name not in content and name not in LATER]
    if missing:
        raise ValueError(f"{where}: the fields {', '.join(missing)} are missing.")
    with Problems(f"cannot read {where}") as problems:
        for name, kind in KINDS.items():
            if name in content and not isinstance(content[name], kind):
                wanted = "a list" if kind is list else "an object"
                problems.add(f"the field {name!r} must be {wanted}, got {type(content[name]).__name__}")
        for name in ("states", "transitions"):
            if isinstance(content[name], list) and not all(isinstance(part, Mapping) for part in content[name]):
                problems.add(f"the field {name!r} must hold objects only")
        for name in ("tags", "dialogues"):
            if not _texts(content[name]) or len(set(content[name])) < len(content[name]):
                problems.add(f"the field {name!r} must be a list of different strings")
    with Problems(f"cannot read {where}") as problems:
        if unknown := sorted(map(str, set(content["settings"]) - set(SETTINGS))):
            problems.add(f"settings: there is no {', '.join(unknown)}")
        _check_states(content, problems)
        _check_transitions(content, problems)
        _check_history(content, problems)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _check_states(content: Mapping, problems: Problems) -> None:
    """Ids, names, roles and the passes of training dialogues."""
    states, dialogues = content["states"], len(content["dialogues"])
    names = [s.get("name") for s in states]
    if not states:
        problems.add("there are no states")
    for q, s in enumerate(states):
        lacking = [f for f in ("name", "role", "entry", "visits", "ends", "examples", "forbidden") if f not in s]
        if lacking:
            problems.add(f"state {q}: the fields {', '.join(lacking)} are missing")
            continue
        if s["role"] not in ROLES:
            problems.add(f"state {q}: role must be 'user' or 'system', got {s['role']!r}")
        if isinstance(s.get("id"), bool) or s.get("id") != q:
            problems.add(f"state {q}: id must be {q}, its place in the list, got {s.get('id')!r}")
        if not isinstance(s["name"], str) or not s["name"] or names.count(s["name"]) > 1:
            problems.add(f"state {q}: name must be its own and not empty, got {s['name']!r}")
        if s.get("merge_into") is not None and s["merge_into"] not in names:
            problems.add(f"state {q}: merge_into must name a state, got {s['merge_into']!r}")
        for field in ("entry", "forbidden"):
            if not isinstance(s[field], bool):
                problems.add(f"state {q}: {field} must be true or false, got {s[field]!r}")
        if not _texts(s["examples"]):
            problems.add(f"state {q}: examples must be a list of strings, got {s['examples']!r:.60}")
        for field, width in (("visits", 2), ("ends", 1)):
            if not _places(s[field], width, dialogues):
                problems.add(f"state {q}: {field} must hold places in the list of dialogues, got {s[field]!r:.60}")


def _places(value: object, width: int, dialogues: int) -> bool:
    """Whether a list holds numbers of dialogues, or pairs of such a number and a round."""
    if not isinstance(value, list):
        return False
    try:
        found = np.array(value).reshape(-1, width) if value else np.zeros((0, width), dtype=int)
    except ValueError:  # ragged
        return False
    known = found.dtype.kind == "i" and not (found < 0).any() and (found[:, 0] < dialogues).all()
    return bool(known and len(found) == len(value))


def _check_transitions(content: Mapping, problems: Problems) -> None:
    """Ends, tags and passes of the edges; one a letter; the role changes behind the end of a turn, and only there."""
    states, known, seen = content["states"], {None, *content["tags"]}, set()
    for k, edge in enumerate(content["transitions"]):
        ends, tag, passes = [edge.get("from"), edge.get("to")], edge.get("tag", ""), edge.get("passes")
        if not all(type(q) is int and 0 <= q < len(states) for q in ends) or not (
            tag is None or (isinstance(tag, str) and tag in known)
        ):
            problems.add(f"transition {k}: from, to and tag must name states and a tag (or null), got {edge}")
            continue
        source, target = (states[q] for q in ends)
        if (ends[0], tag) in seen:
            problems.add(f"transition {k}: state {ends[0]} has two edges on {tag!r}; merge their targets")
        elif (source.get("role") == target.get("role")) is (tag is None):
            problems.add(f"transition {k}: the role must change at the end of a turn (tag null), and only there")
        elif target.get("entry") is not (tag is None):
            problems.add(f"transition {k}: entry must be true behind the end of a turn (tag null), and only there")
        if type(passes) is not int or passes < 0:
            problems.add(f"transition {k}: passes must be a number of turns, got {passes!r}")
        seen.add((ends[0], tag))


def _check_history(content: Mapping, problems: Problems) -> None:
    """Tags of the training dialogues, and what was merged."""
    training, known = content["training"], set(content["tags"])
    if len(training) != len(content["dialogues"]):
        problems.add(f"training must hold {len(content['dialogues'])} dialogues, got {len(training)}")
    for k, turns in enumerate(training):
        if not isinstance(turns, list) or not all(_texts(turn) and known.issuperset(turn) for turn in turns):
            problems.add(f"training {k}: must be a list of turns, each a list of tags, got {turns!r:.60}")
    for k, merge in enumerate(content.get("merges", [])):
        if not isinstance(merge, list) or len(merge) != 4 or not all(isinstance(n, int | float) for n in merge):
            problems.add(f"merges {k}: must be four numbers, got {merge!r:.60}")
    for k, pair in enumerate(content.get("joined", [])):
        places = pair if isinstance(pair, list) and len(pair) == 2 else [None]
        if not all(isinstance(p, list) and [type(v) for v in p] == [str, int] for p in places):
            problems.add(f"joined {k}: must be two pairs of dialogue and round, got {pair!r:.60}")
    if not (content.get("threshold") is None or isinstance(content["threshold"], int | float)):
        problems.add(f"threshold must be a number or null, got {content['threshold']!r:.60}")
