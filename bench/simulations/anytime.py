"""Repeated looks at a comparison: how often ``compare --anytime`` makes a false claim, and how much power it costs.

A false claim at any look counts. The cost is measured against the default test on a number of tasks fixed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.simulations.clusters import cluster_sizes
from bench.simulations.grid import CHANCES, FINE, POPULATION, Bools, real_population
from bench.simulations.paired import MEANS, REPEATS
from bench.simulations.paired_rule import LEVEL, Pairs, floored_p, of_differences
from bench.simulations.paired_worlds import binomial, cluster_values, joint, wild_passes, wild_rewards
from bench.simulations.report import filled, percent
from bench.simulations.rule import Floats, Ints
from calipers.stats.anytime import MOST, SIZES
from calipers.stats.power import POWER, quantiles, tasks_needed

RUNS = 10_000  # in each world
TASKS, BETWEEN = 1000, 20  # tasks of a run, and of the fixed test between two looks: 50 looks
CHUNK = 2_500  # concurrent runs: their arrays fit into a processor's cache
LONGEST = 2.2  # times the tasks of the fixed test: the maximum length of a run with a true difference
CLUSTERS = 50
LEAST_POWER, MOST_TIMES, MOST_TIMES_FINE = 0.44, 1.85, 2.0
STARTS, ROUNDS, FARTHEST = (50, 100, 200), 5, 20_000


@dataclass(frozen=True, slots=True)
class Law:
    """The distribution of a task's difference: values with their chances, or a population with equal chances."""

    name: str
    values: Floats
    chances: Floats | None = None

    def drawn(self, size: tuple[int, int], rng: np.random.Generator) -> Floats:
        """Draw independent tasks."""
        if self.chances is None:
            return self.values[rng.integers(0, len(self.values), size=size)]
        edges = np.cumsum(self.chances)[:-1] / self.chances.sum()
        return self.values[np.searchsorted(edges, rng.random(size), side="right")]

    @property
    def mean(self) -> float:
        """The mean of the law."""
        return float(np.average(self.values, weights=self.chances))

    @property
    def variance(self) -> float:
        """The variance of the law."""
        return float(np.average((self.values - self.mean) ** 2, weights=self.chances))


def first_claims(differences: Floats, sizes: Floats | None = None, level: float = LEVEL) -> Ints:
    """The number of units after which the anytime test first claims a difference, [R] from [T, R]; T + 1 if never.

    It computes `calipers.stats.anytime.Bets.against` at a mean of 0 for many runs. ``sizes``, [T], are those of
    clusters, whose sums ``differences`` then has. tests/stats/test_anytime_levels.py compares the two.
    """
    tasks, runs = differences.shape
    capital, gains, moves = np.ones((2, len(SIZES), runs)), np.empty((len(SIZES), runs)), np.empty((len(SIZES), runs))
    up, down = capital
    squares, found = np.zeros(runs), np.full(runs, tasks + 1)
    scale = np.ones(tasks) if sizes is None else np.maximum.accumulate(sizes)
    for place in range(tasks):
        moved = differences[place] / scale[place]
        spread = np.sqrt((1 + squares / scale[place] ** 2) / (place + 4))
        np.divide(SIZES[:, None], spread, out=gains)
        np.minimum(gains, MOST, out=gains)
        gains *= moved
        with np.errstate(over="ignore", invalid="ignore"):  # a capital that overflows was large enough before
            up += np.multiply(up, gains, out=moves)
            down -= np.multiply(down, gains, out=moves)
            enough = capital.sum(axis=(0, 1)) >= 2 * len(SIZES) / level
        found[enough & (found > tasks)] = place + 1
        squares += differences[place] ** 2
    return found


def looked_too_often(differences: Floats) -> Bools:
    """The runs of [T, R] in which the default test claims a difference at any of its looks, [R]."""
    sums, squares, biggest = np.zeros((3, differences.shape[1]))
    ever = np.zeros(differences.shape[1], dtype=bool)
    for end in range(BETWEEN, len(differences) + 1, BETWEEN):
        new = differences[end - BETWEEN : end]
        sums, squares = sums + new.sum(axis=0), squares + (new**2).sum(axis=0)
        biggest = np.maximum(biggest, np.abs(new).max(axis=0))
        variance = np.maximum(squares / end - (sums / end) ** 2, 0.0) / (end - 1)
        ever |= floored_p(Pairs(sums / end, variance, biggest / end, np.full(len(sums), float(end)), 1.0)) <= LEVEL
    return ever


