"""Rows of other systems' JSON Lines into rollouts: what every reader of such rows shares.

A system declares a `Layout`: the fields of its rows that are needed for a score, and a function that turns a block of
them into columns of rollouts. Keys that nobody declared are skipped as bytes and never become Python objects, so token
ids and log probabilities cost no more than a scan. A system whose rows bring columns of their own (``extras``) learns
their keys as it meets them.
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
from calipers.formats import BAD, NUMBERED, Columns, Progress, Raw, Text, target_hash
from calipers.formats.jsonl import marked_rows
from calipers.formats.lines import (
    ABSENT,
    NOTHING,
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
from calipers.formats.rows import Gather
from calipers.formats.source import Source, blocks_of
from calipers.names import load
from calipers.rollouts.column import Ints
from calipers.rollouts.labels import SPLIT as SPLIT
from calipers.rollouts.labels import STEP as STEP
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import BadRow, Part, Places, end_to_end

Number = float | bool | None
UNREAL: Final = "values that are NaN or infinite"
TORN: Final = "incomplete last lines"
SHOWN: Final = 40  # characters of a prompt in the name of its task
HASH_DIGITS: Final = 16
LARGEST: Final = 1 << 63  # of integers that are taken as they are
UUID_DIGITS: Final = 32
LARGEST_COMPANION: Final = 64 << 20  # bytes
MOST_PLANNED: Final = 100_000_000
REMEMBERED: Final = 4096  # prompts, whose tasks are remembered: the samples of a prompt stand near each other
Whole = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST - 1)]  # the number of a sample, which a column can hold
_NEWLINE: Final = ord(b"\n")
_PLAIN: Final = {float, bool, NoneType}  # an integer may be too large
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_ROWS: Final = msgspec.json.Decoder(dict[str, Raw])
_SAID: Final = re.compile(r"Expected `([^`]*)`(?:[^`]*), got `([^`]*)`(?: - at `\$\.?(.*)`)?")
_BEYOND: Final = re.compile(r"Expected `int` [<>]= -?[0-9]+ - at `\$\.?(.*)`")
_LACKS: Final = re.compile(r"missing required field `([^`]*)`(?: - at `\$\.?(.*)`)?")
_TYPES: Final = {
    "int": "an integer", "float": "a number", "str": "text", "bool": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """What the rows of a system look like, and how a block of them becomes rollouts."""

    system: str  # its name in messages
    fields: Sequence[tuple[str, Any, Any]]  # (key, type, default) of what a score needs
    take: Callable[[RowBlock], Ints | None]
    """Puts the block's rollouts into its `Gather`. Returns the row of each rollout, None for one of each row.

    BadRow for a row that cannot be.
    """
    extras: bool = False  # whether any other key of a row may be a column
    unnumbered: bool = True  # whether rows have no sample numbers
    headline: str = ""  # the reward to read where nobody picks one

    def __call__(self, path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> SystemLines:
        """A reader of rows, wherever in the file they stand."""
        return SystemLines(path, self, labels, start)


@dataclass(frozen=True, slots=True)
class SystemPart(Part):
    """The rollouts of some rows, with counts of what is to be said of them."""

    counts: Mapping[str, int] = field(default_factory=dict)
    system: str = ""  # whose rows they are


@dataclass(slots=True)
class RowBlock:
    """Some rows of one file as columns; ABSENT where a row lacks the key."""

    path: str
    size: int
    columns: Mapping[str, Sequence[Any]]
    extras: Mapping[str, tuple[Collection[str], Sequence[Any]]]  # key -> the kinds of value it has had, its values
    labels: Collection[str]  # the keys asked for by --by and --cluster
    gather: Gather
    counts: Counter[str]
    ids: array[int]  # of the rollouts so far, where the rows have ids
    memory: dict[Any, Any]  # whatever the system wants to remember from block to block
    steps: Any = None  # the first steps of the labels asked for, and what decodes them out of an object
    labelled: set[str] = field(default_factory=set)  # labels asked for that the system provided itself

    def __getitem__(self, key: str) -> Sequence[Any]:
        return self.columns[key]

    def outcomes(self, words: Sequence[str | None]) -> None:
        """The outcome of each rollout; None for `scored` with a reward and `missing` without."""
        self.gather.whole("outcome", [UNSTATED if word is None else CODE[word] for word in words])

    def constant(self, name: str, value: Any, size: int | None = None) -> None:
        """A label that all rollouts of the block share."""
        self.gather.labels(name, [value] * (self.size if size is None else size))

    def error_kinds(self, kinds: Sequence[str | None]) -> None:
        """The word for what went wrong in each rollout."""
        if any(kinds):
            self.gather.labels(ERROR_KIND, kinds)

    def named_numbers(self, kind: str, objects: Sequence[Any]) -> None:
        """The numbers of an object of each rollout, as rewards or columns by their names."""
        self.table(kind, [{} if each is None or each is ABSENT else each for each in objects])

    def table(
        self,
        kind: str,
        rows: Sequence[Mapping[str, Any]],
        but: Collection[str] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """As `named_numbers`, where every rollout has an object; ``but`` for some names, and with our ``names``."""
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name in but:
                continue
            values = [row.get(name) for row in rows]
            kinds = set(map(type, values))
            if not (kinds <= _PLAIN or (kinds <= {*_PLAIN, int} and _fit(values))):
                values = [number(value) for value in values]
            if None in values:
                parsed = np.array(values, dtype=np.float64)  # None becomes NaN, which JSON has not
                self.gather.floats(kind, names.get(name, name), parsed, ~np.isnan(parsed))
            else:
                self.gather.numbers(kind, names.get(name, name), values)

    def metadata(self, objects: Sequence[Raw | bytes]) -> None:
        """The object of each rollout that --by looks into; b"" where a rollout has none."""
        if self.steps is None:
            return
        names, decoder = self.steps
        rows = [decoder.decode(raw) if len(raw) and bytes(raw[:1]) == b"{" else None for raw in map(bytes, objects)]
        for at, name in enumerate(names):
            raws = [b"" if row is None else bytes(getattr(row, f"f{at}")) for row in rows]
            if any(raws):
                self.labelled.add(name)
                self.gather.labels(f"raw:metadata.{name}", [raw or None for raw in raws])


def _fit(values: Sequence[Any]) -> bool:
    """Whether all integers among some numbers fit a double."""
    whole = [value for value in values if type(value) is int]
    return min(whole) > -LARGEST and max(whole) < LARGEST


def number(value: Any) -> float | None:
    """A value as a finite number: true is 1; None for anything else."""
    if isinstance(value, (int, float)):
        try:
            value = float(value)
        except OverflowError:
            return None
        return value if math.isfinite(value) else None
    return None


def hashed(text: str) -> int:
    """A number that stands for an id, the same in every process: of a UUID half its digits, else a hash."""
    if len(text) == UUID_DIGITS and text.isalnum():  # as int takes signs, blanks and underscores, too
        try:
            return int(text[: UUID_DIGITS // 2], 16) >> 1
        except ValueError:
            pass
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


class Remembered(dict[Any, Any]):
    """What a function says of values, most of which were met not long ago."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, value: Any) -> Any:
        self[value] = said = self._function(value)
        return said

    def of(self, values: Iterable[Any]) -> list[Any]:
        """What the function says of each value of a block."""
        if len(self) > REMEMBERED:
            self.clear()
        return list(map(self.__getitem__, values))


