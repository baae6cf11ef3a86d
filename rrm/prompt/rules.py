"""`rules`: programmatic checks on each step of a Trajectory, and a neutral trace line of what it did.

Neither a model nor a label, outcome or reference is used, so these annotations never leak them. A check sees only what is in the
log (a repeated call, an ignored error); it cannot tell if a query was a good idea.

Score. 1.0 less 0.2 for each step with a minor fault (repeat, unused result, talk without action) and 0.3 for each step
with a major one (ignored error, malformed call, empty or degenerate message, a result made up), not below 0.1; a loop counts once;
at most 0.4 when the final answer occurs in no result, at most 0.2 when the run gives up or ends without an answer. On the grid 0.1.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import format_findings
from rrm.data.text import YES_NO, PhraseText, content_words, normalise, whole_words
from rrm.data.trajectory import Step, Trajectory
from rrm.prompt.actions import (
    Action,
    actions_of,
    changes_state,
    final_answer,
    makes_up_result,
    observation_text,
    only_reads,
)
from rrm.prompt.answers import stated_answer
from rrm.prompt.failures import error_of, is_transient, told_by_environment
from rrm.prompt.proven import call_is_wrong, changes_by_itself
from rrm.prompt.rendering import answers

# Of the checks: labels of another version are not mixed into one file.
# 2: failures as shells and servers report them, more forms of an answer (`rrm.prompt.failures`, `rrm.prompt.answers`).
# 3: a person's words are no tool's failure; a result that its log calls an error is one; each call of a list counts; an empty
# answer is an action, and answers nothing.
# 4: a repeated call whose result differs, or that follows a change, is no repeat; a loop is one finding; figures that came back
# support an answer of any length; a made-up result is a mistake.
VERSION = 4
MAJOR = frozenset({"ignored_error", "malformed", "empty", "degenerate", "invented"})
MINOR = frozenset({"repeat", "unused", "no_action"})
_GAVE_UP = re.compile(
    r"\b(?:I (?:can ?not|can't|could not|couldn't|am unable to|was unable to|do not|don't) (?:\w+ )?(?:find|determine|answer|know|solve|"
    r"provide)|unable to (?:find|determine|answer)|not enough information|give up)\b",
    re.IGNORECASE,
)
_CALLED = re.compile(r"\b(?=\w{0,64}?(?:search|lookup|wiki))(\w++)\s*+\(", re.IGNORECASE)
_PRINT_ONLY = re.compile(r"""(?:\s*+print\s*+\(\s*+f?+(?:"[^"{]*+"|'[^'{]*+')\s*+\)\s*+(?:;\s*+)?+)++""")
_NUMBER = re.compile(r"(?:Out\[\d+\]:\s*)?[-+]?[\d.,]+(?:e[-+]?\d+)?%?", re.IGNORECASE)
_NO_RESULT = re.compile(
    r"no (?:good )?(?:results?|matches|page|documents?)\b|not found|could not find|nothing happens", re.IGNORECASE
)
_READABLE = frozenset({"gets a number", "gets a result", "gets text"})


class _StepFacts:
    """A step and what the checks derive from it, each computed once."""

    def __init__(self, step: Step) -> None:
        self.step = step

    @cached_property
    def actions(self) -> list[Action]:
        return actions_of(self.step)

    @cached_property
    def keys(self) -> tuple[tuple[str, str, str], ...]:
        # equal for two steps that do the same
        return tuple(a.key for a in self.actions if a.kind != "answer")

    @cached_property
    def changes(self) -> bool:
        return any(changes_state(action) for action in self.actions)

    @cached_property
    def text(self) -> str:
        return self.step.message.text().strip()

    @cached_property
    def observation(self) -> str:
        return observation_text(self.step)

    @cached_property
    def error(self) -> str | None:
        """The failure that came back (`error_of`, or the log's own flag); a person's reply is none."""
        if not self.actions and _answered_by_user(self.step):
            return None
        flagged = any((m.model_extra or {}).get("is_error") is True for m in self.step.observations)
        return error_of(self.observation) or ("error" if flagged else None)

    @cached_property
    def phrases(self) -> PhraseText:
        return PhraseText(normalise(self.observation))

    @cached_property
    def words(self) -> set[str]:
        return content_words(" ".join([self.step.message.text(), *(a.text for a in self.actions)]))


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


def _describe_observation(facts: _StepFacts) -> str:
    observation, error = facts.observation, facts.error
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


class _Earlier:
    def __init__(self) -> None:
        self._steps: list[_StepFacts] = []
        self._with: dict[str, list[int]] = {}  # word → indices in `_steps` of the steps whose result has it
        self._indexed = 0

    def add(self, facts: _StepFacts) -> None:
        self._steps.append(facts)

    def latest_with(self, phrase: str) -> _StepFacts | None:
        """The latest step whose result has a normalised phrase, or None."""
        for index in range(self._indexed, len(self._steps)):
            for word in self._steps[index].phrases.words:
                self._with.setdefault(word, []).append(index)
        self._indexed = len(self._steps)
        words = whole_words(phrase)
        places = min((self._with.get(word, []) for word in words), key=len) if words else range(len(self._steps))
        return next(
            (self._steps[index] for index in reversed(places) if self._steps[index].phrases.contains(phrase)), None
        )


def _answer_origin(answer: str, earlier: _Earlier) -> str:
    """The answer's source: ` seen in step j`, ` not seen before`, or nothing for yes/no and long answers."""
    phrase = normalise(answer)
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return ""
    facts = earlier.latest_with(phrase)
    return " not seen before" if facts is None else f" seen in step {facts.step.index}"


def _answered_by_user(step: Step) -> bool:
    """Tell a person's reply from an environment's (`error: write …`)."""
    replies = step.observations
    return bool(replies) and all(m.role == "user" for m in replies) and not told_by_environment(observation_text(step))


def _described(facts: _StepFacts, earlier: _Earlier, repeated: _StepFacts | None) -> str:
    text, actions = facts.text, facts.actions
    if repeated:
        did = f"repeats step {repeated.step.index}"
    elif actions:
        did = " and ".join(dict.fromkeys(_describe_action(a) for a in actions[:3] if a.kind != "answer"))
    elif not text:
        did = "empty message"
    elif is_degenerate(text):
        did = "repeats the same text"
    elif _answered_by_user(facts.step):
        return "speaks to the user; the user replies"
    else:
        stated = stated_answer(text)
        did = f"states an answer{_answer_origin(stated, earlier)}" if stated else "writes text, no action"
    answers = [a for a in actions if a.kind == "answer"]
    if answers:
        did = f"{did} and " if did else ""
        did += f"proposes an answer{_answer_origin(answers[-1].text, earlier)}"
    return f"{did}; {_describe_observation(facts)}" if facts.step.observations else did


def step_lines(steps: Sequence[Step]) -> list[str]:
    """Describe each step in about 12 words, what it did and what came back, without judging it."""
    latest: dict[tuple[tuple[str, str, str], ...], _StepFacts] = {}
    earlier = _Earlier()
    lines = []
    for facts in map(_StepFacts, steps):
        lines.append(_described(facts, earlier, latest.get(facts.keys)))
        if facts.keys:
            latest[facts.keys] = facts
        earlier.add(facts)
    return lines


def rules_trace(trajectory: Trajectory) -> str:
    lines = step_lines(trajectory.steps)
    return "\n".join(f"[step {k}] {line}" for k, line in enumerate(lines, start=1))


# ---- the checks ------------------------------------------------------------------------------------------------------


def is_degenerate(text: str) -> bool:
    """Detect a text that repeats itself: some six words at least five times, or it packs to under 6 %."""
    words = text.split()
    if len(words) >= 40:
        _, count = Counter(tuple(words[i : i + 6]) for i in range(len(words) - 5)).most_common(1)[0]
        if count >= 5 and count * 6 >= len(words) // 3:
            return True
    data = text.encode("utf-8", "surrogatepass")
    return len(data) >= 1000 and len(zlib.compress(data)) < 0.06 * len(data)


def _came_back_again(earlier: _StepFacts, facts: _StepFacts) -> bool:
    return not facts.step.observations or normalise(earlier.observation) == normalise(facts.observation)


def _check_action(
    facts: _StepFacts, same: Sequence[_StepFacts], is_last: bool, changed: bool = False
) -> tuple[str, str] | None:
    """The fault in the step as (code, text); `same`: the steps that did the very same, this one last."""
    text, actions = facts.text, facts.actions
    if not text and not actions:
        return "empty", "the message is empty; take an action or answer"
    if is_degenerate(text):
        return "degenerate", "repeats the same text over and over; stop and act"
    if any(a.malformed and a.kind == "call" for a in actions):
        return "malformed", "the call's arguments are malformed; write valid arguments"
    if makes_up_result(facts.step):
        return "invented", "makes up the result of its own call; stop at the call and read what comes back"
    if len(same) > 1 and not changed and _came_back_again(same[-2], facts):
        earlier, number = same[-2], same[-2].step.index
        if earlier.error is None:
            return "repeat", f"repeats the call of step {number} and learns nothing new; try another one"
        if not is_transient(earlier.observation) or len(same) > 2:
            return "ignored_error", f"ignores the error and repeats step {number}; fix the cause first"
    if facts.error == "not understood":
        return "malformed", "no action that the environment understands; use the required format"
    if not actions and not is_last and not stated_answer(text) and not _answered_by_user(facts.step):
        return "no_action", "takes no action; call a tool or answer"
    return None


class _Answers:
    def __init__(self) -> None:
        self._by_word: dict[str, dict[str, None]] = {}

    def add(self, phrase: str) -> None:
        self._by_word.setdefault(next(iter(whole_words(phrase)), ""), {})[phrase] = None

    def any_in(self, text: PhraseText) -> bool:
        near = (self._by_word.keys() & text.words) | {""}  # without a first word: to be looked for in every text
        return any(text.contains(phrase) for word in near for phrase in self._by_word.get(word, ()))


def _check_result(facts: _StepFacts, later_words: set[str], answers: _Answers, task_words: set[str]) -> bool | None:
    """Tell if a later message uses a new word of this result, or answers with it; None without a result."""
    if not facts.actions or _describe_observation(facts) not in _READABLE or _shows(facts.step):
        return None
    if answers.any_in(facts.phrases):
        return True
    brought = content_words(facts.observation) - facts.words - task_words
    return not brought.isdisjoint(later_words) if brought else None


def _check_results(run: Sequence[_StepFacts], task_words: set[str]) -> list[bool | None]:
    """`_check_result` of each step, computed from the end; None for the last step."""
    later_words, answers = set[str](), _Answers()
    used: list[bool | None] = []
    for facts in reversed(run):
        used.append(_check_result(facts, later_words, answers, task_words) if used else None)
        later_words |= facts.words
        for action in facts.actions:
            if action.kind == "answer":
                answers.add(normalise(action.text))
    return used[::-1]


def _shows(step: Step) -> bool:
    # more than text (an image), which is not read here
    items = [item for m in step.observations if isinstance(m.content, list) for item in m.content]
    return any(not isinstance(item, dict) or item.get("type", "text") != "text" for item in items)


def _put_together(answer: str, results: Sequence[PhraseText]) -> bool:
    # figures of several results make one answer ("20C versus 3C")
    words = answer.split()
    figures = [word for word in words if any(c.isdigit() for c in word)]
    return bool(figures) and all(any(text.contains(f) for text in results) for f in figures)


def _check_ending(trajectory: Trajectory, run: Sequence[_StepFacts]) -> tuple[str, Finding] | None:
    """The fault in how the run ends: gave up, no answer, or an answer that no result supports."""
    last = run[-1].step
    answer = final_answer(trajectory)
    if _GAVE_UP.search(last.message.text()) and (answer is None or answer[0] == last.index):
        return "gave_up", Finding(step=last.index, verdict="bad", text="gives up; keep looking with another query")
    if answer is None:
        # a conversation with a user is done when the user is, it needs no final answer
        conversation = any(_answered_by_user(facts.step) for facts in run)
        text = "ends without an answer; answer from what was found"
        return None if conversation else ("no_answer", Finding(step=last.index, verdict="bad", text=text))
    phrase = normalise(answer[1])
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return None
    before = run[: answer[0] - 1]
    if (not before and not trajectory.tools) or any(_shows(facts.step) for facts in before):
        return None
    results = [facts.phrases for facts in before]
    if not any(text.contains(phrase) for text in results) and not _put_together(phrase, results):
        text = "the answer occurs in no result; check it with a tool first"
        return "unsupported", Finding(step=answer[0], verdict="bad", text=text)
    return None


def check_steps(trajectory: Trajectory) -> tuple[list[Finding], Counter[str]]:
    """Findings in step order (good: the result is used later), and the number of steps with each fault."""
    run, findings, faults = [_StepFacts(step) for step in trajectory.steps], list[Finding](), Counter[str]()
    task_words = content_words(trajectory.task or " ".join(m.text() for m in trajectory.prelude))
    if not run:
        return [], faults
    ending = _check_ending(trajectory, run)
    if ending:
        faults[ending[0]] += 1
    did_same: dict[tuple[tuple[str, str, str], ...], list[_StepFacts]] = {}
    # the last step that may have changed something; the length in steps of the running loop
    last_change, period = 0, None
    for facts, result_used in zip(run, _check_results(run, task_words), strict=True):
        step, same = facts.step, did_same.setdefault(facts.keys, []) if facts.keys else []
        same.append(facts)
        back = step.index - same[-2].step.index if len(same) > 1 else None
        changed = back is not None and last_change > step.index - back
        if facts.changes and not (back and _came_back_again(same[-2], facts)):
            last_change = step.index
        looping, period = period, None
        if ending and ending[1].step == step.index:
            findings.append(ending[1])
            continue
        fault = _check_action(facts, same, step.index == len(run), changed)
        if fault and fault[0] in ("repeat", "ignored_error"):
            period = back
            if looping == back:  # the same loop: it has its finding
                continue
        used = None if fault else result_used
        if used is False:
            fault = ("unused", "nothing in the result is used later; read it before the next step")
        if fault:
            faults[fault[0]] += 1
            findings.append(Finding(step=step.index, verdict="bad", text=fault[1]))
        elif used:
            findings.append(Finding(step=step.index, verdict="good", text="its result is used later"))
    return findings, faults


def wasted_calls(trajectory: Trajectory, repeated: Collection[int]) -> dict[str, int]:
    """Count `calls`, and those that were `identical` (of the steps in `repeated`), `errored` or `never_used`, each once.

    `errored`: the result is an error, or proves the call malformed. `never_used`: a later message exists, and none has a word that
    the result was the first to bring; only calls that read count, by their tool's name or their code, and no polling.
    """
    run = [_StepFacts(step) for step in trajectory.steps]
    task_words = content_words(trajectory.task or " ".join(m.text() for m in trajectory.prelude))
    counts: dict[str, int] = {"calls": 0, "identical": 0, "errored": 0, "never_used": 0}
    for facts, used in zip(run, _check_results(run, task_words), strict=True):
        n = sum(action.kind != "answer" for action in facts.actions)
        counts["calls"] += n
        if facts.step.index in repeated:
            counts["identical"] += n
            continue
        errored = _errored_calls(facts, n)
        counts["errored"] += errored
        reads = all(only_reads(action) for action in facts.actions if action.kind != "answer")
        unused = used is False and reads and not changes_by_itself(facts.observation)
        counts["never_used"] += n - errored if unused else 0
    return counts


def _errored_calls(facts: _StepFacts, calls: int) -> int:
    """Count a step's calls that failed, by the result of each; one result without an id speaks of all calls."""
    results = [(call, m) for call, m in answers(facts.step) if m is not None and m.role == "tool"]
    names = {action.name for action in facts.actions}
    if len(results) < 2 and all(call is None for call, _ in results):
        wrong = bool(names) and any(call_is_wrong(m.text(), names) for _, m in results)
        return calls if facts.error or wrong else 0
    failed = [
        call
        for call, m in results
        if call_is_wrong(m.text(), names)
        or _StepFacts(facts.step.model_copy(update={"observations": [m]})).error is not None
    ]
    return min(calls, len(set(failed) - {None}) + failed.count(None))


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
    """Yield an annotation for each trajectory; `counts` gains `without_steps`, which get none."""
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
