"""The rollouts of a run as an audit reads them: one row for each record, of any format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from calipers.formats.carried import CARRIED
from calipers.formats.format import Raw
from calipers.rollouts.record import CODE, FIRST_GAP

PASS: Final = 1.0
STARTS, ENDS, IDS = ("started_at", "start_time"), ("finished_at", "end_time"), ("request_id", "response_id")
LOGPROBS: Final = ("completion_logprob", "cumulative_logprob", "sum_logprob")
GOLD: Final = ("target", "gold", "reference", "oracle")
TWIN: Final = "perturbed_from"
_FRACTION: Final = re.compile(r"\.(\d+)")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What an audit reads of one rollout; None for what is not recorded."""

    group: tuple[Any, ...]  # agent, model, dataset, and split and step of a training run
    task: str
    sample: int
    attempt: int
    outcome: str
    reward: float | None
    text: str | None
    plain: bool  # whether the completion is one text, not a list of messages
    answer: Any
    start: float | None  # seconds
    end: float | None
    latency: float | None  # seconds
    tokens: float | None
    reasoning: float | None
    max_tokens: float | None
    logprob: float | None
    retries: float
    seed: int | None
    sent_seed: int | None  # by a run of Calipers
    request: str | None
    gold: str | None
    twin: str | None

    @property
    def name(self) -> str:
        """The rollout, for people."""
        again = f" attempt {self.attempt}" if self.attempt != 1 else ""
        return f"task {self.task!r} sample {self.sample}{again}"

    @property
    def counts(self) -> bool:
        """Whether it has a number: it was scored, or counts as 0."""
        return CODE[self.outcome] < FIRST_GAP

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return self.reward is not None and self.reward >= PASS

    @property
    def unit(self) -> tuple[Any, ...]:
        """Its task, in its group."""
        return (*self.group, self.task)


def rows_of(records: Iterable[Mapping[str, Any]], reward: str | None = None) -> Iterator[AuditRow]:
    """A row for each record; ``reward`` is the one to look at where there are several."""
    for record in records:
        yield _row({key: _decoded(value) for key, value in record.items() if key != CARRIED}, reward)


def _row(record: Mapping[str, Any], reward: str | None) -> AuditRow:
    usage = record.get("usage") or {}
    rewards = {"reward": record.get("reward"), **(record.get("rewards") or {})}
    known = {name: value for name, value in rewards.items() if value is not None}
    worth = known.get(reward) if reward else known.get("reward", next(iter(known.values()), None))
    completion, metadata = record.get("completion"), record.get("metadata") or {}
    call = record["request"] if isinstance(record.get("request"), dict) else {}  # of Calipers' own runs
    seed = record.get("seed", metadata.get("seed", call.get("seed")))
    request = _first(record, IDS) if _first(record, IDS) is not None else call.get("id")
    start, end = _first(record, STARTS), _first(record, ENDS)
    text = completion if isinstance(completion, str) else None if completion is None else _written(completion)
    gold = next(
        (value for where in (record, metadata) for name in GOLD if isinstance(value := where.get(name), str)), None
    )
    return AuditRow(
        group=tuple(record.get(name) for name in ("agent", "model", "dataset", "split", "step")),
        task=str(record["task"]),
        sample=int(record.get("sample") or 0),
        attempt=int(record.get("attempt") or 1),
        outcome=record.get("outcome") or ("scored" if known else "missing"),
        reward=None if worth is None else float(worth),
        text=text,
        plain=isinstance(completion, str),
        answer=record.get("answer"),
        start=_moment(start),
        end=_moment(end),
        latency=_number(usage.get("latency_s", record.get("latency_s"))),
        tokens=_number(usage.get("output_tokens", record.get("output_tokens"))),
        reasoning=_number(usage.get("reasoning_tokens", record.get("reasoning_tokens"))),
        max_tokens=_number(record.get("max_tokens")),
        logprob=_number(_first(record, LOGPROBS) if _first(record, LOGPROBS) is not None else _first(usage, LOGPROBS)),
        retries=_number(record.get("retries")) or 0.0,
        seed=int(seed) if isinstance(seed, (int, float)) else None,
        sent_seed=sent if isinstance(sent := call.get("seed"), int) else None,
        request=None if request is None else str(request),
        gold=gold,
        twin=metadata.get(TWIN) if isinstance(metadata.get(TWIN), str) else record.get(TWIN),
    )


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _written(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _moment(value: Any) -> float | None:
    """Seconds since 1970, of a number or of a text by ISO 8601; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(_FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", value, count=1))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None
