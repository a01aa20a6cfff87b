import random
import sys

import numpy as np
import pytest
import torch
from offprints.seeding import isolated, rng, spawn


def test_rng() -> None:
    assert rng(3).random() == np.random.default_rng(3).random()
    one, other = (torch.rand(2, generator=rng(3, "cpu")) for _ in range(2))
    assert torch.equal(one, other)
    with pytest.raises(ValueError, match="seed must be an integer at least 0, got -1"):
        rng(-1)
    with pytest.raises(TypeError, match="seed must be an integer"):
        rng(0.5)  # type: ignore[call-overload]


def test_spawn_is_repeatable_and_independent() -> None:
    assert spawn(7, 3) == spawn(7, 5)[:3]
    assert len(set(spawn(7, 100) + spawn(8, 100))) == 200
    assert all(0 <= seed < 2**63 for seed in spawn(0, 100))
    assert spawn(0, 0) == []


@pytest.mark.parametrize("fails", [False, True])
def test_isolated_restores(fails: bool) -> None:
    before = (random.random(), np.random.rand(), torch.rand(1).item())
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    inside = []
    for _ in range(2):
        try:
            with isolated(5):
                inside.append((random.random(), np.random.rand(), torch.rand(1).item()))
                if fails:
                    raise KeyError
        except KeyError:
            pass
    assert inside[0] == inside[1] != before
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()
    assert torch.equal(torch.get_rng_state(), states[2])


def test_isolated_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    states = np.random.get_state()[1].copy()
    with isolated(5):
        assert np.random.rand() == np.random.RandomState(5).rand()
    assert (np.random.get_state()[1] == states).all()


def test_isolated_keeps_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["state"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.append)
    with isolated(1):
        pass
    assert given == [["state"]]
