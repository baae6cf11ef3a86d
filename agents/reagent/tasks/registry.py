"""The benchmarks by name, for `environment.name` and `reagent tasks NAME`."""

TASKS: dict[str, str] = {
    "hotpotqa": "reagent.tasks.hotpotqa:HotpotQA",
    "2wiki": "reagent.tasks.wikimultihop:WikiMultihop",
    "musique": "reagent.tasks.musique:MuSiQue",
    "reading": "reagent.tasks.reading_comprehension:ReadingComprehension",
    "questions": "reagent.tasks.questions:Questions",
    "bamboogle": "reagent.tasks.bamboogle:Bamboogle",
    "nq": "reagent.tasks.open_qa:NQ",
    "triviaqa": "reagent.tasks.open_qa:TriviaQA",
    "popqa": "reagent.tasks.open_qa:PopQA",
    "gsm8k": "reagent.tasks.gsm8k:GSM8K",
    "math500": "reagent.tasks.math500:Math500",
    "aime24": "reagent.tasks.aime:Aime24",
    "aime25": "reagent.tasks.aime:Aime25",
    "bfcl": "reagent.tasks.bfcl:Bfcl",
    "webwalkerqa": "reagent.tasks.webwalkerqa:WebWalkerQA",
    "gaia": "reagent.tasks.gaia:Gaia",
    "gaia_text": "reagent.tasks.gaia:GaiaText",
    "hle": "reagent.tasks.hle:Hle",
    "xbench": "reagent.tasks.xbench:XBench",
}
"""Name → `module:Class` (a `reagent.tasks.base.Benchmark`)."""
