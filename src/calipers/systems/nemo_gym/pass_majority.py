"""NeMo Gym's helpers for hooks: pass@k, the mean of the first k and majority@k, in percent.

They need no extra; `lent.reward_profile` lends them under their names.
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
Placed = tuple[list[int], list[float]]

NO_ANSWER: Final = "no_answer"
SUFFIXES: Final = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


def compute_pass_majority_metrics(
    tasks: Tasks, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], Scores, list[str], int]:
    """(metrics, every rollout's scores, their names, the most rollouts a task has), for k from 1 to that.

    ``pass@k/NAME`` is without bias over all rollouts of a task whose scores are all 0 or 1, the best of
    the first k in any other, and leaves out a task with fewer than k; ``pass@1[avg-of-k]/NAME`` is the
    mean of the first k, or of as many as there are; ``majority@k/NAME`` is the score of the commonest
    (answer, score) among the first k, ties averaged, 0 where nobody answered; an answer that is a list
    or an object is counted by what it holds. All are means over tasks, times 100. No tasks give nothing.
    """
    if not tasks:
        return {}, [], [], 0
    scores = _scores(tasks, score_fn, answer_key)
    names = sorted({name for task in scores for row in task for name in row})
    most = max(map(len, scores))
    metrics: dict[str, Any] = {}
    placed = {name: _placed(scores, name) for name in names}
    passes = {name: _pass_at([values for _, values in placed[name]], most) for name in names}
    votes = {}
    if answer_key is not None:
        votes = {name: _majority(tasks, scores, name, answer_key, most) for name in names}
    for k in range(1, most + 1):
        for name in names:
            if (chances := passes[name][k - 1]) is not None:
                metrics[f"pass@{k}/{name}"] = chances
            if means := [_mean(values) for values in _of_first(placed[name], k) if values]:
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
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[0]}"] = deviation
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[1]}"] = deviation / math.sqrt(len(first))
    return metrics, scores, names, most


def add_avg_sample_std_dev(
    metrics: dict[str, Any], score_dicts: Scores, score_names: Sequence[str], max_k: int
) -> None:
    """Add ``pass@1[avg-of-k]/NAME/avg_sample_std_dev``: the mean over tasks of the spread of the first k scores.

    In the unit of the scores, not in percent. A task with fewer than two scores has no spread.
    """
    placed = {name: _placed(score_dicts, name) for name in score_names}
    for k in range(2, max_k + 1):
        for name in score_names:
            spreads = [_deviation(values) for values in _of_first(placed[name], k) if len(values) > 1]
            if spreads:
                metrics[f"pass@1[avg-of-{k}]/{name}/{SUFFIXES[2]}"] = _mean(spreads)


def compute_subset_metrics(
    tasks: Tasks, subset_key: str, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """The pass and majority metrics of each subset of tasks, as ``SUBSET/METRIC``.

    A task belongs to what its first rollout has under the key; one with nothing there is left out.
    """
    subsets: dict[Any, list[Sequence[Mapping[str, Any]]]] = {}
    for task in tasks:
        if task and (subset := task[0].get(subset_key)):
            subsets.setdefault(subset, []).append(task)
    subset_metrics: dict[str, Any] = {}
    for subset, some in subsets.items():
        metrics = compute_pass_majority_metrics(some, score_fn, answer_key)[0]
        metrics.pop("per_sample_aggregate", None)
        subset_metrics.update({f"{subset}/{name}": value for name, value in metrics.items()})
    return subset_metrics


def highest_k_metrics(
    agent_metrics: Mapping[str, Any],
    pattern: str,
    score_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The metrics ``pattern/NAME`` at the largest k there is, ``{k}`` in the pattern standing for it.

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


def _placed(scores: Scores, name: str) -> list[Placed]:
    """The scores of that name, task by task, and their places in its list; a rollout without it is left out."""
    places = [[place for place, row in enumerate(task) if name in row] for task in scores]
    return [(some, [task[place][name] for place in some]) for some, task in zip(places, scores, strict=True)]


def _of_first(placed: Sequence[Placed], k: int) -> list[list[float]]:
    """Of each task the scores among its first k rollouts."""
    return [values[: bisect_left(places, k)] for places, values in placed]


def _pass_at(values: Sequence[Sequence[float]], most: int) -> list[float | None]:
    sums: list[list[float]] = [[] for _ in range(most)]
    for task in values:
        n = len(task)
        if all(score in (0, 1) for score in task):
            right = task.count(1)
            chances = [1.0 - share_without(n, right, k) for k in range(1, n + 1)]
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
            means.append(_percent(values))
    return means


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation with n - 1 by NeMo Gym's formula, of which its helpers give the last digit."""
    mean = _mean(values)
    return math.sqrt(_sum([(value - mean) ** 2 for value in values]) / (len(values) - 1))


def _percent(values: Sequence[float]) -> float:
    return 100.0 * _sum(values) / len(values)


def _mean(values: Sequence[float]) -> float:
    return _sum(values) / len(values)


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond what a float holds, or infinities of both signs
        return sum(map(float, values))
