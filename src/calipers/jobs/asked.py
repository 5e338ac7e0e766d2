"""From arguments and files to jobs: the command line beats the file, the file beats the default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from calipers.errors import InputError
from calipers.jobs.config import Settings, load_seeds, price, read_config
from calipers.jobs.job import Job
from calipers.jobs.library import library
from calipers.tasks.store import names

COMMAND_LINE = "command line"
_SAID = {"true": "true", "false": "false", "none": "null"}  # in any case, as JSON says it
LIFTED = {  # what --gen-kwargs may say of our own settings, in the names of other systems
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_gen_toks": "max_tokens",
    "max_new_tokens": "max_tokens",
    "stop": "stop",
    "until": "stop",
}


def jobs_of(benchmarks: Sequence[str], given: Mapping[str, Any]) -> tuple[list[Job], list[str]]:
    """The product of benchmarks and models as jobs, and notes on what was passed over.

    A benchmark that is a YAML file says more: its settings hold where the command line is silent.
    """
    told = _told(given)
    asked: list[tuple[Settings, str]] = []
    notes: list[str] = []
    for benchmark in benchmarks:
        if (theirs := _theirs(benchmark, told)) is not None:
            asked += [(run, benchmark) for run in theirs]
        elif Path(benchmark).suffix in (".yaml", ".yml"):
            runs, more = read_config(benchmark)
            asked += [(one, benchmark) for run in runs for one in _with_theirs(run, told)]
            notes += more
        else:
            asked.append(({"benchmark": (benchmark,)}, COMMAND_LINE))
    jobs = [job for settings, origin in asked for job in _product(settings, origin, told)]
    several = len(jobs) > 1
    return [replace(job, among=several) for job in jobs], notes


def _with_theirs(run: Settings, told: Mapping[str, Any]) -> Iterator[Settings]:
    """The runs of a file of ours, one more for each task of lm-evaluation-harness that it names as a benchmark."""
    others = []
    for benchmark in run.get("benchmark", ()):
        theirs = _theirs(benchmark, {**run, **told})
        if theirs is None:
            others.append(benchmark)
        else:
            held = {name: value for name, value in run.items() if name != "benchmark"}
            own = held.get("gen_kwargs") or {}
            yield from ({**one, **held, "gen_kwargs": {**one.get("gen_kwargs", {}), **own}} for one in theirs)
    if others or not run.get("benchmark"):
        yield {**run, "benchmark": tuple(others)} if others else run


def _theirs(benchmark: str, told: Mapping[str, Any]) -> list[Settings] | None:
    """The runs that a task file or a name of lm-evaluation-harness asks for; None when it is none of those."""
    include_path = tuple(told.get("include_path", ()))
    is_file = Path(benchmark).suffix in (".yaml", ".yml")
    if not is_file and not include_path and (os.path.lexists(benchmark) or find_spec("lm_eval") is None):
        return None
    if not is_file and not include_path and benchmark in names():  # a benchmark that was published here comes first
        return None
    if not library().is_known(benchmark, include_path):
        return None
    return library().settings(benchmark, include_path, told)


def _product(settings: Settings, origin: str, told: Mapping[str, Any]) -> list[Job]:
    merged = {**settings, **told}
    if "gen_kwargs" in settings and "gen_kwargs" in told:
        merged["gen_kwargs"] = {**settings["gen_kwargs"], **told["gen_kwargs"]}
    origins = {**dict.fromkeys(settings, origin), **dict.fromkeys(told, COMMAND_LINE)}
    for name, example in (("benchmark", "benchmark: data/arith"), ("model", "--model openai/gpt-4o-mini")):
        if not merged.get(name):
            raise InputError.at(origin if origin != COMMAND_LINE else f"--{name}", f"no {name}", f"expected {example}")
    pairs = product(merged.pop("benchmark"), merged.pop("model"))
    return [_as_there(Job(benchmark, model, **merged, origins=origins), told) for benchmark, model in pairs]


def _as_there(job: Job, told: Mapping[str, Any]) -> Job:
    """A task of lm-evaluation-harness on a local model, as it is asked there: plain text unless told
    otherwise, cut on the left to fit.
    """
    if not job.lm_eval or not job.model.startswith("hf/"):
        return job
    api = job.api if "api" in told or job.chats else "completions"
    return replace(job, api=api, gen_kwargs={"truncate": "left", **job.gen_kwargs})


def _told(given: Mapping[str, Any]) -> Settings:
    """What the command line says, as settings of a job."""
    told = dict(given)
    if told.get("apply_chat_template") == "":  # the option without a name
        told["apply_chat_template"] = True
    if "price" in told:
        told["price"] = price("--price", told["price"])
    if "load_seeds" in told:
        told["load_seeds"] = load_seeds("--load-seeds", told["load_seeds"])
    if "gen_kwargs" in told:
        extra = gen_kwargs(told["gen_kwargs"])
        if extra.pop("do_sample", None) is False:  # lm-evaluation-harness' word for temperature 0
            extra["temperature"] = 0.0
        lifted = {LIFTED[key]: extra.pop(key) for key in list(extra) if key in LIFTED}
        if isinstance(lifted.get("stop"), str):
            lifted["stop"] = (lifted["stop"],)
        told = {**lifted, **told, "gen_kwargs": extra}
    return told


def gen_kwargs(text: str) -> dict[str, Any]:
    """``key=value,...`` or a JSON object; a value is JSON where it can be, else text.

    As in lm-evaluation-harness, true, false and none are written in any case, and quotes of either kind make a text.

    >>> gen_kwargs("top_p=0.9,do_sample=true,mode=fast,revision='7'")
    {'top_p': 0.9, 'do_sample': True, 'mode': 'fast', 'revision': '7'}
    """
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InputError.at(
                "--gen-kwargs", f"is no JSON object ({error})", """expected such as {"top_p": 0.9}"""
            ) from None
    found: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals):
            raise InputError.at("--gen-kwargs", f"{pair!r} cannot be read", "expected KEY=VALUE, such as top_p=0.9")
        found[key] = _read(value)
    return found


def _read(value: str) -> Any:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    try:
        return msgspec.json.decode(_SAID.get(value.lower(), value))
    except msgspec.DecodeError:
        return value