class PromptTasks:
    """The task of each row, by its prompt and its gold answer: the same prompt at another step is the same task.

    Its name is the end of the prompt and 16 digits of a SHA-256 hash over both, since long prompts often end alike.
    """

    def __init__(self, shown: Callable[[str], str] = str.strip, *, tokens: bool = False) -> None:
        self._shown, self._tokens = shown, tokens  # prompts that are lists of token ids are not decoded
        self._alone, self._known = Remembered(self._task), Remembered(lambda pair: self._task(*pair))

    def of(self, prompts: Sequence[Any], golds: Sequence[Any]) -> list[str]:
        """The task of each pair of raw JSON values."""
        return self._known.of(zip(map(bytes, prompts), map(bytes, golds), strict=True))

    def without_golds(self, prompts: Iterable[bytes]) -> list[str]:
        """The task of each raw JSON value, of rows without gold answers."""
        return self._alone.of(prompts)

    def _task(self, prompt: bytes, gold: bytes = b"") -> str:
        if self._tokens:
            content = prompt.translate(None, b" ") + b"\0" + gold.translate(None, b" ")
            return f"#{sha256(content).hexdigest()[:HASH_DIGITS]}"
        try:
            text = msgspec.json.decode(prompt) if prompt else ""
            answer = msgspec.json.decode(gold) if gold else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # half a character, or a deep list
            text, answer = prompt.decode("utf-8", "replace"), gold.decode("utf-8", "replace")
        return prompt_task(text, answer, self._shown)


