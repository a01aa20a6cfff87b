import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["offprints.testing.plugin"]

with warnings.catch_warnings():  # torch warns of its own scripting when a forward-mode rule is first used
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.func.jvp(torch.square, (torch.ones(1),), (torch.ones(1),))
