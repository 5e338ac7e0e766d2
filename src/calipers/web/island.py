"""Per-task counts for the what-if panel, from which its script recomputes the numbers of the page.

`what_if_data` returns the value ``data["what_if"]`` of a page, called its island, and `what_if_section` the section of
the panel. The island is a pure function of the rollouts and of their result::

    {
      "kind": "run" | "pair",
      "names": [run] | [first run, second run],
      "command": ["calipers", "score", "arith.jsonl"],      without metric, missing and cluster, which switches add
      "missing": "gap" | "zero",  "confidence": 0.95,  "cluster": KEY | null,  "native": true,
      "why": null,                                          or the reason why nothing can be recomputed
      "metrics": [{"text", "definition", "k", "threshold", "reward", "value", "interval", "why",
                   for a pair also "p", "verdict" as observed, "alone": not adjusted for other tests}],
      "tasks": T,  "samples": the largest number of rollouts of a task,
      "runs": [{"rewards": [distinct], "distinct": [T], "code": [..], "count": [..], "missing": [T]}],
      "slices": [{"key", "values": [names], "code": [T]}],
      "flagged": [[task, id], ..]
    }

For each task, a run has the codes of its distinct rewards in ``rewards``, with a count each: task t has the next
``distinct[t]`` entries of ``code`` and ``count``. A metric without a definition is not recomputed in the page.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calipers.analyses.compare import Comparison, Finding, Pair
from calipers.analyses.compare.align import by_id
from calipers.formats import insisted, worths
from calipers.metrics import PASS_THRESHOLD
from calipers.names import DIALECTS
from calipers.reports.figures import counted
from calipers.reports.result import Group, Result, finite
from calipers.request import NATIVE, Dialect
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.labels import has, slices
from calipers.rollouts.ledger import contributed
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate, Signature
from calipers.stats.paired import FLOORED_T
from calipers.web.markup import Markup, element, joined
from calipers.web.page import Section
from calipers.web.report_data import LARGEST_K, PairData, RunData

CONFIDENCE: Final = 0.95  # the default of commands

COMPUTED: Final = ("mean_reward", "pass_rate", "solved_rate", "pass@{k}", "pass^{k}")
"""The metrics that the page can recompute."""

MOST_COUNTS: Final = 200_000
"""The largest number of counts in an island; more would make the file too large to open."""

NAMED: Final = 12  # flagged tasks that are listed by name
STOPPED: Final = "a run was stopped by what it showed"
NOT_FINITE: Final = "some rewards are not finite numbers"
OTHER_TASKS: Final = "the tasks were not paired by their ids alone"


@dataclass(frozen=True, slots=True)
class WhatIfSettings:
    """The settings with which a result was computed that are not part of the result."""

    command: Sequence[str]  # its words, without metrics, missing, cluster and by
    cluster: str | None = None
    keys: Sequence[str] = ()  # more keys whose slices can be excluded, and by which tasks can be clustered
    flagged: Sequence[str] = ()  # ids of tasks that a file names as suspicious


def what_if_data(shown: RunData | PairData) -> dict[str, Any] | None:
    """The island of a run or a pair; None without its rollouts, and for several pairs."""
    if isinstance(shown, RunData):
        if shown.rollouts is None:
            return None
        words = command_words("score", [shown], shown.result)
        settings = WhatIfSettings(words, shown.cluster, [*shown.group.breakdowns], shown.flagged)
        return run_island(shown.rollouts.table, shown.result, shown.group, settings)
    contests = shown.comparison.contests
    runs = [run for run in shown.runs if run.rollouts is not None]
    if len(runs) < 2 or len(contests) != 1 or len(contests[0].pairs) != 1:
        return None
    tables = [run.rollouts.table for run in runs if run.rollouts is not None]
    pair = contests[0].pairs[0]
    names = contests[0].runs[pair.first].name, contests[0].runs[pair.second].name
    keys = [finding.by for finding in pair.findings if finding.by is not None]
    words = command_words("compare", runs, shown.comparison)
    flagged = list(dict.fromkeys(task for run in runs for task in run.flagged))
    settings = WhatIfSettings(words, shown.comparison.cluster, keys, flagged)
    return pair_island((tables[0], tables[1]), names, shown.comparison, pair, settings)


def what_if_section(shown: RunData | PairData, island: dict[str, Any] | None) -> Section | None:
    """The panel of an island, which a script fills; None if no metric can be recomputed."""
    if island is None or not any(metric["definition"] for metric in island["metrics"]):
        return None
    command = shlex.join([*island["command"], "--metric", island["metrics"][0]["text"]]) if island["command"] else ""
    missing = " --missing zero" if island["missing"] == "gap" else " --missing gap"
    example = element("code", command + missing) if command else None
    advice = " Run the command for this: " if example else ""  # rewards in memory have no command
    if island["why"]:
        words = f"These numbers are not computed again in the page: {island['why']}.{advice}"
        return Section("What if", element("p", words, example), id="what-if")
    panel = element("div", id="what-if-panel", class_="what-if", hidden=True)
    without = element("noscript", element("p", f"The switches need JavaScript.{advice}", example))
    note = "Recomputed here, in the page. The result above does not change."
    return Section("What if", joined([panel, without, _flagged_tasks(shown, island)]), note, "what-if")


def _flagged_tasks(shown: RunData | PairData, island: dict[str, Any]) -> Markup | None:
    """The tasks that the switch excludes, and the file that flags them."""
    flags = next((run.flags for run in shown.runs), None)
    if not island["flagged"] or flags is None:
        return None
    ids = [task for _, task in island["flagged"]]
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    named = joined([joined([", " if at else "", element("bdi", task)]) for at, task in enumerate(ids[:NAMED])])
    count = f"{counted(len(ids), 'task')} {'is' if len(ids) == 1 else 'are'} flagged by "
    return element("p", count, element("bdi", flags.path), ": ", named, f"{more}.", class_="small")


def command_words(
    verb: str, runs: Sequence[RunData], document: Result | Comparison, paths: Sequence[str] = ()
) -> list[str]:
    """The words of the command that computes a result, without metrics, missing, cluster and by.

    ``paths`` are by default those of the runs. The command is empty for rollouts in memory.
    """
    sources = {id(run.rollouts.source): run.rollouts.source.path for run in runs if run.rollouts is not None}
    paths = paths or [*sources.values()]
    if not all(paths):
        return []
    words = ["calipers", verb, *paths, *reading_words(runs)]
    if document.dialect != NATIVE.name:
        words += ["--dialect", document.dialect]
    if document.confidence != CONFIDENCE:
        words += ["--confidence", f"{document.confidence}"]
    return words


def reading_words(runs: Sequence[RunData]) -> list[str]:
    """The options of a command that read the rollouts of these runs in the same way."""
    first = next((run.rollouts for run in runs if run.rollouts is not None), None)
    if first is None:
        return []
    columns = first.source.columns
    roles = ",".join(f"{role}={key}" for role, key in columns.items())
    truth = ",".join(f"{word}={_number(reward)}" for word, reward in worths(columns).items())
    options = {"--columns": roles, "--truth": truth, "--input-format": insisted(columns)}
    words = [word for option, value in options.items() if value for word in (option, value)]
    if len(first.table.rewards) > 1 and first.reward != "reward":
        words += ["--reward", first.reward]
    return words


def run_island(rollouts: Rollouts, result: Result, group: Group, settings: WhatIfSettings) -> dict[str, Any]:
    """The island of one run: ``rollouts`` are those of the group."""
    dialect = _dialect(result.dialect)
    rollouts = dialect.seen(rollouts) if dialect.seen else rollouts
    key = next((name for each in group.metrics.values() if (name := _reward(each.made)) is not None), None)
    metrics = [_metric_of_run(text, estimate, key) for text, estimate in group.metrics.items()]
    why = STOPPED if group.stop else None
    island = _island([rollouts], [key or "reward"], metrics, settings, dialect, why)
    name = group.model or group.agent or ""
    shared = {"kind": "run", "names": [name], "missing": result.missing, "confidence": result.confidence}
    return shared | island


def pair_island(
    runs: tuple[Rollouts, Rollouts],
    names: tuple[str, str],
    comparison: Comparison,
    pair: Pair,
    settings: WhatIfSettings,
) -> dict[str, Any]:
    """The island of two runs: ``runs`` are all rollouts of the pair's first and second run on the dataset."""
    dialect, common = _dialect(comparison.dialect), by_id(*runs)
    findings = [finding for finding in pair.findings if finding.by is None]
    signatures = [Signature.of(_metric_signature(finding)) for finding in findings]
    key = next((name for signature in signatures if (name := _reward(signature)) is not None), None)
    metrics = [
        _metric_of_pair(finding, signature, key, comparison.confidence)
        for finding, signature in zip(findings, signatures, strict=True)
    ]
    why = None
    if any(run.stop for run in runs):
        why = STOPPED
    elif comparison.test != FLOORED_T:
        why = f"the test is {comparison.test}, which the page does not have"
    elif comparison.margin is not None:
        why = "the margin has a test of its own, which the page does not have"
    elif pair.alignment.by != "id" or pair.alignment.common != common.alignment.common:
        why = OTHER_TASKS
    elif not metrics or metrics[0]["definition"] is None or not metrics[0]["alone"]:
        why = "the page does not compute its first metric"
    if findings and comparison.dialect == NATIVE.name:
        metrics += _more_metrics(common.sides, key or "reward", metrics)
    keys = [key if key in run.rewards else next(iter(run.rewards), "reward") for run in common.sides]
    island = _island(common.sides, [key or "reward" for key in keys], metrics, settings, dialect, why)
    shared = {"kind": "pair", "names": list(names), "missing": comparison.missing, "confidence": comparison.confidence}
    return shared | island


