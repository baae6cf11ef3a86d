"""`rrm doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rrm.cli import finish
from rrm.readers.base import printable

WIDTH = 22
"""Columns of a line's name."""
HELD = 135e6 * 4
"""Bytes of the default judge's weights in float32."""


def command(
    server: list[str] = typer.Option(
        [],
        "--server",
        metavar="URL",
        help="Who answers there: http://HOST:PORT of rrm serve, vLLM or another OpenAI-compatible server, or openai:BASE_URL#model. Repeatable.",
    ),
    measure: bool = typer.Option(
        False, "--measure", help="Judge one small transcript: the first time it fetches the default judge's weights."
    ),
    model: str | None = typer.Option(
        None, help="With --measure: another judge than the default one, as rrm score takes it."
    ),
    as_json: bool = typer.Option(False, "--json", help="One line of JSON with all of it."),
) -> None:
    """Say what is installed, where a judge would run, and whether servers answer. Changes nothing; prints no key.

    Exit code 1 where nothing can judge (no extra `local`, and no server that was named answers), a server that was named does not
    answer, a cache cannot be written, or the measurement failed.
    """
    from rrm.cli.doctor import examine

    found = examine(server, measured=measure or model is not None, model=model)
    if as_json:
        finish(found)
    else:
        for name, said in report_lines(found):
            typer.echo(f"{printable(name):<{WIDTH}} {printable(said)}")
    if not found["ok"]:
        raise typer.Exit(1)


def report_lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The findings as rows of two texts: what they come to, then each."""
    yield "verdict", found["verdict"]
    yield "versions", ", ".join(f"{name} {said}" for name, said in found["versions"].items())
    installed = [name for name, extra in found["extras"].items() if extra["installed"]]
    yield "extras", ", ".join(installed) or "none"
    for name, extra in found["extras"].items():
        if not extra["installed"]:
            yield f"  {name}", f"no {', '.join(extra['missing'])}: {extra['install']}"
    machine, devices = found["machine"], found["devices"]
    threads = [f"{name}={value}" for name, value in machine["threads"].items()]
    if "threads" in devices:
        threads.append(f"torch uses {devices['threads']}")
    yield "processor", f"{machine['cores']} cores; {', '.join(threads) or 'no thread setting'}"
    yield "memory", f"{size(machine['available'])} free of {size(machine['memory'])}"
    yield (
        "devices",
        devices.get("error") or f"{devices['default']}, {devices['dtype']} unless --device and --dtype say otherwise",
    )
    for device in devices.get("accelerators", []):
        yield "", f"{device['name']}, {size(device['free'])} free of {size(device['memory'])}"
    for name, folder in found["folders"].items():
        state = "" if folder["exists"] else ", not made yet"
        state += "" if folder["writable"] else ", NOT WRITABLE"
        yield f"cache of {name}", f"{folder['path']}: {size(folder['free'])} free{state}"
    yield "memory allocator", "jemalloc" if found["allocator"]["jemalloc"] else allocator(found)
    for name, check in found["checks"].items():
        yield name, "available" if check["available"] else check["why"]
    yield "default judge", judge(found)
    for said in found["servers"]:
        yield said["address"], server_line(said)
    if measured := found.get("measured"):
        yield (
            "measured",
            measured.get("error")
            or (
                f"{measured['judge']}: {measured['judge_s']} s for a transcript of four steps ({measured['status']}, "
                f"score {measured['score']}), after {measured['load_s']} s of loading"
            ),
        )


def allocator(found: dict[str, Any]) -> str:
    """What to say where jemalloc is not in use: advice where torch trains on the CPU."""
    advice = found["allocator"].get("advice")
    if advice and found["devices"].get("default") == "cpu":
        return f"the system's; training on a CPU is faster with {advice}"
    return "the system's"


def judge(found: dict[str, Any]) -> str:
    """Where the default judge would run."""
    about, devices = found["default_judge"], found["devices"]
    if not about["runs"] or "error" in devices:
        return (
            f"does not run here ({about.get('why') or devices['error']}); score with --model http://… or openai:…#model"
        )
    where = (
        f"on {devices['default']}, {devices['dtype']}, {size(HELD)} of weights"
        if devices["default"] == "cpu"
        else f"on {devices['default']}, {devices['dtype']}"
    )
    weights = f"in {about['weights']}" if about["weights"] else f"fetched on first use, {size(about['fetch'])}"
    return f"{where}; its base is {weights}" + ("" if "measured" in found else "; --measure times a transcript")


def server_line(said: dict[str, Any]) -> str:
    """What answered at an address."""
    if "error" in said:
        text = f"answers, but {said['error']}" if said.get("models") is not None else said["error"]
        return text + (f"; it has {models(said)}" if said.get("models") else "")
    if said["kind"] == "rrm serve":
        return f"rrm serve ({said['status']}): {said['judge']}"
    return f"OpenAI-compatible: {models(said) or 'no models'}"


def models(said: dict[str, Any]) -> str:
    """A server's models, the first twenty."""
    names = [
        f"{name} ({tokens:,} tokens)" if isinstance(tokens, int) else name for name, tokens in said["models"].items()
    ]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def size(number: float | None) -> str:
    """Bytes for people."""
    if number is None:
        return "not known"
    return f"{number / 1e6:.0f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
