"""A document as JSON: all of its data."""

from __future__ import annotations

from calipers.reports.document import Document
from calipers.reports.page import encoded
from calipers.reports.untrusted_text import safe_json


def render(document: Document) -> str:
    """The data as JSON that is safe to print: harmful characters are escaped."""
    return safe_json(encoded(document.data()))
