"""Calipers' own records, decoded in blocks of lines into columns.

Records in a JSON array or in memory are read as lines as well, by the same rules.

``--columns task=meta.id`` names a value inside an object, ``--columns text=choices.0.text`` one inside a list, and
``--columns "task=tags.'eval.item'"`` one whose key has a dot. ``--truth yes=1,no=0`` gives words their rewards. Both
options are applied to the text of a block, line by line, before the records are decoded, so that all rules and messages
of the reader apply. `of_blocks` reads the non-numeric values of rows, for `calipers convert`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec.structs import astuple

from calipers.errors import InputError
from calipers.formats import (
    BAD,
    NUMBERED,
    ROW,
    TARGET,
    Beginning,
    Columns,
    Extras,
    Format,
    Progress,
    Raw,
    Text,
    target_hash,
    worths,
)
from calipers.formats.lines import (
    ABSENT,
    NOTHING,
    OUT_OF_RANGE,
    UNREADABLE,
    Block,
    Kinds,
    Learner,
    LineError,
    NotPackable,
    SkippedList,
    columns_of,
    filled,
    kind_of,
    note_places,
    odd_key,
    read_lines,
    read_packed,
    struct_of,
    union,
    unreadable,
    without_unreal,
)
from calipers.formats.repeated_keys import Colons, repeated_key, repeated_key_fault
from calipers.formats.rows import PartBuilder, with_none
from calipers.formats.source import BOM, LARGEST_WHOLE, Source, blocks_of
from calipers.formats.source_facts import DECODER, FACTS, FactColumns
from calipers.rollouts.column import Bools
from calipers.rollouts.packed import Loose, Packed
from calipers.rollouts.record import (
    BEFORE_ANSWER,
    CODE,
    GROUP,
    ROLES,
    TEXTS,
    UNSTATED,
    Outcome,
    fault,
    meant,
    named,
    shown,
)
from calipers.rollouts.table import BadRow, Part, Places
from calipers.typed import complete

LONGEST_NUMBER = 64  # bytes; a longer value in place of a text is not a number
AT_ONCE = 1 << 15  # records that are converted to lines at a time
GIVEN_AWAY = "calipers: no key of a record: "
WORDS = "calipers: words"  # the label that requests a hash of each row's words (see canonical.py)

WORTH: Final = "calipers: the reward that a word is worth"
"""The key of a line's reward if words are rewards."""

KEPT: Final = ("prompt", "completion", "answer", "error", "metadata")
"""The roles whose values are neither numbers nor part of a rollout's identity."""

QUOTE: Final = "'"
_STEP: Final = re.compile(r"'([^']*)'|([^.]*)")

_NEWLINE = ord(b"\n")
_NUMBER = float | bool
_NO_NUMBERS = {b'"', b"[", b"{", b"n", b""}  # the first byte of a text, messages, a message, null, and no value
_ROLE_TYPES: Mapping[str, Any] = {
    "sample": Annotated[int, msgspec.Meta(ge=0, lt=2**53)],
    "attempt": Annotated[int, msgspec.Meta(ge=1, lt=2**53)],
    "outcome": Outcome | None,
    "reward": _NUMBER | None,
    "answer": float | bool | str | SkippedList | None,
    **dict.fromkeys(GROUP, str | None),
}
_BEGINNINGS: Mapping[str, bytes] = {"metadata": b"{n", "error": b'"{n'}  # first bytes of an object, a text and null
_BLANKS = b" \t\r\n"
_LIST = msgspec.json.Decoder(list[Raw])
_DECODE_NUMBER = msgspec.json.Decoder(float | bool).decode
_TEXT = msgspec.json.Decoder(str)
_KEY = msgspec.json.Encoder()

Reshape = Callable[[Block, int], Block]


