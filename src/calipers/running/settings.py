"""Settings of runs: options and configuration files turned into jobs.

A configuration file has our own keys, or another system's ``benchmark:`` section. Our keys are the names of the
command's options::

    benchmark: data/arith        # or a list
    model: openai/gpt-4o-mini    # or a list
    samples: 4
    metrics: [pass@1, {metric: pass@3, threshold: 0.5}]

A suite has plural keys, and may have the rules of a gate; an entry may have settings that apply only to it::

    benchmarks: [data/arith, {benchmark: data/code, samples: 4}]
    models:
      - openai/gpt-4o-mini
      - {model: openai/local, base_url: "http://localhost:8000/v1", concurrency: 8}
    gate: [lower(mean_reward) >= 0.3]

Another system's section is a mapping, or a list of mappings, under ``benchmark`` or ``metadata.benchmark``; that system
reads it (`names.RUN_SECTION`). An unknown key is an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from calipers.clients import Price, is_local
from calipers.errors import InputError, UnknownName, nearest
from calipers.names import RUN_SECTION, TASK_LIBRARY_NAME, is_remote, load
from calipers.running import LOAD_SEEDS, OF_AGENTS, SEEDS_BELOW, Job, Seeds
from calipers.running.library import library
from calipers.stores import not_local
from calipers.tasks.store import names
from calipers.typed import complete

Settings = dict[str, Any]
"""Values of a `Job` by name; ``benchmark`` and ``model`` are lists."""

OURS: Final = tuple(field.name for field in fields(Job) if field.name not in ("origins", "among", "lm_eval"))
DEEPEST = 6  # maximum nesting of keys whose lines are recorded
LISTS: Final = ("benchmark", "model", "metrics", "stop", "by", "include_path", "metadata", "choices")


SUITE: Final = {"benchmarks": "benchmark", "models": "model"}
"""Plural keys of a suite -> the setting that each entry gives."""
ENTRY_NAMES: Final = {"benchmark": ("benchmark", "name", "path"), "model": ("model", "name")}
"""The setting -> the keys of an entry that may have its value."""
GATE: Final = "gate"
OF_ALL: Final = ("benchmark", "model", "out")  # settings that an entry of a suite cannot have


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The file of a suite, with its contents other than the runs."""

    path: str
    gate: Any  # as written in the file; None if there is none
    lines: Mapping[tuple[Any, ...], int]  # path of keys -> line number


def suite_file(benchmarks: Sequence[str]) -> SuiteFile | None:
    """The suite that a command runs; None if there is none. InputError for a suite together with other benchmarks."""
    files = [benchmark for benchmark in benchmarks if Path(benchmark).suffix in (".yaml", ".yml")]
    for path in files:
        if not _may_be_suite(path):
            continue
        content, lines, _ = _loaded(path)
        if isinstance(content, dict) and _is_suite(content):
            if len(benchmarks) > 1:
                raise InputError.at(path, "is a suite, and other benchmarks are given", "put them into the suite")
            return SuiteFile(path, content.get(GATE), lines)
    return None


def _may_be_suite(path: str) -> bool:
    """Whether a file has a key of a suite. The YAML is not constructed, because other task files name functions."""
    import yaml

    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):  # its reader raises a better error
        return False
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return any(key.value in (*SUITE, GATE) for key, _ in pairs)


def _is_suite(content: Mapping[Any, Any]) -> bool:
    """Whether a file has keys of a suite, and no section of another system, which may use the same keys."""
    inner = content.get("metadata")
    theirs = _is_section(content.get("benchmark")) or (isinstance(inner, dict) and "benchmark" in inner)
    return not theirs and any(key in content for key in (*SUITE, GATE))


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))


