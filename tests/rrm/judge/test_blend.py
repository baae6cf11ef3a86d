"""Blending a judge with a lexical model: by hand, kept and loaded exactly, gameable, and out of reach of rewards."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from travelling_judge import ROWS
from typer.testing import CliRunner

from rrm.adversarial import Payload, attacks, measure
from rrm.cli import choose_cmd, score_cmd
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.baselines import BaselineError, tfidf_text
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.blend import Blend, BlendMap, fit_blend
from rrm.judge.blended import Blended
from rrm.judge.calibration import Platt
from rrm.judge.judge_dir import (
    FOR_THE_READER,
    LATER,
    JudgeSettings,
    content_hash,
    load_settings,
    save_settings,
    settings_hash,
)
from rrm.judge.lexical import FILE, Lexical, fit_lexical, terms_of
from rrm.trajectory import Message, Trajectory, write_jsonl

PLATT = Platt(a=1.0, b=0.0, rows=10)


def talk(id: str, words: str) -> Trajectory:
    messages = [Message(role="user", content="do it"), Message(role="assistant", content=words)]
    return Trajectory(id=id, task="do it", question_id=id, messages=messages)


@pytest.fixture(scope="module")
def words() -> tuple[list[Trajectory], list[float]]:
    """Sixty runs: those that verified and submitted succeeded, those that crashed did not; the rest is noise."""
    rng = np.random.default_rng(0)
    noise = [f"word{i}" for i in range(40)]
    rows = []
    for i in range(60):
        said = ["verified and submitted", "crashed again"][i % 2] if i % 5 else "looked around"
        rows.append(talk(f"t{i}", f"{said} {' '.join(rng.choice(noise, 8))}"))
    return rows, [float(i % 2 == 0) for i in range(60)]


@pytest.fixture(scope="module")
def lexical(words) -> Lexical:
    return fit_lexical(*words)


def test_log_odds_by_hand() -> None:
    model = Lexical(
        intercept=0.5,
        terms=["good run", "run", "bad"],
        idf=[2.0, 1.0, 1.0],
        weights=[1.0, -1.0, -3.0],
        rows=9,
        terms_seen=9,
    )
    # assistant said "good run": x = 2 and 1, norm √5
    row = Trajectory(id="a", task="", messages=[Message(role="assistant", content="Good run!")])
    assert model.log_odds(row) == pytest.approx(0.5 + (2 - 1) / math.sqrt(5))
    # `run` three times, `good run` once
    row = Trajectory(id="a", task="", messages=[Message(role="assistant", content="good run, run run")])
    x = (2.0, 1 + math.log(3))
    assert model.log_odds(row) == pytest.approx(0.5 + (x[0] - x[1]) / math.hypot(*x))
    assert model.log_odds(talk("b", "?")) == 0.5
    assert model.best_terms(2) == ["good run", "run"]


def test_terms_are_cut_as_scikit_learn_cuts_them() -> None:
    text = "Crème brûlée, a 42-fold e.g. x_y İstanbul\n你好 世界 <score>1.0</score>"
    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    assert sorted(terms_of(text)) == sorted(vectorizer.build_analyzer()(text))


def test_uncut_it_is_the_baseline(words, lexical: Lexical) -> None:
    rows, labels = words
    assert len(lexical.terms) == lexical.terms_seen
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=3)
    model = LogisticRegression(C=1.0, max_iter=500).fit(
        vectorizer.fit_transform(map(tfidf_text, rows)), np.array(labels) > 0
    )
    expected = model.decision_function(vectorizer.transform(map(tfidf_text, rows)))
    assert [lexical.log_odds(t) for t in rows] == pytest.approx(expected.tolist(), abs=2e-3)  # four digits are kept


def test_cut_it_keeps_what_counts_most_and_its_size(words, lexical: Lexical, tmp_path: Path) -> None:
    small = fit_lexical(*words, most_bytes=1400)
    assert small.save(tmp_path).stat().st_size <= 1400
    assert 3 <= len(small.terms) < len(lexical.terms)
    assert {"crashed", "verified"} <= set(small.terms)
    assert lexical.save(tmp_path).stat().st_size < 100 * len(lexical.terms)


def test_it_is_kept_and_loaded_exactly(words, lexical: Lexical, tmp_path: Path) -> None:
    lexical.save(tmp_path)
    loaded = Lexical.load(tmp_path)
    assert [loaded.log_odds(t) for t in words[0]] == [lexical.log_odds(t) for t in words[0]]
    assert loaded.sha256 == lexical.sha256


def test_what_is_no_lexical_model_is_refused(lexical: Lexical, tmp_path: Path) -> None:
    with pytest.raises(RRMError, match="cannot be read"):
        Lexical.load(tmp_path)
    tree = json.loads(lexical.to_json())
    for change, message in (
        ({"weights": tree["weights"][:-1]}, "weights"),
        ({"terms": [tree["terms"][0]] * len(tree["terms"])}, "twice"),
        ({"idf": [float("nan")] * len(tree["idf"])}, "finite"),
        ({"__reduce__": "x"}, "not a lexical model"),
    ):
        (tmp_path / FILE).write_text(json.dumps(tree | change))
        with pytest.raises(RRMError, match=message):
            Lexical.load(tmp_path)
    with pytest.raises(BaselineError, match="one class"):
        fit_lexical(ROWS, [1.0] * len(ROWS))


# ---- the blend -------------------------------------------------------------------------------------------------------


def test_the_blended_score_by_hand() -> None:
    fitted = BlendMap(
        weight=0.25, judge_mean=1.0, judge_std=2.0, lexical_mean=-1.0, lexical_std=0.5, calibrator=PLATT, rows=10
    )
    raw = 1 / (1 + math.exp(-3.0))  # logit 3: one deviation above; log-odds 0: two above
    assert fitted(raw, 0.0) == pytest.approx(1 / (1 + math.exp(-(0.75 * 1 + 0.25 * 2))))


def test_the_weight_follows_what_tells() -> None:
    rng = np.random.default_rng(1)
    y = (rng.random(400) < 0.5).astype(float)
    tells, noise = y + rng.normal(0, 1, 400), rng.normal(0, 1, 400)

    def squash(z: np.ndarray) -> list[float]:
        return (1 / (1 + np.exp(-z))).tolist()

    assert fit_blend(squash(tells), noise.tolist(), y.tolist()).weight < 0.25
    assert fit_blend(squash(noise), tells.tolist(), y.tolist()).weight > 0.75
    both = fit_blend(squash(y + rng.normal(0, 1, 400)), tells.tolist(), y.tolist())
    assert 0.35 < both.weight < 0.65
    assert fit_blend(squash(-tells), tells.tolist(), y.tolist()).weight == 1.0


def test_transcripts_read_in_windows_have_a_map_of_their_own_over_one_raw_score() -> None:
    """They were pooled, where the judge's own maps are apart: the same blended score, right in eight of ten cases and in six."""
    n = 600
    windowed = [i % 2 == 1 for i in range(n)]
    high = [i % 4 < 2 for i in range(n)]
    right = [i % 20 not in (0, 2) if not w else i % 10 not in (1, 3) for i, w in enumerate(windowed)]
    y = [float(h == ok) for h, ok in zip(high, right, strict=True)]
    raw, words = [0.8 if h else 0.2 for h in high], [1.0 if h else -1.0 for h in high]
    both, pooled = fit_blend(raw, words, y, windowed=windowed), fit_blend(raw, words, y)
    assert pooled.windowed is None and pooled.covers() and not pooled.covers(windowed=True)
    assert (both.weight, both.judge_mean, both.rows) == (pooled.weight, pooled.judge_mean, n)
    top = both(0.8, 1.0)
    assert top == pooled(0.8, 1.0)  # what compares transcripts is one
    for many in (False, True):
        share = np.mean([label for label, h, w in zip(y, high, windowed, strict=True) if h and w == many])
        assert both.covers(windowed=many) and both.probability(top, windowed=many) == pytest.approx(share, abs=0.01)
        assert abs(pooled.probability(top, windowed=many) - share) > 0.05
    few = fit_blend(raw, words, y, windowed=[i < 8 for i in range(n)])
    assert few.windowed is None and few.probability(top, windowed=True) == few.calibrator(top)
    # none, or too few, read at once: their map is that of all, and they are not said to be calibrated
    for at_once in (0, 8):
        long = fit_blend(raw, words, y, windowed=[i >= at_once for i in range(n)])
        assert long.covers(windowed=True) and not long.covers(windowed=False)
        assert long.probability(top) == pooled.probability(top)
    assert few.covers() and not few.covers(windowed=True)