@dataclass(frozen=True, slots=True)
class Level:
    """How often a difference is claimed at any look if there is none."""

    world: str  # fair, skewed, split, clusters
    name: str
    claimed: float
    fixed: float | None  # with the default test, read at every look


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of repeated looks if there is a difference."""

    name: str
    deviation: float
    tasks: int  # the number with which the default test has a power of 80 %
    fixed: float  # how often the default test found the difference
    found: float  # how often the anytime test found it by then
    times: float  # the factor of tasks for a power of 80 %
    fine: bool  # finely graded rewards, for which a smaller factor is not promised
    late: float  # how often it found the difference by the time for which 80 % is promised


@dataclass(frozen=True, slots=True)
class Advice:
    """False claims if the advice "about N more tasks" is followed repeatedly, and all tasks are tested together."""

    name: str
    start: int
    claimed: Sequence[float]  # after the first test, and after each round


def laws_without(rng: np.random.Generator) -> Iterator[tuple[str, Law]]:
    """The fair and the skewed worlds of the comparison, and two in which a t test fails."""
    for mean in MEANS:
        for samples in REPEATS:
            passes = np.arange(samples + 1)
            values = ((passes[:, None] - passes) / samples).ravel()
            for chance in CHANCES:
                name = f"0 and 1, n = {samples}, mean {mean:g}, {'alike' if chance is None else f'a + b = {chance:g}'}"
                yield "fair", Law(name, values, joint(samples, mean, chance).ravel())
            for world in ("skewed", "split"):
                law = np.outer(binomial(samples, mean), wild_passes(samples, mean, world)).ravel()
                yield world, Law(f"0 and 1, n = {samples}, mean {mean:g}", values, law)
        for fine in FINE:
            for chance in CHANCES:
                rewards = real_population(mean, chance, fine, rng)
                for n in REPEATS:
                    apart = rewards[:, :n].mean(axis=1) - rewards[:, n : 2 * n].mean(axis=1)
                    yield "fair", Law(f"real, n = {n}, mean {mean:g}, {fine:g}", np.concatenate([apart, -apart]))
            for world in ("skewed", "split"):
                size = (POPULATION, max(REPEATS))
                steady, wild = (
                    rng.beta(fine * mean, fine * (1 - mean), size=size),
                    wild_rewards(mean, fine, world, size, rng),
                )
                for n in REPEATS:
                    apart = steady[:, :n].mean(axis=1) - wild[:, :n].mean(axis=1)
                    yield world, Law(f"real, n = {n}, mean {mean:g}, {fine:g}", np.clip(apart - apart.mean(), -1, 1))
    for gain, loss in ((0.01, 0.49), (0.05, 0.45)):
        share = loss / (gain + loss)
        yield "skewed", Law(f"+{gain:g} or -{loss:g}", np.array([gain, -loss]), np.array([share, 1 - share]))


def levels(runs: int, rng: np.random.Generator) -> Iterator[Level]:
    """False claims in every world; for clusters, the test uses their sums."""
    for world, law in laws_without(rng):
        claims: list[Bools] = []
        fixed: list[bool] = []
        for some in _chunks(runs):
            drawn = law.drawn((TASKS, some), rng)
            claims.append(first_claims(drawn) <= TASKS)
            if len(fixed) < runs // 2:
                fixed += looked_too_often(drawn).tolist()
        yield Level(world, law.name, float(np.concatenate(claims).mean()), float(np.mean(fixed)))
    for kind in ("even clusters", "uneven clusters"):
        sizes = rng.permutation(cluster_sizes(CLUSTERS, kind))
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        for mean in (0.5, 0.9):
            claims = []
            for some in _chunks(runs):
                one, two = (cluster_values(sizes, mean, 1, None, some, rng) for _ in range(2))
                sums = np.add.reduceat(one - two, starts, axis=1).T
                claims.append(first_claims(sums, sizes.astype(np.float64)) <= len(sizes))
            yield Level("clusters", f"{kind}, mean {mean:g}", float(np.concatenate(claims).mean()), None)


def laws_with(rng: np.random.Generator) -> Iterator[tuple[Law, bool]]:
    """Worlds in which the new run is better, and whether their rewards are finely graded (sd below 0.2)."""
    for win, loss in ((0.10, 0.05), (0.06, 0.01), (0.2, 0.1), (0.3, 0.1), (0.13, 0.10), (0.03, 0.01)):
        yield _flipped(win, loss), False
    for samples, gain in ((4, 0.1), (4, 0.05), (16, 0.05)):
        old = (1 - gain) * rng.beta(2, 2, size=POPULATION)
        apart = (rng.binomial(samples, old + gain) - rng.binomial(samples, old)) / samples
        yield Law(f"{samples} samples, +{gain:g}", apart), samples > 4
    for gain, deviation in ((0.05, 0.2), (0.02, 0.1)):
        yield (
            Law(f"normal, +{gain:g}, sd {deviation:g}", np.clip(rng.normal(gain, deviation, POPULATION), -1, 1)),
            deviation < 0.2,
        )


def fresh_laws_with(rng: np.random.Generator) -> Iterator[tuple[Law, bool]]:
    """The same for worlds that were not used for choosing any constant of the test."""
    for win, loss in ((0.15, 0.05), (0.08, 0.04), (0.4, 0.25)):
        yield _flipped(win, loss), False
    for samples, gain in ((2, 0.08), (8, 0.06)):
        old = (1 - gain) * rng.beta(0.5, 0.5, size=POPULATION)
        apart = (rng.binomial(samples, old + gain) - rng.binomial(samples, old)) / samples
        yield Law(f"{samples} samples, +{gain:g}", apart), samples > 4
    for gain, deviation in ((0.06, 0.3), (0.04, 0.15)):
        yield (
            Law(f"normal, +{gain:g}, sd {deviation:g}", np.clip(rng.normal(gain, deviation, POPULATION), -1, 1)),
            deviation < 0.2,
        )


def _flipped(win: float, loss: float) -> Law:
    return Law(f"win {win:g}, loss {loss:g}", np.array([1.0, -1.0, 0.0]), np.array([win, loss, 1 - win - loss]))


def costs(runs: int, rng: np.random.Generator) -> Iterator[Cost]:
    """How often, and how soon, a true difference is found."""
    worlds = [*laws_with(rng), *((replace(law, name=f"{law.name} *"), fine) for law, fine in fresh_laws_with(rng))]
    for law, fine in worlds:
        largest = float(np.abs(law.values).max())
        tasks = tasks_needed(law.variance, law.mean, largest=largest) or 0
        most = math.ceil(LONGEST * tasks)
        claims, shown = [], []
        for some in _chunks(runs):
            drawn = law.drawn((most, some), rng)
            claims.append(first_claims(drawn))
            shown.append(floored_p(of_differences(np.ascontiguousarray(drawn[:tasks].T))) <= LEVEL)
        when = np.sort(np.concatenate(claims))
        times = float(when[math.ceil(POWER * runs) - 1]) / tasks
        fixed, found = float(np.concatenate(shown).mean()), float((when <= tasks).mean())
        late = float((when <= (MOST_TIMES_FINE if fine else MOST_TIMES) * tasks).mean())
        yield Cost(law.name, math.sqrt(law.variance), tasks, fixed, found, times, fine, late)


def followed(runs: int, rng: np.random.Generator) -> Iterator[Advice]:
    """The earlier advice: the number of further tasks with a power of 80 % if the observed difference is true."""
    for share in (0.1, 0.3):
        law = np.array([share / 2, share / 2, 1 - share])
        for start in STARTS:
            tally = rng.multinomial(start, law, size=runs)
            pairs = _pairs(tally)
            claimed = floored_p(pairs) <= LEVEL
            found = [float(claimed.mean())]
            for _ in range(ROUNDS):
                tasks = pairs.effective_units
                variance = (pairs.variance + (pairs.biggest / 2) ** 2) * tasks  # the variance that the test uses
                needed = np.full(runs, float(FARTHEST))
                seen = np.abs(pairs.value) > quantiles() * np.sqrt(variance / FARTHEST)
                needed[seen] = np.ceil(quantiles() ** 2 * variance[seen] / pairs.value[seen] ** 2)
                more = np.where(claimed, 0, np.maximum(needed - tasks, 1)).astype(np.int64)
                tally = tally + rng.multinomial(more, law)
                pairs = _pairs(tally)
                claimed |= floored_p(pairs) <= LEVEL
                found.append(float(claimed.mean()))
            yield Advice(f"{100 * share:g} % of tasks differ", start, found)


def _pairs(tally: Ints) -> Pairs:
    """Pairs of runs with these wins, losses and ties, [R, 3], each with its own number of tasks."""
    tasks = tally.sum(axis=1).astype(np.float64)
    value = (tally[:, 0] - tally[:, 1]) / tasks
    variance = ((tally[:, 0] + tally[:, 1]) / tasks - value**2) / (tasks - 1)
    return Pairs(value, variance, (tally[:, :2].sum(axis=1) > 0) / tasks, tasks)


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for the page, and a sentence for each promise that was not kept."""
    streams = [np.random.default_rng(one) for one in np.random.SeedSequence([seed, 16]).spawn(3)]
    runs = RUNS // fewer
    without, true = list(levels(runs, streams[0])), list(costs(runs, streams[1]))
    advice = list(followed(runs, streams[2]))
    return _text(without, true, advice, runs, seed), _unkept(without, true, runs)


