"""Loaders: dialogue JSONL, ChatML, MultiWOZ 2.x, SGD, chatterbot YAML, CSV.

They cover the data of the paper's Section 4: chats of customer-service accounts and MultiWOZ.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from offprints.checks import require_choice

from dfa_rag.data import SYSTEM, USER, Dialogue, Turn, check_dialogues

_ROLE_NAMES = {
    "user": USER, "human": USER, "customer": USER, "client": USER, "usr": USER,
    "system": SYSTEM, "assistant": SYSTEM, "agent": SYSTEM, "bot": SYSTEM, "sys": SYSTEM,
}  # fmt: skip


def load_dialogues(path: str | Path, format: str = "auto") -> list[Dialogue]:
    """Read dialogues from a file, or from all files of a folder whose suffix is known (data: Section 4 of the paper).

    A line of JSONL is {"id": "d1", "turns": [{"role": "user", "text": "hi", "tags": ["greeting"]}, …]}, tags if there
    are any; of ChatML {"messages": [{"role", "content"}, …]}. CSV has the columns dialogue_id, turn (a number), role,
    text and, if there are any, tags with `|` between them. Roles: user, human, customer …; system, assistant, agent ….

    Args:
        path: .jsonl, .json (MultiWOZ or SGD), .yml/.yaml (chatterbot), .csv; or a folder of such files.
        format: "auto" (by suffix and content), "jsonl", "chatml", "multiwoz", "sgd", "chatterbot" or "csv".

    Returns:
        The dialogues in the order of the file; a folder's in the order of names, ids prefixed by the file's stem.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file, line or dialogue, and field, if the content is not of the format, is empty, holds two
            equal ids, or a dialogue without a user turn.
    """
    require_choice("format", format, ("auto", *_READERS))
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no dialogues at {path}: there is no such file or folder.")
    if not path.is_dir():
        return check_dialogues(_read(path, format), str(path))
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES]
    found = [
        Dialogue(f"{file.stem}/{dialogue.id}", dialogue.turns, dialogue.meta)
        for file in files
        for dialogue in _read(file, format)
    ]
    return check_dialogues(found, str(path))


def save_dialogues(path: str | Path, dialogues: Sequence[Dialogue]) -> Path:
    """Write dialogues as JSONL, the native format that `load_dialogues` reads; returns the path (Section 3)."""
    path = Path(path)
    lines = []
    for dialogue in dialogues:
        turns = [{"role": turn.role, "text": turn.text, "tags": list(turn.tags)} for turn in dialogue.turns]
        record = {"id": dialogue.id, "turns": turns} | ({"meta": dict(dialogue.meta)} if dialogue.meta else {})
        lines.append(json.dumps(record, ensure_ascii=False))
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def _read(path: Path, format: str) -> list[Dialogue]:
    if format == "auto":
        format = _detect(path)
    try:
        return list(_READERS[format](path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text, got bytes that are not ({error.reason}).") from error


def _detect(path: Path) -> str:
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: the format must be told by one of {', '.join(_SUFFIXES)}, or by format=.")
    if kind != "json":
        return kind
    content = _json(path)
    if isinstance(content, Mapping) and all(isinstance(v, Mapping) and "log" in v for v in content.values()):
        return "multiwoz"
    if isinstance(content, list) and all(isinstance(v, Mapping) and "turns" in v for v in content):
        return "sgd"
    raise ValueError(f"{path} must hold MultiWOZ (id -> log) or SGD (list of dialogue_id, turns) JSON, got neither.")


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON ({error.msg}).") from error


def _field(record: object, name: str, kind: type | tuple[type, ...], where: str) -> object:
    """A field of a JSON object, of the kind it must have."""
    if not isinstance(record, Mapping):
        raise ValueError(f"{where}: must be an object with the field {name!r}, got {type(record).__name__}.")
    if name not in record:
        raise ValueError(f"{where}: the field {name!r} is missing; there are {', '.join(map(str, record)) or 'none'}.")
    value = record[name]
    if not isinstance(value, kind):
        kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"{where}: the field {name!r} must be of type {kinds}, got {type(value).__name__}.")
    return value


def _text(record: object, name: str, where: str) -> str:
    return str(_field(record, name, str, where))


def _id(record: object, where: str) -> str:
    found = _field(record, "id", (str, int), where)
    if isinstance(found, bool):
        raise ValueError(f"{where}: the field 'id' must be of type str or int, got {found}.")
    return str(found)


def _list(record: object, name: str, where: str) -> list:
    found = _field(record, name, list, where)
    return found if isinstance(found, list) else []


def _role(name: str, where: str) -> str:
    role = _ROLE_NAMES.get(name.strip().lower())
    if role is None:
        raise ValueError(f"{where}: the role must be one of {', '.join(_ROLE_NAMES)}, got {name!r}.")
    return role


def _tags(record: object, where: str) -> tuple[str, ...]:
    if not isinstance(record, Mapping) or "tags" not in record:
        return ()
    tags = _list(record, "tags", where)
    if not all(isinstance(tag, str) for tag in tags):
        raise ValueError(f"{where}: the field 'tags' must be a list of strings, got {tags!r:.80}.")
    return tuple(tags)


def _jsonl(path: Path) -> Iterator[Dialogue]:
    """Native lines {"id", "turns": [{"role", "text", "tags"}]}; a line with "messages" is read as ChatML."""
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):  # texts may hold U+2028
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON ({error.msg} at column {error.colno}).") from error
        if isinstance(record, Mapping) and "messages" in record:
            yield _chat(record, where, str(number))
            continue
        turns = []
        for place, turn in enumerate(_list(record, "turns", where), 1):
            here = f"{where}: turn {place}"
            turns.append(Turn(_role(_text(turn, "role", here), here), _text(turn, "text", here), _tags(turn, here)))
        meta = record.get("meta") or {}
        if not isinstance(meta, Mapping):
            raise ValueError(f"{where}: the field 'meta' must be an object, got {type(meta).__name__}.")
        yield Dialogue(_id(record, where), tuple(turns), meta)


def _chat(record: Mapping, where: str, number: str) -> Dialogue:
    """ChatML: messages of the role "system" are prompts and left out; "assistant" is the system's side."""
    turns = []
    for place, message in enumerate(_list(record, "messages", where), 1):
        here = f"{where}: message {place}"
        role = _text(message, "role", here)
        if role in {"system", "developer", "tool"}:
            continue
        content = message.get("content")
        if isinstance(content, list):  # content parts: the text ones
            content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
        if content is None and message.get("tool_calls"):
            continue
        if not isinstance(content, str):
            raise ValueError(f"{here}: the field 'content' must be text, got {type(content).__name__}.")
        turns.append(Turn(_role(role, here), content, _tags(message, here)))
    return Dialogue(_id(record, where) if "id" in record else number, tuple(turns))


