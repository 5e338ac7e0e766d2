"""What runs of lm-evaluation-harness' tasks come to in its own terms: its table, its files, and how sure.

::

    logs ──► scores of every pipeline ──► its results object ──► table, results_*.json, samples_*.jsonl
                                     └──► our interval for each of its numbers
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from calipers.dialects.lm_eval_results import Ran, file_name, run_results
from calipers.jobs.job import Job
from calipers.jobs.lm_eval import Wanted, found, groups, loaded
from calipers.jobs.lm_eval_numbers import sample_lines, score_run
from calipers.jobs.lm_eval_sure import sure, sure_groups
from calipers.readers.run_plan import LOG
from calipers.reports.lm_eval import file_text, task_hash
from calipers.reports.lm_eval_table import table
from calipers.tasks.lm_eval.groups import leaves


@dataclass(frozen=True, slots=True)
class Theirs:
    """The finished runs of one model over tasks of one name or file, as lm-evaluation-harness reports them."""

    model: str
    results: dict[str, Any]  # its results object
    samples: dict[str, list[str]]  # task -> lines of its samples file
    sure: list[str]  # our interval for each of its numbers, a line each

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
        told: list[str] = []
        members = list(alike)
        for job, folder in members:
            wanted = _wanted(job)
            task = loaded(job.benchmark, str(job.lm_eval), wanted)
            scored = score_run(task, folder / LOG, job.samples)
            lines = list(sample_lines(scored))
            source = task.file.path.name if task.file.path else "inline"
            rows = [json.loads(line) for line in lines]  # lm-evaluation-harness writes NaN as it is
            ran.append(Ran(task.config, source, scored.scores, len(task.docs), len(scored.responses), task_hash(rows)))
            samples[ran[-1].name] = lines
            told += sure(ran[-1].name, scored.scores, job.confidence, job.seed)
        nodes = found(benchmark, _wanted(members[0][0]))
        scores = {one.name: one.scores for one in ran}
        whole = []
        for group in groups(nodes):
            lost = [leaf.name for leaf in leaves(group.members) if leaf.name not in scores]
            whole += [] if lost else [group]
            told += [f"{group.name}: no row, as {', '.join(lost)} has no numbers"] if lost else []
        results = run_results(ran, whole, model_source="calipers", model_name=model)
        told += sure_groups(whole, results["results"], scores, members[0][0])
        yield Theirs(model, results, samples, told)


def _wanted(job: Job) -> Wanted:
    return Wanted(job.include_path, job.num_fewshot, job.predict_only, job.trust, job.samples)
