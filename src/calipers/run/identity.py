"""Which run a run is: its fingerprint, the name of its directory, and what tells two of them apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

LONGEST_NAME = 60  # characters of a benchmark or a model in the name of a directory
LONGEST_VALUE = 60  # characters of a value in an error
MOST_DIFFERENCES = 12
ABSENT = object()


def fingerprint(identity: Mapping[str, Any]) -> str:
    """The SHA-256 of an identity as canonical JSON: sorted keys, no spaces.

    >>> fingerprint({"model": "m", "limit": 1}) == fingerprint({"limit": 1, "model": "m"})
    True
    """
    return sha256(_canonical(identity).encode()).hexdigest()


def folder_name(benchmark: str, model: str, identity: Mapping[str, Any]) -> str:
    """The name of a run's directory, ``<benchmark>-<model>-<8 hex>``; a plain name, never a path.

    >>> folder_name("arith", "openai/gpt 4", {})
    'arith-openai_gpt_4-44136fa3'
    """
    return f"{_plain(benchmark)}-{_plain(model)}-{fingerprint(identity)[:8]}"


def differences(here: Any, asked: Any, path: str = "", place: str = "here") -> Iterator[str]:
    """What differs between two identities, key by key: ``sampling.temperature: 0 here, 1 asked``.

    Values are compared as JSON, so that 1, 1.0 and true are three.
    """
    if isinstance(here, Mapping) and isinstance(asked, Mapping):
        for key in [*here, *(key for key in asked if key not in here)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(here.get(key, ABSENT), asked.get(key, ABSENT), inner, place)
    elif here is ABSENT or asked is ABSENT or _canonical(here) != _canonical(asked):
        first, second = _shown(here, asked), _shown(asked, here)
        yield f"{path}: {first} {place}, {second} asked"


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _plain(text: str) -> str:
    text = re.sub(r"[^A-Za-z0-9._-]|\.{2,}", "_", text)[:LONGEST_NAME]
    return re.sub(r"^[.-]", "_", text) or "_"


def _shown(value: Any, other: Any) -> str:
    """A value in few characters: the start of a hash; of a long text, where it parts from the other."""
    if value is ABSENT:
        return "nothing"
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(text)
    if re.fullmatch(r"(sha256:)?[0-9a-f]{32,}", text):
        return f"{text.removeprefix('sha256:')[:12]}..."
    if len(text) <= LONGEST_VALUE:
        return text
    rival = other if isinstance(other, str) else "" if other is ABSENT else json.dumps(other, ensure_ascii=False)
    same = next((i for i, (a, b) in enumerate(zip(text, rival, strict=False)) if a != b), min(len(text), len(rival)))
    start = max(0, min(same - 10, len(text) - LONGEST_VALUE))
    end = start + LONGEST_VALUE
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
