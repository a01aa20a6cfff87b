"""What the package reproduces: the paper, and where this differs from it."""

from offprints.claims import Method

METHOD = Method(
    dist="knowrlm",
    title="Knowledge-aware Reinforced Language Models for Protein Directed Evolution",
    authors="Yuhao Wang, Qiang Zhang, Ming Qin, Xiang Zhuang, Xiaotong Li, Zhichen Gong, Zeyuan Wang, Yu Zhao, "
    "Jianhua Yao, Keyan Ding, Huajun Chen",
    field="Protein engineering",
    summary="Proposes the next plate of a directed-evolution campaign by walks on an amino-acid knowledge graph.",
    venue="ICML 2024",
    code="HICAI-ZJU/KnowRLM",
    dtype="float32",
    bibtex="""@inproceedings{wang2024knowrlm,
  title     = {Knowledge-aware Reinforced Language Models for Protein Directed Evolution},
  author    = {Wang, Yuhao and Zhang, Qiang and Qin, Ming and Zhuang, Xiang and Li, Xiaotong and Gong, Zhichen and
               Wang, Zeyuan and Zhao, Yu and Yao, Jianhua and Ding, Keyan and Chen, Huajun},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {PMLR},
  volume    = {235},
  year      = {2024}
}""",
    deviations=[
        "GB1 and PhoQ ship in no package: the claims run on CR6261 (measured), on AAV2 variants whose single effects "
        "are measured and combined log-additively, and on Ehrlich functions; none was made from the graph.",
        "The released code mutates observations in place while it scores candidates, compares every state with row 0 "
        "of the batch, and leaves the residue out of PPO's log-probability; here states are kept, rows are their own, "
        "and the log-probability is that of site and residue.",
        "States are taken relative to the masked parent's by a difference (the released code divides, which explodes "
        "near 0; `reference='ratio'` does it with a floor).",
        "The encoder is frozen by default (`finetune=True` trains it), offline a small ESM that starts from the "
        "graph's coordinates; walks take at most 6 000 steps a round (the paper: 30 000).",
        "The predictor averages seven kinds of scikit-learn models in place of MLDE's 22; in the claims ridge and "
        "extra trees, for every method alike.",
        "Rewards are divided by the library's standard deviation for the value function; windows and the end of a "
        "walk see them as they are.",
        "Actions are residues, so the penalty of -100 for other tokens cannot occur; -1 for a substitution that is not "
        "allowed stands in the environment.",
        "Means over seeds are reported; the released results are the best of several runs.",
    ],
)
