"""The command line of lm-evaluation-harness 0.4.13, translated into Calipers' jobs.

::

    words ──► options, over those of --config FILE ──► jobs ──► reports ──► lm-eval's table and files

Every option has the effect that it has in lm-evaluation-harness, or is refused by name. An option that has no effect
there, such as ``--device`` for a server, has none here either.
"""

from __future__ import annotations

import argparse
import ast
import glob
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from calipers.clients.huggingface import LoadOptions
from calipers.errors import InputError, UnknownName, nearest
from calipers.running import LOAD_SEEDS
from calipers.running.settings import jobs_of, load_seeds, setting, shown
from calipers.systems import OwnPage

if TYPE_CHECKING:
    from calipers.running import Job
    from calipers.running.perform import Report
    from calipers.systems.lm_eval.report import TaskPart

PROGRAM: Final = "calipers lm-eval"
COMMANDS: Final = ("run", "ls", "validate")
LISTED: Final = ("tasks", "groups", "subtasks", "tags")
RUNS: Final = "runs"  # the folder of run folders, as for ``calipers run``
NOT_FOUND: Final = 1  # exit code of lm-evaluation-harness' ``validate``


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output and exit code of a command that starts no run."""

    text: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class HarnessCommand:
    """An ``lm-eval run`` command: its jobs, and what it prints from their reports."""

    options: Mapping[str, Any]  # the value of every option of lm-evaluation-harness
    jobs: Sequence[Job]
    notes: Sequence[str]
    began: float = field(default_factory=time.perf_counter)

    def before(self, tasks: Any) -> list[str]:
        """What ``--check_integrity`` and ``--write_out`` print before the first request; InputError for a bad task."""
        from calipers.systems.lm_eval.benchmarks import integrity, written_out

        lines: list[str] = []
        if self.options["check_integrity"]:
            lines += [line for job in self.jobs for line in integrity(job, tasks)]
        if self.options["write_out"]:
            lines += [written_out(job, tasks) for job in self.jobs]
        return lines

    def page(self, reports: Sequence[Report]) -> OwnPage:
        """Write the output files and return the printed page.

        The page is lm-evaluation-harness' table, with the results object before it if ``--show_config`` is given.
        """
        from calipers.systems.lm_eval.report import joined
        from calipers.systems.lm_eval.write import file_text, results_object, tables

        parts = [self._with_gen_kwargs(report.part) for report in reports if report.part is not None]
        if not parts:
            return OwnPage("")
        [run_report] = joined(parts)
        blocks = self._result_blocks(parts[0].job)
        results = results_object(**{**run_report.results, **blocks})
        text = f"{file_text(results)}\n" if self.options["show_config"] else ""
        text += f"{self._headline()}\n{tables(results)}\n"
        written: list[Path] = []
        if self.options["output_path"]:
            written = run_report.write(
                Path(self.options["output_path"]),
                datetime.now(),
                name=self._model_name(),
                blocks=blocks,
                with_samples=self.options["log_samples"],
            )
        return OwnPage(text, alone=True, remarks=[*run_report.sentences, *map(str, written)])

    def _with_gen_kwargs(self, part: TaskPart) -> TaskPart:
        """A run whose task has the command's ``--gen_kwargs`` in its configuration, as lm-eval's files show it."""
        from calipers.systems.lm_eval.tasks.loaded import requests

        task = part.scored.task
        if task.config.output_type != "generate_until" or not self.options["gen_kwargs"]:
            return part
        shown_requests = []
        for request in requests(task):
            if request.request_type == "generate_until":  # a class may also request likelihoods
                prompt, *kwargs = request.args
                settings = {**(kwargs[0] if kwargs else {}), **self.options["gen_kwargs"]}
                request = replace(request, args=(prompt, settings))
            shown_requests.append(request)
        settings = {**(task.config.generation_kwargs or {}), **self.options["gen_kwargs"]}
        config = replace(task.config, generation_kwargs=settings)
        shown_task = replace(task, config=config, cache={**task.cache, ("requests", task.manner): shown_requests})
        return replace(part, scored=replace(part.scored, task=shown_task))

    def _headline(self) -> str:
        options = self.options
        model_args = {key: value for key, value in options["model_args"].items() if key != "trust_remote_code"}
        return (
            f"{options['model']} ({model_args}), gen_kwargs: ({options['gen_kwargs']}), limit: {options['limit']}, "
            f"num_fewshot: {options['num_fewshot']}, batch_size: {options['batch_size']}"
        )

    def _model_name(self) -> str:
        model_args = self.options["model_args"]
        arguments = ("peft", "delta", "pretrained", "model", "path", "engine")  # lm-evaluation-harness takes the first
        return str(next((model_args[name] for name in arguments if name in model_args), self.options["model"]))

    def _result_blocks(self, job: Job) -> dict[str, Any]:
        """The keys of lm-eval's results file that describe the command, the model and the machine."""
        from calipers.systems.lm_eval.aggregations import ITERATIONS
        from calipers.systems.lm_eval.write import environment, model_blocks, sanitized

        options, seeds = self.options, self.options["seed"]
        model_block, tokenizer_block = model_blocks(job)
        return {
            **environment(),
            **tokenizer_block,
            "config": {
                "model": options["model"],
                "model_args": options["model_args"],
                **model_block,
                "batch_size": options["batch_size"],
                "batch_sizes": [],
                "device": options["device"],
                "use_cache": options["use_cache"],
                "limit": options["limit"],
                "bootstrap_iters": ITERATIONS,
                "gen_kwargs": options["gen_kwargs"],
                **dict(zip(("random_seed", "numpy_seed", "torch_seed", "fewshot_seed"), seeds, strict=True)),
            },
            "date": time.time() - (time.perf_counter() - self.began),
            "model_source": options["model"],
            "model_name": self._model_name(),
            "model_name_sanitized": sanitized(self._model_name()),
            "system_instruction": options["system_instruction"],
            "system_instruction_sha": None,
            "fewshot_as_multiturn": options["fewshot_as_multiturn"],
            **{"chat_template": None, "chat_template_sha": None},
            "total_evaluation_time_seconds": str(time.perf_counter() - self.began),
        }


