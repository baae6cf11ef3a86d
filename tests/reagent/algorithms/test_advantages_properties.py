"""Advantages: properties that hold for every batch."""

from __future__ import annotations

import itertools
import random
from typing import Any, get_args

import pytest
import torch
from advantage_batches import F, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reagent.algorithms.base import Scale
from reagent.algorithms.gae import gae
from reagent.algorithms.groups import turn_returns
from reagent.algorithms.masks import compact_index, gather
from reagent.algorithms.names import GROUP_METHODS
from reagent.algorithms.registry import ALGORITHMS as REGISTERED
from reagent.algorithms.registry import Advantages, compute_advantages
from reagent.train import config

ALGORITHMS: tuple[Any, ...] = tuple(REGISTERED)


def with_padding(batch: dict[str, Any], extra: int, rubbish: float) -> dict[str, Any]:
    fills = {"token_rewards": 0.0, "action_mask": False, "turn_index": -1, "values": rubbish}
    out = dict(batch)
    for name, fill in fills.items():
        tail = torch.full((len(batch[name]), extra), fill, dtype=batch[name].dtype)
        out[name] = torch.cat([batch[name], tail], dim=1)
    return out


batches = st.builds(random_batch, seed=st.integers(0, 10_000), rows=st.integers(1, 6), n_groups=st.integers(1, 3))
quick = settings(max_examples=25, deadline=None)


@quick
@given(batch=batches, algorithm=st.sampled_from(ALGORITHMS), per_turn=st.booleans(), extra=st.integers(1, 4))
def test_padding_changes_nothing(batch, algorithm, per_turn, extra):
    before = compute_advantages(algorithm, **batch, gamma=0.9, per_turn=per_turn)
    after = compute_advantages(algorithm, **with_padding(batch, extra, float("nan")), gamma=0.9, per_turn=per_turn)
    torch.testing.assert_close(after.advantages[:, :-extra], before.advantages)
    assert after.advantages[:, -extra:].abs().sum() == 0 and not after.loss_mask[:, -extra:].any()


@quick
@given(batch=batches, algorithm=st.sampled_from(ALGORITHMS), per_turn=st.booleans(), seed=st.integers(0, 99))
def test_rows_may_come_in_any_order(batch, algorithm, per_turn, seed):
    order = torch.randperm(len(batch["group"]), generator=torch.Generator().manual_seed(seed))
    before = compute_advantages(algorithm, **batch, per_turn=per_turn)
    after = compute_advantages(algorithm, **{k: v[order] for k, v in batch.items()}, per_turn=per_turn)
    torch.testing.assert_close(after.advantages, before.advantages[order])


@quick
@given(
    batch=batches, algorithm=st.sampled_from(["grpo", "rloo", "opo"]), constant=st.floats(-5, 5), per_turn=st.booleans()
)
def test_a_constant_on_a_groups_rewards_changes_no_group_advantage(batch, algorithm, constant, per_turn):
    before = compute_advantages(algorithm, **batch, per_turn=per_turn)
    shifted = batch["token_rewards"].clone()
    for row in (batch["group"] == 0).nonzero()[:, 0].tolist():  # the outcome sits on the last action token
        shifted[row, batch["action_mask"][row].nonzero()[-1, 0]] += constant
    after = compute_advantages(algorithm, **(batch | {"token_rewards": shifted}), per_turn=per_turn)
    torch.testing.assert_close(after.advantages, before.advantages, rtol=1e-7, atol=1e-7)


@quick
@given(batch=batches, algorithm=st.sampled_from(ALGORITHMS), per_turn=st.booleans(), seed=st.integers(0, 99))
def test_observations_neither_carry_nor_receive_credit(batch, algorithm, per_turn, seed):
    """Removing every observation token, or filling its value with rubbish, leaves all action tokens' credit as it was."""
    before = compute_advantages(algorithm, **batch, gamma=0.9, per_turn=per_turn)
    action = batch["action_mask"]
    assert before.advantages[~action].abs().sum() == 0
    rubbish = batch | {"values": torch.where(action, batch["values"], 1e6 + seed)}
    assert compute_advantages(algorithm, **rubbish, gamma=0.9, per_turn=per_turn).advantages.equal(before.advantages)

    index, valid = compact_index(action)
    lead = torch.zeros(len(action), 1, dtype=F)
    bare: dict[str, Any] = {
        name: torch.cat([lead, gather(batch[name], index, valid)], 1) for name in ("token_rewards", "values")
    }
    bare["action_mask"] = torch.cat([lead.bool(), valid], 1)
    bare["turn_index"] = torch.cat([lead.long() - 1, torch.where(valid, batch["turn_index"].gather(1, index), -1)], 1)
    after = compute_advantages(algorithm, **(batch | bare), gamma=0.9, per_turn=per_turn)
    torch.testing.assert_close(after.advantages[:, 1:], gather(before.advantages, index, valid))


