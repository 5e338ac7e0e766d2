"""Objects of S3, Google Cloud Storage, Hugging Face and web servers, through fsspec; imported for the first address.

A copy is kept in a private folder under the object's own name until the process ends. The copy of a Parquet object has
the object's size, but only its footer, from which the schema and counts are read; polars reads the needed columns from
the store in ranges, directly from S3 and through `RangeServer` from all other stores.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import re
import secrets
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from calipers.errors import CalipersError, InputError, display, show_as
from calipers.stores import WRITABLE, shown

if TYPE_CHECKING:
    import polars as pl

TRIES: Final = 5
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0  # seconds between two tries
FOOTER: Final = 64 << 10  # bytes at the end of a Parquet object that are read first; most footers are shorter
MAGIC: Final = b"PAR1"
MOST_OBJECTS: Final = 10_000  # objects in a folder
NEEDS: Final = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub"}  # packages needed beside fsspec
SECRETS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "GOOGLE_API_KEY",
)
# errors that are not retried; fsspec raises NotImplementedError for an operation that a store does not support
FATAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)

T = TypeVar("T")
Read = Callable[[int, int], bytes]
"""A function of a start and an end that returns these bytes of an object."""

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True, slots=True)
class RangedObject:
    """A Parquet object that is read in ranges: its address for polars, and its ETag (a mark of its content)."""

    address: str
    tag: str
    options: Mapping[str, str]  # storage options for polars


_copies: dict[str, str] = {}  # address, as given and as shown -> path of its copy
_ranged: dict[str, RangedObject] = {}  # path of a copy -> its object
_root: list[str] = []  # the folder of all copies, once it is made
_server: list[Any] = []  # the server of ranges, once it is started


def fetched(address: str) -> str:
    """The local copy of an object, or of a folder of objects (an address that ends with a slash)."""
    if address not in _copies:
        store = _filesystem(address)
        path = first = _copy_path(address)
        number = 1
        while path in _copies.values():  # used by another address that is shown alike, as only their queries differ
            number += 1
            path = f"{first} ({number})"
        if address.endswith("/"):
            _fetch_folder(store, address, path)
        else:
            _fetch_object(store, address, path)
        _copies[address] = _copies[display(path)] = path  # results have the shown address, by which it is read again
    return _copies[address]


def ranged(path: str) -> RangedObject | None:
    """The object whose footer-only copy a path is; None for any other path."""
    return _ranged.get(path) if _ranged else None


def scan(path: str) -> pl.LazyFrame:
    """The table of a ranged object, from which polars fetches only the needed columns."""
    import polars as pl

    remote = _ranged[path]
    options = {**remote.options, "max_retries": TRIES}
    return pl.scan_parquet(remote.address, glob=False, hive_partitioning=False, storage_options=options)


@contextmanager
def written(address: str, *, force: bool) -> Iterator[str]:
    """The path of a local file to write, which is uploaded as the object at the end."""
    store = _filesystem(address)
    if not force and _tried(address, lambda: store.exists(_name(address))):
        raise InputError.at(shown(address), "already exists", "--force replaces it")
    path = _copy_path(address)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(path)
    yield path
    _tried(address, lambda: store.put_file(path, _name(address)), "written")


def _filesystem(address: str) -> Any:
    """The fsspec file system of a store; InputError if a package is missing or the store cannot be reached."""
    scheme = urlsplit(address).scheme
    for name in SECRETS:
        show_as(os.environ.get(name, "").strip(), "[secret]")
    try:
        fsspec = import_module("fsspec")
        if scheme == "gs":
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it would also print its errors, with a traceback
            if os.environ.get("STORAGE_EMULATOR_HOST"):  # an emulator has no gRPC; gcsfs would retry for a minute
                os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        if scheme in NEEDS:
            import_module(NEEDS[scheme])
        return fsspec.filesystem(
            scheme, skip_instance_cache=True, **({} if scheme == "hf" else {"use_listings_cache": False})
        )
    except ImportError as error:
        problem = f"{scheme}:// needs a package that is not installed ({error.name})"
        raise InputError.at(shown(address), problem, "install calipers[stores]") from None
    except Exception as error:  # any error of the store's own library, such as for unreadable credentials
        raise InputError.at(shown(address), f"the store cannot be reached ({_reason(error)})") from None


def _fetch_object(store: Any, address: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    info = _tried(address, lambda: store.info(_name(address)))
    if info.get("type") == "directory":
        raise InputError.at(shown(address), "is a folder", f"write it with a slash at the end: {shown(address)}/")
    size = info.get("size")
    tag = str(info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("blob_id") or "").strip('"')
    if size and tag and _is_parquet(store, address, size):
        _fetch_footer(store, address, path, size)
        _ranged[path] = _ranged_object(store, address, size, tag)
        return

    def fetch() -> None:
        store.get_file(_name(address), path)
        if size is not None and os.path.getsize(path) != size:
            raise OSError(f"{os.path.getsize(path)} of {size} bytes came")

    _tried(address, fetch)


def _ranged_object(store: Any, address: str, size: int, tag: str) -> RangedObject:
    if urlsplit(address).scheme == "s3":
        return RangedObject(address, tag, _options(store))

    def read(start: int, end: int) -> bytes:
        data: bytes = _tried(address, lambda: _part(store, address, start, end))
        if len(data) != end - start:
            raise InputError.at(shown(address), f"{len(data)} of {end - start} bytes came", "has the object changed?")
        return data

    if not _server:
        _server.append(RangeServer())
    bridge: str = _server[0].address(os.path.basename(shown(address)), size, read)
    show_as(bridge, shown(address))
    return RangedObject(bridge, tag, {"allow_http": "true", "proxy_excludes": "127.0.0.1"})


def _part(store: Any, address: str, start: int, end: int) -> bytes:
    """A range of bytes of an object, read without any read-ahead."""
    data: bytes
    if urlsplit(address).scheme != "hf":
        data = store.cat_file(_name(address), start=start, end=end)
    else:
        with store.open(_name(address), "rb", cache_type="none") as file:  # a cache would read megabytes ahead
            file.seek(start)
            data = file.read(end - start)
    return data


def _is_parquet(store: Any, address: str, size: int) -> bool:
    if size < 12 or not address.partition("?")[0].endswith((".parquet", ".pq")):
        return False
    return bool(_tried(address, lambda: _part(store, address, 0, 4)) == MAGIC)


def _fetch_footer(store: Any, address: str, path: str, size: int) -> None:
    """Write a sparse file of the object's size with only its magic bytes and its footer."""
    start = max(size - FOOTER, 0)
    end: bytes = _tried(address, lambda: _part(store, address, start, size))
    length = struct.unpack("<I", end[-8:-4])[0] + 8
    if end[-4:] != MAGIC or length > size:
        raise InputError.at(shown(address), "cannot be read as Parquet", "is it complete?")
    if length > len(end):
        start = size - length
        end = _tried(address, lambda: _part(store, address, start, size))
    with open(path, "wb") as file:
        file.write(MAGIC)
        file.truncate(size)
        file.seek(start)
        file.write(end)


