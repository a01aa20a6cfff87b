"""Units of selection: single features, groups that are revealed together, and patches of an image (Section 5)."""

from collections.abc import Sequence

import numpy as np
from offprints.checks import Problems, message, require_finite, require_kind, require_range, require_shape


class Patches(tuple[np.ndarray, ...]):
    """Groups of pixels that may overlap: one for each pixel of an image. Made by `image_patches`."""

    __slots__ = ()


def image_patches(shape: tuple[int, int], size: int = 3) -> Patches:
    """The `size` x `size` patch round every pixel, clipped at the borders, of row-major images.

    Args:
        shape: (height, width).
        size: odd.

    Raises:
        TypeError, ValueError: for other sizes.
    """
    require_kind("shape", shape, (tuple, list))
    require_shape("shape", np.asarray(shape), (2,))
    height, width = (require_range("shape", side, low=1, integer=True) for side in shape)
    require_range("size", size, low=1, integer=True)
    if size % 2 == 0:
        raise ValueError(message("size", "odd (the patch has a middle pixel)", size))
    reach, pixels = size // 2, np.arange(height * width).reshape(height, width)
    return Patches(
        pixels[max(0, r - reach) : r + reach + 1, max(0, c - reach) : c + reach + 1].ravel()
        for r in range(height)
        for c in range(width)
    )


def unit_matrix(groups: Sequence[Sequence[int] | np.ndarray] | None, d: int) -> np.ndarray:
    """(U, d) bool: which features a unit reveals; the identity without groups.

    Raises:
        TypeError, ValueError: if a group is empty or names no column, if features stand in two groups or in none
            (`Patches` may overlap). All problems at once, with the indices.
    """
    if groups is None:
        return np.eye(d, dtype=bool)
    require_kind("groups", groups, (list, tuple), hint="A list of lists of column indices.")
    units = np.zeros((len(groups), d), dtype=bool)
    with Problems("groups cannot be used") as problems:
        for k, group in enumerate(groups):
            columns = np.asarray(group)
            if columns.ndim != 1 or columns.size == 0 or columns.dtype.kind not in "iu":
                problems.add(message(f"group {k}", "a non-empty list of column indices", f"{group!r:.60}"))
            elif columns.min() < 0 or columns.max() >= d:
                wrong = sorted({int(j) for j in columns if not 0 <= j < d})
                problems.add(message(f"group {k}", f"of columns between 0 and {d - 1}", wrong))
            else:
                units[k, columns] = True
        if not problems.found:
            count = units.sum(axis=0)
            if hidden := np.flatnonzero(count == 0).tolist():
                problems.add(f"columns in no group: {hidden}.")
            if not isinstance(groups, Patches) and (twice := np.flatnonzero(count > 1).tolist()):
                problems.add(f"columns in more than one group: {twice}.")
    return units


def unit_costs(costs: Sequence[float] | None, n_units: int) -> np.ndarray:
    """(U,) price of each unit; 1 each by default.

    Raises:
        TypeError, ValueError: for another length, NaN or a negative price.
    """
    if costs is None:
        return np.ones(n_units)
    require_kind("feature_costs", costs, (list, tuple, np.ndarray))
    price = np.asarray(costs)
    if price.dtype.kind not in "iuf":
        raise TypeError(message("feature_costs", "numbers", f"dtype {price.dtype}"))
    require_shape("feature_costs", price, (n_units,), hint="One for each feature, or for each group.")
    require_finite("feature_costs", price)
    if (price < 0).any():
        raise ValueError(message("feature_costs", "non-negative", float(price.min())))
    return price.astype(float)
