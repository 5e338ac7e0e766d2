"""Grow the tree of some leaves, those of many in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Final

from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.leaves import Leaves
from calipers.formats.lines import ChildProcess, processes

HEIGHT: Final = 12  # of the branches that processes grow; their first leaf is a multiple of 2^HEIGHT
HEAD_START: Final = 80_000  # leaves that this process hashes while another starts
WORTH_DIVIDING: Final = 250_000  # leaves


def grow(seed: bytes, leaves: Leaves) -> trees.Tree:
    """The tree of the leaves; InputError without any."""
    starts = _starts(leaves.count, processes())
    if not starts:
        return trees.Tree(seed, trees.branch(seed, 0, leaves.count, leaves.chunks(0, leaves.count)))
    children: list[ChildProcess[trees.Levels]] = []
    try:
        for first, end in pairwise([*starts, leaves.count]):
            request = {"seed": seed.hex(), "first": first, "count": end - first}
            way = "calipers.analyses.certify.grow:grow_branch"
            children.append(ChildProcess(way, request, partial(leaves.chunks, first, end)))
        levels = trees.branch(seed, 0, starts[0], leaves.chunks(0, starts[0]), HEIGHT)
        for child in children:
            for level, more in zip(levels, child.result(), strict=True):
                level += more
    finally:
        for child in children:
            child.stop()
    return trees.Tree(seed, trees.raised(levels))


def grow_branch(seed: str, first: int, count: int, given: Iterator[trees.LeafChunk]) -> trees.Levels:
    """The levels over some leaves, in a process of their own."""
    return trees.branch(bytes.fromhex(seed), first, count, given, HEIGHT)


def _starts(count: int, workers: int) -> list[int]:
    """The first leaf of each other process, so that all end at one time; none where that saves nothing."""
    if workers < 2 or count < WORTH_DIVIDING:
        return []
    share = (count - HEAD_START) // workers
    step = 1 << HEIGHT
    return [(count - share * (workers - n)) // step * step for n in range(1, workers)]
