"""How sure each number of a task of lm-evaluation-harness is.

A mean has the interval that every mean has here. A metric of all documents together, such as a perplexity, F1
or BLEU, is worked out again on documents drawn with replacement, and the middle of what comes out is its interval.
So is the number of a group, where each task's documents are drawn from its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.dialects.lm_eval_scoring import TaskScores
from calipers.errors import CalipersError
from calipers.jobs.job import Job
from calipers.metrics.lm_eval import How
from calipers.metrics.lm_eval_draws import resampled
from calipers.rollouts.column import Floats
from calipers.stats.interval import interval
from calipers.tasks.lm_eval.groups import Group, leaves

MANY_DIGITS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """An interval, or why there is none."""

    ends: tuple[float, float] | None = None
    method: str | None = None
    draws: int = 0  # it is the middle of
    why: str | None = None


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
        found = _mean(held, confidence) if how == "mean" else None
        if math.isnan(value):
            found = Spread(why="some documents are NaN")
        if found is None:
            found = _drawn(how, held, confidence, np.random.Generator(np.random.PCG64([seed, place])))
        yield Sure(task, key, value, found, confidence, len(held))


def _mean(held: Sequence[Any], confidence: float) -> Spread | None:
    """The interval of a mean of numbers; None for what is none."""
    if not all(isinstance(value, (int, float)) for value in held):
        return None
    values = np.array(held, dtype=np.float64)
    limits = (0.0, 1.0) if bool(((values >= 0) & (values <= 1)).all()) else None
    found = interval(values, np.ones(len(values)), confidence, limits)
    return Spread(found.ends, found.method, why=found.why)


def _drawn(how: How, held: Sequence[Any], confidence: float, rng: np.random.Generator) -> Spread:
    if len(held) < 2:
        return Spread(why="one document")
    try:
        return _middle(resampled(how, held, rng), confidence)
    except CalipersError as error:  # of somebody's own function
        return Spread(why=f"a draw has no number: {error}")


def sure_groups(
    groups: Sequence[Group], rows: Mapping[str, Mapping[str, Any]], scores: Mapping[str, TaskScores], asked: Job
) -> Iterator[Sure]:
    """The same for each number of a group; ``rows`` are those of lm-evaluation-harness' results, by name."""
    for place, group in enumerate({one.name: one for one in groups}.values()):
        names = list(dict.fromkeys(leaf.name for leaf in leaves(group.members)))
        weighed = {one["metric"]: one.get("weight_by_size", True) for one in group.aggregate_metric_list}
        for key in rows[group.name].get("sample_count", {}):
            there = [name for name in names if name in scores and key in rows[name]]
            metric = key.rpartition(",")[0]
            sizes = [float(rows[name]["sample_len"]) if weighed[metric] else 1.0 for name in there]
            rng = np.random.Generator(np.random.PCG64([asked.seed, 1 << 20, place]))
            try:
                draws = [resampled(scores[one].aggregation(metric), scores[one].values()[key], rng) for one in there]
            except CalipersError as error:
                said = Spread(why=f"a draw has no number: {error}")
            else:
                fewest = min(map(len, draws))
                summed = sum(size * one[:fewest] for size, one in zip(sizes, draws, strict=True)) / sum(sizes)
                said = _middle(np.asarray(summed), asked.confidence)
            yield Sure(group.name, key, rows[group.name][key], said, asked.confidence, len(there), "tasks")


def _middle(found: Floats, confidence: float) -> Spread:
    """The interval that the middle of some draws is; why there is none, where they say nothing."""
    if not np.isfinite(found).all():
        return Spread(why="some draws give no finite number")
    if (found == found[0]).all():
        return Spread(why="every draw gives the same number")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(found, [tail, 100 - tail]).tolist()
    return Spread((low, high), "bootstrap", len(found))


def _shown(value: float) -> str:
    """A number in few digits; the perplexity of a model that knows nothing has many."""
    return f"{value:.4f}" if abs(value) < MANY_DIGITS else f"{value:.4g}"
