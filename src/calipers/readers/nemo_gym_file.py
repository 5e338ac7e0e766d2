"""One NeMo Gym file of rollouts, or a range of its bytes: blocks of whole lines in, one `GymPart` out."""

from __future__ import annotations

import json
from bisect import bisect_right
from codecs import utf_8_decode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import astuple
from numpy.typing import NDArray

from calipers.readers.gather import BadRow, Gather
from calipers.readers.jsonl import Block, LineError, filled, one_a_line
from calipers.readers.nemo_gym_cells import REWARD, Cells
from calipers.readers.nemo_gym_line import BAD, check_once, decoded
from calipers.readers.nemo_gym_rows import ROLLOUT, GymRows, Keys, overlaid
from calipers.readers.nemo_gym_schema import KILLED, Schema, usages
from calipers.readers.nemo_gym_taking import GymPart, Taking, keys_of, take_records
from calipers.readers.schema import MOST_COLUMNS, MOST_KEYS
from calipers.readers.twice import Ends, once_by_raws
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.part import Labels, Places
from calipers.rollouts.record import CODE, UNSTATED

_NEWLINE = ord(b"\n")
_LAST_ASCII = 127


class GymLines:
    """Blocks of whole lines in, one `GymPart` out.

    ``names`` says what the file calls the reward and the answer; ``labels`` are the keys whose values
    are kept. ``start`` is the byte of the file at which the first block begins; None where bytes pass
    only once.
    """

    def __init__(self, path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> None:
        self.lines = 0
        self._path, self._names, self._labels = path, names, labels
        self._places = Places(path)
        self._raws = _raws(names, labels)
        self._schema = Schema(set(self._raws.values()))
        self._taking, self._gather, self._ends = Taking(routed=True), Gather(), Ends()
        self._offset = start
        self._blocks: list[tuple[int, int]] = []  # (first row, its block's first byte)

    def read(self, block: Block) -> None:
        """Take in one block of whole lines; LineError for the first that is no rollout."""
        rows = self._taking.cells.rows
        if self._offset is not None:
            self._blocks.append((rows, self._offset))
            self._offset += len(block)
        octets = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(octets == _NEWLINE)
        found = self._structs(block, octets, ends)
        if found is None:
            self._take_slowly(block)
        elif found:
            self._places.add(rows, self.lines + 1)
            columns = list(zip(*map(astuple, found), strict=True))
            if not self._ends.once(octets, self._schema.given(columns)):
                self._refuse_twice(block)
            for (what, key), column in zip(self._schema.fields, columns, strict=True):
                self._take(what, key, column)
            self._taking.end_block(len(found))
            self._gather.rows += len(found)
        self.lines += len(ends)

    def finish(self) -> GymPart:
        """Everything read, as one part."""
        try:
            gym = self._taking.finish(self._key_orders)
            gathered = self._gather.finish(self._places, self._labels)
            for row in np.flatnonzero(gym.rollout < 0)[:1].tolist():
                raise BadRow(row, f"{ROLLOUT} is {gym.rollout[row]}", "expected an integer >= 0")
        except BadRow as error:
            row, wrong, right = error.args
            raise LineError(self._line(row), wrong, right) from None
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
            labels={**gathered.labels, "agent": Labels(gym.agent, gym.agents)},
            named=frozenset(self._names.values()) & frozenset(self._schema.kinds),
            gym=gym,
        )

    def _line(self, row: int) -> int:
        return int(self._places.of(row).rpartition(":")[2])

    def _structs(self, block: Block, octets: NDArray[np.uint8], ends: Ints) -> list[Any] | None:
        """The rows of a block in which each line is one plain row; None for any other."""
        try:
            if octets.max(initial=0) > _LAST_ASCII:
                utf_8_decode(block, "strict", True)  # what is skipped unread must be UTF-8 too
            found: list[Any] = self._schema.decoder.decode_lines(block)
        except BAD:
            if not self._learn(block):
                return None
            try:
                found = self._schema.decoder.decode_lines(block)
            except BAD:
                return None
        return found if one_a_line(octets, ends, len(found)) else None

    def _refuse_twice(self, block: Block) -> None:
        """LineError for the first line with a key twice; counting alone could not tell."""
        for number, line in filled(block, self.lines):
            if not once_by_raws(line, "response", "usage"):
                check_once(number, line)

    def _learn(self, block: Block) -> bool:
        """Widen the schema to the lines that do not fit it; False when one never will."""
        widened = False
        waiting: list[bytes] = []  # lines that do not fit the decoder there is, and were learnt from
        patience = 1
        for number, line in filled(block, self.lines):
            if _fits(self._schema, line):
                continue
            if not self._learn_row(number, decoded(number, line)) and not waiting:
                return False
            widened = True
            waiting.append(line)
            # a decoder costs as much as many lines: where each line brings a key, few are made
            if len(waiting) >= patience:
                if not self._rebuilt(waiting):
                    return False
                waiting, patience = [], 2 * patience
        return widened and (not waiting or self._rebuilt(waiting))

    def _learn_row(self, number: int, row: Mapping[str, Any]) -> bool:
        """Widen the schema to a row; False when it knew all of it. LineError for a key too many."""
        if not self._schema.learn(row):
            return False
        many = ""
        if self._schema.columns() > MOST_COLUMNS:
            many = f"the file has more than {MOST_COLUMNS} columns of numbers"
        elif len(self._schema.kinds) + len(self._schema.usage) > MOST_KEYS:
            many = f"the file has more than {MOST_KEYS} different keys"
        if many:
            raise LineError(number, many, "expected ids as values, not as keys")
        return True

    def _rebuilt(self, lines: Sequence[bytes]) -> bool:
        """Make the decoder for what was learnt; whether these lines fit it."""
        self._schema.rebuild()
        return all(_fits(self._schema, line) for line in lines)

    def _take(self, what: str, key: str, column: Sequence[Any]) -> None:
        if what == "raw":
            raws = [bytes(raw) or None for raw in column]
            self._take_labels(key, raws)
            what, column = "number", [UNSET if raw is None else msgspec.json.decode(raw) for raw in raws]
        try:
            if what in ("task", "rollout", "failure"):
                self._taking.take(what, key, column)
            elif what == "agent":
                self._taking.take(what, key, [held.name if held else None for held in column])
            elif what == "number":
                self._taking.take("top", key, column)
            elif what == "response" and self._schema.usage:
                rows = usages(column, len(self._schema.usage))
                for (name, kinds), values in zip(self._schema.usage.items(), zip(*rows, strict=True), strict=True):
                    if "number" in kinds or name in self._schema.kinds:  # else it neither counts nor hides a number
                        self._taking.take("usage", name, values)
        except ValueError as error:
            row, wrong, right = error.args
            raise LineError(self._line(self._taking.cells.rows + row), wrong, right) from None

    def _take_labels(self, key: str, raws: Sequence[bytes | None]) -> None:
        for path, held in self._raws.items():
            if held == key:
                self._gather.labels(path, raws)

    def _take_slowly(self, block: Block) -> None:
        """Line by line, as Python reads JSON: NaN and Infinity are numbers, and any key will do."""
        lines = list(filled(block, self.lines))
        records = [decoded(number, line) for number, line in lines]
        learnt = [self._learn_row(number, row) for (number, _), row in zip(lines, records, strict=True)]
        if any(learnt):
            self._schema.rebuild()  # the next block may fit the decoder, which must know what the schema does
        self._places.add(self._taking.cells.rows, np.array([number for number, _ in lines]))
        for key in {*self._raws.values()}:
            self._take_labels(key, [msgspec.json.encode(row[key]) if key in row else None for row in records])
        try:
            take_records(self._taking, records)
        except ValueError as error:
            row, wrong, right = error.args
            raise LineError(lines[row][0], wrong, right) from None
        self._gather.rows += len(records)

    def _key_orders(self, chosen: Sequence[int]) -> dict[int, Keys]:
        """The order of keys in some rows, read again where the file can be; else as they were met."""
        if self._offset is None:
            met = Keys(list(self._schema.kinds), list(self._schema.usage))
            return dict.fromkeys(chosen, met)
        found = {}
        with open(self._path, "rb") as file:
            for row in chosen:
                first, offset = self._blocks[bisect_right(self._blocks, row, key=lambda block: block[0]) - 1]
                file.seek(offset)
                filled = (line for line in file if line.strip())
                line = next(line for number, line in enumerate(filled, first) if number == row)
                found[row] = keys_of(json.loads(line))
        return found

    def _outcomes(self, gym: GymRows) -> NDArray[np.uint8]:
        failures = self._taking.failures
        outcome = np.full(len(gym), UNSTATED, dtype=np.uint8)
        for row in np.flatnonzero(gym.aside).tolist():
            outcome[row] = outcome_of(failures[row])
        if (killed := gym.top.get(KILLED)) is not None:
            outcome[killed.given & (killed.values != 0)] = CODE["cancelled"]
        return outcome


