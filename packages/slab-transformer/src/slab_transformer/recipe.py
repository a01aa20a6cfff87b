"""What was done to a model (Guo et al., 2024, Section 3), as plain data that is saved with it."""

from collections.abc import Mapping

from torch import nn

_KEY = "slab_transformer"


def get_recipe(model: nn.Module) -> dict[str, object]:
    """The recipe, or an empty one."""
    recipe = getattr(model, "slab_recipe", None)
    if recipe is None and hasattr(model, "config"):
        recipe = getattr(model.config, _KEY, None)
    return dict(recipe or {})


def put_recipe(model: nn.Module, recipe: Mapping[str, object]) -> None:
    """Keep it with the model; in a transformers model it is saved with its configuration."""
    model.slab_recipe = dict(recipe)
    if hasattr(model, "config") and hasattr(model, "save_pretrained"):
        setattr(model.config, _KEY, dict(recipe))
