"""Streams of bytes, read no further than they reach: packed with zstd, or simply bounded."""

from __future__ import annotations

import io
from typing import Any, Final

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
    """Bytes that are no zstd, as ``gzip.BadGzipFile`` is for gzip."""


class ZstdFrames(io.RawIOBase):
    """Frames of zstd, unpacked; EOFError when the last one is cut off, `BadZstd` for what is none.

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
                    raise EOFError("the last frame is cut off")
                return 0
            try:
                self._begun, self._ready = True, memoryview(self._frame.decompress(more))
            except self._bad as error:
                raise BadZstd(str(error)) from None
        found, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)
