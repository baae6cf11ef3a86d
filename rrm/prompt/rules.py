"""`rules`: programmatic checks on each step of any Trajectory, and the neutral trace line of what a step did.

No model, no label is used: neither outcome nor reference is read, so these annotations never leak them. A check speaks
only of what is on the page (a repeated call, an ignored error); it cannot tell whether a query was a good idea.

Score. 1.0 less 0.2 for each step with a minor fault (repeat, unused result, talk without action) and 0.3 for each step
with a major one (ignored error, malformed call, empty or degenerate message, a result made up), not below 0.1; a loop counts once; at most 0.4 when the final
answer occurs in nothing that came back, at most 0.2 when the run gives up or ends without an answer. On the grid 0.1.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import format_findings
from rrm.data.text import YES_NO, PhraseText, content_words, normalise, whole_words
from rrm.data.trajectory import Step, Trajectory
from rrm.prompt.actions import Action, actions_of, changes_state, final_answer, makes_up_result, observation_text
from rrm.prompt.answers import stated_answer
from rrm.prompt.failures import error_of, is_transient, told_by_environment

VERSION = 4
"""Of the checks: labels of another version are not mixed into one file. 2: failures as shells and servers report them, and more
forms of an answer (`rrm.prompt.failures`, `rrm.prompt.answers`). 3: what a person says is no tool's failure; a result
that its log calls an error is one; each call of a list counts; an empty answer is an action, and answers nothing. 4: a call again whose
result differs, or that follows a change, is no repeat; a loop is one finding; figures that came back support an answer of any length;
a result that the agent makes up is a mistake."""
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
    """A step, and what is asked of it again for the steps after and before it; each answer is found once."""

    def __init__(self, step: Step) -> None:
        self.step = step

    @cached_property
    def actions(self) -> list[Action]:
        return actions_of(self.step)

    @cached_property
    def keys(self) -> tuple[tuple[str, str, str], ...]:
        """What the step called and ran; equal for two steps that do the same."""
        return tuple(a.key for a in self.actions if a.kind != "answer")

    @cached_property
    def changes(self) -> bool:
        """Whether it may have changed what later calls find, as far as its actions' words say."""
        return any(changes_state(action) for action in self.actions)

    @cached_property
    def text(self) -> str:
        return self.step.message.text().strip()

    @cached_property
    def observation(self) -> str:
        return observation_text(self.step)

    @cached_property
    def error(self) -> str | None:
        """The failure that came back (`error_of`). Where the log itself says that a result is an error, it is one; what a person
        replies is none."""
        if not self.actions and _answered_by_user(self.step):
            return None
        flagged = any((m.model_extra or {}).get("is_error") is True for m in self.step.observations)
        return error_of(self.observation) or ("error" if flagged else None)

    @cached_property
    def seen(self) -> PhraseText:
        """The observation, to look for phrases in."""
        return PhraseText(normalise(self.observation))

    @cached_property
    def said(self) -> set[str]:
        """Content words of its message and its actions."""
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


def _describe_observation(read: _StepFacts) -> str:
    observation, error = read.observation, read.error
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
    """The steps before one. An answer is looked for in those that have its words alone."""

    def __init__(self) -> None:
        self._reads: list[_StepFacts] = []
        self._with: dict[str, list[int]] = {}
        """A word → the places, in `_reads`, of the steps whose result has it."""
        self._indexed = 0

    def add(self, read: _StepFacts) -> None:
        self._reads.append(read)

    def latest_with(self, phrase: str) -> _StepFacts | None:
        """The latest step whose result has a normalised phrase, or None."""
        for at in range(self._indexed, len(self._reads)):
            for word in self._reads[at].seen.words:
                self._with.setdefault(word, []).append(at)
        self._indexed = len(self._reads)
        known = whole_words(phrase)
        places = min((self._with.get(word, []) for word in known), key=len) if known else range(len(self._reads))
        return next((self._reads[at] for at in reversed(places) if self._reads[at].seen.contains(phrase)), None)


def _answer_origin(answer: str, earlier: _Earlier) -> str:
    """Where the answer was seen before: ` seen in step j`, ` not seen before`, or nothing for yes/no and long answers."""
    phrase = normalise(answer)
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return ""
    read = earlier.latest_with(phrase)
    return " not seen before" if read is None else f" seen in step {read.step.index}"


