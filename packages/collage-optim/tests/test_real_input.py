"""What users bring: models of transformers, Trainer, accelerate, gradient scalers, token files, distributed tensors."""

import numpy as np
import pytest
import torch
from collage_optim import CollageAdamW, PrecisionMonitor, wrap_hf_trainer_kwargs
from collage_optim.cli import main
from collage_optim.data import batches, load_tokens, standard_library_text
from offprints.seeding import isolated

BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def gpt2():
    """A GPT-2 of 30 000 weights in bfloat16, and its configuration."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=103, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    with isolated(0):
        return GPT2LMHeadModel(config).to(BF16), config


def test_a_model_of_transformers_learns_and_loses_nothing(gpt2):
    model, _ = gpt2
    text = standard_library_text()
    optimizer = CollageAdamW(model.parameters(), lr=3e-3)
    gen, losses = torch.Generator().manual_seed(0), []
    with PrecisionMonitor(optimizer, every=10) as monitor:
        for _ in range(40):
            codes, _ = batches(text.train, 32, 8, gen)
            loss = model(input_ids=codes, labels=codes).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.8
    assert monitor.last.edq_ratio > 0.99
    assert monitor.last.lost_fraction < 0.05


def test_the_trainer_of_transformers(gpt2, tmp_path):
    from transformers import Trainer, TrainingArguments

    model, _ = gpt2
    codes = standard_library_text().train[:640].view(20, 32)
    rows = [{"input_ids": row, "labels": row} for row in codes]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, learning_rate=3e-4, adam_beta2=0.95, adam_epsilon=1e-7,
        dataloader_pin_memory=False,
    )  # fmt: skip
    before = [p.detach().clone() for p in model.parameters()]
    kind, settings = wrap_hf_trainer_kwargs(arguments, "plus", math="fp32")
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, optimizer_cls_and_kwargs=(kind, settings))
    trainer.train()
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    assert isinstance(inner, CollageAdamW)
    group = inner.param_groups[0]
    assert (group["math"], group["initial_lr"], group["betas"], group["eps"]) == ("fp32", 3e-4, (0.9, 0.95), 1e-7)
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_accelerate_wraps_it():
    from accelerate import Accelerator

    model = torch.nn.Linear(4, 2).to(BF16)
    twin = torch.nn.Linear(4, 2).to(BF16)
    twin.load_state_dict(model.state_dict())
    ours, alone = CollageAdamW(model.parameters(), lr=1e-2), CollageAdamW(twin.parameters(), lr=1e-2)
    accelerator = Accelerator(cpu=True)
    wrapped, optimizer = accelerator.prepare(model, ours)
    for step in range(5):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).to(BF16)
        accelerator.backward(wrapped(x).float().square().mean())
        twin(x).float().square().mean().backward()
        for o in (optimizer, alone):
            o.step()
            o.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_a_gradient_scaler_hands_over_its_scale_and_its_overflows():
    found = []
    for scaled in (False, True):
        p = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
        optimizer = CollageAdamW([p], lr=1e-3, eps=1e-6)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)
        for step in range(4):
            optimizer.zero_grad()
            loss = (p.float() * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum() * (
                float("inf") if step == 2 and scaled else 1.0
            )
            if step == 2 and not scaled:
                continue
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append((optimizer.expansion(p), optimizer.skipped))
    assert found[0][1] == 0
    assert found[1][1] == 1
    assert torch.equal(found[0][0].hi, found[1][0].hi)
    assert torch.equal(found[0][0].lo, found[1][0].lo)


def test_distributed_tensors_of_one_rank(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        start = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(BF16)
        plain, sharded = (
            torch.nn.Parameter(start.clone()),
            torch.nn.Parameter(distribute_tensor(start, mesh, [Shard(0)])),
        )
        for p in (plain, sharded):
            optimizer = CollageAdamW([p])
            for step in range(4):
                g = torch.randn(6, 4, generator=torch.Generator().manual_seed(step)).to(BF16)
                p.grad = g if p is plain else distribute_tensor(g, mesh, [Shard(0)])
                optimizer.step()
        assert type(optimizer.state[sharded]["param_lo"]) is type(sharded.data)
        assert torch.equal(sharded.to_local(), plain)
    finally:
        dist.destroy_process_group()


# ---- token files and the command line


def test_token_files(tmp_path):
    tokens = np.arange(1000, dtype=np.uint16) % 103
    tokens.tofile(tmp_path / "nano.bin")
    assert np.array_equal(load_tokens(tmp_path / "nano.bin"), tokens)
    tokens.astype(np.uint32).tofile(tmp_path / "wide.bin")
    assert np.array_equal(load_tokens(tmp_path / "wide.bin", "uint32"), tokens)
    tokens.astype(np.int32).tofile(tmp_path / "mega.bin")
    (tmp_path / "mega.idx").write_bytes(b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([4]) + bytes(16))
    assert load_tokens(tmp_path / "mega.bin").dtype == np.int32
    inputs, targets = batches(load_tokens(tmp_path / "mega.bin"), 8, 3, torch.Generator().manual_seed(0))
    assert inputs.shape == targets.shape == (3, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(targets[:, -1], (inputs[:, -1] + 1) % 103)


def test_training_from_the_command_line(gpt2, tmp_path, capsys):
    """The paper's command, at a tiny size on files of the same format."""
    from offprints import checkpoint

    gpt2[1].save_pretrained(tmp_path / "config")
    standard_library_text().train[:5000].numpy().astype(np.uint16).tofile(tmp_path / "train.bin")
    command = ["train", "--hf-config", str(tmp_path / "config"), "--tokens", str(tmp_path / "train.bin"), "--steps",
               "3", "--seq", "16", "--global-batch", "4", "--micro-batch", "2", "--every", "2", "--warmup", "1",
               "--save", str(tmp_path / "weights")]  # fmt: skip
    assert main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in out] == ["2", "3"]
    assert "edq_ratio" in out[0]
    tensors = checkpoint.load(tmp_path / "weights", method="collage-optim").tensors
    assert {value.dtype for value in tensors.values()} == {np.dtype("float32")}
    assert main([*command, "--global-batch", "3"]) == 2
    assert "global_batch must be a multiple of 2" in capsys.readouterr().err
    (np.arange(1000, dtype=np.uint16)).tofile(tmp_path / "train.bin")
    assert main(command) == 2
    assert "tokens must be below the vocabulary of 103, got 999" in capsys.readouterr().err


def test_bytes_from_the_command_line(capsys):
    assert main(["memory", "6.7B", "--strategies", "bf16", "plus"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].split()[:2] == ["plus", "12"]
    assert main(["memory", "0"]) == 2
    assert "must be" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["memory", "many"])


def test_an_interrupted_run_says_so(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("collage_optim.cli.train", interrupted)
    assert main(["train", "--tokens", "x.bin"]) == 130
    assert "nothing was written" in capsys.readouterr().err


def test_training_without_transformers(monkeypatch, tmp_path, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["train", "--tokens", str(tmp_path)]) == 2
    assert 'pip install "collage-optim[hf]"' in capsys.readouterr().err
