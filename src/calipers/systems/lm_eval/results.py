"""The results object of a run, in lm-evaluation-harness' layout: tasks, groups, and what they were made with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calipers.systems.lm_eval.metrics.bootstrap import ITERATIONS
from calipers.systems.lm_eval.metrics.task import TaskNumbers, aggregate_group
from calipers.systems.lm_eval.task_scores import TaskScores
from calipers.systems.lm_eval.tasks.config import TaskFields
from calipers.systems.lm_eval.tasks.groups import Leaf, TaskGroup
from calipers.systems.lm_eval.write import available, results_object, task_row, without_address

LAYOUT: Final = "0.4.13"
"""The release whose layout this is."""

_UNSAFE: Final = re.compile(r'[<>:"/|\\?*\[\]]+')


@dataclass(frozen=True, slots=True)
class RanTask:
    """A task that was run: what it is, what it came to, and the hash of its samples."""

    config: TaskFields
    source: str  # the path of its file, or inline; "": not told
    scores: TaskScores
    documents: int  # there are
    asked: int  # were asked
    samples_hash: str = ""
    numbers: TaskNumbers | None = None  # where they are known already

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.config.task)


def run_results(
    ran: Sequence[RanTask], groups: Sequence[TaskGroup] = (), iterations: int = ITERATIONS, **about: Any
) -> dict[str, Any]:
    """The results object of some tasks and the groups over them; ``about`` are further blocks of it, by name."""
    rows = {}
    for one in ran:
        numbers = one.numbers or one.scores.numbers(iterations)
        rows[one.name] = task_row(one.name, one.config.task_alias, numbers.sample_len, numbers.metrics)
    every = list({group.name: group for group in _every(groups)}.values())
    added = {
        group.name: available(
            aggregate_group(group.name, [*_tasks(group)], rows, group.aggregate_metric_list, group.alias)
        )
        for group in _rising(groups)
    }
    better: dict[str, Any] = {one.name: one.scores.higher_is_better() for one in ran}
    shots: dict[str, Any] = {one.name: one.config.num_fewshot or 0 for one in ran}
    for group in every:  # the outer before the inner, of which it thus knows nothing here: as there
        below = [_name(member) for member in group.members]
        if agreed := _agreed([better[name] for name in below if name in better]):
            better[group.name] = agreed
        told = {shots[name] for name in below if name in shots}
        if len(told) == 1:
            shots[group.name] = told.pop()
    versions = {one.name: one.config.version for one in ran}
    versions |= {group.name: str(group.metadata.get("version", "N/A")) for group in every}
    return results_object(
        results={**rows, **added},
        groups={group.name: added[group.name] for group in _rising(groups) if group.aggregate_metric_list},
        group_subtasks={group.name: [_name(member) for member in group.members] for group in every},
        configs={one.name: _config(one) for one in ran},
        versions=versions,
        n_shot=shots,
        higher_is_better=better,
        n_samples={one.name: {"original": one.documents, "effective": one.asked} for one in ran},
        lm_eval_version=LAYOUT,
        task_hashes={one.name: one.samples_hash for one in ran},
        **about,
    )


def file_name(model: str, time: str, task: str | None = None) -> str:
    """Where a file of a run lies below its folder: the results, or the samples of a task.

    >>> file_name("org/m", "2026-01-02T03:04:05.6", "gsm8k")
    'org__m/samples_gsm8k_2026-01-02T03-04-05.6.jsonl'
    """
    moment = time.replace(":", "-")
    name = f"results_{moment}.json" if task is None else f"samples_{task}_{moment}.jsonl"
    return f"{_UNSAFE.sub('__', model)}/{name}"


def _rising(groups: Sequence[Any]) -> Iterator[TaskGroup]:
    """Every group, the inner before the outer; one that was met may come again."""
    for one in groups:
        if isinstance(one, TaskGroup):
            yield from _rising(one.members)
            yield one


def _every(groups: Sequence[Any]) -> Iterator[TaskGroup]:
    for one in groups:
        if isinstance(one, TaskGroup):
            yield one
            yield from _every(one.members)


def _tasks(group: TaskGroup) -> Iterator[str]:
    for member in group.members:
        if isinstance(member, TaskGroup):
            yield from _tasks(member)
        else:
            yield _name(member)


def _name(member: Leaf | TaskGroup) -> str:
    return member.name


def _agreed(members: Sequence[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """Which way each metric is better, where all that have it agree; null where they do not."""
    found: dict[str, bool | None] = {}
    for better in members:
        for metric, one in better.items():
            found[metric] = one if found.get(metric, one) == one else None
    return found


def _config(one: RanTask) -> dict[str, Any]:
    told = replace(one.config, tag=None, num_fewshot=one.config.num_fewshot or 0)  # a tag only selects
    config = _shown(told.dumped())
    source = {"config_source": one.source} if one.source else {}
    return {**config, "metadata": {**(config.get("metadata") or {}), **source}}


def _shown(value: Any, key: str = "") -> Any:
    """A configuration with its functions as their source; inside filters, as Python shows them, less the address."""
    if isinstance(value, Mapping):
        return {str(name): _shown(inner, key or str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(inner, key) for inner in value]
    if not callable(value):
        return value
    if key == "filter_list":
        return without_address(repr(value))
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return without_address(repr(value))