class RecordSchema:
    """The keys and kinds of value seen so far, and a decoder for exactly those.

    ``names`` maps roles to keys of the file; ``labels`` are the paths requested by ``--by`` and
    ``--cluster``, whose values are kept as raw JSON.
    """

    ids_elsewhere = "expected ids as values (under metadata), not as keys"

    def __init__(self, names: Mapping[str, str], labels: Collection[str]) -> None:
        self._names = names
        self.roles = meant(names)
        self.numbers = {key: name for name, key in names.items() if name not in ROLES}  # key -> column
        self.words = WORDS in labels  # whether values that are not numbers are kept as raw JSON, to be hashed
        self.labels = sorted(name for name in labels if name != WORDS)
        self.seen: set[str] = set()  # roles that occur
        self.inside: dict[str, list[str]] = {"rewards": [], "usage": []}
        self.extra = Kinds()  # the other keys
        self.rebuild()

    def learn(self, number: int, line: bytes) -> bool:
        """Widen the schema to fit one line; False if nothing in the line is new, or it can never fit."""
        line.decode()
        row = ROW.decode(line)
        inside = {  # the keys of each object of numbers
            key: list(ROW.decode(raw))
            for key, raw in row.items()
            if self.roles.get(key) in self.inside and kind_of(raw) == "object"
        }
        if odd_key(chain(row, *inside.values())) is not None:
            return False
        learnt = False
        for key, raw in row.items():
            role, kind = self.roles.get(key), kind_of(raw)
            if role is None:
                learnt |= self.extra.learn(key, "" if key in self.numbers and kind != "number" else kind)
                continue
            learnt |= role not in self.seen
            self.seen.add(role)
            if key in inside:
                new = [name for name in inside[key] if name not in self.inside[role]]
                learnt |= bool(new)
                self.inside[role] += new
        return learnt

    def refuse(self, number: int, line: bytes) -> None:
        """Raise the LineError for a line that can never fit."""
        raise LineError(number, *_faults(line, self._names))

    def keys(self) -> frozenset[str]:
        """The keys that occur in the rows."""
        return frozenset(self.extra) | {key for key, role in self.roles.items() if role in self.seen}

    def size(self) -> tuple[int, int]:
        """The number of columns of numbers, and the number of keys without a role."""
        return self.extra.numeric + sum(map(len, self.inside.values())), len(self.extra)

    def rebuild(self) -> None:
        """Make the decoder for the keys and kinds known now, and `fields`, which describes the fields of its rows.

        The tag of a field is a role, or else tells how its value is kept: decoded ("number"; "mixed" is a gap unless it
        is a number), or as raw JSON ("text" is ignored, "raw" is a requested label, "facts" a `SourceFacts` object, and
        "hashed" a number or words to be hashed).
        """
        self.fields: list[tuple[str, str]] = []  # (tag, name) of each field of a row
        self.first_steps = sorted({path.split(".")[0] for path in self.labels})
        spec: list[tuple[str, Any, Any]] = []

        def add(tag: str, name: str, key: str, kind: Any, default: Any) -> None:
            spec.append((key, kind, default))
            self.fields.append((tag, name))

        key_of = {role: key for key, role in self.roles.items()}
        add("task", "task", key_of["task"], int | str, msgspec.NODEFAULT)
        for role in sorted(self.seen - {"task"}):
            if role == "answer" and role in self.labels:
                add("raw", role, key_of[role], Raw, NOTHING)
            elif role == "answer" and self.words:
                add("hashed", role, key_of[role], Raw, NOTHING)
            elif role in self.inside:
                numbers = struct_of(role, [(key, _NUMBER | None, ABSENT) for key in self.inside[role]])
                add(role, role, key_of[role], numbers | None, ABSENT)
            elif role in _BEGINNINGS:
                add(role, role, key_of[role], Raw, NOTHING)
            elif role in TEXTS:  # long, and never read for numbers: `sound` looks at it
                add("text", role, key_of[role], Raw, NOTHING)
            else:
                add(role, role, key_of[role], _ROLE_TYPES[role], ABSENT)
        for key, kinds in self.extra.items():
            name = self.numbers.get(key, key)
            if key in self.labels:
                add("raw", key, key, Raw, NOTHING)
            elif key == FACTS and kinds <= {"object"}:
                add("facts", key, key, Raw, NOTHING)
            elif kinds == {"number"}:
                add("number", name, key, _NUMBER | None, ABSENT)
            elif "number" in kinds and self.words:
                add("hashed", name, key, Raw, NOTHING)
            elif "number" in kinds:
                add("mixed", name, key, union(kinds, _NUMBER), ABSENT)
            else:
                add("text", name, key, Raw, NOTHING)
        self.decoder = msgspec.json.Decoder(complete(struct_of("Row", spec)))
        steps = struct_of("Metadata", [(step, Raw, NOTHING) for step in self.first_steps], strict=False)
        self.steps = msgspec.json.Decoder(complete(steps | None))
        tags = [tag for tag, _ in self.fields]
        raw_tags = ("raw", "text", "facts", "hashed", *_BEGINNINGS)
        self._texts = [n for n, tag in enumerate(tags) if tag == "text"]
        self._begin = [(n, _BEGINNINGS[tag]) for n, tag in enumerate(tags) if tag in _BEGINNINGS]
        self.raws = [n for n, tag in enumerate(tags) if tag in raw_tags]
        kinds = set[str]().union(*self.extra.values())
        unread = (
            kinds & {"object", "list"}
            or self.seen & {"metadata", "error", "answer", *TEXTS}
            or self.labels
            or self.words
        )
        self.skips = bool(unread)  # whether some values are skipped undecoded, so that their UTF-8 must be checked

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether the raw values are of an allowed kind, as the decoder accepts any JSON for them."""
        texts = (columns[n] for n in self._texts)
        return all(map(_no_number, texts)) and all(_begins(columns[n], known) for n, known in self._begin)


def _no_number(column: Sequence[Raw]) -> bool:
    """Whether no raw value is a number or a boolean. A long value never is, and most texts are long."""
    if min(map(len, column)) >= LONGEST_NUMBER:
        return True
    return {bytes(raw)[:1] for raw in column if len(raw) < LONGEST_NUMBER} <= _NO_NUMBERS


def _begins(column: Sequence[Raw], known: bytes) -> bool:
    """Whether each raw value that is not empty begins with one of the ``known`` bytes."""
    sizes = np.fromiter(map(len, column), dtype=np.int64, count=len(column))
    octets = np.frombuffer(b"".join(column), dtype=np.uint8)
    firsts = octets[(np.cumsum(sizes) - sizes)[sizes > 0]]
    return set(firsts.tolist()) <= set(known)


class JsonLines:
    """A reader of records: takes blocks of whole lines, and returns one `Part`."""

    def __init__(self, path: str, names: Mapping[str, str], labels: Collection[str], unit: str = "") -> None:
        self.lines = 0
        self.ends = np.zeros(0, dtype=np.int64)  # the positions of the newlines in the latest block
        self._places = Places(path, unit)
        self._named = names
        self._reshape, reshaped = reshaping(names)
        self._schema = RecordSchema(reshaped, labels)
        self._learner = Learner(self._schema)
        self._builder = PartBuilder()
        self._facts: FactColumns | None = None
        self._colons = Colons()
        self._words: Any = None
        if WORDS in labels:
            from calipers.formats.canonical import WordHashes  # only certificates need it

            self._words = WordHashes()

    def read(self, block: Block) -> None:
        """Read one block of whole lines; LineError for the first line that is not a rollout."""
        if self._reshape is not None:
            block = self._reshape(block, self.lines)
        octets = np.frombuffer(block, dtype=np.uint8)
        columns = self._learner.columns(block, octets, self.lines)
        if columns is None:
            columns = columns_of(self._schema.decoder.decode(line) for _, line in filled(block, self.lines))
        self.ends = ends = np.flatnonzero(octets == _NEWLINE)
        if columns:
            rows = len(columns[0])
            self._places.add(self._builder.rows, note_places(block, rows, octets, ends, self.lines, self._learner))
            keys = 0
            for (tag, name), column in zip(self._schema.fields, columns, strict=True):
                keys += self._take(tag, name, column)
            if not self._colons.once(octets, keys, [columns[n] for n in self._schema.raws]):
                self._refuse_repeated_key(block)
            if self._words is not None:
                self._hash_words(columns, rows)
            self._builder.rows += rows
        self.lines += len(ends)

    @property
    def rows(self) -> int:
        """The number of rows read since the last flush."""
        return self._builder.rows

    def flush(self) -> Part:
        """The rows read since the last flush, which are then forgotten."""
        if self._facts:
            raise NotPackable("records that were converted carry more than their columns")
        part = self.finish()
        self._places, self._builder = Places(self._places.path, self._places.unit), PartBuilder()
        return part

    def finish(self) -> Part:
        """Everything read, as one `Part`."""
        try:
            part = self._builder.finish(self._places, self._schema.labels)
            part = self._facts.finish(part) if self._facts else part
        except BadRow as error:
            raise self._line_error(error) from None
        keys = self._schema.keys()
        others = () if part.rewards else [key for key in self._schema.extra if key not in (WORTH, FACTS)]
        return replace(part, named=frozenset(self._named.values()) & keys, others=others)

    def _line_error(self, error: BadRow) -> LineError:
        row, problem, expected = error.args
        return LineError(self._places.line(row), problem, expected)

    def _refuse_repeated_key(self, block: Block) -> None:
        """LineError for the first line with a repeated key, if there is one; called if counting proved nothing."""
        inside = [key for key, role in self._schema.roles.items() if role in self._schema.inside]
        for number, line in filled(block, self.lines):
            try:
                key = repeated_key(line, inside)
            except RecursionError as error:
                raise LineError(number, *unreadable(error)) from None
            if key is not None:
                raise LineError(number, *repeated_key_fault(key))

    def _take(self, tag: str, name: str, column: Sequence[Any]) -> int:
        """Store the block's values of a field; returns the number of keys in the block that the values came from."""
        builder = self._builder
        if tag == "task":
            builder.tasks(column)
            return len(column)
        if tag in ("number", "mixed"):
            return builder.numbers("column", name, column, mixed=tag == "mixed")
        if tag == "reward":
            return builder.numbers("reward", name, column)
        if tag in ("sample", "attempt"):
            return builder.whole(tag, column)
        if tag in ("raw", "text", "error", "metadata", "facts", "hashed"):
            self._take_raw(tag, name, column)
            return len(column) if all(column) else sum(map(bool, column))
        column, present = with_none(column)
        if tag == "outcome":
            builder.whole(tag, [UNSTATED if word is None else CODE[word] for word in column])
        elif tag in GROUP:
            builder.labels(tag, column)
        elif tag in ("rewards", "usage"):
            kind = "reward" if tag == "rewards" else "column"
            for inner, values in _unpacked(column, self._schema.inside[tag], ABSENT):
                present += builder.numbers(kind, inner, values)
        return present

    def _hash_words(self, columns: Sequence[Sequence[Any]], rows: int) -> None:
        """Store the hash of the non-numeric values of each row of the block; LineError for a value without a hash."""
        from calipers.formats.canonical import LANES, NotCanonical

        words = []
        for (tag, name), column in zip(self._schema.fields, columns, strict=True):
            if tag in ("text", "error", "metadata") or (tag in ("raw", "hashed") and name == "answer"):
                words.append((name, column))
            elif tag in ("raw", "hashed"):  # numbers are left out, because they are in the columns
                words.append((name, [raw if kind_of(raw) != "number" else NOTHING for raw in column]))
        try:
            lanes, given = self._words.digests(words, rows)
        except NotCanonical as error:
            row, problem, expected = error.args
            raise self._line_error(BadRow(self._builder.rows + row, problem, expected)) from None
        for name, lane in zip(LANES, lanes, strict=True):
            self._builder.floats("column", name, lane, given)

    def _take_raw(self, tag: str, name: str, column: Sequence[Any]) -> None:
        if tag == "hashed":
            if name == "answer":
                odd = next((row for row, raw in enumerate(column) if kind_of(raw) == "object"), None)
                if odd is not None:
                    error = BadRow(self._builder.rows + odd, "answer is an object", "expected a JSON scalar or a list")
                    raise self._line_error(error)
            else:
                numbers = [self._number(row, raw) for row, raw in enumerate(column)]
                self._builder.numbers("column", name, numbers, mixed=True)
        elif tag == "raw":
            self._builder.labels("raw:" + name, [bytes(raw) or None for raw in column])
        elif tag == "facts":
            self._facts = self._facts or FactColumns()
            try:
                self._facts.put(self._builder.rows, column)
            except BadRow as bad_row:
                raise self._line_error(bad_row) from None
        elif tag == "error":
            flags = errors_before_answer(column)
            if flags is not None:
                self._builder.before_answer(flags)
        elif tag == "metadata" and self._schema.labels:
            rows = [self._schema.steps.decode(raw) if len(raw) else None for raw in column]
            for step, raws in _unpacked(rows, self._schema.first_steps, NOTHING):
                self._builder.labels(f"raw:metadata.{step}", [bytes(raw) or None for raw in raws])

    def _number(self, row: int, raw: Raw) -> float | None:
        """The raw value of a row as a number; None for a value of another kind. LineError for one out of range."""
        if not raw or kind_of(raw) != "number":
            return None
        try:
            return float(_DECODE_NUMBER(raw))
        except BAD:
            raise self._line_error(BadRow(self._builder.rows + row, *OUT_OF_RANGE)) from None


