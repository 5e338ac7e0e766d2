"""A Merkle tree over salted leaves, as in RFC 6962: its root, its proofs, its file, and where two trees part.

::

    leaf  = SHA-256(0x00 ‖ salt ‖ text)         node = SHA-256(0x01 ‖ left ‖ right)
    level 0: the leaves; each level pairs the one below; a last node without a partner moves up as it is

The salts are one stream: SHAKE-256 of a name and a random seed, 16 bytes for each leaf. Who knows the seed knows all
salts; one salt alone says nothing about the others, so that single rollouts can be shown.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import numpy as np

from calipers.errors import InputError

HASH: Final = 32
SALT: Final = 16
SEED: Final = 32
MAGIC: Final = b"calipers.tree/1\n"
SALTS: Final = b"calipers.salts/1"
MOST: Final = 1 << 40
_HEAD: Final = len(MAGIC) + 8 + SEED  # bytes of a tree file before its hashes
LEAF, NODE = 0, 1  # the first byte of what is hashed
_STEP: Final = 1 << 14  # pairs that are hashed at once
_sha = hashlib.sha256


def salts(seed: bytes, count: int) -> bytes:
    """The salts of so many leaves, one after the other."""
    return hashlib.shake_256(SALTS + seed).digest(SALT * count)


def leaf_hash(salt: bytes, text: bytes) -> bytes:
    """The hash of one leaf."""
    return _sha(b"\x00" + salt + text).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two nodes."""
    return _sha(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Tree:
    """All hashes, level by level: the leaves first, the root last. A tree of no leaves has none."""

    seed: bytes
    levels: Sequence[bytes | bytearray]

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return len(self.levels[0]) // HASH

    @property
    def root(self) -> bytes:
        """The hash of all leaves."""
        return bytes(self.levels[-1])

    def at(self, level: int, index: int) -> bytes:
        """One hash."""
        return bytes(self.levels[level][HASH * index : HASH * index + HASH])

    def salt(self, index: int) -> bytes:
        """The salt of a leaf."""
        return salts(self.seed, index + 1)[-SALT:]

    def path(self, index: int) -> list[bytes]:
        """The hashes that lead from a leaf to the root: an inclusion proof."""
        path = []
        for level in self.levels[:-1]:
            partner = index ^ 1
            if HASH * partner < len(level):
                path.append(bytes(level[HASH * partner : HASH * partner + HASH]))
            index //= 2
        return path

    def encoded(self) -> Iterator[bytes | memoryview]:
        """The tree file: its name, the number of leaves, the seed, and every level."""
        yield MAGIC + self.count.to_bytes(8, "big") + self.seed
        for level in self.levels:
            yield memoryview(level)


Levels = list[bytes | bytearray]


class LeafChunk(Protocol):
    """Some leaves that follow each other, as a value that another process can be given."""

    def __len__(self) -> int: ...

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The texts of the leaves, each behind its head if there are heads."""
        ...


def branch(stream: bytes, first: int, chunk: LeafChunk, height: int | None = None) -> Levels:
    """The levels over some leaves from the first on, up to a height, or the root; ``stream`` are the salts of all.

    With a height, the first leaf is a multiple of 2^height, so that no pair has a leaf before it.
    """
    salted = _behind(LEAF, stream, SALT, first, len(chunk))
    return raised([b"".join([_sha(text).digest() for text in chunk.texts(salted)])], height)


def raised(levels: Levels, height: int | None = None) -> Levels:
    """The levels with those above the last one, up to a height, or the root; InputError without a leaf."""
    if not levels[0]:
        raise InputError("no rollouts; expected at least one to certify")
    while len(levels[-1]) > HASH if height is None else len(levels) <= height:
        level = levels[-1]
        pairs = len(level) // (2 * HASH)
        above = bytearray()
        for start in range(0, pairs, _STEP):
            nodes = _behind(NODE, level, 2 * HASH, start, min(_STEP, pairs - start))
            above += b"".join([_sha(node).digest() for node in nodes])
        levels.append(above + level[2 * HASH * pairs :])
    return levels


def _behind(mark: int, octets: bytes | bytearray, size: int, first: int, count: int) -> list[bytes]:
    """So many pieces of one size, each behind a byte that says what it is."""
    pieces = np.empty((count, size + 1), dtype=np.uint8)
    pieces[:, 0] = mark
    pieces[:, 1:] = np.frombuffer(octets, dtype=np.uint8, count=size * count, offset=size * first).reshape(count, size)
    texts: list[bytes] = pieces.view(f"V{size + 1}").reshape(-1).tolist()
    return texts


def root_of(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf and its inclusion proof lead to; None where the proof has too few or too many hashes."""
    if not 0 <= index < count:
        return None
    left = deque(path)
    for size in _sizes(count)[:-1]:
        if index ^ 1 < size:
            if not left:
                return None
            partner = left.popleft()
            leaf = node_hash(partner, leaf) if index % 2 else node_hash(leaf, partner)
        index //= 2
    return None if left else leaf


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two trees part: the first leaf that differs, and how many pairs of hashes were compared to find it."""

    index: int
    compared: int


def parting(one: Tree, other: Tree) -> Parting | None:
    """The first leaf that differs between two trees of one size, found from the root down; None where none does."""
    if one.root == other.root:
        return None
    index, compared = 0, 1
    for level in range(len(one.levels) - 2, -1, -1):
        index *= 2
        compared += 1
        if one.at(level, index) == other.at(level, index):
            index += 1
    return Parting(index, compared)


def first_difference(one: Tree, other: Tree) -> int:
    """The first leaf that differs between trees of any sizes."""
    low, high = 0, min(one.count, other.count)  # the first `low` leaves are equal
    while low < high:
        middle = (low + high + 1) // 2
        if one.levels[0][: HASH * middle] == other.levels[0][: HASH * middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A tree in a file: what it is of, before all of its hashes are read."""

    path: str
    seed: bytes
    count: int
    root: bytes

    def read(self) -> Tree:
        """All of the tree; InputError where the file has changed."""
        with _opened(self.path) as file:
            file.seek(_HEAD)
            tree = Tree(self.seed, [file.read(HASH * size) for size in _sizes(self.count)])
        if tree.root != self.root or tree.count != self.count:
            raise InputError.at(self.path, "changed while it was read", "expected a file that does not change")
        return tree


def open_tree(path: str) -> TreeFile:
    """The tree in a file; InputError where it is none, or is cut off."""
    right = "expected the file result.tree that calipers certify wrote beside the certificate"
    with _opened(path) as file:
        head = file.read(_HEAD)
        if not head.startswith(MAGIC) or len(head) < _HEAD:
            raise InputError.at(path, "is not a tree file", right)
        count = int.from_bytes(head[len(MAGIC) : len(MAGIC) + 8], "big")
        if not 0 < count < MOST or os.fstat(file.fileno()).st_size != _HEAD + HASH * sum(_sizes(count)):
            raise InputError.at(path, f"does not have the hashes of {count:,} leaves", right)
        file.seek(-HASH, os.SEEK_END)
        return TreeFile(path, head[-SEED:], count, file.read(HASH))


def _sizes(count: int) -> list[int]:
    """The number of hashes at each level over so many leaves."""
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    return sizes


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def is_consistent(tree: Tree, index: int) -> bool:
    """Whether the hashes on the way from a leaf to the root are those of the hashes below them."""
    for level in range(len(tree.levels) - 1):
        left = index - index % 2
        above = tree.at(level + 1, index // 2)
        right = tree.at(level, left + 1)
        if above != (node_hash(tree.at(level, left), right) if right else tree.at(level, left)):
            return False
        index //= 2
    return True
