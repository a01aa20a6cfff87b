"""Decoders side by side, calibration, and each decoder at equal mean candidate-set size."""

import json
import math

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
from adaptive_decoding import _reference as reference
from adaptive_decoding.calibration import mean_size
from adaptive_decoding.experiments_models import letters
from adaptive_decoding.report import estimate

PROMPTS = ["hello there", "ab", "a longer prompt with words", "zz top"]
DECODERS = [
    "adaptive:epsilon=0.01", "top_p:p=0.9", "top_k:k=5", "min_p", "typical", "eta:epsilon=0.01", "epsilon", "top_h",
    "mirostat", "contrastive", "greedy", "sampling",
]  # fmt: skip
METRICS = ["diversity", "rep_2", "rep_3", "rep_4", "perplexity", "coherence", "ll_coherence", "k", "mass", "zipf"]


@pytest.fixture(scope="module")
def report(tiny):
    return ad.compare(
        *tiny, PROMPTS, DECODERS, METRICS, embed=letters, max_new_tokens=10, seeds=(0, 1), batch_size=3, resamples=200
    )


def test_every_decoder_writes_as_many_tokens(report):
    for name in report.decoders:
        assert len(report.texts[name]) == 2 * len(PROMPTS)
        assert report.values[name]["k"].shape == (2, len(PROMPTS))
        halves = report.texts[name][: len(PROMPTS)], report.texts[name][len(PROMPTS) :]
        assert (halves[0] == halves[1]) == (name in ("greedy", "contrastive:k=5"))
    assert report.table["top_k:k=5"]["k"].value == 5
    assert report.table["greedy"]["k"].value == 1
    assert 0.9 < report.table["sampling"]["mass"].value < 1  # all but the end of the text
    assert report.table["greedy"]["perplexity"].value < report.table["sampling"]["perplexity"].value


def test_figures_are_those_of_the_texts(tiny, report):
    texts = [
        ad.continuations(
            *tiny, PROMPTS, ad.make_decoder("top_p:p=0.9"), max_new_tokens=10, seed=seed, exact_length=True
        )
        for seed in (0, 1)
    ]
    row = report.table["top_p:p=0.9"]
    flat = [text for part in texts for text in part]
    assert row["diversity"].value == pytest.approx(np.mean([reference.diversity(text.ids) for text in flat]))
    assert row["rep_3"].value == pytest.approx(np.mean([ad.rep_n(text.ids, 3) for text in flat]))
    assert row["perplexity"].value == pytest.approx(
        math.exp(-np.mean([text.log_probs.mean() for text in flat])), rel=1e-4
    )
    assert row["k"].value == pytest.approx(np.mean([text.k.mean() for text in flat]))
    assert row["mass"].value == pytest.approx(np.mean([text.mass.mean() for text in flat]))
    assert row["coherence"].value == pytest.approx(ad.coherence(PROMPTS * 2, [text.text for text in flat], letters))
    assert row["zipf"].value == pytest.approx(np.mean([ad.zipf([text.ids for text in part]) for part in texts]))
    first = report.values["adaptive:epsilon=0.01"]["diversity"].mean(0)
    assert row["diversity"].difference == pytest.approx(
        (report.values["top_p:p=0.9"]["diversity"].mean(0) - first).mean()
    )
    for metric in METRICS[:-1]:
        if metric != "ll_coherence":
            low, high = row[metric].interval
            assert low <= row[metric].value <= high


def test_equal_size(tiny, report):
    recorded = ad.record_logits(*tiny, PROMPTS, max_new_tokens=10)
    size = mean_size(ad.make_decoder("adaptive:epsilon=0.01"), recorded)
    assert report.matched_size == pytest.approx(size)
    near = dict.fromkeys(("top_p:p=0.9", "min_p:p=0.05", "typical:p=0.95", "mirostat:tau=3", "eta:epsilon=0.01"), 0.5)
    for name, margin in (near | {"epsilon:epsilon=0.0003": 0.5, "top_h:h=0.4": 0.5}).items():
        matched = ad.match_size(ad.make_decoder(name), recorded, size)
        assert mean_size(matched, recorded) == pytest.approx(size, abs=margin)
        assert report.matched[name] == matched.name
    assert report.matched["top_k:k=5"] == f"top_k:k={round(size)}"
    assert report.matched["adaptive:epsilon=0.01"] == "adaptive:epsilon=0.01"
    assert report.matched["greedy"] is report.matched["sampling"] is report.matched["contrastive:k=5"] is None
    with pytest.raises(ValueError, match="size must be between .* \\(what can be reached here\\), got 500"):
        ad.match_size(ad.make_decoder("top_p"), recorded, 500.0)
    with pytest.raises(TypeError, match="recorded must be of type Recorded"):
        ad.match_size(ad.make_decoder("top_p"), recorded.logits, 5.0)
    assert mean_size(ad.make_decoder("contrastive:k=4"), recorded) == 4


