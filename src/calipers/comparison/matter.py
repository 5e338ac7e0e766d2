"""What a metric is compared on, and what comes of it before it is judged among others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.comparison.align import Common
from calipers.comparison.question import Question
from calipers.comparison.reads import Both
from calipers.metrics.metric import Metric
from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.table import Rollouts
from calipers.stats.mcnemar import McNemar
from calipers.stats.paired import Difference
from calipers.stats.power import PairVariance


@dataclass(frozen=True, slots=True)
class Matter:
    """One metric of two runs: the columns it reads of them, gaps and all."""

    both: Both
    common: Common
    columns: tuple[list[Column], list[Column]]
    clusters: Ints | None  # [T]
    question: Question

    @property
    def sides(self) -> tuple[Rollouts, Rollouts]:
        """Both runs."""
        return self.common.first, self.common.second

    @property
    def confidence(self) -> float:
        """Of intervals, and 1 less the level of tests."""
        return self.question.plan.confidence

    @property
    def seed(self) -> int:
        """Of resampling."""
        return self.question.plan.seed

    @property
    def higher_is_better(self) -> bool | None:
        """Which way is better; None where neither is known to be."""
        metric = self.both.first.metric
        return metric.higher_is_better if isinstance(metric, Metric) else None

    @property
    def counted(self) -> Bools:
        """The tasks that are looked at, [T]: all, or where the verdict is asked for on the way, the settled ones."""
        if self.question.anytime:
            return self.common.settled
        return np.ones(len(self.common.own_ids), dtype=bool)

    def samples(self, there: Bools) -> tuple[int, int]:
        """How many samples of the marked tasks each run has, [T] given."""
        entered = [
            int(side.by_task.count(columns[0].given)[there].sum())
            for side, columns in zip(self.sides, self.columns, strict=True)
        ]
        return entered[0], entered[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """A difference, second run less first, and what it is made of."""

    both: Both
    higher_is_better: bool | None  # None where neither way is known to be better
    difference: Difference
    first: float | None
    second: float | None
    there: Bools  # [T] common tasks with a value in both
    samples: tuple[int, int]
    values: tuple[Floats, Floats] | None = None  # [T] each, where a task has a value of its own
    weights: tuple[Floats, Floats] | None = None  # [T] each, by which a pooled rate counts them
    mcnemar: McNemar | None = None
    pair: PairVariance | None = None
    repeats: float | None = None  # samples per task, of the run that has fewer
