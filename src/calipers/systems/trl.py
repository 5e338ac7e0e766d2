"""The reader of TRL's tables of completions, ``completions_00020.parquet``, which ``log_completions=True`` writes."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from calipers.errors import InputError
from calipers.formats import Beginning, Columns, Extras, Format, Progress
from calipers.formats.rows import PartBuilder
from calipers.formats.source import Source
from calipers.formats.system_rows import STEP, number, own_names, prompt_task
from calipers.formats.tables import explained, scanned
from calipers.rollouts.record import ROLES, USAGE
from calipers.rollouts.table import Part, Places

if TYPE_CHECKING:
    import polars as pl

SYSTEM: Final = "trl"
BEFORE, AFTER = "completion", "advantage"  # the columns between which the rewards are
KEYS: Final = frozenset({STEP, "prompt", BEFORE, AFTER})
LAST_TABLE: Final = (
    "TRL keeps the last table of a step, of training or of an evaluation, and only the last generation batch: "
    "the means that it logged may cover other batches"
)


def reward_columns(schema: pl.Schema) -> list[str]:
    """The reward columns of a table: the float columns between ``completion`` and ``advantage``.

    TRL does not mark them, so a float column that a user logged among them is taken for a reward, too.
    """
    names = list(schema)
    return [name for name in names[names.index(BEFORE) + 1 : names.index(AFTER)] if schema[name].is_float()]


def read(source: Source, names: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a table: one per row, with one reward per reward function."""
    own_names(names, "TRL")
    with explained(source.path):
        table = scanned(source)
        schema = table.collect_schema()
        if absent := KEYS - {*schema}:
            problem = f"no column {min(absent)!r}"
            raise InputError.at(source.path, problem, f"expected TRL's columns: {', '.join(sorted(KEYS))}")
        rewards = reward_columns(schema)
        extras = [name for name in schema if name not in KEYS and name not in rewards]
        numeric = [name for name in extras if schema[name].is_numeric() or str(schema[name]) == "Boolean"]
        label_names = [name for name in extras if name in labels]
        frame = table.select([STEP, "prompt", *rewards, AFTER, *dict.fromkeys([*numeric, *label_names])]).collect()
    progress(source.size)
    if not frame.height:
        return []
    builder = PartBuilder()
    prompts = [str(prompt) for prompt in frame["prompt"].to_list()]  # older versions of TRL write lists of messages
    tasks = {prompt: prompt_task(prompt) for prompt in set(prompts)}
    builder.tasks([tasks[prompt] for prompt in prompts])
    for name in rewards:
        builder.numbers("reward", name, [number(value) for value in frame[name]])
    for name in [AFTER, *numeric]:
        builder.numbers("column", name, [number(value) for value in frame[name]])
    builder.labels(STEP, frame[STEP].to_list())
    for name in label_names:
        builder.labels(name, [value if isinstance(value, (str, int, float)) else None for value in frame[name]])
    builder.rows = frame.height
    places = Places(source.path, "row ")
    places.add(0, 1)
    if not rewards:
        problem = f"no column of floats between {BEFORE!r} and {AFTER!r}"
        raise InputError.at(source.path, problem, "expected one for each reward function")
    note = f"rewards: {', '.join(rewards)} (the float columns before {AFTER!r}; a float extra looks like a reward)"
    notes = [note, LAST_TABLE]
    if infinite := sum(int(frame[name].is_infinite().sum()) for name in rewards):  # NaN is a reward that was not given
        values = "1 reward is" if infinite == 1 else f"{infinite:,} rewards are"
        notes.append(f"{source.path}: {values} infinite: missing, not 0")
    return [replace(builder.finish(places), unnumbered=True, notes=notes)]


def extras(part: Part, names: Columns) -> Extras:
    """The prompt, the completion and the other text columns of each row."""
    with Source(part.places.path) as source:
        table = scanned(source)
        schema = table.collect_schema()
        texts = [name for name in schema if str(schema[name]) == "String" and name not in (*ROLES, *USAGE)]
        frame = table.select([*texts, "prompt", BEFORE]).collect()
    yield from frame.iter_rows(named=True)


def recognise(start: Beginning) -> bool:
    """Whether a file is Parquet with the columns of TRL's table, and without a ``task`` column."""
    if "task" in start.columns or not os.path.isfile(start.path):
        return False
    import polars as pl

    try:
        schema = pl.scan_parquet(os.path.abspath(start.path), glob=False, hive_partitioning=False).collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return False
    names = list(schema)
    return schema.keys() >= KEYS and "task" not in schema and names.index(BEFORE) < names.index(AFTER)


COMPLETIONS: Final = Format(SYSTEM, read, recognise, in_folders=True, extras=extras)
