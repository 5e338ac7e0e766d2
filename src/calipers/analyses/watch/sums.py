"""What a watch keeps of a step: sums for each task, from which every number of the step follows.

::

    file ──► Rollouts ──► StepSums for each (series, step) ──► task values of any metric

A series is a split of a dataset (train, eval): steps of one series are compared, and series are never pooled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.read import begin
from calipers.metrics import PASS_THRESHOLD
from calipers.rollouts.column import Bools, Column, Floats, Ints, sum_by
from calipers.rollouts.labels import SPLIT, STEP, has, named_clusters, slices
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import ABSENT, FIRST_GAP, OUTCOMES, STOPPED_EARLY, label
from calipers.rollouts.table import Rollouts

TRUNCATED: Final = "truncated"
LABELS: Final = (STEP, SPLIT, TRUNCATED)
SPLITS: Final = ("train", "eval", "val", "valid", "validation", "test", "heldout")
MOST_COLUMNS: Final = 64  # that are kept of a file
UnitHashes = np.ndarray[Any, np.dtype[np.uint64]]
_PASS_AT: Final = re.compile(r"pass([@^])([1-9][0-9]{0,3})")
_GENERIC: Final = ("rollouts", "completions", "steps", "checkpoints", "dumped_evals")  # folders that name no split
LENGTHS: Final = ("output_tokens", "response_length", "completion_length", "num_tokens")  # what "length" stands for
_HEADER: Final = ("step", "split", "dataset", "agent", "path", "headline")  # fields that are no arrays
_ARRAYS: Final = ("tasks", "planned", "clusters")


@dataclass(frozen=True, slots=True)
class StepSums:
    """The rollouts of one step of one series, summed by task; G tasks in the order of their hashes."""

    step: int
    split: str
    dataset: str | None
    agent: str | None
    path: str  # the file, or the first of them
    headline: str  # the reward that is read where nobody picks one
    tasks: np.ndarray[Any, np.dtype[np.uint64]]  # [G] hashes of their names, ascending
    planned: Floats  # [G] rollouts
    rewards: Mapping[str, Floats] = field(default_factory=dict)  # [4, G]: given, sum, sum of squares, passes
    columns: Mapping[str, Floats] = field(default_factory=dict)  # [2, G]: given, sum
    outcomes: Mapping[str, Floats] = field(default_factory=dict)  # [G] rollouts, of outcomes that occur
    models: tuple[str, ...] = ()
    clusters: np.ndarray[Any, np.dtype[np.uint64]] | None = None  # [G] hashes of their names, where they are declared
    _known: dict[str, tuple[Floats, Bools]] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def series(self) -> str:
        """The name of its series: split, dataset and agent, as far as they are known."""
        return series_name(self.split, self.dataset, self.agent)

    @property
    def key(self) -> tuple[str, int]:
        """Which step of which series it is."""
        return self.series, self.step

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every array by name."""
        named: dict[str, np.ndarray[Any, Any]] = {"tasks": self.tasks, "planned": self.planned}
        named |= {} if self.clusters is None else {"clusters": self.clusters}
        for kind, some in (("reward", self.rewards), ("column", self.columns), ("outcome", self.outcomes)):
            named |= {f"{kind}/{name}": values for name, values in some.items()}
        return named

    @property
    def digest(self) -> str:
        """The hash of its content: equal where a rewritten file says the same."""
        found = hashlib.blake2b(digest_size=16)
        for name, values in sorted(self.arrays().items()):
            found.update(name.encode("utf-8", "surrogatepass"))
            found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()

    def value_names(self) -> list[str]:
        """The metrics that its page shows, the headline first."""
        names = sorted(self.rewards, key=lambda name: name != self.headline)
        given = self.rewards.get(self.headline)
        if given is not None and (given[1] == given[2]).all() and (given[1] == given[3]).all():  # all are 0 or 1
            least = int(given[0][given[0] > 0].min(initial=1e9))
            names += [f"pass@{least}"] if 1 < least < 1e9 else []
        names += list(self.columns)
        names += [f"rate({word})" for word in self.outcomes if word not in (OUTCOMES[0], "missing")]
        if any(word in self.outcomes for word in OUTCOMES[FIRST_GAP:STOPPED_EARLY]):
            names.append("rate(missing)")
        if given is not None and bool((given[0] > 1).any()):
            names += ["share(zero_variance)", "share(all_pass)", "share(all_fail)"]
        return names

    def values(self, what: str) -> tuple[Floats, Bools]:
        """The task values of a metric, and which tasks have one, [G] each; InputError for what the step lacks.

        A reward by name (`reward` for the headline), pass@k and pass^k of the headline, a column, rate(OUTCOME),
        share(zero_variance). A task whose value is not finite has none.
        """
        if (known := self._known.get(what)) is None:
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is left out here
                values, given = self._values(what)
            known = self._known[what] = (values, given & np.isfinite(values))
        return known

    def units(self, what: str) -> tuple[UnitHashes, Floats, Bools]:
        """The units of an alarm: their hashes, values, and which have one, [U] each; tasks, or clusters of them.

        The value of a cluster is the mean over its tasks that have one.
        """
        values, given = self.values(what)
        if self.clusters is None:
            return self.tasks, values, given
        names, code = np.unique(self.clusters, return_inverse=True)
        counts = np.bincount(code[given], minlength=len(names)).astype(np.float64)
        return names, _divided(sum_by(code[given], values[given], len(names)), counts), counts > 0

    def cluster_codes(self, some: Bools | Ints) -> Ints | None:
        """The clusters of some tasks, numbered from 0; None where none are declared."""
        return None if self.clusters is None else np.unique(self.clusters[some], return_inverse=True)[1]

    def _values(self, what: str) -> tuple[Floats, Bools]:
        name = self.resolved(what)
        moments = {**self.columns, **self.rewards}.get(name)
        if moments is not None:
            return _divided(moments[1], moments[0]), moments[0] > 0
        if found := _PASS_AT.fullmatch(name):
            return self._passes(found[1], int(found[2]))
        kind, _, inner = name.removesuffix(")").partition("(")
        if kind == "rate":
            return _divided(self._count(inner), self.planned), self.planned > 0
        return self._groups(inner)

    def resolved(self, what: str) -> str:
        """The name of a metric here; InputError where the step does not have it."""
        name = resolved(what, self.rewards, self.columns, self.headline)
        if name is not None:
            return name
        known = [*self.rewards, *self.columns]
        raise InputError(f"step {self.step} has no {what!r}; it has {', '.join(known[:12]) or 'no rewards'}")

    def _passes(self, sign: str, k: int) -> tuple[Floats, Bools]:
        n, _, _, passes = self.rewards[self.headline]
        hits = passes if sign == "^" else n - passes
        draws = np.arange(k)
        all_of = (np.clip(hits[:, None] - draws, 0, None) / np.clip(n[:, None] - draws, 1, None)).prod(axis=1)
        return (all_of if sign == "^" else 1 - all_of), n >= k

    def _count(self, word: str) -> Floats:
        if word == "missing":  # every rollout without a number, whatever the reason
            gaps = [word for word in OUTCOMES[FIRST_GAP:STOPPED_EARLY] if word in self.outcomes]
            return sum((self.outcomes[word] for word in gaps), start=np.zeros(len(self.tasks)))
        return self.outcomes.get(word, np.zeros(len(self.tasks)))

    def _groups(self, which: str) -> tuple[Floats, Bools]:
        n, total, squares, passes = self.rewards[self.headline]
        several = n > 1
        mean = _divided(total, n)
        flat = squares - n * mean * mean <= 1e-12 * np.maximum(squares, 1e-300)
        if which == "all_pass":
            flat &= passes == n
        elif which == "all_fail":
            flat &= passes == 0
        return flat.astype(np.float64), several

    def samples(self, what: str) -> Floats | None:
        """Given, sum and sum of squares of a reward on [0, 1] for each task, [3, G]; None for other metrics."""
        name = self.resolved(what)
        if name in self.rewards:
            return self.rewards[name][:3]
        if name == "pass@1":
            n, _, _, passes = self.rewards[self.headline]
            return np.stack([n, passes, passes])
        return None


