"""The export of a result as logs that inspect opens: one per group and training step, ``.eval`` or ``.json``.

A rollout becomes an epoch of a sample. A rollout with an error becomes a sample with an error, and a missing one a
sample without a score. A rollout that was never run is only in the plan. A note names outcomes that inspect does not
have.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from calipers import __version__
from calipers.errors import InputError
from calipers.formats.source_facts import FACTS, SourceFacts
from calipers.reports.figures import counted
from calipers.reports.group_files import (
    GroupFiles,
    GroupRecords,
    Key,
    OutFile,
    Record,
    key_of,
    rewards_of,
    safe_name,
    usage_of,
    values_of,
)
from calipers.reports.result import Group, Result, finite
from calipers.rollouts.labels import SPLIT, STEP
from calipers.rollouts.record import GROUP
from calipers.rollouts.table import Part
from calipers.systems import ExportRequest
from calipers.systems.inspect import HEADER, OF_REASON, START, USAGE, VERSION

Step = tuple[str | None, str | None]  # (split, step) of a training run
WHOLE: Final = (None, None)  # stands for all rollouts of a group with at most one step
ENDS: Final = (".eval", ".json")
LONGEST_ID: Final = 500  # characters of a sample's id in the name of a member
UNNAMED: Final = "none/unknown"  # inspect requires a model
REASONS: Final = {outcome: reason for reason, outcome in OF_REASON.items()}
STOPS: Final = {"truncated": "max_tokens", "refused": "content_filter"}
ABSENT: Final = ("not_run", "stopped_early")  # outcomes of rollouts that are planned, but do not become samples
KNOWN: Final = frozenset({"scored", "client_failed", "timed_out", "cancelled", "missing", *STOPS, *REASONS, *ABSENT})


class InspectLogs:
    """The export ``--export inspect[=PATH]``: one log per group in the folder PATH, by default ``logs``.

    If PATH ends with ``.eval`` or ``.json``, it is the log of the only group.
    """

    def __init__(self, request: ExportRequest) -> None:
        self.paths, self.files = request.paths, list[str]()
        target = request.target or "logs"
        self._file = os.path.basename(target) if target.endswith(ENDS) else ""
        self._folder = (os.path.dirname(target) or ".") if self._file else target
        if self._file and not os.path.isdir(self._folder):
            raise InputError.at(target, f"there is no folder {self._folder!r}", "create it first")
        self._force = request.force
        self._records = GroupRecords(request.paths, request.columns)

    def begin(self) -> list[Part]:
        """Return the list to collect the parts that are read: the samples are made of them."""
        return self._records.parts

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Write a log for each group and step; the notes name the logs, and outcomes that inspect does not have."""
        steps = self._steps()
        wanted = [(group, step) for group in result.groups for step in steps.get(key_of(group), [WHOLE])]
        if self._file and len(wanted) > 1:
            count = f"{len(result.groups)} groups" if len(wanted) == len(result.groups) else f"{len(wanted)} steps"
            problem = f"there are {count}, and a log has one"
            raise InputError.at(f"--export inspect={self._file}", problem, "expected a folder, such as inspect=logs")
        notes: list[str] = []
        with GroupFiles(self._folder, force=self._force) as files:
            digest = result.digest  # computed once, because it covers every group
            logs = {(key_of(group), step): self._log(result, digest, group, step, files) for group, step in wanted}
            for key, record in self._records.each():
                step = WHOLE if key not in steps else (record.get(SPLIT), record.get(STEP))
                if (key, step) in logs:
                    logs[key, step].add(record)
            for log in logs.values():
                notes += log.finish()
        return [], notes

    def _steps(self) -> dict[Key, list[Step]]:
        """The training steps of each group with several: rollouts of two policies cannot be epochs of one sample."""
        steps_of: dict[Key, dict[Step, None]] = {}
        for part in self._records.parts:
            columns = [values_of(part.labels.get(name), len(part)) for name in (*GROUP, SPLIT, STEP)]
            for *key, split, step in dict.fromkeys(zip(*columns, strict=True)):
                steps_of.setdefault(tuple(key), {})[split, step] = None
        return {key: sorted(steps, key=_step_order) for key, steps in steps_of.items() if len(steps) > 1}

    def _log(self, result: Result, digest: str, group: Group, step: Step, files: GroupFiles) -> _LogDocument | _Archive:
        suffix = [f"{word}-{value}" for word, value in zip((SPLIT, STEP), step, strict=True) if value is not None]
        name = self._file or files.name_of([group.dataset, group.model, group.agent, *suffix], ".eval", "rollouts")
        path = os.path.normpath(os.path.join(files.folder, name))
        content = _Content(result, digest, group) if step == WHOLE else _StepContent(result, digest, group, step)
        return (_Archive if name.endswith(".eval") else _LogDocument)(content, files.open(name), path)


