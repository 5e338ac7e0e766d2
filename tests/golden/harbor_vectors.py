"""Harbor's vectors as they lie on disk: a file each, the ``op`` of its input is the kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.vectors import Vector

ORDERED = ("order", "sorted")  # in the name of a case that is about the order of keys


def harbor(folder: Path) -> Iterator[Vector]:
    """Harbor's vectors; the folders beside them are jobs and datasets that some vectors use."""
    named = folder / "meta" / "quirks.json"
    quirks = {entry["case"] for entry in json.loads(named.read_text())} if named.exists() else set()
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        content["folder"] = str(folder.resolve())
        op, name = content["input"].get("op", "(no op)"), content.get("name", path.stem)
        expected = content.get("expected")
        if op != "reward_file" and isinstance(expected, dict) and set(expected) == {"error"}:
            content["expected_error"] = expected["error"]  # of a reward file the kind of error is the answer
        content["ordered"] = any(word in name for word in ORDERED)
        yield Vector("harbor", path.stem, op, bool(content.get("quirk")) or name in quirks, content)


def compared(adapter):
    """An adapter that compares two sides without the order of keys, unless the case is about that order."""

    def answer(vector):
        sides = adapter(vector)
        return sides if vector["ordered"] else tuple(map(unordered, sides))

    return answer


def unordered(value: Any) -> Any:
    """The same value with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: unordered(value[key]) for key in sorted(value)}
    return [unordered(one) for one in value] if isinstance(value, list) else value
