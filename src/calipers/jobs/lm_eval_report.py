"""What runs of lm-evaluation-harness' tasks come to in its own terms: its table, its files, and how sure.

::

    logs ──► scores of every pipeline ──► its results object ──► table, results_*.json, samples_*.jsonl
                                     └──► our interval for each of its means
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from calipers.dialects.lm_eval_results import Ran, file_name, run_results
from calipers.jobs.job import Job
from calipers.jobs.lm_eval import Wanted, found, groups, loaded
from calipers.jobs.lm_eval_numbers import Scored, sample_lines, score_run
from calipers.readers.run_plan import LOG
from calipers.reports.lm_eval import file_text, task_hash
from calipers.reports.lm_eval_table import table
from calipers.stats.interval import interval


@dataclass(frozen=True, slots=True)
class Theirs:
    """The finished runs of one model over tasks of one name or file, as lm-evaluation-harness reports them."""

    model: str
    results: dict[str, Any]  # its results object
    samples: dict[str, list[str]]  # task -> lines of its samples file
    sure: list[str]  # our interval for each of its means, a line each

    def tables(self) -> str:
        """The table it prints, and that of its groups where there are some."""
        blocks = [table(self.results), *([table(self.results, "groups")] if self.results.get("groups") else [])]
        return "\n".join(blocks)

    def write(self, folder: Path, moment: datetime) -> list[Path]:
        """Its results file and its samples files, below a folder."""
        time = moment.isoformat(timespec="microseconds")
        texts = {file_name(self.model, time): file_text(self.results)}
        texts |= {file_name(self.model, time, task): "".join(lines) for task, lines in self.samples.items()}
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in texts]


def theirs(runs: Sequence[tuple[Job, Path]]) -> Iterator[Theirs]:
    """The reports of finished runs, those of one model and one name or file together, as groups need them."""
    asked = sorted(runs, key=lambda run: (run[0].model, run[0].benchmark))
    for (model, benchmark), alike in groupby(asked, key=lambda run: (run[0].model, run[0].benchmark)):
        ran: list[Ran] = []
        samples: dict[str, list[str]] = {}
        sure: list[str] = []
        members = list(alike)
        for job, folder in members:
            wanted = _wanted(job)
            task = loaded(job.benchmark, str(job.lm_eval), wanted)
            scored = score_run(task, folder / LOG, job.samples)
            lines = list(sample_lines(scored))
            source = task.file.path.name if task.file.path else "inline"
            rows = [msgspec.json.decode(line) for line in lines]
            ran.append(Ran(task.config, source, scored.scores, len(task.docs), len(scored.responses), task_hash(rows)))
            samples[ran[-1].name] = lines
            sure += _sure(ran[-1].name, scored, job.confidence)
        nodes = found(benchmark, _wanted(members[0][0]))
        results = run_results(ran, groups(nodes), model_source="calipers", model_name=model)
        yield Theirs(model, results, samples, sure)


def _wanted(job: Job) -> Wanted:
    return Wanted(job.include_path, job.num_fewshot, job.predict_only, job.trust)


def _sure(task: str, scored: Scored, confidence: float) -> Iterator[str]:
    """``task exact_match,strict 0.4312, 95 % interval [0.40, 0.46], 1,319 documents``, for means of numbers."""
    numbers = scored.scores.numbers(0).metrics
    for key, held in scored.scores.values().items():
        values = np.array([value for value in held if isinstance(value, (int, float))], dtype=np.float64)
        mean = numbers.get(key)
        if len(values) != len(held) or not isinstance(mean, (int, float)) or not np.isclose(values.mean(), mean):
            continue  # a corpus metric, or an aggregation that is no mean
        limits = (0.0, 1.0) if bool(((values >= 0) & (values <= 1)).all()) else None
        ends = interval(values, np.ones(len(values)), confidence, limits).ends
        how = f"{confidence:.0%} interval [{ends[0]:.4f}, {ends[1]:.4f}]" if ends else "no interval"
        yield f"{task} {key} {mean:.4f}, {how}, {len(values):,} documents"
