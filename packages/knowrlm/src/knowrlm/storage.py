"""A campaign on disk: settings as JSON, measurements and policy as safetensors, the library as CSV (Algorithm 1)."""

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from offprints.checkpoint import load, save
from offprints.checks import message
from torch import nn

from knowrlm._version import DIST, VERSION
from knowrlm.constraints import PlateConstraints
from knowrlm.evolve import DirectedEvolution
from knowrlm.graph import AminoAcidGraph
from knowrlm.ppo import PPOConfig, config_dict
from knowrlm.predictor import EnsemblePredictor
from knowrlm.settings import WalkSettings


def save_campaign(campaign: DirectedEvolution, path: str | Path) -> Path:
    """Write `<path>.safetensors`, `<path>.json` and `<path>.csv` (the library of Algorithm 1) and return the first.

    What is kept: settings, graph, measurements, and the weights of the last policy without its encoder's.

    Raises:
        TypeError: if the encoder is a module of your own: save that yourself, and hand it to `load_campaign`.
    """
    tensors = {
        "codes": campaign.codes,
        "fitness": campaign.fitness,
        "plate": campaign.plate_of,
        "repeats": campaign.repeats,
        "excluded": campaign.excluded,
        "distances": campaign.graph.distances,
    }
    if campaign.policy is not None:
        state = campaign.policy.state_dict()
        heads = {name: value for name, value in state.items() if not name.startswith("encoder.")}
        tensors |= {f"policy.{name}": value.detach().cpu().numpy() for name, value in heads.items()}
    written = save(path, tensors, method=DIST, version=VERSION, config=_config(campaign))
    library = pd.DataFrame(
        {
            "variant": campaign.space.decode(campaign.codes),
            "mutations": campaign.space.mutations(campaign.codes),
            "fitness": campaign.fitness,
            "plate": campaign.plate_of,
        }
    )
    library.to_csv(written.with_suffix(".csv"), index=False)
    return written


def load_campaign(path: str | Path, *, plm: nn.Module | None = None, device: str | None = None) -> DirectedEvolution:
    """The campaign in a file; its next plate is the one that the saved campaign would have proposed (Algorithm 1).

    Of the last walks only the policy is kept: for a space that cannot be listed, `recommend` right after loading does
    not know what they visited.

    Args:
        path: with or without the suffix.
        plm: the encoder, if it was a module of your own.
        device: of the policy.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no campaign, truncated, or needs an encoder that is not given.
    """
    found = load(path, method=DIST)
    config = cast(dict[str, Any], found.config)
    tensors = cast(dict[str, np.ndarray], found.tensors)
    walk = dict(config["walk"])
    if walk["plm"] is None:
        if plm is None:
            raise ValueError(message("plm", "the encoder that the campaign was made with", "none", "Pass plm=."))
        walk["plm"] = plm
    if isinstance(walk["window"], list):
        walk["window"] = tuple(walk["window"])
    walk["ppo"] = PPOConfig(**walk["ppo"])
    space = config["space"]
    campaign = DirectedEvolution(
        space["parent"], space["sites"], batch=config["batch"], initial=config["initial"],
        allowed={int(site): letters for site, letters in space["allowed"].items()},
        graph=AminoAcidGraph(tensors["distances"], config["graph"]), features=config["features"],
        predictor=EnsemblePredictor(**config["predictor"]), walk=WalkSettings(**walk),
        constraints=PlateConstraints(
            max_mutations=config["max_mutations"], residues_per_site=config["residues_per_site"]
        ),
        beta=config["beta"], diverse=config["diverse"], random_state=config["random_state"], device=device,
    )  # fmt: skip
    campaign.codes, campaign.fitness, campaign.plate_of = tensors["codes"], tensors["fitness"], tensors["plate"]
    campaign.repeats = tensors["repeats"]
    campaign.excluded, campaign.round = tensors["excluded"], config["round"]
    return campaign


def _config(campaign: DirectedEvolution) -> dict[str, object]:
    settings, space = campaign.walk, campaign.space
    own = isinstance(settings.plm, nn.Module)
    walk = {item.name: getattr(settings, item.name) for item in fields(settings)}
    walk |= {"plm": None if own else str(settings.plm), "ppo": config_dict(settings.ppo)}
    predictor = campaign.predictor.get_params()
    if predictor["models"] is not None:
        predictor["models"] = campaign.predictor.names
    return {
        "space": {
            "parent": space.parent,
            "sites": list(space.sites),
            "allowed": dict(zip(map(str, space.sites), space.allowed, strict=True)),
        },
        "graph": campaign.graph.name,
        "batch": campaign.batch,
        "initial": campaign.initial,
        "features": campaign.features,
        "predictor": predictor,
        "walk": walk,
        "max_mutations": campaign.constraints.max_mutations,
        "residues_per_site": campaign.constraints.residues_per_site,
        "beta": campaign.beta,
        "diverse": campaign.diverse,
        "random_state": int(campaign.random_state),
        "round": int(campaign.round),
    }
