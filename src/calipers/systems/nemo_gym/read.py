"""The reader of NeMo Gym's rollouts: their lines, the files beside them, and their texts.

Several processes may each read blocks of a large file. Of the files beside it, ``_failures.jsonl`` has the failed
attempts, and ``_materialized_inputs.jsonl`` the planned rollouts.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from calipers.errors import InputError
from calipers.formats import BAD, Beginning, Columns, Extras, Format, Progress, Text
from calipers.formats.jsonl import marked_rows, placed
from calipers.formats.lines import NOTHING, Block, Learner, LineError, filled, one_a_line, read_lines
from calipers.formats.own_numbers import document_at, inside, labels_of, numbers_in, pooled_mean
from calipers.formats.repeated_keys import Ends, letters, once_by_raws
from calipers.formats.rows import Buffer, LabelBuffer, PartBuilder, count_given
from calipers.formats.source import BLOCK, BOM, STDIN, Source, blocks_of, line_blocks
from calipers.request import Dialect
from calipers.rollouts.checks import Check, compared
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import BadRow, Labels, Part, Places, join_codes, paired
from calipers.systems.nemo_gym import (
    AGENT,
    AGENT_METRICS,
    DEFAULT,
    FAILURE,
    FAILURES,
    INPUTS,
    KILLED,
    METRICS,
    PARAMS,
    REWARD,
    ROLLOUT,
    TASK,
    WORDS,
    beside,
    outcome_of,
)
from calipers.systems.nemo_gym.row_builder import (
    Cells,
    GymPart,
    GymRows,
    Keys,
    RowBuilder,
    keys_of,
    overlaid,
    take_records,
)
from calipers.systems.nemo_gym.wire import (
    CompanionRow,
    CreateParams,
    GymSchema,
    TextRow,
    as_index,
    check_once,
    decoded,
    index_fault,
    usages,
)
from calipers.typed import complete

_DICT = msgspec.json.Decoder(dict[str, Any])


def records(source: Source) -> Iterator[dict[str, Any]]:
    """The decoded rows of a source, without failed attempts."""
    source.head = source.head.removeprefix(BOM)
    lines = 0
    try:
        for block in line_blocks(source.readinto):
            for number, line in filled(block, lines):
                row = _quick_row(number, line)
                killed = row.get(KILLED)
                if row.get(FAILURE) is None and not (isinstance(killed, (int, float)) and killed):
                    yield row
            lines += bytes(block).count(b"\n")
    except LineError as error:
        raise error.at(source.path) from None


def _quick_row(number: int, line: bytes) -> dict[str, Any]:
    try:
        return _DICT.decode(line)
    except BAD:
        return decoded(number, line)


_NEWLINE = ord(b"\n")


class GymLines:
    """A reader that takes blocks of whole lines and returns one `GymPart`.

    ``names`` are the file's keys of the reward and the answer; ``labels`` are the keys whose values are kept. ``start``
    is the byte of the file at which the first block begins, or None for a source that cannot be read again.
    """

    def __init__(self, path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> None:
        self.lines = 0
        self._path, self._names, self._labels = path, names, labels
        self._places = Places(path)
        self._raws = _raws(names, labels)
        self._schema = GymSchema(set(self._raws.values()))
        self._learner = Learner(self._schema)
        self._builder, self._part_builder, self._ends = RowBuilder(routed=True), PartBuilder(), Ends()
        self._offset = start
        self._blocks: list[tuple[int, int]] = []  # (first row of a block, first byte of the block)

    def read(self, block: Block) -> None:
        """Add one block of whole lines; LineError for the first line that is not a rollout."""
        rows = self._builder.cells.rows
        if self._offset is not None:
            self._blocks.append((rows, self._offset))
            self._offset += len(block)
        octets = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(octets == _NEWLINE)
        columns = self._learner.columns(block, octets, self.lines)
        if columns is None or (columns and not one_a_line(octets, ends, len(columns[0]))):
            self._take_slowly(block)
        elif columns:
            self._places.add(rows, self.lines + 1)
            given = Counter[bytes]()
            for (role, key), column in zip(self._schema.fields, columns, strict=True):
                self._take(role, key, column, given)
            if not self._ends.once(octets, given):
                self._refuse_repeated_key(block)
            self._builder.end_block(len(columns[0]))
            self._part_builder.rows += len(columns[0])
        self.lines += len(ends)

    def finish(self) -> GymPart:
        """All rows that were read, as one part."""
        try:
            gym = self._builder.finish(self._key_orders)
            columns = self._part_builder.finish(self._places, self._labels)
            for row in np.flatnonzero(gym.rollout < 0)[:1].tolist():
                raise BadRow(row, f"{ROLLOUT} is {gym.rollout[row]}", "expected an integer >= 0")
        except BadRow as error:
            row, problem, expected = error.args
            raise LineError(self._places.line(row), problem, expected) from None
        tasks, task = _tasks(gym)
        rewards = gym.top.get(self._names.get(REWARD, REWARD))
        reward = _numbers(rewards, gym.aside) if rewards else None
        return GymPart(
            places=self._places,
            tasks=tasks,
            task=task,
            sample=gym.rollout,
            attempt=np.ones(len(gym), dtype=np.int64),
            outcome=self._outcomes(gym),
            rewards={REWARD: reward} if reward is not None and reward.given.any() else {},
            columns=_columns(gym),
            labels={**columns.labels, "agent": Labels(gym.agent, gym.agents)},
            named=frozenset(self._names.values()) & frozenset(self._schema.kinds),
            gym=gym,
        )

    def _refuse_repeated_key(self, block: Block) -> None:
        """Raise LineError for the first line with a key twice, if there is one: the counts only made it likely."""
        for number, line in filled(block, self.lines):
            if not once_by_raws(line, "response", "usage"):
                check_once(number, line)

    def _take(self, role: str, key: str, column: Sequence[Any], given: Counter[bytes]) -> None:
        """Add the block's values of a key, and count in ``given`` how often it occurs, by the key's last letters."""
        if role == "raw":
            raws = [bytes(raw) or None for raw in column]
            self._take_labels(key, raws)
            role, column = "number", [UNSET if raw is None else msgspec.json.decode(raw) for raw in raws]
        given[letters(key)] += len(column) if role in ("task", "rollout") else count_given(column)
        try:
            if role in ("task", "rollout", "failure"):
                self._builder.take(role, key, column)
            elif role == "agent":
                self._builder.take(role, key, [agent.name if agent else None for agent in column])
            elif role == "number":
                self._builder.take("top", key, column)
            elif role == "response" and self._schema.usage:
                rows = usages(column, len(self._schema.usage))
                for (name, kinds), values in zip(self._schema.usage.items(), zip(*rows, strict=True), strict=True):
                    given[letters(name)] += count_given(values)
                    if "number" in kinds or name in self._schema.kinds:  # any other key has no effect
                        self._builder.take("usage", name, values)
        except ValueError as error:
            row, problem, expected = error.args
            raise LineError(self._places.line(self._builder.cells.rows + row), problem, expected) from None

    def _take_labels(self, key: str, raws: Sequence[bytes | None]) -> None:
        for path, raw_key in self._raws.items():
            if raw_key == key:
                self._part_builder.labels(path, raws)

    def _take_slowly(self, block: Block) -> None:
        """Add a block line by line with Python's parser, which accepts NaN, Infinity and any key."""
        lines = list(filled(block, self.lines))
        records = [decoded(number, line) for number, line in lines]
        learnt = False
        for (number, _), row in zip(lines, records, strict=True):
            if self._schema.learn_row(row):
                learnt = True
                if many := self._learner.too_many():
                    raise LineError(number, many, self._schema.ids_elsewhere)
        if learnt:
            self._schema.rebuild()  # the next block may be decoded again, so the decoder must match the schema
        self._places.add(self._builder.cells.rows, np.array([number for number, _ in lines]))
        for key in {*self._raws.values()}:
            self._take_labels(key, [msgspec.json.encode(row[key]) if key in row else None for row in records])
        try:
            take_records(self._builder, records)
        except ValueError as error:
            row, problem, expected = error.args
            raise LineError(lines[row][0], problem, expected) from None
        self._part_builder.rows += len(records)

    def _key_orders(self, chosen: Sequence[int]) -> dict[int, Keys]:
        """The keys of some rows, in the rows' own order.

        They are read from the file again. If this is impossible, it is the order in which the keys were first met.
        """
        if self._offset is None:
            first_met = Keys(list(self._schema.kinds), list(self._schema.usage))
            return dict.fromkeys(chosen, first_met)
        orders = {}
        with open(self._path, "rb") as file:
            for row in chosen:
                first, offset = self._blocks[bisect_right(self._blocks, row, key=lambda block: block[0]) - 1]
                file.seek(offset)
                filled = (line for line in file if line.strip())
                line = next(line for number, line in enumerate(filled, first) if number == row)
                orders[row] = keys_of(json.loads(line))
        return orders

    def _outcomes(self, gym: GymRows) -> NDArray[np.uint8]:
        outcome = np.full(len(gym), UNSTATED, dtype=np.uint8)
        for row, word in self._builder.failures.items():
            outcome[row] = CODE[outcome_of(word)]
        if (killed := gym.top.get(KILLED)) is not None:
            outcome[killed.given & (killed.values != 0)] = CODE["cancelled"]
        return outcome