def _loaded(path: str) -> tuple[Any, dict[tuple[Any, ...], int], list[str]]:
    """The content of a YAML file, the line of each key, and notes on keys that appear twice."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
        return content, dict(_key_lines(root)), list(_twice(path, root))
    except OSError as error:
        expected = "expected a task of lm-evaluation-harness, or a file with benchmark and model"
        raise InputError.at(path, f"cannot be read ({error.strerror})", expected) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "is not UTF-8", "expected YAML in UTF-8") from None
    except (yaml.YAMLError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        # a tag with a text that does not fit it, or an invalid date, raises any of these
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        raise InputError.at(f"{path}:{mark.line + 1}" if mark else path, f"is not valid YAML ({problem})") from None


def _key_lines(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The line of each key and of each entry of a list, by the path to it; aliases are not followed twice."""
    if len(above) > DEEPEST or not isinstance(getattr(node, "value", None), list):
        return
    for number, inner in enumerate(node.value):
        key, value = (inner[0].value, inner[1]) if isinstance(inner, tuple) else (number, inner)
        if isinstance(key, (str, int)):
            start = inner[0] if isinstance(inner, tuple) else inner
            yield (*above, key), start.start_mark.line + 1
            yield from _key_lines(value, (*above, key))


def read_config(path: str, models: Sequence[str] = ()) -> tuple[list[Settings], list[str]]:
    """The settings of the runs in a file, and notes on keys that are ignored.

    ``models`` replace the models of a suite.
    """
    content, lines, twice = _loaded(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a mapping", "expected keys such as benchmark, model, samples")
    if _is_suite(content):
        return _suite(path, content, lines, models), twice
    section = content.get("benchmark")
    metadata = content.get("metadata")
    if _is_section(section):
        if suite_keys := [key for key in (*SUITE, GATE) if key in content]:
            problem = f"{suite_keys[0]} is for a suite, and benchmark has settings of its own"
            raise InputError.at(_at(path, lines, suite_keys[0]), problem, "expected benchmarks: [...] in a suite")
        others = {key: value for key, value in content.items() if key != "benchmark"}
        runs, notes = load(RUN_SECTION)(path, section, _ours(path, others, lines))
        return runs, [*twice, *notes]
    if section is None and isinstance(metadata, dict) and "benchmark" in metadata:
        runs, notes = load(RUN_SECTION)(path, metadata["benchmark"], {})
        ignored = ", ".join(str(key) for key in content if key != "metadata")
        return runs, [*twice, *notes, *([f"{path}: {ignored}: not used here"] if ignored else [])]
    return [_ours(path, content, lines)], twice


def _suite(
    path: str, content: Mapping[Any, Any], lines: Mapping[tuple[Any, ...], int], models: Sequence[str]
) -> list[Settings]:
    """The settings of a suite's runs: every benchmark with every model, benchmark by benchmark."""
    common = _ours(path, {key: value for key, value in content.items() if key not in (*SUITE, GATE)}, lines)
    listed: dict[str, list[tuple[str, Settings]]] = {}
    for plural, kind in SUITE.items():
        if plural in content and kind in content:
            expected = f"expected one of {kind} and {plural}"
            raise InputError.at(_at(path, lines, plural), f"{kind} and {plural} mean the same", expected)
        if kind == "model" and models:
            listed[kind] = [(name, {}) for name in models]
        elif plural in content:
            listed[kind] = list(_entries(path, content[plural], plural, kind, lines))
        else:
            listed[kind] = [(name, {}) for name in common.get(kind, ())]
        if not listed[kind]:
            raise InputError.at(_at(path, lines, plural), f"no {kind}", f"expected {plural}: [{_EXAMPLES[kind]}]")
    return [
        _merged(common, of_benchmark, of_model, {"benchmark": (benchmark,), "model": (model,)})
        for benchmark, of_benchmark in listed["benchmark"]
        for model, of_model in listed["model"]
    ]


_EXAMPLES: Final = {"benchmark": "data/arith", "model": "openai/gpt-4o-mini"}


def _entries(
    path: str, given: Any, plural: str, kind: str, lines: Mapping[tuple[Any, ...], int]
) -> Iterator[tuple[str, Settings]]:
    """The entries of a list in a suite: each name with the settings that apply only to it."""
    by_name = isinstance(given, dict)
    entries = list(given.items()) if by_name else list(enumerate(given if isinstance(given, list) else [given]))
    seen = set[str]()
    for key, entry in entries:
        location = _at(path, lines, plural, key)
        fields = entry or {} if by_name else entry
        name, name_keys = (str(key) if by_name else None), ENTRY_NAMES[kind]
        if isinstance(fields, str) and not by_name:
            name, fields = fields, {}
        if isinstance(fields, dict) and name is None:
            name = next((fields[key] for key in name_keys if key in fields), None)
            fields = {inner: value for inner, value in fields.items() if inner not in name_keys}
        if not isinstance(fields, dict) or not isinstance(name, str) or not name:
            expected = f"expected {_EXAMPLES[kind]}, or {{{kind}: {_EXAMPLES[kind]}, samples: 4}}"
            raise InputError.at(location, f"{plural} has {shown(entry)}", expected)
        if name in seen:
            raise InputError.at(location, f"{kind} {name!r} appears twice", "expected it once")
        seen.add(name)
        yield name, _ours(path, fields, lines, (plural, key), OF_ALL)


def _merged(*settings: Settings) -> Settings:
    """Merged settings, of which later ones take precedence; gen_kwargs are merged key by key."""
    merged = {name: value for part in settings for name, value in part.items()}
    extra = [part["gen_kwargs"] for part in settings if part.get("gen_kwargs")]
    if len(extra) > 1:
        merged["gen_kwargs"] = {key: value for part in extra for key, value in part.items()}
    return merged


def _at(path: str, lines: Mapping[tuple[Any, ...], int], *keys: Any) -> str:
    """The place of a key: ``suite.yaml:7``."""
    line = lines.get(keys) or lines.get(keys[:1])
    return f"{path}:{line}" if line else path


def _twice(path: str, node: Any) -> Iterator[str]:
    """A note for each key that appears twice in one mapping, because YAML silently uses the last value."""
    stack, seen = [node], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        pairs = [pair for pair in node.value if isinstance(pair, tuple)]
        stack += [value for _, value in pairs] or node.value
        keys = set[str]()
        for key in (key for key, _ in pairs if isinstance(key.value, str)):
            if key.value in keys:
                yield f"{path}:{key.start_mark.line + 1}: {key.value} appears twice; the last value is used"
            keys.add(key.value)


def _ours(
    path: str,
    content: Mapping[Any, Any],
    lines: Mapping[tuple[Any, ...], int],
    above: tuple[Any, ...] = (),
    without: Sequence[str] = (),
) -> Settings:
    """The settings in a mapping at the path ``above`` in a file; the settings in ``without`` are not allowed in it."""
    settings: Settings = {}
    known = [name for name in OURS if name not in without] if above else [*OURS, *SUITE, GATE]
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            close = nearest(str(key), known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
            raise UnknownName(f"{_at(path, lines, *above, key)}: no key named {str(key)!r}; {hint}")
        settings[name] = setting(f"{_at(path, lines, *above, key)}: {key}" if above else f"{path}: {key}", name, value)
    return settings


def setting(location: str, name: str, value: Any) -> Any:
    """A checked value of a setting, in the form that `Job` needs."""
    texts = value if isinstance(value, list) else [value]
    if name != "out" and any(isinstance(text, str) and _HALF.search(text) for text in texts):
        raise InputError.at(location, f"is {shown(value)}", "expected whole characters, not half of a surrogate pair")
    if value is None and name in LISTS:
        return ()
    if value is None and _types().get(name) not in (int, float):  # a number that a run needs cannot be null
        return getattr(_defaults(), name, None)
    if name in LISTS:
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, (str, dict) if name == "metrics" else str) for item in items):
            raise InputError.at(location, f"is {shown(value)}", "expected text or a list of texts")
        return tuple(items)
    if name in PARSED:
        return PARSED[name](location, value)
    if name in ("gen_kwargs", "model_args", "params", "task_metadata") and not _is_json(value):
        raise InputError.at(location, f"is {shown(value)}", "expected a JSON value; put dates in quotes")
    kind = str if name == "out" else _types()[name]
    try:
        converted = msgspec.convert(value, complete(kind))
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of half a surrogate pair
        raise InputError.at(location, f"is {shown(value)}", f"expected {_meant(kind)}") from None
    if name != "out":
        return converted
    if is_remote(converted):
        raise not_local(converted)
    return Path(converted)


