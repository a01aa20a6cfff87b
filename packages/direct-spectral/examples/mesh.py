"""From finite-element meshes in files to a trained surrogate and a prediction written back next to the truth.

    python examples/mesh.py [folder of .vtu files with a nodal field "stress"]

Without a folder it first writes meshes of its own, as a finite-element code would. Needs direct-spectral[mesh].
"""

import sys
import tempfile
from pathlib import Path

import meshio
import numpy as np
import torch
from direct_spectral import FNODSE, evaluate, fit_bounds, train_operator
from direct_spectral.data import Batches, collate_point_clouds, load_mesh, ring_mesh, solve_plane_stress
from direct_spectral.data.elasticity_solver import hole_radius


def write_meshes(folder, n):
    gen = np.random.default_rng(0)
    angle = 2 * np.pi * np.arange(32) / 32
    for i in range(n):
        nodes, triangles = ring_mesh(hole_radius(angle, *gen.standard_normal((2, 5))), int(gen.integers(10, 16)))
        stress = solve_plane_stress(nodes, triangles)[1]
        flat = np.column_stack([nodes, 0 * nodes[:, 0]])
        meshio.Mesh(flat, [("triangle", triangles)], {"stress": stress}).write(folder / f"sample_{i:03d}.vtu")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        if len(sys.argv) == 1:
            write_meshes(folder, 120)
        meshes = [load_mesh(path) for path in sorted(folder.glob("*.vtu"))]
    samples = [{"points": m["points"], "u": m["points"][:, :0], "y": m["stress"]} for m in meshes]
    data = collate_point_clouds(samples)  # meshes of different size: padded, with a mask
    cut = int(0.8 * len(samples))
    train, test = ({name: x[rows] for name, x in data.items()} for rows in (slice(cut), slice(cut, None)))
    model = FNODSE(2, 0, 1, width=16, n_modes=6, bounds=fit_bounds(m["points"] for m in meshes[:cut]))
    model.fit_scales(train["u"], train["y"], train.get("mask"))
    train_operator(model, Batches(train, 10, shuffle=True), epochs=30, lr=3e-3, schedule="onecycle")
    found = evaluate(model.eval(), Batches(test, 10))
    print(
        f"relative L1 error on {len(samples) - cut} new meshes: {found['mean']:.1f} % (median {found['median']:.1f} %)"
    )
    with torch.no_grad():
        first = {name: x[:1] for name, x in test.items()}
        guess = model(first["u"], first["points"], mask=first.get("mask"))
    print(f"largest stress of the first one: {float(first['y'].max()):.3f}, predicted {float(guess.max()):.3f}")


if __name__ == "__main__":
    main()
