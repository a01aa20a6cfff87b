"""Models of all families that have an adapter, texts from files, scans, reports and the command line."""

import json
import math
import subprocess
import sys

import attention_lipschitz as al
import numpy as np
import pytest
import torch
import transformers as tf
from attention_cases import draw, model_layer
from attention_lipschitz import cli, drawing
from attention_lipschitz.baselines import dense_constant
from attention_lipschitz.models import called
from offprints.seeding import isolated

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60, "intermediate_size": 32}
GPT2 = {
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 60,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 32}
DISTIL = {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 32, "vocab_size": 60, "max_position_embeddings": 16}
IMAGE = {k: v for k, v in SIZES.items() if k != "vocab_size"} | {"image_size": 8, "patch_size": 4, "num_channels": 1}
FAMILIES = {
    "gpt2": lambda: tf.GPT2Model(tf.GPT2Config(**GPT2)),
    "gpt2-lm": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(scale_attn_by_inverse_layer_idx=True, **GPT2)),
    "bert": lambda: tf.BertModel(tf.BertConfig(max_position_embeddings=16, **SIZES)),
    "bert-decoder": lambda: tf.BertLMHeadModel(tf.BertConfig(max_position_embeddings=16, is_decoder=True, **SIZES)),
    "roberta": lambda: tf.RobertaModel(tf.RobertaConfig(max_position_embeddings=18, **SIZES)),
    "distilbert": lambda: tf.DistilBertModel(tf.DistilBertConfig(**DISTIL)),
    "vit": lambda: tf.ViTModel(tf.ViTConfig(**IMAGE)),
    "gpt-neox": lambda: tf.GPTNeoXModel(tf.GPTNeoXConfig(max_position_embeddings=32, **SIZES)),
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)),
    "mistral": lambda: tf.MistralModel(tf.MistralConfig(sliding_window=3, **GROUPED)),
    "qwen2": lambda: tf.Qwen2Model(tf.Qwen2Config(**GROUPED)),
}


def built(name, attention="sdpa"):
    with isolated(0):
        model = FAMILIES[name]()
        for parameter in model.parameters():  # biases and norms are trivial at random initialisation
            if parameter.ndim == 1:
                parameter.data.add_(0.3 * torch.randn_like(parameter))
    model.set_attn_implementation(attention)
    return model.eval()


def something(name):
    return draw(1, 1, 1, 8, 8).float() if name == "vit" else torch.arange(3, 12)[None]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_extracted_layer_computes_what_the_model_does(name, attention):
    model = built(name, attention)
    for layer in (0, -1):
        found = al.extract_attention(model, layer, check=something(name))
        assert found.causal == (name not in ("bert", "roberta", "distilbert", "vit"))
        tokens = al.capture_inputs(model, something(name), layer)[0]
        assert tokens.shape == (5 if name == "vit" else 9, 24)
        whole = found(tokens)
        by_heads = al.extract_attention(model, layer, scope="self", check=False)(tokens)
        assert by_heads.shape == whole.shape
        value = al.local_lipschitz(found, tokens, rtol=1e-9).value
        assert value == pytest.approx(dense_constant(found.measured(), tokens.double()), rel=1e-6)
        assert value <= al.bounds.local(found, tokens) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "vit", "distilbert", "gpt-neox"])
def test_blocks_and_whole_layers_are_those_of_the_model(name):
    model = built(name, "eager").double()
    rows = something(name).double() if name == "vit" else something(name)
    block = al.extract_attention(model, 1, scope="block", check=False)
    entering = al.capture_inputs(model, rows, 1, scope="block")[0]
    assert al.local_lipschitz(block, entering, rtol=1e-9).value == pytest.approx(
        dense_constant(block, entering), rel=1e-6
    )
    if name in ("gpt2", "bert", "llama"):
        for scope in ("layer", "model"):
            report = al.scan(model, rows, layers=[1], scope=scope, progress=False, rtol=1e-8)
            row = report.rows[0]
            assert row.converged
            assert row.lipschitz > 0
            assert row.bound_local is None
        arguments = {"input_ids": rows}
        first = al.capture_inputs(model, rows, 0, scope="layer")[0]
        base = getattr(model, "model", model)
        layers = base.h if name == "gpt2" else base.encoder.layer if name == "bert" else base.layers
        from attention_lipschitz.models import between

        fn = between(model, arguments, layers[0], layers[1])
        assert report.rows[0].lipschitz == pytest.approx(dense_constant(fn, first), rel=1e-5)