def read_command(words: Sequence[str]) -> HarnessCommand | CommandOutput:
    """Parse a command line; without a subcommand it is a run, as in lm-evaluation-harness."""
    if not words or words[0] in ("-h", "--help"):
        return CommandOutput(HELP)
    command, arguments = (words[0], words[1:]) if words[0] in COMMANDS else ("run", words)
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        raise UnknownName.of("command of lm-eval", words[0], COMMANDS)
    parser = {"run": _run_parser, "ls": _list_parser, "validate": _validate_parser}[command]()
    if {"-h", "--help"} & {*arguments} or (command == "run" and not arguments):
        return CommandOutput(parser.format_help())
    namespace, unknown = parser.parse_known_args([*arguments])
    if unknown:
        raise _unknown_words(parser, unknown)
    given = vars(namespace)
    if command == "ls":
        from calipers.systems.lm_eval.benchmarks import listing

        return CommandOutput(listing(given["what"], given["include_path"]) if given["what"] else parser.format_help())
    return _validate(given["tasks"], given["include_path"]) if command == "validate" else _run(given)


HELP: Final = f"""\
Usage: {PROGRAM} [run] --model KIND --tasks NAME,... [OPTIONS]
       {PROGRAM} ls tasks|groups|subtasks|tags [--include_path DIR]
       {PROGRAM} validate --tasks NAME,... [--include_path DIR]

  Run tasks with the command line of lm-evaluation-harness 0.4.13. Commands
  written for it work unchanged. It runs the same jobs as calipers run, prints
  the table of lm-evaluation-harness, and writes its files to --output_path.
  An option or a model argument that has no effect here is an error.

  calipers lm-eval run --help describes every option of a run.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors as an InputError, which the command prints as one line with exit code 2."""

    def names(self) -> list[str]:
        """The long names of all options."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def error(self, message: str) -> NoReturn:
        name, colon, problem = message.removeprefix("argument ").partition(": ")
        if not colon or not name.startswith("-"):
            name, problem = self.prog, message
        raise InputError.at(name.partition("/")[0], problem, f"see {self.prog} --help")


def _unknown_words(parser: _Parser, words: Sequence[str]) -> InputError:
    """The error for words that the parser does not know; it names the nearest options if one looks like an option."""
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return InputError.at(parser.prog, f"{words[0]!r} does not belong to an option", f"see {parser.prog} --help")
    close = nearest(option, parser.names())
    right = f"did you mean {' or '.join(map(repr, close))}?" if close else f"see {parser.prog} --help"
    return InputError(f"no option {option!r}; {right}")


class _KeyValues(argparse.Action):
    """The parser of ``--model_args a=1,b=2 c=3``, or of a JSON object; the last value of a key counts."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        pairs = dict(getattr(namespace, self.dest, None) or {})
        for value in values:
            pairs |= _pairs(str(option_string), value)
        setattr(namespace, self.dest, pairs)


