"""Options that several commands share, the options of ``calipers run``, and the groups in which help shows them.

An option that several commands share is defined once, so its help is the same in each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from calipers.cards import interval_names
from calipers.errors import InputError, UnknownName
from calipers.names import DIALECTS, OF_RANGE, is_remote
from calipers.names import FORMATS as READABLE
from calipers.stores import local, not_local

FORMATS = ("table", "json", "csv", "md")
PAPER_AND_CI = ("latex", "junit", "github")  # formats for papers and CI builds
Option = Callable[[Any], Any]

MODEL, SAMPLING, LIMITS, ROLLOUTS = "Model", "Sampling", "Limits", "Rollouts"
STATISTICS, OUTPUT, GENERAL = "Statistics", "Output", "General"
OTHERS, LM_EVAL, HARBOR = "Other systems", "Other systems (lm-evaluation-harness)", "Other systems (Harbor)"
WIDEST = 27  # a wider option has its text below it, not beside it


class GroupedOption(click.Option):
    """An option that help shows in a group."""

    def __init__(self, *arguments: Any, group: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class InputPath(click.Path):
    """A file or folder to read: a path, or an address such as s3://bucket/run.jsonl, which is copied first."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the path of the local copy."""
        return local(super().convert(value, param, ctx))


class FolderPath(click.Path):
    """The folder of a run; it must be on this machine, because an object store cannot append to a log."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; InputError for an address."""
        if is_remote(value):
            raise not_local(value)
        return super().convert(value, param, ctx)


