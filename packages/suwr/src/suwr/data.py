"""Data: the paper's synthetic sets, the AND toy, scikit-learn's digits with patches, and tables from files."""

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from offprints.checks import message, require_choice, require_range
from offprints.seeding import rng

from suwr.units import Patches, image_patches

SYN = ("syn1", "syn2", "syn3", "syn4", "syn5", "syn6")
Logit = Callable[[np.ndarray], np.ndarray]


class Synthetic(NamedTuple):
    """One draw of a synthetic set.

    Attributes:
        X: (n, d) standard normal.
        y: (n,) 0 or 1.
        ground_truth: (n, d) bool: the features that p(y | x) depends on in that row.
        p_y: (n, 2) class probabilities.
    """

    X: np.ndarray
    y: np.ndarray
    ground_truth: np.ndarray
    p_y: np.ndarray


def _syn3_code(x: np.ndarray) -> np.ndarray:
    return -10 * np.sin(0.2 * x[:, 6]) + np.abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4


def _syn3_l2x(x: np.ndarray) -> np.ndarray:
    return -10 * np.sin(2 * x[:, 6]) + 2 * np.abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4


def make_syn(name: str = "syn4", n: int = 10_000, d: int = 11, seed: int = 0, variant: str = "code") -> Synthetic:
    """The synthetic sets syn1 to syn6 (Section 5 of the paper; first in L2X and INVASE).

    With x standard normal and columns counted from 1, P(y = 1 | x) = 1 / (1 + L(x)).
    syn1: L = exp(x1 x2). syn2: L = exp(x3^2 + x4^2 + x5^2 + x6^2 - 4). syn3: L = exp(-10 sin(0.2 x7) + |x8| + x9
    + exp(-x10) - 2.4). syn4, syn5, syn6 switch on x11: at x11 < 0 syn1, syn1, syn2, else syn2, syn3, syn3.

    Args:
        name: "syn1" to "syn6".
        n: rows.
        d: columns, at least 11; those past 11 are noise.
        seed: of the draw; give train and test different ones.
        variant: "code": syn3 as the released code has it; "l2x": sin(2 x7) and 2 |x8|, as in the L2X paper.

    Raises:
        TypeError, ValueError: for other values.
    """
    require_choice("name", name, SYN)
    require_choice("variant", variant, ("code", "l2x"))
    require_range("n", n, low=0, integer=True)
    require_range("d", d, low=11, integer=True)
    gen = rng(seed)
    x = gen.standard_normal((n, d))
    parts: dict[str, tuple[Logit, list[int]]] = {
        "syn1": (lambda x: x[:, 0] * x[:, 1], [0, 1]),
        "syn2": (lambda x: (x[:, 2:6] ** 2).sum(axis=1) - 4, [2, 3, 4, 5]),
        "syn3": (_syn3_code if variant == "code" else _syn3_l2x, [6, 7, 8, 9]),
    }
    truth = np.zeros((n, d), dtype=bool)
    if name in parts:
        logit, used = parts[name]
        log_odds, truth[:, used] = logit(x), True
    else:
        low, high = {"syn4": ("syn1", "syn2"), "syn5": ("syn1", "syn3"), "syn6": ("syn2", "syn3")}[name]
        below = x[:, 10] < 0
        log_odds = np.where(below, parts[low][0](x), parts[high][0](x))
        truth[:, 10] = True
        truth[:, parts[low][1]] |= below[:, None]
        truth[:, parts[high][1]] |= ~below[:, None]
    with np.errstate(over="ignore"):
        one = 1 / (1 + np.exp(log_odds))
    y = (gen.random(n) < one).astype(np.int64)
    return Synthetic(x, y, truth, np.column_stack([1 - one, one]))


