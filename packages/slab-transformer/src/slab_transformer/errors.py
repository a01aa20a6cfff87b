"""The two exceptions a caller of conversion or fusion (Guo et al., 2024, Section 3) can act on."""


class UnsupportedModuleError(ValueError):
    """The model holds nothing that can be replaced; names what it holds."""


class FusionError(ValueError):
    """A norm cannot be folded without changing what the model computes; names it and says why."""
