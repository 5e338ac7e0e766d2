"""Which folder a run resumes in: one with the same identity, or with another endpoint of the same model.

::

    identity ──► runs/<benchmark>-<model>-<8 hex> ──► there: go on
                   └── not there ──► others of this benchmark and model ──► go on in one, or say why a new one begins

Folders of versions that did not record the endpoint are found by their content: their plan names a URL, or the hash
of a file, and that is their endpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients.address import source_file, without_keys
from calipers.errors import InputError
from calipers.formats.run_plan import PLAN, PlannedSetting, is_run

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


def differences(here: Any, wanted: Any, path: str = "", where: str = "here") -> Iterator[str]:
    """What differs between two identities, key by key: ``sampling.temperature: 0 here, 1 asked``.

    Values are compared as JSON, so that 1, 1.0 and true are three.
    """
    if isinstance(here, Mapping) and isinstance(wanted, Mapping):
        for key in [*here, *(key for key in wanted if key not in here)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(here.get(key, ABSENT), wanted.get(key, ABSENT), inner, where)
    elif here is ABSENT or wanted is ABSENT or _canonical(here) != _canonical(wanted):
        first, second = _shown(here, wanted), _shown(wanted, here)
        yield f"{path}: {first} {where}, {second} requested"


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


ENDPOINT: Final = "endpoint"
JUDGES: Final = "judges"
SAME_MODEL: Final = "--same-model"
EARLIER: Final = "the last start, by an earlier version that recorded only the last one"
_UNKNOWN: Final = f"{ENDPOINT}: not recorded"


class _Begun(msgspec.Struct):
    """What a plan says of how its run was started."""

    identity: dict[str, Any] = {}
    model: str | None = None
    settings: dict[str, PlannedSetting] = {}
    versions: dict[str, Any] = {}
    git: str | None = None
    created_at: str | None = None
    inputs: list[dict[str, str]] = []
    starts: list[dict[str, Any]] | None = None
    batch: dict[str, Any] | None = None  # of a local model


def find_folder(root: Path, identity: Mapping[str, Any], same_model: bool) -> tuple[Path, list[str]]:
    """The folder of a run below ``root``, and why it is a new one where there are others like it."""
    new = root / folder_name(identity["benchmark"], identity["model"], identity)
    if is_run(str(new)):
        return new, []
    others = [(folder, [*_unlike(kept, identity)]) for folder, kept in _others(new, identity)]
    same = [folder for folder, unlike in others if not unlike]
    if not same and same_model:
        same = [folder for folder, unlike in others if _is_endpoint(unlike)]
        if len(same) > 1:
            wrong = f"{len(same)} runs differ from this one only in the endpoint: {', '.join(map(str, same))}"
            raise InputError.at(SAME_MODEL, wrong, "name one of them with --out")
    if same:
        return same[-1], []
    if not others:
        return new, []
    nearest, unlike = min(others[::-1], key=lambda other: len(other[1]))
    more = f"; if it is the same model, {SAME_MODEL} resumes that run" if _is_endpoint(unlike) else ""
    return new, [f"{new}: starting a new run, because {nearest} differs ({_told(unlike)}){more}"]


def continued(folder: Path, wanted: Mapping[str, Any], same_model: bool) -> tuple[dict[str, Any], list[str]]:
    """The identity that the run in a folder keeps when it goes on as asked, and notes; InputError for another run."""
    here = _identity(_read(folder), wanted)
    unlike = list(_unlike(here, wanted, "here"))
    if not unlike:
        return dict(wanted), []
    if not _is_endpoint(unlike):
        raise InputError.at(str(folder), f"contains a different run: {_told(unlike)}", "choose another --out")
    if not same_model:
        right = f"choose another --out, or {SAME_MODEL} if it is the same model"
        raise InputError.at(str(folder), f"contains a different run: {_told(unlike)}", right)
    began = here.get(ENDPOINT) or "an endpoint that was not recorded"
    return here, [
        (
            f"{SAME_MODEL}: the run started with {began} and resumes with "
            f"{wanted.get(ENDPOINT)}; every rollout records its endpoint"
        )
    ]


def kept_batch(folder: Path) -> dict[str, Any] | None:
    """The batch plan of the run in a folder; None if there is no run, or it has none."""
    return _read(folder).batch if is_run(str(folder)) else None


def all_starts(folder: Path, latest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The starts of the run in a folder and the latest one, unless that is as the one before it."""
    begun = _read(folder)
    starts = begun.starts
    if starts is None:
        given = {name: setting.value for name, setting in begun.settings.items() if setting.value is not None}
        first: dict[str, Any] = {"at": begun.created_at, ENDPOINT: _earlier(begun), "note": EARLIER}
        starts = [first | {"settings": given, "versions": begun.versions, "git": begun.git, "inputs": begun.inputs}]
    return [*starts, *(start for start in latest if _timeless(start) != _timeless(starts[-1] if starts else {}))]