class HelpFormatter(click.HelpFormatter):
    """Help that breaks lines only between words, never inside an option name or a short ``[default: 1]``."""

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_unbroken(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of terms with their descriptions beside them."""
        super().write_dl([(term, _unbroken(text)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """The help so far, with plain hyphens and spaces."""
        return super().getvalue().replace(_HYPHEN, "-").replace(_SPACE, " ")


_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"


def _unbroken(text: str) -> str:
    """The text with no-break hyphens and spaces, so that lines break only between words and not in short defaults.

    >>> _unbroken("Use --max-cost.  [default: 1]").replace(_HYPHEN, "~").replace(_SPACE, "_")
    'Use ~~max~cost.  [default:_1]'
    """
    text = re.sub(r"\[[^]]{1,40}\]", lambda match: match[0].replace(" ", _SPACE), text)
    text = re.sub(r"(?<=\S)-(?=\S)|--", lambda match: _HYPHEN * len(match[0]), text)
    return text.replace("[default: ", f"[default:{_SPACE}")


class HelpContext(click.Context):
    """A context whose help is written by `HelpFormatter`."""

    formatter_class = HelpFormatter


class Command(click.Command):
    """A command whose help is written by `HelpFormatter`; the last option of every command is ``--verbose``."""

    context_class = HelpContext

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        verbose(self)


class GroupedCommand(Command):
    """A command whose help shows the options by group, in the order of the groups' first options; "General" is last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups, with the descriptions of all groups in one column."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                groups.setdefault(getattr(parameter, "group", GENERAL), []).append(record)
        groups[GENERAL] = groups.pop(GENERAL)
        lengths = [len(term) for records in groups.values() for term, _ in records]
        width = max(length for length in lengths if length <= WIDEST)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl([(f"{term:<{width}}", text) for term, text in records], col_max=width)


def option(group: str, names: str, metavar: str | None, help: str, **settings: Any) -> Option:
    """A click option in a group, with its names separated by spaces. Help shows its default unless the text does."""
    settings.setdefault("show_default", "default" in settings and "[default" not in help)
    return click.option(*names.split(), cls=GroupedOption, group=group, metavar=metavar, help=help, **settings)


def flag(group: str, names: str, help: str, **settings: Any) -> Option:
    """An option without a value."""
    return option(group, names, None, help, is_flag=True, show_default=False, **settings)


def file_option(group: str, names: str, help: str, **settings: Any) -> Option:
    """An option whose value is the path of a file."""
    return option(group, names, "FILE", help, type=click.Path(), **settings)


def integer(group: str, names: str, metavar: str, help: str, **settings: Any) -> Option:
    """An option whose value is an integer."""
    return option(group, names, metavar, help, type=int, **settings)


def number(group: str, names: str, metavar: str, help: str, **settings: Any) -> Option:
    """An option whose value is a number."""
    return option(group, names, metavar, help, type=float, **settings)


def choice(group: str, names: str, choices: Iterable[str], help: str, **settings: Any) -> Option:
    """An option whose value is one of some words."""
    return option(group, names, settings.pop("metavar", None), help, type=click.Choice([*choices]), **settings)


verbose = flag(GENERAL, "-v --verbose", "Print a traceback if Calipers has an internal error.", expose_value=False)
"""`calipers.cli.main` looks for it in the arguments."""
dialect = option(
    OTHERS,
    "--dialect",
    "NAME",
    "Use another system's metric names and rules (a dialect): "
    f"{', '.join(name for name in DIALECTS.entries if name != 'native')}.  [default: native]",
)
by = option(
    STATISTICS,
    "--by",
    "KEY",
    "Break the results down by task, sample, outcome, or a key of the rows or of their metadata; may be repeated.",
    multiple=True,
)
details = flag(
    OUTPUT,
    "--details",
    "Show everything: standard errors, definitions, sample counts, and what missing rollouts could change.",
)
economics = flag(OUTPUT, "--economics", "Show times, tokens and costs as a table.")
every_row = flag(OUTPUT, "--all every", "Show every row, however long the page is.")
cluster = option(STATISTICS, "--cluster", "KEY", "Treat tasks with the same value of KEY as one cluster.")
exclude = option(
    ROLLOUTS,
    "--exclude",
    "KEY=VALUE",
    "Exclude the rollouts with this value, such as difficulty=hard or task=ID; may be repeated.",
    multiple=True,
)
columns_only = option(
    ROLLOUTS,
    "--columns",
    "ROLE=KEY,...",
    "Map roles to the keys of your files, such as task=id,reward=score; a path such as meta.id reaches inside, "
    "and sample=# numbers the samples of a task in order of appearance; may be repeated.",
    multiple=True,
)
interval = option(
    STATISTICS,
    "--interval",
    "NAME",
    f"Interval method for means: {', '.join(interval_names())}; calipers explain NAME describes each.  "
    "[default: default]",
)
threshold = number(
    ROLLOUTS,
    "--threshold",
    "REWARD",
    "Lowest reward that counts as a pass.  [default: 1; rewards above 1 need it]",
)
out = file_option(OUTPUT, "--out", "Also write the result as JSON to this file.")
signing_key = file_option(OUTPUT, "--key", "Private key to sign with (Ed25519, PEM).")
certified_plan = file_option(ROLLOUTS, "--plan", "Plan that calipers preregister wrote, to say what differs from it.")
pairs = flag(OUTPUT, "--pairs", "Show every pair of runs, however many there are.")
include_path = option(
    LM_EVAL, "--include-path", "DIR", "Folder with lm-eval task files; may be repeated.", multiple=True
)
load_seeds = option(
    LM_EVAL,
    "--load-seeds",
    "N,N,N,N",
    "Seeds for loading lm-eval tasks: random, numpy, torch, few-shot.  [default: 0,1234,1234,1234]",
)
registry = option(
    HARBOR, "--registry", "DIR", "Registry of Harbor datasets, named org/name@version.  [default: .calipers/registry]"
)
plugins = option(
    GENERAL,
    "--plugin plugins",
    "FILE|MODULE",
    "Load trusted Python code that adds metrics, verifiers or filters; may be repeated.",
    multiple=True,
)
retries = integer(LIMITS, "--retries", "N", "Maximum number of retries of a failed request.  [default: 8]")
engine = option(
    LIMITS,
    "--engine",
    "NAME[=ADDRESS]",
    "Do the work in this process (local), or on all machines of the Ray cluster at ADDRESS (ray).  [default: local]",
)
verifications = integer(LIMITS, "--concurrency", "N", "Maximum number of verifications at a time.", default=32)


def default_metrics(default: str | None) -> Option:
    """``--default-metrics`` of lm-eval tasks; the default is None if a file may set it."""
    return choice(
        LM_EVAL,
        "--default-metrics",
        ["release", "guide"],
        "Default metrics for lm-eval tasks that name none: those of its release or of its guide.  [default: release]",
        default=default,
    )


def trust(default: bool | None) -> Option:
    """``--trust``; the default is None if a file may set it."""
    return flag(
        OTHERS,
        "--trust",
        "Trust and run code that came with the data: !function in lm-eval tasks, and metric scripts.",
        default=default,
    )


trust_reader = flag(
    STATISTICS,
    "--trust-reader",
    "Draw conclusions although a number that the system which wrote the rollouts reports itself differs from ours.",
)


def reward(more: str = "") -> Option:
    """``--reward``; ``more`` describes its default."""
    return option(ROLLOUTS, "--reward", "KEY", f"Reward to use if rollouts have several.{more}")


def missing(default: str | None, more: str, choices: Sequence[str] = ("gap", "zero", "fail")) -> Option:
    """``--missing``; ``more`` describes its default."""
    fails = "; fail exits with 3" if "fail" in choices else ""
    if "random" in choices:
        fails += "; random declares that their loss does not depend on the answers"
    return choice(
        ROLLOUTS,
        "--missing",
        choices,
        f"Rule for rollouts without a reward: gap excludes them; zero counts them as 0{fails}.  [default: {more}]",
        default=default,
    )


missing_by_dialect = missing(None, "the dialect's rule")
missing_excluded = missing("gap", "gap")
missing_compared = missing(None, "the dialect's rule", ("gap", "zero", "fail", "random"))
"""For commands that compare runs."""


def seed(default: int | None) -> Option:
    """``--seed`` of resampling; the default is None if a result may set it."""
    return integer(STATISTICS, "--seed", "N", "Random seed for resampling.  [default: 0]", default=default)


def confidence(default: float | None) -> Option:
    """``--confidence``; the default is None if a file or a result may set it."""
    return number(
        STATISTICS, "--confidence", "LEVEL", "Confidence level of the intervals.  [default: 0.95]", default=default
    )


def metrics(more: str = "") -> Option:
    """``--metric``, which may be repeated; ``more`` describes its default."""
    text = f"Metric to compute, such as pass@3 or 'mean(column=f1)'; may be repeated.{more}"
    return option(STATISTICS, "--metric metrics", "NAME", text, multiple=True)


def shape(*shapes: str) -> Option:
    """``--format``, the format of standard output."""
    return choice(OUTPUT, "--format shape", shapes or FORMATS, "Format of standard output.", default="table")


def _ends(text: str, whole: str, expected: str) -> tuple[float, float]:
    """The two numbers of a range; ``whole`` is the argument that has it."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError.at("--range", f"{whole!r} cannot be read", expected) from None
    return low, high


def _range(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, float] | None:
    return None if text is None else _ends(text, text, "expected LOW,HIGH, such as -1,1")


def _ranges(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    """One range for all benchmarks, or the range of each benchmark by name; None is the name of all others."""
    ranges: dict[str | None, tuple[float, float]] = {}
    for text in texts:
        name, equals, ends = text.rpartition("=")
        key = name.strip() if equals else None
        if key == "":
            raise InputError.at("--range", f"{text!r} names no benchmark", "expected BENCHMARK=LOW,HIGH or LOW,HIGH")
        if key in ranges:
            problem = "a range of all benchmarks is given twice" if key is None else f"{key} is given twice"
            raise InputError.at("--range", problem, "expected one range for each benchmark")
        ranges[key] = _ends(ends, text, "expected LOW,HIGH, such as -1,1, or BENCHMARK=LOW,HIGH")
    return ranges[None] if set(ranges) == {None} else ranges or None


LOWEST_AND_HIGHEST = "Lowest and highest possible reward; a reward outside this range is an error"
KNOWN_RANGE = "[default: 0,1 if all rewards lie in it, else unknown]"
reward_range = option(ROLLOUTS, "--range range", "LOW,HIGH", f"{LOWEST_AND_HIGHEST}.  {KNOWN_RANGE}", callback=_range)
reward_ranges = option(
    ROLLOUTS,
    "--range range",
    "[NAME=]LOW,HIGH",
    f"{LOWEST_AND_HIGHEST}. With NAME, of this benchmark only; may be repeated.  {KNOWN_RANGE}",
    callback=_ranges,
    multiple=True,
)
mean = choice(
    STATISTICS,
    "--mean",
    [OF_RANGE],
    "Mean over benchmarks: of-range makes each value a share of the range of its benchmark, for benchmarks with "
    "different ranges.",
)


def _word_rewards(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    rewards: dict[str, float] = {}
    for pair in text.split(","):
        word, _, number = (part.strip() for part in pair.partition("="))
        try:
            rewards[word] = float(number if word and word not in rewards else "")
        except ValueError:
            error = f"{pair!r} is given twice" if word in rewards else f"{pair!r} cannot be read"
            raise InputError.at("--truth", error, "expected WORD=NUMBER for each word, such as yes=1,no=0") from None
    return rewards


truth = option(
    ROLLOUTS,
    "--truth",
    "WORD=NUMBER,...",
    "Rewards that are words in your files, such as yes=1,no=0.",
    callback=_word_rewards,
)


def _keep_format(context: click.Context, option: click.Parameter, name: str | None) -> None:
    """Keep the requested format in the context, for `roles`."""
    if name is not None and name not in READABLE.entries:
        raise UnknownName.of("format", name, READABLE.entries)
    context.meta[INPUT_FORMAT] = name or ""


INPUT_FORMAT = "calipers.input_format"
input_format = option(
    ROLLOUTS,
    "--input-format",
    "NAME",
    "Format of the files, where their content should not decide; calipers list formats shows them.",
    callback=_keep_format,
    expose_value=False,
)


def columns(command: Any) -> Any:
    """``--columns``, ``--truth`` and ``--input-format``; `roles` reads the first and the last."""
    return columns_only(truth(input_format(command)))


def roles(texts: tuple[str, ...]) -> dict[str, str]:
    """The mapping of ``--columns``, role -> key, with the format of ``--input-format``.

    >>> roles(("task=id,reward=score", "answer=final"))
    {'task': 'id', 'reward': 'score', 'answer': 'final'}
    """
    keys: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        role, equals, key = (part.strip() for part in pair.partition("="))
        if not (role and equals and key):
            raise InputError.at("--columns", f"{pair!r} cannot be read", "expected ROLE=KEY, such as task=id")
        key = key.replace('"', "'")  # either quotes a key with a dot; only the single quote is understood later
        if role in keys:
            raise InputError.at("--columns", f"{role} is given twice", "expected it once")
        keys[role] = key
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(INPUT_FORMAT):
        return keys
    from calipers.formats import Named  # loads the readers' libraries, which help does not need

    return Named(keys, format=context.meta[INPUT_FORMAT])


def _combined(*options: Any) -> Option:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def reasoning(group: str) -> Option:
    """The option of ``run`` and ``rescore`` that says what verifiers see of a completion that starts with reasoning."""
    return choice(
        group,
        "--reasoning",
        ["split", "keep"],
        "Verify the answer after the reasoning (<think>...</think> and similar), or the whole completion.  "
        "[default: split; keep with another dialect]",
    )


request_options = _combined(
    option(MODEL, "--base-url", "URL", "URL of an OpenAI-compatible server.  [default: $OPENAI_BASE_URL]"),
    option(
        MODEL,
        "--model-args",
        "KEY=VALUE,...",
        "Arguments for loading an hf/ model, such as dtype=float16,device=cuda:1, or JSON.",
    ),
    choice(MODEL, "--api", ["chat", "completions"], "API route to call on the server.  [default: chat]"),
    flag(
        MODEL, "--same-model", "Resume a run although the server's URL or the model's file has changed.", default=None
    ),
    option(
        MODEL, "--price", "IN,OUT", "Dollars per million input and output tokens, used if the server reports no cost."
    ),
    integer(
        SAMPLING,
        "--samples --epochs --repeats --num-repeats --num-samples",
        "N",
        "Number of samples per task.  [default: 1]",
    ),
    integer(SAMPLING, "--max-tokens", "N", "Maximum tokens per completion."),
    number(SAMPLING, "--temperature", "T", "Sampling temperature.  [default: the server's]"),
    option(SAMPLING, "--stop", "TEXT", "Stop sequence of a completion; may be repeated.", multiple=True),
    option(SAMPLING, "--system-prompt", "TEXT", "System message to send before every prompt."),
    option(
        SAMPLING,
        "--gen-kwargs",
        "KEY=VALUE,...",
        "More sampling parameters for the server, such as top_p=0.9,min_p=0.1, or JSON.",
    ),
    integer(
        SAMPLING, "--seed", "N", "Random seed for the order of tasks, for sampling and for resampling.  [default: 0]"
    ),
    number(LIMITS, "--limit", "N", "Run only the first N tasks, or this fraction of them if N is below 1."),
    option(
        LIMITS, "--documents", "N,N-N,...", "Run only the tasks with these indices, counted from 0, such as 0,3,6-9."
    ),
    integer(
        LIMITS, "--concurrency", "N", "Maximum number of requests in flight; lowered after HTTP 429.  [default: 32]"
    ),
    retries,
    engine,
    number(LIMITS, "--timeout", "SECONDS", "Timeout of a request in seconds.  [default: 600]"),
    number(LIMITS, "--max-cost", "USD", "Start no more rollouts once this many dollars are spent."),
    number(LIMITS, "--max-time", "SECONDS", "Start no more rollouts after this many seconds."),
    option(LIMITS, "--until", "RULE", "Stop as soon as the rule is met, such as 'width(pass@1) < 0.05'."),
    flag(LIMITS, "--retry-failed", "Retry the missing rollouts of the log, such as client_failed.", default=None),
    flag(LIMITS, "--predict-only", "Log the completions without verifying or scoring them.", default=None),
)
"""Options of ``run``: the model, the requests to it, and when to stop."""
lm_eval_options = _combined(
    integer(LM_EVAL, "--num-fewshot", "N", "Number of few-shot examples in a prompt."),
    option(
        LM_EVAL,
        "--apply-chat-template",
        "[NAME]",
        "Send prompts as chat messages; NAME selects one of a local model's templates.",
        is_flag=False,
        flag_value="",
    ),
    flag(
        LM_EVAL,
        "--fewshot-as-multiturn/--no-fewshot-as-multiturn",
        "Send each few-shot example as its own messages, or all in one message.  [default: as its own]",
        default=None,
    ),
    option(LM_EVAL, "--system-instruction", "TEXT", "Text to put before a task's description."),
    include_path,
    load_seeds,
    integer(LM_EVAL, "--fewshot-seed", "N", "Seed for choosing the few-shot examples: the last of --load-seeds."),
    option(LM_EVAL, "--task-metadata", "JSON", "Metadata for tasks that build their documents from it, such as ruler."),
    default_metrics(None),
    flag(LM_EVAL, "--check-integrity", "Check the tasks and print what was checked before the first request."),
    flag(LM_EVAL, "--write-out", "Print the prompt and the target of each task's first document."),
    flag(LM_EVAL, "--show-config", "Print the configuration of each task."),
    option(
        LM_EVAL,
        "--cache-requests",
        None,
        "Cache the prompts of the tasks on disk: use them, build them again, or remove them.",
        type=click.Choice(["true", "refresh", "delete"]),
        is_flag=False,
        flag_value="true",
    ),
)
"""Options of lm-evaluation-harness tasks; the last three print to standard error before the first request."""
harbor_options = _combined(
    option(
        HARBOR,
        "--agent",
        "NAME",
        "Agent that works on Harbor tasks: oracle, nop, command:LINE, chat, or an agent of Harbor's.  "
        "[default: oracle]",
    ),
    option(
        HARBOR,
        "--environment",
        "NAME",
        "Environment of Harbor tasks: room (Calipers' own sandbox), docker, another of Harbor's, or auto "
        "(docker if Harbor and Docker are available, else room).  [default: auto]",
    ),
    registry,
)
pick_group = _combined(
    option(ROLLOUTS, "--agent", "NAME", "Use only the groups of this agent."),
    option(ROLLOUTS, "--model", "NAME", "Use only the groups of this model."),
    option(ROLLOUTS, "--dataset", "NAME", "Use only the groups of this dataset."),
)
page_options = _combined(details, economics, every_row)
"""Options of commands that show the page of a result."""
rollout_options = _combined(by, cluster, columns, reward(), reward_ranges, mean, threshold, exclude, missing_by_dialect)
"""Options of ``score`` that select the rollouts and their rewards, and the mean over benchmarks."""
certified_options = _combined(by, cluster, columns, reward(), reward_range, threshold, exclude, missing_by_dialect)
"""Options of ``certify`` that select the rollouts and their rewards."""
compared_options = _combined(by, cluster, columns, reward(), reward_ranges, mean, threshold, exclude, missing_compared)
"""The same as for ``score``, for ``compare``."""
scoring_options = _combined(metrics(), by, cluster, reward(), threshold, missing_by_dialect, interval, confidence(None))
"""Options of ``run`` for scoring its rollouts."""


def given_options(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that the user gave, without options that have their default."""
    sources = {name: ctx.get_parameter_source(name) for name in values}
    return {name: value for name, value in values.items() if sources[name] not in (None, ParameterSource.DEFAULT)}


def refuse(names: Iterable[str], problem: str, expected: str) -> None:
    """InputError for the first of these parameters that the user gave."""
    ctx = click.get_current_context()
    given = given_options(ctx, dict.fromkeys(names))
    for parameter in ctx.command.params:
        if parameter.name in given:
            raise InputError.at(parameter.opts[0], problem, expected)


def params_of(texts: Sequence[str]) -> dict[str, Any]:
    """The parameters of ``--param``; a value is read as JSON if possible, else as text.

    >>> params_of(("ignore_case=true", "marker=Answer:"))
    {'ignore_case': True, 'marker': 'Answer:'}
    """
    import json  # help does not need it

    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals):
            raise InputError.at("--param", f"{text!r} cannot be read", "expected KEY=VALUE, such as ignore_case=true")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value
    return values


