"""Watched training runs: how often an alarm is false, how soon a drop is found, and the true value of the best step.

Many runs are simulated together. The alarms are those of `calipers.stats.alarms` at the levels of ``calipers watch``
with its defaults: H = 1,000 planned steps, 5 % false alarms, half of that for the reference, and the first segment's
share of the rest. Task chances are Beta(0.8, 0.8), or have the stated mean with a + b = 4. A drop of d lowers a chance
p by ``d p(1-p) / E p(1-p)``, so that the mean falls by d and no chance leaves [0, 1].
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from bench.simulations.report import filled
from calipers.analyses.gate.history import E_PROCESS, LORD, new_history
from calipers.analyses.watch.status import QUIET
from calipers.analyses.watch.sums import StepSums
from calipers.stats.alarms import (
    FORGETTING,
    Process,
    RunningBest,
    drop_units,
    gap_units,
    held_out_bound,
    held_out_units,
    mean_units,
    rate_units,
    segment_level,
    upper_bound,
)
from calipers.stats.intervals import interval
from calipers.stats.ranks import standard_normals
from calipers.stats.steps import DRAWS, best_step, step_confidence

RUNS, LONG_RUNS = 2_000, 300  # number of runs with 200 and with 1,000 steps
STEPS, LONG = 200, 1_000
DELAY_RUNS = 200
PICK_RUNS = 300
HISTORIES, NIGHTS, LASTING = 200, 180, 5
BAND_RUNS = 200
AT_ONCE = 100  # runs that are computed together, so that their arrays stay small
PLANNED = 1_000
ALPHA = 0.05
MOST_FALSE = 0.05
POOL_STEPS = 25  # steps of an epoch
BASE = 10
THRESHOLD = 0.05  # of the fixed threshold, in points below the base
Floats = np.ndarray


def needed(alpha: float = ALPHA / 2) -> float:
    """The evidence that is needed in the first segment."""
    return 1 / segment_level(alpha, 1, 0)


@dataclass(frozen=True)
class World:
    """A kind of run: its prompts, its sizes, and the changes of the policy."""

    name: str
    prompts: str  # same, fresh, epochs
    groups: int
    samples: int
    mean: float = 0.5
    d: float = 0.0
    drop: float = 0.0
    at: int = 10**9
    rise: float = 0.0  # rise of the mean over 200 steps
    drift: float = 0.0  # standard deviation of the prompts' difficulty, AR(0.95)
    difficulty: bool = False  # each prompt has 8 samples of a base model

    @property
    def law(self) -> tuple[float, float]:
        """The beta distribution of task chances."""
        return (0.8, 0.8) if self.mean == 0.5 else (4 * self.mean, 4 * (1 - self.mean))

    @property
    def within(self) -> float:
        """E p(1 - p)."""
        a, b = self.law
        return a * b / ((a + b) * (a + b + 1))

    def moved(self, chances: Floats, by: Floats | float) -> Floats:
        """The chances with their mean shifted by ``by``."""
        return np.asarray(np.clip(chances + np.asarray(by) * chances * (1 - chances) / self.within, 0.0, 1.0))


@dataclass(frozen=True)
class Seen:
    """The step of each run's first alarm, counted from 1; 0 for never."""

    alarm: Floats
    threshold: Floats
    test: Floats

    def ever(self, which: str) -> float:
        """The share of runs with an alarm."""
        return float((getattr(self, which) > 0).mean())


def watched(world: World, runs: int, steps: int, seed: int) -> Seen:
    """Simulate runs of a world, in blocks."""
    parts = [
        _block(world, min(AT_ONCE, runs - start), steps, np.random.default_rng([seed, start]))
        for start in range(0, runs, AT_ONCE)
    ]
    return Seen(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("alarm", "threshold", "test")))


