"""What a report shows, as values: runs with their numbers, counts, states and texts; pairs; many.

Everything that a page draws is computed here from the table of rollouts, never from rounded numbers. A document
without rollouts has its numbers and nothing else, and the page says what it cannot show. A run that is still going
has its progress, and what is known of its number so far.
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
from calipers.analyses.compare.source import ReadSource, error_of, prompt_of, read_source, said
from calipers.analyses.items import Flags, read_flags
from calipers.analyses.leaderboard import Leaderboard, leaderboard
from calipers.analyses.matrix import matrix
from calipers.analyses.matrix.document import Matrix
from calipers.errors import InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import schema_of, unfolded
from calipers.formats.run_folder import is_run
from calipers.metrics import PASS_THRESHOLD, pass_counts, passed, task_mean
from calipers.pipeline import Progress, score_rollouts
from calipers.pipeline import Source as Rewarded
from calipers.reports.page import load
from calipers.reports.result import Group, Result
from calipers.request import NATIVE, Plan, make_plan, no_reward, resolve
from calipers.rollouts.column import Column, Floats, Ints, total
from calipers.rollouts.labels import STEP, over_steps
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import CODE, FIRST_GAP, OUTCOMES, SCORED, STOPPED_EARLY
from calipers.rollouts.table import Rollouts
from calipers.stats.curve import Curve, pass_curves
from calipers.stats.sequence import finite
from calipers.tally import quietly

LOCK = ".lock"  # of a run's folder
LOCKS = "/proc/locks"  # what Linux knows of who holds which file
STATES: Final = ("passed", "scored", "wrong", "zero", "missing", "left")
"""How a rollout looks. ``scored``: rewards are graded; ``zero``: counted as 0; ``left``: spared by a stopping rule."""
STATE_CODE: Final = {state: code for code, state in enumerate(STATES)}
LONGEST: Final = 4_000  # characters of a text that are kept
TEXT_BUDGET: Final = 2_400_000  # bytes of all texts in a file of at most 3 MB
MOST_ROWS: Final = 20_000  # rollouts whose texts are considered, and that a page lists
EVERY_TASK: Final = 1_000_000_000  # changed tasks that a comparison lists: all of them
MOST_CHANGED: Final = 20  # tasks at each end whose texts are taken before others
LARGEST_K: Final = 64  # of the metrics that are chosen where none are named
UNFLAGGED: Final = "expected the rollouts of one run, or of two runs of one dataset"
CHANGING: Final = ("cluster", "dialect", "missing", "reward")  # settings that a finished document does not follow

States = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run that is still going. The value is over the tasks, in planned order, up to the first that is not complete.

    Only those count: tasks that finish early are easier, or harder, than the others.
    """

    finished: int  # rollouts
    planned: int
    value: float | None = None  # the mean reward
    interval: tuple[float, float] | None = None  # holds the number that the run will end with, at any time


def is_running(folder: str) -> bool:
    """Whether a process holds a run's folder, by the system's table of locks; False where there is none."""
    try:
        inode = os.stat(os.path.join(folder, LOCK)).st_ino
        with open(LOCKS) as file:
            return any(f":{inode} " in line for line in file if "FLOCK" in line)
    except OSError:
        return False


def progress_of(path: str, table: Rollouts, numbers: Column, confidence: float) -> RunProgress | None:
    """How far the run in a folder has come; None for one that is not going, or is no run.

    ``numbers`` is what each of its R rollouts contributes, what is missing a gap.
    """
    if not is_run(path) or not is_running(path):
        return None
    return progress_in(table, numbers, confidence)


def progress_in(table: Rollouts, numbers: Column, confidence: float) -> RunProgress | None:
    """As `progress_of`, of a table with a row for each planned rollout; None where all of them have finished."""
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
    """What became of each task's rollouts, [T] each."""

    ids: Sequence[str]
    planned: Ints
    given: Ints  # rollouts with a number
    passed: Ints
    missing: Ints
    mean: Column  # of the numbers


@dataclass(frozen=True, slots=True)
class RolloutText:
    """What one rollout says, cut to `LONGEST` characters; None where the file says nothing."""

    completion: str | None = None
    answer: str | None = None
    error: str | None = None


NOTHING_SAID = RolloutText()


