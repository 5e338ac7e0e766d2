"""The data of a report: one run with its numbers, counts, states and texts; a pair of runs; or many runs.

Everything that a page draws is computed here from the table of rollouts, never from rounded numbers. A document without
rollouts has only its numbers, and the page says what it cannot show. A run that is still in progress has its progress,
and its value so far.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calipers.analyses.compare import Comparison
from calipers.analyses.compare.compare import compare
from calipers.analyses.compare.source import ReadSource, error_of, prompt_of, read_source, stored_text
from calipers.analyses.items import Flags, read_flags
from calipers.analyses.leaderboard import Leaderboard, leaderboard
from calipers.analyses.matrix import matrix
from calipers.analyses.matrix.document import Matrix
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import run_or_path, schema_of, unfolded
from calipers.formats.run_folder import is_run
from calipers.metrics import PASS_THRESHOLD, pass_counts, passed, task_mean
from calipers.pipeline import Progress, score_rollouts
from calipers.pipeline import Source as Rewarded
from calipers.reports.page import load
from calipers.reports.result import Group, Result
from calipers.request import NATIVE, SLACK, Plan, make_plan, no_reward, resolve
from calipers.rollouts.column import Column, Floats, Ints, total
from calipers.rollouts.labels import STEP, over_steps
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import CODE, FIRST_GAP, OUTCOMES, SCORED, STOPPED_EARLY
from calipers.rollouts.table import Rollouts
from calipers.stats.curve import Curve, pass_curves
from calipers.stats.sequence import finite
from calipers.tally import quietly

LOCK = ".lock"  # the lock file in a run's folder
LOCKS = "/proc/locks"  # the file locks that processes hold, on Linux
STATES: Final = ("passed", "scored", "wrong", "zero", "missing", "left")
"""The states of a rollout. ``scored``: a graded reward; ``zero``: counted as 0; ``left``: not run (stopped early)."""
STATE_CODE: Final = {state: code for code, state in enumerate(STATES)}
LONGEST: Final = 4_000  # characters of a text that are kept
TEXT_BUDGET: Final = 2_400_000  # bytes of all texts in a file of at most 3 MB
MOST_ROWS: Final = 20_000  # rollouts that a page lists, and whose texts it may contain
EVERY_TASK: Final = 1_000_000_000  # the number of changed tasks that a comparison lists: all of them
MOST_CHANGED: Final = 20  # the largest losses, and gains, whose texts have priority
LARGEST_K: Final = 64  # the largest k of metrics that are chosen by default
UNFLAGGED: Final = "expected the rollouts of one run, or of two runs of one dataset"
CHANGING: Final = ("cluster", "dialect", "missing", "reward", "threshold", "range")
"""Settings that do not apply to a finished document."""
USUAL: Final = {"confidence": 0.95, "seed": 0}  # others, which do not unless they have their default or its value

States = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run. The value covers only the tasks, in planned order, before the first incomplete task.

    Other complete tasks do not count, because tasks that finish early may be easier or harder than the others.
    """

    finished: int  # number of finished rollouts
    planned: int
    value: float | None = None  # the mean reward
    interval: tuple[float, float] | None = None  # an interval for the run's final value, valid at any time


def is_running(folder: str) -> bool:
    """Whether a process holds the lock of a run's folder; False on systems without a table of locks."""
    try:
        inode = os.stat(os.path.join(folder, LOCK)).st_ino
        with open(LOCKS) as file:
            return any(f":{inode} " in line for line in file if "FLOCK" in line)
    except OSError:
        return False


