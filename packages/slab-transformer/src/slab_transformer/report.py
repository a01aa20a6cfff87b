"""Reports of conversion and fusion (Guo et al., 2024, Section 3): a table to read, JSON to keep."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Change:
    """One module: its qualified name, what was done with it, and into what or why."""

    name: str
    action: str
    detail: str = ""


@dataclass
class ConversionReport:
    """What `convert` replaced, by qualified name, and what it left alone, and why."""

    replaced: list[Change] = field(default_factory=list)
    left: list[Change] = field(default_factory=list)

    def __str__(self) -> str:
        """A table."""
        return _table(self.replaced + self.left, "nothing was replaced")

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(asdict(self), indent=1)


@dataclass
class FusionReport:
    """What became of each norm: "folded forward", "folded backward", "residual", or "affine" with the reason."""

    norms: list[Change] = field(default_factory=list)
    max_abs_error: float = 0.0

    @property
    def folded(self) -> list[str]:
        """Names of the norms that are gone."""
        return [change.name for change in self.norms if change.action != "affine"]

    @property
    def affine(self) -> list[str]:
        """Names of the norms of which a multiply-add by channel is left."""
        return [change.name for change in self.norms if change.action == "affine"]

    def __str__(self) -> str:
        """A table."""
        return _table(self.norms, "no norms were found")

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(asdict(self), indent=1)


def _table(rows: list[Change], empty: str) -> str:
    if not rows:
        return empty
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("name", "action")]
    return "\n".join(f"{r.name:<{widths[0]}}  {r.action:<{widths[1]}}  {r.detail}".rstrip() for r in rows)
