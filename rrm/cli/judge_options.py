"""Options that name a judge and say how to load it, shared by all commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from rrm.cli.commands import KEYWORD, with_signature

if TYPE_CHECKING:
    from rrm.data.annotation import OutOfDomain
    from rrm.engines.server_options import ServerOptions
    from rrm.judge.agent_rrm import AgentRRM


class OutOfDomainChoice(StrEnum):
    """`rrm.data.annotation.OutOfDomain`."""

    keep = "keep"
    unsure = "unsure"


@dataclass(frozen=True)
class JudgeOptions:
    """Values of `--model` and its companions; None: the judge's own."""

    model: Annotated[
        str | None,
        typer.Option(
            help="A directory, a hub id, openai:BASE_URL#model (more addresses with commas), vision:FOLDER of a vision-language model, command:PROGRAM ARGUMENTS, http://HOST:PORT of rrm serve, or a shipped judge's name. Default: the default judge."
        ),
    ] = None
    settings: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="With openai:…: directory or hub id of the judge that the server serves."),
    ] = None
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None
    token: Annotated[
        str | None,
        typer.Option(help="For a private hub id, as $VARIABLE; default: HF_TOKEN, or the one `hf auth login` stored."),
    ] = None
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; default: the best there is.")] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16, int8; default: bfloat16 on an accelerator; on a CPU float32, or int8 for a judge of steps where agent-rrm[fast] is installed."
        ),
    ] = None
    attn_implementation: Annotated[
        str | None, typer.Option(help="sdpa, eager, flash_attention_2, …; default: the model's own.")
    ] = None
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per batch on a local model.")] = None
    transcript_tokens: Annotated[
        int | None, typer.Option(min=32, help="Token budget of a rendered transcript; default: the judge's own.")
    ] = None
    max_windows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Windows read of a long transcript at most: its last, its first, those that the rules flag. Default: all.",
        ),
    ] = None
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a server's context; default: what the server says, else it is not known."),
    ] = None
    max_new_tokens: Annotated[
        int | None, typer.Option(min=16, help="Most tokens of a reply; default: the judge's own, 512.")
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Of openai:…: seconds a request may take. Of http://…: seconds in which a server that answers nothing is asked again. Default: 60.",
        ),
    ] = None
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests to a server in flight at once; default: 8.")
    ] = None
    criteria: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.yaml|NAME",
            help="Questions that a chat model answers instead of the fixed rubric: a file, or a shipped name (rrm criteria list).",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Replies of a server are sampled at; default: 0, or 0.7 where several are sampled."),
    ] = None
    reasoning_effort: Annotated[
        str | None, typer.Option(metavar="EFFORT", help="How long a server's model thinks: low, medium, high, …")
    ] = None
    thinking_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="Room for thinking beside --max-new-tokens; a reply cut inside it is `truncated`. Default: 0."
        ),
    ] = None
    extra_body: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="More of each request's body, e.g. '{\"top_k\": 20}'.")
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A header of each request; give several one by one. $NAME in a value is read from the environment. Values are "
            "written nowhere.",
        ),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(
            metavar="IN,OUT[,CACHED]", help="A server's prices of a million tokens each: money in rows and summary."
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            min=0, help="With --price: begin nothing more once the output has cost so much; what is begun is finished."
        ),
    ] = None
    images: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Pictures of a transcript that a chat model is shown at most, the latest; 0: none. Default: 0 of a server, 8 of vision:….",
        ),
    ] = None
    out_of_domain: Annotated[
        OutOfDomainChoice | None,
        typer.Option(
            help="Steps of a transcript outside what the judge was measured on: unsure, or keep their verdicts. Default: unsure; of rrm serve as it is served.",
            show_default=False,
        ),
    ] = None
    trust_remote_code: Annotated[
        bool | None,
        typer.Option("--trust-remote-code", help="Run the Python code in the folder of a judge or of its base."),
    ] = None

    @property
    def of_domain(self) -> OutOfDomain | None:
        """`out_of_domain` as `AgentRRM.from_pretrained` takes it."""
        return cast("OutOfDomain | None", self.out_of_domain and str(self.out_of_domain))

    @property
    def given(self) -> list[str]:
        """Options that were given, as written on the command line."""
        return [option_of(f.name) for f in fields(self) if getattr(self, f.name) is not None]

    @property
    def served(self) -> dict[str, Any]:
        """Options of an engine over HTTP that were given, by `OpenAIEngine`'s names."""
        values = {"timeout_s": self.timeout, "concurrency": self.concurrency, "options": self.server()}
        return {name: value for name, value in values.items() if value is not None}

    def server(self) -> ServerOptions | None:
        """Return the options in `OF_SERVERS`, None: none given; raises `ConfigError`."""
        from rrm.engines.cost import CostTracker, Prices
        from rrm.engines.server_options import ServerOptions, read_extra_body, read_headers

        if all(getattr(self, name) is None for name in OF_SERVERS):
            return None
        options = ServerOptions(
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra_body=None if self.extra_body is None else read_extra_body(self.extra_body),
            thinking_tokens=self.thinking_tokens,
            headers=read_headers(self.header or []),
            prices=None if self.price is None else Prices.parse(self.price),
            max_cost=self.max_cost,
        )
        CostTracker(options.prices, options.max_cost)  # refused before anything is loaded
        return options

    def how(self) -> dict[str, Any]:
        """Return keyword arguments of `rrm.judge.loading.LoadOptions`."""
        others = {"model", "timeout", "out_of_domain", *OF_SERVERS}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in others}
        values |= {"timeout_s": self.timeout, "server": self.server()}
        return values | {"trust_remote_code": bool(self.trust_remote_code)}

    def escalating(self, stronger: str) -> tuple[JudgeOptions, JudgeOptions]:
        """Split the options between this judge and a stronger one, which gets those of servers and replies."""
        theirs = {name: getattr(self, name) for name in OF_STRONGER}
        first = replace(self, **dict.fromkeys(OF_STRONGER))
        if stronger.startswith("openai:"):
            if self.model is None or not self.model.startswith("openai:"):
                first, theirs = replace(first, settings=None), {**theirs, "settings": self.settings}
        elif not stronger.startswith(("http://", "https://")):
            theirs |= {"device": self.device, "token": self.token, "out_of_domain": self.out_of_domain}
        return first, JudgeOptions(model=stronger, **theirs)

    def load_with(self, stronger: str | None) -> AgentRRM:
        """Load the judge, with a stronger one of this name for what it is unsure of; None: alone."""
        if stronger is None:
            return self.load()
        from rrm.scoring.escalating import escalating

        first, second = self.escalating(stronger)
        return escalating(first.load(), second.load())

    def load(self) -> AgentRRM:
        from rrm.judge.agent_rrm import AgentRRM

        how = self.how()
        how |= {"max_transcript_tokens": how.pop("transcript_tokens"), "out_of_domain": self.of_domain}
        return AgentRRM.from_pretrained(self.model, **how)


