"""A run on disk: which folder it resumes in, one process at a time, a plan that only grows, and a log.

::

    runs/arith-openai_m-1f0a4c2e/
      plan.json         every setting with its origin, and the planned tasks; written atomically
      rollouts.jsonl    a line for each attempt at a rollout, in the order in which they ended; append-only
      stopped.json      the rule that stopped the run early, if one did; written atomically
      .lock             locked while a process runs it

A run resumes in the folder with the same identity, or with another endpoint of the same model::

    identity ──► runs/<benchmark>-<model>-<8 hex> ──► exists: resume it
                   └── does not exist ──► other runs of this benchmark and model ──► resume one, or note why a new one

Earlier versions did not record the endpoint. For their folders, it is the URL or the hash of a file in the plan.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
from msgspec import structs

from calipers.clients.address import source_file, without_keys
from calipers.errors import InputError, LogError
from calipers.formats.run_folder import (
    LOG,
    PLAN,
    PLAN_SCHEMA,
    STOPPED,
    TORN,
    PlannedSetting,
    RunPlan,
    RunStop,
    is_run,
    read_plan,
    read_stop,
)
from calipers.formats.source import LONGEST_LINE, LongLine, line_blocks
from calipers.reports.figures import counted
from calipers.rollouts.record import Outcome
from calipers.running.log import Log, Scrub, is_at, mode_in, put, repaired, scrubbed
from calipers.typed import complete
from calipers.verifiers import REASONING

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
    """The name of a run's directory, ``<benchmark>-<model>-<8 hex>``; never a path.

    >>> folder_name("arith", "openai/gpt 4", {})
    'arith-openai_gpt_4-44136fa3'
    """
    return f"{_plain(benchmark)}-{_plain(model)}-{fingerprint(identity)[:8]}"


def differences(here: Any, wanted: Any, path: str = "", where: str = "here") -> Iterator[str]:
    """The differences between two identities, key by key: ``sampling.temperature: 0 here, 1 requested``.

    Values are compared as JSON, so that 1, 1.0 and true are different.
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
    """A value for an error: the start of a hash; of a long text, the part where it begins to differ from the other."""
    if value is ABSENT:
        return "nothing"
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(text)
    if re.fullmatch(r"(sha256:)?[0-9a-f]{32,}", text):
        return f"{text.removeprefix('sha256:')[:12]}..."
    if len(text) <= LONGEST_VALUE:
        return text
    other_text = other if isinstance(other, str) else "" if other is ABSENT else json.dumps(other, ensure_ascii=False)
    pairs = enumerate(zip(text, other_text, strict=False))
    common = next((i for i, (a, b) in pairs if a != b), min(len(text), len(other_text)))
    start = max(0, min(common - 10, len(text) - LONGEST_VALUE))
    end = start + LONGEST_VALUE
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"


ENDPOINT: Final = "endpoint"
JUDGES: Final = "judges"
SAME_MODEL: Final = "--same-model"
EARLIER: Final = "the last start, by an earlier version that recorded only the last one"
_UNKNOWN: Final = f"{ENDPOINT}: not recorded"


class _Begun(msgspec.Struct):
    """The fields of a plan about the starts of its run."""

    identity: dict[str, Any] = {}
    model: str | None = None
    settings: dict[str, PlannedSetting] = {}
    versions: dict[str, Any] = {}
    git: str | None = None
    created_at: str | None = None
    inputs: list[dict[str, str]] = []
    starts: list[dict[str, Any]] | None = None
    batch: dict[str, Any] | None = None  # the batch plan of a local model


def find_folder(root: Path, identity: Mapping[str, Any], same_model: bool) -> tuple[Path, list[str]]:
    """The folder of a run below ``root``, and a note why it is a new one if there are similar runs."""
    new = root / folder_name(identity["benchmark"], identity["model"], identity)
    if is_run(str(new)):
        return new, []
    others = [(folder, [*_differences(kept, identity)]) for folder, kept in _other_runs(new, identity)]
    same = [folder for folder, differing in others if not differing]
    if not same and same_model:
        same = [folder for folder, differing in others if _is_endpoint(differing)]
        if len(same) > 1:
            problem = f"{len(same)} runs differ from this one only in the endpoint: {', '.join(map(str, same))}"
            raise InputError.at(SAME_MODEL, problem, "name one of them with --out")
    if same:
        return same[-1], []
    if not others:
        return new, []
    nearest, differing = min(others[::-1], key=lambda other: len(other[1]))
    more = f"; if it is the same model, {SAME_MODEL} resumes that run" if _is_endpoint(differing) else ""
    return new, [f"{new}: starting a new run, because {nearest} differs ({_shortened(differing)}){more}"]


