"""inspect's logs: ``.eval`` archives, and ``.json`` in one piece."""

from __future__ import annotations

from calipers.formats.format import Format
from calipers.systems.inspect import read

LOG = Format(
    "inspect",
    read.read,
    recognise=lambda start: read.is_archive(start.head) or read.is_log(start.head),
    texts=lambda path, columns, wanted: read.texts(path),
)
