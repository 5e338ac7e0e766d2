"""Two models that calculate, and are wrong on some questions: always on the same ones."""

import zlib

COSTS = {"+": 1, "-": 2, "*": 4}  # how hard a sign is


def careful(prompt: str) -> str:
    """Wrong on about one question in nine, less often on sums."""
    return _answer(prompt, 30)


def hasty(prompt: str) -> str:
    """Wrong on about every fifth question."""
    return _answer(prompt, 58)


def _answer(prompt: str, slips: int) -> str:
    first, sign, second, *_ = prompt.split()
    a, b = int(first), int(second)
    right = {"+": a + b, "-": a - b, "*": a * b}[sign]
    slip = zlib.crc32(prompt.encode()) % 1000 < slips * (2 + COSTS[sign])
    return str(right + 1 if slip else right)