def prompt_task(prompt: Any, gold: Any = None, shown: Callable[[str], str] = str.strip) -> str:
    """The name of the task that a prompt and its gold answer are.

    >>> prompt_task("What is 2+2?", "4")
    'What is 2+2? #46ac96b4a59afbd5'
    """
    text = prompt if isinstance(prompt, str) else _ENCODER.encode(prompt).decode()
    answer = b"" if gold is None else _ENCODER.encode(gold)
    digest = sha256(text.encode("utf-8", "replace") + b"\0" + answer).hexdigest()[:HASH_DIGITS]
    end = " ".join(shown(text)[-4 * SHOWN :].split())[-SHOWN:]
    return f"{end} #{digest}" if end else f"#{digest}"


class SystemLines:
    """Blocks of whole lines in, one `SystemPart` out."""

    def __init__(self, path: str, layout: Layout, labels: Collection[str], start: int | None = None) -> None:
        self.lines = 0
        self._start = start or 0  # the byte of the file that the first line begins at
        self._path = path
        self._layout = layout
        self._labels = labels
        self._places = Places(path)
        self._schema = _RowSchema(layout, labels)
        self._learner = Learner(self._schema)
        self._gather = Gather()
        self._counts = Counter[str]()
        self._ids = array("q")
        self.memory: dict[Any, Any] = {}  # the system's own, from block to block

    def read(self, block: Block) -> None:
        """Take in one block of whole lines; LineError for the first that is no row."""
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
            *(self._path, size, named, self._extras(named), self._labels, self._gather),
            *(self._counts, self._ids, self.memory, self._schema.steps),
        )
        lines = note_places(block, size, octets, ends, self.lines, self._learner)
        try:
            origin = self._layout.take(rows)
        except BadRow as error:
            row, wrong, right = error.args
            raise LineError(lines + row if isinstance(lines, int) else int(lines[row]), wrong, right) from None
        self._label(named, origin, rows.labelled)
        if origin is None:
            self._places.add(self._gather.rows, lines)
            self._gather.rows += size
        elif len(origin):
            numbers = np.arange(lines, lines + size) if isinstance(lines, int) else lines
            self._places.add(self._gather.rows, numbers[origin])
            self._gather.rows += len(origin)

    def _extras(self, named: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Collection[str], Sequence[Any]]]:
        """The keys that the layout does not declare: the kinds of value that each has had, and its values."""
        if not self._layout.extras:
            return {}
        extras: dict[str, tuple[Collection[str], Sequence[Any]]] = {}
        for key, kinds in self._schema.extra.items():
            extras[key] = kinds, named[key]
        for key in self._schema.asked:
            if any(named[key]):
                kinds = {kind_of(raw) for raw in named[key] if raw} - {""}
                extras[key] = kinds, [_scalar(raw) for raw in named[key]]
        return extras

    def _label(self, named: Mapping[str, Sequence[Any]], origin: Ints | None, labelled: Collection[str]) -> None:
        """Keep the keys of the rows themselves that --by asks for, where the system did not say what they are."""
        for key in self._schema.firsts:
            column = named.get(key, ())
            if not len(column) or key in labelled:
                continue
            values: Sequence[Any] = column if origin is None else [column[row] for row in origin]
            if any(isinstance(value, Raw) for value in values):
                self._gather.labels(f"raw:metadata.{key}", [bytes(raw) or None for raw in values])
            elif any(isinstance(value, (str, int, float)) for value in values):
                plain = [value if isinstance(value, (str, int, float)) else None for value in values]
                self._gather.labels(key, plain)

    def finish(self) -> SystemPart:
        """Everything read, as one part."""
        try:
            part = self._gather.finish(self._places, self._labels)
        except BadRow as error:
            row, wrong, right = error.args
            raise LineError(self._places.line(row), wrong, right) from None
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
        """The block without a last line that was cut off while it was written; only the end of a file has one."""
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
    """The fields of a layout, the other keys met so far, and a decoder for them."""

    ids_elsewhere = "expected ids as values, not as keys"
    skips = True

    def __init__(self, layout: Layout, labels: Collection[str]) -> None:
        self._layout = layout
        self._declared = {key for key, _, _ in layout.fields}
        self.firsts = sorted({path.split(".")[0] for path in labels})
        self.asked = [key for key in self.firsts if key not in self._declared]
        steps = struct_of("Metadata", [(step, Raw, NOTHING) for step in self.firsts], strict=False)
        # the first steps of the labels asked for, and what decodes them out of an object
        self.steps = (self.firsts, msgspec.json.Decoder(steps)) if self.firsts else None
        self.extra = Kinds()
        self.rebuild()

    def learn(self, number: int, line: bytes) -> bool:
        """Widen to one line; False when all of it was known, or it cannot be."""
        if not self._layout.extras:
            return False
        line.decode()
        row = _ROWS.decode(line)
        if odd_key(row) is not None:
            return False
        known = {*self._declared, *self.asked}
        learnt = [self.extra.learn(key, kind_of(raw)) for key, raw in row.items() if key not in known]
        return any(learnt)

    def rebuild(self) -> None:
        """Make the decoder for what is known now."""
        extra = [(key, union(kinds, float | bool), ABSENT) for key, kinds in self.extra.items()]
        asked = [(key, Raw, NOTHING) for key in self.asked]
        spec = sorted([*self._layout.fields, *extra, *asked], key=lambda each: each[2] is not msgspec.NODEFAULT)
        self.keys = [key for key, _, _ in spec]
        self.decoder = msgspec.json.Decoder(struct_of("Row", spec, strict=self._layout.extras))

    def size(self) -> tuple[int, int]:
        """How many columns of numbers there may be, and how many other keys."""
        return self.extra.numeric, len(self.extra)

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """What is passed over may be anything."""
        return True

    def refuse(self, number: int, line: bytes) -> None:
        """LineError for a line that never fits."""
        raise LineError(number, *self._fault(line))

    def _fault(self, line: bytes) -> tuple[str, str]:
        right = f"expected a row as {self._layout.system} writes it"
        try:
            row = json.loads(line.decode())
            json.dumps(row, ensure_ascii=False).encode()
        except UNREADABLE as error:
            return unreadable(error)
        except ValueError:  # an integer of thousands of digits
            return "a number is out of range", "expected at most 1.8e308 in size"
        if not isinstance(row, dict):
            return "a row is not an object", right
        if self._layout.extras and (key := odd_key(row)) is not None:
            return f"key {json.dumps(key)} contains a quote, a backslash or a control character", "expected a plain key"
        try:
            self.decoder.decode(line)
        except msgspec.ValidationError as error:
            return said_of(str(error), right)
        except BAD:
            pass
        return "a number is out of range", "expected at most 1.8e308 in size"


