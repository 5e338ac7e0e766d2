"""NeMo Gym's aggregation: rows in, its three blocks of metrics out, and the file of them, key by key.

Also its reward profile of rollouts and inputs; and, below, its statistics of every numeric key, per task and over all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import NoneType
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from calipers.errors import InputError, PluginError
from calipers.formats.lines import odd_key
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints
from calipers.rollouts.table import Part
from calipers.systems.nemo_gym import AGENT, FAILURES, INPUTS, REWARD, ROLLOUT, STATISTICS, TASK, beside
from calipers.systems.nemo_gym.row_builder import (
    Cells,
    GymPart,
    GymRows,
    Keys,
    Row,
    agent_of,
    from_records,
    joined,
    order,
    overlaid,
)
from calipers.systems.nemo_gym.wire import MIXED, agent_name, index_fault

ComputeMetrics = Callable[[list[list[dict[str, Any]]]], dict[str, Any]]
KeyMetrics = Callable[[dict[str, Any]], dict[str, Any]]

PER_TASK: Final = "per_task_metrics"
"""What a hook returns under this name is laid over the groups, and is no metric itself."""

BULKY: Final = frozenset(
    {"response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "ng_trajectory"}
)


def means(agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The headline numbers where no hook picks them: every metric whose name starts with ``mean/``."""
    return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a resources server adds: metrics over all its rows, and which numbers are the headline."""

    compute_metrics: ComputeMetrics | None = None
    get_key_metrics: KeyMetrics | None = None


NO_HOOKS: Final = Hooks()


@dataclass(frozen=True, slots=True)
class Blocks:
    """The answer of ``/aggregate_metrics``."""

    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    groups: Iterable[list[Any]]  # some at a time, each ready for JSON

    def to_dict(self) -> dict[str, Any]:
        """The answer in its shape, its numbers as they are: NaN stays NaN."""
        listed = [msgspec.to_builtins(group) for chunk in self.groups for group in chunk]
        return {"group_level_metrics": listed, "agent_metrics": self.agent_metrics, "key_metrics": self.key_metrics}


def aggregate(rows: Sequence[Row], hooks: Hooks = NO_HOOKS) -> Blocks:
    """NeMo Gym's metrics of the rows of one request, as its ``/aggregate_metrics`` answers them.

    No rows give three empty blocks, and no hook is called. InputError for rows it cannot aggregate,
    PluginError for a hook that fails.

    >>> rows = [{"_ng_task_index": 0, "_ng_rollout_index": n, "reward": n} for n in (0, 1)]
    >>> aggregate(rows).key_metrics
    {'mean/reward': 0.5}
    """
    if not rows:
        return Blocks({}, {}, [])
    table = from_records(rows)
    return _blocks(frame(table, np.arange(len(table))), hooks, rows)


def _blocks(of: Frame, hooks: Hooks, rows: Sequence[Row] = ()) -> Blocks:
    agent_metrics: dict[str, Any] = dict(flat(pooled(of), of.whole))
    chunks: Iterable[list[Any]] = groups(of)
    if hooks.compute_metrics:
        chunks = list(chunks)  # a hook may change its rows: what is not theirs comes first
        added = _named(_called(hooks.compute_metrics, by_task(of, rows)))
        agent_metrics.update({name: value for name, value in added.items() if name != PER_TASK})
        chunks = merged(chunks, _entries(added.get(PER_TASK) or []))
    key_metrics = _called(hooks.get_key_metrics or means, agent_metrics)
    encoded([agent_metrics, key_metrics])  # what JSON cannot say is said now
    return Blocks(agent_metrics, key_metrics, chunks)


def by_task(of: Frame, rows: Sequence[Row]) -> list[list[dict[str, Any]]]:
    """Rows as a hook gets them: a list for each task, tasks ascending, each in the order of the request."""
    lists: list[list[dict[str, Any]]] = [[] for _ in of.tasks]
    code = np.empty(len(rows), dtype=np.int64)
    code[of.chosen] = of.by.code
    for row, task in zip(rows, code.tolist(), strict=True):
        lists[task].append(dict(row))
    return lists


def _called(hook: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
    name = getattr(hook, "__name__", "hook")
    try:
        metrics = hook(argument)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(f"{name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(metrics, dict):
        raise PluginError(f"{name} returned {type(metrics).__name__}; expected a dict")
    return metrics


def _named(metrics: dict[Any, Any]) -> dict[str, Any]:
    odd = next((key for key in metrics if not isinstance(key, str)), None)
    if odd is not None or None in metrics:
        raise PluginError(f"a hook named a metric {odd!r:.60}; expected text")
    return metrics


def _entries(entries: Any) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise PluginError(f"{PER_TASK} is {type(entries).__name__}; expected a list of objects, each with {TASK}")
    for entry in entries:
        if not isinstance(task := entry.get(TASK), (int, float, str, NoneType)):
            raise PluginError(f"{PER_TASK}: {TASK} is {task!r:.60}; expected the index of a task, a number or text")
    return entries


def stripped(row: Row) -> dict[str, Any]:
    """A row as it is sent to be aggregated: without its bulk, and of the response only the usage."""
    kept = {key: value for key, value in row.items() if key not in BULKY}
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return {**kept, "response": {"usage": usage}} if usage else kept


def by_agent(rows: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Stripped rows by the agent that made them, each by task and rollout; a row without an agent is left out."""
    try:
        ordered = sorted(rows, key=lambda row: (row[TASK], row[ROLLOUT]))
    except TypeError:
        raise InputError(MIXED) from None
    except KeyError as error:
        raise InputError(f"a row has no key {error}; expected {TASK} and {ROLLOUT}") from None
    agents: dict[str, list[dict[str, Any]]] = {}
    for row in ordered:
        if name := agent_of(row):
            agents.setdefault(name, []).append(stripped(row))
    return agents


