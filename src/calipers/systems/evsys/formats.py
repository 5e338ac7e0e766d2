"""EvSys: its prediction rows."""

from __future__ import annotations

from calipers.formats import native_texts
from calipers.formats.format import Format
from calipers.systems.evsys import read

PREDICTIONS = Format(
    "evsys_predictions",
    read.read_predictions,
    recognise=lambda start: start.row is not None and not start.is_record and "task_id" in start.row,
    texts=lambda path, columns, wanted: native_texts.texts(
        "evsys_predictions", path, {**read.NAMES, **columns}, wanted
    ),
)