def _raws(names: Mapping[str, str], labels: Collection[str]) -> dict[str, str]:
    """Map the names of the label columns of raw JSON to the keys of a row that they come from."""
    keys = {}
    for path in labels:
        keys[f"raw:{path}"] = names.get(path, path)
        if "." in path:
            keys[f"raw:metadata.{path.partition('.')[0]}"] = path.partition(".")[0]
    return {name: key for name, key in keys.items() if key not in ("agent", "agent_ref", "response", ROLLOUT)}


def _tasks(gym: GymRows) -> tuple[list[str], Ints]:
    """The task ids as text, and a code for each row."""
    if gym.names is not None:
        return list(gym.names), gym.task
    distinct, code = np.unique(gym.task, return_inverse=True)
    return list(map(str, distinct.tolist())), code.reshape(-1)


def _columns(gym: GymRows) -> dict[str, Column]:
    """The numeric columns of rollouts that count. The reward is one of them only if usage has a key of that name."""
    names = [name for name in {**gym.top, **gym.usage} if name != REWARD or name in gym.usage]
    columns = {name: _numbers(overlaid(gym, name), gym.aside) for name in names}
    return {name: column for name, column in columns.items() if column.given.any()}


def _numbers(cells: Cells, aside: Bools) -> Column:
    """The values of a key, with gaps for failed attempts and for NaN, which NeMo Gym writes as null and leaves out."""
    given = cells.given & ~aside if aside.any() else cells.given
    is_nan = np.isnan(cells.values)
    return Column(cells.values, given & ~is_nan if is_nan.any() else given)


