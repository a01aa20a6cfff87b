"""Every input that cannot be right is refused in words, and nothing is silently wrong."""

import copy
import math
import warnings

import attention_lipschitz as al
import pytest
import torch
from attention_cases import draw, head, model_layer
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

SMALL = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 12}


def gpt2(**options):
    return GPT2Model(GPT2Config(**(SMALL | {"bos_token_id": 0, "eos_token_id": 0} | options))).eval()


def llama():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 50}
    return LlamaModel(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes)).eval()


@pytest.fixture(scope="module")
def model():
    return gpt2()


LAYER, X = model_layer(0), draw(0, 5, 6)
ROTARY = model_layer(1, frequencies=torch.tensor([0.5], dtype=torch.float64))
BIASED = model_layer(2, logit_bias=draw(0, 1, 9, 9))
WIDE = model_layer(0, out=None, value=draw(1, 3, 5, 6), value_bias=None, out_bias=None)
TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: al.local_lipschitz(LAYER, X[:0]), ValueError, "one token or more"),
        (lambda: LAYER(X[:0]), ValueError, "one token or more"),
        (lambda: al.local_lipschitz(LAYER, X[:, :3]), ValueError, "X"),
        (lambda: al.local_lipschitz(LAYER, X * math.nan), ValueError, "X"),
        (lambda: al.local_lipschitz(LAYER, torch.arange(6).reshape(1, 6)), TypeError, "not token ids"),
        (lambda: al.local_lipschitz(LAYER, X.numpy()), TypeError, "X"),
        (lambda: al.local_lipschitz("layer", X), TypeError, "callable"),
        (lambda: al.local_lipschitz(LAYER, X, method="svd"), ValueError, "method must be one of"),
        (lambda: al.local_lipschitz(LAYER, X, rtol=0.0), ValueError, "rtol"),
        (lambda: al.local_lipschitz(LAYER, X, max_iter=0), ValueError, "max_iter"),
        (lambda: al.local_lipschitz(LAYER, X, dtype=torch.bfloat16), ValueError, "float"),
        (lambda: al.local_lipschitz(LAYER, X, dtype=torch.float16), ValueError, "float"),
        (lambda: al.local_lipschitz(lambda Y: Y / 0, X), ValueError, r"f\(X\)"),
        (lambda: al.jacobian_spectrum(LAYER, X, k=31), ValueError, "k must be"),
        (lambda: al.jacobian_spectrum(LAYER, X, k=0), ValueError, "k must be"),
        (lambda: al.certified_bound(LAYER, X, -0.1), ValueError, "radius"),
        (lambda: al.bounds.ball(LAYER, X, 0.0), ValueError, "delta"),
        (lambda: al.bounds.ball(LAYER, X, -1.0), ValueError, "delta"),
        (lambda: al.bounds.local(LAYER, X * math.inf), ValueError, "X"),
        (lambda: al.bounds.general(0, 1.0, 1.0, 1.0), ValueError, "n must be"),
        (lambda: al.bounds.general(2.5, 1.0, 1.0, 1.0), TypeError, "n must be"),
        (lambda: al.bounds.general(2, 0.0, 1.0, 1.0), ValueError, "R must be"),
        (lambda: al.bounds.sharp(2, -1.0, 1.0, 1.0), ValueError, "R must be"),
        (lambda: al.bounds.mean_field(1.0, -1.0, 1.0), ValueError, "norm_A"),
        (lambda: al.bounds.masked_mean_field(1.0, 1.0, math.nan), ValueError, "norm_V"),
        (lambda: al.bounds.sharp(2, 1.0, 1.0, 1.0, norm_c=-1.0), ValueError, "norm_c"),
        (lambda: al.bounds.lower(3, 0.0, torch.eye(2)), ValueError, "R must be"),
        (lambda: al.bounds.lower(3, 1.0, torch.eye(2), torch.eye(3)), ValueError, "V must"),
        (lambda: al.bounds.bound_table(ROTARY, 4, 1.0), al.PositionalBoundError, "allow_loose=True"),
        (lambda: al.bounds.bound_table(BIASED, 4, 1.0), al.PositionalBoundError, "biases"),
        (lambda: al.bounds.bound_table(LAYER, 0, 1.0), ValueError, "n must be"),
        (lambda: al.bounds.large_radius_limit(LAYER, X * math.nan), ValueError, "X"),
        (lambda: model_layer(2, logit_bias=draw(0, 1, 4, 4))(X), ValueError, "at most 4 tokens"),
        (lambda: al.adversarial_tokens(TURN, 3, 1.0), al.NoRealEigenvalueError, "worst_case"),
        (lambda: al.adversarial_tokens(torch.ones(2, 3), 3, 1.0), ValueError, "A must"),
        (lambda: al.adversarial_tokens(torch.eye(2) * math.nan, 3, 1.0), ValueError, "A"),
        (lambda: al.adversarial_tokens(torch.eye(2), 0, 1.0), ValueError, "n must be"),
        (lambda: al.adversarial_tokens(torch.eye(2), 3, 0.0), ValueError, "R must be"),
        (lambda: al.adversarial_tokens(torch.eye(2), 3, math.inf), ValueError, "R must be"),
        (lambda: al.worst_case(LAYER, 0, 1.0), ValueError, "n must be"),
        (lambda: al.worst_case(LAYER, 3, -1.0), ValueError, "R must be"),
        (lambda: al.worst_case(LAYER, 3, 1.0, steps=-1), ValueError, "steps"),
        (lambda: al.worst_case(LAYER, 3, 1.0, lr=0.0), ValueError, "lr"),
        (lambda: al.worst_case(LAYER, 3, 1.0, start=X), ValueError, "start"),
        (lambda: al.AttentionLayer([]), ValueError, "one head or more"),
        (lambda: al.AttentionLayer([torch.eye(2)]), TypeError, "from_projections"),
        (lambda: al.AttentionLayer([head(0, d=3), head(1, d=4)]), ValueError, "equal shapes"),
        (lambda: al.AttentionHead(A=torch.eye(3), V=torch.eye(2)), ValueError, "V must"),
        (lambda: al.AttentionHead(A=torch.ones(3, 2), V=torch.eye(2)), ValueError, "A must"),
        (lambda: al.AttentionHead(A=torch.eye(2), V=torch.eye(2), c=torch.ones(3)), ValueError, "c must"),
        (lambda: al.AttentionHead(A=torch.eye(2), V=torch.eye(2), O=torch.ones(2, 3)), ValueError, "O must"),
        (lambda: model_layer(3, key=draw(0, 3, 2, 5)), ValueError, "key"),
        (lambda: al.TokenNorm(torch.ones(3), torch.ones(2)), ValueError, "bias"),
        (lambda: al.TokenNorm(torch.ones(3), eps=-1.0), ValueError, "eps"),
        (lambda: al.TokenNorm(torch.ones(3), kind="batch"), ValueError, "kind"),
        (lambda: al.TokenNorm.from_module(torch.nn.BatchNorm1d(3)), ValueError, "BatchNorm1d"),
        (lambda: al.AttentionBlock(WIDE, None), ValueError, "own width"),
        (lambda: al.certified_bound(al.AttentionBlock(LAYER, None), X, 0.1), TypeError, "self"),
        (lambda: al.largest_temperature(LAYER, X, target=1e-9), ValueError, "at least"),
        (lambda: al.largest_temperature(LAYER, X, target=-1.0), ValueError, "target"),
        (lambda: al.responsible_pairs(LAYER, X, al.local_lipschitz(LAYER, X[:3])), ValueError, "result"),
        (lambda: al.windows([], 3, 1), ValueError, "one token"),
        (lambda: al.windows([1, 2], 0, 1), ValueError, "n must be"),
        (lambda: al.WordHashTokenizer(0), ValueError, "vocab_size"),
    ],
)  # fmt: skip
def test_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: al.extract_attention(m, 2), ValueError, "layer"),
        (lambda m: al.extract_attention(m, 0, scope="all"), ValueError, "scope"),
        (lambda m: al.extract_attention(torch.nn.Linear(2, 2)), al.UnsupportedArchitectureError, "GPT2Block"),
        (lambda m: al.capture_inputs(m, torch.zeros(1, 13, dtype=torch.long)), ValueError, "at most 12 tokens"),
        (lambda m: al.capture_inputs(m, torch.zeros(1, 0, dtype=torch.long)), ValueError, "none"),
        (lambda m: al.capture_inputs(m, torch.zeros(1, 3)), TypeError, "ids"),
        (lambda m: al.capture_inputs(m, "text"), TypeError, "str"),
        (lambda m: al.capture_inputs(m, {"mask": torch.ones(1, 3)}), TypeError, "input_ids"),
        (lambda m: al.scan(m, "text", lengths=[4]), TypeError, "tokenizer"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[13]), ValueError, "at most 12|position table"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[0]), ValueError, "n must|lengths"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], estimator="both!"), ValueError, "estimator"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], scope="x"), ValueError, "scope"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], layers=[5]), ValueError, "layer"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], adversarial=0.0), ValueError, "adversarial"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], adversarial=1.0, scope="block"), ValueError, "attention alone"),
        (lambda m: al.scan(m, [1, 2, 3], lengths=[2], samples=0), ValueError, "samples"),
    ],
)
def test_refused_of_models(model, call, error, words):
    with pytest.raises(error, match=words):
        call(model)


