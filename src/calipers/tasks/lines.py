"""JSON Lines, one row at a time: UTF-8, ended by newlines and by nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError

LONGEST_LINE: Final = 64 << 20  # bytes
BOM: Final = b"\xef\xbb\xbf"
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