def progress_of(path: str, table: Rollouts, numbers: Column, confidence: float) -> RunProgress | None:
    """The progress of the run in a folder; None if it is not running, has finished, or if the path is not a run.

    The table has a row for each planned rollout. ``numbers`` are the contributions of its R rollouts; a missing rollout
    is a gap.
    """
    path = run_or_path(path)
    if not is_run(path) or not is_running(path):
        return None
    waiting = table.outcome == CODE["not_run"]
    finished = int((~waiting).sum())
    if finished == len(table):
        return None
    tasks = len(table.tasks)
    order = np.arange(tasks) if table.turn is None else np.argsort(table.turn, kind="stable")
    complete = (np.bincount(table.task[waiting], minlength=tasks) == 0)[order]
    prefix = order[: int(np.argmin(complete)) if not complete.all() else tasks]
    given = np.bincount(table.task[numbers.given], minlength=tasks)
    sums = np.bincount(table.task, weights=np.where(numbers.given, numbers.values, 0.0), minlength=tasks)
    settled = prefix[given[prefix] > 0]
    if not len(settled):
        return RunProgress(finished, len(table))
    means = sums[settled] / given[settled]
    value = float(total(means)) / len(settled)
    if not np.isfinite(value):
        return RunProgress(finished, len(table))
    kept = numbers.kept()
    if not bool(((kept >= 0) & (kept <= 1)).all()):
        return RunProgress(finished, len(table), value)
    planned = tasks - (len(prefix) - len(settled))
    amount = min(max(float(total(means)), 0.0), float(len(settled)))
    return RunProgress(finished, len(table), value, finite(amount, len(settled), planned, confidence))


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The numbers of rollouts of each task, by state; every field is [T]."""

    ids: Sequence[str]
    given: Ints  # rollouts with a number
    passed: Ints
    missing: Ints
    mean: Column  # the mean of the task's numbers


@dataclass(frozen=True, slots=True)
class RolloutText:
    """The texts of one rollout, cut to `LONGEST` characters; None for a text that the file does not have."""

    completion: str | None = None
    answer: str | None = None
    error: str | None = None


NO_TEXT = RolloutText()


@dataclass(frozen=True, slots=True)
class RunRollouts:
    """The rollouts of one run."""

    table: Rollouts  # the rollouts of this group only
    source: ReadSource  # the source of the table, which may have other groups, too
    reward: str  # the key of the reward that is shown
    numbers: Column  # the contribution of each rollout, [R]; a missing rollout is a gap under every policy
    states: States  # [R] codes of `STATES`
    tasks: TaskCounts
    curves: tuple[Curve, Curve] | None  # pass@k and pass^k; None without a pass or with one k only
    wants_texts: bool = True
    prompts: Mapping[int, str] = field(default_factory=dict)  # code of a task -> its prompt
    texts: Mapping[int, RolloutText] = field(default_factory=dict)  # row -> its texts
    texts_cut: bool = False  # whether texts were left out to keep the file small

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True, slots=True)
class RunData:
    """One run: a group of a result, with its rollouts if they are available."""

    result: Result
    group: Group
    name: str  # its name among other runs: its model, agent or path
    outright: bool  # every reward is 0 or 1
    rollouts: RunRollouts | None = None  # None for a document without rollouts
    cluster: str | None = None
    by: Sequence[str] = ()  # the requested keys of breakdowns
    flagged: Sequence[str] = ()  # ids of tasks that `flags` names
    flags: Flags | None = None
    planned: str = ""  # how its certificate compares with the registered plan; "" without a certificate
    progress: RunProgress | None = None  # None if the run is not in progress

    @property
    def runs(self) -> list[RunData]:
        """The run itself."""
        return [self]

    @property
    def who(self) -> str:
        """The model, or the agent if there is no model; "" if neither is known."""
        return self.group.model or self.group.agent or ""


@dataclass(frozen=True, slots=True)
class PairData:
    """Two runs: the first is the baseline. A comparison read from a document has no runs."""

    comparison: Comparison
    first: RunData | None
    second: RunData | None

    @property
    def runs(self) -> list[RunData]:
        """The runs that there are."""
        return [run for run in (self.first, self.second) if run is not None]


@dataclass(frozen=True, slots=True)
class ManyData:
    """Several runs: their ranking on each dataset, and each run by itself."""

    ranking: Leaderboard | Matrix  # a leaderboard for one benchmark, a matrix for several
    runs: Sequence[RunData]
    given: Sequence[str] = ()  # the paths as the user gave them, with folders not expanded; empty for values in memory


ReportData = RunData | PairData | ManyData


def report_data(
    sources: Sequence[Rewarded],
    *,
    metrics: str | Sequence[str] | None = None,
    by: str | Sequence[str] = (),
    texts: bool = True,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    flag: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> ReportData:
    """Read the sources: one run, a pair of runs, or many runs. ``settings`` are those of `make_plan`."""
    flags = None if flag is None else read_flags(flag)
    if not sources:
        raise InputError("nothing to report on; expected rollouts, a run folder, a result or a comparison")
    runs: list[RunData] = []
    named = all(isinstance(source, str | os.PathLike) for source in sources)
    given = [str(source) for source in sources] if named else []
    sources = unfolded(sources)
    changes = {"metric": metrics, "by": by, "columns": columns, "truth": truth}
    changes |= {key: settings.get(key) for key in CHANGING}
    for source in sources:
        document = _document(source)
        if document is not None and len(sources) == 1:
            numbers = [
                key for key, usual in USUAL.items() if settings.get(key) not in (None, usual, getattr(document, key))
            ]
            if changed := [*(key for key, value in changes.items() if value), *numbers]:
                problem = f"a {type(document).__name__.lower()} is finished, and --{changed[0]} cannot change it"
                raise InputError.at(str(source), problem, "expected its rollouts")
        if isinstance(document, Result):
            runs += [run_of_document(document, group, str(source)) for group in document.groups]
        elif document is None:
            plan = make_plan(metrics, by=by, source=source, **settings)
            read = read_source(source, Named(columns or {}, truth), [*plan.labels, "answer"], progress)
            runs += _runs(read, plan if metrics else _with_metrics(plan, read.rollouts), texts)
        elif len(sources) > 1:
            problem = f"a {type(document).__name__.lower()} beside other inputs"
            raise InputError.at(str(source), problem, "expected it alone, or rollouts and results only")
        elif flags is not None:
            raise InputError.at("--flag", f"{source} has no rollouts", UNFLAGGED)
        else:
            return PairData(document, None, None) if isinstance(document, Comparison) else ManyData(document, ())
    if flags is not None:
        runs = _flagged(runs, flags)
    if len(runs) == 1:
        return with_texts(runs[0]) if texts else runs[0]
    reading: dict[str, Any] = {**settings, "columns": columns, "truth": truth}
    if len(runs) == 2 and _comparable(*runs):
        comparison = compare(*sources, metrics=metrics, by=by, flips=EVERY_TASK, **reading)
        wanted = _changed(comparison)
        first, second = (with_texts(run, TEXT_BUDGET // 2, _codes(run, wanted)) if texts else run for run in runs)
        return PairData(comparison, first, second)
    rank = matrix if len({run.group.dataset for run in runs}) > 1 else leaderboard
    return ManyData(rank(*sources, metrics=_first(metrics), **reading), runs, given)


def _flagged(runs: Sequence[RunData], flags: Flags) -> list[RunData]:
    """The runs with their flagged tasks; InputError if the page has no What if, or no run has a flagged task."""
    one_or_two = len(runs) == 1 or (len(runs) == 2 and _comparable(*runs))
    if not one_or_two or any(run.rollouts is None for run in runs):
        raise InputError.at("--flag", "the page has no What if", UNFLAGGED)
    flagged = [
        replace(run, flags=flags, flagged=flags.of(run.group.dataset, run.rollouts.tasks.ids if run.rollouts else ()))
        for run in runs
    ]
    if any(flags.tasks.values()) and not any(run.flagged for run in flagged):
        unknown = next(task for tasks in flags.tasks.values() for task in tasks)
        known = [task for run in runs if run.rollouts for task in run.rollouts.tasks.ids]
        raise InputError.at(flags.path, str(UnknownName.of("task in these rollouts", unknown, known)))
    return flagged


def _comparable(first: RunData, second: RunData) -> bool:
    """Whether two runs can be compared task by task."""
    same = first.group.dataset == second.group.dataset
    return same and first.rollouts is not None and second.rollouts is not None


def _changed(comparison: Comparison) -> set[str]:
    """The tasks whose texts have priority: the largest losses and gains."""
    flips = comparison.contests[0].pairs[0].flips
    if flips is None:
        return set()
    return {change.task for changes in (flips.regressions, flips.fixes) for change in changes[:MOST_CHANGED]}


def _codes(run: RunData, tasks: set[str]) -> list[int]:
    return [] if run.rollouts is None else [code for code, task in enumerate(run.rollouts.tasks.ids) if task in tasks]


def run_of_document(result: Result, group: Group, path: str = "") -> RunData:
    """The data of a group of a result document, without rollouts."""
    mean, rate = group.metrics.get("mean_reward"), group.metrics.get("pass_rate")
    outright = mean is not None and rate is not None and mean.value == rate.value
    return RunData(result, group, group.model or group.agent or path, outright)


def _document(source: Rewarded) -> Result | Comparison | Leaderboard | Matrix | None:
    """The document at a path; None for rollouts and for values in memory."""
    if not isinstance(source, (str, os.PathLike)) or schema_of(os.fspath(source)) is None:
        return None
    page = load(source)
    if isinstance(page, (Result, Comparison, Leaderboard, Matrix)):
        return page
    expected = "expected rollouts, a result, a comparison or a leaderboard"
    raise InputError.at(os.fspath(source), f"a {type(page).__name__} has no report", expected)


def _runs(read: ReadSource, plan: Plan, texts: bool) -> list[RunData]:
    """The runs of one source, each scored."""
    tables = read.rollouts.groups()
    if read.rollouts.unread:
        raise no_reward(read.path, read.rollouts.unread)
    if (not plan.by or STEP in plan.by) and (mixed := over_steps(read.rollouts)):
        raise InputError.at(read.path, mixed[0])
    result = replace(score_rollouts(read.rollouts, plan), inputs=read.hashed())
    return [_run(result, group, table, read, texts, plan) for group, table in zip(result.groups, tables, strict=True)]


def _with_metrics(plan: Plan, rollouts: Rollouts) -> Plan:
    """The plan with the metrics that a page shows by default; another system's dialect has its own defaults."""
    if plan.dialect.name != NATIVE.name:
        return plan
    metrics = [replace(resolve(metric, NATIVE), asked=False) for metric in _default_metrics(rollouts, plan)]
    return replace(plan, requests=[metric.passing_from(plan.threshold) for metric in metrics])


