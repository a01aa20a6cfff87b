import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from offprints import checkpoint


def test_round_trip_numpy(tmp_path: Path) -> None:
    tensors = {"w": np.arange(6.0).reshape(2, 3).T, "n": np.array([1, 2])}
    file = checkpoint.save(tmp_path / "sub" / "state", tensors, method="toy", version="1.2", config={"k": [1, "a"]})
    assert file == tmp_path / "sub" / "state.safetensors"
    loaded = checkpoint.load(tmp_path / "sub" / "state.json", method="toy")
    assert loaded.config == {"k": [1, "a"]}
    assert loaded.version == "1.2"
    for name, value in tensors.items():
        np.testing.assert_array_equal(loaded.tensors[name], value)
        assert loaded.tensors[name].dtype == value.dtype
    sidecar = json.loads((tmp_path / "sub" / "state.json").read_text())
    assert sidecar == {"format": 1, "method": "toy", "version": "1.2", "config": {"k": [1, "a"]}}
    assert sorted(p.name for p in (tmp_path / "sub").iterdir()) == ["state.json", "state.safetensors"]


def test_round_trip_torch(tmp_path: Path) -> None:
    base = torch.randn(4, 4)
    tensors = {"w": base.T.to(torch.bfloat16), "tied": base, "view": base[:2], "p": torch.nn.Parameter(base)}
    checkpoint.save(tmp_path / "v1.5", tensors, method="toy", version="1", config={})
    loaded = checkpoint.load(tmp_path / "v1.5", method="toy", framework="torch", device="cpu").tensors
    assert all(
        torch.equal(loaded[name], value) and loaded[name].dtype == value.dtype for name, value in tensors.items()
    )


def test_a_mixture_becomes_tensors(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "s", {"a": np.ones(2), "b": torch.ones(2)}, method="toy", version="1", config={})
    assert set(checkpoint.load(tmp_path / "s", method="toy").tensors) == {"a", "b"}


def test_a_crash_keeps_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path / "s", {"w": np.ones(2)}, method="toy", version="1", config={"k": 1})

    def crash(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            checkpoint.save(tmp_path / "s", {"w": np.zeros(2)}, method="toy", version="1", config={"k": 2})
    loaded = checkpoint.load(tmp_path / "s", method="toy")
    assert (loaded.tensors["w"].sum(), loaded.config) == (2.0, {"k": 1})
    assert len(list(tmp_path.iterdir())) == 2


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at .*none.safetensors"):
        checkpoint.load(tmp_path / "none", method="toy")
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoint.save(tmp_path / "s", {}, method="toy", version="1", config={"f": print})
    assert not list(tmp_path.iterdir())
    file = checkpoint.save(tmp_path / "s", {"w": np.ones(9)}, method="toy", version="1", config={})
    with pytest.raises(ValueError, match="must be a checkpoint of other, got one of toy"):
        checkpoint.load(file, method="other")
    with pytest.raises(ValueError, match="framework must be one of"):
        checkpoint.load(file, method="toy", framework="jax")
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match="must be a whole safetensors file"):
        checkpoint.load(file, method="toy")
    safetensors.numpy.save_file({"w": np.ones(1)}, file)
    with pytest.raises(ValueError, match="without its header"):
        checkpoint.load(file, method="toy")
    for strange in ("[]", "{}"):
        safetensors.numpy.save_file({"w": np.ones(1)}, file, {"offprints": strange})
        with pytest.raises(ValueError, match="without its header"):
            checkpoint.load(file, method="toy")
    safetensors.numpy.save_file({"w": np.ones(1)}, file, {"offprints": "{"})
    with pytest.raises(ValueError, match="must be a whole safetensors file"):
        checkpoint.load(file, method="toy")
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.save(tmp_path / "s", {"w": np.ones(1)}, method="toy", version="9.1", config={})
    monkeypatch.setattr(checkpoint, "FORMAT", 1)
    with pytest.raises(ValueError, match=r"format 1, got 2, written by toy 9\.1\. Upgrade offprints and toy"):
        checkpoint.load(file, method="toy")
