"""NTKTracker, on the paper's network and on models from elsewhere."""

import math

import grokking_theory as gt
import grokking_theory.tracker
import pytest
import torch
from grokking_theory.tracker import kernel_distance, label_alignment
from offprints.seeding import isolated, rng
from torch.testing import assert_close


def run(output="first", x=None, **options):
    task, network = gt.ModularAddition(5), gt.QuadraticNetwork(5, 20, alpha=2.0)
    x = task.train_inputs(8) if x is None else x
    tracker = gt.NTKTracker(network, x, output=output, every=5, **options)
    history = gt.fit(network, task, steps=10, lr=1e-2, every=10, callbacks=[tracker])
    return task, network, tracker, history


def test_records_compare_with_the_kernel_at_attachment():
    task, network, tracker, history = run()
    x = torch.cat([task.train_inputs(8), torch.zeros(8, 1, dtype=torch.long)], 1)
    fresh = gt.QuadraticNetwork(5, 20, alpha=2.0)
    start, end = (gt.quadratic_ntk(model.W, model.V, x) for model in (fresh, network))
    last = tracker.records[-1]
    assert [record.step for record in tracker.records] == [0, 5, 10]
    assert last.change == pytest.approx((end - start).norm().item())
    assert last.relative == pytest.approx(((end - start).norm() / start.norm()).item())
    assert last.distance == pytest.approx(1 - ((end * start).sum() / end.norm() / start.norm()).item())
    assert_close(torch.tensor(last.eigenvalues, dtype=torch.float64), torch.linalg.eigvalsh(end).flip(0)[:5])
    assert math.isnan(last.alignment)
    assert tracker.records[0].change == tracker.records[0].distance == 0
    assert history.series("ntk_distance")[0].tolist() == [0, 5, 10]
    assert history.ntk_change[-1] == last.change
    assert_close(tracker.kernel(), end)


@pytest.mark.parametrize("output", ["first", 3, "trace_sample", "full"])
def test_closed_form_and_gradients_agree(output):
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5).train_inputs(7)
    tracker = gt.NTKTracker(network, x, output=output, seed=3)
    assert_close(tracker.kernel(), gt.empirical_ntk(network, x, output=output, seed=3))
    with torch.no_grad():
        network.W.mul_(2)
    assert tracker.measure(1).change > 0


def test_triples_are_read_by_the_regression_head():
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5, "regression").train_inputs(7)
    closed = gt.NTKTracker(network, x)
    layered = gt.NTKTracker(network, x, per_layer=True)
    assert_close(closed.kernel(), gt.quadratic_ntk(network.W, network.V, x))
    assert_close(layered.kernel(), closed.kernel())


def test_frozen_parameters_are_left_out():
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5).train_inputs(7)
    network.V.requires_grad_(False)
    layers = gt.empirical_ntk(network.requires_grad_(True), x, per_layer=True)
    network.V.requires_grad_(False)
    assert_close(gt.NTKTracker(network, x).kernel(), layers["W"])


def test_scale_moves_the_change_but_not_the_distance():
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5).train_inputs(7)
    tracker = gt.NTKTracker(network, x)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3.0)
    record = tracker.measure(1)
    assert record.relative == pytest.approx(3.0**4 - 1)
    assert abs(record.distance) < 1e-15


def test_distance_by_layer():
    _, network, tracker, history = run(per_layer=True)
    assert set(tracker.records[-1].layers) == {"W", "V"}
    before = gt.QuadraticNetwork(5, 20, alpha=2.0)
    parts = [gt.empirical_ntk(model, tracker.x, per_layer=True)["V"] for model in (before, network)]
    assert tracker.records[-1].layers["V"] == pytest.approx(kernel_distance(parts[1], parts[0]))
    assert history.extra["ntk_distance/W"][-1] == tracker.records[-1].layers["W"]


def test_alignment_with_labels():
    targets = gt.ModularAddition(5).train[1][:8]
    _, _, tracker, history = run(targets=targets)
    gram = torch.nn.functional.one_hot(targets).double()
    gram = gram @ gram.t()
    centre = torch.eye(8, dtype=torch.float64) - 1 / 8
    kernel, gram = centre @ tracker.kernel() @ centre, centre @ gram @ centre
    assert tracker.records[-1].alignment == pytest.approx(((kernel * gram).sum() / kernel.norm() / gram.norm()).item())
    assert history.ntk_alignment[-1] == tracker.records[-1].alignment
    values = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    assert label_alignment(values[:, None] * values, values) == pytest.approx(1)
    assert math.isnan(label_alignment(torch.ones(4, 4, dtype=torch.float64), values))
    shifted = label_alignment(tracker.kernel(), targets + 7)
    assert shifted == pytest.approx(tracker.records[-1].alignment)


def test_alignment_of_a_full_kernel_takes_the_mean_over_outputs():
    targets = gt.ModularAddition(5).train[1][:6]
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5).train_inputs(6)
    tracker = gt.NTKTracker(network, x, output="full", targets=targets)
    mean = sum(gt.empirical_ntk(network, x, output=c) for c in range(5)) / 5
    assert tracker.records[0].alignment == pytest.approx(label_alignment(mean, targets))
    flat = gt.empirical_ntk(network, x, output="full").permute(0, 2, 1, 3).reshape(30, 30)
    assert tracker.records[0].eigenvalues[0] == pytest.approx(torch.linalg.eigvalsh(flat)[-1].item())