def _default_metrics(rollouts: Rollouts, plan: Plan) -> list[str]:
    """The mean reward and, if there is a pass, pass@1, pass@k and pass^k.

    k is the largest power of two that does not exceed the number of samples of any task.
    """
    samples, solved = LARGEST_K, False
    for table in rollouts.groups():
        key = _reward_key(table, plan.reward)
        n, c = pass_counts(contributed(table, key), table.by_task, _passes_from(plan))
        samples = min(samples, int(n[n > 0].min(initial=LARGEST_K)))
        solved |= bool(c.any())
    k = 1 << max(samples.bit_length() - 1, 0)
    if not solved:
        return ["mean_reward"]
    return ["mean_reward", "pass@1", *([f"pass@{k}", f"pass^{k}"] if k > 1 else [])]


def _passes_from(plan: Plan) -> float:
    """The reward from which a sample passes."""
    return PASS_THRESHOLD if plan.threshold is None else plan.threshold


def _passes_are_known(numbers: Column, plan: Plan) -> bool:
    """Whether it is known which of these rewards pass: with a threshold, or if none is above 1."""
    return plan.threshold is not None or not bool((numbers.kept() > 1 + SLACK).any())


def _reward_key(table: Rollouts, requested: str | None) -> str:
    keys = sorted(table.rewards)
    if requested in keys:
        return str(requested)
    return "reward" if "reward" in keys or not keys else keys[0]


