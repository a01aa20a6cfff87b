"""What must not be shown as an explanation: the most probable stopping time, which looks at later states."""

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from suwr.estimators import SUWRClassifier, SUWRRegressor
from suwr.unrolling import rollout


@torch.no_grad()
def argmax_time_support(model: SUWRClassifier | SUWRRegressor, X: object) -> np.ndarray:
    """(n, d) bool: the greedy selection up to the t of largest p_t (equation 11). It LEAKS.

    p_t at a later t is known only after more has been revealed, so that where to stop depends on features that are then
    hidden again. It is here to be measured, not to be used.

    Raises:
        TypeError, ValueError: for rows unlike those of `fit`.
    """
    check_is_fitted(model)
    rows = model._checked(X)
    weight = model.policy_.select.weight
    x, observed = model._tensors(rows, weight.device, weight.dtype)
    rolled = rollout(model.policy_, x, model.budget_, space=model._space, observed=observed, greedy=True)
    likeliest = rolled.stop_prob.argmax(dim=1) * model._space.step
    units = model._space.units
    mask = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
    for t in range(rolled.order.shape[1]):
        unit = rolled.order[:, t]
        mask = mask | (units[unit.clamp_min(0)] & ((unit >= 0) & (t < likeliest))[:, None])
    if observed is not None:
        mask = mask & observed
    return mask.cpu().numpy()
