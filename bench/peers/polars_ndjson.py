"""polars reading the file and doing nothing else: the least that any tool on top of it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.peer import Numbers, Peer, Work

if TYPE_CHECKING:
    import polars

PEER = Peer("polars_ndjson", "`polars.read_ndjson`, the read alone", packages=("polars",))


def prepare(path: str) -> Work:
    """Read with polars' own defaults."""
    import polars

    return lambda: polars.read_ndjson(path)


def numbers(answer: polars.DataFrame) -> Numbers:
    """The means of the columns that stand at the top; taken after the clock has stopped."""
    found = answer.select(answer.columns).mean().row(0, named=True)
    return {f"mean(column={name})": float(value) for name, value in found.items() if isinstance(value, float)}