def _run(result: Result, group: Group, table: Rollouts, read: ReadSource, texts: bool, plan: Plan) -> RunData:
    first = next(iter(group.metrics.values()), None)
    requested = next((word[7:] for word in first.made.settings if word.startswith("reward:")), None) if first else None
    key = _reward_key(table, requested)
    numbers = contributed(table, key)
    outright = is_outright(numbers.kept())
    counted = numbers.filled(0.0) if plan.missing == "zero" else numbers
    threshold = _passes_from(plan)
    n, c = pass_counts(numbers, table.by_task, threshold)
    with quietly():
        tasks = TaskCounts(
            table.tasks,
            n,
            c,
            np.diff(table.by_task.starts) - n,
            task_mean(counted, table.by_task),
        )
        curves = (
            pass_curves(counted, table.by_task, threshold=threshold, confidence=result.confidence)
            if c.any() and table.stop is None and _passes_are_known(numbers, plan)
            else None
        )
    if curves is not None and len(curves[0].points) < 2:
        curves = None
    rollouts = RunRollouts(table, read, key, numbers, states_of(numbers, table.outcome, outright), tasks, curves, texts)
    name = group.model or group.agent or read.path
    planned = _planned(read.path) if isinstance(read.path, str) else ""
    progress = progress_of(read.path, table, numbers, result.confidence)
    return RunData(result, group, name, outright, rollouts, plan.cluster, plan.by, planned=planned, progress=progress)


def runs_of(read: ReadSource) -> list[RunData]:
    """The runs of a source, each with the metrics that a page shows by default; without texts."""
    plan = make_plan(None, source=read.path)
    return _runs(read, _with_metrics(plan, read.rollouts), False)


