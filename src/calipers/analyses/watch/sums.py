"""The sums that a watch stores of a step: sums for each task, from which every number of the step is computed.

::

    file ──► Rollouts ──► StepSums for each (series, step) ──► task values of any metric

A series is a split of a dataset, such as train or eval. Steps of one series are compared; series are never pooled.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from calipers.errors import InputError, nearest
from calipers.formats import Named
from calipers.formats.read import begin
from calipers.metrics import PASS_THRESHOLD
from calipers.rollouts.column import Bools, Column, Floats, Ints, sum_by
from calipers.rollouts.labels import SPLIT, STEP, has, named_clusters, slices
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import ABSENT, FIRST_GAP, OUTCOMES, STOPPED_EARLY, label
from calipers.rollouts.table import Rollouts
from calipers.stats.counts import follows
from calipers.stats.estimate import HUGE
from calipers.tally import demand_range

TRUNCATED: Final = "truncated"
LABELS: Final = (STEP, SPLIT, TRUNCATED)
SPLITS: Final = ("train", "eval", "val", "valid", "validation", "test", "heldout")
MOST_COLUMNS: Final = 64  # that are stored of a file
MOST_STEP: Final = 2**63 - 1  # of 64 bits, such as a time in nanoseconds
UnitHashes = np.ndarray[Any, np.dtype[np.uint64]]
_PASS_AT: Final = re.compile(r"pass([@^])([1-9][0-9]{0,3})")
_GENERIC: Final = ("rollouts", "completions", "steps", "checkpoints", "dumped_evals")  # folders that name no split
LENGTHS: Final = ("output_tokens", "response_length", "completion_length", "num_tokens")  # columns that "length" means
_HEADER: Final = ("step", "split", "dataset", "agent", "path", "headline")  # fields that are not arrays
_ARRAYS: Final = ("tasks", "planned", "clusters")
_FIRST: Final = "first_"  # before the kind of an array of first samples


@dataclass(frozen=True, slots=True)
class StepSums:
    """The rollouts of one step of one series, summed by task, for G tasks in the order of their hashes."""

    step: int
    split: str
    dataset: str | None
    agent: str | None
    path: str  # the file, or the first of several
    headline: str  # the reward that is read by default
    tasks: UnitHashes  # [G] hashes of their names, ascending
    planned: Floats  # [G] number of rollouts
    rewards: Mapping[str, Floats] = field(default_factory=dict)  # [4, G]: given, sum, sum of squares, passes
    columns: Mapping[str, Floats] = field(default_factory=dict)  # [2, G]: given, sum
    outcomes: Mapping[str, Floats] = field(default_factory=dict)  # [G] rollouts with each outcome that occurs
    models: tuple[str, ...] = ()
    clusters: UnitHashes | None = None  # [G] hashes of their names, if clusters are declared
    first_rewards: Mapping[str, Floats] = field(default_factory=dict)  # as `rewards`, of each task's first sample
    first_columns: Mapping[str, Floats] = field(default_factory=dict)  # both only where tasks differ in their samples
    follows: Sequence[Any] | None = None  # if the number of samples follows the results: rule, stopped tasks, tasks
    is_first: bool = False  # whether `rewards` and `columns` are those of first samples
    _known: dict[str, tuple[Floats, Bools]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def on_first_samples(self) -> StepSums:
        """The step with the first sample of each task in place of all of them."""
        if self.is_first:
            return self
        rewards, columns = self.first_rewards or self.rewards, self.first_columns or self.columns
        return replace(self, rewards=rewards, columns=columns, is_first=bool(self.first_rewards))

    @property
    def series(self) -> str:
        """The name of the step's series: the split, the dataset and the agent that are known."""
        return series_name(self.split, self.dataset, self.agent)

    @property
    def key(self) -> tuple[str, int]:
        """The series and the number of the step."""
        return self.series, self.step

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every array by name."""
        named: dict[str, np.ndarray[Any, Any]] = {"tasks": self.tasks, "planned": self.planned}
        named |= {} if self.clusters is None else {"clusters": self.clusters}
        for kind, group in (("reward", self.rewards), ("column", self.columns), ("outcome", self.outcomes)):
            named |= {f"{kind}/{name}": values for name, values in group.items()}
        for kind, group in ((f"{_FIRST}reward", self.first_rewards), (f"{_FIRST}column", self.first_columns)):
            named |= {f"{kind}/{name}": values for name, values in group.items()}
        return named

    @property
    def digest(self) -> str:
        """The hash of the arrays, which does not change if a file is rewritten with the same content."""
        content = hashlib.blake2b(digest_size=16)
        arrays = {name: values for name, values in self.arrays().items() if not name.startswith(_FIRST)}
        for name, values in sorted(arrays.items()):
            content.update(name.encode("utf-8", "surrogatepass"))
            content.update(np.ascontiguousarray(values).tobytes())
        return content.hexdigest()

    def value_names(self) -> list[str]:
        """The metrics that the step's page shows, the headline first."""
        names = sorted(self.rewards, key=lambda name: name != self.headline)
        moments = self.rewards.get(self.headline)
        if moments is not None:
            given, total, squares, passes = moments
            if (total == squares).all() and (total == passes).all():  # all rewards are 0 or 1
                least = int(given[given > 0].min(initial=1e9))
                names += [f"pass@{least}"] if 1 < least < 1e9 else []
        names += list(self.columns)
        names += [f"rate({word})" for word in self.outcomes if word not in (OUTCOMES[0], "missing")]
        if any(word in self.outcomes for word in OUTCOMES[FIRST_GAP:STOPPED_EARLY]):
            names.append("rate(missing)")
        if moments is not None and bool((moments[0] > 1).any()):
            names += ["share(zero_variance)", "share(all_pass)", "share(all_fail)"]
        return names

    def values(self, what: str) -> tuple[Floats, Bools]:
        """The task values of a metric, and which tasks have a value, [G] each; InputError if the step lacks the metric.

        ``what`` is a reward by name (`reward` for the headline), pass@k or pass^k of the headline, a column,
        rate(OUTCOME), or share(zero_variance). A task has no value if it is not finite, or too large to be squared.
        """
        if (known := self._known.get(what)) is None:
            with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are left out here
                values, given = self._values(what)
            known = self._known[what] = (values, given & (np.abs(values) <= HUGE))
        return known

    def units(self, what: str) -> tuple[UnitHashes, Floats, Bools]:
        """The units of an alarm, tasks or clusters: their hashes, their values, and which have a value, [U] each.

        The value of a cluster is the mean over its tasks that have a value.
        """
        values, given = self.values(what)
        if self.clusters is None:
            return self.tasks, values, given
        names, code = np.unique(self.clusters, return_inverse=True)
        counts = np.bincount(code[given], minlength=len(names)).astype(np.float64)
        return names, _divided(sum_by(code[given], values[given], len(names)), counts), counts > 0

    def cluster_codes(self, tasks: Bools | Ints) -> Ints | None:
        """The clusters of the selected tasks, numbered from 0; None if no clusters are declared."""
        return None if self.clusters is None else np.unique(self.clusters[tasks], return_inverse=True)[1]

    def _values(self, what: str) -> tuple[Floats, Bools]:
        name = self.resolved(what)
        moments = {**self.columns, **self.rewards}.get(name)
        if moments is not None:
            return _divided(moments[1], moments[0]), moments[0] > 0
        if match := _PASS_AT.fullmatch(name):
            return self._pass_at(match[1], int(match[2]))
        kind, _, inner = name.removesuffix(")").partition("(")
        if kind == "rate":
            return _divided(self._count(inner), self.planned), self.planned > 0
        return self._equal_rewards(inner)

    def resolved(self, what: str) -> str:
        """The name of a metric in this step; InputError if the step does not have it."""
        name = resolved(what, self.rewards, self.columns, self.headline)
        if name is not None:
            return name
        known = [*self.rewards, *self.columns]
        close = " or ".join(map(repr, nearest(what, known)))
        hint = f"did you mean {close}?" if close else f"it has {', '.join(known[:12]) or 'no rewards'}"
        raise InputError(f"step {self.step} has no {what!r}; {hint}")

    def _pass_at(self, sign: str, k: int) -> tuple[Floats, Bools]:
        """pass@k or pass^k of the headline, by its sign, and which tasks have k samples."""
        if self.is_first and k > 1:
            name = f"pass{sign}{k}"
            raise InputError(
                f"step {self.step}: the number of samples follows the results, and {name} has no value for first "
                "samples"
            )
        n, _, _, passes = self.rewards[self.headline]
        successes = passes if sign == "^" else n - passes
        draws = np.arange(k)
        all_of_k = (np.clip(successes[:, None] - draws, 0, None) / np.clip(n[:, None] - draws, 1, None)).prod(axis=1)
        return (all_of_k if sign == "^" else 1 - all_of_k), n >= k

    def _count(self, outcome: str) -> Floats:
        """The number of each task's rollouts with an outcome; "missing" is every outcome without a number."""
        if outcome == "missing":
            gaps = [word for word in OUTCOMES[FIRST_GAP:STOPPED_EARLY] if word in self.outcomes]
            return sum((self.outcomes[word] for word in gaps), start=np.zeros(len(self.tasks)))
        return self.outcomes.get(outcome, np.zeros(len(self.tasks)))

    def _equal_rewards(self, share: str) -> tuple[Floats, Bools]:
        """Whether each task's rewards are equal (and passes, or failures), and which tasks have several."""
        n, total, squares, passes = self.rewards[self.headline]
        several = n > 1
        mean = _divided(total, n)
        equal = squares - n * mean * mean <= 1e-12 * np.maximum(squares, 1e-300)
        if share == "all_pass":
            equal &= passes == n
        elif share == "all_fail":
            equal &= passes == 0
        return equal.astype(np.float64), several

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
    """The name of a series, made of the parts that are known."""
    return " · ".join(part for part in (split, dataset, agent) if part)


