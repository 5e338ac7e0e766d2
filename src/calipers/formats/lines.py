"""Lines of JSON into columns, for every reader of JSON Lines: as one stream, or a large file split among processes.

A reader describes its rows by a schema, which makes a strict decoder and is widened when a row does not fit.
Decoding into a fixed `msgspec` struct is several times faster than decoding into dicts, and a strict struct loses
nothing: a row with a new key, or a new kind of value, raises an error. Then the schema learns the new key or kind from
that row, and the block is decoded again.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from codecs import utf_8_decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial, reduce
from itertools import chain, pairwise
from operator import or_
from types import NoneType
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.formats import BAD, Named, Progress, Raw, worths
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks, next_line
from calipers.names import load
from calipers.rollouts.column import Ints
from calipers.rollouts.packed import Loose, Packed, Repeated, merge, pack
from calipers.rollouts.table import BadRow, Part

WORTH_DIVIDING = 45 << 20  # bytes that one process reads in the time that another takes to start and to send its answer
PACE = 0.85  # the speed of this process, which also hashes, relative to a child process
NOTHING = Raw(b"")
_RAW = object()  # replaces NOTHING in a cache key, because raw JSON is not hashable
ABSENT = msgspec.UNSET  # the value of a key that the row does not have
MOST_COLUMNS = 1000  # if there are more keys of numbers, they are ids used as keys, and not columns
MOST_KEYS = 4000  # keys of any kind; each takes memory in every row of a block
UNREADABLE = (UnicodeDecodeError, UnicodeEncodeError, RecursionError, json.JSONDecodeError)
OUT_OF_RANGE: Final = ("a number is out of range", "expected at most 1.8e308 in size")

Block = bytes | memoryview
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_LAST_ASCII = 127
_OUTSIDE_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_CHILD = """
import gc, json, sys
gc.disable()  # millions of rows and no cycles among them
sys.path[:] = json.loads(sys.argv[1])
from calipers.formats.lines import child
child()
"""


class LineError(Exception):
    """A line that is not a rollout: (its number, what is wrong, what was expected)."""

    def at(self, path: str, lines_before: int = 0) -> InputError:
        """The error for the user; ``lines_before`` is the number of lines before the one counted as line 1."""
        line, problem, expected = self.args
        return InputError.at(f"{path}:{line + lines_before}", problem, expected)


class SkippedObject(msgspec.Struct, gc=False):
    """Any JSON object, skipped without decoding its values."""


class SkippedList(msgspec.Struct, array_like=True, gc=False):
    """Any JSON list, skipped without decoding its values."""


class Kinds(dict[str, set[str]]):
    """Keys of rows by first appearance, and the kinds of value seen for each: number, text, object, list."""

    def __init__(self) -> None:
        super().__init__()
        self.numeric = 0  # the number of keys seen with a number

    def learn(self, key: str, kind: str) -> bool:
        """Add a key with a kind of value ("" for null); returns whether the key, or this kind for it, is new."""
        if key in self and (not kind or kind in self[key]):
            return False
        self.setdefault(key, set()).update([kind] if kind else ())
        self.numeric += kind == "number"
        return True


def union(kinds: Collection[str], number: Any) -> Any:
    """The type of a value of one of these kinds, or null; ``number`` is the type of a number."""
    # beside an object struct, a list cannot be a struct, because msgspec would need tags to tell them apart
    skipped_list = list[Raw] if "object" in kinds else SkippedList
    types = {"number": number, "text": str, "object": SkippedObject, "list": skipped_list}
    return reduce(or_, (types[kind] for kind in sorted(kinds)), NoneType)


def struct_of(name: str, fields: Sequence[tuple[str, Any, Any]], *, strict: bool = True) -> Any:
    """A struct type with fields (key, type, default) for arbitrary keys. A strict struct refuses other keys.

    Struct types are cached, because defining one takes longer than reading a short file with it.
    """
    hashable = ((key, kind, _RAW if default is NOTHING else default) for key, kind, default in fields)
    return _struct_of(name, tuple(hashable), strict)


@lru_cache(maxsize=128)
def _struct_of(name: str, fields: tuple[tuple[str, Any, Any], ...], strict: bool) -> Any:
    spec: list[Any] = []
    rename: dict[str, str] = {}
    for n, (key, kind, default) in enumerate(fields):
        value = NOTHING if default is _RAW else default
        spec.append((f"f{n}", kind) if value is msgspec.NODEFAULT else (f"f{n}", kind, value))
        rename[f"f{n}"] = key
    return msgspec.defstruct(name, spec, rename=rename, forbid_unknown_fields=strict, gc=False)


def odd_key(keys: Iterable[str]) -> str | None:
    """The first key that cannot be the name of a struct field, if any."""
    return next((key for key in keys if '"' in key or "\\" in key or min(key, default=" ") < " "), None)


class RowSchema(Protocol):
    """The keys and kinds of value of a reader's rows so far, and a strict decoder for exactly those."""

    decoder: msgspec.json.Decoder[Any]
    skips: bool  # whether some values are skipped undecoded, so that their UTF-8 must be checked
    ids_elsewhere: str  # the advice for a file that uses ids as keys

    def learn(self, number: int, line: bytes) -> bool:
        """Widen the schema to fit one line; False if nothing in it is new, or it can never fit.

        The decoder changes only with `rebuild`.
        """
        ...

    def rebuild(self) -> None:
        """Make the decoder for the keys and kinds known now."""
        ...

    def size(self) -> tuple[int, int]:
        """The number of columns of numbers, and the number of other keys that take memory in each row."""
        ...

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether the values that the decoder skipped are of an allowed kind."""
        ...

    def refuse(self, number: int, line: bytes) -> None:
        """LineError for a line that can never fit, unless the reader has another way to read it."""
        ...


class Learner:
    """Turns blocks of lines into columns, and widens the schema when lines do not fit it."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema
        self._check_utf8 = False
        self._stale = False  # the schema has learnt something since its decoder was made

    def columns(self, block: Block, octets: NDArray[np.uint8], before: int) -> list[Sequence[Any]] | None:
        """The block as columns, one for each field of the schema; no columns if the block has no row.

        None if a line can never fit, or if the lines fit singly but not as a block, because msgspec's list of them is
        nested one level deeper. ``before`` is the number of lines before the block.
        """
        schema = self._schema
        while True:
            try:
                if schema.skips and (self._check_utf8 or octets.max(initial=0) > _LAST_ASCII):
                    self._check_utf8 = True  # if one block is not ASCII, most of the later ones are not
                    utf_8_decode(block, "strict", True)
                columns = columns_of(schema.decoder.decode_lines(block))
                if not columns or schema.sound(columns):
                    return columns
            except BAD:
                pass
            if not self.learn(block, before):
                return None

    def learn(self, block: Block, before: int) -> bool:
        """Widen the schema to the lines that do not fit it; False if all lines fit, or one can never fit.

        LineError for a line that is not a row, or with too many new keys.
        """
        widened = False
        waiting: list[tuple[int, bytes]] = []  # lines that were learnt but do not fit the current decoder
        patience = 1  # the number of such lines after which a new decoder is made
        for number, line in filled(block, before):
            if self._fits(line):
                continue
            widened = True
            waiting.append((number, line))
            learnt = False
            with suppress(*BAD):
                learnt = self._schema.learn(number, line)
            self._stale = self._stale or learnt
            many = self.too_many() if learnt else ""
            # a decoder costs as much as many lines, so few are made even if every line has a new key
            if many or len(waiting) >= patience:
                if not self._rebuilt(waiting) and not many:
                    return False
                waiting, patience = [], 2 * patience
            if many:
                raise LineError(number, many, self._schema.ids_elsewhere)
        return widened and self._rebuilt(waiting)

    def too_many(self) -> str:
        """An error if the rows have too many columns or keys; else ""."""
        columns, keys = self._schema.size()
        if columns > MOST_COLUMNS:
            return f"the file has more than {MOST_COLUMNS} columns of numbers"
        return f"the file has more than {MOST_KEYS} different keys" if keys > MOST_KEYS else ""

    def _rebuilt(self, lines: Sequence[tuple[int, bytes]]) -> bool:
        """Make the decoder for what was learnt; returns whether all of these lines fit it."""
        if self._stale:
            self._schema.rebuild()
            self._stale = False
        for number, line in lines:
            if not self._fits(line):
                self._schema.refuse(number, line)
                return False
        return True

    def _fits(self, line: bytes) -> bool:
        try:
            line.decode()  # skipped values must be UTF-8, too
            return self._schema.sound(columns_of([self._schema.decoder.decode(line)]))
        except BAD:
            return False


