"""A neural operator trained in pure bfloat16."""

import torch
from offprints.seeding import isolated


def test_an_operator_in_bfloat16_ends_where_float32_does_when_no_update_is_lost():
    """Controls: float32 with AdamW, whose error is to be reached within 5 %; bfloat16 with the same AdamW."""
    from collage_optim import CollageAdamW
    from direct_spectral import FNODSE, train_operator
    from direct_spectral.data import Batches, burgers

    sites = torch.rand(200, 1, generator=torch.Generator().manual_seed(1))
    data = burgers(160, sites, seed=0)

    def cast(rows, dtype):
        return {name: x if name == "points" else x[rows].to(dtype) for name, x in data.items()}

    def error(dtype, optimizer):
        train, test = cast(slice(128), dtype), cast(slice(128, None), dtype)
        with isolated(0):
            model = FNODSE(1, 1, 1, width=16, n_modes=12, bounds=((0, 1),), periodic=True)
        model.fit_scales(data["u"][:128], data["y"][:128])
        train_operator(
            model.to(dtype),
            Batches(train, 32, shuffle=True),
            epochs=300,
            lr=5e-3,
            loss=lambda found, wanted, _: (found.float() - wanted.float()).abs().mean(),
            schedule="onecycle",
            optimizer=lambda params: optimizer(params, lr=5e-3, weight_decay=0.0),
        )
        assert all(p.dtype == dtype for p in model.parameters())
        wanted = data["y"][128:]
        with torch.no_grad():
            gap = model(test["u"], test["points"]).float() - wanted
        return float((gap.abs().sum((1, 2)) / wanted.abs().sum((1, 2))).mean())

    full = error(torch.float32, torch.optim.AdamW)
    composed = error(torch.bfloat16, CollageAdamW)
    lossy = error(torch.bfloat16, torch.optim.AdamW)
    assert full < 0.1
    assert composed <= 1.05 * full
    assert composed < lossy
