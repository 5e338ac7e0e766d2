"""The formats that are nobody else's: records, any JSON Lines, lists of rewards, tables, and our runs."""

from __future__ import annotations

import os
from functools import partial

from calipers.formats import native, native_texts, rewards, run_folder, tables
from calipers.formats.format import Beginning, Format, Settings, flat
from calipers.formats.run_plan import read_plan

WHO = ("model", "endpoint")
"""What of a run's identity says who answered."""


def _other_keys(start: Beginning) -> bool:
    """Whether the user says where the task is, or says other keys of rows without one."""
    return bool(start.columns) and ("task" in start.columns or (start.row is not None and "task" not in start.row))


def _identity(path: str, dataset: str | None) -> Settings:
    """What a run's plan says of how it was made, but for who answered."""
    identity = read_plan(os.path.dirname(path)).identity
    yield from flat({key: value for key, value in identity.items() if key not in WHO}, "")


NATIVE = Format("native", native.read, lambda start: True, partial(native_texts.texts, "native"))
JSONL = Format("jsonl", native.read, _other_keys, partial(native_texts.texts, "jsonl"))
REWARDS = Format("evsys_rewards", rewards.read_rewards, lambda start: start.line[:1] == b"[")
CSV = Format("csv", tables.read_csv, lambda start: start.line[:1] not in b"[{", partial(tables.texts, "csv"))
PARQUET = Format("parquet", tables.read_parquet, lambda start: True, partial(tables.texts, "parquet"))
RUN = Format("run", run_folder.read, lambda start: False, partial(native_texts.texts, "run"), _identity)
