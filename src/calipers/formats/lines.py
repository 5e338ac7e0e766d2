"""Lines of JSON into columns, for every reader of them: one stream, or a large file split among processes.

What the lines mean, a reader says, by the schema of its rows: a strict decoder that is widened on surprise.
Decoding into a fixed `msgspec` struct is several times faster than decoding into dicts, and a strict one can
lose nothing: a row with a new key, or a new kind of value, does not fit and raises. Then that row teaches the
schema what it lacked, and its block is decoded again.
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

WORTH_DIVIDING = 45 << 20  # bytes; what one process reads while another starts and, at the end, answers
PACE = 0.85  # of another process: this one also hashes what it reads
NOTHING = Raw(b"")
_RAW = object()  # stands for NOTHING in a key of a cache: raw JSON has no hash
ABSENT = msgspec.UNSET  # in the place of a value whose key a row does not have
MOST_COLUMNS = 1000  # more distinct keys than this are ids used as keys, not columns
MOST_KEYS = 4000  # of any kind; each takes room in every row of a block
UNREADABLE = (UnicodeDecodeError, UnicodeEncodeError, RecursionError, json.JSONDecodeError)

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
    """A line that is no rollout: (its number, what is wrong, what would be right)."""

    def at(self, path: str, lines_before: int = 0) -> InputError:
        """The error for the user, once it is known how many lines stand before."""
        line, wrong, right = self.args
        return InputError.at(f"{path}:{line + lines_before}", wrong, right)


class SkippedObject(msgspec.Struct, gc=False):
    """Any JSON object, skipped unread."""


class SkippedList(msgspec.Struct, array_like=True, gc=False):
    """Any JSON list, skipped unread."""


class Kinds(dict[str, set[str]]):
    """Keys of rows in the order they were met, and the kinds of value that each has had: number, text, object, list."""

    def __init__(self) -> None:
        super().__init__()
        self.numeric = 0  # keys that have had a number

    def learn(self, key: str, kind: str) -> bool:
        """Whether the key, or this kind of its value, is new; "" is the kind of null."""
        if key in self and (not kind or kind in self[key]):
            return False
        self.setdefault(key, set()).update([kind] if kind else ())
        self.numeric += kind == "number"
        return True


def union(kinds: Collection[str], number: Any) -> Any:
    """The type of a value that is of one of these kinds, or null; ``number`` is the type of a number."""
    # beside an object a list cannot be a struct: they would have to be tagged
    skipped_list = list[Raw] if "object" in kinds else SkippedList
    types = {"number": number, "text": str, "object": SkippedObject, "list": skipped_list}
    return reduce(or_, (types[kind] for kind in sorted(kinds)), NoneType)


def struct_of(name: str, fields: Sequence[tuple[str, Any, Any]], *, strict: bool = True) -> Any:
    """A struct with fields of any keys: (key, type, default) of each. A strict one refuses other keys.

    The same fields give the same struct: to define one takes longer than to read a short file with it.
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
    """The first key that no field of a struct can be called by, if any."""
    return next((key for key in keys if '"' in key or "\\" in key or min(key, default=" ") < " "), None)


