"""Input that must be refused, each with a message that tells what, where and what instead."""

import math
import subprocess
import sys

import adaptive_decoding as ad
import numpy as np
import pytest
import torch

IDS = torch.zeros(2, 3, dtype=torch.long)
ROWS = torch.randn(2, 30, generator=torch.Generator().manual_seed(0))


def spoilt(value, row=1):
    x = ROWS.clone()
    x[row, 4] = value
    return x


CALLS = {
    "processor": lambda x: ad.AdaptiveLogitsProcessor()(IDS, x),
    "mask": ad.candidate_mask,
    "increments": ad.confidence_increments,
    "mirostat": lambda x: ad.MirostatLogitsProcessor()(IDS, x),
    "numpy": lambda x: ad.adaptive_filter(x.numpy()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_inf_name_the_row(call, value):
    with pytest.raises(ValueError, match="NaN or .inf in row 1"):
        call(spoilt(value))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_row_of_minus_inf(call):
    x = ROWS.clone()
    x[0] = -math.inf
    with pytest.raises(ValueError, match="no finite entry in row 0"):
        call(x)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_integers(call):
    with pytest.raises(ValueError, match="floating-point"):
        call(torch.ones(2, 30, dtype=torch.long))


@pytest.mark.parametrize("kind", [ad.AdaptiveLogitsProcessor, ad.MirostatLogitsProcessor])
def test_shapes_of_scores(kind):
    with pytest.raises(ValueError, match=r"\(batch, vocabulary\), got \(30,\). Add the batch axis by .*unsqueeze"):
        kind()(IDS, ROWS[0])
    with pytest.raises(ValueError, match=r"got \(2, 1, 30\). Pass those of the last position"):
        kind()(IDS, ROWS[:, None])
    with pytest.raises(ValueError, match=r"got \(2, 0\)"):
        kind()(IDS, ROWS[:, :0])
    with pytest.raises(TypeError, match="scores must be of type Tensor, got ndarray"):
        kind()(IDS, ROWS.numpy())


def test_one_token():
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.tensor([[0.3], [-2.0]], dtype=dtype)
        assert torch.equal(ad.AdaptiveLogitsProcessor()(IDS, x), x)
    assert ad.candidate_mask(x).all()
    with pytest.raises(ValueError, match="no finite entry in row 1"):
        ad.AdaptiveLogitsProcessor()(IDS, torch.tensor([[0.3], [-math.inf]]))


def test_fewer_tokens_than_one_over_epsilon():
    assert 1 <= int(ad.candidate_mask(ROWS[0], 1e-3).sum()) <= 30


def test_more_tokens_to_keep_than_there_are():
    for call in (
        lambda: ad.AdaptiveLogitsProcessor(0.5, min_tokens_to_keep=40)(IDS, ROWS),
        lambda: ad.candidate_mask(ROWS, 0.5, min_tokens_to_keep=40),
    ):
        with pytest.warns(UserWarning, match="min_tokens_to_keep is 40, but there are 30 tokens: all are kept"):
            found = call()
        assert torch.isfinite(found).all()


def test_sixteen_bits_are_decided_in_more():
    x = (3 * torch.randn(4, 5000, generator=torch.Generator().manual_seed(2))).to(torch.bfloat16)
    found = ad.AdaptiveLogitsProcessor()(torch.zeros(4, 1, dtype=torch.long), x)
    assert found.dtype == torch.bfloat16
    assert torch.equal(torch.isfinite(found), ad.candidate_mask(x.double()))
    assert torch.equal(found[torch.isfinite(found)], x[torch.isfinite(found)])
    half = ad.candidate_mask(x.half())
    assert torch.equal(half, ad.candidate_mask(x.half().double()))


def test_empty_batch():
    for kind in (ad.AdaptiveLogitsProcessor, ad.MirostatLogitsProcessor):
        assert kind()(IDS[:0], ROWS[:0]).shape == (0, 30)
    assert ad.candidate_mask(ROWS[:0]).shape == (0, 30)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"epsilon": -0.1}, ValueError, "epsilon must be at least 0 and less than 1, got -0.1"),
        ({"epsilon": 1.0}, ValueError, "epsilon must be at least 0 and less than 1, got 1.0"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be .* got nan"),
        ({"epsilon": "0.1"}, TypeError, "epsilon must be .* got '0.1'"),
        ({"epsilon": torch.tensor([0.1, 2.0])}, ValueError, r"epsilon must be .* in every row, got \[0.1.*, 2.0\]"),
        ({"epsilon": torch.tensor([[0.1]])}, ValueError, r"epsilon must be a number or of shape \(batch,\)"),
        ({"rule": "best"}, ValueError, "rule must be one of 'prefix', 'pointwise', 'last', got 'best'"),
        ({"sampling": "random"}, ValueError, "sampling must be one of 'multinomial', 'uniform', got 'random'"),
        ({"flat": "none"}, ValueError, "flat must be one of 'top1', 'keep_all', got 'none'"),
        ({"min_tokens_to_keep": 0}, ValueError, "min_tokens_to_keep must be an integer at least 1, got 0"),
        ({"min_tokens_to_keep": 1.5}, TypeError, "min_tokens_to_keep must be an integer"),
        ({"vocab_size": 0}, ValueError, "vocab_size must be an integer at least 1"),
        ({"filter_value": 1.0}, ValueError, "filter_value must be at most 0"),
        ({"filter_value": math.nan}, ValueError, "filter_value must be at most 0.0, got nan"),
        ({"temperature": 0.0}, ValueError, "temperature must be greater than 0"),
        ({"record": 1}, TypeError, "record must be of type bool, got int"),
    ],
)
def test_arguments_of_the_processor(arguments, kind, message):
    with pytest.raises(kind, match=message):
        ad.AdaptiveLogitsProcessor(**arguments)


