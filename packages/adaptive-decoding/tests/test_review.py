"""What a second reading found: settings that leak, tokens that come back, numbers of different meaning, late errors."""

import contextlib
import copy
import json
import math

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
from adaptive_decoding import _reference as reference
from adaptive_decoding import experiments
from adaptive_decoding.calibration import mean_size
from adaptive_decoding.cli import main
from adaptive_decoding.distance import MauveScore, averaged, centred_interval, feature_mauve
from adaptive_decoding.experiments_models import letters
from adaptive_decoding.generation import own_settings
from adaptive_decoding.metrics import log_likelihoods

PROMPTS = ["hello there", "ab", "a longer prompt with words"]
END = 1
IDS = torch.zeros(2, 3, dtype=torch.long)
PUBLISHED = {
    "repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "temperature": 0.3, "top_k": 3, "top_p": 0.5, "num_beams": 3,
    "min_new_tokens": 6, "bad_words_ids": [[40], [41]],
}  # fmt: skip


@pytest.fixture
def published(tiny):
    """The tiny model as if it had been published with settings of its own."""
    model, tokenizer = tiny
    model = copy.deepcopy(model)
    for name, value in PUBLISHED.items():
        setattr(model.generation_config, name, value)
    return model, tokenizer


# ---- the settings that a model was published with


@pytest.mark.parametrize("spec", ["adaptive:epsilon=0.01", "greedy", "sampling", "top_p:p=0.9", "contrastive"])
@pytest.mark.parametrize("exact", [False, True])
def test_settings_do_not_leak_into_continuations(tiny, published, spec, exact):
    how = {"max_new_tokens": 8, "seed": 1, "exact_length": exact}
    before = copy.deepcopy(published[0].generation_config)
    plain, other = (ad.continuations(*pair, PROMPTS, ad.make_decoder(spec), **how) for pair in (tiny, published))
    for a, b in zip(plain, other, strict=True):
        assert a.ids == b.ids
        assert np.array_equal(a.log_probs, b.log_probs)
        assert a.k.tolist() == b.k.tolist()
    assert published[0].generation_config.to_dict() == before.to_dict()


def test_settings_do_not_leak_into_what_is_built_on_them(tiny, published):
    for build in (
        lambda pair: ad.record_logits(*pair, PROMPTS, max_new_tokens=6).tokens.tolist(),
        lambda pair: ad.compare(*pair, PROMPTS, ["adaptive:epsilon=0.01", "greedy"], max_new_tokens=6).to_json(),
        lambda pair: ad.evaluate_reasoning(*pair, [ad.Question("2+2?", "4")], "greedy", max_new_tokens=6).items,
    ):
        assert build(tiny) == build(published)


def test_settings_come_back_after_an_error(published):
    model, _ = published
    given = model.generation_config
    with contextlib.suppress(RuntimeError), own_settings(model):
        assert model.generation_config.repetition_penalty is None
        raise RuntimeError
    assert model.generation_config is given


def test_candidate_sets_do_not_depend_on_them(published, tiny, monkeypatch):
    wanted = experiments.candidate_sets(0, "tiny", 2, 8, 3)
    here = experiments.Bench(*published, letters, experiments.bench("tiny").texts)
    monkeypatch.setattr(experiments, "bench", lambda name: here)
    assert experiments.candidate_sets(0, "other", 2, 8, 3) == wanted


# ---- one definition of p, of the candidates and of their mass


def test_no_decoder_ends_a_text_of_exact_length(tiny):
    model, tokenizer = tiny
    model = copy.deepcopy(model)
    bias = torch.zeros(97)
    bias[END] = 30.0
    head = model.get_output_embeddings()
    head.register_forward_hook(lambda module, inputs, out: out + bias)
    for spec in ("contrastive:k=5", "contrastive:k=500", "greedy", "adaptive:epsilon=0.01"):
        for text in ad.continuations(
            model, tokenizer, PROMPTS, ad.make_decoder(spec), max_new_tokens=6, exact_length=True
        ):
            assert END not in text.ids
            assert len(text.ids) == len(text.k) == 6
        (free,) = ad.continuations(model, tokenizer, PROMPTS[:1], ad.make_decoder(spec), max_new_tokens=6)
        assert free.ids == []
    assert text.k.max() <= 96


