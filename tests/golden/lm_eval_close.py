"""How close is equal for lm-evaluation-harness' numbers, which its vectors give to nine digits."""

from __future__ import annotations

import math

CLOSE = 1e-9
CLOSE_OF_TEXT = 1e-6  # of what sacrebleu makes, whose versions differ


def settled(found, expected, close=CLOSE):
    """Our answer with every number that is close enough replaced by the expected one, and any error by its."""
    if isinstance(found, dict) and isinstance(expected, dict):
        if list(found) == list(expected) == ["error"]:
            return expected
        return {key: settled(value, expected.get(key), close) for key, value in found.items()}
    if isinstance(found, (list, tuple)) and isinstance(expected, list) and len(found) == len(expected):
        return [settled(one, other, close) for one, other in zip(found, expected, strict=True)]
    numbers = isinstance(found, (int, float)) and isinstance(expected, (int, float))
    if numbers and math.isclose(found, expected, rel_tol=close, abs_tol=1e-12):
        return expected
    return list(found) if isinstance(found, tuple) else found
