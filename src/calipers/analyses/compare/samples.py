"""What lm-evaluation-harness' own files keep of each document, for its numbers of all documents together.

A metric that is a mean of documents is a reward of their rollouts, and is not here. How the values of the others
add up stands in the results file beside the samples, and else goes by the metric's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from calipers.analyses.compare.values import DocumentTable, Summed, is_theirs, stored
from calipers.metrics.lm_eval import NAMES
from calipers.readers import lm_eval
from calipers.readers.files import Source
from calipers.readers.read import Input
from calipers.readers.run_plan import read_plan
from calipers.scores.entries import KNOWN

FORMATS: Final = ("lm_eval_samples", "lm_eval_results")
NO_SUMS: Final = ("mean", "bypass")  # what rollouts have as a reward, and what is no number


def table_of(inputs: Sequence[Input], key: tuple[str | None, ...]) -> DocumentTable:
    """The table of a group (agent, model, dataset) of a source; an empty one where its files are of no such task."""
    for one in inputs:
        folder = os.path.dirname(one.path)
        if one.format == "run" and is_theirs(folder):
            plan = read_plan(folder)
            if (plan.model, plan.dataset) == key[1:]:
                return stored(folder)
    return of_samples(inputs, key[2], key[0] or lm_eval.UNNAMED)


def of_samples(inputs: Sequence[Input], task: str | None, pipeline: str) -> DocumentTable:
    """The numbers of one task and pipeline that are no means of documents, from the samples of a source."""
    ways: dict[str, Summed] = {}
    values: dict[str, dict[str, Any]] = {}
    hashes: dict[str, str] = {}
    for path in _paths(inputs):
        if lm_eval.task_of(path) != task:
            continue
        beside = lm_eval.results_beside(path)
        with Source(path) as source:
            for row in lm_eval.rows_of(source):
                if row.get("filter", lm_eval.UNNAMED) != pipeline:
                    continue
                document = str(row["doc_id"])
                hashes[document] = str(row.get("doc_hash") or "")
                for name, value in row.items():
                    if name in lm_eval.OTHERS or value is None:
                        continue
                    if name not in ways:
                        ways[name] = _way(name, pipeline, beside, task or "")
                    plain = isinstance(value, (int, float)) and ways[name].aggregation is None
                    if ways[name].aggregation not in NO_SUMS and not plain:
                        values.setdefault(name, {})[document] = value
    there = {way.key: way for name, way in ways.items() if name in values}
    return DocumentTable(there, {ways[name].key: held for name, held in values.items()}, hashes, whole=False)


def _way(name: str, pipeline: str, beside: Mapping[str, Any], task: str) -> Summed:
    """How a metric adds up, by the task's configuration, else by its name; None for a function of the task's own."""
    config = _inner(_inner(beside, "configs"), task)
    listed = config.get("metric_list")
    entries = [one for one in listed if isinstance(one, dict) and one.get("metric") == name] if listed else []
    known = KNOWN.get(name)
    how = entries[-1].get("aggregation") if entries else None
    if how is None:
        how = known.aggregation if known else None
    direction = _inner(_inner(beside, "higher_is_better"), task).get(name, known.higher_is_better if known else None)
    return Summed(name, pipeline, how if how in NAMES else None, direction if isinstance(direction, bool) else None)


def _inner(held: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = held.get(key)
    return found if isinstance(found, dict) else {}


def _paths(inputs: Sequence[Input]) -> Iterator[str]:
    for one in inputs:
        if one.format == "lm_eval_results":
            yield from lm_eval.samples_beside(one.path)
        elif one.format == "lm_eval_samples":
            yield one.path
