"""Audit five ways to choose features for rows of scikit-learn's breast-cancer data; print who leaks, and a proof."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from suwr import INVASE, L2X, REALX, GlobalSelector, SUWRClassifier, leakage_report

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_fit, X_new, y_fit, y_new = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

common = {"batch_size": 100, "max_epochs": 150, "random_state": 0}
models = {
    "SUWR": SUWRClassifier(max_features=4, sparsity=0.2, **common),
    "global": GlobalSelector(k=4, random_state=0),
    "L2X": L2X(k=4, **common),
    "INVASE": INVASE(sparsity=0.02, lr=1e-3, **common),
    "REAL-X": REALX(sparsity=0.02, **common),
}
proof = None
for name, model in models.items():
    model.fit(X_fit, y_fit)
    found = leakage_report(model, X_new, y_new.to_numpy(), n_probes=2000)
    shown = model.local_support(X_new).sum(axis=1).mean()
    print(f"{name:7} accuracy {model.score(X_new, y_new):.3f}, {shown:4.1f} features; {found.probes.verdict}")
    proof = proof or found.certificate

print(f"\na certificate, the first one found:\n{proof}")
