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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from calipers.errors import InputError

HASH: Final = 32
SALT: Final = 16
SEED: Final = 32
MAGIC: Final = b"calipers.tree/1\n"
SALTS: Final = b"calipers.salts/1"
MOST: Final = 1 << 40
_STEP: Final = 1 << 20  # bytes of a level that are paired at once
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


def grow(seed: bytes, chunks: Iterator[list[bytes]], count: int) -> Tree:
    """The tree of leaves that come in chunks of texts."""
    stream, leaves, first = salts(seed, count), bytearray(HASH * count), 0
    for texts in chunks:
        salted = [b"\x00" + stream[at : at + SALT] for at in range(SALT * first, SALT * (first + len(texts)), SALT)]
        hashes = b"".join([_sha(salt + text).digest() for salt, text in zip(salted, texts, strict=True)])
        leaves[HASH * first : HASH * first + len(hashes)] = hashes
        first += len(texts)
    del stream
    return Tree(seed, _levels(leaves))


def _levels(leaves: bytearray) -> list[bytes | bytearray]:
    if not leaves:
        raise InputError("no rollouts; expected at least one to certify")
    levels: list[bytes | bytearray] = [leaves]
    while len(level := levels[-1]) > HASH:
        pairs = len(level) - len(level) % (2 * HASH)
        above = bytearray()
        for start in range(0, pairs, _STEP):
            ends = range(start, min(start + _STEP, pairs), 2 * HASH)
            above += b"".join([_sha(b"\x01" + level[at : at + 2 * HASH]).digest() for at in ends])
        levels.append(above + level[pairs:])
    levels[-1] = bytes(levels[-1])
    return levels


def root_of(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf and its inclusion proof lead to; None where the proof has too few or too many hashes."""
    if not 0 <= index < count:
        return None
    left, used = list(path), 0
    size = count
    while size > 1:
        if index ^ 1 < size:
            if used == len(left):
                return None
            partner = left[used]
            used += 1
            leaf = node_hash(partner, leaf) if index % 2 else node_hash(leaf, partner)
        index, size = index // 2, (size + 1) // 2
    return leaf if used == len(left) else None


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


def read_tree(path: str) -> Tree:
    """The tree in a file; InputError where it is none, is cut off, or its nodes do not fit its leaves."""
    right = "expected the file result.tree that calipers certify wrote beside the certificate"
    try:
        with open(path, "rb") as file:
            head = file.read(len(MAGIC) + 8 + SEED)
            if not head.startswith(MAGIC) or len(head) < len(MAGIC) + 8 + SEED:
                raise InputError.at(path, "is not a tree file", right)
            count = int.from_bytes(head[len(MAGIC) : len(MAGIC) + 8], "big")
            seed = head[-SEED:]
            size = os.fstat(file.fileno()).st_size - len(head)
            sizes = [count]
            while sizes[-1] > 1:
                sizes.append((sizes[-1] + 1) // 2)
            if not 0 < count < MOST or size != HASH * sum(sizes):
                raise InputError.at(path, f"does not have the hashes of {count:,} leaves", right)
            return Tree(seed, [file.read(HASH * each) for each in sizes])
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
