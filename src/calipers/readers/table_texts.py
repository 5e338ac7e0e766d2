"""What the rows of a CSV or Parquet file say: their ``prompt``, ``answer`` and ``completion``, a batch at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calipers.readers import csv_text
from calipers.readers.files import Source
from calipers.readers.jsonl import LineError
from calipers.readers.table import csv_keys, explained, scanned
from calipers.readers.texts import Text
from calipers.rollouts.record import GROUP, TEXTS, meant

if TYPE_CHECKING:
    import polars as pl

READ = ("task", "sample", *GROUP, *TEXTS, "answer")
BATCH = 1 << 12  # rows; a text may be long


def texts(kind: str, path: str, names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    """The first row of each task that has its prompt, and all of the wanted tasks."""
    key_of = {role: key for key, role in meant(names).items()}
    key_of = {role: key_of[role] for role in READ if role in key_of}
    tasks = sorted(wanted)
    seen = set[tuple[Any, ...]]()
    with Source(path) as source:
        for frame in (_csv if kind == "csv" else _parquet)(source, key_of, tasks):
            for row in _chosen(frame, tasks, seen).iter_rows(named=True):
                sample = row.pop("sample", None) or 0
                yield Text(**{**dict.fromkeys(GROUP), **row}, sample=sample)


def _csv(source: Source, key_of: Mapping[str, str], tasks: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The columns of a CSV text that say something, called by their roles."""
    import polars as pl

    places: dict[str, int] = {}
    try:
        for block in csv_text.blocks(source.read):
            if not places:
                places = _places(csv_keys(block), key_of)
                if not _speak(places, tasks):
                    return
                continue
            cells = block.frame()
            columns = {role: cells[:, at] for role, at in places.items()}
            if "sample" in columns:
                columns["sample"], _ = csv_text.whole(columns["sample"])
            yield pl.DataFrame(columns)
    except LineError as error:  # the file was whole when its numbers were read
        raise error.at(source.path) from None


def _parquet(source: Source, key_of: Mapping[str, str], tasks: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The same of a Parquet file, prompts and answers apart; a column of bytes says nothing."""
    import polars as pl

    with explained(source.path):
        table = scanned(source)
        schema = table.collect_schema()
        types = list(schema.values())
        found = {role: at for role, at in _places(list(schema), key_of).items() if types[at] != pl.Binary}
        who = [role for role in found if role in ("task", *GROUP)]
        # columns by position: as names, "*" and "^.*$" are patterns
        table = table.select([pl.nth(at).alias(role) for role, at in found.items()])
        table = table.with_columns(pl.col(who).cast(pl.String))
        if "prompt" in found:
            yield from table.select(*who, "prompt").collect_batches(chunk_size=BATCH, maintain_order=True)
        if _speak(found.keys() - {"prompt"}, tasks):  # apart, so that no other completion is unpacked
            answers = table.filter(pl.col("task").is_in(tasks)).drop("prompt", strict=False)
            yield from answers.collect_batches(chunk_size=BATCH, maintain_order=True)


def _places(keys: Sequence[str], key_of: Mapping[str, str]) -> dict[str, int]:
    """Where the columns of a table stand that have these roles."""
    return {role: keys.index(key) for role, key in key_of.items() if key in keys}


def _speak(found: Collection[str], tasks: Sequence[str]) -> bool:
    """Whether any of the columns found says what is asked for."""
    return "prompt" in found or bool(tasks and ("answer" in found or "completion" in found))


def _chosen(frame: pl.DataFrame, tasks: Sequence[str], seen: set[tuple[Any, ...]]) -> pl.DataFrame:
    """The rows of a batch with the first prompt of a task, none of them in ``seen`` yet, and those of some tasks."""
    import polars as pl

    kept = frame["task"].is_in(tasks)
    if "prompt" in frame.columns:
        who = [name for name in ("task", *GROUP) if name in frame.columns]
        asked = frame.select(*who, at=pl.int_range(pl.len())).filter(frame["prompt"].is_not_null())
        firsts = asked.unique(who, keep="first", maintain_order=True)
        new = {row[:-1]: row[-1] for row in firsts.iter_rows() if row[:-1] not in seen}
        seen.update(new)
        kept = kept.scatter(list(new.values()), True)
    return frame.filter(kept)