def _pairs(where: str, text: str) -> dict[str, Any]:
    """Parse settings as lm-evaluation-harness does: a JSON object, or pairs whose values are Python literals.

    >>> _pairs("--model_args", "pretrained=m,dtype=float32,stops=['a,b'],n=3,x=true")
    {'pretrained': 'm', 'dtype': 'float32', 'stops': ['a,b'], 'n': 3, 'x': True}
    >>> _pairs("--metadata", "n=²,keys={[1]: 2}")  # neither an integer nor a mapping
    {'n': '²', 'keys': '{[1]: 2}'}
    """
    if text.lstrip().startswith("{"):
        return _json_object(where, text)
    pairs: dict[str, Any] = {}
    for part in _split_at_commas(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError.at(where, f"{part!r} cannot be read", "expected KEY=VALUE,KEY=VALUE, or a JSON object")
        pairs[key.strip()] = _value(value)
    return pairs


def _json_object(where: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits, and deep nesting
        expected = "expected an object, with names in double quotes"
        raise InputError.at(where, f"is not JSON ({error})", expected) from None
    if not isinstance(value, dict):
        raise InputError.at(where, f"is {shown(value)}", "expected a JSON object")
    return value


def _split_at_commas(text: str) -> list[str]:
    """Split a text at its commas, except those inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[({":
            depth += 1
        elif character in "])}":
            depth = max(depth - 1, 0)
        elif character == "," and not depth:
            parts.append("")
            continue
        parts[-1] += character
    return [part for part in parts if part]


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float, ast.literal_eval) if text.isdecimal() else (float, ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return read(text)
    return text


KEY_VALUES: Final[Mapping[str, Any]] = {"nargs": "+", "action": _KeyValues, "metavar": "KEY=VALUE"}
UPLOADS: Final = ("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args")  # options without effect here


def _run_parser() -> _Parser:
    parser = _Parser(
        f"{PROGRAM} run",
        usage=f"{PROGRAM} run --model KIND --tasks NAME ... [OPTIONS]",
        add_help=False,
        formatter_class=_formatter,
    )

    def group(title: str) -> Callable[..., Any]:
        return partial(parser.add_argument_group(title).add_argument, default=None)

    option = group("Model")
    option("--model", "-M", metavar="KIND", help=f"Kind of model: {', '.join(KINDS)}.  [default: hf]")
    option("--model_args", "-a", **KEY_VALUES, help="Arguments of the model, such as pretrained=... or base_url=...")
    option("--device", metavar="NAME", help="Device of an hf model: cpu, cuda or cuda:N.")
    option("--batch_size", "-b", metavar="N", help="Number of prompts per batch: an integer, auto or auto:N.")
    option("--max_batch_size", type=int, metavar="N", help="Largest batch size of --batch_size auto.")
    option = group("Tasks")
    tasks_help = "Tasks, groups, tags, patterns such as mmlu_*, or files such as FILE.yaml."
    option("--tasks", "-t", nargs="+", action="extend", metavar="NAME", help=tasks_help)
    option("--include_path", metavar="DIR", help="Folder with more task files.")
    option("--num_fewshot", "-f", type=int, metavar="N", help="Number of few-shot examples in a prompt.")
    option("--metadata", **KEY_VALUES, help="Metadata for tasks that need it, such as ruler.")
    option("--check_integrity", action="store_true", help="Check the tasks before the first request.")
    trust_help = "Trust and run code that came with a task (!function); only in Calipers."
    option("--trust", action="store_true", help=trust_help)
    option("--trust_remote_code", action="store_true", help="Accepted together with --trust.")
    option("--confirm_run_unsafe_code", action="store_true", help="Accepted together with --trust.")
    option = group("Sampling")
    option("--apply_chat_template", nargs="?", const=True, metavar="NAME", help="Send prompts as chat messages.")
    multiturn_help = "Send each few-shot example as its own messages."
    option("--fewshot_as_multiturn", nargs="?", const="true", metavar="BOOL", help=multiturn_help)
    option("--system_instruction", metavar="TEXT", help="Text to put before a task's description.")
    option("--gen_kwargs", **KEY_VALUES, help="Sampling parameters that override the task's generation_kwargs.")
    seed_help = "Seeds for random, numpy, torch and the few-shot examples.  [default: 0,1234,1234,1234]"
    option("--seed", metavar="N,N,N,N", help=seed_help)
    option = group("Limits")
    option("--limit", "-L", type=float, metavar="N", help="Use only the first N documents, or this fraction below 1.")
    option("--samples", "-E", metavar="JSON", help='Use only these documents: {"task": [0, 3]}, or a JSON file.')
    option("--predict_only", "-x", action="store_true", help="Log the completions without scoring them.")
    option = group("Output")
    option("--output_path", "-o", metavar="PATH", help="Folder, or .json file, for the results.")
    option("--log_samples", "-s", action="store_true", help="Also write the samples.")
    option("--write_out", "-w", action="store_true", help="Print the prompt of each task's first document.")
    option("--show_config", action="store_true", help="Print the results object before the table.")
    option("--use_cache", "-c", metavar="DIR", help="Keep the runs in this folder and repeat no request.")
    option = group("General")
    option("--config", "-C", metavar="FILE", help="YAML file with options; the command line overrides it.")
    option("--verbosity", "-v", metavar="LEVEL", help="Accepted without effect: notes go to standard error.")
    cache_help = "Cache prompts on disk: true, refresh or delete."
    option("--cache_requests", nargs="?", const="true", metavar="HOW", help=cache_help)
    for name in UPLOADS:
        option(f"--{name}", **KEY_VALUES, help="Not supported: Calipers uploads nothing.")
    return parser


def _formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter of help in 80 columns, in the layout of the other commands."""
    return argparse.HelpFormatter(prog, max_help_position=28, width=78)


def _list_parser() -> _Parser:
    parser = _Parser(f"{PROGRAM} ls", add_help=False, formatter_class=_formatter)
    parser.add_argument("what", choices=LISTED, nargs="?", help="Names to list; tasks lists all of them.")
    parser.add_argument("--include_path", metavar="DIR", help="Folder with more task files.")
    return parser


def _validate_parser() -> _Parser:
    parser = _Parser(f"{PROGRAM} validate", add_help=False, formatter_class=_formatter)
    parser.add_argument("--tasks", "-t", required=True, metavar="NAME,...", help="Names of the tasks to check.")
    parser.add_argument("--include_path", metavar="DIR", help="Folder with more task files.")
    return parser


FLAGS: Final = (
    *("check_integrity", "write_out", "log_samples", "predict_only", "show_config"),
    *("trust_remote_code", "confirm_run_unsafe_code", "trust"),
)
DEFAULTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("tasks", "num_fewshot", "max_batch_size", "use_cache", "limit", "samples", "output_path")),
    **dict.fromkeys(("system_instruction", "fewshot_as_multiturn", "include_path", "verbosity")),
    **dict.fromkeys((*FLAGS, "apply_chat_template"), False),
    **{"model": "hf", "model_args": {}, "batch_size": 1, "device": "cuda:0", "gen_kwargs": {}, "metadata": {}},
    **{"cache_requests": None, "seed": LOAD_SEEDS},
    **dict.fromkeys(UPLOADS),
}
"""Every option of a run, with its default."""
MAPPINGS: Final = ("model_args", "gen_kwargs", "metadata")


