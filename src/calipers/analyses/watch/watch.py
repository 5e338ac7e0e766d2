"""Watch a folder in which steps appear: read new files once, pass their sums to the monitor, and report alarms.

::

    folder ──► new and settled files ──► StepSums ──► log ──► Monitor, in order of steps ──► Watched

A look is one call. The same files and state give the same result, however often they are looked at.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from calipers.analyses.watch import DIVERGE, DROP, MEAN, RATE, SHARE, Alarm, alarms_of, parse
from calipers.analyses.watch.document import Watched, watched_of
from calipers.analyses.watch.monitor import Monitor, MonitorSettings, Raised
from calipers.analyses.watch.state import (
    ACCEPT,
    FILE,
    FOLDER,
    LOCK,
    LOG,
    LOOK,
    SCHEMA,
    SETTINGS,
    SNAPSHOT,
    STEP,
    StateFolder,
)
from calipers.analyses.watch.sums import (
    SPLITS,
    StepSums,
    headline_of,
    merged,
    read_step_file,
    resolved,
    rollouts_until,
    series_name,
    step_of,
)
from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.read import MAY_HAVE_ROLLOUTS, format_of, has_rollouts
from calipers.formats.run_folder import LOG as RUN_LOG
from calipers.formats.run_folder import is_run
from calipers.formats.source import Source
from calipers.request import make_plan
from calipers.rollouts.column import Column, Floats
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import FIRST_GAP, OUTCOMES, STOPPED_EARLY
from calipers.rollouts.table import Rollouts
from calipers.stats.steps import step_confidence

SETTLE: Final = 2.0  # seconds without a change after which a file is considered complete
MOST_FILES: Final = 200_000
MOST_NAMED: Final = 4  # folders in a note
AHEAD: Final = 120.0  # seconds by which a file's time may lie in the future without a note

Stamp = tuple[int, int]  # size and time of a file
Key = tuple[str, int]  # series and step
Record = tuple[dict[str, Any], int, int]  # of the log, see `StateFolder`
SHOWN: Final = 5  # rollouts of an alarm
LONGEST: Final = 120  # characters of a task's name


@dataclass(slots=True)
class KnownFile:
    """The record of a file that was read, or could not be read."""

    stamp: Stamp
    sha256: str = ""
    keys: list[Key] = field(default_factory=list)  # the steps that it has
    wrong: str = ""  # why it was not read
    format: str = ""


class RunWatch:
    """A watch on a folder; `look` reads what is new."""

    def __init__(
        self,
        path: str,
        settings: Mapping[str, Any],
        *,
        state: str | None = None,
        columns: Named | None = None,
        reward: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        folders: Sequence[str] = (),
    ) -> None:
        if not os.path.isdir(path):
            raise InputError.at(path, "is no folder", "expected a folder in which a file appears for each step")
        self.path, self.columns, self.reward = path, columns, reward
        self.folders = [path, *folders]  # in which steps appear: the watched folder, and folders that evaluations write
        self._clock = clock
        self.state = StateFolder(state or os.path.join(path, FOLDER))
        self.files: dict[str, KnownFile] = {}
        self._owners: dict[Key, str] = {}  # the first file with each step
        self._formats: dict[str, str] = {}  # the recognised format of each unread file
        self.steps: dict[Key, str] = {}  # the digest of the sums of each step that was used or shown
        self.rewrites: list[Key] = []
        self.notes: list[str] = []
        self._seen: dict[str, tuple[Stamp, float]] = {}  # the stamp of each unread file, and since when it has it
        self._pending: dict[Key, Record] = {}
        try:
            self.settings = self._agreed_settings(settings)
            self.monitor = self._restored()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the state."""
        self.state.close()

    def _agreed_settings(self, given: Mapping[str, Any]) -> MonitorSettings:
        """The settings of the state, which the given settings must not contradict; a new state gets the given ones."""
        wanted = {name: value for name, value in given.items() if value is not None}
        make_plan(
            ["mean_reward"], **{name: wanted[name] for name in ("confidence", "range") if name in wanted}
        )  # checks
        first = next(self.state.of_kind(SETTINGS), None)
        if first is None:
            settings = MonitorSettings(**{"alarms": alarms_of(["rl"]), **wanted})
            if step_confidence(settings.confidence, settings.steps) >= 1:
                problem = f"is {settings.confidence}, too near to 1 for {settings.steps:,} steps"
                raise InputError.at("--confidence", problem, "expected a number such as 0.95")
            document = {**asdict(settings), "alarms": [[alarm.text, alarm.preset] for alarm in settings.alarms]}
            self.state.append({"kind": SETTINGS, "schema": SCHEMA, "settings": {**document, "reward": self.reward}})
            self.state.flush()
            return settings
        stored = dict(first[0]["settings"])
        reward = stored.pop("reward")
        stored["alarms"] = [parse(text, preset=preset) for text, preset in stored["alarms"]]
        stored["range"] = None if stored["range"] is None else tuple(stored["range"])
        for name, value in (*wanted.items(), ("reward", self.reward)):
            before = reward if name == "reward" else stored[name]
            if value is not None and before != value:
                shown = ", ".join(alarm.text for alarm in before) if name == "alarms" else before
                shown = ",".join(f"{end:g}" for end in before) if isinstance(before, tuple) else shown
                option = {"alarms": "--alarm", "false_alarms": "--false-alarms"}.get(name, f"--{name}")
                why = "expected the same, as new rules void the rate of false alarms; another --state DIR begins anew"
                raise InputError.at(str(self.state.path), f"was begun with another {option}: {shown!s:.80}", why)
        self.reward = reward
        return MonitorSettings(**stored)

    def _restored(self) -> Monitor:
        """The monitor after the last look: from the snapshot, or else rebuilt from the log."""
        latest: dict[Key, Record] = {}
        for record in self.state.records:
            header = record[0]
            match header.get("kind"):
                case "file":
                    stamp = (int(header["stamp"][0]), int(header["stamp"][1]))
                    keys = [_pair(pair) for pair in header["keys"]]
                    known = KnownFile(stamp, header["sha256"], keys, header["wrong"], header["format"])
                    self._add_file(header["path"], known)
                case "step":
                    latest[_key(header)] = record
                case "look":
                    rewritten = [_pair(pair) for pair in header["rewritten"]]
                    self.rewrites += rewritten
                    for key in [*rewritten, *(_pair(pair) for pair, _ in header["order"])]:
                        self.steps[key] = latest[key][0]["digest"]
        # steps that an interrupted look has read are used by the next look
        self._pending = {key: record for key, record in latest.items() if self.steps.get(key) != record[0]["digest"]}
        restored = self.state.restore(self.settings)
        if restored is not None:
            return restored
        rebuilt = self._rebuilt()
        rebuilt.raised = list(map(self._with_examples, rebuilt.raised))
        return rebuilt

    def accept(self, step: int) -> None:
        """Begin a new segment at a step: the values from this step on are the new reference."""
        known = sorted(number for _, number in self.steps)
        if not known or step > known[-1]:
            expected = f"expected a step up to {known[-1]}" if known else "expected a step that was read"
            raise InputError.at("--accept", f"step {step} is not there yet", expected)
        if any(record[0]["step"] == step for record in self.state.of_kind(ACCEPT)):
            return
        self.state.append({"kind": ACCEPT, "step": step})
        self.monitor = self._rebuilt()
        self.monitor.raised = list(map(self._with_examples, self.monitor.raised))
        self.state.save(self.monitor)

    def _rebuilt(self) -> Monitor:
        """The monitor rebuilt from the sums on disk, in the order of use; an accepted step begins a segment."""
        accepted = sorted(record[0]["step"] for record in self.state.of_kind(ACCEPT))
        monitor = Monitor(self.settings)
        latest = self._latest()
        for record in self.state.of_kind(LOOK):
            for pair, _ in record[0]["order"]:
                key = _pair(pair)
                if latest[key][0].get("follows") is not None:
                    monitor.first.setdefault(*key)
        for record in list(self.state.of_kind(LOOK)):
            monitor.begin([self.state.sums(latest[_pair(pair)]) for pair in record[0]["firsts"]])
            for pair, late in record[0]["order"]:
                key = _pair(pair)
                while accepted and not late and key[1] >= accepted[0]:
                    monitor.accept(accepted.pop(0))
                monitor.take(self.state.sums(latest[key]), late=late)
        return monitor

    def _latest(self) -> dict[Key, Record]:
        """The latest record of each step."""
        return {_key(record[0]): record for record in self.state.of_kind(STEP)}

    def steps_read(self) -> list[StepSums]:
        """The latest sums of every step."""
        return [self.state.sums(record) for record in self._latest().values()]

    def look(self, *, settled: bool = True) -> list[Raised]:
        """Read new and changed files, and return the alarms that they raise.

        If ``settled`` is false, a file is read only after it has stopped changing.
        """
        records, self._pending = self._pending, {}
        for path in self._new_files(settled=settled):
            self._read(path, records)
        records = {key: record for key, record in records.items() if self.steps.get(key) != record[0]["digest"]}
        rewritten = [key for key in records if key in self.steps]
        order = sorted((key for key in records if key not in self.steps), key=lambda key: (key[1], key[0]))
        if not records:
            self.state.flush()
            self._note_folders()
            return []
        last = {name: series.last for name, series in self.monitor.series.items()}
        marked = [(key, key[1] <= last.get(key[0], -1)) for key in order]
        for key, late in marked:
            if late:
                path = records[key][0]["path"]
                self.notes.append(
                    f"{path}: step {key[1]} came after step {last[key[0]]}; it is shown, not used by alarms"
                )
        firsts = list({key[0]: key for key in reversed(order) if key[0] not in self.monitor.series}.values())
        header = {
            "kind": LOOK,
            "firsts": [list(key) for key in firsts],
            "order": [[list(key), late] for key, late in marked],
            "rewritten": [list(key) for key in rewritten],
        }
        self.state.append(header)
        for key in [*rewritten, *order]:
            self.steps[key] = records[key][0]["digest"]
        raised = self._take(records, marked, firsts, rewritten)
        self.state.save(self.monitor)
        self._note_folders()
        return raised

    def _note_folders(self) -> None:
        """Note folders that are watched as separate series, because they may be different runs."""
        splits = dict.fromkeys(series.split for series in self.monitor.series.values())
        folders = [
            name
            for name in splits
            if name.lower() not in SPLITS and any(os.path.isdir(os.path.join(root, name)) for root in self.folders)
        ]
        if len(folders) > 1:
            shown = ", ".join(f"{name}/" if name else "the folder itself" for name in folders[:MOST_NAMED])
            more = f" and {len(folders) - MOST_NAMED} more" if len(folders) > MOST_NAMED else ""
            self._once(
                f"{self.path}: {shown}{more} are watched as {len(folders)} series, each with its own curve. If they "
                f"are different runs, watch each of them alone, such as: {self._alone(folders[-1])}"
            )

    def _take(
        self,
        records: Mapping[Key, Record],
        marked: Sequence[tuple[Key, bool]],
        firsts: Sequence[Key],
        rewritten: Sequence[Key],
    ) -> list[Raised]:
        """Pass the steps of a look to the monitor, and return the alarms that they raise.

        ``marked`` says of each new step whether it is late. After a rewritten step, the monitor is rebuilt.
        """
        before = len(self.monitor.raised)
        if rewritten:
            self.rewrites += rewritten
            steps = ", ".join(str(step) for _, step in rewritten[:5])
            self.notes.append(
                f"rewritten since it was used: step {steps}; the alarms were computed again from all steps "
                f"({len(self.rewrites)} so far). Rewriting a step because of its result voids the rate of false alarms"
            )
            self.monitor = self._rebuilt()
        else:
            on_first = dict(self.monitor.first)
            self.monitor.begin([self.state.sums(records[key]) for key in firsts])
            for key, late in marked:
                self.monitor.take(self.state.sums(records[key]), late=late)
            if self.monitor.first != on_first:  # earlier steps were used with all their samples
                self.monitor = self._rebuilt()
        known = [] if rewritten else self.monitor.raised[:before]
        self.monitor.raised = [*known, *map(self._with_examples, self.monitor.raised[len(known) :])]
        return self.monitor.raised[before:]

    def _with_examples(self, raised: Raised) -> Raised:
        """The alarm with the rollouts that show it best, and the command to look closer."""
        alarm = next(alarm for alarm in self.settings.alarms if alarm.text == raised.alarm)
        try:
            part = self._rollouts(raised.path, raised.series, raised.step)
            name = _resolved(alarm.what, part, self.reward)
        except (InputError, OSError):  # its file is gone
            return replace(raised, command=command_of(raised, alarm, alarm.what))
        command = command_of(raised, alarm, name if name in part.columns else alarm.what)
        before = None
        if raised.base_path:
            with suppress(InputError, OSError):
                before = self._rollouts(raised.base_path, raised.series, raised.since - 1)
        return replace(raised, rollouts=self._best_shown(raised, alarm, part, before), command=command)

    def _rollouts(self, path: str, series: str, last: int) -> Rollouts:
        """The rollouts of a series in a file, of its last step up to ``last``."""
        return rollouts_until(path, Named(self.columns or {}), series, last, root=self._root(path))

    def _best_shown(
        self, raised: Raised, alarm: Alarm, part: Rollouts, before: Rollouts | None
    ) -> list[dict[str, Any]]:
        """The five rollouts of a step that show an alarm best, one for each task."""
        if alarm.across:  # the step is an evaluation of held-out tasks
            alarm = replace(alarm, kind=DROP, what=alarm.other)
        score = _shows(part, alarm, before, self.reward)
        order = np.argsort(-score.values, kind="stable")
        order = order[score.given[order]]
        first = np.sort(np.unique(part.task[order], return_index=True)[1])  # the first of each task
        column = _column(part, alarm.what, self.reward)
        return [
            {
                "task": str(part.tasks[int(part.task[row])])[:LONGEST],
                "sample": int(part.sample[row]),
                "outcome": OUTCOMES[int(part.outcome[row])],
                "value": float(column.values[row]) if alarm.kind != RATE and column.given[row] else None,
                "path": os.path.relpath(raised.path, self.path),
            }
            for row in order[first[:SHOWN]].tolist()
        ]

    def _read(self, path: str, records: dict[Key, Record]) -> None:
        """Read a file, and add its new steps to the log and to ``records``; a problem with the file becomes a note."""
        stamp = _stamp(path)
        if stamp is None:
            return
        known = self.files.get(path)
        sums: list[StepSums] = []
        sha256 = problem = ""
        try:
            sums, sha256 = self._sums_of(path)
        except InputError as error:
            if has_rollouts(path) or (known and known.keys):
                problem = str(error)
                self.notes.append(f"not read: {problem}")
            else:
                self.notes.append(f"{path}: no rollouts, so it is not watched")
        keys = list(known.keys) if known else []
        if known is None or not sha256 or known.sha256 != sha256:  # else only the file's time has changed
            for step in sums:
                again = known is not None and step.key in known.keys
                usable = self._with_other_files(step, path) if again else self._joined(step, path, records)
                if usable is None:
                    continue
                self.state.add_step(usable)
                records[step.key] = self.state.records[-1]
                keys.append(step.key)
        self._remember(path, KnownFile(stamp, sha256, list(dict.fromkeys(keys)), problem))

    def _sums_of(self, path: str) -> tuple[list[StepSums], str]:
        columns = Named(self.columns or {}, format=self._formats.pop(path, ""))
        return read_step_file(
            path,
            columns,
            root=self._root(path),
            reward=self.reward,
            cluster=self.settings.cluster,
            range=self.settings.range,
            metrics=self.settings.metrics,
        )

    def _with_other_files(self, step: StepSums, path: str) -> StepSums:
        """A step of a rewritten file, merged with the parts of the step in other files, which are read again."""
        for other in [name for name, known in self.files.items() if name != path and step.key in known.keys]:
            try:
                parts = [part for part in self._sums_of(other)[0] if part.key == step.key]
            except InputError as error:
                self.notes.append(f"not read: {error}")
                continue
            for part in parts:
                step = merged(step, part) or step
        return step

    def _joined(self, step: StepSums, path: str, records: Mapping[Key, Record]) -> StepSums | None:
        """A step of a new file, merged with the parts of the step in other files; None if they have the same tasks."""
        owner = self._owners.get(step.key, "")
        if not owner:
            return step
        earlier = (record for record in reversed(self.state.records) if record[0].get("kind") == STEP)
        record = records.get(step.key) or next((record for record in earlier if _key(record[0]) == step.key), None)
        both = merged(self.state.sums(record), step) if record else step
        if both is None:
            series = f" of {step.series}" if step.series else ""
            self.notes.append(
                f"{path}: step {step.step}{series} is in {owner} already; not used. Are two runs in one folder?"
            )
            return None
        folder, owner_folder = self._run_folder(path, step.step), self._run_folder(owner, step.step)
        if folder != owner_folder:
            folders = " and ".join(f"{name}/" if name else "the folder itself" for name in (owner_folder, folder))
            self._once(
                f"{self.path}: {folders} have steps of the same numbers on different tasks, so that each is read as "
                f"one step. If they are two runs, watch each of them alone, such as: "
                f"{self._alone(folder or owner_folder)}"
            )
        return both

    def _run_folder(self, path: str, step: int) -> str:
        """The folder of a file below the watched folder, without the part that contains the number of its step."""
        *folders, file = os.path.relpath(path, self._root(path)).split(os.sep)
        named = [number for number, name in enumerate(folders) if step_of(name) == step and step_of(file) != step]
        return os.sep.join(folders[: named[-1] if named else None])

    def _alone(self, folder: str) -> str:
        """The command that watches a single folder."""
        return shlex.join(["calipers", "watch", os.path.join(self.path, folder)])

    def _add_file(self, path: str, known: KnownFile) -> None:
        self.files[path] = known
        for key in known.keys:
            self._owners.setdefault(key, path)

    def _remember(self, path: str, known: KnownFile) -> None:
        """Add a file to the files and to the log."""
        self._add_file(path, known)
        self._seen.pop(path, None)
        self.state.append(
            {
                "kind": FILE,
                "path": path,
                "stamp": list(known.stamp),
                "sha256": known.sha256,
                "keys": [list(key) for key in known.keys],
                "wrong": known.wrong,
                "format": known.format,
            }
        )

    def _root(self, path: str) -> str:
        return next((root for root in self.folders if path.startswith(os.path.join(root, ""))), self.path)

    def _new_files(self, *, settled: bool) -> list[str]:
        """The files that are new or have changed, and have settled, in the order of the steps in their names."""
        now, wall = self._clock(), time.time()
        ready: list[str] = []
        for path, stamp in self._files():
            try:
                path.encode()
            except UnicodeEncodeError:  # the state is JSON, which cannot represent the name
                self._once(f"{path}: its name is not UTF-8, so it is not watched")
                continue
            known = self.files.get(path)
            if known is not None and known.stamp == stamp:
                continue
            if stamp[1] / 1e9 > wall + AHEAD:
                self._once(f"{path}: its time lies in the future; the clock of this or of another machine is wrong")
            same = self._seen.get(path)
            if same is None or same[0] != stamp:
                self._seen[path] = same = (stamp, now)
            if settled or now - same[1] >= SETTLE:
                ready.append(path)
        chosen = self._chosen(ready)
        return sorted(chosen, key=lambda path: (_number(path), path.count(os.sep), _natural(path)))

    def _chosen(self, ready: list[str]) -> list[str]:
        """The files without those that their format excludes, such as a filtered copy of another file."""
        sets: dict[str, list[str]] = {}
        for path in ready:
            sets.setdefault(self._format(path), []).append(path)
        chosen = sets.pop("", [])
        for name, paths in sets.items():
            from calipers.names import FORMATS

            choose = FORMATS.load(name).of_folder
            if choose is None:
                chosen += paths
                continue
            candidates = [*paths, *(path for path, known in self.files.items() if known.format == name)]
            kept, notes = choose(sorted(dict.fromkeys(candidates), key=_natural))
            for note in notes:
                self._once(note)
            chosen += [path for path in paths if path in set(kept)]
            for path in set(paths) - set(kept):
                self._remember(path, KnownFile(_stamp(path) or (0, 0), wrong="left out", format=name))
        return chosen

    def _format(self, path: str) -> str:
        """The format of a file if its format chooses among the files of a folder; "" for any other file."""
        if os.path.isdir(path):
            return ""
        try:
            with Source(path) as source:
                kind = format_of(source, self.columns or Named({}))
        except InputError:
            return ""
        self._formats[path] = kind.name
        return kind.name if kind.of_folder is not None else ""

    def _once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _files(self) -> Iterable[tuple[str, Stamp]]:
        """Yield every file or run folder that may have rollouts, with its size and time.

        A folder that symbolic links reach a second time is read once, under its own name if that is in the tree.
        """
        count = 0
        for root in self.folders:
            folders, links, seen = [root], list[str](), set[tuple[int, int]]()
            while folders or links:
                folder = folders.pop() if folders else heappop(links)
                try:
                    status = os.stat(folder)
                except OSError:  # it was removed meanwhile
                    continue
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                if folder != root and is_run(folder):
                    log = _stamp(folder)
                    if log is not None:
                        yield folder, log
                    continue
                for name, stamp, inside in _entries(folder):
                    if inside and os.path.islink(name):
                        heappush(links, name)
                    elif inside:
                        folders.append(name)
                    elif stamp is not None and MAY_HAVE_ROLLOUTS.search(name):
                        count += 1
                        if count > MOST_FILES:
                            raise InputError.at(root, f"has more than {MOST_FILES:,} files", "expected one run")
                        yield name, stamp

    def result(self) -> Watched:
        """The current result of the watch."""
        files = self.files.items()
        return watched_of(
            self.path,
            self.monitor,
            unreadable={path: known.wrong for path, known in files if known.wrong and known.wrong != "left out"},
            rewrites=len(self.rewrites),
            notes=[*self.notes, *self.monitor.notes],
        )


