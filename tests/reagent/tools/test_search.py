"""A corpus on disk: its words, its ranking, its texts; embeddings; a search API on loopback."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tool_errors import raises

from reagent.env.tool import ToolResult
from reagent.tools import build
from reagent.tools.corpus import Tokenizer, best, build_corpus, open_corpus
from reagent.tools.dense import DenseSettings, MeanPooling, unit
from reagent.tools.passages import Passage, Passages, read_passages
from reagent.tools.search import find, listed
from reagent.tools.search_api import Service
from rrm.errors import ConfigError, ReadError

PASSAGES = [
    {"title": "Aldermoor", "text": "Aldermoor is a town on the river Tove. It has two mills."},
    {"title": "Tove", "text": "The Tove is a river in the county of Marrow."},
    {"title": "Marrow", "text": "Marrow is a county. Its rivers are short."},
    {"title": "Baker", "text": "A baker bakes. Vitamin C is in no bread."},
    {"title": "Köln", "text": "Eine Stadt am Rhein."},
]


def have_tools() -> None:
    pytest.importorskip("bm25s", reason="the extra tools is not installed")
    pytest.importorskip("Stemmer", reason="the extra tools is not installed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    have_tools()
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PASSAGES))
    build_corpus(folder / "p.jsonl", folder / "index")
    return folder / "index"


def titles(corpus: Path, query: str, k: int = 3) -> list[str]:
    return [p.title for p in find(open_corpus(corpus), query, k)]


def test_words_are_stemmed_folded_and_stopped() -> None:
    have_tools()
    split = Tokenizer().splitter()
    assert split("The Rivers, the RIVER's mills—Ｃ a 9") == ["river", "river", "s", "mill", "c", "9"]
    assert Tokenizer("").splitter()("The Rivers") == ["the", "rivers"]
    with pytest.raises(ConfigError, match="no st"):
        Tokenizer("klingon").splitter()


def test_ranking_finds_what_shares_words(corpus: Path) -> None:
    assert titles(corpus, "Which county is the Tove in?")[0] == "Tove"
    assert titles(corpus, "vitamin c") == ["Baker"]
    assert titles(corpus, "koln") == [] and titles(corpus, "KÖLN") == ["Köln"]
    assert titles(corpus, "baking") == ["Baker"]  # stems agree
    for query in ("", "the of and", "zzzz", "?!", "\0"):
        assert titles(corpus, query) == []
    assert titles(corpus, "river", k=100) == titles(corpus, "river", k=5)


def test_scores_are_lucenes_bm25(corpus: Path) -> None:
    """By hand: idf = ln(1 + (N − n + ½)/(n + ½)), tf/(tf + k1 (1 − b + b·length/mean))."""
    opened = open_corpus(corpus)
    lengths = [len(opened.split(f"{p['title']}\n{p['text']}")) for p in PASSAGES]
    scores = opened.bm25_scores("mills")
    idf = math.log(1 + (5 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 1 / (1 + 1.5 * (0.25 + 0.75 * lengths[0] / (sum(lengths) / 5)))
    assert scores[0] == pytest.approx(expected, rel=1e-5) and list(scores[1:]) == [0] * 4


def test_best_orders_ties_by_place() -> None:
    assert best(np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0]), 4) == [1, 3, 2, 4]
    assert best(np.array([0.0, 0.0, 1.0]), 3, above=0.0) == [2]
    assert best(np.array([]), 3) == [] and best(np.array([1.0]), 5) == [0]


def test_texts_share_the_budget() -> None:
    passages = [Passage("0", "Short", "x"), Passage("1", "Long", "word " * 500), Passage("2", "Longer", "word " * 900)]
    text = listed(passages, 600)
    assert len(text) <= 600 and text.startswith("[1] Short\nx\n\n[2] Long\nword") and "[3] Longer" in text
    assert "characters left out" in text
    assert listed(passages[:1], 600) == "[1] Short\nx" and listed([], 600) == ""


def test_the_tool(corpus: Path) -> None:
    (search,) = build(["search"], {"search": {"corpus": str(corpus), "k": 2}})
    result = asyncio.run(search.call({"query": "town with mills"}))
    assert result.content.startswith("[1] Aldermoor\nAldermoor is a town on the river Tove.") and result.error is None
    assert asyncio.run(search.call({"query": "zzz"})).content == "(no output)"


def test_one_index_serves_many_threads(corpus: Path) -> None:
    assert open_corpus(corpus) is open_corpus(str(corpus) + "/")
    queries = ["river", "county", "town", "baker bread", "Rhein"] * 20
    alone = [titles(corpus, q) for q in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda q: titles(corpus, q), queries)) == alone


def test_searching_starts_no_jax(tmp_path: Path) -> None:
    """A JAX that is installed and not used: bm25s would start it, and it takes most of a GPU's memory."""
    have_tools()
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('jax was started')\n")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(values, k):\n    return values[:k], values[:k]\n")
    (tmp_path / "p.jsonl").write_text('{"id": "1", "title": "Oslo", "text": "Oslo is the capital of Norway."}\n')
    program = (
        "import sys\n"
        "from reagent.tools.corpus import build_corpus, open_corpus\n"
        "build_corpus('p.jsonl', 'made')\n"
        "print(open_corpus('made').bm25_scores('capital of Norway').argmax())\n"
        "import jax\n"
        "assert not any(type(finder).__name__ == '_NoJax' for finder in sys.meta_path)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["0", "jax was started"], run.stderr  # by the program's own import alone
    assert run.returncode == 0, run.stderr


def test_the_index_is_mapped(corpus: Path) -> None:
    opened = open_corpus(corpus)
    assert all(isinstance(opened.bm25.scores[name], np.memmap) for name in ("data", "indices", "indptr"))
    assert isinstance(opened.passages.offsets, np.memmap) and opened.passages[4].title == "Köln"
    assert opened.meta["passages"] == 5 and opened.meta["words"] == {"language": "english"}


@pytest.mark.parametrize("packed", [False, True])
def test_passages_in_any_wrapping(tmp_path: Path, packed: bool) -> None:
    for name, text in (("a.json", json.dumps(PASSAGES)), ("b.jsonl", "\n\n" + "\n".join(map(json.dumps, PASSAGES)))):
        path = tmp_path / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        assert [p.title for p in read_passages(path)] == [p["title"] for p in PASSAGES]


def test_bad_passages_are_named(tmp_path: Path) -> None:
    have_tools()
    cases = {
        '{"text": "a"}\n\nnonsense\n': r"p\.jsonl:3: not JSON",
        '{"text": "a"}\n[1]\n': r"p\.jsonl:2: a passage is an object .* not a list",
        '{"title": "a"}\n': r"p\.jsonl:1: a passage needs `text`",
        '{"text": "a", "id": true}\n': r"an id is text or a number, not True",
        '{"text": "a", "id": 1}\n{"text": "b", "id": "1"}\n': r"two passages have the id '1'",
        '{"text": "a", "id": 1}\n{"text": "b"}\n': r":2: this passage has no id and those before it have one",
        '{"text": "a"}\n{"text": "b", "id": "0"}\n': r":2: this passage has an id and those before it have none",
        "\n": "no passages",
        '{"text": "?!"}\n': "hold no words",
    }
    for text, message in cases.items():
        (tmp_path / "p.jsonl").write_text(text)
        with pytest.raises(ReadError, match=message):
            build_corpus(tmp_path / "p.jsonl", tmp_path / "index")
        assert os.listdir(tmp_path) == ["p.jsonl"]  # nothing half made
    with pytest.raises(ReadError, match="cannot be read"):
        build_corpus(tmp_path / "absent", tmp_path / "index")


def test_what_is_no_corpus(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(ConfigError, match="reagent corpus PASSAGES -o"):
        build(["search"], {"search": {"corpus": str(tmp_path)}})
    with pytest.raises(ConfigError, match="exists already"):
        build_corpus(tmp_path / "p", corpus)
    with pytest.raises(ConfigError, match="has no embeddings"):
        build(["search"], {"search": {"corpus": str(corpus), "ranking": "dense"}})


def test_a_changed_text_file_is_noticed(corpus: Path, tmp_path: Path) -> None:
    for name in ("passages.jsonl", "offsets.npy"):
        (tmp_path / name).write_bytes((corpus / name).read_bytes())
    with open(tmp_path / "passages.jsonl", "ab") as out:
        out.write(b"{}\n")
    with pytest.raises(ConfigError, match="build the corpus anew"):
        Passages(tmp_path)


def test_parts_of_another_build_are_noticed(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PASSAGES[:2]))
    build_corpus(tmp_path / "p.jsonl", tmp_path / "other")

    def broken(change: Callable[[Path], object]) -> Path:
        folder = tmp_path / f"broken{len(os.listdir(tmp_path))}"
        shutil.copytree(corpus, folder)
        change(folder)
        return folder

    def other_index(folder: Path) -> None:
        shutil.rmtree(folder / "bm25")
        shutil.copytree(tmp_path / "other" / "bm25", folder / "bm25")

    def other_text(folder: Path) -> None:
        path = folder / "passages.jsonl"
        path.write_bytes(path.read_bytes().replace(b"mills", b"halls"))

    for change, message in (
        (other_index, r"bm25/.* is not what this corpus was built with"),
        (other_text, "passages.jsonl is not what"),
        (lambda folder: (folder / "passages.jsonl").write_bytes(b""), "passages.jsonl is not what"),
        (lambda folder: (folder / "offsets.npy").unlink(), "offsets.npy is absent; build the corpus anew"),
        (lambda folder: shutil.rmtree(folder / "bm25"), "bm25/.* is absent"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_corpus(broken(change))
    assert titles(broken(lambda folder: None), "mills") == ["Aldermoor"]


def test_of_two_builds_at_once_one_wins_whole(tmp_path: Path) -> None:
    """The second starts, and ends, while the first embeds."""
    have_tools()
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PASSAGES))
    (tmp_path / "q.jsonl").write_text(json.dumps(PASSAGES[0]))

    def embed(texts: Sequence[str]) -> np.ndarray:
        build_corpus(tmp_path / "q.jsonl", tmp_path / "index")
        return letters(texts)

    with pytest.raises(ConfigError, match="was made by another build meanwhile"):
        build_corpus(tmp_path / "p.jsonl", tmp_path / "index", dense=DenseSettings("letters"), embed=embed)
    assert sorted(os.listdir(tmp_path)) == ["index", "p.jsonl", "q.jsonl"]
    assert len(open_corpus(tmp_path / "index").passages) == 1


def test_the_command(tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    have_tools()
    from reagent.cli.corpus_cmd import command

    (tmp_path / "p.json").write_text(json.dumps(PASSAGES))
    code, out = invoke(
        command, tmp_path / "p.json", "-o", tmp_path / "index", "--language", "", "--k1", "0.9", "--b", "0.4"
    )
    assert code == 0 and out["passages"] == 5 and out["bm25"]["k1"] == 0.9 and out["words"] == {"language": ""}
    assert titles(tmp_path / "index", "mills") == ["Aldermoor"] and titles(tmp_path / "index", "mill") == []


# ---- embeddings -----------------------------------------------------------------------------------------------------------


def letters(texts: Sequence[str]) -> np.ndarray:
    """Counts of letters: an embedding that can be checked by hand."""
    return np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float64)


def test_dense_ranking_by_a_function(tmp_path: Path) -> None:
    have_tools()
    (tmp_path / "p.json").write_text(json.dumps([{"text": t} for t in ("aaab", "bbba", "zzz", "ab")]))
    settings = DenseSettings("letters", query_prefix="", passage_prefix="")
    build_corpus(tmp_path / "p.json", tmp_path / "index", dense=settings, embed=letters)
    opened = open_corpus(tmp_path / "index")
    assert np.allclose(np.linalg.norm(opened.vectors, axis=1), 1) and isinstance(opened.vectors, np.memmap)
    assert [p.text for p in find(opened, "aab", 4, letters)] == ["aaab", "ab", "bbba", "zzz"]
    (search,) = build(
        ["search"], {"search": {"corpus": str(tmp_path / "index"), "ranking": "dense", "embed": letters, "k": 1}}
    )
    assert asyncio.run(search.call({"query": "zz"})).content == "[1] \nzzz"
    with pytest.raises(ConfigError, match="26 dimensions"):
        build(
            ["search"],
            {
                "search": {
                    "corpus": str(tmp_path / "index"),
                    "ranking": "dense",
                    "embed": lambda t: np.ones((len(t), 3)),
                }
            },
        )


def test_mean_pooling_of_a_real_model(base: Path, tmp_path: Path) -> None:
    """The mean of the last hidden states over a text's own tokens, whatever is padded beside it."""
    torch = pytest.importorskip("torch")
    embed = MeanPooling(DenseSettings(str(base)))
    texts = ["a river", "a much longer text about a town on a river with two mills"]
    both = embed(texts)
    ids = embed.tokenizer(texts[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        alone = embed.model(ids).last_hidden_state[0].mean(0).numpy()
    assert both.shape == (2, embed.model.config.hidden_size)
    assert np.allclose(both[0], alone, atol=1e-5) and np.allclose(embed(texts[:1])[0], alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(unit(both), axis=1), 1)
    assert (unit(np.zeros((1, 3))) == 0).all()


# ---- a search API ----------------------------------------------------------------------------------------------------------


class _Engine(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        server: Any = self.server
        length = int(self.headers.get("Content-Length") or 0)
        server.asked.append((self.path, self.headers.get("X-API-KEY"), self.rfile.read(length)))
        status, body = server.script.pop(0) if server.script else (200, server.usual)
        if status == "hang":
            server.done.wait(5)
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/steal")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    server.asked, server.script, server.done = [], [], threading.Event()
    results = [{"title": f"T{n}", "href": f"https://x/{n}", "about": {"text": f"snippet\n {n}"}} for n in range(9)]
    server.usual = json.dumps({"web": {"results": results}}).encode()
    server.url = f"http://127.0.0.1:{server.server_port}/s?q={{query}}&n={{k}}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("ENGINE_KEY", "s3cret")
    yield server
    server.done.set()
    server.shutdown()
    server.server_close()


def ask(engine: Any, query: str = "a b&c", **options: Any) -> ToolResult:
    settings = {
        "url": engine.url, "results": "web.results", "link": "href", "text": "about.text", "key_env": "ENGINE_KEY",
        "key_header": "X-API-KEY", "k": 2, "pause_s": 0.01,
    }  # fmt: skip
    (tool,) = build(["search_api"], {"search_api": settings | options})
    return asyncio.run(tool.call({"query": query}))


def test_an_api_is_asked_and_read(engine: Any) -> None:
    result = ask(engine)
    assert result.content == "[1] T0\nhttps://x/0\nsnippet 0\n\n[2] T1\nhttps://x/1\nsnippet 1"
    assert engine.asked == [("/s?q=a%20b%26c&n=2", "s3cret", b"")]
    url = engine.url.partition("?")[0]
    ask(engine, url=url, body={"q": "{query}", "options": {"num": "{k}"}})
    assert engine.asked[1][0] == "/s" and json.loads(engine.asked[1][2]) == {"q": "a b&c", "options": {"num": 2}}


def test_an_apis_results_on_denied_hosts_are_left_out_and_counted(engine: Any) -> None:
    hrefs = [
        "https://x.example/0",
        "https://sets.example/gaia",
        "/url?q=https%3A%2F%2Fwww.sets.example%2Fa",
        "https://y.example/3",
    ]
    results = [{"title": f"T{n}", "href": href, "about": {"text": "s"}} for n, href in enumerate(hrefs)]
    engine.usual = json.dumps({"web": {"results": results}}).encode()
    result = ask(engine, k=3, deny=["sets.example"], max_chars=60)  # the note is not cut off
    assert result.content == (
        "[1] T0\nhttps://x.example/0\ns\n\n[2] T3\nhttps://y.example/3\ns\n\n"
        "[2 results of hosts that are not shown in this task were left out]"
    )
    assert (result.denied, result.error) == (2, None)
    assert ask(engine, k=1, deny=["sets.example"]).denied == 0  # enough were found before it
    alone = ask(engine, k=3, deny=["x.example", "sets.example", "y.example"])
    assert alone.content.startswith("[4 results") and alone.denied == 4
    assert ask(engine, k=3).content.count("sets.example") == 2 and ask(engine, k=3).denied == 0


def test_an_api_that_fails_is_asked_again(engine: Any) -> None:
    engine.script = [(503, b""), (429, b"")]
    assert ask(engine).error is None and len(engine.asked) == 3
    engine.script = [(500, b"s3cret stack trace")] * 3
    result = ask(engine, tries=2)
    assert result.error is not None and result.error.kind == "search_down"
    assert "HTTP 500, 2 tries" in result.content and "s3cret" not in result.content


@pytest.mark.parametrize(
    ("script", "error_kind"),
    [
        ((403, b""), "search_refused"), ((302, b""), "search_refused"), ((200, b"<html>"), "search_unreadable"),
        ((200, b'{"web": 3}'), "search_unreadable"), ((200, b'{"web": {"results": ["x"]}}'), "search_unreadable"),
        (("hang", b""), "search_down"),
    ],
)  # fmt: skip
def test_an_apis_failures_are_typed(engine: Any, script: tuple[Any, bytes], error_kind: str) -> None:
    engine.script = [script]
    result = ask(engine, tries=1, timeout_s=0.4)
    assert result.error is not None and result.error.kind == error_kind and "s3cret" not in result.content
    assert len(engine.asked) == 1


@pytest.mark.parametrize("key", ["s3cret\n", " s3cret", "s3\ncret", "s3\x00cret", "s3crét", "s3cret…"])
def test_a_key_that_no_header_carries_is_refused_unseen(engine: Any, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "ENGINE_KEY": key})  # a NUL could not be set for real
    with pytest.raises(ConfigError, match="ENGINE_KEY") as raised:
        ask(engine)
    assert "s3" not in str(raised.value) and engine.asked == []
    monkeypatch.setenv("ENGINE_KEY", "s3cret")
    for option in ({"key_header": "X: y"}, {"key_prefix": "Bearer\n"}):
        with pytest.raises(ConfigError, match=next(iter(option))):
            ask(engine, **option)


def test_no_words_of_a_broken_request_are_shown(engine: Any) -> None:
    service = Service(engine.url, None, {"K": "Bearer s3cret\n"}, "r", "t", "l", "x", 1.0, 1, 0.0)
    with raises("search_down", match=r"\(ValueError\)") as raised:
        service.ask("q", 1)
    assert "s3cret" not in str(raised.value) and raised.value.__cause__ is None
    assert "s3cret" not in repr(service) and "127.0.0.1" not in repr(service)


def test_an_apis_options_are_checked(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="has a place for"):
        ask(engine, url="http://127.0.0.1/")
    monkeypatch.delenv("ENGINE_KEY")
    with pytest.raises(ConfigError, match="ENGINE_KEY is not set"):
        ask(engine)


def test_an_embedding_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    passages = tmp_path / "passages.jsonl"
    passages.write_text('{"title": "a", "text": "b"}\n')
    with pytest.raises(ConfigError, match=r"no embedding model '.*absent': neither a folder") as raised:
        build_corpus(passages, tmp_path / "corpus", dense=DenseSettings(str(tmp_path / "absent")))
    assert "\n" not in str(raised.value) and not (tmp_path / "corpus").exists()


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
