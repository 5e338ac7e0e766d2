"""What of a task's scoring would fail when its run is over, or hang while it goes: said before the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from calipers.answers.lm_eval import Pipeline
from calipers.answers.lm_eval_filters import Select
from calipers.answers.lm_eval_probe import check_ends, patterns_of
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.metrics.lm_eval_reduce import check
from calipers.scores.scorers import Scoring, scorer_of
from calipers.tasks.lm_eval.loaded import LoadedTask


def checked(task: LoadedTask, scorings: list[Scoring]) -> list[Scoring]:
    """The scorings of a task as they are; InputError with file and key for one that cannot come to its end.

    Held against the samples that are really taken, ``task.config.repeats``: a reduction that there is not, a k
    that no document could have. And no pattern may explode.
    """
    config, file = task.config, task.file
    for number, entry in enumerate(config.filter_list or ()):
        for step in entry["filter"]:
            _at(f"{file.place('filter_list')}[{number}]", _check_patterns, step)
    for step in scorer_of(config.scorer, config.output_type).default_filter_cfg:
        _at(file.place("scorer"), _check_patterns, step)
    own = [bool(entry.get("metric_list")) for entry in config.filter_list or ()] or [False]
    for number, (inner, one) in enumerate(zip(own, scorings, strict=True)):
        place = f"{file.place('filter_list')}[{number}].metric_list" if inner else file.place("metric_list")
        left = kept_repeats(one.pipeline, config.repeats)
        for metric in one.metrics:
            _at(place, check, metric, config.repeats, place)
            if metric.k is not None and (most := metric.k if isinstance(metric.k, int) else max(metric.k)) > left:
                wrong = f"k is {most}, and pipeline {one.pipeline.name!r} keeps {left} of {config.repeats} repeats"
                raise InputError.at(place, wrong, "expected a pipeline without take_first, such as filter: [noop]")
            _at(place, _check_patterns, metric.settings)
    return scorings


def kept_repeats(through: Pipeline, repeats: int) -> int:
    """How many of a document's repeats a pipeline keeps, as far as its own filters say."""
    for step in through.steps:
        if isinstance(step, Select):
            repeats = len(step.keep([""] * repeats))
    return repeats


def _check_patterns(settings: Mapping[str, Any]) -> None:
    for pattern in patterns_of(settings):
        check_ends(pattern)


def _at(place: str, look: Callable[..., None], *arguments: Any) -> None:
    try:
        look(*arguments)
    except CalipersError as error:
        text = str(error) if str(error).startswith(place) else f"{place}: {error}"
        raise (UnknownName if isinstance(error, UnknownName) else InputError)(text) from None