def test_suppressed_tokens_of_contrastive_search(tiny):
    model, _ = tiny
    ids = torch.tensor([[40, 41, 42]])
    never = [int(ad.contrastive_search(model, ids, max_new_tokens=1)[0, -1])]
    out = ad.contrastive_search(model, ids, max_new_tokens=8, suppress_tokens=never * 2)
    assert never[0] not in out[0, 3:].tolist()
    greedy = model.generate(ids, do_sample=False, max_new_tokens=4, eos_token_id=None, suppress_tokens=never)
    assert torch.equal(ad.contrastive_search(model, ids, alpha=0.0, max_new_tokens=4, suppress_tokens=never), greedy)
    with pytest.raises(ValueError, match="suppressed tokens must be an integer at most 96"):
        ad.contrastive_search(model, ids, suppress_tokens=range(97))


@pytest.mark.parametrize("spec", ["sampling", "top_k:k=4", "greedy", "contrastive:k=3", "adaptive:epsilon=0.02"])
def test_probabilities_are_the_model_s_own(tiny, spec):
    model, tokenizer = tiny
    texts = ad.continuations(*tiny, PROMPTS, ad.make_decoder(spec), max_new_tokens=7, exact_length=True)
    starts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    wanted = log_likelihoods(model, [a + b.ids for a, b in zip(starts, texts, strict=True)], [len(a) for a in starts])
    for start, text, logs in zip(starts, texts, wanted, strict=True):
        assert text.log_probs == pytest.approx(logs, abs=1e-4)
        p = model(torch.tensor([start + text.ids])).logits[0, -8:-1].float().softmax(-1).detach()
        open_ = p.clone()
        open_[:, END] = 0
        if spec == "sampling":
            assert text.mass == pytest.approx(open_.sum(-1).tolist(), abs=1e-5)
            assert text.k.tolist() == [96] * 7
        elif spec == "adaptive:epsilon=0.02":
            kept = ad.candidate_mask(open_.log(), 0.02)
            assert text.k.tolist() == kept.sum(-1).tolist()
            assert text.mass == pytest.approx((p * kept).sum(-1).tolist(), abs=1e-5)
        else:
            k = {"top_k:k=4": 4, "greedy": 1, "contrastive:k=3": 3}[spec]
            assert text.mass == pytest.approx(open_.topk(k).values.sum(-1).tolist(), abs=1e-5)
    ours = math.exp(-np.mean([text.log_probs.mean() for text in texts]))
    ids = [a + b.ids for a, b in zip(starts, texts, strict=True)]
    assert ad.perplexity(model, ids, [len(a) for a in starts]) == pytest.approx(ours, rel=1e-4)


def test_sizes_are_matched_by_that_definition(tiny):
    recorded = ad.record_logits(*tiny, PROMPTS, max_new_tokens=6, seed=2)
    written = ad.continuations(*tiny, PROMPTS, ad.make_decoder("sampling"), max_new_tokens=6, seed=2, exact_length=True)
    assert mean_size(ad.make_decoder("sampling"), recorded) == np.mean([text.k.mean() for text in written]) == 96


def test_a_trace_of_the_claim_has_the_mass_of_the_model(tiny):
    both = experiments._Both(ad.AdaptiveLogitsProcessor(0.02, record=True), [END])
    x = 3 * torch.randn(2, 97, generator=torch.Generator().manual_seed(0))
    x[:, END] = 12.0
    out = both(IDS, x)
    assert out[:, END].tolist() == [-torch.inf] * 2
    kept = torch.isfinite(out)
    assert both.mass[0].tolist() == pytest.approx((x.softmax(-1) * kept).sum(-1).tolist())
    assert both.mass[0].max() < 0.5 < both.inner.trace.values("mass").min()


# ---- intervals


