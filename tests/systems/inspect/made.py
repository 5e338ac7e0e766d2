"""Makers of inspect's logs, in the deflated form of older versions, also of damaged ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

LOGS = Path(__file__).parent / "logs"  # written by inspect itself, by make.py in that folder


def header(samples: list[str] | int, epochs: int = 1, **more: Any) -> dict[str, Any]:
    """A log without its samples; ``samples`` are their ids, or their number for a log without ids."""
    ids = None if isinstance(samples, int) else samples
    dataset = {"name": "d", "samples": samples if ids is None else len(ids), "sample_ids": ids}
    spec = {"task": "sums", "model": "m/one", "dataset": dataset, "config": {"epochs": epochs}}
    return {"version": 2, "status": "success", "eval": spec, **more}


def sample(name: str | int, value: Any = None, epoch: int = 1, scorer: str = "match", **more: Any) -> dict[str, Any]:
    """One epoch of a sample, without scores if there is no value."""
    scores = {} if value is None else {scorer: {"value": value}}
    return {"id": name, "epoch": epoch, "input": "?", "target": "", "scores": scores, **more}


def archive(folder: Path, head: dict[str, Any] | None, *samples: dict[str, Any], name: str = "log.eval") -> str:
    """Write an archive into a folder and return its path. Without a header, it is one that was cut off."""
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        if head is not None:
            start = {key: head[key] for key in ("version", "eval")}
            made.writestr("_journal/start.json", json.dumps(start))
            made.writestr("header.json", json.dumps(head))
        for one in samples:
            made.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
    return str(path)


def whole(folder: Path, head: dict[str, Any], *samples: dict[str, Any], name: str = "log.json") -> str:
    """The same log as one JSON file."""
    path = folder / name
    path.write_text(json.dumps({**head, "samples": list(samples)}))
    return str(path)
