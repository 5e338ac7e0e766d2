"""The export of a result to a Hugging Face model card: ``.eval_results/<name>.yaml``, one file per group.

The format has one value per benchmark and no field for an interval. The ends, level and method of the interval and the
counts are therefore written into the free text of ``notes``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from calipers.errors import InputError
from calipers.reports.figures import counted, percent
from calipers.reports.group_files import GroupFiles
from calipers.reports.plain_words import plain_why
from calipers.reports.result import Group, Result, finite
from calipers.reports.untrusted_text import clean
from calipers.rollouts.table import Part
from calipers.stats.estimate import Estimate
from calipers.systems import ExportRequest

FOLDER: Final = ".eval_results"
EXPECTED: Final = "expected hf=DATASET:TASK, such as hf=openai/gsm8k:gsm8k; the benchmark's page names both"
_IDS: Final = re.compile(r"([\w.-]+/[\w.-]+):([\w./-]+)")


class ModelCard:
    """The export ``--export hf=DATASET:TASK``.

    It writes into ``.eval_results`` of the current folder, which should be a clone of the model's repository.
    """

    def __init__(self, request: ExportRequest) -> None:
        match = _IDS.fullmatch(request.target or "")
        if match is None:
            problem = f"{request.target!r} is no benchmark and task" if request.target else "the benchmark is not named"
            raise InputError.at("--export hf", problem, EXPECTED)
        self.paths, self.files = request.paths, list[str]()
        self._dataset, self._task, self._force = match[1], match[2], request.force

    def begin(self) -> list[Part] | None:
        """Return None: the export needs only the result, not what is read of the files."""
        return None

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Write one file per group, and return notes that name the files."""
        digest = result.digest  # computed once, because it covers every group
        with GroupFiles(FOLDER, force=self._force) as files:
            notes = [note for group in result.groups for note in self._write(result, digest, group, files)]
        if len(result.groups) > 1:
            notes.append(f"{FOLDER}: each file belongs in the repository of its own model")
        return [], notes

    def _write(self, result: Result, digest: str, group: Group, files: GroupFiles) -> Iterator[str]:
        title = group.title or "the rollouts"
        if not group.metrics:
            key = next(iter(group.breakdowns), "")
            problem = f"{title}: there is no number over all rollouts" + (f", only by {key}" if key else "")
            raise InputError.at(
                "--export hf", problem, "expected the rollouts of one model, such as the file of one step"
            )
        name, estimate = next(iter(group.metrics.items()))
        if finite(estimate.value) is None:
            why = f" ({plain_why(estimate.why)})" if estimate.why else ""
            yield f"{title}: {name} has no value{why}, so that no file is written"
            return
        parts = [group.dataset, group.model, group.agent] if len(result.groups) > 1 else [self._task]
        file = files.name_of(parts, ".yaml")
        entry = {
            "dataset": {"id": self._dataset, "task_id": self._task},
            "value": estimate.value,
            "date": datetime.now(UTC).date().isoformat(),
            "notes": clean(_notes(name, estimate, group, result.confidence, digest), None),
        }
        files.write(file, _yaml(entry).encode())
        yield f"{os.path.join(FOLDER, file)}: {name} {estimate.value:.4g} for {self._dataset}"
        if len(group.metrics) > 1:
            others = ", ".join(list(group.metrics)[1:])
            yield f"{title}: a card has one value for a benchmark, the first metric; not written: {others}"


def _notes(name: str, estimate: Estimate, group: Group, confidence: float, digest: str) -> str:
    """The text of ``notes``: what the format has no field for."""
    facts = [name]
    if estimate.interval:
        low, high = estimate.interval
        facts.append(f"{percent(confidence)} interval {low:.4f} to {high:.4f} ({estimate.method})")
    facts.append(f"n = {counted(estimate.tasks, 'task')}, {counted(estimate.samples, 'sample')}")
    if group.ledger.gaps:
        facts.append(f"{group.ledger.gaps} of {group.ledger.planned} rollouts missing")
    return f"{'; '.join(facts)}. Measured with Calipers, {digest[:23]}."


def _yaml(entry: dict[str, Any]) -> str:
    """YAML for a list of one entry. Strings are quoted as in JSON, because JSON is a subset of YAML."""
    lines = ["- dataset:"]
    lines += [f"    {key}: {json.dumps(value)}" for key, value in entry["dataset"].items()]
    lines += [f"  {key}: {json.dumps(value)}" for key, value in entry.items() if key != "dataset"]
    return "\n".join(lines) + "\n"
