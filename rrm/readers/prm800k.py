"""`prm800k`: OpenAI's PRM800K, one labelled solution per line; a step of a solution is a message.

Ratings become findings of a human label (`meta["annotations"]`): 1 good, -1 bad; 0 (not wrong, and no progress) and flagged steps are
`unclear`, which counts as no verdict. The reference answer goes to meta. Other completions that were rated stay in `alternatives`.
Source: https://github.com/openai/prm800k.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.outcomes import RunOutcome

NAME = "prm800k"
MARKS = ("question.problem", "label.steps[].completions")
VERDICTS = {1: "good", 0: "unclear", -1: "bad"}
SOLVED = "solution"
"""The `finish_reason` of a solution that came to the right answer."""
Object = dict[str, Any]


def sniff(value: Any) -> bool:
    """A problem under `question`, and rated steps under `label`."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("question"), dict)
        and "problem" in value["question"]
        and isinstance(value.get("label"), dict)
        and isinstance(value["label"].get("steps"), list)
    )


def parse(item: SourceItem) -> Trajectory:
    """Read one solution: in phase 2 the model's whole one, though labels end at its first error."""
    record = item.value
    question = record.get("question") if isinstance(record, dict) else None
    label = record.get("label") if isinstance(record, dict) else None
    if not isinstance(question, dict) or not isinstance(question.get("problem"), str) or not isinstance(label, dict):
        raise ValueError("no `question.problem`, or no `label`")
    rated = label.get("steps")
    if not isinstance(rated, list) or not rated:
        raise ValueError("no step was labelled: `label.steps` is empty")
    planned = question.get("pre_generated_steps")
    planned = planned if isinstance(planned, list) and all(isinstance(s, str) for s in planned) else []
    steps = [_step(raw, number, planned) for number, raw in enumerate(rated, 1)]
    texts = [step["text"] for step in steps]
    if planned[: len(texts)] == texts:
        texts = planned
    by_hand = any(step["by_hand"] for step in steps)
    findings = [
        {"step": k, "verdict": s["verdict"]} for k, s in enumerate(steps, 1) if s["verdict"] and not s["by_hand"]
    ]
    annotator = f"labeler {record.get('labeler')}" if isinstance(record.get("labeler"), str) else NAME
    fields = {k: v for k, v in record.items() if k not in ("question", "label") and v is not None}
    fields |= {k: v for k, v in label.items() if k != "steps" and v is not None}
    about = {k: v for k, v in question.items() if k not in ("problem", "pre_generated_steps") and v is not None}
    answer = about.pop("ground_truth_answer", None)
    meta = fields | about | ({"reference": answer} if answer is not None else {})
    alternatives = [other for step in steps for other in step["others"]]
    meta |= {"alternatives": alternatives} if alternatives else {}
    meta |= {"written_by_hand": [k for k, s in enumerate(steps, 1) if s["by_hand"]]} if by_hand else {}
    if findings:
        meta["annotations"] = [{"findings": findings, "annotator": annotator, "kind": "human"}]
    solved = label.get("finish_reason") == SOLVED and not by_hand
    task, outcome = question["problem"], RunOutcome(1.0, "label.finish_reason") if solved else None
    messages = [{"role": "user", "content": task}, *({"role": "assistant", "content": t} for t in texts)]
    return make(item, NAME, messages, meta=meta, id=own_id(record), task=task, outcome=outcome)


def _step(raw: Any, number: int, planned: list[str]) -> Object:
    """Return the solution's step: its text, verdict, and the other rated completions."""
    where = f"label.steps[{number - 1}]"
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object, got {type(raw).__name__}")
    listed = raw.get("completions")
    options = (
        [o for o in listed if isinstance(o, dict) and isinstance(o.get("text"), str)]
        if isinstance(listed, list)
        else []
    )
    chosen, written = raw.get("chosen_completion"), raw.get("human_completion")
    selected: Object | None = None
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        if not 0 <= chosen < len(options):
            raise ValueError(f"{where}: chosen_completion is {chosen}, and there are {len(options)} completions")
        selected = options[chosen]
    elif isinstance(written, dict) and isinstance(written.get("text"), str):
        others = [_other(number, option) for option in options]
        return {"text": written["text"], "verdict": None, "by_hand": True, "others": others}
    elif options:  # none was good enough to go on from: the model's own is the pre-generated one, else the first
        own = planned[number - 1] if number <= len(planned) else None
        selected = next((option for option in options if option["text"] == own), options[0])
    if selected is None:
        raise ValueError(f"{where} has no completion with a text")
    others = [_other(number, option) for option in options if option is not selected]
    return {"text": selected["text"], "verdict": _verdict(selected, where), "by_hand": False, "others": others}


def _verdict(option: Object, where: str) -> str | None:
    rating = option.get("rating")
    if rating is None:
        return None
    if isinstance(rating, bool) or not isinstance(rating, int | float) or rating not in VERDICTS:
        raise ValueError(f"{where}: rating {str(rating)[:40]!r} is none of -1, 0, 1")
    return "unclear" if option.get("flagged") is True else VERDICTS[int(rating)]


def _other(number: int, option: Object) -> Object:
    return {"step": number, **{k: v for k, v in option.items() if v is not None}}
