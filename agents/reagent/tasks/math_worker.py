"""Program for `reagent.tasks.boxed`, which may be killed: compares mathematical answers.

A request a line on standard input; `equal`, `different` or `unreadable` a line on standard output."""

import contextlib
import json
import logging
import resource
import sys

MEMORY_BYTES = 3 * 1024**3
CPU_S = 4  # math-verify's own limit for reading, and for comparing


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # a lower limit stays; to raise it is not ours
    memory = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS takes no such limit; the caller's time limit holds there
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    # as LaTeX alone: the other way to read, as an expression, ends in Python's eval
    how = {"extraction_config": [LatexExtractionConfig(boxed_match_priority=0)], "parsing_timeout": CPU_S}
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        gold = parse(rf"\boxed{{{request['reference']}}}", **how)
        if not gold:
            print("unreadable", flush=True)
            continue
        answer = parse(rf"\boxed{{{request['answer']}}}", **how)
        print("equal" if verify(gold, answer, timeout_seconds=CPU_S) else "different", flush=True)


if __name__ == "__main__":
    main()
