"""polars, only reading the file: the least cost of any tool that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.peer import Numbers, Peer, Work

if TYPE_CHECKING:
    import polars

PEER = Peer("polars_ndjson", "`polars.read_ndjson`, the read alone", packages=("polars",))


def prepare(path: str) -> Work:
    """Read the file with polars' defaults."""
    import polars

    return lambda: polars.read_ndjson(path)


def numbers(answer: polars.DataFrame) -> Numbers:
    """The means of the top-level columns, computed after the measurement."""
    found = answer.select(answer.columns).mean().row(0, named=True)
    return {f"mean(column={name})": float(value) for name, value in found.items() if isinstance(value, float)}
