"""The variants that a library can hold: a parent, the sites to mutate, the residues allowed at each (Section 3)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from offprints.checks import Problems, message, require_kind, require_range, require_shape

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
"""The twenty amino acids; a residue's code is its place here."""
MASK = 20
"""The code of a masked residue."""
ENUMERABLE = 20**5
"""Spaces up to this many variants are predicted whole; larger ones lazily."""
_CODE = np.full(256, -1, dtype=np.int8)
_CODE[[ord(letter) for letter in RESIDUES]] = np.arange(20)
_LETTERS = np.frombuffer(RESIDUES.encode(), dtype=np.uint8)
_MUTATION = re.compile(r"([A-Z])(\d+)([A-Z])")


def encode_sequence(name: str, sequence: str) -> np.ndarray:
    """(len(sequence),) residue codes in the order of `RESIDUES`.

    Raises:
        TypeError: if it is no string.
        ValueError: if it is empty or holds lower-case, ambiguous (B, J, Z, X, *, -) or other letters.
    """
    require_kind(name, sequence, str)
    codes = _CODE[np.frombuffer(sequence.encode("latin-1", "replace"), dtype=np.uint8)]
    if not len(codes):
        raise ValueError(message(name, "a sequence of amino acids", "an empty string"))
    if (codes < 0).any():
        place = int(np.argmax(codes < 0))
        hint = "Lower-case letters are not accepted: call .upper()." if sequence[place].islower() else ""
        raise ValueError(
            message(name, f"written in the 20 letters {RESIDUES}", f"{sequence[place]!r} at position {place + 1}", hint)
        )
    return codes


