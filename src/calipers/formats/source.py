"""Bytes from a path: opened, unpacked, hashed, and cut into blocks of whole lines, or read as JSON Lines row by row."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError

BLOCK = 1 << 17  # half and twice of it are 10-15 % slower to decode
FEW_LINES = 256  # in a block: of longer lines four times as much is read at once, as each block costs something, too
COUNTED = 16  # lines are counted in such a part of a block
LONGEST_LINE = 64 << 20
LARGEST_WHOLE = 2 << 30  # of a format that cannot be read piece by piece
FREE_UNPACKED = 1 << 30  # packed input may unpack to this much whatever its ratio ...
MOST_RATIO = 1000  # ... and beyond it to this many times its packed size
BOM = b"\xef\xbb\xbf"
STDIN = "-"


class LongLine(Exception):
    """A line longer than LONGEST_LINE."""


class Source:
    """One input: a file, packed or not, or standard input (``-``); hashed while it is read."""

    format = ""  # known by what it holds

    def __init__(self, path: str) -> None:
        self.path = path
        self.packing = ""
        self._hash = hashlib.sha256()
        self._hashed = 0  # bytes, from the first; the others are hashed in the background
        self._hashing: Callable[[], None] | None = None  # waits until the file is hashed
        self._unpacked_bytes = 0
        self._file: Any = _open(path)
        self._lasting = path != STDIN and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self.size = os.fstat(self._file.fileno()).st_size if self._lasting else 0
        self._state = _state(path) if self._lasting else None
        # standard input or a pipe gives its bytes once: they are hashed as they pass
        passing = None if self._lasting else io.BufferedReader(_Hashed(self._file, self._hash), BLOCK)
        self._raw: io.BufferedReader[Any] = passing or self._file
        try:
            self._stream = self._unpacking()
            self.head = self._unpacked(BLOCK)
        except (InputError, OSError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            raise InputError.at(path, f"cannot be read ({error.strerror})") from None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; its hash stays."""
        if self.path != STDIN:
            self._file.close()

    @property
    def divisible(self) -> bool:
        """Whether byte ranges of the input can be read on their own."""
        return self._lasting and not self.packing

    def read(self, size: int) -> bytes:
        """At most ``size`` more unpacked bytes; InputError when they cannot be unpacked."""
        if self.head:
            data, self.head = self.head[:size], self.head[size:]
            return data
        return self._unpacked(size)

    def readinto(self, room: memoryview) -> int:
        """Fill the room with more unpacked bytes, or a part of it; how many they are."""
        if self.head or self.packing or not self._lasting:
            data = self.read(len(room))
            room[: len(data)] = data
            return len(data)
        try:
            size: int = self._raw.readinto(room)
        except OSError as error:
            raise InputError.at(self.path, f"cannot be read ({error})") from None
        return size

    def readinto_hashed(self, room: memoryview) -> int:
        """As `readinto`, and hash them while they are at hand; from the first byte on, or not at all."""
        size = self.readinto(room)
        self._hash.update(room[:size])
        self._hashed += size
        return size

    def everything(self, most: int) -> bytes:
        """All of it at once, for formats that cannot be streamed; InputError beyond ``most`` bytes."""
        pieces = [self.read(BLOCK)]
        size = len(pieces[0])
        while pieces[-1] and size <= most:
            pieces.append(self.read(1 << 20))
            size += len(pieces[-1])
        if size > most:
            raise InputError.at(self.path, f"larger than {most >> 20} MiB", "expected a smaller file, or JSON Lines")
        return b"".join(pieces)

    def start_hashing(self) -> None:
        """Hash the file in the background: hashing holds no lock, so it costs a core that idles, not time.

        A file of one block is hashed at once, which takes less than a thread does.
        """
        if not self._lasting or ranged_tag(self.path) is not None:
            return
        if self.size > BLOCK:
            thread = threading.Thread(target=self._hash_file, daemon=True)
            thread.start()
            self._hashing = thread.join
        else:
            self._hash_file()
            self._hashing = lambda: None  # there is nothing to wait for

    def sha256(self) -> str:
        """The hash of the bytes as they lie on disk; InputError when they changed since they were opened.

        Of an object that is read in ranges it is the store's own mark of its content.
        """
        if (tag := ranged_tag(self.path)) is not None:
            return tag
        if self._hashing is None:
            self.start_hashing()
        if self._hashing is not None:
            self._hashing()
            if self._state != _state(self.path):
                raise InputError.at(self.path, "changed while it was read", "expected a file that does not change")
        return self._hash.hexdigest()

    def _hash_file(self) -> None:
        with suppress(OSError), open(self.path, "rb", buffering=0) as file:  # gone: `sha256` sees it too
            file.seek(self._hashed)
            room = memoryview(bytearray(min(max(self.size, 1 << 12), 1 << 20)))
            while size := file.readinto(room):
                self._hash.update(room[:size])

    def _unpacking(self) -> io.BufferedReader[Any]:
        magic = self._raw.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            self.packing = "gzip"
            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw, mode="rb"), BLOCK)
        if magic == b"\x28\xb5\x2f\xfd":
            self.packing = "zstd"
            return io.BufferedReader(ZstdFrames(self._raw), BLOCK)
        return self._raw

    def _unpacked(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            if not self.packing:
                raise InputError.at(self.path, f"cannot be read ({error})") from None
            raise InputError.at(
                self.path, f"cannot be unpacked as {self.packing} ({error})", "is it complete?"
            ) from None
        if not self.packing:
            return data
        self._unpacked_bytes += len(data)
        limit = max(FREE_UNPACKED, MOST_RATIO * (self.size or FREE_UNPACKED))
        if self._unpacked_bytes > limit:
            wrong = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, wrong, "expected rollouts, not a decompression bomb")
        return data