def _multiwoz(path: Path) -> Iterator[Dialogue]:
    """MultiWOZ 2.x: {id: {"log": [{"text", "dialog_act"}], "goal"}}; even turns are the user's."""
    content = _json(path)
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: must be an object of dialogues by id, got {type(content).__name__}.")
    for name, record in content.items():
        where, turns = f"{path}: dialogue {name}", []
        for place, turn in enumerate(_list(record, "log", where)):
            tags, here = [], f"{where}: turn {place}"
            acts = turn.get("dialog_act", {}) if isinstance(turn, Mapping) else {}
            for act, slots in acts.items() if isinstance(acts, Mapping) else ():
                if not isinstance(slots, list) or not all(isinstance(pair, list) and pair for pair in slots):
                    raise ValueError(
                        f"{here}: the field 'dialog_act' must map acts to [slot, value] pairs, got {acts}."
                    )
                tags += [act if slot in ("none", "") else f"{act}-{slot}" for slot, *_ in slots or [["none"]]]
            turns.append(Turn((USER, SYSTEM)[place % 2], _text(turn, "text", here), tuple(tags)))
        meta = {"goal": record["goal"]} if "goal" in record else {}
        yield Dialogue(str(name), tuple(turns), meta)


def _sgd(path: Path) -> Iterator[Dialogue]:
    """Schema-Guided Dialogue: [{"dialogue_id", "turns": [{"speaker", "utterance", "frames": [{"actions"}]}]}]."""
    content = _json(path)
    if not isinstance(content, list):
        raise ValueError(f"{path}: must be a list of dialogues, got {type(content).__name__}.")
    for number, record in enumerate(content):
        where, turns = f"{path}: dialogue {number}", []
        name = _text(record, "dialogue_id", where)
        for place, turn in enumerate(_list(record, "turns", where)):
            here, tags = f"{where} ({name}): turn {place}", []
            for frame in _list(turn, "frames", here) if isinstance(turn, Mapping) and "frames" in turn else []:
                for action in _list(frame, "actions", here) if "actions" in frame else []:
                    act, slot = _text(action, "act", here), action.get("slot", "")
                    tags.append(f"{act}-{slot}" if slot else act)
            role = _role(_text(turn, "speaker", here), here)
            turns.append(Turn(role, _text(turn, "utterance", here), tuple(tags)))
        yield Dialogue(name, tuple(turns), {"services": record.get("services", [])})


