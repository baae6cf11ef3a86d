"""The lab: worlds and labels that hold by construction, and its tokenizer and model."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from reagent.feedback.texts import TextWriter
from reagent.lab.build import build_lab_policy, homogeneous, lab_demonstrations, reflect, rows_of
from reagent.lab.demonstrations import Demonstration, demonstrations
from reagent.lab.faulty_agents import make_wanderers
from reagent.lab.labels import label
from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.reflections import KINDS, reflections
from reagent.lab.scripted import ATTEMPTS, question_of
from reagent.lab.settings import LabSettings, ReflectSettings
from reagent.lab.transcripts import HELDOUT_FAULTS, make_transcripts
from reagent.lab.wordings import FINDING, QUESTION, SAY, TERSE_SYSTEM
from reagent.lab.world import (
    BAD_ARGUMENTS,
    NOTHING_FOUND,
    RELATIONS,
    TERSE_BAD_ARGUMENTS,
    TERSE_TOOL_ERROR,
    TOOL_ERROR,
    _names,
    make_question,
    make_world,
)
from reagent.rollout.rollout import rollout
from reagent.rollout.templates import LAB_TEMPLATE, TurnTemplate
from reagent.tasks.environments import make_factory
from rrm.data.feedback import parse_findings
from rrm.data.text import answer_leak, contains_phrase, normalise, transcript_text
from rrm.data.trajectory import Message, ToolCall, Trajectory, read_canonical
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedEngine
from rrm.engines.shipped_judges import shipped
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.rules import check_steps

HELDOUT = {fault.__name__ for fault in HELDOUT_FAULTS}


@pytest.fixture(scope="module")
def rows():
    return make_transcripts(600, seed=1)


@pytest.fixture(scope="module")
def heldout_rows():
    return make_transcripts(300, seed=1, split="heldout")


def test_a_world_is_a_function_of_its_seed_and_every_fact_is_unique() -> None:
    world = make_world(5)
    assert world.facts == make_world(5).facts
    assert world.facts != make_world(6).facts
    keys = [(f.subject, f.relation) for f in world.facts]
    assert len(keys) == len(set(keys))
    for fact in world.facts:
        source, target = RELATIONS[fact.relation]
        assert (world.kind_of(fact.subject), world.kind_of(fact.object)) == (source, target)
        assert fact.subject != fact.object


def test_search_finds_the_fact_beside_distractors() -> None:
    world = make_world(7)
    for fact in world.facts:
        facts = world.find(f"{fact.relation} of {fact.subject}")
        assert fact in facts
        assert 2 <= len(facts) <= 3
        assert sum(f.subject == fact.subject and f.relation == fact.relation for f in facts) == 1
    assert world.search("nothing here") == NOTHING_FOUND
    assert world.search("mother") == NOTHING_FOUND  # a relation alone names nobody
    query = f"mother of {world.entities['person'][0]}"
    assert world.search(query) == world.search(query)


def test_a_question_is_answered_by_following_its_path() -> None:
    rng = random.Random(0)
    for seed in range(30):
        world = make_world(seed)
        question = make_question(world, 3, rng)
        current = question.start
        for relation, value in zip(question.path, question.values, strict=True):
            current = world.value(current, relation)
            assert current == value
        assert current == question.answer
        assert len({question.start, *question.values}) == 4
    with pytest.raises(ValueError, match="at least one hop"):
        make_question(make_world(0), 0, rng)


def test_transcripts_follow_from_the_seed_and_share_no_question_between_seeds() -> None:
    short, longer = make_transcripts(10, seed=3), make_transcripts(30, seed=3)
    assert [t.to_json() for t, _ in short] == [t.to_json() for t, _ in longer[:10]]
    assert len({t.id for t, _ in longer}) == 30
    other = {t.question_id for t, _ in make_transcripts(30, seed=4)}
    assert not other & {t.question_id for t, _ in longer}
    assert Counter(t.question_id for t, _ in longer[:28]).most_common()[-1][1] == ATTEMPTS
    for trajectory, _ in make_transcripts(20, seed=3, hops=(4,)):
        assert trajectory.meta["hops"] == 4


def test_outcome_is_whether_the_final_answer_is_the_reference(rows, heldout_rows) -> None:
    for trajectory, _ in rows + heldout_rows:
        answer = trajectory.messages[-1].text().rpartition("Answer: ")[2]
        assert trajectory.outcome == float(answer == trajectory.meta["reference"])
    assert 0.4 < sum(t.outcome for t, _ in rows) / len(rows) < 0.7


def test_every_step_has_one_finding_and_the_critique_says_the_same(rows, heldout_rows) -> None:
    for trajectory, annotation in rows + heldout_rows:
        assert [f.step for f in annotation.findings] == [s.index for s in trajectory.steps]
        assert parse_findings(annotation.critique, len(trajectory.steps)) == annotation.findings
        assert [line.split("]")[0] for line in annotation.trace.splitlines()] == [
            f"[step {s.index}" for s in trajectory.steps
        ]


def test_no_label_says_the_answer(rows, heldout_rows) -> None:
    for trajectory, annotation in rows + heldout_rows:
        reference = normalise(trajectory.meta["reference"])
        assert not contains_phrase(normalise(annotation.critique), reference)
        assert answer_leak(annotation.trace, reference, transcript_text(trajectory)) == "clean"


def test_a_verdict_follows_from_what_the_trace_says_was_needed_and_done(rows, heldout_rows) -> None:
    unlike = 0
    for _, annotation in rows + heldout_rows:
        for line, finding in zip(annotation.trace.splitlines(), annotation.findings, strict=True):
            *_, did, need = line.split("; ")
            what = (
                did.partition(" is ")[0].removesuffix(" fails").rpartition("asks: " if "asks" in did else "answers ")[2]
            )
            needed, _, verdict = need.removeprefix("needs ").rpartition(" ")
            good = what == needed.removeprefix("answer ")  # a check asks what is to be answered
            assert verdict == finding.verdict
            unlike += good != (verdict == "good")
    assert unlike <= 2  # who follows a mistake may ask for the right thing by accident


def test_a_replay_labels_scripted_runs_as_their_construction_does(rows, heldout_rows) -> None:
    """Two makers of labels: one played the run, the other only reads it, beside its world."""
    unlike = 0
    for trajectory, annotation in rows + heldout_rows:
        world, question, _ = question_of(trajectory.question_id)
        labels = label(trajectory, world, question)
        same = [f.verdict for f in labels.findings] == [f.verdict for f in annotation.findings]
        unlike += not (same and labels.score == annotation.score)
        assert labels.trajectory_id == trajectory.id
    assert unlike <= 3  # a made-up value may be one that was asked for before


def test_a_replay_labels_what_no_script_plays() -> None:
    world = make_world(11)
    question = make_question(world, 2, random.Random(0))
    first, second = (f"{r} of {v}" for r, v in zip(question.path, (question.start, question.values[0]), strict=True))

    def run(*turns: str | dict[str, str] | None) -> Trajectory:
        messages = [Message(role="user", content=question.phrase)]
        for number, turn in enumerate(turns):
            if isinstance(turn, str):
                messages.append(Message(role="assistant", content=turn))
                continue
            call = ToolCall(name="search", arguments=turn or '{"query": ', id=f"c{number}")
            messages.append(Message(role="assistant", tool_calls=[call]))
            result = world.search(turn["query"]) if turn else BAD_ARGUMENTS
            messages.append(Message(role="tool", content=result, tool_call_id=call.id))
        return Trajectory(id="t", task=question.phrase, messages=messages)

    def verdicts(*turns: str | dict[str, str] | None) -> tuple[str, float | None]:
        labels = label(run(*turns), world, question)
        return "".join("+" if f.verdict == "good" else "-" for f in labels.findings), labels.score

    right = f"Answer: {question.answer}"
    assert verdicts({"query": first}, {"query": second}, right) == ("+++", 1.0)
    assert verdicts({"query": first}, {"query": first}, {"query": second}, right) == ("+-++", 0.8)
    assert verdicts({"query": second}, right) == ("--", 0.7)  # lucky: the search was not yet to be known
    assert verdicts({"query": first}, f"Answer: {question.values[0]}") == ("+-", 0.2)
    assert verdicts({"query": first}, "Answer: nobody") == ("+-", 0.0)
    assert verdicts({"query": first}, {"query": "mother of nobody"}) == ("+-", 0.2)
    assert verdicts(None, "Answer: unknown") == ("--", 0.0)
    assert verdicts("I think it is late.") == ("-", 0.0)


def test_wanderers_err_at_most_steps_in_no_held_out_way() -> None:
    wanderers = make_wanderers(400, seed=2)
    assert [t.to_json() for t, _ in make_wanderers(10, seed=2)] == [t.to_json() for t, _ in wanderers[:10]]
    assert not {t.question_id for t, _ in make_wanderers(10, seed=3)} & {t.question_id for t, _ in wanderers}
    verdicts = Counter(f.verdict for _, a in wanderers for f in a.findings)
    assert 0.4 < verdicts["bad"] / verdicts.total() < 0.7
    assert 0.2 < sum(t.outcome for t, _ in wanderers) / len(wanderers) < 0.6
    held_out = [text.split("{")[0] for kind in ("stops_early", "ignored_error") for text in FINDING[kind]]
    for trajectory, annotation in wanderers:
        bad = [f.step for f in annotation.findings if f.verdict == "bad"]
        assert trajectory.meta["fault_step"] == min(bad, default=None)
        assert parse_findings(annotation.critique, len(trajectory.steps)) == annotation.findings
        assert not any(f.text.startswith(start) for f in annotation.findings for start in held_out if start)
        said = f"{annotation.trace} {annotation.critique}"
        assert answer_leak(said, trajectory.meta["reference"], transcript_text(trajectory)) == "clean"
        assert (annotation.score >= 0.7) == (trajectory.outcome == 1.0)


def test_terse_agents_say_nothing_but_calls_and_the_answer(rows) -> None:
    terse = [t for t, _ in rows if t.meta["terse"]]
    assert 0.4 < len(terse) / len(rows) < 0.6
    assert any(t.steps[-1].message.tool_calls for t in terse)  # out of turns
    for trajectory in terse:
        assert trajectory.messages[0].role == "system" and trajectory.messages[0].text() == TERSE_SYSTEM
        for step in trajectory.steps:
            assert step.message.text() == "" if step.message.tool_calls else step.message.text().startswith("Answer: ")


def test_a_fault_is_at_its_step_and_nowhere_before(rows, heldout_rows) -> None:
    for trajectory, annotation in rows + heldout_rows:
        bad = [f.step for f in annotation.findings if f.verdict == "bad"]
        if trajectory.meta["fault"] is None:
            assert not bad and trajectory.outcome == 1.0 and annotation.score == 1.0
        else:
            assert bad[0] == trajectory.meta["fault_step"]
            assert trajectory.meta["recovered"] == (trajectory.outcome == 1.0)
            assert annotation.score in ((0.7, 0.8) if trajectory.outcome else (0.0, 0.1, 0.2, 0.3))
            # a failing run never mends its mistake, a recovered one ends well
            assert annotation.findings[-1].verdict == ("good" if trajectory.outcome else "bad")


def test_held_out_faults_and_wordings_never_occur_in_training(rows, heldout_rows) -> None:
    assert not {t.meta["fault"] for t, _ in rows} & HELDOUT
    assert {t.meta["fault"] for t, _ in heldout_rows} >= HELDOUT
    assert all(t.meta["fault_kind_heldout"] == (t.meta["fault"] in HELDOUT) for t, _ in heldout_rows)
    for templates in [QUESTION, *SAY.values()]:
        assert not set(templates["train"]) & set(templates["heldout"])
    assert all("{b}" not in text for texts in FINDING.values() for text in texts)
    fixed = [s["heldout"][0] for s in SAY.values() if "{" not in s["heldout"][0]]
    said = " ".join(m.text() for t, _ in rows for m in t.messages)
    assert fixed and not any(text in said for text in fixed)


def test_few_wordings_are_the_same_runs_in_fewer_words(rows) -> None:
    few = make_transcripts(80, seed=1, split="few")
    assert [t.question_id for t, _ in few] == [t.question_id for t, _ in rows[:80]]
    assert not {t.meta["fault"] for t, _ in few} & HELDOUT
    assert len(QUESTION["few"]) < 50 < len(set(QUESTION["train"]))
    starts = tuple(text.split("{")[0] for text in QUESTION["few"])
    assert all(t.task.startswith(starts) for t, _ in [*few, *make_wanderers(80, seed=1, split="few")])


def test_tools_fail_sometimes_and_a_retry_is_no_fault(rows) -> None:
    retried = 0
    for trajectory, annotation in rows:
        steps = trajectory.steps
        for step, following in itertools.pairwise(steps):
            if step.observations and step.observations[0].text() in (TOOL_ERROR, TERSE_TOOL_ERROR):
                same = following.message.tool_calls == [
                    step.message.tool_calls[0].model_copy(update={"id": following.message.tool_calls[0].id})
                ]
                assert same
                retried += 1
                if trajectory.meta["fault"] is None:
                    assert annotation.findings[following.index - 1].verdict == "good"
    assert retried > 20


def test_malformed_arguments_stay_text_and_the_tool_says_so(rows) -> None:
    broken = [t for t, _ in rows if t.meta["fault"] == "malformed"]
    assert broken
    for trajectory in broken:
        step = trajectory.steps[trajectory.meta["fault_step"] - 1]
        arguments = step.message.tool_calls[0].arguments
        assert isinstance(arguments, str)
        with pytest.raises(ValueError):
            json.loads(arguments)
        assert step.observations[0].text() in (BAD_ARGUMENTS, TERSE_BAD_ARGUMENTS)


def test_the_rules_find_the_planted_faults_they_can_see(rows) -> None:
    """Two independent makers of labels agree: construction, and the checks that only read the transcript."""
    seen = Counter()
    for trajectory, _ in rows:
        found = {f.step for f in check_steps(trajectory)[0] if f.verdict == "bad"}
        fault = trajectory.meta["fault"]
        seen[fault, trajectory.meta["fault_step"] in found] += 1
    for fault in ("repeated_call", "malformed"):
        assert seen[fault, True] > 10 and seen[fault, False] == 0


def test_tokenizer_and_model() -> None:
    from reagent.lab.model import END, PAD, build_lab_model, build_lab_tokenizer
    from rrm.prompt.rendering import render_transcript, rubric

    texts = [a.trace + a.critique for _, a in make_transcripts(200, seed=0)] + [rubric("full")] * 20

    class Words:
        def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
            return [0] * len(text.split())

        def decode(self, token_ids: list[int]) -> str:
            raise AssertionError("nothing is cut")

    texts += [render_transcript(t, Words(), 10**6).text for t, _ in make_transcripts(400, seed=0)]
    tokenizer = build_lab_tokenizer(texts)
    assert tokenizer.pad_token == PAD and tokenizer.eos_token == END
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    for text in ("<score>0.7</score>", "The mother of Kavomi is Beltu.\n[step 12] bad: 3.14 é"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("10.7") == ["1", "0", ".", "7"]
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    encoded = tokenizer.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, m in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if m]
    assert tokenizer.decode(marked) == f"yo{END}"

    fresh = [t for t, _ in make_transcripts(100, seed=9, hops=(3,))]
    lengths = sorted(len(tokenizer.encode(render_transcript(t, tokenizer, 10**6).text)) for t in fresh)
    assert lengths[len(lengths) // 2] < 320 and lengths[int(0.8 * len(lengths))] < 380

    model, same = build_lab_model(tokenizer, seed=1), build_lab_model(tokenizer, seed=1)
    parameters = sum(p.numel() for p in model.parameters())
    assert 1_000_000 < parameters < 3_000_000
    assert all((a == b).all() for a, b in zip(model.parameters(), same.parameters(), strict=True))
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    with pytest.raises(ValueError, match="multiple of 5 heads"):
        build_lab_model(tokenizer, heads=5, seed=0)


def test_command_writes_transcripts_and_labels(tmp_path) -> None:
    import typer

    from reagent.cli.lab_cmd import transcripts as command

    app = typer.Typer()
    app.command()(command)
    out, labels = tmp_path / "data.jsonl", tmp_path / "ann.jsonl"
    result = CliRunner().invoke(
        app, ["-o", str(out), "--n", "9", "--seed", "2", "--annotations", str(labels), "--hops", "2"]
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output.splitlines()[-1])
    assert summary["transcripts"] == 9 and summary["questions"] == 3
    read = list(read_canonical(out))
    assert [t.id for t in read] == [json.loads(line)["trajectory_id"] for line in labels.read_text().splitlines()]
    assert read[0] == make_transcripts(1, seed=2, hops=(2,))[0][0]
    assert CliRunner().invoke(app, ["-o", str(out), "--hops", "two"]).exit_code == 2


def test_a_look_alike_is_given_up_where_its_beginning_has_no_name_left() -> None:
    (first,) = _names(random.Random(0), "town", 1, set())
    taken = {f"{first[:4]}{ending}" for ending in ("ford", "ton", "by")} - {first}
    names = _names(random.Random(0), "town", 2, taken)
    assert names[0] == first and names[1][:4] != first[:4]


def test_the_search_ranks_the_asked_fact_first_and_brings_distractors_unless_told_not_to() -> None:
    for seed in range(5):
        world = make_world(seed)
        for fact in world.facts:
            query = f"{fact.relation} of {fact.subject}"
            facts = world.find(query)
            assert facts[0] == fact and len(facts) in (2, 3) and fact not in facts[1:]
            assert world.find(query, distractors=False) == [fact]
    assert world.search("mother of nobody", distractors=False) == NOTHING_FOUND


def test_the_labs_model_starts_by_copying() -> None:
    tokenizer = build_lab_tokenizer(["The mother of Kamon is Belta."] * 3, 300)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0)
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        value, output = attention.v_proj.weight, attention.o_proj.weight
        assert torch.allclose(output @ value, torch.eye(32), atol=1e-5)  # what is attended to is passed on
        query, key = attention.q_proj.weight, attention.k_proj.weight
        assert torch.cosine_similarity(query.flatten(), key.flatten(), dim=0) > 0.8


@pytest.mark.parametrize("name", ["search", "calculator"])
def test_a_rollout_that_says_the_same_makes_the_same_tokens(name) -> None:
    demos = list(demonstrations(name, 6, 0, imperfect=0.0))
    tokenizer = build_lab_tokenizer((m["content"] for d in demos for m in d.messages), 600)
    tokenizer.chat_template = LAB_TEMPLATE
    template = TurnTemplate(tokenizer)
    for demo, row in zip(demos, rows_of(demos, template, tokenizer), strict=True):
        turns = [m["content"] for m in demo.messages if m["role"] == "assistant"]
        script = [[*tokenizer.encode(text, add_special_tokens=False), template.end_id] for text in turns]
        engine = ScriptedEngine(script, eos_token_id=template.end_id)
        (episode,) = rollout(
            engine, tokenizer, make_factory(name), [demo.task], params=SamplingParams(max_new_tokens=200)
        )
        assert episode.success is True and len(episode.turns) == len(turns)
        flat = episode.flatten()
        assert row["input_ids"] == flat.input_ids.tolist()
        assert [label != -100 for label in row["labels"]] == flat.action_mask.tolist()


def test_mistakes_are_shown_but_not_learned() -> None:
    demos = list(demonstrations("search", 40, 1, imperfect=1.0))
    wrong = [
        d for d in demos if any(m["role"] == "assistant" and not t for m, t in zip(d.messages, d.train_on, strict=True))
    ]
    assert wrong, "forty imperfect demonstrations hold no mistake"
    tokenizer = build_lab_tokenizer((m["content"] for d in wrong for m in d.messages), 600)
    tokenizer.chat_template = LAB_TEMPLATE
    for demo, row in zip(wrong, rows_of(wrong, TurnTemplate(tokenizer), tokenizer), strict=True):
        learned = tokenizer.decode(
            [i for i, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
        )
        kept = [m["content"] for m, t in zip(demo.messages, demo.train_on, strict=True) if t]
        assert learned == "".join(f"{text}<|im_end|>" for text in kept)


def test_the_mixture_holds_both_environments_and_second_attempts() -> None:
    demos = lab_demonstrations(LabSettings(rows=100))
    names = [d.task.id.split("-")[0] for d in demos]
    assert (names.count("search"), names.count("calculator")) == (60, 40)
    assert sum("Critique:" in d.messages[-1]["content"] or any("Critique:" in m["content"] for m in d.messages) for d in demos) == 30  # fmt: skip
    assert {d.task.meta["hops"] for d in demos if d.task.id.startswith("search")} == {1, 2, 3, 4}


def test_batches_are_of_one_length_and_drop_no_more_than_a_batch() -> None:
    rows = [{"input_ids": [0] * n} for n in (3, 9, 4, 8, 5, 7, 6)]
    ordered = homogeneous(rows, 2, seed=0)  # pyright: ignore[reportArgumentType]
    lengths = [len(row["input_ids"]) for row in ordered]
    assert sorted(sorted(lengths[i : i + 2]) for i in range(0, 6, 2)) == [[3, 4], [5, 6], [7, 8]]


def test_a_policy_is_built_whole(tmp_path) -> None:
    small = LabSettings(rows=24, easy_rows=40, hurried_rows=24, hidden=32, layers=1, heads=2, vocab_size=500, hops=(1,))
    card = build_lab_policy(small, tmp_path)
    assert json.loads((tmp_path / "card.json").read_text()) == card
    model = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert sum(p.numel() for p in model.parameters()) == card["parameters"]
    TurnTemplate(tokenizer)
    again = build_lab_policy(small, tmp_path / "again")
    assert again["sha256"] == card["sha256"]  # the same seed makes the same weights


@pytest.fixture(scope="module")
def judged_rows():
    """Worlds it was not trained on."""
    return make_transcripts(60, seed=77_000)


@pytest.fixture(scope="module")
def judgements(judged_rows):
    return AgentRRM.from_pretrained("lab", device="cpu").judge([t for t, _ in judged_rows])


def test_its_card_names_these_weights_and_they_are_small() -> None:
    folder = shipped("lab")
    card = json.loads((folder / "card.json").read_text())
    weights = folder / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == card["sha256"]
    assert weights.stat().st_size < 5_000_000
    assert card["commands"][0] == "rrm train --config lab" and card["configs"][0]["seed"] == 0
    assert all(not config["model"]["base"].startswith(("/", "runs")) for config in card["configs"])
    assert len({config["seed"] for config in card["configs"]}) == len(card["commands"]) == len(card["configs"])


def test_it_writes_whole_judgements(judged_rows, judgements) -> None:
    scored = [f for f in judgements if f.status == "scored"]
    assert len(scored) >= 0.95 * len(judged_rows)
    assert all(f.trace and f.critique and 0.0 <= f.score <= 1.0 for f in scored)


def test_it_finds_planted_faults_and_spares_clean_runs(judged_rows, judgements) -> None:
    hit, alarms = [], []
    for (_, annotation), said in zip(judged_rows, judgements, strict=True):
        wrong = [f.step for f in annotation.findings if f.verdict == "bad"]
        called = [f.step for f in said.findings if f.verdict == "bad"]
        if wrong:
            hit.append(wrong[0] in called)
        else:
            alarms.append(bool(called))
    assert sum(hit) >= 0.9 * len(hit)
    assert sum(alarms) <= 0.1 * len(alarms)


def test_its_scores_tell_success_from_failure(judged_rows, judgements) -> None:
    success = [f.score for (t, _), f in zip(judged_rows, judgements, strict=True) if t.outcome and f.score is not None]
    failure = [
        f.score for (t, _), f in zip(judged_rows, judgements, strict=True) if not t.outcome and f.score is not None
    ]
    assert sum(success) / len(success) > sum(failure) / len(failure) + 0.3


@pytest.fixture(scope="module")
def lessons() -> list[Demonstration]:
    return list(reflections(120, 0, hops=(1, 2, 3), hurried=0.6))


def asked(demo: Demonstration) -> str:
    """The prompt's last message."""
    return next(m["content"] for m in demo.messages if m["role"] == "user")