def continued(folder: Path, wanted: Mapping[str, Any], same_model: bool) -> tuple[dict[str, Any], list[str]]:
    """The identity of the run in a folder after it is resumed as requested, and notes; InputError for another run."""
    kept = _identity(_read(folder), wanted)
    differing = list(_differences(kept, wanted, "here"))
    if not differing:
        return dict(wanted), []
    if not _is_endpoint(differing):
        raise InputError.at(str(folder), f"contains a different run: {_shortened(differing)}", "choose another --out")
    if not same_model:
        expected = f"choose another --out, or {SAME_MODEL} if it is the same model"
        raise InputError.at(str(folder), f"contains a different run: {_shortened(differing)}", expected)
    began = kept.get(ENDPOINT) or "an endpoint that was not recorded"
    return kept, [
        (
            f"{SAME_MODEL}: the run started with {began} and resumes with "
            f"{wanted.get(ENDPOINT)}; every rollout records its endpoint"
        )
    ]


def kept_batch(folder: Path) -> dict[str, Any] | None:
    """The batch plan of the run in a folder; None if there is no run, or if the run has no batch plan."""
    return _read(folder).batch if is_run(str(folder)) else None


def all_starts(folder: Path, latest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The starts of the run in a folder, and the latest start unless it equals the one before it."""
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
        return msgspec.json.decode(path.read_bytes(), type=complete(_Begun))
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(
            str(path), f"is not the plan of a run ({error})", "expected the file as calipers wrote it"
        ) from None


def _identity(begun: _Begun, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The identity in a plan, with an endpoint from the plan's other fields if an earlier version wrote it."""
    endpoint = None if ENDPOINT in begun.identity or ENDPOINT not in wanted else _earlier(begun)
    return {**begun.identity, ENDPOINT: endpoint} if endpoint else dict(begun.identity)


def _earlier(begun: _Begun) -> str | None:
    """The endpoint of a plan that did not record one: its URL, or the hash of the model's file."""
    kind, _, name = (begun.model or "").partition("/")
    if kind in ("replay", "python"):
        file = str(source_file(name) if kind == "python" else name)
        return next((f"sha256:{item['sha256']}" for item in begun.inputs if item.get("path") == file), None)
    url = begun.settings["base_url"].value if "base_url" in begun.settings else None
    try:
        return without_keys(url) if isinstance(url, str) and url else None
    except InputError:
        return None


def _other_runs(new: Path, identity: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The other runs of a benchmark and a model in the same parent folder, sorted by their last start."""
    plans = new.parent.glob(f"{new.name[:-8]}{'[0-9a-f]' * 8}/{PLAN}")
    for plan in sorted(plans, key=lambda plan: plan.stat().st_mtime_ns):
        try:
            kept = _identity(_read(plan.parent), identity)
        except InputError:
            continue  # the error is raised when the run is resumed
        if all(kept.get(name) == identity[name] for name in ("benchmark", "model")):
            yield plan.parent, kept


def _differences(kept: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "there") -> Iterator[str]:
    """The differences between a run's identity and the requested one; missing endpoints are "not recorded"."""
    for difference in differences(kept, wanted, where=where):
        unknown = ENDPOINT in wanted and difference.startswith(f"{ENDPOINT}: nothing ")
        if difference.startswith(f"{REASONING}: nothing "):
            difference = f"{REASONING}: kept {where}, split requested (--reasoning keep resumes that run)"
        if difference.endswith(" nothing requested") and difference.startswith(f"{REASONING}: "):
            difference = f"{REASONING}: split {where}, keep requested"
        if difference.startswith(f"{JUDGES}: nothing "):
            difference = f"{JUDGES}: not recorded {where}, {', '.join(wanted[JUDGES].values())} requested"
        yield f"{_UNKNOWN} {where}, {wanted[ENDPOINT]} requested" if unknown else difference


def _is_endpoint(differing: Sequence[str]) -> bool:
    """Whether only the endpoints differ."""
    return [difference.partition(":")[0] for difference in differing] == [ENDPOINT]


def _shortened(differing: Sequence[str]) -> str:
    more = len(differing) - MOST_DIFFERENCES
    return "; ".join([*differing[:MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])])


def _timeless(start: Mapping[str, Any]) -> dict[str, Any]:
    """A start without its time, with JSON's types."""
    timeless: dict[str, Any] = msgspec.to_builtins({key: value for key, value in start.items() if key != "at"})
    return timeless


_ADVICE = "fix the line, or remove it to run its rollout again"


class Past(msgspec.Struct, frozen=True, gc=False):
    """A rollout in the log, by its highest attempt."""

    attempt: int
    outcome: str
    reward: float | None
    cost: float | None  # dollars for all its attempts, including verification; None if unknown
    marker: str = ""  # the marker of the reasoning that was split off its completion; "" without


class _LoggedCost(msgspec.Struct, gc=False):
    cost_usd: float | None = None


class _LoggedRollout(msgspec.Struct, gc=False):
    """The fields of a record that are needed to resume a run; others are not decoded."""

    task: str
    sample: int
    attempt: int = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    usage: _LoggedCost | None = None
    judge_cost_usd: float | None = None
    reasoning_marker: Any = None


_DECODER = msgspec.json.Decoder(complete(_LoggedRollout))


def read_history(log: Path) -> dict[tuple[str, int], Past]:
    """The highest attempt of each (task, sample) in a log of complete lines; InputError for an invalid record."""
    history: dict[tuple[str, int], Past] = {}
    texts: dict[str, str] = {}  # ids, markers and rewards are shared: they are in many lines, but only once in memory
    numbers: dict[float, float] = {}
    for number, line in _lines(log):
        key = texts.setdefault(line.task, line.task), line.sample
        reward = None if line.reward is None else float(line.reward)
        reward = reward if reward is None else numbers.setdefault(reward, reward)
        cost = _sum(line.usage.cost_usd if line.usage else None, line.judge_cost_usd)
        outcome = line.outcome or ("missing" if reward is None else "scored")
        before = history.get(key)
        if before is not None:
            if before.attempt == line.attempt:
                problem = (
                    f"task {line.task!r} sample {line.sample} attempt {line.attempt} also appears in an earlier line"
                )
                raise InputError.at(f"{log}:{number}", problem, "expected each attempt once; remove one of the lines")
            cost = _sum(before.cost, cost)
            if before.attempt > line.attempt:
                history[key] = msgspec.structs.replace(before, cost=cost)
                continue
        marker = line.reasoning_marker if isinstance(line.reasoning_marker, str) else ""
        history[key] = Past(line.attempt, outcome, reward, cost, texts.setdefault(marker, marker))
    return history


def _lines(log: Path) -> Iterator[tuple[int, _LoggedRollout]]:
    """The records of a log, each with its line number."""
    number = 0
    try:
        with open(log, "rb", buffering=0) as file:
            for block in line_blocks(file.readinto):
                lines = bytes(block).count(b"\n")
                try:
                    records = _DECODER.decode_lines(block)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    records = []
                if len(records) == lines:
                    yield from enumerate(records, number + 1)
                else:
                    yield from _one_by_one(log, bytes(block), number)
                number += lines
    except LongLine:
        problem = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(str(log), problem, _ADVICE) from None
    except OSError as error:
        raise InputError.at(str(log), f"cannot be read ({error.strerror})") from None


def _one_by_one(log: Path, block: bytes, before: int) -> Iterator[tuple[int, _LoggedRollout]]:
    """The records of a block with blank or invalid lines, decoded line by line."""
    for number, line in enumerate(block.split(b"\n"), before + 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError.at(f"{log}:{number}", f"is not a record ({error})", _ADVICE) from None


def _sum(first: float | None, other: float | None) -> float | None:
    return other if first is None else first if other is None else first + other


LOCK = ".lock"
PRIVATE = 0o700  # the mode of a new folder; an existing folder keeps its mode, and files get that of their folder


class Folder:
    """The directory of a run, which this process has locked until it is closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub) -> None:
        self.path = path
        self.notes: list[str] = []
        self.history: dict[tuple[str, int], Past] = {}  # by (task, sample), the highest attempt
        self.position: dict[str, int] = {}  # position of each task in the plan
        self.stop: RunStop | None = None  # of an earlier start, or of this one
        self._stop_before: RunStop | None = None  # the stop before this start continued the run
        self._lock, self._scrub = lock, scrub
        self._log: Log | None = None
        self._new_directories: Sequence[Path] = ()  # directories made by `open`, the deepest first
        self._new = False  # the directory had no plan

    @classmethod
    def open(
        cls, path: Path, identity: Mapping[str, Any], plan: Mapping[str, Any], scrub: Scrub, same_model: bool = False
    ) -> Folder:
        """Make the directory of a run, or resume the run in it; no other process may run it.

        ``plan`` is written together with ``schema``, ``identity`` and ``fingerprint``; rollouts that were planned
        before stay planned, and earlier starts stay recorded. InputError, with the differences, if the directory has
        another run; with ``same_model``, the endpoint may differ.
        """
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        folder = cls(path, _locked(path), scrub)
        folder._new_directories = missing
        try:
            folder._begin(identity, plan, same_model)
        except BaseException:
            folder.close()
            raise
        return folder

    @property
    def log(self) -> Log:
        """The log, which is opened on first use."""
        if self._log is None:
            self._log = Log(self.path / LOG, self._scrub, mode_in(self.path))
        return self._log

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically; LogError if that fails."""
        put(self.path / name, [scrubbed(data, self._scrub)], mode_in(self.path))

    def stopped(self, stop: RunStop) -> None:
        """Record that a rule has stopped the run; LogError if it cannot be written."""
        plan = read_plan(str(self.path))
        self._write_stop(structs.replace(stop, planned_rollouts=sum(map(plan.of, plan.tasks))))

    def continues(self) -> None:
        """Record that a run that a rule had stopped is continued: later missing rollouts are not due to the rule."""
        if self.stop is not None and not self.stop.completed:
            self._stop_before = self.stop
            self._write_stop(structs.replace(self.stop, continued=True))

    def stays(self) -> None:
        """Undo `continues`, because no request could be made."""
        if self._stop_before is not None:
            self._write_stop(self._stop_before)

    def _write_stop(self, stop: RunStop) -> None:
        self.stop = stop
        self.write(STOPPED, msgspec.json.format(msgspec.json.encode(stop), indent=1) + b"\n")

    def close(self) -> None:
        """Close the log and unlock the directory; LogError if a line could not be written."""
        try:
            if self._log is not None:
                self._log.shut()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def abandon(self) -> None:
        """Remove the files and directories that `open` made, if the log is empty: the run could not begin."""
        self.log.shut()
        try:
            if self._new and not (self.path / LOG).stat().st_size:
                for name in (LOG, PLAN, LOCK):
                    (self.path / name).unlink(missing_ok=True)
                for directory in self._new_directories:
                    with suppress(OSError):  # another process has put a file there
                        directory.rmdir()
        finally:
            self.close()  # only now, because another process may then run it

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except LogError:
            if error is None:  # otherwise the same error was raised already
                raise

    def _begin(self, identity: Mapping[str, Any], plan: Mapping[str, Any], same_model: bool) -> None:
        log = self.path / LOG
        scrubbed_identity = msgspec.json.decode(scrubbed(msgspec.json.encode(identity), self._scrub))
        plan = {**plan, "identity": scrubbed_identity, "fingerprint": fingerprint(scrubbed_identity)}
        before = read_plan(str(self.path)) if is_run(str(self.path)) else None
        self._new = before is None
        if before is not None:
            kept, notes = continued(self.path, scrubbed_identity, same_model)
            self.notes += notes
            plan |= {"identity": kept, "fingerprint": fingerprint(kept)}
            if "starts" in plan:
                plan["starts"] = all_starts(self.path, plan["starts"])
            self.stop = read_stop(str(self.path))
            plan = self._grown(before, plan)
        elif log.exists() and log.stat().st_size:
            expected = f"expected none, or {PLAN} beside it; choose another --out"
            raise InputError.at(str(self.path), f"contains a {LOG} that is not from a run", expected)
        if log.exists():
            if repaired(log):
                self.notes.append(TORN)
            self.history = read_history(log)
        if before is not None and self.stop is not None and not self.stop.completed:
            self._check_completed(before, self.stop)
        self.position = {entry["task"]: number for number, entry in enumerate(plan["tasks"])}
        put(self.path / PLAN, _laid_out({"schema": PLAN_SCHEMA, **plan}, self._scrub), mode_in(self.path))

    def _check_completed(self, before: RunPlan, stop: RunStop) -> None:
        """Before the plan grows, record whether a later start has completed it, so that it is a fixed sample again."""
        planned = sum(map(before.of, before.tasks))
        every = ((task.task, sample) for task in before.tasks for sample in range(before.of(task)))
        outstanding = sum(key not in self.history for key in every)
        if stop.of_plan(planned, outstanding) is None:
            self._write_stop(structs.replace(stop, completed=True))

    def _grown(self, before: RunPlan, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The requested plan together with everything that was planned before, so that finished rollouts stay in it."""
        samples = plan["samples"]
        wanted = {entry["task"]: entry.get("samples", samples) for entry in plan["tasks"]}
        larger = {old.task: old for old in before.tasks if before.of(old) > wanted.get(old.task, 0)}
        kept = sum(before.of(old) - wanted.get(task, 0) for task, old in larger.items())
        tasks = [
            {**entry, "samples": before.of(larger[entry["task"]])} if entry["task"] in larger else entry
            for entry in plan["tasks"]
        ]
        not_requested = [old for task, old in larger.items() if task not in wanted]
        tasks += [
            {"task": old.task, "metadata": old.metadata, "samples": before.of(old)}
            | ({"target": old.target} if old.target else {})
            for old in not_requested
        ]
        # tasks that were planned before come first, so that new tasks follow them in the order of the plan
        order = {old.task: number for number, old in enumerate(before.tasks)}
        tasks.sort(key=lambda entry: order.get(entry["task"], len(order)))
        if kept:
            wider = f"{counted(kept, 'rollout')} that this command does not ask for stay planned"
            self.notes.append(f"{PLAN}: {wider}; choose another --out for a smaller run")
        return {**plan, "tasks": tasks, "created_at": before.created_at or plan.get("created_at")}


def _locked(path: Path) -> int:
    """Lock a directory and return the file descriptor of the lock; InputError if another process has locked it."""
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, mode_in(path))
    except (FileExistsError, NotADirectoryError):
        raise InputError.at(str(path), "is a file, or is inside one", "expected a directory for the run") from None
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})", "choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, path / LOCK):  # the process that had locked it has removed it
            raise BlockingIOError
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "ignore").strip()
        os.close(lock)
        problem = "another process is running it" + (f" (pid {holder})" if holder.isdecimal() else "")
        raise InputError.at(str(path), problem, "wait for it, or choose another --out") from None
    except OSError as error:
        os.close(lock)
        raise InputError.at(str(path), f"cannot be locked ({error.strerror})", "choose another --out") from None
    return lock


def _laid_out(plan: Mapping[str, Any], scrub: Scrub) -> Iterator[bytes]:
    """A plan as readable JSON in pieces, without secrets: indented, with a line for each task."""
    for number, (name, value) in enumerate(plan.items()):
        yield (b",\n " if number else b"{\n ") + msgspec.json.encode(name) + b": "
        if name == "tasks" and value:
            rows = (scrubbed(msgspec.json.encode(row), scrub) for row in value)
            yield b"[\n  " + next(rows)
            yield from (b",\n  " + row for row in rows)
            yield b"\n ]"
        else:
            text = msgspec.json.encode(value) if name == "schema" else scrubbed(msgspec.json.encode(value), scrub)
            yield msgspec.json.format(text, indent=1).replace(b"\n", b"\n ")
    yield b"\n}\n"