def _run(given: Mapping[str, Any]) -> HarnessCommand:
    options = _checked_options({**DEFAULTS, **_from_config(given["config"]), **_from_words(given)})
    spec, settings, notes = _model(options)
    settings = {**settings, **_settings(options)}
    names = _task_names(options["tasks"], settings.get("include_path", ()))
    jobs, task_notes = jobs_of(names, {"model": (spec,), **settings}, of_library=True)
    jobs = _one_per_task(jobs)
    notes = [*notes, *task_notes]
    if options["samples"] is not None:
        notes += _unmatched(options["samples"], [str(job.lm_eval) for job in jobs])
        jobs = [_with_documents(job, options["samples"]) for job in jobs]
    if options["use_cache"] or options["limit"] is not None:
        # a resumed run keeps all documents it ever had, so another limit must be another run
        folder = Path(options["use_cache"] or RUNS)
        out = folder if options["limit"] is None else folder / f"limit-{options['limit']:.15g}"
        jobs = [replace(job, out=out, among=True) for job in jobs]
    return HarnessCommand(options, jobs, notes)


def _from_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options given on the command line; an empty value counts as not given, as in lm-evaluation-harness."""
    return {
        key: value for key, value in given.items() if key != "config" and (value or (value == 0 and value is not False))
    }


def _from_config(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})", "expected a YAML file of options") from None
    except UnicodeDecodeError:
        raise InputError.at(path, "is not UTF-8", "expected YAML in UTF-8") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a date with a thirteenth month is a ValueError
        mark = getattr(error, "problem_mark", None)
        raise InputError.at(f"{path}:{mark.line + 1}" if mark else path, "is not valid YAML") from None
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a mapping", "expected options by name: model, model_args, tasks")
    known = [name for name in DEFAULTS if name != "trust"]  # only the user at the command line may trust code
    for key in content:
        if key not in known:
            rows = enumerate(text.splitlines(), 1)
            line = next((number for number, row in rows if row.partition(":")[0].strip() == key), 1)
            raise UnknownName(f"{path}:{line}: {UnknownName.of('option of lm-eval', str(key), known)}")
    return {key: value for key, value in content.items() if value is not None}


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Validate and convert every option; InputError for contradictions and for options that have no effect here."""
    for name in UPLOADS:
        if options[name]:
            raise InputError.at(f"--{name}", "has no effect here", "expected none: results go to --output_path")
    for name in FLAGS:
        if not isinstance(options[name], bool):
            raise InputError.at(f"--{name}", f"is {shown(options[name])}", "expected true or false")
    for name in MAPPINGS:
        if isinstance(options[name], str):
            options[name] = _pairs(f"--{name}", options[name])
        if not isinstance(options[name], dict):
            raise InputError.at(f"--{name}", f"is {shown(options[name])}", "expected KEY=VALUE,... or a mapping")
        setting(f"--{name}", "task_metadata" if name == "metadata" else name, options[name])
    for name in ("output_path", "use_cache"):
        if options[name] is not None and not isinstance(options[name], str):
            raise InputError.at(f"--{name}", f"is {shown(options[name])}", "expected a path")
    tasks = options["tasks"]
    listed = tasks if isinstance(tasks, list) else [tasks]
    names = [name.strip() for item in listed for name in str(item).split(",")]
    if not names or not all(names) or not all(isinstance(item, str) for item in listed):
        problem = f"is {shown(tasks)}" if tasks else "does not name a task"
        raise InputError.at("--tasks", problem, "expected names: a,b")
    options["tasks"] = names
    options["seed"] = _seeds(options["seed"])
    options["cache_requests"] = _cache_use(options["cache_requests"])
    options["fewshot_as_multiturn"] = _multiturn(options["fewshot_as_multiturn"], options["apply_chat_template"])
    options["samples"] = _samples(options["samples"], options["limit"])
    options["log_samples"] = bool(options["log_samples"] or options["predict_only"])
    if options["log_samples"] and not options["output_path"]:
        problem = "is given without --output_path"
        name = "predict_only" if options["predict_only"] else "log_samples"
        raise InputError.at(f"--{name}", problem, "add --output_path DIR")
    for name in ("trust_remote_code", "confirm_run_unsafe_code"):
        if options[name] and not options["trust"]:
            raise InputError.at(f"--{name}", "runs code from the dataset", "add --trust")
    if options["trust_remote_code"]:
        options["model_args"] = {**options["model_args"], "trust_remote_code": True}
    return options