def test_nothing_is_blended_where_nothing_can_be() -> None:
    y = [0.0, 1.0] * 10
    for raw, log_odds, labels, message in (
        ([0.5] * 4, [1.0] * 4, y[:4], "at least ten"),
        ([0.5] * 20, list(range(20)), [1.0] * 20, "both outcomes"),
        ([0.5] * 20, list(range(20)), y, "same for all"),
        ([0.9, 0.1] * 10, [1.0, -1.0] * 10, y, "neither"),
    ):
        with pytest.raises(RRMError, match=message):
            fit_blend(raw, log_odds, labels)


@pytest.fixture
def blended(saved: Path, lexical: Lexical) -> Path:
    """A judge's directory with a blend of equal weights."""
    lexical.save(saved)
    fitted = BlendMap(weight=0.5, judge_mean=0, judge_std=1, lexical_mean=0, lexical_std=0.3, calibrator=PLATT, rows=10)
    settings = load_settings(saved)
    settings.blend = Blend(lexical_sha256=lexical.sha256, modes={"score": fitted})
    save_settings(saved, settings)
    return saved


def test_a_blend_is_asked_for_and_travels_with_its_judge(blended: Path, lexical: Lexical, tmp_path: Path) -> None:
    judge = AgentRRM.from_pretrained(str(blended))
    alone, together = judge.judge(ROWS, mode="score"), Blended(judge).judge(ROWS, mode="score")
    assert judge.settings.blend is not None
    fitted = judge.settings.blend.modes["score"]
    for own, both, row in zip(alone, together, ROWS, strict=True):
        assert own.judge.unblended_score is None and own.raw_score is not None
        assert (both.judge.unblended_score, both.judge.unblended_raw_score) == (own.score, own.raw_score)
        blend = fitted(own.raw_score, lexical.log_odds(row))
        assert (both.raw_score, both.score) == (blend, fitted.calibrator(blend))
        assert blend != own.raw_score
    again = AgentRRM.from_pretrained(str(judge.save_pretrained(tmp_path / "copy")))
    heard = []
    rows = Blended(again).judge(ROWS, mode="score", on_feedback=heard.append)
    assert [f.score for f in rows] == [f.score for f in together]
    assert sorted(f.id for f in heard) == sorted(t.id for t in ROWS)
    assert Blended(judge).describe()["blend"] == lexical.sha256[:12]


