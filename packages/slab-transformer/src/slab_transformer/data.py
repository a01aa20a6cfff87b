"""Images and text to train on: what ships with scikit-learn and Python, folders, and token files (Section 5)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from offprints.checks import require_range
from torch import Tensor

_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def digits(seed: int, test_share: float = 0.25) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """scikit-learn's 1797 digits of 8 x 8, standardised: train images (n, 1, 8, 8), train labels, test ones."""
    from sklearn.datasets import load_digits

    require_range("test_share", test_share, low=0.0, high=1.0, low_open=True, high_open=True)
    found = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    images = torch.from_numpy((found.data[order].reshape(-1, 1, 8, 8) - 4.9) / 6.0).float()
    labels = torch.from_numpy(found.target[order]).long()
    cut = round(len(order) * (1 - test_share))
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def documentation() -> Tensor:
    """Python's own documentation as bytes below 128: one long tensor of token numbers.

    Raises:
        ModuleNotFoundError: A Python that was built without its documentation.
    """
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    return torch.tensor([code if code < 128 else 32 for code in text.encode("utf-8", "replace")])


def image_folder(folder: str | Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """Files and classes of `folder/class/*.jpg`, the layout of ImageNet.

    Raises:
        ValueError: No classes, or a class without images; names it.
    """
    where = Path(folder)
    classes = sorted(path.name for path in where.iterdir() if path.is_dir()) if where.is_dir() else []
    if not classes:
        raise ValueError(f"{where} must hold one folder for each class, got none.")
    files = []
    for number, name in enumerate(classes):
        here = [path for path in sorted((where / name).iterdir()) if path.suffix.lower() in _IMAGES]
        if not here:
            raise ValueError(f"{where / name} must hold images ({', '.join(_IMAGES)}), got none.")
        files += [(path, number) for path in here]
    return files, classes


def image_batches(
    files: Sequence[tuple[Path, int]], size: int, batch: int, gen: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches (B, 3, size, size) and labels, resized and normalised as for ImageNet; in random order with `gen`.

    Raises:
        ValueError: A file that is no image; names it.
    """
    from PIL import Image, UnidentifiedImageError

    order = torch.randperm(len(files), generator=gen).tolist() if gen is not None else list(range(len(files)))
    for begin in range(0, len(order), batch):
        images, labels = [], []
        for place in order[begin : begin + batch]:
            path, label = files[place]
            try:
                with Image.open(path) as opened:
                    pixels = np.asarray(opened.convert("RGB").resize((size, size)), dtype=np.float32) / 255
            except UnidentifiedImageError:
                raise ValueError(f"{path} must be an image, got something else.") from None
            images.append(torch.from_numpy((pixels - np.float32(_MEAN)) / np.float32(_STD)).permute(2, 0, 1))
            labels.append(label)
        yield torch.stack(images), torch.tensor(labels)
