"""Were the labelled rollouts drawn at random? Then the judge scores them like the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, Floats, Ints

DRAWS = 999
SUSPECT = 0.01  # a p below this warns, so that labels drawn at random are suspected in less than 1 % of checks
ALIKE = 1e-9  # differences that are closer than this part of the largest are a tie


@dataclass(frozen=True, slots=True)
class LabelledSample:
    """The judge's own means over rollouts with a label and without one, and how likely so large a difference is."""

    labelled: float
    others: float
    p: float  # of labels drawn at random; two-sided

    @property
    def suspect(self) -> bool:
        """Whether the labels were hardly drawn at random."""
        return self.p < SUSPECT


def labelled_sample(
    judged: Floats, labelled: Bools, task: Ints, *, seed: int = 0, draws: int = DRAWS
) -> LabelledSample | None:
    """A permutation test of whether the judge scores labelled rollouts like the others, [R] each.

    Under random drawing it does not matter which tasks the labels fell on, nor which samples of them. So the numbers
    of labels change places among tasks with as many samples, and within a task the labels fall on any samples: this
    is exact where rollouts, or whole tasks, or some samples of each task were drawn. The statistic is the sum of the
    judge's scores of labelled rollouts; ``p = (hits + 1)/(draws + 1)``.

    None where there is nothing to compare: no label, no rollout without one, or no other place for any label.
    """
    if not labelled.any() or labelled.all():
        return None
    parts = [part for part in _parts(judged, labelled, task) if part.moves]
    if not parts:
        return None
    expected = sum(part.expected for part in parts)
    seen = abs(sum(part.seen for part in parts) - expected)
    source = np.random.PCG64(seed)
    slack = ALIKE * sum(float(np.abs(part.scores).sum()) for part in parts)
    hits = sum(abs(sum(part.drawn(source) for part in parts) - expected) >= seen - slack for _ in range(draws))
    return LabelledSample(float(judged[labelled].mean()), float(judged[~labelled].mean()), (hits + 1) / (draws + 1))


@dataclass(frozen=True, slots=True)
class _Part:
    """Tasks with as many samples, in an order that the rows do not decide."""

    scores: Floats  # [T, s] the judge's
    counts: Ints  # [n] labels of each task that has any, the most first
    seen: float  # sum of the scores with a label

    @property
    def moves(self) -> bool:
        """Whether labels could have fallen elsewhere, on other scores."""
        everywhere = len(self.counts) == len(self.scores) and bool((self.counts == self.scores.shape[1]).all())
        return not everywhere and bool(self.scores.min() != self.scores.max())

    @property
    def expected(self) -> float:
        return float(self.scores.mean()) * int(self.counts.sum())

    def drawn(self, source: np.random.PCG64) -> float:
        """The sum of the scores on which the labels fall when they are drawn again."""
        tasks, samples = self.scores.shape
        some = len(self.counts)
        keys = _raw(source, tasks)
        first = np.argpartition(keys, some - 1)[:some]
        chosen = self.scores[first[np.argsort(keys[first], kind="stable")]]  # [n, s], in random order
        if bool((self.counts == samples).all()):
            return float(chosen.sum())
        order = np.argsort(_raw(source, some * samples).reshape(some, samples), axis=1, kind="stable")
        here = np.arange(samples) < self.counts[:, None]
        return float(np.take_along_axis(chosen, order, axis=1)[here].sum())


def _raw(source: np.random.PCG64, size: int) -> NDArray[np.uint64]:
    """Raw 64-bit output: numpy may change how it makes numbers of it, but not the output itself."""
    return np.asarray(source.random_raw(size), dtype=np.uint64)


def _parts(judged: Floats, labelled: Bools, task: Ints) -> Iterator[_Part]:
    order = np.lexsort((judged, task))
    judged, labelled, task = judged[order], labelled[order], task[order]
    _, start, size = np.unique(task, return_index=True, return_counts=True)
    for samples in np.unique(size).tolist():
        rows = start[size == samples][:, None] + np.arange(samples)
        scores, marks = judged[rows], labelled[rows]
        counts = np.sort(marks.sum(axis=1))[::-1]
        if counts[0]:
            yield _Part(scores[np.lexsort(scores.T)], counts[counts > 0], float(scores[marks].sum()))