def test_a_blend_of_a_transcript_in_windows_takes_the_windows_map(blended: Path, lexical: Lexical) -> None:
    judge = AgentRRM.from_pretrained(str(blended), max_transcript_tokens=200)
    assert judge.settings.blend is not None
    brief, long = talk("brief", "crashed again"), talk("long", "verified and submitted " * 60)
    assert judge.in_windows(long, "score") and not judge.in_windows(brief, "score")
    (unfitted,) = Blended(judge).judge([long], mode="score")
    assert unfitted.judge.calibrated is False
    judge.settings.blend.modes["score"].windowed = windows = Platt(a=1.0, b=2.0, rows=10)
    short, found = Blended(judge).judge([brief, long], mode="score")
    assert (
        found.raw_score is not None
        and found.raw_score == unfitted.raw_score
        and found.score == windows(found.raw_score)
    )
    assert short.raw_score is not None and short.score == PLATT(short.raw_score)
    assert found.judge.calibrated and short.judge.calibrated


def test_rewards_are_never_blended(blended: Path, saved: Path) -> None:
    judge = AgentRRM.from_pretrained(str(blended))
    prompts, completions = ["do it"] * 2, ["verified and submitted", "crashed again"]
    settings = load_settings(blended)
    settings.blend = None
    rewarded = judge.as_reward_func()(prompts=prompts, completions=completions)
    save_settings(blended, settings)
    assert AgentRRM.from_pretrained(str(blended)).as_reward_func()(prompts=prompts, completions=completions) == rewarded


def test_a_blend_that_is_not_there_or_not_its_own_is_refused(blended: Path, judge: AgentRRM, words) -> None:
    with pytest.raises(ConfigError, match=r"calibration\.blend=true"):
        Blended(judge)
    loaded = AgentRRM.from_pretrained(str(blended))
    with pytest.raises(ConfigError, match="in mode score, not in full"):
        Blended(loaded).judge(ROWS, mode="full")
    fit_lexical(*words, most_bytes=1400).save(blended)
    with pytest.raises(RRMError, match="not the one"):
        Blended(loaded)


MADE = ([0.8, 0.2] * 20, [1.0, -1.0] * 20, [float(i % 5 > 0) if i % 2 == 0 else float(i % 5 < 1) for i in range(40)])
"""Raw scores, log-odds and labels."""


def test_a_blend_decides_the_hash_and_its_absence_leaves_older_hashes_alone(blended: Path) -> None:
    settings = load_settings(blended)
    before = content_hash(blended)
    settings.blend = None
    save_settings(blended, settings)
    assert content_hash(blended) != before
    settings.blend = Blend(lexical_sha256="0" * 64, modes={"score": fit_blend(*MADE)})
    told = settings.model_dump(mode="json", exclude=FOR_THE_READER)
    for name in ("windowed", "pooled"):
        del told["blend"]["modes"]["score"][name]  # as a judge that was made before these
    said = json.dumps({k: v for k, v in told.items() if LATER.get(k, "") != v}, sort_keys=True)
    assert settings_hash(settings) == hashlib.sha256(said.encode()).hexdigest()[:12]
    settings.blend.modes["score"].windowed = PLATT
    assert settings_hash(settings) != hashlib.sha256(said.encode()).hexdigest()[:12]
    old = JudgeSettings().model_dump(mode="json", exclude={"blend", "name", "trained_on", "training_questions"})
    assert "blend" not in old
    assert settings_hash(JudgeSettings()) == settings_hash(JudgeSettings.model_validate(old))