def _chatterbot(path: Path) -> Iterator[Dialogue]:
    """Chatterbot YAML: {"conversations": [[utterance, …], …]}; roles alternate from the user, ids are file:index."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ValueError(f"{path}:{line}: not YAML ({getattr(error, 'problem', error)}).") from error
    for index, conversation in enumerate(_list(content, "conversations", str(path))):
        if isinstance(conversation, str):  # the corpus has some: one utterance without an answer
            conversation = [conversation]
        if not isinstance(conversation, list):
            raise ValueError(f"{path}: conversation {index} must be a list of utterances, got {conversation!r:.60}.")
        turns = [Turn((USER, SYSTEM)[place % 2], _utterance(text)) for place, text in enumerate(conversation)]
        yield Dialogue(f"{path.stem}:{index}", tuple(turns))


def _utterance(value: object) -> str:
    """Text as written: YAML reads an unquoted yes or 42 as another kind."""
    if isinstance(value, Mapping):  # an unquoted "x: y"
        return ", ".join(f"{key}: {_utterance(part)}" for key, part in value.items())
    return ("no", "yes")[value] if isinstance(value, bool) else "" if value is None else str(value)


def _csv(path: Path) -> Iterator[Dialogue]:
    """Columns dialogue_id, turn, role, text and, if wanted, tags separated by `|`; rows of a dialogue in any order."""
    rows: dict[str, list[tuple[int, Turn]]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [name for name in ("dialogue_id", "turn", "role", "text") if name not in (reader.fieldnames or [])]
        if missing:
            raise ValueError(f"{path}:1: the columns {', '.join(missing)} are missing; there are {reader.fieldnames}.")
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if any(row[name] is None for name in ("dialogue_id", "turn", "role", "text")):
                raise ValueError(f"{where}: the row is shorter than the header.")
            if None in row:
                raise ValueError(f"{where}: the row is longer than the header. Put a text with commas in quotes.")
            if not re.fullmatch(r"-?\d+", row["turn"].strip()):
                raise ValueError(f"{where}: the field 'turn' must be an integer, got {row['turn']!r}.")
            place, tags = int(row["turn"]), (row.get("tags") or "").split("|")
            turns = rows.setdefault(row["dialogue_id"], [])
            if any(place == other for other, _ in turns):
                raise ValueError(f"{where}: dialogue {row['dialogue_id']!r} has two turns {place}.")
            turns.append((place, Turn(_role(row["role"], where), row["text"], tuple(tags))))
    for name, turns in rows.items():
        yield Dialogue(name, tuple(turn for _, turn in sorted(turns, key=lambda pair: pair[0])))


_READERS: dict[str, Callable[[Path], Iterator[Dialogue]]] = {
    "jsonl": _jsonl, "chatml": _jsonl, "multiwoz": _multiwoz, "sgd": _sgd, "chatterbot": _chatterbot, "csv": _csv,
}  # fmt: skip
_SUFFIXES = {".jsonl": "jsonl", ".json": "json", ".yml": "chatterbot", ".yaml": "chatterbot", ".csv": "csv"}