def repeated(batch: dict[str, Any], times: int) -> dict[str, Any]:
    """The first row of each group, `times` times."""
    groups = batch["group"].unique().tolist()
    first = torch.tensor([int((batch["group"] == g).nonzero()[0, 0]) for g in groups]).repeat_interleave(times)
    return {name: column[first] for name, column in batch.items()}


@quick
@given(
    batch=batches,
    algorithm=st.sampled_from(GROUP_METHODS),
    per_turn=st.booleans(),
    scale=st.sampled_from(get_args(Scale)),
    times=st.integers(2, 9),
    single=st.booleans(),
)
def test_identical_rows_have_exactly_zero_advantage(batch, algorithm, per_turn, scale, times, single):
    """All rows of a group do and earn the same: there is nothing to learn from it, whatever each of their turns earned."""
    same = repeated(batch, times)
    if single:
        same["token_rewards"] = same["token_rewards"].float()
    got = compute_advantages(algorithm, **same, per_turn=per_turn, scale=scale)
    assert torch.count_nonzero(got.advantages) == 0 and got.loss_mask.any()


def test_the_rows_of_our_own_page_have_zero_advantage():
    """Two equal rows that earn 0.1 a turn and 1 at the end had advantages of ±1.2 turn by turn."""
    mask = torch.tensor([[False, True, True, True, True]] * 2)
    turn = torch.tensor([[-1, 0, 1, 2, 3]] * 2)
    rewards = torch.tensor([[0, 0.1, 0.1, 0.1, 1.1]] * 2)
    for algorithm in GROUP_METHODS:
        got = compute_advantages(algorithm, rewards, mask, turn, torch.zeros(2).long(), per_turn=True)
        assert got.advantages.abs().max() == 0


def replaced(batch: dict[str, Any], rows: list[int], other: dict[str, Any]) -> dict[str, Any]:
    """`batch` with `rows` taken from another batch: what they did, what they earned and how many turns they took."""
    fills = {"token_rewards": 0.0, "action_mask": False, "turn_index": -1, "values": 0.0}
    width = max(batch["token_rewards"].shape[1], other["token_rewards"].shape[1])
    mine, theirs = (with_padding(x, width - x["token_rewards"].shape[1], 0.0) for x in (batch, other))
    out = {name: mine[name].clone() for name in fills} | {k: v for k, v in batch.items() if k not in fills}
    for name in fills:
        out[name][rows] = theirs[name][rows]
    return out


