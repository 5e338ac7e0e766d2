"""A comparison as CSV: one row per finding, every number of it."""

from __future__ import annotations

import csv
import io

from calipers.reports.compare import Comparison
from calipers.reports.csv import cell, uncommanded

FIELDS = (
    *("dataset", "first_run", "second_run", "by", "slice", "metric", "first", "second", "delta", "stderr"),
    *("low", "high", "p", "p_holm", "p_bh", "method", "verdict", "sentence", "more_tasks", "more_samples"),
    *("p_equivalent", "p_not_worse", "mcnemar_exact", "mcnemar_mid_p", "tasks", "undefined_tasks", "units"),
    *("first_samples", "second_samples", "higher_is_better", "why", "signature"),
    *("aligned_by", "common_tasks", "only_first", "only_second"),
    *("new_tasks_low", "new_tasks_high"),
    *("lowest", "highest", "first_missing", "second_missing", "worst_verdict", "tipping", "tipping_of"),
)


def render(found: Comparison) -> str:
    """The rows of a comparison as CSV with a header; an absent value is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in found.rows():
        writer.writerow({name: cell(row[name]) for name in FIELDS})
    return uncommanded(stream.getvalue())
