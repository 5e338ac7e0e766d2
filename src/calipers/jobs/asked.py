"""From arguments and files to jobs: the command line beats the file, the file beats the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from calipers.errors import InputError
from calipers.jobs.config import Settings, price, read_config
from calipers.jobs.job import Job

COMMAND_LINE = "command line"
LIFTED = {  # what --gen-kwargs may say of our own settings, in the names of other systems
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_gen_toks": "max_tokens",
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
        if Path(benchmark).suffix in (".yaml", ".yml"):
            runs, more = read_config(benchmark)
            asked += [(run, benchmark) for run in runs]
            notes += more
        else:
            asked.append(({"benchmark": (benchmark,)}, COMMAND_LINE))
    jobs = [job for settings, origin in asked for job in _product(settings, origin, told)]
    several = len(jobs) > 1
    return [replace(job, among=several) for job in jobs], notes


def _product(settings: Settings, origin: str, told: Mapping[str, Any]) -> list[Job]:
    merged = {**settings, **told}
    origins = {**dict.fromkeys(settings, origin), **dict.fromkeys(told, COMMAND_LINE)}
    for name, example in (("benchmark", "benchmark: data/arith"), ("model", "--model openai/gpt-4o-mini")):
        if not merged.get(name):
            raise InputError.at(origin if origin != COMMAND_LINE else f"--{name}", f"no {name}", f"expected {example}")
    pairs = product(merged.pop("benchmark"), merged.pop("model"))
    return [Job(benchmark, model, **merged, origins=origins) for benchmark, model in pairs]


def _told(given: Mapping[str, Any]) -> Settings:
    """What the command line says, as settings of a job."""
    told = dict(given)
    if "price" in told:
        told["price"] = price("--price", told["price"])
    if "gen_kwargs" in told:
        extra = gen_kwargs(told["gen_kwargs"])
        lifted = {LIFTED[key]: extra.pop(key) for key in list(extra) if key in LIFTED}
        if isinstance(lifted.get("stop"), str):
            lifted["stop"] = (lifted["stop"],)
        told = {**lifted, **told, "gen_kwargs": extra}
    return told


def gen_kwargs(text: str) -> dict[str, Any]:
    """``key=value,...`` or a JSON object; a value is JSON where it can be, else text.

    >>> gen_kwargs("top_p=0.9,do_sample=true,mode=fast")
    {'top_p': 0.9, 'do_sample': True, 'mode': 'fast'}
    """
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InputError.at("--gen-kwargs", f"is no JSON object ({error})") from None
    found: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals):
            raise InputError.at("--gen-kwargs", f"{pair!r} cannot be read", "expected KEY=VALUE, such as top_p=0.9")
        try:
            found[key] = msgspec.json.decode({"True": "true", "False": "false"}.get(value, value))
        except msgspec.DecodeError:
            found[key] = value
    return found
