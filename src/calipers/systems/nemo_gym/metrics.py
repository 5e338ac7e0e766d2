"""NeMo Gym's statistics of every numeric key, per task and over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from calipers.errors import InputError
from calipers.request import Dialect
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints
from calipers.systems.nemo_gym.row_builder import Cells, GymRows, order, overlaid
from calipers.systems.nemo_gym.words import DEFAULT, ROLLOUT, TASK, WORDS

WORTH_THREADS = 200_000  # rollouts; numpy works on arrays of that size outside the interpreter's lock
THREADS = 2
NEMO_GYM = Dialect("nemo_gym", metrics=WORDS, default=DEFAULT)


@dataclass(frozen=True, slots=True)
class Frame:
    """The rollouts of one request, by task and rollout."""

    rows: GymRows
    chosen: Ints  # [R] which of the rows, in their order
    tasks: Sequence[int | str]  # [T] ascending
    by: Groups  # [R] -> [T]
    fields: Mapping[str, Cells]  # [R] the numeric keys, by first appearance, as the statistics see them

    @property
    def whole(self) -> bool:
        """Whether every key is an integer in every rollout: then so are its extremes."""
        return all(bool((cells.given & cells.whole).all()) for cells in self.fields.values())


@dataclass(frozen=True, slots=True)
class Described:
    """The five statistics of one key over N sets of rollouts; a mask says where there is one."""

    values: Mapping[str, Floats]  # statistic -> [N]
    given: Mapping[str, Bools]  # statistic -> [N]
    exact: Mapping[str, Mapping[int, int]]  # max, min -> set -> the integer, where no double holds it


def frame(rows: GymRows, chosen: Ints) -> Frame:
    """Some rows as one request. InputError where a (task, rollout) appears twice."""
    chosen = order(rows, chosen)
    task, rollout = rows.task[chosen], rows.rollout[chosen]
    new = np.ones(len(task), dtype=bool)
    new[1:] = task[1:] != task[:-1]
    for at in np.flatnonzero(~new[1:] & (rollout[1:] == rollout[:-1]))[:1].tolist():
        index = task[at] if rows.names is None else rows.names[task[at]]
        raise InputError(f"{TASK} {index}, {ROLLOUT} {rollout[at]} appears twice; expected each rollout once")
    tasks: list[int | str] = task[new].tolist()
    if rows.names is not None:
        tasks = [rows.names[code] for code in task[new].tolist()]
    by = Groups.of(np.cumsum(new) - 1, len(tasks))
    names = _by_appearance(rows, chosen)
    fields = {name: overlaid(rows, name).take(chosen) for name in names}
    return Frame(rows, chosen, tasks, by, fields)


def _by_appearance(rows: GymRows, chosen: Ints) -> list[str]:
    """The numeric keys in the order a walk over the rollouts meets them; a row's own before its usage's."""
    first: dict[str, tuple[int, int]] = {}
    for name in {**rows.top, **rows.usage}:
        if name in (TASK, ROLLOUT):
            continue
        given = overlaid(rows, name).given[chosen]
        if given.any():
            at = int(given.argmax())
            keys = rows.keys[int(chosen[at])]
            first[name] = at, [*keys.top, *keys.usage].index(name)
    return sorted(first, key=first.__getitem__)


def per_task(of: Frame) -> dict[str, Described]:
    """The statistics of every key, for each task."""
    return _each(of, of.by)


def pooled(of: Frame) -> dict[str, Described]:
    """The statistics of every key over all rollouts together, each weighing the same."""
    return _each(of, Groups.of(np.zeros(len(of.chosen), dtype=np.int64), 1))


def over(of: Frame, rows: Ints) -> dict[str, Described]:
    """The statistics of every key over some of the rollouts."""
    by = Groups.of(np.zeros(len(rows), dtype=np.int64), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: describe(cells.take(rows), by) for name, cells in of.fields.items()}


def _each(of: Frame, by: Groups) -> dict[str, Described]:
    def one(name: str) -> Described:
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has settings of its own
            return describe(of.fields[name], by)

    if len(of.chosen) < WORTH_THREADS:
        return {name: one(name) for name in of.fields}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(of.fields, pool.map(one, of.fields), strict=True))


def describe(cells: Cells, by: Groups) -> Described:
    """The five statistics of each set of rollouts, over the numbers it has; NaN is none.

    The standard deviation has n - 1 and needs two numbers, but is 0 in a set of exactly one rollout. A
    sum beyond every double is infinite, and so are the mean and the deviation made of it. Sums are added as
    NeMo Gym's pandas adds them, so that its file is met to the last digit; see `_sums`.
    """
    column = Column(cells.values, cells.given & ~np.isnan(cells.values))
    count = by.count(column.given)
    there = count > 0
    n = np.maximum(count, 1)
    mean = _sums(column.values, column.given, by) / n
    low, high, middle = (np.zeros(by.size) for _ in range(3))
    for tasks, values in by.blocks(column):
        ranked = np.sort(values, axis=1)
        size = ranked.shape[1]
        low[tasks], high[tasks] = ranked[:, 0], ranked[:, -1]
        half = ranked[:, (size - 1) // 2]
        middle[tasks] = half if size % 2 else (half + ranked[:, size // 2]) / 2
    centred = column.values - np.repeat(mean, np.diff(by.starts))
    spread = np.sqrt(_sums(centred * centred, column.given, by) / np.maximum(count - 1, 1))
    alone = there & (np.diff(by.starts) == 1)
    statistics = {"mean": mean, "max": high, "min": low, "median": middle, "std": np.where(alone, 0.0, spread)}
    given = {name: there & ~np.isnan(values) for name, values in statistics.items()}
    given["std"] &= alone | (count > 1)
    exact = {"max": _exact(max, cells, by, high), "min": _exact(min, cells, by, low)}
    return Described({name: values + 0.0 for name, values in statistics.items()}, given, exact)


def _exact(extreme: Callable[[int, int], int], cells: Cells, by: Groups, nearest: Floats) -> dict[int, int]:
    """The extreme of each set in which it is an integer that no double may hold; ``nearest`` are the doubles."""
    exact: dict[int, int] = {}
    for row, value in cells.odd.items():
        index = int(by.code[row])
        if cells.given[row] and not isinstance(value, bool) and float(value) == nearest[index]:
            exact[index] = extreme(exact.get(index, value), value)
    return exact


def _sums(values: Floats, given: Bools, by: Groups) -> Floats:
    """The sum of each set, [N]: over its rollouts in their order, a missing one as 0, in numpy's pairwise way."""
    filled = np.where(given, values, 0.0)
    sizes = np.diff(by.starts)
    sums = np.zeros(by.size)
    for size in np.unique(sizes[sizes > 0]).tolist():
        sets = np.flatnonzero(sizes == size)
        sums[sets] = filled[by.starts[sets][:, None] + np.arange(size)].sum(axis=1)
    return sums