def resolved(what: str, rewards: Collection[str], columns: Collection[str], headline: str) -> str | None:
    """The name of a metric among the rewards and columns; None if it is not among them."""
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
    """The reward that an alarm reads by default."""
    return reward or part.usual_reward or next(iter(part.rewards), "")


def _divided(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=denominator > 0)


def read_step_file(
    path: str,
    columns: Named | None = None,
    *,
    root: str = "",
    reward: str | None = None,
    cluster: str | None = None,
    range: tuple[float, float] | None = None,
    metrics: Iterable[str] = (),
) -> tuple[list[StepSums], str]:
    """The sums of every (series, step) in a file or run folder, and its hash; InputError if it is broken.

    With ``range``, it is also an error if the headline, or a reward among ``metrics``, has a value outside it.
    """
    labels = LABELS if cluster is None else (*LABELS, cluster)
    rollouts, inputs = begin([path], columns=columns or Named({}), labels=labels)
    sums = []
    for part in rollouts.groups():
        for rows, step, split in _cuts(part, path, root):
            of_step = part if rows is None else part.where(rows)
            if range is not None:
                demand_watched_range(of_step, range, reward, metrics, f"{path}: step {step}")
            sums.append(summed(of_step, step, split, path, reward, cluster))
    return sums, inputs()[0].sha256


