"""Which documents of a split are asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calipers.errors import InputError


def selected(total: int, limit: float | None = None, samples: Sequence[int] | None = None) -> list[int]:
    """Which documents are asked: the first ``limit``, a share of them below 1, or the ``samples``, each once.

    >>> selected(7, 0.3), selected(4, 1.0), selected(9, samples=[5, 2, 5])
    ([0, 1, 2], [0], [2, 5])
    """
    if samples:
        if limit is not None:
            raise InputError.at("--limit", "given together with samples", "expected one of the two")
        odd = [one for one in samples if not 0 <= one < total]
        if odd:
            raise InputError.at("samples", f"no document {odd[0]}", f"expected numbers from 0 to {total - 1}")
        return sorted(set(samples))
    most = effective_limit(total, limit)
    return list(range(total if most is None else min(most, total)))


def effective_limit(total: int, limit: float | None) -> int | None:
    """How many documents a limit means; 1.0 is one document, not all of them."""
    if limit is None:
        return None
    if not 0 < limit < math.inf:
        raise InputError.at("--limit", f"is {limit:g}", "expected a number of documents, or a share below 1")
    return math.ceil(total * limit) if limit < 1 else int(limit)
