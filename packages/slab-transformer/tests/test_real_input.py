"""Real images, real text, a real model, and the command line on files."""

import copy

import pytest
import slab_transformer as st
import torch
from slab_tiny import as_if_trained, build, vit_layers
from slab_transformer.cli import main
from slab_transformer.data import digits, documentation, image_batches, image_folder
from slab_transformer.experiments_vision import accuracy, endless, loss_of, vit
from slab_transformer.fuse import find_norms
from slab_transformer.models import llama_prepbn, slab_deit_tiny
from slab_transformer.train import parameter_groups, train


def test_digits_are_learned_fused_and_still_right():
    """Convert a trained LayerNorm model, tune it, recalibrate, fuse: it still reads digits."""
    x, y, test_x, test_y = digits(0)
    model = vit(0, 2)
    train(model, endless(x, y, 0), loss_of, 130, 3e-3)
    base = accuracy(model, test_x, test_y)
    st.convert(model, total_steps=80, decay_fraction=0.7)
    losses = train(model, endless(x, y, 1), loss_of, 80, 1e-3)
    st.recalibrate(model, [{"pixel_values": part, "labels": None} for part in x.split(256)])
    fused = st.fuse(model)
    found = accuracy(fused, test_x, test_y)
    assert base > 0.5
    assert found > base - 0.05
    assert max(losses) < 2
    assert found == accuracy(model, test_x, test_y)
    assert not [m for m in fused.modules() if "Norm" in type(m).__name__]


def test_data_sets_are_what_they_say():
    x, y, _, test_y = digits(3)
    assert (len(y), len(test_y)) == (1348, 449)
    assert x.shape[1:] == (1, 8, 8)
    assert abs(float(x.mean())) < 0.1
    assert abs(float(x.std()) - 1) < 0.1
    again = digits(3)
    assert torch.equal(again[0], x)
    assert not torch.equal(digits(4)[1], y)
    text = documentation()
    assert len(text) > 300_000
    assert 0 < int(text.min()) < int(text.max()) < 128
    assert "expression" in bytes(text[:20_000].tolist()).decode()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Digits written as PNG files in the layout of ImageNet."""
    from PIL import Image
    from sklearn.datasets import load_digits

    found, where = load_digits(), tmp_path_factory.mktemp("pictures")
    for split, rows in (("train", range(24)), ("val", range(24, 32))):
        for row in rows:
            folder = where / split / ("even" if found.target[row] % 2 == 0 else "odd")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray((found.images[row] * 15.9).astype("uint8")).save(folder / f"{row}.png")
    return where


def test_image_files(pictures, gen):
    files, classes = image_folder(pictures / "train")
    assert classes == ["even", "odd"]
    assert len(files) == 24
    first = next(image_batches(files, 16, 5))
    assert first[0].shape == (5, 3, 16, 16)
    assert first[1].tolist() == [0] * 5
    whole = [y for _, y in image_batches(files, 16, 10, gen)]
    assert sorted(torch.cat(whole).tolist()) == sorted(label for _, label in files)
    assert torch.cat(whole).tolist() != [label for _, label in files]


def test_train_on_files_then_fuse(pictures, tmp_path, capsys, monkeypatch):
    """The command that runs the paper's setting, on a few files and a shallow model."""
    import transformers
    from slab_transformer import models

    def small(classes, size, **schedule):
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.ViTConfig(image_size=size, patch_size=8, **sizes)
        made = models.MeanPooled(transformers.ViTModel(config, add_pooling_layer=False), classes)
        st.convert(made, attention="sla", init="paper", **schedule)
        return made

    monkeypatch.setattr(models, "slab_deit_tiny", small)
    line = f"train --model slab_deit_tiny --data {pictures} --epochs 2 --batch 8 --recalibrate-epochs 1 --image-size 32"
    arguments = [*line.split(), "--device", "cpu", "--out", str(tmp_path / "one")]
    assert main(arguments) == 0
    assert "accuracy on 8 images: " in capsys.readouterr().out
    loaded = st.load(tmp_path / "one")
    assert all(norm.finished for norm in find_norms(loaded).values())
    assert main(["fuse", "--model", str(tmp_path / "one"), "--out", str(tmp_path / "two"), "--strict"]) == 0
    fused = st.load_fused(tmp_path / "two")
    x, _ = next(image_batches(image_folder(pictures / "val")[0], 32, 8))
    with torch.no_grad():
        torch.testing.assert_close(fused(x), loaded(x), rtol=1e-3, atol=1e-4)


