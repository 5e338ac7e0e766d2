"""NeMo Gym's statistics of every numeric key, per task and over all; and its pass@k and majority@k, in percent."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from calipers.errors import InputError
from calipers.metrics.metric import share_without
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
    return Described({name: values + 0.0 for name, values in statistics.items()}, given)


def _sums(values: Floats, given: Bools, by: Groups) -> Floats:
    """The sum of each set, [N]: over its rollouts in their order, a missing one as 0, in numpy's pairwise way."""
    filled = np.where(given, values, 0.0)
    sizes = np.diff(by.starts)
    sums = np.zeros(by.size)
    for size in np.unique(sizes[sizes > 0]).tolist():
        sets = np.flatnonzero(sizes == size)
        sums[sets] = filled[by.starts[sets][:, None] + np.arange(size)].sum(axis=1)
    return sums


Tasks = Sequence[Sequence[Mapping[str, Any]]]
Score = Callable[[Any], Mapping[str, float]]
Scores = list[list[dict[str, float]]]

NO_ANSWER = "no_answer"
SUFFIXES = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


def pass_majority(
    tasks: Tasks, score_fn: Score | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], Scores, list[str], int]:
    """(metrics, every rollout's scores, their names, the most rollouts a task has), for k from 1 to that.

    ``pass@k/NAME`` is without bias over all rollouts of a task whose scores are all 0 or 1, the best of
    the first k in any other, and leaves out a task with fewer than k; ``pass@1[avg-of-k]/NAME`` is the
    mean of the first k, or of as many as there are; ``majority@k/NAME`` is the score of the commonest
    (answer, score) among the first k, ties averaged, 0 where nobody answered; an answer that is a list
    or an object is counted by what it holds. All are means over tasks, times 100. No tasks give nothing.
    """
    scores = _scores(tasks, score_fn, answer_key)
    names = sorted({name for task in scores for row in task for name in row})
    most = max(map(len, scores), default=0)
    metrics: dict[str, Any] = {}
    values = {name: _values(scores, name) for name in names}
    passes = {name: _pass_at(values[name], most) for name in names}
    means = {name: _mean_of_first(values[name], most) for name in names}
    votes = {name: _majority(tasks, scores, name, answer_key, most) for name in names} if answer_key else {}
    for k in range(most):
        for name in names:
            if passes[name][k] is not None:
                metrics[f"pass@{k + 1}/{name}"] = passes[name][k]
            metrics[f"pass@1[avg-of-{k + 1}]/{name}"] = means[name][k]
            if answer_key:
                metrics[f"majority@{k + 1}/{name}"] = votes[name][k]
    if not most:
        return metrics, scores, names, most
    runs = {name: _per_run(scores, name, most) for name in names}
    metrics["per_sample_aggregate"] = runs
    for k in range(2, most + 1):
        for name in names:
            if len(runs[name]) >= k:
                deviation = _deviation(runs[name][:k])
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[0]}"] = deviation
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[1]}"] = deviation / math.sqrt(k)
    return metrics, scores, names, most


def sample_spread(scores: Scores, names: Sequence[str], most: int) -> dict[str, float]:
    """``pass@1[avg-of-k]/NAME/avg_sample_std_dev``: the mean over tasks of the spread of the first k scores.

    In the unit of the scores, not in percent. A task with fewer than two scores has no spread.
    """
    metrics = {}
    for k in range(2, most + 1):
        for name in names:
            spreads = [_deviation(task[:k].tolist()) for task in _values(scores, name) if len(task) > 1]
            if spreads:
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[2]}"] = math.fsum(spreads) / len(spreads)
    return metrics


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation with n - 1 by NeMo Gym's formula, of which its helpers give the last digit."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def subsets(tasks: Tasks, key: str) -> dict[Any, list[Sequence[Mapping[str, Any]]]]:
    """Tasks by what their first rollout has under a key; those with nothing there are left out."""
    by_value: dict[Any, list[Sequence[Mapping[str, Any]]]] = {}
    for task in tasks:
        if task and (value := task[0].get(key)):
            by_value.setdefault(value, []).append(task)
    return by_value