def _read(folder: Path) -> _Begun:
    path = folder / PLAN
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Begun)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(
            str(path), f"is not the plan of a run ({error})", "expected the file as calipers wrote it"
        ) from None


def _identity(begun: _Begun, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The identity in a plan, with the endpoint that the plan of an earlier version names where one is asked for."""
    endpoint = None if ENDPOINT in begun.identity or ENDPOINT not in wanted else _earlier(begun)
    return {**begun.identity, ENDPOINT: endpoint} if endpoint else dict(begun.identity)


def _earlier(begun: _Begun) -> str | None:
    """The endpoint that a plan without one names: its URL, or the hash of the model's file."""
    kind, _, name = (begun.model or "").partition("/")
    if kind in ("replay", "python"):
        file = str(source_file(name) if kind == "python" else name)
        return next((f"sha256:{item['sha256']}" for item in begun.inputs if item.get("path") == file), None)
    url = begun.settings["base_url"].value if "base_url" in begun.settings else None
    try:
        return without_keys(url) if isinstance(url, str) and url else None
    except InputError:
        return None


def _others(new: Path, identity: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The other runs of a benchmark and a model beside a folder, the latest started last."""
    plans = new.parent.glob(f"{new.name[:-8]}{'[0-9a-f]' * 8}/{PLAN}")
    for plan in sorted(plans, key=lambda plan: plan.stat().st_mtime_ns):
        try:
            kept = _identity(_read(plan.parent), identity)
        except InputError:
            continue  # it says so when somebody runs it
        if all(kept.get(name) == identity[name] for name in ("benchmark", "model")):
            yield plan.parent, kept


def _unlike(kept: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "there") -> Iterator[str]:
    for difference in differences(kept, wanted, where=where):
        unknown = ENDPOINT in wanted and difference.startswith(f"{ENDPOINT}: nothing ")
        if difference.startswith(f"{JUDGES}: nothing "):
            difference = f"{JUDGES}: not recorded {where}, {', '.join(wanted[JUDGES].values())} requested"
        yield f"{_UNKNOWN} {where}, {wanted[ENDPOINT]} requested" if unknown else difference


def _is_endpoint(unlike: Sequence[str]) -> bool:
    """Whether two identities differ in their endpoints, and in nothing else."""
    return [difference.partition(":")[0] for difference in unlike] == [ENDPOINT]


def _told(unlike: Sequence[str]) -> str:
    rest = len(unlike) - MOST_DIFFERENCES
    return "; ".join([*unlike[:MOST_DIFFERENCES], *([f"and {rest} more"] if rest > 0 else [])])


def _timeless(start: Mapping[str, Any]) -> dict[str, Any]:
    """A start without its time, as JSON has it."""
    timeless: dict[str, Any] = msgspec.to_builtins({key: value for key, value in start.items() if key != "at"})
    return timeless