def test_the_interval_of_mauve_covers_its_score():
    gen = np.random.default_rng(0)
    for shift in (1.0, 0.3, 0.0):
        p, q = gen.normal(size=(200, 64)), gen.normal(size=(200, 64)) + shift
        found = feature_mauve(p, q, runs=2, resamples=30)
        assert 0 <= found.interval[0] <= found.score <= found.interval[1] <= 1
    assert np.quantile(found.resampled, 0.9) < found.score  # quantiles as they are would miss it


def test_the_interval_is_centred():
    values = np.array([0.1, 0.2, 0.2, 0.2, 0.8])
    low, high = centred_interval(0.5, values, level=1.0)
    assert (low, high) == pytest.approx((0.5 - (0.8 - 0.3), 0.5 - (0.1 - 0.3)))
    assert centred_interval(0.99, values, level=1.0)[1] == 1.0
    assert centred_interval(0.5, np.zeros(0)) is None
    both = averaged([MauveScore(0.4, None, values), MauveScore(0.6, None, values[::-1])])
    assert both.score == pytest.approx(0.5)
    assert both.resampled == pytest.approx((values + values[::-1]) / 2)


def test_the_low_end_of_a_bootstrap():
    gaps = np.array([1.0] * 12)
    assert experiments.low_end(gaps, 0) == 1.0
    gaps = np.random.default_rng(0).normal(size=400)
    assert experiments.low_end(gaps, 0) == pytest.approx(gaps.mean() - 1.645 * gaps.std() / 20, abs=0.01)


@pytest.mark.filterwarnings("ignore:MAUVE of fewer")
def test_all_decoders_have_as_many_texts(tiny):
    how = {"references": ["some words"] * 3, "embed": letters, "max_new_tokens": 6, "match": False, "resamples": 4}
    found = ad.compare(
        *tiny, PROMPTS, ["sampling", "greedy"], ["mauve", "self_bleu", "zipf", "k"], seeds=(0, 1, 2), **how
    )
    once = ad.compare(*tiny, PROMPTS, ["greedy"], ["mauve", "self_bleu", "zipf"], seeds=(0,), **how)
    for name in ("sampling", "greedy"):
        assert len(found.texts[name]) == 9
        assert found.values[name]["k"].shape == (3, 3)
    for metric in ("mauve", "self_bleu", "zipf"):
        assert found.table["greedy"][metric].value == pytest.approx(once.table["greedy"][metric].value)


# ---- the exact tail against the literal equations


def test_the_claim_of_the_exact_tail_can_fail(monkeypatch):
    assert experiments.exact_tail(0, 500, 4)["ours_wrong_float32"] == 0
    monkeypatch.setattr(
        experiments, "candidate_mask", lambda x, epsilon, **how: ad.candidate_mask(x, 1.05 * epsilon, **how)
    )
    found = experiments.exact_tail(0, 500, 4)
    assert found["ours_wrong_float32"] > 0
    assert found["ours_wrong_bfloat16"] > 0


# ---- tokens at minus infinity, and 16 bits


def masked_rows():
    x = torch.full((2, 6), -torch.inf)
    x[0, 3], x[1, [1, 4]] = 2.0, torch.tensor([1.0, 3.0])
    return x


@pytest.mark.parametrize("sampling", ["uniform", "multinomial"])
@pytest.mark.parametrize("flat", ["top1", "keep_all"])
@pytest.mark.parametrize("rule", ["prefix", "pointwise", "last"])
def test_ruled_out_tokens_stay_so(sampling, flat, rule):
    x = masked_rows()
    processor = ad.AdaptiveLogitsProcessor(
        0.1, rule=rule, sampling=sampling, flat=flat, min_tokens_to_keep=4, record=True
    )
    out = processor(IDS, x)
    assert torch.isfinite(out).tolist() == torch.isfinite(x).tolist()
    assert processor.trace.values("k").tolist() == [[1, 2]]
    mask = ad.candidate_mask(x, 0.1, rule=rule, flat=flat, min_tokens_to_keep=4)
    assert torch.equal(mask, torch.isfinite(x))
    given = x.numpy()
    array = ad.adaptive_filter(given, 0.1, rule=rule, flat=flat, min_tokens_to_keep=4, filter_value=-50.0)
    assert ((array > -50) == mask.numpy()).all()
    for row, p in enumerate(x.double().softmax(-1).numpy()):
        assert reference.kept(p, 0.1, rule, flat, 4) == set(mask[row].nonzero().flatten().tolist())
    alone = ad.AdaptiveLogitsProcessor(0.1, sampling=sampling, min_tokens_to_keep=4)(IDS[:1], x[:1])
    assert torch.isfinite(alone).sum() == 1