def _is_json(value: Any) -> bool:
    """Whether JSON can represent a value; YAML also has dates, bytes, sets, NaN and infinities."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _meant(kind: Any) -> str:
    """The name of a type in an error."""
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return " or ".join(map(_meant, get_args(kind))) if get_origin(kind) in (UnionType, Union) else "a mapping"


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Job)


@cache
def _defaults() -> Job:
    return Job("", "")


def price(location: str, value: Any) -> Price:
    """A price from ``in,out`` or a list of two numbers: dollars per million tokens.

    >>> price("--price", "0.15,0.6")
    Price(input=0.15, output=0.6)
    """
    sides = value.split(",") if isinstance(value, str) else value
    try:
        first, second = (float(side) for side in sides)
    except (TypeError, ValueError):
        first = second = -1.0
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise InputError.at(location, f"is {shown(value)}", "expected IN,OUT in dollars per million tokens: 0.15,0.6")
    return Price(first, second)


def load_seeds(location: str, value: Any) -> Seeds:
    """Four seeds, from ``0,1234,1234,1234`` or a list; a single one is used for all, and after three comes the default.

    >>> load_seeds("--load-seeds", "7"), load_seeds("--load-seeds", "1,2,3")
    ((7, 7, 7, 7), (1, 2, 3, 1234))
    """
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        seeds = [int(part) if isinstance(part, str) else part for part in parts]
    except ValueError:
        seeds = []
    seeds = seeds * 4 if len(seeds) == 1 else [*seeds, LOAD_SEEDS[3]] if len(seeds) == 3 else seeds
    if len(seeds) != 4 or not all(type(seed) is int and 0 <= seed < SEEDS_BELOW for seed in seeds):
        expected = (
            "expected four integers >= 0, the seeds of random, numpy, torch and the few-shot examples: 0,1234,1234,1234"
        )
        raise InputError.at(location, f"is {shown(value)}", expected)
    return seeds[0], seeds[1], seeds[2], seeds[3]


def document_numbers(location: str, value: Any) -> tuple[int, ...]:
    """Numbers of documents, counted from 0: ``0,3,6-9``, a list of integers, or one integer.

    >>> document_numbers("--documents", "0,3,6-9")
    (0, 3, 6, 7, 8, 9)
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    numbers: list[int] = []
    for part in parts:
        ends = _RANGE.fullmatch(part) if isinstance(part, str) else None
        if ends is not None and int(ends[1]) <= int(ends[2] or ends[1]):
            numbers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        elif type(part) is int and part >= 0:
            numbers.append(part)
        else:
            numbers.clear()
            break
    if not numbers:
        expected = "expected numbers counted from 0: 0,3,6-9, below 10,000,000"
        raise InputError.at(location, f"is {shown(value)}", expected)
    return tuple(sorted({*numbers}))


