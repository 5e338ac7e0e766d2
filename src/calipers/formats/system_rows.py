"""Readers for the JSON Lines of other systems: the part that all of them share.

A system declares a `Layout`: the fields of its rows that are needed for a score, and a function that turns a block of
rows into columns of rollouts. Undeclared keys are skipped as bytes and never become Python objects, so token ids and
log probabilities cost no more than a scan. If the rows of a system may have columns of their own (``extras``), their
keys are learnt when they first occur.
"""

from __future__ import annotations

import json
import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b, sha256
from itertools import chain
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats import BAD, NUMBERED, ROW, Columns, Progress, Raw, Text, target_hash
from calipers.formats.jsonl import marked_rows
from calipers.formats.lines import (
    ABSENT,
    NOTHING,
    OUT_OF_RANGE,
    UNREADABLE,
    Block,
    Kinds,
    Learner,
    LineError,
    columns_of,
    filled,
    kind_of,
    note_places,
    odd_key,
    read_lines,
    struct_of,
    union,
    unreadable,
    without_unreal,
)
from calipers.formats.rows import PartBuilder
from calipers.formats.source import Source, blocks_of
from calipers.names import load
from calipers.rollouts.column import Ints
from calipers.rollouts.labels import SPLIT as SPLIT
from calipers.rollouts.labels import STEP as STEP
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import BadRow, Part, Places, end_to_end
from calipers.typed import complete

