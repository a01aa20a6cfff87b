"""What the package reproduces: the paper, and where this differs from it."""

from offprints.claims import Method

METHOD = Method(
    dist="direct-spectral",
    title="Beyond Regular Grids: Fourier-Based Neural Operators on Arbitrary Domains",
    authors="Levi Lingsch, Mike Y. Michelis, Emmanuel de Bézenac, Sirani M. Perera, Robert K. Katzschmann, "
    "Siddhartha Mishra",
    field="Neural operators",
    summary="FNO, F-FNO, U-FNO and spherical FNO on any set of points: the kept modes are evaluated directly.",
    venue="ICML 2024",
    arxiv="2305.19663",
    code="camlab-ethz/DSE-for-NeuralOperators",
    dtype="float32",
    bibtex="""@inproceedings{lingsch2024beyond,
  title     = {Beyond Regular Grids: Fourier-Based Neural Operators on Arbitrary Domains},
  author    = {Lingsch, Levi and Michelis, Mike Y. and de B{\\'e}zenac, Emmanuel and Perera, Sirani M. and
               Katzschmann, Robert K. and Mishra, Siddhartha},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {PMLR},
  volume    = {235},
  year      = {2024}
}""",
    deviations=[
        "The spectral layer is a Fourier multiplier, R_k acting on mode k; in the released two-dimensional code rows "
        "and columns of the modes are exchanged between transform and weights.",
        "Bounds are fixed once, where the released code takes them anew from every batch (and shifts the positions in "
        "place); 2π is 2π, and the ends of an axis that is not periodic are kept apart by a gap.",
        "Negative waves are true ones on any positions; the released lattice code has them on equispaced grids only.",
        "Factorised layers have weights for each axis and use their spectral branch; spherical harmonics are "
        "orthonormal, where the released code divides each by its largest value on the given points.",
        "The baseline that interpolates onto a grid also gets the distance from each grid point to the nearest point "
        "of the cloud, without which it cannot see where a mesh has its hole.",
        "Data at cpu scale come from solvers of this package, smaller than the paper's; every model gets the same "
        "three learning rates and is reported at its best. The paper's full text was not at hand: the method is "
        "written from its abstract and formulas, and places are named by section.",
    ],
)