def test_a_paragraph_of_good_words_moves_a_blended_score_and_not_the_judges(blended: Path, lexical: Lexical) -> None:
    judge = AgentRRM.from_pretrained(str(blended))
    payload = Payload("good_words", " ".join(lexical.best_terms(12)))
    bases = [talk("fails", "crashed again word1 word2 word3"), talk("works", "looked around word4 word5")]
    assert judge.prompter is not None
    cases = attacks(bases, 0, tokenizer=judge.prompter.tokenizer, payloads=[payload], places_per_payload=4)
    alone, together = (measure(scorer, cases, "score").overall for scorer in (judge, Blended(judge)))
    lift = measure(Blended(judge), cases, "score").lift
    assert alone is not None and together is not None and lift is not None
    assert together.excess > 0.05 > alone.excess  # the suite's bar
    assert lift > 0.05


def test_the_command_blends_where_it_is_told_to_by_its_caller_or_its_judge(
    blended: Path, lexical: Lexical, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    app = typer.Typer()
    app.command()(score_cmd.command)

    def score(*options: str) -> list[dict[str, Any]]:
        given = [
            str(tmp_path / "rows.jsonl"),
            "-o",
            str(tmp_path / "out.jsonl"),
            "--mode",
            "score",
            "--overwrite",
            *options,
        ]
        done = CliRunner().invoke(app, [*given, "--device", "cpu"])
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    own = {row["id"]: row for row in score("--model", str(blended))}
    assert all(row["judge"]["unblended_score"] is None for row in own.values())
    for row in score("--model", str(blended), "--blend"):
        alone = own[row["id"]]
        assert row["judge"]["unblended_raw_score"] == alone["raw_score"] != row["raw_score"]
        assert row["judge"]["unblended_score"] == alone["score"] != row["score"]
    settings = load_settings(blended)
    settings.default_blend = True  # as a judge whose blend withstood the attacks: unasked, and in no other way
    before = content_hash(blended)
    save_settings(blended, settings)
    assert content_hash(blended) == before
    assert all(row["judge"]["unblended_score"] is not None for row in score("--model", str(blended)))
    assert all(row["judge"]["unblended_score"] is None for row in score("--model", str(blended), "--no-blend"))
    settings.default_blend = False
    save_settings(blended, settings)
    (blended / FILE).unlink()
    assert {row["id"]: row["score"] for row in score("--model", str(blended))} == {
        i: r["score"] for i, r in own.items()
    }


def test_choosing_scores_as_scoring_does(blended: Path, tmp_path: Path) -> None:
    """It asked the judge alone: attempts scored first and chosen then were others than those chosen at once."""
    settings = load_settings(blended)
    settings.default_blend, settings.default_mode = True, "score"
    save_settings(blended, settings)
    rows = [talk(f"r{i}", f"{said} word{i}") for i, said in enumerate(("crashed again", "verified and submitted"))]
    rows = [row.model_copy(update={"question_id": "q"}) for row in rows]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    app = typer.Typer()
    for name, command in (("score", score_cmd.command), ("choose", choose_cmd.command)):
        app.command(name)(command)

    def run(command: str, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        out = tmp_path / f"{command}.jsonl"
        judge = () if "--scores" in options else ("--model", str(blended), "--device", "cpu")
        done = CliRunner().invoke(app, [command, str(tmp_path / "rows.jsonl"), "-o", str(out), *judge, *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout.splitlines()[-1]), [json.loads(line) for line in out.read_text().splitlines()]

    scored = {}
    for options, mixed in (((), True), (("--no-blend",), False)):
        said, found = run("score", "--overwrite", *options)
        told, (chosen,) = run("choose", "--overwrite", *options)
        assert said["blended"] is told["blended"] is mixed
        scored[mixed] = {row["id"]: row["score"] for row in found}
        assert chosen["meta"]["judge_score"] == max(scored[mixed].values()) == scored[mixed][chosen["id"]]
    assert scored[True] != scored[False]
    told, _ = run("choose", "--overwrite", "--scores", str(tmp_path / "score.jsonl"))
    assert told["blended"] is None
