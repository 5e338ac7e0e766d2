"""Harbor: its jobs, tasks, datasets, agents and metric scripts.

This file holds Harbor's metric names and its `System`; it imports little, so that a glossary can load it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from calipers.systems import DialectCard, System

STATISTICS: Final = ("mean", "sum", "min", "max")
PASS_AT_K: Final = "pass@{k}"


class HarborWords(Mapping[str, str]):
    """Harbor's metric names -> ours: the four statistics and ``pass@k`` for every k, listed once as ``pass@{k}``.

    >>> WORDS["mean"], WORDS["pass@4"], "pass_rate" in WORDS
    ('pooled_mean', 'pass@4', False)
    """

    def __getitem__(self, name: str) -> str:
        if name in STATISTICS:
            return f"pooled_{name}"
        if name == PASS_AT_K or (name.startswith("pass@") and name.removeprefix("pass@").isdecimal()):
            return name
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*STATISTICS, PASS_AT_K])

    def __len__(self) -> int:
        return len(STATISTICS) + 1


WORDS: Final = HarborWords()
DEFAULT: Final = ("mean",)

SYSTEM = System(
    DialectCard(
        one_line="Harbor's four statistics over all trials that ended, and its pass@k; missing rewards count as 0.",
        default=DEFAULT,
        gaps="count as 0, as Harbor counts a trial without a reward; a trial that did not end is excluded",
        words=WORDS,
    ),
    page="calipers.systems.harbor.job_result:own_page",
    exports={"harbor": "calipers.systems.harbor.job_result:JobExport"},
)