def _fetch_folder(store: Any, address: str, path: str) -> None:
    base = _name(address).rstrip("/") + "/"
    listed = _tried(address, lambda: store.find(base.rstrip("/") if urlsplit(address).scheme in WRITABLE else base))
    names = [name for name in listed if not name.endswith("/")]
    if not names:
        raise InputError.at(shown(address), "no such folder", "expected the address of a folder with files")
    if len(names) > MOST_OBJECTS:
        raise InputError.at(shown(address), f"has more than {MOST_OBJECTS:,} files", "expected the folder of one run")
    stem = base if names[0].startswith(base) else base.partition("://")[2]
    for name in names:
        inside = os.path.normpath(name[len(stem) :])
        if not name.startswith(stem) or inside.startswith(("..", "/")):
            raise InputError.at(shown(address), f"has an object {name!r}", "expected objects below it")
        _fetch_object(store, address + inside, os.path.join(path, inside))
        _copies[shown(address + inside)] = os.path.join(path, inside)


def _name(address: str) -> str:
    """The name of an object for fsspec: the full address for a web server, else bucket and key."""
    return address if address.startswith("http") else address.partition("://")[2]


def _copy_path(address: str) -> str:
    """The path of the copy of an address; messages with this path show the address instead."""
    if not _root:
        _root.append(tempfile.mkdtemp(prefix="calipers-"))
        atexit.register(_remove, _root[0], os.getpid())
    plain = shown(address)
    scheme, _, name = plain.partition("://")
    folder = os.path.join(_root[0], scheme)
    show_as(folder + os.sep, f"{scheme}://")
    path = os.path.normpath(os.path.join(folder, name))
    if not path.startswith(folder + os.sep):
        raise InputError.at(plain, "leads out of its store", "expected a path without ..")
    return path


