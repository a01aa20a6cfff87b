"""Logistic regression on a real data set, its loss and gradient computed in float16.

SLSQP and L-BFGS-B on the raw answers and through the wrapper, against the float64 optimum, with certificates.
"""

import numpy as np
from inexact_oracle import SmoothOracle
from inexact_oracle.algorithms import scipy_minimize
from inexact_oracle.data import breast_cancer


def main() -> None:
    exact = breast_cancer()
    rows, labels = exact.rows.astype(np.float16), exact.labels.astype(np.float16)

    def half(x):
        margin = labels * (rows @ x.astype(np.float16))
        weight = -labels / (np.float16(1) + np.exp(np.minimum(margin, np.float16(11))))
        value = np.log1p(np.exp(-margin.astype(np.float32))).mean()
        return float(value), (rows.T.astype(np.float32) @ weight.astype(np.float32)).astype(np.float64) / len(labels)

    # How large the errors are: twice the largest that 200 probes show.
    probes = np.random.default_rng(0).uniform(-1, 1, (200, 30))
    eta_f = 2 * max(abs(half(x)[0] - exact(x)[0]) for x in probes)
    eta_g = 2 * max(float(np.linalg.norm(half(x)[1] - exact(x)[1])) for x in probes)
    print(f"float16: eta_f = {eta_f:.2e}, eta_g = {eta_g:.2e}")
    options = {"ftol": 1e-14, "maxiter": 3000}
    best = scipy_minimize(exact, np.zeros(30), bounds=(-1, 1), options=options).value
    for method in ("L-BFGS-B", "SLSQP"):
        naive = scipy_minimize(half, np.zeros(30), method=method, bounds=(-1, 1))
        oracle = SmoothOracle(half, 30, eta_f, eta_g, 1.0, diameter=2 * np.sqrt(30))
        wrapped = scipy_minimize(oracle, np.zeros(30), method=method, bounds=(-1, 1))
        proof = oracle.certificate(wrapped.x, bounds=(-1, 1))
        print(f"{method}: naive error {exact(naive.x)[0] - best:.2e} ({naive.status})")
        print(f"{method}: wrapped error {exact(wrapped.x)[0] - best:.2e}, proved at most {proof.bound:.2e}")


if __name__ == "__main__":
    main()
