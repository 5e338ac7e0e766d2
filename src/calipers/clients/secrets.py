"""Secrets, which `Secrets.scrub` removes from everything that is written or printed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[secret]"
SHORTEST = 6  # characters of a key; shorter texts are not keys, and replacing them would damage ordinary words

_NAMES = re.compile(
    r"api[-_]?key|authorization|password|secret|credential|(access|api|auth|session)[-_]?token", re.IGNORECASE
)
# the values of other variables, such as passwords, may be words
_KEYS = re.compile(r"(^|_)(API_KEY|ACCESS_KEY|SECRET_KEY|TOKEN|SECRET)$")
_LIKE_KEYS = re.compile(r"(KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(_ID)?$", re.IGNORECASE)
_USER_IN_URL = re.compile(r"://[^/@\s]+@")


class Secrets:
    """The values that must not appear in any log, error, plan or report."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, value: str | None) -> None:
        """Add a key, also in the forms that it may have inside a JSON string."""
        value = value or ""
        for form in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
            if len(form) >= SHORTEST and form not in self._texts:
                self._texts.append(form)
                self._texts.sort(key=len, reverse=True)  # a key that contains another one is replaced first

    def add_environment(self) -> None:
        """Add every key in the environment, because user code may use and print any of them."""
        for variable, value in os.environ.items():
            if _KEYS.search(variable):
                self.add(value.strip())

    def add_named(self, settings: Mapping[str, Any]) -> None:
        """Add the settings whose names say that they are keys, such as ``api_key`` or an ``Authorization`` header."""
        for name, value in settings.items():
            if isinstance(value, Mapping):
                self.add_named(value)
            elif isinstance(value, str) and _NAMES.search(str(name)):
                self.add(value)
                self.add(value.rpartition(" ")[2])  # the key after "Bearer"

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
        for value in self._texts:
            # an environment variable that is not UTF-8 has lone surrogates, which strict UTF-8 cannot encode
            data = data.replace(value.encode("utf-8", "surrogatepass"), HIDDEN.encode())
        return data


def key_like(environment: Mapping[str, str]) -> Secrets:
    """The values of all variables whose names say that they are keys, tokens or passwords."""
    secrets = Secrets()
    for name, value in environment.items():
        if _LIKE_KEYS.search(name):
            secrets.add(value.strip())
    return secrets


def environment_without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for another program: without keys, and without URLs that have a user or a password.

    A variable is left out if its name is that of a key, or if its value contains the value of such a variable.

    >>> kept = environment_without_keys({"LANG": "C.UTF-8", "X_API_KEY": "sk-12345", "HEADER": "Bearer sk-12345"})
    >>> kept, environment_without_keys({"PROXY": "http://me:word@host"})
    ({'LANG': 'C.UTF-8'}, {})
    """
    secrets = key_like(environment)
    return {
        name: value
        for name, value in environment.items()
        if not _LIKE_KEYS.search(name) and not _USER_IN_URL.search(value) and secrets.scrub(value) == value
    }
