"""What the package reproduces: the paper, and where this differs from it."""

from offprints.claims import Method

METHOD = Method(
    dist="duplex-embed",
    title="DUPLEX: Dual GAT for Complex Embedding of Directed Graphs",
    authors="Zhaoru Ke, Hang Yu, Jianguo Li, Haipeng Zhang",
    field="Graph learning",
    summary="Complex embeddings of directed graphs that say whether a link exists and which way, for unseen nodes too.",
    venue="ICML 2024",
    arxiv="2406.05391",
    code="alipay/DUPLEX",
    dtype="float32",
    bibtex="""@inproceedings{ke2024duplex,
  title     = {{DUPLEX}: Dual {GAT} for Complex Embedding of Directed Graphs},
  author    = {Ke, Zhaoru and Yu, Hang and Li, Jianguo and Zhang, Haipeng},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series    = {PMLR},
  volume    = {235},
  pages     = {23430--23448},
  year      = {2024}
}""",
    deviations=[
        "Test edges carry no messages. In the official code message passing runs on the whole graph, test edges "
        "included; official_leak=True brings that back, and every report says which protocol it is of.",
        "Non-edges are no messages (the official code inserts them with weight 0, where they still take a share of the "
        "softmax), and a reciprocal pair sends one message each way instead of two.",
        "The decoder measures the same l2 distance in training and evaluation; the official evaluation takes l1.",
        'Inputs without features are degrees and a little noise (init="degree"); the paper\'s N(0, 1) is '
        'init="normal" and cannot be inductive.',
        "At cpu scale: 32 dimensions, learning rate 1e-2 or 3e-2, dropout 0.1 and 150 epochs instead of 128, 1e-3, 0.5 "
        "and up to 3000; one best epoch for all tasks instead of one for each.",
        "The graphs are imports of sympy and networkx and a generator of citation shape, which anyone can rebuild; "
        "the paper's files are read by the command line. Its tables and the numbers of its equations and sections were "
        "not at hand: none are quoted, and sections are cited by what they are about.",
        "Types are measured in equal numbers, as the official code does, and as often as they occur.",
        "DiGCN runs on the networkx graph alone: the library makes a dense matrix of n × n. ODIN is left out.",
        "torch_geometric's NeighborLoader is not used: it needs compiled kernels that are not to be had for current "
        "torch, and does not sample by direction. NeighborSampler does, without them.",
    ],
)