def columns_of(rows: Iterable[Any]) -> list[Sequence[Any]]:
    """Structs of one type as columns, one for each field."""
    return list(zip(*map(astuple, rows), strict=True))


def filled(block: Block, before: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; ``before`` is the number of lines before the block."""
    for number, line in enumerate(bytes(block).split(b"\n"), before + 1):
        if line.strip(b" \t\r"):
            yield number, line


def one_a_line(octets: NDArray[np.uint8], ends: Ints, rows: int) -> bool:
    """Whether each line is exactly one object, as the decoder also accepts two on a line, and one over two lines."""
    if not len(octets) or octets[0] != _OPEN:
        return not rows and not len(octets)
    ends_with_newline = octets[-1] == _NEWLINE
    before = octets[ends - 1]
    if _RETURN in before[-1:]:
        before = np.where(before == _RETURN, octets[ends - 2], before)
    after = octets[(ends[:-1] if ends_with_newline else ends) + 1]
    # inside an object there is no newline between } and {, so each newline here separates two objects
    return bool((before == _CLOSE).all() and (after == _OPEN).all()) and rows == len(ends) + (not ends_with_newline)


def note_places(
    block: Block, rows: int, octets: NDArray[np.uint8], ends: Ints, before: int, learner: Learner
) -> int | Ints:
    """The line of the first row if each line is one row, else the line of each row; LineError for two on one line."""
    if one_a_line(octets, ends, rows):
        return before + 1
    learner.learn(block, before)  # raises if a line is not exactly one object
    return np.array([number for number, _ in filled(block, before)])


def without_unreal(block: Block) -> tuple[Block, int]:
    """The text with NaN and infinities, which Python writes and JSON does not have, as null; and their number."""
    text, count = bytes(block), 0
    if b"NaN" not in text and b"Infinity" not in text:
        return text, 0

    def real(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[0][:1] == b'"':
            return match[0]
        count += 1
        return b"null"

    real_text = _OUTSIDE_TEXT.sub(real, text)
    return real_text, count


def kind_of(raw: Raw) -> str:
    """The kind of a raw JSON value, from its first byte; "" for null."""
    first = bytes(memoryview(raw)[:1])
    kinds = {b'"': "text", b"{": "object", b"[": "list", b"n": ""}
    return kinds.get(first, "number")


def unreadable(error: Exception) -> tuple[str, str]:
    """What is wrong with a line, by the error of a decoder (one of `UNREADABLE` or `BAD`), and what was expected."""
    expected = "expected one JSON object per line"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} of the line is not UTF-8", "expected UTF-8 text"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair stands alone", "expected whole characters"
    if isinstance(error, msgspec.MsgspecError):
        if "out of range" in str(error):
            return OUT_OF_RANGE
        return f"not JSON ({error})", expected
    if not isinstance(error, json.JSONDecodeError):
        return "it is nested too deeply", "expected a flat object"
    if error.msg == "Extra data":
        return "two values on one line", expected
    return f"not JSON ({error.msg.removesuffix(' at')} at column {error.colno})", expected


class NotPackable(Exception):
    """Rollouts that cannot be packed, or not usefully; they are read unpacked instead."""


PIECE = 1 << 16  # rows that are packed at once
SEVERAL = 12  # pieces that are merged at once
MOST_KINDS = 1 << 14  # distinct rows in a piece, beyond which packing saves little
LOOKED_AT = 1 << 21  # bytes at the start of a file that show whether its rows are alike


def packed_lines(
    reader: Any, blocks: Iterable[memoryview], keep: Collection[str] | None, progress: Progress
) -> Loose | Packed:
    """The rollouts in blocks of lines, packed a piece at a time; NotPackable if too many of them differ."""
    pieces: list[Loose | Packed] = []

    def flush() -> None:
        try:
            piece = pack(reader.flush(), keep)
        except (InputError, BadRow) as error:  # reading the rows unpacked gives a better message
            raise NotPackable(str(error)) from None
        if len(piece.kinds) > MOST_KINDS:
            raise NotPackable("rollouts differ in too many values")
        pieces.append(piece)

    def merged() -> Loose | Packed:
        try:
            return pieces[0] if len(pieces) == 1 else merge(pieces)
        except Repeated as error:
            raise NotPackable(str(error)) from None

    for block in blocks:
        reader.read(block)
        progress(len(block))
        if reader.rows >= PIECE:
            flush()
            # merging early saves the task names that each piece repeats, but copies the merged piece each time
            if len(pieces) > SEVERAL and sum(map(len, pieces[1:])) > len(pieces[0]) // 8:
                pieces[:] = [merged()]
    if reader.rows:
        flush()
    if not pieces:
        raise NotPackable("no rollouts")
    return merged()


class Lines(Protocol):
    """A reader of blocks of lines.

    It is made by a function ``make(path, names, labels, start)``; ``start`` is the byte at which the first line starts,
    or None in a stream.
    """

    @property
    def lines(self) -> int:
        """The number of lines read so far."""
        ...

    def read(self, block: memoryview) -> None:
        """Read some whole lines; LineError for the first bad line."""
        ...

    def finish(self) -> Part:
        """The rollouts of all lines read."""
        ...


def read_lines(
    maker: str, source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress
) -> list[Any]:
    """The rollouts of a source; one part for each process that read some of it.

    ``maker`` is the ``module:function`` that makes a reader, so that a child process can import it.
    """
    request = {"maker": maker, "names": dict(names), "labels": sorted(labels), "words": dict(worths(names))}
    with _divided("calipers.formats.lines:read_range", source, request, progress) as (reader, blocks, others):
        try:
            parts = [_drive(reader, blocks, progress)]
            lines = reader.lines
            for part, part_lines in others:
                if isinstance(part, LineError):
                    raise part.at(source.path, lines)
                parts.append(replace(part, places=part.places.shifted(lines)))
                lines += part_lines
        except LineError as error:
            raise error.at(source.path) from None
    return parts


@contextmanager
def _divided(
    function: str, source: Source, request: dict[str, Any], progress: Progress
) -> Iterator[tuple[Any, Iterator[memoryview], Iterator[tuple[Any, int]]]]:
    """A reader, the blocks for this process to read, and the answers of the child processes for the other ranges.

    Only a large source is divided. Each child calls ``function`` with its range of bytes; answers are in file order.
    """
    count = processes()
    ranges = _ranges(source, count) if source.divisible and source.size >= WORTH_DIVIDING and count > 1 else []
    children: list[ChildProcess[tuple[Any, int]]] = [
        ChildProcess(function, {**request, "path": source.path, "start": start, "end": end})
        for start, end in ranges[1:]
    ]

    def others() -> Iterator[tuple[Any, int]]:
        for child, (start, end) in zip(children, ranges[1:], strict=True):
            answer = child.result()
            progress(end - start)
            yield answer

    try:
        bom = len(BOM) if source.head.startswith(BOM) else 0
        source.head = source.head[bom:]
        readinto = source.readinto_hashed if ranges and not bom else source.readinto
        left = ranges[0][1] - bom if ranges else sys.maxsize
        names = Named(request["names"], request["words"])
        reader = load(request["maker"])(source.path, names, request["labels"], bom if source.divisible else None)
        yield reader, line_blocks(readinto, left), others()
    finally:
        for child in children:
            child.stop()


@contextmanager
def _range(
    maker: str, path: str, start: int, end: int, names: dict[str, str], labels: list[str], words: dict[str, float]
) -> Iterator[tuple[Any, Iterator[memoryview]]]:
    """A reader of a range of whole lines, and the blocks of the range."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        yield load(maker)(path, Named(names, words), labels, start), line_blocks(file.readinto, end - start)


def read_range(**request: Any) -> tuple[Any, int]:
    """The rollouts in a range of whole lines, or their LineError, and the number of lines; lines count from 1."""
    with _range(**request) as (reader, blocks):
        try:
            return _drive(reader, blocks, lambda _: None), reader.lines
        except LineError as error:
            return error, reader.lines


def read_packed(
    maker: str,
    source: Source,
    names: Mapping[str, str],
    labels: Collection[str],
    keep: Collection[str] | None,
    progress: Progress,
) -> list[Loose | Packed]:
    """As `read_lines`, packed into a few bytes per rollout; NotPackable if that would save nothing."""
    request: dict[str, Any] = {"maker": maker, "names": dict(names), "labels": sorted(labels)}
    request |= {"words": dict(worths(names)), "keep": None if keep is None else sorted(keep)}
    if source.divisible:
        _check_alike(source, request)
    with _divided("calipers.formats.lines:packed_range", source, request, progress) as (reader, blocks, others):
        try:
            parts = [packed_lines(reader, blocks, keep, progress)]
        except (LineError, LongLine) as error:  # reading the rows unpacked gives an error that names the line
            raise NotPackable(str(error)) from None
        for part, _ in others:
            if not isinstance(part, (Loose, Packed)):
                raise NotPackable(str(part))
            parts.append(part)
        return parts


def _check_alike(source: Source, request: Mapping[str, Any]) -> None:
    """NotPackable if the first rows differ too often; checked before processes are started to pack all rows."""
    start = len(BOM) if source.head.startswith(BOM) else 0
    first, _ = packed_range(**request, path=source.path, start=start, end=next_line(source.path, LOOKED_AT))
    if not isinstance(first, (Loose, Packed)):
        raise NotPackable(str(first))
    # the expected number of distinct rows in a sample of this size, if MOST_KINDS were equally frequent
    if len(first.kinds) > MOST_KINDS * -math.expm1(-len(first) / MOST_KINDS):
        raise NotPackable("rollouts differ in too many values")


def packed_range(keep: list[str] | None, **request: Any) -> tuple[Any, int]:
    """The packed rollouts in a range of whole lines, or the reason why they cannot be packed; and the line count."""
    with _range(**request) as (reader, blocks):
        try:
            return packed_lines(reader, blocks, keep, lambda _: None), reader.lines
        except (LineError, LongLine, NotPackable) as error:
            return str(error), reader.lines


def processes() -> int:
    """The number of processes that may read at once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if sys.executable else 1


def _ranges(source: Source, count: int) -> list[tuple[int, int]]:
    """Ranges of whole lines that take equally long to read, by this process (the first range) and its children."""
    share = int((source.size - PACE * WORTH_DIVIDING) / (count - 1 + PACE))
    cuts = [source.size - share * (count - n) for n in range(1, count)]
    return list(pairwise([0, *(next_line(source.path, cut) for cut in cuts), source.size]))


def _drive(reader: Lines, blocks: Iterable[memoryview], progress: Progress) -> Part:
    try:
        for block in blocks:
            reader.read(block)
            progress(len(block))
    except LongLine:
        problem = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise LineError(reader.lines + 1, problem, "expected one rollout per line") from None
    return reader.finish()


A = TypeVar("A")


class ChildProcess(Generic[A]):
    """A call of one of our functions in another process; if that process dies, the function is called in this one.

    ``way`` is the ``module:function``, ``request`` its arguments. With ``given``, the function also gets the argument
    ``given``: an iterator over values other than None, which are sent while both processes work.
    """

    def __init__(self, way: str, request: dict[str, Any], given: Callable[[], Iterator[Any]] | None = None) -> None:
        self._way, self._request, self._given = way, request, given
        idle = _IDLE.get()
        self._process = idle.pop() if idle else _new_process()
        self._answer: tuple[A] | None = None
        self._is_idle = False
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        stream, sink = self._process.stdout, self._process.stdin
        if stream is None or sink is None:
            return
        # if the process died, `result` calls the function in this process
        with suppress(BrokenPipeError, EOFError, pickle.UnpicklingError):
            pickle.dump((self._way, self._request, self._given is not None), sink, protocol=5)
            for value in [] if self._given is None else chain(self._given(), [None]):
                pickle.dump(value, sink, protocol=5)
            sink.flush()
            self._answer = (pickle.load(stream),)  # trusted: written by our own child process
            self._is_idle = True

    def result(self) -> A:
        """Wait for the function's return value."""
        self._listening.join()
        answer, self._answer = self._answer, None
        if answer is not None:
            return answer[0]
        given = {"given": self._given()} if self._given else {}
        returned: A = load(self._way)(**self._request, **given)
        return returned

    def stop(self) -> None:
        """Keep the process for the next call if it has answered and processes are kept; else end it."""
        idle = _IDLE.get()
        if self._is_idle and idle is not None:
            idle.append(self._process)
            return
        self._process.kill()
        self._listening.join()
        _end(self._process)


_IDLE: Final[ContextVar[list[subprocess.Popen[bytes]] | None]] = ContextVar("_IDLE", default=None)
"""Processes that wait for a call; None if processes are not kept."""


@contextmanager
def kept_processes() -> Iterator[None]:
    """Keep each process that has answered for the next call, until the end of the block, because starting is slow."""
    idle: list[subprocess.Popen[bytes]] = []
    before = _IDLE.set(idle)
    try:
        yield
    finally:
        _IDLE.reset(before)
        for process in idle:
            _end(process)


def _new_process() -> subprocess.Popen[bytes]:
    """A process that waits for a call."""
    return subprocess.Popen(
        # -P and our own sys.path: the child imports what we import, and nothing from the working directory
        [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pipesize=1 << 20,
        env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # saves 0.1 s for threads that the child never uses
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    process.wait()


def child() -> None:
    """The main function of a child process: perform calls from standard input, and answer on standard output."""
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    answer: Any = None
    with suppress(EOFError):
        while True:
            way, request, streams = pickle.load(calls)  # trusted: written by our own parent process
            answer = None  # freed only now, because most processes have one call, and freeing its rows takes time
            given = {"given": iter(partial(pickle.load, calls), None)} if streams else {}
            answer = load(way)(**request, **given)
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
    os._exit(0)
