"""pass@k and pass^k beyond the samples: a beta distribution of pass probabilities, with a share of tasks never solved.

The model, called a law: a share z of tasks is never solved, and the pass probabilities of the others are Beta(a, b). c
passes of n samples then have the chance ``(1 - z) BB(c; n, a, b)``, plus z for c = 0: a zero-inflated beta-binomial
(Skellam 1948). It is fitted by maximum likelihood over the logit of a/(a+b), the logarithm of a+b, and z. For each
(a, b) the best z follows directly, so that laws are compared on a grid of (a, b), and a grid for many tables of counts
at once is one matrix product.

The band at each k is the hull of two intervals: the middle of 200 bootstrap draws of the tasks, each with its own fit,
and the values under all laws whose log likelihood is within half a chi-squared quantile of the largest (1.92 at 95 %).
The bootstrap alone covers too rarely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats, Ints
from calipers.stats.intervals import t_quantile
from calipers.stats.sequence import Ends

LOGITS = (-5.0, 5.0, 56)  # of a/(a+b): ends and number of points of the first grid
SIZES = (0.05, 50.0, 28)  # of a+b, in equal steps of its logarithm
SHARES = 40  # shares of tasks never solved that are tried if tasks have different numbers of samples
POINTS = 21  # along each side of a zoomed grid
FAR = 10.0  # zooming leaves out laws whose log likelihood is lower than the best by this: 4.5 standard errors
MOST = 1 - 1e-9  # the largest share of tasks never solved: at 1, (a, b) would have no influence
STEPS = 45  # halvings of a search for a share: 1 becomes 3e-14
MANY = 256  # samples from which gamma functions are quicker than sums of logarithms
ROUNDS = 40  # of zooming, at most


@dataclass(frozen=True, slots=True)
class Law:
    """A law with its log likelihood for the counts that it was fitted to."""

    a: float
    b: float
    never_solved: float  # z
    log_likelihood: float  # includes C(n, c), but not the constant for the order of the tasks


@dataclass(frozen=True, slots=True)
class PassCounts:
    """The P distinct (n, c) of tasks: c passes of n samples."""

    n: Ints  # [P]
    c: Ints  # [P]

    @property
    def unsolved(self) -> Ints:
        """The pairs without a pass: at most one for each n."""
        return np.flatnonzero(self.c == 0)

    @property
    def solved(self) -> Ints:
        """The pairs with a pass."""
        return np.flatnonzero(self.c)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of logits of a/(a+b) and logarithms of a+b."""

    logit: tuple[float, float]
    size: tuple[float, float]


WHOLE = Box((LOGITS[0], LOGITS[1]), (float(np.log(SIZES[0])), float(np.log(SIZES[1]))))


class Grid:
    """Laws Beta(a, b) at G points of a rectangle, and the log chance of each pair of counts under each."""

    def __init__(self, counts: PassCounts, box: Box = WHOLE, points: tuple[int, int] = (LOGITS[2], SIZES[2])) -> None:
        self.counts = counts
        self.logits, self.sizes = np.linspace(*box.logit, points[0]), np.linspace(*box.size, points[1])
        logit, size = (axis.ravel() for axis in np.meshgrid(self.logits, self.sizes, indexing="ij"))
        self.logit, self.size = logit, size
        self.a, self.b = np.exp(size) / (1 + np.exp(-logit)), np.exp(size) / (1 + np.exp(logit))
        self.log_chance = log_beta_binomial(counts, self.a, self.b)  # [P, G]
        self.unlucky = np.exp(self.log_chance[counts.unsolved])  # [N, G] chance of no pass if the task can be solved

    def profile(self, table: Floats) -> tuple[Floats, Floats]:
        """The log likelihood of a table of counts, [P], under each law with its best share never solved, [G] both."""
        likelihood, shares, case = self._profiles(table[None])
        return likelihood[0], shares[case[0]]

    def likeliest(self, tables: Floats) -> tuple[Ints, Floats]:
        """The best law for each of many tables of counts, [D, P], and its share never solved, [D]."""
        likelihood, shares, case = self._profiles(tables)
        best = np.argmax(likelihood, axis=1)
        return best, shares[case, best]

    def _profiles(self, tables: Floats) -> tuple[Floats, Floats, Ints]:
        """The log likelihoods, [D, G]; the best shares of the U distinct cases, [U, G], and the case of each, [D]."""
        unsolved, solved = self.counts.unsolved, self.counts.solved
        parts = np.column_stack([tables[:, solved].sum(axis=1), tables[:, unsolved]])
        distinct, case = parts, np.zeros(1, dtype=np.int64)
        if len(parts) > 1:
            distinct, case = np.unique(parts, axis=0, return_inverse=True)
        if len(unsolved) == 1:  # closed form: with the best share, the law expects the observed unsolved tasks, or more
            observed = distinct[:, 1:] / distinct.sum(axis=1, keepdims=True)
            shares = np.clip((observed - self.unlucky) / (1 - self.unlucky), 0.0, MOST)
            best = log_share(distinct[:, :1], distinct[:, 1:], shares, self.unlucky)
        else:
            best, shares = self._search_shares(distinct)
        case = case.ravel()
        likelihood = tables[:, solved] @ self.log_chance[solved]
        likelihood += best[case]
        return likelihood, shares, case

    def _search_shares(self, parts: Floats) -> tuple[Floats, Floats]:
        """The largest gain in log likelihood over a grid of shares never solved from 0, and its share, [U, G] both."""
        best, shares = np.full((len(parts), len(self.a)), -np.inf), np.zeros((len(parts), len(self.a)))
        for tried in np.linspace(0.0, 0.975, SHARES) if len(self.counts.unsolved) else [0.0]:
            gain = parts[:, 1:] @ np.log(tried + (1 - tried) * self.unlucky) + parts[:, :1] * np.log1p(-tried)
            better = gain > best
            best[better], shares[better] = gain[better], tried
        return best, shares

    def near(self, table: Floats) -> Box:
        """The rectangle of all laws not far behind the best for counts, [P], one step wider on each side."""
        likelihood, _ = self.profile(table)
        kept = likelihood >= likelihood.max() - FAR
        return Box(
            _around(self.logits, self.logit[kept], WHOLE.logit), _around(self.sizes, self.size[kept], WHOLE.size)
        )


