"""Advantages: numbers worked out by hand, and what is refused (properties: test_advantages_properties)."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch
from advantage_batches import F, random_batch
from torch import Tensor

from reagent.algorithms.gae import discounted_returns, gae
from reagent.algorithms.groups import comparable, differs, episode_returns, leave_one_out, turn_returns
from reagent.algorithms.grpo import grpo
from reagent.algorithms.masks import compact_index, credit_masks, gather, scatter, spread
from reagent.algorithms.objective import agent_loss
from reagent.algorithms.registry import ALGORITHMS, compute_advantages
from reagent.algorithms.reinforce_pp import kl_penalised_rewards
from reagent.algorithms.whitening import moments, whiten
from reagent.train.config import load_agent_config
from reagent.train.metrics import learned_metrics
from rrm.errors import ConfigError


def f(*rows: list) -> Tensor:
    return torch.tensor(rows, dtype=F)


def b(*rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool)


# One row: prompt p, turn 0 = a a, its observation o o, turn 1 = a.       p  a  a  o  o  a  pad
MASK = b([0, 1, 1, 0, 0, 1, 0])
TURN = torch.tensor([[-1, 0, 0, 0, 0, 1, -1]])
REWARDS = f([0, 0, 0.5, 0, 0, 1.0, 0])
VALUES = f([9, 0.2, 0.4, 7, 8, 0.6, 9])  # 9, 7 and 8 belong to no action


def test_compaction_gathers_action_tokens_to_the_left_and_back():
    mask = b([0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0])
    x = f([1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12])
    index, valid = compact_index(mask)
    left = gather(x, index, valid)
    assert left.tolist() == [[2, 4], [7, 0], [0, 0]]
    assert scatter(left, index, valid, 4).tolist() == [[0, 2, 0, 4], [0, 0, 7, 0], [0, 0, 0, 0]]
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert gather(x[:2, :3], *compact_index(nothing)).shape == (2, 0)


def test_gae_over_compacted_tokens_by_hand():
    # γ = 0.9, λ = 0.5, so γλ = 0.45. Action tokens: r = (0, 0.5, 1), V = (0.2, 0.4, 0.6), V_4 = 0.
    # δ3 = 1   + 0.9·0   − 0.6 = 0.4                 A3 = 0.4
    # δ2 = 0.5 + 0.9·0.6 − 0.4 = 0.64   (V3, across the observation)   A2 = 0.64 + 0.45·0.4  = 0.82
    # δ1 = 0   + 0.9·0.4 − 0.2 = 0.16                A1 = 0.16 + 0.45·0.82 = 0.529
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=0.9, gae_lambda=0.5)
    torch.testing.assert_close(advantages, f([0, 0.529, 0.82, 0, 0, 0.4, 0]))
    torch.testing.assert_close(returns, f([0, 0.729, 1.22, 0, 0, 1.0, 0]))


def test_gae_bootstraps_a_truncated_episode_by_hand():
    # V_4 = 2: δ3 = 1 + 0.9·2 − 0.6 = 2.2; A2 = 0.64 + 0.45·2.2 = 1.63; A1 = 0.16 + 0.45·1.63 = 0.8935
    advantages, _ = gae(REWARDS, VALUES, MASK, gamma=0.9, gae_lambda=0.5, bootstrap=torch.tensor([2.0], dtype=F))
    torch.testing.assert_close(advantages, f([0, 0.8935, 1.63, 0, 0, 2.2, 0]))


def test_a_short_row_bootstraps_from_its_own_end_by_hand():
    # λ = 1, γ = 1, no rewards: A_i = V_{n+1} − V_i, whatever a longer row beside it needs: 5 − 1 = 4; 7 − 1, 7 − 2, 7 − 3.
    mask, values = b([1, 0, 0], [1, 1, 1]), f([1, 99, 99], [1, 2, 3])
    end = torch.tensor([5.0, 7.0], dtype=F)
    advantages, _ = gae(torch.zeros_like(values), values, mask, gamma=1.0, gae_lambda=1.0, bootstrap=end)
    assert advantages.tolist() == [[4, 0, 0], [6, 5, 4]]


def test_without_the_advantage_mask_gae_walks_through_observations_by_hand():
    # Response tokens: r = (0, .5, 0, 0, 1), V = (.2, .4, 7, 8, .6), γ = 1, λ = 0 (A = δ):
    # δ = 0+.4−.2 = .2;  .5+7−.4 = 7.1;  0+8−7 = 1;  0+.6−8 = −7.4;  1+0−.6 = .4
    masks = credit_masks(MASK, TURN, action=True, advantage=False)
    advantages, _ = gae(REWARDS, VALUES, masks.credit, gamma=1.0, gae_lambda=0.0)
    torch.testing.assert_close(advantages, f([0, 0.2, 7.1, 1.0, -7.4, 0.4, 0]))
    assert masks.loss.equal(MASK)
    neither = credit_masks(MASK, TURN, action=False, advantage=False)
    assert neither.loss.tolist() == neither.credit.tolist() == [[False, True, True, True, True, True, False]]
    both = credit_masks(MASK, TURN)
    assert both.credit.equal(MASK) and both.loss.equal(MASK)
    with pytest.raises(ConfigError, match="advantage_mask=false"):
        credit_masks(MASK, TURN, action=False, advantage=True)


def test_moments_and_whitening_by_hand():
    # x = 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, variance 14/3 (ddof 0)
    x, mask = f([1, 2, 99], [6, 99, 99]), b([1, 1, 0], [1, 0, 0])
    mean, variance, count = moments(x, mask)
    assert (mean.item(), count.item()) == (3.0, 3.0)
    assert variance.item() == pytest.approx(14 / 3)
    s = math.sqrt(14 / 3)
    torch.testing.assert_close(whiten(x, mask, eps=0.0), f([-2 / s, -1 / s, 0], [3 / s, 0, 0]))
    assert whiten(f([5.0]), b([1])).tolist() == [[0.0]]
    assert whiten(f([5.0]), b([0])).tolist() == [[0.0]]


class TwoProcesses:
    """A real element-wise sum between two threads that each think they are a process."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=20)
        self.slots: list[Tensor] = [torch.zeros(())] * 2

    def reducer(self, rank: int):
        def reduce(tensor: Tensor) -> Tensor:
            self.slots[rank] = tensor
            self.barrier.wait()
            total = self.slots[0] + self.slots[1]
            self.barrier.wait()
            return total

        return reduce

    def run(self, work):
        results: list = [None, None]

        def call(rank: int) -> None:
            results[rank] = work(rank, self.reducer(rank))

        threads = [threading.Thread(target=call, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        return results


@pytest.mark.parametrize("split", [1, 3, 4])  # 4: the second process holds no row with a token
@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "reinforce++-baseline"])
def test_two_processes_with_uneven_counts_equal_one(algorithm, split):
    batch = random_batch(seed=5, rows=4, n_groups=1)
    batch["group"] = torch.tensor([0, 1, 1, 1]) if split == 1 else torch.tensor([0, 0, 0, 1])
    batch["known"] = torch.tensor([True, True, True, split != 3])
    whole = compute_advantages(algorithm, **batch, scale="batch")
    pieces = [{k: v[:split] for k, v in batch.items()}, {k: v[split:] for k, v in batch.items()}]
    if split == 4:  # a process whose only row is unknown
        pieces[1] = {k: v[:1] for k, v in batch.items()} | {"known": torch.tensor([False])}
    parts = TwoProcesses().run(
        lambda rank, reduce: compute_advantages(algorithm, **pieces[rank], scale="batch", reduce=reduce)
    )
    joined = torch.cat([part.advantages for part in parts])[: len(whole.advantages)]
    torch.testing.assert_close(joined, whole.advantages)
    assert whole.advantages.abs().sum() > 0


