"""The address, API key and proxy of an OpenAI-compatible server; and the endpoint of a model.

The endpoint identifies the source of a model's answers: the address of its server, or the hash of the file that
answers in this process. Two servers may serve two checkpoints under one name, and a file may change under one path, so
the endpoint is part of a run's identity and of every line of its log.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_plus, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from calipers.clients import Connection
from calipers.clients.huggingface import LoadOptions
from calipers.clients.secrets import Secrets
from calipers.errors import InputError

OFFICIAL = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
ROUTES = {"chat": "/chat/completions", "completions": "/completions"}

_EXPECTED = "expected http(s)://HOST/PATH, such as http://localhost:8000/v1"
_KEY_NAMES = re.compile(r"key|token|secret|sig|passw|passphrase|credential|auth|bearer|jwt|^code$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """Everything a request needs besides its body. Fields that may contain a key are not in the repr."""

    url: str = field(repr=False)
    shown: str  # host and port
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)
    exposed: bool  # a key is sent over the network unencrypted


def find(connection: Connection) -> Address:
    """The address for a connection: from its base URL, else from ``$OPENAI_BASE_URL``, else the official server.

    Every key that will be sent is added to the connection's secrets.
    """
    parts = _resolved(connection.base_url)
    route = ROUTES[connection.api]
    path = parts.path.rstrip("/").removesuffix(route)  # users of lm-eval give the URL with its route
    headers = _headers(parts, connection.secrets)
    remember_keys(parts.geturl(), connection.secrets)
    return Address(
        parts._replace(path=path + route).geturl(),
        parts.netloc,
        headers,
        proxy_of(parts, connection.secrets),
        "Authorization" in headers and parts.scheme == "http" and not is_loopback(parts.hostname or ""),
    )


def called(base_url: str | None) -> str:
    """The base URL of a connection for the records of a run: resolved, normalised, without keys."""
    return without_keys(_resolved(base_url).geturl())


def without_keys(url: str) -> str:
    """A normalised base URL: without user, password, keys, route, or default port.

    >>> without_keys("HTTP://me:secret@Host:80/v1/chat/completions?api-version=2&api-key=sk-1")
    'http://host/v1?api-version=2'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError.at("--base-url", "cannot parse the host or port of the URL", _EXPECTED) from None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    if port not in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        host = f"{host}:{port}"
    path = parts.path.rstrip("/")
    for route in ROUTES.values():
        path = path.removesuffix(route)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _KEY_NAMES.search(pair[0])]
    return parts._replace(netloc=host, path=path.rstrip("/"), query=urlencode(kept), fragment="").geturl()


def is_loopback(host: str) -> bool:
    """Whether a host name or IP address is this machine; nothing is resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _resolved(base_url: str | None) -> SplitResult:
    """The parts of the base URL to use; InputError, which never shows a password, if it cannot be used."""
    origin = "--base-url" if base_url else f"${BASE_URL}"
    base = base_url or os.environ.get(BASE_URL) or OFFICIAL
    parts = url_parts(base, origin, _EXPECTED, f"put the key in ${KEY} instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.fragment:
        shown = "the URL" if "@" in base or "?" in base else repr(base)  # it may have a password or a key
        raise InputError.at(origin, f"{shown} is not a server address", _EXPECTED)
    return parts


def url_parts(url: str, origin: str, expected: str, without_password: str) -> SplitResult:
    """The parts of a URL; InputError, which never shows a password, if it is invalid or has a user or a password.

    ``expected`` is the advice for an invalid URL, ``without_password`` that for one with a password.
    """
    if not url.isprintable() or " " in url:
        raise InputError.at(origin, "the URL contains spaces or control characters", expected)
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:  # includes UnicodeError
        raise InputError.at(origin, "cannot parse the host or port of the URL", expected) from None
    if parts.username is not None or parts.password is not None:
        raise InputError.at(origin, "the URL contains a user name or a password", without_password)
    return parts


def _headers(parts: SplitResult, secrets: Secrets) -> dict[str, str]:
    key = os.environ.get(KEY, "").strip()
    if not key and parts.hostname == urlsplit(OFFICIAL).hostname:
        raise InputError(f"${KEY} is not set; set it, or name another server with --base-url")
    secrets.add(key)
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"${KEY} contains characters that cannot be sent; expected printable ASCII")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def remember_keys(url: str, secrets: Secrets) -> None:
    """Add a URL's password, and the keys in its query, to the secrets: as given, decoded, and encoded again."""
    with suppress(ValueError):  # not a URL
        parts = urlsplit(url)
        pairs = [pair.partition("=") for pair in parts.query.split("&")]
        keys = [value for name, _, value in pairs if _KEY_NAMES.search(unquote_plus(name))]
        for value in (parts.password or parts.username or "", *keys):  # without a password, the user is the key
            for form in (value, unquote_plus(value), quote(unquote_plus(value), safe="")):
                secrets.add(form)