def _around(axis: Floats, kept: Floats, limits: tuple[float, float]) -> tuple[float, float]:
    step = float(axis[1] - axis[0])
    return max(limits[0], float(kept.min()) - step), min(limits[1], float(kept.max()) + step)


def log_share(solved: Floats, unsolved: Floats, share: Floats, unlucky: Floats) -> Floats:
    """The part of the log likelihood that depends on the share never solved, [.., G].

    ``solved``, [.., 1], and ``unsolved``, [.., N], are the numbers of tasks with a pass and without one.
    """
    logs = solved * np.log1p(-share)
    for column in range(unsolved.shape[-1]):
        logs = logs + unsolved[..., column, None] * np.log(share + (1 - share) * unlucky[column])
    return logs


def log_beta_binomial(counts: PassCounts, a: Floats, b: Floats) -> Floats:
    """``log C(n, c) + log B(c + a, n - c + b) - log B(a, b)`` for every pair and law, [P, G].

    Computed from sums of logarithms of a + j, b + j and a + b + j, which are quicker than gamma functions and equally
    exact.
    """
    from scipy.special import betaln, gammaln

    n, c, most = counts.n, counts.c, int(counts.n.max(initial=0))
    ways = (gammaln(n + 1.0) - gammaln(c + 1.0) - gammaln(n - c + 1.0))[:, None]
    if most > MANY:
        return np.asarray(ways + betaln(c[:, None] + a, (n - c)[:, None] + b) - betaln(a, b))
    steps, start = np.arange(most)[:, None], np.zeros((1, len(a)))
    passes, failures, samples = (
        np.concatenate([start, np.cumsum(np.log(shape + steps), axis=0)]) for shape in (a, b, a + b)
    )
    return np.asarray(ways + passes[c] + failures[n - c] - samples[n])


def zoomed(counts: PassCounts, table: Floats, first: Grid | None = None) -> Grid:
    """The grid zoomed in until the likely laws of a table of counts, [P], fill at least half of each side."""
    inner = (first or Grid(counts)).near(table)
    for _ in range(ROUNDS):
        grid = Grid(counts, inner, (POINTS, POINTS))
        outer, inner = inner, grid.near(table)
        if all(_width(getattr(inner, side)) >= 0.5 * _width(getattr(outer, side)) for side in ("logit", "size")):
            break
    return grid


def _width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]


