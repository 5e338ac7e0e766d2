"""Reading bytes from a path: opening, unpacking and hashing it, cutting it into blocks of lines, and JSON Lines."""

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

BLOCK = 1 << 17  # bytes; blocks of half or twice this size are 10-15 % slower to decode
FEW_LINES = 256  # a block with fewer lines is made four times as large, because each block has a fixed cost
COUNTED = 16  # lines are counted in this fraction of a block
LONGEST_LINE = 64 << 20  # bytes
LARGEST_WHOLE = 2 << 30  # bytes of a file whose format cannot be read piece by piece
FREE_UNPACKED = 1 << 30  # packed input may unpack to this many bytes in any case ...
MOST_RATIO = 1000  # ... and to more, up to this many times its packed size
BOM = b"\xef\xbb\xbf"
STDIN = "-"


class LongLine(Exception):
    """A line longer than LONGEST_LINE."""


class Source:
    """One input, packed or not, which is hashed while it is read: a file, a pipe, or standard input (``-``)."""

    format = ""  # recognised from the content

    def __init__(self, path: str) -> None:
        self.path = path
        self.packing = ""
        self._hash = hashlib.sha256()
        self._hashed = 0  # bytes from the start that are hashed; the others are hashed in the background
        self._hashing: Callable[[], None] | None = None  # waits until the file is hashed
        self._end = self._left = sys.maxsize  # bytes that belong to the input, and those that `readinto` has not read
        self._unpacked_bytes = 0
        self._file: Any = _open(path)
        self._regular = path != STDIN and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self.size = os.fstat(self._file.fileno()).st_size if self._regular else 0
        self._state = _state(path) if self._regular else None
        # standard input or a pipe can be read only once, so it is hashed while it is read
        stream = None if self._regular else io.BufferedReader(_Hashed(self._file, self._hash), BLOCK)
        self._raw: io.BufferedReader[Any] = stream or self._file
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
        """Close the file; its hash can still be asked for."""
        if self.path != STDIN:
            self._file.close()

    @property
    def divisible(self) -> bool:
        """Whether byte ranges of the input can be read independently."""
        return self._regular and not self.packing

    def read(self, size: int) -> bytes:
        """At most ``size`` more unpacked bytes; InputError if they cannot be unpacked."""
        if self.head:
            data, self.head = self.head[:size], self.head[size:]
            return data
        return self._unpacked(size)

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer, or the start of it, with more unpacked bytes; returns how many."""
        buffer = buffer[: self._left]
        if self.head or self.packing or not self._regular:
            data = self.read(len(buffer))
            size = len(data)
            buffer[:size] = data
        else:
            try:
                size = self._raw.readinto(buffer)
            except OSError as error:
                raise InputError.at(self.path, f"cannot be read ({error})") from None
        self._left -= size
        return size

    def readinto_hashed(self, buffer: memoryview) -> int:
        """As `readinto`, and hash the bytes; to be used from the first byte on, or not at all."""
        size = self.readinto(buffer)
        self._hash.update(buffer[:size])
        self._hashed += size
        return size

    def everything(self, most: int) -> bytes:
        """All remaining unpacked bytes, for formats that cannot be streamed; InputError for more than ``most``."""
        data = read_up_to(self, most + 1)
        if len(data) > most:
            raise InputError.at(self.path, f"larger than {most >> 20} MiB", "expected a smaller file, or JSON Lines")
        return data

    def start_hashing(self) -> None:
        """Hash the file in a background thread, which runs in parallel because hashing releases the GIL.

        A file of one block is hashed at once, because that is faster than starting a thread.
        """
        if not self._regular or ranged_tag(self.path) is not None:
            return
        if self.size > BLOCK:
            thread = threading.Thread(target=self._hash_file, daemon=True)
            thread.start()
            self._hashing = thread.join
        else:
            self._hash_file()
            self._hashing = lambda: None  # nothing to wait for

    def sha256(self) -> str:
        """The hash of the bytes on disk; InputError if the file changed since it was opened.

        For an object that is read in ranges, its ETag in the object store instead.
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
        with suppress(OSError), open(self.path, "rb", buffering=0) as file:  # `sha256` reports a file that is gone
            file.seek(self._hashed)
            buffer = memoryview(bytearray(min(max(self.size, 1 << 12), 1 << 20)))
            while size := file.readinto(buffer[: self._end - self._hashed]):
                self._hash.update(buffer[:size])
                self._hashed += size

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
            problem = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, problem, "expected rollouts, not a decompression bomb")
        return data


def ranged_tag(path: str) -> str | None:
    """``etag:...`` of the object that a path is a copy of, if only parts of it were fetched; else None."""
    objects = sys.modules.get("calipers.stores.objects")  # imported only once an address is used
    copy = objects.ranged(path) if objects is not None else None
    return None if copy is None else f"etag:{copy.tag}"


