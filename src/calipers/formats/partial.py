"""Partials: files of packed rollouts, with the settings and input files that they were made from.

A partial is a zip archive with uncompressed members:

- ``calipers-partial.json``: the header: schema, definitions, settings, inputs with hashes, notes, and the hash of each
  other member;
- ``tasks.parquet``: a row for each task: its id and its number of rollouts;
- ``rollouts.parquet``: a row for each rollout, sorted by task and sample: its kind, and its sample number unless each
  task has samples 0, 1, 2, ...;
- ``kinds.parquet``: the distinct rows: outcome, attempt, rewards, columns, labels.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import Beginning, Columns, Format, Progress
from calipers.formats.frames import coded_json
from calipers.formats.source import Source
from calipers.rollouts.checks import Check
from calipers.rollouts.column import Column, Ints, starts_of
from calipers.rollouts.ids import Ids
from calipers.rollouts.packed import Packed, small
from calipers.rollouts.record import BEFORE_ANSWER, GROUP, OUTCOMES
from calipers.rollouts.table import Labels, Part, Places
from calipers.typed import complete

if TYPE_CHECKING:
    import polars as pl

SCHEMA: Final = "calipers.partial/1"
HEADER: Final = "calipers-partial.json"
TASKS, ROLLOUTS, KINDS = "tasks.parquet", "rollouts.parquet", "kinds.parquet"
MEMBERS: Final = (TASKS, ROLLOUTS, KINDS)
WHEN: Final = (1980, 1, 1, 0, 0, 0)  # the date of every member, so that equal rollouts give equal bytes
EXPECTED: Final = "expected a file of calipers score --partial"
_REWARD, _COLUMN, _LABEL = "reward:", "column:", "label:"


class InputFile(msgspec.Struct, frozen=True):
    """A file that a partial was made from."""

    path: str
    format: str
    sha256: str
    rollouts: int
    folder: str = ""  # the name of its folder, which may distinguish files of one format


class PartSettings(msgspec.Struct, frozen=True):
    """The settings of the score that a partial is for; the defaults if it is for any score."""

    metrics: list[str] = []
    by: list[str] = []
    cluster: str | None = None
    dialect: str | None = None
    missing: str | None = None
    reward: str | None = None
    confidence: float | None = None
    seed: int | None = None
    interval: str | None = None
    range: tuple[float, float] | None = None
    exclude: list[str] = []
    labels: list[str] = []
    ranges: dict[str, tuple[float, float]] | None = None
    mean: str | None = None
    threshold: float | None = None


class PartHeader(msgspec.Struct, frozen=True):
    """The header of a partial."""

    schema: str
    calipers: str
    definitions: int
    settings: dict[str, Any]  # the fields of `PartSettings` that are set
    inputs: list[InputFile]
    members: dict[str, str]  # name -> sha256
    tasks: int
    rollouts: int
    numbers: bool = False  # task ids are whole numbers
    unnumbered: bool = False  # the files have no sample numbers, so samples were numbered in order of appearance
    planned_from: str = "rows"
    headline: str = ""
    notes: list[str] = []
    checks: list[Check] = []
    others: list[str] = []
    named: list[str] = []


@dataclass(frozen=True, slots=True)
class Partial:
    """A partial that was read."""

    path: str
    header: PartHeader
    packed: Packed


def written(packed: Packed, header: Mapping[str, Any]) -> bytes:
    """The bytes of a partial; ``header`` has the fields of `PartHeader` that are not known from the rollouts."""
    tasks, rollouts, kinds = _frames(packed)
    members = {name: _parquet(frame) for name, frame in zip(MEMBERS, (tasks, rollouts, kinds), strict=True)}
    table = packed.kinds
    full_header = PartHeader(
        schema=SCHEMA,
        members={name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        tasks=tasks.height,
        rollouts=rollouts.height,
        numbers=packed.tasks.text is None,
        planned_from=table.planned_from,
        headline=table.headline,
        notes=list(table.notes),
        checks=list(table.checks),
        others=list(table.others),
        named=sorted(table.named),
        **header,
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {HEADER: msgspec.json.encode(full_header), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, WHEN), data)
    return buffer.getvalue()


def _frames(packed: Packed) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    import polars as pl

    ids = packed.tasks if packed.unit is None else packed.tasks.take(packed.unit)
    names = pl.Series("task", ids.starts if ids.text is None else list(ids), strict=False)
    tasks = pl.DataFrame([names, pl.Series("rollouts", np.diff(packed.starts))])
    columns = [pl.Series("kind", packed.code)]
    if packed.sample is not None:
        columns.append(pl.Series("sample", packed.sample))
    table = packed.kinds
    kinds = [
        pl.Series("outcome", [OUTCOMES[code] for code in table.outcome.tolist()], dtype=pl.String),
        pl.Series("attempt", table.attempt),
        pl.Series("tries", packed.tries),
    ]
    if table.before_answer is not None:
        kinds.append(pl.Series(BEFORE_ANSWER, table.before_answer))
    for sign, numbers in ((_REWARD, table.rewards), (_COLUMN, table.columns)):
        kinds += [_nullable(sign + name, column) for name, column in numbers.items()]
    for name, labels in table.labels.items():
        texts = [*(json.dumps(value, ensure_ascii=False) for value in labels.values), None]
        kinds.append(pl.Series(_LABEL + name, [texts[code] for code in labels.code.tolist()], dtype=pl.String))
    return tasks, pl.DataFrame(columns), pl.DataFrame(kinds)


def _nullable(name: str, column: Column) -> pl.Series:
    """A column as a polars series, with null for a gap; NaN stays NaN."""
    import polars as pl

    values = pl.Series(name, column.values)
    return values if column.given.all() else values.set(pl.Series(~column.given), None)


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def opened(path: str) -> Partial:
    """Read a partial; InputError if it is damaged, or of another version."""
    import polars as pl

    try:
        with zipfile.ZipFile(path) as archive:
            header = msgspec.json.decode(archive.read(HEADER), type=complete(PartHeader))
            if header.schema != SCHEMA:
                raise InputError.at(path, f"is of schema {header.schema!r}", f"expected {SCHEMA}")
            msgspec.convert(header.settings, complete(PartSettings))
            members = {name: archive.read(name) for name in MEMBERS}
        for name, data in members.items():
            if hashlib.sha256(data).hexdigest() != header.members.get(name):
                raise InputError.at(path, f"is damaged: {name} has another hash than its header says", EXPECTED)
        tasks, rollouts, kinds = (pl.read_parquet(members[name]) for name in MEMBERS)
        return Partial(path, header, _packed(path, header, tasks, rollouts, kinds))
    except InputError:
        raise
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror or error})", EXPECTED) from None
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        EOFError,
        RuntimeError,  # from zipfile, for an unknown compression and for a member with a password
        zlib.error,
        msgspec.MsgspecError,
        pl.exceptions.PolarsError,
    ) as error:
        raise InputError.at(path, f"is damaged, or is no partial ({str(error)[:80]})", EXPECTED) from None


def _packed(path: str, header: PartHeader, tasks: pl.DataFrame, rollouts: pl.DataFrame, kinds: pl.DataFrame) -> Packed:
    import polars as pl

    for column in (column for frame in (tasks, rollouts, kinds) for column in frame):
        if not _is_as_written(column, header.numbers):
            raise ValueError(f"its column {column.name!r} is {column.dtype}, or has gaps")
    counts = tasks["rollouts"].to_numpy().astype(np.int64)
    starts = starts_of(counts)
    code = small(rollouts["kind"].to_numpy())
    if (counts < 0).any() or starts[-1] != len(code) or (len(code) and int(code.max()) >= kinds.height):
        raise ValueError("its tables do not fit together")
    names = tasks["task"]
    listed = Ids.of_numbers(names.to_numpy().astype(np.int64)) if header.numbers else Ids.of(names.to_list())
    table, tries = _kinds(path, header, kinds)
    sample = small(rollouts["sample"].to_numpy()) if "sample" in rollouts.columns else None
    if names.is_unique().all():
        return Packed(table, tries, listed, None, starts, sample, code, path)
    distinct = names.unique(maintain_order=True)  # tasks of several groups have the same ids
    unit = names.replace_strict(distinct, pl.Series(range(len(distinct))), return_dtype=pl.Int64).to_numpy()
    first = np.zeros(len(distinct), dtype=np.int64)
    first[unit[::-1]] = np.arange(len(unit))[::-1]
    return Packed(table, tries, listed.take(first), unit, starts, sample, code, path)


def _is_as_written(column: pl.Series, numbers: bool) -> bool:
    """Whether a column has a type with which `_frames` writes it; ``numbers``: task ids are whole numbers."""
    import polars as pl

    if column.name.startswith((_REWARD, _COLUMN)):
        return column.dtype.is_float()
    if column.name.startswith(_LABEL):
        return column.dtype == pl.String
    if column.name == BEFORE_ANSWER:
        return column.dtype == pl.Boolean and not column.null_count()
    is_text = column.name == "outcome" or (column.name == "task" and not numbers)
    return (column.dtype == pl.String if is_text else column.dtype.is_integer()) and not column.null_count()


def _kinds(path: str, header: PartHeader, kinds: pl.DataFrame) -> tuple[Part, Ints]:
    zeros = np.zeros(kinds.height, dtype=np.int64)
    rewards: dict[str, Column] = {}
    columns: dict[str, Column] = {}
    labels: dict[str, Labels] = {}
    for name in kinds.columns:
        if name.startswith((_REWARD, _COLUMN)):
            series = kinds[name]
            column = Column.of(series.fill_null(0.0).to_numpy(), series.is_not_null().to_numpy())
            (rewards if name.startswith(_REWARD) else columns)[name.partition(":")[2]] = column
        elif name.startswith(_LABEL):
            labels[name.removeprefix(_LABEL)] = coded_json(kinds[name])
    part = Part(
        Places(path),
        [],
        zeros,
        zeros,
        kinds["attempt"].to_numpy().astype(np.int64),
        np.array([OUTCOMES.index(word) for word in kinds["outcome"].to_list()], dtype=np.uint8),
        rewards,
        columns,
        labels,
        header.planned_from,
        frozenset(header.named),
        others=header.others,
        notes=header.notes,
        checks=header.checks,
        headline=header.headline,
        unnumbered=header.unnumbered,
        before_answer=kinds[BEFORE_ANSWER].to_numpy() if BEFORE_ANSWER in kinds.columns else None,
    )
    return part, kinds["tries"].to_numpy().astype(np.int64)


def rows_of(packed: Packed) -> Part:
    """Packed rollouts as a `Part` with a row for each rollout."""
    code = packed.code.astype(np.int64)
    table = packed.kinds
    pieces = [(task, sample) for task, sample, _ in packed.rows()]
    task = np.concatenate([task for task, _ in pieces]) if pieces else np.zeros(0, dtype=np.int64)
    sample = np.concatenate([sample for _, sample in pieces]) if pieces else np.zeros(0, dtype=np.int64)
    rows = table.take(code, Places(table.places.path, "rollout ", [(0, 1)]))
    return replace(rows, tasks=list(packed.tasks), task=task, sample=sample.astype(np.int64))


def lacking(header: PartHeader, labels: Collection[str]) -> list[str]:
    """The requested labels that the partial does not have."""
    known = {*header.settings.get("labels", ()), "task", "sample", "outcome", "answer", *GROUP}
    return [label for label in labels if label not in known]


def _checked(source: Source, labels: Collection[str]) -> Partial:
    part = opened(source.path)
    if absent := lacking(part.header, labels):
        right = f"make it again with calipers score --partial --by {absent[0]}"
        raise InputError.at(source.path, f"the partial does not have {absent[0]!r} of its rollouts", right)
    return part


def read(source: Source, columns: Columns, labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts of a partial, unpacked."""
    part = _checked(source, labels)
    progress(source.size)
    return [rows_of(part.packed)] if len(part.packed) else []


def packed(
    source: Source, columns: Columns, labels: Collection[str], keep: Collection[str] | None, progress: Progress
) -> list[Packed]:
    """The rollouts of a partial, packed."""
    part = _checked(source, labels)
    progress(source.size)
    return [part.packed]


def recognise(start: Beginning) -> bool:
    """Whether the first member of a file is the header of a partial."""
    return start.head[:2] == b"PK" and HEADER.encode() in start.head[:80]


def input_file(path: str, form: str, sha256: str, rollouts: int) -> InputFile:
    """The entry of a header for a file that was read."""
    return InputFile(path, form, sha256, rollouts, os.path.basename(os.path.dirname(os.path.abspath(path))))


PARTIAL = Format("partial", read, recognise, packed=packed)