def test_all_kinds_at_all_lengths_and_the_same_again(lessons) -> None:
    assert {(d.kind, d.task.meta["hops"]) for d in lessons} == {(kind, h) for kind in KINDS for h in (1, 2, 3)}
    assert list(reflections(3, 0, hops=(1, 2, 3), hurried=0.6)) == lessons[:3]


def test_after_a_critique_everything_is_done_right(lessons) -> None:
    again = [d for d in lessons if d.kind == "again"]
    right = [d for d in again if " bad: " not in asked(d)]
    assert len(right) >= 5 and len(again) - len(right) >= 5
    for demo in again:
        assert demo.messages[-1]["content"] == f"Answer: {demo.task.answer}"
    for demo in right:  # what was done well is done once more, in the same words
        steps = [m["content"] for m in demo.messages if m["role"] == "assistant"]
        first = re.findall(r"\[step \d+\] (.+?)(?: -> .*)?$", asked(demo).split("Critique:")[0], re.MULTILINE)
        queries = [json.loads(line.removeprefix("search "))["query"] for line in first[:-1]]
        assert first[-1] == steps[-1]
        assert [q for q in queries if f'"query": "{q}"' not in "".join(steps)] == []


def test_a_retry_without_a_critique_is_no_better_informed(lessons) -> None:
    retries = [d for d in lessons if d.kind == "retry" and d.task.meta["hops"] > 1]
    assert all("Critique:" not in asked(d) for d in retries)
    right = [d.messages[-1]["content"] == f"Answer: {d.task.answer}" for d in retries]
    assert any(right) and not all(right)