def test_convert_and_fuse_on_the_command_line(tmp_path, capsys):
    model = build("llama", torch.float32)
    model.save_pretrained(tmp_path / "base")
    base, new, out = (str(tmp_path / name) for name in ("base", "new", "out"))
    assert main(["convert", "--model", base, "--out", new, "--total-steps", "10"]) == 0
    assert "model.norm" in capsys.readouterr().out
    assert main(["fuse", "--model", new, "--out", out]) == 2
    assert "schedule has not finished" in capsys.readouterr().err
    trained = as_if_trained(st.load(new))
    schedule = st.PRepBNSchedule(trained)
    for _ in range(10):
        schedule.step()
    st.save(trained, new, schedule)
    assert main(["fuse", "--model", new, "--out", out, "--strict"]) == 0
    assert "folded forward" in capsys.readouterr().out
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        one, two = trained.eval()(ids).logits, st.load_fused(out)(ids).logits
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_models_of_the_paper_have_its_sizes():
    model = llama_prepbn(vocab_size=100, num_layers=1)
    norms = find_norms(model)
    assert len(norms) == 3
    assert model.config.hidden_size == 1024
    assert model.model.layers[0].mlp.gate_proj.out_features == 4096
    schedule = st.PRepBNSchedule(model)
    assert (schedule.warmup_steps, schedule.decay_steps) == (10_000, 18_000)
    assert (model.model.norm.rep.alpha == 0).all()
    deit = slab_deit_tiny(num_classes=10, image_size=32, total_steps=10)
    assert sum(p.numel() for p in vit_layers(deit.body).parameters()) == pytest.approx(5.3e6, rel=0.05)
    assert vit_layers(deit.body)[0].attention.sla.num_prefix_tokens == 0
    assert deit.eval().train()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_vectors_and_alphas_do_not_decay():
    model = build("vit")
    st.convert(model)
    decayed, plain = parameter_groups(model, 0.05)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.05, 0.0)
    assert all(p.dim() > 1 for p in decayed["params"])
    held = {id(p) for p in plain["params"]}
    assert all(id(norm.rep.alpha) in held and id(norm.rep.bn.weight) in held for norm in find_norms(model).values())
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swin_tiny", "swin_small", "swin_base", "pvt_tiny", "pvt_small", "pvt_medium",
                                  "cswin_tiny", "cswin_small", "deit_small"])  # fmt: skip
def test_every_model_of_the_paper_fuses(name, gen):
    from slab_transformer import models

    sizes = {"swin_tiny": 28, "swin_small": 50, "swin_base": 88, "pvt_tiny": 13, "pvt_small": 24, "pvt_medium": 44,
             "cswin_tiny": 23, "cswin_small": 35, "deit_small": 22}  # fmt: skip
    model = getattr(models, f"slab_{name}")(total_steps=10)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(1e6 * sizes[name], rel=0.25)
    for norm in find_norms(model).values():
        norm.rep.alpha.data.zero_()  # keeps an untrained stack from growing
        norm.set_lam(0.0)
    x = torch.randn(1, 3, 224, 224, generator=gen)
    fused = st.fuse(model.eval(), example=x, fixed_size=True)
    assert not fused.fusion_report.affine


@pytest.mark.slow
def test_smollm2_is_converted_without_a_change_and_fused(gen):
    from offprints.testing import offline_lm

    model, tokenizer = offline_lm("smollm2-135m")
    given = tokenizer(["The capital of France is", "Water boils at"], return_tensors="pt", padding=True)
    model = copy.deepcopy(model).train()
    with torch.no_grad():
        before = model(**given).logits
        report = st.convert(model)
        after = model(**given).logits
    assert len(report.replaced) == 61
    assert (before - after).abs().max() < 1e-5
    for norm in find_norms(model).values():
        norm.set_lam(0.0)
    st.recalibrate(model, [dict(given)], mode="exact")
    fused = st.fuse(model.eval(), example=dict(given))
    assert fused.fusion_report.affine == ["model.norm"]  # the head is tied
    assert fused.model.layers[0].self_attn.q_proj.bias is not None


@pytest.mark.slow
def test_the_onnx_file_computes_no_statistics(tmp_path):
    from slab_transformer.example import example_inputs

    model = build("vit", torch.float32)
    given = example_inputs(model)
    st.convert(model)
    fused = st.fuse(as_if_trained(model))
    operations = st.export_onnx(fused, tmp_path / "vit.onnx", given)
    assert operations["MatMul"] + operations.get("Gemm", 0) > 4
    assert not {"ReduceMean", "LayerNormalization", "BatchNormalization"} & set(operations)
