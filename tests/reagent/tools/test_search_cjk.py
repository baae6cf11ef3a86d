"""A corpus of Chinese, Japanese and Korean passages: how runs without spaces become words, and indexes made before they were cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reagent.tools.corpus import Tokenizer, build_corpus, open_corpus
from reagent.tools.search import find
from rrm.errors import ConfigError

LATIN = [
    {"title": "Tove", "text": "The Tove is a river in the county of Marrow."},
    {"title": "Köln", "text": "Eine Stadt am Rhein, ЕЩЁ ОДНА, العربية, ไทย, ½ ﬁne."},
]
CJK = [
    {"title": "奥尔塔河", "text": "奥尔塔河发源于奥地利，全长四百三十公里。连茨桥由安娜设计，一九〇四年建成。"},
    {"title": "马罗县", "text": "马罗县有两座磨坊，县里的河流都很短。龙山在北边。"},
    {"title": "トーヴェ川", "text": "トーヴェ川はマロー郡を流れる川である。"},
    {"title": "토베 강", "text": "토베강은 마로 군을 흐르는 강이다."},
    {"title": "Lenz", "text": "The Lenz bridge (连茨桥) opened in 1904."},
]


def have_tools() -> None:
    pytest.importorskip("bm25s", reason="the extra tools is not installed")
    pytest.importorskip("Stemmer", reason="the extra tools is not installed")


def titles(corpus: Path, query: str, k: int = 3) -> list[str]:
    return [p.title for p in find(open_corpus(corpus), query, k)]


def write(path: Path, passages: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(p) + "\n" for p in passages))
    return path


def test_runs_without_spaces_are_cut_into_characters_and_pairs() -> None:
    have_tools()
    assert Tokenizer().splitter()("连茨桥 the Lenz桥2号") == ["连", "茨", "桥", "连茨", "茨桥", "lenz", "桥", "2", "号"]
    assert Tokenizer().splitter(query=True)("连茨桥 the Lenz桥2号") == ["连茨", "茨桥", "lenz", "桥", "2", "号"]
    assert Tokenizer(bigrams=False).splitter()("连茨桥 the Lenz桥") == ["连茨桥", "lenz桥"]
    assert Tokenizer().splitter(query=True)("ﾄｰｳﾞｪ川") == ["トー", "ーヴ", "ヴェ", "ェ川"]  # half width


def test_a_question_without_spaces_finds_its_passage(tmp_path: Path) -> None:
    have_tools()
    meta = build_corpus(write(tmp_path / "p.jsonl", CJK), tmp_path / "index")
    assert meta["words"] == {"language": "english", "cjk": "bigrams"}
    for query, title in {
        "奥尔塔河的全长是多少？": "奥尔塔河", "哪个县有磨坊": "马罗县", "龙": "马罗县", "トーヴェ川はどこを流れますか": "トーヴェ川", "토베강의 길이": "토베 강",
        "bridge": "Lenz", "谁设计了Lenz桥": "Lenz",
    }.items():  # fmt: skip
        assert titles(tmp_path / "index", query, 1) == [title], query
    assert sorted(titles(tmp_path / "index", "连茨桥")) == ["Lenz", "奥尔塔河"]
    assert titles(tmp_path / "index", "北京") == []


def test_an_index_of_other_scripts_is_as_it_was_and_takes_such_questions(tmp_path: Path) -> None:
    have_tools()
    passages = write(tmp_path / "p.jsonl", LATIN)
    build_corpus(passages, tmp_path / "before", words=Tokenizer(bigrams=False))
    meta = build_corpus(passages, tmp_path / "index")
    assert meta["words"] == {"language": "english"} and "bm25/vocab.index.json" in meta["parts"]
    before, now = ((tmp_path / name / "corpus.json").read_bytes() for name in ("before", "index"))
    assert before == now  # it has the digests of all files
    assert titles(tmp_path / "index", "Tove河在哪个county")[0] == "Tove"


def test_an_index_made_before_is_searched_as_it_was_made_and_told(tmp_path, caplog) -> None:
    have_tools()
    build_corpus(write(tmp_path / "p.jsonl", CJK), tmp_path / "before", words=Tokenizer(bigrams=False))
    assert titles(tmp_path / "before", "马罗县有两座磨坊") == ["马罗县"] and titles(tmp_path / "before", "磨坊") == []
    assert "before was built when a run of Chinese, Japanese or Korean was one word" in caplog.text
    meta = json.loads((tmp_path / "before/corpus.json").read_text())
    meta["words"]["cjk"] = "dictionary"
    shutil.copytree(tmp_path / "before", tmp_path / "later")
    (tmp_path / "later/corpus.json").write_text(json.dumps(meta))
    with pytest.raises(
        ConfigError, match=r"later: its words were made in a way not known here .*build the corpus anew"
    ):
        open_corpus(tmp_path / "later")