SYSTEM: Final = "nemo_gym"
PLANNED_FROM: Final = "materialized_inputs"
NOT_RUN: Final = CODE["not_run"]


_DECODER = msgspec.json.Decoder(complete(CompanionRow))
_EXPECTED = f"expected a JSON object with {TASK} and {ROLLOUT}"


def has_companions(path: str) -> bool:
    """Whether a file of failures or of planned rollouts lies beside a file, which may itself be empty."""
    return path != STDIN and any(os.path.isfile(beside(path, word)) for word in (FAILURES, INPUTS))


def with_companions(path: str, parts: Sequence[GymPart]) -> list[Part]:
    """The parts, the failed attempts, and a `not_run` row for each planned rollout that never ended.

    A rollout that failed and then succeeded is one rollout with several attempts.
    """
    # the rollouts of older versions of NeMo Gym contain failed attempts
    aside = np.concatenate([part.gym.aside for part in parts if part.gym is not None])
    if not has_companions(path) and not aside.any():
        return [part for part in parts if len(part)]
    planned = _companion(path, INPUTS)
    *main, failed = _with_planned_agents([*parts, _companion(path, FAILURES)], planned)
    keys = _keys([*main, failed, planned])
    main_keys, failed_keys, planned_keys = np.concatenate(keys[:-2]), keys[-2], keys[-1]
    failures, failure_counts = _attempts(np.concatenate([main_keys[aside], failed_keys]))
    attempt = 1 + _looked_up(main_keys, *failure_counts)
    attempt[aside], failed_attempt = np.split(failures, [np.count_nonzero(aside)])
    attempts = [*np.split(attempt, np.cumsum([len(part) for part in main])[:-1]), failed_attempt]
    ended = [replace(part, attempt=numbers) for part, numbers in zip([*main, failed], attempts, strict=True)]
    not_run = np.flatnonzero(~np.isin(planned_keys, np.concatenate([main_keys, failed_keys])))
    not_run = not_run[np.unique(planned_keys[not_run], return_index=True)[1]]
    lines = planned.places.lines(len(planned))[not_run]
    outstanding = planned.take(not_run, Places(planned.places.path, blocks=[(0, lines)]))
    planned_from = PLANNED_FROM if len(planned) else "rows"
    return [replace(part, planned_from=planned_from) for part in (*ended, outstanding) if len(part)]


