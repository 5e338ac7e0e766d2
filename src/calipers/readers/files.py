"""Bytes from a path: opened, unpacked, hashed, and cut into blocks of whole lines."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from calipers.errors import InputError

BLOCK = 1 << 17  # half and twice of it are 10-15 % slower to decode
LONGEST_LINE = 64 << 20
FREE_UNPACKED = 1 << 30  # packed input may unpack to this much whatever its ratio ...
MOST_RATIO = 1000  # ... and beyond it to this many times its packed size
BOM = b"\xef\xbb\xbf"
STDIN = "-"


class LongLine(Exception):
    """A line longer than LONGEST_LINE."""


class Source:
    """One input: a file, packed or not, or standard input (``-``); hashed while it is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.packing = ""
        self._hash = hashlib.sha256()
        self._hashing: threading.Thread | None = None
        self._broken: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
        self._unpacked_bytes = 0
        if path == STDIN:
            self.size = 0
            self._raw = io.BufferedReader(_Hashed(sys.stdin.buffer, self._hash), BLOCK)
        else:
            self._raw = _open(path)
            self.size = os.fstat(self._raw.fileno()).st_size
        self._stream = self._unpacking()
        self.head = self._unpacked(BLOCK)

    @property
    def divisible(self) -> bool:
        """Whether byte ranges of the input can be read on their own."""
        return self.path != STDIN and not self.packing

    def read(self, size: int) -> bytes:
        """At most ``size`` more unpacked bytes; InputError when they cannot be unpacked."""
        if self.head:
            found, self.head = self.head[:size], self.head[size:]
            return found
        return self._unpacked(size)

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
        """Hash the file beside the reading; hashing holds no lock, so it costs a core, not time."""
        if self.path != STDIN:
            self._hashing = threading.Thread(target=self._hash_file, daemon=True)
            self._hashing.start()

    def sha256(self) -> str:
        """The hash of the bytes as they lie on disk."""
        if self._hashing is None:
            self.start_hashing()
        if self._hashing is not None:
            self._hashing.join()
        return self._hash.hexdigest()

    def _hash_file(self) -> None:
        with open(self.path, "rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                self._hash.update(chunk)

    def _unpacking(self) -> BinaryIO:
        magic = self._raw.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            self.packing = "gzip"
            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw, mode="rb"), BLOCK)
        if magic == b"\x28\xb5\x2f\xfd":
            import zstandard

            self.packing = "zstd"
            self._broken = (*self._broken, zstandard.ZstdError)
            unpacked = zstandard.ZstdDecompressor().stream_reader(self._raw, read_across_frames=True)
            return io.BufferedReader(unpacked, BLOCK)
        return self._raw

    def _unpacked(self, size: int) -> bytes:
        if not self.packing:
            return self._stream.read(size)
        try:
            found = self._stream.read(size)
        except self._broken as error:
            raise InputError.at(self.path, f"cannot be unpacked as {self.packing} ({error})", "is it whole?") from None
        self._unpacked_bytes += len(found)
        limit = max(FREE_UNPACKED, MOST_RATIO * (self.size or FREE_UNPACKED))
        if self._unpacked_bytes > limit:
            wrong = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, wrong, "expected rollouts, not a bomb")
        return found


def line_blocks(read: Callable[[int], bytes], left: int = sys.maxsize) -> Iterator[bytes]:
    """Blocks of whole lines out of the next ``left`` bytes; the last may lack its newline.

    LongLine, once all lines before it are out, for a line that no rollout needs.
    """
    carry = b""
    while left > 0 and (more := read(min(max(BLOCK, len(carry)), left))):
        left -= len(more)
        cut = more.rfind(b"\n") + 1
        if cut:
            yield carry + more[:cut]
            carry = more[cut:]
        else:
            carry += more
        if len(carry) > LONGEST_LINE:
            raise LongLine
    if carry:
        yield carry


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


def _open(path: str) -> io.BufferedReader:
    try:
        return open(path, "rb", buffering=BLOCK)
    except FileNotFoundError:
        raise InputError.at(path, "no such file", "expected a file of rollouts, or - for standard input") from None
    except IsADirectoryError:
        raise InputError.at(path, "is a directory", "expected a file of rollouts") from None
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


class _Hashed(io.RawIOBase):
    """A stream that hashes what passes through."""

    def __init__(self, inner: BinaryIO, digest: hashlib._Hash) -> None:
        self._inner, self._digest = inner, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        chunk = self._inner.read1(len(buffer)) if hasattr(self._inner, "read1") else self._inner.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._digest.update(chunk)
        return len(chunk)