def option_of(name: str) -> str:
    """Return `--the-option` of a field."""
    return f"--{name.replace('_', '-')}"


# options that `ServerOptions` holds
OF_SERVERS = ("temperature", "reasoning_effort", "thinking_tokens", "extra_body", "header", "price", "max_cost")
# options that are the stronger judge's where there are two
OF_STRONGER = (*OF_SERVERS, "timeout", "concurrency", "context", "max_new_tokens", "criteria", "images")


# of a command that judges as it goes (`rrm.scoring.escalating`)
ESCALATE: Any = typer.Option(
    None,
    metavar="MODEL",
    help="A stronger judge, named as --model, for what --model is unsure of. --price, --max-cost and the other options of servers are then its own.",
)


def with_judge_options(command: Callable[..., None], only: Sequence[str] = ()) -> Callable[..., None]:
    """Give a command the options of `JudgeOptions` (`only` these), which it takes as its argument `judge`."""
    names = only or [f.name for f in fields(JudgeOptions)]
    hints = get_type_hints(JudgeOptions, include_extras=True)
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p for p in own if p.name != "judge"]
    parameters += [inspect.Parameter(name, KEYWORD, default=None, annotation=hints[name]) for name in names]

    def run(**values: Any) -> None:
        judge = JudgeOptions(**{name: values.pop(name) for name in names})
        command(**values, judge=judge)

    return with_signature(run, command, parameters)