def proxy_of(parts: SplitResult, secrets: Secrets) -> str | None:
    """The proxy for a server, from the environment; None for this machine.

    aiohttp could read the environment itself, but it would do so in a thread for every call, and would add the
    credentials of ``~/.netrc``.
    """
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    try:
        parsed = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        (parsed.hostname or "").encode("idna")
        usable = parsed.scheme in ("http", "https") and bool(parsed.hostname) and parsed.port != 0
    except ValueError:
        usable = False
    if not usable:
        problem = "the proxy set in the environment is not usable"
        raise InputError.at(f"${parts.scheme}_proxy", problem, "expected http://HOST:PORT")
    secrets.add(parsed.password)
    secrets.add(unquote(parsed.password or ""))
    return parsed.geturl()


_AT_ONCE = 4  # files of a checkpoint that are hashed concurrently
_BLOB: Final = re.compile(r"[0-9a-f]{64}")  # the hub's cache names large files by their SHA-256
_UNREAD: Final = re.compile(
    r"\..*|.*\.(md|msgpack|h5|onnx|gguf|py)|(optimizer|scheduler|scaler|rng_state|trainer_state|training_args).*",
    re.IGNORECASE,
)
"""Files of a checkpoint that are not loaded for inference: the state of the training, and files of other programs."""


def endpoint(model: str, base_url: str | None, model_args: Mapping[str, Any] | None = None) -> str | None:
    """The base URL of a served model, without keys; ``sha256:...`` for a file, a module or a checkpoint.

    None if it is unknown: for a module without a file, and for a plugin's model without a URL. URLs from ``base_url``
    and from the environment are normalised, so that a server has the same endpoint however it was named.
    """
    kind, _, name = model.strip().partition("/")
    if kind == "openai":
        return called(base_url)
    if kind == "litellm":
        return _by_litellm(name, base_url)
    if kind == "replay":
        return f"sha256:{file_sha256(Path(name))}"
    if kind == "python":
        source = source_file(name)
        return None if source is None else f"sha256:{file_sha256(source)}"
    if kind == "hf":
        return f"sha256:{_loaded_sha256(name, model_args or {})}"
    return without_keys(base_url) if base_url else None


def is_moved(model: str) -> bool:
    """Whether the environment determines the server of a model."""
    kind, _, name = model.strip().partition("/")
    if kind == "openai":
        return bool(os.environ.get(BASE_URL))
    return kind == "litellm" and "://" in _by_litellm(name, None)


def source_file(name: str) -> Path | None:
    """The file of ``FILE.py:OBJECT`` or ``MODULE:OBJECT``; None for a module without a file, such as a built-in."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        return Path(module)
    file = getattr(sys.modules.get(module), "__file__", None)  # the model's client has imported it
    return Path(file) if file and Path(file).is_file() else None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, cached as long as the file does not change; InputError if it cannot be read."""
    try:
        state = path.stat()
        return _sha256(str(path.absolute()), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def checkpoint_sha256(folder: Path, code: bool = False) -> str:
    """The SHA-256 of a checkpoint: a hash of the names, sizes and SHA-256 of the files that a model is loaded from.

    With ``code``, that includes Python files, which are run. The weights are read completely: their index would be
    faster, but it is the same for all checkpoints of a training run.
    """
    files = sorted({*_read_by_loading(folder), *(folder.glob("*.py") if code else ())})
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        digests = list(threads.map(_blob_sha256, files))
    hasher = sha256()
    for file, digest in zip(files, digests, strict=True):
        hasher.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0{digest}\n".encode())
    return hasher.hexdigest()


@cache
def _sha256(path: str, *_: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _blob_sha256(file: Path) -> str:
    """The SHA-256 of a file; in the hub's cache, it is the name of the file that a link points to."""
    blob = file.resolve()
    return (
        blob.name
        if file.is_symlink() and blob.parent.name == "blobs" and _BLOB.fullmatch(blob.name)
        else file_sha256(blob)
    )


def _read_by_loading(folder: Path) -> Iterable[Path]:
    for directory in (folder, folder / "additional_chat_templates"):
        if directory.is_dir():
            yield from (file for file in directory.iterdir() if file.is_file() and not _UNREAD.fullmatch(file.name))


def _loaded_sha256(name: str, model_args: Mapping[str, Any]) -> str:
    """The SHA-256 of a checkpoint, together with those of the tokenizer and the adapter that are loaded with it."""
    options = LoadOptions.of(model_args)
    digests = [checkpoint_sha256(folder, options.trust_remote_code) for folder in options.folders(name)]
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()


def _by_litellm(name: str, base_url: str | None) -> str:
    """The base URL that litellm uses, if it is known; else the name of the provider."""
    if base_url:
        return without_keys(base_url)
    package: Any = importlib.import_module("litellm")  # the model's client has loaded it
    _, provider, _, base = package.get_llm_provider(model=name)
    named = (f"{str(provider).upper()}_{end}" for end in ("API_BASE", "BASE_URL"))
    base = base or next((os.environ[variable] for variable in named if os.environ.get(variable)), None)
    return without_keys(str(base)) if base else str(provider)
