"""How the lab's agents talk, and how its annotations speak of them. Each agent wording exists for both splits.

`SAY[key][split]` are templates of the agent's reasoning; those under `heldout` never occur in training data.
`FINDING[key]` are templates of a finding; none of them has a place for a value that answers the question.
"""

from __future__ import annotations

_ASKED = (
    "What is the {phrase}?", "Find the {phrase}.", "Which is the {phrase}?", "Name the {phrase}.", "Question: the {phrase}?",
    "Can you say what the {phrase} is?", "The task is to find the {phrase}.", "Somebody asked for the {phrase}.",
    "We have to report the {phrase}.", "Who or what is the {phrase}?", "My question is about the {phrase}.",
)  # fmt: skip
_OPENINGS = (
    "Please find out",
    "Search for",
    "Look up",
    "Help to find",
    "Give",
    "Try to discover",
    "It matters to learn",
)
_ENDINGS = ("{phrase}.", "{phrase} and report it.", "{phrase}, thanks.", "{phrase} now!", "{phrase} with the search.")
QUESTION = {
    "train": (*_ASKED, *(f"{opening} the {ending}" for opening in _OPENINGS for ending in _ENDINGS)),
    "heldout": ("Tell me the {phrase}, please.", "I would like to know the {phrase}."),
}

TERSE_SYSTEM = (
    "search(query): Search the facts.\n"
    'Call: <tool_call>{"name": ..., "arguments": {...}}</tool_call> At the end: Answer: ...'
)
"""How the search environment describes its tool to an agent."""

SAY: dict[str, dict[str, tuple[str, ...]]] = {
    "need": {
        "train": (
            "I need the {rel} of {a}.",
            "Let me find the {rel} of {a}.",
            "Now the {rel} of {a}.",
            "Next: {rel} of {a}.",
            "First I should learn the {rel} of {a}.",
            "To go on I need {a}'s {rel}.",
        ),
        "heldout": ("The {rel} of {a} comes next.", "Looking up who or what is the {rel} of {a}."),
    },
    "read": {
        "train": (
            "The {rel} of {a} is {b}.",
            "So the {rel} of {a} is {b}.",
            "{b} is the {rel} of {a}.",
            "OK, {b}.",
            "I found {b} as the {rel} of {a}.",
            "{a}'s {rel}: {b}.",
        ),
        "heldout": ("It says that {b} is the {rel} of {a}.", "Good, {a} has {b} as {rel}."),
    },
    "retry": {
        "train": ("The search failed. I try again.", "That was an error, so I retry.", "It did not work. Again."),
        "heldout": ("The tool is down; one more try.",),
    },
    "again": {
        "train": (
            "Let me look at the {rel} of {a} again.",
            "I search for the {rel} of {a}.",
            "Let me repeat the search for the {rel} of {a}.",
            "Again: {rel} of {a}.",
        ),
        "heldout": ("Once more, the {rel} of {a}.",),
    },
    "check": {
        "train": ("I check {b} before I answer.", "Let me verify {b}.", "Is {b} right? I look again."),
        "heldout": ("A second look at {b}, to be safe.",),
    },
    "sorry_search": {
        "train": (
            "That was the wrong search. I need the {rel} of {a}.",
            "Wrong fact; I want the {rel} of {a}.",
            "I asked for the wrong thing; the {rel} of {a} it is.",
        ),
        "heldout": ("Not what I was after: the {rel} of {a} is needed.",),
    },
    "sorry_read": {
        "train": (
            "I was wrong about the {rel} of {a}. I go back to it.",
            "My {rel} of {a} was not right; I redo it.",
            "I misread the {rel} of {a}; again from there.",
        ),
        "heldout": ("Going back, the {rel} of {a} was mistaken.",),
    },
    "sorry_arguments": {
        "train": (
            "My arguments were broken. I write them again.",
            "I fix the call.",
            "Broken JSON. Here is the call again.",
        ),
        "heldout": ("The call had a typo, here it is once more.",),
    },
    "guess": {
        "train": (
            "I think I know the rest.",
            "I do not need to search further.",
            "It must be this.",
            "My guess will do.",
        ),
        "heldout": ("No more searching, this should be it.",),
    },
    "give_up": {
        "train": ("I could not find it.", "This is too hard, I stop here.", "I do not know."),
        "heldout": ("I am afraid this cannot be found.",),
    },
    "done": {
        "train": ("That answers it.", "Done.", "So the answer is clear.", "Here is the answer."),
        "heldout": ("There we are.",),
    },
}

FINDING: dict[str, tuple[str, ...]] = {
    "search": ("searches the right relation of the right entity", "asks for exactly what is needed"),
    "tool_error": ("a correct call; the tool failed, retry it", "right search, but the tool was down; retry"),
    "retry": ("retries after the tool error", "repeats the call only because the tool failed"),
    "recover": ("notices the mistake of step {k} and corrects it", "corrects step {k}"),
    "check": ("double-checks before answering", "verifies what was found"),
    "answer": ("answers from the results", "the answer follows from the results"),
    "wrong_entity": (
        "searches {c}, not {a}; search for the {rel} of {a} instead",
        "wrong entity {c}; search for {a}'s {rel} instead",
    ),
    "wrong_relation": (
        "searches the {other}; search for {a}'s {rel} instead",
        "wrong relation {other}; the question needs the {rel} of {a}",
    ),
    "repeated_call": (
        "repeats the call of step {k}; {next} instead",
        "same call as step {k}, nothing new; {next}",
    ),
    "needless": (
        "searches on although the answer is found; answer now",
        "nothing is missing any more; answer now",
    ),
    "misread": (
        "misreads the result of step {k}; read the {rel} of {a} again",
        "takes the wrong fact from step {k}; look at the {rel} of {a}",
    ),
    "malformed": (
        "the arguments are not valid JSON; write the query again",
        "malformed arguments; close the JSON and search for {a}'s {rel}",
    ),
    "ignored_error": (
        "ignores the error of step {k} and makes up a value; retry the search",
        "step {k} failed and gave no value; retry it instead",
    ),
    "unsupported": (
        "answers with a value that no result gives; search for {a}'s {rel} first",
        "a guess; search for the {rel} of {a} before answering",
    ),
    "gave_up": (
        "gives up too early; search for {a}'s {rel}",
        "stops without an answer; the {rel} of {a} can be searched",
    ),
    "stops_early": (
        "stops one hop early; search for {a}'s {rel}",
        "answers too soon; the {rel} of {a} is still missing",
    ),
    "follows": (
        "builds on the mistake of step {k}; go back to it",
        "follows the wrong value of step {k}; correct that first",
    ),
}
