import os
import warnings

os.environ.setdefault("MPLBACKEND", "agg")

pytest_plugins = ["offprints.testing.plugin"]

with warnings.catch_warnings():  # both script some of their own classes, by a way that torch now calls old
    warnings.simplefilter("ignore")
    import torch_geometric.nn  # noqa: F401
    import torch_geometric_signed_directed.nn.directed  # noqa: F401