class VariantSpace:
    """All variants a_1 … a_k of a parent at k sites, each a_j from the residues allowed there (Section 3).

    Variants are (n, k) arrays of residue codes 0 … 19 (int8). An enumerable space has a bijection between variants and
    0 … size − 1, in mixed radix over the allowed residues, the last site running fastest.

    Args:
        parent: the sequence that is mutated, length L.
        sites: 1-based positions, as integers or as `"V39"`, which also checks the parent's residue.
        allowed: residues for each site: one string for all sites, or {site: string}; the 20 amino acids by default.

    Raises:
        TypeError: if the parent is no string.
        ValueError: listing every site that is out of range, repeated or of another residue, and every empty choice.

    >>> VariantSpace("MQYKLVDGV", sites=["V6", 7]).size
    400
    """

    def __init__(
        self,
        parent: str,
        sites: Sequence[int | str],
        *,
        allowed: str | Mapping[int, str] | None = None,
    ) -> None:
        self.parent_codes = encode_sequence("parent", parent)
        self.parent = parent
        self.sites = _checked_sites(parent, sites)
        self.allowed = _checked_residues(self.sites, allowed)
        self._choices = [encode_sequence("allowed", letters) for letters in self.allowed]
        self.mask = np.zeros((len(self.sites), 20), dtype=bool)
        for row, choice in zip(self.mask, self._choices, strict=True):
            row[choice] = True
        self._place = np.full((len(self.sites), 20), -1, dtype=np.int64)
        for row, choice in zip(self._place, self._choices, strict=True):
            row[choice] = np.arange(len(choice))
        self.size = prod(len(choice) for choice in self._choices)
        self.wild_type = self.parent_codes[np.array(self.sites) - 1]

    @property
    def k(self) -> int:
        """The number of sites."""
        return len(self.sites)

    @property
    def _parent_name(self) -> str:
        return "_wt" if 2 in (self.k, len(self.parent)) else "WT"

    @property
    def enumerable(self) -> bool:
        """Whether the whole space can be listed and predicted (at most `ENUMERABLE` variants)."""
        return self.size <= ENUMERABLE

    def contains(self, codes: np.ndarray) -> np.ndarray:
        """(n,) whether every residue of each variant is allowed."""
        codes = np.asarray(codes)
        return np.asarray(self.mask[np.arange(self.k), codes].all(axis=1))

    def checked(self, name: str, codes: np.ndarray) -> np.ndarray:
        """(n, k) int8 codes that belong to this space.

        Raises:
            TypeError: if they are no integers.
            ValueError: if the shape differs, or a residue is not allowed at its site.
        """
        codes = np.asarray(codes)
        if codes.dtype.kind not in "iu":
            raise TypeError(message(name, "of integers, the codes of residues", f"dtype {codes.dtype}"))
        require_shape(name, codes, ("n", self.k))
        known = (codes >= 0) & (codes < 20)
        outside = ~known | ~self.mask[np.arange(self.k), np.where(known, codes, 0)]
        if outside.any():
            row, site = np.argwhere(outside)[0]
            found = RESIDUES[codes[row, site]] if known[row, site] else f"code {codes[row, site]}"
            raise ValueError(
                message(f"{name}, row {row}", f"of {self.allowed[site]} at site {self.sites[site]}", found)
            )
        return codes.astype(np.int8)

    def index(self, codes: np.ndarray) -> np.ndarray:
        """(n,) places of (n, k) variants in the enumeration.

        Raises:
            ValueError: if the space is not enumerable, or as `checked`.
        """
        self.require_enumerable()
        places = self._place[np.arange(self.k), self.checked("codes", codes)]
        sizes = [len(choice) for choice in self._choices]
        return np.ravel_multi_index(tuple(places.T), sizes) if len(codes) else np.zeros(0, dtype=np.int64)

    def codes(self, index: np.ndarray) -> np.ndarray:
        """(n, k) variants at some places of the enumeration: the inverse of `index`."""
        self.require_enumerable()
        places = np.unravel_index(np.asarray(index, dtype=np.int64), [len(choice) for choice in self._choices])
        columns = [choice[place] for choice, place in zip(self._choices, places, strict=True)]
        return np.stack(columns, axis=1).astype(np.int8)

    def chunks(self, size: int = 16384) -> Iterator[np.ndarray]:
        """All variants in order, at most `size` at a time."""
        for start in range(0, self.size, size):
            yield self.codes(np.arange(start, min(start + size, self.size)))

    def sample(self, n: int, gen: np.random.Generator) -> np.ndarray:
        """(n, k) variants drawn uniformly, with repetition."""
        columns = [choice[gen.integers(len(choice), size=n)] for choice in self._choices]
        return np.stack(columns, axis=1).astype(np.int8)

    def neighbours(self, codes: np.ndarray) -> np.ndarray:
        """All single substitutions of one variant (k,), inside the allowed residues."""
        found = []
        for site, choice in enumerate(self._choices):
            others = choice[choice != codes[site]]
            block = np.repeat(np.asarray(codes, dtype=np.int8)[None], len(others), axis=0)
            block[:, site] = others
            found.append(block)
        return np.concatenate(found)

    def encode(self, variants: Sequence[str]) -> np.ndarray:
        """(n, k) codes of variants written in any of four ways.

        The k residues at the sites (`"VDGV"`), the whole sequence, mutations against the parent joined by `;`, `:` or
        `,` (`"V39A;D40E"`), or `"WT"` (`"_wt"` where that could be two residues).

        Raises:
            ValueError: listing each variant that is none of these, or changes a residue outside the sites.
        """
        codes = np.empty((len(variants), self.k), dtype=np.int8)
        with Problems("cannot read the variants") as problems:
            for row, variant in enumerate(variants):
                try:
                    codes[row] = self._encode(variant)
                except (TypeError, ValueError) as error:
                    if len(problems.found) < 20:
                        problems.add(f"row {row}: {error}")
        return codes

    def _encode(self, variant: str) -> np.ndarray:
        require_kind("variant", variant, str)
        if variant.upper() in ("_WT", self._parent_name.upper()):
            return self.wild_type
        if any(letter.isdigit() for letter in variant):
            return self._mutated([part.strip() for part in re.split("[;:,]", variant)])
        codes = encode_sequence("variant", variant)
        if len(codes) == self.k:
            return codes
        if len(codes) != len(self.parent):
            expected = f"{self.k} residues (one for each site) or {len(self.parent)} (the whole sequence)"
            raise ValueError(message("variant", expected, f"{variant:.40} of {len(codes)}"))
        inside = np.array(self.sites) - 1
        changed = np.setdiff1d(np.flatnonzero(codes != self.parent_codes), inside)
        if len(changed):
            place = int(changed[0]) + 1
            found = f"{variant[place - 1]}{place} instead of {self.parent[place - 1]}"
            raise ValueError(message("variant", "the parent's outside the sites", found))
        return codes[inside]

    def _mutated(self, mutations: list[str]) -> np.ndarray:
        codes = self.wild_type.copy()
        for mutation in mutations:
            match = _MUTATION.fullmatch(mutation)
            if not match or int(match[2]) not in self.sites:
                expected = f"<residue><site><residue> at one of the sites {', '.join(map(str, self.sites[:30]))}"
                raise ValueError(message("mutation", expected, repr(mutation)))
            site = self.sites.index(int(match[2]))
            if match[1] != RESIDUES[self.wild_type[site]]:
                raise ValueError(message("mutation", f"from {RESIDUES[self.wild_type[site]]}{match[2]}", mutation))
            codes[site] = encode_sequence("mutation", match[3])[0]
        return codes

    def decode(self, codes: np.ndarray) -> list[str]:
        """The k residues of each variant as a string."""
        letters = _LETTERS[np.asarray(codes, dtype=np.int64)]
        return [row.tobytes().decode() for row in letters]

    def cropped(self, context: int) -> "VariantSpace":
        """The same variants in a part of the parent: the sites and `context` residues on either side.

        Raises:
            ValueError: if `context` is negative.
        """
        require_range("context", context, low=0, integer=True)
        low, high = max(min(self.sites) - 1 - context, 0), min(max(self.sites) + context, len(self.parent))
        allowed = {site - low: letters for site, letters in zip(self.sites, self.allowed, strict=True)}
        return VariantSpace(self.parent[low:high], list(allowed), allowed=allowed)

    def tokens(self, codes: np.ndarray) -> np.ndarray:
        """(n, L) residue codes of the whole sequences of (n, k) variants; a code of 20 masks its residue."""
        whole = np.repeat(self.parent_codes[None], len(codes), axis=0)
        whole[:, np.array(self.sites) - 1] = codes
        return whole

    def sequences(self, codes: np.ndarray) -> list[str]:
        """The whole sequence of each variant."""
        return [row.tobytes().decode() for row in _LETTERS[self.tokens(codes).astype(np.int64)]]

    def mutations(self, codes: np.ndarray) -> list[str]:
        """`"V39A;D40E"` for each variant, `"WT"` for the parent (`"_wt"` where WT could be two residues)."""
        named = []
        for row in np.asarray(codes):
            at = np.flatnonzero(row != self.wild_type)
            words = [f"{RESIDUES[self.wild_type[j]]}{self.sites[j]}{RESIDUES[row[j]]}" for j in at]
            named.append(";".join(words) or self._parent_name)
        return named

    def require_enumerable(self) -> None:
        """Refuse a space that is too large to list.

        Raises:
            ValueError: if it is not enumerable.
        """
        if not self.enumerable:
            hint = "Predictions of it are made lazily: pass the variants."
            raise ValueError(message("space", f"of at most {ENUMERABLE} variants to be listed", self.size, hint))


