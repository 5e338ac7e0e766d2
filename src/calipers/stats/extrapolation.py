"""pass@k and pass^k beyond the samples: a beta distribution of pass probabilities, with a share of tasks never solved.

The law is fitted by maximum likelihood. The band at each k is the hull of two: the
middle of 200 bootstrap draws of the tasks, each with a fit of its own, and what all laws within half a chi-squared
quantile of the largest log likelihood say (1.92 at 95 %). The bootstrap alone covers too rarely.

The law of chances behind counts of passes: a share of tasks never solved, Beta(a, b) for the others.

c passes of n samples then have the chance ``(1 - z) BB(c; n, a, b)``, plus z for c = 0: a zero-inflated
beta-binomial (Skellam 1948). It is fitted by maximum likelihood over the logit of a/(a+b), the logarithm of a+b,
and z. For each (a, b) the best z follows directly, so laws are compared on a grid of (a, b), and a grid for
many tables of counts at once is one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats, Ints
from calipers.stats.intervals import t_quantile

LOGITS = (-5.0, 5.0, 56)  # of a/(a+b): ends and points of the first grid
SIZES = (0.05, 50.0, 28)  # of a+b, whose logarithm is spaced evenly
SHARES = 40  # of tasks never solved that are tried, where tasks have different numbers of samples
POINTS = 21  # along each side of a grid that was zoomed
FAR = 10.0  # laws that fall behind the best by so much in log likelihood are left out: 4.5 standard errors
MOST = 1 - 1e-9  # of tasks never solved: where all of them are, no other law has a say
STEPS = 45  # halvings of a search for a share: 1 becomes 3e-14
MANY = 256  # samples from which gamma functions are quicker than sums of logarithms
ROUNDS = 40  # of zooming, at most


@dataclass(frozen=True, slots=True)
class Law:
    """The likeliest law of some counts."""

    a: float
    b: float
    never_solved: float
    log_likelihood: float  # with C(n, c), without the constant of the tasks' order


@dataclass(frozen=True, slots=True)
class PassCounts:
    """The P distinct (n, c) of tasks: c passes of n samples."""

    n: Ints  # [P]
    c: Ints  # [P]

    @property
    def unsolved(self) -> Ints:
        """The pairs without a pass, one for each n that has any."""
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
        self.unlucky = np.exp(self.log_chance[counts.unsolved])  # [N, G], no pass though the task can be solved

    def profile(self, table: Floats) -> tuple[Floats, Floats]:
        """The log likelihood of counts, [P], under each law at its best share never solved, and that share, [G]."""
        likelihood, shares, which = self._profiles(table[None])
        return likelihood[0], shares[which[0]]

    def likeliest(self, tables: Floats) -> tuple[Ints, Floats]:
        """The best law for each of many tables of counts, [D, P], and its share never solved, [D]."""
        likelihood, shares, which = self._profiles(tables)
        best = np.argmax(likelihood, axis=1)
        return best, shares[which, best]

    def _profiles(self, tables: Floats) -> tuple[Floats, Floats, Ints]:
        """The log likelihoods, [D, G]; the best shares of the U distinct cases, [U, G], and the case of each, [D]."""
        unsolved, solved = self.counts.unsolved, self.counts.solved
        parts = np.column_stack([tables[:, solved].sum(axis=1), tables[:, unsolved]])
        distinct, which = parts, np.zeros(1, dtype=np.int64)
        if len(parts) > 1:
            distinct, which = np.unique(parts, axis=0, return_inverse=True)
        if len(unsolved) == 1:  # the law gives as many tasks without a pass as there are, or more
            seen = distinct[:, 1:] / distinct.sum(axis=1, keepdims=True)
            shares = np.clip((seen - self.unlucky) / (1 - self.unlucky), 0.0, MOST)
            best = log_share(distinct[:, :1], distinct[:, 1:], shares, self.unlucky)
        else:
            best, shares = self._tried(distinct)
        which = which.ravel()
        likelihood = tables[:, solved] @ self.log_chance[solved]
        likelihood += best[which]
        return likelihood, shares, which

    def _tried(self, parts: Floats) -> tuple[Floats, Floats]:
        """What the best of some shares adds to the log likelihood, and that share, [U, G] both; 0 is one of them."""
        best, shares = np.full((len(parts), len(self.a)), -np.inf), np.zeros((len(parts), len(self.a)))
        for tried in np.linspace(0.0, 0.975, SHARES) if len(self.counts.unsolved) else [0.0]:
            gain = parts[:, 1:] @ np.log(tried + (1 - tried) * self.unlucky) + parts[:, :1] * np.log1p(-tried)
            better = gain > best
            best[better], shares[better] = gain[better], tried
        return best, shares

    def near(self, table: Floats) -> Box:
        """The rectangle that holds all laws not far behind the best for counts, [P], and a step more on each side."""
        likelihood, _ = self.profile(table)
        kept = likelihood >= likelihood.max() - FAR
        return Box(
            _around(self.logits, self.logit[kept], WHOLE.logit), _around(self.sizes, self.size[kept], WHOLE.size)
        )

    @property
    def box(self) -> Box:
        """The rectangle of the grid."""
        return Box((self.logits[0], self.logits[-1]), (self.sizes[0], self.sizes[-1]))


def log_chances(counts: PassCounts, law: Law) -> Floats:
    """The log chance of each pair of counts under one law, of the tasks that can be solved, [P]."""
    return log_beta_binomial(counts, np.array([law.a]), np.array([law.b]))[:, 0]


def _around(axis: Floats, kept: Floats, limits: tuple[float, float]) -> tuple[float, float]:
    step = float(axis[1] - axis[0])
    return max(limits[0], float(kept.min()) - step), min(limits[1], float(kept.max()) + step)


def log_share(solved: Floats, unsolved: Floats, share: Floats, unlucky: Floats) -> Floats:
    """What shares never solved, [.., G], add to the log likelihood of tasks solved, [.., 1], and not, [.., N]."""
    logs = solved * np.log1p(-share)
    for column in range(unsolved.shape[-1]):
        logs = logs + unsolved[..., column, None] * np.log(share + (1 - share) * unlucky[column])
    return logs


def log_beta_binomial(counts: PassCounts, a: Floats, b: Floats) -> Floats:
    """``log C(n, c) + log B(c + a, n - c + b) - log B(a, b)`` for every pair and law, [P, G].

    By sums of logarithms of a + j, b + j and a + b + j: quicker than gamma functions, and as exact.
    """
    from scipy.special import betaln, gammaln

    n, c, most = counts.n, counts.c, int(counts.n.max(initial=0))
    ways = (gammaln(n + 1.0) - gammaln(c + 1.0) - gammaln(n - c + 1.0))[:, None]
    if most > MANY:
        return np.asarray(ways + betaln(c[:, None] + a, (n - c)[:, None] + b) - betaln(a, b))
    steps, start = np.arange(most)[:, None], np.zeros((1, len(a)))
    up, down, whole = (np.concatenate([start, np.cumsum(np.log(shape + steps), axis=0)]) for shape in (a, b, a + b))
    return np.asarray(ways + up[c] + down[n - c] - whole[n])


def zoomed(counts: PassCounts, table: Floats, first: Grid | None = None) -> Grid:
    """The grid on which the laws that counts, [P], allow fill at least half of each side; from the first grid on."""
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
    """The law of the largest likelihood of counts, [P]: the best point of a grid, and zooms around it."""
    box = grid.box
    for _ in range(ROUNDS):
        at = int(np.argmax(exact_profile(grid, table)[0]))
        sides = []
        for axis, middle, limits, ends in (
            (grid.logits, grid.logit[at], WHOLE.logit, box.logit),
            (grid.sizes, grid.size[at], WHOLE.size, box.size),
        ):
            edge = middle in (axis[0], axis[-1]) and middle not in limits
            half = _width(ends) / 2 if edge else 2.5 * float(axis[1] - axis[0])  # at an edge: move, at the same scale
            sides.append((max(limits[0], float(middle) - half), min(limits[1], float(middle) + half)))
        box = Box(sides[0], sides[1])
        if max(_width(box.logit), _width(box.size)) < 1e-6:
            break
        grid = Grid(grid.counts, box, (11, 11))
    values, shares = exact_profile(grid, table)
    at = int(np.argmax(values))
    return Law(float(grid.a[at]), float(grid.b[at]), float(shares[at]), float(values[at]))


def exact_profile(grid: Grid, table: Floats) -> tuple[Floats, Floats]:
    """As `Grid.profile` for one table of counts, [P], with the best share to the last digit, [G] both."""
    unsolved, solved = table[grid.counts.unsolved], grid.counts.solved
    passing = float(table[solved].sum())
    low, high = np.zeros(len(grid.a)), np.ones(len(grid.a))
    for _ in range(STEPS if len(unsolved) else 0):  # the log likelihood is concave in the share: halve where it turns
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
FARTHEST = 16  # times the samples
REJECTED = 0.01  # p of Pearson's test below which no law of this kind is believed
LEAST = 0.5  # tasks expected in a cell: fewer count as so many
PLACES = 6  # that the search can be trusted with
HALVINGS = 16  # of the search for the ends of a share

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """One metric at one k beyond the samples."""

    value: float
    stderr: float  # of the bootstrap draws
    ends: Ends


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """What lies beyond the samples, or why nothing is said of it."""

    law: Law | None
    fit_p: float | None  # of Pearson's test of the counts against the law
    points: dict[tuple[str, int], Extrapolated]  # by metric and k; empty where there is a reason
    why: str | None = None


def extrapolate(
    n: Ints, c: Ints, ks: Sequence[int], clusters: Ints | None = None, *, confidence: float = 0.95, seed: int = 0
) -> Extrapolation:
    """pass@k and pass^k for each k of ``ks``, from c passes of n samples, [T] each; tasks without samples are left out.

    ``clusters``, [T], are drawn whole, and the likelihood set is widened by the design effect. A k above
    `farthest` has no point. Values are rounded to six decimals.
    """
    there = n > 0
    n, c = n[there], c[there]
    units = np.arange(len(n)) if clusters is None else np.unique(clusters[there], return_inverse=True)[1]
    if why := refused(n, c, units if clusters is not None else None):
        return Extrapolation(None, None, {}, why)
    pairs, code = distinct_counts(n, c)
    table = np.bincount(code, minlength=len(pairs.n)).astype(float)
    grid = zoomed(pairs, table)
    law = likeliest(grid, table)
    fit_p = pearson(law, pairs, table, design_effect(code, units) if clusters is not None else 1.0)
    if fit_p < REJECTED:
        return Extrapolation(law, fit_p, {}, unlike(fit_p))
    within = [k for k in ks if k <= farthest(n)]
    drawn = draw_tables(code, units, len(pairs.n), seed)
    alone = None if clusters is None else draw_tables(code, np.arange(len(code)), len(pairs.n), seed)
    points = _points(grid, table, law, within, (drawn, alone), confidence) if within else {}
    return Extrapolation(law, fit_p, points)


def refused(n: Ints, c: Ints, clusters: Ints | None = None) -> str | None:
    """Why counts of tasks that have samples, [T] each, cannot say anything beyond them; None where they can."""
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


def unlike(p: float) -> str:
    """What is said where the fit is rejected."""
    return f"the counts of passes do not look like a beta law with a share never solved (Pearson's test, p = {p:.2g})"


def farthest(n: Ints) -> int:
    """The largest k of which something is said: 16 times the samples that at least 30 tasks have; 0 of fewer tasks."""
    return FARTHEST * int(np.sort(n)[-FEWEST_UNITS]) if len(n) >= FEWEST_UNITS else 0


def too_far(most: int) -> str:
    """What is said of a k beyond that."""
    return f"k is above {most:,}, {FARTHEST} times the {most // FARTHEST} samples of a task"


def pearson(law: Law, pairs: PassCounts, table: Floats, effect: float = 1.0) -> float:
    """The p of Pearson's test of tasks with c passes, c = 0 to the largest n, against what the law expects.

    ``sum (seen - expected)^2 / max(expected, 0.5)``, chi-squared with ``max(1, n - 3)`` degrees of freedom; tasks
    with different n are added up by c. Divided by the design effect, where there are clusters (Rao and Scott 1981).
    """
    from scipy.special import gammaincc

    most = int(pairs.n.max())
    seen = np.bincount(pairs.c, table, most + 1)
    expected = np.zeros(most + 1)
    for n in np.unique(pairs.n):
        every = PassCounts(np.full(n + 1, n), np.arange(n + 1))
        chance = np.exp(log_chances(every, law)) * (1 - law.never_solved)
        chance[0] += law.never_solved
        expected[: n + 1] += table[pairs.n == n].sum() * chance
    squares = float(((seen - expected) ** 2 / np.maximum(expected, LEAST)).sum())
    return float(gammaincc(max(1, most - 3) / 2, squares / effect / 2))


def design_effect(code: Ints, clusters: Ints) -> float:
    """How much more the shares of tasks in each cell vary than for tasks on their own, the mean over cells.

    At least 1; weighed by what each cell lacks to 1, as in the first-order correction of Rao and Scott (1981).
    """
    tasks, groups = len(code), int(clusters.max()) + 1
    sizes = np.bincount(clusters, minlength=groups)
    effects, weights = [], []
    for cell in np.unique(code):
        inside = code == cell
        share = float(inside.mean())
        pull = np.bincount(clusters, inside, groups) - share * sizes
        varies = float(pull @ pull) * groups / (groups - 1) / tasks
        if share < 1:
            effects.append(varies / (share * (1 - share)))
            weights.append(1 - share)
    return max(1.0, float(np.average(effects, weights=weights))) if effects else 1.0


def draw_tables(code: Ints, units: Ints, cells: int, seed: int) -> Floats:
    """Tasks in each cell on DRAWS bootstrap draws of whole units, [D, P]; the order of tasks does not matter.

    From the raw output of PCG64, which no version of numpy may change.
    """
    rank, count = _places(code, units), int(units.max()) + 1
    of_task = rank[units]
    source = np.random.PCG64(seed)
    tables = np.empty((DRAWS, cells))
    for row in range(DRAWS):
        chosen = (source.random_raw(count) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)
        times = np.bincount(chosen.astype(np.int64), minlength=count)
        tables[row] = np.bincount(code, times[of_task], cells)
    return tables


def _places(code: Ints, units: Ints) -> Ints:
    """The place of each unit, [U], when they are put in order by the cells of their tasks."""
    count = int(units.max()) + 1
    members = np.lexsort((code, units))
    order = np.argsort(code[members], kind="stable")  # where every task is a unit
    if count < len(code):
        contents = np.split(code[members], np.flatnonzero(np.diff(units[members])) + 1)
        order = np.asarray(sorted(range(count), key=lambda unit: contents[unit].tobytes()))
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    return rank


def distinct_counts(n: Ints, c: Ints) -> tuple[PassCounts, Ints]:
    """The distinct (n, c), and which of them each task has, [T]."""
    width = int(n.max(initial=0)) + 1
    pair, code = np.unique(n * width + c, return_inverse=True)
    return PassCounts(pair // width, pair % width), code


def _points(
    grid: Grid, table: Floats, law: Law, ks: Sequence[int], drawn: tuple[Floats, Floats | None], confidence: float
) -> dict[tuple[str, int], Extrapolated]:
    """Every metric at every k, from draws of units and, where these are clusters, draws of tasks."""
    of_law = pass_at(ks, *(np.array([parameter]) for parameter in (law.a, law.b)))[0] * (1 - law.never_solved)
    passing = pass_at(ks, grid.a, grid.b)
    draws = redrawn(grid, passing, drawn[0])
    effect = np.ones(passing.shape[1])
    if drawn[1] is not None:
        alone = redrawn(grid, passing, drawn[1]).var(axis=0)
        effect = np.maximum(1.0, np.divide(draws.var(axis=0), alone, out=effect, where=alone > 0))
    low, high = hull(grid, table, passing, draws, law.log_likelihood, confidence, effect)
    columns = (of_law, draws.std(axis=0, ddof=1), np.minimum(low, of_law), np.maximum(high, of_law))
    rows = np.round(np.stack(columns, axis=1), PLACES).tolist()
    names = [(metric, k) for metric in METRICS for k in ks]
    return {name: Extrapolated(value, error, (x, y)) for name, (value, error, x, y) in zip(names, rows, strict=True)}


def redrawn(grid: Grid, passing: Floats, tables: Floats) -> Floats:
    """What the likeliest law of each draw, [D, P], says: [D, K]."""
    best, shares = grid.likeliest(tables)
    return (1 - shares)[:, None] * passing[best]


def hull(
    grid: Grid, table: Floats, passing: Floats, draws: Floats, largest: float, confidence: float, effect: Floats
) -> tuple[Floats, Floats]:
    """The ends of the bands, [K] both: bootstrap and likelihood set together.

    ``passing``, [G, K], is what each law of the grid says of tasks that can be solved, ``draws``, [D, K], what the
    draws say; ``effect``, [K], widens the likelihood set.
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    reach = t_quantile(1 - tail, np.inf) ** 2 / 2
    for times in np.unique(effect):
        some = effect == times
        inside, fewest, most = likely(grid, table, largest - times * reach)
        if len(inside):
            kept = passing[inside][:, some]
            low[some] = np.minimum(low[some], ((1 - most)[:, None] * kept).min(axis=0))
            high[some] = np.maximum(high[some], ((1 - fewest)[:, None] * kept).max(axis=0))
    return low, high


