"""Program for `reagent.tools.schemas`: checks arguments against JSON schemas, line by line."""

import contextlib
import json
import resource
import sys
from typing import Any

MEMORY_BYTES = 1024**3


def main() -> None:
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    def answer(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        # an empty registry: a reference to another address is not followed
        validator = validator_for(schema)(schema, registry=Registry())
        try:
            problem = next(iter(validator.iter_errors(arguments)), None)
        except (Unresolvable, RecursionError, MemoryError) as error:
            return {"cannot": type(error).__name__}
        except Exception as error:  # noqa: BLE001 - a pattern that is none, and whatever else a schema may do
            return {"cannot": f"{type(error).__name__}: {error}"[:200]}
        if problem is None:
            return {}
        return {"place": ".".join(map(str, problem.absolute_path)), "message": problem.message[:200]}

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # a lower limit stays; to raise it is not ours
    memory = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS takes no such limit; the caller's time limit holds there
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
