"""Where an OpenAI-compatible server is, the key it is shown, and the proxy on the way."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from calipers.errors import InputError
from calipers.run.client import Connection
from calipers.run.secrets import Secrets

OFFICIAL = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
ROUTES = {"chat": "/chat/completions", "completions": "/completions"}

_RIGHT = "expected http(s)://HOST/PATH, such as http://localhost:8000/v1"
_KEY_NAMES = re.compile(r"key|token|secret|sig", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """All that a call needs besides its body. What may hold a key is not shown."""

    url: str = field(repr=False)
    shown: str  # host and port
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)
    exposed: bool  # a key goes over the network in plain text


def find(connection: Connection) -> Address:
    """The address of a connection: its base URL, else ``$OPENAI_BASE_URL``, else the official server.

    Every key that will be sent is added to the connection's secrets.
    """
    place = "--base-url" if connection.base_url else f"${BASE_URL}"
    base = connection.base_url or os.environ.get(BASE_URL) or OFFICIAL
    parts = _split(base, place)
    route = ROUTES[connection.api]
    path = parts.path.rstrip("/").removesuffix(route)  # lm-eval's users give the whole route
    headers = _headers(parts, connection.secrets)
    _remember_query(parts, connection.secrets)
    return Address(
        parts._replace(path=path + route).geturl(),
        parts.netloc,
        headers,
        _proxy(parts, connection.secrets),
        "Authorization" in headers and parts.scheme == "http" and not is_loopback(parts.hostname or ""),
    )


def called(base_url: str | None) -> str:
    """The base URL that a connection calls, as a run's records have it: resolved, in one spelling, without keys."""
    place = "--base-url" if base_url else f"${BASE_URL}"
    base = base_url or os.environ.get(BASE_URL) or OFFICIAL
    _split(base, place)
    return without_keys(base)


def without_keys(url: str) -> str:
    """A base URL in one spelling: no user, password or key in it, no route, no port that goes without saying.

    >>> without_keys("HTTP://me:secret@Host:80/v1/chat/completions?api-version=2&api-key=sk-1")
    'http://host/v1?api-version=2'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError.at("--base-url", "host or port of the URL cannot be read", _RIGHT) from None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    if port not in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        host = f"{host}:{port}"
    path = parts.path.rstrip("/")
    for route in ROUTES.values():
        path = path.removesuffix(route)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _KEY_NAMES.search(pair[0])]
    return parts._replace(netloc=host, path=path.rstrip("/"), query=urlencode(kept), fragment="").geturl()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(base: str, place: str) -> SplitResult:
    """The parts of a base URL; InputError, which never shows a password, for one that cannot be used."""
    if not base.isprintable() or " " in base:
        raise InputError.at(place, "the URL holds spaces or control characters", _RIGHT)
    try:
        parts = urlsplit(base)
        has_port = parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # of which UnicodeError is one
        raise InputError.at(place, "host or port of the URL cannot be read", _RIGHT) from None
    if parts.username is not None or parts.password is not None:
        raise InputError.at(place, "the URL holds a user name or a password", f"put the key into ${KEY} instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port or parts.fragment:
        raise InputError.at(place, f"{base!r} is no address of a server", _RIGHT)
    return parts


def _headers(parts: SplitResult, secrets: Secrets) -> dict[str, str]:
    key = os.environ.get(KEY, "").strip()
    if not key and parts.hostname == urlsplit(OFFICIAL).hostname:
        raise InputError(f"${KEY} is not set; set it, or name another server with --base-url")
    secrets.add(key)
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"${KEY} holds characters that cannot be sent; expected printable ASCII")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def _remember_query(parts: SplitResult, secrets: Secrets) -> None:
    """Gateways that want their key in the query: it is a secret like any other."""
    for name, value in parse_qsl(parts.query):
        if _KEY_NAMES.search(name):
            secrets.add(value)
            secrets.add(quote(value, safe=""))


def _proxy(parts: SplitResult, secrets: Secrets) -> str | None:
    """The proxy that the environment names for this server; never one for this machine itself.

    aiohttp could ask the environment itself, but then does so in a thread for every call, and adds
    what ``~/.netrc`` holds for the host.
    """
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    try:
        found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        (found.hostname or "").encode("idna")
        usable = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        usable = False
    if not usable:
        wrong = "the proxy in the environment cannot be used"
        raise InputError.at(f"${parts.scheme}_proxy", wrong, "expected http://HOST:PORT")
    secrets.add(found.password)
    secrets.add(unquote(found.password or ""))
    return found.geturl()
