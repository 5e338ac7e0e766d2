"""``calipers.evaluate``: the command ``calipers run`` as a call, for one benchmark and one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients.client import Price
from calipers.errors import InputError, UnknownName
from calipers.reports.result import Result
from calipers.running.job import Job
from calipers.running.library import library
from calipers.running.perform import perform, together
from calipers.running.settings import LISTS, jobs_of, setting

DECIDED: Final = ("benchmark", "model", "origins", "among", "lm_eval")  # fields of a job that are no settings
SETTINGS: Final = tuple(field.name for field in fields(Job) if field.name not in DECIDED)
ALIKE: Final = ("metrics", "dialect", "by", "cluster", "reward", "missing", "interval", "confidence", "seed", "until")
"""What runs that share a result have in common."""


def evaluate(benchmark: str | Path, model: str, **settings: Any) -> Result:
    """Run a benchmark against a model, or go on with the run, and score it: ``calipers run`` from Python.

    A benchmark is whatever the command takes: a folder, a name in the store, a YAML file, a task file of
    lm-evaluation-harness, or with ``include_path`` the name of a task, group or tag; of several tasks the
    result has a group each. ``settings`` are the command's options by their names: ``samples=4``,
    ``base_url=...``, ``metrics=["pass@3"]``, ``trust=True``; None is as if it were not given. A gap is no
    error: the ledger of the result has it. It may be called where an event loop runs, as in a notebook.
    """
    if not isinstance(model, str):
        right = "expected its spec, such as 'openai/gpt-x'; code is named as 'python/FILE.py:OBJECT'"
        raise InputError.at("model", f"is {type(model).__name__}", right)
    jobs, _ = jobs_of([str(benchmark)], {"model": (model,), **_given(settings)})
    for name in ALIKE:
        if len({repr(getattr(job, name)) for job in jobs}) > 1:
            wrong = f"its runs have different {name}, and so no result in common"
            raise InputError.at(str(benchmark), wrong, "evaluate its parts one by one")
    tasks = None
    if any(job.lm_eval for job in jobs):
        tasks = library().loaded()
    [result] = together([perform(job, tasks=tasks) for job in jobs])
    return result


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the command line has them: lists of one where several may stand, texts where it has texts."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise UnknownName.of("setting of a run", name, SETTINGS)
        if value is None:
            continue
        if name in LISTS:
            several = value if isinstance(value, (list, tuple)) else [value]
            value = tuple(str(item) if isinstance(item, Path) else item for item in several)
        elif name == "gen_kwargs" and not isinstance(value, str):
            value = _json(value)
        elif isinstance(value, Price):
            value = (value.input, value.output)
        elif name != "price":
            value = setting(name, name, str(value) if isinstance(value, Path) else value)
        values[name] = value
    return values


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(dict(value)).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InputError.at("gen_kwargs", f"is {value!r} ({error})", "expected such as {'top_p': 0.9}") from None