def demand_watched_range(
    part: Rollouts, limits: tuple[float, float], reward: str | None, metrics: Iterable[str], where: str
) -> None:
    """Raise InputError for a value outside the given range of the headline, or of a reward among the metrics."""
    headline = headline_of(part, reward)
    names = [resolved(what, part.rewards, part.columns, headline) for what in metrics]
    try:
        for name in dict.fromkeys([headline, *names]):
            if name in part.rewards:
                demand_range(part, contributed(part, name), name, limits)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def rollouts_until(path: str, columns: Named, series: str, last: int, *, root: str) -> Rollouts:
    """The rollouts of a series in a file, of its last step up to ``last``; InputError if there is no such step."""
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
    """Yield the rows of each (step, split) of a group, None for all rows, with the step and the split."""
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
        number = re.fullmatch(r"0*([0-9]{1,19})(\.0*)?", step)
        if number is None or int(number[1]) > MOST_STEP:
            expected = "expected a step in its rows, or a number in its name"
            raise InputError.at(path, f"the step is {step!r:.80}" if step else "has no step", expected)
        rows = None if len(pairs) == 1 else split_code * len(steps) + step_code == pair
        yield rows, int(number[1]), split


def _step_text(path: str, root: str) -> str:
    step = step_of(path, root)
    return "" if step is None else str(step)


