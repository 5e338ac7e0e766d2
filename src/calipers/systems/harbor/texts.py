"""What the trials of a Harbor job say: instructions, answers, and trajectories as EvSys harvests them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from calipers.errors import InputError
from calipers.formats.format import BAD, Columns, Extras, Text
from calipers.formats.jsonl import placed
from calipers.formats.rewards import Trajectory, TrajectoryGroup, Turn
from calipers.rollouts.record import Part
from calipers.systems.harbor.folder import JobFolder, UnreadableFile, kind_of
from calipers.systems.harbor.rows import HarborPart, TrialPlaces, TrialRow, row_of
from calipers.systems.harbor.wire import (
    SpokenStep,
    SpokenTrajectory,
    Trial,
    decode_result,
    decode_trial,
    rewards,
    seconds,
    totals,
)

COMPLETION: Final = "agent/completion.txt"


def read_groups(job: str | os.PathLike[str], tasks: Sequence[str]) -> list[TrajectoryGroup]:
    """One group for each task, by its name in the job, in the order given; trials in the order they began."""
    folder = JobFolder(os.fspath(job))
    by_task: dict[str, list[tuple[str, str, Trajectory]]] = {name: [] for name in tasks}
    for directory in folder.finished:
        try:
            trial = decode_trial(folder.result(directory) or b"", folder.of(directory, "result.json"))
        except (UnreadableFile, InputError):
            continue  # it did not survive either
        given = rewards(trial)
        if trial.exception_info is not None or given is None or trial.task_name not in by_task:
            continue
        trajectory = Trajectory(_turns(folder, directory), float(given.get("reward", 0.0)), {"usage": _usage(trial)})
        by_task[trial.task_name].append((trial.started_at or "", trial.trial_name, trajectory))
    groups = [sorted(ended, key=lambda trial: trial[:2]) for ended in by_task.values()]
    return [TrajectoryGroup([trajectory for *_, trajectory in group]) for group in groups]


def _turns(folder: JobFolder, directory: str) -> list[Turn]:
    text = folder.held(directory, COMPLETION)
    return [] if text is None else [Turn([], [], [], text.decode(errors="replace"))]


def _usage(trial: Trial) -> Mapping[str, Any]:
    spent = totals(trial)
    return {
        "cost_usd": spent.cost_usd,
        "prompt_tokens": spent.n_input_tokens,
        "completion_tokens": spent.n_output_tokens,
        "cached_tokens": spent.n_cache_tokens,
        "latency_s": seconds(trial.agent_execution) or seconds(trial),
    }


INSTRUCTION: Final = "agent/instruction.md"
TRAJECTORY: Final = "agent/trajectory.json"
LARGEST_TEXT: Final = 64 << 20  # bytes of one of these files
MOST_PIECES: Final = 64  # files that one trajectory may go on in


def texts(path: str, wanted: Collection[str]) -> Iterator[Text]:
    """The first trial of each task that knows its instruction, and all of the wanted tasks, as they began."""
    folder = JobFolder(path, "trial" if kind_of(path) == "trial" else "job")
    known = set[tuple[str | None, ...]]()
    for row, steps in sorted(_trials(folder), key=lambda item: (item[0].started, item[0].directory)):
        task = row.who.task
        parts = [_AgentFiles(folder, row.directory, step) for step in steps or [""]]
        prompt = parts[0].instruction() if row.who not in known else None
        if prompt is not None:
            known.add(row.who)
        answer = None
        if task in wanted:
            answers = (part.answer() for part in reversed(parts))
            answer = next((item for item in answers if item is not None), None)
        if prompt is not None or answer is not None:
            yield Text(*row.who[:3], task, row.started, prompt=prompt, answer=answer)


def extras(part: Part, columns: Columns) -> Extras:
    """What each trial of a job says: the instruction and the answer; of one without a result, nothing."""
    if not isinstance(part, HarborPart) or not isinstance(part.places, TrialPlaces):
        return
    folder = JobFolder(part.job, "trial" if kind_of(part.job) == "trial" else "job")
    for directory in part.places.folders:
        try:
            trial = decode_result(folder.result(directory) or b"", directory) if directory else None
        except (UnreadableFile, InputError):
            trial = None
        if trial is None:
            yield {}
            continue
        parts = [_AgentFiles(folder, directory, step) for step in _steps(trial) or [""]]
        answers = (each.answer() for each in reversed(parts))
        completion = next((item for item in answers if item is not None), None)
        raised = trial.exception_info
        error = None if raised is None else {"kind": raised.exception_type, "message": raised.exception_message}
        yield placed({"prompt": parts[0].instruction(), "completion": completion, "error": error}, {})


def _trials(folder: JobFolder) -> Iterator[tuple[TrialRow, list[str]]]:
    """The trials that ended, with the names of their steps."""
    for directory in folder.finished:
        try:
            trial = decode_result(folder.result(directory) or b"", directory)
        except (UnreadableFile, InputError):
            continue  # told of where the job is read as rollouts
        yield row_of(trial, directory), _steps(trial)


def _steps(trial: Trial) -> list[str]:
    """The steps of a trial, but for a name that is no name of a folder in it."""
    names = [step.step_name for step in trial.step_results or ()]
    return [name for name in names if name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)]


class _AgentFiles:
    """What an agent left in a trial, or in a step of it."""

    def __init__(self, folder: JobFolder, trial: str, step: str) -> None:
        self._folder, self._trial = folder, trial
        self._step = f"steps/{step}/" if step else ""

    def instruction(self) -> Any:
        """What the agent was told; None where nobody wrote it down."""
        text = self._text(INSTRUCTION)
        if text is not None:
            return text
        first = self._trajectory(TRAJECTORY)
        return next((step.message for step in first.steps if step.source == "user" and step.message), None)

    def answer(self) -> Any:
        """What the agent said in the end; None where it said nothing, or nobody wrote it down."""
        written = self._text(COMPLETION)
        if written is not None:
            return written
        last: Any = None
        pieces, name = set[str](), TRAJECTORY
        while name not in pieces and len(pieces) < MOST_PIECES:
            pieces.add(name)
            piece = self._trajectory(name)
            last = next((step.message for step in reversed(piece.steps) if _says(step)), last)
            more = piece.continued_trajectory_ref
            if isinstance(more, str) and more and os.path.basename(more) == more:
                name = f"agent/{more}"
        return last

    def _text(self, name: str) -> str | None:
        """A text file; None where it is not there or blank."""
        text = (self._folder.held(self._trial, self._step + name, LARGEST_TEXT) or b"").decode(errors="replace")
        return text if text.strip() else None

    def _trajectory(self, name: str) -> SpokenTrajectory:
        raw = self._folder.held(self._trial, self._step + name, LARGEST_TEXT) or b"{}"
        try:
            return msgspec.json.decode(raw, type=SpokenTrajectory)
        except BAD:
            try:  # NaN and infinities, as Python writes them
                return msgspec.convert(json.loads(raw), SpokenTrajectory)
            except (ValueError, RecursionError, msgspec.ValidationError):
                return SpokenTrajectory()


def _says(step: SpokenStep) -> bool:
    """Whether the agent says something in a step beside what it does."""
    message = step.message
    return step.source == "agent" and bool(message.strip() if isinstance(message, str) else message)
