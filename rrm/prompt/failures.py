"""Detects tool results that report a failed call.

A result that speaks of errors is not one: `error rate: 3 %` is a measurement. So a failure is recognised only in the forms in which
tools, shells, compilers and servers report theirs and, Python's exceptions apart, only on the first line. In doubt it is a result.

    exception          `ValueError: …`, `gaierror   Traceback (most recent call last)`
    not understood     the environment could not read the action: `Invalid Action. Valid Actions are …`
    error              `Error: …`, `[CALL ERROR] …`, `{"error": "…"}`, `bash: ls: command not found`, `main.c:3:5: error: …`,
                       `fatal: …`, `HTTP 404`, `Command timed out`, `Failed to fetch …`, `Exit code 1`, `Permission denied`
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_JSON = 100_000  # characters of a result that is parsed for its `error`; of a longer one only the start is matched
_LINE = 400  # characters of the first line that are read

_EXCEPTION = re.compile(
    r"^[^\S\n]*+(?:[\w.]+\.)?(?!Error:[^\S\n]*+(?![45]\d\d[^\S\n]*+$)[-+]?+[\d.]++[^\S\n]*+(?:%[^\S\n]*+)?+$)"  # a measured one
    r"(\w*(?:Error|Exception|Timeout|Interrupt))\b(?::|[^\S\n]*+$)",
    re.MULTILINE,
)
_TRACEBACK = re.compile(r"^(?:(\w+)[^\S\n]++)?Traceback \(most recent call last\)", re.MULTILINE)
# MINT's words; they may follow the result of another action of the same step
_NO_INPUT = re.compile(r"^I don't understand your input", re.MULTILINE)
_NOT_UNDERSTOOD = re.compile(
    r"^\W*+(?:invalid action\b|unknown (?:tool|action)\b|could not parse\b|malformed (?:command|action)\b"
    r"|no (?:sql|bash|python) code was found|format your (?:sql|bash|python) command)"
    r"|generated an exception: unknown tool|your last `\w+` action did not contain",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"""^\W*+(?:
      (?:(?:an?|the|tool|call|function|execution|runtime|server|internal|http|api|network|connection|validation|sql|database
        |syntax|fatal|critical|unexpected|unknown|parse|parsing|input|request|timeout)[ ]){0,2}
        error\b\s*(?:[:!\]](?!\s*+(?![45]\d\d$)[-+]?+[\d.]++\s*+(?:%\s*+)?+$)|code\b|[45]\d\d\b|-\s|$)     # Error: …, [CALL ERROR] …, ERROR - …, Error 404
    | error\[\w+\]:                                                        # error[E0308]: …
    | error[ ](?:execut|call|runn|pars|read|load|fetch|invok|process|open|retriev|connect|creat|writ|sav|access|download
        |search|perform|send|updat|delet|evaluat|compil|generat|decod|gett)\w*ing\b
    | (?:an?[ ])?error[ ](?:(?:when|while|during|has[ ]occurred|occurred)\b|(?:at|on|in)[ ]line[ ]\d+\s*(?:[:,.(]|$))
    | (?:an?[ ])?(?:unexpected[ ]|internal[ ])?(?:error|exception)[ ](?:has[ ])?(?:occurred|was[ ]raised)\b
    | exception:
    | invalid[ ](?:tool|call|argument|input|parameter|request|syntax|command)s?\b\s*[:.'"(`]
    | fatal:[ ]
    | (?:HTTP(?:/\d(?:\.\d)?)?[ ](?:error[ ])?)[45]\d\d\b
    | [45]\d\d:?[ ](?:client[ ]error|server[ ]error|not[ ]found|forbidden|unauthori[sz]ed|bad[ ]request|bad[ ]gateway|gateway[ ]timeout
        |internal[ ]server[ ]error|service[ ]unavailable|too[ ]many[ ]requests)\b
    | (?:the[ ])?(?:command|request|operation|execution|tool(?:[ ]call)?|connection|query|process|code)[ ](?:has[ ])?timed[ ]out\b
    | (?:failed|unable)[ ]to[ ](?:fetch|retrieve|load|connect|open|parse|execute|read|access|download|create|write|run|call|resolve
        |decode|import|compile|install|send|save|get|process)\b(?![^:.!]*\?)         # not a question, which a page's title may be
    | (?:exit|(?:process[ ])?exited[ ]with(?:[ ]exit)?)[ ](?:status|code)[ :]+[1-9]\d*\W*$           # Exit code 1
    | (?:the[ ])?command[ ](?:[^\n]+[ ])?(?:(?:exited|failed)[ ]with|returned[ ]non-zero)[ ](?:exit[ ])?(?:status|code)[ :]+[1-9]\d*\b
    | (?:permission|access)[ ]denied\W*$ | no[ ]such[ ]file[ ]or[ ]directory\W*$ | command[ ]not[ ]found\W*$
    | operation[ ]not[ ]permitted\W*$ | connection[ ](?:refused|timed[ ]out|reset(?:[ ]by[ ]peer)?)\W*$
    | (?:\w+_)?error>\s*+(?!(?:none|null|false|no[ ]errors?|[-+]?+[\d.]++(?:\s*+%)?+)?\s*+</)            # <error>…, <tool_use_error>…
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_COMPILER = re.compile(r"^[^\s:]+:\d+(?::\d+)?:[ ](?:fatal )?error:")
_SHELL = re.compile(
    r"""^(?:(?-i:(?![\w./+-]*\.(?:md|txt|log|html?|json|csv|xml|ya?ml|pdf|rst):)[a-z_./][\w./+-]*):[ ](?:  # a program's name
    (?:[^\n]*?[ ])?(?:                                              # and what it says at the end of the line, or
      (?:command[ ])?not[ ]found$ | command[ ]not[ ]found:[ ] | (?:permission[ ]denied|no[ ]such[ ]file[ ]or[ ]directory):[ ]\S+$
    | \(?(?:no[ ]such[ ](?:file[ ]or[ ]directory|device|process)|permission[ ]denied|operation[ ]not[ ]permitted|file[ ]exists
        |is[ ]a[ ]directory|not[ ]a[ ]directory|directory[ ]not[ ]empty|argument[ ]list[ ]too[ ]long|too[ ]many[ ]arguments
        |ambiguous[ ]redirect|read-only[ ]file[ ]system|numeric[ ]argument[ ]required|integer[ ]expression[ ]expected)\)?\W*$
    | bad[ ]substitution$ | event[ ]not[ ]found$ | input/output[ ]error$
    ) | (?:[^\n]*?:[ ])?(?:                                         # at the line's start, or behind another colon
      syntax[ ]error\b
    | cannot[ ](?:access|open|stat|remove|create|touch|execute|move|overwrite|find|change|set)\b
    | failed[ ]to[ ]\w+
    | (?:invalid|unrecognized|unknown|illegal)[ ](?:option|argument|mode|predicate|operand|number|user|group|date|character|field)\b[ ]?(?:[^\w\s]|(?:at|to)[ ]|$)
    | missing[ ](?:\w+[ ])?(?:argument|operand|operator|file|destination)
    | (?:extra|unexpected)[ ](?:operand|token|argument)\b
    | option[ ]requires[ ]an[ ]argument | you[ ]must[ ]specify | you[ ]may[ ]not[ ]specify | paths[ ]must[ ]precede
    ))|[^\n]*:[ ]-c:[ ]line[ ]\d+:[ ](?:syntax[ ]error|unexpected[ ]EOF)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR_FIRST = re.compile(
    r"""^\{\s*["']error["']\s*:\s*(?:["'](?!(?:no(?:ne| errors?)?|null|false|ok|n/a|0)["'])[^"'\s]|\{\s*["']|true\b)""",
    re.IGNORECASE,
)
_NO_ERROR = frozenset({"", "no", "none", "no error", "no errors", "null", "false", "ok", "n/a", "0"})
# written by environments alone, to an agent whose action they could not read or refused
_FOR_AGENTS = re.compile(
    r"""^\W*+(?:
      [A-Z_ ]*ERROR\]                                                        # [CALL ERROR] …
    | (?i:error:\ +(?:please\ +)?(?:write|use|respond|reply|answer|provide|give|output|format|expected|include|call)\b
      | error:\ +no\ (?:action|tool|function|command)\b | (?:error:\ +)?(?:(?:missing|invalid|unknown|malformed|unrecogni[sz]ed|unparsable)
        \ (?:action|tool(?:\ (?:call|name))?|function(?:\ call)?|command|format)\s*(?:[.:!`'"(\[]|$)|could\ not\ parse\b)
      | no\ (?:sql|bash|python)\ code\ was\ found | format\ your\ (?:sql|bash|python)\ command
      | your\ last\ `\w+`\ action\ did\ not\ contain)
    )""",
    re.VERBOSE,
)
_TRANSIENT = re.compile(
    r"time[d ]?[- ]?out|temporar|unavailable|rate limit|try again|connection (?:reset|refused|error)|\b50[0234]\b|busy",
    re.IGNORECASE,
)


def _json_error(text: str) -> bool:
    """Tell if a JSON object, or each of an array, reports an error; `{"error": null}` does not."""
    if len(text) > MOST_JSON or text[-1] not in "}]":
        return bool(_ERROR_FIRST.match(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # a Python dict, or cut
        return bool(_ERROR_FIRST.match(text))
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(v, dict) and _says_error(v) for v in values)


def _says_error(value: dict[str, Any]) -> bool:
    if _is_said(value.get("error")) or value.get("isError") is True or value.get("is_error") is True:
        return True
    if value.get("status") == "error" or (value.get("data") is None and _is_said(value.get("errors"))):
        return True
    failed = value.get("success") is False or value.get("ok") is False
    return failed and any(_is_said(value.get(key)) for key in ("message", "reason", "detail", "details"))


def _is_said(error: Any) -> bool:
    if isinstance(error, str):
        return error.strip().rstrip(".").lower() not in _NO_ERROR
    return error is True or (isinstance(error, dict | list) and bool(error))


def error_of(observation: str) -> str | None:
    """The error reported: an exception's name, `not understood` or `error`; None without one."""
    text = observation.strip()
    first = text.partition("\n")[0][:_LINE].rstrip()
    if _NOT_UNDERSTOOD.search(first) or _NO_INPUT.search(text):
        return "not understood"
    names = _EXCEPTION.findall(text) or _TRACEBACK.findall(text)  # the second: where the traceback's end was cut
    if names:
        return names[-1] if names[-1] not in ("", "Error", "Exception") else "error"
    if text.startswith(("{", "[{")):
        return "error" if _json_error(text) else None
    return "error" if any(pattern.match(first) for pattern in (_SAID, _COMPILER, _SHELL)) else None


def told_by_environment(observation: str) -> bool:
    """Tell an environment's message in the user's role from a person's: it refuses the agent's action."""
    first = observation.strip().partition("\n")[0][:_LINE]
    return bool(_FOR_AGENTS.match(first) or _NO_INPUT.search(observation))


def is_transient(error: str) -> bool:
    # a retry can cure it
    return bool(_TRANSIENT.search(error))
