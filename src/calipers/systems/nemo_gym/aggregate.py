"""NeMo Gym's aggregation: from rows to its three blocks of metrics, and to the metrics file.

Also its reward profile of inputs and rollouts; and, at the end, its five statistics of every numeric key, per task and
over all rollouts.
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
from calipers.systems.nemo_gym import AGENT, FAILURES, INPUTS, REWARD, ROLLOUT, STATISTICS, TASK
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
"""The key of a hook's metrics of single tasks. They are merged into the groups, and are not an agent metric."""

BULKY: Final = frozenset(
    {"response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "ng_trajectory"}
)


def means(agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The default key metrics, if no hook picks them: every metric whose name starts with ``mean/``."""
    return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of a resources server: one adds metrics of all its rows, the other picks the key metrics."""

    compute_metrics: ComputeMetrics | None = None
    get_key_metrics: KeyMetrics | None = None


NO_HOOKS: Final = Hooks()


@dataclass(frozen=True, slots=True)
class Blocks:
    """The answer of ``/aggregate_metrics``."""

    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    groups: Iterable[list[Any]]  # the group-level metrics in chunks; each group can be encoded as JSON

    def to_dict(self) -> dict[str, Any]:
        """The answer as an object. Numbers are not changed: NaN stays NaN."""
        listed = [msgspec.to_builtins(group) for chunk in self.groups for group in chunk]
        return {"group_level_metrics": listed, "agent_metrics": self.agent_metrics, "key_metrics": self.key_metrics}


def aggregate(rows: Sequence[Row], hooks: Hooks = NO_HOOKS) -> Blocks:
    """NeMo Gym's metrics of the rows of one request, as its ``/aggregate_metrics`` returns them.

    Without rows, the three blocks are empty and no hook is called. InputError for rows that cannot be aggregated,
    PluginError for a hook that fails.

    >>> rows = [{"_ng_task_index": 0, "_ng_rollout_index": n, "reward": n} for n in (0, 1)]
    >>> aggregate(rows).key_metrics
    {'mean/reward': 0.5}
    """
    if not rows:
        return Blocks({}, {}, [])
    table = from_records(rows)
    return _blocks(frame_of(table, np.arange(len(table))), hooks, rows)


def _blocks(frame: Frame, hooks: Hooks, rows: Sequence[Row] = ()) -> Blocks:
    agent_metrics: dict[str, Any] = dict(flat(pooled(frame), frame.all_integers))
    chunks: Iterable[list[Any]] = groups(frame)
    if hooks.compute_metrics:
        chunks = list(chunks)  # computed before the hook is called, because a hook may change its rows
        added = _checked_names(_call(hooks.compute_metrics, by_task(frame, rows)))
        agent_metrics.update({name: value for name, value in added.items() if name != PER_TASK})
        chunks = merged(chunks, _checked_entries(added.get(PER_TASK) or []))
    key_metrics = _call(hooks.get_key_metrics or means, agent_metrics)
    encoded([agent_metrics, key_metrics])  # raises PluginError now if JSON cannot encode them
    return Blocks(agent_metrics, key_metrics, chunks)


def by_task(frame: Frame, rows: Sequence[Row]) -> list[list[dict[str, Any]]]:
    """The argument of a hook: a list of rows per task, tasks ascending, rows in the order of the request."""
    lists: list[list[dict[str, Any]]] = [[] for _ in frame.tasks]
    code = np.empty(len(rows), dtype=np.int64)
    code[frame.chosen] = frame.by.code
    for row, task in zip(rows, code.tolist(), strict=True):
        lists[task].append(dict(row))
    return lists


def _call(hook: Callable[[Any], Any], argument: Any) -> dict[str, Any]:
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


def _checked_names(metrics: dict[Any, Any]) -> dict[str, Any]:
    for name in metrics:
        if not isinstance(name, str):
            raise PluginError(f"a hook named a metric {name!r:.60}; expected text")
    return metrics


def _checked_entries(entries: Any) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise PluginError(f"{PER_TASK} is {type(entries).__name__}; expected a list of objects, each with {TASK}")
    for entry in entries:
        if not isinstance(task := entry.get(TASK), (int, float, str, NoneType)):
            raise PluginError(f"{PER_TASK}: {TASK} is {task!r:.60}; expected the index of a task, a number or text")
    return entries


def stripped(row: Row) -> dict[str, Any]:
    """A row as it is sent to be aggregated: without large keys, and with only the usage of the response."""
    kept = {key: value for key, value in row.items() if key not in BULKY}
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return {**kept, "response": {"usage": usage}} if usage else kept


def by_agent(rows: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """The stripped rows of each agent, sorted by task and rollout. Rows without an agent are left out."""
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


def gym_table(parts: Sequence[Part]) -> GymRows:
    """The rows of all files that were read. InputError if a file is not NeMo Gym's, or if no rollout names an agent."""
    tables = [part.gym for part in parts if isinstance(part, GymPart) and part.gym is not None]
    gym_paths = {part.places.path for part in parts if isinstance(part, GymPart)}
    for path in (part.places.path for part in parts):
        if path not in gym_paths and not path.endswith((FAILURES, INPUTS)):
            expected = "expected its rollouts.jsonl for --export nemo_gym"
            raise InputError.at(path, "contains no rollouts of NeMo Gym", expected)
    if not tables:
        raise InputError.at(parts[0].places.path, "no rollout succeeded", "expected one for --export nemo_gym")
    table = joined(tables)
    if not ((table.agent >= 0) & ~table.aside).any():
        raise InputError.at(parts[0].places.path, "no rollout names its agent", f"expected {AGENT}: {{name: ...}}")
    return table


def entries_of(table: GymRows) -> Iterator[tuple[str, Blocks]]:
    """The entries of the metrics file, sorted by agent. Failed attempts and rows without an agent are left out."""
    for name, code in sorted((name, code) for code, name in enumerate(table.agents)):
        chosen = np.flatnonzero((table.agent == code) & ~table.aside)
        if len(chosen):
            yield name, _blocks(frame_of(table, chosen), NO_HOOKS)


def aggregate_agents(agents: Mapping[str, Sequence[Row]], hooks: Hooks = NO_HOOKS) -> list[tuple[str, Blocks]]:
    """The entries of the metrics file, sorted by agent; the hooks are those of every agent."""
    return [(name, aggregate(agents[name], hooks)) for name in sorted(agents)]


_Key = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """NeMo Gym's reward profile: statistics of each task and of each agent."""

    tasks: list[dict[str, Any]]  # the lines of ``<stem>_reward_profiling.jsonl``
    agents: list[dict[str, Any]]  # ``<stem>_agent_metrics.json``
    completed: int
    expected: int


def reward_profile(inputs: Sequence[Row], rollouts: Sequence[Row], *, allow_partial: bool = False) -> Profile:
    """Statistics per agent and per task; a task's also have its input and the number of its rollouts.

    InputError for a rollout or an input that appears twice, a rollout without an input, and, unless
    ``allow_partial``, an input without a rollout. Tasks without rollouts are left out.
    """
    planned, completed = checked_keys(inputs, rollouts, allow_partial=allow_partial)
    if not completed:
        return Profile([], [], 0, len(planned))
    table = from_records([{**row, "response": row.get("response") or {}} for row in completed.values()])
    frame = frame_of(table, np.arange(len(table)))
    keys = list(completed)
    first = [keys[row] for row in frame.chosen[frame.by.starts[:-1]].tolist()]
    counts: dict[Any, int] = {}
    for task, _ in planned:
        counts[task] = counts.get(task, 0) + 1
    expected = Expected(
        [counts[task] for task, _ in first],
        [{name: value for name, value in planned[key].items() if name not in (TASK, ROLLOUT)} for key in first],
    )
    tasks = [msgspec.to_builtins(group) for chunk in groups(frame, expected) for group in chunk]
    row_agents = [agent_name(planned[keys[row]]) for row in frame.chosen.tolist()]
    agents = []
    for name in sorted({name for name in row_agents if name}):
        rows = np.flatnonzero([row_agent == name for row_agent in row_agents])
        agents.append({**flat(over(frame, rows), frame.all_integers), AGENT: {"name": name}})
    return Profile(tasks, agents, len(completed), len(planned))


def checked_keys(
    inputs: Sequence[Row], rollouts: Sequence[Row], *, allow_partial: bool
) -> tuple[dict[_Key, Row], dict[_Key, Row]]:
    """The inputs and the rollouts, each by task and rollout index. InputError as in `reward_profile`."""
    planned, completed = indexed(inputs, "input"), indexed(rollouts, "rollout")
    for key in completed:
        if key not in planned:
            raise InputError(f"{_rollout_name(key)} has no input; expected an input for every rollout")
    missing = [key for key in planned if key not in completed]
    if missing and not allow_partial:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{_rollout_name(missing[0])}{more} has no rollout; expected one for every input, or a partial profile"
        )
    return planned, completed


def indexed(rows: Sequence[Row], noun: str) -> dict[_Key, Row]:
    """Rows by task and rollout index. InputError for a row that appears twice, or lacks an index."""
    by_key: dict[_Key, Row] = {}
    for number, row in enumerate(rows, 1):
        for index in (TASK, ROLLOUT):
            if fault := index_fault(index, row.get(index, UNSET)):
                raise InputError.at(f"{noun} {number}", *fault)
        key = (row[TASK], row[ROLLOUT])
        if key in by_key:
            raise InputError.at(f"{noun} {number}", f"{_rollout_name(key)} appears twice", "expected it once")
        by_key[key] = row
    return by_key


def _rollout_name(key: _Key) -> str:
    return f"{TASK} {key[0]}, {ROLLOUT} {key[1]}"


SAMPLE: Final = {"agent_ref": {"name": "agent"}}
"""The sample that NeMo Gym writes for every group if it does not know the inputs."""
AT_ONCE = 200  # groups that are objects at a time; all others stay in columns


@dataclass(frozen=True, slots=True)
class Expected:
    """The plan for each task of a frame, if the inputs are known."""

    counts: Sequence[int]  # [T] planned rollouts
    samples: Sequence[Mapping[str, Any]]  # [T] the input of the task's first rollout


def flat(described: Mapping[str, Described], integers: bool) -> dict[str, float]:
    """The statistics of one set as metrics, ordered by statistic: ``mean/*`` of all keys, then ``max/*`` and so on."""
    return {
        f"{statistic}/{name}": _listed(statistics, statistic, slice(0, 1), integers)[0]
        for statistic in STATISTICS
        for name, statistics in described.items()
        if statistics.given[statistic][0]
    }


def groups(frame: Frame, expected: Expected | None = None) -> Iterator[list[Any]]:
    """The groups of a frame in chunks. They are structs, or dicts if there is a key that no struct can have."""
    stats = per_task(frame)
    info_columns = _info_columns(frame)
    sizes = np.diff(frame.by.starts)
    integers = frame.all_integers
    for first in range(0, len(frame.tasks), AT_ONCE):
        tasks = slice(first, min(first + AT_ONCE, len(frame.tasks)))
        start, end = int(frame.by.starts[tasks.start]), int(frame.by.starts[tasks.stop])
        rollout_infos = _objects("Info", _infos(frame, info_columns, start, end))
        bounds = (frame.by.starts[tasks.start : tasks.stop + 1] - start).tolist()
        counts = sizes[tasks].tolist()
        planned = list(expected.counts[tasks]) if expected else counts
        columns: dict[str, list[Any]] = {TASK: list(frame.tasks[tasks])}
        for statistic in STATISTICS:
            for name, statistics in stats.items():
                columns[f"{statistic}/{name}"] = _listed(statistics, statistic, tasks, integers)
        columns["sample"] = list(expected.samples[tasks]) if expected else [SAMPLE] * len(counts)
        columns["num_rollouts"] = counts
        columns["expected_num_rollouts"] = planned
        columns["missing_num_rollouts"] = [n - count for n, count in zip(planned, counts, strict=True)]
        columns["reward_profile_completion_pct"] = [100.0 * c / n for n, c in zip(planned, counts, strict=True)]
        columns["rollout_infos"] = [rollout_infos[a:b] for a, b in pairwise(bounds)]
        yield _objects("Group", columns)


def _listed(described: Described, statistic: str, sets: slice, integers: bool) -> list[Any]:
    """One statistic of some sets; UNSET for a set without it. With ``integers``, extremes are integers."""
    values, given = described.values[statistic][sets], described.given[statistic][sets]
    numbers: list[Any] = values.tolist()
    if integers and statistic in described.exact:
        numbers = _integers(values)
        for index, value in described.exact[statistic].items():
            if sets.start <= index < sets.stop:
                numbers[index - sets.start] = value
    if given.all():
        return numbers
    return [number if is_given else UNSET for number, is_given in zip(numbers, given.tolist(), strict=True)]


def _integers(values: Floats) -> list[Any]:
    listed: list[Any] = values.tolist()
    safe = np.abs(values).max(initial=0.0) < 2.0**63
    return values.astype(np.int64).tolist() if safe else [int(value) for value in listed]


def _objects(kind: str, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """One object per row, without keys whose value is UNSET. Structs take a third of the time of dicts."""
    if odd_key(columns) is not None:
        rows = zip(*columns.values(), strict=True)
        return [{key: value for key, value in zip(columns, row, strict=True) if value is not UNSET} for row in rows]
    return list(map(_struct(kind, tuple(columns)), *columns.values()))


@lru_cache(maxsize=4)
def _struct(kind: str, keys: tuple[str, ...]) -> type[msgspec.Struct]:
    spec: list[Any] = [(f"f{n}", Any, UNSET) for n in range(len(keys))]
    return msgspec.defstruct(kind, spec, rename={f"f{n}": key for n, key in enumerate(keys)}, gc=False)


def _info_columns(frame: Frame) -> list[tuple[str, Cells, bool]]:
    """The keys of the entries in ``rollout_infos``: (key, cells, whether values that are not numbers are shown).

    A key that is both in the row and in its usage is listed twice, and the later one wins: the row's, except for
    ``reward``.
    """
    rows, chosen = frame.rows, frame.chosen

    def cells_of(table: Mapping[str, Cells], other: Mapping[str, Cells]) -> dict[str, Cells]:
        shared = {name: frame.fields.get(name) for name in table if name not in other}  # already taken for statistics
        names = [name for name in table if name not in (TASK, ROLLOUT)]
        return {name: shared.get(name) or table[name].take(chosen) for name in names}

    top, usage = cells_of(rows.top, rows.usage), cells_of(rows.usage, rows.top)
    columns = [(REWARD, reward, True)] if (reward := top.pop(REWARD, None)) and reward.present.any() else []
    position = {name: number for number, name in enumerate(frame.fields)}
    for table in (usage, top):
        names = sorted(table, key=lambda name: position.get(name, len(position)))
        columns += [(name, table[name], False) for name in names if table[name].given.any()]
    return columns


def _infos(frame: Frame, columns: Sequence[tuple[str, Cells, bool]], start: int, end: int) -> dict[str, list[Any]]:
    """The entries in ``rollout_infos`` of a range of rollouts, as columns; UNSET for a rollout without a key."""
    tasks = [frame.tasks[code] for code in frame.by.code[start:end].tolist()]
    rollouts = frame.rows.rollout[frame.chosen[start:end]].tolist()
    ids = [f"{task}:{rollout}" for task, rollout in zip(tasks, rollouts, strict=True)]
    infos: dict[str, list[Any]] = {"rollout_id": ids, TASK: tasks, ROLLOUT: rollouts}
    for name, cells, raw in columns:
        values = _shown(cells, raw, start, end)
        if name in infos:
            values = [old if new is UNSET else new for new, old in zip(values, infos[name], strict=True)]
        infos[name] = values
    return infos


def _shown(cells: Cells, raw: bool, start: int, end: int) -> list[Any]:
    """The values of a key for JSON: integers as integers. With ``raw``, values that are not numbers are included."""
    values: list[Any]
    numbers, integer = cells.values[start:end], cells.integer[start:end]
    given = (cells.present if raw else cells.given)[start:end]
    if integer.all():
        values = _integers(numbers)
    elif not integer.any():
        values = numbers.tolist()
    else:
        pairs = zip(numbers.tolist(), integer.tolist(), strict=True)
        values = [int(number) if is_integer else number for number, is_integer in pairs]
    if not given.all():
        values = [value if is_given else UNSET for value, is_given in zip(values, given.tolist(), strict=True)]
    if cells.odd:
        values = [
            cells.odd[row] if row in cells.odd and (raw or cells.given[row]) else value
            for row, value in enumerate(values, start)
        ]
    return values


def merged(chunks: Iterable[list[Any]], entries: Sequence[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """The groups, updated with a hook's metrics of single tasks. Entries of unknown tasks are dropped.

    If a task has several entries, the last one counts.
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
    """The bytes of the metrics file, in chunks, indented by two."""
    lead = b"["
    for agent, blocks in entries:
        head = {"agent_ref": {"name": agent}, "agent_metrics": blocks.agent_metrics, "key_metrics": blocks.key_metrics}
        opened = msgspec.json.format(encoded(head), indent=2).removesuffix(b"\n}")
        yield lead + b"\n  " + opened.replace(b"\n", b"\n  ") + b',\n    "group_level_metrics": ['
        any_yet = False
        for chunk in blocks.groups:
            if any_yet:
                yield b","
            # formatted JSON has newlines only between tokens, never in a string; the list's own brackets are cut off
            indented = msgspec.json.format(encoded(chunk), indent=2).replace(b"\n", b"\n    ")
            yield memoryview(indented)[1 : -len(b"\n    ]")]
            any_yet = True
        yield b"\n    ]\n  }" if any_yet else b"]\n  }"
        lead = b","
    yield b"\n]"


def encoded(value: Any) -> bytes:
    """A value as JSON; NaN and infinite numbers become null. PluginError for a value that JSON cannot encode."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise PluginError(f"a hook returned a value that JSON cannot encode: {error}") from error


def _subclass(value: Any) -> Any:
    if isinstance(value, float):  # numpy's double is a subclass of float, which msgspec does not encode
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = msgspec.json.Encoder(enc_hook=_subclass)

# -- the statistics

WORTH_THREADS = 200_000  # rollouts from which threads pay off, because numpy releases the interpreter's lock
THREADS = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """The rollouts of one request, sorted by task and rollout."""

    rows: GymRows
    chosen: Ints  # [R] the rows of the request, sorted
    tasks: Sequence[int | str]  # [T] ascending
    by: Groups  # [R] -> [T]
    fields: Mapping[str, Cells]  # [R] the numeric keys, by first appearance, as the statistics use them

    @property
    def all_integers(self) -> bool:
        """Whether every key is an integer in every rollout. If so, extremes are shown as integers."""
        return all(bool((cells.given & cells.integer).all()) for cells in self.fields.values())


@dataclass(frozen=True, slots=True)
class Described:
    """The five statistics of one key for N sets of rollouts, each with a mask of the sets that have it."""

    values: Mapping[str, Floats]  # statistic -> [N]
    given: Mapping[str, Bools]  # statistic -> [N]
    exact: Mapping[str, Mapping[int, int]]  # max, min -> set -> the exact integer, if it may not be a double


def frame_of(rows: GymRows, chosen: Ints) -> Frame:
    """The frame of the chosen rows. InputError if a (task, rollout) appears twice."""
    chosen = order(rows, chosen)
    task, rollout = rows.task[chosen], rows.rollout[chosen]
    new = np.ones(len(task), dtype=bool)
    new[1:] = task[1:] != task[:-1]
    for row in np.flatnonzero(~new[1:] & (rollout[1:] == rollout[:-1]))[:1].tolist():
        index = task[row] if rows.names is None else rows.names[task[row]]
        raise InputError(f"{TASK} {index}, {ROLLOUT} {rollout[row]} appears twice; expected each rollout once")
    tasks: list[int | str] = task[new].tolist()
    if rows.names is not None:
        tasks = [rows.names[code] for code in task[new].tolist()]
    by = Groups.of(np.cumsum(new) - 1, len(tasks))
    names = _by_appearance(rows, chosen)
    fields = {name: overlaid(rows, name).take(chosen) for name in names}
    return Frame(rows, chosen, tasks, by, fields)


def _by_appearance(rows: GymRows, chosen: Ints) -> list[str]:
    """The numeric keys, sorted by the rollout in which they first have a number; a row's own before its usage's."""
    first: dict[str, tuple[int, int]] = {}
    for name in {**rows.top, **rows.usage}:
        if name in (TASK, ROLLOUT):
            continue
        given = overlaid(rows, name).given[chosen]
        if given.any():
            row = int(given.argmax())
            # without the row's own keys, the order in which the file's keys were first met
            keys = rows.keys.get(int(chosen[row])) or Keys(list(rows.top), list(rows.usage))
            first[name] = row, [*keys.top, *keys.usage].index(name)
    return sorted(first, key=first.__getitem__)


def per_task(frame: Frame) -> dict[str, Described]:
    """The statistics of every key for each task."""
    return _each(frame, frame.by)


def pooled(frame: Frame) -> dict[str, Described]:
    """The statistics of every key over all rollouts, which have equal weights."""
    return _each(frame, Groups.of(np.zeros(len(frame.chosen), dtype=np.int64), 1))


def over(frame: Frame, rows: Ints) -> dict[str, Described]:
    """The statistics of every key over some of the rollouts."""
    by = Groups.of(np.zeros(len(rows), dtype=np.int64), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: describe(cells.take(rows), by) for name, cells in frame.fields.items()}


def _each(frame: Frame, by: Groups) -> dict[str, Described]:
    def described(name: str) -> Described:
        with np.errstate(over="ignore", invalid="ignore"):  # set here because each thread has its own error state
            return describe(frame.fields[name], by)

    if len(frame.chosen) < WORTH_THREADS:
        return {name: described(name) for name in frame.fields}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(frame.fields, pool.map(described, frame.fields), strict=True))


def describe(cells: Cells, by: Groups) -> Described:
    """The five statistics of the numbers of each set of rollouts. NaN does not count as a number.

    The standard deviation is with n - 1 and needs two numbers, but it is 0 for a set of exactly one rollout. A sum that
    overflows is infinite, and so are its mean and standard deviation. Sums are computed as pandas does in NeMo Gym, so
    that its file is reproduced to the last digit; see `_sums`.
    """
    column = Column(cells.values, cells.given & ~np.isnan(cells.values))
    count = by.count(column.given)
    has_number = count > 0
    n = np.maximum(count, 1)
    mean = _sums(column.values, column.given, by) / n
    low, high, median = (np.zeros(by.size) for _ in range(3))
    for sets, values in by.blocks(column):
        ranked = np.sort(values, axis=1)
        size = ranked.shape[1]
        low[sets], high[sets] = ranked[:, 0], ranked[:, -1]
        lower_median = ranked[:, (size - 1) // 2]
        median[sets] = lower_median if size % 2 else (lower_median + ranked[:, size // 2]) / 2
    centred = column.values - np.repeat(mean, np.diff(by.starts))
    deviation = np.sqrt(_sums(centred * centred, column.given, by) / np.maximum(count - 1, 1))
    single = has_number & (np.diff(by.starts) == 1)
    statistics = {"mean": mean, "max": high, "min": low, "median": median, "std": np.where(single, 0.0, deviation)}
    given = {name: has_number & ~np.isnan(values) for name, values in statistics.items()}
    given["std"] &= single | (count > 1)
    exact = {"max": _exact(max, cells, by, high), "min": _exact(min, cells, by, low)}
    return Described({name: values + 0.0 for name, values in statistics.items()}, given, exact)


def _exact(extreme: Callable[[int, int], int], cells: Cells, by: Groups, nearest: Floats) -> dict[int, int]:
    """The exact extreme of each set whose extreme may be an integer that is not a double; ``nearest`` are doubles."""
    exact: dict[int, int] = {}
    for row, value in cells.odd.items():
        index = int(by.code[row])
        if cells.given[row] and not isinstance(value, bool) and float(value) == nearest[index]:
            exact[index] = extreme(exact.get(index, value), value)
    return exact


def _sums(values: Floats, given: Bools, by: Groups) -> Floats:
    """The sum of each set, [N]: numpy's pairwise sum over its rollouts in their order, with 0 for a missing value."""
    filled = np.where(given, values, 0.0)
    sizes = np.diff(by.starts)
    sums = np.zeros(by.size)
    for size in np.unique(sizes[sizes > 0]).tolist():
        sets = np.flatnonzero(sizes == size)
        sums[sets] = filled[by.starts[sets][:, None] + np.arange(size)].sum(axis=1)
    return sums