def one_table(parts: Sequence[Part]) -> GymRows:
    """The rows of all files that were read. InputError where one is no file of NeMo Gym's, or names no agent."""
    tables = [part.gym for part in parts if isinstance(part, GymPart) and part.gym is not None]
    gym_paths = {part.places.path for part in parts if isinstance(part, GymPart)}
    known = gym_paths | {beside(path, word) for path in gym_paths for word in (FAILURES, INPUTS)}
    foreign = [
        path for part in parts if (path := part.places.path) not in known and not path.endswith((FAILURES, INPUTS))
    ]
    if foreign:
        right = "expected its rollouts.jsonl for --export nemo_gym"
        raise InputError.at(foreign[0], "contains no rollouts of NeMo Gym", right)
    if not tables:
        raise InputError.at(parts[0].places.path, "no rollout succeeded", "expected one for --export nemo_gym")
    table = joined(tables)
    if not ((table.agent >= 0) & ~table.aside).any():
        raise InputError.at(parts[0].places.path, "no rollout names its agent", f"expected {AGENT}: {{name: ...}}")
    return table


def entries_of(table: GymRows) -> Iterator[tuple[str, Blocks]]:
    """The entries of the metrics file, agents by name; failed attempts and rows without an agent are left out."""
    for name, code in sorted((name, code) for code, name in enumerate(table.agents)):
        chosen = np.flatnonzero((table.agent == code) & ~table.aside)
        if len(chosen):
            yield name, _blocks(frame(table, chosen), NO_HOOKS)


def aggregate_agents(
    agents: Mapping[str, Sequence[Row]], hooks: Mapping[str, Hooks] | Hooks = NO_HOOKS
) -> list[tuple[str, Blocks]]:
    """The entries of the metrics file, agents by name; ``hooks`` for all of them, or for each by its name."""
    by_name = dict.fromkeys(agents, hooks) if isinstance(hooks, Hooks) else hooks
    return [(name, aggregate(agents[name], by_name.get(name, NO_HOOKS))) for name in sorted(agents)]


