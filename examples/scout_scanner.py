"""Inspect Scout: the judge as a scanner of logs, with links to steps.

    pip install inspect-scout 'agent-rrm[local]'
    python examples/scout_scanner.py LOGS

LOGS is a folder of Inspect's logs. The last line is JSON: the score of each transcript.
"""

from __future__ import annotations

import asyncio
import json
import sys

try:
    from inspect_scout import Reference, Result, Scanner, Transcript, scan, scan_results_df, scanner, transcripts_from
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install inspect-scout 'agent-rrm[local]'")

from rrm.data.feedback import Mode
from rrm.integrations.inspect_sample import explanation, references, trajectory_of
from rrm.integrations.loading import asker


@scanner(messages="all", events=["model", "tool"], name="agent_rrm")
def agent_rrm(judge: str | None = None, mode: Mode | None = None) -> Scanner[Transcript]:
    """The judge's score in [0, 1] as the value (None: failed), its critique as the explanation."""

    async def scan_one(transcript: Transcript) -> Result:
        queue = await asyncio.to_thread(asker, judge, mode=mode)
        name = transcript.task_id or transcript.transcript_id
        about = {"task": transcript.task_set, "model": transcript.model, "eval_id": transcript.source_id}
        run = trajectory_of(name, transcript.messages, transcript.events, about, id=name)
        (feedback,) = await queue.ask_async([run])
        links = [Reference(**link) for link in references(run, feedback)]  # pyright: ignore
        return Result(value=feedback.score, explanation=explanation(feedback), references=links)

    return scan_one


if __name__ == "__main__":
    status = scan(scanners=[agent_rrm("lab", "full")], transcripts=transcripts_from(sys.argv[1]), max_processes=1)
    frame = scan_results_df(status.location).scanners["agent_rrm"]
    print(json.dumps({"scores": [float(value) for value in frame["value"]]}))
