"""Labels laid beside the rollouts they are for; a label that is for none, or for several, is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.errors import InputError, UnknownName
from calipers.jobs.judge_check_labels import Label, LabelFile
from calipers.rollouts.column import Bools, Column, Floats
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import GROUP
from calipers.rollouts.table import Rollouts

Place = tuple[int, int]  # group, row of it


@dataclass(frozen=True, slots=True)
class Rated:
    """One group's rollouts, the judge's scores of them, and what each rater says, [R, raters]."""

    part: Rollouts
    judge: str
    judged: Column
    ratings: Floats
    rated: Bools
    raters: Sequence[str]


def laid_out(parts: Sequence[Rollouts], told: LabelFile, reward: str | None) -> list[Rated]:
    """The groups that have labels, each with the ratings of its rollouts."""
    where: dict[tuple[str, int], list[Place]] = {}
    alone: dict[str, list[Place]] = {}
    for number, part in enumerate(parts):
        names = part.tasks
        for row, (task, sample) in enumerate(zip(part.task.tolist(), part.sample.tolist(), strict=True)):
            where.setdefault((names[task], sample), []).append((number, row))
            alone.setdefault(names[task], []).append((number, row))
    ratings = [np.zeros((len(part), len(told.raters))) for part in parts]
    rated = [np.zeros((len(part), len(told.raters)), dtype=bool) for part in parts]
    lines: dict[tuple[Place, str], int] = {}
    absent: list[Label] = []
    column = {rater: place for place, rater in enumerate(told.raters)}
    for label in told.labels:
        found = alone.get(label.task, []) if label.sample is None else where.get((label.task, label.sample), [])
        found = [place for place in found if _fits(parts[place[0]], label)]
        if not found:
            absent.append(label)
            continue
        if len(found) > 1:
            raise _unclear(told.path, label, [parts[number] for number, _ in found])
        (number, row) = found[0]
        first = lines.setdefault((found[0], label.rater), label.line)
        if first != label.line:
            wrong = f"task {label.task!r} sample {int(parts[number].sample[row])} stands twice, first on line {first}"
            right = "expected one label each, or a column rater that tells them apart"
            raise InputError.at(f"{told.path}:{label.line}", wrong, right)
        ratings[number][row, column[label.rater]] = label.value
        rated[number][row, column[label.rater]] = True
    if absent:
        raise _not_there(told, absent)
    return [
        Rated(part, key, contributed(part, key), ratings[number], rated[number], told.raters)
        for number, part in enumerate(parts)
        if rated[number].any()
        for key in [_judge(part, reward)]
    ]


def _fits(part: Rollouts, label: Label) -> bool:
    own = dict(zip(GROUP, part.keys[0], strict=True))
    return all(own[name] == value for name, value in label.group.items())


def _unclear(path: str, label: Label, those: Sequence[Rollouts]) -> InputError:
    if len({tuple(part.keys[0]) for part in those}) > 1:
        wrong = f"task {label.task!r} is in {len(those)} groups of the run"
        return InputError.at(f"{path}:{label.line}", wrong, "expected a column model, agent or dataset that tells them")
    wrong = f"task {label.task!r} has {len(those)} samples"
    return InputError.at(f"{path}:{label.line}", wrong, "expected a column sample that says which is meant")


def _not_there(told: LabelFile, absent: Sequence[Label]) -> InputError:
    first = absent[0]
    what = f"task {first.task!r}" + ("" if first.sample is None else f" sample {first.sample}")
    many = f"{len(absent):,} of {len(told.labels):,} labels are for rollouts that are not in the run, first {what}"
    one = f"{what} is not in the run"
    said = one if len(absent) == 1 else many
    return InputError.at(f"{told.path}:{first.line}", said, "expected the tasks and samples of this run")


def _judge(part: Rollouts, chosen: str | None) -> str:
    keys = sorted(part.rewards)
    if chosen:
        if chosen not in keys:
            raise UnknownName.of("reward", chosen, keys)
        return chosen
    if "reward" in keys or not keys:
        return "reward"
    if len(keys) > 1:
        raise InputError(f"there are several rewards ({', '.join(keys)}); choose the judge's with --reward KEY")
    return keys[0]