def likeliest(grid: Grid, table: Floats) -> Law:
    """The maximum likelihood law of a table of counts, [P], by zooming around the best point of a grid."""
    box = Box((grid.logits[0], grid.logits[-1]), (grid.sizes[0], grid.sizes[-1]))
    for _ in range(ROUNDS):
        best = int(np.argmax(exact_profile(grid, table)[0]))
        sides = []
        for axis, middle, limits, ends in (
            (grid.logits, grid.logit[best], WHOLE.logit, box.logit),
            (grid.sizes, grid.size[best], WHOLE.size, box.size),
        ):
            edge = middle in (axis[0], axis[-1]) and middle not in limits
            # at an edge of the grid, move it without zooming
            half = _width(ends) / 2 if edge else 2.5 * float(axis[1] - axis[0])
            sides.append((max(limits[0], float(middle) - half), min(limits[1], float(middle) + half)))
        box = Box(sides[0], sides[1])
        if max(_width(box.logit), _width(box.size)) < 1e-6:
            break
        grid = Grid(grid.counts, box, (11, 11))
    values, shares = exact_profile(grid, table)
    best = int(np.argmax(values))
    return Law(float(grid.a[best]), float(grid.b[best]), float(shares[best]), float(values[best]))


def exact_profile(grid: Grid, table: Floats) -> tuple[Floats, Floats]:
    """`Grid.profile` for one table of counts, [P], with the exact best share, found by bisection, [G] both."""
    unsolved, solved = table[grid.counts.unsolved], grid.counts.solved
    passing = float(table[solved].sum())
    low, high = np.zeros(len(grid.a)), np.ones(len(grid.a))
    for _ in range(STEPS if len(unsolved) else 0):  # the log likelihood is concave in the share: bisect its slope
        middle = (low + high) / 2
        slope = -passing / (1 - middle)
        for count, unlucky in zip(unsolved, grid.unlucky, strict=True):
            slope = slope + count * (1 - unlucky) / (middle + (1 - middle) * unlucky)
        low, high = np.where(slope > 0, middle, low), np.where(slope > 0, high, middle)
    shares = np.where(low > 0, (low + high) / 2, 0.0)
    fixed = table[solved] @ grid.log_chance[solved]
    return fixed + log_share(np.array([passing]), unsolved, shares, grid.unlucky), shares