def said_of(message: str, right: str) -> tuple[str, str]:
    """What msgspec says of a value of the wrong type, in plain words."""
    if lacks := _LACKS.search(message):
        inside = f" in {lacks[2]}" if lacks[2] else ""
        return f"no key {lacks[1]!r}{inside}", right
    if beyond := _BEYOND.search(message):
        return f"{beyond[1]} is out of range", "expected an integer of 64 bits"
    if said := _SAID.search(message):
        wanted = " or ".join(_TYPES.get(word.strip(), word.strip()) for word in said[1].split("|"))
        location = said[3] or "the row"
        return f"{location} is {_TYPES.get(said[2], said[2])}", f"expected {wanted}"
    return message.replace("\n", " ").replace("`", "'"), right


def read_rows(
    layout: str, source: Source, names: Columns, labels: Collection[str], progress: Progress
) -> list[SystemPart]:
    """The rollouts of a file of rows; InputError for ``--columns``, since the system's own keys are known.

    ``layout`` is the ``module:object`` of a `Layout`, so that a child finds it, too.
    """
    own_names(names, load(layout).system)
    return read_lines(layout, source, {}, labels, progress)


def read_noted(
    layout: str, notes: Sequence[str], source: Source, names: Columns, labels: Collection[str], progress: Progress
) -> list[Part]:
    """The rollouts of a file of rows with nothing to join, and what is to be said of every such file."""
    return with_notes(read_rows(layout, source, names, labels, progress), source.path, notes)