# ---- group methods --------------------------------------------------------------------------------------------------


def column(*numbers: float) -> tuple[Tensor, Tensor]:
    returns = torch.tensor(numbers, dtype=F)[:, None]
    return returns, torch.ones_like(returns, dtype=torch.bool)


def test_grpo_by_hand():
    # Group 7: R = 1, 0, 0, 1: mean 0.5, std (ddof 1) = sqrt(4·0.25/3) = sqrt(1/3); group 3: equal; group 5: alone.
    returns, present = column(1, 2, 0, 2, 0, 9, 1)
    group = torch.tensor([7, 3, 7, 3, 7, 5, 7])
    a = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    torch.testing.assert_close(grpo(returns, present, group)[:, 0], torch.tensor([a, 0, -a, 0, -a, 0, a], dtype=F))
    plain = grpo(returns, present, group, scale="none")[:, 0]
    torch.testing.assert_close(plain, torch.tensor([0.5, 0, -0.5, 0, -0.5, 0, 0.5], dtype=F))
    # Batch: R = 1,2,0,2,0,9,1: mean 15/7, squares Σ R² − 15²/7 = 91 − 225/7 = 412/7, ddof 1: /6
    scaled = grpo(returns, present, group, scale="batch")[:, 0]
    torch.testing.assert_close(scaled, plain / (math.sqrt(412 / 42) + 1e-6))


