"""`rrm doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer

from rrm.readers.base import printable

WIDTH = 22  # columns of a line's name
HELD = 135e6 * 4  # bytes of the default judge's weights in float32


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

    report = examine(server, measured=measure or model is not None, model=model)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        for name, text in report_lines(report):
            typer.echo(f"{printable(name):<{WIDTH}} {printable(text)}")
    if not report["ok"]:
        raise typer.Exit(1)


def report_lines(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the report's lines as (name, text), the verdict first."""
    yield "verdict", report["verdict"]
    yield "versions", ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    installed = [name for name, extra in report["extras"].items() if extra["installed"]]
    yield "extras", ", ".join(installed) or "none"
    for name, extra in report["extras"].items():
        if not extra["installed"]:
            yield f"  {name}", f"no {', '.join(extra['missing'])}: {extra['install']}"
    machine, devices = report["machine"], report["devices"]
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
    for name, folder in report["folders"].items():
        state = "" if folder["exists"] else ", not made yet"
        state += "" if folder["writable"] else ", NOT WRITABLE"
        yield f"cache of {name}", f"{folder['path']}: {size(folder['free'])} free{state}"
    yield "memory allocator", "jemalloc" if report["allocator"]["jemalloc"] else allocator(report)
    for name, check in report["checks"].items():
        yield name, "available" if check["available"] else check["why"]
    yield "default judge", judge(report)
    for answer in report["servers"]:
        yield answer["address"], server_line(answer)
    if measured := report.get("measured"):
        yield (
            "measured",
            measured.get("error")
            or (
                f"{measured['judge']}: {measured['judge_s']} s for a transcript of four steps ({measured['status']}, "
                f"score {measured['score']}), after {measured['load_s']} s of loading"
            ),
        )


def allocator(report: dict[str, Any]) -> str:
    """Describe an allocator other than jemalloc, with advice where torch trains on the CPU."""
    advice = report["allocator"].get("advice")
    if advice and report["devices"].get("default") == "cpu":
        return f"the system's; training on a CPU is faster with {advice}"
    return "the system's"


def judge(report: dict[str, Any]) -> str:
    """Describe where the default judge would run."""
    about, devices = report["default_judge"], report["devices"]
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
    return f"{where}; its base is {weights}" + ("" if "measured" in report else "; --measure times a transcript")


def server_line(answer: dict[str, Any]) -> str:
    """Describe who answered at an address."""
    if "error" in answer:
        text = f"answers, but {answer['error']}" if answer.get("models") is not None else answer["error"]
        return text + (f"; it has {models(answer)}" if answer.get("models") else "")
    if answer["kind"] == "rrm serve":
        return f"rrm serve ({answer['status']}): {answer['judge']}"
    return f"OpenAI-compatible: {models(answer) or 'no models'}"


def models(answer: dict[str, Any]) -> str:
    """List a server's models, the first twenty."""
    names = [
        f"{name} ({tokens:,} tokens)" if isinstance(tokens, int) else name for name, tokens in answer["models"].items()
    ]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def size(number: float | None) -> str:
    """Format bytes."""
    if number is None:
        return "not known"
    return f"{number / 1e6:.0f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
