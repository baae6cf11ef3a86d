"""A training before it is begun: counted on tensors without storage, against the same on real ones."""

from __future__ import annotations

import functools
import json
import random
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import configured, scripted
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reagent.algorithms.logprobs import token_logprobs
from reagent.rollout.batch import microbatches
from reagent.train import memory_model as shaping
from reagent.train.config import AgentConfig
from reagent.train.memory_model import Shape
from reagent.train.padding_estimate import normal_score, padded, spread_of
from reagent.train.plan import GLIBC_LOSS, LOGITS_COPIES, forward_flops, plan, plan_rows, speed_of
from reagent.train.policy import load_policy
from reagent.train.run import train
from rrm.engines.hf.engine import HFEngine, base_causal_lm
from rrm.errors import RRMError

LORA = {"r": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj"]}


def config_of(base: Path, **tree: Any) -> AgentConfig:
    policy = {"base": str(base), **tree.pop("policy", {})}
    rollout = {"max_episode_tokens": 64, "tasks_per_update": 2, "group_size": 2, **tree.pop("rollout", {})}
    optim = {"microbatch_tokens": 256, **tree.pop("optim", {})}
    return AgentConfig.model_validate({"cpu": True, "policy": policy, "rollout": rollout, "optim": optim, **tree})


@pytest.mark.parametrize(
    "policy", [{}, {"lora": LORA}, {"lora": LORA, "dtype": "bfloat16"}, {"gradient_checkpointing": True}]
)
def test_what_is_counted_without_storage_is_what_is_there(base, policy: dict[str, Any]) -> None:
    config = config_of(base, policy=policy)
    real, tokenizer = load_policy(config.policy, with_values=False)
    shape = Shape.of(config, "cpu")
    mine = [p for p in real.model.parameters() if p.requires_grad]
    assert shape.trained == sum(p.numel() for p in mine)
    assert shape.trained_bytes == sum(p.numel() * p.element_size() for p in mine)
    assert shape.weight_bytes == sum(p.numel() * p.element_size() for p in real.model.parameters())
    # by the same hooks, of a real forward: without storage a few copies are counted that real kernels need not make
    assert shape.kept == pytest.approx(shaping._saved(real.model, 4, 64), rel=0.12)
    if config.policy.gradient_checkpointing:
        base_causal_lm(real.model).gradient_checkpointing_disable()
        assert shape.kept_a_layer == pytest.approx(shaping._saved(real.model, 4, 64) / 2, rel=0.12)
        assert shape.kept < shape.kept_a_layer
    engine = HFEngine(real.model, tokenizer, exact_head=True)
    assert shape.kv_token_bytes * 64 == keys_and_values(engine, 64)


def keys_and_values(engine: HFEngine, tokens: int) -> int:
    """Bytes of a row's keys and values, as transformers itself keeps them."""
    with torch.no_grad():
        cache = engine.model(torch.zeros(1, tokens, dtype=torch.long), use_cache=True).past_key_values
    return sum(x.numel() * x.element_size() for layer in cache.layers for x in (layer.keys, layer.values))


def test_memory_stands_where_it_is_needed(base) -> None:
    weights = Shape.of(config_of(base), "cpu").weight_bytes
    whole = plan(config_of(base, loss={"kl_coef": 0.1})).memory
    assert (whole.weights, whole.gradients, whole.optimizer, whole.reference) == (
        weights, weights, 2 * weights, weights,
    )  # fmt: skip
    assert whole.update == whole.standing + whole.gradients + whole.activations + whole.logits
    adapter = plan(config_of(base, policy={"lora": LORA}, loss={"kl_coef": 0.1}, rollout={"max_lag": 1})).memory
    assert adapter.reference == 0 and 0 < adapter.copy == adapter.gradients < weights
    halves = plan(config_of(base, sharding="fsdp", loss={"kl_coef": 0.1}), processes=2).memory
    assert (halves.weights, halves.optimizer, halves.reference) == (weights // 2, weights, weights // 2)
    assert halves.copy == weights  # this process plays, with all of them
    # a tiny Llama of two layers: all of it is gathered once, with its gradients
    assert halves.gathered == 2 * weights and halves.activations == whole.activations
    # what goes to servers: whole float32 copies of what is divided, and all of it again in 16 bits
    remote = {"rollout": {"engine": "vllm:http://127.0.0.1:9"}}
    for tree, processes, bytes_sent in (
        ({}, 1, 0),
        ({"mixed_precision": "bf16"}, 1, weights // 2),
        ({"mixed_precision": "bf16", "sharding": "fsdp"}, 2, weights + weights // 2),
        ({"policy": {"lora": LORA}, "sharding": "fsdp"}, 2, adapter.gradients),
    ):
        sent = plan(config_of(base, **remote, **tree), processes=processes)
        assert sent.memory.sent == bytes_sent
        assert ("memory of the first process's host at a sync" in dict(plan_rows(sent))) == (bytes_sent > 0)
    assert halves.sent == whole.sent == 0
    elsewhere = config_of(base, sharding="fsdp", rollout={"engine": "vllm:http://127.0.0.1:9"})
    assert plan(elsewhere, processes=2).memory.copy == 0 == plan(elsewhere, processes=1).memory.gathered
    there = plan(config_of(base, policy={"lora": LORA}, rollout={"engine": "vllm:http://127.0.0.1:9"})).memory
    assert there.kv == 0 < adapter.kv


def test_freed_memory_that_malloc_cannot_use_is_counted_where_it_was_seen(base, monkeypatch) -> None:
    adapter, whole = config_of(base, policy={"lora": LORA}), config_of(base)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    lost = plan(adapter).memory
    assert lost.allocator == int(GLIBC_LOSS * lost.activations) > 0 == plan(whole).memory.allocator
    assert lost.update == lost.standing + lost.gradients + lost.activations + lost.logits + lost.allocator
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    assert plan(adapter).memory.allocator == 0


def test_the_masks_of_packs_are_counted(base) -> None:
    """(1, L, L) bool and one additive mask of the type that computes, where L is a micro-batch: rows of several groups may share a prompt."""
    rollout = {"group_size": 4, "max_episode_tokens": 96}

    def masks(tokens: int, **more: Any) -> int:
        config = config_of(base, rollout=rollout, optim={"microbatch_tokens": tokens, "share_prefixes": True}, **more)
        planned = plan(config)
        assert "memory: masks of shared prefixes" in dict(plan_rows(planned))
        assert planned.memory.update >= planned.memory.standing + planned.memory.activations + planned.memory.masks
        return planned.memory.masks

    assert masks(128) == 128 * 128 * (1 + 4)
    assert masks(1024) == 1024 * 1024 * (1 + 4)
    assert masks(128, mixed_precision="bf16") == 128 * 128 * (1 + 2)
    assert plan(config_of(base, rollout=rollout)).memory.masks == 0


def test_the_logits_of_a_chunk_are_counted_as_they_are_held() -> None:
    rows, vocabulary, hidden = 96, 4096, 8
    head, states = torch.nn.Linear(hidden, vocabulary, bias=False), torch.randn(1, rows + 1, hidden, requires_grad=True)
    head.weight.requires_grad_(False)
    ids = torch.zeros(1, rows + 1, dtype=torch.long)
    mask = torch.ones(1, rows + 1, dtype=torch.bool)
    mask[0, 0] = False
    with LiveBytes() as live:
        logprobs, _ = token_logprobs(states, head, ids, mask, temperature=0.7, entropy="value")
        forward, live.peak = live.peak, live.now
        logprobs.sum().backward()
    a_copy = rows * vocabulary * 4
    assert round(max(forward, live.peak) / a_copy) == LOGITS_COPIES


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operations made and that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return out

    def _gone(self, where: int, size: int) -> None:
        self._known.discard(where)
        self.now -= size


def test_flops_by_hand(base) -> None:
    """Six a parameter and token, four times head for the logits that are made again, and attention's."""
    config = config_of(base, algorithm="grpo", loss={"credit": "episode"})
    shape, work = Shape.of(config, "cpu"), plan(config).work
    head = shape.vocabulary * shape.hidden
    forward = 2 * ((shape.parameters - head) * 64 + head * 32) + 2 * 2 * 32 * 64**2
    assert (work.episodes, work.tokens, work.sampled, work.forwards) == (4, 256, 128, 0)
    assert work.flops == 4 * (3 * forward + 2 * head * 32)
    adapted = config_of(base, algorithm="grpo", loss={"credit": "episode"}, policy={"lora": LORA})
    own = Shape.of(adapted, "cpu").trained
    with_adapter = forward + 2 * own * 64
    # backward: the products through frozen weights and the adapter's, and the adapter's weights' gradients
    assert plan(adapted).work.flops == 4 * (2 * with_adapter + 2 * own * 64 + 2 * head * 32)
    twice = plan(config_of(base, algorithm="ppo", optim={"epochs": 2}))
    assert twice.work.forwards == 1 and twice.work.flops == 4 * (2 * (3 * forward + 2 * head * 32) + forward)


def test_time_is_that_of_a_measured_run(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", algorithm="grpo", max_updates=3)
    train(config, judge=scripted())
    same, speed = plan(config, like=tmp_path), speed_of(tmp_path, "cpu")
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()][1:]
    measured = [row["time/update_s"] for row in rows]
    assert same.seconds is not None and min(measured) <= same.seconds["update"] * 1.001 <= max(measured) * 1.002
    assert same.work.sampled == pytest.approx(speed.sampled * 8) and speed.tokens > speed.sampled
    busy = [row["time/rollout_busy_s"] for row in rows]
    assert min(busy) <= same.seconds["rollout"] * 1.001 <= max(busy) * 1.002
    assert speed.spread is not None and "% of the tokens learned from" in dict(plan_rows(same))["padding"]
    # a run that logged no longest episode has no padding that is known of
    short = [{k: v for k, v in row.items() if "longest" not in k} for row in (rows[0], *rows)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short))
    same, speed = plan(config, like=tmp_path), speed_of(tmp_path, "cpu")
    assert speed.spread is None and "not counted" in dict(plan_rows(same))["padding"] and same.seconds is not None
    # twice the episodes take twice as long to learn from; at play their tokens do, and not the steps that sample for all of them
    own = (
        same.work.episodes * forward_flops(config, Shape.of(config, "cpu"), speed.tokens, speed.sampled) / speed.update
    )
    config.rollout.tasks_per_update *= 2
    more = plan(config, like=tmp_path).seconds
    assert more is not None and more["update"] == pytest.approx(2 * same.seconds["update"])
    assert more["rollout"] == pytest.approx(same.seconds["rollout"] + own)
    # two processes share them, as far as they were measured on one
    assert speed.processes == 1 and plan(config, like=tmp_path, processes=2).seconds == pytest.approx(same.seconds)
    # second attempts are as many again, played after the first
    config.feedback.mode = "u"
    twice = plan(config, like=tmp_path)
    assert (twice.work.stages, twice.work.episodes) == (2, 4 * same.work.episodes) and twice.seconds is not None
    assert twice.seconds["update"] == pytest.approx(2 * more["update"])
    assert twice.seconds["rollout"] == pytest.approx(2 * more["rollout"])
    config.feedback.mode, config.rollout.tasks_per_update = "r", config.rollout.tasks_per_update // 2
    # updates that were filled took two draws: what is played at once took half of that, and is played up to four times
    filled = [{**row, "sampling/tasks": 2.0 * config.rollout.tasks_per_update} for row in (rows[0], *rows)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filled))
    config.rollout.dynamic_sampling = 3
    planned = plan(config, like=tmp_path)
    assert planned.seconds is not None and planned.seconds["rollout"] == pytest.approx(same.seconds["rollout"] / 2)
    assert planned.work.episodes == same.work.episodes and planned.work.draws == 4
    lines = dict(plan_rows(planned))
    assert "up to 4 times as many are played" in lines["an update"]
    assert "a draw, of at most 4" in lines["time of an update"]
    config.rollout.dynamic_sampling = 0
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in short))
    assert any(what == "time of an update" for what, _ in plan_rows(same))
    assert "at most" not in dict(plan_rows(same))["an update"]
    unmeasured = dict(plan_rows(plan(config)))
    assert unmeasured["time"].startswith("unknown without a measured run") and "--like" in unmeasured["time"]
    assert unmeasured["an update"].startswith(f"{plan(config).work.episodes} episodes, at most ")
    for peak in ("an update", "a rollout"):
        assert unmeasured[f"memory at the peak of {peak}"].startswith("some ")
    with pytest.raises(RRMError, match="no run of reagent train"):
        speed_of(tmp_path / "absent", "cpu")
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(RRMError, match="fewer than two updates"):
        speed_of(tmp_path, "cpu")