def _cache_use(value: Any) -> str | None:
    """The value of ``--cache_requests`` as a word; a file may also give a boolean, or lm-eval's own mapping."""
    if isinstance(value, dict):  # copied from a configuration of lm-evaluation-harness
        deletes, rewrites = value.get("delete_requests_cache"), value.get("rewrite_requests_cache")
        value = "delete" if deletes else "refresh" if rewrites else bool(value.get("cache_requests"))
    return ("true" if value else None) if value is None or isinstance(value, bool) else str(value)


def _seeds(value: Any) -> tuple[int, int, int, int]:
    parts = value.split(",") if isinstance(value, str) else [*value] if isinstance(value, (list, tuple)) else [value]
    if any(part is None or (isinstance(part, str) and part.strip().lower() == "none") for part in parts):
        expected = "expected integers, because a run without seeds cannot be reproduced"
        raise InputError.at("--seed", f"is {shown(value)}", expected)
    return load_seeds("--seed", value)


def _multiturn(value: Any, chat_template: Any) -> bool | None:
    if isinstance(value, str):
        value = value.lower() in ("true", "1", "yes")
    if value is None:
        return True if chat_template else None
    if value and not chat_template:
        raise InputError.at("--fewshot_as_multiturn", "needs a chat template", "add --apply_chat_template")
    return bool(value)