def _planned(path: str) -> str:
    """How the certificate in a run's folder compares with the plan registered before the run; "" without one."""
    certificate = os.path.join(path, "result.cert.json")
    if not os.path.isfile(certificate):
        return ""
    from calipers.analyses.certify.verify import planned_as

    return planned_as(certificate)


def is_outright(kept: Floats) -> bool:
    """Whether there are numbers, and every one is 0 or 1."""
    return bool(len(kept) and ((kept == 0) | (kept == 1)).all())


def states_of(numbers: Column, outcome: NDArray[np.uint8], outright: bool) -> States:
    """The state of each rollout, [R]; ``zero`` if its outcome, such as a refusal, counts as 0."""
    states = np.full(len(outcome), STATE_CODE["wrong" if outright else "scored"], dtype=np.uint8)
    if outright:
        states[passed(numbers, PASS_THRESHOLD)] = STATE_CODE["passed"]
    states[numbers.given & (outcome != SCORED) & (numbers.values == 0)] = STATE_CODE["zero"]
    states[~numbers.given] = STATE_CODE["missing"]
    return states


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """The rollouts with one state and one outcome."""

    state: str  # one of `STATES`
    outcome: str  # one of `record.OUTCOMES`
    count: int

    @property
    def word(self) -> str:
        """The name of the part on a page."""
        plain = self.outcome.replace("_", " ")
        if self.outcome == OUTCOMES[SCORED]:
            return "without this reward" if self.state == "missing" else self.state
        if self.state in ("passed", "wrong", "scored"):
            return f"{plain}, {self.state}"
        return "not run (stopped early)" if self.state == "left" else plain


