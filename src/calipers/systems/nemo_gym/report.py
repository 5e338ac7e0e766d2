"""NeMo Gym's own result: groups, agents and the file ``<stem>_aggregate_metrics.json``, key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from calipers.errors import PluginError
from calipers.formats.lines import odd_key
from calipers.rollouts.column import Bools, Floats
from calipers.systems.nemo_gym.metrics import Described, Frame, per_task
from calipers.systems.nemo_gym.row_builder import Cells
from calipers.systems.nemo_gym.words import REWARD, ROLLOUT, STATISTICS, TASK

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
        f"{statistic}/{name}": _number(statistics.values[statistic][0].item(), whole and statistic in ("max", "min"))
        for statistic in STATISTICS
        for name, statistics in described.items()
        if statistics.given[statistic][0]
    }


def _number(value: float, whole: bool) -> float:
    return int(value) if whole else value


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
                values = statistics.values[statistic][tasks]
                as_int = whole and statistic in ("max", "min")
                columns[f"{statistic}/{name}"] = _listed(values, statistics.given[statistic][tasks], as_int)
        columns["sample"] = list(expected.samples[tasks]) if expected else [SAMPLE] * len(counts)
        columns["num_rollouts"] = counts
        columns["expected_num_rollouts"] = planned
        columns["missing_num_rollouts"] = [n - count for n, count in zip(planned, counts, strict=True)]
        columns["reward_profile_completion_pct"] = [100.0 * c / n for n, c in zip(planned, counts, strict=True)]
        columns["rollout_infos"] = [made[a:b] for a, b in pairwise(bounds)]
        yield _made("Group", columns)


def _listed(values: Floats, given: Bools, whole: bool) -> list[Any]:
    numbers: list[Any] = _integers(values) if whole else values.tolist()
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
    """The groups with what a hook says of single tasks laid over them; an entry of no task is dropped."""
    if not entries:
        yield from chunks
        return
    index: dict[Any, dict[str, Any]] = {}
    for entry in entries:
        index.setdefault(entry.get(TASK), {}).update({key: value for key, value in entry.items() if key != TASK})
    for chunk in chunks:
        plain: list[dict[str, Any]] = msgspec.to_builtins(chunk)
        yield [{**group, **index.get(group[TASK], {})} for group in plain]


@dataclass(frozen=True, slots=True)
class GymEntry:
    """One agent in the metrics file."""

    agent: str
    agent_metrics: Mapping[str, Any]
    key_metrics: Mapping[str, Any]
    groups: Iterable[list[Any]]  # some at a time


def headline(entry: GymEntry) -> str:
    """An agent and its key metrics on one line.

    >>> headline(GymEntry("math", {}, {"pass@k": 2 / 3, "n": 3, "note": "x"}, []))
    'math: pass@k 0.6667, n 3, note x'
    """
    plain: Mapping[str, Any] = {
        name: value for name, value in entry.key_metrics.items() if isinstance(value, (bool, int, float, str))
    }
    shown = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in plain.items())
    return f"{entry.agent}: {', '.join(shown) or 'no key metrics'}"


def file_chunks(entries: Iterable[GymEntry]) -> Iterator[bytes | memoryview]:
    """The bytes of the metrics file, indented by two."""
    lead = b"["
    for entry in entries:
        head = {"agent_ref": {"name": entry.agent}, "agent_metrics": entry.agent_metrics}
        head["key_metrics"] = entry.key_metrics
        opened = msgspec.json.format(encoded(head), indent=2).removesuffix(b"\n}")
        yield lead + b"\n  " + opened.replace(b"\n", b"\n  ") + b',\n    "group_level_metrics": ['
        any_yet = False
        for chunk in entry.groups:
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