def line_blocks(readinto: Callable[[memoryview], int | None], left: int = sys.maxsize) -> Iterator[memoryview]:
    """Blocks of whole lines from the next ``left`` bytes; the last line may lack its newline.

    All blocks share one buffer, so a block is valid only until the next one. LongLine for a line longer than
    LONGEST_LINE, after all lines before it.
    """
    buffer = bytearray(BLOCK)
    pending = 0  # bytes at the start of the buffer, of a line whose end is not read yet
    while left > 0 and (size := readinto(memoryview(buffer)[pending : pending + left])):
        left -= size
        end = pending + size
        cut = buffer.rfind(b"\n", pending, end) + 1
        if (buffer.find(b"\n", pending, end) if cut else end) > LONGEST_LINE:
            raise LongLine
        if cut:
            yield memoryview(buffer)[:cut]
            if len(buffer) == BLOCK and buffer.count(b"\n", 0, cut // COUNTED) < FEW_LINES // COUNTED:
                buffer = buffer + bytes(3 * len(buffer))
            buffer[: end - cut] = buffer[cut:end]
        pending = end - cut
        if pending == len(buffer):
            buffer = buffer + bytes(len(buffer))
    if pending:
        yield memoryview(buffer)[:pending]


def blocks_of(source: Source) -> Iterator[memoryview]:
    """A source as blocks of whole lines, without a byte order mark; the source is closed at the end."""
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
    """Inode, size and modification time, to detect that a file was changed; None if it is gone."""
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
    """A stream that hashes the bytes read from it."""

    def __init__(self, inner: Any, digest: hashlib._Hash) -> None:
        self._inner, self._digest = inner, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._inner.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        self._digest.update(chunk)
        return len(chunk)


_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # the escape of a surrogate


def json_lines(path: Path, digest: hashlib._Hash | None = None) -> Iterator[tuple[int, Any]]:
    """(line number, decoded row) for each line that is not blank; the bytes of the file are added to the digest.

    Only a newline ends a line; U+2028 is ordinary text. Blank lines are counted, and a byte order mark is skipped.
    InputError names the line of text that is not UTF-8 or not JSON.
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
    """A regular file, opened for reading; InputError for anything else, such as a pipe, which might never end."""
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
        line = file.readline(LONGEST_LINE + 2)  # one byte over the limit, and the newline
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    if len(line.rstrip(b"\n")) > LONGEST_LINE:
        problem = f"the line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{path}:{number}", problem, "expected one task per line")
    return line


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise InputError.at(where, f"byte {error.start + 1} is not UTF-8", "expected UTF-8 text") from None


def decoded(text: str) -> Any:
    """The value of a JSON text; ValueError if a key appears twice in an object."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for n, key in enumerate(keys) if key in keys[:n])
        raise ValueError(f"key {json.dumps(repeated, ensure_ascii=False)} appears twice")
    return row


def _row(text: str, where: str) -> Any:
    try:
        row = decoded(text)
        if _HALF.search(text):
            json.dumps(row, ensure_ascii=False).encode()
        return row
    except UnicodeEncodeError:
        problem = "malformed json: a string contains half of a surrogate pair"  # it cannot be encoded as UTF-8
        raise InputError.at(where, problem, "expected full pairs, such as \\ud83d\\ude00") from None
    except json.JSONDecodeError as error:
        raise InputError.at(where, f"malformed json: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise InputError.at(where, "malformed json: it is nested too deeply") from None
    except ValueError as error:  # a repeated key, or an integer with thousands of digits
        raise InputError.at(where, f"malformed json: {error}") from None


_PIECE: Final = 1 << 20
_ZSTD_PIECE: Final = 1 << 12  # packed bytes read at once, as everything they unpack to is held in memory


def read_up_to(stream: Any, most: int) -> bytes:
    """At most ``most`` bytes of a stream, read in pieces, because ``read(most)`` would allocate ``most`` bytes."""
    pieces: list[bytes] = []
    while most > 0 and (piece := stream.read(min(most, _PIECE))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


class BadZstd(OSError):
    """The bytes are not zstd; the counterpart of ``gzip.BadGzipFile``."""


class ZstdFrames(io.RawIOBase):
    """Unpacked zstd frames; EOFError if the last frame is truncated, `BadZstd` if the data is not zstd.

    Used because the stream reader of the zstandard library does not report a truncated frame.
    """

    def __init__(self, packed: io.BufferedReader[Any]) -> None:
        import zstandard

        self._packed, self._unpacker, self._bad = packed, zstandard.ZstdDecompressor(), zstandard.ZstdError
        self._frame = self._unpacker.decompressobj()
        self._begun, self._ready = False, memoryview(b"")

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or the start of it, with unpacked bytes; returns how many."""
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
