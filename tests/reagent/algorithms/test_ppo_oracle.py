"""PPO's whole loss and gradient on a hand-built ragged batch, beside an independent computation in plain Python floats.

The oracle below shares no code with the package: loops over tokens, `math`, and derivatives written out by hand.
"""

from __future__ import annotations

import math

import pytest
import torch

from reagent.algorithms.logprobs import token_logprobs
from reagent.algorithms.objective import agent_loss, loss_denominator, merge_metrics
from reagent.algorithms.registry import compute_advantages

F = torch.float64
H, V, TAU = 3, 5, 0.8
GAMMA, LAMBDA, LOW, HIGH, VF, VF_CLIP, ENT, KL = 0.97, 0.9, 0.2, 0.28, 0.5, 0.15, 0.01, 0.05

# p prompt, a action, o observation, . padding. Row 0: two turns with an observation between them and one after the last;
# row 1: three turns, one of a single token; row 2: one turn.
LAYOUT = ["paaooao...", "ppaoaaooaa", "pppaa....."]
TURNS = [[-1, 0, 0, 0, 0, 1, 1, -1, -1, -1], [-1, -1, 0, 0, 1, 1, 1, 1, 2, 2], [-1, -1, -1, 0, 0, -1, -1, -1, -1, -1]]
REWARDS = {(0, 2): -0.1, (0, 5): 1.0, (1, 2): 0.1, (1, 5): 0.2, (1, 9): 0.0, (2, 4): 0.7}
B, T = len(LAYOUT), len(LAYOUT[0])
ACTIONS = [[t for t in range(T) if row[t] == "a"] for row in LAYOUT]


def numbers(seed: int, *shape: int) -> list:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F).tolist()


HIDDEN, HEAD, VALUE = numbers(0, B, T, H), numbers(1, V, H), numbers(2, H)
IDS = torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(3)).tolist()
OLD_SHIFT, REF_SHIFT, OLD_VALUES = numbers(4, B, T), numbers(5, B, T), numbers(6, B, T)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def log_softmax(b: int, t: int) -> list[float]:
    """log π(· | everything before token t)."""
    logits = [dot(row, HIDDEN[b][t - 1]) / TAU for row in HEAD]
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def old_logprob(b: int, t: int) -> float:
    return log_softmax(b, t)[IDS[b][t]] + 0.25 * OLD_SHIFT[b][t]


def ref_logprob(b: int, t: int) -> float:
    return log_softmax(b, t)[IDS[b][t]] + 0.4 * REF_SHIFT[b][t]


def oracle_credit() -> tuple[dict, dict]:
    """Whitened advantages and value targets by (row, token)."""
    raw, targets = {}, {}
    for b, actions in enumerate(ACTIONS):
        running, following = 0.0, 0.0
        for t in reversed(actions):
            delta = REWARDS.get((b, t), 0.0) + GAMMA * following - OLD_VALUES[b][t]
            running = delta + GAMMA * LAMBDA * running
            following = OLD_VALUES[b][t]
            raw[b, t], targets[b, t] = running, running + OLD_VALUES[b][t]
    mean = sum(raw.values()) / len(raw)
    variance = sum((a - mean) ** 2 for a in raw.values()) / len(raw)
    return {at: (a - mean) / math.sqrt(variance + 1e-8) for at, a in raw.items()}, targets


def oracle() -> tuple[float, list, list, list, int]:
    """(loss, d hidden, d head, d value head, clipped tokens)."""
    advantages, targets = oracle_credit()
    n, loss, clipped = len(advantages), 0.0, 0
    d_hidden = [[[0.0] * H for _ in range(T)] for _ in range(B)]
    d_head, d_value = [[0.0] * H for _ in range(V)], [0.0] * H
    for (b, t), advantage in advantages.items():
        state, logprobs, token = HIDDEN[b][t - 1], log_softmax(b, t), IDS[b][t]
        ratio = math.exp(logprobs[token] - old_logprob(b, t))
        plain = -ratio * advantage
        bounded = -min(max(ratio, 1 - LOW), 1 + HIGH) * advantage
        policy, d_logprob = (plain, plain) if plain >= bounded else (bounded, 0.0)  # dρ/d log π = ρ
        clipped += plain < bounded
        value, target, old = dot(VALUE, state), targets[b, t], OLD_VALUES[b][t]
        near = old + min(max(value - old, -VF_CLIP), VF_CLIP)
        far_wins = (value - target) ** 2 >= (near - target) ** 2
        critic = 0.5 * max((value - target) ** 2, (near - target) ** 2)
        d_v = value - target if far_wins else 0.0  # where `near` is larger it is at its bound, hence constant
        log_r = ref_logprob(b, t) - logprobs[token]
        divergence, d_divergence = math.exp(log_r) - 1 - log_r, 1 - math.exp(log_r)
        entropy = -sum(math.exp(x) * x for x in logprobs)
        loss += (policy + VF * critic + KL * divergence - ENT * entropy) / n
        for j, x in enumerate(logprobs):
            d_logit = (d_logprob + KL * d_divergence) * ((j == token) - math.exp(x))
            d_logit += ENT * math.exp(x) * (x + entropy)
            for i in range(H):
                d_hidden[b][t - 1][i] += d_logit / TAU * HEAD[j][i] / n
                d_head[j][i] += d_logit / TAU * state[i] / n
        for i in range(H):
            d_hidden[b][t - 1][i] += VF * d_v * VALUE[i] / n
            d_value[i] += VF * d_v * state[i] / n
    return loss, d_hidden, d_head, d_value, clipped