def _samples(value: Any, limit: Any) -> dict[str, list[int]] | None:
    """The numbers of the documents to use, by task, from JSON text, a JSON file, or a mapping."""
    if not value:
        return None
    if limit is not None:
        raise InputError.at("--samples", "is given together with --limit", "expected one of the two")
    if isinstance(value, str):
        try:
            text = value if "{" in value else Path(value).read_text(encoding="utf-8")
        except (OSError, ValueError):  # a file that is not UTF-8 and an invalid path are ValueErrors
            expected = """expected JSON such as {"task": [0, 3]}, or a file of that"""
            raise InputError.at("--samples", f"{value!r} is neither", expected) from None
        value = _json_object("--samples", text)
    if not isinstance(value, dict):
        raise InputError.at("--samples", f"is {shown(value)}", """expected an object such as {"task": [0, 3]}""")
    for task, numbers in value.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise InputError.at("--samples", f"{task}: is {shown(numbers)}", "expected a list of integers >= 0")
    return value


def _with_documents(job: Job, samples: Mapping[str, Sequence[int]]) -> Job:
    """A job limited to the documents that ``samples`` lists for its task; a task that is not listed keeps all."""
    numbers = samples.get(str(job.lm_eval))
    if not numbers:
        return job
    return replace(job, documents=tuple(numbers), origins={**job.origins, "documents": "--samples"})


