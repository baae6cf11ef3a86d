"""verifiers (v1): a task whose rollouts the judge scores, as a plugin of its config. Needs `pip install 'agent-rrm[verifiers,local]'`.

    python examples/verifiers_judge.py

The plugin is the module of that name: this file is one, for it exports the judge. The rollout is replayed here; with a model it is
`vf.Agent`'s. The last line is JSON: the reward and what the judge said.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

try:
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import AssistantMessage, UserMessage

    from rrm.integrations.verifiers_judge import AgentRRMJudge
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[verifiers,local]'")

__all__ = ["AgentRRMJudge"]


class Arithmetic(vf.Task):
    """A task without rewards of its own."""


def main() -> None:
    """Score one rollout."""
    sys.path.insert(0, str(Path(__file__).parent))  # where verifiers looks for the plugin
    config = vf.TaskConfig.model_validate({"judges": [{"id": "verifiers-judge", "name": "process", "judge": "lab"}]})
    data = vf.TaskData(idx=0, prompt="What is 6 * 7?")
    said = [UserMessage(content="What is 6 * 7?"), AssistantMessage(content="6 * 7 is 42. Final Answer: 42")]
    nodes = [MessageNode(message=m, parent=n - 1 if n else None, sampled=n > 0) for n, m in enumerate(said)]
    trace = vf.Trace.model_validate(
        {"task": {"type": "Arithmetic", "data": data}, "agent": {"config": {}}, "nodes": nodes}
    )
    asyncio.run(Arithmetic(data, config).score(trace))
    reward = trace.rewards["process"]
    print(json.dumps({"score": reward.value if reward else None, **trace.info["agent_rrm"]}))


if __name__ == "__main__":
    main()
