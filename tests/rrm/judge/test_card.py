"""A card names its base and the base's own licence, and claims none that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rrm.judge.card import card_head, front_matter


def head(base: str | None) -> dict[str, object]:
    return yaml.safe_load("\n".join(card_head(base)))


def test_the_default_base() -> None:
    fields = head("smollm2")
    assert (fields["base_model"], fields["license"]) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")
    assert fields["tags"] == ["reward-model", "agents"]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: llama3.1\ntags: [a]\n---\n# Base\n", {"license": "llama3.1"}),
        (
            "---\nlicense: other\nlicense_name: gemma\nlicense_link: https://x.example/l\n---\n",
            {"license": "other", "license_name": "gemma", "license_link": "https://x.example/l"},
        ),
        ("# no front matter\n", {"license": "other", "license_name": "that-of-the-base"}),
        ("---\nlicense: [broken\n---\n", {"license": "other", "license_name": "that-of-the-base"}),
    ],
)
def test_a_bases_own_card_gives_the_licence(tmp_path: Path, card: str, expected: dict[str, str]) -> None:
    (tmp_path / "README.md").write_text(card)
    fields = head(str(tmp_path))
    assert {k: v for k, v in fields.items() if k.startswith("license")} == expected
    assert "base_model" not in fields  # a folder of this machine is no name


def test_a_base_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from travelling_judge import in_the_cache

    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "README.md").write_text("---\nlicense: mit\n---\n")
    in_the_cache(tmp_path / "repo", tmp_path / "cache", "org/base", monkeypatch)
    assert (head("org/base")["base_model"], head("org/base")["license"]) == ("org/base", "mit")
    assert head("org/absent")["license"] == "other"


def test_a_shipped_judge_as_base() -> None:
    assert "base_model" not in head("lab")  # no repository of the hub is called so


def test_from_scratch_no_licence_is_claimed() -> None:
    for base in (None, "reagent.lab.judge_base:build"):
        assert set(head(base)) == {"library_name", "tags"}


def test_front_matter_is_only_at_the_start() -> None:
    assert front_matter("text\n---\nlicense: mit\n---\n") == {}


def test_a_trained_judges_card_has_its_bases_licence(tmp_path: Path) -> None:
    from rrm.judge.judge_dir import JudgeSettings
    from rrm.train.export import write_card

    base, judge = tmp_path / "base", tmp_path / "judge"
    base.mkdir(), judge.mkdir()
    (base / "README.md").write_text("---\nlicense: llama3.1\n---\n")
    for settings in (JudgeSettings(base=str(base)), JudgeSettings(trained_on={"base": str(base)})):
        write_card(judge, settings, {})
        card = (judge / "README.md").read_text()
        assert front_matter(card)["license"] == "llama3.1" and "Its scores are not calibrated." in card