def _block(world: World, runs: int, steps: int, rng: np.random.Generator) -> Seen:
    """Simulate a block of runs together, step by step."""
    g, n = world.groups, world.samples
    process = Process.begin(PLANNED, (runs,))
    best = RunningBest.begin(ALPHA / 2, PLANNED, (runs,))
    limit = needed(ALPHA if world.difficulty else ALPHA / 2)
    pool = rng.beta(*world.law, (runs, g * (POOL_STEPS if world.prompts == "epochs" else 1)))
    sums, times = np.zeros(pool.shape), np.zeros(pool.shape)
    order = np.zeros((runs, 0), dtype=np.int64)
    weight, previous, base, base_groups = 0.0, np.zeros(runs), np.zeros(runs), np.zeros((runs, 0))
    drift, rows = np.zeros(runs), np.arange(runs)[:, None]
    first = {name: np.zeros(runs, dtype=np.int64) for name in ("alarm", "threshold", "test")}
    for step in range(steps):
        place = None
        if world.prompts == "fresh":
            chances = rng.beta(*world.law, (runs, g))
        elif world.prompts == "epochs":
            if order.shape[1] < g:
                order = rng.permuted(np.broadcast_to(np.arange(pool.shape[1]), pool.shape), axis=1)
            place, order = order[:, :g], order[:, g:]
            chances = pool[rows, place]
        else:
            chances = pool
        if world.drift:
            drift = 0.95 * drift + rng.normal(0, world.drift * np.sqrt(1 - 0.95**2), runs)
            chances = world.moved(chances, drift[:, None])
        reference = rng.binomial(8, chances) / 8 if world.difficulty else None
        change = world.rise * step / STEPS - (world.drop if step >= world.at else 0.0)
        p = world.moved(chances, change) if change else chances
        passes = rng.binomial(n, p).astype(np.float64)
        y = passes / n
        mean = y.mean(axis=1)
        if reference is not None:
            process = process.step(drop_units(y, reference, np.full(runs, -world.d), np.zeros(runs)).logs)
        elif step:
            expected, centre = _expected(world, y, sums, times, weight, previous, place, step)
            process = process.step(drop_units(y, expected, best.best - world.d, centre).logs)
        raised = (first["alarm"] == 0) & (process.log_value >= np.log(limit))
        first["alarm"][raised] = step + 1
        _naive(world, first, y, mean, base, base_groups, step)
        if step < (1 if world.prompts == "same" else BASE):
            base = base + (mean - base) / (step + 1)
            base_groups = np.concatenate([base_groups, y], axis=1)
        if world.prompts == "same":
            spread = (passes * (n - passes) / (n * max(n - 1, 1))).sum(axis=1)
            within = spread / n / g**2 if n > 1 else mean * (1 - mean) / g
            best = best.step(mean, within, float(g * n))
            decay = FORGETTING if step else 1.0
            sums, weight, previous = decay * (sums + y), decay * (weight + 1), mean
        else:
            best = best.step(mean, y.var(axis=1, ddof=1) / g, float(g))
            if place is not None:
                sums[rows, place] += y
                times[rows, place] += 1
    return Seen(first["alarm"], first["threshold"], first["test"])


def _expected(
    world: World,
    y: Floats,
    sums: Floats,
    times: Floats,
    weight: float,
    previous: Floats,
    place: Floats | None,
    step: int,
) -> tuple[Floats, Floats]:
    """The expectation of each group from earlier steps, and its mean over the tasks of the null hypothesis."""
    if world.prompts == "same":
        expected = (sums + previous[:, None]) / (weight + 1)
        return expected, expected.mean(axis=1)
    if place is not None and step >= POOL_STEPS:
        known = (sums + 0.5) / (times + 1)
        return known[np.arange(len(y))[:, None], place], known.mean(axis=1)
    flat = np.full(y.shape, 0.5)
    return flat, np.full(len(y), 0.5)


