"""Files into rollouts. A format: how one kind of files is recognised and read, and what else it provides.

Every format has a line in `names.FORMATS`. That of another system is loaded when the sign beside its name there is
seen, so that who reads only records of ours loads no other system.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from calipers.rollouts.packed import Loose, Packed
from calipers.rollouts.table import Part

Raw = msgspec.Raw
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors for text that is not JSON, or is nested too deeply."""

COMPARED: Final = "shown by calipers score --dialect lm_eval --format md, compared by calipers compare"

Columns = Mapping[str, str]  # role -> the key that the files have for it
Extras = Iterator[Mapping[str, Any]]
"""What each row holds beside numbers, by the key of a record: texts, answer, error, metadata, and keys of its own."""
Settings = Iterator[tuple[str, Any]]  # name, value
NUMBERED: Final = "#"
"""What ``--columns sample=#`` says: nobody numbered the samples, so they are numbered in order of appearance."""


class Named(dict[str, str]):
    """What the files call a role, role -> key; the rewards that words are; the format that the user insists on."""

    def __init__(self, names: Columns, words: Mapping[str, float] | None = None, format: str = "") -> None:
        super().__init__(names)
        words = worths(names) if words is None else words
        self.words = {word.strip().lower(): float(reward) for word, reward in words.items()}
        self.format = format or insisted(names)

    def __bool__(self) -> bool:
        return bool(len(self) or self.words or self.format)


def worths(names: Columns) -> Mapping[str, float]:
    """The rewards that words are, as the user said with ``--truth``; none where nothing was said."""
    return names.words if isinstance(names, Named) else {}


def insisted(names: Columns) -> str:
    """The name of the format that the user insists on with ``--input-format``; "" where the content decides."""
    return names.format if isinstance(names, Named) else ""


Progress = Callable[[int], None]  # told how many more bytes are read


class Text(NamedTuple):
    """What one rollout says; a value may be JSON that nobody has decoded yet, as most of it is never looked at."""

    agent: str | None  # these three as far as the record says
    model: str | None
    dataset: str | None
    task: str
    sample: float  # of several rollouts of a task, the one with the least comes first
    document: str = ""  # the hash of what the task is made of
    target: str = ""  # the hash of the right answer, as `target_hash` gives it; "" where the record has none
    completion: Any = None  # all that was said
    prompt: Any = None  # text, or messages
    answer: Any = None  # what was taken for the answer; where it says nothing, the completion is shown
    error: Any = None  # what went wrong: text, or an object with kind and message


TARGET: Final = "target"  # the key of a right answer, in records and in their metadata
HASH_DIGITS: Final = 16  # of a target's hash


def target_hash(target: Any) -> str:
    """The hash of a task's right answer, by which two records of a task are held against each other; "" without one.

    A text that says a number has the hash of that number, and a list of one answer has that of the answer.

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
    """A file or a folder that is open to be read, and hashed meanwhile."""

    path: str
    size: int  # bytes
    format: str  # the name of its format, where that is known before it is read; else ""

    def start_hashing(self) -> None:
        """Begin to hash what is to be hashed in the background."""

    def sha256(self) -> str:
        """The hash of what was read."""

    def close(self) -> None:
        """Let go of what is held."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is looked at to recognise a file."""

    path: str
    head: bytes  # its first bytes, unpacked
    line: bytes = b""  # the first line that is not blank
    row: Mapping[str, Any] | None = None  # that line as a JSON object, its values not decoded; None when it is none
    columns: Columns = field(default_factory=dict)

    @property
    def is_record(self) -> bool:
        """Whether the line is one of our own, or the user says which key is the task's."""
        return "task" in self.columns or (self.row is not None and "task" in self.row)


def no_file(start: Beginning) -> bool:
    """Recognise nothing: the format is one of directories."""
    return False


@dataclass(frozen=True, slots=True)
class Format:
    """How one kind of files is recognised, read, and asked for what it says beside numbers."""

    name: str
    read: Callable[[Any, Columns, Collection[str], Progress], list[Part]]
    """``read(opened, columns, labels, progress)``."""
    recognise: Callable[[Beginning], bool]
    texts: Callable[[str, Columns, frozenset[str]], Iterator[Text]] | None = None
    """``texts(path, columns, wanted tasks)``: the prompt of each task, the answers of the wanted ones."""
    provenance: Callable[[str, str | None], Settings] | None = None
    """``provenance(path, dataset)``: how the run was made, as far as the file says."""
    folder: Callable[[str], tuple[Sequence[str | OpenInput], Sequence[str]]] | None = None
    """``folder(path)``: what of a directory is to be read, and notes; nothing when it is none of this format's."""
    whole: Callable[[str], bool] | None = None
    """``whole(path)``: whether a directory is one run by its own files, so that nothing in it is a run by itself."""
    without_companions: Callable[[Sequence[str]], Sequence[str]] | None = None
    """``without_companions(paths)``: the paths but for those that are read anyway, beside another of them."""
    join: Callable[[Sequence[Part]], list[Part]] | None = None
    """``join(parts)``: the parts, with what only all of them together say."""
    in_folders: bool = False  # whether the files of this format in a folder are one set
    of_folder: Callable[[Sequence[str]], tuple[Sequence[str], Sequence[str]]] | None = None
    """``of_folder(paths)``: of the files of this format in one folder, those to read, and notes."""
    extras: Callable[[Part, Columns], Extras] | None = None
    """``extras(part, columns)``: of each row of the file that a part was read from, in their order."""
    said: Callable[[Mapping[str, Raw]], Sequence[Mapping[str, Any]]] | None = None
    """``said(row)``: as ``extras``, of each rollout in one line of a file, whose values are not decoded."""
    packed: (
        Callable[[Any, Columns, Collection[str], Collection[str] | None, Progress], Sequence[Loose | Packed]] | None
    ) = None
    """``packed(opened, columns, labels, keep, progress)``: as ``read``, a few bytes a rollout, for many of them."""
    labels: Sequence[str] = ()  # that its reader knows, beside those of metadata
    stands_for_others: bool = False  # its rollouts lie in files beside it
    has_documents: bool = False  # its records carry the hash of the document each task is made of


def flat(value: Any, path: str) -> Settings:
    """The values inside a mapping, each under the path of its keys.

    >>> list(flat({"sampling": {"seed": 1}}, ""))
    [('sampling.seed', 1)]
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
