"""Makes `atif.json` with Harbor 0.25.0's own models (`harbor.models.trajectories`), which validate what they write.

`pip install harbor==0.25.0`, then `python tests/rrm/readers/samples/make_atif.py`. Made-up content: a run with two calls in one step, an
image, a step without a call, a step of the system's, and a subagent's trajectory inside.
"""

from __future__ import annotations

import json
from pathlib import Path

from harbor.models.trajectories import (
    Agent,
    ContentPart,
    FinalMetrics,
    ImageSource,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentTrajectoryRef,
    ToolCall,
    Trajectory,
)

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
IMAGE = ContentPart(type="image", source=ImageSource(media_type="image/png", path="images/pond.png"))


def main() -> None:
    helper = Trajectory(trajectory_id="helper-1", agent=Agent(name="counter", version="1"), steps=[
        Step(step_id=1, source="user", message="Count the herons."), Step(step_id=2, source="agent", message="Four."),
    ])  # fmt: skip
    looks = [
        ToolCall(tool_call_id="c1", function_name="look", arguments={"at": "pond"}),
        ToolCall(tool_call_id="c2", function_name="ask", arguments={"who": "counter"}, extra={"retries": 1}),
    ]
    seen = Observation(results=[
        ObservationResult(source_call_id="c1", content=[ContentPart(type="text", text="A pond."), IMAGE]),
        ObservationResult(
            source_call_id="c2", content="Four.",
            subagent_trajectory_ref=[SubagentTrajectoryRef(trajectory_id="helper-1")], extra={"sure": True},
        ),
    ])  # fmt: skip
    steps = [
        Step(step_id=1, source="system", message="You watch birds.", timestamp="2026-01-02T03:04:05Z"),
        Step(step_id=2, source="user", message=[ContentPart(type="text", text="How many herons are here?"), IMAGE]),
        Step(
            step_id=3, source="agent", timestamp="2026-01-02T03:04:06Z", model_name="small-model",
            reasoning_effort="low", message="I look, and ask.", reasoning_content="Two ways to know.", tool_calls=looks,
            observation=seen, metrics=Metrics(prompt_tokens=20, completion_tokens=9, cost_usd=0.001), llm_call_count=1,
            extra={"note": "both"},
        ),
        Step(
            step_id=4, source="system", message="The context was shortened.",
            observation=Observation(results=[ObservationResult(content="Two messages left.")]),
        ),
        Step(step_id=5, source="agent", message="Four herons.", is_copied_context=False),
    ]  # fmt: skip
    run = Trajectory(
        session_id="s-1", trajectory_id="t-1",
        agent=Agent(name="watcher", version="2.1", model_name="small-model", tool_definitions=[TOOL]), steps=steps,
        notes="A made-up run.", final_metrics=FinalMetrics(total_prompt_tokens=20, total_cost_usd=0.001, total_steps=5),
        extra={"reward": 1.0}, subagent_trajectories=[helper],
    )  # fmt: skip
    Path(__file__).with_name("atif.json").write_text(json.dumps(run.to_json_dict(), indent=1) + "\n")


if __name__ == "__main__":
    main()
