"""The state of a watch in memory: the e-process of every alarm, the task values of every series, and the curves.

::

    StepSums ──► SeriesTasks: same tasks, fresh prompts or a pool ──► Watcher.logs ──► Process ──► average ──► Raised
             └─► Curve: value, interval, band, change since the base step

The state is a pure function of the sums in their order, so that it can be rebuilt from the log on disk. The statistics
are those of `calipers.stats.alarms` and `calipers.stats.steps`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from calipers.analyses.watch import DIVERGE, DROP, MEAN, RATE, RISE, SHARE, Alarm
from calipers.analyses.watch.status import ACCEPTED, CLOSED, OPEN, QUIET, AlarmStatus, Measure
from calipers.analyses.watch.sums import StepSums, UnitHashes, matched, shared_tasks
from calipers.errors import InputError
from calipers.remarks import Remark, Value
from calipers.reports.remark_texts import text_of
from calipers.rollouts.column import Bools, Floats, Ints
from calipers.stats.alarms import (
    FORGETTING,
    HELD_OUT_SHARE,
    HIGHEST,
    Process,
    Recovery,
    RunningBest,
    closed,
    drop_units,
    gap_units,
    group_variance,
    held_out_bound,
    held_out_units,
    lower_bound,
    mean_units,
    rate_units,
    recovery_level,
    segment_level,
    upper_bound,
    within_variance,
)
from calipers.stats.steps import look_and_band, paired_change, unpaired_change

SAME, FRESH, POOL, OTHER, FIRST = "same", "fresh", "pool", "other", "first"
MOST_TASKS: Final = 100_000  # tasks of a stream of prompts that are stored; a larger pool does not repeat within a run
BASE_STEPS: Final = 10  # base steps of a stream of prompts; with the same tasks at every step, one is enough
OVERLAP: Final = 0.5  # share of a step's tasks that earlier steps must have for "the same tasks"
LATE: Final = 0.1  # share of an alarm's weight for series that begin after its first series
HISTORY: Final = 16  # steps before a change whose mean the change is compared with
UNIT: Final = (0.0, 1.0)
NO_VALUES: Final = np.zeros(0)


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """The settings of a watch, which are fixed before the first look."""

    alarms: Sequence[Alarm]
    steps: int = 1_000  # H, planned
    false_alarms: float = 0.05  # the chance of any false alarm in the whole run
    confidence: float = 0.95  # of intervals and bands
    difficulty: str | None = None  # the column with each prompt's pass rate of another model
    range: tuple[float, float] | None = None  # of rewards, if it is not 0 to 1
    base: int | None = None  # the step that changes are measured from; None: the first
    nightly: bool = False  # steps are nightly runs: they are few, and a change may begin at any of them
    cluster: str | None = None  # the label of clusters, which replace tasks as units

    @property
    def reference_level(self) -> float:
        """The level of each alarm's reference: half of the level, divided over the alarms that need a reference."""
        referenced = sum(self.needs_reference(alarm) for alarm in self.alarms)
        return self.false_alarms / 2 / max(referenced, 1)

    @property
    def evidence_level(self) -> float:
        """The level of the evidence of all alarms together."""
        return self.false_alarms / 2 if any(map(self.needs_reference, self.alarms)) else self.false_alarms

    @property
    def metrics(self) -> list[str]:
        """The metrics that the alarms read, without outcomes and shares of groups."""
        named = [alarm for alarm in self.alarms if alarm.kind not in (RATE, SHARE)]
        return list(dict.fromkeys(what for alarm in named for what in (alarm.what, alarm.other) if what))

    def needs_reference(self, alarm: Alarm) -> bool:
        """Whether a part of the level is spent on a bound of the value that an alarm compares with."""
        return alarm.referenced and not (self.difficulty and alarm.kind in (DROP, RISE))


@dataclass(slots=True)
class SeriesTasks:
    """The tasks that a series has had, which show whether its steps have the same tasks, fresh prompts or a pool."""

    mode: str = ""  # SAME or FRESH, from the second step on
    seen: Any = None  # [N] hashes, ascending; None before the first step, and for a stream of too many tasks
    steps: int = 0

    def look(self, tasks: Any) -> str:
        """The kind of the next step, by its tasks alone: FIRST, SAME, OTHER, FRESH or POOL."""
        self.steps += 1
        if self.steps == 1:
            self.seen = tasks
            return FIRST
        if self.seen is None:
            return FRESH
        known = _indices(self.seen, tasks) >= 0
        share = float(known.mean()) if len(tasks) else 0.0
        if not self.mode:
            self.mode = SAME if share >= OVERLAP else FRESH
        if self.mode == SAME and share < OVERLAP:
            return OTHER
        if share < 1:
            new = tasks[~known]
            self.seen = np.insert(self.seen, np.searchsorted(self.seen, new), new)
            if self.mode == FRESH and len(self.seen) > MOST_TASKS:
                self.seen = None
        return SAME if self.mode == SAME else POOL if share == 1 else FRESH


def _indices(known: Any, tasks: Any) -> Any:
    """The index of each task in ``known``, hashes in ascending order; -1 for a task that is not known."""
    if not len(known):
        return np.full(len(tasks), -1)
    index = np.minimum(np.searchsorted(known, tasks), len(known) - 1)
    return np.where(known[index] == tasks, index, -1)