def _with_planned_agents(parts: Sequence[Part], planned: Part) -> list[Part]:
    """The parts, in which a rollout without an agent gets the agent of its planned rollout, as in NeMo Gym's profile.

    The first versions of NeMo Gym wrote no agents into rollouts.
    """
    if not len(planned) or all((part.labels["agent"].code >= 0).all() for part in parts):
        return list(parts)
    without_agents = [replace(part, labels={"agent": Labels.absent(len(part))}) for part in (*parts, planned)]
    *keys, planned_keys = _keys(without_agents)
    distinct, first, counts = np.unique(planned_keys, return_index=True, return_counts=True)
    plan = planned.labels["agent"]
    agent = np.where(counts == 1, plan.code[first], -1)  # an ambiguous task and rollout gets no agent
    completed: list[Part] = []
    for part, key in zip(parts, keys, strict=True):
        own = part.labels["agent"]
        agents, code = join_codes([own.values, plan.values], [own.code, _looked_up(key, distinct, agent, -1)])
        from_row, from_plan = np.split(code, [len(part)])
        code = np.where(from_row < 0, from_plan, from_row)
        part = replace(part, labels={**part.labels, "agent": Labels(code, agents)})
        if isinstance(part, GymPart) and part.gym is not None:
            part = replace(part, gym=replace(part.gym, agents=agents, agent=code))
        completed.append(part)
    return completed


def _companion(path: str, ending: str) -> Part:
    """The rows of one of the files beside ``path``, as rollouts without numbers; empty if there is no such file."""
    companion = beside(path, ending)
    task, agent = LabelBuffer(), LabelBuffer()
    sample, outcome, lines, size = Buffer(np.int64), Buffer(np.uint8), Buffer(np.int64), 0
    for numbers, rows in _blocks(companion) if os.path.isfile(companion) else ():
        task.put(size, [as_index(row.task) for row in rows])
        sample.put(size, np.array([int(row.rollout) for row in rows]))
        agent.put(size, [(row.agent.name or None) if row.agent else None for row in rows])
        outcome.put(size, np.array([NOT_RUN if ending == INPUTS else CODE[outcome_of(row.failure)] for row in rows]))
        lines.put(size, numbers)
        size += len(rows)
    tasks = task.finish(size)
    return Part(
        places=Places(companion, blocks=[(0, lines.finish(size))]),
        tasks=[str(index) for index in tasks.values],
        task=tasks.code,
        sample=sample.finish(size),
        attempt=np.ones(size, dtype=np.int64),
        outcome=outcome.finish(size),
        labels={"agent": agent.finish(size)},
    )


def _blocks(path: str) -> Iterator[tuple[Ints, list[CompanionRow]]]:
    """The line numbers and the rows of a companion file, block by block. InputError for a line that is not a row."""
    before = 0
    with Source(path) as source:
        source.head = source.head.removeprefix(BOM)
        for block in line_blocks(source.readinto):
            octets = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(octets == ord(b"\n"))
            rows = _quick_rows(block)
            if rows and one_a_line(octets, ends, len(rows)):
                yield np.arange(before + 1, before + 1 + len(rows)), rows
            else:
                lines = list(filled(block, before))
                if lines:
                    numbers = np.array([number for number, _ in lines])
                    yield numbers, [_decoded(f"{path}:{number}", line) for number, line in lines]
            before += len(ends)