def make_and_toy(d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """All 2^d binary rows and y = (sum over k of x_2k x_{2k+1})^2: a known optimum at every price of a feature.

    Raises:
        TypeError, ValueError: unless d is even and between 2 and 16.
    """
    require_range("d", d, low=2, high=16, integer=True)
    if d % 2:
        raise ValueError(message("d", "even (features come in pairs)", d))
    X = np.array(list(product((0, 1), repeat=d)))
    return X, (X[:, ::2] * X[:, 1::2]).sum(axis=1) ** 2


def load_digits_grouped(size: int = 3) -> tuple[np.ndarray, np.ndarray, Patches]:
    """scikit-learn's 8 x 8 digits (1797, 64) in [0, 1], their labels, and a `size` x `size` patch round every pixel."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    return found.data / 16.0, found.target, image_patches((8, 8), size)


def load_idx(path: str | Path) -> np.ndarray:
    """An array in the IDX format of MNIST and Fashion-MNIST (big-endian; plain or gzip).

    Raises:
        ValueError: naming the file, if it is no IDX file or too short.
    """
    import gzip

    path = Path(path)
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except EOFError as error:
            raise ValueError(message(str(path), "a whole gzip file", "one that ends early")) from error
    kinds = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in kinds:
        raise ValueError(message(str(path), "an IDX file (two zero bytes, then a known type)", data[:4].hex(" ")))
    shape = tuple(np.frombuffer(data, ">u4", data[3], 4).tolist()) if len(data) >= 4 + 4 * data[3] else ()
    body, kind = data[4 + 4 * data[3] :], np.dtype(kinds[data[2]])
    if not shape or len(body) != np.prod(shape) * kind.itemsize:
        raise ValueError(message(str(path), f"an IDX file of shape {shape}", f"{len(body)} bytes of values"))
    return np.frombuffer(body, kind).reshape(shape)


def load_table(path: str | Path, target: str | None) -> tuple["object", np.ndarray | None]:
    """A CSV or parquet file as (frame of the features, values of the target column). Needs pandas.

    With `target=None` all columns are features, and the second value is None.

    Raises:
        ValueError: if the file is of another kind or no UTF-8, has no such column, one twice or without a name, rows
            longer than its header, no row at all, or holds text or dates; the message names file and columns.
    """
    import pandas as pd

    path = Path(path)
    kind = require_choice(f"the suffix of {path}", path.suffix.lower(), (".csv", ".tsv", ".parquet"))
    if kind == ".parquet":
        frame: Any = pd.read_parquet(path)
    else:
        separator, encoding = "\t" if kind == ".tsv" else ",", "utf-8-sig"
        try:
            header: Any = pd.read_csv(path, sep=separator, encoding=encoding, header=None, nrows=1)
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # all rows longer than the header
                frame = pd.read_csv(path, sep=separator, encoding=encoding, index_col=False)
        except (ValueError, pd.errors.ParserWarning) as error:  # of the encoding, and of rows of unequal length
            raise ValueError(message(str(path), f"a table in UTF-8, separated by {separator!r}", error)) from error
        names = ["" if pd.isna(name) else str(name).strip() for name in header.iloc[0]]
        if "" in names:
            hint = "An index that was written along? Leave it out: to_csv(index=False)."
            raise ValueError(
                message(str(path), "a name for every column", f"none for number {names.index('') + 1}", hint)
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(message(str(path), "a table of distinct columns", f"{twice[0]!r} twice"))
    frame.columns = [str(name).strip() for name in frame.columns]
    if not len(frame):
        raise ValueError(message(str(path), "a table of at least one row", "a header alone"))
    y = None
    if target is not None:
        require_choice(f"target in {path}", target, list(frame.columns))
        y = frame.pop(target)
        if y.isna().any():
            row = int(np.flatnonzero(y.isna())[0])
            raise ValueError(
                message(f"{target} in {path}", "present in every row", f"nothing (or NA) in row {row + 2}")
            )
    if text := [str(name) for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]:
        hint = "Encode them (one-hot) and give the columns of each as one of `groups`."
        raise ValueError(message(f"the features in {path}", "numeric", f"other values in {', '.join(text)}", hint))
    return frame, None if y is None else y.to_numpy()
