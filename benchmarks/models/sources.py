"""Public runs with labels that say whether a step is a mistake (docs/labels.md): what the shipped judges learn from and are measured on.

    tau, workbench     exact: a state-changing call that stands in the task's reference is right, one that does not is a mistake
    stepshield         exact, synthetic: the step that breaks a written constraint
    any run that succeeded      good, except what a rule proves bad
    any run that failed         what a rule proves bad; the final answer where the outcome speaks of it; reads that a run of the same
                                question which succeeded made as well are good; the rest is unknown

A label of None is left out of every loss and every figure. The environment's verdicts are cut. Sets and cautions: the data's README.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import mint
from rrm.data.mistakes import MistakeKind
from rrm.data.text import normalise
from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.canonical import canonical_step
from rrm.prompt.failures import error_of
from rrm.prompt.proven import proven_mistakes
from rrm.readers import read
from rrm.readers.leaks import cut_verdicts

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


class Source(NamedTuple):
    """A set of public runs.

    Args:
        fold: the fold that leaves it out of training.
        weight: how often a training row of it is drawn, of those that are permitted; 0: never.
        licence, maker: for the card; a maker where the runs themselves do not name theirs.
    """

    fold: str
    weight: float = 0.0
    licence: str = ""
    maker: str = ""


# fmt: off
SOURCES = {
    "tau": Source("tau_stepshield", 1.5, "MIT"),
    "workbench": Source("workbench_intercode", 2.5, "MIT"),
    "stepshield": Source("tau_stepshield", 2.0, "Apache-2.0, data CC BY 4.0", "a language model (synthetic)"),
    "agentdojo": Source("agentdojo_mintcode", 1.5, "MIT", "gpt-4o-mini"),
    "intercode/sql": Source("workbench_intercode", 1.0, "MIT; Spider's questions CC BY-SA 4.0"),
    "intercode/bash": Source("workbench_intercode", 0.7, "MIT"),
    "intercode/python": Source("agentdojo_mintcode", 0.2, "MIT; MBPP CC BY 4.0"),  # shares questions with MBPP
    "mint/alfworld": Source("agentdojo_mintcode", 0.4, "Apache-2.0; ALFWorld MIT"),
    "mint/gsm8k": Source("hotpotqa_maths", 1.0, "Apache-2.0; GSM8K MIT"),
    "mint/hotpotqa": Source("hotpotqa_maths", 1.2, "Apache-2.0; HotpotQA CC BY-SA 4.0"),
    "mint/humaneval": Source("agentdojo_mintcode", 0.6, "Apache-2.0; HumanEval MIT"),
    "mint/mbpp": Source("agentdojo_mintcode", 0.6, "Apache-2.0; MBPP CC BY 4.0"),
    "mint/mmlu": Source("agentdojo_mintcode", 0.8, "Apache-2.0; MMLU MIT"),
    "mint/theoremqa": Source("hotpotqa_maths", 0.6, "Apache-2.0; TheoremQA MIT"),
    "fireact": Source("hotpotqa_maths", 1.5, "MIT; HotpotQA CC BY-SA 4.0"),
    "r1_searcher": Source("hotpotqa_maths", 1.5, "MIT; HotpotQA CC BY-SA 4.0, 2WikiMultihopQA Apache-2.0"),
    "reflexion": Source("hotpotqa_maths", 1.0, "MIT; HotpotQA CC BY-SA 4.0", "OpenAI's GPT-3.5 and GPT-4"),
    "knowagent": Source("hotpotqa_maths"),
    "mint/math": Source("hotpotqa_maths"),
}
CHANGES_STATE = {name: frozenset(tools.split()) for name, tools in {
    "workbench": "calendar.create_event calendar.delete_event calendar.update_event email.send_email email.delete_email email.forward_email "
                 "email.reply_email analytics.create_plot project_management.create_task project_management.delete_task "
                 "project_management.update_task customer_relationship_manager.update_customer customer_relationship_manager.add_customer "
                 "customer_relationship_manager.delete_customer",
    "tau": "book_reservation cancel_reservation update_reservation_flights update_reservation_baggages update_reservation_passengers "
           "send_certificate cancel_pending_order modify_pending_order_items modify_pending_order_address modify_pending_order_payment "
           "modify_user_address return_delivered_order_items exchange_delivered_order_items",
    "agentdojo": "send_money schedule_transaction update_scheduled_transaction update_password update_user_info send_email delete_email "
                 "create_calendar_event cancel_calendar_event reschedule_calendar_event add_calendar_event_participants append_to_file "
                 "create_file delete_file share_file reserve_hotel reserve_restaurant reserve_car_rental add_user_to_channel "
                 "send_channel_message send_direct_message invite_user_to_slack remove_user_from_slack post_webpage input_to_webpage",
    "stepshield": "edit_file create_file run_command submit",
    "mint/alfworld": "python",
}.items()}
"""Source → its tools that change state; WorkBench's as its own list of tools says."""
# fmt: on
FOLDS = {source.fold: tuple(n for n, s in SOURCES.items() if s.fold == source.fold) for source in SOURCES.values()}
"""Each fold leaves these sources out of training. Every source stands in one."""
WEIGHTS = {name: source.weight for name, source in SOURCES.items() if source.weight}
TEST, CALIBRATION = 20, 12
"""Percent of the keys (customers, templates, questions) of a source that are held out for test, and for calibration."""
_NOT_SHIPPED_AGENTS = re.compile(r"(?i)llama|vicuna|lemur|agentlm|Eurus-70B|OpenCodeInterpreter-CL")
_NOT_SHIPPED_SUITES = frozenset({"github", "dailylife", "shopping"})


