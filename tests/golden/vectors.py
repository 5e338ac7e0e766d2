"""Golden vectors as they lie on disk: which there are, what kind each is, and how close is equal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SYSTEMS = ("lm_eval", "nemo_gym", "harbor")
CLOSE = 1e-12
_CONSTANTS = {"__NaN__": math.nan, "__Infinity__": math.inf, "__-Infinity__": -math.inf}


@dataclass(frozen=True)
class Vector:
    """One recorded case of another system."""

    system: str
    name: str
    kind: str  # the adapter it needs
    quirk: bool
    content: dict[str, Any]


def nemo_gym(folder: Path) -> Iterator[Vector]:
    """Its vectors: a file each; ``mode`` is the kind."""
    named = folder / "meta" / "quirks.json"
    quirks = {entry["case"] for entry in json.loads(named.read_text())} if named.exists() else set()
    for path in sorted(folder.rglob("*.json")):
        if path == named:
            continue
        content = decoded(json.loads(path.read_text()))
        name = path.relative_to(folder).with_suffix("").as_posix()
        quirk = bool(content.get("quirk")) or name in quirks or path.stem in quirks
        yield Vector("nemo_gym", name, content.get("mode", "(no mode)"), quirk, content)


def decoded(value: Any) -> Any:
    """A vector with the words for NaN and infinity turned into those numbers."""
    if isinstance(value, dict):
        return {key: decoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decoded(inner) for inner in value]
    return _CONSTANTS.get(value, value) if isinstance(value, str) else value


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two values part: numbers beyond 1e-12, anything else at all.

    The order of keys counts, but in a rollout's own entry: there NeMo Gym follows each row's, we the first's.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        order = sorted if "/rollout_infos[" in where else list
        if order(found) != order(expected):
            return [f"{where or 'top'}: keys {list(found)}, expected {list(expected)}"]
        return [line for key in expected for line in differences(found[key], expected[key], f"{where}/{key}")]
    if isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return [f"{where}: {len(found)} entries, expected {len(expected)}"]
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{where}[{n}]")]
    return [] if _equal(found, expected) else [f"{where}: {found!r}, expected {expected!r}"]


def _equal(found: Any, expected: Any) -> bool:
    numbers = (int, float)
    if isinstance(found, numbers) and isinstance(expected, numbers):
        if math.isnan(found) or math.isnan(expected):
            return math.isnan(found) and math.isnan(expected)
        return found == expected or math.isclose(found, expected, rel_tol=CLOSE, abs_tol=CLOSE)
    return type(found) is type(expected) and found == expected
