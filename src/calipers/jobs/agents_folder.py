"""Which folder a run of agents goes on in: two servers with one model name are two runs.

As of a model's run, the endpoint is part of the identity. The folder keeps its identity in a file, without keys. One of
an earlier version has none: it is found by its old name, and the jobs in it say which server they asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.errors import InputError
from calipers.run.clients.address import called, without_keys
from calipers.run.identity import differences, folder_name
from calipers.run.resume import ENDPOINT
from calipers.run.whole import put

IDENTITY: Final = "identity.json"
CHAT: Final = "chat"
_UNKNOWN: Final = f"{ENDPOINT}: not recorded"


def agent_endpoint(agent: str, model: str | None, base_url: str | None) -> str | None:
    """The base URL that an agent's model is asked at, without keys; None where nobody knows, or no model is asked.

    InputError for a URL with a password or a key: Harbor writes it down.
    """
    provider, _, rest = (model or "").partition("/")
    if model is None:
        return None
    if base_url:
        found = called(base_url)
        if agent == CHAT and "?" in base_url and found.count("=") < base_url.count("="):
            raise InputError.at(
                "--base-url", "the URL holds a key, which Harbor would write down", "expected none in it"
            )
        return found
    if agent == CHAT and (provider == "openai" or not rest):
        return called(None)
    named = (f"{(provider if rest else 'openai').upper()}_{end}" for end in ("BASE_URL", "API_BASE"))
    told = next((os.environ[variable] for variable in named if os.environ.get(variable)), None)
    return without_keys(told) if told else None


def find_folder(root: Path, dataset: str, who: str, identity: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The folder of a run of agents below ``root``, and why it is a new one where another differs in its endpoint."""
    own = root / folder_name(dataset, who, identity)
    if own.exists() or ENDPOINT not in identity:
        return own, []
    others = list(_others(own, root / folder_name(dataset, who, _rest(identity)), identity))
    for folder, there in others:
        if there == identity[ENDPOINT]:
            return folder, []
    if not others:
        return own, []
    folder, there = others[-1]
    return own, [f"{own}: a new run begins, as {folder} is another one ({_told(there, identity, 'there')})"]


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """InputError for a folder in which another server was asked; one that does not say goes on."""
    held, there = _kept(folder), recorded(folder)
    if there is not None and ENDPOINT in identity and there != identity[ENDPOINT]:
        told = _told(there, identity, "here")
        raise InputError.at(str(folder), f"holds another run: {told}", "choose another --out")
    if held is not None and ENDPOINT not in identity and ENDPOINT in held:
        told = "; ".join(differences({ENDPOINT: held[ENDPOINT]}, {}))
        raise InputError.at(str(folder), f"holds another run: {told}", "choose another --out")


def keep_identity(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write down which run a folder is of, once."""
    if not (folder / IDENTITY).exists():
        put(folder / IDENTITY, [msgspec.json.format(msgspec.json.encode(identity), indent=1), b"\n"])


def recorded(folder: Path) -> str | None:
    """The endpoint that a folder's identity names, or else its jobs; None where neither does."""
    kept = _kept(folder)
    if kept is not None:
        return kept.get(ENDPOINT)
    for place in sorted(folder.glob("[0-9]*/config.json")):
        try:
            agent = msgspec.json.decode(place.read_bytes())["agents"][0]
            return without_keys(agent["kwargs"]["server"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, IndexError, AttributeError, InputError):
            continue
    return None


def _others(own: Path, earlier: Path, identity: Mapping[str, Any]) -> Iterator[tuple[Path, str | None]]:
    """Folders of runs that differ in nothing but the endpoint, and theirs; that of an earlier version comes first."""
    if earlier.exists() and _kept(earlier) is None:
        yield earlier, recorded(earlier)
    for place in sorted(own.parent.glob(f"{own.name[:-8]}{'[0-9a-f]' * 8}/{IDENTITY}")):
        held = _kept(place.parent)
        if held is not None and ENDPOINT in held and not [*differences(_rest(held), _rest(identity))]:
            yield place.parent, held[ENDPOINT]


def _kept(folder: Path) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode((folder / IDENTITY).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _rest(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != ENDPOINT}


def _told(there: str | None, identity: Mapping[str, Any], place: str) -> str:
    asked = identity[ENDPOINT]
    return f"{ENDPOINT}: {there} {place}, {asked} asked" if there else f"{_UNKNOWN} {place}, {asked} asked"
