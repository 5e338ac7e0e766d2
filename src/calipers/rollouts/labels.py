"""Slices and clusters: rollouts told apart by a value they carry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from calipers.errors import InputError
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.part import Labels
from calipers.rollouts.record import ABSENT, GROUP, label
from calipers.rollouts.table import Rollouts


def slices(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> tuple[Ints, list[str]]:
    """Which slice each rollout of a group belongs to, [R], and the slices' names, sorted.

    ``key`` is a dotted path into metadata, else a key of the row, else agent, model or dataset; a
    rollout without it belongs to ``__missing__``.
    """
    held = _held(rollouts, key)
    texts = [*(name(value) for value in held.values), ABSENT]
    distinct = sorted({texts[code] for code in np.unique(held.code).tolist()})
    place = {text: number for number, text in enumerate(distinct)}
    table = np.array([place.get(text, -1) for text in texts], dtype=np.int64)
    return table[held.code], distinct


def has(rollouts: Rollouts, key: str) -> bool:
    """Whether any rollout has a value for the key."""
    return bool((_held(rollouts, key).code >= 0).any())


def clusters(rollouts: Rollouts, key: str) -> Ints:
    """The cluster of each task, [T]. InputError unless every task has exactly one."""
    code, names = slices(rollouts, key, label)
    tasks = len(rollouts.tasks)
    lowest, highest = np.full(tasks, len(names)), np.full(tasks, -1)
    np.minimum.at(lowest, rollouts.task, code)
    np.maximum.at(highest, rollouts.task, code)
    absent = names.index(ABSENT) if ABSENT in names else -1
    for task in np.flatnonzero((lowest != highest) | (lowest == absent))[:1].tolist():
        wrong = f"task {rollouts.tasks[task]!r} has no {key!r}"
        if lowest[task] != highest[task] and highest[task] >= 0:
            wrong = f"task {rollouts.tasks[task]!r} has several values of {key!r}"
        raise InputError(f"--cluster {key}: {wrong}; expected one cluster for each task")
    return lowest


def answers(rollouts: Rollouts) -> Column:
    """The answers of rollouts as numbers, equal where they are equal as JSON, [R]; null is no answer.

    InputError when the rollouts never had any: then there is nothing to vote on.
    """
    held = rollouts.labels.get("answer")
    if held is None:
        raise InputError("no rollout has an answer; expected the key 'answer' (--columns answer=KEY) for a vote")
    number: dict[str, int] = {}
    codes = [-1 if value is None else number.setdefault(json.dumps(value), len(number)) for value in held.values]
    code = np.array([*codes, -1])[held.code]
    return Column(np.maximum(code, 0).astype(np.float64), code >= 0)


def _held(rollouts: Rollouts, key: str) -> Labels:
    for name in (f"metadata.{key}", key):
        found = rollouts.labels.get(name)
        if found is not None and bool((found.code >= 0).any()):
            return found
    group = dict(zip(GROUP, rollouts.keys[0], strict=True)).get(key)
    code = np.zeros(len(rollouts), dtype=np.int64)
    return Labels(code - (group is None), [] if group is None else [group])
