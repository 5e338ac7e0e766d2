"""EvSys' leniency, for those who want it back: a metric that is unknown or fails is left out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calipers.dialects.dialect import Asked, resolve
from calipers.errors import InputError, PluginError
from calipers.pipeline import Source, read, score_rollouts
from calipers.plan import make_plan
from calipers.reports.result import Result


def score_leniently(
    source: Source,
    metrics: str | Sequence[str | Mapping[str, Any]] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    **settings: Any,
) -> Result:
    """Score in the evsys dialect, and leave out, with a warning each, the metrics that EvSys would skip.

    ``settings`` are those of `calipers.score`, apart from the dialect. What is left may be nothing:
    then the result holds the ledger alone.

    >>> with warnings.catch_warnings(record=True):
    ...     list(score_leniently([[1], [0]], ["pass@5", "avg"]).groups[0].metrics)
    ['avg']
    """
    plan = make_plan(None, dialect="evsys", **settings)
    wanted = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics or plan.dialect.default)
    rollouts = read(source, columns=columns, labels=plan.labels)
    kept: dict[str, Asked] = {}
    for metric in wanted:
        try:
            asked = resolve(metric, plan.dialect)
        except (InputError, PluginError) as error:
            warnings.warn(f"metric {metric!r} is left out: {error}", stacklevel=2)
            continue
        try:
            score_rollouts(rollouts, replace(plan, asked=[asked]))
        except PluginError as error:
            warnings.warn(f"metric {metric!r} is left out: {error}", stacklevel=2)
        else:
            kept[asked.text] = asked
    return score_rollouts(rollouts, replace(plan, asked=list(kept.values())))