def _checked_sites(parent: str, sites: Sequence[int | str]) -> tuple[int, ...]:
    require_kind("sites", sites, (list, tuple, range, np.ndarray))
    found: list[int] = []
    with Problems("cannot use these sites") as problems:
        if not len(sites):
            problems.add(message("sites", "at least one", "none"))
        for site in sites:
            letter, place = (site[:1], site[1:]) if isinstance(site, str) else ("", site)
            if isinstance(place, str):
                if not place.isdigit():
                    problems.add(message("site", "a position, or a residue and its position ('V39')", repr(site)))
                    continue
                place = int(place)
            hint = "Sites are 1-based."
            before = len(problems.found)
            problems.check(
                require_range, "site", place, low=1, high=len(parent), integer=True, because="1-based", hint=hint
            )
            if len(problems.found) > before:
                continue
            if letter and parent[place - 1] != letter:
                problems.add(
                    message(f"residue at site {place}", repr(letter), f"{parent[place - 1]!r} in the parent", hint)
                )
            if place in found:
                problems.add(message("sites", "all different", f"{place} twice"))
            found.append(int(place))
    return tuple(found)


def _checked_residues(sites: Sequence[int], allowed: str | Mapping[int, str] | None) -> tuple[str, ...]:
    if allowed is None:
        return (RESIDUES,) * len(sites)
    given = {site: allowed for site in sites} if isinstance(allowed, str) else dict(allowed)
    chosen = []
    with Problems("cannot use these residues") as problems:
        for site in given:
            if site not in sites:
                problems.add(message("allowed", f"for the sites {', '.join(map(str, sites))}", site))
        for site in sites:
            letters = given.get(site, RESIDUES)
            problems.check(encode_sequence, f"allowed at site {site}", letters)
            chosen.append("".join(letter for letter in RESIDUES if letter in letters))
    return tuple(chosen)