def test_sizes_on_recorded_steps(tiny):
    model, tokenizer = tiny
    recorded = ad.record_logits(*tiny, PROMPTS[:2], max_new_tokens=5, seed=4)
    assert recorded.logits.shape == (2, 5, 97)
    prompt = tokenizer(PROMPTS[1])["input_ids"]
    ids = torch.tensor([prompt + recorded.tokens[1].tolist()])
    assert torch.allclose(recorded.logits[1], model(ids).logits[0, -6:-1], atol=1e-3)
    assert recorded.ruled_out == (1,)
    flat = recorded.logits.flatten(0, 1).index_fill(-1, torch.tensor([1]), -torch.inf)
    wanted = float(ad.candidate_mask(flat, 0.02).sum(-1).double().mean())
    assert mean_size(ad.make_decoder("adaptive:epsilon=0.02"), recorded) == pytest.approx(wanted)


def test_shapes_of_a_report(report, tmp_path):
    text = report.to_markdown(tmp_path / "r.md")
    assert (tmp_path / "r.md").read_text() == text
    lines = text.splitlines()
    assert len(lines) == 2 + len(DECODERS)
    assert lines[0].endswith(f"| at {report.matched_size:.3g} candidates |")
    assert all(line.count("|") == len(METRICS) + 3 for line in lines)
    content = json.loads(report.to_json(tmp_path / "r.json"))
    assert set(content["decoders"]) == set(report.decoders)
    one = content["decoders"]["top_p:p=0.9"]["metrics"]["k"]
    assert one["value"] == report.table["top_p:p=0.9"]["k"].value
    assert one["interval"] == list(report.table["top_p:p=0.9"]["k"].interval)
    drawn = report.plot(path=tmp_path / "r.png")
    assert (tmp_path / "r.png").stat().st_size > 5000
    assert drawn.axes[0].get_xlabel() == "perplexity"
    assert [t.get_text() for t in drawn.axes[0].get_legend().get_texts()] == list(report.decoders)
    with pytest.raises(ValueError, match="metric must be one of 'diversity', .*, got 'mauve'"):
        report.plot("mauve")


@pytest.mark.filterwarnings("ignore:MAUVE of fewer")
def test_mauve_matched_reruns_and_another_scorer(tiny):
    model, tokenizer = tiny
    found = ad.compare(
        model, tokenizer, PROMPTS * 3, ["adaptive:epsilon=0.05", "top_k:k=2"], ["mauve", "self_bleu", "ll_coherence"],
        references=["some words here"] * 12, embed=letters, scorer=model, max_new_tokens=6, rerun_matched=True,
        resamples=5,
    )  # fmt: skip
    assert found.decoders[:2] == ("adaptive:epsilon=0.05", "top_k:k=2")
    assert found.matched["top_k:k=2"] in found.decoders
    assert 0 < found.table["top_k:k=2"]["mauve"].value <= 1
    assert found.table["top_k:k=2"]["mauve"].interval is not None
    assert found.table["top_k:k=2"]["self_bleu"].interval is None
    without = ad.compare(model, tokenizer, PROMPTS, ["greedy"], ["k"], max_new_tokens=3, match=False, resamples=0)
    assert without.matched_size is None
    assert without.to_markdown().splitlines()[0] == "| decoder | k |"
    none = ad.compare(model, tokenizer, PROMPTS, ["greedy", "sampling"], ["k"], max_new_tokens=3)
    assert none.matched_size is None


