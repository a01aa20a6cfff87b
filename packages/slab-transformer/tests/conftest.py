import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["offprints.testing.plugin"]


@pytest.fixture
def gen():
    return torch.Generator().manual_seed(0)
