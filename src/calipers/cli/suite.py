"""``calipers run suite.yaml``: the plan of a suite, its matrix, its gate and its exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from calipers.analyses.gate.requirement import KEYS, NamedResult, Policy, policy_of
from calipers.cli.matrix import FOR_PEOPLE, folder_of, matrix_of, show_matrix
from calipers.cli.output import (
    PageOptions,
    Target,
    print_err,
    print_note,
    print_notes,
    print_result_notes,
    rendered,
    show,
    show_result,
    write,
    write_json,
)
from calipers.errors import InputError, UnknownName
from calipers.reports.document import Blank, Block, Document, Name, Row, Sentence, Table, TableColumn
from calipers.reports.figures import counted
from calipers.reports.untrusted_text import clean
from calipers.running.settings import SuiteFile, jobs_of

if TYPE_CHECKING:
    from calipers.analyses.gate import Gate
    from calipers.analyses.matrix.document import Matrix
    from calipers.running import Job
    from calipers.running.perform import Report

BASELINE = "baseline"
OF_GATE = (BASELINE, *(key for key in KEYS if key != "results"))
UNDEFINED = 3  # exit code of a gate that cannot be checked
MATRIX_FILE, GATE_FILE = "matrix.json", "gate.json"


@dataclass(frozen=True, slots=True)
class SuiteCommand:
    """A suite to run: its file, and the rules of its gate."""

    file: SuiteFile
    policy: Policy | None  # without results: these are the runs of the suite
    baseline: str | None = None  # a model of the suite, or a path

    def plan(self, given: Mapping[str, Any]) -> str:
        """The page of a dry run: the runs, their folder, and the rules to check."""
        from calipers.running.library import loaded_for
        from calipers.running.perform import rehearse

        jobs, remarks = jobs_of([self.file.path], given)
        print_notes(remarks)
        tasks = loaded_for(jobs)
        sizes: dict[str, int] = {}
        for job in jobs:
            key = _planned_key(job)
            if key not in sizes:
                sizes[key] = len(rehearse(job, tasks)[1])
        return rendered(_plan_page(self, jobs, [sizes[_planned_key(job)] for job in jobs]), "table")

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise InputError, before anything runs, for a rule with an unknown metric or for an unusable baseline."""
        jobs = jobs_of([self.file.path], given)[0] if self.policy is not None else []
        self._check_rules(jobs)
        if self.baseline is None:
            return
        models = list(dict.fromkeys(job.model for job in jobs))
        location = f"{self.file.path}:{self.file.lines.get(('gate', BASELINE), 1)}"
        if self.baseline not in models and not os.path.exists(self.baseline):
            raise InputError.at(location, str(UnknownName.of("model in this suite", self.baseline, models)))
        if models == [self.baseline]:
            raise InputError.at(location, f"{self.baseline} is the only model", "expected another one to check")

    def _check_rules(self, jobs: Sequence[Job]) -> None:
        """Look up the metrics of the rules; not if tasks come from a library, whose metrics are only known later."""
        from calipers.request import make_plan

        if self.policy is None or any(job.from_library for job in jobs):
            return
        lines = self.file.lines
        dialects = dict.fromkeys(job.dialect for job in jobs)
        for rule, dialect in product(self.policy.requirements, dialects):
            if not rule.missing:
                try:
                    make_plan([rule.metric], dialect=dialect)
                except UnknownName as error:
                    location = f"{self.file.path}:{lines.get(('gate', rule.tier)) or lines.get(('gate',), 1)}"
                    raise InputError.at(location, f"{rule.text!r}: {error}") from None

    def show(self, reports: Sequence[Report], shape: str, page: PageOptions) -> int:
        """Show the matrix and the gate, and write both beside the runs; return the gate's exit code, 0 without a gate.

        ``page`` are the options of the runs' pages: details, economics, every.
        """
        from calipers.running.perform import together

        folder = folder_of(reports)
        matrix = matrix_of(reports) if len(reports) > 1 else None
        show_pages = matrix is None or ((page["details"] or page["economics"]) and shape in FOR_PEOPLE)
        if matrix is not None:
            _write(folder, reports, MATRIX_FILE, matrix)
            show_matrix(matrix, shape, where=folder, details=page["details"], every=page["every"])
        for result in together(reports) if show_pages else ():
            show_result(result, shape, **page)
            print_result_notes(result)
        if self.policy is None:
            return 0
        if self._baseline_lost(reports):
            print_note(f"the gate was not checked: its baseline {self.baseline} has no run")
            return UNDEFINED
        checks = self.checked(reports)
        from calipers.analyses.gate import document

        _write(folder, reports, GATE_FILE, checks)
        if shape in FOR_PEOPLE:
            write("\n")
            show(document(checks), shape)
        else:
            print_err(f"gate: {clean(checks.headline(), None)}")
        print_notes(checks.notes)
        return checks.exit_code

    def _baseline_lost(self, reports: Sequence[Report]) -> bool:
        """Whether the baseline is a model of the suite, and none of its runs has a report."""
        if self.baseline is None or os.path.exists(self.baseline):
            return False
        return all(report.job.model != self.baseline for report in reports)

    def checked(self, reports: Sequence[Report]) -> Gate:
        """Check the rules of the gate for every run except those of the baseline, each scored by its own settings."""
        from calipers.analyses.gate import Gate
        from calipers.analyses.gate.gate import check_policy
        from calipers.analyses.gate.numbers import GateScoring

        assert self.policy is not None
        baselines = [report for report in reports if report.job.model == self.baseline]
        scored_alike: dict[tuple[Any, ...], list[Report]] = {}
        for report in reports:
            group = scored_alike.setdefault(_scoring(report.job), [])
            if report.job.model != self.baseline:
                group.append(report)
        gates = []
        for scoring, group in scored_alike.items():
            if not group and any(scored_alike.values()):
                continue  # only runs of the baseline; if there are no others, the rules have no answer
            benchmarks = {_benchmark_key(report.job) for report in group}
            before = [report for report in baselines if _benchmark_key(report.job) in benchmarks] or baselines
            folders = [str(report.folder) for report in before]
            baseline = folders[0] if len(folders) == 1 else folders or self.baseline
            named = NamedResult(self.file.path, [str(report.folder) for report in group], baseline)
            policy = replace(self.policy, results=[named])
            dialect, missing, cluster, reward, confidence, seed, threshold = scoring
            settings = GateScoring(dialect, missing, cluster, reward, None, {}, confidence, seed, threshold)
            gates.append(check_policy(policy, settings, alone=True))
        notes = dict.fromkeys(note for gate in gates for note in gate.notes)
        return Gate([check for gate in gates for check in gate.checks], self.policy.allowed_failures, [*notes])