def is_watched(path: str) -> bool:
    """Whether a folder contains the state of a watch, or is the state of a watch."""
    return os.path.isfile(os.path.join(state_folder(path), LOG))


def state_folder(path: str) -> str:
    """The folder of the state of a watched folder; the folder itself if it is a state."""
    return path if os.path.isfile(os.path.join(path, LOG)) else os.path.join(path, FOLDER)


def is_live(path: str) -> bool:
    """Whether a process is watching a folder now."""
    import fcntl

    try:
        with open(os.path.join(state_folder(path), LOCK), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def last_look(path: str) -> tuple[Watched, list[StepSums]]:
    """The result of the last look of a watch, which may still be running, and the steps that it read.

    The state is copied first, so that the watch is neither blocked nor changed.
    """
    state = state_folder(path)
    with TemporaryDirectory() as copy:
        try:
            for name in (SNAPSHOT, LOG):  # the log last: with an older snapshot, the monitor is rebuilt from the log
                if os.path.isfile(os.path.join(state, name)):
                    shutil.copyfile(os.path.join(state, name), os.path.join(copy, name))
        except OSError as error:
            raise InputError.at(state, f"cannot be read ({error.strerror})") from None
        with closing(RunWatch(path, {}, state=copy)) as watching:
            return watching.result(), watching.steps_read()


def look_once(
    path: str, columns: Named | None = None, reward: str | None = None, **settings: Any
) -> tuple[Watched, list[StepSums]]:
    """The result of a single look at a folder of steps, and the steps; nothing is written into the folder."""
    with (
        TemporaryDirectory() as state,
        closing(RunWatch(path, settings, state=state, columns=columns, reward=reward)) as watching,
    ):
        watching.look()
        return watching.result(), watching.steps_read()


def _key(header: Mapping[str, Any]) -> Key:
    return series_name(header["split"], header["dataset"], header["agent"]), header["step"]


def _pair(pair: Sequence[Any]) -> Key:
    return str(pair[0]), int(pair[1])


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(os.path.join(path, RUN_LOG) if os.path.isdir(path) else path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _entries(folder: str) -> list[tuple[str, Stamp | None, bool]]:
    """The visible entries of a folder: path, stamp of a file, and whether it is a folder."""
    visible: list[tuple[str, Stamp | None, bool]] = []
    with suppress(OSError), os.scandir(folder) as entries:  # the folder or a file may be removed meanwhile
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                visible.append((entry.path, None, True))
            elif entry.is_file():
                status = entry.stat()
                visible.append((entry.path, (status.st_size, status.st_mtime_ns), False))
    return visible


def _number(path: str) -> float:
    step = step_of(path)
    return float("inf") if step is None else step


def _natural(path: str) -> list[tuple[bool, int, str]]:
    parts = re.split("([0-9]+)", path)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def command_of(raised: Raised, alarm: Alarm, column: str) -> str:
    """The command to look closer at an alarm; ``column`` is the name of the alarm's metric in the file."""
    now, before = (shlex.quote(path) for path in (raised.path, raised.base_path))
    match alarm.kind:
        case "drop" | "rise" if raised.base_path:
            return f"calipers compare {before} {now}"
        case "rate":
            return f"calipers score {now} --by outcome"
        case "mean":
            return f"calipers score {now} --metric {shlex.quote(f'mean(column={column})')} --by task"
        case "share":
            return f"calipers items {now}"
    return f"calipers score {now} --by task"


def _resolved(what: str, part: Rollouts, reward: str | None) -> str:
    return resolved(what, part.rewards, part.columns, headline_of(part, reward)) or what


def _column(part: Rollouts, what: str, reward: str | None) -> Column:
    """The reward or column of an alarm's metric, [R]; the headline for metrics of rewards, such as pass@1."""
    name = _resolved(what, part, reward)
    if name in part.columns and name not in part.rewards:
        return part.columns[name]
    return contributed(part, name if name in part.rewards else headline_of(part, reward))


def _shows(part: Rollouts, alarm: Alarm, before: Rollouts | None, reward: str | None) -> Column:
    """A score of how well each rollout shows an alarm, [R]; a gap for a rollout that does not show it."""
    if alarm.kind == RATE:
        gaps = (part.outcome >= FIRST_GAP) & (part.outcome < STOPPED_EARLY)
        marked = gaps if alarm.what == "missing" else part.outcome == OUTCOMES.index(alarm.what)
        return Column(np.ones(len(part)), marked)
    column = _column(part, alarm.what, reward)
    if alarm.kind == MEAN:
        return column
    if alarm.kind == DIVERGE:
        other = _column(part, alarm.other, reward)
        return Column(column.values - other.values, column.given & other.given)
    mean = _means(part, column)
    if alarm.kind == SHARE:
        deviations = np.abs(np.where(column.given, column.values, mean[part.task]) - mean[part.task])
        largest = np.zeros(len(part.tasks))
        np.maximum.at(largest, part.task, deviations)
        return Column(-mean[part.task], (largest[part.task] == 0) & column.given)
    change = mean
    if before is not None:  # the change of each task's mean; the mean itself if the steps have no task in common
        known = dict(zip(before.tasks, _means(before, _column(before, alarm.what, reward)).tolist(), strict=True))
        if any(task in known for task in part.tasks):
            now = zip(part.tasks, mean, strict=True)
            change = np.array([task_mean - known.get(task, task_mean) for task, task_mean in now])
    # first the task that changed most, and of its rollouts the worst
    sign = -1.0 if alarm.kind == DROP else 1.0
    return Column(sign * (1e6 * np.round(change, 9)[part.task] + column.values), column.given)


def _means(part: Rollouts, column: Column) -> Floats:
    """The mean of each task, [T]; 0 without a value."""
    by = part.by_task
    return np.divide(by.sum(column), np.maximum(by.count(column.given), 1))