@dataclass(frozen=True, slots=True)
class RunRollouts:
    """The rollouts of one run."""

    table: Rollouts  # of this group alone
    source: ReadSource  # where it comes from, perhaps with other groups
    reward: str  # the key of the reward that is shown
    numbers: Column  # what each rollout contributes, [R]; what is missing is a gap, whatever the policy
    states: States  # [R] codes of `STATES`
    tasks: TaskCounts
    curves: tuple[Curve, Curve] | None  # pass@k and pass^k; None where there is nothing to see
    wants_texts: bool = True
    prompts: Mapping[int, str] = field(default_factory=dict)  # code of a task -> its prompt
    texts: Mapping[int, RolloutText] = field(default_factory=dict)  # row -> what it says
    texts_cut: bool = False  # some were left out, to keep the file small

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True, slots=True)
class RunData:
    """One run: a group of a result, and its rollouts where they are there."""

    result: Result
    group: Group
    name: str  # what the run is called among others: its model, agent or path
    outright: bool  # every reward is 0 or 1
    rollouts: RunRollouts | None = None  # None: a document without rollouts
    cluster: str | None = None
    by: Sequence[str] = ()  # as requested
    flagged: Sequence[str] = ()  # ids of tasks that `flags` names
    flags: Flags | None = None
    planned: str = ""  # what its certificate says of its plan; "" without a certificate
    progress: RunProgress | None = None  # of a run that is still going

    @property
    def who(self) -> str:
        """The model, else the agent; empty where neither is known."""
        return self.group.model or self.group.agent or ""


@dataclass(frozen=True, slots=True)
class PairData:
    """Two runs: the first is the baseline. A comparison read from a document has no runs."""

    comparison: Comparison
    first: RunData | None
    second: RunData | None


@dataclass(frozen=True, slots=True)
class ManyData:
    """Several runs: ranked on each dataset, and each by itself."""

    ranking: Leaderboard | Matrix  # of one benchmark; of several
    runs: Sequence[RunData]
    given: Sequence[str] = ()  # the paths as the user gave them, a folder of runs as one; none of values in memory


Gathered = RunData | PairData | ManyData


