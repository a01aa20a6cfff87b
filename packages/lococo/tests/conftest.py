import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from lococo_tiny import build

pytest_plugins = ["offprints.testing.plugin"]


@pytest.fixture(scope="session")
def model():
    """A tiny random Llama with grouped-query attention, in float64; tests leave it as it is."""
    return build()


@pytest.fixture
def ids():
    return torch.randint(1, 64, (2, 40), generator=torch.Generator().manual_seed(0))