def test_half_precision():
    x = torch.tensor([[60000.0, 59998.0, 59990.0, -60000.0], [-60000.0, -60002.0, -60010.0, -65504.0]]).half()
    out = ad.AdaptiveLogitsProcessor(1e-3, temperature=0.5)(IDS, x)
    assert out.dtype == torch.float16
    assert not out.isnan().any()
    assert (out < torch.inf).all()
    wanted = torch.where(ad.candidate_mask(x.double() / 0.5), x.double() / 0.5, -torch.inf)
    assert torch.equal(out.isfinite(), wanted.isfinite())
    assert torch.allclose(out.double().softmax(-1), wanted.softmax(-1), atol=1e-3)
    small = torch.tensor([[3.0, 1.0, -1.0, -9.0]]).half()
    assert torch.equal(
        ad.AdaptiveLogitsProcessor(1e-3, temperature=0.5)(IDS[:1], small)[0, :2], small[0, :2] / 0.5
    )  # untouched where it fits
    for processor in (ad.AdaptiveLogitsProcessor(0.4, filter_value=-1e9), ad.MirostatLogitsProcessor(0.1, 0.1, -1e9)):
        out = processor(IDS[:1], small)
        assert out[0, 3] == torch.finfo(torch.float16).min
        assert out[0, 0] == small[0, 0]
    array = ad.adaptive_filter(small.numpy(), 0.4, filter_value=-1e9)
    assert array[0, 3] == np.finfo(np.float16).min
    huge = torch.tensor([[3e38, 2.9e38]])
    assert ad.AdaptiveLogitsProcessor(temperature=0.5)(IDS[:1], huge)[0, 0] == 0.0
    with pytest.raises(ValueError, match="no finite entry in row 0"):
        ad.AdaptiveLogitsProcessor(temperature=0.5)(IDS[:1], torch.full((1, 3), -torch.inf).half())


# ---- what generate() does after the rule


def test_arguments_for_generate(published):
    model, _ = published
    model.generation_config.num_beams, model.generation_config.min_new_tokens = 1, None
    model.generation_config.min_p = 0.4
    prompt = torch.tensor([[5, 9, 13]])
    processor = ad.AdaptiveLogitsProcessor(1e-3, record=True)
    seen = []

    def spy(input_ids, scores):
        seen.append(torch.isfinite(scores).sum().item())
        return scores

    kwargs = processor.generate_kwargs(model, max_new_tokens=4, logits_processor=[spy])
    assert kwargs["logits_processor"] == [spy, processor]
    chain = []
    original = model._get_logits_processor

    def kept(*args, **more):
        chain.append(original(*args, **more))
        return chain[-1]

    model._get_logits_processor = kept
    with torch.random.fork_rng():
        model.generate(prompt, **kwargs)
    (chain,) = chain
    after = chain[[type(x) for x in chain].index(ad.AdaptiveLogitsProcessor) + 1 :]
    x = torch.randn(1, 97, generator=torch.Generator().manual_seed(0))
    for warper in after:
        assert torch.equal(warper(prompt, x), x)  # nothing is cut any more
    for name, value in (("top_k", 50), ("top_p", 0.9), ("temperature", 0.7), ("min_p", 0.1), ("top_h", 0.4)):
        with pytest.raises(ValueError, match=f"{name} must be left out, got {value}"):
            processor.generate_kwargs(model, **{name: value})
    assert processor.generate_kwargs(model, top_k=0)["top_k"] == 0
    model.generation_config.top_h = 0.4
    with pytest.raises(ValueError, match=r"model.generation_config.top_h must be None, got 0.4. Set it to None"):
        processor.generate_kwargs(model)


