"""The sign-flip test: were the two runs alike, every unit's difference could as well have the other sign.

All sign patterns are looked at where there are few units, else a seeded sample of them. Sums are sums of
integers, so that a tie is a tie and one seed has one answer on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Floats, Ints

DRAWS = 10_000
FEW = 20  # units of which all sign patterns are looked at
TOGETHER = 8  # units whose signs one byte decides
STEP = 64  # groups of units at a time: their table of signed sums, 128 KB, stays in the processor's cache
ALIKE = 2.0**-40
"""Sums that differ by less than this part of the largest pull are a tie: the pulls themselves are rounded."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """How often a random choice of signs brings a difference as large as the one seen."""

    p: float  # two-sided
    p_greater: float  # one-sided, against a positive difference
    p_less: float
    patterns: int  # of signs looked at
    exact: bool  # all there are
    units: int  # whose difference is not 0; the others have no sign to flip


def sign_flip(pulls: Floats, *, seed: int = 0, draws: int = DRAWS) -> SignFlip:
    """The sign-flip test of what each unit adds to the difference, [G]: tasks, or clusters as in `units_of`.

    Exact for 20 units or fewer that differ. Else ``(hits + 1) / (draws + 1)``: the pattern that was seen
    is one of the patterns. No unit that differs: p is 1.

    >>> sign_flip(np.array([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05])).p
    0.15625
    """
    if not np.isfinite(pulls).all():
        raise ValueError("a difference is not a finite number")
    whole, seen, slack = _integers(pulls)
    if len(whole) <= FEW:
        sums, own = _all_patterns(whole), 0
    else:
        sums, own = _some_patterns(whole, seed, draws), 1
    patterns = len(sums) + own
    greater = int(np.count_nonzero(sums >= seen - slack)) + own
    less = int(np.count_nonzero(sums <= seen + slack)) + own
    both = int(np.count_nonzero(np.abs(sums) >= abs(seen) - slack)) + own
    return SignFlip(both / patterns, greater / patterns, less / patterns, len(sums), own == 0, len(whole))


def _integers(pulls: Floats) -> tuple[Ints, int, int]:
    """The sizes of the pulls that are not 0, as integers whose sum has no overflow; their own sum; what is a tie.

    Largest first: neither the order of tasks means anything, nor the signs, so that two pulls of one size but
    for rounding may change places.
    """
    moved = pulls[pulls != 0]
    size = np.sort(np.abs(moved))[::-1]
    if not len(size):
        return np.zeros(0, dtype=np.int64), 0, 0
    power = 61 - math.frexp(float(size[0]))[1] - len(size).bit_length()
    slack = int(math.ldexp(float(size[0]) * ALIKE, power))
    whole, seen = (np.rint(np.ldexp(some, power)).astype(np.int64) for some in (size, moved))
    return whole, int(seen.sum()), slack


def _all_patterns(whole: Ints) -> Ints:
    sums = np.zeros(1, dtype=np.int64)
    for pull in whole.tolist():
        sums = np.concatenate([sums + pull, sums - pull])
    return sums


def _some_patterns(whole: Ints, seed: int, draws: int) -> Ints:
    """Sums under random signs, [draws]: one look-up per eight units, in a table of their 256 signed sums."""
    groups = -(-len(whole) // TOGETHER)
    padded = np.zeros((groups, TOGETHER), dtype=np.int64)
    padded.ravel()[: len(whole)] = whole
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(TOGETHER)) & 1)  # [256, 8]
    sums = np.zeros(draws, dtype=np.int64)
    source = np.random.PCG64(seed)
    offsets = np.arange(STEP) * 256
    for first in range(0, groups, STEP):
        some = padded[first : first + STEP]
        table = (some @ signs.T).ravel()
        words = -(-draws * len(some) // 8)
        # raw 64-bit output: numpy may change how it makes numbers of it, but not the output itself
        chosen = source.random_raw(words).astype("<u8", copy=False).view(np.uint8)[: draws * len(some)]
        index = chosen.reshape(draws, len(some)) + offsets[: len(some)]
        sums += table.take(index, mode="clip").sum(axis=1)
    return sums
