"""How sure each number of lm-evaluation-harness' table is, a line each.

Of a task's number `stats.documents` says it. That of a group is worked out again on documents drawn with
replacement, each task's from its own, and the middle of what comes out is its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.dialects.lm_eval_scoring import TaskScores
from calipers.errors import CalipersError
from calipers.jobs.job import Job
from calipers.metrics.lm_eval_draws import resampled
from calipers.stats.documents import Spread, middle, spread
from calipers.tasks.lm_eval.groups import Group, leaves

MANY_DIGITS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Sure:
    """A number of a task or a group, and how sure it is; as text, a line.

    ``mc bits_per_byte,none 1.9000, 95% interval [1.8000, 2.1000] by 10,000 draws, 400 documents``
    """

    name: str  # of the task or group
    key: str  # metric,pipeline
    value: float
    spread: Spread
    confidence: float
    count: int
    of: str = "documents"  # or of a group, tasks

    def __str__(self) -> str:
        said = f"no interval ({self.spread.why})"
        if self.spread.ends is not None:
            low, high = map(_shown, self.spread.ends)
            drawn = f" by {self.spread.draws:,} draws" if self.spread.draws else ""
            said = f"{100 * self.confidence:g}% interval [{low}, {high}]{drawn}"
        return f"{self.name} {self.key} {_shown(self.value)}, {said}, {self.count:,} {self.of}"


def sure(task: str, scores: TaskScores, confidence: float, seed: int) -> Iterator[Sure]:
    """How sure each number of a task is."""
    numbers = scores.numbers(0).metrics
    for place, (key, held) in enumerate(scores.values().items()):
        value, how = numbers.get(key), scores.aggregation(key.rpartition(",")[0])
        if not isinstance(value, (int, float)) or how == "bypass":
            continue
        yield Sure(task, key, value, spread(how, held, value, confidence, [seed, place]), confidence, len(held))


def sure_groups(
    groups: Sequence[Group], rows: Mapping[str, Mapping[str, Any]], scores: Mapping[str, TaskScores], asked: Job
) -> Iterator[Sure]:
    """The same for each number of a group; ``rows`` are those of lm-evaluation-harness' results, by name."""
    for place, group in enumerate({one.name: one for one in groups}.values()):
        names = list(dict.fromkeys(leaf.name for leaf in leaves(group.members)))
        for key in rows[group.name].get("sample_count", {}):
            there = [name for name in names if name in scores and key in rows[name]]
            metric = key.rpartition(",")[0]
            weighted = _weighted(group, key)
            sizes = [float(rows[name]["sample_len"]) if weighted else 1.0 for name in there]
            rng = np.random.Generator(np.random.PCG64([asked.seed, 1 << 20, place]))
            try:
                draws = [resampled(scores[one].aggregation(metric), scores[one].values()[key], rng) for one in there]
            except CalipersError as error:
                said = Spread(why=f"a draw has no number: {error}")
            else:
                fewest = min(map(len, draws))
                summed = sum(size * one[:fewest] for size, one in zip(sizes, draws, strict=True)) / sum(sizes)
                said = middle(np.asarray(summed), asked.confidence)
            yield Sure(group.name, key, rows[group.name][key], said, asked.confidence, len(there), "tasks")


def _weighted(group: Group, key: str) -> bool:
    """Whether a group's number weighs tasks by their documents: as the last entry of its metric and pipeline says."""
    metric, _, pipeline = key.rpartition(",")
    of_metric = [one for one in group.aggregate_metric_list if one["metric"] == metric]
    meant = [one for one in of_metric if one.get("filter_list") is None or pipeline in _listed(one["filter_list"])]
    return bool(meant[-1].get("weight_by_size", True))


def _listed(pipelines: str | Sequence[str]) -> Sequence[str]:
    return [pipelines] if isinstance(pipelines, str) else pipelines


def _shown(value: float) -> str:
    """A number in few digits; the perplexity of a model that knows nothing has many."""
    return f"{value:.4f}" if abs(value) < MANY_DIGITS else f"{value:.4g}"