def _unmatched(samples: Iterable[str], tasks: Sequence[str]) -> list[str]:
    """Notes on names in ``--samples`` that are not requested tasks; lm-evaluation-harness ignores them silently."""
    return [f"--samples: {UnknownName.of('requested task', name, tasks)}" for name in samples if name not in tasks]


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that do not depend on the kind of model, as settings of a run."""
    values = {
        "limit": options["limit"],
        "num_fewshot": options["num_fewshot"],
        "predict_only": options["predict_only"] or None,
        "system_instruction": options["system_instruction"],
        "apply_chat_template": options["apply_chat_template"] or None,
        "fewshot_as_multiturn": options["fewshot_as_multiturn"],
        "include_path": options["include_path"] or None,
        "gen_kwargs": options["gen_kwargs"] or None,
        "load_seeds": options["seed"],
        "trust": options["trust"] or None,
        "task_metadata": {**options["model_args"], **options["metadata"]} or None,
    }
    options_by_setting = {"load_seeds": "seed", "task_metadata": "metadata"}
    settings = {
        name: setting(f"--{options_by_setting.get(name, name)}", name, value)
        for name, value in values.items()
        if value is not None
    }
    return settings | ({"gen_kwargs": json.dumps(settings["gen_kwargs"])} if "gen_kwargs" in settings else {})


API_ARGS: Final = {  # model argument -> name and type of our setting
    "base_url": ("base_url", str),
    "num_concurrent": ("concurrency", int),
    "max_retries": ("retries", int),
    "timeout": ("timeout", float),
    "seed": ("seed", int),
}
# model argument -> the values that agree with what Calipers does; None: any value
API_ACCEPTED: Final[Mapping[str, Sequence[Any] | None]] = {
    **dict.fromkeys(("model", "pretrained", "batch_size", "trust_remote_code")),
    **dict.fromkeys(("tokenizer", "tokenizer_backend", "tokenized_requests", "use_fast_tokenizer", "revision")),
    **{"truncate": (False,), "add_bos_token": (False,), "verify_certificate": (True,), "max_gen_toks": (256,)},
}
HF_ACCEPTED: Final[Mapping[str, Sequence[Any] | None]] = {
    **dict.fromkeys(("pretrained", "batch_size", "max_batch_size", "device", "logits_cache")),
    **{"backend": ("default", "causal"), "use_fast_tokenizer": (True,)},
}
KINDS: Final = {  # kind of model -> the API route; None: not a server
    "hf": None,
    "local-completions": "completions",
    "local-chat-completions": "chat",
    "openai-completions": "completions",
    "openai-chat-completions": "chat",
    "dummy": None,
}
ALIASES: Final = {"huggingface": "hf", "hf-auto": "hf"}  # lm-evaluation-harness' other names of these kinds


def _model(options: Mapping[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """The model's name as ``calipers run --model`` takes it, the settings that its arguments imply, and notes."""
    kind = ALIASES.get(str(options["model"]), str(options["model"]))
    notes = ["--verbosity has no effect here: notes go to standard error"] if options["verbosity"] else []
    if kind not in KINDS:
        raise UnknownName(f"--model: {UnknownName.of('kind of model', kind, KINDS)}")
    if kind == "dummy":
        from calipers.systems.lm_eval.client import SPEC

        return SPEC, {}, notes
    if kind == "hf":
        return *_local_model(options), notes
    return *_api_model(kind, options), notes


def _refuse_unused(
    model_args: Mapping[str, Any], accepted: Mapping[str, Sequence[Any] | None], used: Sequence[str]
) -> None:
    """InputError for an argument that is neither ``used`` nor has an ``accepted`` value."""
    for name, value in model_args.items():
        if name in used:
            continue
        if name not in accepted:
            known = ", ".join(sorted({*accepted, *used}))
            raise InputError.at("--model_args", f"{name} has no effect here", f"expected one of {known}")
        values = accepted[name]
        if values is not None and value not in values:
            expected = f"expected {name}={' or '.join(map(str, values))}"
            raise InputError.at("--model_args", f"{name}={value} has no effect here", expected)


