"""TRL's GRPOTrainer with the judge as its reward. Needs `pip install 'agent-rrm[agents,train]'`.

    python examples/trl_judge.py                                          # the lab's policy and judge: two cores, no network
    python examples/trl_judge.py --model Qwen/Qwen3-0.6B --environment    # a policy that calls tools, in a judged environment

Without `--environment` the judge reads prompt and completion. With it each row is an episode with a calculator: the reward is what the
environment pays plus the judge's score of the episode, and no other reward stands beside it, so that a row whose judgement failed is left
out. The last line is JSON: updates, the mean score, the share of failed judgements.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

try:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from reagent.integrations.trl import ToolEnvironments
    from reagent.lab.shipped import judge_folder, lab_policy_folder
    from reagent.tasks.environments import make_factory, make_tasks
    from rrm import AgentRRM
    from rrm.integrations.trl import judged_environment, reward_func
    from rrm.integrations.trl_environment import JudgedEnvironments
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agents,train]'")

LAMBDA = 0.3
"""What the judge's score counts beside the environment's own reward."""


def judged_rows(judge: AgentRRM) -> tuple[list[dict[str, Any]], JudgedEnvironments]:
    """Episodes with a calculator: the data set's rows, and the environments that the judge pays in."""
    tasks = make_tasks("calculator", 64, seed=0, hops=2)
    environments = ToolEnvironments(make_factory("calculator", tool_prompt="template"), tasks)
    return environments.rows(), judged_environment(environments, judge, weight=LAMBDA)


def rows() -> list[dict[str, Any]]:
    """The same questions, to be answered at once."""
    env = make_factory("calculator")()
    return [{"prompt": env.reset(task)} for task in make_tasks("calculator", 64, seed=0, hops=2)]


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, and return what the last line says."""
    parser = argparse.ArgumentParser(description="TRL's GRPO with the judge as its reward.")
    parser.add_argument("--model", default=str(lab_policy_folder()), help="the policy, a folder or hub id")
    parser.add_argument("--judge", default=str(judge_folder()), help="as AgentRRM.from_pretrained takes it")
    parser.add_argument("--environment", action="store_true", help="play episodes with tools")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--output", default="runs/trl_judge")
    options = parser.parse_args(arguments)
    judge, judged = AgentRRM.from_pretrained(options.judge), None
    if options.environment:
        data, judged = judged_rows(judge)
        rewarded: dict[str, Any] = {"environment_factory": judged}
    else:
        data, rewarded = rows(), {"reward_funcs": reward_func(judge)}
    config = GRPOConfig(
        output_dir=options.output,
        max_steps=options.updates,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=256,
        learning_rate=1e-4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
    )
    trainer = GRPOTrainer(model=options.model, args=config, train_dataset=Dataset.from_list(data), **rewarded)
    trainer.train()
    if judged is not None:
        return {"updates": trainer.state.global_step, **judged.summary()}
    lines = [line for line in trainer.state.log_history if "agent_rrm/failed" in line]
    scores = [line["agent_rrm/score"] for line in lines if "agent_rrm/score" in line]
    failed = sum(line["agent_rrm/failed"] for line in lines) / len(lines)
    return {
        "updates": trainer.state.global_step,
        "score": sum(scores) / len(scores) if scores else None,
        "failed": failed,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()) + "\n")
