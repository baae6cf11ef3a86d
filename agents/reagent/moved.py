"""Modules by the names that version 0.1 gave them (`rrm.moved`)."""

# fmt: off
ROOMS = {
    "reagent": "train.numbers>config_types",
    "reagent.env": "env.grading>gradability",
    "reagent.feedback": "feedback.potentials>potential_shaping feedback.refine>second_attempt_prompt",
    "reagent.lab": "lab.drills>pretraining_rows lab.wanderers>faulty_agents",
    "reagent.rollout": "rollout.row>active_episode train.batch>batch",
    "reagent.tasks": "env.registry>environments tasks.reading>source_rows",
    "reagent.train": "feedback.build>build_feedback train.ahead>rollout_prefetcher train.best>best_policy train.checks>monitor_conditions train.dynamic>dynamic_sampling train.falls>drop_detector train.padding>padding_estimate train.shape>memory_model train.stopping>signals train.watch>judge_monitor feedback.check>check_feedback",
}
# fmt: on
"""Package → its modules that were elsewhere."""
