"""lm-evaluation-harness' metrics of all documents together, as F1, BLEU or a perplexity: no mean of their values.

Documents are drawn with replacement, the same for both runs, and the metric worked out again on each draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calipers.comparison.align import Common
from calipers.comparison.drawn import METHOD, by_draws
from calipers.comparison.matter import Measured
from calipers.comparison.question import Question
from calipers.comparison.reads import Both
from calipers.dialects.dialect import Asked
from calipers.errors import CalipersError
from calipers.metrics.lm_eval import aggregate
from calipers.metrics.lm_eval_draws import resampled
from calipers.metrics.metric import Opaque
from calipers.readers import lm_eval
from calipers.readers.files import Source
from calipers.readers.read import Input
from calipers.scores.entries import KNOWN
from calipers.stats.interval import ONE_TASK
from calipers.stats.paired import Difference

MEANS = ("mean", "bypass")  # what is compared task by task already, and what is no number
NO_CLUSTERS = "documents are not drawn by clusters here"

Values = Mapping[str, Mapping[str, Any]]  # metric -> document -> its value


def of_documents(
    first: Sequence[Input], second: Sequence[Input], common: Common, question: Question
) -> Iterator[Measured]:
    """Every metric of all documents that both runs have values for, on the documents they share."""
    sides = [_values(inputs, part.keys[0]) for inputs, part in ((first, common.first), (second, common.second))]
    for name, one in sides[0].items():
        two = sides[1].get(name)
        if two is None:
            continue
        pairs = list(zip(common.first.tasks, common.own_ids, strict=True))
        there = np.array([task in one and own in two for task, own in pairs], dtype=bool)
        held = [pair for pair, filled in zip(pairs, there.tolist(), strict=True) if filled]
        items = [one[task] for task, _ in held], [two[own] for _, own in held]
        how = KNOWN[name].aggregation
        try:
            ends = [float(aggregate(how, side)) for side in items]
            difference = _difference(how, items, ends, question)
        except CalipersError:  # such as chances that were rounded to text: nobody can add them up again
            continue
        asked = Asked(name, Opaque(name, lambda tasks: math.nan), {"aggregation": how})
        shown = [end if math.isfinite(end) else None for end in ends]
        samples = (len(held), len(held))
        yield Measured(
            Both(name, asked, asked), KNOWN[name].higher_is_better, difference, shown[0], shown[1], there, samples
        )


def _difference(how: str, items: tuple[list[Any], list[Any]], ends: Sequence[float], question: Question) -> Difference:
    count, value = len(items[0]), ends[1] - ends[0]
    if not math.isfinite(value):
        return Difference(None, None, None, None, METHOD, count, why="the metric is not a number on these documents")
    if count < 2 or question.plan.cluster:
        return Difference(value, None, None, None, METHOD, count, why=NO_CLUSTERS if count > 1 else ONE_TASK)
    # one seed for both: the same documents are drawn
    drawn = [resampled(how, side, np.random.Generator(np.random.PCG64(question.plan.seed))) for side in items]
    return by_draws(value, drawn[1] - drawn[0], count, question.plan.confidence)


def _values(inputs: Sequence[Input], key: tuple[str | None, ...]) -> dict[str, dict[str, Any]]:
    """What each document of a pipeline and task holds for such a metric, by metric."""
    found: dict[str, dict[str, Any]] = {}
    for path in _samples(inputs):
        if lm_eval.task_of(path) != key[2]:
            continue
        with Source(path) as source:
            for row in lm_eval.rows_of(source):
                if row.get("filter", lm_eval.UNNAMED) == (key[0] or lm_eval.UNNAMED):
                    for name, value in row.items():
                        if name in KNOWN and KNOWN[name].aggregation not in MEANS:
                            found.setdefault(name, {})[str(row["doc_id"])] = value
    return found


def _samples(inputs: Sequence[Input]) -> Iterator[str]:
    for one in inputs:
        if one.format == "lm_eval_results":
            yield from lm_eval.samples_beside(one.path)
        elif one.format == "lm_eval_samples":
            yield one.path
