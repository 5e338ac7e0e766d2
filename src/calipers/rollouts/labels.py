"""Slices and clusters: rollouts grouped by one of their values."""

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
    """The slice of each rollout of a group, [R], and the names of the slices: numbers by size, then text.

    ``key`` is a dotted path into metadata, else a key of the row, else agent, model or dataset, else
    task, sample or outcome; a rollout without a value belongs to ``__missing__``. ``split+step`` makes one slice of
    each pair of values that occurs.
    """
    labels = _labels_of(rollouts, key)
    if _is_pair(rollouts, key):
        return _pairs([slices(rollouts, part, name) for part in key.split(PAIR)])
    texts = {code: ABSENT if code < 0 else name(labels.values[code]) for code in np.unique(labels.code).tolist()}
    distinct = sorted(set(texts.values()), key=slice_order)
    index = {text: number for number, text in enumerate(distinct)}
    return _translated(labels, {code: index[text] for code, text in texts.items()}), distinct


def _is_pair(rollouts: Rollouts, key: str) -> bool:
    """Whether a key joins several labels with ``+``, and is not itself the name of a label."""
    return PAIR in key and not bool((_labels_of(rollouts, key).code >= 0).any())


def _pairs(cuts: list[tuple[Ints, list[str]]]) -> tuple[Ints, list[str]]:
    """Combine several slicings of the same rollouts: one slice for each combination that occurs, in their order."""
    code = np.zeros(len(cuts[0][0]), dtype=np.int64)
    names = [""]
    for part, texts in cuts:
        pairs, code = np.unique(code * len(texts) + part, return_inverse=True)
        names = [f"{names[n // len(texts)]}, {texts[n % len(texts)]}".removeprefix(", ") for n in pairs.tolist()]
    return code, names


def steps_of(rollouts: Rollouts) -> str:
    """The slice key that separates the training steps of the rollouts: ``step`` or ``split+step``; "" for one step.

    Only readers of training systems add these labels without being asked for them.
    """
    counts = {name: len(np.unique(rollouts.labels[name].code)) for name in (SPLIT, STEP) if name in rollouts.labels}
    if counts.get(SPLIT, 1) > 1:
        return PAIR.join(counts)
    return STEP if counts.get(STEP, 1) > 1 else ""


def over_steps(rollouts: Rollouts) -> list[str]:
    """A list with the note that the rollouts are of several training steps; an empty list if they are of one step."""
    note = "its numbers are over several training steps, the score of no policy; give the file of one step"
    return [note] if steps_of(rollouts) else []


