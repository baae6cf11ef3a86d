"""`rules`: programmatic checks on each step of any Trajectory, and the neutral trace line of what a step did.

No model, no label is used: neither outcome nor reference is read, so these annotations never leak them. A check speaks
only of what is on the page (a repeated call, an ignored error); it cannot tell whether a query was a good idea.

Score. 1.0 less 0.2 for each step with a minor fault (repeat, unused result, talk without action) and 0.3 for each step
with a major one (ignored error, malformed call, empty or degenerate message), not below 0.1; at most 0.4 when the final
answer occurs in nothing that came back, at most 0.2 when the run gives up or ends without an answer. On the grid 0.1.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rrm.annotation import Annotation, Finding
from rrm.annotators.actions import (
    Action,
    actions_of,
    error_of,
    final_answer,
    is_transient,
    observation_text,
    stated_answer,
)
from rrm.feedback import format_findings
from rrm.text import YES_NO, contains_phrase, content_words, normalise
from rrm.trajectory import Step, Trajectory

MAJOR = frozenset({"ignored_error", "malformed", "empty", "degenerate"})
MINOR = frozenset({"repeat", "unused", "no_action"})
_GAVE_UP = re.compile(
    r"\b(?:I (?:can ?not|can't|could not|couldn't|am unable to|was unable to|do not|don't) (?:\w+ )?(?:find|determine|answer|know|solve|"
    r"provide)|unable to (?:find|determine|answer)|not enough information|give up)\b",
    re.IGNORECASE,
)
_CALLED = re.compile(r"\b(\w*search\w*|\w*lookup\w*|\w*wiki\w*)\s*\(", re.IGNORECASE)
_PRINT_ONLY = re.compile(r"""(?:\s*print\s*\(\s*f?(?:"[^"{]*"|'[^'{]*')\s*\)\s*;?\s*)+""")
_NUMBER = re.compile(r"(?:Out\[\d+\]:\s*)?[-+]?[\d.,]+(?:e[-+]?\d+)?%?", re.IGNORECASE)
_NO_RESULT = re.compile(
    r"no (?:good )?(?:results?|matches|page|documents?)\b|not found|could not find|nothing happens", re.IGNORECASE
)
_READABLE = frozenset({"gets a number", "gets a result", "gets text"})


# ---- the trace: what each step did, neutrally ------------------------------------------------------------------------


def _describe_action(action: Action) -> str:
    if action.malformed and action.kind == "call":
        return f"malformed call of {action.name[:30]}"
    if action.kind == "call":
        return f"calls {action.name[:30]}"
    if action.kind == "answer":
        return "proposes an answer"
    called = list(dict.fromkeys(_CALLED.findall(action.text)))
    if called:
        return f"calls {called[0][:30]}"
    if not action.text:
        return "runs empty code"
    return "prints text only" if _PRINT_ONLY.fullmatch(action.text) else "runs code"


def _describe_observation(observation: str) -> str:
    error = error_of(observation)
    if error:
        return error if error in ("error", "not understood") else f"error {error[:30]}"
    if "your answer is wrong" in observation.lower():
        return "told it is wrong"
    if not observation or "No Output" in observation:
        return "no output"
    if _NUMBER.fullmatch(observation.strip()):
        return "gets a number"
    if observation.strip() in ("[]", "{}", "None", "set()", "Out: []") or (
        len(observation) < 200 and _NO_RESULT.search(observation)
    ):
        return "no result"
    return "gets a result" if len(observation.split()) <= 12 else "gets text"


def _answer_origin(answer: str, earlier: Sequence[Step]) -> str:
    """Where the answer was seen before: ` seen in step j`, ` not seen before`, or nothing for yes/no and long answers."""
    phrase = normalise(answer)
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return ""
    for step in reversed(earlier):
        if contains_phrase(normalise(observation_text(step)), phrase):
            return f" seen in step {step.index}"
    return " not seen before"


def _keys(step: Step) -> tuple[tuple[str, str, str], ...]:
    """What the step called and ran; equal for two steps that do the same."""
    return tuple(a.key for a in actions_of(step) if a.kind != "answer")


def repeated_step(step: Step, earlier: Sequence[Step]) -> Step | None:
    """The latest earlier step that made the very same calls or ran the same code, or None."""
    keys = _keys(step)
    return next((other for other in reversed(earlier) if _keys(other) == keys), None) if keys else None


def _answered_by_user(step: Step) -> bool:
    return bool(step.observations) and all(m.role == "user" for m in step.observations)


def describe_step(step: Step, earlier: Sequence[Step] = ()) -> str:
    """At most about 12 words on what the step did and what came back, without judging it.

    `earlier` are the steps before it, for "repeats step j" and "an answer seen in step j".
    """
    return _described(step, earlier, repeated_step(step, earlier))


def _described(step: Step, earlier: Sequence[Step], repeated: Step | None) -> str:
    text = step.message.text().strip()
    actions = actions_of(step)
    if repeated:
        did = f"repeats step {repeated.index}"
    elif actions:
        did = " and ".join(dict.fromkeys(_describe_action(a) for a in actions[:3] if a.kind != "answer"))
    elif not text:
        did = "empty message"
    elif is_degenerate(text):
        did = "repeats the same text"
    elif _answered_by_user(step):
        return "speaks to the user; the user replies"
    else:
        stated = stated_answer(text)
        did = f"states an answer{_answer_origin(stated, earlier)}" if stated else "writes text, no action"
    answers = [a for a in actions if a.kind == "answer"]
    if answers:
        did = f"{did} and " if did else ""
        did += f"proposes an answer{_answer_origin(answers[-1].text, earlier)}"
    return f"{did}; {_describe_observation(observation_text(step))}" if step.observations else did


def step_lines(steps: Sequence[Step]) -> list[str]:
    """`describe_step` of each step of a run, in time that grows with the run's length and not its square."""
    latest: dict[tuple[tuple[str, str, str], ...], Step] = {}
    lines = []
    for i, step in enumerate(steps):
        keys = _keys(step)
        lines.append(_described(step, steps[:i], latest.get(keys)))
        if keys:
            latest[keys] = step
    return lines


def rules_trace(trajectory: Trajectory) -> str:
    """One line `[step k] what it did; what came back` for every step."""
    lines = step_lines(trajectory.steps)
    return "\n".join(f"[step {k}] {line}" for k, line in enumerate(lines, start=1))


# ---- the checks ------------------------------------------------------------------------------------------------------


def is_degenerate(text: str) -> bool:
    """Whether a text mostly repeats itself: some six words occur at least five times, or it packs to under 6 %."""
    words = text.split()
    if len(words) >= 40:
        _, count = Counter(tuple(words[i : i + 6]) for i in range(len(words) - 5)).most_common(1)[0]
        if count >= 5 and count * 6 >= len(words) // 3:
            return True
    data = text.encode("utf-8", "surrogatepass")
    return len(data) >= 1000 and len(zlib.compress(data)) < 0.06 * len(data)


def _check_action(step: Step, earlier: Sequence[Step], is_last: bool) -> tuple[str, str] | None:
    """The fault in what the step did, as (code, text), or None."""
    text, actions = step.message.text().strip(), actions_of(step)
    if not text and not actions:
        return "empty", "the message is empty; take an action or answer"
    if is_degenerate(text):
        return "degenerate", "repeats the same text over and over; stop and act"
    if any(a.malformed and a.kind == "call" for a in actions):
        return "malformed", "the call's arguments are malformed; write valid arguments"
    repeated = repeated_step(step, earlier)
    if repeated:
        seen = observation_text(repeated)
        if error_of(seen) is None:
            return "repeat", f"repeats the call of step {repeated.index} and learns nothing new; try another one"
        tries = sum(repeated_step(s, [repeated]) is not None for s in earlier)
        if not is_transient(seen) or tries > 1:
            return "ignored_error", f"ignores the error and repeats step {repeated.index}; fix the cause first"
    if error_of(observation_text(step)) == "not understood":
        return "malformed", "no action that the environment understands; use the required format"
    if not actions and not is_last and not stated_answer(text) and not _answered_by_user(step):
        return "no_action", "takes no action; call a tool or answer"
    return None


def _check_result(step: Step, later: Sequence[Step], task_words: set[str]) -> bool | None:
    """Whether a later message uses a content word that this step's result brought, or answers with something in it.

    None where nothing can be said: no result, an error, no later step.
    """
    observation = observation_text(step)
    if not later or not actions_of(step) or _describe_observation(observation) not in _READABLE or _shows(step):
        return None
    own = content_words(step.message.text()) | {w for a in actions_of(step) for w in content_words(a.text)}
    brought = content_words(observation) - own - task_words
    answers = [normalise(a.text) for s in later for a in actions_of(s) if a.kind == "answer"]
    if any(contains_phrase(normalise(observation), answer) for answer in answers):
        return True
    if not brought:
        return None
    said = " ".join(s.message.text() + " " + " ".join(a.text for a in actions_of(s)) for s in later)
    return bool(brought & content_words(said))


def _shows(step: Step) -> bool:
    """Whether the result is more than text (an image): what it brought cannot be read here."""
    parts = [part for m in step.observations if isinstance(m.content, list) for part in m.content]
    return any(not isinstance(part, dict) or part.get("type", "text") != "text" for part in parts)


def _put_together(answer: str, seen: Sequence[str]) -> bool:
    """Whether a sentence of an answer has figures, and each of them came back somewhere ("20C versus 3C" of two results)."""
    words = answer.split()
    figures = [word for word in words if any(c.isdigit() for c in word)]
    return len(words) > 3 and bool(figures) and all(any(contains_phrase(text, f) for text in seen) for f in figures)


def _check_ending(trajectory: Trajectory) -> tuple[str, Finding] | None:
    """The fault in how the run ends: gave up, no answer, or an answer that nothing supports."""
    steps = trajectory.steps
    last = steps[-1]
    answer = final_answer(trajectory)
    if _GAVE_UP.search(last.message.text()) and (answer is None or answer[0] == last.index):
        return "gave_up", Finding(step=last.index, verdict="bad", text="gives up; keep looking with another query")
    if answer is None:
        # a conversation with a user is done when the user is, it needs no final answer
        conversation = any(_answered_by_user(step) for step in steps)
        text = "ends without an answer; answer from what was found"
        return None if conversation else ("no_answer", Finding(step=last.index, verdict="bad", text=text))
    phrase = normalise(answer[1])
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return None
    seen = [normalise(observation_text(s)) for s in steps[: answer[0] - 1]]
    if (not seen and not trajectory.tools) or any(map(_shows, steps[: answer[0] - 1])):
        return None
    if not any(contains_phrase(text, phrase) for text in seen) and not _put_together(phrase, seen):
        text = "the answer occurs in no result; check it with a tool first"
        return "unsupported", Finding(step=answer[0], verdict="bad", text=text)
    return None


def check_steps(trajectory: Trajectory) -> tuple[list[Finding], Counter[str]]:
    """Findings in step order, and how many steps have each kind of fault.

    A step without a fault is called good where a later message uses what it brought.
    """
    steps, findings, faults = trajectory.steps, [], Counter[str]()
    task_words = content_words(trajectory.task or " ".join(m.text() for m in trajectory.prelude))
    if not steps:
        return [], faults
    ending = _check_ending(trajectory)
    if ending:
        faults[ending[0]] += 1
    for i, step in enumerate(steps):
        if ending and ending[1].step == step.index:
            findings.append(ending[1])
            continue
        fault = _check_action(step, steps[:i], is_last=i == len(steps) - 1)
        used = None if fault else _check_result(step, steps[i + 1 :], task_words)
        if used is False:
            fault = ("unused", "nothing in the result is used later; read it before the next step")
        if fault:
            faults[fault[0]] += 1
            findings.append(Finding(step=step.index, verdict="bad", text=fault[1]))
        elif used:
            findings.append(Finding(step=step.index, verdict="good", text="its result is used later"))
    return findings, faults


def rules_score(faults: Counter[str]) -> float:
    """The score of the module's docstring, from the number of steps with each kind of fault."""
    minor, major = (sum(faults[f] for f in group) for group in (MINOR, MAJOR))
    score = max(0.1, 1.0 - 0.2 * minor - 0.3 * major)
    if faults["unsupported"]:
        score = min(score, 0.4)
    if faults["gave_up"] or faults["no_answer"]:
        score = min(score, 0.2)
    return round(score, 1)


def annotate(trajectories: Iterable[Trajectory], *, counts: Counter[str] | None = None) -> Iterator[Annotation]:
    """One annotation a trajectory: findings, critique, trace and the rules' process score.

    Args:
        counts: gains `without_steps`: runs in which the agent never spoke, of which there is nothing to say.
    """
    counts = Counter() if counts is None else counts
    for trajectory in trajectories:
        if not trajectory.steps:
            counts["without_steps"] += 1
            continue
        findings, faults = check_steps(trajectory)
        yield Annotation(
            trajectory_id=trajectory.own_id,
            digest=trajectory.digest,
            score=rules_score(faults),
            trace=rules_trace(trajectory) or None,
            critique=format_findings(findings) or None,
            findings=findings,
            annotator="rules",
            kind="rules",
        )