def gather(
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
) -> Gathered:
    """What the sources hold: one run, a pair of runs, or many; ``settings`` are those of `make_plan`."""
    flags = None if flag is None else read_flags(flag)
    if not sources:
        raise InputError("nothing to report on; expected rollouts, a run folder, a result or a comparison")
    runs: list[RunData] = []
    named = all(isinstance(source, str | os.PathLike) for source in sources)
    given = [str(source) for source in sources] if named else []
    sources = unfolded(sources)
    changes = {"--metric": metrics, "--by": by, **{f"--{key}": settings.get(key) for key in CHANGING}}
    for source in sources:
        document = _document(source)
        if document is not None and len(sources) == 1 and (given := [word for word, value in changes.items() if value]):
            wrong = f"a {type(document).__name__.lower()} is finished, and {given[0]} cannot change it"
            raise InputError.at(str(source), wrong, "expected its rollouts")
        if isinstance(document, Result):
            runs += [of_document(document, group, str(source)) for group in document.groups]
        elif document is None:
            plan = make_plan(metrics, by=by, source=source, **settings)
            read = read_source(source, Named(columns or {}, truth), [*plan.labels, "answer"], progress)
            runs += _runs(read, plan if metrics else _with_metrics(plan, read.rollouts), texts)
        elif len(sources) > 1:
            wrong = f"a {type(document).__name__.lower()} beside other inputs"
            raise InputError.at(str(source), wrong, "expected it alone, or rollouts and results only")
        elif flags is not None:
            raise InputError.at("--flag", f"{source} has no rollouts", UNFLAGGED)
        else:
            return PairData(document, None, None) if isinstance(document, Comparison) else ManyData(document, ())
    if flags is not None:
        runs = _flagged(runs, flags)
    if len(runs) == 1:
        return with_texts(runs[0]) if texts else runs[0]
    asked: dict[str, Any] = {**settings, "columns": columns, "truth": truth}
    if len(runs) == 2 and _comparable(*runs):
        comparison = compare(*sources, metrics=metrics, by=by, flips=EVERY_TASK, **asked)
        wanted = _changed(comparison)
        first, second = (with_texts(run, TEXT_BUDGET // 2, _codes(run, wanted)) if texts else run for run in runs)
        return PairData(comparison, first, second)
    rank = matrix if len({run.group.dataset for run in runs}) > 1 else leaderboard
    return ManyData(rank(*sources, metrics=_first(metrics), **asked), runs, given)


def _flagged(runs: Sequence[RunData], flags: Flags) -> list[RunData]:
    """The runs with their flagged tasks; InputError where the page would have no switch for them."""
    one_or_two = len(runs) == 1 or (len(runs) == 2 and _comparable(*runs))
    if not one_or_two or any(run.rollouts is None for run in runs):
        raise InputError.at("--flag", "the page has no What if", UNFLAGGED)
    flagged = [
        replace(run, flags=flags, flagged=flags.of(run.group.dataset, run.rollouts.tasks.ids if run.rollouts else ()))
        for run in runs
    ]
    if any(flags.tasks.values()) and not any(run.flagged for run in flagged):
        some = next(task for tasks in flags.tasks.values() for task in tasks)
        known = [task for run in runs if run.rollouts for task in run.rollouts.tasks.ids]
        raise InputError.at(flags.path, str(UnknownName.of("task in these rollouts", some, known)))
    return flagged


def _comparable(first: RunData, second: RunData) -> bool:
    """Whether two runs can be compared task by task."""
    same = first.group.dataset == second.group.dataset
    return same and first.rollouts is not None and second.rollouts is not None


def _changed(comparison: Comparison) -> set[str]:
    """The tasks whose texts are wanted first: the largest losses and gains."""
    flips = comparison.contests[0].pairs[0].flips
    if flips is None:
        return set()
    return {change.task for some in (flips.regressions, flips.fixes) for change in some[:MOST_CHANGED]}


def _codes(run: RunData, tasks: set[str]) -> list[int]:
    return [] if run.rollouts is None else [code for code, task in enumerate(run.rollouts.tasks.ids) if task in tasks]


def of_document(result: Result, group: Group, path: str = "") -> RunData:
    """A run of a result that has no rollouts."""
    mean, rate = group.metrics.get("mean_reward"), group.metrics.get("pass_rate")
    outright = mean is not None and rate is not None and mean.value == rate.value
    return RunData(result, group, group.model or group.agent or path, outright)


def _document(source: Rewarded) -> Result | Comparison | Leaderboard | Matrix | None:
    """The document that a path is of; None for everything else."""
    if not isinstance(source, (str, os.PathLike)) or schema_of(os.fspath(source)) is None:
        return None
    page = load(source)
    if isinstance(page, (Result, Comparison, Leaderboard, Matrix)):
        return page
    wrong = f"a {type(page).__name__} has no report"
    raise InputError.at(os.fspath(source), wrong, "expected rollouts, a result, a comparison or a leaderboard")


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
    """The plan with the metrics that a page shows where none are named; another system's dialect has its own."""
    if plan.dialect.name != NATIVE.name:
        return plan
    return replace(plan, asked=[resolve(metric, NATIVE) for metric in _chosen(rollouts, plan.reward)])


def _chosen(rollouts: Rollouts, reward: str | None) -> list[str]:
    """The mean reward, and what k samples solve, where every task has so many."""
    samples, solved = LARGEST_K, False
    for table in rollouts.groups():
        key = _reward_key(table, reward)
        n, c = pass_counts(contributed(table, key), table.by_task, PASS_THRESHOLD)
        samples = min(samples, int(n[n > 0].min(initial=LARGEST_K)))
        solved |= bool(c.any())
    k = 1 << max(samples.bit_length() - 1, 0)
    if not solved:
        return ["mean_reward"]
    return ["mean_reward", "pass@1", *([f"pass@{k}", f"pass^{k}"] if k > 1 else [])]


def _reward_key(table: Rollouts, chosen: str | None) -> str:
    keys = sorted(table.rewards)
    if chosen in keys:
        return str(chosen)
    return "reward" if "reward" in keys or not keys else keys[0]


def _run(result: Result, group: Group, table: Rollouts, read: ReadSource, texts: bool, plan: Plan) -> RunData:
    first = next(iter(group.metrics.values()), None)
    chosen = next((word[7:] for word in first.made.settings if word.startswith("reward:")), None) if first else None
    key = _reward_key(table, chosen)
    numbers = contributed(table, key)
    outright = is_outright(numbers.kept())
    counted = numbers.filled(0.0) if plan.missing == "zero" else numbers
    n, c = pass_counts(numbers, table.by_task, PASS_THRESHOLD)
    with quietly():
        tasks = TaskCounts(
            table.tasks,
            np.diff(table.by_task.starts),
            n,
            c,
            np.diff(table.by_task.starts) - n,
            task_mean(counted, table.by_task),
        )
        drawn = (
            pass_curves(counted, table.by_task, confidence=result.confidence)
            if c.any() and table.stop is None
            else None
        )
    if drawn is not None and len(drawn[0].points) < 2:
        drawn = None
    rollouts = RunRollouts(table, read, key, numbers, states_of(numbers, table.outcome, outright), tasks, drawn, texts)
    name = group.model or group.agent or read.path
    planned = _planned(read.path) if isinstance(read.path, str) else ""
    progress = progress_of(read.path, table, numbers, result.confidence)
    return RunData(result, group, name, outright, rollouts, plan.cluster, plan.by, planned=planned, progress=progress)


def runs_of(read: ReadSource) -> list[RunData]:
    """The runs of what was read, each with the metrics that a page shows where none are named; without texts."""
    plan = make_plan(None, source=read.path)
    return _runs(read, _with_metrics(plan, read.rollouts), False)


def _planned(path: str) -> str:
    """What the certificate in a run's folder says of the plan that was registered before the run; "" without one."""
    if not os.path.isfile(os.path.join(path, "result.cert.json")):
        return ""
    from calipers.analyses.certify.verify import planned_as

    return planned_as(os.path.join(path, "result.cert.json"))


def is_outright(kept: Floats) -> bool:
    """Whether every number is 0 or 1."""
    return bool(len(kept) and ((kept == 0) | (kept == 1)).all())


def states_of(numbers: Column, outcome: NDArray[np.uint8], outright: bool) -> States:
    """How each rollout looks, [R]: by its number; one that the model lost without a reward is counted as 0."""
    states = np.full(len(outcome), STATE_CODE["wrong" if outright else "scored"], dtype=np.uint8)
    if outright:
        states[passed(numbers, PASS_THRESHOLD)] = STATE_CODE["passed"]
    states[numbers.given & (outcome != SCORED) & (numbers.values == 0)] = STATE_CODE["zero"]
    states[~numbers.given] = STATE_CODE["missing"]
    return states


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Rollouts of one outcome that look alike."""

    state: str
    outcome: str  # a word of record.OUTCOMES
    count: int

    @property
    def word(self) -> str:
        """What a page calls it."""
        plain = self.outcome.replace("_", " ")
        if self.outcome == OUTCOMES[SCORED]:
            return "without this reward" if self.state == "missing" else self.state
        if self.state in ("passed", "wrong", "scored"):
            return f"{plain}, {self.state}"
        return "not run (stopped early)" if self.state == "left" else plain


def parts_of(states: States, outcomes: NDArray[np.uint8]) -> list[LedgerPart]:
    """The parts of some rollouts with their counts, in the order of `STATES`, then of outcomes."""
    kinds, counts = np.unique(states.astype(np.int64) * 256 + outcomes, return_counts=True)
    return [
        LedgerPart(STATES[kind // 256], OUTCOMES[kind % 256], count)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
    ]


def ledger_parts(run: RunData) -> list[LedgerPart]:
    """Every planned rollout in exactly one part, in the order of `STATES`, then of outcomes."""
    left = run.group.ledger.stopped_early
    spared = [LedgerPart("left", OUTCOMES[STOPPED_EARLY], left)] if left else []
    if run.rollouts is None:
        known = [
            LedgerPart(_state_of(word), word, count)
            for word, count in run.group.ledger.outcomes.items()
            if word != OUTCOMES[STOPPED_EARLY]
        ]
        return [*sorted(known, key=lambda part: STATE_CODE[part.state]), *spared]
    return [*parts_of(run.rollouts.states, run.rollouts.table.outcome), *spared]


def _state_of(outcome: str) -> str:
    """How a rollout looks of which only the outcome is known."""
    if outcome == OUTCOMES[SCORED]:
        return "scored"
    return "zero" if OUTCOMES.index(outcome) < FIRST_GAP else "missing"


def with_texts(run: RunData, budget: int = TEXT_BUDGET, also: Iterable[int] = ()) -> RunData:
    """The run with the texts of its rollouts: ``also`` first, then failures, passes of tasks that also fail, a sample.

    ``also`` are codes of tasks. Texts are taken until their size in the file reaches the budget, in bytes.
    """
    rolled = run.rollouts
    if rolled is None:
        return run
    rows = _order(rolled, also)[:MOST_ROWS]
    table, source = rolled.table, rolled.source
    code_of = {table.tasks[int(code)]: int(code) for code in np.unique(table.task[rows])}
    prompts: dict[int, str] = {}
    said_by: dict[int, dict[float, RolloutText]] = {}  # code of a task -> sample -> what it says
    key = tuple(table.keys[0])
    for owner, text in source.texts_by_group(frozenset(code_of)):
        code = code_of.get(text.task)
        if tuple(owner) != key or code is None:
            continue
        if code not in prompts and (prompt := prompt_of(text)):
            prompts[code] = cut(prompt)
        words = RolloutText(
            *(each and cut(each) for each in (said(text.completion), said(text.answer), error_of(text)))
        )
        if words != NOTHING_SAID:  # of several attempts, the later record is the later attempt
            said_by.setdefault(code, {})[text.sample] = words
    wanted = set(rows.tolist())
    texts = {row: words for row, words in _by_row(table, said_by) if row in wanted}
    kept_prompts, kept = _within(rolled, rows, prompts, texts, budget)
    cut_short = len(kept) < len(texts) or len(rows) < len(table)
    return replace(run, rollouts=replace(rolled, prompts=kept_prompts, texts=kept, texts_cut=cut_short))


def _by_row(table: Rollouts, said_by: Mapping[int, Mapping[float, RolloutText]]) -> Iterator[tuple[int, RolloutText]]:
    """The row of each text: by the number of its sample; by order where texts have times, and all are there."""
    starts = table.by_task.starts
    for code, texts in said_by.items():
        row_of = {float(table.sample[row]): row for row in range(int(starts[code]), int(starts[code + 1]))}
        if texts.keys() <= row_of.keys():
            yield from ((row_of[sample], words) for sample, words in texts.items())
        elif len(texts) == len(row_of):
            yield from zip(row_of.values(), (texts[sample] for sample in sorted(texts)), strict=True)


def _order(rolled: RunRollouts, also: Iterable[int]) -> Ints:
    """The rows by how much somebody wants to read them."""
    task = rolled.table.task
    failed = ~passed(rolled.numbers, PASS_THRESHOLD)
    mixed = np.bincount(task[failed], minlength=len(rolled.tasks.ids)) > 0
    rank = np.where(failed, 1, np.where(mixed[task], 2, 3))
    rank[np.isin(task, np.fromiter(also, dtype=np.int64))] = 0
    spread = np.arange(len(task)) * 2_654_435_761 % (1 << 32)  # multiplicative hashing: a sample from everywhere
    return np.lexsort((np.where(rank == 3, spread, 0), rank))


def _within(
    rolled: RunRollouts, rows: Ints, prompts: Mapping[int, str], texts: Mapping[int, RolloutText], budget: int
) -> tuple[dict[int, str], dict[int, RolloutText]]:
    """As many texts as the budget allows, in order of the rows; a task's prompt comes with its first text."""
    kept_prompts: dict[int, str] = {}
    kept: dict[int, RolloutText] = {}
    for row in rows.tolist():
        text, code = texts.get(row), int(rolled.table.task[row])
        prompt = prompts.get(code) if code not in kept_prompts else None
        words = [prompt, *((text.completion, text.answer, text.error) if text else ())]
        budget -= sum(_size(each) for each in words if each)
        if budget < 0:
            break
        if text is not None:
            kept[row] = text
        if prompt is not None:
            kept_prompts[code] = prompt
    return kept_prompts, kept


def with_less_text(data: Gathered, less: int) -> Gathered:
    """The same without texts of so many bytes, those that are wanted least; of several runs, each gives its share."""
    if isinstance(data, RunData):
        return _with_less(data, less)
    if isinstance(data, PairData):
        first, second = (run and _with_less(run, less // 2 + 1) for run in (data.first, data.second))
        return replace(data, first=first, second=second)
    share = less // max(len(data.runs), 1) + 1
    return replace(data, runs=[_with_less(run, share) for run in data.runs])


def _with_less(run: RunData, less: int) -> RunData:
    rolled = run.rollouts
    if rolled is None or not rolled.texts:
        return run
    words = [*rolled.prompts.values()]
    words += [each for text in rolled.texts.values() for each in (text.completion, text.answer, text.error) if each]
    rows = np.array([*rolled.texts], dtype=np.int64)  # in the order in which they are wanted
    prompts, texts = _within(rolled, rows, rolled.prompts, rolled.texts, max(sum(map(_size, words)) - less, 0))
    return replace(run, rollouts=replace(rolled, prompts=prompts, texts=texts, texts_cut=True))


def cut(words: str) -> str:
    """A text as long as a page holds one; what is cut is counted."""
    left = len(words) - LONGEST
    return words if left <= 0 else f"{words[:LONGEST]}\n[… {left:,} more characters]"


def _size(words: str) -> int:
    """The bytes of a text in the file."""
    return len(json.dumps(words, ensure_ascii=False).encode("utf-8", "replace")) + 5 * sum(map(words.count, "<>&"))


def _first(metrics: str | Sequence[str] | None) -> str | None:
    return metrics if metrics is None or isinstance(metrics, str) else next(iter(metrics), None)
