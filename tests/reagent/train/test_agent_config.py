"""The agents' config: every number has bounds, and a value outside them is an error that names its key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from trainer_setup import settings

from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.gsm8k import GSM8K
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.prepare import check_continues
from rrm.config import config_names
from rrm.engines.hf.engine import HFEngine
from rrm.errors import ConfigError, RRMError
from rrm.train.run_folder import claim_folder

OUTSIDE = [
    "eval.sampled=-1",
    "rollout.engine.patience_s=-1",
    "rollout.group_size=0", "rollout.dynamic_sampling=-1", "rollout.tasks_per_update=0", "rollout.max_turns=0", "rollout.max_new_tokens=0",
    "rollout.max_episode_tokens=-1", "rollout.max_observation_tokens=-1", "rollout.temperature=-1", "rollout.temperature=0",
    "rollout.temperature=.nan", "rollout.temperature=.inf", "rollout.env_timeout_s=0", "rollout.engine.max_batch_tokens=0",
    "rollout.engine.timeout_s=0", "rollout.engine.max_gap=0", "max_updates=-3", "max_updates=0", "save_every=0",
    "sample_episodes=-1", "seed=-1", "seed=4294967296", "threads=0", "environment.train_tasks=0", "environment.eval_tasks=-2",
    "environment.label_share=1.5", "environment.failure_reward=.nan", "schedule_updates=0", "feedback.score_weight=-1",
    "environment.rewards.useful=.inf", "environment.rewards.useless=.nan", "environment.rewards.repeated=.nan",
    "environment.rewards.failed=.nan", "environment.rewards.malformed=.nan", "environment.rewards.max_useful=-1",
    "environment.rewards.max_malformed=-1", "environment.rewards.outcome=-1", "environment.rewards.unanswered=.nan",
    "feedback.process.good=-1", "feedback.process.bad=1", "optim.learning_rate=-1", "optim.learning_rate=.nan", "optim.value_learning_rate=-1",
    "optim.warmup_updates=-1", "optim.weight_decay=-0.1", "optim.betas=[0.9, 1.0]", "optim.betas=[-0.1, 0.9]",
    "optim.max_grad_norm=0", "optim.max_grad_norm=.nan", "optim.epochs=0", "optim.minibatches=0", "optim.microbatch_tokens=0",
    "loss.clip_low=1.1", "loss.clip_low=-0.1", "loss.clip_high=-1", "loss.dual_clip=1", "loss.importance_cap=0", "rollout.max_lag=2", "rollout.engine.max_start_gap=0", "rollout.max_lag=-1",
    "loss.target_kl=0", "rollout.overlong={max_tokens: 0, buffer_tokens: 1}",
    "loss.vf_coef=-1", "loss.vf_clip=0", "loss.entropy_coef=-1", "loss.kl_coef=.inf", "loss.gamma=1.01", "loss.gae_lambda=-0.1",
    "distil.tasks=0", "distil.samples=1", "distil.temperature=0", "distil.min_score=1.5", "distil.epochs=0",
    "distil.batch_episodes=0", "distil.learning_rate=-1", "warm_start.tasks=-1", "warm_start.epochs=0", "warm_start.batch_size=0",
    "warm_start.learning_rate=-1",
    "eval.every=-1", "eval.samples=0", "gate.tasks=0", "gate.samples=1", "eval.temperature=-1", "policy.lora={r: 0}", "policy.lora={alpha: 0}",
    "feedback.score_weight=.nan", "feedback.failure_reward=2", "feedback.max_failure_rate=-1", "feedback.aux.trace=-1",
    "feedback.aux.share=0", "feedback.process.good=.inf", "feedback.process.max_rewarded_steps=-1",
    "feedback.judge_options.timeout_s=0", "feedback.judge_options.concurrency=0", "feedback.judge_options.batch_tokens=0",
    "guards.success.drop=0", "guards.success.patience=0", "guards.drift.gap=-1", "guards.drift.patience=0", "guards.length.ratio=1",
    "guards.length.patience=0", "guards.out_of_domain.share=1", "guards.out_of_domain.share=-0.1", "guards.out_of_domain.patience=0",
    "guards.kl.max=0", "guards.kl.patience=0", "guards.auditor.share=1.1",
    "guards.auditor.fall=0", "guards.auditor.min_correlation=-2", "guards.auditor.patience=0",
]  # fmt: skip


@pytest.mark.parametrize("override", OUTSIDE)
def test_numbers_outside_their_bounds_are_errors_that_name_the_key(override: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_agent_config("lab", [override])
    key = override.partition("=")[0]
    assert str(refused.value).startswith("command line: " + key) and len(str(refused.value).splitlines()) <= 2


def test_a_benchmark_by_name_brings_its_own_limits() -> None:
    limits, rollout = GSM8K.limits, load_agent_config("task", ["environment.name=gsm8k", "rollout.max_turns=3"]).rollout
    assert (rollout.max_turns, rollout.max_new_tokens, rollout.max_episode_tokens) == (
        3,
        limits.new_tokens,
        limits.episode_tokens,
    )
    assert load_agent_config("task").rollout.max_new_tokens == 64


def test_the_shipped_configs_lie_within() -> None:
    for name in config_names("agents"):
        assert load_agent_config(name).max_updates >= 1
    for usual in ("optim.max_grad_norm=.inf", "optim.learning_rate=0", "loss.clip_high=2.5", "eval.temperature=0"):
        load_agent_config("lab", [usual])


def test_servers_that_load_what_they_are_told_are_started_for_this_machine_alone() -> None:
    """`vllm serve` listens on every address, and with these variables whoever reaches it puts weights into it."""
    root, started = Path(__file__).resolve().parents[3], []
    for path in [*(root / "configs").rglob("*.*"), *(root / "docs").glob("*.md")]:
        text = re.sub(r"\\\n#?", " ", path.read_text(encoding="utf-8")) if path.suffix != ".png" else ""
        for line in text.splitlines():
            if re.search(r"VLLM_(SERVER_DEV_MODE|ALLOW_RUNTIME_LORA_UPDATING)=1 .*serve ", line):
                started.append(path.name)
                assert " --host 127.0.0.1 " in line, f"{path}: {line}"
    assert {"qwen3-8b-full.yaml", "qwen3-8b.yaml", "agent.slurm", "engines.md"} <= {*started}


def _numbers(model: type[BaseModel], value: BaseModel, path: str = "") -> list[str]:
    """Keys of a config whose default is a number, section by section."""
    results: list[str] = []
    for name, field in model.model_fields.items():
        inner: Any = getattr(value, name)
        if isinstance(inner, BaseModel):
            results += _numbers(type(inner), inner, f"{path}{name}.")
            continue
        absent = inner is None and any(kind in str(field.annotation).split("Literal")[0] for kind in ("int", "float"))
        if absent or (isinstance(inner, int | float) and not isinstance(inner, bool)):
            results.append(path + name)
    return results


def test_no_number_is_without_bounds() -> None:
    """A number that is added later must say what it may be."""
    tried = {override.partition("=")[0] for override in OUTSIDE}
    numbers = set(_numbers(AgentConfig, AgentConfig()))
    # as feedback.judge_options
    numbers = {name for name in numbers if not name.startswith("guards.auditor.judge_options.")}
    free = {"feedback.critique_chars", "feedback.judge_options.max_new_tokens",
            "feedback.judge_options.max_transcript_tokens", "feedback.aux.critique"}  # fmt: skip
    assert numbers - tried <= free, numbers - tried - free


def test_engine_limits_reach_the_engine(base, tmp_path) -> None:
    from reagent.train.run import build

    trainer, _ = build(settings(base, tmp_path, rollout={"engine": {"max_batch_tokens": 2048}}))
    made = trainer.engine
    assert isinstance(made, HFEngine)
    assert made.max_batch_tokens == 2048 and made.kept_bytes == 2 << 30


@pytest.mark.parametrize(
    ("overrides", "usual"),
    [
        (["loss.policy=gspo"], "loss.clip_low=0.0003 loss.clip_high=0.0004"),
        (["loss.policy=cispo", "loss.clip_low=1"], "loss.clip_low=1 loss.clip_high=5"),
        (["loss.policy=gspo", "loss.clip_low=0.0003", "loss.clip_high=0.0004"], None),
        (["loss.policy=cispo", "loss.clip_low=1", "loss.clip_high=5"], None),
        ([], None),
    ],
)
def test_clips_of_another_policy_loss_are_warned_of(
    overrides: list[str], usual: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    load_agent_config("lab", overrides)
    warned = [r.getMessage() for r in caplog.records if "loss.clip_high" in r.getMessage()]
    assert len(warned) == bool(usual) and all(text.endswith(f"usual here are {usual}") for text in warned)


def test_another_environment_leaves_out_what_the_file_says_for_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    mine = load_agent_config(
        "lab", ["environment.name=my_env:GuessEnv", "environment.eval={path: t.jsonl}"]
    ).environment
    assert (mine.train, mine.eval, mine.train_tasks) == ({}, {"path": "t.jsonl"}, 4096)
    assert "left out what is meant for 'search': environment.train={'hops': [1, 2, 4]}" in caplog.text
    assert "environment.eval" not in caplog.text
    part = load_agent_config("lab", ["environment.train.seed=5", "environment.name=calculator"]).environment
    assert part.train == {"seed": 5} and part.eval == {}
    assert load_agent_config("lab", ["environment.name=search"]).environment.train == {"hops": [1, 2, 4]}


def test_a_rule_between_keys_is_said_without_the_whole_config() -> None:
    with pytest.raises(ConfigError) as refused:
        load_agent_config("lab", ["algorithm=grpo", "rollout.group_size=1"])
    assert str(refused.value) == (
        "command line: algorithm=grpo compares episodes of one task: set rollout.group_size ≥ 2"
    )


def test_the_engine_is_named_by_a_word_or_by_its_parts() -> None:
    config = AgentConfig.model_validate({"rollout": {"engine": "vllm:http://localhost:8000#base"}})
    assert config.rollout.engine.is_remote and config.rollout.engine.chosen == {}
    assert config.importance_cap == 2.0  # its numbers are not the training forward's
    off = AgentConfig.model_validate({"rollout": {"engine": "vllm:http://a"}, "loss": {"importance_cap": None}})
    assert off.importance_cap is None
    here = AgentConfig.model_validate({"rollout": {"engine": {"max_batch_tokens": 5}}})
    assert not here.rollout.engine.is_remote and here.rollout.engine.chosen == {"max_batch_tokens": 5}
    assert here.importance_cap is None
    assert AgentConfig.model_validate({"rollout": {"engine": "hf"}}) == AgentConfig()
    with pytest.raises(ValidationError, match="write vllm:URL#model"):
        AgentConfig.model_validate({"rollout": {"engine": "sglang"}})


def test_what_was_learned_is_the_default() -> None:
    config = AgentConfig()
    assert (config.rollout.temperature, config.loss.advantage_scale, config.loss.gae_lambda) == (0.8, "none", 0.95)
    assert (config.optim.warmup_updates, config.optim.learning_rate) == (5, 1e-4)
    for name in ("qwen3-0.6b", "qwen3-8b"):
        one = load_agent_config(name)
        assert one.policy.lora is not None and one.optim.learning_rate == 1e-4 and one.loss.advantage_scale == "none"
        assert one.rollout.temperature == 0.8 and one.environment.rewards == config.environment.rewards
    kept = load_agent_config("smollm2")  # its figures on record
    assert (kept.rollout.temperature, kept.optim.warmup_updates, kept.loss.advantage_scale) == (1.0, 0, "group")
    assert (kept.environment.rewards.repeated, kept.environment.rewards.max_malformed) == (-0.05, None)
    lab = load_agent_config("lab")
    assert (lab.rollout.temperature, lab.loss.advantage_scale, lab.loss.gae_lambda) == (0.7, "batch", 1.0)
    paid = {"useful": 0.05, "repeated": -0.05, "malformed": -0.1, "unanswered": 0.0, "max_malformed": None}
    assert lab.environment.rewards.model_dump().items() >= paid.items()


def test_the_papers_text_and_its_code_are_a_config_each() -> None:
    text, code = load_agent_config("paper"), load_agent_config("paper-code")
    assert text.feedback.mode == code.feedback.mode == "u"
    assert text.rollout.tasks_per_update == code.rollout.tasks_per_update == 32
    assert (text.feedback.aux.trace, text.feedback.aux.critique) == (0.05, 0.05)
    assert (code.feedback.aux.trace, code.feedback.aux.critique) == (0.0, 0.0)
    assert (code.rollout.temperature, code.loss.aggregation, code.optim.minibatches) == (0.7, "sequence-mean", 2)
    assert code.rollout.dynamic_sampling > 0 and not text.rollout.dynamic_sampling
    differ = {"name", "output_dir", "rollout", "optim", "loss", "feedback"}
    assert {name for name, value in text.model_dump().items() if code.model_dump()[name] != value} == differ


def test_16_bits_are_weighed_by_default() -> None:
    lora = {"r": 4, "alpha": 8, "target_modules": ["q_proj"], "dropout": 0.0}

    def cap(**tree: Any) -> float | None:
        return AgentConfig.model_validate(tree).importance_cap

    assert cap(policy={"dtype": "bfloat16", "lora": lora}) == 2.0 and cap(mixed_precision="bf16") == 2.0
    # trained whole: held in float32
    assert cap(policy={"lora": lora}) is None and cap(policy={"dtype": "bfloat16"}) is None
    assert cap(policy={"dtype": "bfloat16", "lora": lora}, loss={"importance_cap": None}) is None


def test_a_reward_that_is_named_reaches_the_environment_whatever_its_value() -> None:
    named = EnvironmentConfig.model_validate({"rewards": {"useful": 0.0}, "failure_reward": 0.0})
    assert named.made_with == {"rewards": named.rewards, "failure_reward": 0.0}
    assert EnvironmentConfig().made_with == {}


def test_a_run_of_version_0_1_may_keep_the_prompts_it_began_with(tmp_path: Path) -> None:
    """Where the template lists tools, `tool_prompt: auto` would have it go on with other ones."""
    begun = AgentConfig(output_dir=str(tmp_path))
    claim_folder(begun, tmp_path)
    as_begun = load_agent_config(str(tmp_path / "config.yaml"), ["environment.options.tool_prompt=schema"])
    check_continues(as_begun, [tmp_path])
    other = load_agent_config(str(tmp_path / "config.yaml"), ["environment.options.parser=react"])
    with pytest.raises(RRMError, match="a run with another environment"):
        check_continues(other, [tmp_path])