def test_padding_is_learned_from_by_the_run_and_by_what_is_planned(base, tmp_path) -> None:
    """Four rows in two minibatches are measured, twelve planned: lengths from the spread, FLOPs and memory from the lengths."""
    optim = {"minibatches": 2, "microbatch_tokens": 256}
    config = config_of(base, algorithm="grpo", max_updates=2, optim=optim, feedback={"mode": "retry"})
    (tmp_path / "config.yaml").write_text(json.dumps(config.model_dump(mode="json")))
    row = {
        "learned/rows": 8.0, "episode/tokens": 30.0, "episode/action_tokens": 10.0, "episode/longest_tokens": 31.0, "refined/tokens": 34.0,
        "refined/action_tokens": 10.0, "refined/longest_tokens": 40.0, "time/update_s": 2.0, "time/rollout_busy_s": 1.0,
        "time/rollout_tokens_per_s": 80.0,
    }  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text(2 * (json.dumps(row) + "\n"))
    shape, speed, z = Shape.of(config, "cpu"), speed_of(tmp_path, "cpu"), {4: 1.04916, 8: 1.43420, 6: 1.28155}
    # first attempts and second ones are learned from together: eight rows of 32 tokens, the longest 40
    spread = 8 / z[8]
    assert (speed.tokens, speed.spread) == (32.0, pytest.approx(spread, rel=1e-4))
    head = shape.vocabulary * shape.hidden

    def flops(rows: int, width: float, before: float) -> float:
        forward = forward_flops(config, shape, width, 10.0)
        return rows * (3 * forward + 2 * head * 10 + forward_flops(config, shape, before, 10.0))

    # two minibatches of four as wide as their longest; before that, six of 40 within 256 tokens, and the two shortest
    second = 32 + spread * normal_score(2, 8)
    assert speed.update == pytest.approx(flops(8, 32 + spread * z[4], (6 * 40 + 2 * second) / 8) / 2.0, rel=1e-4)
    config.feedback.mode, config.rollout.group_size = "none", 6
    planned = plan(config, like=tmp_path)
    assert planned.work.padded.learning == pytest.approx(12 * (32 + spread * z[6]), rel=1e-4)
    assert planned.seconds is not None and planned.seconds["update"] == planned.work.flops / speed.update
    share = 1 - 32 / (32 + spread * z[6])
    assert dict(plan_rows(planned))["padding"].startswith(
        f"{share:.0%} of the tokens learned from, the largest micro-batch some 256"
    )
    # rows fill a micro-batch of six; of one row a minibatch, it is that row's
    assert planned.memory.activations == shape.kept and shape.kept_tokens == 256
    config.rollout.group_size = config.rollout.tasks_per_update = 1
    small = plan(config, like=tmp_path)
    assert small.memory.activations == int(shape.kept * small.work.padded.widest / 256) < shape.kept / 5
    assert small.memory.logits == LOGITS_COPIES * int(small.work.padded.widest) * shape.vocabulary * 4
    assert plan(config).memory.activations == shape.kept