def test_zero_kernels():
    zero, one = torch.zeros(2, 2), torch.eye(2)
    assert kernel_distance(zero, zero) == 0
    assert math.isnan(kernel_distance(one, zero))
    assert kernel_distance(one, -one) == pytest.approx(2)
    assert kernel_distance(torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(1)


def test_another_model_may_be_measured_and_steps_replaced():
    network, x = gt.QuadraticNetwork(5, 6), gt.ModularAddition(5).train_inputs(7)
    tracker = gt.NTKTracker(network, x, every=2)
    assert tracker(1) is None
    averaged = gt.QuadraticNetwork(5, 6, seed=1)
    assert tracker(2, averaged)["ntk_distance"] > 0
    assert tracker(2)["ntk_distance"] == 0
    assert [record.step for record in tracker.records] == [0, 2]


# ---- models from elsewhere


def gpt2():
    transformers = pytest.importorskip("transformers")
    with isolated(0):
        config = transformers.GPT2Config(
            n_layer=2, n_head=2, n_embd=16, n_positions=16, vocab_size=50, bos_token_id=0, eos_token_id=0
        )
        return transformers.GPT2LMHeadModel(config).eval()


def last_logits(model, ids):
    return model(input_ids=ids).logits[:, -1]


def by_hand(model, x, read):
    """Per-sample gradients by a loop, as in any blog post."""
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for sample in x:
        found = torch.autograd.grad(read(model, sample[None])[0, 0], params, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    rows = torch.stack(rows)
    return rows @ rows.t()


@pytest.mark.parametrize("vectorize", [True, False])
def test_a_transformers_language_model(vectorize):
    model, ids = gpt2(), torch.randint(0, 50, (4, 6), generator=rng(0, "cpu"))
    tracker = gt.NTKTracker(model, ids, forward_fn=last_logits, every=1, per_layer=True, vectorize=vectorize)
    assert_close(tracker.kernel(), by_hand(model, ids, last_logits), rtol=1e-3, atol=1e-3)
    assert "transformer.h.1.attn.c_attn.weight" in tracker.records[0].layers
    assert "lm_head.weight" not in tracker.records[0].layers  # tied to the embedding, counted once
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert tracker(1)["ntk_distance"] > 1e-4


def cnn():
    with isolated(0):
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.AvgPool2d(4),
            torch.nn.Flatten(), torch.nn.Linear(24, 10),
        )  # fmt: skip


def test_a_vision_model():
    model, images = cnn().eval(), torch.randn(5, 3, 8, 8, generator=rng(0, "cpu"))
    tracker = gt.NTKTracker(model, images, output="trace_sample", targets=torch.tensor([0, 1, 2, 0, 1]))
    first = gt.empirical_ntk(model, images)
    assert_close(first, by_hand(model, images, lambda model, x: model(x)), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        model[0].weight.mul_(-1)
    record = tracker.measure(1)
    assert 0 < record.distance < 2
    assert -1 <= record.alignment <= 1
    assert all(parameter.grad is None for parameter in model.parameters())


class Reused(torch.nn.Module):
    """One layer at two places, and its weight tied to a third."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3, dtype=torch.float64)
        self.again = self.first
        self.last = torch.nn.Linear(3, 3, dtype=torch.float64)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.again(torch.tanh(self.first(x)))))


@pytest.mark.parametrize("vectorize", [True, False])
def test_layers_that_stand_at_two_places(vectorize):
    model, x = Reused(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = dict(model.named_parameters())
    tracker = gt.NTKTracker(model, x, vectorize=vectorize, chunk=2)
    assert list(dict(model.named_parameters())) == ["first.weight", "first.bias", "last.bias"]
    assert all(value is own[name] for name, value in model.named_parameters())
    assert model.last.weight is model.first.weight
    rows = [torch.autograd.grad(model(row[None])[0, 0], list(own.values())) for row in x]
    gradients = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    torch.testing.assert_close(tracker.kernel(), gradients @ gradients.t())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(x).square().mean().backward()
    optimizer.step()
    assert tracker.measure(1).distance > 1e-6  # the optimizer still moves the model


def test_inputs_are_copied_when_attached():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    tracker = gt.NTKTracker(torch.nn.Linear(3, 1), x)
    x.zero_()
    assert tracker.measure(1).change == 0


def test_boolean_targets_are_labels():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    model, labels = torch.nn.Linear(3, 1), torch.tensor([1, 0, 0, 1])
    both = [gt.NTKTracker(model, x, targets=targets).records[0].alignment for targets in (labels, labels.bool())]
    assert both[0] == both[1]


def test_the_kernel_is_computed_once_at_attachment(monkeypatch):
    calls = []
    computed = grokking_theory.tracker.ntk_parts
    monkeypatch.setattr(grokking_theory.tracker, "ntk_parts", lambda *a: calls.append(1) or computed(*a))
    tracker = gt.NTKTracker(torch.nn.Linear(3, 1), torch.ones(2, 3))
    assert (len(calls), [record.step for record in tracker.records]) == (1, [0])