def _remove(root: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of the owner
        shutil.rmtree(root, ignore_errors=True)


def _options(store: Any) -> dict[str, str]:
    """The options for polars to read S3 as fsspec does: the same keys, region and endpoint."""
    client = store.s3  # already connected by earlier requests
    options = {"aws_endpoint_url": client.meta.endpoint_url, "aws_region": client.meta.region_name or "us-east-1"}
    if options["aws_endpoint_url"].startswith("http://"):
        options["aws_allow_http"] = "true"
    credentials = store.s3._request_signer._credentials
    if credentials is None:  # anonymous access
        return {**options, "aws_skip_signature": "true"}
    keys = import_module("fsspec.asyn").sync(store.loop, credentials.get_frozen_credentials)
    options |= {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
    for key in (keys.access_key, keys.secret_key, keys.token):
        show_as(key or "", "[secret]")
    return options | ({"aws_session_token": keys.token} if keys.token else {})


def _tried(address: str, work: Callable[[], T], what: str = "read") -> T:
    """Call a store, with retries; InputError if all of them fail, or the error is final."""
    for tried in range(TRIES):
        try:
            return work()
        except CalipersError:
            raise
        except Exception as raised:
            error = _cause(address, raised)
            if isinstance(error, FileNotFoundError):
                raise InputError.at(shown(address), "no such object", "expected the address of a file") from None
            if isinstance(error, FATAL) or tried == TRIES - 1 or _is_final(error):
                problem = f"cannot be {what} ({_reason(error)})"
                raise InputError.at(shown(address), problem, "check the address and your credentials") from None
            time.sleep(random.uniform(0.5, 1) * min(LONGEST_WAIT, FIRST_WAIT * 2**tried))
    raise AssertionError("the last try returns or raises")


def _cause(address: str, error: Exception) -> Exception:
    """The cause of an error; for web servers, fsspec raises FileNotFoundError whenever a request fails."""
    cause = error.__cause__
    if not address.startswith("http") or not isinstance(error, FileNotFoundError) or not isinstance(cause, Exception):
        return error
    return error if _status(cause) in (404, 410) else cause


def _status(error: Exception) -> object:
    return getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)


def _is_final(error: Exception) -> bool:
    """Whether a retry would be useless, because the store refused the request or it cannot be sent."""
    status = _status(error)
    name = type(error).__name__
    return (isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)) or name in (
        "ClientConnectorCertificateError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ParamValidationError",
        "ValueError",
        "RepositoryNotFoundError",
        "GatedRepoError",
    )


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


class RangeServer(ThreadingHTTPServer):
    """A local HTTP server through which polars reads ranges of objects from stores that it does not support.

    ::

        polars ──► GET, Range: bytes=100-199 ──► RangeServer ──► read(100, 200) ──► fsspec ──► the store

    So every byte of an object is read with the same address, credentials, certificates and retries. The server listens
    on a port of the loopback interface, and the path of an object contains a random token.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, tuple[int, Read]] = {}  # path -> size, and the function that reads a range
        threading.Thread(target=self.serve_forever, name="ranges", daemon=True).start()

    def address(self, name: str, size: int, read: Read) -> str:
        """Serve an object until this process ends; returns its address."""
        path = f"/{secrets.token_hex(16)}/{re.sub('[^A-Za-z0-9._-]', '_', name)}"
        self.objects[path] = size, read
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Answers(BaseHTTPRequestHandler):
    server: RangeServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer with the size of an object."""
        size, _ = self.server.objects.get(self.path, (None, None))
        self._begin(404 if size is None else 200, size or 0)

    def do_GET(self) -> None:
        """Send a range of an object, or all of it."""
        size, read = self.server.objects.get(self.path, (0, None))
        if read is None:
            self._begin(404, 0)
            return
        start, end = _bounds(self.headers.get("Range", ""), size)
        if start >= end:
            self._begin(416, 0)
            return
        try:
            data = read(start, end)
        except Exception:  # `read` has already retried
            self._begin(403, 0)
            return
        self._begin(206, len(data), f"bytes {start}-{end - 1}/{size}")
        with suppress(ConnectionError):  # the client has closed the connection
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _begin(self, status: int, length: int, part: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()


def _bounds(text: str, size: int) -> tuple[int, int]:
    """The start and the (exclusive) end of the range in a Range header, for an object of this size.

    >>> _bounds("bytes=0-3", 10), _bounds("bytes=7-", 10), _bounds("bytes=-3", 10), _bounds("", 10)
    ((0, 4), (7, 10), (7, 10), (0, 10))
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None or match[0] == "bytes=-":
        return 0, size
    if not match[1]:
        return max(size - int(match[2]), 0), size
    return int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