def given(row: Mapping[str, Raw], **keys: str) -> dict[str, Any]:
    """Of a row that is not decoded, the values of some keys by the names that a record has for them; no null."""
    return {name: row[key] for name, key in keys.items() if key in row and kind_of(row[key])}


def conversation(turns: Sequence[Any]) -> dict[str, Any]:
    """The prompt and the completion of a conversation: the completion begins with the model's first turn."""
    answers = (at for at, turn in enumerate(turns) if isinstance(turn, dict) and turn.get("role") == "assistant")
    first = next(answers, len(turns))
    parts = {"prompt": turns[:first], "completion": turns[first:]}
    return {name: part for name, part in parts.items() if part}


def raw_hash(raw: Raw) -> str:
    """The hash of a right answer that nobody has decoded, as `target_hash` gives it."""
    try:
        return target_hash(msgspec.json.decode(raw)) if raw else ""
    except BAD:
        return ""


def row_texts(path: str, row: Any, text_of: Callable[[Any], Text | None], wanted: Collection[str]) -> Iterator[Text]:
    """What the rows of a file say: the first row of each task, and all of the wanted tasks.

    ``row`` is the struct of a row with its texts, ``text_of`` what it says, None where it is no rollout; samples are
    numbered as they come.
    """
    seen = Counter[tuple[Any, ...]]()
    for each in marked_rows(blocks_of(Source(path)), row, [b""]):
        if (text := text_of(each)) is None:
            continue
        who = (text.agent, text.model, text.dataset, text.task)
        seen[who] += 1
        if seen[who] == 1 or text.task in wanted:
            yield text._replace(sample=seen[who] - 1)


def decoded(decoder: msgspec.json.Decoder[list[Any]], raws: Sequence[Raw]) -> list[Any]:
    """Raw values, by the decoder of a list of them; None where one is of another type, or is not there."""
    try:
        return decoder.decode(b"[%b]" % b",".join([raw or b"null" for raw in raws]))
    except BAD:
        return [None] if len(raws) == 1 else [decoded(decoder, [raw])[0] for raw in raws]


def own_names(names: Columns, system: str) -> None:
    """InputError for ``--columns`` on a file whose keys are known; ``sample=#`` says what holds anyway."""
    if any((role, key) != ("sample", NUMBERED) for role, key in names.items()):
        right = "remove this option, or add --input-format jsonl to read it as plain JSON Lines"
        raise InputError.at("--columns", f"the field names of {system} are known", right)


def with_notes(parts: Sequence[SystemPart], path: str, extra: Iterable[str] = ()) -> list[Part]:
    """The parts of a file, with what is to be said of it."""
    if not parts:
        return []
    counts, notes = _counted(parts), list(parts[0].notes)
    if counts[UNREAL]:
        values = "1 value is" if counts[UNREAL] == 1 else f"{counts[UNREAL]:,} values are"
        notes.append(f"{path}: {values} NaN or infinite: missing, not 0")
    if counts[TORN]:
        wrong = "the last line is incomplete and is excluded: the file is still being written, or was cut off"
        notes.append(f"{path}: {wrong}")
    return [replace(parts[0], notes=[*notes, *extra]), *parts[1:]]