def _answered_by_user(step: Step) -> bool:
    """Whether a person replied, and not an environment in the role of the user (`error: write …`)."""
    said = step.observations
    return bool(said) and all(m.role == "user" for m in said) and not told_by_environment(observation_text(step))


def _described(read: _StepFacts, earlier: _Earlier, repeated: _StepFacts | None) -> str:
    """What the step did and what came back; `repeated`: the latest of the `earlier` ones that did the very same."""
    text, actions = read.text, read.actions
    if repeated:
        did = f"repeats step {repeated.step.index}"
    elif actions:
        did = " and ".join(dict.fromkeys(_describe_action(a) for a in actions[:3] if a.kind != "answer"))
    elif not text:
        did = "empty message"
    elif is_degenerate(text):
        did = "repeats the same text"
    elif _answered_by_user(read.step):
        return "speaks to the user; the user replies"
    else:
        stated = stated_answer(text)
        did = f"states an answer{_answer_origin(stated, earlier)}" if stated else "writes text, no action"
    answers = [a for a in actions if a.kind == "answer"]
    if answers:
        did = f"{did} and " if did else ""
        did += f"proposes an answer{_answer_origin(answers[-1].text, earlier)}"
    return f"{did}; {_describe_observation(read)}" if read.step.observations else did


def step_lines(steps: Sequence[Step]) -> list[str]:
    """At most about 12 words a step on what it did and what came back, without judging it.

    Each step is read once, however many later ones ask what it did and whether it showed their answer.
    """
    latest: dict[tuple[tuple[str, str, str], ...], _StepFacts] = {}
    earlier = _Earlier()
    lines = []
    for read in map(_StepFacts, steps):
        lines.append(_described(read, earlier, latest.get(read.keys)))
        if read.keys:
            latest[read.keys] = read
        earlier.add(read)
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


def _came_back_again(earlier: _StepFacts, read: _StepFacts) -> bool:
    """Whether a call again brought the same; so it is taken to where nothing has come back yet."""
    return not read.step.observations or normalise(earlier.observation) == normalise(read.observation)


def _check_action(
    read: _StepFacts, same: Sequence[_StepFacts], is_last: bool, changed: bool = False
) -> tuple[str, str] | None:
    """The fault in what the step did, as (code, text), or None.

    Args:
        same: the steps so far that did the very same, it last.
        changed: whether a step since the last of them may have changed what is found.
    """
    text, actions = read.text, read.actions
    if not text and not actions:
        return "empty", "the message is empty; take an action or answer"
    if is_degenerate(text):
        return "degenerate", "repeats the same text over and over; stop and act"
    if any(a.malformed and a.kind == "call" for a in actions):
        return "malformed", "the call's arguments are malformed; write valid arguments"
    if makes_up_result(read.step):
        return "invented", "makes up the result of its own call; stop at the call and read what comes back"
    if len(same) > 1 and not changed and _came_back_again(same[-2], read):
        earlier, number = same[-2], same[-2].step.index
        if earlier.error is None:
            return "repeat", f"repeats the call of step {number} and learns nothing new; try another one"
        if not is_transient(earlier.observation) or len(same) > 2:
            return "ignored_error", f"ignores the error and repeats step {number}; fix the cause first"
    if read.error == "not understood":
        return "malformed", "no action that the environment understands; use the required format"
    if not actions and not is_last and not stated_answer(text) and not _answered_by_user(read.step):
        return "no_action", "takes no action; call a tool or answer"
    return None


class _Answers:
    """Normalised answers. Only those are looked for in a text of which it has the first word."""

    def __init__(self) -> None:
        self._by_word: dict[str, dict[str, None]] = {}

    def add(self, phrase: str) -> None:
        self._by_word.setdefault(next(iter(whole_words(phrase)), ""), {})[phrase] = None

    def any_in(self, text: PhraseText) -> bool:
        near = (self._by_word.keys() & text.words) | {""}  # without a first word: to be looked for in every text
        return any(text.contains(phrase) for word in near for phrase in self._by_word.get(word, ()))