def _island(
    runs: Sequence[Rollouts],
    rewards: Sequence[str],
    metrics: Sequence[dict[str, Any]],
    settings: WhatIfSettings,
    dialect: Dialect,
    why: str | None,
) -> dict[str, Any]:
    """The part that islands of one run and of two runs share."""
    columns = [contributed(run, key) for run, key in zip(runs, rewards, strict=True)]
    if not all(bool(np.isfinite(column.kept()).all()) for column in columns):
        why = NOT_FINITE
    counts = [] if why else [_counts(run, column) for run, column in zip(runs, columns, strict=True)]
    if sum(len(run["count"]) + len(run["missing"]) for run in counts) > MOST_COUNTS:
        why = "there are too many tasks for one file"
    index_of = {task: index for index, task in enumerate(runs[0].tasks)}
    known = dict.fromkeys([*settings.keys, *([settings.cluster] if settings.cluster else [])])
    keys = [key for key in known if "=" not in key and key == key.strip()]  # --exclude cannot name other keys
    return {
        "command": list(settings.command),
        "cluster": settings.cluster,
        "native": dialect.name == "native",
        "undefined": dialect.undefined,
        "why": why,
        "metrics": list(metrics),
        "tasks": len(runs[0].tasks),
        "samples": max(int(np.diff(run.by_task.starts).max(initial=0)) for run in runs),
        "runs": [] if why else counts,
        "slices": [] if why else [cut for key in keys if (cut := _slices(runs, key, dialect.label))],
        "flagged": [[index_of[task], task] for task in settings.flagged if task in index_of],
    }