class RowSchema(Protocol):
    """What a reader's rows look like so far, and a strict decoder for exactly that."""

    decoder: msgspec.json.Decoder[Any]
    skips: bool  # whether some of a row is passed over, so that nobody looks at its bytes
    ids_elsewhere: str  # the advice to who uses ids as keys

    def learn(self, number: int, line: bytes) -> bool:
        """Widen to one line; False when all of it was known, or it cannot be. `rebuild` makes the decoder for it."""
        ...

    def rebuild(self) -> None:
        """Make the decoder for what is known now."""
        ...

    def size(self) -> tuple[int, int]:
        """How many columns of numbers there are, and how many other keys take room in a row."""
        ...

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether what is passed over is what it may be."""
        ...

    def refuse(self, number: int, line: bytes) -> None:
        """LineError for a line that will never fit, unless the reader has another way to read it."""
        ...


class Learner:
    """Blocks of lines into columns, by a schema that is widened to the lines that do not fit it."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema
        self._wide = False
        self._stale = False  # the decoder does not know all that the schema does

    def columns(self, block: Block, octets: NDArray[np.uint8], before: int) -> list[Sequence[Any]] | None:
        """The block as columns, one for each field of the schema; none where it has no row.

        None where a line never fits, or lines that fit one by one do not as a block: a list of them is deeper than
        each. So many lines stand ``before`` the block.
        """
        schema = self._schema
        while True:
            try:
                if schema.skips and (self._wide or octets.max(initial=0) > _LAST_ASCII):
                    self._wide = True  # where one block has letters beyond ASCII, most have
                    utf_8_decode(block, "strict", True)
                columns = columns_of(schema.decoder.decode_lines(block))
                if not columns or schema.sound(columns):
                    return columns
            except BAD:
                pass
            if not self.learn(block, before):
                return None

    def learn(self, block: Block, before: int) -> bool:
        """Widen the schema to the lines that do not fit it; False when none does not, or one never will.

        LineError for a line that is no row, or brings a key too many.
        """
        widened = False
        waiting: list[tuple[int, bytes]] = []  # lines that do not fit the decoder there is, and were learnt from
        patience = 1
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
            # a decoder costs as much as many lines: where each line brings a key, few are made
            if many or len(waiting) >= patience:
                if not self._rebuilt(waiting) and not many:
                    return False
                waiting, patience = [], 2 * patience
            if many:
                raise LineError(number, many, self._schema.ids_elsewhere)
        return widened and self._rebuilt(waiting)

    def too_many(self) -> str:
        """What the rows have too many of, if they have."""
        columns, keys = self._schema.size()
        if columns > MOST_COLUMNS:
            return f"the file has more than {MOST_COLUMNS} columns of numbers"
        return f"the file has more than {MOST_KEYS} different keys" if keys > MOST_KEYS else ""

    def _rebuilt(self, lines: Sequence[tuple[int, bytes]]) -> bool:
        """Make the decoder for what was learnt; whether all of these lines fit it."""
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
            line.decode()  # what is skipped unread must be UTF-8 too
            return self._schema.sound(columns_of([self._schema.decoder.decode(line)]))
        except BAD:
            return False


def columns_of(rows: Iterable[Any]) -> list[Sequence[Any]]:
    """Structs of one type as columns, one for each field."""
    return list(zip(*map(astuple, rows), strict=True))


def filled(block: Block, before: int) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; so many lines stand before the block."""
    for number, line in enumerate(bytes(block).split(b"\n"), before + 1):
        if line.strip(b" \t\r"):
            yield number, line


def one_a_line(octets: NDArray[np.uint8], ends: Ints, rows: int) -> bool:
    """Whether each line is exactly one object: the decoder also takes two on a line, and one on two."""
    if not len(octets) or octets[0] != _OPEN:
        return not rows and not len(octets)
    whole = octets[-1] == _NEWLINE
    before = octets[ends - 1]
    if _RETURN in before[-1:]:
        before = np.where(before == _RETURN, octets[ends - 2], before)
    after = octets[(ends[:-1] if whole else ends) + 1]
    # inside an object no newline stands between } and {, so here each one parts two objects
    return bool((before == _CLOSE).all() and (after == _OPEN).all()) and rows == len(ends) + (not whole)


def note_places(
    block: Block, rows: int, octets: NDArray[np.uint8], ends: Ints, before: int, learner: Learner
) -> int | Ints:
    """The line of the first row, where each line is one row; else the line of each. LineError for two on one line."""
    if one_a_line(octets, ends, rows):
        return before + 1
    learner.learn(block, before)  # raises where a line is not exactly one object
    return np.array([number for number, _ in filled(block, before)])


def without_unreal(block: Block) -> tuple[Block, int]:
    """Text with null in the place of NaN and infinities, which Python writes and JSON does not have; how many."""
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
    named = {b'"': "text", b"{": "object", b"[": "list", b"n": ""}
    return named.get(first, "number")


def unreadable(error: Exception) -> tuple[str, str]:
    """What Python's decoder found in a line, one of `UNREADABLE`: what is wrong, and what would be right."""
    right = "expected one JSON object per line"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} of the line is not UTF-8", "expected UTF-8 text"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair stands alone", "expected whole characters"
    if not isinstance(error, json.JSONDecodeError):
        return "it is nested too deeply", "expected a flat object"
    if error.msg == "Extra data":
        return "two values on one line", right
    return f"not JSON ({error.msg.removesuffix(' at')} at column {error.colno})", right


