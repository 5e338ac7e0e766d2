"""Settings of runs: options and configuration files turned into jobs.

A run's configuration file: our own keys, or another system's ``benchmark:`` section.

Ours has the names of the command's options::

    benchmark: data/arith        # or a list
    model: openai/gpt-4o-mini    # or a list
    samples: 4
    metrics: [pass@1, {metric: pass@3, threshold: 0.5}]

A suite has plural keys, and the rules of a gate; an entry may have settings of its own, which hold for it alone::

    benchmarks: [data/arith, {benchmark: data/code, samples: 4}]
    models:
      - openai/gpt-4o-mini
      - {model: openai/local, base_url: "http://localhost:8000/v1", concurrency: 8}
    gate: [lower(mean_reward) >= 0.3]

The other stands under ``benchmark`` or ``metadata.benchmark``, a mapping or a list of them, and means what it
means there (`names.RUN_SECTION`). An unknown key is an error.
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
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from calipers.clients import Price
from calipers.errors import InputError, UnknownName, nearest
from calipers.names import RUN_SECTION, TASK_LIBRARY_NAME, is_remote, load
from calipers.running import LOAD_SEEDS, OF_AGENTS, SEEDS_BELOW, Job, Seeds
from calipers.running.library import library
from calipers.stores import not_local
from calipers.tasks.store import names

Settings = dict[str, Any]
"""Values of a `Job` by name; ``benchmark`` and ``model`` are lists."""

OURS: Final = tuple(field.name for field in fields(Job) if field.name not in ("origins", "among", "lm_eval"))
DEEPEST = 6  # mappings and lists within each other of which the lines are known
LISTS: Final = ("benchmark", "model", "metrics", "stop", "by", "include_path", "metadata", "choices")


SUITE: Final = {"benchmarks": "benchmark", "models": "model"}
"""Plural keys of a suite -> what each entry is."""
ENTRY_NAMES: Final = {"benchmark": ("benchmark", "name", "path"), "model": ("model", "name")}
"""What an entry is -> the keys that may name it."""
GATE: Final = "gate"
OF_ALL: Final = ("benchmark", "model", "out")  # settings that an entry of a suite cannot have


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """The file of a suite: what it asks for beside its runs."""

    path: str
    gate: Any  # as it was written; None without one
    lines: Mapping[tuple[Any, ...], int]  # path of keys -> line


def suite_file(benchmarks: Sequence[str]) -> SuiteFile | None:
    """The suite that a command runs; None where its benchmarks are no suite. InputError for a suite beside others."""
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
    """Whether a file has a key of a suite; no value is made of it, because task files of others name functions."""
    import yaml

    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):  # whoever reads it says it better
        return False
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return any(key.value in (*SUITE, GATE) for key, _ in pairs)


def _is_suite(content: Mapping[Any, Any]) -> bool:
    """Whether a file has the keys of a suite, and no section of another system, which may have such keys beside it."""
    inner = content.get("metadata")
    theirs = _is_section(content.get("benchmark")) or (isinstance(inner, dict) and "benchmark" in inner)
    return not theirs and any(key in content for key in (*SUITE, GATE))


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))


def _loaded(path: str) -> tuple[Any, dict[tuple[Any, ...], int], list[str]]:
    """What a YAML file holds, the line of each key, and notes on keys that appear twice."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
        return content, dict(_key_lines(root)), list(_twice(path, root))
    except OSError as error:
        right = "expected a task of lm-evaluation-harness, or a file with benchmark and model"
        raise InputError.at(path, f"cannot be read ({error.strerror})", right) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "is not UTF-8", "expected YAML in UTF-8") from None
    except (yaml.YAMLError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        # a tag before a text it does not fit, or a date with a thirteenth month, gives any of these
        mark = getattr(error, "problem_mark", None)
        wrong = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        raise InputError.at(f"{path}:{mark.line + 1}" if mark else path, f"is not valid YAML ({wrong})") from None


def _key_lines(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The line of each key and of each entry of a list, by the path to it; aliases are not followed twice."""
    if len(above) > DEEPEST or not isinstance(getattr(node, "value", None), list):
        return
    for number, inner in enumerate(node.value):
        key, value = (inner[0].value, inner[1]) if isinstance(inner, tuple) else (number, inner)
        if isinstance(key, (str, int)):
            place = inner[0] if isinstance(inner, tuple) else inner
            yield (*above, key), place.start_mark.line + 1
            yield from _key_lines(value, (*above, key))


def read_config(path: str, models: Sequence[str] = ()) -> tuple[list[Settings], list[str]]:
    """The runs a file asks for, as settings, and notes on what in it has no meaning here.

    ``models`` take the place of those of a suite.
    """
    content, lines, twice = _loaded(path)
    if not isinstance(content, dict):
        raise InputError.at(path, "is not a mapping", "expected keys such as benchmark, model, samples")
    if _is_suite(content):
        return _suite(path, content, lines, models), twice
    section = content.get("benchmark")
    inner = content.get("metadata")
    if _is_section(section):
        if beside := [key for key in (*SUITE, GATE) if key in content]:
            wrong = f"{beside[0]} is for a suite, and benchmark has settings of its own"
            raise InputError.at(_at(path, lines, beside[0]), wrong, "expected benchmarks: [...] in a suite")
        others = {key: value for key, value in content.items() if key != "benchmark"}
        runs, notes = load(RUN_SECTION)(path, section, _ours(path, others, lines))
        return runs, [*twice, *notes]
    if section is None and isinstance(inner, dict) and "benchmark" in inner:
        runs, notes = load(RUN_SECTION)(path, inner["benchmark"], {})
        rest = ", ".join(key for key in content if key != "metadata")
        return runs, [*twice, *notes, *([f"{path}: {rest}: not used here"] if rest else [])]
    return [_ours(path, content, lines)], twice


def _suite(
    path: str, content: Mapping[Any, Any], lines: Mapping[tuple[Any, ...], int], models: Sequence[str]
) -> list[Settings]:
    """The runs of a suite: every benchmark with every model, benchmark by benchmark."""
    every = _ours(path, {key: value for key, value in content.items() if key not in (*SUITE, GATE)}, lines)
    listed: dict[str, list[tuple[str, Settings]]] = {}
    for plural, kind in SUITE.items():
        if plural in content and kind in content:
            right = f"expected one of {kind} and {plural}"
            raise InputError.at(_at(path, lines, plural), f"{kind} and {plural} mean the same", right)
        if kind == "model" and models:
            listed[kind] = [(name, {}) for name in models]
        elif plural in content:
            listed[kind] = list(_entries(path, content[plural], plural, kind, lines))
        else:
            listed[kind] = [(name, {}) for name in every.get(kind, ())]
        if not listed[kind]:
            raise InputError.at(_at(path, lines, plural), f"no {kind}", f"expected {plural}: [{_EXAMPLES[kind]}]")
    return [
        _merged(every, its_own, models_own, {"benchmark": (benchmark,), "model": (model,)})
        for benchmark, its_own in listed["benchmark"]
        for model, models_own in listed["model"]
    ]


_EXAMPLES: Final = {"benchmark": "data/arith", "model": "openai/gpt-4o-mini"}


def _entries(
    path: str, given: Any, plural: str, kind: str, lines: Mapping[tuple[Any, ...], int]
) -> Iterator[tuple[str, Settings]]:
    """The names of a list, each with the settings that hold for it alone."""
    by_name = isinstance(given, dict)
    entries = list(given.items()) if by_name else list(enumerate(given if isinstance(given, list) else [given]))
    seen = set[str]()
    for key, entry in entries:
        where = _at(path, lines, plural, key)
        fields = entry or {} if by_name else entry
        name, ways = (str(key) if by_name else None), ENTRY_NAMES[kind]
        if isinstance(fields, str) and not by_name:
            name, fields = fields, {}
        if isinstance(fields, dict) and name is None:
            name = next((fields[way] for way in ways if way in fields), None)
            fields = {inner: value for inner, value in fields.items() if inner not in ways}
        if not isinstance(fields, dict) or not isinstance(name, str) or not name:
            right = f"expected {_EXAMPLES[kind]}, or {{{kind}: {_EXAMPLES[kind]}, samples: 4}}"
            raise InputError.at(where, f"{plural} has {shown(entry)}", right)
        if name in seen:
            raise InputError.at(where, f"{kind} {name!r} appears twice", "expected it once")
        seen.add(name)
        yield name, _ours(path, fields, lines, (plural, key), OF_ALL)


def _merged(*settings: Settings) -> Settings:
    """Settings of which a later one holds; gen_kwargs are put together."""
    merged = {name: value for some in settings for name, value in some.items()}
    extra = [some["gen_kwargs"] for some in settings if some.get("gen_kwargs")]
    if len(extra) > 1:
        merged["gen_kwargs"] = {key: value for some in extra for key, value in some.items()}
    return merged


def _at(path: str, lines: Mapping[tuple[Any, ...], int], *keys: Any) -> str:
    """The place of a key: ``suite.yaml:7``."""
    line = lines.get(keys) or lines.get(keys[:1])
    return f"{path}:{line}" if line else path


def _twice(path: str, node: Any) -> Iterator[str]:
    """A note for each key that appears twice in one mapping: YAML silently uses the last one."""
    left, seen = [node], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        pairs = [pair for pair in node.value if isinstance(pair, tuple)]
        left += [value for _, value in pairs] or node.value
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
    """The settings in a mapping, whose keys stand under ``above``; ``without`` those that cannot stand there."""
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


def setting(where: str, name: str, value: Any) -> Any:
    """One value, checked, in the form that `Job` wants."""
    if value is None and name in LISTS:
        return ()
    if value is None and _types().get(name) not in (int, float):  # a number that a run needs cannot be null
        return None
    if name in LISTS:
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(item, (str, dict) if name == "metrics" else str) for item in several):
            raise InputError.at(where, f"is {shown(value)}", "expected text or a list of texts")
        return tuple(several)
    if name in PARSED:
        return PARSED[name](where, value)
    if name in ("gen_kwargs", "model_args", "params", "task_metadata") and not _is_json(value):
        raise InputError.at(where, f"is {shown(value)}", "expected a JSON value; put dates in quotes")
    kind = str if name == "out" else _types()[name]
    try:
        converted = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of half a surrogate pair
        raise InputError.at(where, f"is {shown(value)}", f"expected {_meant(kind)}") from None
    if name != "out":
        return converted
    if is_remote(converted):
        raise not_local(converted)
    return Path(converted)


def _is_json(value: Any) -> bool:
    """Whether a server can be sent it: YAML also has dates, bytes, sets and numbers that are none."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _meant(kind: Any) -> str:
    """A type in words."""
    words = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return " or ".join(map(_meant, get_args(kind))) if get_origin(kind) is UnionType else "a mapping"


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Job)


def price(where: str, value: Any) -> Price:
    """``in,out``, or a list of two: dollars for a million tokens.

    >>> price("--price", "0.15,0.6")
    Price(input=0.15, output=0.6)
    """
    sides = value.split(",") if isinstance(value, str) else value
    try:
        first, second = (float(side) for side in sides)
    except (TypeError, ValueError):
        first = second = -1.0
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise InputError.at(where, f"is {shown(value)}", "expected IN,OUT in dollars per million tokens: 0.15,0.6")
    return Price(first, second)


def load_seeds(where: str, value: Any) -> Seeds:
    """Four seeds, ``0,1234,1234,1234`` or a list; one alone is all four, and three leave the last as it is.

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
        right = (
            "expected four integers >= 0, the seeds of random, numpy, torch and the few-shot examples: 0,1234,1234,1234"
        )
        raise InputError.at(where, f"is {shown(value)}", right)
    return seeds[0], seeds[1], seeds[2], seeds[3]


def document_numbers(where: str, value: Any) -> tuple[int, ...]:
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
        raise InputError.at(where, f"is {shown(value)}", "expected numbers counted from 0: 0,3,6-9")
    return tuple(sorted({*numbers}))


PARSED: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "price": price,
    "load_seeds": load_seeds,
    "documents": document_numbers,
}
"""Settings that are written in a way of their own: name -> what reads one, given where it was written."""


def shown(value: Any) -> str:
    """A value in few characters, for an error."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


COMMAND_LINE = "command line"
_RANGE: Final = re.compile(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9}))?\s*")
_JSON_WORDS = {"true": "true", "false": "false", "none": "null"}  # in any case, as JSON says it
LIFTED = {  # what --gen-kwargs may say of our own settings, in the names of other systems
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
    """The product of benchmarks and models as jobs, and notes on what was passed over.

    A benchmark that is a YAML file says more: its settings hold where the command line is silent. ``of_library``:
    every benchmark is a task of the library, whatever files and stored benchmarks have its name.
    """
    options = _options(given)
    requested: list[tuple[Settings, str]] = []
    notes: list[str] = []
    for benchmark in _separate(benchmarks):
        if of_library:
            runs = library().settings(benchmark, tuple(options.get("include_path", ())), options)
            requested += [(run, benchmark) for run in runs]
        elif (theirs := _theirs(benchmark, options)) is not None:
            requested += [(run, benchmark) for run in theirs]
        elif Path(benchmark).suffix in (".yaml", ".yml"):
            runs, more = read_config(benchmark, options.get("model", ()))
            requested += [(each, benchmark) for run in runs for each in _with_theirs(run, options)]
            notes += more
        else:
            requested.append(({"benchmark": (benchmark,)}, COMMAND_LINE))
    jobs = [job for settings, origin in requested for job in _product(settings, origin, options)]
    several = len(jobs) > 1 or suite_file(benchmarks) is not None  # a suite may grow
    return [replace(job, among=several) for job in jobs], notes


def job_in_memory(name: str, given: Mapping[str, Any]) -> Job:
    """The job of a benchmark that somebody holds; its name is no path."""
    [job] = _product({"benchmark": (name,)}, COMMAND_LINE, _options(given))
    return job


def _separate(benchmarks: Sequence[str]) -> Iterator[str]:
    """Each benchmark of ``gsm8k,arc_easy``; a file or folder whose name has a comma is one."""
    for benchmark in benchmarks:
        if "," in benchmark and not os.path.lexists(benchmark):
            yield from (name for part in benchmark.split(",") if (name := part.strip()))
        else:
            yield benchmark


def _with_theirs(run: Settings, options: Mapping[str, Any]) -> Iterator[Settings]:
    """The runs of a file of ours, one more for each task of lm-evaluation-harness that it names as a benchmark."""
    others = []
    for benchmark in run.get("benchmark", ()):
        theirs = _theirs(benchmark, {**run, **options})
        if theirs is None:
            others.append(benchmark)
        else:
            rest = {name: value for name, value in run.items() if name != "benchmark"}
            extra = rest.get("gen_kwargs") or {}
            yield from ({**task, **rest, "gen_kwargs": {**task.get("gen_kwargs", {}), **extra}} for task in theirs)
    if others or not run.get("benchmark"):
        yield {**run, "benchmark": tuple(others)} if others else run


def _theirs(benchmark: str, options: Mapping[str, Any]) -> list[Settings] | None:
    """The runs that a task file or a name of lm-evaluation-harness asks for; None when it is none of those."""
    include_path = tuple(options.get("include_path", ()))
    is_file = Path(benchmark).suffix in (".yaml", ".yml")
    if not is_file and not include_path and (os.path.lexists(benchmark) or find_spec(TASK_LIBRARY_NAME) is None):
        return None
    if not is_file and not include_path and benchmark in names():  # a benchmark that was published here comes first
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
    return [_as_there(Job(benchmark, model, **merged, origins=origins), options) for benchmark, model in pairs]


def _as_there(job: Job, options: Mapping[str, Any]) -> Job:
    """A task of lm-evaluation-harness on a local model, as it is asked there: plain text unless told
    otherwise, cut on the left to fit.
    """
    if not job.from_library or not job.model.startswith("hf/"):
        return job
    api = job.api if "api" in options or job.chats else "completions"
    return replace(job, api=api, gen_kwargs={"truncate": "left", **job.gen_kwargs})


def _options(given: Mapping[str, Any]) -> Settings:
    """What the command line says, as settings of a job."""
    options = dict(given)
    if others := [name for name in OF_AGENTS if name in options]:
        raise InputError.at(f"--{others[0]}", "is for agents", "expected --agent NAME and a directory of their tasks")
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
        if extra.pop("do_sample", None) is False:  # lm-evaluation-harness' word for temperature 0
            extra["temperature"] = 0.0
        ours = [key for key in extra if key in LIFTED]
        lifted = {LIFTED[key]: setting(f"--gen-kwargs: {key}", LIFTED[key], extra.pop(key)) for key in ours}
        options = {**lifted, **options, "gen_kwargs": extra}
    return options


def _json_object(where: str, text: str, example: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InputError.at(where, f"is not a JSON object ({error})", f"expected an object such as {example}") from None


def gen_kwargs(text: str, where: str = "--gen-kwargs") -> dict[str, Any]:
    """``key=value,...`` or a JSON object; a value is JSON where it can be, else text.

    As in lm-evaluation-harness, true, false and none are written in any case, and quotes of either kind make a text.

    >>> gen_kwargs("top_p=0.9,do_sample=true,mode=fast,revision='7'")
    {'top_p': 0.9, 'do_sample': True, 'mode': 'fast', 'revision': '7'}
    """
    if text.lstrip().startswith("{"):
        return _json_object(where, text, """{"top_p": 0.9}""")
    settings: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals):
            raise InputError.at(where, f"{pair!r} cannot be read", "expected KEY=VALUE, such as top_p=0.9")
        settings[key] = _read(value)
    return settings


def _read(value: str) -> Any:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    try:
        return msgspec.json.decode(_JSON_WORDS.get(value.lower(), value))
    except msgspec.DecodeError:
        return value