PARSED: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "price": price,
    "load_seeds": load_seeds,
    "documents": document_numbers,
}
"""Settings with a syntax of their own: name -> the function that parses a value, given the place for errors."""


def shown(value: Any) -> str:
    """A value in at most 60 characters, for an error."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


COMMAND_LINE = "command line"
_HALF: Final = re.compile("[\ud800-\udfff]")  # in a text from a file, only by an escape; no file can have it itself
_RANGE: Final = re.compile(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7}))?\s*")  # few enough numbers for memory
_JSON_WORDS = {"true": "true", "false": "false", "none": "null"}  # words in any case -> JSON
LIFTED = {  # keys of --gen-kwargs, by the names of several systems -> our own setting
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_gen_toks": "max_tokens",
    "max_new_tokens": "max_tokens",
    "stop": "stop",
    "until": "stop",
}


def jobs_of(
    benchmarks: Sequence[str], given: Mapping[str, Any], *, of_library: bool = False
) -> tuple[list[Job], list[str]]:
    """The jobs of a command, one for each benchmark and model, and notes on settings that are ignored.

    If a benchmark is a YAML file, its settings are used where the command line has none. With ``of_library``, every
    benchmark is a task of the library, even if a file or a stored benchmark has the same name.
    """
    options = _options(given)
    requested: list[tuple[Settings, str]] = []
    notes: list[str] = []
    for benchmark in _separate(benchmarks):
        if of_library:
            runs = library().settings(benchmark, tuple(options.get("include_path", ())), options)
            requested += [(run, benchmark) for run in runs]
        elif (library_runs := _library_runs(benchmark, options)) is not None:
            requested += [(run, benchmark) for run in library_runs]
        elif Path(benchmark).suffix in (".yaml", ".yml"):
            runs, more = read_config(benchmark, options.get("model", ()))
            requested += [(each, benchmark) for run in runs for each in _with_library_runs(run, options)]
            notes += more
        else:
            requested.append(({"benchmark": (benchmark,)}, COMMAND_LINE))
    jobs = [job for settings, origin in requested for job in _product(settings, origin, options)]
    several = len(jobs) > 1 or suite_file(benchmarks) is not None  # a suite may grow
    return [replace(job, among=several) for job in jobs], notes


def job_in_memory(name: str, given: Mapping[str, Any]) -> Job:
    """The job of a benchmark in memory; its name is not a path."""
    [job] = _product({"benchmark": (name,)}, COMMAND_LINE, _options(given))
    return job


def _separate(benchmarks: Sequence[str]) -> Iterator[str]:
    """The benchmarks in texts such as ``gsm8k,arc_easy``; an existing file or folder with a comma is not split."""
    for benchmark in benchmarks:
        if is_remote(benchmark):
            raise not_local(benchmark, "a benchmark is read from this machine", "download it first")
        if "," in benchmark and not os.path.lexists(benchmark):
            names = [name for part in benchmark.split(",") if (name := part.strip())]
            if not names:
                raise InputError(f"{benchmark!r} is no benchmark; expected a file, a folder or the name of one")
            yield from names
        else:
            yield benchmark


def _with_library_runs(run: Settings, options: Mapping[str, Any]) -> Iterator[Settings]:
    """The settings of a run in our file, split if some of its benchmarks are tasks of lm-evaluation-harness."""
    own_benchmarks = []
    for benchmark in run.get("benchmark", ()):
        library_runs = _library_runs(benchmark, {**run, **options})
        if library_runs is None:
            own_benchmarks.append(benchmark)
        else:
            common = {name: value for name, value in run.items() if name != "benchmark"}
            extra = common.get("gen_kwargs") or {}
            for task in library_runs:
                yield {**task, **common, "gen_kwargs": {**task.get("gen_kwargs", {}), **extra}}
    if own_benchmarks or not run.get("benchmark"):
        yield {**run, "benchmark": tuple(own_benchmarks)} if own_benchmarks else run


def _library_runs(benchmark: str, options: Mapping[str, Any]) -> list[Settings] | None:
    """The settings of the runs of a task file, or of a task's name, of lm-evaluation-harness; None if it is neither."""
    include_path = tuple(options.get("include_path", ()))
    is_file = Path(benchmark).suffix in (".yaml", ".yml")
    if not is_file and not include_path and (os.path.lexists(benchmark) or find_spec(TASK_LIBRARY_NAME) is None):
        return None
    if not is_file and not include_path and benchmark in names():  # a benchmark in the store takes precedence
        return None
    if not library().is_known(benchmark, include_path):
        return None
    return library().settings(benchmark, include_path, options)


