"""What the package reproduces: the paper, and where this differs from it."""

from offprints.claims import Method

METHOD = Method(
    dist="collage-optim",
    title="Collage: Light-Weight Low-Precision Strategy for LLM Training",
    authors="Tao Yu, Gaurav Gupta, Karthick Gopalswamy, Amith Mamidala, Hao Zhou, Jeffrey Huynh, Youngsuk Park, "
    "Ron Diamant, Anoop Deoras, Luke Huan",
    field="Low-precision training",
    summary="AdamW whose 16-bit weights lose no update: sums of two bfloat16 instead of a float32 master copy.",
    venue="ICML 2024",
    arxiv="2405.03637",
    code="amazon-science/collage",
    bibtex="""@inproceedings{yu2024collage,
  title     = {Collage: Light-Weight Low-Precision Strategy for {LLM} Training},
  author    = {Yu, Tao and Gupta, Gaurav and Gopalswamy, Karthick and Mamidala, Amith and Zhou, Hao and
               Huynh, Jeffrey and Park, Youngsuk and Diamant, Ron and Deoras, Anoop and Huan, Luke},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {PMLR},
  volume    = {235},
  year      = {2024}
}""",
    deviations=[
        "The claims train a GPT of 0.1 M weights on 420 000 characters for 300 steps; forward and backward run in "
        "float32 on the 16-bit weights, so that gradients and optimizer see true bfloat16 and a CPU does not emulate "
        "its products.",
        "beta_2 is split from float64. The released code splits it in torch's default type: with float32 the low part "
        "is lost, beta_2 = 0.999 acts as 1 and v never decays.",
        "Mul takes the error of the product from the old value; the released code multiplies in place first, which is "
        "right only where beta_2 rounds to 1 (v settles at a third of its value for beta_2 = 0.95).",
        "Bias correction and epsilon as in torch.optim.AdamW; the released RoBERTa script has another meaning of "
        "epsilon. step() returns the loss or None, groups need no names.",
        'EDQ counts the stored value h + l (view="visible" counts h alone, as the released code logs), and an update '
        "of zero is not counted as lost.",
        'math="fp32" (and compile=True) store the same state but compute in float32: faster, as good in these '
        "claims, not the paper's arithmetic.",
        "The paper's 3.7 times faster training on 8 GPUs is not measured here; the duels time the optimizer's step.",
    ],
)
