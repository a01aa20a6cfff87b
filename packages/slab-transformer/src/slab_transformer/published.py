"""Numbers that the paper reports (Guo et al., 2024, abstract and Tables 1-2): ImageNet top-1 in %, milliseconds."""

import json
from importlib.resources import files

PUBLISHED: dict[str, dict[str, float]] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
TOP1 = {
    f"{kind}_{model.lower().replace('-', '_')}": value
    for kind in ("prepbn", "slab")
    for model, value in PUBLISHED[f"top1_{kind}"].items()
}