def _dialect(name: str) -> Dialect:
    dialect: Dialect = DIALECTS.added.get(name) or DIALECTS.load(name)
    return dialect


def _counts(run: Rollouts, column: Column) -> dict[str, Any]:
    """The distinct rewards of each task, with a count each, and its missing rollouts."""
    given = column.given
    rewards, code = np.unique(column.values[given], return_inverse=True)
    pairs, count = np.unique(np.stack([run.task[given], code.reshape(-1)]), axis=1, return_counts=True)
    size = len(run.tasks)
    return {
        "rewards": [_number(reward) for reward in rewards.tolist()],
        "distinct": np.bincount(pairs[0], minlength=size).tolist(),
        "code": pairs[1].tolist(),
        "count": count.tolist(),
        "missing": np.bincount(run.task[~given], minlength=size).tolist(),
    }


def _number(value: float) -> int | float:
    """Whole numbers as integers: they are shorter in JSON."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _slices(runs: Sequence[Rollouts], key: str, label: Callable[[Any], str]) -> dict[str, Any] | None:
    """The slice of each task; None if a task has several, if two runs disagree, or if no run has the key."""
    by_run = [_task_slices(run, key, label) for run in runs if has(run, key)]
    known = [run_slices for run_slices in by_run if run_slices is not None]
    if not known or len(known) < len(by_run):
        return None
    values, code = known[0]
    if any(other_values != values or (other_code != code).any() for other_values, other_code in known[1:]):
        return None
    return {"key": key, "values": values, "code": code.tolist()} if len(values) > 1 else None


def _task_slices(run: Rollouts, key: str, label: Callable[[Any], str]) -> tuple[list[str], Ints] | None:
    code, names = slices(run, key, label)
    lowest, highest = np.full(len(run.tasks), len(names)), np.full(len(run.tasks), -1)
    np.minimum.at(lowest, run.task, code)
    np.maximum.at(highest, run.task, code)
    return None if (lowest != highest).any() else (names, lowest)


def _metric_of_run(text: str, estimate: Estimate, reward: str | None) -> dict[str, Any]:
    return {
        **_metric(text, estimate.made, reward),
        "value": finite(estimate.value),
        "interval": estimate.interval and list(estimate.interval),
        "why": estimate.why,
    }


def _metric_of_pair(finding: Finding, signature: Signature, reward: str | None, confidence: float) -> dict[str, Any]:
    """The metric of a finding. If the finding is adjusted for other tests, only the recomputed one is unadjusted."""
    return {
        **_metric(finding.metric, signature, reward),
        "value": finite(finding.delta),
        "interval": finding.interval and list(finding.interval),
        "p": finding.p,
        "verdict": finding.as_observed,
        "alone": finding.confidence == confidence and math.isclose(finding.p_adjusted or 0.0, finding.p or 0.0),
        "why": finding.why,
    }


def _more_metrics(runs: Sequence[Rollouts], reward: str, metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """pass@k and pass^k, which the page can compute without a request, if they are not among the metrics yet.

    k is the largest power of two that does not exceed the number of samples of any task.
    """
    counts = [run.by_task.count(contributed(run, reward).given) for run in runs]
    fewest = min(int(count[count > 0].min(initial=LARGEST_K)) for count in counts)
    k = 1 << max(fewest.bit_length() - 1, 0)
    known = {metric["text"] for metric in metrics}
    shared = {"k": k, "threshold": PASS_THRESHOLD, "reward": None, "value": None, "interval": None, "why": None}
    shared |= {"p": None, "verdict": None, "alone": False}
    return [
        {"text": definition.replace("{k}", str(k)), "definition": definition, **shared}
        for definition in ("pass@{k}", "pass^{k}")
        if k > 1 and definition.replace("{k}", str(k)) not in known
    ]


def _metric(text: str, signature: Signature, reward: str | None) -> dict[str, Any]:
    """A metric of the island; without a definition if the page cannot recompute it."""
    settings = _settings(signature)
    computed = signature.metric in COMPUTED and _reward(signature) == reward
    return {
        "text": text,
        "definition": signature.metric if computed else None,
        "k": signature.k,
        "threshold": float(settings.get("threshold", PASS_THRESHOLD)),
        "reward": reward if "reward=" in text else None,
    }


def _settings(signature: Signature) -> dict[str, str]:
    return dict(part.partition(":")[::2] for part in signature.settings)


def _reward(signature: Signature) -> str | None:
    """The reward that a metric reads, if the page can recompute the metric; None for other metrics."""
    return _settings(signature).get("reward") if signature.metric in COMPUTED else None


def _metric_signature(finding: Finding) -> str:
    """The signature of the metric of a difference, from that of the difference: ``delta(pass@{k})|k:4|...``."""
    head, _, rest = finding.signature.partition("|")
    return f"{head.removeprefix('delta(').removesuffix(')')}|{rest}"