def test_norms_in_front_of_attention():
    for name in ("gpt2", "llama", "bert", "vit"):
        model = built(name)
        norm = al.attention_norm(model, 1)
        tokens = al.capture_inputs(model, something(name), 1)[0]
        R = al.layernorm_radius(model, 1)
        assert float(torch.linalg.vector_norm(tokens, dim=-1).max()) <= R
        assert pytest.approx(norm.radius()) == R
        assert norm.kind == ("rms" if name == "llama" else "layer")


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_modules(batch_first):
    with isolated(1):
        attn = torch.nn.MultiheadAttention(12, 3, batch_first=batch_first)
        encoder = torch.nn.TransformerEncoderLayer(12, 3, 16, batch_first=batch_first, norm_first=True)
    X = draw(2, 7, 12).float()
    batched = X[None] if batch_first else X[:, None]
    for module in (attn.eval(), encoder.eval()):
        for causal in (False, True):
            layer = al.extract_attention(module, 0, causal=causal)
            inner = module if module is attn else module.self_attn
            mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
            wanted = inner(batched, batched, batched, attn_mask=mask)[0]
            torch.testing.assert_close(layer(X), wanted[0] if batch_first else wanted[:, 0], rtol=1e-4, atol=1e-5)
    for options in ({"kdim": 5, "vdim": 5}, {"add_zero_attn": True}, {"add_bias_kv": True}):
        with pytest.raises(al.UnsupportedArchitectureError, match="MultiheadAttention must be"):
            al.extract_attention(torch.nn.MultiheadAttention(12, 3, **options))


