"""Options that several commands share, and those of ``calipers run``, in the groups of its help.

The first say which rollouts count and how, and in which shape results are shown; the groups of ``run`` are what is
asked, who works on it, how it is reached, how it is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from calipers.errors import InputError
from calipers.names import DIALECTS

FORMATS = ("table", "json", "csv", "md")
Option = Callable[[Any], Any]

verbose = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback, should Calipers fail."
)
"""An option of every command; `calipers.cli.execute` looks for it."""
dialect = click.option(
    "--dialect", metavar="NAME", help=f"Whose names and rules hold: {', '.join(DIALECTS.entries)}.  [default: native]"
)
reward = click.option("--reward", metavar="KEY", help="Which of several rewards counts.")
each_reward = click.option("--reward", metavar="KEY", help="Which of several rewards counts.  [default: each]")
threshold = click.option(
    "--threshold", metavar="R", type=float, default=1.0, show_default=True, help="The reward of a pass."
)
missing = click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3. Without it: the dialect's rule.",
)
missing_left_out = click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    default="gap",
    show_default=True,
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3.",
)
seed = click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Of resampling.")
plugins = click.option(
    "--plugin", "plugins", metavar="FILE|MODULE", multiple=True, help="Python code that brings metrics; it is run."
)


def _ends(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError.at("--range", f"{text!r} cannot be read", "expected LOW,HIGH, such as -1,1") from None
    return low, high


reward_range = click.option(
    "--range",
    "range",
    metavar="LOW,HIGH",
    callback=_ends,
    help="The lowest and the highest reward there can be; a reward outside is an error.  [default: 0,1 while all "
    "rewards lie in it, else unknown]",
)


def metrics(text: str) -> Option:
    """``--metric``, as often as one likes."""
    return click.option("--metric", "metrics", metavar="NAME", multiple=True, help=text)


def cluster(of: str) -> Option:
    """``--cluster``: what tasks that belong together are one unit of."""
    return click.option("--cluster", metavar="KEY", help=f"Tasks that share this value are one unit of the {of}.")


def columns(who: str) -> Option:
    """``--columns``, as `roles` reads it; ``who`` has the keys."""
    text = f"What {who} the keys of a record: task=id,reward=score; may be repeated."
    return click.option("--columns", metavar="ROLE=KEY,...", multiple=True, help=text)


def confidence(of: str) -> Option:
    """``--confidence`` of intervals or bands."""
    return click.option(
        "--confidence", metavar="SHARE", type=float, default=0.95, show_default=True, help=f"Of the {of}."
    )


def out(what: str) -> Option:
    """``--out``: the same as JSON, in a file."""
    return click.option("--out", metavar="PATH", type=click.Path(), help=f"Write {what} as JSON to this file, too.")


def shape(*shapes: str) -> Option:
    """``--format`` of standard output."""
    choice = click.Choice(shapes or FORMATS)
    return click.option(
        "--format", "shape", type=choice, default="table", show_default=True, help="Of standard output."
    )


def roles(texts: tuple[str, ...]) -> dict[str, str]:
    """What ``--columns`` says: roles, and the keys that play them.

    >>> roles(("task=id,reward=score", "answer=final"))
    {'task': 'id', 'reward': 'score', 'answer': 'final'}
    """
    keys: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        role, equals, key = (side.strip() for side in pair.partition("="))
        if not (role and equals and key):
            raise InputError.at("--columns", f"{pair!r} cannot be read", "expected ROLE=KEY, such as task=id")
        if role in keys:
            raise InputError.at("--columns", f"{role} is given twice", "expected it once")
        keys[role] = key
    return keys


def _together(*options: Any) -> Option:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


asking = _together(
    click.option(
        "--samples",
        "--epochs",
        "--repeats",
        "--num-repeats",
        "--num-samples",
        type=int,
        metavar="N",
        help="Samples of each task.  [default: 1]",
    ),
    click.option("--limit", type=float, metavar="N", help="Only the first N tasks; below 1, that share of them."),
    click.option(
        "--documents", metavar="N,N-N,...", help="Only the tasks with these numbers, counted from 0: 0,3,6-9."
    ),
    click.option("--max-tokens", type=int, metavar="N", help="Of one completion."),
    click.option("--temperature", type=float, metavar="T", help="Without it: the server's own."),
    click.option("--stop", metavar="TEXT", multiple=True, help="Text that ends a completion; may be repeated."),
    click.option("--system-prompt", metavar="TEXT", help="A system turn before every prompt."),
    click.option("--num-fewshot", type=int, metavar="N", help="Examples before a question (lm-eval tasks)."),
    click.option(
        "--apply-chat-template",
        metavar="[NAME]",
        is_flag=False,
        flag_value="",
        help="Ask in turns (lm-eval tasks); NAME: which of a local model's templates.",
    ),
    click.option(
        "--fewshot-as-multiturn/--no-fewshot-as-multiturn",
        default=None,
        help="Each example in turns of its own, or all in one.  [default: of its own]",
    ),
    click.option("--system-instruction", metavar="TEXT", help="Words before a description (lm-eval tasks)."),
    click.option("--include-path", metavar="DIR", multiple=True, help="A folder of lm-eval tasks; may be repeated."),
    click.option("--trust", is_flag=True, default=None, help="Run code that came with a task (!function)."),
    click.option(
        "--load-seeds",
        metavar="N,N,N,N",
        help="Seeds for loading lm-eval tasks: random, numpy, torch, few-shot.  [default: 0,1234,1234,1234]",
    ),
    click.option(
        "--fewshot-seed", type=int, metavar="N", help="The last of --load-seeds alone: of the few-shot examples."
    ),
    click.option(
        "--task-metadata",
        metavar="JSON",
        help="Metadata for lm-eval tasks that make their documents from it, such as ruler.",
    ),
    click.option(
        "--default-metrics",
        type=click.Choice(["release", "guide"]),
        help="Metrics of lm-eval tasks that name none: as its release has them, or its guide.  [default: release]",
    ),
    click.option(
        "--gen-kwargs", metavar="KEY=VALUE,...", help="More settings for the server: top_p=0.9,min_p=0.1, or JSON."
    ),
    click.option(
        "--seed", type=int, metavar="N", help="Of the order of tasks, of the samples, of resampling.  [default: 0]"
    ),
)
working = _together(
    click.option(
        "--agent",
        metavar="NAME",
        help="Who works on Harbor's tasks: oracle, nop, command:LINE, chat, or one of Harbor's.  [default: oracle]",
    ),
    click.option(
        "--environment",
        metavar="NAME",
        help="Where: room, docker, another of Harbor's, or auto: docker if Harbor and Docker answer.  [default: auto]",
    ),
    click.option(
        "--registry", metavar="DIR", help="Where org/name[@version] is looked up.  [default: .calipers/registry]"
    ),
)
reaching = _together(
    click.option("--base-url", metavar="URL", help="Of an OpenAI-compatible server.  [default: $OPENAI_BASE_URL]"),
    click.option(
        "--model-args", metavar="KEY=VALUE,...", help="How an hf/ model is loaded: dtype=float16,peft=DIR, or JSON."
    ),
    click.option(
        "--same-model",
        is_flag=True,
        default=None,
        help="Resume a run that began at another URL, or with another version of the model's file.",
    ),
    click.option("--api", type=click.Choice(["chat", "completions"]), help="Which route of it.  [default: chat]"),
    click.option(
        "--concurrency", type=int, metavar="N", help="Calls in flight at most; fewer after a 429.  [default: 32]"
    ),
    click.option("--retries", type=int, metavar="N", help="Further tries of a call that failed.  [default: 8]"),
    click.option("--timeout", type=float, metavar="S", help="Seconds for one call.  [default: 600]"),
    click.option("--price", metavar="IN,OUT", help="Dollars for a million tokens, where the server names no cost."),
    click.option("--max-cost", type=float, metavar="USD", help="Begin no more once so much is spent."),
    click.option("--max-time", type=float, metavar="S", help="Begin no more after so many seconds."),
    click.option("--until", metavar="RULE", help="Stop once sure enough: 'width(pass@1) < 0.05'."),
    click.option("--retry-failed", is_flag=True, default=None, help="Try the gaps of the log again."),
    click.option("--predict-only", is_flag=True, default=None, help="Keep the completions; judge nothing."),
)
showing = _together(
    click.option(
        "--check-integrity", is_flag=True, help="Look the lm-eval tasks over, and say so, before the first call."
    ),
    click.option(
        "--write-out", is_flag=True, help="Print prompt and target of the first document of each lm-eval task."
    ),
    click.option("--show-config", is_flag=True, help="Print the configuration of each lm-eval task."),
    click.option(
        "--cache-requests",
        type=click.Choice(["true", "refresh", "delete"]),
        is_flag=False,
        flag_value="true",
        help="Keep the prompts of lm-eval tasks on disk: use them, make them again, or remove them.",
    ),
)
"""What is told of lm-evaluation-harness' tasks, on standard error, before a model is asked."""
scoring = _together(
    click.option(
        "--metric", "metrics", metavar="NAME", multiple=True, help="A metric, such as pass@3; may be repeated."
    ),
    click.option("--dialect", metavar="NAME", help="Whose names and rules hold.  [default: native]"),
    click.option(
        "--by",
        metavar="KEY",
        multiple=True,
        help="Break the numbers down by a metadata path, task, sample or outcome; may be repeated.",
    ),
    click.option("--cluster", metavar="KEY", help="Tasks that share this value are one unit of the interval."),
    click.option("--reward", metavar="KEY", help="Which of several rewards counts."),
    click.option(
        "--missing", type=click.Choice(["gap", "zero", "fail"]), help="What a rollout without a number becomes."
    ),
    click.option("--interval", metavar="NAME", help="How sure a mean is; calipers explain NAME says more."),
    click.option("--confidence", type=float, metavar="SHARE", help="Of the intervals.  [default: 0.95]"),
)


def given_options(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options among these values that the user gave; the others have their defaults."""
    sources = {name: ctx.get_parameter_source(name) for name in values}
    return {name: value for name, value in values.items() if sources[name] not in (None, ParameterSource.DEFAULT)}