def test_rloo_by_hand():
    # R = 1, 2, 6: A = 1 − (2+6)/2 = −3;  2 − (1+6)/2 = −1.5;  6 − (1+2)/2 = 4.5; alone: 0
    returns, present = column(1, 2, 6, 4)
    advantages = leave_one_out(returns, present, comparable(torch.tensor([0, 0, 0, 1])))
    assert advantages[:, 0].tolist() == [-3.0, -1.5, 4.5, 0.0]


def test_opo_by_hand():
    # Lengths 1, 3, 4 and R = 1, 0, 0.5: the baseline is (1 + 0 + 2)/8 = 0.375; alone: 0
    mask = b([0, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 1], [0, 1, 1, 0, 0])
    turn, rewards = torch.where(mask, 0, -1), torch.zeros(4, 5, dtype=F)
    rewards[:, 1] = torch.tensor([1, 0, 0.5, 9], dtype=F)
    got = compute_advantages("opo", rewards, mask, turn, torch.tensor([0, 0, 0, 1])).advantages
    assert got.equal(torch.where(mask, torch.tensor([[0.625], [-0.375], [0.125], [0]], dtype=F), 0))


def test_rft_is_next_token_loss_on_what_succeeds() -> None:
    # Lengths 1, 3, 4, 2 and R = 1, 0.4, 0.5, 9 (unknown): A = (1 + 3 + 4)/(1 + 4) on rows 0 and 2
    mask = b([0, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 1], [0, 1, 1, 0, 0])
    turn, rewards = torch.where(mask, 0, -1), torch.zeros(4, 5, dtype=F)
    rewards[:, 1] = torch.tensor([1, 0.4, 0.5, 9], dtype=F)
    known = torch.tensor([True, True, True, False])
    got = compute_advantages("rft", rewards, mask, turn, torch.arange(4), known=known)
    assert got.advantages.equal(torch.where(mask, torch.tensor([[1.6], [0], [1.6], [0]], dtype=F), 0))
    logprobs = (-torch.arange(1, 21, dtype=F).reshape(4, 5) / 7).requires_grad_()
    kept = b([0, 1, 0, 0, 0], [0] * 5, [0, 1, 1, 1, 1], [0] * 5)
    (expected,) = torch.autograd.grad(-logprobs[kept].mean(), logprobs)
    loss, _ = agent_loss(logprobs, logprobs.detach(), got.advantages, got.loss_mask, float(got.loss_mask.sum()))
    torch.testing.assert_close(torch.autograd.grad(loss, logprobs)[0], expected, rtol=0, atol=1e-15)
    for setting in ("optim.epochs=2", "loss.aggregation=sequence-mean", "loss.credit=turn"):
        with pytest.raises(ConfigError, match="algorithm=rft learns the tokens of whole episodes once"):
            load_agent_config("lab", ["algorithm=rft", "optim.epochs=1", "optim.minibatches=1", setting])
    nothing = compute_advantages("rft", rewards * 0, mask, turn, torch.arange(4)).advantages
    assert not nothing.any()


