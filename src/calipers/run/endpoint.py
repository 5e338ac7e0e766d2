"""Where a model's answers come from: the address of its server, or the content of what answers in this process.

Two servers may serve two checkpoints under one name, and a file may change under one path: the endpoint is
what tells them apart, in a run's identity and in every line of its log.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.run.clients.address import BASE_URL, called, without_keys

_AT_ONCE = 4  # files of a checkpoint that are hashed at once
_BLOB: Final = re.compile(r"[0-9a-f]{64}")  # the hub's cache names large files by their SHA-256
_UNREAD: Final = re.compile(
    r"\..*|.*\.(md|msgpack|h5|onnx|gguf|py)|(optimizer|scheduler|scaler|rng_state|trainer_state|training_args).*",
    re.IGNORECASE,
)
"""Files beside a checkpoint from which no answer is made: what training goes on with, and what other programs load."""


def endpoint(model: str, base_url: str | None) -> str | None:
    """The base URL of a served model, without keys; ``sha256:...`` of a file, a module or a checkpoint.

    None where nobody knows: a model of a plugin that was given no URL. What is named by ``base_url`` or by the
    environment is resolved first, so that the same server has one endpoint however it was named.
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
        return f"sha256:{checkpoint_sha256(_checkpoint(name))}"
    return without_keys(base_url) if base_url else None


def is_moved(model: str) -> bool:
    """Whether the environment says where a model is served, rather than its kind."""
    kind, _, name = model.strip().partition("/")
    if kind == "openai":
        return bool(os.environ.get(BASE_URL))
    return kind == "litellm" and "://" in _by_litellm(name, None)


def source_file(name: str) -> Path | None:
    """The file of ``FILE.py:OBJECT`` or ``MODULE:OBJECT``; None for a module that has none, as one built in."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        return Path(module)
    file = getattr(sys.modules.get(module), "__file__", None)  # its client has imported it
    return Path(file) if file and Path(file).is_file() else None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read once as long as it does not change; InputError when it cannot be read."""
    try:
        state = path.stat()
        return _sha256(str(path.absolute()), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def checkpoint_sha256(folder: Path) -> str:
    """The SHA-256 of a checkpoint: names, sizes and SHA-256 of the files that a model is loaded from.

    The weights are read whole. Their index would be faster, but it is the same for every checkpoint of a training.
    """
    files = sorted(_read_by_loading(folder))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        digests = list(threads.map(_blob_sha256, files))
    whole = sha256()
    for file, digest in zip(files, digests, strict=True):
        whole.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0{digest}\n".encode())
    return whole.hexdigest()


@cache
def _sha256(path: str, *_: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _blob_sha256(file: Path) -> str:
    """The SHA-256 of a file; one in the hub's cache is called by it."""
    blob = file.resolve()
    return (
        blob.name
        if file.is_symlink() and blob.parent.name == "blobs" and _BLOB.fullmatch(blob.name)
        else file_sha256(blob)
    )


def _read_by_loading(folder: Path) -> Iterable[Path]:
    for place in (folder, folder / "additional_chat_templates"):
        if place.is_dir():
            yield from (file for file in place.iterdir() if file.is_file() and not _UNREAD.fullmatch(file.name))


def _checkpoint(name: str) -> Path:
    """The directory of a checkpoint: as it is named, or in the hub's local cache."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    from huggingface_hub import try_to_load_from_cache

    return Path(str(try_to_load_from_cache(name, "config.json"))).parent


def _by_litellm(name: str, base_url: str | None) -> str:
    """The address that litellm calls, as far as it says; else the name of the provider, at its own address."""
    if base_url:
        return without_keys(base_url)
    package: Any = importlib.import_module("litellm")  # loaded by its client
    _, provider, _, base = package.get_llm_provider(model=name)
    named = (f"{str(provider).upper()}_{end}" for end in ("API_BASE", "BASE_URL"))
    base = base or next((os.environ[variable] for variable in named if os.environ.get(variable)), None)
    return without_keys(str(base)) if base else str(provider)