class _Error(msgspec.Struct, gc=False):
    before_answer: Any = None


_DECODE_ERROR = msgspec.json.Decoder(complete(_Error)).decode


def errors_before_answer(errors: Sequence[Raw]) -> Bools | None:
    """Whether the error of each row says that no request was accepted, [rows]; None if none does."""
    key = BEFORE_ANSWER.encode()
    if key not in b"".join(errors):  # as in nearly every block
        return None
    flags = np.zeros(len(errors), dtype=bool)
    for row, raw in enumerate(errors):
        if key in bytes(raw) and kind_of(raw) == "object":
            with suppress(*BAD):  # a text with the name of the key, or a value that no score reads
                flags[row] = _DECODE_ERROR(raw).before_answer is True
    return flags


def _unpacked(column: Sequence[Any], names: Sequence[str], absent: Any) -> list[tuple[str, Sequence[Any]]]:
    """A column of structs as one column per name; a missing struct gives ``absent`` for every name."""
    if not names:
        return []
    absent_row = (absent,) * len(names)
    rows = [absent_row if row is None else astuple(row) for row in column]
    return list(zip(names, zip(*rows, strict=True), strict=True))


def _faults(line: bytes, names: Mapping[str, str]) -> tuple[str, str]:
    """What is wrong with a line that fits no schema, and what was expected."""
    try:
        row = json.loads(line.decode(), parse_constant=_no_constant)
        problem = fault(row, names) or _odd(row, names)
        json.dumps(row, ensure_ascii=False).encode()
    except UNREADABLE as error:
        return unreadable(error)
    except _Constant as error:
        return f"{error} is not JSON", "expected a finite number or null"
    except ValueError:  # an integer with thousands of digits
        problem = None
    return problem or OUT_OF_RANGE


