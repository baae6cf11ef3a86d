"""Losses: numbers worked out by hand, exact expectations, and properties that hold for every batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reagent.algorithms.logprobs import entropy_from_logits, token_logprobs
from reagent.algorithms.losses import importance_weights, kl_penalty, policy_loss, value_loss
from reagent.algorithms.objective import (
    LossMetrics,
    agent_loss,
    aggregate,
    explained_variance,
    loss_denominator,
    merge_metrics,
    ratio_metrics,
)
from rrm.errors import ConfigError

F = torch.float64
AGGREGATIONS: tuple[Any, ...] = ("token-mean", "sequence-mean", "constant-length")
ON = torch.ones(1, 1, dtype=torch.bool)


def f(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F)


# ---- policy loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual", "loss", "gradient", "clipped"),
    [
        # low 0.2, high 0.3; the gradient is that of the loss with respect to log π: −ρA where no clip binds
        (1.0, 2.0, None, -2.0, -2.0, False),
        (1.25, 2.0, None, -2.5, -2.5, False),  # inside DAPO's wider upper bound
        (1.5, 2.0, None, -2.6, 0.0, True),  # −1.3 · 2: a good token's ratio is held at 1.3
        (0.5, 2.0, None, -1.0, -1.0, False),  # worse for us than the bound, so the minimum keeps it
        (0.5, -2.0, None, 1.6, 0.0, True),  # 0.8 · 2: a bad token is not pushed below 0.8
        (1.5, -2.0, None, 3.0, 3.0, False),
        (5.0, -2.0, None, 10.0, 10.0, False),
        (5.0, -2.0, 3.0, 6.0, 0.0, True),  # dual clip: 3 · 2
        (5.0, 2.0, 3.0, -2.6, 0.0, True),  # which leaves good tokens alone
    ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, dual, loss, gradient, clipped):
    logprobs = f([math.log(ratio) - 1.0]).requires_grad_()
    got, stopped = policy_loss(logprobs, f([-1.0]), f([advantage]), ON, clip_low=0.2, clip_high=0.3, dual_clip=dual)
    got.sum().backward()
    assert logprobs.grad is not None
    assert got.item() == pytest.approx(loss) and logprobs.grad.item() == pytest.approx(gradient)
    assert stopped.item() is clipped


def test_gspo_clips_a_row_by_the_mean_of_its_log_ratios_by_hand():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    log_rho = f([0.3, 0.1, 7.0], [0.6, 0.0, 0.3])  # row means 0.2 and 0.3: s = 1.2214 and 1.3499
    advantages = f([2.0, 1.0, 5.0], [2.0, 2.0, 2.0])
    logprobs = (log_rho - 1.0).requires_grad_()
    got, stopped = policy_loss(logprobs, f([-1.0] * 3, [-1.0] * 3), advantages, mask, kind="gspo", clip_high=0.3)
    got.sum().backward()
    s = math.exp(0.2)
    torch.testing.assert_close(got, f([-2 * s, -s, 0.0], [-2.6, -2.6, -2.6]))
    torch.testing.assert_close(logprobs.grad, f([-2 * s, -s, 0.0], [0.0, 0.0, 0.0]))  # each token's own advantage
    assert stopped.tolist() == [[False, False, False], [True, True, True]]
    # with one advantage a row and rows weighed alike: the paper's gradient of s·A, A/n · s · ∇ log π for each token
    alike = (log_rho - 1.0).requires_grad_()
    s_row = torch.where(mask, alike + 1.0, 0).sum(1) / mask.sum(1)
    expected = torch.autograd.grad(-(s_row.exp() * f([2.0, -1.0])[0]).sum() / 2, alike)[0]
    rows = {"aggregation": "sequence-mean", "kind": "gspo", "clip_high": 0.3}
    loss, _ = agent_loss(alike, f([-1.0] * 3, [-1.0] * 3), f([2.0] * 3, [-1.0] * 3), mask, 2.0, **rows)
    torch.testing.assert_close(torch.autograd.grad(loss, alike)[0], expected)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient", "clipped"),
    [(1.0, 2.0, -2.0, False), (1.5, 2.0, -2.6, True), (0.5, -2.0, 1.6, True), (1.2, -1.0, 1.2, False)],
)
def test_cispo_bounds_the_weight_and_stops_no_gradient_by_hand(ratio, advantage, gradient, clipped):
    logprobs = f([math.log(ratio) - 1.0]).requires_grad_()
    got, bounded = policy_loss(logprobs, f([-1.0]), f([advantage]), ON, kind="cispo", clip_low=0.2, clip_high=0.3)
    got.sum().backward()
    assert logprobs.grad is not None and logprobs.grad.item() == pytest.approx(gradient)
    assert got.item() == pytest.approx(gradient * (math.log(ratio) - 1.0)) and bounded.item() is clipped


def test_on_the_first_update_the_ratio_is_one_and_the_loss_minus_the_mean_advantage():
    logprobs, mask = (
        f([-1.0, -2.0, -0.3], [-0.1, -4.0, -1.0]),
        torch.tensor([[False, True, True], [True, False, False]]),
    )
    advantages = f([9.0, 1.0, -3.0], [5.0, 9.0, 9.0])
    loss, metrics = agent_loss(logprobs, logprobs.clone(), advantages, mask, 3.0)
    assert loss.item() == pytest.approx(-(1.0 - 3.0 + 5.0) / 3)
    got = merge_metrics([metrics])
    assert got["ratio_mean"] == 1.0 and got["ratio_deviation"] == 0.0
    assert got["clip_fraction"] == 0.0 and got["approx_kl"] == 0.0 and got["tokens"] == 3.0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("gap", [200.0, -200.0])
def test_a_ratio_beyond_all_numbers_stays_finite(gap, estimator):
    """exp(200) is infinite in fp32, and times an advantage of 0 it was NaN, which stopped the run."""
    old = torch.tensor([[-1.0, -1.0, -1.0]])
    logprobs, mask = (old + gap).requires_grad_(), torch.ones(1, 3, dtype=torch.bool)
    advantages = torch.tensor([[0.0, 1.0, -1.0]])
    importance = importance_weights(old + gap, old, mask)
    loss, metrics = agent_loss(
        logprobs,
        old,
        advantages,
        mask,
        3.0,
        ref_logprobs=old,
        kl_coef=0.1,
        kl_estimator=estimator,
        importance=importance,
    )
    loss.backward()
    assert loss.isfinite() and logprobs.grad is not None and logprobs.grad.isfinite().all()
    assert all(math.isfinite(number) for number in merge_metrics([metrics]).values())
    # the good token's loss is clipped as ever: −1.2 where it became likelier, −ρ ≈ 0 where it became unlikely
    good, _ = policy_loss(logprobs, old, advantages, mask)
    assert good[0, 1].item() == pytest.approx(-1.2 if gap > 0 else 0.0, abs=1e-6) and good[0, 0] == 0


def test_dual_clip_must_exceed_one():
    with pytest.raises(ConfigError, match="dual_clip=1"):
        policy_loss(f([0.0]), f([0.0]), f([1.0]), ON, dual_clip=1.0)


# ---- value loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "gradient"),
    [
        (3.0, 0.0, 1.0, None, 2.0, 2.0),  # ½ · 2²
        (0.5, 0.0, 1.0, 0.2, 0.32, 0.0),  # clipped to 0.2, ½ · 0.8² > ½ · 0.5²: moved far enough, no gradient
        (-0.5, 0.0, 1.0, 0.2, 1.125, -1.5),  # ½ · 1.5² > ½ · (−0.2 − 1)² = 0.72: moved away, full gradient
        (0.1, 0.0, 1.0, 0.2, 0.405, -0.9),  # inside the range both are ½ · 0.9²
    ],
)
def test_value_loss_by_hand(value, old, target, clip, loss, gradient):
    values = f([value]).requires_grad_()
    got = value_loss(values, f([target]), ON, old_values=f([old]), vf_clip=clip)
    got.sum().backward()
    assert values.grad is not None
    assert got.item() == pytest.approx(loss) and values.grad.item() == pytest.approx(gradient)


def test_value_clipping_needs_the_old_values():
    with pytest.raises(ValueError, match="old_values"):
        value_loss(f([1.0]), f([1.0]), ON, vf_clip=0.2)


def test_explained_variance_by_hand():
    # R = 1, 3, 5: variance 8/3. R − V = 1, 0, −1: variance 2/3. 1 − (2/3)/(8/3) = 0.75
    returns, mask = f([1, 3, 5, 99]), torch.tensor([[True, True, True, False]])
    assert explained_variance(f([0, 3, 6, -99]), returns, mask).item() == pytest.approx(0.75)
    assert explained_variance(returns, returns, mask).item() == 1.0
    assert explained_variance(f([1, 2, 3, 4]), f([7, 7, 7, 0]), mask).item() == 0.0


# ---- KL and entropy -------------------------------------------------------------------------------------------------

LOGITS, REFERENCE = f([0.3, -1.0, 1.2, 0.0]), f([0.9, 0.1, -0.4, 0.2])


def test_kl_estimators_by_hand():
    # π = 0.5, π_ref = 0.25: r = ½. k1 = log 2; k2 = ½ log² 2; k3 = ½ − 1 + log 2
    logprobs, reference = f([math.log(0.5)]), f([math.log(0.25)])
    expected: dict[Any, float] = {"k1": math.log(2), "k2": 0.5 * math.log(2) ** 2, "k3": math.log(2) - 0.5}
    for name, value in expected.items():
        assert kl_penalty(logprobs, reference, ON, name).item() == pytest.approx(value)
        assert kl_penalty(logprobs, logprobs, ON, name).item() == 0.0
    with pytest.raises(ConfigError, match="kl_estimator='k4'"):
        kl_penalty(logprobs, reference, ON, "k4")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_gradients_and_values_in_expectation_are_what_the_docstring_says(estimator):
    """Exact expectation over a vocabulary of four: Σ_y π(y)·k(y), π(y) held fixed as sampling does."""
    logits = LOGITS[0].clone().requires_grad_()
    logprobs, reference = torch.log_softmax(logits, 0), torch.log_softmax(REFERENCE[0], 0)
    mask = torch.ones(1, 4, dtype=torch.bool)
    per_token = kl_penalty(logprobs[None], reference[None], mask, estimator)[0]
    expected = (logprobs.exp().detach() * per_token).sum()
    (gradient,) = torch.autograd.grad(expected, logits)

    fresh = LOGITS[0].clone().requires_grad_()
    now = torch.log_softmax(fresh, 0)
    reverse = (now.exp() * (now - reference)).sum()  # KL(π ‖ π_ref)
    forward = (reference.exp() * (reference - now)).sum()  # KL(π_ref ‖ π)
    (wanted,) = torch.autograd.grad(forward if estimator == "k3" else reverse, fresh)
    torch.testing.assert_close(gradient, wanted)
    if estimator != "k2":
        torch.testing.assert_close(expected.detach(), reverse.detach())
    else:
        assert expected.item() != pytest.approx(reverse.item(), rel=1e-2)


def test_entropy_by_hand():
    assert entropy_from_logits(torch.zeros(3, 8, dtype=F)).tolist() == pytest.approx([math.log(8)] * 3)
    # p = ¾, ¼: −¾ log ¾ − ¼ log ¼
    assert entropy_from_logits(f([math.log(3), 0.0])).item() == pytest.approx(
        -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    )
    peaked = torch.tensor([[200.0, 0.0]], requires_grad=True)  # fp32: p = 1, 0
    entropy_from_logits(peaked).sum().backward()
    assert peaked.grad is not None and torch.isfinite(peaked.grad).all()


def test_importance_weights_by_hand():
    old, rollout = f([math.log(0.6), math.log(0.1), 0.0]), f([math.log(0.5), math.log(0.01), -50.0])
    mask = torch.tensor([[True, True, False]])
    assert importance_weights(old, rollout, mask, cap=2.0)[0].tolist() == pytest.approx([1.2, 2.0, 1.0])
    loss, metrics = agent_loss(
        old, old, f([1.0, 2.0, 9.0]), mask, 2.0, importance=importance_weights(old, rollout, mask)
    )
    assert loss.item() == pytest.approx(-(1.2 * 1.0 + 2.0 * 2.0) / 2)
    assert merge_metrics([metrics])["importance_mean"] == pytest.approx(1.6)


# ---- aggregation ----------------------------------------------------------------------------------------------------


def test_aggregations_by_hand():
    per_token = f([1, 2, 3, 99], [10, 99, 99, 99], [99, 99, 99, 99])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])
    counts = [loss_denominator(mask, name, 8).item() for name in AGGREGATIONS]
    assert counts == [4.0, 2.0, 16.0]  # tokens; rows with a token; those rows × 8
    got = [aggregate(per_token, mask, count, name).item() for count, name in zip(counts, AGGREGATIONS, strict=True)]
    assert got == [16 / 4, (2 + 10) / 2, 16 / 16]


def test_aggregation_refusals():
    with pytest.raises(ConfigError, match="aggregation='mean'"):
        loss_denominator(ON, "mean")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="constant_length"):
        loss_denominator(ON, "constant-length")
    with pytest.raises(ValueError, match="skip this update"):
        aggregate(f([1.0]), ~ON, 0.0, "token-mean")
    with pytest.raises(ValueError, match="ref_logprobs"):
        agent_loss(f([0.0]), f([0.0]), f([1.0]), ON, 1.0, kl_coef=0.1)
    with pytest.raises(ValueError, match="entropy"):
        agent_loss(f([0.0]), f([0.0]), f([1.0]), ON, 1.0, entropy_coef=0.1)
    with pytest.raises(ValueError, match="go together"):
        agent_loss(f([0.0]), f([0.0]), f([1.0]), ON, 1.0, values=f([1.0]))


# ---- metrics --------------------------------------------------------------------------------------------------------


def test_ratio_metrics_by_hand():
    # ρ = 2, 1, 0.5: mean 3.5/3, ρ − 1 − log ρ = 1 − log 2, 0, −½ + log 2: sum ½; two of three lie outside, one is clipped
    logprobs, old = f([math.log(2), 0.0, -math.log(2), 7.0]), torch.zeros(1, 4, dtype=F)
    mask = torch.tensor([[True, True, True, False]])
    _, clipped = policy_loss(logprobs, old, f([1.0, 1.0, 1.0, 1.0]), mask)
    got = merge_metrics([ratio_metrics(logprobs, old, mask, clipped)])
    assert got["clip_fraction"] == pytest.approx(1 / 3) and got["approx_kl"] == pytest.approx(0.5 / 3)
    assert got["ratio_mean"] == pytest.approx(3.5 / 3) and got["ratio_deviation"] == pytest.approx(1.0)


def test_metrics_of_micro_batches_add_up():
    one = LossMetrics({"loss": 0.25}, {"tokens": 1.0, "kl": 2.0}, {"ratio_deviation": 0.1})
    two = LossMetrics({"loss": 0.5}, {"tokens": 3.0, "kl": 4.0}, {"ratio_deviation": 0.3})
    none = LossMetrics()
    expected = {"loss": 0.75, "kl": 6.0 / 4.0, "ratio_deviation": 0.3, "tokens": 4.0}
    assert merge_metrics([one, none, two]) == expected


# ---- token log-probabilities ----------------------------------------------------------------------------------------


def heads(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden (3, 5, 4), weight (7, 4), ids (3, 5), mask (3, 5) with column 0 off."""
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(3, 5, 4, generator=rng, dtype=F, requires_grad=True)
    weight = torch.randn(7, 4, generator=rng, dtype=F, requires_grad=True)
    mask = torch.rand(3, 5, generator=rng) < 0.6
    mask[:, 0] = False
    return hidden, weight, torch.randint(0, 7, (3, 5), generator=rng), mask