def _quick_rows(block: memoryview) -> list[CompanionRow]:
    """The rows of a block; an empty list if any of them is not valid."""
    try:
        rows: list[CompanionRow] = _DECODER.decode_lines(block)
    except BAD:
        return []
    return rows if all(_fault(row) is None for row in rows) else []


def _decoded(location: str, text: bytes) -> CompanionRow:
    try:
        row = _DECODER.decode(text)
    except BAD as error:
        raise InputError.at(location, f"cannot be read ({error})", _EXPECTED) from None
    if fault := _fault(row):
        raise InputError.at(location, *fault)
    return row


def _fault(row: CompanionRow) -> tuple[str, str] | None:
    """The problem with an index, such as a float that is not whole, and what was expected; else None."""
    if not 0 <= row.rollout < 2**53:
        return f"{ROLLOUT} is {row.rollout}", "expected an integer >= 0"
    if type(row.task) is not float and type(row.rollout) is not float:
        return None
    return index_fault(TASK, row.task) or index_fault(ROLLOUT, row.rollout)


def _keys(parts: Sequence[Part]) -> list[Ints]:
    """A key for each row of each part. Rows with the same agent, task and rollout have the same key."""
    agents = [part.labels["agent"] for part in parts]
    _, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
    _, agent = join_codes([labels.values for labels in agents], [labels.code for labels in agents])
    key = paired(paired(task, agent + 1), np.concatenate([part.sample for part in parts]))
    return np.split(key, np.cumsum([len(part) for part in parts])[:-1])


def _attempts(keys: Ints) -> tuple[Ints, tuple[Ints, Ints]]:
    """The number of each failed attempt within its rollout, from 1; and each rollout's key with its count of them."""
    distinct, code, counts = np.unique(keys, return_inverse=True, return_counts=True)
    rows = np.argsort(code, kind="stable")
    attempt = np.empty(len(keys), dtype=np.int64)
    attempt[rows] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    return attempt, (distinct, counts)


def _looked_up(keys: Ints, distinct: Ints, values: Ints, default: int = 0) -> Ints:
    """The value of each key, where ``values`` are those of the ``distinct`` keys; the default for any other key."""
    if not len(distinct):
        return np.full(len(keys), default)
    index = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return np.where(distinct[index] == keys, values[index], default)


INDICES = frozenset({TASK, ROLLOUT})
_MARKS = tuple(f'"{key}"'.encode() for key in INDICES)


def is_row(line: bytes) -> bool:
    """Whether a line of JSON is a rollout of NeMo Gym: whether it has an index of NeMo Gym's collector."""
    return any(mark in line for mark in _MARKS)


def without_companions(paths: Sequence[str]) -> list[str]:
    """The paths without the companions of another of them, which are read together with that file."""
    mains = [path for path in paths if path != STDIN and _may_be_gym(path)]
    companions = {os.path.realpath(beside(path, ending)) for path in mains for ending in (FAILURES, INPUTS)}
    return [path for path in paths if os.path.realpath(path) not in companions or not _may_be_gym(path)]


def _may_be_gym(path: str) -> bool:
    """Whether a file starts with a row of NeMo Gym, or is empty, as a file of failures often is."""
    if not os.path.isfile(path):
        return False  # a pipe can be read only once, so it must not be opened here
    try:
        with open(path, "rb") as file:
            head = file.read(BLOCK)
    except (OSError, ValueError):
        return False
    return is_row(head) or not head.strip()


def read(source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress) -> list[Part]:
    """Read the rollouts of a JSON Lines source of NeMo Gym, and add failed attempts and planned rollouts.

    These are in ``<stem>_failures.jsonl`` and ``<stem>_materialized_inputs.jsonl`` beside the file.
    """
    for role in names:
        if role not in (REWARD, "answer"):
            problem = f"{role} has a fixed key in NeMo Gym's rollouts"
            expected = f"expected reward=KEY or answer=KEY; with task={TASK} too, it is read as plain JSON Lines"
            raise InputError.at("--columns", problem, expected)
    parts: list[GymPart] = read_lines("calipers.systems.nemo_gym.read:GymLines", source, names, labels, progress)
    checks = [] if REWARD in names else own_checks(parts, source.path)
    with_failures = with_companions(source.path, parts)
    return [replace(part, checks=checks) for part in with_failures[:1]] + with_failures[1:]