class NotPackable(Exception):
    """Rollouts that are not worth packing, or cannot be: they are read as they are."""


PIECE = 1 << 16  # rows that are packed at once
SEVERAL = 12  # pieces that are merged at once
MOST_KINDS = 1 << 14  # distinct rows in a piece: with more of them, packing saves little
LOOKED_AT = 1 << 21  # bytes at the start of a file that say whether its rows are alike


def packed_lines(
    reader: Any, blocks: Iterable[memoryview], keep: Collection[str] | None, progress: Progress
) -> Loose | Packed:
    """The rollouts in blocks of lines, packed a piece at a time; NotPackable where they are not alike."""
    pieces: list[Loose | Packed] = []

    def flush() -> None:
        try:
            piece = pack(reader.flush(), keep)
        except (InputError, BadRow) as error:  # reading it once more says it better
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
            # each piece names its tasks once more, so they do not wait long; what is merged is copied each time
            if len(pieces) > SEVERAL and sum(map(len, pieces[1:])) > len(pieces[0]) // 8:
                pieces[:] = [merged()]
    if reader.rows:
        flush()
    if not pieces:
        raise NotPackable("no rollouts")
    return merged()


class Lines(Protocol):
    """A reader of blocks of lines.

    Its maker is ``make(path, names, labels, start)``: the first line stands at this byte, at None in a stream.
    """

    @property
    def lines(self) -> int:
        """Lines read so far."""
        ...

    def read(self, block: memoryview) -> None:
        """Take in some whole lines; LineError for the first that is wrong."""
        ...

    def finish(self) -> Part:
        """What all of them were."""
        ...


def read_lines(
    maker: str, source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress
) -> list[Any]:
    """The rollouts of a source; one part for each process that read some of it.

    ``maker`` is the ``module:function`` that makes a reader, so that a child finds it, too.
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
    """A reader of a source, the blocks that it reads here, and what child processes make of all others, in order.

    Only a large source is divided; each child calls the function with its range of bytes.
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
    """A reader of a range of whole lines, and its blocks."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        yield load(maker)(path, Named(names, words), labels, start), line_blocks(file.readinto, end - start)


def read_range(**request: Any) -> tuple[Any, int]:
    """The rollouts in a range of whole lines, or its LineError; lines count from its start."""
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
    """As `read_lines`, packed: a few bytes a rollout. NotPackable where that saves nothing."""
    request: dict[str, Any] = {"maker": maker, "names": dict(names), "labels": sorted(labels)}
    request |= {"words": dict(worths(names)), "keep": None if keep is None else sorted(keep)}
    if source.divisible:
        _check_alike(source, request)
    with _divided("calipers.formats.lines:packed_range", source, request, progress) as (reader, blocks, others):
        try:
            parts = [packed_lines(reader, blocks, keep, progress)]
        except (LineError, LongLine) as error:  # read once more as they are, the error names its line
            raise NotPackable(str(error)) from None
        for part, _ in others:
            if not isinstance(part, (Loose, Packed)):
                raise NotPackable(str(part))
            parts.append(part)
        return parts


def _check_alike(source: Source, request: Mapping[str, Any]) -> None:
    """NotPackable where the first rows differ too often: before processes are started to pack all of them."""
    start = len(BOM) if source.head.startswith(BOM) else 0
    first, _ = packed_range(**request, path=source.path, start=start, end=next_line(source.path, LOOKED_AT))
    if not isinstance(first, (Loose, Packed)):
        raise NotPackable(str(first))
    if len(first.kinds) > MOST_KINDS * -math.expm1(-len(first) / MOST_KINDS):  # so many would be met among rows drawn
        raise NotPackable("rollouts differ in too many values")


def packed_range(keep: list[str] | None, **request: Any) -> tuple[Any, int]:
    """The rollouts in a range of whole lines, packed, or why they are not."""
    with _range(**request) as (reader, blocks):
        try:
            return packed_lines(reader, blocks, keep, lambda _: None), reader.lines
        except (LineError, LongLine, NotPackable) as error:
            return str(error), reader.lines


def processes() -> int:
    """How many processes may read."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if sys.executable else 1


