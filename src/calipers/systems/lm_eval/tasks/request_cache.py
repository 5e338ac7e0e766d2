"""The cache of requests on disk: ``--cache_requests``.

lm-evaluation-harness finds them by a task's name and number of examples, so that a changed task gets its old prompts.
Here the key is a digest of everything that a prompt is made from: the task's fields, every document and example, the
seeds, the chat format, and the code, ours and that of the templates. Prompts that a task's own code makes, or that a
template draws at random, are not cached: no digest covers everything that code may read.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from calipers import __version__
from calipers.errors import InputError
from calipers.reports.figures import counted
from calipers.systems.lm_eval.tasks.groups import cache_folder, keep_file, read_kept
from calipers.systems.lm_eval.tasks.loaded import Instance, LoadedTask
from calipers.systems.lm_eval.tasks.requests import Asking, requests
from calipers.systems.lm_eval.tasks.task_file import FewShot, TaskFields

CacheUse = Literal["true", "refresh", "delete"]
USES: Final[tuple[str, ...]] = get_args(CacheUse)
FOLDER: Final = "LM_HARNESS_CACHE_PATH"  # lm-evaluation-harness' own variable for the folder
PREFIX, SUFFIX = "requests-", ".calipers"
LARGEST: Final = 1 << 30  # bytes of a file that is read
NOT_WRITTEN_INTO_PROMPTS: Final = {  # fields of a task that choose its documents, which are hashed, or score answers
    *("custom_dataset", "dataset_path", "dataset_name", "dataset_kwargs", "process_docs", "unsafe_code"),
    *("process_results", "metric_list", "filter_list", "scorer", "should_decontaminate"),
    *("doc_to_decontamination_query", "metadata", "tag", "task_alias", "repeats", "formats"),
}
CHOOSES_EXAMPLES: Final = {"process_docs", "samples", "fewshot_indices"}  # of fewshot_config, likewise

Row = tuple[str, int, int, int, list[Any]]  # kind, document, number, first argument among the texts, further arguments


class _KeptRequests(msgspec.Struct):
    """The file of a task's requests; a text that several requests begin with is stored once."""

    key: str
    texts: list[Any]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class RequestCache:
    """The folder of cached requests, and whether to make them again."""

    folder: Path
    refresh: bool = False

    def fill(self, task: LoadedTask) -> list[str]:
        """Give a task its requests, from the cache or new; returns a note if they cannot be cached."""
        key = _key(task)
        if key is None:
            own = task.own is not None or _own_code(task)
            why = "its own code makes them" if own else "a document contains an object"
            return [f"{task.config.task}: its prompts are not cached: {why}"]
        path = self.folder / f"{PREFIX}{_plain_name(str(task.config.task))}-{key[:16]}{SUFFIX}"
        asking, kept = Asking(), None if self.refresh else _read(path, key)
        if kept is not None:
            task.kept.setdefault("requests", []).append((asking, task.manner, kept))
            return []
        made = list(requests(task, asking))
        content = _written(key, made)
        if content is None or _decoded(content, key) != made:
            return [f"{task.config.task}: its prompts are not cached: they contain more than text and numbers"]
        keep_file(path, content)
        return []


def request_cache(use: str) -> tuple[RequestCache | None, list[str]]:
    """The cache for a value of ``--cache_requests``, and notes; ``delete`` removes all cached requests."""
    if use not in USES:
        raise InputError.at("--cache_requests", f"is {use!r}", f"expected {', '.join(USES)}")
    base = os.environ.get(FOLDER)
    folder = Path(base) if base else cache_folder() / "requests"
    return (None, [_deleted(folder)]) if use == "delete" else (RequestCache(folder, use == "refresh"), [])


def _deleted(folder: Path) -> str:
    """Remove the files of requests in a folder and no others; returns a note."""
    removed = 0
    try:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(PREFIX) and path.name.endswith(SUFFIX):
                path.unlink(missing_ok=True)
                removed += 1
    except FileNotFoundError:
        pass  # nothing was cached
    except OSError as error:
        raise InputError.at(str(folder), f"cached prompts cannot be removed ({error.strerror})") from None
    return f"{counted(removed, 'file')} of cached prompts removed from {folder}"


def _plain_name(name: str) -> str:
    """A task's name for a file's name: short, without separators."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)[:40]


def _writing_fields(config: TaskFields) -> dict[str, Any]:
    """The fields of a task that its prompts are made from."""
    values = {spec.name: getattr(config, spec.name) for spec in fields(config)}
    shots = values.pop("fewshot_config")
    rest = {name: value for name, value in values.items() if name not in NOT_WRITTEN_INTO_PROMPTS}
    inner = {spec.name: getattr(shots, spec.name) for spec in fields(FewShot) if spec.name not in CHOOSES_EXAMPLES}
    names = [str(entry.get("metric")) for entry in config.metric_list or ()]  # acc_mutual_info asks for more
    return {**rest, "shots": inner, "metrics": names, "own_scores": config.process_results is not None}


def _own_code(task: LoadedTask) -> bool:
    """Whether a prompt is made by a function or drawn by a template, whose draws scoring needs, too."""
    written = _writing_fields(task.config)
    values = [*written.values(), *written["shots"].values()]
    return any(callable(value) or (isinstance(value, str) and "random" in value) for value in values)


def _key(task: LoadedTask) -> str | None:
    """A digest of everything that a task's requests are made from; None if there cannot be one."""
    if task.own is not None or _own_code(task):
        return None
    manner, modes = task.manner, (task.multiple_inputs, task.multiple_targets)
    about = [
        *(_writing_fields(task.config), list(task.columns), list(task.seeds), list(modes)),
        *(manner.chat, manner.multiturn, manner.system),
        *([dict(doc) for doc in task.docs], [dict(doc) for doc in task.examples]),
    ]
    try:  # of Python's plain values alone, each in its own type; version 0 writes equal values in one way
        content = marshal.dumps(about, 0)
    except ValueError:
        return None
    return hashlib.sha256(_code().encode() + content).hexdigest()


@cache
def _code() -> str:
    """A digest of the code that writes prompts: ours, that of the templates, and Python's, which draws examples."""
    whole = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for name in ("jinja2", "markupsafe"):
        whole.update(metadata.version(name).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _written(key: str, made: list[Instance]) -> bytes | None:
    """Requests as the bytes of a file; None if a value cannot be stored."""
    texts: dict[int, tuple[int, Any]] = {}  # by identity: the choices of a document share their context
    rows: list[Row] = []
    for request in made:
        first, *more = request.args
        number, _ = texts.setdefault(id(first), (len(texts), first))
        rows.append((request.request_type, request.doc_id, request.idx, number, more))
    try:
        return msgspec.msgpack.encode(_KeptRequests(key, [text for _, text in texts.values()], rows))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _read(path: Path, key: str) -> list[Instance] | None:
    content = read_kept(path, LARGEST)
    return None if content is None else _decoded(content, key)


def _decoded(content: bytes, key: str) -> list[Instance] | None:
    """The requests in the bytes of a file; None for a file of another key, or one that cannot be read."""
    try:
        kept = msgspec.msgpack.decode(content, type=_KeptRequests)
        texts = kept.texts
        made = [Instance(kind, doc, idx, (texts[number], *more)) for kind, doc, idx, number, more in kept.rows]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, IndexError):
        return None
    return made if kept.key == key and made else None