def own_checks(parts: Sequence[GymPart], path: str) -> list[Check]:
    """The mean reward of each agent in NeMo Gym's metrics beside the rollouts, and ours: over all rollouts."""
    if path == STDIN or not any(map(len, parts)) or any(_has_another_mean(part.gym) for part in parts):
        return []
    pairs, written = [], []
    for ending in (METRICS, AGENT_METRICS):
        document = document_at(beside(path, ending))
        for entry in document if isinstance(document, list) else ():
            agent, metrics = inside(entry, AGENT, "name"), inside(entry, "agent_metrics")
            written += numbers_in(metrics)
            if agent in labels_of(parts, "agent"):
                ours = pooled_mean(parts, REWARD, {"agent": agent})
                pairs.append((f"mean/reward of {agent}", inside(metrics, "mean/reward"), ours))
        if pairs:
            break
    return compared(SYSTEM, pairs, written)


def _has_another_mean(gym: GymRows | None) -> bool:
    """Whether NeMo Gym's mean reward of some rows is not the mean of their rewards.

    It counts failed attempts that are among the rollouts, a reward in ``usage`` replaces the rollout's own, and with a
    number under ``agent_name`` it covers only some of the rollouts.
    """
    return gym is not None and (bool(gym.aside.any()) or REWARD in gym.usage or "agent_name" in gym.top)


_TEXT_MARKS = [b'"responses_create_params"', b'"response"']


def texts(path: str, columns: Columns, wanted: Collection[str]) -> Iterator[Text]:
    """The texts of every rollout in a file."""
    for row in marked_rows(blocks_of(Source(path)), TextRow, _TEXT_MARKS):
        agent = row.agent.name if row.agent else None
        try:
            prompt = msgspec.json.decode(row.params, type=complete(CreateParams)).input if row.params else NOTHING
        except BAD:
            prompt = NOTHING
        task, sample = as_index(row.task), as_index(row.sample)
        if not isinstance(sample, float):
            yield Text(agent, None, None, str(task), sample, completion=row.response, prompt=prompt)


_NO_EXTRAS = frozenset({TASK, ROLLOUT, AGENT, FAILURE, REWARD, PARAMS, "response"})


def _extras(part: Part, names: Columns) -> Extras:
    """The texts and other extras of each rollout of a file; none for a planned rollout that never ended."""
    path = part.places.path
    if path.endswith(INPUTS):
        yield from ({} for _ in range(len(part)))
        return
    for block in blocks_of(Source(path)):
        for _, line in filled(block, 0):
            row = _quick_row(0, line)
            params = row.get(PARAMS)
            roles = {
                "prompt": params.get("input") if isinstance(params, dict) else None,
                "completion": row.get("response"),
                "answer": answer if not isinstance(answer := row.get(names.get("answer", "answer")), dict) else None,
                "error": error if isinstance(error := row.get("error"), (str, dict)) else None,
            }
            used = {*_NO_EXTRAS, *(key for key, value in roles.items() if value is not None)}
            others = {
                key: value
                for key, value in row.items()
                if key not in used and not isinstance(value, (int, float)) and value is not None
            }
            yield _finite(placed(roles, others))


def _finite(value: Any) -> Any:
    """A JSON value with null for NaN and infinite numbers."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_rollout(start: Beginning) -> bool:
    """Whether the first line has an index of NeMo Gym's collector, or the file is empty and has companions."""
    if not start.line:
        return has_companions(start.path)
    if start.row is None:  # the line is not strict JSON, perhaps because of a NaN
        return is_row(start.line)
    return "task" not in start.columns and not INDICES.isdisjoint(start.row)


ROLLOUTS = Format(
    "nemo_gym",
    read,
    _is_rollout,
    texts=texts,
    without_companions=without_companions,
    extras=_extras,
)
NEMO_GYM = Dialect("nemo_gym", metrics=WORDS, default=DEFAULT)