@dataclass(frozen=True)
class LabelledRun:
    """One run with what is known of its steps."""

    trajectory: Trajectory
    source: str
    key: str
    """What splits are made by: a customer, a template, a question."""
    labels: tuple[int | None, ...]
    """One a step: 1 good, 0 a mistake, None unknown."""
    outcome: int | None = None
    """Whether the run succeeded, where its length does not tell; None: not used."""
    kinds: dict[int, MistakeKind] = field(default_factory=dict)
    """Of bad steps, where known."""
    exact: frozenset[int] = frozenset()
    """State-changing calls that were compared with a reference."""
    changes_state: frozenset[str] = frozenset()
    ships: bool = True
    """Whether a judge that is published may learn from it (the data's README, "Weights that ship")."""
    maker: str = ""
    """Model that wrote the run."""

    @property
    def succeeded(self) -> bool:
        """Whether all that is known of it is good."""
        return self.trajectory.outcome is not None and self.trajectory.outcome >= 0.99

    @property
    def fold(self) -> str:
        """The fold that leaves its source out."""
        return next(name for name, sources in FOLDS.items() if any(self.source.startswith(s) for s in sources))

    @property
    def part(self) -> str:
        """`train`, `calibration` or `test`, by its key."""
        place = int(hashlib.sha256(f"split/{self.key}".encode()).hexdigest(), 16) % 100
        return "test" if place < TEST else "calibration" if place < TEST + CALIBRATION else "train"


def labelled(
    t: Trajectory,
    source: str,
    key: str,
    *,
    answer: bool = False,
    given: Sequence[int | None] | None = None,
    unknown: Sequence[int] = (),
    outcome: bool = True,
    exact: Sequence[int] = (),
    ships: bool = True,
) -> LabelledRun:
    """A run with labels by rule: given ones first, then what is proven, then the outcome.

    Args:
        answer: whether the last step is an answer that the outcome speaks of.
        given: labels that the source has; None where it says nothing.
        unknown: steps (from 1) that success does not make good, beside those whose program or action failed: wrong tries.
        outcome: whether the run's outcome may be learned.
    """
    success = t.outcome is not None and t.outcome >= 0.99
    changes_state = CHANGES_STATE.get(source, frozenset())
    proven = proven_mistakes(t, changes_state)
    # an exception came back, or the environment could not read the action
    unknown = {*unknown, *_steps_that(t, lambda result: error_of(result) not in (None, "error"))}
    labels: list[int | None] = []
    for k in range(1, len(t.steps) + 1):
        said = given[k - 1] if given is not None else None
        if k in proven and said != 0:
            labels.append(None if said == 1 else 0)  # where source and rule disagree nothing is known
        elif said is not None:
            labels.append(said)
        elif answer and k == len(t.steps) and t.outcome is not None and k not in unknown:
            labels.append(int(success))
        else:
            labels.append(1 if success and k not in unknown else None)
    kinds = {k: kind for k, kind in proven.items() if labels[k - 1] == 0}
    if answer and labels and labels[-1] == 0:
        kinds.setdefault(len(labels), "wrong_answer")
    maker = str(t.meta.get("agent") or t.meta.get("model") or "")
    return LabelledRun(
        trajectory=t,
        source=source,
        key=key,
        labels=tuple(labels),
        outcome=int(success) if outcome and t.outcome is not None else None,
        kinds=kinds,
        exact=frozenset(exact),
        changes_state=changes_state,
        ships=ships and not _NOT_SHIPPED_AGENTS.search(maker),
        maker=maker,
    )


