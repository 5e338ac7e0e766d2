"""Slices and clusters: rollouts grouped by a value that they carry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, nearest
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.record import ABSENT, GROUP, OUTCOMES, label
from calipers.rollouts.table import Labels, Rollouts

PAIR: Final = "+"
STEP: Final = "step"  # the training step of a rollout
SPLIT: Final = "split"  # whether it was for training or for an evaluation
_NUMBER: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")  # as JSON writes one


def slices(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> tuple[Ints, list[str]]:
    """Which slice each rollout of a group belongs to, [R], and the slices' names: numbers by size, then text.

    ``key`` is a dotted path into metadata, else a key of the row, else agent, model or dataset, else
    task, sample or outcome; a rollout without it belongs to ``__missing__``. ``split+step`` is each pair of both.
    """
    labels = _labels_of(rollouts, key)
    if _is_pair(rollouts, key):
        return _pairs([slices(rollouts, part, name) for part in key.split(PAIR)])
    texts = {code: ABSENT if code < 0 else name(labels.values[code]) for code in np.unique(labels.code).tolist()}
    distinct = sorted(set(texts.values()), key=slice_order)
    index = {text: number for number, text in enumerate(distinct)}
    return _translated(labels, {code: index[text] for code, text in texts.items()}), distinct


def _is_pair(rollouts: Rollouts, key: str) -> bool:
    """Whether a key names several labels, and no label has this very name."""
    return PAIR in key and not bool((_labels_of(rollouts, key).code >= 0).any())


def _pairs(cuts: list[tuple[Ints, list[str]]]) -> tuple[Ints, list[str]]:
    """Several ways to cut the same rollouts as one: a slice for each combination that occurs, in their order."""
    code = np.zeros(len(cuts[0][0]), dtype=np.int64)
    names = [""]
    for part, texts in cuts:
        kept, code = np.unique(code * len(texts) + part, return_inverse=True)
        names = [f"{names[at // len(texts)]}, {texts[at % len(texts)]}".removeprefix(", ") for at in kept.tolist()]
    return code, names


def steps_of(rollouts: Rollouts) -> str:
    """What tells the steps of a training run apart, where the rollouts are of several: ``step``, or ``split+step``.

    "" for the rollouts of one step: only the reader of a training system keeps steps that nobody asked for.
    """
    counts = {name: len(np.unique(rollouts.labels[name].code)) for name in (SPLIT, STEP) if name in rollouts.labels}
    if counts.get(SPLIT, 1) > 1:
        return PAIR.join(counts)
    return STEP if counts.get(STEP, 1) > 1 else ""


def over_steps(rollouts: Rollouts) -> list[str]:
    """A note for numbers of rollouts of several training steps; none for those of one."""
    note = "its numbers are over several training steps, the score of no policy; give the file of one step"
    return [note] if steps_of(rollouts) else []


def sliced(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> dict[str, Rollouts]:
    """The rollouts of a group slice by slice; a slice has its share of what a stopping rule left undone, too."""
    parts = _cut(rollouts, key, name)
    if rollouts.left is None:
        return parts
    left = _cut(rollouts.left, key, name)
    empty = rollouts.where(np.zeros(0, dtype=np.int64))
    every = list(dict.fromkeys([*parts, *left])) if PAIR in key else sorted({*parts, *left}, key=slice_order)
    return {part: replace(parts.get(part, empty), left=left.get(part)) for part in every}


def _cut(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> dict[str, Rollouts]:
    code, names = slices(rollouts, key, name)
    ends = np.cumsum(np.bincount(code, minlength=len(names)))[:-1]
    rows = np.split(np.argsort(code, kind="stable"), ends)  # looking at all rows once for each slice is slow
    return {part: rollouts.where(some) for part, some in zip(names, rows, strict=bool(names))}


def has(rollouts: Rollouts, key: str) -> bool:
    """Whether any rollout has a value for the key."""
    if _is_pair(rollouts, key):
        return all(has(rollouts, part) for part in key.split(PAIR))
    return bool((_labels_of(rollouts, key).code >= 0).any())


def without(
    tables: Sequence[Rollouts], exclude: Sequence[tuple[str, str]], name: Callable[[Any], str]
) -> list[Rollouts]:
    """The tables without the rollouts of these slices, (key, value) each, and with notes on that.

    InputError for a slice that no table has, and where nothing is left of a table.
    """
    remaining = list(tables)
    for key, value in exclude:
        place = f"--exclude {key}={value}"
        masks = [_in_slice(table, key, value, name) for table in remaining]
        if not any(mask.any() for mask in masks):
            raise InputError.at(place, *_not_there(remaining, key, value, name))
        if any(mask.all() for mask in masks):
            raise InputError.at(place, "no rollout is left", "exclude less")
        left = [table.left and table.left.where(~_in_slice(table.left, key, value, name)) for table in remaining]
        remaining = [
            replace(_outside(table, mask, place), left=undone)
            for table, mask, undone in zip(remaining, masks, left, strict=True)
        ]
    return remaining


def _in_slice(rollouts: Rollouts, key: str, value: str, name: Callable[[Any], str]) -> Bools:
    """The rollouts of a slice, whichever their group, [R]."""
    masks = [np.zeros(0, dtype=bool)]
    for part in rollouts.groups():
        code, names = slices(part, key, name)
        masks.append(code == (names.index(value) if value in names else -1))
    return np.concatenate(masks)


def _outside(rollouts: Rollouts, mask: Bools, place: str) -> Rollouts:
    """The rollouts that are not marked, [R], and a note on the others; groups with none left go, too."""
    if not mask.any():
        return rollouts
    part = rollouts.where(~mask)
    tasks = len(np.unique(rollouts.task[mask]))
    note = f"{place}: {_many(int(mask.sum()), 'rollout')} of {_many(tasks, 'task')} excluded"
    if rollouts.left is not None:  # its groups are those of the table
        return replace(part, notes=[*rollouts.notes, note])
    groups, owner = np.unique(part.owner, return_inverse=True)
    keys = [rollouts.keys[group] for group in groups.tolist()]
    return replace(part, keys=keys, owner=owner, notes=[*rollouts.notes, note])


def _many(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _not_there(tables: Sequence[Rollouts], key: str, value: str, name: Callable[[Any], str]) -> tuple[str, str]:
    """Why a slice cannot be excluded, and what could be."""
    parts = [part for table in tables for part in table.groups()]
    if not any(has(part, key) for part in parts):
        return f"no rollout has {key!r}", "expected task, sample, outcome, or a key of the rows or of their metadata"
    known = sorted({text for part in parts for text in slices(part, key, name)[1]}, key=slice_order)
    some = ", ".join(map(repr, nearest(value, known) or known[:8]))
    return f"no rollout has the value {value!r} of {key!r}", f"expected one of its values, such as {some}"


def clusters(rollouts: Rollouts, key: str) -> Ints:
    """The cluster of each task, [T]. InputError unless every task has exactly one."""
    return named_clusters(rollouts, key)[0]


def named_clusters(rollouts: Rollouts, key: str) -> tuple[Ints, list[str]]:
    """The cluster of each task, [T], and the names of the clusters. InputError unless every task has exactly one."""
    code, names = slices(rollouts, key, label)
    tasks = len(rollouts.tasks)
    lowest, highest = np.full(tasks, len(names)), np.full(tasks, -1)
    np.minimum.at(lowest, rollouts.task, code)
    np.maximum.at(highest, rollouts.task, code)
    absent = names.index(ABSENT) if ABSENT in names else -1
    for task in np.flatnonzero((lowest != highest) | (lowest == absent))[:1].tolist():
        wrong = f"task {rollouts.tasks[task]!r} has no {key!r}"
        if lowest[task] != highest[task] and highest[task] >= 0:
            wrong = f"task {rollouts.tasks[task]!r} has several values for {key!r}"
        raise InputError(f"--cluster {key}: {wrong}; expected one cluster for each task")
    return lowest, names


def answers(rollouts: Rollouts) -> Column:
    """The answers of rollouts as numbers, equal where they are equal as JSON, [R]; null is no answer.

    InputError when the rollouts never had any: then there is nothing to vote on.
    """
    labels = rollouts.labels.get("answer")
    if labels is None:
        raise InputError("no rollout has an answer; expected the key 'answer' (--columns answer=KEY) for a vote")
    number: dict[str, int] = {}
    codes = {-1: -1}
    for code in np.unique(labels.code[labels.code >= 0]).tolist():
        value = labels.values[code]
        codes[code] = -1 if value is None else number.setdefault(json.dumps(value), len(number))
    code = _translated(labels, codes)
    return Column(np.maximum(code, 0).astype(np.float64), code >= 0)


def _translated(labels: Labels, table: Mapping[int, int]) -> Ints:
    """The codes of some rows, each by what stands for it.

    Labels are shared by all groups and slices: what others have in them costs these rows nothing.
    """
    new = np.empty(len(labels.values) + 1, dtype=np.int64)  # -1 is the last
    new[list(table)] = list(table.values())
    return new[labels.code]


def slice_order(name: str) -> tuple[int, float, str]:
    """The order of slices: numbers by size, before all other names."""
    return (0, float(name), name) if _NUMBER.fullmatch(name) else (1, 0.0, name)


def _labels_of(rollouts: Rollouts, key: str) -> Labels:
    for name in (f"metadata.{key}", key):
        labels = rollouts.labels.get(name)
        if labels is not None and bool((labels.code >= 0).any()):
            return labels
    if key == "task":
        return Labels(rollouts.task, rollouts.tasks)
    if key == "sample":
        numbers, code = np.unique(rollouts.sample, return_inverse=True)
        return Labels(code, numbers.tolist())
    if key == "outcome":
        return Labels(rollouts.outcome.astype(np.int64), OUTCOMES)
    group = dict(zip(GROUP, rollouts.keys[0], strict=True)).get(key)
    code = np.zeros(len(rollouts), dtype=np.int64)
    return Labels(code - (group is None), [] if group is None else [group])