def test_another_architecture_is_registered():
    class Strange(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(draw(1, 6, 6).float())

        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ x @ self.weight.mT

    def adapter(model, blocks, index):
        weight = blocks[index].weight
        layer = al.AttentionHead(A=torch.eye(6), V=weight).layer()
        return al.Site(layer, blocks[index], blocks[index], blocks[index])

    module = Strange().eval()
    with pytest.raises(al.UnsupportedArchitectureError):
        al.extract_attention(module)
    al.register_adapter(Strange, adapter)
    layer = al.extract_attention(module, check=False)
    X = draw(3, 4, 6).float()
    torch.testing.assert_close(layer(X), module(X))
    assert al.module_lipschitz(module, X[None]).value == pytest.approx(al.local_lipschitz(layer, X).value, rel=1e-4)


def test_whole_modules_and_callables():
    linear = torch.nn.Linear(4, 3).eval()
    norm = float(torch.linalg.matrix_norm(linear.weight.detach(), 2))
    assert al.module_lipschitz(linear, draw(0, 5, 4)).value == pytest.approx(norm, rel=1e-5)
    assert al.module_lipschitz(lambda x, k: (k * x,), draw(0, 5, 4), {"k": 3.0}).value == pytest.approx(3, rel=1e-9)
    model = built("gpt2", "eager")
    with isolated(0):
        embeddings = torch.randn(1, 5, 24)
    found = al.module_lipschitz(lambda e: model(inputs_embeds=e).last_hidden_state, embeddings, rtol=1e-4)
    exact = dense_constant(lambda e: model(inputs_embeds=e).last_hidden_state, embeddings)
    assert found.value == pytest.approx(exact, rel=1e-3)
    assert found.right.shape == (1, 5, 24)


def test_torch_says_nothing_of_its_own_doing():
    code = (
        "import torch, attention_lipschitz as al\n"
        "print(al.module_lipschitz(torch.nn.Linear(40, 40).eval(), torch.randn(3, 40)).value > 0)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_layers_are_saved_and_loaded(tmp_path):
    for layer in (model_layer(1, causal=True, window=4), al.extract_attention(built("llama"), 0), al.AttentionHead(
        A=draw(1, 3, 3), V=draw(2, 3, 3)).layer()):  # fmt: skip
        layer.save(tmp_path / "layer")
        again = al.AttentionLayer.load(tmp_path / "layer")
        X = draw(3, 6, layer.dim).to(layer.query)
        assert torch.equal(again(X), layer(X))
        assert (again.causal, again.window, again.scale) == (layer.causal, layer.window, layer.scale)
    with pytest.raises(FileNotFoundError):
        al.AttentionLayer.load(tmp_path / "nothing")
    from offprints import checkpoint

    checkpoint.save(tmp_path / "other", {"w": np.ones(2)}, method="attention-lipschitz", version="0", config={})
    with pytest.raises(ValueError, match="attention layer"):
        al.AttentionLayer.load(tmp_path / "other")


# ---- texts


def test_texts_are_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\nthree")
    assert al.read_text(tmp_path / "a.txt") == "one two\nthree"
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n\n{"text": "y", "z": 1}\n', encoding="utf-8")
    assert al.read_text(tmp_path / "b.jsonl") == "x\ny"
    for content, words in (
        (b"ab\n\xff", "line 2 must be UTF-8"),
        (b'{"text": 1}', "line 1.*must be a text"),
        (b"{", "line 1 must be a JSON"),
        (b"[1]", "must be a text"),
        (b"\n", "must hold text"),
    ):
        (tmp_path / "bad.jsonl").write_bytes(content)
        with pytest.raises(ValueError, match=words):
            al.read_text(tmp_path / "bad.jsonl")
    with pytest.raises(FileNotFoundError):
        al.read_text(tmp_path / "none.txt")


def test_documentation_and_its_words():
    text = al.documentation()
    assert len(text) > 400_000
    tokenizer = al.WordHashTokenizer(100)
    ids = tokenizer("The cat, the hat. The cat!")
    assert ids.tolist()[0] == ids.tolist()[6]
    assert len(ids) == 9
    assert 0 <= int(ids.min()) <= int(ids.max()) < 100
    assert al.windows(torch.arange(5), 2, 4).tolist() == [[0, 1], [2, 3], [4, 0], [1, 2]]


# ---- scans and reports


@pytest.fixture(scope="module")
def report():
    model, tokenizer = built("gpt2"), al.WordHashTokenizer(60)
    return al.scan(
        model, al.documentation(), layers=[0, 1], lengths=[2, 4, 8, 16], samples=3, tokenizer=tokenizer,
        estimator="both", adversarial=3.0, progress=False,
    )  # fmt: skip


def test_a_scan_measures_each_window(report):
    model = built("gpt2")
    real, planted = report.select(layer=1, data="real"), report.select(layer=1, data="adversarial")
    assert len(real) == 12
    assert len(planted) == 4
    stream = al.WordHashTokenizer(60)(al.documentation())
    layer = al.extract_attention(model, 1)
    row = next(r for r in real if (r.n, r.sample) == (8, 1))
    tokens = al.capture_inputs(model, stream[8:16], 1)[0]
    assert row.lipschitz == pytest.approx(al.local_lipschitz(layer, tokens).value, rel=1e-5)
    assert row.paper_code == pytest.approx(al.paper_code_estimate(layer, tokens), rel=1e-6)
    assert row.radius == pytest.approx(math.sqrt(float(tokens.square().sum(-1).mean())), rel=1e-6)
    assert row.bound_local == pytest.approx(al.bounds.local(layer, tokens), rel=1e-6)
    R = float(torch.linalg.vector_norm(tokens.double(), dim=-1).max())
    assert row.bound_radius == pytest.approx(al.bounds.bound_table(layer, 8, R).sharp, rel=1e-6)
    assert all(r.lipschitz <= r.bound_local * (1 + 1e-9) <= r.bound_radius * (1 + 1e-6) for r in real)
    assert all(r.converged for r in report.rows)


def test_growth_is_a_slope_with_an_interval(report):
    growth = report.growth_exponent(layer=1, n_min=2)
    rows = report.select(layer=1, data="real")
    x, y = np.log([r.n for r in rows]), np.log([r.lipschitz for r in rows])
    slope, intercept = np.polyfit(x, y, 1)
    assert (growth.slope, growth.coefficient) == pytest.approx((slope, math.exp(intercept)))
    assert growth.low <= growth.slope <= growth.high
    assert growth == report.growth_exponent(layer=1, n_min=2)
    pairs = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(12) for j in range(i + 1, 12) if x[i] != x[j]]
    assert growth.theil_sen == pytest.approx(np.median(pairs))
    with pytest.raises(ValueError, match="two lengths"):
        report.growth_exponent(layer=1, n_min=16)
    with pytest.raises(ValueError, match="column"):
        report.growth_exponent(layer=1, column="n")


def test_reports_go_round_through_json_and_frames(report, tmp_path):
    report.to_json(tmp_path / "r.json")
    assert al.LipschitzReport.from_json(tmp_path / "r.json") == report
    assert al.LipschitzReport.from_json(report.to_json()) == report
    frame = report.to_frame()
    assert len(frame) == len(report.rows)
    assert {"layer", "n", "sample", "lipschitz", "radius", "bound_local", "bound_radius", "converged"} <= set(
        frame.columns
    )
    assert frame["lipschitz"].tolist() == [r.lipschitz for r in report.rows]
    assert "local constant: median" in report.summary()
    assert "no constant" in report.summary()
    for text in (
        "[]",
        "{",
        '{"format": "x"}',
        json.dumps({"format": json.loads(report.to_json())["format"], "rows": [{}]}),
    ):
        with pytest.raises(ValueError, match="must be"):
            al.LipschitzReport.from_json(text)


def test_reports_are_drawn(report, tmp_path):
    report.plot(tmp_path / "growth.png")
    heads = al.scan(built("bert"), something("bert"), heads=True, progress=False)
    assert {row.head for row in heads.rows} >= {0, 1, 2, 3}
    heads.plot(tmp_path / "heads.png")
    drawing.pairs(al.responsible_pairs(model_layer(1), draw(1, 5, 6)).numpy()).savefig(tmp_path / "pairs.png")
    assert all((tmp_path / name).stat().st_size > 5_000 for name in ("growth.png", "heads.png", "pairs.png"))


def test_a_scan_goes_on_where_the_text_ends_and_takes_rows_of_any_length():
    model = built("gpt2")
    assert len(al.scan(model, [1, 2, 3], lengths=[4], samples=2, layers=[0], progress=False).rows) == 2
    rows = al.scan(model, [[1, 2, 3], [4, 5]], layers=[0], progress=False, bounds=False).rows
    assert [row.n for row in rows] == [3, 2]
    assert rows[0].bound_local is None


def test_command_line(tmp_path, capsys):
    built("gpt2").save_pretrained(tmp_path / "model")
    (tmp_path / "t.txt").write_text("words of a text that go on and on " * 10, encoding="utf-8")
    out, figure = tmp_path / "r.json", tmp_path / "f.png"
    common = ["scan", str(tmp_path / "model"), "--text", str(tmp_path / "t.txt"), "--samples", "2"]
    assert cli.main([*common, "--layers", "0,1", "--lengths", "2:8:x2", "--out", str(out), "--plot", str(figure)]) == 0
    said = capsys.readouterr()
    assert "layer 1: 6 samples, n = 2 to 8" in said.out
    assert "words are hashed to its 60 ids" in said.err
    assert figure.stat().st_size > 5_000
    assert cli.main(["show", str(out)]) == 0
    assert "layer 0" in capsys.readouterr().out
    for wrong in ("2:8", "a", "8:4:0", "4:x:2"):
        assert cli.main([*common, "--lengths", wrong]) == 2
        assert "lengths must be like" in capsys.readouterr().err
    assert cli.main([*common, "--layers", "7", "--lengths", "4"]) == 2
    assert cli.main(["scan", str(tmp_path / "nothing")]) == 2
    assert cli.main(["show", str(tmp_path / "nothing.json")]) == 2
    assert cli.parsed_lengths("2:10:4") == [2, 6, 10]
    assert cli.parsed_lengths("3,5") == [3, 5]


def test_a_byte_gpt_learns():
    model, text = al.byte_gpt(seed=0, width=32, layers=1, heads=2, context=32), "abcd" * 100
    losses = al.train_byte_gpt(model, text, steps=30, batch=8, lr=1e-2)
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    assert not model.training
    assert torch.equal(al.byte_ids("aé"), torch.tensor([97, 195, 169]))
    with pytest.raises(ValueError, match="more than 32 bytes"):
        al.train_byte_gpt(model, "short")
    state = torch.get_rng_state()
    al.byte_gpt(width=32, layers=1, heads=2)
    assert torch.equal(torch.get_rng_state(), state)


# ---- what a layer is sensitive to


def test_responsible_pairs_add_up_to_the_constant():
    for options in ({}, {"causal": True, "frequencies": torch.tensor([0.8], dtype=torch.float64)}):
        layer, X = model_layer(2, **options), draw(4, 6, 6)
        found = al.local_lipschitz(layer, X, rtol=1e-10)
        shares = al.responsible_pairs(layer, X, found)
        assert shares.shape == (6, 6)
        assert float(shares.sum()) == pytest.approx(found.value, rel=1e-8)
        for j in range(6):  # the share of a token's perturbation is what it does by itself
            alone = torch.zeros_like(X)
            alone[j] = found.right[j]
            assert float(shares[:, j].sum()) == pytest.approx(float((layer.jvp(X, alone) * found.left).sum()), abs=1e-8)
        torch.testing.assert_close(al.responsible_pairs(layer, X), shares, rtol=0, atol=1e-3)


def test_sinks_are_column_sums():
    layer, X = model_layer(3), draw(5, 7, 6)
    sinks, P = al.attention_sinks(layer, X), layer.attention(X)
    torch.testing.assert_close(sinks.received, P.sum(-2))
    assert sinks.token.tolist() == P.sum(-2).argmax(-1).tolist()
    assert sinks.share.tolist() == pytest.approx((P.sum(-2).amax(-1) / 7).tolist())
    assert sinks.norm.tolist() == pytest.approx(torch.linalg.matrix_norm(P, 2).tolist())
    assert bool((sinks.norm <= sinks.received.amax(-1).sqrt() + 1e-12).all())


def test_the_largest_temperature_meets_its_target():
    layer, X = model_layer(4), draw(6, 7, 6)
    before, least = al.bounds.local(layer, X), al.bounds.local(layer.tempered(0.0), X)
    target = 0.5 * (before + least)
    found = al.largest_temperature(layer, X, target)
    assert found.before == pytest.approx(before)
    assert found.bound == pytest.approx(al.bounds.local(layer.tempered(found.value), X))
    assert 0.99 * target <= found.bound <= target
    assert al.local_lipschitz(layer.tempered(found.value), X).value <= target
    assert al.largest_temperature(layer, X, 2 * before).value == 1.0


def test_worst_cases_are_worse_and_stay_where_they_must():
    improved = 0
    for seed in range(5):
        layer = model_layer(seed, causal=seed % 2 == 0)
        start = al.worst_case(layer, 6, 1.5, steps=0, seed=seed)
        end = al.worst_case(layer, 6, 1.5, steps=20, seed=seed)
        assert end.value >= start.value * (1 - 1e-4)
        assert float(torch.linalg.vector_norm(end.tokens, dim=-1).max()) <= 1.5 * (1 + 1e-9)
        assert end.value == pytest.approx(al.local_lipschitz(layer, end.tokens).value, rel=1e-4)
        assert end.value <= al.bounds.bound_table(layer, 6, 1.5).best()
        improved += end.value > 1.01 * start.value
    assert improved >= 4
    norm = al.TokenNorm(draw(1, 6), draw(2, 6))
    inside = al.worst_case(layer, 6, 1.5, steps=5, norm=norm).tokens
    z = (inside - norm.bias) / norm.weight
    assert float(torch.linalg.vector_norm(z, dim=-1).max()) <= math.sqrt(6) + 1e-9
    assert float(z.sum(-1).abs().max()) < 1e-9
    rotated = al.AttentionHead(A=torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64), V=torch.eye(2).double())
    assert al.worst_case(rotated, 4, 1.0, steps=3, restarts=0).value >= 1


