"""``--limit``: the first so many tasks, or a share of them below 1, as in lm-evaluation-harness."""

from __future__ import annotations

import math

from calipers.errors import InputError

MEANT = "expected a number of tasks, or a share of them below 1, such as 0.1"


def limit_of(place: str, given: float | None) -> float | None:
    """A limit that means something: an integer from 1 on, or a share between 0 and 1; None is no limit.

    1.0 is one task, as there. What means something there by accident is refused: 0, which is all of them, and
    1.5, which is one.

    >>> limit_of("--limit", 20.0), limit_of("--limit", 0.1)
    (20, 0.1)
    """
    if given is None:
        return None
    if not 0 < given < math.inf or (given > 1 and given != int(given)):
        raise InputError.at(place, f"is {given:g}", MEANT)
    return given if given < 1 else int(given)


def first(total: int, limit: float | None) -> int:
    """How many of all tasks a limit takes; of a share what is left over makes one more.

    >>> first(7, 0.3), first(7, 3), first(7, 99), first(7, None)
    (3, 3, 7, 7)
    """
    if limit is None:
        return total
    return min(math.ceil(total * limit) if limit < 1 else int(limit), total)