def _product(settings: Settings, origin: str, options: Mapping[str, Any]) -> list[Job]:
    merged = {**settings, **options}
    if "gen_kwargs" in settings and "gen_kwargs" in options:
        merged["gen_kwargs"] = {**settings["gen_kwargs"], **options["gen_kwargs"]}
    if (seed := merged.pop("fewshot_seed", None)) is not None:
        merged["load_seeds"] = load_seeds("--fewshot-seed", [*merged.get("load_seeds", LOAD_SEEDS)[:3], seed])
        options = {name: value for name, value in options.items() if name != "fewshot_seed"}
    origins = {**dict.fromkeys(settings, origin), **dict.fromkeys(options, COMMAND_LINE)}
    for name, example in (("benchmark", "benchmark: data/arith"), ("model", "--model openai/gpt-4o-mini")):
        if not merged.get(name):
            raise InputError.at(origin if origin != COMMAND_LINE else f"--{name}", f"no {name}", f"expected {example}")
    pairs = product(merged.pop("benchmark"), merged.pop("model"))
    of_server = merged
    if "do_sample" in options.get("gen_kwargs", {}):  # a server has a temperature of its own
        extra = {name: value for name, value in options["gen_kwargs"].items() if name != "do_sample"}
        of_server = {**merged, "gen_kwargs": {**settings.get("gen_kwargs", {}), **extra}}
    return [
        _as_in_lm_eval(Job(benchmark, model, **(merged if is_local(model) else of_server), origins=origins), options)
        for benchmark, model in pairs
    ]


