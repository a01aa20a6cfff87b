"""Where the NUFFT overtakes the direct sum on this machine: times against points and modes, as a table and a figure.

    python examples/crossover.py [crossover.png]

Needs direct-spectral[nufft]; the figure also matplotlib.
"""

import sys
import time

import numpy as np
import torch
from direct_spectral import FourierBasis
from scipy.interpolate import LinearNDInterpolator

BOX = ((0.0, 1.0), (0.0, 1.0))


def seconds(run, rounds=5):
    run()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken))


def interpolated(points, u, n):
    """Linear interpolation onto an n × n grid (triangulated beforehand would be faster), FFT, and back by FFT."""
    line = (np.arange(n) + 0.5) / n
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
    field = np.nan_to_num(LinearNDInterpolator(points.numpy(), u[0].t().numpy())(grid))
    return np.fft.irfft2(np.fft.rfft2(field, axes=(0, 1)), axes=(0, 1))


def main():
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(0)
    rows = []
    print("points  modes   direct     finufft    interpolation + FFT   (ms, 32 channels, there and back)")
    for n in (500, 2000, 8000, 20000):
        points, u = torch.rand(n, 2, generator=gen), torch.randn(1, 32, n, generator=gen)
        for m in (m for m in (8, 16, 32) if 2 * m * m <= n):  # more waves than points make no sense
            times = []
            for backend in ("direct", "finufft"):
                basis = FourierBasis(points, m, BOX, backend=backend, max_basis_bytes=2**31)
                times.append(seconds(lambda basis=basis, u=u: basis.synthesise(basis.analyse(u))))
            times.append(seconds(lambda points=points, u=u: interpolated(points, u, 64), rounds=2))
            rows.append((n, m, *times))
            print(f"{n:6d}  {m:5d}  " + "  ".join(f"{1000 * t:9.2f}" for t in times))
    if len(sys.argv) > 1:
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(6, 4), layout="constrained")
        ax = drawn.subplots()
        for m in (8, 16, 32):
            for column, (name, style) in enumerate((("direct", "-"), ("finufft", "--"))):
                chosen = [row for row in rows if row[1] == m]
                ax.loglog([r[0] for r in chosen], [r[2 + column] for r in chosen], style, label=f"{name}, m = {m}")
        first = [row for row in rows if row[1] == 8]
        ax.loglog([r[0] for r in first], [r[4] for r in first], ":", label="interpolation + FFT")
        ax.set(xlabel="points", ylabel="seconds")
        ax.legend(fontsize=8)
        drawn.savefig(sys.argv[1], dpi=140)


if __name__ == "__main__":
    main()
