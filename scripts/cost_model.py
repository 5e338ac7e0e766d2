"""The cost of 10^9 rollouts without that of the model: bytes, processor hours and dollars, from measured constants.

    python scripts/cost_model.py
    python scripts/cost_model.py --rollouts 1e10 --core-hour 0.03

The constants were measured on a machine with two cores, by the scripts they name. Prices are assumptions, and options.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured constants, for one rollout."""

    line: float = 6_000.0  # bytes of a log's line with a prompt of 2 kB and a completion of 4 kB
    packed: float = 0.3  # share of the bytes after zstd; 0.07 for the short lines of examples/arith.jsonl
    numbers: float = 3.9  # bytes of task, sample and reward in Parquet, without texts: 200,000 shuffled text ids
    run: float = 1.9e-3  # core seconds of client, exact_match and log: bench/ray_run.py, run, two cores at 1,059/s
    sandbox: float = 0.25  # core seconds of one python_tests verdict: bench/ray_run.py, verify
    score_text: float = 3.8e-6  # core seconds to score a line of JSON Lines: 10^7 rows in 19.0 s on two cores
    score_parquet: float = 2.3e-6  # the same for Parquet: 11.4 s
    request: float = 5e-6  # requests to an object store, with files of 200,000 rollouts


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=float, default=1e9)
    parser.add_argument("--core-hour", type=float, default=0.04, help="dollars of a processor hour")
    parser.add_argument("--gb-month", type=float, default=0.023, help="dollars of a gigabyte for a month in a store")
    parser.add_argument("--requests", type=float, default=0.0004, help="dollars of a thousand reading requests")
    given = parser.parse_args()
    count, measured = given.rollouts, Measured()
    print(f"| for {count:,.0f} rollouts | bytes | processor hours | dollars |")
    print("|---|---:|---:|---:|")
    for name, size in (
        ("logs, plain", measured.line),
        ("logs, zstd", measured.line * measured.packed),
        ("numbers alone, Parquet", measured.numbers),
    ):
        gigabytes = size * count / 1e9
        print(f"| {name}, kept for a month | {gigabytes:,.0f} GB | | {gigabytes * given.gb_month:,.2f} |")
    for name, seconds in (
        ("run: client and log", measured.run),
        ("verify: exact_match", 0.0),
        ("verify: python_tests", measured.sandbox),
        ("score JSON Lines once", measured.score_text),
        ("score Parquet once", measured.score_parquet),
    ):
        hours = seconds * count / 3600
        shown = f"{hours:,.1f}" if seconds else "in the line above"
        print(f"| {name} | | {shown} | {hours * given.core_hour:,.2f} |")
    requests = measured.request * count
    print(f"| requests to a store | | | {requests / 1000 * given.requests:,.2f} |")


if __name__ == "__main__":
    main()
