"""A run on disk: one directory, one process at a time, a plan that only grows, and a log.

::

    runs/arith-openai_m-1f0a4c2e/
      plan.json         what was asked, where each value came from; written and renamed
      rollouts.jsonl    a line for each attempt at a rollout, in the order they ended; only ever longer
      stopped.json      the rule that stopped the run early, where one did; written and renamed
      .lock             held while a process runs it
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import structs

from calipers.errors import InputError, LogError
from calipers.readers.run_plan import LOG, PLAN, SCHEMA, TORN, RunPlan, is_run, read_plan
from calipers.readers.run_stop import STOPPED, RunStop, read_stop
from calipers.run.history import Past, read_history
from calipers.run.identity import fingerprint
from calipers.run.log import Log, Scrub, scrubbed
from calipers.run.resume import all_starts, continued
from calipers.run.whole import put, repaired

LOCK = ".lock"


class Folder:
    """The directory of a run, held by this process until it is closed."""

    def __init__(self, path: Path, lock: int, scrub: Scrub) -> None:
        self.path = path
        self.notes: list[str] = []
        self.history: dict[tuple[str, int], Past] = {}  # by (task, sample), the highest attempt
        self.place: dict[str, int] = {}  # of each task in the plan
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
        missing = [place for place in (path, *path.parents) if not place.exists()]
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
            self._log = Log(self.path / LOG, self._scrub)
        return self._log

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all, whatever happens meanwhile; LogError when it cannot be."""
        put(self.path / name, [scrubbed(data, self._scrub)])

    def stopped(self, stop: RunStop) -> None:
        """Keep that a rule has stopped the run; LogError when it cannot be written."""
        plan = read_plan(str(self.path))
        self._keep(structs.replace(stop, planned_rollouts=sum(map(plan.of, plan.tasks))))

    def continues(self) -> None:
        """Keep that the run goes on, where a rule had stopped it: what is owed from here on is not the rule's doing."""
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
        self.close()
        if self.path in self._made and not (self.path / LOG).stat().st_size:
            for name in (LOG, PLAN, LOCK):
                (self.path / name).unlink(missing_ok=True)
            for place in self._made:
                with suppress(OSError):  # somebody else has put something there
                    place.rmdir()

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
        asked = msgspec.json.decode(scrubbed(msgspec.json.encode(identity), self._scrub))
        plan = {**plan, "identity": asked, "fingerprint": fingerprint(asked)}
        before = read_plan(str(self.path)) if is_run(str(self.path)) else None
        if before is not None:
            kept, notes = continued(self.path, asked, same_model)
            self.notes += notes
            plan |= {"identity": kept, "fingerprint": fingerprint(kept)}
            if "starts" in plan:
                plan["starts"] = all_starts(self.path, plan["starts"])
            self.stop = read_stop(str(self.path))
            plan = self._grown(before, plan)
        elif log.exists() and log.stat().st_size:
            right = f"expected none, or {PLAN} beside it; choose another --out"
            raise InputError.at(str(self.path), f"holds a {LOG} of something else", right)
        if log.exists():
            if repaired(log):
                self.notes.append(TORN)
            self.history = read_history(log)
        if before is not None and self.stop is not None and not self.stop.completed:
            self._check_completed(before, self.stop)
        self.place = {entry["task"]: number for number, entry in enumerate(plan["tasks"])}
        put(self.path / PLAN, _laid_out({"schema": SCHEMA, **plan}, self._scrub))

    def _check_completed(self, before: RunPlan, stop: RunStop) -> None:
        """Keep that a later start came to the end of the plan, before the plan may grow: it is a fixed sample again."""
        planned = sum(map(before.of, before.tasks))
        every = ((task.task, sample) for task in before.tasks for sample in range(before.of(task)))
        owed = sum(key not in self.history for key in every)
        if stop.of_plan(planned, owed) is None:
            self._keep(structs.replace(stop, completed=True))

    def _grown(self, before: RunPlan, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The plan asked for, and all that was planned before: nothing finished may drop out of the count."""
        samples = plan["samples"]
        asked = {entry["task"]: entry.get("samples", samples) for entry in plan["tasks"]}
        more = {old.task: old for old in before.tasks if before.of(old) > asked.get(old.task, 0)}
        kept = sum(before.of(old) - asked.get(task, 0) for task, old in more.items())
        tasks = [
            {**entry, "samples": before.of(more[entry["task"]])} if entry["task"] in more else entry
            for entry in plan["tasks"]
        ]
        gone = [old for task, old in more.items() if task not in asked]
        tasks += [{"task": old.task, "metadata": old.metadata, "samples": before.of(old)} for old in gone]
        # what was planned before comes first: whoever looks at tasks in their order finds new ones behind old ones
        place = {old.task: number for number, old in enumerate(before.tasks)}
        tasks.sort(key=lambda entry: place.get(entry["task"], len(place)))
        if kept:
            wider = f"{kept} more rollouts than asked now were planned before, and stay planned"
            self.notes.append(f"{PLAN}: {wider}; choose another --out for a smaller run")
        return {**plan, "tasks": tasks, "created_at": before.created_at or plan.get("created_at")}


def _locked(path: Path) -> int:
    """The directory's lock, taken; InputError when another process holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except (FileExistsError, NotADirectoryError):
        raise InputError.at(str(path), "is a file, or lies in one", "expected a directory for the run") from None
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written ({error.strerror})", "choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