def baselines(batch: dict[str, Any], algorithm: Any, stages: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """What was taken off each turn's reward-to-go, (B, K), and which turns there are."""
    returns, present = turn_returns(batch["token_rewards"], batch["action_mask"], batch["turn_index"])
    got = compute_advantages(algorithm, **batch, **stages, per_turn=True, scale="none").advantages
    taken = torch.zeros_like(returns)
    for row, k in present.nonzero().tolist():
        taken[row, k] = returns[row, k] - got[row][batch["action_mask"][row] & (batch["turn_index"][row] == k)][0]
    return taken, present


@quick
@given(seed=st.integers(0, 10_000), other=st.integers(0, 10_000), row=st.integers(0, 3), algorithm=st.sampled_from(["grpo", "rloo"]))  # fmt: skip
def test_a_baseline_depends_on_nothing_its_own_row_does(seed, other, row, algorithm):
    """Row i acts, earns and stops otherwise, and so does its second attempt, which read it: row i's baselines stay."""
    batch = random_batch(seed, rows=8, n_groups=1)
    stages = {"attempt": torch.arange(8) % 4, "stage": torch.arange(8) // 4}
    before, turns = baselines(batch, algorithm, stages)
    changed = replaced(batch, [row, row + 4], random_batch(other + 20_000, rows=8, n_groups=1))
    after, turns_now = baselines(changed, algorithm, stages)
    shared = min(before.shape[1], after.shape[1])
    both = turns[row, :shared] & turns_now[row, :shared]
    torch.testing.assert_close(after[row, :shared][both], before[row, :shared][both])


def test_turn_by_turn_the_gradient_is_that_of_the_expected_return_where_the_policy_decides_when_to_stop():
    """Every pair of episodes of a policy with three choices, weighed by its probability: Σ P · Σ A ∇log π = ∇ E[R].

    Turn 0 stops (earns 1) with probability σ(θ0) or goes on (earns −0.5); turn 1 is right (2) with σ(θ1), else wrong (0.3).
    """
    theta = torch.tensor([0.4, -0.7], dtype=F, requires_grad=True)
    stop, right = theta.sigmoid()
    paths = [([1.0], [stop]), ([-0.5, 2.0], [1 - stop, right]), ([-0.5, 0.3], [1 - stop, 1 - right])]
    probability = torch.stack([torch.stack(chosen).prod() for _, chosen in paths])
    (wanted,) = torch.autograd.grad((probability * torch.tensor([1.0, 1.5, -0.2], dtype=F)).sum(), theta, retain_graph=True)  # fmt: skip
    mask = torch.zeros(len(paths), 3, dtype=torch.bool)
    turn, rewards = torch.full((len(paths), 3), -1), torch.zeros(len(paths), 3, dtype=F)
    for i, (earned, _) in enumerate(paths):
        mask[i, 1 : len(earned) + 1], turn[i, 1 : len(earned) + 1] = True, torch.arange(len(earned))
        rewards[i, 1 : len(earned) + 1] = torch.tensor(earned, dtype=F)
    surrogate = torch.zeros((), dtype=F)
    for pair in itertools.product(range(len(paths)), repeat=2):
        rows = torch.tensor(pair)
        got = compute_advantages("rloo", rewards[rows], mask[rows], turn[rows], torch.zeros(2).long(), per_turn=True)
        for i, path in enumerate(pair):
            for k, chosen in enumerate(paths[path][1]):
                weight = probability[rows].prod().detach() / 2
                surrogate = surrogate + weight * got.advantages[i, k + 1] * chosen.log()
    (gradient,) = torch.autograd.grad(surrogate, theta)
    torch.testing.assert_close(gradient, wanted)


def test_a_config_names_the_algorithms_there_are():
    assert get_args(config.Algorithm) == ALGORITHMS


def textbook_gae(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """A_t = Σ_l (γλ)^l δ_{t+l}, the definition (GAE eq. 16), with V = 0 after the end."""
    after = [*values[1:], 0.0]
    deltas = [r + gamma * nxt - v for r, v, nxt in zip(rewards, values, after, strict=True)]
    return [sum((gamma * lam) ** (j - i) * deltas[j] for j in range(i, len(deltas))) for i in range(len(deltas))]


@quick
@given(
    rows=st.lists(
        st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=7), min_size=1, max_size=4
    ),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
)
def test_compacted_gae_without_observations_is_textbook_gae(rows, gamma, lam):
    width = max(map(len, rows))
    rewards, values = torch.zeros(2, len(rows), width, dtype=F)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        mask[i, : len(row)] = True
        rewards[i, : len(row)], values[i, : len(row)] = torch.tensor(row, dtype=F).T
    advantages, returns = gae(rewards, values, mask, gamma=gamma, gae_lambda=lam)
    for i, row in enumerate(rows):
        expected = textbook_gae([r for r, _ in row], [v for _, v in row], gamma, lam)
        assert advantages[i, : len(row)].tolist() == pytest.approx(expected, abs=1e-9)
        targets = [a + v for a, (_, v) in zip(expected, row, strict=True)]
        assert returns[i, : len(row)].tolist() == pytest.approx(targets, abs=1e-9)


@quick
@given(batch=batches)
def test_ppo_targets_come_from_unwhitened_advantages(batch):
    white: Advantages = compute_advantages("ppo", **batch, use_whitening=True)
    plain: Advantages = compute_advantages("ppo", **batch, use_whitening=False)
    assert white.returns is not None and plain.returns is not None
    assert white.returns.equal(plain.returns)
    on = plain.loss_mask
    torch.testing.assert_close(plain.returns[on], (plain.advantages + batch["values"])[on])


@pytest.mark.parametrize("algorithm", GROUP_METHODS)
def test_rewards_in_another_order_are_the_same_reward(algorithm: str) -> None:
    """Turn rewards that cancel left rounding errors of their own, which a group's standard deviation blew up to ±0.1."""
    draw = random.Random(0)
    for _ in range(300):
        turns = [draw.choice([10.0, -10.0, 3.3, -3.3, 1.1, -7.7]) for _ in range(8)]
        other = draw.sample(turns, len(turns))
        found = compute_advantages(
            algorithm,
            torch.tensor([turns, other]),
            torch.ones(2, 8, dtype=torch.bool),
            torch.arange(8).repeat(2, 1),
            torch.zeros(2, dtype=torch.long),
        )
        assert not found.advantages.any()


@pytest.mark.parametrize("second", [1.0, -1.0])
def test_a_first_attempt_with_nobody_to_be_compared_with_learns_nothing(second: float) -> None:
    """Whitened, it got −1 where its own second attempt was good, and +1 where that was bad."""
    found = compute_advantages(
        "reinforce++-baseline",
        torch.tensor([[0.0], [second]], dtype=torch.float64),
        torch.ones(2, 1, dtype=torch.bool),
        torch.zeros(2, 1, dtype=torch.long),
        torch.zeros(2, dtype=torch.long),
        attempt=torch.zeros(2, dtype=torch.long),
        stage=torch.tensor([0, 1]),
    )
    assert found.advantages[0].tolist() == [0.0]