def _ranges(source: Source, count: int) -> list[tuple[int, int]]:
    """Ranges of bytes that start and end with a line, as large as will be read in one time; the first is read here."""
    share = int((source.size - PACE * WORTH_DIVIDING) / (count - 1 + PACE))
    wished = [source.size - share * (count - n) for n in range(1, count)]
    return list(pairwise([0, *(next_line(source.path, cut) for cut in wished), source.size]))


def _drive(reader: Lines, blocks: Iterable[memoryview], progress: Progress) -> Part:
    try:
        for block in blocks:
            reader.read(block)
            progress(len(block))
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise LineError(reader.lines + 1, wrong, "expected one rollout per line") from None
    return reader.finish()


A = TypeVar("A")


class ChildProcess(Generic[A]):
    """A call of one function of ours in another process; should that die, the function is called here.

    ``way`` is its ``module:function``, ``request`` its arguments. With ``given``, the function has the argument
    ``given`` too: an iterator over values, none of them None, that are sent while both processes work.
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
        # it died: the function is called here
        with suppress(BrokenPipeError, EOFError, pickle.UnpicklingError):
            pickle.dump((self._way, self._request, self._given is not None), sink, protocol=5)
            for value in [] if self._given is None else chain(self._given(), [None]):
                pickle.dump(value, sink, protocol=5)
            sink.flush()
            self._answer = (pickle.load(stream),)  # our own child's words
            self._is_idle = True

    def result(self) -> A:
        """What the function returned."""
        self._listening.join()
        answer, self._answer = self._answer, None
        if answer is not None:
            return answer[0]
        given = {"given": self._given()} if self._given else {}
        returned: A = load(self._way)(**self._request, **given)
        return returned

    def stop(self) -> None:
        """End the process if its answer is no longer wanted, or keep it for the next call."""
        idle = _IDLE.get()
        if self._is_idle and idle is not None:
            idle.append(self._process)
            return
        self._process.kill()
        self._listening.join()
        _end(self._process)


_IDLE: Final[ContextVar[list[subprocess.Popen[bytes]] | None]] = ContextVar("_IDLE", default=None)
"""Processes that wait for a call; None where none is kept."""


@contextmanager
def kept_processes() -> Iterator[None]:
    """Keep each process that has answered for the next call, until the end of the block: to start one takes time."""
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
        # -P and our own sys.path: the child imports what we import, and nothing from its folder
        [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pipesize=1 << 20,
        env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # starting threads it never uses costs it 0.1 s
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that nobody listens to."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    process.wait()


def child() -> None:
    """What a child process does: call functions, and answer each call on standard output."""
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    answer: Any = None
    with suppress(EOFError):
        while True:
            way, request, streams = pickle.load(calls)  # our own parent's words
            answer = None  # not earlier: most processes have one call, and taking its rows apart takes time
            given = {"given": iter(partial(pickle.load, calls), None)} if streams else {}
            answer = load(way)(**request, **given)
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
    os._exit(0)
