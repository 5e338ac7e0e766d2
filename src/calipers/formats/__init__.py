"""Files into rollouts. A `Format` says how one kind of file is recognised and read, and what else it provides.

Every format has a line in `names.FORMATS`. The format of another system is imported only when a file shows the sign
beside its name there, so that reading our own records imports no other system.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from calipers.errors import InputError
from calipers.rollouts.packed import Loose, Packed
from calipers.rollouts.table import Part

Raw = msgspec.Raw
ROW: Final = msgspec.json.Decoder(dict[str, Raw])
"""Decodes an object into the raw JSON of its values."""
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors for text that is not JSON, or is nested too deeply."""

COMPARED: Final = "shown by calipers score --dialect lm_eval --format md, compared by calipers compare"

Columns = Mapping[str, str]  # role -> its key in the files
Extras = Iterator[Mapping[str, Any]]
"""The non-numeric values of each row, by the keys of a record: texts, answer, error, metadata, and other keys."""
Settings = Iterator[tuple[str, Any]]  # name, value
NUMBERED: Final = "#"
"""The key in ``--columns sample=#``: the files have no sample numbers, so samples are numbered by appearance."""


class Named(dict[str, str]):
    """The options for reading files: the key of each role (the dict), the reward of each word, and the format.

    InputError for a reward that is not finite, and for a word with two rewards.
    """

    def __init__(self, names: Columns, words: Mapping[str, float] | None = None, format: str = "") -> None:
        super().__init__(names)
        words = worths(names) if words is None else words
        self.words: dict[str, float] = {}
        for word, reward in words.items():
            number = float(reward)
            if not math.isfinite(number):
                raise InputError.at("--truth", f"{word!r} is {number}", "expected a finite number")
            if self.words.setdefault(word.strip().lower(), number) != number:
                problem = f"{word!r} has two rewards, for upper and lower case are the same"
                raise InputError.at("--truth", problem, "expected one reward for each word")
        self.format = format or insisted(names)

    def __bool__(self) -> bool:
        return bool(len(self) or self.words or self.format)


def worths(names: Columns) -> Mapping[str, float]:
    """The reward of each word, as given with ``--truth``; empty without that option."""
    return names.words if isinstance(names, Named) else {}


def insisted(names: Columns) -> str:
    """The name of the format given with ``--input-format``; "" if the format is recognised from the content."""
    return names.format if isinstance(names, Named) else ""


def options_of(names: Columns) -> list[str]:
    """The options with which the columns, the rewards of words and the format were given."""
    given = {"--columns": len(names), "--truth": worths(names), "--input-format": insisted(names)}
    return [option for option, value in given.items() if value]


Progress = Callable[[int], None]  # called with the number of bytes read since the last call


class Text(NamedTuple):
    """The texts of one rollout. A value may be raw JSON, as most texts are never looked at and need no decoding."""

    agent: str | None  # None if the record does not have it; likewise model and dataset
    model: str | None
    dataset: str | None
    task: str
    sample: float  # rollouts of a task are ordered by it
    document: str = ""  # the hash of the document that the task is made from
    target: str = ""  # the hash of the right answer (see `target_hash`); "" if the record has none
    completion: Any = None  # text, or messages
    prompt: Any = None  # text, or messages
    answer: Any = None  # the extracted answer; if it is empty, the completion is shown
    error: Any = None  # text, or an object with kind and message


TARGET: Final = "target"  # the key of the right answer, in records and in their metadata
HASH_DIGITS: Final = 16  # hexadecimal digits of a target's hash


def target_hash(target: Any) -> str:
    """The hash of a task's right answer, to compare the answers of two records of a task; "" without an answer.

    A whole number has the hash of its text, and a list of one answer has the hash of that answer.

    >>> target_hash("18") == target_hash([18.0]) != target_hash("19"), target_hash(None)
    (True, '')
    """
    if isinstance(target, list) and len(target) == 1:
        return target_hash(target[0])
    if isinstance(target, float) and target.is_integer():
        target = int(target)
    if not isinstance(target, str):
        target = "" if target is None else json.dumps(target, sort_keys=True, default=str)
    text = target.strip()
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:HASH_DIGITS] if text else ""


