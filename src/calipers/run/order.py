"""The order of a run, and the seed of each sample: both follow from the run's seed and the task's id alone."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from zlib import crc32

from calipers.tasks.task import Task


def shuffled(tasks: Sequence[Task], seed: int) -> list[Task]:
    """The tasks in an order that is random and always the same.

    By the hash of seed and id, so that neither the order of the file nor a task that is added later
    changes which of two tasks comes first.
    """
    return sorted(tasks, key=lambda task: _digest(seed, task.id))


def sample_seed(seed: int, task: str, sample: int) -> int:
    """The seed that a server is given for one sample: 31 bits, another one for each sample.

    A checksum is enough, as nobody's order depends on it, and is cheap beside a call.

    >>> sample_seed(0, "t1", 0) != sample_seed(0, "t1", 1)
    True
    """
    return crc32(f"{seed}\0{task}\0{sample}".encode("utf-8", "surrogatepass")) >> 1


def _digest(seed: int, text: str) -> bytes:
    return sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