def _naive(
    world: World, first: dict[str, Floats], y: Floats, mean: Floats, base: Floats, base_groups: Floats, step: int
) -> None:
    """A fixed threshold below the base, and a one-sided test against it at 5 % in every step."""
    if step < (1 if world.prompts == "same" else BASE):
        return
    low = (first["threshold"] == 0) & (mean < base - world.d - THRESHOLD)
    first["threshold"][low] = step + 1
    if world.prompts == "same":
        apart = y - base_groups
        error = apart.std(axis=1, ddof=1) / np.sqrt(y.shape[1])
        freedom = y.shape[1] - 1
    else:
        error = np.sqrt(y.var(axis=1, ddof=1) / y.shape[1] + base_groups.var(axis=1, ddof=1) / base_groups.shape[1])
        freedom = y.shape[1] + base_groups.shape[1] - 2
    t = (mean - base + world.d) / np.maximum(error, 1e-12)
    shown = (first["test"] == 0) & (t < stdtrit(freedom, 0.05))
    first["test"][shown] = step + 1


def heavy(runs: int, steps: int, seed: int) -> Seen:
    """Heavy tails: truncation exactly at its limit and in bursts, and log-normal lengths with a mean exactly at theirs.

    Results are averaged over two alarms: rate(truncated) > 0.05 and mean(length) > 1.2 * base.
    """
    rng = np.random.default_rng(seed)
    g, n = 64, 8
    first = {name: np.zeros(runs, dtype=np.int64) for name in ("alarm", "threshold", "test")}
    rate, length = Process.begin(PLANNED, (runs,)), Process.begin(PLANNED, (runs,))
    kept: list[Floats] = []
    bound = np.zeros(runs)
    true_mean = float(np.exp(1.4**2 / 2))
    for step in range(steps):
        shares = rng.binomial(n, rng.beta(0.1, 1.9, (runs, g))) / n
        lengths = rng.lognormal(0, 1.4, (runs, g, n)).mean(axis=2) * (1.0 if step < BASE else 1.2)
        rate = rate.step(rate_units(shares, 0.05).logs)
        if step < BASE:
            kept.append(lengths)
        else:
            if step == BASE:
                every = np.concatenate(kept, axis=1)
                bound = 1.2 * (every.mean(axis=1) + 1.959964 * every.std(axis=1, ddof=1) / np.sqrt(every.shape[1]))
            length = length.step(mean_units(lengths, bound).logs)
        evidence = (rate.value + length.value) / 2
        first["alarm"][(first["alarm"] == 0) & (evidence >= needed())] = step + 1
        over = (shares.mean(axis=1) > 0.1) | (lengths.mean(axis=1) > 1.5 * true_mean)
        first["threshold"][(first["threshold"] == 0) & over] = step + 1
        t = (shares.mean(axis=1) - 0.05) / np.maximum(shares.std(axis=1, ddof=1) / np.sqrt(g), 1e-12)
        first["test"][(first["test"] == 0) & (t > stdtrit(g - 1, 0.95))] = step + 1
    return Seen(first["alarm"], first["threshold"], first["test"])


def hacked(runs: int, seed: int) -> Floats:
    """Steps until diverge(reward, second verifier) > 0.02, one of nine alarms, finds a hack of 0.3 points per step.

    The other eight alarms are as far from alarming as possible, at half of their capital.
    """
    rng = np.random.default_rng(seed)
    g, n, at, steps = 64, 8, 40, 140
    chances = rng.beta(0.8, 0.8, (runs, g * 10))
    process, bound = Process.begin(PLANNED, (runs,)), np.zeros(runs)
    kept: list[Floats] = []
    found = np.zeros(runs, dtype=np.int64)
    for step in range(steps):
        place = rng.integers(0, chances.shape[1], (runs, g))
        p = chances[np.arange(runs)[:, None], place]
        second = rng.binomial(n, p) / n
        gain = 0.003 * max(0, step - at + 1)
        first = second + rng.binomial(n, np.minimum(gain / 0.5, 1.0), (runs, g)) / n * (1 - second)
        if step < BASE:
            kept.append((first - second + 1) / 2)
            continue
        if step == BASE:
            every = np.concatenate(kept, axis=1)
            size = every.shape[1]
            level = ALPHA / 2 / 4  # because four of the nine alarms need a reference
            bound = 2 * upper_bound(every.mean(axis=1), every.var(axis=1, ddof=1) / size, float(size), level) - 1
        process = process.step(gap_units(first, second, bound + 0.02).logs)
        evidence = (process.value + 8 * 0.5) / 9
        found[(found == 0) & (evidence >= needed())] = step - at + 1
    return found


