"""Make up documents for a task: columns try one kind after the other until lm-evaluation-harness runs the task."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from bench.parity.columns import Column, finished, rows
from bench.parity.learn import keys, learned
from bench.parity.sides import ANY, Data, dataset_key, evaluate, serve

DOCUMENTS = 8
USUAL = ("train", "validation", "test")  # splits of a dataset if its task names none
TRIES = 60
AGAIN = 20  # tries, before the search begins again with other random choices
SECONDS = 25
_MISSING = re.compile(r"'(\w+)' is undefined|' has no attribute '(\w+)'|Column (\w+) (?:not|doesn't)")


class Empty(Exception):
    """A filter of the task left no row; it has the column and the values that the filter asked for."""

    def __init__(self, asked: Mapping[str, list[Any]]) -> None:
        super().__init__("a filter left no row")
        self.asked = asked


class _Asked(str):
    """A text that records what it was compared with."""

    __slots__ = ("log",)
    log: list[Any]

    def __eq__(self, other: object) -> bool:
        self.log.append(other)
        return str.__eq__(self, str(other))

    def __ne__(self, other: object) -> bool:
        return not str.__eq__(self, str(other))

    __hash__ = str.__hash__

    def startswith(self, prefix: Any, *rest: Any) -> bool:
        """Whether the text begins with a prefix, which is recorded, too."""
        self.log.append(prefix if isinstance(prefix, str) else prefix[0])
        return super().startswith(prefix, *rest)


def watch_filters() -> None:
    """Make a filter that leaves no row report what it looked for."""
    dataset = importlib.import_module("datasets").Dataset
    plain = dataset.filter

    def watched(self: Any, function: Any = None, *rest: Any, **options: Any) -> Any:
        found = plain(self, function, *rest, **options)
        if len(self) and not len(found) and function is not None:
            asked: dict[str, list[Any]] = {}
            row = {key: _Asked(cell if isinstance(cell, str) else str(cell)) for key, cell in self[0].items()}
            for key, cell in row.items():
                cell.log = asked.setdefault(key, [])
            with suppress(Exception):
                function(row)
            raise Empty({key: several for key, several in asked.items() if several})
        return found

    dataset.filter = watched


class Unmade(Exception):
    """No documents were found with which lm-evaluation-harness runs; it has the last error."""


def splits_of(config: Any) -> list[str]:
    """The splits in the configuration of a task."""
    named = (config.training_split, config.validation_split, config.test_split, config.fewshot_split)
    return [*dict.fromkeys(one for one in (*named, config.fewshot_config.split) if one)]


def data_of(config: Any, columns: Mapping[str, Column], shots: int | None) -> Data:
    """The dataset of a task with rows of these columns."""
    count = DOCUMENTS + max(shots or 0, config.num_fewshot or 0)
    key = dataset_key(config.dataset_path, config.dataset_name, config.dataset_kwargs)
    named = splits_of(config)
    made = {split: rows(columns, count, f"{config.task} {split}") for split in {*named, *USUAL}}
    return {key: {split: made[split] for split in named or USUAL}, ANY: {split: made[split] for split in USUAL}}


def made(known: Any, leaf: Any, shots: int | None, start: dict[str, Column] | None) -> tuple[Data, dict[str, Column]]:
    """Rows with which lm-evaluation-harness runs a task, and their columns; Unmade if none are found."""
    watch_filters()
    columns = deepcopy(start) if start is not None else learned(leaf.config, leaf.code)
    lot, began, said = Random(leaf.name), monotonic(), ""
    first = deepcopy(columns)
    for number in range(TRIES):
        if monotonic() - began > SECONDS:
            break
        if number and number % AGAIN == 0:
            columns = deepcopy(first)  # the changes did not help
        data = data_of(leaf.config, columns, shots)
        serve(data)
        try:
            evaluate(known, leaf.name, shots, None)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            if not repaired(columns, error, data, leaf.config, lot):
                break
        else:
            return data, columns
    raise Unmade(said)


def repaired(columns: dict[str, Column], error: BaseException, data: Data, config: Any, lot: Random) -> bool:
    """Change the columns that an error points at; returns whether there was anything to change."""
    every = dict(keys(columns))
    if isinstance(error, Empty):
        for key, several in error.asked.items():
            if key in every:
                every[key].options = [one for one in several if isinstance(one, type(several[0]))]
                every[key].kinds.insert(0, "option")
                every[key].place = 0
        return bool(error.asked)
    missing = _MISSING.search(str(error))
    name = next((one for one in missing.groups() if one), None) if missing else None
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        name = error.args[0]
    known = isinstance(error, AttributeError) or name is None or name in every or "' object has no" in str(error)
    if name is not None and not known and len(name) < 40 and not _cells(data, name):
        columns[name] = Column()
        finished({name: columns[name]})
        return True
    if name is not None and (
        parents := [one for one in every.values() if name in one.fields and "dict" not in one.kind]
    ):
        parents[0].place = parents[0].kinds.index("dict")
        return True
    if isinstance(error, (ImportError, OSError)):
        return False  # other documents would not help
    if "out of bounds for size 0" in str(error) or "num_samples" in str(error):
        return _let_through(every)
    blamed = _cells(data, name) if name is not None else []
    if isinstance(error, ValueError) and (quoted := re.match(r"'(.*)' is not in ", str(error))):
        blamed = _cells(data, quoted[1])
    mentioned = blamed or _mentioned(error, every)
    held, wanted = _types(error)
    fitting = [one for one in mentioned or every if every[one].kind in held]
    if fitting:
        return _become(every[lot.choice(fitting)], wanted)
    blamed = mentioned or _named(config, every, lot) or list(every)
    if not blamed:
        return False
    every[lot.choice(blamed)].place += 1
    return True


def _let_through(every: Mapping[str, Column]) -> bool:
    """No document was left: let the task find the values that it looks for."""
    shut = [one for one in every.values() if one.options and one.kind != "option"]
    for column in shut:
        _become(column, ("option",))
    return bool(shut)


def _become(column: Column, wanted: Sequence[str]) -> bool:
    """Make a column the first of these kinds that it can be, or else its own next kind."""
    for kind in wanted:
        if kind in column.kinds and column.kind != kind:
            column.place = column.kinds.index(kind)
            return True
    column.place += 1
    return True


_AS = {"str": ("text", "letter", "digit", "literal", "member", "option"), "int": ("index", "truth", "first")}
_AS |= {"list": ("texts", "dicts", "ints", "lists"), "dict": ("dict",), "bool": ("truth",)}
_SAID = (  # what an error says: the type that was there, and what should be
    (r"'(\w+)' object has no attribute '(?:strip|split|rfind|lower|find|replace|encode|lstrip|rstrip)'", ("text",)),
    (r"'(\w+) object' has no attribute '(?:strip|split|rfind|lower|find|replace|lstrip|rstrip)'", ("text",)),
    (r"(str)ing indices must be integers", ("dicts", "dict", "texts")),
    (r"(list) indices must be integers", ("dict", "dicts", "index")),
    (r"unhashable type: '(\w+)'", ("option", "text", "letter")),
    (r"'(\w+)' object is not (?:subscriptable|iterable)", ("texts", "text", "dict")),
    (r"argument of type '(\w+)' is not iterable", ("text", "texts")),
    (r"unsupported operand type\(s\) for .: '(str|list)' and 'int'", ("index",)),
    (r"can only concatenate str \(not \"(\w+)\"\)", ("text",)),
    (r"sequence item \d+: expected str instance, (\w+) found", ("texts", "text")),
    (r"expected str(?:ing)?.*(?:got|not) '?(\w+)'?", ("text",)),
    (r"not '(list|dict)'$", ("digit", "text")),
)


def _types(error: BaseException) -> tuple[Sequence[str], Sequence[str]]:
    for pattern, wanted in _SAID:
        if said := re.search(pattern, str(error)):
            return _AS.get(said[1], ()), wanted
    return (), ()


def _cells(data: Data, value: str) -> list[str]:
    """The columns that contain a value."""
    found = [
        column
        for splits in data.values()
        for several in splits.values()
        for row in several
        for column, cell in row.items()
        if cell == value or str(cell) == value
    ]
    return list(dict.fromkeys(found))


def _mentioned(error: BaseException, every: Mapping[str, Column]) -> list[str]:
    """The columns in a line of the task's own code: the line that failed, else the calls that led to it."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if f"{Path('lm_eval') / 'tasks'}/" in frame.filename and "manager.py" not in frame.filename and frame.line:
            found = [name for name in every if re.search(rf"['\"]{re.escape(name)}['\"]", frame.line)]
            if found:
                return found
    return []


def _named(config: Any, every: Mapping[str, Column], lot: Random) -> list[str]:
    """The columns that a field of the task names; most often the target is the cause."""
    fields = [config.doc_to_target, config.doc_to_target, config.doc_to_choice, config.doc_to_text]
    texts = [one for one in fields if isinstance(one, str)]
    named = [[name for name in every if re.search(rf"\b{re.escape(name)}\b", one)] for one in texts]
    several = [one for one in named if one]
    return lot.choice(several) if several else []