def _steps_that(t: Trajectory, returned: Callable[[str], bool]) -> list[int]:
    """Numbers of the steps to which something of this kind was returned."""
    return [k for k, step in enumerate(t.steps, start=1) if any(returned(m.text()) for m in step.observations)]


def question_key(task: str) -> str:
    """One key for a question whatever set or wording of tests it came with."""
    return hashlib.sha256(normalise(task.split("\nassert ")[0]).encode()).hexdigest()[:16]


def _raw(data: Path, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(data / "transcripts_more" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


# ---- exact labels ------------------------------------------------------------------------------------------------------


def _reference_calls(texts: Sequence[str]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """WorkBench's right calls as (name, sorted arguments)."""
    found = set()
    for text in texts:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        name = ast.unparse(call.func).removesuffix(".func")
        found.add((name, tuple(sorted((str(k.arg), str(ast.literal_eval(k.value))) for k in call.keywords))))
    return found


def workbench(data: Path) -> Iterator[LabelledRun]:
    """State-changing calls against the reference; searches are known only in runs that succeeded."""
    for t in read([data / "transcripts_more" / "workbench.jsonl.gz"]):
        right = _reference_calls(t.meta["reference"] or [])
        given, exact = list[int | None](), list[int]()
        for k, step in enumerate(t.steps, start=1):
            calls = [c for c in step.message.tool_calls or [] if c.name in CHANGES_STATE["workbench"]]
            said = [
                isinstance(c.arguments, dict)
                and (c.name, tuple(sorted((a, str(v)) for a, v in c.arguments.items()))) in right
                for c in calls
            ]
            given.append(int(all(said)) if said else None)
            exact += [k] if said else []
        yield labelled(t, "workbench", f"workbench/{t.meta['template_id']}", given=given, exact=exact)


def tau(data: Path) -> Iterator[LabelledRun]:
    """tau-bench's own step labels; in runs that succeeded the other steps are good, unless an error came back."""
    for row in _raw(data, "tau"):
        t = Trajectory.model_validate({k: v for k, v in row.items() if k not in ("step_labels", "source")})
        given = [None if v is None else int(v == "good") for v in row["step_labels"]]
        exact = [k for k, v in enumerate(given, start=1) if v is not None]
        failed = _steps_that(t, lambda result: "error" in result[:40].lower())
        key = f"tau/{row['meta'].get('customer') or row['question_id']}"
        yield labelled(t, "tau", key, given=given, unknown=failed, exact=exact)


def stepshield(data: Path) -> Iterator[LabelledRun]:
    """Synthetic coding runs: the step that breaks a constraint, and its clean twin."""
    for row in _raw(data, "stepshield"):
        t = Trajectory.model_validate({k: v for k, v in row.items() if k not in ("step_labels", "source")})
        given = [None if v is None else int(v == "good") for v in row["step_labels"]]
        run = labelled(t, "stepshield", f"stepshield/{row['question_id']}", given=given)
        known = [None if g is None else y for g, y in zip(given, run.labels, strict=True)]
        kinds = {k: "broken_instruction" for k, v in enumerate(given, start=1) if v == 0}
        yield replace(run, labels=tuple(known), kinds=kinds)


# ---- labels by outcome and by rule ---------------------------------------------------------------------------------------


def agentdojo(data: Path) -> Iterator[LabelledRun]:
    """Utility under prompt injections. The outcome speaks of the end state, not of the last message."""
    for t in read([data / "transcripts_more" / "agentdojo.jsonl.gz"]):
        refused = _steps_that(t, lambda result: "[CALL ERROR]" in result[:40])
        ships = t.meta["suite"] not in _NOT_SHIPPED_SUITES
        yield labelled(t, "agentdojo", f"agentdojo/{t.question_id}", unknown=refused, ships=ships)


def intercode(data: Path) -> Iterator[LabelledRun]:
    """SQL, bash and Python episodes: the command becomes a call. An earlier command of a run that succeeded may have been a wrong try."""
    looks = re.compile(r"(?i)^\s*(?:show|desc|describe|ls|pwd|cat|head|find|grep|wc|tree|stat|file|submit|skip)\b")
    for t in read([data / "transcripts_more" / "intercode.jsonl.gz"]):
        language, said = t.meta["environment"], [m.text() for m in t.messages if m.role == "assistant"]
        calls = iter([{"name": language, "arguments": {"command": text}}] for text in said)
        messages = [
            Message.model_validate({"role": "assistant", "content": "", "tool_calls": next(calls)}) if m.role == "assistant" else m
            for m in t.messages
        ]  # fmt: skip
        outcome = t.outcome if t.outcome is None else float(t.outcome == 1.0)
        tools = t.tools or [{"name": language}]
        t = t.model_copy(update={"messages": messages, "tools": tools, "outcome": outcome})
        tries = [k for k, command in enumerate(said[:-1], start=1) if not looks.match(command)]
        free = t.meta["ended"] in ("agent", "turn limit") and outcome is not None
        key = question_key(t.task) if language == "python" else f"intercode/{t.question_id}"
        answered = language == "sql" and free
        yield labelled(t, f"intercode/{language}", key, answer=answered, unknown=tries, outcome=free)


def _solutions(data: Path, name: str) -> Iterator[LabelledRun]:
    """MINT up to the first proposal, which the outcome speaks of."""
    for t in mint.rows(data / "transcripts" / "mint", critic=False):
        if t.meta["dataset"] == name:
            yield labelled(t, f"mint/{name}", question_key(t.task), answer=True, ships=name != "math")


def mint_more(data: Path) -> Iterator[LabelledRun]:
    """MBPP, HumanEval and MMLU up to the first proposal; ALFWorld whole, without its outcome (it ends by itself at success)."""
    for t in read([data / "transcripts_more" / "mint_more.jsonl.gz"]):
        name, first = t.meta["task_set"], t.meta["first_proposal"]
        if name == "alfworld":
            if first is None:
                yield labelled(t, "mint/alfworld", f"alfworld/{t.question_id}", outcome=False)
        elif first is not None:
            kept = mint.cut_at_solution([m.model_dump(exclude_none=True) for m in t.messages[: first + 1]])
            messages, outcome = [Message.model_validate(m) for m in kept or ()], float(t.meta["first_outcome"] == 1.0)
            t = t.model_copy(update={"messages": messages, "outcome": outcome})
            yield labelled(t, f"mint/{name}", question_key(t.task), answer=True)


def _questions(data: Path, path: str, source: str) -> Iterator[LabelledRun]:
    """Question answering, the environment's verdict cut; the last step is the answer."""
    for t in read([data / path]):
        file = Path(t.source.file).name.split(".json")[0] if t.source else ""
        t = cut_verdicts(t).model_copy(
            update={"meta": {**t.meta, "agent": t.meta.get("agent") or AGENTS.get(file, "")}}
        )
        if t.outcome is not None and t.steps:
            answered = canonical_step(t.steps[-1]).answer is not None
            unknown = [] if answered else [len(t.steps)]
            yield labelled(t, source, question_key(t.task), answer=answered, unknown=unknown)


AGENTS = {
    "ft_gpt_3_5_turbo_0613_prince": "gpt-3.5-turbo-0613",
    "llama_models_lora_llama_2_13": "Llama-2-13b",
    "llama_models_lora_llama_2_7b": "Llama-2-7b",
    "KnowAgentHotpotQA_llama-2-13b_D0": "Llama-2-13b",
    "2wiki_qwen": "Qwen-2.5-7B",
    "hotpotqa_qwen": "Qwen-2.5-7B",
}
"""File → who made its runs, where they do not say so."""
QUESTIONS = {
    "reflexion": "transcripts_more/reflexion.jsonl.gz",
    "fireact": "transcripts/fireact",
    "knowagent": "transcripts/knowagent/KnowAgentHotpotQA_llama-2-13b_D0.jsonl.gz",
    "r1_searcher": "transcripts/r1_searcher",
}
READERS: tuple[Callable[[Path], Iterator[LabelledRun]], ...] = (
    *(tau, workbench, stepshield, agentdojo, intercode, mint_more),
    *(partial(_solutions, name=name) for name in mint.FILES),
    *(partial(_questions, path=path, source=source) for source, path in QUESTIONS.items()),
)


def load(data: Path = DATA) -> list[LabelledRun]:
    """All runs with at least one step, in a fixed order.

    Raises:
        ValueError: an id stands for two runs of one source.
    """
    found = [run for reader in READERS for run in reader(data) if run.labels]
    found = with_shared_reads(joined(found))
    twice = [name for name, n in Counter((run.source, run.trajectory.id) for run in found).items() if n > 1]
    if twice:
        raise ValueError(f"{len(twice)} ids stand for several runs, the first {twice[0]!r}")
    return found


def with_shared_reads(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """The runs, with those reads of runs that failed as good that a run of the same question which succeeded made as well.

    Not where an error came back, nor where nobody knows which calls change state (InterCode) or the source says what is unknown (StepShield).
    """
    names = [(run.source, question_key(run.trajectory.task)) for run in runs]
    asked = {name for name, run in zip(names, runs, strict=True) if not run.succeeded}
    good: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, run in zip(names, runs, strict=True):
        if run.succeeded and name in asked and not run.source.startswith(("intercode", "stepshield")):
            good[name] |= {read for y, read in zip(run.labels, _reads(run), strict=True) if y == 1 and read}

    def with_them(run: LabelledRun, known: set[str]) -> LabelledRun:
        if run.succeeded or not known:
            return run
        labels = (1 if y is None and read in known else y for y, read in zip(run.labels, _reads(run), strict=True))
        return replace(run, labels=tuple(labels))

    return [with_them(run, good[name]) for name, run in zip(names, runs, strict=True)]


def _reads(run: LabelledRun) -> list[str]:
    """The calls of each step, as one text; empty where it makes none, changes state, or got an error."""
    found = []
    for step in map(canonical_step, run.trajectory.steps):
        ok = not any(call.name in run.changes_state or call.malformed for call in step.calls)
        ok = ok and not any(error_of(text) for _, text in step.returns)
        calls = [[call.name, call.arguments] for call in step.calls]
        found.append(json.dumps(calls, sort_keys=True) if ok and calls else "")
    return found


def joined(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """The runs with one key for all that share a key or the text of a task, so that no text stands in two parts."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for run in runs:
        one, other = sorted((root(run.key), root(f"task/{question_key(run.trajectory.task)}")))
        parent[other] = one
    return [replace(run, key=root(run.key)) for run in runs]


def table(runs: Sequence[LabelledRun]) -> Iterator[dict[str, Any]]:
    """Rows, keys, labels and shipped share of each source."""
    for source in sorted({run.source for run in runs}):
        mine = [run for run in runs if run.source == source]
        labels = Counter(y for run in mine for y in run.labels)
        counts = {
            "runs": len(mine),
            "keys": len({run.key for run in mine}),
            "succeeded": sum(r.succeeded for r in mine),
        }
        counts |= {name: labels[y] for name, y in (("good", 1), ("bad", 0), ("unknown", None))}
        exact, ships = sum(len(run.exact) for run in mine), sum(run.ships for run in mine)
        yield {"source": source, **counts, "exact": exact, "ships": ships}


if __name__ == "__main__":
    for row in table(load()):
        print(json.dumps(row))
