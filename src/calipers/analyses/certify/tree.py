"""A Merkle tree over salted leaves, as in RFC 6962: its root, its proofs, its file, and differences of two trees.

::

    leaf  = SHA-256(0x00 ‖ salt ‖ text)         node = SHA-256(0x01 ‖ left ‖ right)
    level 0: the leaves; each level pairs the nodes of the level below; a last node without a partner moves up unchanged

The salts are one stream: SHAKE-256 of a name and a random seed, 16 bytes for each leaf. The seed determines all salts,
but a salt reveals nothing about the others, so that single rollouts can be shown.
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
LEAF, NODE = 0, 1  # the type byte, the first byte of a hash input
_STEP: Final = 1 << 14  # pairs that are hashed at once
_sha = hashlib.sha256


def salts(seed: bytes, count: int) -> bytes:
    """The salts of ``count`` leaves, one after the other."""
    return hashlib.shake_256(SALTS + seed).digest(SALT * count)


def leaf_hash(salt: bytes, text: bytes) -> bytes:
    """The hash of one leaf."""
    return _sha(b"\x00" + salt + text).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two nodes."""
    return _sha(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree: its hashes level by level, the leaves first, the root last."""

    seed: bytes
    levels: Sequence[bytes | bytearray]

    @property
    def count(self) -> int:
        """The number of leaves."""
        return len(self.levels[0]) // HASH

    @property
    def root(self) -> bytes:
        """The hash of all leaves."""
        return bytes(self.levels[-1])

    def at(self, level: int, index: int) -> bytes:
        """The hash of a node; empty beyond the end of the level."""
        return bytes(self.levels[level][HASH * index : HASH * index + HASH])

    def salt(self, index: int) -> bytes:
        """The salt of a leaf."""
        return salts(self.seed, index + 1)[-SALT:]

    def path(self, index: int) -> list[bytes]:
        """The inclusion proof of a leaf: the hashes that lead from it to the root."""
        path = []
        for level in self.levels[:-1]:
            partner = index ^ 1
            if HASH * partner < len(level):
                path.append(bytes(level[HASH * partner : HASH * partner + HASH]))
            index //= 2
        return path

    def encoded(self) -> Iterator[bytes | memoryview]:
        """Yield the content of the tree file: its format, the number of leaves, the seed, and every level."""
        yield MAGIC + self.count.to_bytes(8, "big") + self.seed
        for level in self.levels:
            yield memoryview(level)


Levels = list[bytes | bytearray]


class LeafChunk(Protocol):
    """Consecutive leaves, as a value that can be sent to another process."""

    def __len__(self) -> int: ...

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The texts of the leaves, each prefixed with its head if heads are given."""
        ...


def branch(stream: bytes, first: int, chunk: LeafChunk, height: int | None = None) -> Levels:
    """The levels over a chunk of leaves, up to ``height``, or up to the root.

    ``stream`` contains the salts of all leaves. With a height, ``first``, the index of the first leaf, must be a
    multiple of 2^height, so that no pair contains an earlier leaf.
    """
    salted = _prefixed(LEAF, stream, SALT, first, len(chunk))
    return raised([b"".join([_sha(text).digest() for text in chunk.texts(salted)])], height)


def raised(levels: Levels, height: int | None = None) -> Levels:
    """Add the levels above the last one, up to ``height``, or up to the root; InputError without a leaf."""
    if not levels[0]:
        raise InputError("no rollouts; expected at least one to certify")
    while len(levels[-1]) > HASH if height is None else len(levels) <= height:
        level = levels[-1]
        pairs = len(level) // (2 * HASH)
        above = bytearray()
        for start in range(0, pairs, _STEP):
            nodes = _prefixed(NODE, level, 2 * HASH, start, min(_STEP, pairs - start))
            above += b"".join([_sha(node).digest() for node in nodes])
        levels.append(above + level[2 * HASH * pairs :])
    return levels


def _prefixed(type_byte: int, octets: bytes | bytearray, size: int, first: int, count: int) -> list[bytes]:
    """Hash inputs: ``count`` pieces of equal size from the ``first`` piece on, each prefixed with a type byte."""
    pieces = np.empty((count, size + 1), dtype=np.uint8)
    pieces[:, 0] = type_byte
    pieces[:, 1:] = np.frombuffer(octets, dtype=np.uint8, count=size * count, offset=size * first).reshape(count, size)
    texts: list[bytes] = pieces.view(f"V{size + 1}").reshape(-1).tolist()
    return texts


def root_of(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root that follows from a leaf and its inclusion proof; None if the proof has too few or too many hashes."""
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
    """The first leaf that differs between two trees, and the number of pairs of hashes compared to find it."""

    index: int
    compared: int


def parting(first: Tree, second: Tree) -> Parting | None:
    """The first leaf that differs between two trees of equal size, found from the root down; None if they are equal."""
    if first.root == second.root:
        return None
    index, compared = 0, 1
    for level in range(len(first.levels) - 2, -1, -1):
        index *= 2
        compared += 1
        if first.at(level, index) == second.at(level, index):
            index += 1
    return Parting(index, compared)


def first_difference(first: Tree, second: Tree) -> int:
    """The index of the first leaf that differs between trees of any size."""
    low, high = 0, min(first.count, second.count)  # the first `low` leaves are equal
    while low < high:
        middle = (low + high + 1) // 2
        if first.levels[0][: HASH * middle] == second.levels[0][: HASH * middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class TreeFile:
    """The head of a tree file, read without the hashes of its levels."""

    path: str
    seed: bytes
    count: int
    root: bytes

    def read(self) -> Tree:
        """Read the whole tree; InputError if the file has changed."""
        with _opened(self.path) as file:
            file.seek(_HEAD)
            tree = Tree(self.seed, [file.read(HASH * size) for size in _sizes(self.count)])
        if tree.root != self.root or tree.count != self.count:
            raise InputError.at(self.path, "changed while it was read", "expected a file that does not change")
        return tree


def open_tree(path: str) -> TreeFile:
    """The head of the tree in a file; InputError if the file is no tree, or is cut off."""
    expected = "expected the file result.tree that calipers certify wrote beside the certificate"
    with _opened(path) as file:
        head = file.read(_HEAD)
        if not head.startswith(MAGIC) or len(head) < _HEAD:
            raise InputError.at(path, "is not a tree file", expected)
        count = int.from_bytes(head[len(MAGIC) : len(MAGIC) + 8], "big")
        if not 0 < count < MOST or os.fstat(file.fileno()).st_size != _HEAD + HASH * sum(_sizes(count)):
            raise InputError.at(path, f"does not have the hashes of {count:,} leaves", expected)
        file.seek(-HASH, os.SEEK_END)
        return TreeFile(path, head[-SEED:], count, file.read(HASH))


def _sizes(count: int) -> list[int]:
    """The number of hashes at each level of a tree with ``count`` leaves."""
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
    """Whether the hashes on the path from a leaf to the root are the hashes of the nodes below them."""
    for level in range(len(tree.levels) - 1):
        left = index - index % 2
        above = tree.at(level + 1, index // 2)
        right = tree.at(level, left + 1)
        if above != (node_hash(tree.at(level, left), right) if right else tree.at(level, left)):
            return False
        index //= 2
    return True
