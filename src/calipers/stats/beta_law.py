"""The law of chances behind counts of passes: a share of tasks never solved, Beta(a, b) for the others.

c passes of n samples then have the chance ``(1 - z) BB(c; n, a, b)``, plus z for c = 0: a zero-inflated
beta-binomial (Skellam 1948). It is fitted by maximum likelihood over the logit of a/(a+b), the logarithm of a+b,
and z. For each (a, b) the best z follows directly, so laws are compared on a grid of (a, b), and a grid for
many tables of counts at once is one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats, Ints

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
class Counts:
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

    def __init__(self, counts: Counts, box: Box = WHOLE, points: tuple[int, int] = (LOGITS[2], SIZES[2])) -> None:
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
            found = parts[:, 1:] @ np.log(tried + (1 - tried) * self.unlucky) + parts[:, :1] * np.log1p(-tried)
            better = found > best
            best[better], shares[better] = found[better], tried
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


def log_chances(counts: Counts, law: Law) -> Floats:
    """The log chance of each pair of counts under one law, of the tasks that can be solved, [P]."""
    return log_beta_binomial(counts, np.array([law.a]), np.array([law.b]))[:, 0]


def _around(axis: Floats, kept: Floats, limits: tuple[float, float]) -> tuple[float, float]:
    step = float(axis[1] - axis[0])
    return max(limits[0], float(kept.min()) - step), min(limits[1], float(kept.max()) + step)


def log_share(solved: Floats, unsolved: Floats, share: Floats, unlucky: Floats) -> Floats:
    """What shares never solved, [.., G], add to the log likelihood of tasks solved, [.., 1], and not, [.., N]."""
    found = solved * np.log1p(-share)
    for column in range(unsolved.shape[-1]):
        found = found + unsolved[..., column, None] * np.log(share + (1 - share) * unlucky[column])
    return found


def log_beta_binomial(counts: Counts, a: Floats, b: Floats) -> Floats:
    """``log C(n, c) + log B(c + a, n - c + b) - log B(a, b)`` for every pair and law, [P, G].

    By sums of logarithms of a + j, b + j and a + b + j: quicker than gamma functions, and as exact.
    """
    from scipy.special import betaln, gammaln

    n, c, most = counts.n, counts.c, int(counts.n.max(initial=0))
    ways = (gammaln(n + 1.0) - gammaln(c + 1.0) - gammaln(n - c + 1.0))[:, None]
    if most > MANY:
        return np.asarray(ways + betaln(c[:, None] + a, (n - c)[:, None] + b) - betaln(a, b))
    steps, start = np.arange(most)[:, None], np.zeros((1, len(a)))
    up, down, whole = (np.concatenate([start, np.cumsum(np.log(one + steps), axis=0)]) for one in (a, b, a + b))
    return np.asarray(ways + up[c] + down[n - c] - whole[n])


def zoomed(counts: Counts, table: Floats, first: Grid | None = None) -> Grid:
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