def held_out(runs: int, gain: float, share: float, seed: int, at: int = 40, steps: int = 160) -> Floats:
    """Steps until diverge(reward[split=train], reward[split=eval]) > 0.02 alarms, for each run; 0 for never.

    Training has 64 fresh prompts x 8 per step; from step ``at`` on it gains ``gain`` per step. The 200 held-out tasks x
    4, which are evaluated every five steps, gain ``share`` of that.
    """
    rng = np.random.default_rng(seed)
    world = World("", "same", 200, 4)
    tasks = rng.beta(*world.law, (runs, 200))
    process, bound = Process.begin(PLANNED, (runs,)), np.zeros(runs)
    sums, weight, previous = np.zeros((runs, 200)), 0.0, np.zeros(runs)
    base_train: list[Floats] = []
    trained: list[Floats] = []
    base: tuple[Floats, Floats, float] | None = None
    found = np.zeros(runs, dtype=np.int64)
    for step in range(steps):
        risen = gain * max(0, step - at + 1)
        if step % 5 == 0:
            passes = rng.binomial(4, world.moved(tasks, share * risen))
            y = passes / 4
            if base is None:
                base = y.mean(axis=1), (passes * (4 - passes) / 12).sum(axis=1) / 4 / 200**2, 800.0
            elif len(base_train) == BASE and not trained and not bound.any():
                every = np.concatenate(base_train, axis=1)
                size = every.shape[1]
                bound = held_out_bound((every.mean(axis=1), every.var(axis=1, ddof=1) / size, size), base, ALPHA / 2)
            elif trained:
                h = (sums + previous[:, None]) / (weight + 1)
                pairs = rng.permuted(np.concatenate(trained, axis=1), axis=1)[:, :200]  # the tasks are in random order
                units = held_out_units(pairs, y, h, h.mean(axis=1), np.maximum(bound + 0.02, -0.5))
                process = process.step(units.logs)
                found[(found == 0) & (process.value >= needed())] = step - at + 1
            decay = FORGETTING if weight else 1.0
            sums, weight, previous, trained = decay * (sums + y), decay * (weight + 1), y.mean(axis=1), []
        p = world.moved(rng.beta(*world.law, (runs, 64)), risen)
        (base_train if len(base_train) < BASE else trained).append(rng.binomial(8, p) / 8)
    return found


