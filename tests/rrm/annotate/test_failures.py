"""Results of tools that failed, and of tools that did not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from linear_time import assert_linear

from rrm.prompt.failures import error_of, is_transient, told_by_environment

FAILED = {
    "exceptions": [
        "Traceback (most recent call last)\n  File 'x.py', line 1\nNameError: name 'x' is not defined",
        "---------\ngaierror                                  Traceback (most recent call last)\n<ipython-input-1> in <module>",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max retries exceeded",
        "15\nError: Length of operator and operand lists are not compatible.",
        "sqlite3.OperationalError: no such table: users",
    ],
    "tools": [
        "Error: payment method certificate_7504069 not found",
        "KeyError: 0",
        "Internal server error",
        "ERROR - could not reach the index",
        "[CALL ERROR] The function calling of send_email has been refused",
        "error: pathspec 'main' did not match any file(s) known to git",
        "Error executing query: Table 'car_1.cars' doesn't exist",
        "Error when trying to retrieve information about Gerry Marsden.",
        "An unexpected error occurred",
        "Tool error: timed out after 30 s",
        "Invalid argument: `limit` must be at most 50",
        "Failed to fetch the page.",
        "Command timed out",
        "404 Not Found",
        "HTTP 503",
        "HTTP/1.1 500 Internal Server Error",
        '{"error": "no such user"}',
        '{"error": {"code": 429, "message": "slow down"}}',
        '{"ok": false, "error": "channel_not_found"}',
        '{"status": "error", "message": "quota"}',
        "{'error': 'no such user'}",
        '[{"error": "no such user"}]',
        '{"success": false, "message": "no such user"}',
        '{"data": null, "errors": ["no such field"]}',
        "Error: 404",
        "error: 500",
        "404: Not Found",
        "<tool_use_error>File does not exist.</tool_use_error>",
        "<error>\nquota\n</error>",
        "Exit code 1\nls: cannot access 'x': No such file or directory",
        "Process exited with code 127",
        "Command exited with status 2",
        "Command 'make' returned non-zero exit status 2.",
        "Error on line 3: no such column",
    ],
    "shells and compilers": [
        "bash: ls: command not found",
        "/bin/bash: line 3: BASH: command not found\n/bin/bash: line 3: 1: command not found\n",
        "sh: 1: foo: not found",
        "zsh: permission denied: ./run.sh",
        "zsh: command not found: pyhton",
        "ls: cannot access '/system': No such file or directory",
        "cat: notes.txt: No such file or directory",
        "find: missing argument to `-exec'",
        "cut: option requires an argument -- 'd'\nTry 'cut --help' for more information.",
        "awk: line 1: syntax error at or near :",
        "does: -c: line 2: syntax error: unexpected end of file",
        "mkdir: cannot create directory 'a': File exists",
        "fatal: not a git repository (or any of the parent directories): .git",
        "main.c:3:5: error: expected ';' before 'return'",
        "error[E0308]: mismatched types",
        "Permission denied",
        "No such file or directory",
        "sed: -e expression #1, char 5: unknown option to `s'",
        "date: invalid date 'x'",
        "tac: failed to create temporary file in '/tmp': No such file or directory",
    ],
}
NOT_UNDERSTOOD = [
    "I don't understand your input. \nIf you want to execute code, please use <execute>",
    "Page: Gryphon\n\nObservation:\nI don't understand your input. \nIf you want",
    "Invalid Action. Valid Actions are Lookup[<topic>] Search[<topic>] and Finish[<answer>].",
    "('click', 'Frige') generated an exception: Unknown tool name: click",
    "Malformed command",
    "No SQL code was found in your last response.\n\nYour response should be a SQL command.",
]
WORKED = [
    "error rate of the sensor is 3 %",
    "Error rate: 3 %",
    "Error analysis: the residuals are normal",
    "Error correcting codes were first studied by Hamming.",
    "Errors and omissions insurance costs 40 a month",
    "Error handling in Rust: use Result",
    "Standard error of the mean: 0.4898979485566356",
    "Exception handling in Python is done with try and except.",
    "Exceptional service since 1920",
    "Traceback is the third album of the band.",
    "The Comedy of Errors is a play. Error: none",
    "Abbe error, named after Ernst Abbe, describes the magnification of angular error.",
    "no error",
    "Mean squared error: 0.03",
    "Error: 0.03",
    "Iterations: 40\nError: 1.5 %",
    "0 errors, 0 warnings",
    "Invalid actions of the president were reviewed by the court.",
    "Unknown to the tool makers, the mine had closed in 1911.",
    "She searched for an unknown tool that was used on the pyramids.",
    "Failed actress turned senator, she was born in 1950.",
    "He failed to qualify for the final.",
    "500 people live in the village.",
    "404 Not Easy is a song by the band.",
    "Timed out: a history of basketball",
    "fatal accidents fell by 3 %",
    "Note: the file was not found in the first year of the survey, when it was still in Rome.",
    "Page: Permission denied\nSummary: an essay of 1999",
    '{"error": null, "result": 5}',
    '{"error": false, "rows": []}',
    '{"error": "", "rows": [1]}',
    '{"error": 0.03, "mse": 0.0009}',
    '{"errors_found": 3}',
    '{"error": "none"}',
    '{"error": "No error."}',
    "{'error': 'none', 'rows': 2}",
    '[{"error": "no such user"}, {"name": "Ann"}]',
    '{"success": false}',
    '{"data": {"a": 1}, "errors": []}',
    "<error>none</error>",
    "Exit code 0",
    "Unable to create the perfect sourdough? Ten tips",
    "notes: the failed to launch",
    "timeline.md: invalid date was found by review",
    "error on line 3 of the poem was fixed by the editor",
    "index.html: option requires an argument",
    "log.txt: you may not specify",
    "Permission denied to nobody: a history",
    "Error: 40",
    "drwxr-xr-x 2 root root 4096 error",
    "total 4\n-rw-r--r-- 1 root root 12 error.log\ngrep: the manual, page 3",
    "README.md:3: the error is described in errors.md",
    "42",
    "[]",
    "",
]


@pytest.mark.parametrize("result", [r for rs in FAILED.values() for r in rs])
def test_a_result_that_reports_a_failure_is_an_error(result: str) -> None:
    assert error_of(result) is not None


@pytest.mark.parametrize("result", NOT_UNDERSTOOD)
def test_an_action_that_was_not_read_is_not_understood(result: str) -> None:
    assert error_of(result) == "not understood"


@pytest.mark.parametrize("result", WORKED)
def test_a_result_that_speaks_of_errors_is_none(result: str) -> None:
    assert error_of(result) is None


@pytest.mark.parametrize(
    ("result", "name"),
    [
        ("Traceback (most recent call last)\n...\nNameError: name 'x' is not defined", "NameError"),
        ("--\ngaierror        Traceback (most recent call last)\n…", "gaierror"),
        ("Traceback (most recent call last):\n  File 'x.py'", "error"),
        ("bash: ls: command not found", "error"),
    ],
)
def test_an_exception_is_named(result: str, name: str) -> None:
    assert error_of(result) == name


@pytest.mark.parametrize(
    "told",
    [
        "error: write `Action: search[query]` or `Answer: ...`",
        "[CALL ERROR] The function calling of send_email has been refused",
        "Invalid Action. Valid Actions are Search[<topic>].",
        "Error: unknown tool `serch`",
        "Page: x\n\nI don't understand your input. \nIf you want",
    ],
)
def test_an_environment_in_the_role_of_the_user_is_told_by_its_words(told: str) -> None:
    assert told_by_environment(told) and error_of(told) is not None


@pytest.mark.parametrize(
    "said",
    [
        "Unable to access my account since Monday, can you help?",
        "Failed to get my refund in time.",
        "Error code 51 shows on my card reader.",
        "Error: payment failed. What now?",
        "Unknown action on my card, please block it",
        "TypeError: x is not iterable",
    ],
)
def test_a_person_who_writes_of_an_error_is_no_environment(said: str) -> None:
    assert not told_by_environment(said)


HELD_OUT = [
    (
        "transcripts_more/agentdojo.jsonl.gz",
        79,
        {750, 829, 1461, 1935, 2014, 3989, 4068, 4147},
        {
            1303,
            1777,
            2251,
            2567,
        },  # `Source Not Found.`, `You should verify your account first.`, and two of `Please verify …`
    ),
    (
        "transcripts_more/intercode.jsonl.gz",
        118,
        {531, 885, 1003, 1121, 1239, 1357, 1593, 1947, 2065, 2183, 2301, 2537, 3127, 3481, 3717, 3835, 4897, 5841}
        | {6431, 6549, 6785},
        {5369, 7021},  # `md5sum: 'standard input': no properly formatted …`, and a shell named by a line of awk
    ),
    ("transcripts/tau_bench/gpt-4o-airline.json.gz", 19, {28, 85, 370, 655, 674, 712}, set[int]()),
]
"""60 tools' results of each file, at these distances (of InterCode those of bash), read by hand: those that say that the call
failed and are found, and those that are missed. No pattern is to be written for one of the missed."""


@pytest.mark.parametrize(("name", "distance", "found", "missed"), HELD_OUT)
def test_failures_in_a_sample_that_was_read_by_hand(
    shared_data: Path, name: str, distance: int, found: set[int], missed: set[int]
) -> None:
    """Precision 35 of 35, recall 35 of 41: AgentDojo's tools say some failures in their own words (`Source Not Found.`)."""
    raw = gzip.decompress((shared_data / name).read_bytes()).decode()
    lines = raw.splitlines() if name.endswith(".jsonl.gz") else []
    rows = [json.loads(line) for line in lines if "intercode" not in name or "bash" in line] or json.loads(raw)
    rows = [row for row in rows if "intercode" not in name or "bash" in row["source"] + row["id"]]
    messages = [m for row in rows for m in row.get("messages") or row["traj"]]
    results = [m["content"] for m in messages if m["role"] == "tool" and isinstance(m["content"], str)]
    places = range(distance // 2, len(results), distance)[:60]
    assert len(places) == 60 and found | missed <= set(places)
    failed = {at for at in places if error_of(results[at]) is not None}
    assert failed <= found | missed and failed >= found


def test_a_failure_that_a_retry_can_cure() -> None:
    assert is_transient("HTTP 503 Service Unavailable") and is_transient("Command timed out")
    assert not is_transient("bash: ls: command not found")


@pytest.mark.parametrize(
    ("hostile", "count"), [(" ", 50_000), ("\n", 50_000), ("a:", 25_000), ("bash: ", 8_000), ('{"error":', 5_000)]
)
def test_a_long_hostile_result_is_read_in_linear_time(hostile: str, count: int) -> None:
    assert_linear(lambda pieces: error_of(hostile * pieces), count)