def ranged_tag(path: str) -> str | None:
    """``etag:...`` of the object that a path is a copy of, where only parts of it were fetched; None for others."""
    objects = sys.modules.get("calipers.stores.objects")  # loaded with the first address
    copy = objects.ranged(path) if objects is not None else None
    return None if copy is None else f"etag:{copy.tag}"


def line_blocks(readinto: Callable[[memoryview], int | None], left: int = sys.maxsize) -> Iterator[memoryview]:
    """Blocks of whole lines out of the next ``left`` bytes; the last may lack its newline.

    All blocks share one room: each is gone when the next is asked for. LongLine, once all lines
    before it are out, for a line that no rollout needs.
    """
    room = bytearray(BLOCK)
    pending = 0  # bytes of a line whose end is not read yet, at the start of the room
    while left > 0 and (size := readinto(memoryview(room)[pending : pending + left])):
        left -= size
        end = pending + size
        cut = room.rfind(b"\n", pending, end) + 1
        if (room.find(b"\n", pending, end) if cut else end) > LONGEST_LINE:
            raise LongLine
        if cut:
            yield memoryview(room)[:cut]
            if len(room) == BLOCK and room.count(b"\n", 0, cut // COUNTED) < FEW_LINES // COUNTED:
                room = room + bytes(3 * len(room))
            room[: end - cut] = room[cut:end]
        pending = end - cut
        if pending == len(room):
            room = room + bytes(len(room))
    if pending:
        yield memoryview(room)[:pending]


def blocks_of(source: Source) -> Iterator[memoryview]:
    """All of a source as blocks of whole lines, without a byte order mark; it is closed at the end."""
    with source:
        source.head = source.head.removeprefix(BOM)
        yield from line_blocks(source.readinto)


def next_line(path: str, offset: int) -> int:
    """The first byte of the first line that starts after ``offset``; the size of the file if none does."""
    with open(path, "rb") as file:
        file.seek(offset)
        while chunk := file.read(BLOCK):
            cut = chunk.find(b"\n")
            if cut >= 0:
                return offset + cut + 1
            offset += len(chunk)
    return offset


def _state(path: str) -> tuple[int, ...] | None:
    """What tells a file from what it was before somebody wrote to it; None when it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _open(path: str) -> Any:
    if path == STDIN:
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise InputError.at(STDIN, "standard input is closed", "expected rollouts on it, or a file")
        return stream
    try:
        return io.BufferedReader(io.FileIO(path, "rb"), BLOCK)
    except FileNotFoundError:
        raise InputError.at(path, "no such file", "expected a file of rollouts, or - for standard input") from None
    except IsADirectoryError:
        raise InputError.at(
            path, "is a directory", "expected a file of rollouts, a run folder or a Harbor job"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError.at(path, f"cannot be read ({getattr(error, 'strerror', error)})") from None


class _Hashed(io.RawIOBase):
    """A stream that hashes what passes through."""

    def __init__(self, inner: Any, digest: hashlib._Hash) -> None:
        self._inner, self._digest = inner, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._inner.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        self._digest.update(chunk)
        return len(chunk)


_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half of a character


def json_lines(path: Path, digest: hashlib._Hash | None = None) -> Iterator[tuple[int, Any]]:
    """(line number, decoded row) for each line that is not blank; the bytes are added to the digest as they pass.

    Characters that other programs take for line ends, such as U+2028, are ordinary text. Blank lines
    count, a byte order mark does not. InputError names the line of what is not UTF-8 or not JSON.
    """
    with opened(path) as file:
        number = 0
        while line := _next(file, path, number + 1):
            number += 1
            if digest is not None:
                digest.update(line)
            if text := _decoded(line.removeprefix(BOM) if number == 1 else line, f"{path}:{number}"):
                yield number, _row(text, f"{path}:{number}")


def opened(path: Path) -> io.BufferedReader:
    """A regular file, opened to be read; InputError for anything else, such as a pipe that would never end."""
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError.at(str(path), f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError.at(str(path), "is not a regular file", "expected a file of tasks, one JSON object per line")
    return file


def _next(file: io.BufferedReader, path: Path, number: int) -> bytes:
    try:
        line = file.readline(LONGEST_LINE + 2)  # one more than the limit, and the newline
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    if len(line.rstrip(b"\n")) > LONGEST_LINE:
        wrong = f"the line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{number}", wrong, "expected one task per line")
    return line


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise InputError.at(where, f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None


def decoded(text: str) -> Any:
    """The value of a JSON text; ValueError if a key appears twice in one of its objects."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise ValueError(f"key {json.dumps(again, ensure_ascii=False)} appears twice")
    return row


def _row(text: str, where: str) -> Any:
    try:
        row = decoded(text)
        if _HALF.search(text):
            json.dumps(row, ensure_ascii=False).encode()
        return row
    except UnicodeEncodeError:
        wrong = "malformed json: a string contains half of a surrogate pair"  # no file and no request can hold it
        raise InputError.at(where, wrong, "expected full pairs, such as \\ud83d\\ude00") from None
    except json.JSONDecodeError as error:
        raise InputError.at(where, f"malformed json: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise InputError.at(where, "malformed json: it is nested too deeply") from None
    except ValueError as error:  # a key twice, an integer of thousands of digits
        raise InputError.at(where, f"malformed json: {error}") from None


_PIECE: Final = 1 << 20
_ZSTD_PIECE: Final = 1 << 12  # packed bytes; all they unpack to is held at once


def read_up_to(stream: Any, most: int) -> bytes:
    """At most so many bytes of a stream, in room for what there is: ``read(most)`` takes room for ``most`` first."""
    pieces: list[bytes] = []
    while most > 0 and (piece := stream.read(min(most, _PIECE))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


class BadZstd(OSError):
    """The bytes are not zstd; the counterpart of ``gzip.BadGzipFile``."""


class ZstdFrames(io.RawIOBase):
    """Unpacked zstd frames; EOFError when the last one is truncated, `BadZstd` if the data is not zstd.

    The library's own stream reader takes the end of the file for the end of the frame.
    """

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        import zstandard

        self._packed, self._unpacker, self._bad = packed, zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._frame = self._unpacker.decompressobj()
        self._begun, self._ready = False, memoryview(b"")

    def readable(self) -> bool:
        """Always: it is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with unpacked bytes, or a part of it; how many they are."""
        while not self._ready:
            more = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._begun = self._unpacker.decompressobj(), False
            more = more or self._packed.read(_ZSTD_PIECE)
            if not more:
                if self._begun:
                    raise EOFError("the last frame is truncated")
                return 0
            try:
                self._begun, self._ready = True, memoryview(self._frame.decompress(more))
            except self._bad as error:
                raise BadZstd(str(error)) from None
        chunk, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)