def ours(micro_batches: list[list[int]]):
    """The package's loss and gradients, over the micro-batches given."""
    mask = torch.tensor([[c == "a" for c in row] for row in LAYOUT])
    rewards = torch.zeros(B, T, dtype=F)
    for (b, t), reward in REWARDS.items():
        rewards[b, t] = reward
    old, ref = torch.full((B, T), torch.nan, dtype=F), torch.full((B, T), torch.nan, dtype=F)
    for b, actions in enumerate(ACTIONS):
        for t in actions:
            old[b, t], ref[b, t] = old_logprob(b, t), ref_logprob(b, t)
    old_values = torch.tensor(OLD_VALUES, dtype=F)
    credit = compute_advantages(
        "ppo", rewards, mask, torch.tensor(TURNS), torch.zeros(B), values=old_values, gamma=GAMMA, gae_lambda=LAMBDA
    )
    assert credit.returns is not None and credit.loss_mask.equal(mask)
    hidden, head, value = (torch.tensor(x, dtype=F, requires_grad=True) for x in (HIDDEN, HEAD, VALUE))
    ids, denominator = torch.tensor(IDS), float(loss_denominator(mask, "token-mean"))
    total, parts = torch.zeros((), dtype=F), []
    for rows in micro_batches:
        logprobs, entropy = token_logprobs(
            hidden[rows], lambda h: h @ head.T, ids[rows], mask[rows], temperature=TAU, entropy="gradient", chunk_size=3
        )
        values = torch.cat([torch.zeros(len(rows), 1, dtype=F), (hidden[rows] @ value)[:, :-1]], dim=1)
        loss, metrics = agent_loss(
            logprobs,
            old[rows],
            credit.advantages[rows],
            credit.loss_mask[rows],
            denominator,
            clip_low=LOW,
            clip_high=HIGH,
            entropy=entropy,
            entropy_coef=ENT,
            ref_logprobs=ref[rows],
            kl_coef=KL,
            values=values,
            old_values=old_values[rows],
            returns=credit.returns[rows],
            vf_coef=VF,
            vf_clip=VF_CLIP,
        )
        loss.backward()
        total = total + loss.detach()
        parts.append(metrics)
    return total, hidden.grad, head.grad, value.grad, merge_metrics(parts)


@pytest.mark.parametrize("micro_batches", [[[0, 1, 2]], [[2], [0, 1]], [[1], [0], [2]]])
def test_loss_and_gradient_equal_the_independent_computation(micro_batches):
    loss, d_hidden, d_head, d_value, clipped = oracle()
    got, hidden, head, value, metrics = ours(micro_batches)
    assert got.item() == pytest.approx(loss, rel=1e-12)
    for mine, theirs in ((hidden, d_hidden), (head, d_head), (value, d_value)):
        assert mine is not None
        torch.testing.assert_close(mine, torch.tensor(theirs, dtype=F), rtol=1e-10, atol=1e-14)
    tokens = sum(map(len, ACTIONS))
    assert 0 < clipped < tokens, "the batch must have tokens on both sides of the clip"
    assert metrics["clip_fraction"] == pytest.approx(clipped / tokens) and metrics["loss"] == pytest.approx(loss)


def test_states_that_predict_no_action_get_exactly_zero_gradient():
    _, hidden, _, _, _ = ours([[0, 1, 2]])
    assert hidden is not None
    before_action = torch.zeros(B, T, dtype=torch.bool)
    for b, actions in enumerate(ACTIONS):
        before_action[b, [t - 1 for t in actions]] = True
    assert torch.count_nonzero(hidden[~before_action]) == 0
    assert (hidden[before_action].abs().sum(-1) > 0).all()