def likely(grid: Grid, table: Floats, least: float) -> tuple[Ints, Floats, Floats]:
    """The laws of a grid under which counts, [P], have at least this log likelihood, and the ends of their shares."""
    best, share = exact_profile(grid, table) if len(grid.unlucky) > 1 else grid.profile(table)
    inside = np.flatnonzero(best >= least)
    share, unlucky = share[inside], grid.unlucky[:, inside]
    solved, unsolved = np.array([table[grid.counts.c > 0].sum()]), table[grid.counts.unsolved]
    needed = least - (best[inside] - log_share(solved, unsolved, share, unlucky))
    ends = []
    for outer in (np.zeros(len(inside)), np.ones(len(inside))):
        near, far = share, outer  # near is likely enough, far may not be
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            enough = log_share(solved, unsolved, middle, unlucky) >= needed
            near, far = np.where(enough, middle, near), np.where(enough, far, middle)
        ends.append(near)
    return inside, ends[0], ends[1]


def pass_at(ks: Sequence[int], a: Floats, b: Floats) -> Floats:
    """pass@k for every k, then pass^k for every k, of the tasks that can be solved, under laws [G]: [G, 2 K].

    ``1 - B(a, b + k)/B(a, b)`` and ``B(a + k, b)/B(a, b)``; times the share that can be solved, of all tasks.
    """
    from scipy.special import betaln

    some, a, b = np.asarray(ks, dtype=float), a[:, None], b[:, None]
    whole = betaln(a, b)
    return np.concatenate([-np.expm1(betaln(a, b + some) - whole), np.exp(betaln(a + some, b) - whole)], axis=1)