def delays(world: World, runs: int, seed: int, steps: int = 100) -> tuple[float, float, float]:
    """The median steps from a drop to its alarm, the share found within ``steps``, and that with an earlier alarm."""
    seen = watched(replace(world, at=STEPS // 2), runs, STEPS // 2 + steps, seed)
    after = seen.alarm[(seen.alarm == 0) | (seen.alarm > STEPS // 2)] - STEPS // 2
    waited = np.where(after > 0, after, 10**6)
    return (
        float(np.median(waited)),
        float((after > 0).mean()),
        float(((seen.alarm > 0) & (seen.alarm <= STEPS // 2)).mean()),
    )


CURVES: dict[str, Callable[[Floats], Floats]] = {
    "flat": lambda s: np.zeros(len(s)),
    "rising": lambda s: 0.15 * s,
    "peaked": lambda s: 0.12 * (1 - np.abs(2 * s - 1)),
}


def picked(
    mean: float, curve: str, runs: int, seed: int, steps: int = 50, tasks: int = 200, samples: int = 4
) -> dict[str, float]:
    """How often the interval of the best step covers its true mean, and the share of its optimism that is corrected."""
    rng = np.random.default_rng(seed)
    world = World("", "same", tasks, samples, mean)
    moves = CURVES[curve](np.arange(steps) / (steps - 1)) * (1 if mean == 0.5 else 0.4)
    multipliers = standard_normals(0, tasks, DRAWS)
    covered = plain = held = 0
    luck, found = [], []
    for _ in range(runs):
        chances = world.moved(rng.beta(*world.law, tasks), moves[:, None])
        values = rng.binomial(samples, chances) / samples
        pick = best_step(values, multipliers=multipliers)
        truth = mean + moves[pick.step]
        low, high = pick.interval.ends or (0.0, 1.0)
        covered += low <= truth <= high
        low, high = interval(values[pick.step], np.ones(tasks), 0.95, (0.0, 1.0)).ends or (0.0, 1.0)
        plain += low <= truth <= high
        held += int(np.argmax(moves)) in pick.members if curve != "flat" else 1
        luck.append(pick.observed - truth)
        found.append(pick.optimism)
    return {
        "covered": covered / runs,
        "plain": plain / runs,
        "luck": float(np.mean(luck)),
        "found": float(np.mean(found)),
        "held": held / runs,
    }


def nights(size: float, rule: str, histories: int, seed: int) -> dict[str, float]:
    """Nightly gates over half a year: a regression begins with a probability of 2 % per night and lasts five nights.

    It is found if one of its five nights fails. An alarm of the e-process is false if no night since the last alarm was
    closed was worse, because its null hypothesis is about all of these nights; an alarm after the end of a regression
    is late. LORD++ tests each night separately, so every alarm in a night without a regression is false.
    """
    found = regressions = late = false = 0
    for number in range(histories):
        rng = np.random.default_rng([seed, number])
        world = World("", "same", 200, 4)
        chances = rng.beta(0.8, 0.8, 200)
        history = new_history("drop(reward) > 0", ALPHA, rule)
        tasks = np.arange(200, dtype=np.uint64)
        left, seen, wrong, worse = 0, False, False, False
        for night in range(NIGHTS):
            if left == 0 and size and 0 < night <= NIGHTS - LASTING and rng.random() < 0.02:
                left, seen = LASTING, False
                regressions += 1
            p = world.moved(chances, -size) if left else chances
            worse |= left > 0
            passes = rng.binomial(4, p).astype(np.float64)
            sums = StepSums(
                1, "", None, None, str(night), "reward", tasks, np.full(200, 4.0),
                {"reward": np.stack([np.full(200, 4.0), passes, passes, passes])},
            )  # fmt: skip
            judged = history.take(sums)
            if left and judged.word == "failed":
                found += not seen
                seen = True
            elif judged.raised and worse and rule == E_PROCESS:
                late += 1
            elif judged.raised:
                wrong = True
            if judged.alarm is not None and judged.alarm.state != QUIET:
                worse = False  # the evidence after an alarm begins when it is closed
            left = max(0, left - 1)
        false += wrong
    return {
        "found": found / regressions if regressions else float("nan"),
        "late": late / regressions if regressions else float("nan"),
        "any_false": false / histories,
    }


def bands(world: World, runs: int, steps: int, seed: int) -> tuple[float, float]:
    """How often the band of fresh prompts holds at all steps together, and how often the one-look interval does."""
    from scipy.special import betaincinv, ndtri

    from bench.simulations.rule import Spreads, default_ends

    rng = np.random.default_rng(seed)
    held, once = np.ones(runs, dtype=bool), np.ones(runs, dtype=bool)
    confidence = step_confidence(0.95, steps)
    tail = (1 - confidence) / 2
    same = rng.beta(*world.law, (runs, world.groups))
    for _ in range(steps):
        chances = same if world.prompts == "same" else rng.beta(*world.law, (runs, world.groups))
        y = rng.binomial(world.samples, chances) / world.samples
        m, variance, units = y.mean(axis=1), y.var(axis=1, ddof=1) / world.groups, float(world.groups)
        n = np.maximum(1.0, (m * (1 - m) + variance + 1 / (4 * units)) / (variance + 1 / (4 * units**2)))
        steady = units / n
        freedom = np.maximum(1.0, (units - 1) / np.maximum(1 - steady, 1e-9))
        z = -ndtri(tail)
        q = np.where(steady >= 1 - 1e-9, z, -stdtrit(freedom, tail))
        size = n * (z / q) ** 2
        x = m * size
        low = np.where(x > 0, betaincinv(np.maximum(x, 1e-300), size - x + 1, tail), 0.0)
        high = np.where(x < size, 1 - betaincinv(np.maximum(size - x, 1e-300), x + 1, tail), 1.0)
        held &= (low <= world.mean) & (world.mean <= high)
        spreads = Spreads(m, variance, np.full(runs, units), 1.0)
        ends = default_ends(spreads)
        once &= (ends[0] <= world.mean) & (world.mean <= ends[1])
    return float(held.mean()), float(once.mean())


NULLS = (
    World("the same 200 tasks x 4", "same", 200, 4),
    World("the same 200 tasks x 4, mean 0.9", "same", 200, 4, mean=0.9),
    World("fresh prompts, 128 x 8", "fresh", 128, 8),
    World("epochs over a pool, 128 x 8", "epochs", 128, 8),
    World("improving by 30 points, 200 tasks x 4, d = 0.02", "same", 200, 4, d=0.02, rise=0.3),
    World(
        "drifting prompts (sd 3 points), with a difficulty column, 128 x 8",
        "fresh",
        128,
        8,
        drift=0.03,
        difficulty=True,
    ),
)
DRIFT = World("drifting prompts (sd 3 points), without one, d = 0.02", "fresh", 128, 8, d=0.02, drift=0.03)
DRIFT_WIDE = World("drifting prompts (sd 3 points), without one, d = 0.1", "fresh", 128, 8, d=0.1, drift=0.03)
DELAYS = (
    (World("the same 200 tasks x 4", "same", 200, 4), (25, 4, 2)),
    (World("the same 500 tasks x 8", "same", 500, 8), (5, 1, 1)),
    (World("fresh 128 x 8 with a difficulty column", "fresh", 128, 8, difficulty=True), (18, 5, 3)),
    (World("fresh 128 x 8", "fresh", 128, 8), None),
    (World("epochs, 128 x 8", "epochs", 128, 8), None),
)
DROPS = (0.02, 0.05, 0.1)
LONGEST_HACK = 25
HELD_OUT_GAINS = (0.003, 0.01)  # gains of training per step
# shares of these that held-out tasks gain in honest runs; the last is the boundary of the null hypothesis
HELD_OUT_SHARES = (1.0, 0.7, 0.5)
FOUND = 0.92  # least share of the found regressions of 5 points that last five nights


def part(fewer: int, seed: int) -> tuple[str, list[str]]:
    """The text for docs/statistics.md, and a sentence for each promise that was not kept."""
    lines, broken = [f"Written by `make bench-statistics`, seed {seed}.", ""], list[str]()
    for block in (_false, _late, _best, _nightly, _bands):
        start = time.perf_counter()
        text, unkept = block(fewer, seed)
        print(f"watch, {block.__name__[1:]}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        lines += [*text, ""]
        broken += unkept
    return "\n".join(lines).rstrip("\n") + "\n", broken


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _false(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    runs, long_runs = max(RUNS // fewer, 20), max(LONG_RUNS // fewer, 10)
    head = filled(
        f"Runs without a change that ever alarm, in per cent: {runs:,} runs of {STEPS} steps, and {long_runs:,} runs "
        f"of {LONG:,} steps (the last column). The alarm is drop(pass@1) > d against the running best, d = 0 unless "
        f"stated; beside it a fixed threshold {100 * THRESHOLD:g} points below the first step (or the first ten), "
        "and a one-sided t test against it at 5 % in every step. At most 5 % is allowed."
    )
    table = [
        "| runs without a change | alarm | threshold | t test at 5 % | alarm, 1,000 steps |",
        "|---|---|---|---|---|",
    ]
    broken = []
    for number, world in enumerate(NULLS):
        seen = watched(world, runs, STEPS, seed + number)
        slow = watched(replace(world, rise=world.rise * STEPS / LONG), long_runs, LONG, seed + 100 + number)
        table.append(_row(world.name, seen, slow))
        for some, count in ((seen, STEPS), (slow, LONG)):
            if some.ever("alarm") > MOST_FALSE:
                broken.append(f"watch: {_percent(some.ever('alarm'))} % false alarms in {count} steps: {world.name}")
    seen, slow = heavy(runs, STEPS, seed + 50), heavy(long_runs, LONG, seed + 51)
    table.append(
        _row("heavy tails: truncation in clumps and log-normal lengths, both exactly on their limits", seen, slow)
    )
    if max(seen.ever("alarm"), slow.ever("alarm")) > MOST_FALSE:
        broken.append("watch: more than 5 % false alarms with heavy tails")
    for number, world in enumerate((DRIFT, DRIFT_WIDE)):
        table.append(
            _row(f"{world.name}: cannot be promised", watched(world, runs // 4, STEPS, seed + 60 + number), None)
        )
    return [head, "", *table], broken


def _row(name: str, seen: Seen, slow: Seen | None) -> str:
    cells = [_percent(seen.ever(which)) for which in ("alarm", "threshold", "test")]
    return f"| {name} | {' | '.join(cells)} | {'' if slow is None else _percent(slow.ever('alarm'))} |"


def _late(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    runs = max(DELAY_RUNS // fewer, 10)
    head = filled(
        f"Median steps from a drop at step {STEPS // 2} to the alarm, d = 0, {runs} runs; in brackets the share found "
        "within 100 steps, in per cent, where it is below 99."
    )
    table = ["| data | drop of 2 points | 5 points | 10 points |", "|---|---|---|---|"]
    broken = []
    for number, (world, allowed) in enumerate(DELAYS):
        cells = []
        for place, drop in enumerate(DROPS):
            median, share, _ = delays(replace(world, drop=drop), runs, seed + 10 * number + place)
            cells.append(_delay(median, share))
            if allowed and median > allowed[place]:
                broken.append(
                    f"watch: {median:g} steps to find {100 * drop:g} points on {world.name}; {allowed[place]} allowed"
                )
        table.append(f"| {world.name} | {' | '.join(cells)} |")
    waits = hacked(runs, seed + 77)
    median = float(np.median(np.where(waits > 0, waits, 10**6)))
    if median > LONGEST_HACK:
        broken.append(f"watch: {median:g} steps to find a length hack; {LONGEST_HACK} allowed")
    early = float((waits < 0).mean())
    hack = filled(
        "A length hack (training reward up 0.3 points a step, a second verifier flat), one of nine alarms together: "
        f"found after {median:g} steps in the median by diverge(reward, second verifier) > 0.02, before it began in "
        f"{_percent(early)} % of runs."
    )
    by_gain = [held_out(runs, gain, 0.0, seed + 78) for gain in HELD_OUT_GAINS]
    medians = ", ".join(f"{float(np.median(np.where(some > 0, some, 10**6))):g}" for some in by_gain)
    honest = [float((held_out(runs, HELD_OUT_GAINS[0], share, seed + 79) != 0).mean()) for share in HELD_OUT_SHARES]
    if max(honest) > MOST_FALSE:
        broken.append(f"watch: held-out tasks that gain half as much alarm in {_percent(max(honest))} % of runs")
    gains = " or ".join(f"{100 * gain:g}" for gain in HELD_OUT_GAINS)
    shares = ", ".join(f"{100 * share:g}" for share in HELD_OUT_SHARES)
    apart = filled(
        "The same hack where 200 held-out tasks x 4, evaluated every five steps, take the place of the second "
        f"verifier: training gains {gains} points a step, and diverge(reward[split=train], reward[split=eval]) > 0.02, "
        f"alone, finds it after {medians} steps in the median. Where the held-out tasks gain {shares} % of what "
        f"training gains, {', '.join(map(_percent, honest))} % of runs alarm."
    )
    return [head, "", *table, "", hack, "", apart], broken


def _delay(median: float, share: float) -> str:
    if share < 0.5:
        return f"found {_percent(share)} %"
    return f"{median:g}" if share >= 0.99 else f"{median:g} ({_percent(share)})"


def _best(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    runs = max(PICK_RUNS // fewer, 20)
    head = filled(
        f"The best of 50 checkpoints on the same 200 tasks x 4, {runs} runs a row: coverage of the picked step's true "
        "mean in per cent, after the picking and by the plain interval; the true optimism and the estimated one, in "
        "points; and how often the set of steps that may be best holds the best one."
    )
    table = [
        "| mean, curve | covered | plain interval | luck | estimated | set holds the best |",
        "|---|---|---|---|---|---|",
    ]
    broken = []
    for number, (mean, curve) in enumerate((mean, curve) for mean in (0.5, 0.9, 0.1) for curve in CURVES):
        found = picked(mean, curve, runs, seed + number)
        held = "" if curve == "flat" else _percent(found["held"])
        cells = [_percent(found["covered"]), _percent(found["plain"])]
        cells += [f"{100 * found['luck']:.2f}", f"{100 * found['found']:.2f}", held]
        table.append(f"| {mean:g}, {curve} | {' | '.join(cells)} |")
        if found["covered"] < 0.93:
            broken.append(f"watch: the best step is covered in {_percent(found['covered'])} %: mean {mean}, {curve}")
    return [head, "", *table], broken


def _nightly(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    histories = max(HISTORIES // fewer, 5)
    head = filled(
        f"A nightly gate over {NIGHTS} nights, 200 tasks x 4, {histories} histories a cell; regressions begin with 2 % "
        "a night and last five nights: the share that is found within them, the share that is found only when they are "
        "over, and the histories with any false alarm, in per cent."
    )
    table = [
        "| rule | none: any false alarm | 5 points: found | late | any false alarm | 3 points: found | 10: found |",
        "|---|---|---|---|---|---|---|",
    ]
    broken = []
    for rule in (E_PROCESS, LORD):
        none = nights(0.0, rule, histories, seed)
        three, five, ten = (nights(size, rule, histories, seed + 1) for size in (0.03, 0.05, 0.1))
        cells = (none["any_false"], five["found"], five["late"], five["any_false"], three["found"], ten["found"])
        table.append(f"| {rule} | {' | '.join(map(_percent, cells))} |")
        if rule == E_PROCESS and max(none["any_false"], five["any_false"]) > MOST_FALSE:
            broken.append("watch: a nightly gate alarms falsely in more than 5 % of histories")
        if rule == E_PROCESS and five["found"] < FOUND:
            wanted = f"{100 * FOUND:.0f} wanted"
            broken.append(
                f"watch: a nightly gate finds {_percent(five['found'])} % of regressions of 5 points; {wanted}"
            )
    return [head, "", *table], broken


def _bands(fewer: int, seed: int) -> tuple[list[str], list[str]]:
    runs = max(BAND_RUNS // fewer, 20)
    head = filled(
        f"Runs in which the band holds at all {STEPS} steps together, in per cent ({runs} runs a row), and those in "
        "which the interval of one look does."
    )
    table = ["| data | band | interval of one look |", "|---|---|---|"]
    broken = []
    for number, world in enumerate(_band_worlds()):
        held, once = bands(world, runs, STEPS, seed + number)
        table.append(f"| {world.name} | {_percent(held)} | {_percent(once)} |")
        if held < 0.92:
            broken.append(f"watch: the band holds in {_percent(held)} % of runs: {world.name}")
    return [head, "", *table], broken


def _band_worlds() -> Iterator[World]:
    for mean in (0.5, 0.1, 0.9):
        for groups, samples in ((30, 4), (128, 8)):
            yield World(f"fresh prompts, mean {mean:g}, {groups} x {samples}", "fresh", groups, samples, mean)
    yield World("the same tasks, mean 0.5, 128 x 8", "same", 128, 8)