def step_of(path: str, root: str = "") -> int | None:
    """The step in a path: the last number in the file's name, else in the name of the nearest folder with a number.

    >>> step_of("run/completions_00005.parquet"), step_of("global_step_30/data.jsonl"), step_of("a/b.jsonl")
    (5, 30, None)
    """
    inside = os.path.relpath(path, root) if root else path
    for part in reversed(inside.split(os.sep)):
        stem = re.sub(r"\.(jsonl|ndjson|json|parquet|csv|eval)(\.(gz|zst))?\Z", "", part)
        if numbers := re.findall(r"[0-9]+", stem):
            return int(numbers[-1])
    return None


def split_of(path: str, root: str = "") -> str:
    """The split in a path: a word such as train or eval, else the file's folder below the root.

    >>> split_of("/r/val/12.jsonl", "/r"), split_of("/r/12.jsonl", "/r"), split_of("/r/train_data_step3.jsonl", "/r")
    ('val', '', 'train')
    """
    inside = os.path.relpath(path, root) if root else os.path.basename(path)
    for part in reversed(inside.split(os.sep)):
        for word in re.split(r"[^A-Za-z]+", part):
            if word.lower() in SPLITS:
                return word.lower()
    # a folder with a number belongs to a step, and does not name a split
    folders = [part for part in inside.split(os.sep)[:-1] if not re.search(r"[0-9]", part) and part != os.curdir]
    return "/".join(part for part in folders if part.lower() not in _GENERIC)


def summed(
    part: Rollouts, step: int, split: str, path: str, reward: str | None = None, cluster: str | None = None
) -> StepSums:
    """The sums of the rollouts of one step; ``cluster`` is the label of the tasks' clusters."""
    hashes = task_hashes(part.tasks)
    order = np.argsort(hashes, kind="stable")
    by = part.by_task
    size = len(part.tasks)

    uneven = len(part) > 0 and int(by.sizes.min()) != int(by.sizes.max())
    is_first = np.zeros(len(part), dtype=bool)
    is_first[by.starts[:-1][by.sizes > 0]] = True  # the first planned sample of each task

    def moments(column: Column, *, of_rewards: bool, first: bool = False) -> Floats:
        column = Column(column.values, column.given & is_first) if first else column
        values = column.values if column.given.all() else np.where(column.given, column.values, 0.0)
        given = by.count(column.given).astype(np.float64)
        rows = [given, by.sum(column)]
        if of_rewards:
            rows.append(by.sum(Column(values * values, column.given)))
            rows.append(by.count(column.given & (column.values >= PASS_THRESHOLD)).astype(np.float64))
        return np.stack(rows)[:, order]

    headline = headline_of(part, reward)
    if reward is not None and reward not in part.rewards:
        raise InputError.at(path, f"no reward {reward!r}", f"expected one of {', '.join(part.rewards) or 'none'}")
    with np.errstate(over="ignore", invalid="ignore"):
        rewards = {name: moments(contributed(part, name), of_rewards=True) for name in part.rewards}
        kept = [name for name, column in part.columns.items() if column.values.ndim == 1 and column.given.any()]
        columns = {
            name: moments(part.columns[name], of_rewards=False) for name in kept[:MOST_COLUMNS] if name not in rewards
        }
        columns = {name: values for name, values in columns.items() if name not in (STEP, SPLIT, TRUNCATED)}
        first_rewards, first_columns = {}, {}
        if uneven:
            for name in rewards:
                first_rewards[name] = moments(contributed(part, name), of_rewards=True, first=True)
            for name in columns:
                first_columns[name] = moments(part.columns[name], of_rewards=False, first=True)
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
        columns,
        outcomes,
        tuple(sorted({str(key[1]) for key in part.keys if key[1]})),
        None if cluster is None else _clusters(part, cluster, path)[order],
        first_rewards,
        first_columns,
        _follows(part, headline) if uneven else None,
    )


def _follows(part: Rollouts, headline: str) -> Sequence[Any] | None:
    """The rule by which the number of samples follows the results, its tasks, and all tasks; None if it does not."""
    if headline not in part.rewards:
        return None
    rewards = contributed(part, headline)
    found = follows(rewards.given & (rewards.values >= PASS_THRESHOLD), rewards.given, part.task)
    return None if found is None else [found.rule, found.stopped, found.tasks]


def _clusters(part: Rollouts, key: str, path: str) -> UnitHashes:
    """The hash of the cluster of each task, [G]."""
    try:
        code, names = named_clusters(part, key)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return task_hashes(names)[code]


