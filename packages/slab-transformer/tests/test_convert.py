"""Conversion, training with the schedule, padding, recalibration, saving: what happens around the equations."""

import copy
import subprocess
import sys

import pytest
import slab_transformer as st
import torch
import transformers as tf
from slab_tiny import (
    BUILD,
    PYRAMID,
    SMALL,
    TEXT,
    VISION,
    as_if_trained,
    build,
    first_layer,
    logits,
    swin_config,
    vit_layers,
)
from slab_transformer.example import call, example_inputs
from slab_transformer.fuse import find_norms, rep_of
from torch import nn

NORMS = {
    "vit": 5, "deit": 5, "swin": 11, "pvt": 16, "pvt_v2": 19, "llama": 5, "llama_tied": 5, "mistral": 5, "qwen2": 5,
    "qwen3": 5, "gemma": 5, "gpt2": 5, "bert": 5, "roberta": 5,
}  # fmt: skip


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.config.attention_probs_dropout_prob = model.config.attention_dropout = model.config.attn_pdrop = 0.0
    for module in model.modules():
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0 if isinstance(module.attention_dropout, float) else nn.Dropout(0.0)
    return model.train()


@pytest.mark.parametrize("family", BUILD)
def test_the_swap_changes_nothing_at_lambda_one(family):
    model = without_dropout(build(family))
    given = example_inputs(model)
    with torch.no_grad():
        before = logits(call(model, given))
        report = st.convert(model)
        after = logits(call(model, given))
    assert torch.equal(before, after)
    assert len([c for c in report.replaced if c.action == "prepbn"]) == NORMS[family]
    assert len(find_norms(model)) == NORMS[family]
    for norm in find_norms(model).values():
        assert norm.rep.bn.num_batches_tracked == 1
        assert norm.rep.alpha.item() == 0
        assert norm.rep.layer_name in dict(model.named_modules())


def test_identity_copies_the_norm_and_gemma_has_one_plus_its_weight():
    for family, name in (("llama", "model.norm"), ("gemma", "model.norm"), ("vit", "vit.layernorm")):
        model = build(family)
        old = model.get_submodule(name)
        st.convert(model)
        new = model.get_submodule(name)
        assert new.norm1 is old
        expected = old.weight + 1 if family == "gemma" else old.weight
        torch.testing.assert_close(new.rep.bn.weight, expected, rtol=1e-4, atol=1e-5)
        bias = getattr(old, "bias", None)
        torch.testing.assert_close(new.rep.bn.bias, torch.zeros_like(old.weight) if bias is None else bias)
    assert new.rep.bn.eps == 1e-5
    assert build_converted("llama").model.norm.rep.bn.eps == 1e-6


def build_converted(family, **options):
    model = build(family)
    st.convert(model, **options)
    return model


@pytest.mark.parametrize(
    ("family", "kind", "alpha", "gamma"),
    [("vit", "prepbn", 1, 1), ("llama", "prepbn", 0, 0), ("vit", "repbn", 1, 1), ("llama", "bn", 0, 1)],
)
def test_first_values_of_the_paper(family, kind, alpha, gamma):
    model = build_converted(family, norm=kind, init="paper")
    for norm in find_norms(model).values():
        rep = rep_of(norm)
        assert (rep.alpha == alpha).all()
        assert (rep.bn.weight == gamma).all()
        assert rep.alpha.requires_grad is (kind != "bn")
        assert rep.alpha.dtype == torch.float64


def test_norms_of_queries_and_keys_stay():
    report = st.convert(build("qwen3"))
    left = {change.name: change.detail for change in report.left}
    assert set(left) == {f"model.layers.{i}.self_attn.{part}_norm" for i in range(2) for part in "qk"}
    assert "queries or keys" in left["model.layers.0.self_attn.q_norm"]


def test_include_and_exclude():
    model = build("vit")
    report = st.convert(model, include=["*layernorm_before", "vit.layernorm"], exclude=["vit.*.1.*"])
    assert [c.name.rpartition(".")[2] for c in report.replaced] == ["layernorm_before", "layernorm"]
    assert len(report.left) == 3
    st.convert(model)  # the rest, later
    assert len(find_norms(model)) == 5
    assert len(model.slab_recipe["norms"]) == 5


