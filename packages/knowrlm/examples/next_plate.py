"""A campaign on a landscape that was measured whole: five plates of 24 antibodies, with reasons, saved on the way.

    pip install "knowrlm[data]" && python examples/next_plate.py

2 048 antibodies between CR6261 and its germline, affinity to an influenza haemagglutinin. Put
`evolution.tell("plate.csv")` in the place of the look-up to run it on your own measurements.
"""

import tempfile
from pathlib import Path

from knowrlm import DirectedEvolution, PlateConstraints, WalkSettings, cr6261

lab = cr6261()
evolution = DirectedEvolution(
    lab.space.parent,
    list(lab.space.sites),
    allowed=dict(zip(lab.space.sites, lab.space.allowed, strict=True)),
    batch=24,
    walk=WalkSettings(steps=400, context=5),
    constraints=PlateConstraints(max_mutations=8),
    random_state=0,
)
for number in range(1, 5):
    plate = evolution.ask()
    plate["fitness"] = lab.measure(lab.space.encode(plate["variant"].tolist()))
    evolution.tell(plate)
    print(f"plate {number}: mean {plate['fitness'].mean():.2f}, best {plate['fitness'].max():.2f}")
    print("   ", plate["why"].iloc[0][:160])

with tempfile.TemporaryDirectory() as folder:
    evolution.save(Path(folder) / "antibodies")
    evolution = DirectedEvolution.load(Path(folder) / "antibodies")

last = evolution.recommend(24)
last["measured"] = lab.measure(lab.space.encode(last["variant"].tolist()))
print(last[["mutations", "predicted", "spread", "measured"]].head(8).to_string(index=False))
print(f"best of the landscape: {lab.maximum:.2f}")
print(evolution.report())
