"""What a plate may hold: forbidden residues, codons, a limit on mutations, a budget of primers (Section 3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from offprints.checks import Problems, message, require_range

from knowrlm.space import RESIDUES, VariantSpace, encode_sequence


def codon_residues(codon: str) -> str:
    """The amino acids that a degenerate codon codes for, in the order of `RESIDUES`; stops are left out.

    A constraint on the action space of Section 3. `"NNK"` gives all 20, `"NDT"` twelve.

    Raises:
        ValueError: unless it is three letters of the IUPAC nucleotide code.

    >>> codon_residues("NDT")
    'CDFGHILNRSVY'
    """
    from Bio.Data.CodonTable import unambiguous_dna_by_id
    from Bio.Data.IUPACData import ambiguous_dna_values

    if len(codon) != 3 or not set(codon) <= set(ambiguous_dna_values):
        raise ValueError(message("codon", f"three letters out of {''.join(ambiguous_dna_values)}", repr(codon)))
    table = unambiguous_dna_by_id[1].forward_table
    made = {table.get("".join(bases)) for bases in product(*(ambiguous_dna_values[letter] for letter in codon))}
    return "".join(letter for letter in RESIDUES if letter in made)


@dataclass(frozen=True)
class PlateConstraints:
    """Constraints of the laboratory on what is proposed (beyond Section 3).

    Attributes:
        forbidden: residues that may not be put in: a string for all sites, or {site: string}. The parent's stay.
        codons: degenerate codon for all sites ("NNK"), or {site: codon}; the parent's residues stay.
        max_mutations: against the parent.
        residues_per_site: at most so many different new residues at a site in one plate: a budget of primers.

    Raises:
        ValueError: listing every value that is out of range.
    """

    forbidden: str | Mapping[int, str] = ""
    codons: str | Mapping[int, str] | None = None
    max_mutations: int | None = None
    residues_per_site: int | None = None

    def __post_init__(self) -> None:
        with Problems("cannot use these constraints") as problems:
            letters = [self.forbidden] if isinstance(self.forbidden, str) else list(self.forbidden.values())
            for text in filter(None, letters):
                problems.check(encode_sequence, "forbidden", text)
            codons = [self.codons] if isinstance(self.codons, str) else list((self.codons or {}).values())
            for codon in codons:
                problems.check(codon_residues, codon)
            for name in ("max_mutations", "residues_per_site"):
                if getattr(self, name) is not None:
                    problems.check(require_range, name, getattr(self, name), low=1, integer=True)

    @property
    def narrow(self) -> bool:
        """Whether more is constrained than the residues of each site, so that few variants of a space may be left."""
        return self.max_mutations is not None or self.residues_per_site is not None

    def restrict(self, space: VariantSpace) -> VariantSpace:
        """The space with the residues that remain; the parent's own always do.

        Raises:
            ValueError: if a constraint names a site that is none of the space's.
        """
        for given in (self.forbidden, self.codons):
            if isinstance(given, Mapping) and (unknown := sorted(set(given) - set(space.sites))):
                raise ValueError(message("constrained site", f"one of {space.sites}", unknown[0]))
        allowed = {}
        for j, (site, letters) in enumerate(zip(space.sites, space.allowed, strict=True)):
            banned = self.forbidden if isinstance(self.forbidden, str) else self.forbidden.get(site, "")
            codon = self.codons if isinstance(self.codons, str | None) else self.codons.get(site)
            coded = codon_residues(codon) if codon else RESIDUES
            own = RESIDUES[space.wild_type[j]]
            allowed[site] = "".join(a for a in letters if a == own or (a in coded and a not in banned))
        return VariantSpace(space.parent, list(space.sites), allowed=allowed)

    def admits(self, space: VariantSpace, codes: np.ndarray) -> np.ndarray:
        """(n,) whether each variant has few enough mutations."""
        if self.max_mutations is None:
            return np.ones(len(codes), dtype=bool)
        return (np.asarray(codes) != space.wild_type).sum(axis=1) <= self.max_mutations

    def affordable(self, space: VariantSpace, codes: np.ndarray, n: int) -> np.ndarray:
        """Places of at most n variants, in the order given, that keep within `residues_per_site`."""
        if self.residues_per_site is None:
            return np.arange(min(n, len(codes)))
        codes, sites = np.asarray(codes, dtype=np.int64), np.arange(space.k)
        used = np.zeros((space.k, 20), dtype=bool)
        used[sites, space.wild_type] = True
        left, chosen = np.arange(len(codes)), []
        while len(left) and len(chosen) < n:
            chosen.append(left[0])
            used[sites, codes[left[0]]] = True
            spent = used.sum(axis=1) > self.residues_per_site
            left = left[1:][(~spent | used[sites, codes[left[1:]]]).all(axis=1)]
        return np.array(chosen, dtype=np.int64)