@pytest.mark.parametrize("family", VISION)
def test_attention_is_replaced_with_its_projections(family):
    model = build(family)
    original = copy.deepcopy(model)
    report = st.convert(model, norm=None, attention="sla")
    changed = [c.name for c in report.replaced]
    assert len(changed) == (4 if family in ("swin", "pvt", "pvt_v2") else 2)
    adapter = model.get_submodule(changed[0])
    old = dict(original.get_submodule(changed[0]).named_parameters())
    weights = {name.rsplit(".", 1)[0].rsplit(".", 1)[-1]: p for name, p in old.items() if name.endswith("weight")}
    query = weights.get("q_proj", weights.get("query"))
    assert torch.equal(adapter.sla.q.weight, query)
    if family in ("pvt", "pvt_v2"):
        assert adapter.sla.sr_ratio == 8
        assert torch.equal(adapter.sla.sr.weight, weights.get("sequence_reduction", weights.get("spatial_reduction")))
    prefix = {"vit": 1, "deit": 2}.get(family, 0)
    assert adapter.sla.num_prefix_tokens == prefix
    if family == "pvt":  # the class token comes in at the last stage
        assert model.get_submodule(changed[-1]).sla.num_prefix_tokens == 1
    with torch.no_grad():
        assert logits(call(model, example_inputs(model))).isfinite().all()


def test_swin_has_one_window_in_its_first_stages():
    with_four = tf.SwinForImageClassification(swin_config(image_size=64, depths=[1, 1, 1], num_heads=[2, 2, 2]))
    report = st.convert(with_four, norm=None, attention="sla")
    assert len(report.replaced) == 2
    assert "softmax attention of stage 2" in str(report)
    layers = with_four.swin.encoder.layers
    assert layers[0].blocks[0].window_size == 32
    assert layers[1].blocks[0].attention.sla.grid == (16, 16)
    assert layers[2].blocks[0].window_size == 4
    one = st.convert(tf.SwinForImageClassification(swin_config()), norm=None, attention="sla", stages=[1])
    assert len(one.replaced) == 2


