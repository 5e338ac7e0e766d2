"""Simulate the cells of a table in blocks, on all cores, and keep every finished block.

A cell is one world at one size. Its replicates are drawn in blocks, each with a random stream of its own that follows
from the seed, the part, the cell and the block. So a result does not depend on the number of cores, and a run that was
stopped goes on where it was: ``.bench/statistics/PART.jsonl`` has a line for every block. A block counts only for the
source that made it, which is the part itself and `calipers.stats`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".bench" / "statistics"
BLOCK = 250  # replicates in a block, unless a cell says otherwise

Sums = dict[str, float]
Simulate = Callable[[np.random.Generator, int], Sums]
"""``simulate(rng, replicates)``: sums over that many replicates, such as how many of them claimed a difference.

It runs in other processes, so it is a function of a module, or a `functools.partial` of one.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One world at one size."""

    key: str  # unique in its part
    replicates: int
    simulate: Simulate
    block: int = BLOCK


@dataclass(slots=True)
class Tally:
    """The sums over the replicates of a cell."""

    replicates: int = 0
    sums: Sums = field(default_factory=dict)

    def share(self, name: str) -> float:
        """A sum over the replicates, as a share of them."""
        return self.sums.get(name, 0.0) / self.replicates

    def error(self, name: str) -> float:
        """The Monte Carlo standard error of a share."""
        share = self.share(name)
        return math.sqrt(max(share * (1 - share), 0.0) / self.replicates)

    def add(self, replicates: int, sums: Mapping[str, float]) -> None:
        """Add a finished block."""
        self.replicates += replicates
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value


def simulated(part: str, cells: Sequence[Cell], seed: int, fewer: int = 1) -> dict[str, Tally]:
    """The tallies of all cells, by key; ``fewer`` divides their replicates."""
    source = source_digest(part)
    kept = _kept_blocks(part, source, seed)
    tallies = {cell.key: Tally() for cell in cells}
    outstanding = []
    for cell in cells:
        for number, size in enumerate(_block_sizes(cell, fewer)):
            sums = kept.get((cell.key, number, size))
            if sums is None:
                outstanding.append((cell, number, size))
            else:
                tallies[cell.key].add(size, sums)
    if outstanding:
        _run(part, outstanding, seed, source, tallies)
    return tallies


def source_digest(part: str) -> str:
    """The hash of the source that makes a part's numbers: the part, this file, and `calipers.stats`."""
    files = [ROOT / "bench" / "simulations" / f"{part}.py", Path(__file__)]
    files += sorted((ROOT / "src" / "calipers" / "stats").glob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _block_sizes(cell: Cell, fewer: int) -> list[int]:
    replicates = max(cell.replicates // fewer, 1)
    full, rest = divmod(replicates, cell.block)
    return [cell.block] * full + ([rest] if rest else [])


def _kept_blocks(part: str, source: str, seed: int) -> dict[tuple[str, int, int], Sums]:
    path = KEPT / f"{part}.jsonl"
    if not path.exists():
        return {}
    blocks = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # the last line of a run that was ended while it wrote
        if line["source"] == source and line["seed"] == seed:
            blocks[line["cell"], line["block"], line["replicates"]] = line["sums"]
    return blocks


def _run(
    part: str, outstanding: Sequence[tuple[Cell, int, int]], seed: int, source: str, tallies: dict[str, Tally]
) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    workers = min(os.cpu_count() or 1, len(outstanding))
    with (
        (KEPT / f"{part}.jsonl").open("a", encoding="utf-8") as log,
        ProcessPoolExecutor(workers) as pool,
    ):
        futures = {
            pool.submit(_simulate_block, cell.simulate, part, cell.key, number, size, seed): (cell, number, size)
            for cell, number, size in outstanding
        }
        for count, future in enumerate(as_completed(futures), start=1):
            cell, number, size = futures[future]
            sums = future.result()
            tallies[cell.key].add(size, sums)
            line = {"cell": cell.key, "block": number, "replicates": size, "seed": seed, "source": source, "sums": sums}
            log.write(json.dumps(line) + "\n")
            log.flush()
            if count % 100 == 0:
                print(f"{part}: {count:,} of {len(outstanding):,} blocks", file=sys.stderr, flush=True)


def _simulate_block(simulate: Simulate, part: str, key: str, number: int, size: int, seed: int) -> Sums:
    stream = np.random.SeedSequence([seed, zlib.crc32(part.encode()), zlib.crc32(key.encode()), number])
    sums = simulate(np.random.default_rng(stream), size)
    return {name: float(value) for name, value in sums.items()}
