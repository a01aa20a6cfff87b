"""What a substitution changes, in words and numbers, for proposals that explain themselves (Section 3).

Charge at pH 7, hydropathy (Kyte and Doolittle 1982), volume in Å³ (Zamyatnin 1972), and the composition, polarity and
volume of Grantham (1974).
"""

from dataclasses import dataclass

import numpy as np
from offprints.checks import message

from knowrlm.space import RESIDUES

CHARGE = {"D": -1, "E": -1, "K": 1, "R": 1}
HYDROPATHY: dict[str, float] = dict(
    zip(
        RESIDUES,
        (
            1.8,
            2.5,
            -3.5,
            -3.5,
            2.8,
            -0.4,
            -3.2,
            4.5,
            -3.9,
            3.8,
            1.9,
            -3.5,
            -1.6,
            -3.5,
            -4.5,
            -0.8,
            -0.7,
            4.2,
            -0.9,
            -1.3,
        ),
        strict=True,
    )
)
VOLUME: dict[str, float] = dict(
    zip(
        RESIDUES,
        (
            88.6, 108.5, 111.1, 138.4, 189.9, 60.1, 153.2, 166.7, 168.6, 166.7,
            162.9, 114.1, 112.7, 143.8, 173.4, 89.0, 116.1, 140.0, 227.8, 193.6,
        ),
        strict=True,
    )
)  # fmt: skip
AROMATIC = frozenset("FHWY")
COMPOSITION = (
    0.0, 2.75, 1.38, 0.92, 0.0, 0.74, 0.58, 0.0, 0.33, 0.0, 0.0, 1.33, 0.39, 0.89, 0.65, 1.42, 0.71, 0.0, 0.13, 0.2,
)  # fmt: skip
POLARITY = (
    8.1, 5.5, 13.0, 12.3, 5.2, 9.0, 10.4, 5.2, 11.3, 4.9, 5.7, 11.6, 8.0, 10.5, 10.5, 9.2, 8.6, 5.9, 5.4, 6.2,
)  # fmt: skip
GRANTHAM_VOLUME = (31, 55, 54, 83, 132, 3, 96, 111, 119, 111, 105, 56, 32.5, 85, 124, 32, 61, 84, 170, 136)
CHARGES = {-1: "negative", 0: "neutral", 1: "positive"}


def grantham_distances() -> np.ndarray:
    """(20, 20) Grantham distances D = 50.723 √(1.833 Δc² + 0.1018 Δp² + 0.000399 Δv²).

    c: composition, p: polarity, v: volume (Å³). Within 1 of the integers that Grantham published; an alternative to
    the graph's distances of Section 3.
    """
    c, p, v = (np.subtract.outer(x, x) for x in map(np.asarray, (COMPOSITION, POLARITY, GRANTHAM_VOLUME)))
    return 50.723 * np.sqrt(1.833 * c**2 + 0.1018 * p**2 + 0.000399 * v**2)


@dataclass(frozen=True)
class Substitution:
    """One step a → b on the graph: the rank of b from a (Section 3), and what it changes.

    Attributes:
        old: the residue that goes.
        new: the residue that comes.
        rank: 1 (most similar) … 19; 0 where no graph was asked.
        charge: change of charge at pH 7.
        hydropathy: change of hydropathy (Kyte–Doolittle units, positive: less soluble).
        volume: change of volume, Å³.
    """

    old: str
    new: str
    rank: int
    charge: int
    hydropathy: float
    volume: float

    def __str__(self) -> str:
        """`D→E: charge kept, volume +27 Å³, hydropathy +0.0 (rank 2)`."""
        was, now = CHARGE.get(self.old, 0), CHARGE.get(self.new, 0)
        charge = "charge kept" if was == now else f"charge {CHARGES[was]} to {CHARGES[now]}"
        words = [charge, f"volume {self.volume:+.0f} Å³", f"hydropathy {self.hydropathy:+.1f}"]
        if (self.old in AROMATIC) != (self.new in AROMATIC):
            words.append("aromatic ring lost" if self.old in AROMATIC else "aromatic ring gained")
        if "P" in (self.old, self.new):
            words.append("proline kink " + ("lost" if self.old == "P" else "gained"))
        return f"{self.old}→{self.new}: {', '.join(words)}" + (f" (rank {self.rank})" if self.rank else "")


def substitution(old: str, new: str, rank: int = 0) -> Substitution:
    """What the step from one residue to another changes.

    Raises:
        ValueError: if either is none of the twenty, or both are the same.
    """
    for name, letter in (("old", old), ("new", new)):
        if letter not in VOLUME:
            raise ValueError(message(name, f"one of {RESIDUES}", repr(letter)))
    if old == new:
        raise ValueError(message("new", "another residue", f"{new!r} as before"))
    charge = CHARGE.get(new, 0) - CHARGE.get(old, 0)
    return Substitution(old, new, rank, charge, HYDROPATHY[new] - HYDROPATHY[old], VOLUME[new] - VOLUME[old])
