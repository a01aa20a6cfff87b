"""Bad input: what, got, expected, hint; nothing silently wrong."""

import math
import warnings

import grokking_theory as gt
import jaxtyping
import numpy as np
import pytest
import torch
from grokking_theory import bounds


@pytest.fixture(autouse=True)
def _as_users_call_it():
    """Without the shape checks of the tests, which would refuse some of these calls first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def network():
    return gt.QuadraticNetwork(5, 4)


PAIRS = torch.tensor([[0, 1], [2, 3]])
TRIPLES = torch.tensor([[0, 1, 1], [2, 3, 4]])
LINE = torch.nn.Linear(2, 2)

ROWS = {
    "p below 2": (lambda: gt.ModularAddition(1), ValueError, "p must be an integer at least 2, got 1"),
    "p no integer": (lambda: gt.ModularAddition(5.0), TypeError, "p must be an integer"),
    "p a bool": (lambda: gt.QuadraticNetwork(True, 3), TypeError, "p must be"),
    "more points than there are": (lambda: gt.ModularAddition(5, n_train=26), ValueError, "N = 5\\^2"),
    "share above one": (lambda: gt.ModularAddition(5, n_train=1.5), ValueError, "share"),
    "share of zero": (lambda: gt.ModularAddition(5, n_train=0.0), ValueError, "share"),
    "share NaN": (lambda: gt.ModularAddition(5, n_train=math.nan), ValueError, "n_train"),
    "no training points": (lambda: gt.ModularAddition(5, n_train=0), ValueError, "n_train must be"),
    "m below 2": (lambda: gt.ModularAddition(5, m=1), ValueError, "m must be"),
    "m with a table": (lambda: gt.ModularAddition(5, m=4, op=gt.table("add", 5)), ValueError, "m must be 3"),
    "kind": (lambda: gt.ModularAddition(5, "ranking"), ValueError, "one of 'classification', 'regression'"),
    "too many points to number": (lambda: gt.ModularAddition(97, n_train=9, m=12), ValueError, "Lower p or m"),
    "table of floats": (lambda: gt.ModularAddition(3, op=torch.eye(3)), TypeError, "integers"),
    "table out of range": (lambda: gt.ModularAddition(3, op=torch.full((3, 3), 3)), ValueError, r"in \[0, 3\)"),
    "table of another size": (lambda: gt.ModularAddition(3, op=gt.table("add", 4) % 3), ValueError, "shape"),
    "unknown operation": (lambda: gt.table("divide", 5), ValueError, "'quadratic'"),
    "operation of floats": (lambda: gt.table(lambda a, b: a / 2, 5), TypeError, "integers"),
    "targets of other columns": (lambda: gt.ModularAddition(5).targets(TRIPLES), ValueError, "inputs must be of shape"),
    "targets out of range": (lambda: gt.ModularAddition(5).targets(PAIRS + 3), ValueError, r"in \[0, 5\)"),
    "limit": (lambda: gt.ModularAddition(5).train_inputs(0), ValueError, "limit"),
    "float pairs": (lambda: network()(PAIRS.double()), TypeError, "pairs must hold integers"),
    "one-hot pairs": (lambda: network()(torch.zeros(2, 10, dtype=torch.long)), ValueError, "pairs must be of shape"),
    "label too large": (lambda: network()(torch.tensor([[5, 0]])), ValueError, r"in \[0, 5\)"),
    "label negative": (lambda: network()(torch.tensor([[-1, 0]])), ValueError, r"in \[0, 5\)"),
    "c too large": (lambda: network().forward_triples(torch.tensor([[0, 0, 5]])), ValueError, r"in \[0, 5\)"),
    "transformer label": (lambda: gt.TinyTransformer(5)(torch.tensor([[5, 0]])), ValueError, r"in \[0, 5\)"),
    "transformer floats": (lambda: gt.TinyTransformer(5)(PAIRS.double()), TypeError, "integers"),
    "heads": (lambda: gt.TinyTransformer(5, dim=10, heads=4), ValueError, "multiple of heads"),
    "width": (lambda: gt.QuadraticNetwork(5, 0), ValueError, "width"),
    "alpha": (lambda: gt.QuadraticNetwork(5, 4, alpha=0.0), ValueError, "alpha"),
    "init": (lambda: gt.QuadraticNetwork(5, 4, init="zero"), ValueError, "'he'"),
    "weights of another shape": (
        lambda: network().load_weights(*gt.fourier_construction(5)), ValueError, "with that p and width",
    ),
    "weights with NaN": (
        lambda: network().load_weights(torch.full((4, 10), math.nan), torch.zeros(5, 4)), ValueError, "W must be finite",
    ),
    "copies": (lambda: gt.fourier_construction(5, copies=0), ValueError, "copies"),
    "verify with another p": (lambda: gt.verify_construction(*gt.fourier_construction(5), 6), ValueError, "W must be"),
    "no tensors to penalise": (lambda: gt.LinfRegularizer([]), ValueError, "at least one parameter"),
    "names instead of tensors": (lambda: gt.LinfRegularizer(["W"]), TypeError, "tensors"),
    "negative strength": (lambda: gt.LinfRegularizer(network().parameters(), -1.0), ValueError, "strength"),
    "nothing trainable": (lambda: gt.empirical_ntk(gt.ConstantPredictor(5), PAIRS), ValueError, "requires_grad"),
    "no inputs": (lambda: gt.empirical_ntk(network(), PAIRS[:0]), ValueError, r"len\(x\)"),
    "output too large": (lambda: gt.empirical_ntk(network(), PAIRS, output=5), ValueError, "5 outputs"),
    "output unknown": (lambda: gt.empirical_ntk(LINE, torch.ones(2, 2), output="last"), ValueError, "'trace_sample'"),
    "model returns no tensor": (lambda: gt.empirical_ntk(torch.nn.LSTM(3, 2), torch.ones(2, 4, 3)), TypeError, "forward_fn"),
    "chunk": (lambda: gt.empirical_ntk(network(), PAIRS, chunk=0), ValueError, "chunk"),
    "kernel over budget": (
        lambda: gt.empirical_ntk(network(), PAIRS, max_bytes=100), gt.MemoryBudgetError, "a need of 992 bytes",
    ),
    "closed form over budget": (
        lambda: gt.quadratic_ntk(network().W, network().V, TRIPLES, max_bytes=10), gt.MemoryBudgetError, "bytes",
    ),
    "triples out of range": (lambda: gt.quadratic_ntk(network().W, network().V, TRIPLES + 3), ValueError, r"\[0, 5\)"),
    "kernel weights": (lambda: gt.match_kernel(TRIPLES, weights={(3,): 1.0}), ValueError, "column"),
    "kernel weight NaN": (lambda: gt.match_kernel(TRIPLES, weights={(0,): math.nan}), ValueError, "finite"),
    "tuples of other lengths": (lambda: gt.match_kernel(TRIPLES, PAIRS, weights={(0,): 1.0}), ValueError, "t2 must be of shape"),
    "kurtosis": (lambda: gt.expected_ntk(TRIPLES, kappa=0.5), ValueError, "kappa"),
    "columns": (lambda: gt.expected_ntk(torch.zeros(2, 4, dtype=torch.long)), ValueError, "columns of t1"),
    "gamma": (lambda: gt.onehot_rbf(TRIPLES, gamma=0.0), ValueError, "gamma"),
    "equivariance of a vector": (lambda: gt.check_equivariance(lambda x, y: x[:, 0].double(), 5), ValueError, "kernel"),
    "equivariance of NaN": (
        lambda: gt.check_equivariance(lambda x, y: torch.full((len(x), len(y)), math.nan), 5), ValueError, "finite",
    ),
    "ridge": (lambda: gt.KernelRegressor(ridge=-1).fit([[0.0], [1.0]], [0.0, 1.0]), ValueError, "ridge"),
    "kernel name": (lambda: gt.KernelRegressor("ntk").fit([[0.0], [1.0]], [0.0, 1.0]), ValueError, "'expected_ntk'"),
    "fractions for tuples": (
        lambda: gt.KernelRegressor("onehot_rbf").fit([[0.5, 1], [1, 0]], [0.0, 1.0]), TypeError, "integer tuples",
    ),
    "contradiction": (
        lambda: gt.KernelRegressor().fit([[0.0], [1.0], [0.0]], [0.0, 1.0, 2.0]), ValueError,
        "inconsistent labels.*rows 0 and 2",
    ),
    "contradiction of labels": (
        lambda: gt.require_consistent("data", torch.tensor([[1], [2], [2]]), torch.tensor([0, 1, 0])), ValueError,
        "rows 1 and 2",
    ),
    "callable kernel of another shape": (
        lambda: gt.KernelRegressor(lambda x, y: np.ones((1, 1))).fit([[0.0], [1.0]], [0.0, 1.0]), ValueError, "shape",
    ),
    "linearised targets": (
        lambda: gt.linearized_predictions(network(), PAIRS, torch.zeros(2, 4), PAIRS), ValueError, "one-hot",
    ),
    "linearised at a negative time": (
        lambda: gt.linearized_predictions(network(), PAIRS, torch.zeros(2, 5), PAIRS, time=-1.0), ValueError, "time",
    ),
    "linearised over limit": (
        lambda: gt.linearized_predictions(network(), PAIRS, torch.zeros(2, 5), PAIRS, limit=9), ValueError, "per_output",
    ),
    "n negative": (lambda: gt.kernel_lower_bound(5, -1), ValueError, "n must be"),
    "kernel class": (lambda: gt.kernel_lower_bound(5, 1, kernel="random"), ValueError, "'any'"),
    "target loss": (lambda: gt.min_samples_kernel(5, "regression", -0.1), ValueError, "target_loss"),
    "rho above n": (lambda: bounds.interpolation_width(10, 11), ValueError, "rho_c"),
    "delta": (lambda: bounds.interpolation_width(10, 2, delta=1.0), ValueError, "delta"),
    "Gaussian init": (lambda: bounds.interpolation_width(10, 2, init="he"), ValueError, "unbounded"),
    "bound below deviation": (lambda: bounds.interpolation_width(10, 2, init=(0.5, 1.0)), ValueError, "s_W"),
    "empirical above one": (lambda: gt.certificate(5, 40, 1.0, 10, empirical=1.5), ValueError, "empirical"),
    "margin zero": (lambda: bounds.pac_bayes_rate(5, 40, 10, margin=0.0, linf=1.0), ValueError, "margin"),
    "margin of nothing": (lambda: gt.margin(network(), (PAIRS[:0], PAIRS[:0, 0])), ValueError, "number of points"),
    "margin of other labels": (lambda: gt.output_margin(torch.ones(2, 3), torch.tensor([0, 3])), ValueError, r"\[0, 3\)"),
    "margin of NaN": (lambda: gt.output_margin(torch.full((1, 3), math.nan), torch.tensor([0])), ValueError, "finite"),
    "gamma negative": (lambda: gt.margin_loss(network(), (PAIRS, PAIRS[:, 0]), -1.0), ValueError, "gamma"),
    "table with NaN": (lambda: gt.table_lower_bound([[0.0, math.nan], [1.0, 0.0]], 1), ValueError, "finite"),
    "table of a scalar": (lambda: gt.table_lower_bound(1.0, 1), ValueError, "ndim"),
    "table with a single row": (lambda: gt.table_lower_bound([[1.0, 2.0]], 1), ValueError, "shortest axis"),
    "operation not square": (lambda: gt.operation_target(torch.zeros(2, 3, dtype=torch.long)), ValueError, "shape"),
    "generator of one axis": (lambda: gt.orbit_lower_bound(np.eye(3), 1, [[[0, 1, 2]]]), ValueError, "one per axis"),
    "generator no permutation": (
        lambda: gt.orbit_lower_bound(np.eye(3), 1, [[[0, 0, 2], [0, 1, 2]]]), ValueError, r"permute 0\.\.2 on axis 0",
    ),
    "orbit too large": (
        lambda: gt.orbit_lower_bound(np.random.default_rng(0).normal(size=(4, 4)), 1, gt.symmetric_generators((4, 4)), 100),
        gt.OrbitError, "max_orbit = 100",
    ),
    "spectrum of NaN": (lambda: gt.fourier_spectrum(_with_nan()), ValueError, "W must be finite"),
    "top": (lambda: gt.fourier_spectrum(network(), top=4), ValueError, "number of frequencies"),
    "every": (lambda: gt.NTKTracker(network(), PAIRS, every=0), ValueError, "every"),
    "targets of another length": (lambda: gt.NTKTracker(network(), PAIRS, targets=torch.ones(3)), ValueError, "shape"),
    "tracked output": (lambda: gt.NTKTracker(network(), PAIRS, output=5), ValueError, "output"),
    "steps": (lambda: gt.fit(network(), gt.ModularAddition(5), steps=-1), ValueError, "steps"),
    "optimizer": (lambda: gt.fit(network(), gt.ModularAddition(5), "sgd", steps=1), ValueError, "torch.optim.Optimizer"),
    "decay without adamw": (
        lambda: gt.fit(network(), gt.ModularAddition(5), "gd", steps=1, weight_decay=1.0), ValueError, "weight_decay",
    ),
    "four summands": (
        lambda: gt.fit(network(), gt.ModularAddition(5, n_train=10, m=4), steps=1), ValueError, "2 input columns",
    ),
    "frozen model": (
        lambda: gt.fit(gt.ConstantPredictor(5), gt.ModularAddition(5), steps=1), ValueError, "requires_grad",
    ),
    "labels of another p": (
        lambda: gt.fit(network(), _Relabelled(gt.ModularAddition(7)), steps=1), ValueError, r"in \[0, 5\)",
    ),
    "empty training set": (lambda: gt.fit(network(), _Relabelled(gt.ModularAddition(5), 0), steps=1), ValueError, "training points"),
    "no test accuracy": (
        lambda: gt.grokking_report(gt.fit(network(), gt.ModularAddition(5, n_train=1.0), steps=1)), ValueError, "test accuracies",
    ),
    "threshold": (
        lambda: gt.grokking_report(gt.fit(network(), gt.ModularAddition(5), steps=1), grok=1.5), ValueError, "grok",
    ),
    "unknown column": (lambda: gt.fit(network(), gt.ModularAddition(5), steps=1).series("loss"), ValueError, "'test_loss'"),
    "change point of other lengths": (lambda: gt.change_point([1, 2], [1]), ValueError, "same length"),
    "change point of NaN": (lambda: gt.change_point(range(6), [math.nan] * 6), ValueError, "values must be finite"),
    "change point of infinite steps": (lambda: gt.change_point([math.inf] * 6, range(6)), ValueError, "steps must be finite"),
    "change point backwards": (lambda: gt.change_point([3, 2, 1], [0, 1, 2]), ValueError, "steps must increase"),
    "change point twice at a step": (lambda: gt.change_point([1, 1, 2], [0, 1, 2]), ValueError, "steps must increase"),
    "change point before 0": (lambda: gt.change_point([-1, 0, 1], [0, 1, 2]), ValueError, "steps must increase from 0"),
    "report of no history": (lambda: gt.grokking_report([]), TypeError, "history must be of type History"),
    "replace of another kind": (lambda: gt.ModularAddition(5, replace="yes"), TypeError, "replace"),
    "no sample size but for m = 3": (lambda: gt.ModularAddition(5, m=2), ValueError, "n_train must be given for m = 2"),
    "too many points to draw": (lambda: gt.ModularAddition(10**5), ValueError, "points to list"),
    "too many points to list": (lambda: gt.ModularAddition(10**5, n_train=3).test, ValueError, "points to list"),
    "population too large": (lambda: gt.ModularAddition(10**5, n_train=3).population(), ValueError, "Lower p or m"),
    "pairs in a list": (lambda: network()([[0, 1]]), TypeError, "pairs must be a tensor of integers, got list"),
    "infinite alpha": (lambda: gt.QuadraticNetwork(5, 4, alpha=math.inf), ValueError, "alpha"),
    "infinite scale": (lambda: gt.QuadraticNetwork(5, 4, scale=math.inf), ValueError, "scale"),
    "infinite alpha of the transformer": (lambda: gt.TinyTransformer(5, alpha=math.inf), ValueError, "alpha"),
    "integer weights": (lambda: gt.QuadraticNetwork(5, 4, dtype=torch.int64), TypeError, "torch.int64"),
    "complex weights": (lambda: gt.QuadraticNetwork(5, 4, dtype=torch.complex64), TypeError, "torch.complex64"),
    "weights in arrays": (
        lambda: network().load_weights(np.zeros((4, 10)), np.zeros((5, 4))), TypeError, "W must be of type Tensor",
    ),
    "weights that overflow": (
        lambda: gt.QuadraticNetwork(5, 4, dtype=torch.float16).load_weights(torch.full((4, 10), 1e6), torch.zeros(5, 4)),
        ValueError, "W must be finite",
    ),
    "infinite strength": (lambda: gt.LinfRegularizer(network().parameters(), math.inf), ValueError, "strength"),
    "inputs in an array": (lambda: gt.empirical_ntk(LINE, np.ones((2, 2))), TypeError, "x must be of type Tensor"),
    "second inputs in an array": (lambda: gt.empirical_ntk(LINE, torch.ones(2, 2), np.ones((2, 2))), TypeError, "x2"),
    "NaN inputs": (lambda: gt.empirical_ntk(LINE, torch.full((2, 2), math.nan)), ValueError, "kernel must be finite"),
    "complex parameters": (
        lambda: gt.empirical_ntk(torch.nn.Linear(2, 1, dtype=torch.complex64), torch.ones(2, 2)), TypeError, "in weight",
    ),
    "complex outputs": (
        lambda: gt.empirical_ntk(LINE, torch.ones(2, 2), forward_fn=lambda model, x: model(x) * 1j), TypeError, "outputs",
    ),
    "data-dependent branches": (
        lambda: gt.empirical_ntk(_Branching(), torch.ones(2, 2)), RuntimeError, "Pass vectorize=False",
    ),
    "errors of the model itself": (lambda: gt.empirical_ntk(LINE, torch.ones(2, 3)), RuntimeError, "mat1"),
    "tracked inputs in an array": (lambda: gt.NTKTracker(LINE, np.ones((2, 2))), TypeError, "x must be"),
    "tracked targets in an array": (
        lambda: gt.NTKTracker(LINE, torch.ones(2, 2), targets=np.ones(2)), TypeError, "targets must be",
    ),
    "tracked targets NaN": (
        lambda: gt.NTKTracker(LINE, torch.ones(2, 2), targets=torch.full((2,), math.nan)), ValueError, "targets must be finite",
    ),
    "tracked labels in columns": (
        lambda: gt.NTKTracker(LINE, torch.ones(2, 2), targets=PAIRS), ValueError, r"of shape \(2,\) if they are labels",
    ),
    "tracked chunk": (lambda: gt.NTKTracker(network(), PAIRS, chunk=0), ValueError, "chunk"),
    "nothing tracked": (lambda: gt.NTKTracker(network(), PAIRS[:0]), ValueError, r"len\(x\)"),
    "tracked columns": (lambda: gt.NTKTracker(network(), torch.zeros(2, 4).long()), ValueError, "x must be of shape"),
    "tracked output unknown": (lambda: gt.NTKTracker(network(), PAIRS, output="last"), ValueError, "'trace_sample'"),
    "tracked output of the head": (lambda: gt.NTKTracker(network(), TRIPLES, output=1), ValueError, "between 0 and 0"),
    "tracked NaN": (lambda: gt.NTKTracker(network(), PAIRS).measure(7, _with_nan()), ValueError, "must be finite"),
    "tracked layers of another model": (
        lambda: gt.NTKTracker(LINE, torch.ones(2, 2), per_layer=True).measure(1, torch.nn.Sequential(LINE)),
        ValueError, "parameter of the measured model",
    ),
    "weights of two dtypes": (
        lambda: gt.quadratic_ntk(network().W, network().V.float(), TRIPLES), ValueError, "W and V must have one dtype",
    ),
    "NaN in W": (lambda: gt.quadratic_ntk(_with_nan().W, network().V, TRIPLES), ValueError, "W must be finite"),
    "NaN in V": (
        lambda: gt.quadratic_ntk(network().W, network().V * math.nan, TRIPLES), ValueError, "V must be finite",
    ),
    "one-hot tuples, expected": (lambda: gt.expected_ntk(TRIPLES.double()), TypeError, "integers"),
    "one-hot tuples, rbf": (lambda: gt.onehot_rbf(TRIPLES, TRIPLES.double()), TypeError, "t2 must hold integers"),
    "one-hot tuples, match": (lambda: gt.match_kernel(TRIPLES.double(), weights={}), TypeError, "t1 must hold integers"),
    "one-hot tuples on the right": (
        lambda: gt.match_kernel(TRIPLES, TRIPLES.double(), weights={}), TypeError, "t2 must hold integers",
    ),
    "arrays for tuples": (lambda: gt.onehot_rbf(TRIPLES.numpy()), TypeError, "t1 must be of type Tensor"),
    "rtol": (lambda: gt.check_equivariance(gt.onehot_rbf, 5, rtol=-1.0), ValueError, "rtol"),
    "three numbers for the init": (
        lambda: bounds.interpolation_width(9, 3, init=(1.0, 0.5, 2.0)), ValueError, r"a pair \(s_W, sigma_W\), got 3",
    ),
    "complex table": (lambda: gt.table_lower_bound(np.eye(3) * 1j, 1), TypeError, "table must be real"),
    "complex tensor": (lambda: gt.table_lower_bound(torch.eye(3) * 1j, 1), TypeError, "table must be real"),
    "operation without axes": (lambda: gt.operation_target(torch.tensor(3)), ValueError, "op must be of shape"),
    "operation in a list": (lambda: gt.operation_target([[0, 1], [1, 0]]), TypeError, "op must be of type Tensor"),
    "generator of fractions": (
        lambda: gt.orbit_lower_bound(np.eye(3), 0, [[[0.5, 1, 2], [0, 1, 2]]]), ValueError, "must permute 0..2",
    ),
    "axis of a fraction": (lambda: gt.symmetric_generators((3.0, 3)), TypeError, "size of an axis must be an integer"),
    "column below 0": (lambda: gt.match_kernel(TRIPLES, weights={(-1,): 1.0}), ValueError, "column must be"),
    "column above the last": (lambda: gt.match_kernel(TRIPLES, weights={(3,): 1.0}), ValueError, "between 0 and 2"),
    "column of a fraction": (lambda: gt.match_kernel(TRIPLES, weights={(1.0,): 1.0}), TypeError, "column must be"),
    "margin of a task": (lambda: gt.margin(network(), gt.ModularAddition(5)), TypeError, "Pass task.train"),
    "spectrum of another model": (lambda: gt.fourier_spectrum(gt.TinyTransformer(5)), TypeError, "QuadraticNetwork"),
    "model of another p": (
        lambda: gt.fit(gt.QuadraticNetwork(7, 4), gt.ModularAddition(5), steps=1), ValueError, r"of shape \(1, 5\), got \(1, 7\)",
    ),
    "optimizer of another model": (
        lambda: gt.fit(network(), gt.ModularAddition(5), torch.optim.SGD(network().parameters()), steps=1),
        ValueError, "parameters of the model, got none",
    ),
    "decay beside an own optimizer": (lambda: _own(torch.optim.SGD, weight_decay=0.1), ValueError, "Set it there"),
    "optimizer with a closure": (lambda: _own(torch.optim.LBFGS), TypeError, "LBFGS"),
    "callback that returns steps": (
        lambda: gt.fit(network(), gt.ModularAddition(5), steps=1, callbacks=[lambda step, model: {"step": 9.0}]),
        ValueError, "got step. Rename",
    ),
    "time limit": (
        lambda: gt.fit(network(), gt.ModularAddition(5), steps=1, time_limit=-1.0), ValueError, "time_limit",
    ),
    "no times": (
        lambda: gt.linearized_curve(network(), gt.ModularAddition(5, n_train=9), []), ValueError, "number of times",
    ),
    "a curve without held-out points": (
        lambda: gt.linearized_curve(network(), gt.ModularAddition(5, n_train=1.0), [1.0]), ValueError, "task.test",
    ),
}  # fmt: skip
# ruff: noqa: E501


class _Relabelled:
    """A task whose data do not fit p = 5."""

    def __init__(self, task, keep=None):
        self.p, self.kind = 5, task.kind
        self.train = tuple(part[:keep] for part in task.train)
        self.test = task.test


class _Branching(torch.nn.Linear):
    """Looks at values, which `vmap` forbids."""

    def __init__(self):
        super().__init__(2, 1)

    def forward(self, x):
        y = super().forward(x)
        return y if y.sum().item() > 0 else -y


def _own(kind, **options):
    model = network()
    return gt.fit(model, gt.ModularAddition(5), kind(model.parameters(), lr=0.1), steps=1, **options)


def _with_nan():
    broken = network()
    with torch.no_grad():
        broken.W[0, 0] = math.nan
    return broken


@pytest.mark.parametrize(("call", "kind", "message"), ROWS.values(), ids=ROWS)
def test_bad_input_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_devices_must_agree():
    meta = torch.zeros(2, 3, dtype=torch.long, device="meta")
    with pytest.raises(ValueError, match="on one device"):
        gt.quadratic_ntk(network().W, network().V, meta)
    with pytest.raises(ValueError, match=r"x on meta, parameters on cpu"):
        gt.empirical_ntk(LINE, torch.zeros(2, 2, device="meta"))


def test_non_finite_loss_names_the_step_and_keeps_the_last_finite_state():
    model, task = gt.QuadraticNetwork(5, 20), gt.ModularAddition(5, "regression", 0.6)
    with pytest.raises(FloatingPointError, match=r"after step (\d+)"):
        gt.fit(model, task, "gd", steps=200, lr=5.0)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    inputs, targets = task.train
    assert torch.isfinite((model.forward_triples(inputs) - targets).square().mean())


def test_zero_gradient_stops_normalised_descent():
    model = network()
    with torch.no_grad():
        model.V.zero_()
        model.W.zero_()
    history = gt.fit(model, gt.ModularAddition(5), "ngd", steps=10)
    assert "exactly zero" in history.stopped
    assert history.step.tolist() == [0]


def test_low_precision_is_raised_with_a_warning():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16):
        low = torch.nn.Linear(3, 2, dtype=dtype)
        low.load_state_dict(model.state_dict())
        with pytest.warns(UserWarning, match="float32"):
            kernel = gt.empirical_ntk(low, x.to(dtype))
        assert kernel.dtype == torch.float32
        assert low.weight.dtype == dtype


@pytest.mark.parametrize("layer", [torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)])
def test_training_mode_is_left_with_a_warning_and_comes_back(layer):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), layer, torch.nn.Linear(3, 1))
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model[0].eval()
    with pytest.warns(UserWarning, match="eval mode"):
        kernel = gt.empirical_ntk(model, x)
    assert [module.training for module in model] == [False, True, True]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(gt.empirical_ntk(model, x), kernel)


def test_narrow_networks_are_warned_of_in_bounds():
    with pytest.warns(UserWarning, match="below 8p = 40"):
        bounds.rich_upper_rate(5, 39, 1.0, 100)
    with pytest.warns(UserWarning, match="4p - 3"):
        gt.certificate(5, 20, 1.0, 100)
    gt.certificate(5, 40, 1.0, 100)


def test_memory_error_carries_its_numbers():
    with pytest.raises(gt.MemoryBudgetError) as caught:
        gt.empirical_ntk(network(), PAIRS, max_bytes=100, chunk=2)
    # 2 × 2 results and 2 gradients of 60 weights, 8 bytes each
    assert (caught.value.needed, caught.value.allowed) == (8 * (4 + 2 * 60), 100)


def test_a_model_that_branches_on_its_data_is_computed_one_sample_at_a_time():
    model, x = _Branching().double(), torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).double()
    gradients = torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(model(row[None])[0, 0], list(model.parameters()))])
            for row in x
        ]
    )
    torch.testing.assert_close(gt.empirical_ntk(model, x, vectorize=False), gradients @ gradients.t())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_16_bit_model_is_linearised_in_float32(dtype):
    model, x = (
        torch.nn.Linear(3, 2, dtype=dtype),
        torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).to(dtype),
    )
    targets = torch.eye(4, 2)
    with pytest.warns(UserWarning, match="float32"):
        found = gt.linearized_predictions(model, x, targets, x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, targets, atol=1e-2, rtol=0)  # four points, eight weights: it interpolates


def test_bounds_stay_numbers_beyond_the_range_of_floats():
    assert gt.certificate(5, 40, 1e200, 100) == {"value": math.inf, "vacuous": True, "rademacher": math.inf}
    assert bounds.rich_upper_rate(5, 40, 1e200, 100) == math.inf
    assert bounds.pac_bayes_rate(5, 40, 100, margin=1.0, linf=1e200) == {"value": math.inf, "applicable": False}
    assert bounds.pac_bayes_rate(5, 40, 100, margin=1.0, linf=1e-200)["value"] == 0.0
    n = gt.min_samples_kernel(1000, "regression", 0.5, m=200)
    assert n == -(-(999**200) * (2 * 999 - 1) // (2 * 999))  # ⌈d (1 - ½ / 999)⌉, exactly
    assert gt.min_samples_kernel(97, "regression", 48.0) == 96**3 // 2


def test_bounds_of_numpy_numbers_are_plain():
    found = gt.certificate(np.int64(5), np.int64(40), np.float32(1), np.int64(100), empirical=np.float32(0))
    assert found == gt.certificate(5, 40, 1.0, 100)
    assert {type(value) for value in found.values()} == {float, bool}
    big = gt.kernel_lower_bound(np.int64(10**7), np.int64(10**18))  # (p - 1)³ leaves 64 bits
    assert big["fraction"] == pytest.approx(1 - 10**18 / (10**7 - 1) ** 3)


def test_where_the_pac_bayes_rate_begins_to_apply():
    at = {"n": 100, "linf": 1.0, "delta": 0.05}
    assert bounds.pac_bayes_rate(5, 16, margin=4.0, **at)["applicable"]  # γ / r³ = √h
    assert not bounds.pac_bayes_rate(5, 16, margin=3.99, **at)["applicable"]
    assert not bounds.pac_bayes_rate(5, 14, margin=9.0, **at)["applicable"]  # h < 4 log(2 / δ) = 14.8