def _unkept(without: Sequence[Level], true: Sequence[Cost], runs: int) -> list[str]:
    said = [
        f"{one.world}, {one.name}: {percent(one.claimed)} % false claims"
        for one in without
        if one.claimed > LEVEL + math.sqrt(LEVEL * (1 - LEVEL) / runs)
    ]
    error = math.sqrt(LEAST_POWER * (1 - LEAST_POWER) / runs)
    said += [
        f"{one.name}: {percent(one.found)} % at {one.tasks} tasks"
        for one in true
        if not one.fine and one.found < LEAST_POWER - error
    ]
    said += [
        f"{one.name}: 80 % at {one.times:.2f} times the tasks"
        for one in true
        if one.late < POWER - math.sqrt(POWER * (1 - POWER) / runs)
    ]
    return said


def _text(without: Sequence[Level], true: Sequence[Cost], advice: Sequence[Advice], runs: int, seed: int) -> str:
    return "\n".join(
        [
            filled(
                f"Written by `make bench-statistics`: {len(without)} scenarios without a difference, seed {seed}, "
                f"{runs:,} runs of {TASKS:,} tasks per scenario (clusters: {CLUSTERS} clusters). The anytime test is "
                f"evaluated after every task, the default test (half of the runs) {TASKS // BETWEEN} times, {BETWEEN} "
                "tasks apart. The table shows how often each claims, at any evaluation, a difference that does not "
                "exist, mean / worst over scenarios, in per cent:\n"
            ),
            _level_table(without),
            filled(
                f"The cost if there is a difference, {runs:,} runs per scenario: the number of tasks with which the "
                "default test, used once, finds the difference in about 80 % of the runs; how often the anytime test "
                "has claimed it by then; and the factor by which the anytime test needs more tasks to reach 80 %. The "
                "scenarios with a star were not used to choose any constant of the test:\n"
            ),
            _cost_table(true),
            filled(
                "The factor is larger, and the column before it smaller, for finely graded rewards (sd below 0.2): a "
                "task might still lose everything, and a bet must survive that.\n"
            ),
            filled(
                'The reason why Calipers no longer gives the advice "about N more tasks would decide it": suppose '
                "that there is no difference, and that you test N more tasks together with the earlier ones each time "
                f"the result is undecided. You then claim a difference in this share of {runs:,} runs, in per cent "
                f"(advice beyond {FARTHEST:,} tasks is cut off there):\n"
            ),
            _advice_table(advice),
        ]
    )


