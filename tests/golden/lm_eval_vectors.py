"""lm-evaluation-harness' vectors as they lie on disk: lists of cases by kind, and whole runs in folders."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.vectors import Vector

_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def lm_eval(folder: Path) -> Iterator[Vector]:
    """Its vectors: a file a kind, a folder a whole run."""
    named = folder / "meta" / "quirks.json"
    quirks = {entry["case"] for entry in json.loads(named.read_text())} if named.exists() else set()
    for path in sorted(folder.glob("*.json")):
        for case in json.loads(path.read_text()):
            content = decoded(case)
            kind, name = content.get("kind", path.stem), f"{path.stem}/{content['name']}"
            expected = content.get("expected")
            if isinstance(expected, dict) and set(expected) == {"error"}:
                content["expected_error"] = expected["error"]
            yield Vector("lm_eval", name, kind, bool(content.get("quirk")) or name in quirks, content)
    for path in sorted(folder.glob("e2e/*/run.json")):
        yield Vector("lm_eval", f"e2e/{path.parent.name}", "e2e", False, {"folder": str(path.parent.resolve())})


def decoded(value: Any) -> Any:
    """A case with the words for NaN and infinity turned into those numbers."""
    if isinstance(value, dict):
        return {key: decoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decoded(inner) for inner in value]
    return _CONSTANTS.get(value, value) if isinstance(value, str) else value