def test_padding_takes_no_part_in_the_statistics(gen):
    """A padded batch moves the statistics as its sentences do without padding, whichever side the padding is on."""
    ids = torch.randint(3, 50, (1, 9), generator=gen)
    one, two = (build_converted("llama").train() for _ in range(2))
    for model in (one, two):
        for norm in find_norms(model).values():
            norm.set_lam(0.5)
    padded = torch.cat([torch.full((1, 3), 2), ids], 1)
    mask = torch.tensor([[0] * 3 + [1] * 9])
    places = torch.tensor([[0] * 3 + list(range(9))])
    out = one(padded, attention_mask=mask, position_ids=places).logits[:, 3:]
    expected = two(ids, position_ids=torch.arange(9)[None]).logits
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    for (name, left), (_, right) in zip(one.named_buffers(), two.named_buffers(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-9, msg=name)
    assert all(norm.mask is None for norm in find_norms(one).values())


def test_mask_by_context_and_under_checkpointing(gen):
    model = build_converted("llama").train()
    seen = []
    model.model.norm.register_forward_pre_hook(lambda m, args: seen.append(m.mask))
    ids, mask = torch.randint(3, 50, (2, 6), generator=gen), torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
    with st.padding_mask(model, mask):
        model(ids)
    assert torch.equal(seen[-1], mask.bool())
    model(ids)
    assert seen[-1] is None
    model(ids, attention_mask=torch.ones_like(mask))
    assert seen[-1] is None
    newer = getattr(model, "activation_checkpointing_enable", None)
    (newer or model.gradient_checkpointing_enable)()
    model(input_ids=ids, attention_mask=mask).logits.sum().backward()
    assert torch.equal(model.model.layers[0].input_layernorm.mask, mask.bool())


def test_eval_is_causal_and_training_is_not(gen):
    model = as_if_trained(build_converted("llama"))
    ids = torch.randint(3, 50, (1, 8), generator=gen)
    other = ids.clone()
    other[:, -1] = 7 if ids[0, -1] != 7 else 8
    with torch.no_grad():
        assert torch.equal(model(ids).logits[:, :-1], model(other).logits[:, :-1])
        model.train()
        assert not torch.allclose(model(ids).logits[:, :-1], model(other).logits[:, :-1])


def test_evaluating_early_warns(gen):
    model = build_converted("vit", total_steps=10)
    with pytest.warns(UserWarning, match="before the schedule of PRepBN has finished"):
        call(model, example_inputs(model))


def test_accumulation_and_two_forwards_count_once(gen):
    model = build_converted("vit", total_steps=10, warmup_steps=1, decay_fraction=0.5).train()
    schedule = st.PRepBNSchedule(model)
    given = example_inputs(model)
    for _ in range(2):
        for _ in range(3):
            call(model, given).logits.sum().backward()
        schedule.step()
    assert schedule.lam == 0.8
    assert {round(norm.lam, 6) for norm in find_norms(model).values()} == {0.8}


def batches(gen, count=4):
    return [{"pixel_values": torch.randn(8, 3, 16, 16, generator=gen, dtype=torch.float64)} for _ in range(count)]


def test_exact_recalibration_is_the_average_and_in_any_order(gen):
    model = as_if_trained(build_converted("vit"))
    data = batches(gen)
    other = copy.deepcopy(model)
    assert st.recalibrate(model, data) == 4
    st.recalibrate(other, data[::-1])
    rows = torch.cat([model.vit.embeddings(batch["pixel_values"]) for batch in data]).detach()
    bn = first_layer(model).layernorm_before.rep.bn
    torch.testing.assert_close(bn.running_mean, rows.flatten(0, 1).mean(0))
    each = torch.stack([part.flatten(0, 1).var(0) for part in rows.split(8)]).mean(0)
    torch.testing.assert_close(bn.running_var, each)
    torch.testing.assert_close(first_layer(other).layernorm_before.rep.bn.running_var, each)
    assert bn.momentum == 0.1
    assert bn.num_batches_tracked == 4


def test_recalibration_leaves_parameters_and_modes(gen):
    model = as_if_trained(build_converted("vit"))
    vit_layers(model)[1].train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    modes = {name: module.training for name, module in model.named_modules()}
    old = model.vit.layernorm.rep.bn.running_mean.clone()
    used = st.recalibrate(model, ((batch["pixel_values"], None) for batch in batches(gen)), 2, mode="ema")
    assert used == 2
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert modes == {name: module.training for name, module in model.named_modules()}
    assert not torch.equal(old, model.vit.layernorm.rep.bn.running_mean)


def test_ema_moves_by_the_momentum(gen):
    model = as_if_trained(build_converted("vit"))
    data = batches(gen, 1)
    bn = first_layer(model).layernorm_before.rep.bn
    old = bn.running_mean.clone()
    st.recalibrate(model, data, mode="ema")
    new = model.vit.embeddings(data[0]["pixel_values"]).flatten(0, 1).mean(0)
    torch.testing.assert_close(bn.running_mean, 0.9 * old + 0.1 * new)


def test_recalibration_of_text_leaves_padding_out(gen):
    one, two = (as_if_trained(build_converted("llama")) for _ in range(2))
    ids = torch.randint(3, 50, (1, 9), generator=gen)
    st.recalibrate(two, [{"input_ids": ids, "labels": ids}])
    padded = torch.cat([torch.full((1, 3), 2), ids], 1)
    st.recalibrate(one, [{"input_ids": padded, "attention_mask": torch.tensor([[0] * 3 + [1] * 9])}])
    torch.testing.assert_close(one.model.norm.rep.bn.running_var, two.model.norm.rep.bn.running_var)


@pytest.mark.parametrize("family", ["llama", "swin", "gpt2", "bert"])
@pytest.mark.parametrize("stage", ["converted", "fused"])
def test_saving_and_loading_of_transformers_models(family, stage, tmp_path):
    model = build(family)
    st.convert(model, attention="sla" if family == "swin" else None, total_steps=8)
    schedule = st.PRepBNSchedule(model)
    for _ in range(7):
        schedule.step()
    as_if_trained(model)
    if stage == "fused":
        model = st.fuse(model)
    st.save(model, tmp_path / "out", schedule)
    loaded = (st.load_fused if stage == "fused" else st.load)(tmp_path / "out")
    given = example_inputs(model)
    with torch.no_grad():
        torch.testing.assert_close(logits(call(loaded, given)), logits(call(model, given)), rtol=0, atol=0)
    if stage == "fused":
        assert loaded.fusion_report.norms == model.fusion_report.norms
        assert st.fuse(loaded).fusion_report.norms == model.fusion_report.norms
    else:
        assert all(norm.finished for norm in find_norms(loaded).values())
        loaded.train()
        assert loaded.slab_recipe["schedule"]["total_steps"] == 8


def test_saving_of_other_models_and_resuming(tmp_path, gen):
    def make():
        return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2, bias=False))

    model = make()
    st.convert(model, total_steps=10, init="paper")
    schedule = st.PRepBNSchedule(model)
    for _ in range(4):
        model(torch.randn(5, 3, generator=gen))
        schedule.step()
    st.save(model, tmp_path / "mid", schedule)
    again = st.load(tmp_path / "mid", make())
    assert again[1].lam == schedule.lam == 0.5
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    for _ in range(4):
        schedule.step()
    fused = st.fuse(model.eval(), example=torch.randn(5, 3, generator=gen))
    st.save(fused, tmp_path / "end")
    x = torch.randn(6, 3, generator=gen)
    assert torch.equal(st.load_fused(tmp_path / "end", make())(x), fused(x))