def task_hashes(tasks: Sequence[str]) -> UnitHashes:
    """A 64-bit hash of each task's name, [G], which is the same in every process and on every machine.

    All names are hashed at once, eight bytes at a time; among a million names a collision has a chance of 3e-8.

    >>> task_hashes(["a", "b", "a"])[[0, 2]].tolist() == [15890924970272741125] * 2
    True
    """
    try:
        names = np.array(tasks, dtype=np.str_).astype(np.bytes_)
    except UnicodeEncodeError:  # slower, with the same hashes for names that are all ASCII
        names = np.array([str(task).encode("utf-8", "surrogatepass") for task in tasks], dtype=np.bytes_)
    lengths = np.strings.str_len(names).astype(np.uint64)
    width = 8 * max(1, -(-int(lengths.max(initial=1)) // 8))
    words = names.astype(f"S{width}").view("<u8").reshape(len(names), width // 8).astype(np.uint64)
    hashes = _mixed(lengths + np.uint64(0x9E3779B97F4A7C15))
    for number in range(words.shape[1]):
        inside = np.uint64(8 * number) < lengths
        hashes = np.where(inside, _mixed(hashes ^ words[:, number]) + np.uint64(0x9E3779B97F4A7C15), hashes)
    return hashes


def _mixed(words: UnitHashes) -> UnitHashes:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _marked(part: Rollouts, key: str) -> Any:
    """The rollouts for which a Boolean label or column is true, [R]; None if there is no such label or column."""
    if (column := part.columns.get(key)) is not None:
        return column.given & (column.values > 0)
    if (labels := part.labels.get(key)) is None:
        return None
    true = [code for code, value in enumerate(labels.values) if value in (True, "true", "True", 1)]
    return np.isin(labels.code, true)


def merged(first: StepSums, second: StepSums) -> StepSums | None:
    """Two parts of one step on different tasks as one; None if they share tasks."""
    if len(np.intersect1d(first.tasks, second.tasks)):
        return None
    tasks = np.concatenate([first.tasks, second.tasks])
    order = np.argsort(tasks, kind="stable")

    def joined(ours: Mapping[str, Floats], theirs: Mapping[str, Floats]) -> dict[str, Floats]:
        arrays = {}
        for name, example in {**theirs, **ours}.items():
            parts = [
                group[name] if name in group else np.zeros((*example.shape[:-1], len(sums.tasks)))
                for group, sums in ((ours, first), (theirs, second))
            ]
            arrays[name] = np.concatenate(parts, axis=-1)[..., order]
        return arrays

    uneven = bool(first.first_rewards or second.first_rewards)
    firsts = first.on_first_samples(), second.on_first_samples()
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
        first_rewards=joined(firsts[0].rewards, firsts[1].rewards) if uneven else {},
        first_columns=joined(firsts[0].columns, firsts[1].columns) if uneven else {},
        follows=first.follows or second.follows,
    )


def of_arrays(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> StepSums:
    """The sums with the arrays of `StepSums.arrays` and the other fields of ``header``."""
    kinds: dict[str, dict[str, Floats]] = {"reward": {}, "column": {}, "outcome": {}}
    kinds |= {f"{_FIRST}reward": {}, f"{_FIRST}column": {}}
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
        first_rewards=kinds[f"{_FIRST}reward"],
        first_columns=kinds[f"{_FIRST}column"],
        follows=header.get("follows"),
    )


def header_of(sums: StepSums) -> dict[str, Any]:
    """The fields of sums that are not arrays."""
    rest = {"models": list(sums.models), "follows": sums.follows}
    return {**{name: getattr(sums, name) for name in _HEADER}, **rest}


def shared_tasks(now: StepSums, base: StepSums) -> tuple[Ints, Ints]:
    """The indices of the shared tasks in each of two steps, [T] each, in the same order."""
    _, in_now, in_base = np.intersect1d(now.tasks, base.tasks, assume_unique=True, return_indices=True)
    return in_now, in_base


def matched(now: StepSums, what: str, base: StepSums, shared: tuple[Ints, Ints]) -> tuple[Floats, Floats, Ints | None]:
    """The values of a metric on the shared tasks with a value in both steps, [T] each, and the tasks' clusters."""
    in_now, in_base = shared
    values, given = now.values(what)
    base_values, base_given = base.values(what)
    both = given[in_now] & base_given[in_base]
    return values[in_now][both], base_values[in_base][both], now.cluster_codes(in_now[both])
