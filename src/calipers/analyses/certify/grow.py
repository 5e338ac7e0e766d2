"""Grow the tree of some leaves, those of many in several processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.leaves import CHUNK, Leaves
from calipers.formats.lines import ChildProcess, processes

HEIGHT: Final = CHUNK.bit_length() - 1  # of the branch over a chunk of leaves, whose top is one node
WORTH_DIVIDING: Final = 150_000  # leaves

Branch = tuple[int, trees.Levels]  # its first leaf, and its levels up to `HEIGHT`


def grow(seed: bytes, leaves: Leaves) -> trees.Tree:
    """The tree of the leaves; InputError without any."""
    with growing(seed, leaves) as finished:
        return finished()


@contextmanager
def growing(seed: bytes, leaves: Leaves) -> Iterator[Callable[[], trees.Tree]]:
    """Let other processes grow the tree of the leaves meanwhile; the function that this gives helps them to finish."""
    left = deque(range(0, leaves.count, CHUNK))
    others = processes() - 1 if leaves.count >= WORTH_DIVIDING else 0
    request = {"seed": seed, "count": leaves.count}
    children: list[ChildProcess[list[Branch]]] = []

    def finished() -> trees.Tree:
        here = _branches(seed, leaves.count, TakenChunks(leaves, left)())
        there = (branch for child in children for branch in child.result())
        return trees.Tree(seed, _joined(leaves.count, chain(here, there)))

    try:
        for _ in range(others):
            way = "calipers.analyses.certify.grow:grow_branches"
            children.append(ChildProcess(way, request, TakenChunks(leaves, left)))
        yield finished
    finally:
        for child in children:
            child.stop()


class TakenChunks:
    """The chunks of leaves that one process takes, as long as there are any left that no other has taken."""

    def __init__(self, leaves: Leaves, left: deque[int]) -> None:
        self._leaves, self._left = leaves, left
        self._taken: list[int] = []

    def __call__(self) -> Iterator[tuple[int, trees.LeafChunk]]:
        """Each chunk behind the number of its first leaf; called again, those of a process that died come first."""
        yield from ((first, self._leaves.chunk(first)) for first in [*self._taken])
        while self._left:
            try:
                first = self._left.popleft()
            except IndexError:  # another process took the last one in between
                return
            self._taken.append(first)
            yield first, self._leaves.chunk(first)


def grow_branches(seed: bytes, count: int, given: Iterable[tuple[int, trees.LeafChunk]]) -> list[Branch]:
    """The branches over some of so many leaves, in another process."""
    return [*_branches(seed, count, given)]


def _branches(seed: bytes, count: int, given: Iterable[tuple[int, trees.LeafChunk]]) -> Iterator[Branch]:
    """The branches over some of so many leaves; over all of them, where they are one chunk, up to the root."""
    salts = trees.salts(seed, count)
    height = HEIGHT if count > CHUNK else None
    for first, chunk in given:
        yield first, trees.branch(salts, first, chunk, height)


def _joined(count: int, branches: Iterator[Branch]) -> trees.Levels:
    """The levels over all leaves, from those of the branches; InputError without any."""
    if count <= CHUNK:
        nothing: Branch = (0, [b""])
        return trees.raised(next(branches, nothing)[1])
    joined = [bytearray(trees.HASH * -(-count >> level)) for level in range(HEIGHT + 1)]
    for first, levels in branches:
        for level, (nodes, more) in enumerate(zip(joined, levels, strict=True)):
            start = trees.HASH * (first >> level)
            nodes[start : start + len(more)] = more
    return trees.raised([*joined])
