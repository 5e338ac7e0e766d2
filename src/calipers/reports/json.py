"""A document as JSON: all of its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from calipers.reports.document import Document
from calipers.reports.untrusted_text import safe_json


def render(document: Document) -> str:
    """The data as JSON that is safe to print: harmful characters in it are written as escapes."""
    return safe_json(encoded(document.data()))


def encoded(data: Mapping[str, Any]) -> str:
    """Strict indented JSON with a final newline."""
    try:
        plain = json.dumps(data, ensure_ascii=False, allow_nan=False)
        return msgspec.json.format(plain, indent=1) + "\n"  # the indentation of `json`, which is written in Python
    except UnicodeEncodeError:  # half of a character stands alone
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