def highest_k(
    metrics: Mapping[str, Any],
    pattern: str,
    names: Collection[str] | None = None,
    without: Collection[str] | None = None,
) -> dict[str, Any]:
    """The metrics ``pattern/NAME`` at the largest k there is, ``{k}`` in the pattern standing for it.

    >>> highest_k({"pass@1/accuracy": 10.0, "pass@4/accuracy": 40.0, "pass@4/f1": 60.0}, "pass@{k}", ["accuracy"])
    {'pass@4/accuracy': 40.0}
    """
    head, _, tail = pattern.partition("{k}")
    shape = re.compile(f"{re.escape(head)}([0-9]+){re.escape(tail)}/(.+)", re.DOTALL)
    by_k: dict[int, dict[str, Any]] = {}
    for key, value in metrics.items():
        match = shape.fullmatch(key)
        if match is None or match[2].endswith(tuple(f"/{suffix}" for suffix in SUFFIXES)):
            continue
        if (names is None or match[2] in names) and match[2] not in (without or ()):
            by_k.setdefault(int(match[1]), {})[key] = value
    return by_k[max(by_k)] if by_k else {}


def _scores(tasks: Tasks, score_fn: Score | None, answer_key: str | None) -> Scores:
    by_task: Scores = []
    for task in tasks:
        rows = []
        for row in task:
            scores = dict(score_fn(row)) if score_fn else {"accuracy": row["reward"]}
            scores = {name: int(value) if isinstance(value, bool) else value for name, value in scores.items()}
            if answer_key:
                scores[NO_ANSWER] = int(row.get(answer_key) is None)
            rows.append(scores)
        by_task.append(rows)
    return by_task


def _values(scores: Scores, name: str) -> list[Floats]:
    """The scores of that name, task by task; a rollout without it is left out."""
    return [np.array([row[name] for row in task if name in row], dtype=np.float64) for task in scores]


def _pass_at(values: Sequence[Floats], most: int) -> list[float | None]:
    sums: list[list[float]] = [[] for _ in range(most)]
    for task in values:
        n = len(task)
        if bool(((task == 0) | (task == 1)).all()):
            right = int(task.sum())
            chances = [1.0 - share_without(n, right, k) for k in range(1, n + 1)]
        else:
            chances = np.maximum.accumulate(task).tolist()
        for k, chance in enumerate(chances):
            sums[k].append(chance)
    return [100.0 * math.fsum(chances) / len(chances) if chances else None for chances in sums]


def _mean_of_first(values: Sequence[Floats], most: int) -> list[float]:
    kept = [task for task in values if len(task)]
    averages = []
    for k in range(1, most + 1):
        means = [math.fsum(task[:k].tolist()) / min(k, len(task)) for task in kept]
        averages.append(100.0 * math.fsum(means) / len(means))
    return averages


def _majority(tasks: Tasks, scores: Scores, name: str, answer_key: str, most: int) -> list[float]:
    sums: list[list[float]] = [[] for _ in range(most)]
    for task, rows in zip(tasks, scores, strict=True):
        votes: Counter[tuple[Any, float]] = Counter()
        value = 0.0
        for k in range(most):
            if k < len(task):
                answer = task[k].get(answer_key)
                if answer is not None and name in rows[k]:
                    votes[_countable(answer), rows[k][name]] += 1
                    top = max(votes.values())
                    tied = [score for (_, score), count in votes.items() if count == top]
                    value = math.fsum(tied) / len(tied)
            sums[k].append(value)
    return [100.0 * math.fsum(values) / len(values) for values in sums]


def _countable(answer: Any) -> Any:
    """An answer that can be counted: a list or an object by what it holds, where Python cannot hash it.

    Equal answers stay equal, whatever the order of an object's keys; a list is no tuple.
    """
    if isinstance(answer, list):
        return list, tuple(map(_countable, answer))
    if isinstance(answer, tuple):
        return tuple(map(_countable, answer))
    if isinstance(answer, (set, frozenset)):
        return frozenset(answer)
    if isinstance(answer, Mapping):
        return dict, frozenset((key, _countable(value)) for key, value in answer.items())
    return answer


def _per_run(scores: Scores, name: str, most: int) -> list[float]:
    """The mean over tasks of the rollouts at each place of their lists, in percent."""
    means = []
    for index in range(most):
        values = [task[index][name] for task in scores if index < len(task) and name in task[index]]
        if values:
            means.append(100.0 * math.fsum(values) / len(values))
    return means