def test_a_model_in_training_mode_is_measured_without_dropout_and_put_back(model):
    training = copy.deepcopy(model)
    training.train()
    training.h[1].eval()
    ids = torch.arange(8)[None]
    with pytest.warns(al.TrainingModeWarning):
        found = al.capture_inputs(training, ids, 1)[0]
    assert training.training
    assert training.h[0].attn.attn_dropout.training
    assert not training.h[1].training
    torch.testing.assert_close(found, al.capture_inputs(model, ids, 1)[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_measured_in_full_precision(model, dtype):
    half = copy.deepcopy(model).to(dtype)
    layer = al.extract_attention(half, 1)
    assert layer.query.dtype == torch.float32
    ids = torch.arange(8)[None]
    tokens = al.capture_inputs(half, ids, 1)[0]
    found = al.local_lipschitz(layer, tokens)
    exact = al.extract_attention(copy.deepcopy(half).float(), 1)
    assert found.value == pytest.approx(al.local_lipschitz(exact, tokens).value, rel=1e-9)
    assert found.right.dtype == torch.float64
    assert half.h[0].attn.c_attn.weight.dtype == dtype
    whole = al.module_lipschitz(torch.nn.Linear(3, 3, dtype=dtype).eval(), draw(1, 2, 3))
    assert whole.converged


def test_padding_is_removed_or_refused():
    model = BertModel(
        BertConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    )
    model.eval()
    ids = torch.tensor([[1, 2, 3, 4, 5], [7, 8, 9, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    found = al.capture_inputs(model, {"input_ids": ids, "attention_mask": mask})
    assert [len(x) for x in found] == [5, 3]
    torch.testing.assert_close(found[1], al.capture_inputs(model, ids[1:, :3])[0])
    left = {"input_ids": torch.tensor([[0, 0, 7, 8, 9]]), "attention_mask": torch.tensor([[0, 0, 1, 1, 1]])}
    torch.testing.assert_close(al.capture_inputs(model, left)[0], found[1])
    with pytest.raises(ValueError, match="drop_padding=True"):
        al.capture_inputs(model, {"input_ids": ids, "attention_mask": mask}, drop_padding=False)
    with pytest.raises(FloatingPointError, match="row 1"):
        al.capture_inputs(model, {"input_ids": ids, "attention_mask": torch.tensor([[1] * 5, [0] * 5])})
    with pytest.raises(ValueError, match="gaps in row 0"):
        al.capture_inputs(model, {"input_ids": ids[:1], "attention_mask": torch.tensor([[1, 0, 1, 1, 1]])})
    report = al.scan(model, {"input_ids": ids, "attention_mask": mask}, progress=False)
    assert sorted({row.n for row in report.rows}) == [3, 5]


def test_a_token_that_attends_to_nothing_raises():
    bias = torch.zeros(1, 5, 5, dtype=torch.float64)
    bias[:, 2] = -math.inf
    with pytest.raises(FloatingPointError, match="attends to nothing"):
        al.local_lipschitz(model_layer(0, logit_bias=bias), X)


def test_exponentials_that_overflow_are_infinite_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert al.bounds.mean_field(100.0, 1.0, 1.0) == math.inf
        assert al.bounds.masked_mean_field(100.0, 1.0, 1.0) == math.inf
        assert al.bounds.mean_field(100.0, 1.0, 0.0) == 0.0
        assert al.bounds.sharp(9, 100.0, 1.0, 1.0) == pytest.approx(3 * 10001 + 10000)
        assert math.isfinite(al.bounds.general(9, 1e80, 1.0, 1.0))
        value, _ = al.bounds.lower(9, 100.0, -torch.eye(2))
        assert value == pytest.approx(math.sqrt(8), rel=1e-9)
        assert al.certified_bound(LAYER, 100 * X, 10.0) > 0


def test_what_does_not_converge_says_so():
    layer, tokens = model_layer(4), draw(2, 12, 6)
    with pytest.warns(al.ConvergenceWarning, match="lower bound"):
        found = al.local_lipschitz(layer, tokens, method="power", rtol=1e-12, max_iter=2)
    assert not found.converged
    exact = al.local_lipschitz(layer, tokens, method="dense").value
    assert 0 < found.value <= exact
    with pytest.warns(al.ConvergenceWarning):
        value, converged = al.local_lipschitz_batch(layer, tokens[None], rtol=1e-12, max_iter=2)
    assert not bool(converged.any())
    assert float(value[0]) <= exact


def test_lanczos_that_gives_up_reports_the_best_it_found():
    layer, tokens = model_layer(4, d=20, k=4), draw(2, 30, 20)
    with pytest.warns(al.ConvergenceWarning, match="Lanczos"):
        found = al.jacobian_spectrum(layer, tokens, k=20, rtol=1e-15, max_iter=1)
    assert not found.converged
    exact = al.local_lipschitz(layer, tokens, rtol=1e-10).value
    assert 0.5 * exact < float(found.values[0]) <= exact * (1 + 1e-9)


def test_a_zero_map_has_the_constant_zero():
    zero = al.AttentionHead(A=torch.eye(6, dtype=torch.float64), V=torch.zeros(6, 6, dtype=torch.float64))
    for method in ("lanczos", "power", "dense"):
        assert al.local_lipschitz(zero, X, method=method).value == 0


def test_rotary_models_are_measured_and_bounded_only_when_asked():
    model = llama()
    layer = al.extract_attention(model, 0)
    assert layer.positions == "rotary"
    report = al.scan(model, list(range(40)), lengths=[4], samples=1, progress=False)
    assert report.rows[0].bound_radius is None
    assert report.rows[0].lipschitz <= report.rows[0].bound_local
    loose = al.scan(model, list(range(40)), lengths=[4], samples=1, allow_loose=True, progress=False)
    assert loose.rows[0].bound_radius >= loose.rows[0].lipschitz


def test_an_extraction_that_does_not_compute_what_the_model_does_fails(model):
    wrong = copy.deepcopy(model)
    plain = wrong.h[0].attn.forward
    wrong.h[0].attn.forward = lambda *args, **kwargs: plain(*args, **kwargs)
    al.extract_attention(wrong, 0)
    with pytest.raises(al.ExtractionMismatchError, match="difference"):
        al.extract_attention(model, 0, causal=False)


def test_inputs_are_left_as_they_were(model):
    ids = torch.arange(8)[None]
    before = {name: x.clone() for name, x in model.state_dict().items()}
    tokens = X.clone()
    al.scan(model, ids, progress=False, heads=True)
    al.worst_case(LAYER, 5, 2.0, steps=2, start=tokens)
    assert torch.equal(tokens, X)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())
    assert not model.training
