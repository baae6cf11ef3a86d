"""Advantages: properties that hold for every batch."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from advantage_batches import F, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from reagent.algorithms.advantages import Advantages, Algorithm, compact_index, compute_advantages, gae, gather

ALGORITHMS: tuple[Any, ...] = get_args(Algorithm)


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
@given(batch=batches, algorithm=st.sampled_from(["grpo", "rloo"]), constant=st.floats(-5, 5), per_turn=st.booleans())
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
