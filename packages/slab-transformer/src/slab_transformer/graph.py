"""What is left to compute after fusion (Guo et al., 2024, Section 3.2): operations of the graph, and its ONNX file."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from offprints.checks import require_kind
from torch import Tensor, nn

from .errors import FusionError
from .fuse import find_norms

_STATISTICS = ("ReduceMean", "LayerNormalization", "BatchNormalization", "InstanceNormalization", "RMSNormalization")


def count_operations(model: nn.Module, *args: Tensor, **kwargs: Tensor) -> dict[str, int]:
    """How often each ATen operation stands in the exported graph of a forward, in eval mode."""
    require_kind("model", model, nn.Module)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            program = torch.export.export(model, tuple(args), dict(kwargs), strict=False)
    finally:
        model.train(training)
    return dict(Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function"))


def export_onnx(model: nn.Module, path: str | Path, example: object) -> dict[str, int]:
    """Write a fused model as ONNX and check that no statistics are computed in it. Needs `slab-transformer[onnx]`.

    Returns:
        How often each ONNX operation stands in the graph.

    Raises:
        FusionError: The model is not fused, or its graph still normalises.
        ModuleNotFoundError: onnx or onnxscript is missing.
    """
    require_kind("model", model, nn.Module)
    if find_norms(model) or not hasattr(model, "fusion_report"):
        raise FusionError("model must be fused before it is exported: call fuse(model).")
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('ONNX export needs: pip install "slab-transformer[onnx]"') from error
    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
    given = args if isinstance(args, tuple) else (args,)
    torch.onnx.export(model.eval(), given, str(path), kwargs=kwargs, dynamo=True, verbose=False)
    graph = onnx.load(str(path)).graph
    found = dict(Counter(node.op_type for node in graph.node))
    still = {name: count for name, count in found.items() if name in _STATISTICS[1:]}
    if still:
        raise FusionError(f"the exported graph still normalises: {still}.")
    return found