_Key = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the profile says of each task and of each agent."""

    tasks: list[dict[str, Any]]  # the lines of ``<stem>_reward_profiling.jsonl``
    agents: list[dict[str, Any]]  # ``<stem>_agent_metrics.json``
    completed: int
    expected: int


def reward_profile(inputs: Sequence[Row], rollouts: Sequence[Row], *, allow_partial: bool = False) -> Profile:
    """Statistics per task, with the task's own input and how many of its rollouts there are, and per agent.

    InputError for a rollout or an input that appears twice, a rollout without an input, and, unless
    ``allow_partial``, an input without a rollout. A task without any rollout is left out.
    """
    planned, done = checked_keys(inputs, rollouts, allow_partial=allow_partial)
    if not done:
        return Profile([], [], 0, len(planned))
    table = from_records([{**row, "response": row.get("response") or {}} for row in done.values()])
    of = frame(table, np.arange(len(table)))
    keys = list(done)
    first = [keys[row] for row in of.chosen[of.by.starts[:-1]].tolist()]
    counts: dict[Any, int] = {}
    for task, _ in planned:
        counts[task] = counts.get(task, 0) + 1
    expected = Expected(
        [counts[task] for task, _ in first],
        [{name: value for name, value in planned[key].items() if name not in (TASK, ROLLOUT)} for key in first],
    )
    tasks = [msgspec.to_builtins(group) for chunk in groups(of, expected) for group in chunk]
    ran = [agent_name(planned[keys[row]]) for row in of.chosen.tolist()]
    agents = []
    for name in sorted({name for name in ran if name}):
        rows = np.flatnonzero([other == name for other in ran])
        agents.append({**flat(over(of, rows), of.whole), AGENT: {"name": name}})
    return Profile(tasks, agents, len(done), len(planned))


def checked_keys(
    inputs: Sequence[Row], rollouts: Sequence[Row], *, allow_partial: bool
) -> tuple[dict[_Key, Row], dict[_Key, Row]]:
    """Inputs and rollouts by task and rollout. InputError as in `reward_profile`."""
    planned, done = indexed(inputs, "input"), indexed(rollouts, "rollout")
    for key in done:
        if key not in planned:
            raise InputError(f"{_rollout_name(key)} has no input; expected an input for every rollout")
    missing = [key for key in planned if key not in done]
    if missing and not allow_partial:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{_rollout_name(missing[0])}{more} has no rollout; expected one for every input, or a partial profile"
        )
    return planned, done


def indexed(rows: Sequence[Row], what: str) -> dict[_Key, Row]:
    """Rows by task and rollout. InputError for a rollout that appears twice or has no index."""
    by_key: dict[_Key, Row] = {}
    for number, row in enumerate(rows, 1):
        for index in (TASK, ROLLOUT):
            if fault := index_fault(index, row.get(index, UNSET)):
                raise InputError.at(f"{what} {number}", *fault)
        key = (row[TASK], row[ROLLOUT])
        if key in by_key:
            raise InputError.at(f"{what} {number}", f"{_rollout_name(key)} appears twice", "expected it once")
        by_key[key] = row
    return by_key


def _rollout_name(key: _Key) -> str:
    return f"{TASK} {key[0]}, {ROLLOUT} {key[1]}"


SAMPLE: Final = {"agent_ref": {"name": "agent"}}
"""What NeMo Gym shows as a group's sample when it is not told the inputs: always this."""
AT_ONCE = 200  # groups held as objects; the rest stays in columns


@dataclass(frozen=True, slots=True)
class Expected:
    """What was planned for each task of a frame, where the inputs are known."""

    counts: Sequence[int]  # [T]
    samples: Sequence[Mapping[str, Any]]  # [T]