def test_texts_are_rows_as_the_auxiliary_loss_has_them(lessons) -> None:
    texts = [d for d in lessons if d.kind in ("trace", "critique")]
    tokenizer = build_lab_tokenizer((m["content"] for d in texts for m in d.messages), 700)
    tokenizer.chat_template = LAB_TEMPLATE
    template, writer = TurnTemplate(tokenizer), TextWriter(tokenizer, longest=4000)
    plain = [d for d in texts if all("Error" not in m["content"] for m in d.messages)][:6]
    assert {d.kind for d in plain} == {"trace", "critique"}
    for demo, row in zip(plain, rows_of(plain, template, tokenizer), strict=True):
        turns = [m["content"] for m in demo.messages[:-2] if m["role"] == "assistant"]
        script = [[*tokenizer.encode(text, add_special_tokens=False), template.end_id] for text in turns]
        engine = ScriptedEngine(script, eos_token_id=template.end_id)
        params = SamplingParams(max_new_tokens=400)
        (episode,) = rollout(engine, tokenizer, make_factory("search"), [demo.task], params=params)
        text = writer.row(episode, demo.messages[-1]["content"], demo.kind, 1.0)  # pyright: ignore[reportArgumentType]
        assert text is not None and text.ids == row["input_ids"]
        assert row["labels"] == [-100] * text.start + text.ids[text.start :]


def test_a_policy_is_taught_to_reflect(tmp_path) -> None:
    small = LabSettings(rows=24, easy_rows=8, hurried_rows=8, hidden=32, layers=1, heads=2, vocab_size=500, hops=(1,))
    base = build_lab_policy(small, tmp_path / "base")
    card = reflect(ReflectSettings(rows=8, repeated=8), tmp_path / "base", tmp_path / "taught")
    assert card["from"] == base["sha256"] != card["sha256"]
    assert json.loads((tmp_path / "taught" / "card.json").read_text()) == card
    assert (
        reflect(ReflectSettings(rows=8, repeated=8), tmp_path / "base", tmp_path / "again")["sha256"] == card["sha256"]
    )