def outcome_of(failure: Any) -> int:
    """The outcome of an attempt that NeMo Gym marks as failed: a gap, by who is to blame."""
    word = str(failure)
    return CODE["judge_failed" if "judge" in word else "verifier_failed" if "verif" in word else "client_failed"]


def _raws(names: Mapping[str, str], labels: Collection[str]) -> dict[str, str]:
    """What the gathered columns of raw JSON are called, and the key of a row each comes from."""
    found = {}
    for path in labels:
        found[f"raw:{path}"] = names.get(path, path)
        if "." in path:
            found[f"raw:metadata.{path.partition('.')[0]}"] = path.partition(".")[0]
    return {name: key for name, key in found.items() if key not in ("agent", "agent_ref", "response", ROLLOUT)}


def _fits(schema: Schema, line: bytes) -> bool:
    try:
        line.decode()
        schema.decoder.decode(line)
    except BAD:
        return False
    return True


def _tasks(gym: GymRows) -> tuple[list[str], Ints]:
    """The task ids as text, and a code for each row."""
    if gym.names is not None:
        return list(gym.names), gym.task
    found, code = np.unique(gym.task, return_inverse=True)
    return list(map(str, found.tolist())), code.reshape(-1)


def _columns(gym: GymRows) -> dict[str, Column]:
    """The numbers of rollouts that count, but the reward; it too where usage has one of that name, which wins."""
    names = [name for name in {**gym.top, **gym.usage} if name != REWARD or name in gym.usage]
    found = {name: _numbers(overlaid(gym, name), gym.aside) for name in names}
    return {name: column for name, column in found.items() if column.given.any()}


def _numbers(cells: Cells, aside: Bools) -> Column:
    """A key as a column of rollouts that count. NaN is a gap: it is what NeMo Gym writes as null, and leaves out."""
    given = cells.given & ~aside if aside.any() else cells.given
    odd = np.isnan(cells.values)
    return Column(cells.values, given & ~odd if odd.any() else given)
