"""NeMo Gym's rollouts: one file, or a large one divided among processes, and the files that lie beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from calipers.errors import InputError
from calipers.readers.divide import Progress, read_lines
from calipers.readers.files import BLOCK, STDIN, Source
from calipers.readers.nemo_gym_beside import FAILURES, INPUTS, beside, with_companions
from calipers.readers.nemo_gym_cells import REWARD
from calipers.readers.nemo_gym_file import GymLines
from calipers.readers.nemo_gym_rows import ROLLOUT, TASK
from calipers.readers.nemo_gym_taking import GymPart
from calipers.rollouts.part import Part

INDICES = frozenset({TASK, ROLLOUT})
_MARKS = tuple(f'"{key}"'.encode() for key in INDICES)


def is_row(line: bytes) -> bool:
    """Whether a line of JSON is a rollout of NeMo Gym's: it carries an index of its collector."""
    return any(mark in line for mark in _MARKS)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without those that are read anyway, beside another of them, where both are NeMo Gym's."""
    mains = [path for path in paths if path != STDIN and _may_be_ours(path)]
    taken = {os.path.realpath(beside(path, word)) for path in mains for word in (FAILURES, INPUTS)}
    return [path for path in paths if os.path.realpath(path) not in taken or not _may_be_ours(path)]


def _may_be_ours(path: str) -> bool:
    """Whether a file starts with a row of NeMo Gym's, or is empty, as a file of failures often is."""
    if not os.path.isfile(path):
        return False  # what passes only once must not be looked into
    try:
        with open(path, "rb") as file:
            head = file.read(BLOCK)
    except (OSError, ValueError):
        return False
    return is_row(head) or not head.strip()


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a JSON Lines source in NeMo Gym's form, and what became of the planned ones.

    ``<stem>_failures.jsonl`` and ``<stem>_materialized_inputs.jsonl`` beside the file say which
    attempts failed and which rollouts were planned.
    """
    for role in names:
        if role not in (REWARD, "answer"):
            wrong = f"{role} has its own place in NeMo Gym's rollouts"
            raise InputError.at("--columns", wrong, "expected reward=KEY or answer=KEY")
    parts: list[GymPart] = read_lines("calipers.readers.nemo_gym:lines", source, names, labels, progress)
    return with_companions(source.path, parts)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> GymLines:
    """A reader of NeMo Gym's rows, which remembers where in the file each stands."""
    return GymLines(path, names, labels, start)
