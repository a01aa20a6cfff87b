"""What the verbs share: the parser, the committed results, tables and JSON on the screen."""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from offprints import bench as duels
from offprints import card as cards
from offprints.claims import Method, MissingResource, load_method, methods, record

COLOURS = {
    "holds": "green",
    "pass": "green",
    "fails": "red",
    "fail": "red",
    "open": "yellow",
    "not run": "bright_black",
    "target": "white",
}
Dist = Annotated[str, tyro.conf.Positional]
Dists = Annotated[tuple[str, ...], tyro.conf.Positional]
Folder = Annotated[Path, tyro.conf.Positional]
app = tyro.extras.SubcommandApp()


def dispatch(arguments: Sequence[str]) -> int:
    """Parse, run the verb, return the exit status."""
    try:
        about = "Methods of ICML 2024: their claims and duels, re-measured."
        return app.cli(args=arguments, prog="offprints", description=about)
    except SystemExit as stop:  # the parser's own: 0 for --help, 2 for usage
        return int(stop.code or 0)


def committed(dist: str, name: str) -> record.Json | None:
    """The result file that the installed package carries, or None."""
    file = resources.files(dist.replace("-", "_")) / name
    schema = {"claims.json": record.SCHEMA, "bench.json": duels.SCHEMA}[name]
    return record.read(Path(str(file)), schema) if file.is_file() else None


def installed() -> dict[str, Method | str]:
    """Every method that is installed; for one that cannot be loaded, such as without its extra, the reason."""
    found: dict[str, Method | str] = {}
    for dist in methods():
        try:
            found[dist] = load_method(dist)
        except (ValueError, MissingResource) as error:
            found[dist] = str(error)
    return found


def source_of(method: Method) -> str:
    """The fingerprint of a method's claims, as they stand now."""
    return record.fingerprint(f"{method.dist.replace('-', '_')}.claims")


def print_json(content: object) -> None:
    """Print as JSON, floats at 6 digits."""
    print(json.dumps(record.rounded(content), indent=1, sort_keys=True, ensure_ascii=False))


def rich_table(content: cards.Table) -> Table:
    """A table whose last column, the verdict, is coloured."""
    head, rows = content
    table = Table(*head, show_lines=True)
    for row in rows:
        colour = COLOURS[row[-1].split(maxsplit=1)[1]]
        table.add_row(*map(escape, row[:-1]), f"[{colour}]{row[-1]}[/]")
    return table