def _as_in_lm_eval(job: Job, options: Mapping[str, Any]) -> Job:
    """The job with lm-evaluation-harness' defaults, if it is one of its tasks on a local model.

    Prompts are plain text unless requested otherwise, and are cut on the left to fit.
    """
    if not job.from_library or not is_local(job.model):
        return job
    api = job.api if "api" in options or job.chats else "completions"
    return replace(job, api=api, gen_kwargs={"truncate": "left", **job.gen_kwargs})


def _options(given: Mapping[str, Any]) -> Settings:
    """The options of the command line as settings of a job."""
    options = dict(given)
    if for_agents := [name for name in OF_AGENTS if name in options]:
        expected = "expected --agent NAME and a directory of their tasks"
        raise InputError.at(f"--{for_agents[0]}", "is for agents", expected)
    if options.get("apply_chat_template") == "":  # the option without a name
        options["apply_chat_template"] = True
    for name, parsed in PARSED.items():
        if name in options:
            options[name] = parsed(f"--{name.replace('_', '-')}", options[name])
    if isinstance(options.get("task_metadata"), str):
        example = """{"max_seq_lengths": [4096]}"""
        options["task_metadata"] = _json_object("--task-metadata", options["task_metadata"], example)
    if isinstance(options.get("model_args"), str):
        options["model_args"] = gen_kwargs(options["model_args"], "--model-args")
    if "gen_kwargs" in options:
        extra = gen_kwargs(options["gen_kwargs"])
        do_sample = extra.pop("do_sample", None)
        if do_sample is False:  # temperature 0 in lm-evaluation-harness
            extra["temperature"] = 0.0
        elif do_sample and "temperature" not in {**options, **extra}:
            extra["do_sample"] = do_sample  # temperature 1 of a local model
        ours = [key for key in extra if key in LIFTED]
        lifted = {LIFTED[key]: setting(f"--gen-kwargs: {key}", LIFTED[key], extra.pop(key)) for key in ours}
        options = {**lifted, **options, "gen_kwargs": extra}
    return options


def _json_object(location: str, text: str, example: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InputError.at(
            location, f"is not a JSON object ({error})", f"expected an object such as {example}"
        ) from None


def gen_kwargs(text: str, location: str = "--gen-kwargs") -> dict[str, Any]:
    """The settings in ``key=value,...`` or in a JSON object; a value is JSON if it can be parsed as such, else text.

    As in lm-evaluation-harness, true, false and none may be in any case, and a value in quotes of either kind is text.

    >>> gen_kwargs("top_p=0.9,do_sample=true,mode=fast,revision='7'")
    {'top_p': 0.9, 'do_sample': True, 'mode': 'fast', 'revision': '7'}
    """
    if text.lstrip().startswith("{"):
        return _json_object(location, text, """{"top_p": 0.9}""")
    settings: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals):
            raise InputError.at(location, f"{pair!r} cannot be read", "expected KEY=VALUE, such as top_p=0.9")
        settings[key] = _read(value)
    return settings


def _read(value: str) -> Any:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    try:
        return msgspec.json.decode(_JSON_WORDS.get(value.lower(), value))
    except msgspec.DecodeError:
        return value