IF = "if chances follow a beta law with a share never solved"
METRICS = ("pass@k", "pass^k")
DRAWS = 200
FEWEST_SAMPLES, FEWEST_UNITS = 4, 30
FARTHEST = 16  # the largest k, as a multiple of the samples
REJECTED = 0.01  # p of Pearson's test below which the model is rejected
LEAST = 0.5  # the divisor in Pearson's test for cells with fewer expected tasks than this
PLACES = 6  # decimals to which the search is accurate
HALVINGS = 16  # of the search for the ends of a share


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """The model-based estimate of one metric at one k beyond the samples."""

    value: float
    stderr: float  # the deviation of the bootstrap draws
    ends: Ends


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The estimates beyond the samples, or why there are none."""

    law: Law | None
    fit_p: float | None  # of Pearson's test of the counts against the law
    points: dict[tuple[str, int], Extrapolated]  # by metric and k; empty if ``why`` is given
    why: str | None = None


def extrapolate(
    n: Ints, c: Ints, ks: Sequence[int], clusters: Ints | None = None, *, confidence: float = 0.95, seed: int = 0
) -> Extrapolation:
    """pass@k and pass^k for each k of ``ks``, from c passes of n samples, [T] each; tasks without samples are left out.

    With ``clusters``, [T], the bootstrap draws whole clusters, and the likelihood set is widened by the design effect.
    A k above `farthest` has no point. Values are rounded to six decimals.
    """
    sampled = n > 0
    n, c = n[sampled], c[sampled]
    units = np.arange(len(n)) if clusters is None else np.unique(clusters[sampled], return_inverse=True)[1]
    if why := refused(n, c, units if clusters is not None else None):
        return Extrapolation(None, None, {}, why)
    pairs, code = distinct_counts(n, c)
    table = np.bincount(code, minlength=len(pairs.n)).astype(float)
    grid = zoomed(pairs, table)
    law = likeliest(grid, table)
    fit_p = pearson(law, pairs, table, design_effect(code, units) if clusters is not None else 1.0)
    if fit_p < REJECTED:
        why = "the counts of passes do not look like a beta law with a share never solved"
        return Extrapolation(law, fit_p, {}, f"{why} (Pearson's test, p = {fit_p:.2g})")
    within = [k for k in ks if k <= farthest(n)]
    unit_tables = draw_tables(code, units, len(pairs.n), seed)
    task_tables = None if clusters is None else draw_tables(code, np.arange(len(code)), len(pairs.n), seed)
    points = _points(grid, table, law, within, (unit_tables, task_tables), confidence) if within else {}
    return Extrapolation(law, fit_p, points)


def refused(n: Ints, c: Ints, clusters: Ints | None = None) -> str | None:
    """Why counts of tasks that have samples, [T] each, do not allow an extrapolation; None if they do."""
    if not c.any():
        return "no task has a pass: nothing says how rare passes are"
    if (c == n).all():
        return "no task has a failure: nothing says how rare failures are"
    units, word = (len(n), "task") if clusters is None else (len(np.unique(clusters)), "cluster")
    if units < FEWEST_UNITS:
        return f"{units} {word}{'' if units == 1 else 's'}; at least {FEWEST_UNITS} are needed to fit a law of chances"
    if (many := int((n >= FEWEST_SAMPLES).sum())) < FEWEST_UNITS:
        enough = f"{FEWEST_SAMPLES} samples or more"
        return f"{many} tasks have {enough}; at least {FEWEST_UNITS} are needed to fit a law of chances"
    return None


def farthest(n: Ints) -> int:
    """The largest k of an extrapolation: 16 times the samples that at least 30 tasks have; 0 for fewer tasks."""
    return FARTHEST * int(np.sort(n)[-FEWEST_UNITS]) if len(n) >= FEWEST_UNITS else 0


def too_far(most: int) -> str:
    """The message for a k above ``most``, the result of `farthest`."""
    return f"k is above {most:,}, {FARTHEST} times the {most // FARTHEST} samples of a task"


def pearson(law: Law, pairs: PassCounts, table: Floats, effect: float = 1.0) -> float:
    """The p of Pearson's test of the number of tasks with c passes, c = 0 to the largest n, against the law.

    ``sum (observed - expected)^2 / max(expected, 0.5)``, chi-squared with ``max(1, n - 3)`` degrees of freedom; tasks
    with different n are added up by c. The statistic is divided by the design effect of clusters (Rao and Scott 1981).
    """
    from scipy.special import gammaincc

    most = int(pairs.n.max())
    observed = np.bincount(pairs.c, table, most + 1)
    expected = np.zeros(most + 1)
    for n in np.unique(pairs.n):
        outcomes = PassCounts(np.full(n + 1, n), np.arange(n + 1))
        chance = np.exp(log_beta_binomial(outcomes, np.array([law.a]), np.array([law.b]))[:, 0]) * (
            1 - law.never_solved
        )
        chance[0] += law.never_solved
        expected[: n + 1] += table[pairs.n == n].sum() * chance
    squares = float(((observed - expected) ** 2 / np.maximum(expected, LEAST)).sum())
    return float(gammaincc(max(1, most - 3) / 2, squares / effect / 2))


def design_effect(code: Ints, clusters: Ints) -> float:
    """The variance of the shares of tasks in each cell relative to independent tasks, averaged over cells.

    At least 1. A cell with share p has the weight 1 - p, as in the first-order correction of Rao and Scott (1981).
    """
    tasks, groups = len(code), int(clusters.max()) + 1
    sizes = np.bincount(clusters, minlength=groups)
    effects, weights = [], []
    for cell in np.unique(code):
        inside = code == cell
        share = float(inside.mean())
        pull = np.bincount(clusters, inside, groups) - share * sizes
        variance = float(pull @ pull) * groups / (groups - 1) / tasks
        if share < 1:
            effects.append(variance / (share * (1 - share)))
            weights.append(1 - share)
    return max(1.0, float(np.average(effects, weights=weights))) if effects else 1.0


def draw_tables(code: Ints, units: Ints, cells: int, seed: int) -> Floats:
    """The number of tasks in each cell on DRAWS bootstrap draws of whole units, [D, P], whatever the order of tasks.

    Draws come from the raw output of PCG64, which no version of numpy may change.
    """
    rank, count = _unit_ranks(code, units), int(units.max()) + 1
    of_task = rank[units]
    source = np.random.PCG64(seed)
    tables = np.empty((DRAWS, cells))
    for row in range(DRAWS):
        chosen = (source.random_raw(count) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)
        times = np.bincount(chosen.astype(np.int64), minlength=count)
        tables[row] = np.bincount(code, times[of_task], cells)
    return tables


def _unit_ranks(code: Ints, units: Ints) -> Ints:
    """The rank of each unit, [U], when units are sorted by the cells of their tasks."""
    count = int(units.max()) + 1
    members = np.lexsort((code, units))
    order = np.argsort(code[members], kind="stable")  # if every task is a unit
    if count < len(code):
        contents = np.split(code[members], np.flatnonzero(np.diff(units[members])) + 1)
        order = np.asarray(sorted(range(count), key=lambda unit: contents[unit].tobytes()))
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    return rank


def distinct_counts(n: Ints, c: Ints) -> tuple[PassCounts, Ints]:
    """The distinct (n, c), and the index of each task's pair, [T]."""
    width = int(n.max(initial=0)) + 1
    pair, code = np.unique(n * width + c, return_inverse=True)
    return PassCounts(pair // width, pair % width), code


def _points(
    grid: Grid, table: Floats, law: Law, ks: Sequence[int], tables: tuple[Floats, Floats | None], confidence: float
) -> dict[tuple[str, int], Extrapolated]:
    """Every metric at every k, from tables drawn over units and, if units are clusters, tables drawn over tasks."""
    values = pass_at(ks, np.array([law.a]), np.array([law.b]))[0] * (1 - law.never_solved)
    passing = pass_at(ks, grid.a, grid.b)
    draws = values_on_draws(grid, passing, tables[0])
    effect = np.ones(passing.shape[1])
    if tables[1] is not None:
        task_variance = values_on_draws(grid, passing, tables[1]).var(axis=0)
        effect = np.maximum(1.0, np.divide(draws.var(axis=0), task_variance, out=effect, where=task_variance > 0))
    low, high = hull(grid, table, passing, draws, law.log_likelihood, confidence, effect)
    columns = (values, draws.std(axis=0, ddof=1), np.minimum(low, values), np.maximum(high, values))
    rows = np.round(np.stack(columns, axis=1), PLACES).tolist()
    names = [(metric, k) for metric in METRICS for k in ks]
    return {name: Extrapolated(value, error, (x, y)) for name, (value, error, x, y) in zip(names, rows, strict=True)}


def values_on_draws(grid: Grid, passing: Floats, tables: Floats) -> Floats:
    """The values under the likeliest law of each drawn table, [D, P]: [D, K]."""
    best, shares = grid.likeliest(tables)
    return (1 - shares)[:, None] * passing[best]


def hull(
    grid: Grid, table: Floats, passing: Floats, draws: Floats, largest: float, confidence: float, effect: Floats
) -> tuple[Floats, Floats]:
    """The ends of the bands, [K] both: the hull of the bootstrap interval and of the likelihood set.

    ``passing``, [G, K], are the values under each law of the grid for tasks that can be solved, ``draws``, [D, K], the
    values on the bootstrap draws; ``effect``, [K], widens the likelihood set.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    drop = t_quantile(1 - tail, np.inf) ** 2 / 2
    for factor in np.unique(effect):
        columns = effect == factor
        inside, fewest, most = likely(grid, table, largest - factor * drop)
        if len(inside):
            kept = passing[inside][:, columns]
            low[columns] = np.minimum(low[columns], ((1 - most)[:, None] * kept).min(axis=0))
            high[columns] = np.maximum(high[columns], ((1 - fewest)[:, None] * kept).max(axis=0))
    return low, high


def likely(grid: Grid, table: Floats, least: float) -> tuple[Ints, Floats, Floats]:
    """The laws of a grid whose log likelihood for counts, [P], can reach ``least``, and the ends of their shares."""
    best, share = exact_profile(grid, table) if len(grid.unlucky) > 1 else grid.profile(table)
    inside = np.flatnonzero(best >= least)
    share, unlucky = share[inside], grid.unlucky[:, inside]
    solved, unsolved = np.array([table[grid.counts.c > 0].sum()]), table[grid.counts.unsolved]
    needed = least - (best[inside] - log_share(solved, unsolved, share, unlucky))
    ends = []
    for outer in (np.zeros(len(inside)), np.ones(len(inside))):
        near, far = share, outer  # the log likelihood reaches ``least`` at near, and perhaps not at far
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            enough = log_share(solved, unsolved, middle, unlucky) >= needed
            near, far = np.where(enough, middle, near), np.where(enough, far, middle)
        ends.append(near)
    return inside, ends[0], ends[1]


def pass_at(ks: Sequence[int], a: Floats, b: Floats) -> Floats:
    """pass@k for every k, then pass^k for every k, over the tasks that can be solved, under laws [G]: [G, 2 K].

    ``1 - B(a, b + k)/B(a, b)`` and ``B(a + k, b)/B(a, b)``; over all tasks, these are to be multiplied by the share
    that can be solved.
    """
    from scipy.special import betaln

    k, a, b = np.asarray(ks, dtype=float), a[:, None], b[:, None]
    log_beta = betaln(a, b)
    return np.concatenate([-np.expm1(betaln(a, b + k) - log_beta), np.exp(betaln(a + k, b) - log_beta)], axis=1)