def _check_result(read: _StepFacts, said: set[str], answers: _Answers, task_words: set[str]) -> bool | None:
    """Whether a later message uses a content word that this step's result brought, or answers with something in it.

    None where nothing can be said: no result, or an error. `said` and `answers` are those of the later steps.
    """
    if not read.actions or _describe_observation(read) not in _READABLE or _shows(read.step):
        return None
    if answers.any_in(read.seen):
        return True
    brought = content_words(read.observation) - read.said - task_words
    return not brought.isdisjoint(said) if brought else None


def _check_results(run: Sequence[_StepFacts], task_words: set[str]) -> list[bool | None]:
    """`_check_result` of each step; from the end, as what is said later grows that way. None for the last step."""
    said, answers = set[str](), _Answers()
    used: list[bool | None] = []
    for read in reversed(run):
        used.append(_check_result(read, said, answers, task_words) if used else None)
        said |= read.said
        for action in read.actions:
            if action.kind == "answer":
                answers.add(normalise(action.text))
    return used[::-1]


def _shows(step: Step) -> bool:
    """Whether the result is more than text (an image): what it brought cannot be read here."""
    parts = [part for m in step.observations if isinstance(m.content, list) for part in m.content]
    return any(not isinstance(part, dict) or part.get("type", "text") != "text" for part in parts)


def _put_together(answer: str, seen: Sequence[PhraseText]) -> bool:
    """Whether an answer has figures, and each of them came back somewhere ("20C versus 3C" of two results)."""
    words = answer.split()
    figures = [word for word in words if any(c.isdigit() for c in word)]
    return bool(figures) and all(any(text.contains(f) for text in seen) for f in figures)


def _check_ending(trajectory: Trajectory, run: Sequence[_StepFacts]) -> tuple[str, Finding] | None:
    """The fault in how the run ends: gave up, no answer, or an answer that nothing supports."""
    last = run[-1].step
    answer = final_answer(trajectory)
    if _GAVE_UP.search(last.message.text()) and (answer is None or answer[0] == last.index):
        return "gave_up", Finding(step=last.index, verdict="bad", text="gives up; keep looking with another query")
    if answer is None:
        # a conversation with a user is done when the user is, it needs no final answer
        conversation = any(_answered_by_user(read.step) for read in run)
        text = "ends without an answer; answer from what was found"
        return None if conversation else ("no_answer", Finding(step=last.index, verdict="bad", text=text))
    phrase = normalise(answer[1])
    if not phrase or phrase in YES_NO or len(phrase.split()) > 12:
        return None
    before = run[: answer[0] - 1]
    if (not before and not trajectory.tools) or any(_shows(read.step) for read in before):
        return None
    seen = [read.seen for read in before]
    if not any(text.contains(phrase) for text in seen) and not _put_together(phrase, seen):
        text = "the answer occurs in no result; check it with a tool first"
        return "unsupported", Finding(step=answer[0], verdict="bad", text=text)
    return None


def check_steps(trajectory: Trajectory) -> tuple[list[Finding], Counter[str]]:
    """Findings in step order, and how many steps have each kind of fault.

    A step without a fault is called good where a later message uses what it brought.
    """
    run, findings, faults = [_StepFacts(step) for step in trajectory.steps], list[Finding](), Counter[str]()
    task_words = content_words(trajectory.task or " ".join(m.text() for m in trajectory.prelude))
    if not run:
        return [], faults
    ending = _check_ending(trajectory, run)
    if ending:
        faults[ending[0]] += 1
    did_same: dict[tuple[tuple[str, str, str], ...], list[_StepFacts]] = {}
    last_change, period = 0, None
    """The last step that may have changed something; how many steps the loop that is running goes back."""
    for read, result_used in zip(run, _check_results(run, task_words), strict=True):
        step, same = read.step, did_same.setdefault(read.keys, []) if read.keys else []
        same.append(read)
        back = step.index - same[-2].step.index if len(same) > 1 else None
        changed = back is not None and last_change > step.index - back
        if read.changes and not (back and _came_back_again(same[-2], read)):
            last_change = step.index
        looping, period = period, None
        if ending and ending[1].step == step.index:
            findings.append(ending[1])
            continue
        fault = _check_action(read, same, step.index == len(run), changed)
        if fault and fault[0] in ("repeat", "ignored_error"):
            period = back
            if looping == back:  # of one loop, found already
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