def test_a_cut_to_fifty_before_the_rule_warns():
    from transformers import LogitsProcessorList, TopKLogitsWarper

    x = torch.randn(2, 97, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="exactly 50 tokens come in: is it a top-k by default"):
        LogitsProcessorList([TopKLogitsWarper(50), ad.AdaptiveLogitsProcessor(1e-3)])(IDS, x)


def test_reset_before_a_prompt_that_looks_like_the_next_step():
    x = torch.randn(1, 20, generator=torch.Generator().manual_seed(0))
    processor = ad.AdaptiveLogitsProcessor(0.01, record=True)
    first, longer = torch.tensor([[3, 4]]), torch.tensor([[3, 4, 5]])
    processor(first, x)
    processor(longer, x)
    assert (len(processor.trace), processor.trace.prompt_length) == (2, 2)  # as documented
    processor.reset()
    assert len(processor.trace) == 0
    processor(longer, x)
    assert (len(processor.trace), processor.trace.prompt_length) == (1, 3)


# ---- the command line


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    for part in tiny:
        part.save_pretrained(where)
    return str(where)


def test_a_heat_map_shows_the_text_that_is_written_without_it(folder, capsys, tmp_path):
    page = tmp_path / "heat.html"
    for seed in ("0", "1"):
        how = ["generate", "hello", "--model", folder, "--max-new-tokens", "9", "--seed", seed]
        assert main(how) == 0
        text = capsys.readouterr().out
        assert main([*how, "--html", str(page)]) == 0
        assert capsys.readouterr().out == text
        assert page.read_text().count("<span") >= len(text.strip("\n"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "a", "--dtype", "float3"], "argument --dtype: invalid choice: 'float3'"),
        (["generate", "a", "--html", "/no/such/folder/a.html"], "argument --html: must be in a folder that exists"),
        (["compare", "--prompts", "p", "--limit", "-1"], "argument --limit: must be 1 or more, got -1"),
        (["compare", "--prompts", "p", "--out", "a.xyz"], "argument --out: must end in .md, .json"),
        (["compare", "--prompts", "p", "--out", "/no/such/folder/a.md"], "must be in a folder that exists"),
    ],
)
def test_arguments_are_refused_before_the_work(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--model", "nowhere"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# ---- answers and questions


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 5 + 3 = 8. The answer is 8.\n\nQuestion: And 2 + 2? Answer: The answer is 4.", "8"),
        ("#### 13\nQ: 5 + 5? #### 10", "13"),
        ("So 7.\nQuestion 2: 9?", "7"),
        ("The answer is: 12", "12"),
        ("The answer is: **12**", "12"),
        ("Answer: = 12", "12"),
        ("There are 3-5", "5"),
        ("(8)-5", "5"),
        ("It fell to -5", "-5"),
        ("#### -$5", "-$5"),
        ("the answer is $-5", "$-5"),
        ("the answer is −5", "−5"),
        ("Question: what?", None),
    ],
)
def test_answers(text, answer):
    assert ad.read_answer(text) == answer


def test_an_expression_stops_at_the_next_question_too():
    assert ad.read_answer("x1 x2\nQuestion: x3", r"x(\d)") == "2"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"question": "a", "answer"', "q.json must be a JSON list of objects, got"),
        (b'[{"question": "a\xff"}]', "q.json must be UTF-8"),
        (b"[" * 100_000, "q.json must be a JSON list of objects"),
        (b'{"a": ' + b"[" * 100_000, "line 1 must be a JSON object"),
        (b'{"question": "a", "answer": "#### nan"}', "line 1: the answer must be a number"),
        (b'{"question": "a", "answer": NaN}', "line 1: the answer must be a number"),
        (b'{"question": "a", "answer": "#### inf"}', "line 1: the answer must be a number"),
    ],
)
def test_broken_questions(tmp_path, content, said):
    path = tmp_path / "q.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        ad.load_questions(path)


