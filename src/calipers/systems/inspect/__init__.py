"""inspect's logs: ``.eval`` archives, and ``.json`` in one piece."""

from __future__ import annotations

from calipers.readers import inspect, inspect_texts
from calipers.readers.format import Format

LOG = Format(
    "inspect",
    inspect.read,
    recognise=lambda start: inspect.is_archive(start.head) or inspect.is_log(start.head),
    texts=lambda path, columns, wanted: inspect_texts.texts(path),
)