def unescaped(text: str) -> str:
    r"""The text of an argument in which a line break is written ``\n``, a tab ``\t``, and a backslash ``\\``.

    >>> unescaped(r"Q: {question}\nA:")
    'Q: {question}\nA:'
    """
    return re.sub(r"\\([nt\\])", lambda match: {"n": "\n", "t": "\t", "\\": "\\"}[match[1]], text)


TABLE = "Your own questions"
_OF_TABLES = (
    option(TABLE, "--prompt", "COLUMN", "Column with the question.  [default: guessed from its name]"),
    option(TABLE, "--target", "COLUMN", "Column with the right answer.  [default: guessed from its name]"),
    option(
        TABLE,
        "--id",
        "COLUMN",
        "Column with the ids, or '#' for a hash of the prompt.  [default: id or task_id, else #]",
    ),
    option(
        TABLE,
        "--metadata",
        "COLUMNS",
        "Columns to keep as metadata for --by and --cluster, such as level,source.",
        multiple=True,
    ),
    option(
        TABLE,
        "--template",
        "TEXT|FILE",
        r"Template of the prompt, such as 'Q: {question}\nA:', or a Jinja file (.jinja, .j2).",
        callback=lambda context, option, text: None if text is None else unescaped(text),
    ),
    option(
        TABLE,
        "--choices",
        "COLUMNS",
        "Columns with the choices of a multiple-choice question, such as A,B,C,D, or one column of lists.",
        multiple=True,
    ),
    flag(TABLE, "--shuffle-choices", "Shuffle the choices with the seed of --seed.", default=None),
    choice(
        TABLE,
        "--index-from",
        ["0", "1"],
        "Index of the first choice, used if targets are indices.",
        callback=lambda context, option, text: None if text is None else int(text),
    ),
    option(
        TABLE,
        "--verifier",
        "NAME|FILE.py:FUNCTION",
        "Verifier to use instead of those that the tasks name; a file is trusted and run, like --plugin.",
    ),
    option(
        TABLE,
        "--param params",
        "KEY=VALUE",
        "Parameter of the verifier; may be repeated.",
        multiple=True,
        callback=lambda context, option, texts: params_of(texts),
    ),
)
question_options = _combined(
    *_OF_TABLES, flag(TABLE, "--dry-run", "Show five prompts with their targets and send no request.")
)
"""The options of ``run`` for questions in a table, and for your own verifier."""
table_options = _combined(
    option(TABLE, "--from table", "FILE", "Make the benchmark NAME from a table: CSV, TSV, JSON or Parquet."),
    *_OF_TABLES,
    integer(TABLE, "--seed", "N", "Random seed of --shuffle-choices.", default=0),
)
"""The options of ``init`` that create a benchmark from a table."""
