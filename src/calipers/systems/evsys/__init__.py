"""EvSys: its prediction rows."""

from __future__ import annotations

from calipers.readers import evsys, native_texts
from calipers.readers.format import Format

PREDICTIONS = Format(
    "evsys_predictions",
    evsys.read_predictions,
    recognise=lambda start: start.row is not None and not start.is_record and "task_id" in start.row,
    texts=lambda path, columns, wanted: native_texts.texts(
        "evsys_predictions", path, {**evsys.NAMES, **columns}, wanted
    ),
)