def suite_command(file: SuiteFile) -> SuiteCommand:
    """The suite of a file, with its gate parsed."""
    if file.gate is None:
        return SuiteCommand(file, None)
    line = file.lines.get(("gate",), 1)
    location = f"{file.path}:{line}: gate"
    content = {"critical": file.gate} if isinstance(file.gate, (str, list)) else file.gate
    if isinstance(content, dict) and isinstance(content.get("critical"), str):
        content = {**content, "critical": [content["critical"]]}
    if not isinstance(content, dict):
        raise InputError.at(location, f"is {file.gate!r:.60}", "expected a list of rules, or critical: [...]")
    baseline = content.get(BASELINE)
    if baseline is not None and not isinstance(baseline, str):
        raise InputError.at(location, f"baseline is {baseline!r:.60}", "expected a model of the suite, or a path")
    for key in content:
        if key not in OF_GATE:
            key_place = f"{file.path}:{file.lines.get(('gate', key), line)}"
            raise InputError.at(key_place, str(UnknownName.of("key of a gate", str(key), OF_GATE)))
    rules = {key: value for key, value in content.items() if key != BASELINE}
    policy = policy_of(rules, location, OF_GATE)
    if baseline is None and (deltas := [rule.text for rule in policy.requirements if rule.delta]):
        raise InputError.at(location, f"{deltas[0]!r} needs a baseline", "add baseline: MODEL, or a path, to the gate")
    return SuiteCommand(file, policy, baseline)


def _write(folder: str, reports: Sequence[Report], name: str, page: Matrix | Gate) -> None:
    """Write a document beside the runs, if they are in a folder that the suite or ``--out`` names."""
    if folder and reports[0].job.out is not None:
        write_json(Target(os.path.join(folder, name)), page)


def _scoring(job: Job) -> tuple[Any, ...]:
    """The settings with which a run is scored; they may be those of its benchmark or of its model."""
    return job.dialect, job.missing, job.cluster, job.reward, job.confidence, job.seed, job.threshold


def _benchmark_key(job: Job) -> str:
    return f"{job.benchmark}\0{job.lm_eval}"


def _planned_key(job: Job) -> str:
    return f"{_benchmark_key(job)}\0{job.limit}\0{job.documents}"


def _plan_page(suite: SuiteCommand, jobs: Sequence[Job], sizes: Sequence[int]) -> Document:
    """The page of a dry run, with a row for each run."""
    benchmarks = dict.fromkeys(map(_benchmark_key, jobs))
    models = dict.fromkeys(job.model for job in jobs)
    rollouts = sum(size * job.samples for size, job in zip(sizes, jobs, strict=True))
    counts = [counted(len(benchmarks), "benchmark"), counted(len(models), "model"), counted(len(jobs), "run")]
    columns = [
        TableColumn("benchmark", style="strong", middle=True),
        TableColumn("model", style="strong", middle=True),
        TableColumn("tasks", "right"),
        TableColumn("samples", "right"),
        TableColumn("rollouts", "right"),
        TableColumn("at once", "right"),
    ]
    rows = [
        Row(
            [
                Name(job.lm_eval or job.benchmark, None),
                Name(job.model, None),
                f"{size:,}",
                f"{job.samples:,}",
                f"{size * job.samples:,}",
                f"{job.concurrency:,}",
            ]
        )
        for job, size in zip(jobs, sizes, strict=True)
    ]
    out = jobs[0].out or "runs"
    blocks: list[Block] = [
        Sentence(f"{clean(suite.file.path, None)}: {', '.join(counts)}, {counted(rollouts, 'rollout')}", "strong"),
        Blank(),
        Table(columns, rows),
        Blank(),
        Sentence(f"Runs are kept in {clean(str(out), None)}; run the command again to resume them."),
        *_rules(suite),
        Sentence("No request was sent."),
    ]
    return Document(lambda: blocks, dict)


def _rules(suite: SuiteCommand) -> list[Sentence]:
    if suite.policy is None:
        return []
    texts = [f"{rule.text} ({rule.tier})" for rule in suite.policy.requirements]
    against = f", deltas against {clean(suite.baseline, None)}" if suite.baseline else ""
    return [Sentence(f"The gate checks {counted(len(texts), 'rule')}{against}: {clean('; '.join(texts), None)}.")]