def _local_model(options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    given = options["model_args"]
    name = given.get("pretrained")
    if not isinstance(name, str) or not name:
        expected = "expected pretrained=PATH, or a name in the hub's cache"
        raise InputError.at("--model_args", "does not name a model", expected)
    load_options = {key: value for key, value in given.items() if key not in HF_ACCEPTED}
    LoadOptions.of(load_options, "--model_args")
    _refuse_unused(given, HF_ACCEPTED, list(load_options))
    settings: dict[str, Any] = {"model_args": load_options} if load_options else {}
    _use_device(str(given.get("device", options["device"])))
    size = given.get("batch_size", options["batch_size"])
    max_size = given.get("max_batch_size", options["max_batch_size"])
    if not str(size).startswith("auto"):
        if options["max_batch_size"] is not None:
            problem = "has no effect with a fixed batch size"
            raise InputError.at("--max_batch_size", problem, "expected --batch_size auto")
        settings["concurrency"] = _positive_integer("--batch_size", size)
    elif max_size is not None:
        settings["concurrency"] = _positive_integer("--max_batch_size", max_size)
    return f"hf/{name}", settings


def _use_device(name: str) -> None:
    """Make the requested device visible to this process; without a GPU a model is loaded on the CPU, as in lm-eval."""
    match = re.fullmatch(r"cpu|cuda(?::([0-9]+))?", name)
    if match is None:
        raise InputError.at("--device", f"is {name!r}", "expected cpu, cuda or cuda:N")
    if name == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif match[1] and int(match[1]):
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = before.split(",") if before else []
        number = int(match[1])
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[number] if number < len(devices) else str(number)


def _api_model(kind: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    given, route = options["model_args"], KINDS[kind]
    name = given.get("model") or given.get("pretrained")
    if not isinstance(name, str) or not name:
        raise InputError.at("--model_args", "does not name a model", "expected model=NAME")
    if kind.startswith("local") and not given.get("base_url"):
        expected = f"expected base_url=http://HOST:PORT/v1/{'chat/' if route == 'chat' else ''}completions"
        raise InputError.at("--model_args", "has no base_url", expected)
    if route == "chat" and not options["apply_chat_template"]:
        raise InputError.at("--model", f"{kind} accepts only chat messages", "add --apply_chat_template")
    if "auth_token" in given:
        raise InputError.at("--model_args", "auth_token has no effect here", "expected the key in $OPENAI_API_KEY")
    _refuse_unused(given, API_ACCEPTED, tuple(API_ARGS))
    settings: dict[str, Any] = {"api": route, "concurrency": 1}
    if kind.startswith("openai"):
        settings["base_url"] = "https://api.openai.com/v1"
    for argument, (setting_name, convert) in API_ARGS.items():
        if argument in given:
            settings[setting_name] = _converted(argument, given[argument], convert)
    size = str(given.get("batch_size", options["batch_size"]))
    if route == "completions" and not size.startswith("auto"):
        settings["concurrency"] = max(settings["concurrency"], 1) * _positive_integer("--batch_size", size)
    return f"openai/{name}", settings


def _converted(argument: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError.at("--model_args", f"{argument}={value} cannot be read", "expected a number") from None


def _positive_integer(where: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise InputError.at(where, f"is {value!r}", "expected an integer >= 1")
    return number


def _task_names(requested: Sequence[str], include_path: Sequence[str]) -> list[str]:
    """The names, patterns and files that ``--tasks`` gives, without repeats; a single folder stands for its files."""
    from calipers.systems.lm_eval.benchmarks import nodes_of, tasks_in
    from calipers.systems.lm_eval.tasks.groups import leaves

    if len(requested) == 1 and os.path.isdir(requested[0]):
        index = tasks_in(tuple(include_path))
        if requested[0] not in index.heads and requested[0] not in index.tags:
            files = sorted(map(str, Path(requested[0]).glob("*.yaml")))
            if not files:
                raise InputError.at("--tasks", f"no .yaml file in {requested[0]}", "expected a folder of tasks")
            return files
    names: list[str] = []
    for name in dict.fromkeys(requested):
        files = sorted(glob.glob(name)) if name.endswith(".yaml") else [name]
        if not files:
            raise InputError.at("--tasks", f"no file {name}", "expected a task's name, or its .yaml file")
        names += files
    sources: dict[str, tuple[str, Path]] = {}
    for name in names:
        for node in nodes_of(name, tuple(include_path)):
            for leaf in leaves([node]):
                file = leaf.file.path or Path()
                source, first_file = sources.setdefault(leaf.name, (node.name, file))
                if source != node.name:
                    problem = f"{leaf.name} is requested twice, in {source} and in {node.name}"
                    raise InputError.at("--tasks", problem, "expected each task once")
                if file.resolve() != first_file.resolve():
                    problem = f"{first_file} and {file} are both called {leaf.name}"
                    raise InputError.at("--tasks", problem, "expected tasks of different names")
    return names


def _one_per_task(jobs: Sequence[Job]) -> list[Job]:
    """The jobs without repeats of a task, as when a task and its tag are both named; lm-eval runs it once, too."""
    distinct = list({job.lm_eval: job for job in reversed(jobs)}.values())[::-1]
    return [replace(job, among=len(distinct) > 1) for job in distinct]


def _validate(tasks: str, include_path: str | None) -> CommandOutput:
    """The output of ``validate``: whether every name is the name of a task, a group or a tag."""
    from calipers.systems.lm_eval.benchmarks import tasks_in

    names = tasks.split(",")
    index = tasks_in((include_path,) if include_path else ())
    missing = [name for name in names if name not in index.heads and name not in index.tags]
    text = f"Validating tasks: {names}\n"
    if missing:
        return CommandOutput(f"{text}Tasks not found: {', '.join(missing)}\n", NOT_FOUND)
    return CommandOutput(f"{text}All tasks found and valid\n")
