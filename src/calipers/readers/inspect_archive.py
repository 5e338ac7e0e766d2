"""The archive that inspect writes: a zip of JSON, each member unpacked by itself and only so far.

Its members are packed with zstd, by older versions with deflate. The library of this Python knows no zstd in
zip files, so that the place of such a member is taken from it and the bytes are unpacked here.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import Any, BinaryIO, Final

from calipers.errors import InputError
from calipers.readers.files import FREE_UNPACKED, MOST_RATIO
from calipers.tasks.packed import read_up_to

MAGIC: Final = b"PK\x03\x04"
LARGEST_MEMBER: Final = 1 << 30
MOST_MEMBERS: Final = 5_000_000
ZSTD: Final = 93
_LOCAL: Final = struct.Struct("<26xHH")  # of a member's own header: how long its name is, and its extra field
_PIECE: Final = 1 << 20


class Archive:
    """The members of a zip file by name; of two with one name, the one written last."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            right = "expected an archive that inspect finished writing"
            raise InputError.at(path, f"is no whole zip archive ({error})", right) from None
        except OSError as error:
            raise InputError.at(path, f"cannot be read ({error.strerror})") from None
        self.members = {info.filename: info for info in self._zip.infolist()}
        self._raw: BinaryIO | None = None
        packed = sum(info.compress_size for info in self.members.values())
        self._left = max(FREE_UNPACKED, MOST_RATIO * packed)
        if len(self._zip.infolist()) > MOST_MEMBERS:
            raise InputError.at(path, f"holds more than {MOST_MEMBERS:,} members", "expected a log, not a bomb")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        if self._raw is not None:
            self._raw.close()

    def read(self, name: str) -> bytes:
        """A member, unpacked; InputError where it is broken, or larger than a log has use for."""
        info = self.members[name]
        try:
            found = self._zstd(info) if info.compress_type == ZSTD else self._known(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError) as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be unpacked ({error})", "is it whole?") from None
        except OSError as error:
            raise InputError.at(f"{self.path}: {name}", f"cannot be read ({error.strerror})") from None
        self._left -= len(found)
        if self._left < 0:
            wrong = f"unpacks to more than {MOST_RATIO} times its size"
            raise InputError.at(self.path, wrong, "expected a log, not a bomb")
        return found

    def _known(self, info: zipfile.ZipInfo) -> bytes:
        with self._zip.open(info) as member:
            return self._bounded(member, info.filename)

    def _zstd(self, info: zipfile.ZipInfo) -> bytes:
        import zstandard

        if self._raw is None:
            self._raw = open(self.path, "rb")  # noqa: SIM115  closed with the archive
        self._raw.seek(info.header_offset)
        head = self._raw.read(30)
        if not head.startswith(MAGIC):
            raise zipfile.BadZipFile("no member begins where one should")
        self._raw.seek(sum(_LOCAL.unpack(head)), 1)
        packed = read_up_to(self._raw, info.compress_size)  # it may say more than there is
        if len(packed) < info.compress_size:
            raise EOFError("it is cut off")
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as member:
                found = self._bounded(member, info.filename)
        except zstandard.ZstdError as error:
            raise zipfile.BadZipFile(str(error)) from None
        if len(found) != info.file_size or zlib.crc32(found) != info.CRC:
            raise zipfile.BadZipFile("its checksum is wrong")
        return found

    def _bounded(self, member: Any, name: str) -> bytes:
        most = min(LARGEST_MEMBER, self._left)
        pieces, size = [], 0
        while piece := member.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                wrong = f"unpacks to more than {most >> 20} MiB"
                raise InputError.at(f"{self.path}: {name}", wrong, "expected a log, not a bomb")
        return b"".join(pieces)