def sliced(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> dict[str, Rollouts]:
    """The rollouts of a group by slice, each with its share of the tasks that a stopping rule left undone."""
    parts = _cut(rollouts, key, name)
    if rollouts.left is None:
        return parts
    left = _cut(rollouts.left, key, name)
    empty = rollouts.where(np.zeros(0, dtype=np.int64))
    names = list(dict.fromkeys([*parts, *left])) if PAIR in key else sorted({*parts, *left}, key=slice_order)
    return {text: replace(parts.get(text, empty), left=left.get(text)) for text in names}


def _cut(rollouts: Rollouts, key: str, name: Callable[[Any], str]) -> dict[str, Rollouts]:
    code, names = slices(rollouts, key, name)
    ends = np.cumsum(np.bincount(code, minlength=len(names)))[:-1]
    rows = np.split(np.argsort(code, kind="stable"), ends)  # sorts once; a mask of all rows per slice is slow
    return {text: rollouts.where(part) for text, part in zip(names, rows, strict=bool(names))}


def has(rollouts: Rollouts, key: str) -> bool:
    """Whether any rollout has a value for the key."""
    if _is_pair(rollouts, key):
        return all(has(rollouts, part) for part in key.split(PAIR))
    return bool((_labels_of(rollouts, key).code >= 0).any())


def without(
    tables: Sequence[Rollouts], exclude: Sequence[tuple[str, str]], name: Callable[[Any], str]
) -> list[Rollouts]:
    """The tables without the rollouts of these slices, (key, value) each, and with a note about each exclusion.

    InputError for a slice that no table has, and for a table that would be empty.
    """
    remaining = list(tables)
    for key, value in exclude:
        option = f"--exclude {key}={value}"
        masks = [_in_slice(table, key, value, name) for table in remaining]
        if not any(mask.any() for mask in masks):
            raise InputError.at(option, *_no_such_slice(remaining, key, value, name))
        if any(mask.all() for mask in masks):
            raise InputError.at(option, "no rollout is left", "exclude less")
        left = [table.left and table.left.where(~_in_slice(table.left, key, value, name)) for table in remaining]
        remaining = [
            replace(_without(table, mask, option), left=undone)
            for table, mask, undone in zip(remaining, masks, left, strict=True)
        ]
    return remaining


def _in_slice(rollouts: Rollouts, key: str, value: str, name: Callable[[Any], str]) -> Bools:
    """Whether each rollout belongs to a slice, in any group, [R]."""
    masks = [np.zeros(0, dtype=bool)]
    for part in rollouts.groups():
        code, names = slices(part, key, name)
        masks.append(code == (names.index(value) if value in names else -1))
    return np.concatenate(masks)


def _without(rollouts: Rollouts, mask: Bools, option: str) -> Rollouts:
    """The rollouts without those marked by the mask, [R], with a note about them; empty groups are dropped, too."""
    if not mask.any():
        return rollouts
    part = rollouts.where(~mask)
    tasks = len(np.unique(rollouts.task[mask]))
    note = f"{option}: {_count(int(mask.sum()), 'rollout')} of {_count(tasks, 'task')} excluded"
    if rollouts.left is not None:  # its groups are those of the table
        return replace(part, notes=[*rollouts.notes, note])
    groups, owner = np.unique(part.owner, return_inverse=True)
    keys = [rollouts.keys[group] for group in groups.tolist()]
    return replace(part, keys=keys, owner=owner, notes=[*rollouts.notes, note])


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _no_such_slice(tables: Sequence[Rollouts], key: str, value: str, name: Callable[[Any], str]) -> tuple[str, str]:
    """The error for a slice that does not exist: what is wrong, and what was expected."""
    parts = [part for table in tables for part in table.groups()]
    if not any(has(part, key) for part in parts):
        return f"no rollout has {key!r}", "expected task, sample, outcome, or a key of the rows or of their metadata"
    known = sorted({text for part in parts for text in slices(part, key, name)[1]}, key=slice_order)
    examples = ", ".join(map(repr, nearest(value, known) or known[:8]))
    return f"no rollout has the value {value!r} of {key!r}", f"expected one of its values, such as {examples}"


def clusters(rollouts: Rollouts, key: str) -> Ints:
    """The cluster of each task, [T]. InputError unless every task has exactly one."""
    return named_clusters(rollouts, key)[0]


def named_clusters(rollouts: Rollouts, key: str) -> tuple[Ints, list[str]]:
    """The cluster of each task, [T], and the names of the clusters. InputError unless every task has exactly one.

    ``book+chapter`` makes a cluster of each pair of values, and every task must have exactly one of each.
    """
    if _is_pair(rollouts, key):
        return _pairs([named_clusters(rollouts, part) for part in key.split(PAIR)])
    code, names = slices(rollouts, key, label)
    tasks = len(rollouts.tasks)
    lowest, highest = np.full(tasks, len(names)), np.full(tasks, -1)
    np.minimum.at(lowest, rollouts.task, code)
    np.maximum.at(highest, rollouts.task, code)
    absent = names.index(ABSENT) if ABSENT in names else -1
    for task in np.flatnonzero((lowest != highest) | (lowest == absent))[:1].tolist():
        problem = f"task {rollouts.tasks[task]!r} has no {key!r}"
        if lowest[task] != highest[task] and highest[task] >= 0:
            problem = f"task {rollouts.tasks[task]!r} has several values for {key!r}"
        raise InputError(f"--cluster {key}: {problem}; expected one cluster for each task")
    return lowest, names


def answers(rollouts: Rollouts) -> Column:
    """The answer of each rollout as a number, equal for answers that are equal as JSON, [R]; null is a gap.

    InputError if the rollouts have no key for answers, as there is nothing to vote on.
    """
    labels = rollouts.labels.get("answer")
    if labels is None:
        raise InputError("no rollout has an answer; expected the key 'answer' (--columns answer=KEY) for a vote")
    numbers: dict[str, int] = {}
    codes = {-1: -1}
    for code in np.unique(labels.code[labels.code >= 0]).tolist():
        value = labels.values[code]
        codes[code] = -1 if value is None else numbers.setdefault(json.dumps(value), len(numbers))
    code = _translated(labels, codes)
    return Column(np.maximum(code, 0).astype(np.float64), code >= 0)


def _translated(labels: Labels, table: Mapping[int, int]) -> Ints:
    """The codes of the rows, [R], replaced by those of the table, which has every code that occurs in these rows.

    Labels are shared by all groups and slices, so the table need not have the values of the other rows.
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
