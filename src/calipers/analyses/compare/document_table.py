"""The table of a task of lm-evaluation-harness: numbers that are computed from all documents together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from calipers.errors import InputError
from calipers.formats.read import Input
from calipers.formats.run_folder import (
    DOCUMENTS,
    DOCUMENTS_SCHEMA,
    LOG,
    DocumentLine,
    DocumentsHead,
    Summed,
    read_settings,
)
from calipers.names import DOCUMENT_TABLES, FORMATS, TASK_LIBRARY_NAME, load

if TYPE_CHECKING:
    from calipers.analyses.compare.align import Common
    from calipers.analyses.compare.measure import Measured
    from calipers.analyses.compare.question import Question
    from calipers.rollouts.column import Ints

_Kind = TypeVar("_Kind")
AGAIN: Final = "run the same calipers run command again to write it, or to see why that is not possible"
UNSCORED: Final = "run the same command without --predict-only and with --model replay/{}/{} to score its log"


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """The numbers of a table, by ``metric,pipeline``, and what each document keeps for them; or why there are none."""

    ways: Mapping[str, Summed] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # key -> document -> value
    hashes: Mapping[str, str] = field(default_factory=dict)  # document -> hash of what it says
    whole: bool = True  # whether its means are here, too; else they are rewards of the rollouts
    why: str | None = None
    cure: str = AGAIN  # what would bring them, where there are none

    def named(self, name: str) -> list[str]:
        """The keys that a name means: itself, or a metric in each of its pipelines."""
        return [name] if name in self.ways else [key for key, way in self.ways.items() if way.metric == name]


@dataclass(slots=True)
class TableDifferences:
    """What was measured of two tables, and what must be said of the rest."""

    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # where all numbers are asked for
    refused: dict[str, str] = field(default_factory=dict)  # a name that was asked for -> why it has no difference


@dataclass(frozen=True, slots=True)
class TableReader:
    """What another system makes of the documents of a task together, as functions."""

    read: Callable[[Sequence[Input], tuple[str | None, ...]], DocumentTable]
    """``read(inputs, (agent, model, dataset))``: the table of a group; an empty one where there is none."""
    compare: Callable[..., TableDifferences]
    """``compare(two tables, names, common tasks, clusters, question)``."""
    value: Callable[[str, Sequence[Any]], float]
    """``value(aggregation, values of all documents)``."""
    spread: Callable[[str, Sequence[Any], float, float, Sequence[int]], Any]
    """``spread(aggregation, values, value, confidence, seed)``: with ``ends``, or ``why`` there are none."""


def table_reader() -> TableReader:
    """The reader of document tables; it loads the other system."""
    reader: TableReader = load(DOCUMENT_TABLES)
    return reader


def table_of(inputs: Sequence[Input], key: tuple[str | None, ...]) -> DocumentTable | None:
    """The table of a group (agent, model, dataset) of a source; None where no file of it has one."""
    for file in inputs:
        theirs = file.format == "run" and is_theirs(os.path.dirname(file.path))
        if theirs or FORMATS.load(file.format).has_documents:
            return table_reader().read(inputs, key)
    return None


def compared_tables(
    first: DocumentTable | None,
    second: DocumentTable | None,
    names: tuple[str, str],
    common: Common,
    clusters: Ints | None,
    question: Question,
) -> TableDifferences | None:
    """The differences of all numbers that both tables have, or of those that the question names; None without any."""
    if question.tables is None and not any(table and (table.ways or table.why) for table in (first, second)):
        return None
    tables = first or DocumentTable(whole=False), second or DocumentTable(whole=False)
    return table_reader().compare(tables, names, common, clusters, question)


def short(keys: Iterable[str]) -> list[str]:
    """The shortest names of some numbers: their metrics, where one pipeline has it.

    >>> short(["bleu,none", "exact_match,strict", "exact_match,loose"])
    ['bleu', 'exact_match,strict', 'exact_match,loose']
    """
    every = list(dict.fromkeys(keys))
    metrics = [key.rpartition(",")[0] for key in every]
    return [metric if metrics.count(metric) == 1 else key for metric, key in zip(metrics, every, strict=True)]


def is_theirs(folder: str) -> bool:
    """Whether the folder of a run is of one of lm-evaluation-harness' tasks."""
    return _setting(folder, TASK_LIBRARY_NAME) is not None


def _setting(folder: str, name: str) -> Any:
    """A setting of a run's plan; None where it has none."""
    try:
        return read_settings(folder).get(name)
    except InputError:
        return None  # the reader of rollouts says what is wrong with it


def stored(folder: str) -> DocumentTable:
    """The table of a run, from its folder."""
    path = os.path.join(folder, DOCUMENTS)
    try:
        with open(path, "rb") as file:
            first, *rest = file.read().splitlines()
    except FileNotFoundError:
        if _setting(folder, "predict_only") is True:
            return DocumentTable(
                why=f"{folder} was run with --predict-only, which scores nothing", cure=UNSCORED.format(folder, LOG)
            )
        return DocumentTable(why=f"{path} does not exist")
    except (OSError, ValueError) as error:
        raise InputError.at(path, f"cannot be read ({getattr(error, 'strerror', None) or 'it is empty'})") from None
    head = _decoded(first, DocumentsHead, f"{path}:1")
    if head.schema != DOCUMENTS_SCHEMA:
        raise InputError.at(path, f"its schema is {head.schema[:60]!r}", f"expected {DOCUMENTS_SCHEMA!r}")
    if head.log_bytes != os.path.getsize(os.path.join(folder, LOG)):
        return DocumentTable(why=f"{path} is older than the log of the run")
    documents = [_decoded(text, DocumentLine, f"{path}:{number}") for number, text in enumerate(rest, start=2)]
    ways = {way.key: way for way in head.metrics}
    values: dict[str, dict[str, Any]] = {key: {} for key in ways}
    for line in documents:
        for key in ways.keys() & line.values.keys():
            value = line.values[key]
            values[key][line.document] = math.nan if value is None else value
    return DocumentTable(ways, values, {line.document: line.hash for line in documents})


def _decoded(text: bytes, kind: type[_Kind], where: str) -> _Kind:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        wrong = f"not a line of document values ({str(error).rstrip('.')})"
        raise InputError.at(where, wrong, "expected the file as calipers run wrote it") from None