@pytest.fixture
def train_command(reagent, base, tmp_path):
    """Runs `reagent train` with a few tasks."""
    few = ["environment.train_tasks=4", "environment.eval_tasks=2", "environment.eval={hops: 1}"]
    return functools.partial(
        reagent, "train", f"policy.base={base}", f"output_dir={tmp_path / 'run'}", "cpu=true", *few
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["policy.base=./nowhere"], "model directory './nowhere' does not exist"),
        (["policy.base=nobody/nowhere"], "cannot load model 'nobody/nowhere': neither a directory nor"),
        (["policy.base={empty}"], "cannot load model '{empty}'"),
        (["policy.chat_template=qwen99"], "no chat template 'qwen99'"),
        (["environment.name=serch"], "no environment 'serch'"),
        (["environment.train={hopps: 1}"], "tasks of environment 'search'"),
        (["environment.train={path: {empty}/tasks.jsonl}"], "tasks.jsonl"),
        (["environment.label_share=0"], "none of the 4 training tasks has an answer"),
        (["environment.name=calculator", "environment.eval={}", "feedback.mode=r"], "reads runs of the search lab alone"),
        (["guards.success.action=stop"], "guards.success.action=stop can never stop anything"),
    ],
)  # fmt: skip
def test_a_plan_refuses_what_the_training_would_in_its_words(
    train_command, tmp_path, words: list[str], why: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    words, why = [word.replace("{empty}", str(empty)) for word in words], why.replace("{empty}", str(empty))
    planned, trained = train_command("--plan", *words), train_command(*words)
    assert planned == trained
    assert planned[0] == 2 and why in planned[2] and "Traceback" not in planned[2]
    assert not (tmp_path / "run").exists()


def test_a_plan_is_of_processes_that_can_share_the_work(train_command) -> None:
    two = ["--plan", "--processes", "2", "algorithm=grpo"]
    assert train_command(*two, "rollout.tasks_per_update=2")[0] == 0
    code, _, shown = train_command(*two, "rollout.tasks_per_update=3")
    assert code == 2 and "rollout.tasks_per_update=3 does not divide among 2 processes" in shown
    lag = ["rollout.tasks_per_update=2", "rollout.max_lag=1", "feedback.mode=c"]
    code, _, shown = train_command(*two, *lag)
    assert code == 2 and "rollout.max_lag=1 on several processes: feedback.mode=c" in shown


def test_a_plan_of_another_runs_folder_is_refused(train_command, base, tmp_path) -> None:
    train(configured(base, tmp_path / "run", "none", algorithm="grpo", max_updates=1))
    code, _, shown = train_command("--plan")
    assert code == 2 and str(tmp_path / "run") in "".join(shown.split())


def test_the_command_writes_nothing(train_command, tmp_path) -> None:
    code, out, shown = train_command("--plan")
    assert code == 0 and json.loads(out)["parameters"] > 0 and json.loads(out)["seconds"] is None
    assert "memory at the peak of an update" in shown and not (tmp_path / "run").exists()
    code, _, problem = train_command("--processes", "2")
    assert code and "--like and --processes are of --plan" in problem


def padding_config(budget: int = 16384, minibatches: int = 1, **tree: Any) -> AgentConfig:
    """One update of episodes of at most 640 tokens."""
    optim = {"microbatch_tokens": budget, "minibatches": minibatches}
    return AgentConfig.model_validate(
        {"cpu": True, "max_updates": 1, "rollout": {"max_episode_tokens": 640}, "optim": optim, **tree}
    )


def test_where_the_longest_of_n_is_expected() -> None:
    """Φ⁻¹ of 13/18, 21/26 and 9/10 from a table of the normal distribution."""
    assert normal_score(1, 1) == 0.0
    assert [normal_score(n, n) for n in (2, 3, 6)] == pytest.approx([0.58946, 0.86942, 1.28155], abs=1e-5)
    assert normal_score(2, 6) == pytest.approx(-normal_score(5, 6))
    # the exact expectation of the longer of two is 1/√π, of the longest of six 1.26721 (Harter 1961)
    assert [normal_score(n, n) for n in (2, 6)] == pytest.approx([0.56419, 1.26721], rel=0.05)


def test_the_spread_is_read_off_the_longest_row() -> None:
    assert spread_of(200.0, 200.0 + 60 * 1.28155, 6) == pytest.approx(60, abs=1e-3)
    assert spread_of(200.0, 200.0, 6) == 0.0
    assert spread_of(200.0, 200.0, 1) is None


def test_two_rows_are_as_wide_as_the_longer() -> None:
    padding = padded(padding_config(), 2, 200.0, 60.0)
    assert (padding.own, padding.forwards, padding.widest) == (400.0, padding.learning, pytest.approx(padding.learning))
    assert padding.learning == pytest.approx(2 * (200 + 60 * 0.58946), abs=1e-2)
    alone = padded(padding_config(minibatches=2), 2, 200.0, 60.0)  # each is learned from by itself
    assert alone.learning == 400.0 and alone.forwards == padding.forwards


def test_six_rows_in_two_minibatches_by_hand() -> None:
    padding = padded(padding_config(budget=600, minibatches=2), 6, 200.0, 60.0)
    # each minibatch: two of 252.17 (a third would make 756), and one of 200 − 52.17
    assert padding.learning == pytest.approx(2 * (2 * 252.165 + 147.835), abs=1e-2)
    # all six: 276.89 and 238.60 of the scores 1.28155 and 0.64335, then ±0.20189, then the two shortest
    assert padding.forwards == pytest.approx(2 * (276.893 + 212.113 + 161.399), abs=1e-2)
    assert padding.widest == 600  # three of the update's longest would be 831
    assert padded(padding_config(minibatches=2), 6, 200.0, 60.0).widest == pytest.approx(3 * 276.893, abs=1e-2)


def test_equal_lengths_have_no_padding() -> None:
    for rows in (1, 2, 7):
        padding = padded(padding_config(budget=600, minibatches=2), rows, 200.0, 0.0)
        assert padding.learning == padding.forwards == padding.own == rows * 200.0
    assert padding.widest == 600 and padded(padding_config(), 2, 200.0, 0.0).widest == 400


def test_lengths_of_unknown_spread_are_not_padded_and_may_fill_a_micro_batch() -> None:
    padding = padded(padding_config(budget=2560, minibatches=4), 1, 200.0, None)
    assert (padding.own, padding.learning, padding.forwards, padding.widest) == (200.0, 200.0, 200.0, 2560)
    assert padded(padding_config(budget=300), 4, 200.0, None).widest == 640  # a row longer than the budget stands alone


def test_no_row_is_longer_than_the_limit() -> None:
    padding = padded(padding_config(), 2, 630.0, 60.0)
    assert padding.learning == 2 * 640 and padding.widest == 2 * 640
    alone = padded(padding_config(budget=300), 2, 630.0, 60.0)
    assert alone.learning == alone.own == 2 * 630 and alone.widest == 640
    assert padded(padding_config(), 3, 700.0, None).own == 3 * 640


def test_the_widest_micro_batch_is_that_of_the_whole_training() -> None:
    widest = [padded(padding_config(max_updates=n), 6, 200.0, 60.0).widest for n in (1, 10, 10**6)]
    assert widest == pytest.approx(
        [6 * 276.893, 6 * (200 + 60 * normal_score(60, 60)), 6 * (200 + 60 * 5.03)], rel=2e-2
    )
    assert sorted(widest) == widest
    assert padded(padding_config(budget=1500, max_updates=10), 6, 200.0, 60.0).widest == 1500


@pytest.mark.parametrize(("rows", "minibatches", "budget"), [(4, 2, 4096), (12, 2, 2560), (64, 4, 2048)])
def test_as_drawn_and_dealt(rows: int, minibatches: int, budget: int) -> None:
    """The mean over updates whose lengths are drawn, dealt as a training deals them."""
    drawn, learning, forwards, widest, updates = random.Random(0), 0, 0, 0, 300
    for _ in range(updates):
        lengths = torch.tensor([round(drawn.gauss(200, 50)) for _ in range(rows)])

        def dealt(index: range, lengths: torch.Tensor = lengths) -> list[int]:
            return [len(group) * int(lengths[group].max()) for group in microbatches(lengths, index, budget)]

        learned = [dealt(range(part, rows, minibatches)) for part in range(minibatches)]
        learning += sum(map(sum, learned))
        forwards += sum(dealt(range(rows)))
        widest = max(widest, *map(max, learned))
    padding = padded(padding_config(budget, minibatches, max_updates=updates), rows, 200.0, 50.0)
    assert padding.learning == pytest.approx(learning / updates, rel=0.02)
    assert padding.forwards == pytest.approx(forwards / updates, rel=0.02)
    assert padding.widest == pytest.approx(widest, rel=0.06)