class OpenInput(Protocol):
    """An open file or folder, which is read, and hashed in the background."""

    path: str
    size: int  # bytes
    format: str  # the name of its format if known before reading, else ""

    def start_hashing(self) -> None:
        """Start hashing in the background."""

    def sha256(self) -> str:
        """The hash of what was read; waits for the hashing to end."""

    def close(self) -> None:
        """Close the files."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a file, from which its format is recognised."""

    path: str
    head: bytes  # the first bytes, unpacked
    line: bytes = b""  # the first line that is not blank
    row: Mapping[str, Any] | None = None  # that line as an object of raw JSON values; None if it is not an object
    columns: Columns = field(default_factory=dict)

    @property
    def is_record(self) -> bool:
        """Whether the line is one of our own records, or the user names the key of the task."""
        return "task" in self.columns or (self.row is not None and "task" in self.row)


def no_file(start: Beginning) -> bool:
    """Recognise no file, for formats of directories."""
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """The functions that recognise and read one kind of file, and return its texts and provenance."""

    name: str
    read: Callable[[Any, Columns, Collection[str], Progress], list[Part]]
    """``read(opened, columns, labels, progress)``."""
    recognise: Callable[[Beginning], bool]
    texts: Callable[[str, Columns, frozenset[str]], Iterator[Text]] | None = None
    """``texts(path, columns, wanted tasks)``: the prompt of each task, and the answers of the wanted tasks."""
    provenance: Callable[[str, str | None], Settings] | None = None
    """``provenance(path, dataset)``: the settings of the run, if the file has them."""
    folder: Callable[[str], tuple[Sequence[str | OpenInput], Sequence[str]]] | None = None
    """``folder(path)``: the inputs to read in a directory, and notes; no inputs for a directory of another format."""
    whole: Callable[[str], bool] | None = None
    """``whole(path)``: whether a directory's own files show that it is one run, so that it contains no other runs."""
    without_companions: Callable[[Sequence[str]], Sequence[str]] | None = None
    """``without_companions(paths)``: the paths without those that are read together with another of the paths."""
    join: Callable[[Sequence[Part]], list[Part]] | None = None
    """``join(parts)``: the parts, completed with information that only all parts together have."""
    in_folders: bool = False  # whether the files of this format in a folder are one set
    of_folder: Callable[[Sequence[str]], tuple[Sequence[str], Sequence[str]]] | None = None
    """``of_folder(paths)``: the files to read among the files of this format in one folder, and notes."""
    extras: Callable[[Part, Columns], Extras] | None = None
    """``extras(part, columns)``: the `Extras` of the rows of the file that a part was read from, in file order."""
    line_extras: Callable[[Mapping[str, Raw]], Sequence[Mapping[str, Any]]] | None = None
    """``line_extras(row)``: as ``extras``, for the rollouts in one line, given as an object of raw JSON values."""
    packed: (
        Callable[[Any, Columns, Collection[str], Collection[str] | None, Progress], Sequence[Loose | Packed]] | None
    ) = None
    """``packed(opened, columns, labels, keep, progress)``: as ``read``, packed into a few bytes per rollout."""
    labels: Sequence[str] = ()  # the labels that its reader provides, beside those of metadata
    stands_for_others: bool = False  # its rollouts are in other files beside it
    has_documents: bool = False  # its records have the hash of the document that each task is made from


def flat(value: Any, path: str) -> Settings:
    """The values inside nested mappings, each with its dotted path.

    >>> list(flat({"sampling": {"seed": 1}}, ""))
    [('sampling.seed', 1)]
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