def test_the_penalty_has_the_gradient_of_the_constant():
    layer, X = model_layer(5), draw(7, 5, 6).requires_grad_()
    value = al.lipschitz_penalty(layer, X, rtol=1e-10)
    exact = al.local_lipschitz(layer, X.detach(), rtol=1e-10).value
    assert float(value.detach()) == pytest.approx(exact, rel=1e-6)
    (slope,) = torch.autograd.grad(value, X)
    E, h = draw(8, 5, 6), 1e-5
    ahead, behind = (al.local_lipschitz(layer, X.detach() + s * h * E, method="dense").value for s in (1, -1))
    assert float((slope * E).sum()) == pytest.approx((ahead - behind) / (2 * h), rel=1e-4)


def test_the_penalty_trains_a_model():
    model = built("gpt2")
    ids = something("gpt2")
    tokens = al.capture_inputs(model, ids, 0)[0]
    optimizer = torch.optim.SGD(model.h[0].attn.parameters(), lr=0.05)
    values = []
    for _ in range(5):
        live = al.extract_attention(model, 0, live=True, check=False)
        penalty = al.lipschitz_penalty(live, tokens)
        optimizer.zero_grad()
        penalty.backward()
        optimizer.step()
        values.append(float(penalty.detach()))
    assert values[-1] < values[0]
    assert called(model, {"input_ids": ids}).last_hidden_state.isfinite().all()
