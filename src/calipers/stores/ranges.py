"""Ranges of objects for polars, which cannot ask every store: a server on the loopback asks the store's library.

::

    polars ──► GET, Range: bytes=100-199 ──► RangeServer ──► read(100, 200) ──► fsspec ──► the store

So there is one way to a store: the same address, credentials, certificates and retries for every byte of an object.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

Read = Callable[[int, int], bytes]
"""Bytes of an object, from one place up to another."""

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")


class RangeServer(ThreadingHTTPServer):
    """Answers on a port of the loopback, and only to who knows the name that an object was given."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, tuple[int, Read]] = {}  # path -> size, and how to read
        threading.Thread(target=self.serve_forever, name="ranges", daemon=True).start()

    def address(self, name: str, size: int, read: Read) -> str:
        """The address of an object for as long as this process lives."""
        path = f"/{secrets.token_hex(16)}/{re.sub('[^A-Za-z0-9._-]', '_', name)}"
        self.objects[path] = size, read
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Answers(BaseHTTPRequestHandler):
    server: RangeServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Say how large an object is."""
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
        except Exception:  # it was tried again and again
            self._begin(403, 0)
            return
        self._begin(206, len(data), f"bytes {start}-{end - 1}/{size}")
        with suppress(ConnectionError):  # nobody waits for it any more
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
    """Start and end of a range of so many bytes, the end excluded.

    >>> _bounds("bytes=0-3", 10), _bounds("bytes=7-", 10), _bounds("bytes=-3", 10), _bounds("", 10)
    ((0, 4), (7, 10), (7, 10), (0, 10))
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or found[0] == "bytes=-":
        return 0, size
    if not found[1]:
        return max(size - int(found[2]), 0), size
    return int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
