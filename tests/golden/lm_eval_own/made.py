"""Tasks that were run, from their documents' values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calipers.systems.lm_eval.entries import Entry, Scoring
from calipers.systems.lm_eval.pipelines import pipeline
from calipers.systems.lm_eval.task_scores import ScoredPipeline, TaskScores
from calipers.systems.lm_eval.tasks import TaskFields, TaskFile
from calipers.systems.lm_eval.tasks.groups import Leaf, TaskGroup
from calipers.systems.lm_eval.write import RanTask, run_results

Values = Mapping[str, Sequence[float]]
"""``metric,pipeline`` to the values of documents."""
ACC = ({"metric": "acc"},)


def scores(values: Values, better: Mapping[str, bool] | None = None) -> TaskScores:
    """The scores of a task."""
    held = []
    for name in dict.fromkeys(key.rpartition(",")[2] for key in values):
        mine = {key.rpartition(",")[0]: list(items) for key, items in values.items() if key.endswith(f",{name}")}
        entries = [Entry(metric, "mean", (better or {}).get(metric, True)) for metric in mine]
        rows = range(max(map(len, mine.values())))
        each = [{metric: items[row] for metric, items in mine.items() if row < len(items)} for row in rows]
        held.append(ScoredPipeline(Scoring(pipeline({"name": name, "filter": []}), entries), [], [], [], each))
    return TaskScores(held)


def ran(
    name: str,
    values: Values,
    *,
    documents: int = 100,
    better: Mapping[str, bool] | None = None,
    iterations: int = 0,
    **fields: Any,
) -> RanTask:
    """A task with these values, of so many documents."""
    found = scores(values, better)
    asked = max(map(len, values.values()), default=0)
    return RanTask(TaskFields(task=name, **fields), "inline", found, found.numbers(iterations), documents, asked)


def group(name: str, *members: Any, entries: Sequence[Mapping[str, Any]] = ACC) -> TaskGroup:
    """A group of tasks, by name, and of groups."""
    held = [
        one if isinstance(one, TaskGroup) else Leaf(one, TaskFile(None, {}), TaskFields(task=one)) for one in members
    ]
    return TaskGroup(name, name, held, entries)


def results(tasks: Sequence[RanTask], groups: Sequence[TaskGroup] = ()) -> dict[str, Any]:
    """The results object of them."""
    return run_results(tasks, groups)
