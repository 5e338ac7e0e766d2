"""Secrets: everything that is written or printed goes through `Secrets.scrub` first."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[secret]"
SHORTEST = 6  # characters; anything shorter is no key, and would tear ordinary words apart

_NAMES = re.compile(r"api_?key|authorization|password|secret|access_?token", re.IGNORECASE)
_KEYS = re.compile(r"_(API_KEY|ACCESS_KEY|ACCESS_TOKEN|SESSION_TOKEN)$")


class Secrets:
    """The values that must not appear in any log, error, plan or report."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._bytes: list[bytes] = []

    def add(self, value: str | None) -> None:
        """Remember a key; also in the form it has inside a JSON string."""
        for form in {value or "", json.dumps(value or "")[1:-1]}:
            if len(form) >= SHORTEST and form not in self._texts:
                self._texts.append(form)
                self._texts.sort(key=len, reverse=True)  # a key that holds another one goes first
        self._bytes = [text.encode() for text in self._texts]

    def add_environment(self) -> None:
        """Remember every key in the environment, because user code may use and print any of them."""
        for variable, value in os.environ.items():
            if _KEYS.search(variable):
                self.add(value.strip())

    def add_named(self, settings: Mapping[str, Any]) -> None:
        """Remember the texts in some settings that are called keys: ``api_key``, or an ``Authorization`` of headers."""
        for name, value in settings.items():
            if isinstance(value, Mapping):
                self.add_named(value)
            elif isinstance(value, str) and _NAMES.search(str(name)):
                self.add(value)
                self.add(value.rpartition(" ")[2])  # what follows "Bearer"

    def scrub(self, text: str) -> str:
        """The text without the keys.

        >>> secrets = Secrets(); secrets.add("sk-12345678"); secrets.scrub("Bearer sk-12345678 refused")
        'Bearer [secret] refused'
        """
        for value in self._texts:
            text = text.replace(value, HIDDEN)
        return text

    def scrub_bytes(self, data: bytes) -> bytes:
        """The bytes without the keys."""
        for value in self._bytes:
            if value in data:
                data = data.replace(value, HIDDEN.encode())
        return data
