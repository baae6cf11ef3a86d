"""Templates of the lab's questions, agents' texts and findings.

`QUESTION[split]` and `SAY[key][split]`: `heldout` never occurs in training data, `few` is for a judge from scratch
(docs/decisions.md, ADR 10). No template of `FINDING[key]` has a place for a value that answers the question."""

_ASKED = "What is the {phrase}?"
"""The search environment's own wording; one question in ten."""
_OPENINGS = (
    "What is", "Which is", "Who or what is", "Question:", "Next question: what is", "Hello, what is", "Do you know",
    "Find", "Find out", "Please find out", "First of all find", "Find out who or what is", "Look up", "Look for", "Search for",
    "Help to find", "Name", "Give", "Give us", "Write down", "Say what you find as", "Can you say what is", "Could you check",
    "Try to discover", "It matters to learn", "Somebody asked for", "A friend asks: what is", "We have to report",
    "He wants to hear of", "They are curious about", "My question is about", "The task is to find", "Your job: determine",
    "Answer this: what is", "In this world, what is", "For my notes:", "Is it known what is", "Now to",
)  # fmt: skip
_ENDINGS = (
    ".", "?", "!", " now!", ", thanks.", " and report it.", " with the search.", " as soon as you can.", "? Use the search.",
    ". It is for a report.", "? Be careful.", " if there is one.", ", step by step.", "? One name is enough.",
    " in this world.", ". Nothing else.", "? Thank you.", " and say how you found it.",
)  # fmt: skip
_ANY = tuple(f"{opening} the {{phrase}}{ending}" for opening in _OPENINGS for ending in _ENDINGS)
_TO_BEGIN_WITH = (
    _ASKED, "Find the {phrase}.", "Which is the {phrase}?", "Name the {phrase}.", "Question: the {phrase}?",
    "Can you say what the {phrase} is?", "The task is to find the {phrase}.", "Somebody asked for the {phrase}.",
    "We have to report the {phrase}.", "Who or what is the {phrase}?", "My question is about the {phrase}.",
)  # fmt: skip
_FEW_OPENINGS = (
    "Please find out", "Search for", "Look up", "Help to find", "Give", "Try to discover", "It matters to learn",
)  # fmt: skip
_FEW_ENDINGS = (".", " and report it.", ", thanks.", " now!", " with the search.")
QUESTION = {
    "few": (*_TO_BEGIN_WITH, *(f"{opening} the {{phrase}}{end}" for opening in _FEW_OPENINGS for end in _FEW_ENDINGS)),
    "train": (*[_ASKED] * (len(_ANY) // 9), *_ANY),
    "heldout": ("Tell me the {phrase}, please.", "I would like to know the {phrase}."),
}

TERSE_SYSTEM = (
    "search(query): Search the facts.\n"
    'Call: <tool_call>{"name": ..., "arguments": {...}}</tool_call> At the end: Answer: ...'
)
"""The search environment's description of its tool."""

_FIRST = (
    "", "", "", "OK. ", "Right. ", "Hm. ", "Let me think. ", "Step by step. ", "I see. ", "Fine. ", "Next. ", "Well. ",
)  # fmt: skip
"""Beginnings of a talking agent's sentences; one in four has none."""


def _ways(few: tuple[str, ...], more: tuple[str, ...], heldout: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The wordings of one thing to say, by split; those of `train` with every beginning."""
    return {"few": few, "train": tuple(first + form for first in _FIRST for form in (*few, *more)), "heldout": heldout}


SAY: dict[str, dict[str, tuple[str, ...]]] = {
    "need": _ways(
        few=(
            "I need the {rel} of {a}.", "Let me find the {rel} of {a}.", "Now the {rel} of {a}.", "Next: {rel} of {a}.",
            "First I should learn the {rel} of {a}.", "To go on I need {a}'s {rel}."),
        more=("What is {a}'s {rel}?", "Which {rel} does {a} have?", "I am missing the {rel} of {a}.",
            "My plan says: {rel} of {a}.", "It remains to learn the {rel} of {a}, so I search.",
            "I ask about {a}, for the {rel}.", "What matters now is {a}'s {rel}."),
        heldout=("The {rel} of {a} comes next.", "Looking up who or what is the {rel} of {a}."),
    ),
    "read": _ways(
        few=("The {rel} of {a} is {b}.", "So the {rel} of {a} is {b}.", "{b} is the {rel} of {a}.", "OK, {b}.",
            "I found {b} as the {rel} of {a}.", "{a}'s {rel}: {b}."),
        more=("The result names {b}.", "According to this, {a}'s {rel} is {b}.", "There it is: {b} ({rel} of {a}).",
            "The {rel} I wanted is {b}.", "{b}, then, for {a}.", "From the facts: {rel} of {a}, {b}."),
        heldout=("It says that {b} is the {rel} of {a}.", "Good, {a} has {b} as {rel}."),
    ),
    "retry": _ways(
        few=("The search failed. I try again.", "That was an error, so I retry.", "It did not work. Again."),
        more=("No result because of an error; the same call again.", "An error. I repeat the call."),
        heldout=("The tool is down; one more try.",),
    ),
    "again": _ways(
        few=("Let me look at the {rel} of {a} again.", "I search for the {rel} of {a}.",
            "Let me repeat the search for the {rel} of {a}.", "Again: {rel} of {a}."),
        more=("Another search for {a}'s {rel}.", "Back to the {rel} of {a}."),
        heldout=("Once more, the {rel} of {a}.",),
    ),
    "check": _ways(
        few=("I check {b} before I answer.", "Let me verify {b}.", "Is {b} right? I look again."),
        more=("Before the end I search for {b}.", "What do the facts say about {b}?"),
        heldout=("A second look at {b}, to be safe.",),
    ),
    "sorry_search": _ways(
        few=("That was the wrong search. I need the {rel} of {a}.", "Wrong fact; I want the {rel} of {a}.",
            "I asked for the wrong thing; the {rel} of {a} it is."),
        more=("My search was wrong, {a}'s {rel} is what I need.", "Mistake: it should have been the {rel} of {a}."),
        heldout=("Not what I was after: the {rel} of {a} is needed.",),
    ),
    "sorry_read": _ways(
        few=("I was wrong about the {rel} of {a}. I go back to it.", "My {rel} of {a} was not right; I redo it.",
            "I misread the {rel} of {a}; again from there."),
        more=("I had {a}'s {rel} wrong and search for it.", "An error of mine about the {rel} of {a}; I repair it."),
        heldout=("Going back, the {rel} of {a} was mistaken.",),
    ),
    "sorry_arguments": _ways(
        few=("My arguments were broken. I write them again.", "I fix the call.", "Broken JSON. Here is the call again."),
        more=("The arguments could not be read, so I repeat them.", "I made a mistake in the JSON and correct it."),
        heldout=("The call had a typo, here it is once more.",),
    ),
    "guess": _ways(
        few=("I think I know the rest.", "I do not need to search further.", "It must be this.", "My guess will do."),
        more=("Enough, I say what I believe.", "I can answer without the other facts."),
        heldout=("No more searching, this should be it.",),
    ),
    "give_up": _ways(
        few=("I could not find it.", "This is too hard, I stop here.", "I do not know."),
        more=("The search does not help me.", "I have no answer."),
        heldout=("I am afraid this cannot be found.",),
    ),
    "done": _ways(
        few=("That answers it.", "Done.", "So the answer is clear.", "Here is the answer."),
        more=("I can answer now.", "The question is settled."),
        heldout=("There we are.",),
    ),
}  # fmt: skip

FINDING: dict[str, tuple[str, ...]] = {
    "search": ("searches the right relation of the right entity", "asks for exactly what is needed"),
    "tool_error": ("a correct call; the tool failed, retry it", "right search, but the tool was down; retry"),
    "retry": ("retries after the tool error", "repeats the call only because the tool failed"),
    "recover": ("notices the mistake of step {k} and corrects it", "corrects step {k}"),
    "check": ("double-checks before answering", "verifies what was found"),
    "answer": ("answers from the results", "the answer follows from the results"),
    "wrong_entity": ("searches {c}, not {a}; search for the {rel} of {a} instead", "wrong entity {c}; search for {a}'s {rel} instead"),
    "wrong_relation": ("searches the {other}; search for {a}'s {rel} instead", "wrong relation {other}; the question needs the {rel} of {a}"),
    "repeated_call": ("repeats the call of step {k}; {next} instead", "same call as step {k}, nothing new; {next}"),
    "needless": ("searches on although the answer is found; answer now", "nothing is missing any more; answer now"),
    "misread": ("misreads the result of step {k}; read the {rel} of {a} again", "takes the wrong fact from step {k}; look at the {rel} of {a}"),
    "malformed": ("the arguments are not valid JSON; write the query again", "malformed arguments; close the JSON and search for {a}'s {rel}"),
    "ignored_error": ("ignores the error of step {k} and makes up a value; retry the search", "step {k} failed and gave no value; retry it instead"),
    "unsupported": ("answers with a value that no result gives; search for {a}'s {rel} first", "a guess; search for the {rel} of {a} before answering"),
    "gave_up": ("gives up too early; search for {a}'s {rel}", "stops without an answer; the {rel} of {a} can be searched"),
    "stops_early": ("stops one hop early; search for {a}'s {rel}", "answers too soon; the {rel} of {a} is still missing"),
    "follows": ("builds on the mistake of step {k}; go back to it", "follows the wrong value of step {k}; correct that first"),
}  # fmt: skip
