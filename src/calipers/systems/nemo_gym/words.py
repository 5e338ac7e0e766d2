"""NeMo Gym's names for metrics: a statistic, a slash, and any numeric key. Light enough for a glossary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

STATISTICS: Final = ("mean", "max", "min", "median", "std")
KEY: Final = "KEY"
"""Stands for the numeric key in a list of the names."""


class Words(Mapping[str, str]):
    """``mean/reward`` and its like, and what each is here; every key there may be, listed once as KEY.

    >>> WORDS["max/output_tokens"], "pass@1" in WORDS
    ('max(column=output_tokens)', False)
    """

    def __getitem__(self, name: str) -> str:
        statistic, slash, key = name.partition("/")
        if statistic not in STATISTICS or not (slash and key):
            raise KeyError(name)
        return f"{statistic}(column={key})"

    def __iter__(self) -> Iterator[str]:
        return iter([f"{statistic}/{KEY}" for statistic in STATISTICS])

    def __len__(self) -> int:
        return len(STATISTICS)


WORDS: Final = Words()
DEFAULT: Final = tuple(f"{statistic}/*" for statistic in STATISTICS)  # of every numeric key
