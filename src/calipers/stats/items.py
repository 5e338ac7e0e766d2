"""The tasks themselves: which are hard, which tell runs apart, and which contradict all the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.stats.two_parameter import abilities, fitted, information

LEAST_RUNS = 3
FEW_RUNS = "telling runs apart takes three runs or more: samples of one run are one test-taker"
LEAST_CURVE = 5
FEW_CURVE = "a curve over abilities takes five runs or more"
ONE_ABILITY = "all runs have the same mean: there are no abilities to tell apart"
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Items:
    """One row per task, [T] each."""

    difficulty: Column  # 1 less the mean value over runs, each run alike; a gap where no run has the task
    discrimination: Column  # correlation over runs of the task with the mean of all others
    contradiction: Column  # one-sided p of that correlation being negative by chance
    information: Column  # about runs as able as the best one, of a two-parameter logistic curve
    everyone: Bools  # every sample of every run passes
    nobody: Bools  # none does
    runs: Ints  # that have the task
    samples: Ints
    why: str | None = None  # why no task has a discrimination
    why_information: str | None = None  # why no task has an information

    @property
    def contradicts(self) -> Bools:
        """Tasks that better runs fail and worse ones pass, by more than chance: wrong labels live here.

        One in twenty of the tasks without any discrimination is among them by chance alone.
        """
        return self.contradiction.given & (self.contradiction.values <= LEVEL)


def items(values: Floats, passes: Ints, samples: Ints) -> Items:
    """The table of tasks, from M runs over T tasks, [M, T] each: mean value, passes, samples (0: not there).

    Discrimination is the item-rest correlation: of a task's values over runs with the runs' means over
    all other tasks they have. A gap with fewer than three runs, or where either does not vary. One run
    has difficulties, and the tasks that it always or never passes.

    Information is what one try at the task tells about a run as able as the best of these: who wants fewer
    tasks that still tell good runs apart keeps those with the most. A gap with fewer than five runs, or where
    all have the same mean.
    """
    given = samples > 0
    runs = given.sum(axis=0)
    whole = samples.sum(axis=0)
    passed = passes.sum(axis=0)
    shown = np.where(given, values, 0.0)
    mean = shown.sum(axis=0) / np.maximum(runs, 1)
    discrimination, contradiction = _item_rest(shown, given)
    informed = _informed(shown, given)
    return Items(
        Column(1 - mean, runs > 0),
        discrimination,
        contradiction,
        informed if isinstance(informed, Column) else Column(np.zeros(len(runs)), np.zeros(len(runs), dtype=bool)),
        (whole > 0) & (passed == whole),
        (whole > 0) & (passed == 0),
        runs,
        whole,
        None if len(values) >= LEAST_RUNS else FEW_RUNS,
        None if isinstance(informed, Column) else informed,
    )


def _item_rest(shown: Floats, given: Bools) -> tuple[Column, Column]:
    """Item-rest correlations and their one-sided p, [T] each."""
    from scipy.special import comb, stdtr

    count = given.sum(axis=1, keepdims=True)
    rest = (shown.sum(axis=1, keepdims=True) - shown) / np.maximum(count - 1, 1)
    used = given & (count > 1)
    runs = used.sum(axis=0)
    own, others = _centred(shown, used, runs), _centred(rest, used, runs)
    scale = np.sqrt((own**2).sum(axis=0) * (others**2).sum(axis=0))
    there = (runs >= LEAST_RUNS) & (scale > 1e-12)
    r = np.where(there, np.clip((own * others).sum(axis=0) / np.where(there, scale, 1.0), -1, 1), 0.0)
    freedom = np.maximum(runs - 2, 1)
    t = r * np.sqrt(freedom / np.maximum(1 - r * r, 1e-300))
    # no order of a few runs is rarer than one in all the ways to arrange its passes
    ways = comb(runs, np.minimum((own > 0).sum(axis=0), runs))
    p = np.maximum(stdtr(freedom, t), 1 / np.maximum(ways, 1))
    return Column(r, there), Column(np.where(there, p, 1.0), there)


def _informed(shown: Floats, given: Bools) -> Column | str:
    """The information of each task's curve at the ability of the best run, [T]; or why there is none.

    At the best run and not at the mean of all: the next run to be judged is more like the best, and tasks that
    tell weak runs apart are solved by all that matter then.
    """
    there = given.any(axis=1)
    ability = abilities(shown[there], given[there])
    if len(ability) < LEAST_CURVE:
        return FEW_CURVE
    best = float(ability.max())
    if best - float(ability.min()) < 1e-9:
        return ONE_ABILITY
    curves = fitted(shown[there], given[there], ability)
    found = information(best, curves.slope, curves.difficulty)
    enough = given.sum(axis=0) >= LEAST_CURVE
    return Column(np.where(enough, found, 0.0), enough)


def _centred(values: Floats, used: Bools, runs: Ints) -> Floats:
    mean = np.where(used, values, 0.0).sum(axis=0) / np.maximum(runs, 1)
    return np.where(used, values - mean, 0.0)