def _step_order(step: Step) -> tuple[str, float, str]:
    """A sort key: by split, then by the number of the step; a step that is not a number is last."""
    split, name = step
    try:
        number = -math.inf if name is None else float(name)
    except ValueError:
        number = math.inf
    return split or "", number, str(name)


class _LogDocument:
    """A writer of a log in one JSON file. It keeps all samples, because the header before them depends on all."""

    def __init__(self, content: _Content, file: OutFile, path: str) -> None:
        self._content, self._file, self._path = content, file, path
        self._samples: list[str] = []

    def add(self, record: Record) -> None:
        """Add a rollout."""
        if (sample := self._content.sample(record)) is not None:
            self._samples.append(json.dumps(sample))

    def finish(self) -> Iterator[str]:
        """Write the log, and return notes."""
        header = json.dumps(self._content.header(), indent=1).removesuffix("\n}")
        self._file.write(header.encode() + b',\n "samples": [\n')
        for number, sample in enumerate(self._samples):
            self._file.write(b"%s%s" % (b",\n" if number else b"", sample.encode()))
        self._file.write(b"\n ]\n}\n")
        self._file.close()
        return self._content.notes(self._path)


class _Archive:
    """A writer of a log as an archive, with a member for each sample."""

    def __init__(self, content: _Content, file: OutFile, path: str) -> None:
        self._content, self._file, self._path = content, file, path
        self._zip = zipfile.ZipFile(_AppendedFile(file), "w", zipfile.ZIP_DEFLATED)
        self._summaries: list[dict[str, Any]] = []

    def add(self, record: Record) -> None:
        """Add a rollout."""
        if (sample := self._content.sample(record)) is None:
            return
        self._member(f"samples/{_member_id(sample['id'])}_epoch_{sample['epoch']}.json", sample)
        self._summaries.append(_summary(sample))

    def finish(self) -> Iterator[str]:
        """Write the header and the summaries of the samples, and return notes."""
        header = self._content.header()
        self._member(START, {"version": VERSION, "eval": header["eval"], "plan": header["plan"]})
        self._member("summaries.json", self._summaries)
        self._member(HEADER, header)
        self._zip.close()
        self._file.close()
        return self._content.notes(self._path)

    def _member(self, name: str, value: Any) -> None:
        info = zipfile.ZipInfo(name)  # with a fixed time, so that equal content gives equal bytes
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, json.dumps(value))