def test_negative_money_is_an_answer(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "a", "answer": "so #### -$5"}))
    (question,) = ad.load_questions(path)
    assert question.answer == "-$5"


# ---- arguments


def test_epsilon_of_a_wrong_shape():
    x = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(0))
    for shape in ((2,), (3, 2), (1, 2, 3), (4, 3)):
        with pytest.raises(ValueError, match=r"epsilon must be a number or of the leading shape \(2, 3\), got \("):
            ad.candidate_mask(x, torch.full(shape, 0.01))
    wanted = ad.candidate_mask(x, 0.01)
    for shape in ((), (1,), (3,), (2, 1), (2, 3)):
        assert torch.equal(ad.candidate_mask(x, torch.full(shape, 0.01)), wanted)
    for epsilon in (torch.zeros(0), torch.tensor([0.1 + 0j]), torch.tensor([True])):
        for call in (lambda e: ad.candidate_mask(x, e), ad.AdaptiveLogitsProcessor):
            with pytest.raises(ValueError, match="epsilon must be at least 0 and less than 1 in every row"):
                call(epsilon)


def test_decoders_made_by_hand():
    assert ad.Decoder("top_p").parameters == {"p": 0.95}
    assert ad.Decoder("adaptive", {"epsilon": 0.01}) == ad.make_decoder("adaptive:epsilon=0.01")
    assert ad.Decoder("top_p").processors()
    with pytest.raises(ValueError, match="decoder must be one of 'adaptive', "):
        ad.Decoder("beam")
    with pytest.raises(ValueError, match="parameter of top_p must be one of 'p', got 'q'"):
        ad.Decoder("top_p", {"q": 1.0})
    with pytest.raises(ValueError, match="greedy must be given without parameters, got 'p'"):
        ad.make_decoder("greedy:p=1")


def test_the_array_rule_takes_what_the_mask_takes():
    x = torch.randn(3, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    x[1, 5:50] = -torch.inf
    for epsilon in (0.0, 0.01):
        for more in ({"vocab_size": 40}, {"count_masked": False}, {"vocab_size": 55, "count_masked": False}):
            wanted = ad.candidate_mask(x, epsilon, **more)
            assert np.array_equal(np.isfinite(ad.adaptive_filter(x.numpy(), epsilon, **more)), wanted.numpy())
    assert not torch.equal(ad.candidate_mask(x, 0.01), ad.candidate_mask(x, 0.01, count_masked=False))
    for value in (math.nan, 1.0):
        with pytest.raises(ValueError, match="filter_value must be at most 0"):
            ad.adaptive_filter(x.numpy(), filter_value=value)
    with pytest.raises(ValueError, match="vocab_size must be an integer between 1 and 60"):
        ad.adaptive_filter(x.numpy(), vocab_size=61)


def test_calibration_knows_padding_masks_and_temperature():
    x = torch.randn(200, 90, generator=torch.Generator().manual_seed(0)) * 2
    x[:, 20:50] = -torch.inf
    for more in ({"vocab_size": 80}, {"count_masked": False}):
        found = ad.calibrate_epsilon(x, target_k=6.0, **more)
        mask = ad.candidate_mask(x, found.epsilon, **more)
        assert found.k == pytest.approx(float(mask.sum(-1).double().mean()), abs=0.02)
    found = ad.calibrate_epsilon(x, target_k=6.0, temperature=0.5)
    assert found.k == pytest.approx(float(ad.candidate_mask(x / 0.5, found.epsilon).sum(-1).double().mean()), abs=0.02)
    with pytest.raises(ValueError, match="temperature must be greater than 0"):
        ad.calibrate_epsilon(x, target_k=6.0, temperature=0.0)
    with pytest.raises(ValueError, match="vocab_size must be an integer between 1 and 90"):
        ad.calibrate_epsilon(x, target_k=6.0, vocab_size=91)


def test_a_report_without_metrics_is_not_drawn():
    report = ad.DecoderReport((), (), {}, None, {}, {}, {})
    with pytest.raises(ValueError, match="metrics must be measured, one or more, got none"):
        report.plot()