def flat(described: Mapping[str, Described], whole: bool) -> dict[str, float]:
    """The statistics of one set, statistic by statistic: ``mean/*`` of all keys, then ``max/*`` and so on."""
    return {
        f"{statistic}/{name}": _listed(statistics, statistic, slice(0, 1), whole)[0]
        for statistic in STATISTICS
        for name, statistics in described.items()
        if statistics.given[statistic][0]
    }


def groups(of: Frame, expected: Expected | None = None) -> Iterator[list[Any]]:
    """The groups of a frame, some at a time: structs, or dicts where a key is one that no struct can have."""
    stats = per_task(of)
    infos = _infos(of)
    sizes = np.diff(of.by.starts)
    whole = of.whole
    for first in range(0, len(of.tasks), AT_ONCE):
        tasks = slice(first, min(first + AT_ONCE, len(of.tasks)))
        start, end = int(of.by.starts[tasks.start]), int(of.by.starts[tasks.stop])
        made = _made("Info", {name: cells(start, end) for name, cells in infos.items()})
        bounds = (of.by.starts[tasks.start : tasks.stop + 1] - start).tolist()
        counts = sizes[tasks].tolist()
        planned = list(expected.counts[tasks]) if expected else counts
        columns: dict[str, list[Any]] = {TASK: list(of.tasks[tasks])}
        for statistic in STATISTICS:
            for name, statistics in stats.items():
                columns[f"{statistic}/{name}"] = _listed(statistics, statistic, tasks, whole)
        columns["sample"] = list(expected.samples[tasks]) if expected else [SAMPLE] * len(counts)
        columns["num_rollouts"] = counts
        columns["expected_num_rollouts"] = planned
        columns["missing_num_rollouts"] = [n - count for n, count in zip(planned, counts, strict=True)]
        columns["reward_profile_completion_pct"] = [100.0 * c / n for n, c in zip(planned, counts, strict=True)]
        columns["rollout_infos"] = [made[a:b] for a, b in pairwise(bounds)]
        yield _made("Group", columns)


def _listed(described: Described, statistic: str, sets: slice, whole: bool) -> list[Any]:
    """One statistic of some sets; ``whole``: an extreme is an integer."""
    values, given = described.values[statistic][sets], described.given[statistic][sets]
    numbers: list[Any] = values.tolist()
    if whole and statistic in described.exact:
        numbers = _integers(values)
        for index, value in described.exact[statistic].items():
            if sets.start <= index < sets.stop:
                numbers[index - sets.start] = value
    if given.all():
        return numbers
    return [number if there else UNSET for number, there in zip(numbers, given.tolist(), strict=True)]


def _integers(values: Floats) -> list[Any]:
    listed: list[Any] = values.tolist()
    safe = np.abs(values).max(initial=0.0) < 2.0**63
    return values.astype(np.int64).tolist() if safe else [int(value) for value in listed]


