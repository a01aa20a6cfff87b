"""What a paper says, measured here: claims, the closed set of expectations, verdicts, and the runner.

```python
METHOD = Method(dist="lococo", title=..., ...)


@METHOD.claim(
    "table2", where="Table 2", says="...", paper={"ours": 8.1},
    expect=[less("ours", than=best("h2o", "window"), by=0.02)],
    smoke=Scale(seeds=2, steps=40), cpu=Scale(seeds=6, steps=1500),
)
def table2(seed: int, scale: Scale, device: str) -> dict[str, float]: ...
```
"""

from offprints.claims.expectations import (
    Verdict,
    best,
    bound,
    exact,
    greater,
    less,
    monotone,
    rate,
    scaled,
    slope,
    within,
)
from offprints.claims.method import Claim, ClaimError, Method, MissingResource, Runs, Scale, load_method, methods

__all__ = [
    "Claim", "ClaimError", "Method", "MissingResource", "Runs", "Scale", "Verdict", "best", "bound", "exact", "greater",
    "less", "load_method", "methods", "monotone", "rate", "scaled", "slope", "within",
]  # fmt: skip