def test_state_dict_keeps_lambda():
    model = build_converted("vit", decay_steps=2)
    schedule = st.PRepBNSchedule(model)
    schedule.step()
    schedule.step()
    other = build_converted("vit")
    other.load_state_dict(model.state_dict())
    assert all(norm.finished for norm in find_norms(other).values())


def test_trainer_counts_optimiser_steps(tmp_path, gen):
    from slab_transformer.hf import PRepBNCallback

    model = tf.LlamaForCausalLM(tf.LlamaConfig(num_key_value_heads=2, **TEXT, **SMALL))
    st.convert(model)
    ids = torch.randint(3, 50, (16, 6), generator=gen)
    data = [{"input_ids": row, "labels": row} for row in ids]
    callback = PRepBNCallback(decay_fraction=0.5)
    arguments = tf.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=4,
        report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, logging_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip
    tf.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
    assert callback.schedule.steps == 4
    assert callback.schedule.decay_steps == 2
    assert callback.schedule.finished
    assert all(norm.finished for norm in find_norms(model).values())
    again = PRepBNCallback(decay_fraction=0.5)
    state = tf.TrainerState(global_step=1, max_steps=4)
    again.on_train_begin(arguments, state, None, model=model)
    assert again.schedule.lam == 0.5


def test_monitor_holds_lambda_for_layers_that_lag(gen):
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    st.convert(model, decay_steps=4, init="paper")
    schedule = st.PRepBNSchedule(model)
    monitor = st.DivergenceMonitor(model, schedule, limit=0.3, patience=2)
    assert monitor.by_layer() == {}
    x = torch.randn(9, 4, generator=gen)
    model(x)
    first, second = model[0].norm1(x), model[0].rep(x)
    expected = (first - second).abs().mean() / first.abs().mean()
    assert monitor.by_layer() == {"0": pytest.approx(float(expected.detach()), rel=1e-5)}
    lams = []
    for _ in range(4):
        model(x)
        assert monitor.check() == ["0"]
        lams.append(schedule.step())
    assert lams == [1.0, 1.0, 0.75, 0.5]  # patience for two
    calm = st.DivergenceMonitor(model, schedule, limit=100.0)
    model(x)
    assert calm.check() == []
    monitor.close()
    assert model[0].divergence is None


def test_smallest_decay_that_does_no_harm(gen):
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1)).double()
    x = torch.randn(64, 4, generator=gen, dtype=torch.float64)
    st.convert(model)
    before = copy.deepcopy(model.state_dict())

    def loss(module, batch):
        return (module(batch) - batch.sum(1, keepdim=True)).square().mean()

    steps, scores = st.find_decay_steps(model, lambda: [x] * 200, loss, [30, 10], 1e-3)
    assert steps == 10
    assert list(scores) == [10]
    _, all_scores = st.find_decay_steps(model, lambda: [x] * 200, loss, [10, 30], 1e-3, limit=1e-9)
    assert sorted(all_scores) == [10, 30]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", ["swin", "pvt_v2"])
