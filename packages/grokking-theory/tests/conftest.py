import random

from jaxtyping import install_import_hook

pytest_plugins = ["offprints.testing.plugin"]

# beartype picks the item of a container that it checks at random: give it a generator of its own, or the tests that
# watch the global one would see it move.
shared, random.getrandbits = random.getrandbits, random.Random(0).getrandbits
import beartype  # noqa: E402

random.getrandbits = shared
beartype.numeric = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int may stand for a float

# Shapes in annotations are checked on every call of the tests (the hook must come before the first import).
install_import_hook("grokking_theory", "beartype.numeric").__enter__()