@pytest.mark.parametrize("chunk_size", [1, 2, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chunked_logprobs_equal_the_full_softmax_and_so_do_gradients(chunk_size, temperature):
    hidden, weight, ids, mask = heads()
    logprobs, entropy = token_logprobs(
        hidden, lambda h: h @ weight.T, ids, mask, temperature=temperature, entropy="gradient", chunk_size=chunk_size
    )
    mix = torch.linspace(0.1, 1.0, 15, dtype=F).view(3, 5)
    got = torch.autograd.grad((mix * logprobs + mix**2 * entropy).sum(), [hidden, weight])

    full = torch.log_softmax(hidden[:, :-1] @ weight.T / temperature, -1)
    wanted_logprobs = torch.zeros(3, 5, dtype=F)
    wanted_logprobs[:, 1:] = full.gather(-1, ids[:, 1:, None])[..., 0] * mask[:, 1:]
    wanted_entropy = torch.zeros(3, 5, dtype=F)
    wanted_entropy[:, 1:] = -(full.exp() * full).sum(-1) * mask[:, 1:]
    torch.testing.assert_close(logprobs, wanted_logprobs)
    torch.testing.assert_close(entropy, wanted_entropy)
    wanted = torch.autograd.grad((mix * wanted_logprobs + mix**2 * wanted_entropy).sum(), [hidden, weight])
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_entropy_as_a_metric_carries_no_gradient_and_none_costs_nothing():
    hidden, weight, ids, mask = heads()
    _, value = token_logprobs(hidden, lambda h: h @ weight.T, ids, mask, entropy="value")
    _, gradient = token_logprobs(hidden, lambda h: h @ weight.T, ids, mask, entropy="gradient")
    assert value.equal(gradient) and value.sum() > 0
    assert gradient.requires_grad and not value.requires_grad
    _, none = token_logprobs(hidden, lambda h: h @ weight.T, ids, mask)
    assert none.abs().sum() == 0


def test_logits_exist_at_chosen_positions_only():
    hidden, weight, ids, mask = heads()
    seen: list[int] = []

    def head(h: Tensor) -> Tensor:
        seen.append(len(h))
        return h @ weight.T

    with torch.no_grad():
        token_logprobs(hidden, head, ids, mask, chunk_size=2)
    assert sum(seen) == int(mask.sum()) and max(seen) <= 2


def test_an_empty_mask_still_reaches_every_parameter_with_zero_gradient():
    hidden, weight, ids, mask = heads()
    logprobs, _ = token_logprobs(hidden, lambda h: h @ weight.T, ids, torch.zeros_like(mask))
    for tensor in torch.autograd.grad(logprobs.sum(), [hidden, weight]):
        assert tensor.abs().sum() == 0


def test_bf16_logits_are_reduced_in_fp32():
    hidden, weight, ids, mask = heads()
    small = weight.detach().bfloat16()
    logprobs, _ = token_logprobs(hidden.detach().bfloat16(), lambda h: h @ small.T, ids, mask)
    assert logprobs.dtype == torch.float32


def test_token_logprobs_refusals():
    hidden, weight, ids, mask = heads()
    with pytest.raises(ValueError, match="first token"):
        token_logprobs(hidden, lambda h: h @ weight.T, ids, torch.ones_like(mask))
    with pytest.raises(ValueError, match="temperature=0"):
        token_logprobs(hidden, lambda h: h @ weight.T, ids, mask, temperature=0.0)
    with pytest.raises(ValueError, match="must agree"):
        token_logprobs(hidden, lambda h: h @ weight.T, ids[:, :-1], mask)


# ---- properties -----------------------------------------------------------------------------------------------------


def random_inputs(seed: int, rows: int, length: int) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        return torch.randn(rows, length, generator=rng, dtype=F)

    old = draw() - 2.0
    mask = torch.rand(rows, length, generator=rng) < 0.5
    mask[0, 0] = True  # at least one token to learn from
    return {
        "logprobs": old + 0.3 * draw(),
        "old_logprobs": old,
        "advantages": draw(),
        "mask": mask,
        "entropy": draw().abs(),
        "ref_logprobs": old + 0.5 * draw(),
        "values": draw(),
        "old_values": draw(),
        "returns": draw(),
        "importance": draw().abs(),
    }


COEFFICIENTS: dict[str, Any] = {
    "entropy_coef": 0.01,
    "kl_coef": 0.1,
    "vf_clip": 0.2,
    "clip_high": 0.28,
    "dual_clip": 3.0,
}
inputs = st.builds(random_inputs, seed=st.integers(0, 10_000), rows=st.integers(1, 5), length=st.integers(1, 6))
modes = st.sampled_from(AGGREGATIONS)
quick = settings(max_examples=25, deadline=None)


def whole_loss(batch: dict[str, Any], mode, denominator: float | None = None) -> tuple[Tensor, dict, dict]:
    """Loss, gradients with respect to logprobs, values and entropy, and merged metrics."""
    denominator = float(loss_denominator(batch["mask"], mode, 10)) if denominator is None else denominator
    leaves = {name: batch[name].clone().requires_grad_() for name in ("logprobs", "values", "entropy")}
    loss, metrics = agent_loss(**(batch | leaves), denominator=denominator, aggregation=mode, **COEFFICIENTS)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.detach(), dict(zip(leaves, gradients, strict=True)), {"metrics": metrics}


@quick
@given(batch=inputs, mode=modes, cut=st.integers(0, 5))
def test_micro_batches_add_up_to_the_whole(batch, mode, cut):
    total = float(loss_denominator(batch["mask"], mode, 10))
    loss, gradients, more = whole_loss(batch, mode)
    pieces = [{k: v[part] for k, v in batch.items()} for part in (slice(0, cut), slice(cut, None))]
    pieces = [piece for piece in pieces if len(piece["mask"])]
    assert sum(float(loss_denominator(piece["mask"], mode, 10)) for piece in pieces) == total
    results = [whole_loss(piece, mode, total) for piece in pieces]
    torch.testing.assert_close(torch.stack([result[0] for result in results]).sum(), loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(torch.cat([result[1][name] for result in results]), gradient)
    merged = merge_metrics([result[2]["metrics"] for result in results])
    assert merged == pytest.approx(merge_metrics([more["metrics"]]))
    assert merged["loss"] == pytest.approx(loss.item())


@quick
@given(batch=inputs, mode=modes, rubbish=st.sampled_from([float("nan"), float("inf"), 1e4, -1e4]))
def test_tokens_off_the_mask_change_nothing_and_get_exactly_no_gradient(batch, mode, rubbish):
    loss, gradients, _ = whole_loss(batch, mode)
    mask = batch["mask"]
    dirty = {k: v if k == "mask" else torch.where(mask, v, rubbish) for k, v in batch.items()}
    again, dirty_gradients, more = whole_loss(dirty, mode)
    assert again.equal(loss)
    for name, gradient in dirty_gradients.items():
        assert gradient.equal(gradients[name])
        assert torch.count_nonzero(gradient[~mask]) == 0
    assert all(math.isfinite(number) for number in merge_metrics([more["metrics"]]).values())


@quick
@given(batch=inputs, mode=modes, seed=st.integers(0, 99))
def test_rows_may_come_in_any_order(batch, mode, seed):
    order = torch.randperm(len(batch["mask"]), generator=torch.Generator().manual_seed(seed))
    loss, gradients, _ = whole_loss(batch, mode)
    again, permuted, _ = whole_loss({k: v[order] for k, v in batch.items()}, mode)
    torch.testing.assert_close(again, loss)
    for name, gradient in permuted.items():
        torch.testing.assert_close(gradient, gradients[name][order])


@quick
@given(batch=inputs, mode=modes, extra=st.integers(1, 4))
def test_padding_changes_nothing(batch, mode, extra):
    padded = {
        k: torch.cat([v, torch.full((len(v), extra), False if k == "mask" else torch.nan, dtype=v.dtype)], 1)
        for k, v in batch.items()
    }
    loss, gradients, _ = whole_loss(batch, mode)
    again, wider, _ = whole_loss(padded, mode)
    torch.testing.assert_close(again, loss)
    for name, gradient in wider.items():
        torch.testing.assert_close(gradient[:, :-extra], gradients[name])
        assert torch.count_nonzero(gradient[:, -extra:]) == 0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_far_from_the_reference_no_estimator_pushes_further_away(estimator: Any) -> None:
    """k3 beyond its bound had the gradient of its linear term alone, +1: descent made the unlikely token unlikelier."""
    logprobs = torch.tensor([[-30.0, -22.0]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    found = kl_penalty(logprobs, torch.tensor([[-1.0, -1.0]]), mask, estimator)
    (gradient,) = torch.autograd.grad(found.sum(), logprobs)
    assert bool((gradient <= 0).all()) and bool(found.isfinite().all())
    above = torch.tensor([[-1.0]], requires_grad=True)  # the other way π_ref is left behind: pulled back as ever
    far = kl_penalty(above, torch.tensor([[-30.0]]), mask[:, :1], estimator)
    assert float(torch.autograd.grad(far.sum(), above)[0]) > 0
