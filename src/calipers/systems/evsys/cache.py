"""EvSys' cache of benchmarks it pulled: ``benchmarks/<id>.jsonl`` under ``$EVSYS_WORKSPACE``, else under ``.evsys``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from calipers.errors import InputError
from calipers.tasks.lines import opened

_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")  # leads nowhere but into the cache


class _Cached(msgspec.Struct):
    """``<id>.meta.json`` of EvSys' cache, as far as it matters here."""

    complete: bool = False
    n_rows: int | None = None
    format: str | None = None


def cached(id: str) -> Path | None:
    """The file of tasks that the cache has under an id; InputError for one that was not pulled to its end."""
    if not _ID.fullmatch(id):
        return None
    folder = Path(os.environ.get("EVSYS_WORKSPACE") or ".evsys") / "benchmarks"
    file, about = folder / f"{id}.jsonl", folder / f"{id}.meta.json"
    if not file.is_file():
        return None
    try:
        meta = msgspec.json.decode(about.read_bytes(), type=_Cached)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError.at(str(about), f"cannot be read ({reason})", "pull the benchmark again") from None
    with opened(file) as stream:
        rows = sum(1 for line in stream if line.strip())
    if not meta.complete or meta.n_rows not in (None, rows):
        wrong = f"it is incomplete: {rows} rows of {'an unknown number' if meta.n_rows is None else meta.n_rows}"
        raise InputError.at(str(file), wrong, "pull the benchmark again")
    if meta.format not in (None, "harbor_task"):
        raise InputError.at(str(about), f"its rows are {meta.format}", "expected harbor_task")
    return file