def series_name(split: str, dataset: str | None, agent: str | None) -> str:
    """The name of a series, as far as its parts are known."""
    return " · ".join(part for part in (split, dataset, agent) if part)


def resolved(what: str, rewards: Collection[str], columns: Collection[str], headline: str) -> str | None:
    """The name of a metric among these rewards and columns; None where it is not there."""
    inner = re.fullmatch(r"mean\(\s*(?:column\s*=\s*)?(.*?)\s*\)", what)
    name = inner[1] if inner else what
    if name in rewards or name in columns or name.startswith("rate("):
        return name
    if name == "length":
        return next((column for column in LENGTHS if column in columns), None)
    if headline not in rewards:
        return None
    if name in ("reward", "mean_reward"):
        return headline
    if name in ("pass_rate", "pass@1"):
        return "pass@1"
    return name if _PASS_AT.fullmatch(name) or name.startswith("share(") else None


def headline_of(part: Rollouts, reward: str | None) -> str:
    """The reward that is read where an alarm names none."""
    return reward or part.usual_reward or next(iter(part.rewards), "")


def _divided(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


def read_step_file(
    path: str, columns: Named | None = None, *, root: str = "", reward: str | None = None, cluster: str | None = None
) -> tuple[list[StepSums], str]:
    """The sums of every (series, step) in a file or run folder, and its hash; InputError where it is broken.

    The only place where a watch reads rollouts.
    """
    labels = LABELS if cluster is None else (*LABELS, cluster)
    rollouts, inputs = begin([path], columns=columns or Named({}), labels=labels)
    sums = [
        summed(part if rows is None else part.where(rows), step, split, path, reward, cluster)
        for part in rollouts.groups()
        for rows, step, split in _cuts(part, path, root)
    ]
    return sums, inputs()[0].sha256


def rollouts_until(path: str, columns: Named, series: str, last: int, *, root: str) -> Rollouts:
    """The rollouts of a series in a file, of its last step up to ``last``; InputError where it has none."""
    rollouts, _ = begin([path], columns=columns, labels=LABELS)
    cuts = [
        (step, part, rows)
        for part in rollouts.groups()
        for rows, step, split in _cuts(part, path, root)
        if step <= last and series_name(split, part.keys[0][2], part.keys[0][0]) == series
    ]
    if not cuts:
        raise InputError.at(path, f"has no step of {series!r} up to {last}", "was it rewritten?")
    _, part, rows = max(cuts, key=lambda cut: cut[0])
    return part if rows is None else part.where(rows)


def _cuts(part: Rollouts, path: str, root: str) -> Iterator[tuple[Any, int, str]]:
    """The rows of each step and split of a group: all of them as None, its step, and its split."""
    names = []
    for key, fallback in ((SPLIT, split_of), (STEP, _step_text)):
        if has(part, key):
            code, texts = slices(part, key, label)
            texts = [fallback(path, root) if text == ABSENT else text for text in texts]
        else:
            code, texts = np.zeros(len(part), dtype=np.int64), [fallback(path, root)]
        names.append((code, texts))
    (split_code, splits), (step_code, steps) = names
    pairs = np.unique(split_code * len(steps) + step_code)
    for pair in pairs.tolist():
        split, step = splits[pair // len(steps)], steps[pair % len(steps)]
        if re.fullmatch(r"[0-9]+(\.0*)?", step) is None:
            right = "expected a step in its rows, or a number in its name"
            raise InputError.at(path, f"the step is {step!r}" if step else "has no step", right)
        rows = None if len(pairs) == 1 else split_code * len(steps) + step_code == pair
        yield rows, int(float(step)), split


def _step_text(path: str, root: str) -> str:
    step = step_of(path, root)
    return "" if step is None else str(step)


def step_of(path: str, root: str = "") -> int | None:
    """The step that a path names: the last number in its name, else in the nearest folder that has one.

    >>> step_of("run/completions_00005.parquet"), step_of("global_step_30/data.jsonl"), step_of("a/b.jsonl")
    (5, 30, None)
    """
    inside = os.path.relpath(path, root) if root else path
    for part in reversed(inside.split(os.sep)):
        stem = re.sub(r"\.(jsonl|ndjson|json|parquet|csv|eval)(\.(gz|zst))?\Z", "", part)
        if found := re.findall(r"[0-9]+", stem):
            return int(found[-1])
    return None


def split_of(path: str, root: str = "") -> str:
    """The split that a path names: train, eval or the like, else the folder of the file below the root.

    >>> split_of("/r/val/12.jsonl", "/r"), split_of("/r/12.jsonl", "/r"), split_of("/r/train_data_step3.jsonl", "/r")
    ('val', '', 'train')
    """
    inside = os.path.relpath(path, root) if root else os.path.basename(path)
    for part in reversed(inside.split(os.sep)):
        for word in re.split(r"[^A-Za-z]+", part):
            if word.lower() in SPLITS:
                return word.lower()
    # a folder with a number is of a step, and says no more than that
    folders = [part for part in inside.split(os.sep)[:-1] if not re.search(r"[0-9]", part) and part != os.curdir]
    return "/".join(part for part in folders if part.lower() not in _GENERIC)


def summed(
    part: Rollouts, step: int, split: str, path: str, reward: str | None = None, cluster: str | None = None
) -> StepSums:
    """The sums of the rollouts of one step; ``cluster`` is the label that tells the clusters of tasks."""
    hashes = task_hashes(part.tasks)
    order = np.argsort(hashes, kind="stable")
    by = part.by_task
    size = len(part.tasks)

    def moments(column: Column, *, passes: bool) -> Floats:
        values = column.values if column.given.all() else np.where(column.given, column.values, 0.0)
        given = by.count(column.given).astype(np.float64)
        rows = [given, by.sum(column)]
        if passes:
            rows.append(by.sum(Column(values * values, column.given)))
            rows.append(by.count(column.given & (column.values >= PASS_THRESHOLD)).astype(np.float64))
        return np.stack(rows)[:, order]

    headline = headline_of(part, reward)
    if reward is not None and reward not in part.rewards:
        raise InputError.at(path, f"no reward {reward!r}", f"expected one of {', '.join(part.rewards) or 'none'}")
    with np.errstate(over="ignore", invalid="ignore"):
        rewards = {name: moments(contributed(part, name), passes=True) for name in part.rewards}
        kept = [name for name, column in part.columns.items() if column.values.ndim == 1 and column.given.any()]
        columns = {
            name: moments(part.columns[name], passes=False) for name in kept[:MOST_COLUMNS] if name not in rewards
        }
    outcomes = {}
    for code in np.unique(part.outcome).tolist():
        outcomes[OUTCOMES[code]] = by.count(part.outcome == code).astype(np.float64)[order]
    if TRUNCATED not in outcomes and (marked := _marked(part, TRUNCATED)) is not None:
        outcomes[TRUNCATED] = by.count(marked).astype(np.float64)[order]
    return StepSums(
        step,
        split,
        part.keys[0][2],
        part.keys[0][0],
        path,
        headline,
        hashes[order],
        np.bincount(part.task, minlength=size).astype(np.float64)[order],
        rewards,
        {name: values for name, values in columns.items() if name not in (STEP, SPLIT, TRUNCATED)},
        outcomes,
        tuple(sorted({str(key[1]) for key in part.keys if key[1]})),
        None if cluster is None else _clusters(part, cluster, path)[order],
    )


def _clusters(part: Rollouts, key: str, path: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The hash of the cluster of each task, [G]."""
    try:
        code, names = named_clusters(part, key)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return task_hashes(names)[code]


def task_hashes(tasks: Sequence[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number of 64 bits for each task's name, [G]: the same in every process and on every machine.

    Names are mixed eight bytes at a time, all of them at once; a million names share one with a chance of 3e-8.

    >>> task_hashes(["a", "b", "a"])[[0, 2]].tolist() == [15890924970272741125] * 2
    True
    """
    try:
        names = np.array(tasks, dtype=np.str_).astype(np.bytes_)
    except UnicodeEncodeError:  # slower, and the same for names that are all ASCII
        names = np.array([str(task).encode("utf-8", "surrogatepass") for task in tasks], dtype=np.bytes_)
    lengths = np.strings.str_len(names).astype(np.uint64)
    width = 8 * max(1, -(-int(lengths.max(initial=1)) // 8))
    words = names.astype(f"S{width}").view("<u8").reshape(len(names), width // 8).astype(np.uint64)
    found = _mixed(lengths + np.uint64(0x9E3779B97F4A7C15))
    for place in range(words.shape[1]):
        inside = np.uint64(8 * place) < lengths
        found = np.where(inside, _mixed(found ^ words[:, place]) + np.uint64(0x9E3779B97F4A7C15), found)
    return found


def _mixed(words: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _marked(part: Rollouts, key: str) -> Any:
    """Which rollouts a label or a column of true and false marks, [R]; None where there is none."""
    if (column := part.columns.get(key)) is not None:
        return column.given & (column.values > 0)
    if (labels := part.labels.get(key)) is None:
        return None
    true = [code for code, value in enumerate(labels.values) if value in (True, "true", "True", 1)]
    return np.isin(labels.code, true)


def merged(first: StepSums, second: StepSums) -> StepSums | None:
    """Two parts of one step on different tasks as one; None where they share tasks."""
    if len(np.intersect1d(first.tasks, second.tasks)):
        return None
    tasks = np.concatenate([first.tasks, second.tasks])
    order = np.argsort(tasks, kind="stable")

    def joined(ours: Mapping[str, Floats], theirs: Mapping[str, Floats]) -> dict[str, Floats]:
        both = {}
        for name, either in {**theirs, **ours}.items():
            shape = either.shape[:-1]
            parts = [
                side[name] if name in side else np.zeros((*shape, len(one.tasks)))
                for side, one in ((ours, first), (theirs, second))
            ]
            both[name] = np.concatenate(parts, axis=-1)[..., order]
        return both

    clustered = first.clusters is not None and second.clusters is not None
    return replace(
        first,
        tasks=tasks[order],
        planned=np.concatenate([first.planned, second.planned])[order],
        rewards=joined(first.rewards, second.rewards),
        columns=joined(first.columns, second.columns),
        outcomes=joined(first.outcomes, second.outcomes),
        models=tuple(sorted({*first.models, *second.models})),
        clusters=np.concatenate([first.clusters, second.clusters])[order] if clustered else None,
    )


def of_arrays(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> StepSums:
    """The sums that `StepSums.arrays` were taken from, with the other fields in ``header``."""
    kinds: dict[str, dict[str, Floats]] = {"reward": {}, "column": {}, "outcome": {}}
    for name, values in arrays.items():
        if name not in _ARRAYS:
            kind, _, inner = name.partition("/")
            kinds[kind][inner] = values
    return StepSums(
        **{name: header[name] for name in _HEADER},
        tasks=arrays["tasks"],
        planned=arrays["planned"],
        rewards=kinds["reward"],
        columns=kinds["column"],
        outcomes=kinds["outcome"],
        models=tuple(header.get("models", ())),
        clusters=arrays.get("clusters"),
    )


def header_of(sums: StepSums) -> dict[str, Any]:
    """The fields of sums that are no arrays."""
    return {**{name: getattr(sums, name) for name in _HEADER}, "models": list(sums.models)}


def shared_tasks(now: StepSums, base: StepSums) -> tuple[Ints, Ints]:
    """Where the tasks that two steps share are in each, [T] each, in one order."""
    _, here, there = np.intersect1d(now.tasks, base.tasks, assume_unique=True, return_indices=True)
    return here, there


def matched(now: StepSums, what: str, base: StepSums, shared: tuple[Ints, Ints]) -> tuple[Floats, Floats, Ints | None]:
    """The values of a metric on the shared tasks that both steps define, [T] each, in one order; and the clusters."""
    here, there = shared
    values, given = now.values(what)
    base_values, base_given = base.values(what)
    both = given[here] & base_given[there]
    return values[here][both], base_values[there][both], now.cluster_codes(here[both])