def test_feature_maps_for_a_pyramid(kind, gen):
    if kind == "swin":
        body = tf.SwinBackbone(swin_config(out_features=["stage1", "stage2"]))
    else:
        body = tf.PvtV2Backbone(tf.PvtV2Config(out_features=["stage2", "stage4"], **PYRAMID))
    st.convert(body)
    backbone = st.as_feature_backbone(as_if_trained(body))
    x = torch.randn(2, 3, 32, 48, generator=gen) if kind == "swin" else torch.randn(2, 3, 64, 96, generator=gen)
    with torch.no_grad():
        maps = backbone.eval()(x)
    expected = [(2, 8, 16, 24), (2, 16, 8, 12)] if kind == "swin" else [(2, 16, 8, 12), (2, 16, 2, 3)]
    assert [tuple(m.shape) for m in maps] == expected
    assert backbone.channels == [m.shape[1] for m in maps]
    fused = st.fuse(backbone, example=x)
    if kind == "swin":
        left = [n for n in fused.fusion_report.affine if "hidden_states_norms" in n]
        assert len(left) == 2
    with torch.no_grad():
        for one, two in zip(maps, fused(x), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_padding_of_images_takes_no_part(gen):
    """Pixels beyond the mask change no statistics of the first norm."""
    body = tf.SwinBackbone(swin_config(out_features=["stage1", "stage2"])).train()
    st.convert(body)
    for norm in find_norms(body).values():
        norm.set_lam(0.5)
    x = torch.randn(2, 3, 32, 32, generator=gen)
    mask = torch.ones(2, 32, 32, dtype=torch.bool)
    mask[1, 16:] = False
    found = []
    for _ in range(2):
        again = copy.deepcopy(body)
        x[1, :, 16:] += 100.0
        maps = st.as_feature_backbone(again)(x, mask)
        assert maps[0].shape == (2, 8, 16, 16)
        first = next(norm for name, norm in find_norms(again).items() if name.endswith("embeddings.norm"))
        found.append(first.rep.bn.running_var.clone())
        assert all(norm.mask is None for norm in find_norms(again).values())
    assert torch.equal(*found)


def test_graph_after_fusion_has_fewer_operations_and_no_norm():
    model = as_if_trained(build_converted("llama"))
    plain = build("llama")
    fused = st.fuse(model)
    given = example_inputs(model)
    before, after = (st.count_operations(m, use_cache=False, **given) for m in (plain, fused))
    assert sum(after.values()) < sum(before.values()) - 5 * 4  # five RMSNorms of five operations or so
    assert "aten.rsqrt.default" in before
    assert "aten.rsqrt.default" not in after
    vit = build("vit")
    assert st.count_operations(vit, **example_inputs(vit))["aten.layer_norm.default"] == 5
    st.convert(vit)
    gone = st.count_operations(st.fuse(as_if_trained(vit)), **example_inputs(vit))
    assert not [name for name in gone if "norm" in name]


RANKS = """
import sys, torch, torch.distributed as dist
from torch import nn
import slab_transformer as st
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
gen = torch.Generator().manual_seed(0)
x = torch.randn(10, 3, generator=gen, dtype=torch.float64)
mine = x[:7] if rank == 0 else x[7:]
model = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)).double()
with torch.no_grad():
    for p in model.parameters(): p.copy_(torch.randn(p.shape, generator=gen, dtype=torch.float64))
st.convert(model, decay_steps=2, init="paper", sync=True)
whole = __import__("copy").deepcopy(model)
whole[0].rep.sync = False
for m in (model, whole): m[0].set_lam(0.25)
if len(sys.argv) > 3:
    from accelerate import Accelerator
    model = Accelerator(cpu=True).prepare(model)
else:
    model = nn.parallel.DistributedDataParallel(model)
out = model(mine)
(out.square().sum() * 2).backward()        # DDP averages over ranks; the sum over all rows is wanted
expected = whole(x)
expected.square().sum().backward()
inner = model.module
torch.testing.assert_close(out, expected[:7] if rank == 0 else expected[7:], rtol=0, atol=1e-12)
for (name, p), q in zip(inner.named_parameters(), whole.parameters()):
    torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-10, msg=name)
torch.testing.assert_close(inner[0].rep.bn.running_var, whole[0].rep.bn.running_var, rtol=0, atol=1e-12)
inner.eval(); inner[0].set_lam(0.0)
fused = st.fuse(inner, example=mine)
torch.testing.assert_close(fused(mine), inner(mine), rtol=0, atol=1e-12)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [[], pytest.param(["accelerate"], marks=pytest.mark.slow)])
def test_statistics_over_two_ranks(how, tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANKS, str(rank), str(tmp_path / "store"), *how],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT(rank),
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-2000:]


def ENVIRONMENT(rank):
    import os

    ours = {"OMP_NUM_THREADS": "1", "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    return {**os.environ, **ours, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
