"""Real text for the claims: Wikipedia articles that ship with gensim, and the documentation of Python."""

import bz2
import html
import importlib.util
import re
from functools import cache
from pathlib import Path

from offprints.claims import MissingResource

FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
LONG = 20_000
PARAGRAPH = 600


@cache
def articles() -> list[str]:
    """The articles of more than 20 000 characters with their markup, each as one text of its long paragraphs.

    Raises:
        MissingResource: naming the pip command, without gensim.
    """
    spec = importlib.util.find_spec("gensim")
    if spec is None or not spec.submodule_search_locations:
        raise MissingResource("gensim is not installed: pip install gensim")
    path = Path(spec.submodule_search_locations[0], "test", "test_data", FILE)
    dump = bz2.decompress(path.read_bytes()).decode("utf-8")
    found = []
    for raw in re.findall(r"<text[^>]*>(.*?)</text>", dump, flags=re.DOTALL):
        if len(raw) > LONG:
            parts = [part.strip() for part in plain(html.unescape(raw)).split("\n")]
            found.append([part for part in parts if len(part) >= PARAGRAPH and part[0].isalpha()])
    return ["\n".join(parts) for parts in found if parts]


def plain(markup: str) -> str:
    """Wiki markup without comments, references, templates, tables, files and the brackets of links."""
    text = re.sub(r"<!--.*?-->|<ref[^>]*/>|<ref.*?</ref>|<math.*?</math>|<gallery.*?</gallery>", "", markup, flags=re.S)
    for opening, closing in ((r"\{\{", r"\}\}"), (r"\{\|", r"\|\}")):
        inner, before = rf"{opening}(?:(?!{opening}|{closing}).)*{closing}", None
        while before != text:
            before, text = text, re.sub(inner, "", text, flags=re.DOTALL)
    text = re.sub(r"\[\[(?:File|Image|Category):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]", "", text)
    text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    text = re.sub(r"<[^>]+>|'{2,}|^=+.*?=+\s*$|^[*#:;|!].*$", "", text, flags=re.MULTILINE)
    return re.sub(r"[ \t]+", " ", text)


@cache
def documentation() -> str:
    """The documentation that comes with every Python, as one English text."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