def test_arguments_at_the_call():
    with pytest.raises(ValueError, match=r"vocab_size must be .* between 1 and 30 \(the logits of a row\), got 40"):
        ad.AdaptiveLogitsProcessor(vocab_size=40)(IDS, ROWS)
    with pytest.raises(ValueError, match="epsilon must be one number for each of 2 rows, got 3 numbers"):
        ad.AdaptiveLogitsProcessor(torch.tensor([0.1, 0.1, 0.1]))(IDS, ROWS)
    with pytest.raises(ValueError, match=r"logits must be of shape \(..., vocabulary\), got \(\)"):
        ad.candidate_mask(torch.tensor(0.0))
    with pytest.raises(TypeError, match="logits must be of type Tensor, got ndarray. Of a numpy array, use"):
        ad.candidate_mask(ROWS.numpy())
    with pytest.raises(ValueError, match="probs must be at least 0, got -"):
        ad.confidence_increments(ROWS, probs=True)
    with pytest.raises(ValueError, match="k must be an integer between 0 and 30"):
        ad.confidence(ROWS, 31)
    with pytest.raises(ValueError, match="k_max must be an integer at least 1"):
        ad.confidence_increments(ROWS, k_max=0)
    with pytest.raises(ValueError, match="vocab_size must be an integer between 1 and 30"):
        ad.confidence_increments(ROWS, vocab_size=31)
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        ad.adaptive_filter(ROWS.numpy(), 1.0)
    with pytest.raises(ValueError, match=r"logits must be floating-point \(..., vocabulary\)"):
        ad.adaptive_filter(np.float64(0.0))


def test_arguments_of_mirostat():
    with pytest.raises(ValueError, match="tau must be greater than 0"):
        ad.MirostatLogitsProcessor(tau=0.0)
    with pytest.raises(ValueError, match="eta must be between 0 and"):
        ad.MirostatLogitsProcessor(eta=-1.0)
    with pytest.raises(ValueError, match="pad_token_id must be an integer at least 0"):
        ad.MirostatLogitsProcessor(pad_token_id=-1)


def test_arguments_of_contrastive_search(tiny):
    model, _ = tiny
    ids = torch.tensor([[5, 6, 7]])
    for arguments, kind, message in (
        ({"k": 0}, ValueError, "k must be an integer at least 1"),
        ({"alpha": 1.5}, ValueError, "alpha must be between 0 and 1"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be an integer at least 1"),
        ({"attention_mask": torch.ones(1, 2)}, ValueError, r"attention_mask must be of shape \(1, 3\)"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, ValueError, "padding there. Pad on the left"),
    ):
        with pytest.raises(kind, match=message):
            ad.contrastive_search(model, ids, **arguments)
    with pytest.raises(ValueError, match="one row and one token or more"):
        ad.contrastive_search(model, ids[:, :0])
    with pytest.raises(ValueError, match=r"input_ids must be of shape \(batch, length\)"):
        ad.contrastive_search(model, ids[0])


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("beam", ValueError, "decoder must be one of 'adaptive', 'greedy', .*, got 'beam'"),
        ("top_p:q=0.5", ValueError, "parameter of top_p must be one of 'p', 'temperature', got 'q'"),
        ("greedy:temperature=2", ValueError, "greedy must be given without parameters, got .temperature."),
        ("top_p:p", ValueError, "with each one once, got 'p'"),
        ("top_p:p=0.5,p=0.6", ValueError, "with each one once"),
        ("top_p:p=many", ValueError, "p in 'top_p:p=many' must be a number, got 'many'"),
        ("top_p:p=nan", ValueError, "must be finite, got 'nan'"),
        ("top_p:p=2", ValueError, "top_p"),
        ("top_k:k=2.5", ValueError, "top_k"),
        ("adaptive:epsilon=1", ValueError, "epsilon must be"),
        ("adaptive:rule=x", ValueError, "rule must be one of"),
        ("contrastive:k=0", ValueError, "k must be an integer at least 1"),
        ("contrastive:alpha=2", ValueError, "alpha must be between 0 and 1"),
        ("sampling:temperature=0", ValueError, "temperature must be greater than 0"),
        (3, TypeError, "decoder must be of type str, got int"),
    ],
)
def test_names_of_decoders(spec, kind, message):
    with pytest.raises(kind, match=message):
        ad.make_decoder(spec)


def test_a_missing_extra_is_named():
    code = (
        "import sys; sys.modules['mauve'] = sys.modules['sacrebleu'] = sys.modules['matplotlib'] = None\n"
        "import numpy as np, adaptive_decoding as ad\n"
        "from adaptive_decoding.distance import feature_mauve\n"
        "from adaptive_decoding.report import DecoderReport\n"
        "x = np.ones((4, 2)); report = DecoderReport((), ('k',), {}, None, {}, {}, {})\n"
        "calls = [lambda: feature_mauve(x, x), lambda: ad.self_bleu(['a', 'b']), lambda: report.plot('k', 'k')]\n"
        "for call in calls:\n"
        "    try: call()\n"
        "    except ImportError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        'mauve needs mauve-text: pip install "adaptive-decoding[metrics]"',
        'self_bleu needs sacrebleu: pip install "adaptive-decoding[metrics]"',
        'a plot needs matplotlib: pip install "adaptive-decoding[plots]"',
    ]


def test_the_array_rule_imports_no_torch():
    code = "import sys, adaptive_decoding as ad; ad.adaptive_filter; print('torch' in sys.modules, len(dir(ad)) > 30)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ad.nothing  # noqa: B018