@dataclass(slots=True)
class Memory:
    """The task values of earlier steps, from which the values of the next step are predicted."""

    tasks: Any = None  # [N] hashes, ascending
    sums: Any = None  # [N]
    weights: Any = None  # [N]
    previous: float = 0.0  # the last step's mean, or the mean of the base steps of a pool

    def expected(self, tasks: Any) -> tuple[Floats, float]:
        """The predicted value h_i of each task, [G], and its mean over all known tasks; a new task has `previous`."""
        if self.tasks is None:
            return np.full(len(tasks), self.previous), self.previous
        own = (self.sums + self.previous) / (self.weights + 1)
        index = _indices(self.tasks, tasks)
        new = int((index < 0).sum())
        centre = (float(own.sum()) + new * self.previous) / (len(own) + new)
        return np.where(index >= 0, own[index], self.previous), centre

    def learn(self, tasks: Any, values: Floats, *, decayed: bool) -> None:
        """Add the values of a step, [G]; with ``decayed``, earlier values lose weight, because the policy changes."""
        if self.tasks is None:
            self.tasks, self.sums, self.weights = tasks, np.zeros(len(tasks)), np.zeros(len(tasks))
        index = _indices(self.tasks, tasks)
        if (index < 0).any():
            new = tasks[index < 0]
            positions = np.searchsorted(self.tasks, new)
            self.tasks = np.insert(self.tasks, positions, new)
            self.sums, self.weights = (np.insert(array, positions, 0.0) for array in (self.sums, self.weights))
            index = _indices(self.tasks, tasks)
        self.sums[index] += values
        self.weights[index] += 1
        if decayed:
            self.sums, self.weights = FORGETTING * self.sums, FORGETTING * self.weights


@dataclass(frozen=True, slots=True)
class StepTest:
    """What one step says about an alarm, for its e-process and for the recovery of an open alarm.

    The values are on a scale of the alarm: 0 or more, and higher is better. Its null states that their mean is at least
    ``bound``.
    """

    logs: Floats | None  # of the e-process; None if there is no reference yet
    values: Floats  # [G]
    expected: Floats  # [G] predicted from earlier steps
    centre: float  # the mean of what is predicted for all tasks of the null
    bound: float | None  # None if there is no reference yet


@dataclass(slots=True)
class AlarmCourse:
    """The course of an alarm over its steps, on the scale of `StepTest`."""

    bound: float | None = None  # that the null stated at the last step with a reference
    scores: list[tuple[int, float]] = field(default_factory=list)  # the mean of each step
    noises: list[tuple[int, float, float, float]] = field(default_factory=list)  # of each night, see `_noise`
    earlier_best: RunningBest | None = None  # the reference before the last step
    recovery: Recovery | None = None  # of an open alarm

    def mean_since(self, step: int) -> float | None:
        """The mean of the steps from ``step`` on."""
        scores = [score for number, score in self.scores if number >= step]
        return float(np.mean(scores)) if scores else None


