"""Harbor: statistics over the trials that ended, what is missing counting 0, and its own account of each eval."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from calipers.request import Dialect
from calipers.rollouts.column import Bools
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, OUTCOMES, SCORED
from calipers.rollouts.table import Rollouts
from calipers.systems.harbor import DEFAULT, WORDS
from calipers.systems.harbor.job_result import asked_metrics
from calipers.systems.harbor.metrics import STATISTICS, counted, evals_key, ladder, statistic
from calipers.systems.harbor.wire import ADHOC, EXCEPTION, UNFINISHED, VERIFIED, WRITTEN

RAISED: Final = (
    *("refused", "timed_out", "broke_verifier", "tampered"),
    *("verifier_failed", "judge_failed", "client_failed", "cancelled"),
)
"""Outcomes that are exceptions in Harbor's eyes, for rollouts that name none."""


def seen(rollouts: Rollouts) -> Rollouts:
    """The rollouts as Harbor counts them: only what ended, and a reward counts whatever else went wrong."""
    rewarded = np.zeros(len(rollouts), dtype=bool)
    for column in rollouts.rewards.values():
        rewarded |= column.given
    unfinished = _labelled(rollouts, VERIFIED, UNFINISHED)
    ended = np.where(_labelled(rollouts, VERIFIED), ~unfinished, rollouts.outcome != CODE["not_run"])
    counts = replace(rollouts, outcome=np.where(rewarded, SCORED, rollouts.outcome).astype(np.uint8))
    if ended.all():
        return counts
    left = int(np.count_nonzero(~ended))
    note = (
        f"{left} planned {'trial' if left == 1 else 'trials'} did not end: "
        "Harbor's numbers cover only the trials that ended"
    )
    kept = counts.where(ended)
    groups = np.unique(kept.owner) if len(kept.tasks) else np.zeros(1, dtype=np.int64)  # nothing at all is one group
    return replace(
        kept,
        keys=[kept.keys[group] for group in groups],
        owner=np.searchsorted(groups, kept.owner),
        planned_from="trials that ended",
        notes=[*rollouts.notes, note],
    )


def own(part: Rollouts, requested: Sequence[str]) -> Mapping[str, Any]:
    """An eval as Harbor's job result holds it, with numbers of trials where Harbor lists their names."""
    agent, model, dataset = part.keys[0]
    exceptions, written = _exceptions(part), _written(part)
    empty = _labelled(part, VERIFIED, "empty")
    rewards = {key: column for key, column in part.rewards.items() if column.given.any()}
    rewarded = empty.copy()
    for column in rewards.values():
        rewarded |= column.given
    names = [name for name in requested if name in STATISTICS] if len(part) else []
    return {
        "harbor": {
            "eval": evals_key(agent, model, dataset or ADHOC),
            "n_trials": int(np.count_nonzero(rewarded)),
            "n_errors": sum(exceptions.values()),
            "metrics": [_finite(statistic(name, rewards, len(part))) for name in names],
            "pass_at_k": {str(k): value for k, value in ladder(rewards, part.by_task, empty).items()},
            "reward_stats": {key: counted(column, written.get(key, {})) for key, column in sorted(rewards.items())},
            "exception_stats": exceptions,
        }
    }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """The values, None for what strict JSON cannot hold: somebody sent NaN, or numbers too large to be added."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _labelled(rollouts: Rollouts, name: str, value: str | None = None) -> Bools:
    """Which rollouts carry a label, or this value of it, [R]."""
    labels = rollouts.labels.get(name)
    if labels is None:
        return np.zeros(len(rollouts), dtype=bool)
    if value is None:
        return labels.code >= 0
    return np.isin(labels.code, [code for code, word in enumerate(labels.values) if word == value])


def _written(part: Rollouts) -> dict[str, dict[float, str]]:
    """How the files write each value of each reward: 1 or 1.0 as in the trial that began first, as Harbor does."""
    labels = part.labels.get(WRITTEN)
    if labels is None:
        return {}
    trials = [json.loads(labels.values[code]) for code in np.unique(labels.code[labels.code >= 0]).tolist()]
    written: dict[str, dict[float, str]] = {}
    for _, _, texts in sorted(trials, key=lambda trial: trial[:2]):
        for name, text in texts.items():
            written.setdefault(name, {}).setdefault(float(text), text)
    return written


def _exceptions(part: Rollouts) -> dict[str, int]:
    """How many rollouts ended in which exception, the most frequent first.

    A trial of Harbor's says its own; another rollout says the kind of its error, or what became of it.
    """
    counts: dict[str, int] = {}
    theirs = _labelled(part, VERIFIED)
    for name in (EXCEPTION, ERROR_KIND):
        labels = part.labels.get(name)
        if labels is None:
            continue
        codes = labels.code[(labels.code >= 0) & (theirs == (name == EXCEPTION))]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            word = str(labels.values[code])
            counts[word] = counts.get(word, 0) + int(count)
    unnamed = ~theirs & ~_labelled(part, ERROR_KIND)
    outcomes = np.bincount(part.outcome[unnamed], minlength=len(OUTCOMES)).tolist()
    for word in RAISED:
        if outcomes[CODE[word]]:
            counts[word] = counts.get(word, 0) + outcomes[CODE[word]]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def asks(source: Any) -> Sequence[str] | None:
    """The metrics that the jobs among some paths ask for in their ``config.json``; None when they ask for none."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    return list(dict.fromkeys(name for path in paths for name in asked_metrics(os.fspath(path)))) or None


HARBOR = Dialect(
    "harbor",
    metrics=WORDS,
    default=DEFAULT,
    missing="zero",
    labels=(VERIFIED, EXCEPTION, WRITTEN, ERROR_KIND),
    every_reward=True,
    seen=seen,
    own=own,
    asks=asks,
)