def _made(kind: str, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """One object a row, without the keys it lacks. Structs take a third of the time that dicts do."""
    if odd_key(columns) is not None:
        rows = zip(*columns.values(), strict=True)
        return [{key: value for key, value in zip(columns, row, strict=True) if value is not UNSET} for row in rows]
    return list(map(_struct(kind, tuple(columns)), *columns.values()))


@lru_cache(maxsize=4)
def _struct(kind: str, keys: tuple[str, ...]) -> type[msgspec.Struct]:
    spec: list[Any] = [(f"f{n}", Any, UNSET) for n in range(len(keys))]
    return msgspec.defstruct(kind, spec, rename={f"f{n}": key for n, key in enumerate(keys)}, gc=False)


def _infos(of: Frame) -> dict[str, Callable[[int, int], list[Any]]]:
    """The keys of a rollout's own entry, in their order, and what gives their values for a stretch of rollouts.

    Where a key stands in the row and in its usage, the row's value is shown; but of ``reward``, usage's.
    """
    rows, chosen = of.rows, of.chosen
    tasks = np.array(of.tasks, dtype=object if rows.names is not None else np.int64)
    rollouts = rows.rollout[chosen]

    def task(start: int, end: int) -> list[Any]:
        names: list[Any] = tasks[of.by.code[start:end]].tolist()
        return names

    def rollout(start: int, end: int) -> list[Any]:
        indices: list[Any] = rollouts[start:end].tolist()
        return indices

    def ids(start: int, end: int) -> list[Any]:
        return [f"{a}:{b}" for a, b in zip(task(start, end), rollout(start, end), strict=True)]

    sources: dict[str, Callable[[int, int], list[Any]]] = {"rollout_id": ids, TASK: task, ROLLOUT: rollout}

    def cells_of(table: Mapping[str, Cells], other: Mapping[str, Cells]) -> dict[str, Cells]:
        once = {name: of.fields.get(name) for name in table if name not in other}  # the statistics see the same
        names = [name for name in table if name not in (TASK, ROLLOUT)]
        return {name: once.get(name) or table[name].take(chosen) for name in names}

    top, usage = cells_of(rows.top, rows.usage), cells_of(rows.usage, rows.top)
    if REWARD in top:
        sources[REWARD] = _shown(top[REWARD], raw=True)
    position = {name: number for number, name in enumerate(of.fields)}
    for cells in (usage, top):
        for name in sorted(cells, key=lambda name: position.get(name, len(position))):
            if cells[name].given.any() and not (cells is top and name == REWARD):
                over = _shown(cells[name], raw=False)
                sources[name] = _laid(over, sources[name]) if name in sources else over
    return sources


def _shown(cells: Cells, raw: bool) -> Callable[[int, int], list[Any]]:
    """The values of a key as JSON has them: whole numbers whole; ``raw``: what is no number too."""
    exact = {row: value for row, value in cells.odd.items() if raw or cells.given[row]}
    given = cells.present if raw else cells.given

    def values(start: int, end: int) -> list[Any]:
        listed: list[Any]
        numbers, whole, there = cells.values[start:end], cells.whole[start:end], given[start:end]
        if whole.all():
            listed = _integers(numbers)
        elif not whole.any():
            listed = numbers.tolist()
        else:
            pairs = zip(numbers.tolist(), whole.tolist(), strict=True)
            listed = [int(number) if is_whole else number for number, is_whole in pairs]
        if not there.all():
            listed = [number if known else UNSET for number, known in zip(listed, there.tolist(), strict=True)]
        if exact:
            listed = [exact.get(row, number) for row, number in enumerate(listed, start)]
        return listed

    return values


def _laid(
    over: Callable[[int, int], list[Any]], under: Callable[[int, int], list[Any]]
) -> Callable[[int, int], list[Any]]:
    def values(start: int, end: int) -> list[Any]:
        pairs = zip(over(start, end), under(start, end), strict=True)
        return [below if above is UNSET else above for above, below in pairs]

    return values


def merged(chunks: Iterable[list[Any]], entries: Sequence[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """The groups with what a hook says of single tasks laid over them; an entry of no task is dropped.

    Of several entries of a task the last counts.
    """
    if not entries:
        yield from chunks
        return
    index = {entry.get(TASK): entry for entry in entries}
    for chunk in chunks:
        plain: list[dict[str, Any]] = msgspec.to_builtins(chunk)
        yield [{**group, **index.get(group[TASK], {}), TASK: group[TASK]} for group in plain]


def headline(agent: str, key_metrics: Mapping[str, Any]) -> str:
    """An agent and its key metrics on one line.

    >>> headline("math", {"pass@k": 2 / 3, "n": 3, "note": "x"})
    'math: pass@k 0.6667, n 3, note x'
    """
    plain = {name: value for name, value in key_metrics.items() if isinstance(value, (bool, int, float, str))}
    shown = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in plain.items())
    return f"{agent}: {', '.join(shown) or 'no key metrics'}"


def file_chunks(entries: Iterable[tuple[str, Blocks]]) -> Iterator[bytes | memoryview]:
    """The bytes of the metrics file, indented by two."""
    lead = b"["
    for agent, blocks in entries:
        head = {"agent_ref": {"name": agent}, "agent_metrics": blocks.agent_metrics, "key_metrics": blocks.key_metrics}
        opened = msgspec.json.format(encoded(head), indent=2).removesuffix(b"\n}")
        yield lead + b"\n  " + opened.replace(b"\n", b"\n  ") + b',\n    "group_level_metrics": ['
        any_yet = False
        for chunk in blocks.groups:
            if any_yet:
                yield b","
            # a newline stands only between tokens, never inside a string; the list's own brackets are left out
            indented = msgspec.json.format(encoded(chunk), indent=2).replace(b"\n", b"\n    ")
            yield memoryview(indented)[1 : -len(b"\n    ]")]
            any_yet = True
        yield b"\n    ]\n  }" if any_yet else b"]\n  }"
        lead = b","
    yield b"\n]"


def encoded(value: Any) -> bytes:
    """A value as JSON; what is no finite number is null. PluginError for what JSON cannot say."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise PluginError(f"a hook returned a value that JSON cannot encode: {error}") from error


def _other(value: Any) -> Any:
    if isinstance(value, float):  # numpy's double is one
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = msgspec.json.Encoder(enc_hook=_other)

# -- the statistics

WORTH_THREADS = 200_000  # rollouts; numpy works on arrays of that size outside the interpreter's lock
THREADS = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """The rollouts of one request, by task and rollout."""

    rows: GymRows
    chosen: Ints  # [R] which of the rows, in their order
    tasks: Sequence[int | str]  # [T] ascending
    by: Groups  # [R] -> [T]
    fields: Mapping[str, Cells]  # [R] the numeric keys, by first appearance, as the statistics see them

    @property
    def whole(self) -> bool:
        """Whether every key is an integer in every rollout: then so are its extremes."""
        return all(bool((cells.given & cells.whole).all()) for cells in self.fields.values())


@dataclass(frozen=True, slots=True)
class Described:
    """The five statistics of one key over N sets of rollouts; a mask says where there is one."""

    values: Mapping[str, Floats]  # statistic -> [N]
    given: Mapping[str, Bools]  # statistic -> [N]
    exact: Mapping[str, Mapping[int, int]]  # max, min -> set -> the integer, where no double holds it


def frame(rows: GymRows, chosen: Ints) -> Frame:
    """Some rows as one request. InputError where a (task, rollout) appears twice."""
    chosen = order(rows, chosen)
    task, rollout = rows.task[chosen], rows.rollout[chosen]
    new = np.ones(len(task), dtype=bool)
    new[1:] = task[1:] != task[:-1]
    for at in np.flatnonzero(~new[1:] & (rollout[1:] == rollout[:-1]))[:1].tolist():
        index = task[at] if rows.names is None else rows.names[task[at]]
        raise InputError(f"{TASK} {index}, {ROLLOUT} {rollout[at]} appears twice; expected each rollout once")
    tasks: list[int | str] = task[new].tolist()
    if rows.names is not None:
        tasks = [rows.names[code] for code in task[new].tolist()]
    by = Groups.of(np.cumsum(new) - 1, len(tasks))
    names = _by_appearance(rows, chosen)
    fields = {name: overlaid(rows, name).take(chosen) for name in names}
    return Frame(rows, chosen, tasks, by, fields)


def _by_appearance(rows: GymRows, chosen: Ints) -> list[str]:
    """The numeric keys in the order a walk over the rollouts meets them; a row's own before its usage's."""
    first: dict[str, tuple[int, int]] = {}
    for name in {**rows.top, **rows.usage}:
        if name in (TASK, ROLLOUT):
            continue
        given = overlaid(rows, name).given[chosen]
        if given.any():
            at = int(given.argmax())
            keys = rows.keys.get(int(chosen[at])) or Keys(list(rows.top), list(rows.usage))  # as they were met
            first[name] = at, [*keys.top, *keys.usage].index(name)
    return sorted(first, key=first.__getitem__)


def per_task(of: Frame) -> dict[str, Described]:
    """The statistics of every key, for each task."""
    return _each(of, of.by)


def pooled(of: Frame) -> dict[str, Described]:
    """The statistics of every key over all rollouts together, each weighing the same."""
    return _each(of, Groups.of(np.zeros(len(of.chosen), dtype=np.int64), 1))


def over(of: Frame, rows: Ints) -> dict[str, Described]:
    """The statistics of every key over some of the rollouts."""
    by = Groups.of(np.zeros(len(rows), dtype=np.int64), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: describe(cells.take(rows), by) for name, cells in of.fields.items()}


def _each(of: Frame, by: Groups) -> dict[str, Described]:
    def one(name: str) -> Described:
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has settings of its own
            return describe(of.fields[name], by)

    if len(of.chosen) < WORTH_THREADS:
        return {name: one(name) for name in of.fields}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(of.fields, pool.map(one, of.fields), strict=True))


def describe(cells: Cells, by: Groups) -> Described:
    """The five statistics of each set of rollouts, over the numbers it has; NaN is none.

    The standard deviation has n - 1 and needs two numbers, but is 0 in a set of exactly one rollout. A
    sum beyond every double is infinite, and so are the mean and the deviation made of it. Sums are added as
    NeMo Gym's pandas adds them, so that its file is met to the last digit; see `_sums`.
    """
    column = Column(cells.values, cells.given & ~np.isnan(cells.values))
    count = by.count(column.given)
    there = count > 0
    n = np.maximum(count, 1)
    mean = _sums(column.values, column.given, by) / n
    low, high, middle = (np.zeros(by.size) for _ in range(3))
    for tasks, values in by.blocks(column):
        ranked = np.sort(values, axis=1)
        size = ranked.shape[1]
        low[tasks], high[tasks] = ranked[:, 0], ranked[:, -1]
        half = ranked[:, (size - 1) // 2]
        middle[tasks] = half if size % 2 else (half + ranked[:, size // 2]) / 2
    centred = column.values - np.repeat(mean, np.diff(by.starts))
    spread = np.sqrt(_sums(centred * centred, column.given, by) / np.maximum(count - 1, 1))
    alone = there & (np.diff(by.starts) == 1)
    statistics = {"mean": mean, "max": high, "min": low, "median": middle, "std": np.where(alone, 0.0, spread)}
    given = {name: there & ~np.isnan(values) for name, values in statistics.items()}
    given["std"] &= alone | (count > 1)
    exact = {"max": _exact(max, cells, by, high), "min": _exact(min, cells, by, low)}
    return Described({name: values + 0.0 for name, values in statistics.items()}, given, exact)


def _exact(extreme: Callable[[int, int], int], cells: Cells, by: Groups, nearest: Floats) -> dict[int, int]:
    """The extreme of each set in which it is an integer that no double may hold; ``nearest`` are the doubles."""
    exact: dict[int, int] = {}
    for row, value in cells.odd.items():
        index = int(by.code[row])
        if cells.given[row] and not isinstance(value, bool) and float(value) == nearest[index]:
            exact[index] = extreme(exact.get(index, value), value)
    return exact


def _sums(values: Floats, given: Bools, by: Groups) -> Floats:
    """The sum of each set, [N]: over its rollouts in their order, a missing one as 0, in numpy's pairwise way."""
    filled = np.where(given, values, 0.0)
    sizes = np.diff(by.starts)
    sums = np.zeros(by.size)
    for size in np.unique(sizes[sizes > 0]).tolist():
        sets = np.flatnonzero(sizes == size)
        sums[sets] = filled[by.starts[sets][:, None] + np.arange(size)].sum(axis=1)
    return sums