def _level_table(without: Sequence[Level]) -> str:
    lines = ["| scenarios | number | anytime test | default test, repeated |", "|---|---|---|---|"]
    for world, said in (("fair", "fair"), ("skewed", "skewed"), ("split", "0 or 1"), ("clusters", "clusters")):
        some = [one for one in without if one.world == world]
        fixed = [one.fixed for one in some if one.fixed is not None]
        lines.append(f"| {said} | {len(some)} | {_spread([one.claimed for one in some])} | {_spread(fixed)} |")
    return "\n".join(lines) + "\n"


def _cost_table(true: Sequence[Cost]) -> str:
    lines = ["| scenario | sd | tasks | default test | anytime test | factor for 80 % |", "|---" * 6 + "|"]
    lines += [
        f"| {one.name} | {one.deviation:.2f} | {one.tasks:,} | {percent(one.fixed)} | {percent(one.found)} "
        f"| {one.times:.2f} |"
        for one in true
    ]
    return "\n".join(lines) + "\n"


def _advice_table(advice: Sequence[Advice]) -> str:
    lines = ["| scenario | tasks at first | first test | advice followed once | five times |", "|---" * 5 + "|"]
    lines += [
        f"| {one.name} | {one.start} | {percent(one.claimed[0])} | {percent(one.claimed[1])} "
        f"| {percent(one.claimed[-1])} |"
        for one in advice
    ]
    return "\n".join(lines) + "\n"


def _spread(shares: Sequence[float]) -> str:
    return f"{percent(sum(shares) / len(shares))} / {percent(max(shares))}" if shares else "-"


def _chunks(runs: int) -> Iterator[int]:
    for first in range(0, runs, CHUNK):
        yield min(CHUNK, runs - first)
