"""What the package reproduces: the paper, and where this differs from it."""

from offprints.claims import Method

METHOD = Method(
    dist="grokking-theory",
    title="Why Do You Grok? A Theoretical Analysis of Grokking Modular Addition",
    authors="Mohamad Amin Mohamadi, Zhiyuan Li, Lei Wu, Danica J. Sutherland",
    field="Learning theory",
    summary="Tells whether a network is still a kernel machine; kernel lower and ℓ∞ upper bounds with constants.",
    venue="ICML 2024",
    arxiv="2407.12332",
    code=None,
    bibtex="""@inproceedings{mohamadi2024why,
  title     = {Why Do You Grok? A Theoretical Analysis of Grokking Modular Addition},
  author    = {Mohamadi, Mohamad Amin and Li, Zhiyuan and Wu, Lei and Sutherland, Danica J.},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {PMLR},
  volume    = {235},
  pages     = {35934--35967},
  year      = {2024}
}""",
    deviations=[
        "At cpu scale p is 11 to 23 (the paper: 47 to 113) and training uses AdamW with weight decay (the paper's "
        "recipes, gradient descent with an ℓ∞ penalty over 1e5 steps, are the full scale).",
        "The lower bounds carry an explicit constant, derived from the dimension (p - 1)^m of one irreducible "
        "representation, where the paper proves that some constant exists.",
        "For classification the bound n/(p - 1)² is stated for label-invariant kernels K = αI + βJ; a p × p kernel "
        "that is equivariant in law only spans p dimensions a point and gets the weaker n p/(p - 1)³.",
        "Equation (4.3) prints Pr[q > γ] for the margin loss; it is Pr[q ≤ γ] here, ties counted as errors.",
        "Training is in float64: in float32 the cross-entropy reaches 0 exactly and normalised descent divides 0/0.",
        "The transformer has no normalisation layers and 50 thousand parameters at cpu scale.",
        "Beyond the claims as they stand, rich-regime-13 repeats rich-regime at p = 13.",
    ],
)
