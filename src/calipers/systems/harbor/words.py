"""Harbor's names for metrics: four statistics over trials, and pass@k. Light enough for a glossary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

STATISTICS: Final = ("mean", "sum", "min", "max")
FAMILY: Final = "pass@{k}"


class HarborWords(Mapping[str, str]):
    """``mean`` and its like, ``pass@2`` and every other k, and what each is here; all k listed once.

    >>> WORDS["mean"], WORDS["pass@4"], "pass_rate" in WORDS
    ('pooled_mean', 'pass@4', False)
    """

    def __getitem__(self, name: str) -> str:
        if name in STATISTICS:
            return f"pooled_{name}"
        head, _, tail = FAMILY.partition("{k}")
        if name == FAMILY or (name.startswith(head) and name[len(head) :].isdecimal() and not tail):
            return name
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*STATISTICS, FAMILY])

    def __len__(self) -> int:
        return len(STATISTICS) + 1


WORDS: Final = HarborWords()
DEFAULT: Final = ("mean",)
