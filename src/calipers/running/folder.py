"""A run on disk: which folder it resumes in, one process at a time, a plan that only grows, and a log.

::

    runs/arith-openai_m-1f0a4c2e/
      plan.json         what was asked, where each value came from; written and renamed
      rollouts.jsonl    a line for each attempt at a rollout, in the order they ended; only ever longer
      stopped.json      the rule that stopped the run early, where one did; written and renamed
      .lock             held while a process runs it

A run resumes in the folder with the same identity, or with another endpoint of the same model::

    identity ──► runs/<benchmark>-<model>-<8 hex> ──► there: go on
                   └── not there ──► others of this benchmark and model ──► go on in one, or say why a new one begins

Folders of versions that did not record the endpoint are found by their content: their plan names a URL, or the hash
of a file, and that is their endpoint.
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
from calipers.rollouts.record import Outcome
from calipers.running.log import Log, Scrub, mode_in, put, repaired, scrubbed

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


_RIGHT = "fix the line, or remove it to run its rollout again"


class Past(msgspec.Struct, frozen=True, gc=False):
    """What became of a rollout, by its highest attempt."""

    attempt: int
    outcome: str
    reward: float | None
    cost: float | None  # dollars, of all its attempts, judging included; None when nobody said


class _LoggedCost(msgspec.Struct, gc=False):
    cost_usd: float | None = None


class _LoggedRollout(msgspec.Struct, gc=False):
    """The few keys of a record that a run asks for when it continues; all others are passed over."""

    task: str
    sample: int
    attempt: int = 1
    outcome: Outcome | None = None
    reward: float | bool | None = None
    usage: _LoggedCost | None = None
    judge_cost_usd: float | None = None


_DECODER = msgspec.json.Decoder(_LoggedRollout)


def read_history(log: Path) -> dict[tuple[str, int], Past]:
    """The last of each (task, sample) in a log of whole lines; InputError for a line that is no record."""
    history: dict[tuple[str, int], Past] = {}
    texts: dict[str, str] = {}  # a task's id and a reward stand in many lines, and once in memory
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
                wrong = (
                    f"task {line.task!r} sample {line.sample} attempt {line.attempt} also appears in an earlier line"
                )
                raise InputError.at(f"{log}:{number}", wrong, "expected each attempt once; remove one of the lines")
            cost = _sum(before.cost, cost)
            if before.attempt > line.attempt:
                history[key] = Past(before.attempt, before.outcome, before.reward, cost)
                continue
        history[key] = Past(line.attempt, outcome, reward, cost)
    return history


def _lines(log: Path) -> Iterator[tuple[int, _LoggedRollout]]:
    """The records of a log, each with the number of its line."""
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
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(str(log), wrong, _RIGHT) from None
    except OSError as error:
        raise InputError.at(str(log), f"cannot be read ({error.strerror})") from None


def _one_by_one(log: Path, block: bytes, before: int) -> Iterator[tuple[int, _LoggedRollout]]:
    """The records of a block that is not a record a line: some are blank, or one is broken."""
    for number, line in enumerate(block.split(b"\n"), before + 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError.at(f"{log}:{number}", f"is not a record ({error})", _RIGHT) from None


def _sum(first: float | None, other: float | None) -> float | None:
    return other if first is None else first if other is None else first + other


LOCK = ".lock"
PRIVATE = 0o700  # of a folder that is made here; one that is there keeps its mode, and files follow their folder


class Folder:
    """The directory of a run, held by this process until it is closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub) -> None:
        self.path = path
        self.notes: list[str] = []
        self.history: dict[tuple[str, int], Past] = {}  # by (task, sample), the highest attempt
        self.position: dict[str, int] = {}  # of each task in the plan
        self.stop: RunStop | None = None  # of an earlier start, or of this one
        self._before: RunStop | None = None  # as it was before this start went on
        self._lock, self._scrub = lock, scrub
        self._log: Log | None = None
        self._made: Sequence[Path] = ()  # directories that were not there before, the deepest first

    @classmethod
    def open(
        cls, path: Path, identity: Mapping[str, Any], plan: Mapping[str, Any], scrub: Scrub, same_model: bool = False
    ) -> Folder:
        """Make a run's directory, or continue in one: nobody else may run it, and it must be the same run.

        ``plan`` is written with ``schema``, ``identity`` and ``fingerprint`` added to it; what was
        planned before stays planned, and how it was started stays written. With ``same_model`` it may go on
        at another endpoint. InputError says what differs.
        """
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        folder = cls(path, _locked(path), scrub)
        folder._made = missing
        try:
            folder._begin(identity, plan, same_model)
        except BaseException:
            folder.close()
            raise
        return folder

    @property
    def log(self) -> Log:
        """The log, opened when it is first asked for."""
        if self._log is None:
            self._log = Log(self.path / LOG, self._scrub, mode_in(self.path))
        return self._log

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all, whatever happens meanwhile; LogError when it cannot be."""
        put(self.path / name, [scrubbed(data, self._scrub)], mode_in(self.path))

    def stopped(self, stop: RunStop) -> None:
        """Keep that a rule has stopped the run; LogError when it cannot be written."""
        plan = read_plan(str(self.path))
        self._keep(structs.replace(stop, planned_rollouts=sum(map(plan.of, plan.tasks))))

    def continues(self) -> None:
        """Keep that the run goes on, where a rule had stopped it: what lacks from here on is not the rule's doing."""
        if self.stop is not None and not self.stop.completed:
            self._before = self.stop
            self._keep(structs.replace(self.stop, continued=True))

    def stays(self) -> None:
        """Take back that the run goes on: no call could be made."""
        if self._before is not None:
            self._keep(self._before)

    def _keep(self, stop: RunStop) -> None:
        self.stop = stop
        self.write(STOPPED, msgspec.json.format(msgspec.json.encode(stop), indent=1) + b"\n")

    def close(self) -> None:
        """Finish the log and let go of the directory; LogError when a line could not be written."""
        try:
            if self._log is not None:
                self._log.shut()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def abandon(self) -> None:
        """Take back what `open` made, if nothing came of it: a run that could not even begin leaves no trace."""
        self.log.shut()
        try:
            if self.path in self._made and not (self.path / LOG).stat().st_size:
                for name in (LOG, PLAN, LOCK):
                    (self.path / name).unlink(missing_ok=True)
                for directory in self._made:
                    with suppress(OSError):  # somebody else has put something there
                        directory.rmdir()
        finally:
            self.close()  # not before: another process may run it from then on

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except LogError:
            if error is None:  # else the same was said already
                raise

    def _begin(self, identity: Mapping[str, Any], plan: Mapping[str, Any], same_model: bool) -> None:
        log = self.path / LOG
        scrubbed_identity = msgspec.json.decode(scrubbed(msgspec.json.encode(identity), self._scrub))
        plan = {**plan, "identity": scrubbed_identity, "fingerprint": fingerprint(scrubbed_identity)}
        before = read_plan(str(self.path)) if is_run(str(self.path)) else None
        if before is not None:
            kept, notes = continued(self.path, scrubbed_identity, same_model)
            self.notes += notes
            plan |= {"identity": kept, "fingerprint": fingerprint(kept)}
            if "starts" in plan:
                plan["starts"] = all_starts(self.path, plan["starts"])
            self.stop = read_stop(str(self.path))
            plan = self._grown(before, plan)
        elif log.exists() and log.stat().st_size:
            right = f"expected none, or {PLAN} beside it; choose another --out"
            raise InputError.at(str(self.path), f"contains a {LOG} that is not from a run", right)
        if log.exists():
            if repaired(log):
                self.notes.append(TORN)
            self.history = read_history(log)
        if before is not None and self.stop is not None and not self.stop.completed:
            self._check_completed(before, self.stop)
        self.position = {entry["task"]: number for number, entry in enumerate(plan["tasks"])}
        put(self.path / PLAN, _laid_out({"schema": PLAN_SCHEMA, **plan}, self._scrub), mode_in(self.path))

    def _check_completed(self, before: RunPlan, stop: RunStop) -> None:
        """Keep that a later start came to the end of the plan, before the plan may grow: it is a fixed sample again."""
        planned = sum(map(before.of, before.tasks))
        every = ((task.task, sample) for task in before.tasks for sample in range(before.of(task)))
        outstanding = sum(key not in self.history for key in every)
        if stop.of_plan(planned, outstanding) is None:
            self._keep(structs.replace(stop, completed=True))

    def _grown(self, before: RunPlan, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The plan asked for, and all that was planned before: nothing finished may drop out of the count."""
        samples = plan["samples"]
        wanted = {entry["task"]: entry.get("samples", samples) for entry in plan["tasks"]}
        more = {old.task: old for old in before.tasks if before.of(old) > wanted.get(old.task, 0)}
        kept = sum(before.of(old) - wanted.get(task, 0) for task, old in more.items())
        tasks = [
            {**entry, "samples": before.of(more[entry["task"]])} if entry["task"] in more else entry
            for entry in plan["tasks"]
        ]
        gone = [old for task, old in more.items() if task not in wanted]
        tasks += [
            {"task": old.task, "metadata": old.metadata, "samples": before.of(old)}
            | ({"target": old.target} if old.target else {})
            for old in gone
        ]
        # what was planned before comes first: whoever looks at tasks in their order finds new ones behind old ones
        order = {old.task: number for number, old in enumerate(before.tasks)}
        tasks.sort(key=lambda entry: order.get(entry["task"], len(order)))
        if kept:
            wider = f"{kept} rollouts that this command does not ask for were planned earlier and stay planned"
            self.notes.append(f"{PLAN}: {wider}; choose another --out for a smaller run")
        return {**plan, "tasks": tasks, "created_at": before.created_at or plan.get("created_at")}


def _locked(path: Path) -> int:
    """The directory's lock, taken; InputError when another process holds it."""
    try:
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, mode_in(path))
    except (FileExistsError, NotADirectoryError):
        raise InputError.at(str(path), "is a file, or is inside one", "expected a directory for the run") from None
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})", "choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(lock, path / LOCK):
            raise BlockingIOError
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "ignore").strip()
        os.close(lock)
        wrong = "another process is running it" + (f" (pid {holder})" if holder.isdecimal() else "")
        raise InputError.at(str(path), wrong, "wait for it, or choose another --out") from None
    except OSError as error:
        os.close(lock)
        raise InputError.at(str(path), f"cannot be locked ({error.strerror})", "choose another --out") from None
    return lock


def is_at(lock: int, path: Path) -> bool:
    """Whether an open file is still the one at a path: whoever held its lock may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _laid_out(plan: Mapping[str, Any], scrub: Scrub) -> Iterator[bytes]:
    """A plan as JSON for people, without secrets, piece by piece: indented, a line for each task."""
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
