"""NeMo Gym's helpers for hooks: pass@k, the mean of the first k, and majority@k, in percent.

They need no optional dependency. `lent.reward_profile` exports them under NeMo Gym's own module name.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from calipers.metrics import share_without

Tasks = Sequence[Sequence[Mapping[str, Any]]]
ScoreFn = Callable[[Any], Mapping[str, float]]
Scores = list[list[dict[str, float]]]
Indexed = tuple[list[int], list[float]]
"""The indices of a task's rollouts that have a score, and these scores."""

NO_ANSWER: Final = "no_answer"
SUFFIXES: Final = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


def compute_pass_majority_metrics(
    tasks: Tasks, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], Scores, list[str], int]:
    """NeMo Gym's pass and majority metrics, for every k from 1 to the largest number of rollouts of a task.

    Returns (metrics, the scores of every rollout, the scores' names, the largest k). Every metric is a mean over tasks,
    times 100:

    - ``pass@k/NAME``: for a task whose scores are all 0 or 1, the unbiased estimate over all its rollouts; for any
      other task, the best of its first k scores. Tasks with fewer than k scores are left out.
    - ``pass@1[avg-of-k]/NAME``: the mean of the first k scores, or of all if there are fewer.
    - ``majority@k/NAME``: the score of the most frequent (answer, score) among the first k rollouts; ties are averaged,
      and a task without an answer counts as 0. Answers that are lists or objects are compared by their content.

    Without tasks, all four are empty.
    """
    if not tasks:
        return {}, [], [], 0
    scores = _scores(tasks, score_fn, answer_key)
    names = sorted({name for task in scores for row in task for name in row})
    most = max(map(len, scores))
    metrics: dict[str, Any] = {}
    indexed = {name: _indexed(scores, name) for name in names}
    passes = {name: _pass_at([values for _, values in indexed[name]], most) for name in names}
    votes = {}
    if answer_key is not None:
        votes = {name: _majority(tasks, scores, name, answer_key, most) for name in names}
    for k in range(1, most + 1):
        for name in names:
            if (chances := passes[name][k - 1]) is not None:
                metrics[f"pass@{k}/{name}"] = chances
            if means := [_mean(values) for values in _of_first(indexed[name], k) if values]:
                metrics[f"pass@1[avg-of-{k}]/{name}"] = _percent(means)
            if votes:
                metrics[f"majority@{k}/{name}"] = votes[name][k - 1]
    runs = {name: _per_run(scores, name, most) for name in names}
    metrics["per_sample_aggregate"] = runs
    for k in range(2, most + 1):
        for name in names:
            first = runs[name][:k]
            if len(first) > 1:
                deviation = _deviation(first)
                metrics[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = deviation
                metrics[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = deviation / math.sqrt(len(first))
    return metrics, scores, names, most


def add_avg_sample_std_dev(
    metrics: dict[str, Any], score_dicts: Scores, score_names: Sequence[str], max_k: int
) -> None:
    """Add ``pass@1[avg-of-k]/NAME/avg_sample_std_dev``: the mean over tasks of the first k scores' standard deviation.

    It is in the unit of the scores, not in percent. Tasks with fewer than two scores are left out.
    """
    indexed = {name: _indexed(score_dicts, name) for name in score_names}
    for k in range(2, max_k + 1):
        for name in score_names:
            deviations = [_deviation(values) for values in _of_first(indexed[name], k) if len(values) > 1]
            if deviations:
                metrics[f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev"] = _mean(deviations)


def compute_subset_metrics(
    tasks: Tasks, subset_key: str, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """The pass and majority metrics of each subset of tasks, as ``SUBSET/METRIC``.

    A task's subset is the value of ``subset_key`` in its first rollout. Tasks without such a value are left out.
    """
    subsets: dict[Any, list[Sequence[Mapping[str, Any]]]] = {}
    for task in tasks:
        if task and (subset := task[0].get(subset_key)):
            subsets.setdefault(subset, []).append(task)
    subset_metrics: dict[str, Any] = {}
    for subset, subset_tasks in subsets.items():
        metrics = compute_pass_majority_metrics(subset_tasks, score_fn, answer_key)[0]
        metrics.pop("per_sample_aggregate", None)
        subset_metrics.update({f"{subset}/{name}": value for name, value in metrics.items()})
    return subset_metrics


def highest_k_metrics(
    agent_metrics: Mapping[str, Any],
    pattern: str,
    score_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The metrics ``pattern/NAME`` with the largest k; ``{k}`` in the pattern stands for the number.

    >>> highest_k_metrics({"pass@1/accuracy": 10.0, "pass@4/accuracy": 40.0, "pass@4/f1": 60.0}, "pass@{k}", ["f1"])
    {'pass@4/f1': 60.0}
    """
    head, _, tail = pattern.partition("{k}")
    shape = re.compile(f"{re.escape(head)}([0-9]+){re.escape(tail)}/(.+)", re.DOTALL)
    by_k: dict[int, dict[str, Any]] = {}
    for key, value in agent_metrics.items():
        match = shape.fullmatch(key)
        if match is None or match[2].endswith(SUFFIXES):
            continue
        if (score_names is None or match[2] in score_names) and match[2] not in (exclude_names or ()):
            by_k.setdefault(int(match[1]), {})[key] = value
    return by_k[max(by_k)] if by_k else {}


def _scores(tasks: Tasks, score_fn: ScoreFn | None, answer_key: str | None) -> Scores:
    by_task: Scores = []
    for task in tasks:
        rows = []
        for row in task:
            scores = dict(score_fn(row)) if score_fn else {"accuracy": row["reward"]}
            scores = {name: int(value) if isinstance(value, bool) else value for name, value in scores.items()}
            if answer_key is not None:
                scores[NO_ANSWER] = int(row.get(answer_key) is None)
            rows.append(scores)
        by_task.append(rows)
    return by_task


def _indexed(scores: Scores, name: str) -> list[Indexed]:
    """For each task, the scores of one name with the indices of their rollouts; rollouts without it are left out."""
    by_task = [[(index, row[name]) for index, row in enumerate(task) if name in row] for task in scores]
    return [([index for index, _ in pairs], [score for _, score in pairs]) for pairs in by_task]


def _of_first(indexed: Sequence[Indexed], k: int) -> list[list[float]]:
    """For each task, the scores of its first k rollouts."""
    return [values[: bisect_left(indices, k)] for indices, values in indexed]


def _pass_at(values: Sequence[Sequence[float]], most: int) -> list[float | None]:
    sums: list[list[float]] = [[] for _ in range(most)]
    for task in values:
        n = len(task)
        if all(score in (0, 1) for score in task):
            passed = task.count(1)
            chances = [1.0 - share_without(n, passed, k) for k in range(1, n + 1)]
        else:
            chances = list(accumulate(task, max))
        for k, chance in enumerate(chances):
            sums[k].append(chance)
    return [_percent(chances) if chances else None for chances in sums]


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
                    value = _mean(tied)
            sums[k].append(value)
    return list(map(_percent, sums))


def _countable(answer: Any) -> Any:
    """A hashable stand-in for an answer: lists, objects and sets are replaced by their content.

    Equal answers have equal stand-ins, whatever the order of an object's keys. A list never equals a tuple.
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
    """For each rollout index, the mean over tasks of the scores at this index, in percent."""
    means = []
    for index in range(most):
        values = [task[index][name] for task in scores if index < len(task) and name in task[index]]
        if values:
            means.append(_percent(values))
    return means


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation with n - 1, computed as NeMo Gym does, so that the last digit agrees."""
    mean = _mean(values)
    return math.sqrt(_sum([(value - mean) ** 2 for value in values]) / (len(values) - 1))


def _percent(values: Sequence[float]) -> float:
    return 100.0 * _sum(values) / len(values)


def _mean(values: Sequence[float]) -> float:
    return _sum(values) / len(values)


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # the sum overflows, or has infinities of both signs
        return sum(map(float, values))