def test_opo_credits_a_turn_that_no_other_row_reached() -> None:
    # Row 0 answers in its turn 1, where it is alone: as in the other methods the others' whole returns are its baseline there,
    # here with its own, by lengths 2, 1, 1: 1 − 2/4
    mask = b([0, 1, 1], [0, 1, 0], [0, 1, 0])
    turn = torch.tensor([[-1, 0, 1], [-1, 0, -1], [-1, 0, -1]])
    rewards = torch.zeros(3, 3, dtype=F)
    rewards[0, 2] = 1
    got = compute_advantages("opo", rewards, mask, turn, torch.zeros(3, dtype=torch.long), per_turn=True).advantages
    assert got.tolist() == [[0, 0.5, 0.5], [0, -0.5, 0], [0, -0.5, 0]]


def test_equal_rewards_that_round_differently_are_no_advantage():
    # In fp32 0.1 + 0.2 and 0.3 differ by an ulp; over a standard deviation of an ulp + 1e-6 that would be ±0.02.
    returns = (torch.tensor([[0.1], [0.3]]) + torch.tensor([[0.2], [0.0]])).float()
    returns = torch.cat([returns, torch.nextafter(returns[:1], torch.tensor(9.0))])
    assert len(returns.unique()) > 1
    advantages = grpo(returns, torch.ones(3, 1, dtype=torch.bool), torch.zeros(3, dtype=torch.long))
    assert advantages.tolist() == [[0.0]] * 3


def test_reward_to_go_per_turn_by_hand():
    # Row 0: turn 0 earns 0.5, turn 1 earns 1: to go 1.5, 1. Row 1: one turn that earns −1; it has no turn 1.
    rewards = torch.cat([REWARDS, f([0, 0, -1, 0, 0, 0, 0])])
    mask = torch.cat([MASK, b([0, 1, 1, 0, 0, 0, 0])])
    turn = torch.cat([TURN, torch.tensor([[-1, 0, 0, -1, -1, -1, -1]])])
    returns, present = turn_returns(rewards, mask, turn)
    assert returns.tolist() == [[1.5, 1.0], [-1.0, 0.0]]
    assert present.tolist() == [[True, True], [True, False]]
    assert episode_returns(rewards, mask)[0].tolist() == [[1.5], [-1.0]]
    group = torch.tensor([0, 0])
    # Turn 0: 1.5 − (−1) and −1 − 1.5. Row 0 alone reached turn 1: 1 − the other's whole return −1.
    assert leave_one_out(returns, present, comparable(group)).tolist() == [[2.5, 2.0], [-2.5, 0.0]]
    # All (row, turn) returns: 1.5, 1, −1: mean 0.5, squares 1 + 0.25 + 2.25 = 3.5, std sqrt(3.5/2)
    s = math.sqrt(1.75) + 1e-6
    full = compute_advantages("grpo", rewards, mask, turn, group, per_turn=True).advantages
    torch.testing.assert_close(full[0], torch.tensor([0, 2.5 / s, 2.5 / s, 0, 0, 2 / s, 0], dtype=F))
    torch.testing.assert_close(full[1], torch.tensor([0, -2.5 / s, -2.5 / s, 0, 0, 0, 0], dtype=F))
    plain = compute_advantages("rloo", rewards, mask, turn, group, per_turn=True).advantages
    assert plain.tolist() == [[0, 2.5, 2.5, 0, 0, 2, 0], [0, -2.5, -2.5, 0, 0, 0, 0]]


