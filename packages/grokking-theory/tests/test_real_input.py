"""What users bring: their own models, tables and training loops; and what it costs in memory."""

import subprocess
import sys
import weakref

import grokking_theory as gt
import pytest
import torch
from offprints.seeding import isolated, rng
from torch.testing import assert_close
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


def test_the_penalty_in_a_training_loop_of_ones_own():
    with isolated(0):
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    x = torch.randn(64, 8, generator=rng(0, "cpu"))
    y = x[:, :1] * x[:, 1:2]
    largest = {}
    for strength in (0.0, 0.5):
        net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        net.load_state_dict(model.state_dict())
        penalty = gt.LinfRegularizer(net.parameters(), strength)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            (torch.nn.functional.mse_loss(net(x), y) + penalty()).backward()
            optimizer.step()
        largest[strength] = penalty.norm().item()
    assert largest[0.5] < 0.5 * largest[0.0]


def test_a_users_table_from_file_to_report(tmp_path):
    (tmp_path / "xor.csv").write_text("\n".join(",".join(str(a ^ b) for b in range(8)) for a in range(8)))
    op = gt.load_table(tmp_path / "xor.csv")
    task = gt.ModularAddition(8, n_train=48, op=op, seed=1)
    network = gt.QuadraticNetwork(8, 64)
    tracker = gt.NTKTracker(network, task.train_inputs(16), every=50)
    history = gt.fit(network, task, lr=3e-3, weight_decay=1.0, steps=600, every=50, callbacks=[tracker])
    report = gt.grokking_report(history)
    assert report.fit_step is not None
    assert report.ntk_distance_at_fit > 0
    regression = gt.ModularAddition(8, "regression", 100, op=op)
    kernel = gt.KernelRegressor("onehot_rbf").fit(
        *(part.numpy() for part in gt.ModularAddition(8, "regression", 100, op=op).train)
    )
    inputs, targets = regression.population()
    loss = float(((kernel.predict(inputs.numpy()) - targets.numpy()) ** 2).mean())
    assert loss >= gt.operation_lower_bound(op, 100) > 0


def test_a_group_of_ones_own():
    """Dihedral group of the triangle: kernels that respect left multiplication only."""
    elements = [(r, s) for s in (0, 1) for r in range(3)]

    def product(x, y):
        return ((x[0] + (-1) ** x[1] * y[0]) % 3, (x[1] + y[1]) % 2)

    op = torch.tensor([[elements.index(product(x, y)) for y in elements] for x in elements])
    target = gt.operation_target(op)
    shifts = []
    for g in ((1, 0), (0, 1)):
        left = [elements.index(product(g, x)) for x in elements]
        shifts.append([left, list(range(6)), left])  # (gx) y = g (xy): the target is invariant, its orbit a point
    assert gt.orbit_lower_bound(target, 1, shifts) == pytest.approx(0, abs=1e-12)
    moved = [[shift[0], list(range(6)), list(range(6))] for shift in shifts]
    bound = gt.orbit_lower_bound(target, 3, moved)
    assert 0 < bound <= gt.table_lower_bound(target, 3).loss_lb + 1e-12


class LivePeak(TorchDispatchMode):
    """Bytes of all results that were alive at once, whatever an allocator keeps."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak, self.known = 0, 0, weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage() not in self.known:
                self.add(tensor.untyped_storage())
        return out

    def add(self, storage):
        size = storage.nbytes()
        self.known.add(storage)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self.remove, size)

    def remove(self, size):
        self.alive -= size


def test_memory_is_chunk_times_parameters():
    """Peak memory grows with chunk · P, not with n · P."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    x = torch.randn(192, 64, generator=rng(0, "cpu"))

    def peak(chunk, n):
        with LivePeak() as seen:
            gt.empirical_ntk(model, x[:n], chunk=chunk)
        return seen.peak / weights

    small, more_points, large = peak(16, 64), peak(16, 192), peak(96, 192)
    assert more_points < small + 12  # 128 more points; gradients of all of them would be 128 · P
    assert more_points < 1.5 * 16 + 12
    assert large < 1.5 * 96 + 12
    assert large > more_points


@pytest.mark.parametrize("chunk", [3, 8, 16, 200])
def test_any_chunk_gives_the_same_kernel(chunk):
    with isolated(0):
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    x, x2 = (torch.randn(n, 3, generator=rng(n, "cpu"), dtype=torch.float64) for n in (8, 5))
    whole = gt.empirical_ntk(model, torch.cat([x, x2]), chunk=100)
    assert_close(gt.empirical_ntk(model, x, chunk=chunk), whole[:8, :8])
    assert_close(gt.empirical_ntk(model, x, x2, chunk=chunk), whole[:8, 8:])


def test_the_import_leaves_scikit_learn_for_later():
    code = """
import sys, grokking_theory
assert not {"sklearn", "scipy", "matplotlib"} & set(sys.modules)
assert "KernelRegressor" in dir(grokking_theory)
from grokking_theory import KernelRegressor
assert "sklearn" in sys.modules
assert grokking_theory.KernelRegressor is KernelRegressor
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'KernelRegresor'"):
        gt.KernelRegresor  # noqa: B018