Number = float | bool | None
UNREAL: Final = "values that are NaN or infinite"
TORN: Final = "incomplete last lines"
SHOWN: Final = 40  # characters of a prompt in the name of its task
HASH_DIGITS: Final = 16
LARGEST: Final = 1 << 63  # integers below this size fit a column of 64 bits
UUID_DIGITS: Final = 32
LARGEST_COMPANION: Final = 64 << 20  # bytes
MOST_PLANNED: Final = 100_000_000  # rollouts
REMEMBERED: Final = 4096  # results kept by `Remembered`, as the samples of a prompt are close to each other
Whole = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST - 1)]  # a sample number that fits a column of 64 bits
_NEWLINE: Final = ord(b"\n")
_PLAIN: Final = {float, bool, NoneType}  # an integer may be too large
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_WRONG_TYPE: Final = re.compile(r"Expected `([^`]*)`(?:[^`]*), got `([^`]*)`(?: - at `\$\.?(.*)`)?")
_BEYOND: Final = re.compile(r"Expected `int` [<>]= -?[0-9]+ - at `\$\.?(.*)`")
_LACKS: Final = re.compile(r"missing required field `([^`]*)`(?: - at `\$\.?(.*)`)?")
_TYPES: Final = {
    "int": "an integer", "float": "a number", "str": "text", "bool": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a system's rows, and the function that turns a block of rows into rollouts."""

    system: str  # its name in messages
    fields: Sequence[tuple[str, Any, Any]]  # (key, type, default) of the fields that a score needs
    take: Callable[[RowBlock], Ints | None]
    """Puts the block's rollouts into its builder. Returns the row of each rollout, or None for one rollout per row.

    BadRow for an invalid row.
    """
    extras: bool = False  # whether any other key of a row may be a column
    unnumbered: bool = True  # whether rows have no sample numbers
    headline: str = ""  # the reward to read if the user picks none

    def __call__(self, path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> SystemLines:
        """A reader of rows that start at this byte of a file; None in a stream."""
        return SystemLines(path, self, labels, start)


@dataclass(frozen=True, slots=True)
class SystemPart(Part):
    """The rollouts of some rows, with counts for the notes on their file."""

    counts: Mapping[str, int] = field(default_factory=dict)
    system: str = ""  # the system that wrote the rows


@dataclass(slots=True)
class RowBlock:
    """A block of rows of one file as columns, and methods that store its rollouts; ABSENT if a row lacks a key."""

    path: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    extras: Mapping[str, tuple[Collection[str], Sequence[Any]]]  # key -> the kinds of value seen so far, its values
    labels: Collection[str]  # the keys requested by --by and --cluster
    builder: PartBuilder
    counts: Counter[str]
    ids: array[int]  # the ids of the rollouts so far, if the rows have ids
    memory: dict[Any, Any]  # state that the system keeps from block to block
    steps: Any = None  # the first keys of the requested labels, and a decoder for their values in an object
    labelled: set[str] = field(default_factory=set)  # requested labels that the system provided itself

    def __getitem__(self, key: str) -> Sequence[Any]:
        return self.columns[key]

    def outcomes(self, words: Sequence[str | None]) -> None:
        """Store the outcome of each rollout; None for `scored` with a reward and `missing` without."""
        self.builder.whole("outcome", [UNSTATED if word is None else CODE[word] for word in words])

    def constant(self, name: str, value: Any, size: int | None = None) -> None:
        """Store a label with one value for all rollouts of the block."""
        self.builder.labels(name, [value] * (self.size if size is None else size))

    def error_kinds(self, kinds: Sequence[str | None]) -> None:
        """Store the kind of error of each rollout, if any has one."""
        if any(kinds):
            self.builder.labels(ERROR_KIND, kinds)

    def named_numbers(self, kind: str, objects: Sequence[Any]) -> None:
        """Store the numbers in an object of each rollout, as rewards or columns of the same names."""
        self.table(kind, [{} if each is None or each is ABSENT else each for each in objects])

    def table(
        self,
        kind: str,
        rows: Sequence[Mapping[str, Any]],
        but: Collection[str] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """As `named_numbers`, if every rollout has an object; without the names in ``but``, renamed by ``names``."""
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name in but:
                continue
            values = [row.get(name) for row in rows]
            kinds = set(map(type, values))
            if not (kinds <= _PLAIN or (kinds <= {*_PLAIN, int} and _fit(values))):
                values = [number(value) for value in values]
            if None in values:
                parsed = np.array(values, dtype=np.float64)  # None becomes NaN, which JSON does not have
                self.builder.floats(kind, names.get(name, name), parsed, ~np.isnan(parsed))
            else:
                self.builder.numbers(kind, names.get(name, name), values)

    def metadata(self, objects: Sequence[Raw | bytes]) -> None:
        """Store the requested labels from an object of each rollout, as raw JSON; b"" for a rollout without one."""
        if self.steps is None:
            return
        names, decoder = self.steps
        rows = [decoder.decode(raw) if len(raw) and bytes(raw[:1]) == b"{" else None for raw in map(bytes, objects)]
        for n, name in enumerate(names):
            raws = [b"" if row is None else bytes(getattr(row, f"f{n}")) for row in rows]
            if any(raws):
                self.labelled.add(name)
                self.builder.labels(f"raw:metadata.{name}", [raw or None for raw in raws])


def _fit(values: Sequence[Any]) -> bool:
    """Whether all integers among some numbers are in the range of 64 bits."""
    integers = [value for value in values if type(value) is int]
    return min(integers) > -LARGEST and max(integers) < LARGEST


def number(value: Any) -> float | None:
    """A value as a finite number, with true as 1; None for anything else."""
    if isinstance(value, (int, float)):
        try:
            value = float(value)
        except OverflowError:
            return None
        return value if math.isfinite(value) else None
    return None


def hashed(text: str) -> int:
    """A hash of an id that is the same in every process; for a UUID without dashes, half of its digits."""
    if len(text) == UUID_DIGITS and text.isalnum():  # int() accepts signs, blanks and underscores, too
        try:
            return int(text[: UUID_DIGITS // 2], 16) >> 1
        except ValueError:
            pass
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


class Remembered(dict[Any, Any]):
    """A cache of a function's results, for values of which most occurred recently; emptied when it is full."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, value: Any) -> Any:
        self[value] = result = self._function(value)
        return result

    def of(self, values: Iterable[Any]) -> list[Any]:
        """The result for each value of a block."""
        if len(self) > REMEMBERED:
            self.clear()
        return list(map(self.__getitem__, values))


class PromptTasks:
    """The task of each row, from its prompt and its gold answer, so that a prompt is the same task at every step.

    The task's name is the end of the prompt and 16 digits of a SHA-256 hash of both, as long prompts often end alike.
    """

    def __init__(self, shown: Callable[[str], str] = str.strip, *, tokens: bool = False) -> None:
        self._shown, self._tokens = shown, tokens  # prompts that are lists of token ids are not decoded
        self._by_prompt, self._by_pair = Remembered(self._task), Remembered(lambda pair: self._task(*pair))

    def of(self, prompts: Sequence[Any], golds: Sequence[Any]) -> list[str]:
        """The task of each pair of prompt and gold answer, as raw JSON."""
        return self._by_pair.of(zip(map(bytes, prompts), map(bytes, golds), strict=True))

    def without_golds(self, prompts: Iterable[bytes]) -> list[str]:
        """The task of each prompt, as raw JSON, for rows without gold answers."""
        return self._by_prompt.of(prompts)

    def _task(self, prompt: bytes, gold: bytes = b"") -> str:
        if self._tokens:
            content = prompt.translate(None, b" ") + b"\0" + gold.translate(None, b" ")
            return f"#{sha256(content).hexdigest()[:HASH_DIGITS]}"
        try:
            text = msgspec.json.decode(prompt) if prompt else ""
            answer = msgspec.json.decode(gold) if gold else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # half a surrogate pair, or a deep list
            text, answer = prompt.decode("utf-8", "replace"), gold.decode("utf-8", "replace")
        return prompt_task(text, answer, self._shown)


def prompt_task(prompt: Any, gold: Any = None, shown: Callable[[str], str] = str.strip) -> str:
    """The name of the task with this prompt and gold answer.

    >>> prompt_task("What is 2+2?", "4")
    'What is 2+2? #46ac96b4a59afbd5'
    """
    text = prompt if isinstance(prompt, str) else _ENCODER.encode(prompt).decode()
    answer = b"" if gold is None else _ENCODER.encode(gold)
    digest = sha256(text.encode("utf-8", "replace") + b"\0" + answer).hexdigest()[:HASH_DIGITS]
    end = " ".join(shown(text)[-4 * SHOWN :].split())[-SHOWN:]
    return f"{end} #{digest}" if end else f"#{digest}"


class SystemLines:
    """A reader of a system's rows: takes blocks of whole lines, and returns one `SystemPart`."""

    def __init__(self, path: str, layout: Layout, labels: Collection[str], start: int | None = None) -> None:
        self.lines = 0
        self._start = start or 0  # the byte of the file at which the first line starts
        self._path = path
        self._layout = layout
        self._labels = labels
        self._places = Places(path)
        self._schema = _RowSchema(layout, labels)
        self._learner = Learner(self._schema)
        self._builder = PartBuilder()
        self._counts = Counter[str]()
        self._ids = array("q")
        self.memory: dict[Any, Any] = {}  # state that the system keeps from block to block

    def read(self, block: Block) -> None:
        """Read one block of whole lines; LineError for the first line that is not a row."""
        block = self._without_torn(block)
        octets = np.frombuffer(block, dtype=np.uint8)
        try:
            columns = self._learner.columns(block, octets, self.lines)
        except LineError:
            block, unreal = without_unreal(block)
            if not unreal:
                raise
            self._counts[UNREAL] += unreal
            octets = np.frombuffer(block, dtype=np.uint8)
            columns = self._learner.columns(block, octets, self.lines)
        if columns is None:
            columns = columns_of(self._schema.decoder.decode(line) for _, line in filled(block, self.lines))
        ends = np.flatnonzero(octets == _NEWLINE)
        if columns:
            self._take(block, columns, octets, ends)
        self.lines += len(ends)

    def _take(self, block: Block, columns: Sequence[Sequence[Any]], octets: Any, ends: Ints) -> None:
        size = len(columns[0])
        named = dict(zip(self._schema.keys, columns, strict=True))
        rows = RowBlock(
            *(self._path, size, named, self._extras(named), self._labels, self._builder),
            *(self._counts, self._ids, self.memory, self._schema.steps),
        )
        lines = note_places(block, size, octets, ends, self.lines, self._learner)
        try:
            origin = self._layout.take(rows)
        except BadRow as error:
            row, problem, expected = error.args
            raise LineError(lines + row if isinstance(lines, int) else int(lines[row]), problem, expected) from None
        self._label(named, origin, rows.labelled)
        if origin is None:
            self._places.add(self._builder.rows, lines)
            self._builder.rows += size
        elif len(origin):
            numbers = np.arange(lines, lines + size) if isinstance(lines, int) else lines
            self._places.add(self._builder.rows, numbers[origin])
            self._builder.rows += len(origin)

    def _extras(self, named: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Collection[str], Sequence[Any]]]:
        """For each key that the layout does not declare, the kinds of value seen so far, and its values."""
        if not self._layout.extras:
            return {}
        extras: dict[str, tuple[Collection[str], Sequence[Any]]] = {}
        for key, kinds in self._schema.extra.items():
            extras[key] = kinds, named[key]
        for key in self._schema.requested:
            if any(named[key]):
                kinds = {kind_of(raw) for raw in named[key] if raw} - {""}
                extras[key] = kinds, [_scalar(raw) for raw in named[key]]
        return extras

    def _label(self, named: Mapping[str, Sequence[Any]], origin: Ints | None, labelled: Collection[str]) -> None:
        """Store the labels that are keys of the rows themselves, unless the system provided them."""
        for key in self._schema.firsts:
            column = named.get(key, ())
            if not len(column) or key in labelled:
                continue
            values: Sequence[Any] = column if origin is None else [column[row] for row in origin]
            if any(isinstance(value, Raw) for value in values):
                self._builder.labels(f"raw:metadata.{key}", [bytes(raw) or None for raw in values])
            elif any(isinstance(value, (str, int, float)) for value in values):
                plain = [value if isinstance(value, (str, int, float)) else None for value in values]
                self._builder.labels(key, plain)

    def finish(self) -> SystemPart:
        """All rows read, as one part."""
        try:
            part = self._builder.finish(self._places, self._labels)
        except BadRow as error:
            row, problem, expected = error.args
            raise LineError(self._places.line(row), problem, expected) from None
        ids = None
        if any(each >= 0 for each in self._ids):
            ids = np.full(len(part), -1, dtype=np.int64)
            ids[: len(self._ids)] = self._ids
        return SystemPart(
            **{each.name: getattr(part, each.name) for each in fields(Part)}
            | {"rollout_ids": ids, "headline": self._layout.headline, "unnumbered": self._layout.unnumbered},
            counts=self._counts,
            system=self._layout.system,
        )

    def _without_torn(self, block: Block) -> Block:
        """The block without an incomplete last line, which only the last block of a file can have."""
        if not len(block) or block[-1] == _NEWLINE:
            return block
        text = bytes(block)
        cut = text.rfind(b"\n") + 1
        last = text[cut:].strip(b" \t\r")
        try:
            if last:
                msgspec.json.decode(without_unreal(last)[0])
        except BAD:
            if self.lines or cut or self._start:
                self._counts[TORN] += 1
                return text[:cut]
        return block


class _RowSchema:
    """The fields of a layout, the other keys seen so far, and a decoder for both."""

    ids_elsewhere = "expected ids as values, not as keys"
    skips = True

    def __init__(self, layout: Layout, labels: Collection[str]) -> None:
        self._layout = layout
        self._declared = {key for key, _, _ in layout.fields}
        self.firsts = sorted({path.split(".")[0] for path in labels})
        self.requested = [key for key in self.firsts if key not in self._declared]
        steps = struct_of("Metadata", [(step, Raw, NOTHING) for step in self.firsts], strict=False)
        self.steps = (self.firsts, msgspec.json.Decoder(complete(steps))) if self.firsts else None
        self.extra = Kinds()
        self.rebuild()

    def learn(self, number: int, line: bytes) -> bool:
        """Widen the schema to fit one line; False if nothing in it is new, or it can never fit."""
        if not self._layout.extras:
            return False
        line.decode()
        row = ROW.decode(line)
        if odd_key(row) is not None:
            return False
        known = {*self._declared, *self.requested}
        learnt = [self.extra.learn(key, kind_of(raw)) for key, raw in row.items() if key not in known]
        return any(learnt)

    def rebuild(self) -> None:
        """Make the decoder for the keys and kinds known now."""
        extra = [(key, union(kinds, float | bool), ABSENT) for key, kinds in self.extra.items()]
        requested = [(key, Raw, NOTHING) for key in self.requested]
        spec = sorted([*self._layout.fields, *extra, *requested], key=lambda each: each[2] is not msgspec.NODEFAULT)
        self.keys = [key for key, _, _ in spec]
        self.decoder = msgspec.json.Decoder(complete(struct_of("Row", spec, strict=self._layout.extras)))

    def size(self) -> tuple[int, int]:
        """The number of keys that may be columns of numbers, and the number of all undeclared keys."""
        return self.extra.numeric, len(self.extra)

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Always true: skipped values may be anything."""
        return True

    def refuse(self, number: int, line: bytes) -> None:
        """Raise the LineError for a line that can never fit."""
        raise LineError(number, *self._fault(line))

    def _fault(self, line: bytes) -> tuple[str, str]:
        expected = f"expected a row as {self._layout.system} writes it"
        try:
            row = json.loads(line.decode())
            json.dumps(row, ensure_ascii=False).encode()
        except UNREADABLE as error:
            return unreadable(error)
        except ValueError:  # an integer with thousands of digits
            return OUT_OF_RANGE
        if not isinstance(row, dict):
            return "a row is not an object", expected
        if self._layout.extras and (key := odd_key(row)) is not None:
            return f"key {json.dumps(key)} contains a quote, a backslash or a control character", "expected a plain key"
        try:
            self.decoder.decode(line)
        except msgspec.ValidationError as error:
            return type_fault(str(error), expected)
        except BAD:
            pass
        return OUT_OF_RANGE


def type_fault(message: str, expected: str) -> tuple[str, str]:
    """The error of msgspec about a value of the wrong type, in plain words: what is wrong, and what was expected."""
    if lacks := _LACKS.search(message):
        inside = f" in {lacks[2]}" if lacks[2] else ""
        return f"no key {lacks[1]!r}{inside}", expected
    if beyond := _BEYOND.search(message):
        return f"{beyond[1]} is out of range", "expected an integer of 64 bits"
    if mismatch := _WRONG_TYPE.search(message):
        wanted = " or ".join(_TYPES.get(word.strip(), word.strip()) for word in mismatch[1].split("|"))
        location = mismatch[3] or "the row"
        return f"{location} is {_TYPES.get(mismatch[2], mismatch[2])}", f"expected {wanted}"
    return message.replace("\n", " ").replace("`", "'"), expected


def read_rows(
    layout: str, source: Source, names: Columns, labels: Collection[str], progress: Progress
) -> list[SystemPart]:
    """The rollouts of a file of rows; InputError for ``--columns``, because the system's own keys are known.

    ``layout`` is the ``module:object`` of a `Layout`, so that a child process can import it.
    """
    own_names(names, load(layout).system)
    return read_lines(layout, source, {}, labels, progress)


def read_noted(
    layout: str, notes: Sequence[str], source: Source, names: Columns, labels: Collection[str], progress: Progress
) -> list[Part]:
    """The rollouts of a file of rows whose parts need no joining, with these notes on the file."""
    return with_notes(read_rows(layout, source, names, labels, progress), source.path, notes)


def given(row: Mapping[str, Raw], **keys: str) -> dict[str, Any]:
    """The values that a row of raw JSON has for some keys, without nulls; ``keys`` maps our names to the row's keys."""
    return {name: row[key] for name, key in keys.items() if key in row and kind_of(row[key])}


def conversation(turns: Sequence[Any]) -> dict[str, Any]:
    """The prompt and the completion of a conversation, where the completion begins with the model's first turn."""
    answers = (n for n, turn in enumerate(turns) if isinstance(turn, dict) and turn.get("role") == "assistant")
    first = next(answers, len(turns))
    parts = {"prompt": turns[:first], "completion": turns[first:]}
    return {name: part for name, part in parts.items() if part}


def raw_hash(raw: Raw) -> str:
    """The `target_hash` of a right answer that is raw JSON; "" without one."""
    try:
        return target_hash(msgspec.json.decode(raw)) if raw else ""
    except BAD:
        return ""


def row_texts(path: str, row: Any, text_of: Callable[[Any], Text | None], wanted: Collection[str]) -> Iterator[Text]:
    """The texts of the rows of a file: of the first row of each task, and of all rows of the wanted tasks.

    ``row`` is the struct type of a row with its texts; ``text_of`` returns the texts of a row, or None if the row is
    not a rollout. Samples are numbered in order of appearance.
    """
    seen = Counter[tuple[Any, ...]]()
    for each in marked_rows(blocks_of(Source(path)), row, [b""]):
        if (text := text_of(each)) is None:
            continue
        key = (text.agent, text.model, text.dataset, text.task)
        seen[key] += 1
        if seen[key] == 1 or text.task in wanted:
            yield text._replace(sample=seen[key] - 1)


def decoded(decoder: msgspec.json.Decoder[list[Any]], raws: Sequence[Raw]) -> list[Any]:
    """Raw values decoded by the decoder of a list of them; None for an absent value and one of another type."""
    try:
        return decoder.decode(b"[%b]" % b",".join([raw or b"null" for raw in raws]))
    except BAD:
        return [None] if len(raws) == 1 else [decoded(decoder, [raw])[0] for raw in raws]


def own_names(names: Columns, system: str) -> None:
    """InputError for ``--columns`` on a file whose keys are known; ``sample=#`` is allowed, as it changes nothing."""
    if any((role, key) != ("sample", NUMBERED) for role, key in names.items()):
        expected = "remove this option, or add --input-format jsonl to read it as plain JSON Lines"
        raise InputError.at("--columns", f"the field names of {system} are known", expected)


def with_notes(parts: Sequence[SystemPart], path: str, extra: Iterable[str] = ()) -> list[Part]:
    """The parts of a file, with these notes and notes on NaN values and an incomplete last line."""
    if not parts:
        return []
    counts, notes = _counted(parts), list(parts[0].notes)
    if counts[UNREAL]:
        values = "1 value is" if counts[UNREAL] == 1 else f"{counts[UNREAL]:,} values are"
        notes.append(f"{path}: {values} NaN or infinite: missing, not 0")
    if counts[TORN]:
        problem = "the last line is incomplete and is excluded: the file is still being written, or was cut off"
        notes.append(f"{path}: {problem}")
    return [replace(parts[0], notes=[*notes, *extra]), *parts[1:]]


def _counted(parts: Sequence[SystemPart]) -> Counter[str]:
    return sum((Counter(part.counts) for part in parts), Counter[str]())


def step_in(path: str, pattern: re.Pattern[str]) -> int | None:
    """The step in the name of a file, else in the name of its folder; None if neither has one."""
    for name in (os.path.basename(path), os.path.basename(os.path.dirname(os.path.abspath(path)))):
        if match := pattern.search(name):
            return int(match[1])
    return None


def beside(path: str, *names: str) -> dict[str, Any]:
    """The JSON object in the first readable one of these files in the folder of ``path``; {} if there is none."""
    for name in names:
        with suppress(OSError, ValueError, RecursionError):
            with open(os.path.join(os.path.dirname(path), name), "rb") as file:
                content = json.loads(file.read(LARGEST_COMPANION))
            if isinstance(content, dict):
                return content
    return {}


def planned(parts: Sequence[Part], path: str, tasks: Any, samples: Any, group: Mapping[str, Any]) -> list[Part]:
    """The parts, and a part with a `not_run` rollout for each one of the plan that the file does not have.

    ``tasks`` and ``samples`` (per task) are the size of the plan; nothing is added unless both are positive integers.
    ``group`` has the labels of the planned rollouts.
    """
    if not all(isinstance(count, int) and 0 < count <= MOST_PLANNED for count in (tasks, samples)):
        return list(parts)
    rollouts_of = Counter[str]()
    for part in parts:
        in_plan = np.ones(len(part), dtype=bool)
        for name, value in group.items():
            if value is not None and name in part.labels:
                labels = part.labels[name]
                in_plan &= labels.code == (labels.values.index(value) if value in labels.values else -2)
        rollouts_of.update(part.tasks[code] for code in part.task[in_plan].tolist())
    missing = [task for task, count in rollouts_of.items() for _ in range(samples - count)]
    absent_tasks = [f"(not in the file: {number})" for number in range(1, tasks - len(rollouts_of) + 1)]
    if len(missing) + len(absent_tasks) * samples > MOST_PLANNED:
        raise InputError.at(path, f"{tasks * samples:,} rollouts are planned", f"expected at most {MOST_PLANNED:,}")
    missing += [task for task in absent_tasks for _ in range(samples)]
    every: list[Part] = [replace(part, planned_from="plan") for part in parts]
    if missing:
        builder = PartBuilder()
        builder.tasks(missing)
        builder.whole("outcome", [CODE["not_run"]] * len(missing))
        for name, value in group.items():
            builder.labels(name, [value] * len(missing))
        builder.rows = len(missing)
        places = Places(f"{path}: plan")
        places.add(0, 1)
        every.append(replace(builder.finish(places), planned_from="plan", unnumbered=True))
    return every


def ranks(codes: Ints) -> Ints:
    """The index of each row among the rows of the same code.

    >>> ranks(np.array([0, 1, 0, 0])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes) if len(codes) else codes
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes[order]]
    return rank


def joined(parts: Sequence[SystemPart]) -> SystemPart:
    """The parts of one file as one part, for a system whose rollouts have several rows."""
    if len(parts) == 1:
        return parts[0]
    lines = np.concatenate([part.places.lines(len(part)) for part in parts])
    return replace(end_to_end(parts, replace(parts[0].places, blocks=[(0, lines)])), counts=_counted(parts))


def some_rows(part: SystemPart, rows: Ints) -> SystemPart:
    """These rollouts of a part, in this order."""
    return part.take(rows, replace(part.places, blocks=[(0, part.places.lines(len(part))[rows])]))


def extra_columns(rows: RowBlock, kind: str = "column", *, texts: bool = False) -> None:
    """Store the undeclared keys with numbers as rewards or columns; with ``texts``, text that is a number counts."""
    for key, (kinds, column) in rows.extras.items():
        if "number" in kinds:
            values: Sequence[Any] = column
            if len(kinds) > 1:
                values = [_as_number(value, texts) for value in column]
            rows.builder.numbers(kind, key, values)


def _scalar(raw: Raw) -> Any:
    """A raw value as text, a boolean or a number; ABSENT for no value, None for anything else."""
    if not raw:
        return ABSENT
    try:
        value = msgspec.json.decode(raw)
    except BAD:
        return None
    if isinstance(value, (bool, str)):
        return value
    return number(value)


def _as_number(value: Any, texts: bool) -> Any:
    if isinstance(value, (float, bool)):
        return value
    if texts and isinstance(value, str):
        try:
            return number(float(value))
        except ValueError:
            return None
    return None