def _odd(row: dict[str, Any], names: Mapping[str, str]) -> tuple[str, str] | None:
    inside = [row.get(names.get(role, role)) or {} for role in ("rewards", "usage")]
    key = odd_key(name for keyed in (row, *inside) for name in keyed)
    if key is None:
        return None
    return f"key {json.dumps(key)} contains a quote, a backslash or a control character", "expected a plain key"


class _Constant(Exception):
    """NaN or Infinity, which Python's decoder accepts as numbers."""


def _no_constant(word: str) -> Any:
    raise _Constant(word)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> JsonLines:
    """A reader of records; a `Lines` maker, for which it does not matter where in the file the lines start."""
    return JsonLines(path, names, labels)


read: Callable[..., list[Part]] = partial(read_lines, "calipers.formats.jsonl:lines")
"""``read(source, names, labels, progress)``: the rollouts of a source, one `Part` for each process that read it."""

packed: Callable[..., list[Loose | Packed]] = partial(read_packed, "calipers.formats.jsonl:lines")
"""``packed(source, names, labels, keep, progress)``: the same, packed."""


def read_array(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """The rollouts in a JSON array with an object for each."""
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        records = _LIST.decode(text)
    except BAD as error:
        expected = "expected an array of objects, or one object per line"
        raise InputError.at(source.path, f"not JSON ({error})", expected) from None
    return [read_records(map(_array_line, records), source.path, names, labels)] if records else []


def _array_line(record: Raw) -> bytes:
    return msgspec.json.format(bytes(record), indent=-1)


def read_records(lines: Iterable[bytes], path: str, names: Mapping[str, str], labels: Collection[str]) -> Part:
    """The rollouts in records given as lines of JSON; errors name the ``path`` and the record's number, from 1."""
    reader = JsonLines(path, names, labels, "row ")
    remaining = iter(lines)
    try:
        while block := list(islice(remaining, AT_ONCE)):
            reader.read(b"\n".join(block) + b"\n")
        return reader.finish()
    except LineError as error:
        number, problem, expected = error.args
        raise InputError.at(f"{path}:row {number}", problem, expected) from None


def path_steps(path: str) -> list[str]:
    """The keys of a dotted path; a key that contains a dot is in quotes.

    >>> path_steps("meta.id"), path_steps("tags.'eval.item'")
    (['meta', 'id'], ['tags', 'eval.item'])
    """
    steps, start = [], 0
    while True:
        step = _STEP.match(path, start)
        if step is None or (step.end() < len(path) and path[step.end()] != "."):
            return path.split(".")  # not valid quoting, so quotes are part of the keys
        steps.append(step[1] if step[1] is not None else step[2])
        if step.end() >= len(path):
            return steps
        start = step.end() + 1


def reshaping(names: Mapping[str, str]) -> tuple[Reshape | None, Mapping[str, str]]:
    """A function that adds the values of dotted paths and of ``--truth`` to the lines of a block, and the new names.

    The function takes a block and the number of lines before it; None if there is nothing to add.
    """
    paths = {key: steps for key in names.values() if len(steps := path_steps(key)) > 1 or QUOTE in key}
    words = worths(names)
    if not paths and not words:
        return None, names
    reward = names.get("reward", "reward")

    def reshape(block: Block, before: int) -> Block:
        lines = bytes(block).split(b"\n")
        for n, line in enumerate(lines):
            if line and not line.isspace():
                lines[n] = _reshaped(line, before + n + 1, paths, reward, words)
        return b"\n".join(lines)

    return reshape, ({**names, "reward": WORTH} if words else names)


def _reshaped(
    line: bytes, number: int, paths: Mapping[str, list[str]], reward: str, words: Mapping[str, float]
) -> bytes:
    """One line with the value of each path as an additional key, and its reward as a number."""
    try:
        row = ROW.decode(line)
        added = {key: value for key, steps in paths.items() if key not in row and (value := _inside(row, steps))}
    except BAD:  # left to the reader, which has a better message
        return line
    if words and (raw := row.get(reward) or added.get(reward)):
        added[WORTH] = _worth(raw, number, reward, words)
    if not added:
        return line
    keys = b",".join(_KEY.encode(key) + b":" + bytes(raw) for key, raw in added.items())
    return line.rstrip()[:-1] + (b"," if row else b"") + keys + b"}"


def _inside(row: Mapping[str, Raw], steps: list[str]) -> Raw | None:
    """The value at a path of object keys and list indices; None if there is no such value."""
    raw = row.get(steps[0])
    for step in steps[1:]:
        first = bytes(memoryview(raw)[:1]) if raw is not None else b""
        if first == b"{":
            raw = ROW.decode(raw or b"").get(step)
        elif first == b"[" and step.isdecimal():
            values = _LIST.decode(raw or b"")
            raw = values[int(step)] if int(step) < len(values) else None
        else:
            return None
    return raw


def _worth(raw: Raw, number: int, key: str, words: Mapping[str, float]) -> Raw:
    """The reward, with a word replaced by its number; LineError for an unknown word."""
    if bytes(memoryview(raw)[:1]) != b'"':
        return raw
    text = _TEXT.decode(raw)
    if (value := words.get(text.strip().lower())) is None:
        expected = f"expected a number, null or one of the words of --truth: {', '.join(words)}"
        raise LineError(number, f"{named(key)} is {shown(text)}", expected)
    return Raw(str(value).encode())


def texts(blocks: Iterable[Block], names: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    """The texts of records: of the first record of each task, which has its prompt, and of all wanted tasks."""
    key_of = {role: key for key, role in meant(names).items()}
    text_roles = (*TEXTS, "answer")
    fields: list[Any] = [
        ("task", int | str),
        *((name, Raw, NOTHING) for name in (*text_roles, "error", "sample", "metadata", TARGET, FACTS)),
        *((name, str | None, None) for name in GROUP),
    ]
    # --columns may use the key of a role for another role; then no key has the first role
    keys = {spec[0]: key_of.get(spec[0], f"{GIVEN_AWAY}{spec[0]}") for spec in fields}
    keys |= {name: name for name in (TARGET, FACTS) if name not in names.values()}
    row = msgspec.defstruct("Row", fields, rename=keys, gc=False)
    numbered = names.get("sample") == NUMBERED
    marked = [TARGET, *(key_of[name] for name in (*text_roles, "error") if name in key_of)]
    marks = [b""] if numbered else [f'"{key}"'.encode() for key in marked]
    seen = Counter[tuple[Any, ...]]()
    for record in marked_rows(blocks, row, marks, reshaping(dict(names))[0]):
        key = (record.task, record.agent, record.model, record.dataset)
        task = str(record.task)
        seen[key] += 1
        if seen[key] > 1 and task not in wanted:
            continue
        sample = seen[key] - 1 if numbered else int(bytes(record.sample) or b"0")
        target = _target(record.target, record.metadata, record._calipers) if seen[key] == 1 else ""
        yield Text(*key[1:], task, sample, "", target, record.completion, record.prompt, record.answer, record.error)


def marked_rows(
    blocks: Iterable[Block], row: Any, marks: Sequence[bytes], reshape: Reshape | None = None
) -> Iterator[Any]:
    """The lines of blocks as structs of type ``row``; blocks that contain none of the marks are skipped."""
    decoder = msgspec.json.Decoder(complete(row))
    for block in blocks:
        data = bytes(block if reshape is None else reshape(block, 0))
        if not any(mark in data for mark in marks):
            continue
        try:
            yield from decoder.decode_lines(data)
        except BAD:
            yield from _one_by_one(data, decoder)


def _one_by_one(data: bytes, decoder: Any) -> Iterator[Any]:
    for line in data.split(b"\n"):
        with suppress(*BAD):  # a bad row is left to the reader of rollouts
            if line.strip():
                yield decoder.decode(without_unreal(line)[0])  # some systems write NaN


class _Targeted(msgspec.Struct, gc=False):
    target: Any = None


def _target(stored: Raw, metadata: Raw, facts: Raw) -> str:
    """The hash of the target of a record or of its metadata; a converted record may have the hash itself."""
    try:
        if stored:
            return target_hash(msgspec.json.decode(stored))
        if facts and (target := DECODER.decode(facts).target):
            return target
        inside = msgspec.json.decode(metadata, type=complete(_Targeted | None)) if metadata else None
        return target_hash(inside.target) if inside else ""
    except BAD:
        return ""


def of_blocks(blocks: Iterable[Block], names: Columns) -> Extras:
    """The non-numeric values of each record in blocks of lines."""
    reshape = reshaping(names)[0]
    for block in blocks:
        data = bytes(block if reshape is None else reshape(block, 0))
        for line in data.split(b"\n"):
            if line.strip():
                yield of_row(ROW.decode(line), names)


def of_row(row: Mapping[str, Any], names: Columns) -> dict[str, Any]:
    """The non-numeric values of one record, by role; other keys are added as they are."""
    roles, numbers = meant(names), {key for role, key in names.items() if role not in ROLES}
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in row.items():
        role = roles.get(key)
        if role in KEPT:
            known[role] = value
        elif role is None and key not in numbers and key not in (WORTH, FACTS):
            others[key] = value
    return placed(known, others)


def placed(known: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """A record with these values by role, and the others by key; a key that a record cannot have goes to metadata."""
    kept = {key: value for key, value in known.items() if value is not None}
    inside: dict[str, Any] = {}
    for key, value in others.items():
        if key in ROLES or key == FACTS or not key or odd_key([key]) is not None:
            inside[key] = value
        else:
            kept[key] = value
    if inside:
        metadata = kept.get("metadata") or {}
        metadata = msgspec.json.decode(metadata) if isinstance(metadata, Raw) else metadata
        kept["metadata"] = {**inside, **(metadata if isinstance(metadata, dict) else {})}
    return kept


def _other_keys(start: Beginning) -> bool:
    """Whether the user names the key of the task, or other keys of rows without a key ``task``."""
    return bool(start.columns) and ("task" in start.columns or (start.row is not None and "task" not in start.row))


def _blocks(path: str) -> Iterator[memoryview]:
    return blocks_of(Source(path))


def is_array_of_objects(start: Beginning) -> bool:
    """Whether a file is a JSON array whose first element is an object."""
    text = start.head.removeprefix(BOM).lstrip(_BLANKS)
    return text[:1] == b"[" and text[1:].lstrip(_BLANKS)[:1] == b"{"


def _array_lines(path: str) -> Iterator[bytes]:
    with Source(path) as source:
        records = _LIST.decode(source.everything(LARGEST_WHOLE).removeprefix(BOM))
    return map(_array_line, records)


def _format(name: str, read: Any, recognise: Any, blocks: Callable[[str], Iterable[Block]], packed: Any) -> Format:
    """A format of records, which are the lines of ``blocks(path)``."""

    def texts_of(path: str, names: Columns, wanted: Collection[str]) -> Iterator[Text]:
        return texts(blocks(path), names, wanted)

    def extras(part: Part, names: Columns) -> Extras:
        return of_blocks(blocks(part.places.path), names)

    return Format(name, read, recognise, texts_of, extras=extras, packed=packed)


NATIVE = _format("native", read, lambda start: True, _blocks, packed)
JSONL = _format("jsonl", read, _other_keys, _blocks, packed)
RECORDS = _format("json_array", read_array, is_array_of_objects, _array_lines, None)
