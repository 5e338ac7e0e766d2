"""lm-evaluation-harness' regex filter over many responses at once, where the pattern is plain.

A plain pattern (`plain`) runs in Rust, at hundreds of thousands of responses a second and in linear time. What it
finds is what the filter finds one by one; a response on which the engines may differ is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from calipers.answers.plain import WORTH, Plain, plain

ENDS: Final = (0, -1)  # the matches that can be had without listing all: the first, the last


def searched(pattern: str, select: int, fallback: Any, texts: Sequence[str]) -> list[tuple[Any, bool] | None] | None:
    """(answer, whether it was found) for each text, None for one that is to be looked at singly.

    None altogether when the pattern is not plain, another match than the first or last is asked for, or
    there are too few texts for it to pay.

    >>> searched("#### ([0-9]+)", 0, "[invalid]", ["#### 12", "none"] * 50)[:2]
    [('12', True), ('[invalid]', False)]
    """
    rust = plain(pattern) if len(texts) >= WORTH and select in ENDS else None
    if rust is None:
        return None
    fit = [text for text in texts if text.isascii()] if rust.ascii_only else texts
    try:
        found = _found(rust, fit, fallback, last=select == ENDS[1])
    except UnicodeEncodeError:  # half of a surrogate pair, which is no text to Rust
        return None
    if len(fit) == len(texts):
        return found
    each = iter(found)
    return [next(each) if text.isascii() else None for text in texts]


def _found(rust: Plain, texts: Sequence[str], fallback: Any, *, last: bool) -> list[tuple[Any, bool] | None]:
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    if last:  # a match is found again in itself, groups and all, as nothing plain looks beyond it
        series = series.str.extract_all(rust.pattern).list.last()
    missed = (fallback, False)
    if not rust.groups:
        whole = series if last else series.str.extract(rust.pattern, 0)
        return [missed if one is None else (one.strip(), True) for one in whole.to_list()]
    groups = [series.str.extract(rust.pattern, group).to_list() for group in range(1, rust.groups + 1)]
    there = (series.is_not_null() if last else series.str.contains(rust.pattern)).to_list()
    if rust.groups == 1:
        return [((one or "").strip(), True) if met else missed for one, met in zip(groups[0], there, strict=True)]
    empty = (fallback.strip() if isinstance(fallback, str) else fallback, False)
    filled = (next(filter(None, row), None) for row in zip(*groups, strict=True))
    return [
        missed if not met else empty if one is None else (one.strip(), True)
        for one, met in zip(filled, there, strict=True)
    ]