def parts_of(states: States, outcomes: NDArray[np.uint8]) -> list[LedgerPart]:
    """The parts of rollouts with their counts, in the order of `STATES`, then of outcomes."""
    kinds, counts = np.unique(states.astype(np.int64) * 256 + outcomes, return_counts=True)
    return [
        LedgerPart(STATES[kind // 256], OUTCOMES[kind % 256], count)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
    ]


def ledger_parts(run: RunData) -> list[LedgerPart]:
    """The parts of a run, in the order of `STATES`, then of outcomes; every planned rollout is in exactly one part."""
    stopped_early = run.group.ledger.stopped_early
    not_run = [LedgerPart("left", OUTCOMES[STOPPED_EARLY], stopped_early)] if stopped_early else []
    if run.rollouts is None:
        known = [
            LedgerPart(_state_of(word), word, count)
            for word, count in run.group.ledger.outcomes.items()
            if word != OUTCOMES[STOPPED_EARLY]
        ]
        return [*sorted(known, key=lambda part: STATE_CODE[part.state]), *not_run]
    return [*parts_of(run.rollouts.states, run.rollouts.table.outcome), *not_run]


def _state_of(outcome: str) -> str:
    """The state of a rollout of which only the outcome is known."""
    if outcome == OUTCOMES[SCORED]:
        return "scored"
    return "zero" if OUTCOMES.index(outcome) < FIRST_GAP else "missing"


def with_texts(run: RunData, budget: int = TEXT_BUDGET, preferred: Iterable[int] = ()) -> RunData:
    """The run with the texts of its rollouts, until their size in the file reaches the budget, in bytes.

    The order of priority: the ``preferred`` tasks (by code), failures, passes of tasks with failures, then a sample of
    the other rollouts.
    """
    rolled = run.rollouts
    if rolled is None:
        return run
    rows = _by_priority(rolled, preferred)[:MOST_ROWS]
    table, source = rolled.table, rolled.source
    code_of = {table.tasks[int(code)]: int(code) for code in np.unique(table.task[rows])}
    prompts: dict[int, str] = {}
    texts_of: dict[int, dict[float, RolloutText]] = {}  # code of a task -> sample -> its texts
    key = tuple(table.keys[0])
    for owner, text in source.texts_by_group(frozenset(code_of)):
        code = code_of.get(text.task)
        if tuple(owner) != key or code is None:
            continue
        if code not in prompts and (prompt := prompt_of(text)):
            prompts[code] = cut(prompt)
        parts = (stored_text(text.completion), stored_text(text.answer), error_of(text))
        words = RolloutText(*(part and cut(part) for part in parts))
        if words != NO_TEXT:  # a later attempt comes later, and replaces the earlier one
            texts_of.setdefault(code, {})[text.sample] = words
    wanted = set(rows.tolist())
    texts = {row: words for row, words in _by_row(table, texts_of) if row in wanted}
    kept_prompts, kept = _within(rolled, rows, prompts, texts, budget)
    cut_short = len(kept) < len(texts) or len(rows) < len(table)
    return replace(run, rollouts=replace(rolled, prompts=kept_prompts, texts=kept, texts_cut=cut_short))


def _by_row(table: Rollouts, texts_of: Mapping[int, Mapping[float, RolloutText]]) -> Iterator[tuple[int, RolloutText]]:
    """Match texts with rows of the table, by sample number.

    If samples are not numbered (texts have times), they are matched by their order, provided that none is missing.
    """
    starts = table.by_task.starts
    for code, texts in texts_of.items():
        row_of = {float(table.sample[row]): row for row in range(int(starts[code]), int(starts[code + 1]))}
        if texts.keys() <= row_of.keys():
            yield from ((row_of[sample], words) for sample, words in texts.items())
        elif len(texts) == len(row_of):
            yield from zip(row_of.values(), (texts[sample] for sample in sorted(texts)), strict=True)


def _by_priority(rolled: RunRollouts, preferred: Iterable[int]) -> Ints:
    """The rows in the order in which their texts have priority."""
    task = rolled.table.task
    failed = ~passed(rolled.numbers, PASS_THRESHOLD)
    mixed = np.bincount(task[failed], minlength=len(rolled.tasks.ids)) > 0
    rank = np.where(failed, 1, np.where(mixed[task], 2, 3))
    rank[np.isin(task, np.fromiter(preferred, dtype=np.int64))] = 0
    spread = np.arange(len(task)) * 2_654_435_761 % (1 << 32)  # multiplicative hashing, for an even sample
    return np.lexsort((np.where(rank == 3, spread, 0), rank))


def _within(
    rolled: RunRollouts, rows: Ints, prompts: Mapping[int, str], texts: Mapping[int, RolloutText], budget: int
) -> tuple[dict[int, str], dict[int, RolloutText]]:
    """As many texts as the budget allows, in the order of ``rows``; a task's prompt is kept with its first rollout."""
    kept_prompts: dict[int, str] = {}
    kept: dict[int, RolloutText] = {}
    for row in rows.tolist():
        text, code = texts.get(row), int(rolled.table.task[row])
        prompt = prompts.get(code) if code not in kept_prompts else None
        words = [prompt, *((text.completion, text.answer, text.error) if text else ())]
        budget -= sum(map(_size, filter(None, words)))
        if budget < 0:
            break
        if text is not None:
            kept[row] = text
        if prompt is not None:
            kept_prompts[code] = prompt
    return kept_prompts, kept


def with_less_text(data: ReportData, less: int) -> ReportData:
    """The data with ``less`` bytes of texts left out, those of the lowest priority; each run loses an equal share."""
    share = less // max(len(data.runs), 1) + 1
    runs = [_with_less(run, share) for run in data.runs]
    if isinstance(data, PairData):
        first, second = runs or (None, None)
        return PairData(data.comparison, first, second)
    return runs[0] if isinstance(data, RunData) else replace(data, runs=runs)


def _with_less(run: RunData, less: int) -> RunData:
    rolled = run.rollouts
    if rolled is None or not rolled.texts:
        return run
    words = [*rolled.prompts.values()]
    for text in rolled.texts.values():
        words += filter(None, (text.completion, text.answer, text.error))
    rows = np.array([*rolled.texts], dtype=np.int64)  # in their order of priority
    prompts, texts = _within(rolled, rows, rolled.prompts, rolled.texts, max(sum(map(_size, words)) - less, 0))
    return replace(run, rollouts=replace(rolled, prompts=prompts, texts=texts, texts_cut=True))


def cut(words: str) -> str:
    """A text cut to `LONGEST` characters, with the number of characters that were cut off."""
    excess = len(words) - LONGEST
    return words if excess <= 0 else f"{words[:LONGEST]}\n[… {excess:,} more characters]"


def _size(words: str) -> int:
    """The size of a text in the file, in bytes."""
    return len(json.dumps(words, ensure_ascii=False).encode("utf-8", "replace")) + 5 * sum(map(words.count, "<>&"))


def _first(metrics: str | Sequence[str] | None) -> str | None:
    return metrics if metrics is None or isinstance(metrics, str) else next(iter(metrics), None)