def test_estimates_by_hand():
    mine, first = np.array([1.0, 2.0, 6.0, np.nan]), np.array([1.0, 1.0, 1.0, 1.0])
    found = estimate(mine, first, False, 2000, 0)
    assert (found.value, found.difference) == (3.0, 2.0)
    assert 1 <= found.interval[0] < 3 < found.interval[1] <= 6
    assert found.difference_interval[0] == pytest.approx(found.interval[0] - 1)
    ratio = estimate(np.log(mine), np.log(2 * first), True, 100, 0)
    assert ratio.value == pytest.approx(12 ** (1 / 3))
    assert ratio.difference == pytest.approx(12 ** (1 / 3) / 2)
    assert math.isnan(estimate(np.array([np.nan]), first[:1], False, 10, 0).value)


def test_what_compare_refuses(tiny):
    for change, kind, message in (
        ({"decoders": []}, ValueError, "decoders must be one or more"),
        ({"decoders": ["top_p", "top_p:p=0.95"]}, ValueError, "decoders must be different, got 'top_p:p=0.95' twice"),
        ({"decoders": ["nucleus"]}, ValueError, "decoder must be one of"),
        ({"metrics": ["bleu"]}, ValueError, "metric must be one of 'diversity'"),
        ({"metrics": "k"}, TypeError, "metrics must be a list of names"),
        ({"metrics": ["coherence"]}, ValueError, "embed must be given for coherence"),
        ({"metrics": ["mauve"], "embed": letters}, ValueError, "references must be given for mauve"),
        ({"references": ["a"]}, ValueError, "references must be as many as the 4 prompts, got 1"),
        ({"seeds": ()}, ValueError, "seeds must be one or more"),
        ({"seeds": (-1,)}, ValueError, "seed must be an integer at least 0"),
        ({"prompts": ["a", ""]}, ValueError, "prompt 1 must be a text"),
        ({"prompts": ["a", "b" * 600]}, ValueError, "prompt 1 must be at most"),
    ):
        arguments = {"prompts": PROMPTS, "decoders": ["greedy"], "max_new_tokens": 3} | change
        with pytest.raises(kind, match=message):
            ad.compare(*tiny, **arguments)


# ---- calibration


@pytest.mark.parametrize("rule", ["prefix", "pointwise", "last"])
@pytest.mark.parametrize("target", [{"target_k": 6.0}, {"target_mass": 0.7}, {"target_entropy": 1.2}])
def test_calibration_reaches_its_target(target, rule):
    x = torch.randn(400, 300, generator=torch.Generator().manual_seed(0)) * 2
    found = ad.calibrate_epsilon(x, rule=rule, **target)
    mask = ad.candidate_mask(x, found.epsilon, rule=rule)
    p = x.double().softmax(-1) * mask
    mass = p.sum(-1, keepdim=True)
    entropy = torch.special.entr(p / mass).sum(-1).mean()
    assert found.k == pytest.approx(float(mask.sum(-1).double().mean()), abs=0.01)
    assert found.mass == pytest.approx(float(mass.mean()), abs=1e-3)
    assert found.entropy == pytest.approx(float(entropy), abs=1e-3)
    ((name, wanted),) = target.items()
    assert getattr(found, name.removeprefix("target_")) == pytest.approx(wanted, rel=0.01)
    assert found.steps == 400


def test_calibration_on_a_model(tiny):
    model, tokenizer = tiny
    found = ad.calibrate_epsilon(model, PROMPTS, tokenizer=tokenizer, target_k=8.0, max_new_tokens=10)
    assert found.k == pytest.approx(8.0, abs=0.5)
    assert found.steps == 40


def test_what_calibration_refuses(tiny):
    model, _ = tiny
    x = torch.randn(5, 30)
    for arguments, kind, message in (
        ({}, ValueError, "target_entropy must be given, exactly one of them, got none"),
        ({"target_k": 2.0, "target_mass": 0.5}, ValueError, "got target_k, target_mass"),
        ({"target_k": 500.0}, ValueError, r"target_k must be between 1.0 and .*\(what can be reached here\), got 500"),
        ({"target_mass": -1.0}, ValueError, "target_mass must be at least 0"),
        ({"target_k": 2.0, "rule": "x"}, ValueError, "rule must be one of"),
    ):
        with pytest.raises(kind, match=message):
            ad.calibrate_epsilon(x, **arguments)
    with pytest.raises(TypeError, match="tokenizer must be given with a model"):
        ad.calibrate_epsilon(model, PROMPTS, target_k=3.0)
    with pytest.raises(ValueError, match="logits must be of one step or more"):
        ad.calibrate_epsilon(x[:0], target_k=2.0)