def _counted(parts: Sequence[SystemPart]) -> Counter[str]:
    return sum((Counter(part.counts) for part in parts), Counter[str]())


def step_in(path: str, pattern: re.Pattern[str]) -> int | None:
    """The step that a file's name has, or else that of its folder; None where neither has one."""
    for name in (os.path.basename(path), os.path.basename(os.path.dirname(os.path.abspath(path)))):
        if found := pattern.search(name):
            return int(found[1])
    return None


def beside(path: str, *names: str) -> dict[str, Any]:
    """The JSON object in the first of these files that lies beside a file; nothing where there is none to be read."""
    for name in names:
        with suppress(OSError, ValueError, RecursionError):
            with open(os.path.join(os.path.dirname(path), name), "rb") as file:
                content = json.loads(file.read(LARGEST_COMPANION))
            if isinstance(content, dict):
                return content
    return {}


def planned(parts: Sequence[SystemPart], path: str, tasks: Any, samples: Any, group: Mapping[str, Any]) -> list[Part]:
    """The parts, and `not_run` rollouts for those of a plan of so many tasks and samples that the file does not have.

    ``group`` has the labels of the rollouts that the plan is of. Nothing is added without a plan of whole numbers.
    """
    if not all(isinstance(count, int) and 0 < count <= MOST_PLANNED for count in (tasks, samples)):
        return list(parts)
    there = Counter[str]()
    for part in parts:
        own = np.ones(len(part), dtype=bool)
        for name, value in group.items():
            if value is not None and name in part.labels:
                labels = part.labels[name]
                own &= labels.code == (labels.values.index(value) if value in labels.values else -2)
        there.update(part.tasks[code] for code in part.task[own].tolist())
    lost = [task for task, count in there.items() for _ in range(samples - count)]
    never = [f"(not in the file: {number})" for number in range(1, tasks - len(there) + 1)]
    if len(lost) + len(never) * samples > MOST_PLANNED:
        raise InputError.at(path, f"{tasks * samples:,} rollouts are planned", f"expected at most {MOST_PLANNED:,}")
    lost += [task for task in never for _ in range(samples)]
    every: list[Part] = [replace(part, planned_from="plan") for part in parts]
    if lost:
        gather = Gather()
        gather.tasks(lost)
        gather.whole("outcome", [CODE["not_run"]] * len(lost))
        for name, value in group.items():
            gather.labels(name, [value] * len(lost))
        gather.rows = len(lost)
        places = Places(f"{path}: plan")
        places.add(0, 1)
        every.append(replace(gather.finish(places), planned_from="plan", unnumbered=True))
    return every


def ranks(codes: Ints) -> Ints:
    """The place of each row among those of the same code.

    >>> ranks(np.array([0, 1, 0, 0])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes) if len(codes) else codes
    places = np.empty(len(codes), dtype=np.int64)
    places[order] = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes[order]]
    return places


def joined(parts: Sequence[SystemPart]) -> SystemPart:
    """The parts of one file as one, for a reader whose rollouts have rows in several places."""
    if len(parts) == 1:
        return parts[0]
    lines = np.concatenate([part.places.lines(len(part)) for part in parts])
    return replace(end_to_end(parts, replace(parts[0].places, blocks=[(0, lines)])), counts=_counted(parts))


def some_rows(part: SystemPart, rows: Ints) -> SystemPart:
    """Some rollouts of a part, in their order."""
    return part.take(rows, replace(part.places, blocks=[(0, part.places.lines(len(part))[rows])]))


def extra_columns(rows: RowBlock, kind: str = "column", *, texts: bool = False) -> None:
    """The other keys of rows with numbers as rewards or columns; with ``texts``, a text that is a number is one too."""
    for key, (kinds, column) in rows.extras.items():
        if "number" in kinds:
            values: Sequence[Any] = column
            if len(kinds) > 1:
                values = [_as_number(value, texts) for value in column]
            rows.gather.numbers(kind, key, values)


def _scalar(raw: Raw) -> Any:
    """A raw value as text or a number; None for anything else."""
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