@dataclass(slots=True)
class AlarmWatcher:
    """One alarm on one series: its e-process, and the reference of its null."""

    alarm: Alarm
    series: str
    weight: float
    process: Process
    level: float  # of its reference
    steps: int  # H
    difficulty: str | None = None
    given_range: tuple[float, float] | None = None
    limits: tuple[float, float] | None = None  # the range that is mapped to [0, 1]; None until it is known
    clipped: bool = False  # the limits are percentiles: values beyond them are cut off
    beyond: bool = False  # a value lay outside the range
    best: RunningBest | None = None
    memory: Memory = field(default_factory=Memory)
    base: list[Any] = field(default_factory=list)  # values of each base step, while they are collected
    bound: float | None = None  # of the base steps
    base_mean: float | None = None
    means: list[tuple[int, float]] = field(default_factory=list)  # of each step, for the amount of a change
    why: str = ""  # why the alarm could not use the last step
    nightly: bool = False
    trained: list[Any] = field(default_factory=list)  # values of training groups since the last evaluation
    base_trained: list[Any] = field(default_factory=list)  # values of training groups of each base step
    course: AlarmCourse = field(default_factory=AlarmCourse)

    @property
    def name(self) -> str:
        """The alarm's text with its series."""
        return f"{self.alarm.text} ({self.series})" if self.series else self.alarm.text

    def take(self, sums: StepSums, kind: str) -> None:
        """Bet on a step, unless the step lacks the alarm's metric: on a change or, while it is open, on a recovery."""
        try:
            test = self._test(sums, kind)
        except InputError as error:
            self.why = str(error)
            return
        self.why = ""
        if test is None:
            return
        course = self.course
        course.scores.append((sums.step, float(test.values.mean())))
        if course.recovery is not None:
            course.recovery = course.recovery.step(test.values, test.expected, test.centre)
        elif test.logs is not None:
            course.bound = test.bound
            self.process = self.process.step(test.logs, sums.step)

    def open(self, since: int) -> None:
        """Begin the test for recovery of an alarm that was just raised; ``since`` is the step at which it changed.

        The steps until it closes are no part of the reference, and neither is the step that raised it.
        """
        course = self.course
        if course.bound is None:
            return
        mean = course.mean_since(since)
        level = recovery_level(course.bound, course.bound if mean is None else mean)
        course.recovery = Recovery.begin(float(level))
        if course.earlier_best is not None:
            self.best = course.earlier_best

    def restart(self, *, keep_reference: bool, level: float) -> None:
        """Begin the next segment; the reference is kept after an alarm, but not after an accepted change."""
        self.process = Process.begin(self.steps, even=self.nightly)
        if not keep_reference:
            self.level = level
            self.best, self.bound, self.base_mean = None, None, None
            self.base, self.memory, self.means = [], Memory(), []
            self.trained, self.base_trained = [], []
            self.course = AlarmCourse()

    def learn_again(self, before: AlarmWatcher, night: int) -> None:
        """Take the nights from ``night`` on as the reference, from the watcher as it was before a restart.

        Predictions of a task's value may come from any earlier night, so they are kept.
        """
        self.memory = before.memory
        self.means = [pair for pair in before.means if pair[0] >= night]
        course = before.course
        self.course.scores = [pair for pair in course.scores if pair[0] >= night]
        self.course.noises = [noise for noise in course.noises if noise[0] >= night]
        for _, mean, variance, units in self.course.noises:
            self.best = self._next_best(mean, variance, units)

    def value_at(self, step: int) -> float | None:
        """The mean of the alarm's metric at a step, or the difference that it is about; None without one."""
        if self.difficulty:
            scores = [score for number, score in self.course.scores if number == step]
            return self.in_units(scores[-1]) if scores else None
        means = [mean for number, mean in self.means if number == step]
        return means[-1] if means else None

    @property
    def measure(self) -> Measure:
        """What the values of the alarm's status are."""
        if self.alarm.kind in (RATE, SHARE):
            return "rate"
        return "difference" if self.alarm.kind == DIVERGE or self.difficulty else "mean"

    def in_units(self, value: float | None) -> float | None:
        """A value on the scale of `StepTest` in the unit of the alarm's metric."""
        if value is None:
            return None
        alarm = self.alarm
        low, high = self.limits or self.given_range or UNIT
        width = high - low
        if alarm.kind in (RATE, SHARE):
            return 1 - value
        if alarm.kind == MEAN:
            return (HIGHEST - value) * self._limit_of_mean
        if alarm.kind == DIVERGE:
            return width * ((HELD_OUT_SHARE if alarm.across else 1) - value)
        if self.difficulty:
            return width * (1 - value if alarm.kind == RISE else value - 1)
        return high - width * value if alarm.kind == RISE else low + width * value

    @property
    def _limit_of_mean(self) -> float:
        """The limit of a mean, in the unit of its column."""
        return self.alarm.limit * (self.bound or 0.0) if self.alarm.times_base else self.alarm.limit

    def train(self, sums: StepSums) -> None:
        """Store the values of a training step, which the next evaluation of held-out tasks is compared with."""
        try:
            _, values, given = sums.units(self.alarm.what)
        except InputError as error:
            self.why = str(error)
            return
        values = self._mapped(values[given])
        if not len(values):
            return
        if self.bound is None and len(self.base_trained) < self._most_base_steps:
            self.base_trained.append(values)
        else:
            self.trained.append(values)

    def _test(self, sums: StepSums, kind: str) -> StepTest | None:
        """What a step says about the alarm; None if nothing, as for a base step of most alarms."""
        alarm = self.alarm
        match alarm.kind:
            case "drop" | "rise":
                return self._drop(sums, kind)
            case "rate" | "share":
                _, values, given = sums.units(f"{alarm.kind}({alarm.what})")
                self._add_mean(sums.step, values[given])
                if not given.any():
                    return None
                return _unpredicted(rate_units(values[given], alarm.limit).logs, 1 - values[given], 1 - alarm.limit)
            case "mean":
                return self._mean(sums, kind)
        return self._held_out(sums, kind) if alarm.across else self._diverge(sums, kind)

    def _add_mean(self, step: int, values: Floats) -> None:
        if len(values):
            self.means.append((step, float(values.mean())))

    def _mean(self, sums: StepSums, kind: str) -> StepTest | None:
        _, values, given = sums.units(self.alarm.what)
        values = values[given]
        if not len(values):
            return None
        if float(values.min()) < 0:
            raise InputError(f"step {sums.step}: {self.alarm.what} is below 0, and mean() needs values of 0 or more")
        self._add_mean(sums.step, values)
        if self.alarm.times_base and self.bound is None:
            base_values = self._base_values(values, kind)
            if base_values is None:
                return None
            self.base_mean, variance, _ = group_variance(base_values)
            stderr = math.sqrt(variance) if len(base_values) > 1 else 0.0
            self.bound = self.base_mean + NormalDist().inv_cdf(1 - self.level) * stderr
        limit = self._limit_of_mean
        if limit <= 0:
            return None
        # a mean without an upper bound can never be shown to be low, so recovery is that of the values as cut off
        room = HIGHEST - np.minimum(values / limit, HIGHEST)
        return _unpredicted(mean_units(values, limit).logs, room, HIGHEST - 1)

    def _diverge(self, sums: StepSums, kind: str) -> StepTest | None:
        pairs = [sums.units(name)[1:] for name in (self.alarm.what, self.alarm.other)]
        both = pairs[0][1] & pairs[1][1]
        if not both.any():
            return None
        raw = [values[both] for values, _ in pairs]
        first, second = map(self._mapped, raw)
        self._add_mean(sums.step, raw[0] - raw[1])
        low, high = self.limits or UNIT
        self.beyond |= any(float(values.min()) < low or float(values.max()) > high for values in raw)
        if self.bound is None:
            base_values = self._base_values((first - second + 1) / 2, kind)
            if base_values is None:
                return None
            mean, variance, units = group_variance(base_values)
            self.base_mean = (2 * mean - 1) * (high - low)
            self.bound = 2 * float(upper_bound(mean, variance, units, self.level)) - 1
        limit = max(self.bound + self.alarm.limit / (high - low), -0.5)
        return _unpredicted(gap_units(first, second, limit).logs, 1 - (first - second), 1 - limit)

    def _held_out(self, sums: StepSums, kind: str) -> StepTest | None:
        """Bet that an evaluation of held-out tasks shows less than half of the gain on training tasks."""
        tasks, raw, given = self._given(sums, self.alarm.other, kind)
        if not len(raw):
            return None
        low, high = self.limits or self.given_range or UNIT
        self.beyond |= float(raw.min()) < low or float(raw.max()) > high
        mapped = self._mapped(raw)
        trained, self.trained = (np.concatenate(self.trained) if self.trained else NO_VALUES), []
        if len(trained):
            self.means.append((sums.step, (high - low) * float(HELD_OUT_SHARE * trained.mean() - mapped.mean())))
        test = None
        if self.bound is None:
            self._base_gap(sums, mapped, given, kind)
        elif len(trained):
            size = min(len(trained), len(mapped))
            rng = np.random.default_rng([sums.step, size])  # the pairs are the same if the state is rebuilt
            groups, held_out = (rng.permutation(len(values))[:size] for values in (trained, mapped))
            expected, centre = self._expected(tasks, kind)
            limit = max(self.bound + self.alarm.limit / (high - low), -HELD_OUT_SHARE)
            units = held_out_units(trained[groups], mapped[held_out], expected[held_out], centre, limit)
            values = HELD_OUT_SHARE * (1 - trained[groups]) + mapped[held_out]
            test = StepTest(units.logs, values, expected[held_out], centre, HELD_OUT_SHARE - limit)
        if kind != FRESH:
            self.memory.learn(tasks, mapped, decayed=kind == SAME)
        if kind in (FIRST, SAME) or self.bound is None:
            self.memory.previous = float(mapped.mean())
        return test

    def _base_gap(self, sums: StepSums, mapped: Floats, given: Any, kind: str) -> None:
        """Add an evaluation to the base steps; set the bound once training has its base steps too.

        With the same tasks at every evaluation, the first one is the only base step.
        """
        noise = [self._noise(sums, mapped, given, same=same, what=self.alarm.other) for same in (True, False)]
        if not self.base or (kind != SAME and len(self.base) < self._most_base_steps):
            self.base.append(noise)
        if len(self.base_trained) < self._most_base_steps:
            return
        same = kind == SAME
        evaluations = [pair[0 if same else 1] for pair in (self.base[:1] if same else self.base)]
        mean, variance, units = (sum(column) for column in zip(*evaluations, strict=True))
        count = len(evaluations)
        training = group_variance(np.concatenate(self.base_trained))
        held_out = (mean / count, variance / count**2, units)
        self.bound = float(held_out_bound(training, held_out, self.level))
        self.base_mean = HELD_OUT_SHARE * training[0] - held_out[0]
        self.base, self.base_trained = [], []

    def _given(self, sums: StepSums, what: str, kind: str) -> tuple[UnitHashes, Floats, Bools]:
        """The units with a value, their values, and the mask of these units; InputError for other tasks than before."""
        units, values, given = sums.units(what)
        if given.any() and kind == OTHER:
            raise InputError(f"step {sums.step}: other tasks than before, so it is not used for {self.alarm.text}")
        return units[given], values[given], given

    def _drop(self, sums: StepSums, kind: str) -> StepTest | None:
        tasks, values, given = self._given(sums, self.alarm.what, kind)
        if not len(values):
            return None
        self._add_mean(sums.step, values)
        mapped = self._oriented(values, kind)
        if mapped is None:
            return None
        low, high = self.limits or UNIT
        size = self.alarm.limit / (high - low)
        if self.difficulty:
            return self._by_difficulty(sums, mapped, given, size)
        expected, centre = self._expected(tasks, kind)
        level = self.bound if self.best is None else float(self.best.best)  # the bound comes from a base step
        logs = None if level is None else drop_units(mapped, expected, level - size, centre).logs
        self._learn(sums, tasks, mapped, given, kind)
        return StepTest(logs, mapped, expected, centre, None if level is None else level - size)

    def _by_difficulty(self, sums: StepSums, mapped: Floats, given: Any, size: float) -> StepTest | None:
        """Bet against another model's pass rate on the same prompts, which replaces a reference of the run's own."""
        _, pass_rates, has_rate = sums.units(self.difficulty or "")
        both = has_rate[given]
        if not both.any():
            return None
        expected = pass_rates[given][both]
        if float(expected.min()) < 0 or float(expected.max()) > 1:
            raise InputError(f"step {sums.step}: {self.difficulty} is not between 0 and 1; expected a pass rate")
        expected = 1 - expected if self.alarm.kind == RISE else expected
        logs = drop_units(mapped[both], expected, -size, 0.0).logs
        return _unpredicted(logs, 1 + mapped[both] - expected, 1 - size)

    def _expected(self, tasks: Any, kind: str) -> tuple[Floats, float]:
        """The predicted value of each task, [G], and its mean; for fresh prompts, the mean is the prediction."""
        memory = Memory(previous=self.memory.previous) if kind == FRESH else self.memory
        return memory.expected(tasks)

    def _learn(self, sums: StepSums, tasks: Any, mapped: Floats, given: Any, kind: str) -> None:
        same = kind in (SAME, FIRST)
        mean, variance, units = self._noise(sums, mapped, given, same=same)
        if self.alarm.base is not None:
            if sums.step == self.alarm.base:
                self.bound = float(lower_bound(mean, variance, units, self.level))
                self.base_mean = mean
        elif self.course.recovery is None:
            self.course.earlier_best = self.best
            self.best = self._next_best(mean, variance, units)
        if self.nightly:
            self.course.noises.append((sums.step, mean, variance, units))
        if kind == FRESH and self.memory.tasks is not None and len(self.memory.tasks) > MOST_TASKS:
            self.memory = Memory(previous=self.memory.previous)
        elif kind != FRESH or self.memory.tasks is not None or len(self.means) <= 2:
            self.memory.learn(tasks, mapped, decayed=kind == SAME)
        if same or len(self.means) <= BASE_STEPS:
            count = min(len(self.means), BASE_STEPS)
            earlier = self.memory.previous if len(self.means) > 1 else mean
            self.memory.previous = mean if same else earlier + (mean - earlier) / count

    def _next_best(self, mean: float, variance: float, units: float) -> RunningBest:
        """The reference after a step."""
        best = self.best or RunningBest.begin(self.level, self.steps, pooled=self.nightly)
        return best.step(mean, variance, units)

    def _noise(
        self, sums: StepSums, mapped: Floats, given: Any, *, same: bool, what: str = ""
    ) -> tuple[float, float, float]:
        """Mean, squared standard error and units of a step, for a fixed set of tasks or for a stream of prompts."""
        samples = sums.samples(what or self.alarm.what)
        if not same or samples is None or self.clipped or sums.clusters is not None:
            return group_variance(mapped)  # samples within a cluster may depend on each other
        count, total, squares = samples[:, given]
        low, high = self.limits or UNIT
        width = high - low
        squares = (squares - 2 * low * total + low * low * count) / width**2
        total = (total - low * count) / width
        if self.alarm.kind == RISE:
            squares, total = count - 2 * total + squares, count - total
        mean, variance, units = within_variance(total, squares, count)
        return (mean, variance, units) if math.isfinite(variance) and not self.beyond else group_variance(mapped)

    def _oriented(self, values: Floats, kind: str) -> Floats | None:
        """The values on [0, 1], larger being better; None while the base steps still have to show the range."""
        if self.limits is None:
            if self.given_range is not None:
                self.limits = self.given_range
            elif float(values.min()) >= 0 and float(values.max()) <= 1:
                self.limits = UNIT
            elif not self._base_ready(kind):
                self.base.append(values)
                return None
            else:
                low, high = np.percentile(np.concatenate(self.base), [1, 99]).tolist()
                if high - low <= self.alarm.limit:  # no alarm could be raised
                    most = f"by more than {self.alarm.limit:g} " if self.alarm.limit else ""
                    why = f"does not vary {most}in the base steps; give its range: --range LOW,HIGH"
                    raise InputError(f"{self.alarm.what} {why}")
                self.limits, self.clipped, self.base = (low, high), True, []
        low, high = self.limits
        self.beyond |= not self.clipped and (float(values.min()) < low or float(values.max()) > high)
        mapped = self._mapped(values)
        return 1 - mapped if self.alarm.kind == RISE else mapped

    def _mapped(self, values: Floats) -> Floats:
        if self.limits is None:
            self.limits = self.given_range or UNIT
        low, high = self.limits
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    def _base_values(self, values: Floats, kind: str) -> Floats | None:
        """The values of all base steps once they are complete; None for a step that is one of them."""
        if not self._base_ready(kind):
            self.base.append(values)
            return None
        collected, self.base = np.concatenate(self.base), []
        return collected

    def _base_ready(self, kind: str) -> bool:
        """Whether the base steps are complete: one step with the same tasks, else a tenth of the run, at most ten."""
        return len(self.base) >= (1 if kind == SAME else self._most_base_steps)

    @property
    def _most_base_steps(self) -> int:
        return min(BASE_STEPS, max(1, self.steps // 10))

    @property
    def value(self) -> float:
        """E, the evidence of the alarm."""
        return math.exp(min(float(self.process.log_value), 700.0))

    def amount(self, since: int) -> tuple[float | None, float | None]:
        """The mean of the alarm's metric from the step ``since`` on, and in the steps before it."""
        after = [mean for step, mean in self.means if step >= since]
        before = [mean for step, mean in self.means if step < since][-HISTORY:]
        return (float(np.mean(after)) if after else None), (float(np.mean(before)) if before else None)


def _unpredicted(logs: Floats, values: Floats, bound: float) -> StepTest:
    """What a step says about an alarm that predicts no values of single tasks."""
    return StepTest(logs, values, np.zeros(len(values)), 0.0, bound)


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm that was raised."""

    alarm: str
    series: str
    step: int  # at which it was raised
    since: int  # the step since which the evidence has grown
    value: float | None  # the mean of its metric since then
    before: float | None  # the mean in the steps before
    evidence: float  # E of this alarm
    needed: float  # the limit of the average over all alarms
    segment: int
    causes: Sequence[str] = ()  # the alarms whose adjusted evidence reaches the limit
    path: str = ""  # of the step at which it was raised
    base_path: str = ""  # of the step before the change
    rollouts: Sequence[Mapping[str, Any]] = ()  # examples of the change
    command: str = ""  # the command to look closer
    until: int = 0  # the last step at which it was open
    together: float | None = None  # the average of all alarms' evidence, which reached the limit
    status: AlarmStatus | None = None  # now; None in a document of an older version

    @property
    def words(self) -> str:
        """The alarm as a sentence."""
        where = f" ({self.series})" if self.series else ""
        text = f"{self.alarm}{where}: since step {self.since}"
        if self.value is not None:
            text += f", {shown_value(self.value)} on average"
            if self.before is not None:
                text += f", {shown_value(self.before)} before"
        return f"{text}; raised at step {self.step}"


def shown_value(value: float) -> str:
    """Format a value of a metric with three decimals, or with four digits if it is large or tiny."""
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 10 else f"{value:,.4g}"


@dataclass(slots=True)
class StepCurve:
    """The values of a metric of a series by step."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    intervals: list[Any] = field(default_factory=list)  # for a single look
    bands: list[Any] = field(default_factory=list)  # for all planned steps together
    changes: list[float | None] = field(default_factory=list)  # since the base step
    change_bands: list[Any] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)  # higher, lower, undecided; "" if there is no change to judge
    tasks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StepSeries:
    """The curves of one series, and the step that changes are measured from."""

    name: str
    split: str
    dataset: str | None
    tasks: SeriesTasks = field(default_factory=SeriesTasks)
    curves: dict[str, StepCurve] = field(default_factory=dict)
    last: int = -1
    base_step: int | None = None
    base: StepSums | None = None
    kind: str = ""  # the kind of its last step
    paths: dict[int, str] = field(default_factory=dict)


class Monitor:
    """All series and alarms of a watch; `take` must be called with each step once, in order."""

    def __init__(self, settings: MonitorSettings, *, curves: bool = True, alone: bool = False) -> None:
        self.settings = settings
        self.curves = curves  # whether there is a page to draw
        self.alone = alone  # whether there is a single series
        self.raises = True  # whether the evidence raises alarms; another rule may do so instead, by `open`
        self.series: dict[str, StepSeries] = {}
        self.watchers: list[AlarmWatcher] = []
        self.raised: list[Raised] = []
        self.notes: list[str] = []
        self.segment, self.alarms, self.taken = 1, 0, 0
        self.late: dict[int, int] = {}  # by alarm: 1 once its first series have begun, plus 1 for each later series
        self.accepted: list[int] = []
        self.first: dict[str, int] = {}  # by series: the step for which first samples are used at all steps
        self._columns: dict[str, set[str]] = {}

    @property
    def needed(self) -> float:
        """The limit that the average of all alarms' evidence must reach in this segment to raise an alarm."""
        return 1 / segment_level(self.settings.evidence_level, self.segment, self.alarms)

    @property
    def evidence(self) -> float:
        """The average of all alarms' evidence; 1 before any step."""
        if not self.watchers:
            return 1.0
        weight = sum(watcher.weight for watcher in self.watchers)
        unused = max(0.0, 1 - weight)  # the capital of series that have not begun, which stays as it is
        return unused + sum(watcher.weight * watcher.value for watcher in self.watchers)

    def begin(self, firsts: Sequence[StepSums]) -> None:
        """Add the new series with their alarms, given the first step of each; the results of the steps are not read."""
        by_series: dict[str, StepSums] = {sums.series: sums for sums in reversed(firsts)}
        new = {name: sums for name, sums in by_series.items() if name not in self.series}
        for name, sums in new.items():
            self.series[name] = StepSeries(name, sums.split, sums.dataset)
        settings = self.settings
        for number, alarm in enumerate(settings.alarms):
            watched = [sums for sums in new.values() if alarm.applies(sums.split, sums.dataset) and _has(alarm, sums)]
            for weight, sums in zip(self._weights(number, alarm, len(watched)), watched, strict=True):
                process = Process.begin(settings.steps, even=settings.nightly)
                of_settings = settings.steps, settings.difficulty, settings.range
                watcher = AlarmWatcher(alarm, sums.series, weight, process, self._reference_level, *of_settings)
                watcher.nightly = settings.nightly
                self.watchers.append(watcher)

    def _weights(self, number: int, alarm: Alarm, count: int) -> list[float]:
        """The weights of ``count`` new series of an alarm.

        The first series share all but LATE of the alarm's weight, or all of it if no series can come later. The n-th
        later series gets the share ``1 / (n (n + 1))`` of LATE, so that the weights never add up to more than the
        alarm's. They depend only on which series there are, never on results.
        """
        alarm_weight = 1 / len(self.settings.alarms)
        before = self.late.get(number, 0)
        self.late[number] = before + (1 if count and not before else count)
        if not before:
            return [alarm_weight * (1 if self.alone else 1 - LATE) / max(count, 1)] * count
        return [alarm_weight * LATE / (position * (position + 1)) for position in range(before, before + count)]

    @property
    def _reference_level(self) -> float:
        """The level of each alarm's reference in this segment."""
        return self.settings.reference_level / (self.segment * (self.segment + 1) if self.segment > 1 else 1)

    @np.errstate(over="ignore", invalid="ignore")  # values that are not finite are noted, and left out
    def take(self, sums: StepSums, *, late: bool = False) -> Raised | None:
        """Add a step, and return the alarm that it raises, if any. A late step is shown, but no alarm uses it."""
        if sums.series not in self.series:
            self.begin([sums])
        series = self.series[sums.series]
        series.paths[sums.step] = sums.path
        if sums.follows is not None:
            self.first.setdefault(series.name, sums.step)
        if series.name in self.first:
            if self.first[series.name] == sums.step and sums.follows is not None:
                self.notes.append(f"{sums.path}: {text_of(follows_remark(sums.step, *sums.follows))}")
            sums = sums.on_first_samples()
        self._note_columns(series, sums)
        if late:
            self._show(series, sums, "")
            return None
        series.last = max(series.last, sums.step)
        kind = series.tasks.look(sums.tasks)
        series.kind = kind
        if kind == OTHER:
            self.notes.append(
                f"{sums.path}: step {sums.step} has other tasks than the steps before it; it is shown, and no drop is "
                "looked for in it"
            )
        self._show(series, sums, kind)
        self.taken += 1
        for watcher in self.watchers:
            if watcher.alarm.trains(series.split, series.dataset):
                watcher.train(sums)
            if watcher.series == sums.series:
                watcher.take(sums, kind)
        self._follow(sums)
        longest = max((watcher.process.taken for watcher in self.watchers), default=0)
        raised = self._raise(sums) if self.raises and self.evidence >= self.needed else None
        if raised is None and longest >= self.settings.steps:
            self.notes.append(
                f"step {sums.step}: all {self.settings.steps:,} planned steps are used; a new segment begins after it"
            )
            self._next_segment(keep_reference=True)
        return raised

    def accept(self, step: int) -> None:
        """Begin a new segment at a step whose change is accepted: the steps after it are the new reference."""
        self.accepted.append(step)
        for number, raised in enumerate(self.raised):
            if raised.status is not None and raised.status.state == OPEN:
                self.raised[number] = replace(raised, status=replace(raised.status, state=ACCEPTED, closed=step))
        self._next_segment(keep_reference=False)
        for series in self.series.values():
            series.base, series.base_step = None, None

    def _next_segment(self, *, keep_reference: bool) -> None:
        self.segment += 1
        for watcher in self.watchers:
            watcher.restart(keep_reference=keep_reference, level=self._reference_level)

    def _raise(self, sums: StepSums) -> Raised:
        """Raise every alarm that is a cause, and return the first; the others begin a new segment."""
        values = np.array([watcher.value for watcher in self.watchers])
        weights = np.array([watcher.weight for watcher in self.watchers])
        adjusted = closed(values, weights)
        largest = int((weights * values).argmax())
        causes = [number for number in np.argsort(-values).tolist() if adjusted[number] >= self.needed] or [largest]
        names = [self.watchers[number].name for number in causes]
        first = len(self.raised)
        for number in causes:
            watcher = self.watchers[number]
            self.open(watcher, sums, int(watcher.process.since), watcher.value, names)
        self.alarms += 1
        self._next_segment(keep_reference=True)
        return self.raised[first]

    def open(
        self, watcher: AlarmWatcher, sums: StepSums, since: int, evidence: float | None, causes: Sequence[str] = ()
    ) -> None:
        """Raise the alarm of a watcher at a step; it stays open until it has recovered or is accepted."""
        value, before = watcher.amount(since)
        paths = self.series[watcher.series].paths
        earlier = [step for step in sorted(paths) if step < since]
        watcher.open(since)
        own = watcher.series == sums.series
        raised = Raised(
            watcher.alarm.text,
            watcher.series,
            sums.step,
            since,
            value,
            before,
            evidence or 0.0,
            self.needed,
            self.segment,
            causes=list(causes),
            path=sums.path if own else paths.get(max(paths, default=-1), sums.path),
            base_path=paths[earlier[-1]] if earlier else "",
            until=sums.step,
            together=None if evidence is None else self.evidence,
        )
        needed = None if evidence is None else self.needed / watcher.weight
        at = self.series[watcher.series].last  # that of another series may have completed the evidence
        status = AlarmStatus(OPEN, at, since, sums.step, evidence, needed, measure=watcher.measure)
        self.raised.append(replace(raised, status=self.with_values(status, watcher)))

    def with_values(self, status: AlarmStatus, watcher: AlarmWatcher) -> AlarmStatus:
        """The status with the alarm's values at its step, and with what its test for recovery has found."""
        course = watcher.course
        return replace(
            status,
            reference=watcher.in_units(course.bound),
            now=watcher.value_at(status.at),
            close_at=watcher.in_units(course.recovery.level) if course.recovery else None,
            recovery_evidence=course.recovery.value if course.recovery else None,
        )

    def _follow(self, sums: StepSums) -> None:
        """Bring the open alarms of a step's series up to date, and close those that have recovered."""
        for number, raised in enumerate(self.raised):
            if raised.series != sums.series or raised.status is None or raised.status.state != OPEN:
                continue
            watcher = self._watcher_of(raised)
            status = self.with_values(replace(raised.status, at=sums.step), watcher)
            recovery = watcher.course.recovery
            if recovery is not None and recovery.closes:
                status = replace(status, state=CLOSED, closed=sums.step)
                watcher.course.recovery = None
            self.raised[number] = replace(raised, status=status, until=sums.step)

    def _watcher_of(self, raised: Raised) -> AlarmWatcher:
        """The watcher that raised an alarm."""
        return next(
            watcher
            for watcher in self.watchers
            if (watcher.alarm.text, watcher.series) == (raised.alarm, raised.series)
        )

    def status_of(self, watcher: AlarmWatcher) -> AlarmStatus:
        """The status of a watcher's alarm at the last step of its series."""
        last = self.series[watcher.series].last
        for raised in reversed(self.raised):
            if (raised.alarm, raised.series) != (watcher.alarm.text, watcher.series) or raised.status is None:
                continue
            if raised.status.state == OPEN or (raised.status.state == CLOSED and raised.status.closed == last):
                return raised.status
            break
        needed = self.needed / watcher.weight
        status = AlarmStatus(QUIET, last, evidence=watcher.value, needed=needed, measure=watcher.measure)
        return self.with_values(status, watcher)

    def _note_columns(self, series: StepSeries, sums: StepSums) -> None:
        """Note rewards that are not finite, and columns that appear or disappear."""
        names = {*sums.rewards, *sums.columns}
        not_finite = [name for name, moments in sums.rewards.items() if not np.isfinite(moments).all()]
        if not_finite:
            self.notes.append(
                f"{sums.path}: step {sums.step}: {', '.join(not_finite[:5])} has values that are not finite, or too "
                "large to be squared; such tasks are left out"
            )
        before = self._columns.get(series.name)
        if before is None:
            self._columns[series.name] = names
            return
        gone, new = sorted(before - names), sorted(names - before)
        if gone or new:
            parts = [f"no {', '.join(gone[:5])}"] if gone else []
            parts += [f"new: {', '.join(new[:5])}"] if new else []
            self.notes.append(f"{sums.path}: step {sums.step} has other columns than before ({'; '.join(parts)})")
            self._columns[series.name] = before | names

    def _show(self, series: StepSeries, sums: StepSums, kind: str) -> None:
        """Add a step to the curves of its series."""
        settings = self.settings
        base_step = settings.base if settings.base is not None else series.base_step
        is_base = series.base is None and (base_step is None or base_step == sums.step)
        if is_base:
            series.base, series.base_step = sums, sums.step
        names = sums.value_names() if self.curves else []
        names += [name for name in series.curves if name.startswith("rate(") and name not in names]  # 0 at this step
        base = None if is_base else series.base
        shared = shared_tasks(sums, base) if base is not None and names else None
        for name in names:
            values, given = sums.values(name)
            values = values[given]
            if not len(values):
                continue
            limits = self._limits(sums, name, values)
            curve = series.curves.setdefault(name, StepCurve())
            clusters = sums.cluster_codes(given)
            look, band = look_and_band(
                values, settings.steps, confidence=settings.confidence, limits=limits, clusters=clusters
            )
            curve.steps.append(sums.step)
            curve.values.append(float(values.mean()))
            curve.intervals.append(look.ends)
            curve.bands.append(band.ends)
            curve.tasks.append(len(values))
            change, ends = None, None
            if base is not None and shared is not None:
                change, ends = self._change(base, sums, name, shared, limits)
            curve.changes.append(change)
            curve.change_bands.append(ends)
            curve.verdicts.append("" if change is None or ends is None else _verdict(*ends))

    def _limits(self, sums: StepSums, name: str, values: Floats) -> tuple[float, float] | None:
        if name in sums.columns:
            return None
        low, high = (self.settings.range if name in sums.rewards else None) or UNIT
        # other rewards than the one that is watched may have another range than the given one
        return (low, high) if float(values.min()) >= low and float(values.max()) <= high else None

    def _change(
        self, base: StepSums, sums: StepSums, name: str, shared: tuple[Ints, Ints], limits: tuple[float, float] | None
    ) -> tuple[float | None, Any]:
        """The change of a metric since the base step, paired if the steps share enough tasks, and its interval."""
        steps, confidence = self.settings.steps, self.settings.confidence
        enough = OVERLAP * min(len(sums.tasks), len(base.tasks))
        try:
            if len(shared[0]) >= enough:
                now, then, codes = matched(sums, name, base, shared)
                if len(now) >= enough:
                    paired = paired_change(now, then, steps, confidence=confidence, limits=limits, clusters=codes)
                    return paired.value, paired.interval
            (values, given), (base_values, base_given) = sums.values(name), base.values(name)
            codes, base_codes = sums.cluster_codes(given), base.cluster_codes(base_given)
            clusters = None if codes is None or base_codes is None else (codes, base_codes)
        except InputError:
            return None, None
        change, ends = unpaired_change(
            values[given], base_values[base_given], steps, confidence=confidence, limits=limits, clusters=clusters
        )
        return (None if math.isnan(change) else change), ends


def follows_remark(step: int, rule: str, stopped: int, tasks: int) -> Remark:
    """The remark on a step whose number of samples follows its results, which forces first samples on all steps."""
    values: dict[str, Value] = {"step": step, "stopped": stopped, "tasks": tasks}
    if rule == "stops_at_pass":
        return Remark("step_stops_at_pass", values, "warning")
    if rule == "stops_at_failure":
        return Remark("step_stops_at_failure", values, "warning")
    if rule == "last_is_pass":
        return Remark("step_last_is_pass", values, "warning")
    return Remark("step_last_is_failure", values, "warning")


def _verdict(low: float, high: float) -> str:
    return "higher" if low > 0 else "lower" if high < 0 else "undecided"


def _has(alarm: Alarm, sums: StepSums) -> bool:
    """Whether a series has the metric of a preset's alarm; true for any other alarm, which reports a missing metric."""
    if not alarm.preset:
        return True
    try:
        sums.values(f"{alarm.kind}({alarm.what})" if alarm.kind in (RATE, SHARE) else alarm.what)
    except InputError:
        return False
    return True
