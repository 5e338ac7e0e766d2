"""The metrics file of a collection: what each agent is sent and answers, and ours in place of what it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from calipers.dialects.nemo_gym_aggregate import by_agent, entries_of, one_table, stripped
from calipers.errors import ClientError
from calipers.readers.jsonl import LineError
from calipers.readers.nemo_gym_line import BAD, decoded
from calipers.readers.read import begin
from calipers.reports.nemo_gym import Entry
from calipers.rollouts.part import Part
from calipers.run.collect import Asked
from calipers.run.collect_row import FAILURE, KILLED

_ROW = msgspec.json.Decoder(dict[str, Any])


def sent(path: str) -> dict[str, list[dict[str, Any]]]:
    """The rows that each agent is asked to aggregate: those that succeeded, without their bulk, by task and rollout."""
    return by_agent(_rows(path))


def _rows(path: str) -> Iterator[dict[str, Any]]:
    """The rollouts of a file as they are sent to be aggregated; what was marked as failed is left out."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = _row(path, number, line)
            if row.get(FAILURE) is None and not row.get(KILLED):
                yield stripped(row)  # at once: what is left out is most of it


def _row(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        return _ROW.decode(line)
    except BAD:  # NaN perhaps, which others may have written
        try:
            return decoded(number, line)
        except LineError as error:
            raise error.at(path) from None


def faults(answers: Mapping[str, Asked]) -> dict[str, str]:
    """What went wrong with agents' metrics, by agent."""
    why = {name: str(one) if isinstance(one, ClientError) else _fault(one) for name, one in answers.items()}
    return {name: reason for name, reason in why.items() if reason}


def entries(path: str, answers: Mapping[str, Asked]) -> list[Entry]:
    """Each agent's metrics, its own where it computes them well, else ours."""
    bad = faults(answers)
    answers = {name: None if name in bad else answer for name, answer in answers.items()}
    if answers and all(answers.values()):
        return [_entry(name, answers[name]) for name in sorted(answers)]
    kept: list[Part] = []
    begin([path], kept=kept)
    ours = {entry.agent: entry for entry in entries_of(one_table(kept))}
    return [_entry(name, answers[name]) if answers.get(name) else ours[name] for name in sorted(ours)]


def _fault(answer: Asked) -> str:
    """What is wrong with an agent's metrics; "" for good ones, and where there are none."""
    if not isinstance(answer, dict):
        return ""
    kinds: dict[str, type] = {"group_level_metrics": list, "agent_metrics": dict, "key_metrics": dict}
    bad = [name for name, kind in kinds.items() if not isinstance(answer.get(name), kind)]
    if bad:
        return f"its answer has no {bad[0]} in the right shape"
    whole = all(isinstance(group, dict) for group in answer["group_level_metrics"])
    return "" if whole else "a group in its answer is no object"


def _entry(name: str, answer: Any) -> Entry:
    groups = answer["group_level_metrics"]
    return Entry(name, answer["agent_metrics"], answer["key_metrics"], [groups] if groups else [])