def test_a_turn_is_compared_with_the_other_rows_that_reached_it_by_hand():
    # Three rows of a group, G by turn: (6, 4, 1), (3, 2), (0): whole returns 6, 3, 0. And a group of its own: (9).
    returns = f([6, 4, 1], [3, 2, 0], [0, 0, 0], [9, 0, 0])
    present = b([1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0])
    got = leave_one_out(returns, present, comparable(torch.tensor([5, 5, 5, 8])))
    # turn 0: 6 − 1.5, 3 − 3, 0 − 4.5; turn 1: 4 − 2, 2 − 4; turn 2, which row 0 alone reached: 1 − (3 + 0)/2
    assert got.tolist() == [[4.5, 2.0, -0.5], [0.0, -2.0, 0.0], [-4.5, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_first_attempt_is_not_compared_with_the_second_one_that_read_it_by_hand():
    # G = 2 tasks' attempts, each followed by a second one: o1 of attempts 0 and 1 earn 1 and 2, their o2 4 and 8.
    returns, present = column(1, 2, 4, 8)
    group, attempt, stage = torch.zeros(4).long(), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    got = leave_one_out(returns, present, comparable(group, attempt, stage))[:, 0]
    # o1: 1 − (2 + 8)/2 = −4 and 2 − (1 + 4)/2 = −0.5; o2, whom its own o1 came before: 4 − 11/3 and 8 − 7/3
    torch.testing.assert_close(got, torch.tensor([-4, -0.5, 4 - 11 / 3, 8 - 7 / 3], dtype=F))
    rewards = torch.stack([torch.zeros(4, dtype=F), returns[:, 0]], 1)
    mask = b(*([[0, 1]] * 4))
    turn = torch.where(mask, 0, -1)
    for arm in ({}, {"per_turn": True}):
        whole = compute_advantages("rloo", rewards, mask, turn, group, attempt=attempt, stage=stage, **arm).advantages
        torch.testing.assert_close(whole[:, 1], got)


def test_under_grpo_too_a_first_attempts_baseline_is_without_its_own_second_one_by_hand():
    """It was the mean over all 2G rows: 1 − 3.75 and 2 − 3.75, so that what a first attempt led to was held against it."""
    returns = f([0, 1], [0, 2], [0, 4], [0, 8])
    group, attempt, stage = torch.zeros(4).long(), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    mask = b(*([[0, 1]] * 4))
    how: dict[str, Any] = {"attempt": attempt, "stage": stage}
    batch = returns, mask, torch.where(mask, 0, -1), group
    by_hand = torch.tensor([1 - (2 + 8) / 2, 2 - (1 + 4) / 2, 4 - 11 / 3, 8 - 7 / 3], dtype=F)
    plain = compute_advantages("grpo", *batch, scale="none", **how).advantages[:, 1]
    torch.testing.assert_close(plain, by_hand)
    # the scale stays that of all 2G rows: mean 3.75, squares 7.5625 + 3.0625 + 0.0625 + 18.0625 = 28.75, ddof = 1
    scaled = compute_advantages("grpo", *batch, **how).advantages[:, 1]
    torch.testing.assert_close(scaled, by_hand / ((28.75 / 3) ** 0.5 + 1e-6))
    baseline = compute_advantages("reinforce++-baseline", *batch, use_whitening=False, **how).advantages[:, 1]
    torch.testing.assert_close(baseline, by_hand)
    # whatever attempt 0's second one earns, attempt 0 is worth the same
    for earned in (0.0, 100.0):
        other = returns.clone()
        other[2, 1] = earned
        for algorithm in ("grpo", "rloo"):
            got = compute_advantages(algorithm, other, *batch[1:], scale="none", **how).advantages[:, 1]
            assert got[0] == -4.0 and got[1] != -0.5
    # a group whose second attempts are not known is a plain one: R − mean
    known = torch.tensor([True, True, False, False])
    alone = compute_advantages("grpo", *batch, scale="none", known=known, **how).advantages[:, 1]
    assert alone.tolist() == [-0.5, 0.5, 0.0, 0.0]


def test_rewards_that_differ_by_a_millionth_are_equal_everywhere():
    """Three places had three tolerances (8 ulp, 1e-9, nine decimals): a group was flat for the log and had advantages of ±0.4."""
    returns, present = column(0.5, 0.5 + 9e-7)
    assert (
        not differs(0.5, 0.5 + 9e-7)
        and differs(0.5, 0.5 + 2e-6)
        and differs(1e3, 1e3 + 9e-4)
        and not differs(1e3, 1e3 + 9e-4, 1e3)
    )
    assert grpo(returns, present, torch.zeros(2).long()).abs().max() == 0.0
    assert grpo(*column(0.5, 0.5 + 2e-6), torch.zeros(2).long(), scale="none")[:, 0].tolist() == pytest.approx(
        [-1e-6, 1e-6]
    )
    rows = [("g", 0.5, [0.5]), ("g", 0.5 + 9e-7, [0.5 + 9e-7])]
    assert (learned_metrics(rows)["learned/flat_groups"], learned_metrics(rows)["learned/flat_turns"]) == (1.0, 1.0)


def test_a_lone_row_with_several_turns_has_nothing_to_be_compared_with():
    for algorithm in ("grpo", "rloo"):
        got = compute_advantages(algorithm, REWARDS, MASK, TURN, torch.tensor([0]), per_turn=True)
        assert got.advantages.abs().sum() == 0


def test_reinforce_plus_plus_by_hand():
    # β = 0.1. log π − log π_ref on the three actions: 1, −2, 3 -> r = 0 − 0.1, 0.5 + 0.2, 1 − 0.3 = −0.1, 0.7, 0.7
    # γ = 0.5: G3 = 0.7; G2 = 0.7 + 0.35 = 1.05; G1 = −0.1 + 0.525 = 0.425
    logprobs, reference = f([5, -1, -4, 5, 5, -1, 5]), f([0, -2, -2, 0, 0, -4, 0])
    shaped = kl_penalised_rewards(REWARDS, logprobs, reference, MASK, 0.1)
    torch.testing.assert_close(shaped, f([0, -0.1, 0.7, 0, 0, 0.7, 0]))
    torch.testing.assert_close(discounted_returns(shaped, MASK, gamma=0.5), f([0, 0.425, 1.05, 0, 0, 0.7, 0]))
    got = compute_advantages(
        "reinforce++",
        REWARDS,
        MASK,
        TURN,
        torch.tensor([0]),
        logprobs=logprobs,
        ref_logprobs=reference,
        kl_coef=0.1,
        gamma=0.5,
    )
    # mean 0.725 and squares 0.09 + 0.105625 + 0.000625 = 0.19625, over 3
    s = math.sqrt(0.19625 / 3 + 1e-8)
    torch.testing.assert_close(got.advantages, f([0, -0.3 / s, 0.325 / s, 0, 0, -0.025 / s, 0]))
    assert got.returns is None


def test_reinforce_plus_plus_baseline_by_hand():
    # One turn each. Group means 0.5 and 2: A = ±0.5 on 1 and 3 tokens, 0 on one token each; token mean
    # (0.5 − 3·0.5 + 0 + 0)/6 = −1/6, squares: (2/3)² + 3·(1/3)² + 2·(1/6)² = 4/9 + 1/3 + 1/18 = 5/6, over 6.
    # The group of equal rewards stays at 0: it says nothing, and the batch's mean must not speak for it.
    mask = b([0, 1, 0, 0], [0, 1, 1, 1], [0, 1, 0, 0], [0, 1, 0, 0])
    rewards = f([0, 1, 0, 0], [0, 0, 0, 0], [0, 2, 0, 0], [0, 2, 0, 0])
    turn = torch.where(mask, 0, -1)
    got = compute_advantages("reinforce++-baseline", rewards, mask, turn, torch.tensor([0, 0, 1, 1])).advantages
    s = math.sqrt(5 / 36 + 1e-8)
    expected = f([0, (2 / 3) / s, 0, 0], [0, *([(-1 / 3) / s] * 3)], [0, 0, 0, 0], [0, 0, 0, 0])
    torch.testing.assert_close(got, expected)
    assert got[2:].abs().sum() == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_the_action_mask_observations_are_trained(algorithm):
    batch = random_batch(seed=11, rows=4, n_groups=2)
    got = compute_advantages(algorithm, **batch, use_action_mask=False, use_advantage_mask=False)
    assert got.loss_mask.equal(batch["turn_index"] >= 0)
    assert got.advantages[got.loss_mask & ~batch["action_mask"]].abs().sum() > 0
    if algorithm in ("ppo", "reinforce++"):
        with pytest.raises(ConfigError, match="advantage_mask=false"):
            compute_advantages(algorithm, **batch, use_action_mask=False)
    else:  # the advantage mask means nothing to them
        same = compute_advantages(algorithm, **batch, use_action_mask=False)
        assert same.advantages.equal(got.advantages)


# ---- unknown rewards ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("per_turn", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_unknown_row_changes_no_other_row_and_trains_nothing(algorithm, per_turn, masked):
    arm: dict[str, Any] = {"per_turn": per_turn, "use_action_mask": masked, "use_advantage_mask": masked}
    batch = random_batch(seed=3, rows=6, n_groups=2)
    batch["known"] = torch.tensor([True, False, True, True, True, True])
    keep = batch["known"]
    poisoned: dict[str, Any] = {k: v.clone() for k, v in batch.items()}
    poisoned["token_rewards"][1] = float("nan")
    poisoned["values"][1] = float("inf")
    alone: dict[str, Any] = {k: v[keep] for k, v in batch.items()}
    expected = compute_advantages(algorithm, **alone, **arm)
    for given_batch in (batch, poisoned):
        got = compute_advantages(algorithm, **given_batch, **arm)
        torch.testing.assert_close(got.advantages[keep], expected.advantages)
        assert got.advantages[1].abs().sum() == 0 and not got.loss_mask[1].any()
        assert got.unknown_rows == 1 and torch.isfinite(got.advantages).all()
        if got.returns is not None:
            assert expected.returns is not None
            torch.testing.assert_close(got.returns[keep], expected.returns)
            assert got.returns[1].abs().sum() == 0


def test_a_row_without_actions_counts_in_no_statistic():
    mask = torch.cat([MASK, MASK, torch.zeros_like(MASK)])
    rewards = torch.cat([REWARDS, REWARDS * 3, torch.zeros_like(REWARDS)])
    got = grpo(*episode_returns(rewards, mask), torch.zeros(3, dtype=torch.long), scale="none")
    assert got[:, 0].tolist() == [-1.5, 1.5, 0.0]  # 1.5 and 4.5 about their mean 3, not that of three rows


def test_every_row_unknown_gives_no_token_to_learn_from():
    batch: dict[str, Any] = random_batch(seed=1, rows=3, n_groups=1) | {"known": torch.zeros(3, dtype=torch.bool)}
    for algorithm in ALGORITHMS:
        got = compute_advantages(algorithm, **batch)
        assert not got.loss_mask.any() and got.advantages.abs().sum() == 0 and got.unknown_rows == 3


def test_spread_gives_each_token_its_turns_number():
    masks = credit_masks(MASK, TURN, action=False, advantage=False)
    assert spread(f([3, 4]), TURN, masks.loss).tolist() == [[0, 3, 3, 3, 3, 4, 0]]
    assert spread(f([3]), TURN, MASK).tolist() == [[0, 3, 3, 0, 0, 3, 0]]


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_misread_batches_are_refused_by_row_and_token():
    group = torch.tensor([0])
    stray = REWARDS.clone()
    stray[0, 3] = 1.0
    with pytest.raises(ValueError, match="row 0, token 3: a reward on a token that is no action"):
        compute_advantages("grpo", stray, MASK, TURN, group)
    with pytest.raises(ValueError, match="token 5: a reward that is not finite"):
        compute_advantages("grpo", torch.where(REWARDS == 1.0, torch.nan, REWARDS), MASK, TURN, group)
    with pytest.raises(ValueError, match="token 1: an action token where turn_index is -1"):
        compute_advantages("grpo", REWARDS, MASK, TURN - 1, group)
    with pytest.raises(ValueError, match=r"must all be \(B, T\)"):
        compute_advantages("grpo", REWARDS[:, :-1], MASK, TURN, group)
    with pytest.raises(ValueError, match=r"must be \(B,\)"):
        compute_advantages("grpo", REWARDS, MASK, TURN, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="ppo needs values"):
        compute_advantages("ppo", REWARDS, MASK, TURN, group)
    with pytest.raises(ValueError, match="needs logprobs"):
        compute_advantages("reinforce++", REWARDS, MASK, TURN, group, kl_coef=0.1)
    with pytest.raises(ConfigError, match="algorithm='dpo'"):
        compute_advantages("dpo", REWARDS, MASK, TURN, group)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="advantage_scale='std'"):
        compute_advantages("grpo", REWARDS, MASK, TURN, group, scale="std")  # pyright: ignore[reportArgumentType]