class _Content:
    """The content of a group's log."""

    def __init__(self, result: Result, digest: str, group: Group) -> None:
        self._result, self._digest, self._group = result, digest, group
        self._timestamp = datetime.now(UTC).isoformat()
        self.samples = self.attempts = 0
        self.unknown: Counter[str] = Counter()  # outcomes that inspect does not have
        self._ids: dict[str, int] = {}  # task -> number of its planned samples
        self._scorers: dict[str, None] = {}

    def sample(self, record: Record) -> dict[str, Any] | None:
        """A rollout as a sample of the log; None for a rollout that was never run."""
        task, outcome, rewards = record["task"], record.get("outcome"), rewards_of(record)
        self._ids[task] = max(self._ids.get(task, 0), record["sample"] + 1)
        outcome = outcome or ("scored" if rewards else "missing")
        if outcome in ABSENT:
            return None
        self.samples += 1
        self.attempts += record.get("attempt", 1) - 1
        if outcome not in KNOWN:
            self.unknown[outcome] += 1
        scores = _sample_scores(rewards, outcome, record.get("answer"))
        self._scorers |= dict.fromkeys(scores)
        text = _text(record.get("completion"))
        model = self._group.model or UNNAMED
        usage = usage_of(record)
        sample: dict[str, Any] = {
            "id": task,
            "epoch": record["sample"] + 1,
            "input": _input(record.get("prompt")),
            "target": _target(record),
            "messages": [],
            "output": {
                "model": model,
                "choices": [
                    {
                        "message": {"role": "assistant", "content": text, "source": "generate"},
                        "stop_reason": STOPS.get(outcome, "stop"),
                    }
                ],
                "completion": text,
            },
            "scores": scores if outcome != "missing" else None,
            "metadata": record.get("metadata") or {},
            "store": {},
            "events": [],
            "model_usage": {model: _usage(usage)} if any(key in usage for key in USAGE) else {},
            "attachments": {},
        }
        if usage.get("latency_s") is not None:
            sample["total_time"] = usage["latency_s"]
        if outcome == "client_failed":
            sample |= {"error": {"message": _error(record), "traceback": "", "traceback_ansi": ""}, "scores": None}
        if outcome == "timed_out":
            sample["limit"] = {"type": "time", "limit": 0}
        if outcome == "cancelled":
            sample["invalidation"] = {"timestamp": self._timestamp, "author": "calipers", "reason": "cancelled"}
        return sample

    def header(self) -> dict[str, Any]:
        """The log without its samples. It must be called after the last sample."""
        group, model = self._group, self._group.model or UNNAMED
        epochs = max(self._ids.values(), default=1)
        return {
            "version": VERSION,
            "status": "success",
            "eval": {
                "eval_id": self._digest[7:29],
                "run_id": self._digest[7:29],
                "created": self._timestamp,
                "task": group.dataset or "rollouts",
                "task_id": self._digest[7:29],
                "task_version": 0,
                "task_attribs": {},
                "task_args": {},
                **({"solver": group.agent} if group.agent else {}),
                "dataset": {"name": group.dataset, "samples": len(self._ids), "sample_ids": list(self._ids)},
                "model": model,
                "model_args": {},
                "config": {"epochs": epochs},
                "packages": {"calipers": __version__},
                "metadata": {"calipers": {"digest": self._digest, "seed": self._result.seed}},
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {
                "total_samples": len(self._ids) * epochs,
                "completed_samples": self.samples,
                "scores": [*self._scores()],
            },
            "stats": {"started_at": self._timestamp, "completed_at": self._timestamp, "model_usage": {}},
        }

    def _scores(self) -> Iterator[dict[str, Any]]:
        """The metrics of the result, grouped by the scorer whose reward they read."""
        for scorer in self._scorers:
            metrics: dict[str, Any] = {}
            for name, estimate in self._group.metrics.items():
                if f"reward:{scorer}" in estimate.made.settings and finite(estimate.value) is not None:
                    metrics[name] = {"name": name, "value": estimate.value, "params": {}}
                    if estimate.stderr is not None:
                        metrics[f"{name} stderr"] = {"name": "stderr", "value": estimate.stderr, "params": {}}
            yield {"name": scorer, "scorer": scorer, "params": {}, "metrics": metrics}

    def planned(self) -> int:
        """The number of planned rollouts of the log."""
        return self._group.ledger.planned

    def notes(self, path: str) -> Iterator[str]:
        """Notes that name the log, outcomes that inspect does not have, and other differences."""
        yield f"{path}: {counted(self.samples, 'sample')} for inspect"
        title = self._group.title or "the rollouts"
        if self.unknown:
            words = ", ".join(f"{word} {count}" for word, count in self.unknown.items())
            yield f"{title}: inspect has no word for these outcomes, which stand in the metadata of scores: {words}"
        if self.attempts:
            yield f"{title}: inspect keeps the last attempt at a sample; {self.attempts} earlier ones are left out"
        more = len(self._ids) * max(self._ids.values(), default=1) - self.planned()
        if more > 0:
            epochs = "inspect plans as many epochs for every sample"
            yield f"{title}: {epochs}: read again, the log has {counted(more, 'rollout')} more, which were never run"


class _StepContent(_Content):
    """The content of the log of a group's training step. Samples are renumbered; metrics are those of the step."""

    def __init__(self, result: Result, digest: str, group: Group, step: Step) -> None:
        names = [str(name) for name in step if name is not None]
        slice_names = [", ".join(names), *names[-1:]]
        breakdowns = [slices for key, slices in group.breakdowns.items() if STEP in key]
        part = next((slices[name] for slices in breakdowns for name in slice_names if name in slices), None)
        step_group = replace(group, metrics=part.metrics if part else {}, ledger=part.ledger if part else group.ledger)
        super().__init__(result, digest, step_group)
        self._step, self._numbers = step, Counter[str]()
        self._planned = 0

    def sample(self, record: Record) -> dict[str, Any] | None:
        """A rollout as a sample, numbered within its task and step."""
        number = self._numbers[record["task"]]
        self._numbers[record["task"]] += 1
        self._planned += 1
        return super().sample({**record, "sample": number})

    def header(self) -> dict[str, Any]:
        """The log without its samples, with the step in its metadata."""
        header = super().header()
        named = {word: value for word, value in zip((SPLIT, STEP), self._step, strict=True) if value is not None}
        header["eval"]["metadata"]["calipers"] |= named
        return header

    def planned(self) -> int:
        return self._planned


class _AppendedFile(io.RawIOBase):
    """An `OutFile` as `zipfile` needs it: a file that can only be appended to."""

    def __init__(self, file: OutFile) -> None:
        self._file, self._size = file, 0

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        self._size += len(data)
        return len(data)


def _member_id(task: str) -> str:
    """A sample's id in the name of a member, unchanged as in inspect, unless unpacking could write outside a folder."""
    steps = task.replace("\\", "/").split("/")
    harmless = task.isprintable() and len(task) <= LONGEST_ID and not {"", ".", ".."} & {*steps}
    return task if harmless else safe_name(task)


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample's entry in inspect's list of samples."""
    kept = {key: sample[key] for key in ("id", "epoch", "input", "target", "metadata", "scores", "model_usage")}
    error = sample.get("error")
    limit = sample.get("limit")
    return {
        **kept,
        **({"error": error["message"]} if error else {}),
        **({"limit": limit["type"]} if limit else {}),
        "completed": True,
    }


def _sample_scores(rewards: Mapping[str, float], outcome: str, answer: Any) -> dict[str, dict[str, Any]]:
    """The scores of a sample: its rewards. They also have its outcome, and the first score its answer."""
    scores: dict[str, dict[str, Any]] = {name: {"value": number} for name, number in rewards.items()}
    reason = REASONS.get(outcome)
    if reason or outcome not in KNOWN:
        scores = scores or {"outcome": {"value": math.nan}}
        for score in scores.values():
            score |= {"reason": reason} if reason else {"metadata": {"outcome": outcome}}
    if answer is not None and scores:
        next(iter(scores.values()))["answer"] = _text(answer)
    return scores


def _text(value: Any) -> str:
    """A value as text: a string as it is, None as the empty string, any other value as JSON."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _input(prompt: Any) -> Any:
    """A prompt in inspect's format: text, or messages with a role and a content."""
    if isinstance(prompt, list) and prompt and all(map(_is_message, prompt)):
        return [{"role": message["role"], "content": message["content"]} for message in prompt]
    return _text(prompt)


def _is_message(value: Any) -> bool:
    roles = ("system", "user", "assistant")
    return isinstance(value, dict) and value.get("role") in roles and isinstance(value.get("content"), str)


def _target(record: Record) -> Any:
    target = record.get("target")
    if isinstance(target, list):
        return [part if isinstance(part, str) else json.dumps(part) for part in target]
    return _text(target)


def _error(record: Record) -> str:
    """The message of a rollout's error in inspect's format, which begins with the kind of error."""
    error = record.get("error") or {}
    known = {"message": error} if isinstance(error, str) else error
    facts = record.get(FACTS)
    kind = (facts.error_kind if isinstance(facts, SourceFacts) else None) or known.get("kind") or ""
    message = str(known.get("message") or "")
    if not kind or message.startswith(f"{kind}("):
        return message or "the client failed"
    return f"{kind}({json.dumps(message)})"


def _usage(usage: Mapping[str, float]) -> dict[str, Any]:
    given = {inspect_name: usage[name] for name, inspect_name in USAGE.items() if usage.get(name) is not None}
    counts = {name: value if name == "total_cost" else int(value) for name, value in given.items()}
    tokens = counts.get("input_tokens", 0) + counts.get("output_tokens", 0)
    return {"input_tokens": 0, "output_tokens": 0, **counts, "total_tokens": tokens}
