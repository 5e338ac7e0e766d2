"""What a collection has planned: NeMo Gym's materialised inputs, which only ever grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from calipers.errors import InputError
from calipers.run.collect_row import ROLLOUT, TASK, Row, key_of
from calipers.run.identity import differences
from calipers.run.log import Scrub, scrubbed

FAILURES: Final = "_failures.jsonl"
INPUTS: Final = "_materialized_inputs.jsonl"
METRICS: Final = "_aggregate_metrics.json"
ANOTHER: Final = "choose another --output, or --overwrite it"


def beside(path: Path, word: str) -> Path:
    """The file of that ending beside a file of rollouts: only the last extension is replaced.

    >>> str(beside(Path("runs/r.x.jsonl"), METRICS))
    'runs/r.x_aggregate_metrics.json'
    """
    return Path(os.path.splitext(path)[0] + word)


def grown(path: Path, asked: list[Row]) -> tuple[list[Row], list[Row], int]:
    """The plan asked for and all that was planned before; the plan before; how many rollouts only that one has."""
    inputs = beside(path, INPUTS)
    if path.is_dir():
        raise InputError.at(str(path), "is a directory", "expected a file, such as rollouts.jsonl")
    if not inputs.exists():
        if path.exists() and path.stat().st_size:
            wrong = f"holds rollouts, and there is no {inputs.name} that says what was planned"
            raise InputError.at(str(path), wrong, ANOTHER)
        return asked, [], 0
    before = list(_planned(inputs))
    wanted = {key_of(row): row for row in asked}
    gone = []
    for row in before:
        new = wanted.get(key_of(row))
        if new is None:
            gone.append(row)
        elif new != row and (found := next(differences(row, new), None)):
            where = f"rollout {row[TASK]}:{row[ROLLOUT]}"
            raise InputError.at(str(path), f"holds another collection: {where}: {found}", ANOTHER)
    if not gone and [*map(key_of, before)] == [*map(key_of, asked)]:
        return before, before, 0
    return [*asked, *gone], before, len(gone)


def _planned(inputs: Path) -> Iterator[Row]:
    with reading(inputs), open(inputs, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = msgspec.json.decode(line)
                key_of(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
                wrong = "is no planned rollout"
                raise InputError.at(f"{inputs}:{number}", wrong, f"mend the line, or {ANOTHER}") from None
            yield row


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def on_disk(row: Row, scrub: Scrub) -> Row:
    """A row as it will stand on disk: what is compared must be what was written."""
    found: Row = msgspec.json.decode(scrubbed(msgspec.json.encode(row), scrub))
    return found
