"""Audit a run: findings that are impossible or beyond chance, and lists that are only worth a look; and its page."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, combinations, islice, pairwise
from typing import Any, Final

import msgspec
import numpy as np

from calipers.analyses.plan_study import one_reward
from calipers.errors import InputError
from calipers.formats import Named
from calipers.formats.convert import decoded, records_of, refuse_pipes
from calipers.formats.read import begin
from calipers.formats.run_folder import is_run, read_plan, read_settings
from calipers.formats.source_facts import FACTS
from calipers.reports.asserted import Asserted
from calipers.reports.document import Blank, Block, Document, Sentence, Title, plain_table
from calipers.reports.figures import counted
from calipers.reports.untrusted_text import clean
from calipers.rollouts.record import CODE, FIRST_GAP
from calipers.rollouts.table import Part
from calipers.stats import audit as tests
from calipers.tally import quietly

PASS: Final = 1.0
STARTS, ENDS, IDS = ("started_at", "start_time"), ("finished_at", "end_time"), ("request_id", "response_id")
LOGPROBS: Final = ("completion_logprob", "cumulative_logprob", "sum_logprob")
GOLD: Final = ("target", "gold", "reference", "oracle")
TWIN: Final = "perturbed_from"
_FRACTION: Final = re.compile(r"\.(\d+)")
SCHEMA: Final = "calipers.audit/1"
IMPOSSIBLE, TEST = "impossible", "test"
LONG: Final = 200  # characters from which a text is not repeated by chance
COMMON: Final = 0.02  # a text in more than this share of the tasks is a template or a refusal
FASTEST: Final = 10_000.0  # tokens per second of one stream
CACHED: Final = 0.05  # seconds; a faster completion comes from a cache or a replay
STEADY: Final = 0.25  # seconds; shorter durations do not spread over 10 ms
STRONG: Final = 8  # number of strong runs from which their agreement against a key is a finding
MOST_PAIRS: Final = 2_000  # pairs of equal texts of one task that are examined
NAMED: Final = 5  # examples of a finding
FIELDS = ("rule", "kind", "count", "of", "expected", "p", "says", "examples")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The fields of a rollout that an audit reads; None for a field that is not recorded."""

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
        """The rollout's task, sample and attempt, for messages."""
        attempt = f" attempt {self.attempt}" if self.attempt != 1 else ""
        return f"task {self.task!r} sample {self.sample}{attempt}"

    @property
    def counts(self) -> bool:
        """Whether the rollout has a number: it was scored, or counts as 0."""
        return CODE[self.outcome] < FIRST_GAP

    @property
    def passed(self) -> bool:
        """Whether the rollout passed."""
        return self.reward is not None and self.reward >= PASS

    @property
    def unit(self) -> tuple[Any, ...]:
        """The rollout's task within its group."""
        return (*self.group, self.task)


def rows_of(records: Iterable[Mapping[str, Any]], reward: str = "reward") -> Iterator[AuditRow]:
    """Yield a row for each record, with the value of this reward."""
    for record in records:
        yield _row(decoded({key: value for key, value in record.items() if key != FACTS}), reward)


def _row(record: Mapping[str, Any], reward: str) -> AuditRow:
    usage = record.get("usage") or {}
    rewards = {"reward": record.get("reward"), **(record.get("rewards") or {})}
    known = {name: value for name, value in rewards.items() if value is not None}
    value = known.get(reward)
    completion, metadata = record.get("completion"), record.get("metadata") or {}
    call = record["request"] if isinstance(record.get("request"), dict) else {}  # an object in Calipers' own runs
    seed = record.get("seed", metadata.get("seed", call.get("seed")))
    request = _first(record, IDS, call.get("id"))
    text = completion if isinstance(completion, str) else None if completion is None else _json(completion)
    return AuditRow(
        group=tuple(_label(record.get(name)) for name in ("agent", "model", "dataset", "split", "step")),
        task=str(record["task"]),
        sample=int(record.get("sample") or 0),
        attempt=int(record.get("attempt") or 1),
        outcome=record.get("outcome") or ("scored" if known else "missing"),
        reward=None if value is None else float(value),
        text=text,
        plain=isinstance(completion, str),
        answer=record.get("answer"),
        start=_moment(_first(record, STARTS)),
        end=_moment(_first(record, ENDS)),
        latency=_number(usage.get("latency_s", record.get("latency_s"))),
        tokens=_number(usage.get("output_tokens", record.get("output_tokens"))),
        reasoning=_number(usage.get("reasoning_tokens", record.get("reasoning_tokens"))),
        max_tokens=_number(record.get("max_tokens")),
        logprob=_number(_first(record, LOGPROBS, _first(usage, LOGPROBS))),
        retries=_number(record.get("retries")) or 0.0,
        seed=int(seed) if isinstance(seed, (int, float)) else None,
        sent_seed=sent if isinstance(sent := call.get("seed"), int) else None,
        request=None if request is None else str(request),
        gold=_text_of((record, metadata), GOLD),
        twin=_text_of((metadata, record), [TWIN]),
    )


def _first(record: Mapping[str, Any], names: Sequence[str], otherwise: Any = None) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), otherwise)


def _text_of(objects: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str | None:
    """The first text with one of the names in the objects."""
    return next((value for fields in objects for name in names if isinstance(value := fields.get(name), str)), None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _label(value: Any) -> Any:
    """A label; a list or an object as JSON text, so that it is hashable."""
    return _json(value) if isinstance(value, (list, dict)) else value


def _moment(value: Any) -> float | None:
    """The seconds since 1970 of a number, or of a time in ISO 8601; None for any other value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(_FRACTION.sub(lambda match: f".{match[1][:6]:0<6}", value, count=1))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A finding: an honest run does not show it, or in at most 1 % of cases."""

    rule: str
    kind: str  # impossible or test
    count: int
    says: str
    p: float | None = None  # of a test
    expected: float | None = None  # count under the null hypothesis
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of rollouts to look at, which proves nothing because it has no null hypothesis."""

    rule: str
    count: int
    of: int
    says: str
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Audit(Asserted):
    """The result of an audit: findings, lists to look at, and gaps in the records.

    ``bool(audit)`` is whether there is no finding.
    """

    paths: Sequence[str]
    rollouts: int
    findings: Sequence[Anomaly]
    lists: Sequence[Listed]
    tried: Sequence[str]  # rules that had data and found nothing
    unknown: Sequence[str]  # sentences on data that is not recorded, and on what cannot be seen without it

    @property
    def exit_code(self) -> int:
        """1 with any finding, else 0."""
        return 1 if self.findings else 0

    def page(self) -> Document:
        """The document that renderers show."""
        return document(self)

    def to_dict(self) -> dict[str, Any]:
        """The audit, ready for strict JSON."""
        from calipers import __version__

        return {"schema": SCHEMA, "calipers": __version__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class AuditEvidence:
    """The rows of a run, with the facts of its plan."""

    rows: Sequence[AuditRow]
    max_tokens: float | None = None
    planned: Mapping[str, int] | None = None  # number of samples by task; None without a plan
    seed: int = 0
    concurrency: int | None = None  # requests at a time
    planned_seed: int | None = None  # from which the seed of each request is derived; None if no plan has it

    @property
    def last(self) -> list[AuditRow]:
        """The last attempt of each sample, if it has a number."""
        best: dict[tuple[Any, ...], AuditRow] = {}
        for row in self.rows:
            key = (*row.unit, row.sample)
            if key not in best or best[key].attempt < row.attempt:
                best[key] = row
        return [row for row in best.values() if row.counts and row.reward is not None]

    def by_task(self, rows: Sequence[AuditRow]) -> list[list[AuditRow]]:
        """The rows of each task, by sample."""
        tasks: dict[tuple[Any, ...], list[AuditRow]] = defaultdict(list)
        for row in rows:
            tasks[row.unit].append(row)
        return [sorted(task, key=lambda row: row.sample) for task in tasks.values()]


def impossible(rule: str, found: Sequence[AuditRow | str], says: str) -> Anomaly:
    """A finding that no honest run has, with its first rollouts or texts as examples."""
    return Anomaly(rule, IMPOSSIBLE, len(found), says, expected=0.0, examples=_examples(found))


def listed(rule: str, found: Sequence[AuditRow | str], of: int, says: str) -> Listed:
    """A list of rollouts or texts out of ``of``, with the first ones as examples."""
    return Listed(rule, len(found), of, says, _examples(found))


def _examples(found: Sequence[AuditRow | str]) -> list[str]:
    return [row.name if isinstance(row, AuditRow) else row for row in found[:NAMED]]


Verdict = Anomaly | Listed | str | None
"""The outcome of a rule: a finding, a list, a sentence on data that is not recorded, or None for no finding."""

Rule = Callable[[AuditEvidence], Iterator[Verdict]]


def audit(
    *paths: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    reward: str | None = None,
    rejudge: bool = False,
    seed: int = 0,
) -> Audit:
    """Look for signs that the rollouts of a run are not what they seem. No model is called.

    The first of ``paths`` is audited. Further paths are other runs of the same tasks, which show whether the better
    runs agree on an answer other than the key. With ``rejudge`` the run's own verifier judges the stored completions
    again.
    """
    given = [os.fspath(path) for path in paths]
    if not given:
        raise InputError("no run; expected a run or a file of rollouts")
    refuse_pipes(given)
    names = Named(columns or {})
    runs = [_evidence(path, names, reward, seed) for path in given]
    with quietly():  # means of huge rewards overflow
        more = [*against_strong_runs(runs)] if len(runs) > 1 else []
        if rejudge:
            more.append(_rejudged(given[0]))
        return audited(runs[0], given, more)


def audited(evidence: AuditEvidence, paths: Sequence[str] = (), more: Sequence[Verdict] = ()) -> Audit:
    """The audit of a run by all rules, with ``more`` outcomes of other checks."""
    by_rule = {name: list(rule(evidence)) for name, rule in RULES.items()}
    outcomes = [*chain(*by_rule.values()), *more]
    return Audit(
        paths,
        len(evidence.rows),
        findings=[outcome for outcome in outcomes if isinstance(outcome, Anomaly)],
        lists=[outcome for outcome in outcomes if isinstance(outcome, Listed)],
        tried=[
            name
            for name, of_rule in by_rule.items()
            if None in of_rule and not any(isinstance(outcome, Anomaly) for outcome in of_rule)
        ],
        unknown=list(dict.fromkeys(outcome for outcome in outcomes if isinstance(outcome, str))),
    )


def _evidence(path: str, names: Named, reward: str | None, seed: int) -> AuditEvidence:
    parts: list[Part] = []
    rollouts, _ = begin([path], columns=names, kept=parts)
    rows = list(rows_of(records_of([path], names, parts), one_reward(rollouts, reward, path)))
    if not is_run(path):
        return AuditEvidence(rows, seed=seed)
    plan = read_plan(path)
    sampling = plan.identity.get("sampling", {})
    most, concurrency = sampling.get("max_tokens"), read_settings(path).get("concurrency")
    sent = sampling.get("seed") if "seed" not in (sampling.get("extra") or {}) else None
    return AuditEvidence(
        rows,
        max_tokens=float(most) if isinstance(most, (int, float)) else None,
        planned={task.task: plan.of(task) for task in plan.tasks},
        seed=seed,
        concurrency=concurrency if isinstance(concurrency, int) else None,
        planned_seed=sent if isinstance(sent, int) else None,
    )


def last_is_pass(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Test for samples that were added until one passed: the last sample of a task passes too often."""
    tasks = [np.array([row.passed for row in task]) for task in evidence.by_task(evidence.last)]
    mixed = sum(0 < int(task.sum()) < len(task) for task in tasks)
    if not mixed:
        return
    seen, expected, p = tests.last_is_pass(tasks)
    if p < tests.LEVEL:
        says = f"the last sample passes in {seen} of {mixed} mixed tasks; {expected:.1f} are expected"
        yield Anomaly(tests.LAST_IS_PASS, TEST, seen, says, p, expected)
    yield None


def start_follows_outcome(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Test for failures that were silently run again: samples that start later within a task have other rewards."""
    rows = [row for row in evidence.last if row.start is not None and not row.retries and row.attempt == 1]
    if not rows:
        yield "start times are not recorded: samples that were silently run again cannot be seen"
        return
    tasks = evidence.by_task(rows)
    starts = [np.array([row.start for row in task], dtype=np.float64) for task in tasks]
    rewards = [np.array([row.reward for row in task], dtype=np.float64) for task in tasks]
    z, p = tests.start_follows_outcome(starts, rewards, np.random.default_rng(evidence.seed))
    if p < tests.LEVEL:
        says = f"within tasks, samples that start later have {'higher' if z > 0 else 'lower'} rewards (z = {z:.1f})"
        yield Anomaly(tests.START_FOLLOWS_OUTCOME, TEST, len(rows), says, p, 0.0)
    yield None


def copied_records(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Test for copied records: the same text, and the same duration to the millisecond."""
    rows = [row for row in evidence.last if row.latency is not None and row.text]
    if not rows:
        yield "durations are not recorded: copied records cannot be told from equal completions"
        return
    # of durations recorded to the millisecond, nine of ten are not multiples of 10 ms
    if sum(round(1000 * (row.latency or 0)) % 10 != 0 for row in rows) < len(rows) / 2:
        yield "durations are not recorded to the millisecond: copied records cannot be told from equal completions"
        return
    equal, close, far, examples = 0, 0, 0, []
    for first, second in _equal_pairs(evidence, [row for row in rows if (row.latency or 0) >= STEADY]):
        difference = abs(round(1000 * (first.latency or 0)) - round(1000 * (second.latency or 0)))
        if difference == 0:
            equal += 1
            examples.append(_pair((first, second)))
        elif difference <= 10:
            close, far = close + (difference <= 5), far + (difference > 5)
    if not tests.durations_spread(close, far):
        yield "durations hardly differ: copied records cannot be told from completions that took the same time"
        return
    p = tests.copied_records(equal, close + far) if equal else 1.0
    if p < tests.LEVEL:
        expected = tests.EQUAL * (equal + close + far)
        says = f"{equal} pairs of equal completions took the same time to the millisecond; {expected:.1f} are expected"
        yield Anomaly(tests.COPIED_RECORDS, TEST, equal, says, p, expected, examples[:NAMED])
    yield None


def _equal_pairs(evidence: AuditEvidence, rows: Sequence[AuditRow]) -> Iterator[tuple[AuditRow, AuditRow]]:
    """Yield the pairs of rows of a task with the same text."""
    for task in evidence.by_task(rows):
        texts: dict[str, list[AuditRow]] = defaultdict(list)
        for row in task:
            texts[row.text or ""].append(row)
        for equal in texts.values():
            yield from list(combinations(equal[:64], 2))[:MOST_PAIRS]


def same_text(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Equal completions of a task: a test if log-probabilities give the expected number, else a list."""
    rows = [row for row in evidence.last if row.text]
    pairs = list(_equal_pairs(evidence, rows))
    known = [row for row in rows if row.logprob is not None]
    if known and len(known) == len(rows):
        tasks = evidence.by_task(rows)
        drawn = [[(row.text or "", float(np.exp(min(row.logprob or 0.0, 0.0)))) for row in task] for task in tasks]
        seen, expected = tests.repeats(drawn)
        p = tests.same_text(seen, expected)
        if p < tests.LEVEL:
            says = (
                f"{seen:,} completions repeat an earlier one of their task; {expected:.2f} are expected from their "
                "log-probabilities"
            )
            yield Anomaly(tests.SAME_TEXT, TEST, seen, says, p, expected, [_pair(pair) for pair in pairs[:NAMED]])
        yield None
    elif pairs:
        of = sum(len(task) * (len(task) - 1) // 2 for task in evidence.by_task(rows))
        long = sum(len(row.text or "") >= LONG for row, _ in pairs)
        says = (
            f"pairs of equal completions of a task, {long:,} of {LONG} characters or more; without log-probabilities "
            "the expected number is unknown"
        )
        yield Listed(tests.SAME_TEXT, len(pairs), of, says, [_pair(pair) for pair in pairs[:NAMED]])


def _pair(pair: tuple[AuditRow, AuditRow]) -> str:
    return f"{pair[0].name} and sample {pair[1].sample}"


def same_text_elsewhere(evidence: AuditEvidence) -> Iterator[Verdict]:
    """A long completion that passes in two tasks, although it can be the answer of at most one."""
    by_text: dict[str, dict[tuple[Any, ...], AuditRow]] = defaultdict(dict)
    for row in evidence.last:
        if row.text and row.plain and len(row.text) >= LONG:
            by_text[row.text].setdefault((row.unit, row.passed), row)
    tasks = len({row.unit for row in evidence.last})
    if not by_text:
        return
    examples = []
    for of_text in by_text.values():
        units = {unit for unit, _ in of_text}
        passed = [row for (_, is_pass), row in of_text.items() if is_pass]
        if len(passed) > 1 and len(units) <= max(COMMON * tasks, 2):
            examples.append(f"{passed[0].name} and {passed[1].name}")
    if examples:
        says = f"a completion of {LONG} characters or more passes in several tasks"
        yield impossible("same_text_elsewhere", examples, says)
    yield None


def ledger(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Rollouts that are not in the plan; without a plan, tasks whose sample numbers have holes."""
    if evidence.planned is not None:
        unplanned = [row for row in evidence.rows if row.sample >= evidence.planned.get(row.task, 0)]
        if unplanned:
            yield impossible("ledger", unplanned, "rollouts that the plan of the run does not have")
        yield None
        return
    holes = []
    tasks = evidence.by_task(list({(*row.unit, row.sample): row for row in evidence.rows}.values()))
    sizes = Counter(task[-1].sample + 1 - task[0].sample for task in tasks)
    for task in tasks:
        between = (range(row.sample + 1, following.sample) for row, following in pairwise(task))
        lost = [*islice(chain.from_iterable(between), 3)]
        if lost:
            holes.append(f"task {task[0].task!r} has no sample {', '.join(map(str, lost))}")
    if holes:
        yield impossible("ledger", holes, "tasks whose sample numbers have holes: rollouts were lost or removed")
    usual = sizes.most_common(1)[0][0] if sizes else 0
    fewer = [f"task {task[0].task!r}" for task in tasks if len(task) < usual]
    if fewer and len(fewer) < len(tasks) / 2:
        says = f"tasks with fewer than {usual} samples, the usual number; no plan has the planned number"
        yield listed("fewer_samples", fewer, len(tasks), says)
    yield None


def seeds(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Seeds that differ from the plan; without a plan, seeds with holes in a few tasks, if the others have none."""
    sent = [row for row in evidence.rows if row.sent_seed is not None]
    if evidence.planned_seed is not None and sent:
        from calipers.running.perform import sample_seed

        base = evidence.planned_seed
        unplanned = [row for row in sent if row.sent_seed != sample_seed(base, row.task, row.sample)]
        if unplanned:
            says = "rollouts whose request had another seed than the plan gives that sample"
            yield impossible("seeds", unplanned, says)
        yield None
        return
    known = [row for row in evidence.rows if row.seed is not None]
    if len(known) < len(evidence.rows) or not known:
        yield "seeds are not recorded for every rollout: samples that were drawn and dropped cannot be seen"
        return
    tasks = [sorted({row.seed for row in task if row.seed is not None}) for task in evidence.by_task(known)]
    several = [numbers for numbers in tasks if len(numbers) > 1]
    holes = [numbers for numbers in several if numbers[-1] - numbers[0] + 1 != len(numbers)]
    if several and holes and len(holes) <= len(several) / 2:
        says = f"tasks whose seeds have holes, of {len(several):,} with several seeds, most of which have none"
        yield Anomaly("seeds", IMPOSSIBLE, len(holes), says, expected=0.0)
    yield None


def attempts(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Rollouts that were run again although an earlier attempt had a reward."""
    samples: dict[tuple[Any, ...], list[AuditRow]] = defaultdict(list)
    for row in evidence.rows:
        samples[(*row.unit, row.sample)].append(row)
    retried = [
        sorted(sample, key=lambda row: row.attempt)
        for sample in samples.values()
        if len(sample) > 1 or sample[0].attempt > 1
    ]
    if not retried:
        yield "no rollout has more than one attempt on record: silent retries cannot be excluded"
        return
    replaced = [sample for sample in retried if any(row.counts and row.reward is not None for row in sample[:-1])]
    if replaced:
        better = sum(sample[-1].passed and not sample[-2].passed for sample in replaced)
        says = f"rollouts with a reward that were run again; {better:,} of them then passed"
        yield impossible("attempts", [sample[-1] for sample in replaced], says)
    yield None


def requests(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Request ids of the provider that appear twice: impossible with different texts, and a list with the same text."""
    known = [row for row in evidence.rows if row.request is not None]
    if not known:
        yield "request ids are not recorded: completions cannot be held against the provider's own log"
        return
    texts: dict[str, set[str | None]] = defaultdict(set)
    counts = Counter(row.request for row in known)
    for row in known:
        texts[row.request or ""].add(row.text)
    ambiguous = [request for request, of_request in texts.items() if len(of_request) > 1]
    if sum(counts[request] for request in ambiguous) > len(known) / 2:
        yield "request ids are not unique, as of a server that counts anew: they cannot be held against its own log"
        return
    if ambiguous:
        yield impossible("requests", ambiguous, "request ids with several different completions")
    twice = [str(request) for request, count in counts.items() if count > 1 and request not in ambiguous]
    if twice:
        says = "request ids that appear more than once, with one completion: a cache, a replay, or copies"
        yield listed("requests", twice, len(counts), says)
    yield None


def times(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Impossible times: an end before its start, or more tokens per second than any server generates."""
    timed = [row for row in evidence.rows if row.start is not None and row.end is not None]
    backwards = [row for row in timed if (row.end or 0) < (row.start or 0)]
    negative = [row for row in evidence.rows if row.latency is not None and row.latency < 0]
    if backwards or negative:
        yield impossible("times", [*backwards, *negative], "rollouts that end before they start")
    rated = [row for row in evidence.rows if row.tokens and row.latency and row.latency > 0]
    fast = [row for row in rated if (row.latency or 0) >= CACHED and (row.tokens or 0) / (row.latency or 1) > FASTEST]
    if fast:
        yield impossible("token_rate", fast, f"completions faster than {FASTEST:,.0f} tokens per second")
    quick = [row for row in rated if (row.latency or 0) < CACHED]
    if quick:
        says = f"completions in less than {1000 * CACHED:.0f} ms: a cache, a replay, or no model at all"
        yield listed("instant", quick, len(rated), says)
    if timed and evidence.concurrency:
        wall = max(row.end or 0 for row in timed) - min(row.start or 0 for row in timed)
        spent = sum((row.end or 0) - (row.start or 0) for row in timed)
        if spent > wall * evidence.concurrency:
            says = f"{spent:,.0f} s of rollouts in {wall:,.0f} s with {evidence.concurrency} requests at a time"
            yield Listed("concurrency", len(timed), len(timed), says)
    if timed or rated:
        yield None


def tokens(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Completions with more tokens than allowed, or than their text has bytes."""
    known = [row for row in evidence.rows if row.tokens is not None and row.plain and row.text is not None]
    limited = [(row, most) for row in known if (most := row.max_tokens or evidence.max_tokens)]
    over = [row for row, most in limited if (row.tokens or 0) > most]
    if over:
        yield impossible("tokens", over, "completions with more output tokens than max_tokens")
    # a token has at least one byte, apart from a few special tokens and from hidden reasoning
    more = [row for row in known if not row.reasoning and (row.tokens or 0) > len((row.text or "").encode()) + 8]
    if more:
        says = "completions with more output tokens than their text has bytes, and no hidden reasoning on record"
        yield listed("tokens", more, len(known), says)
    if known:
        yield None


def empty_passes(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Rollouts that pass without any answer."""
    known = [row for row in evidence.last if row.plain]
    empty = [row for row in known if row.passed and not (row.text or "").strip() and row.answer in (None, "")]
    if empty:
        says = "rollouts that pass with an empty completion: the verifier accepts no answer, or the file has no texts"
        yield listed("empty_passes", empty, len(known), says)
    if known:
        yield None


def gold_text(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Completions that contain the reference solution word by word, and rollouts of an oracle agent."""
    known = [row for row in evidence.rows if row.gold and row.text]
    long = [row for row in known if len((row.gold or "").strip()) >= LONG]
    inside = [row for row in long if (row.gold or "").strip() in (row.text or "")]
    if inside:
        says = f"completions that have a reference solution of {LONG} characters or more word by word"
        yield impossible("gold_text", inside, says)
    if long:
        yield None
    oracles = [row for row in evidence.rows if (row.group[0] or "").lower() in ("oracle", "nop", "solution")]
    if oracles:
        says = f"rollouts of the agent {oracles[0].group[0]!r}, which asks no model"
        yield listed("oracle_agent", oracles, len(evidence.rows), says)


def twin_tasks(evidence: AuditEvidence) -> Iterator[Verdict]:
    """Test for memorised tasks: originals are solved while their perturbed twins are not."""
    means = {task[0].unit: float(np.mean([row.reward for row in task])) for task in evidence.by_task(evidence.last)}
    twins = {row.unit: (*row.group, row.twin) for row in evidence.last if row.twin}
    pairs = [(means[original], means[task]) for task, original in twins.items() if original in means]
    if not pairs:
        return
    better, worse = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    p = tests.twin_tasks(better, worse)
    if p < tests.LEVEL:
        expected = (better + worse) / 2
        says = f"{better} originals do better than their perturbed twins and {worse} do worse"
        yield Anomaly(tests.TWIN_TASKS, TEST, better, says, p, expected)
    yield None


_RULES: Final = (
    *(last_is_pass, start_follows_outcome, copied_records, same_text, same_text_elsewhere, ledger, seeds),
    *(attempts, requests, times, tokens, empty_passes, gold_text, twin_tasks),
)
RULES: Final[Mapping[str, Rule]] = {rule.__name__: rule for rule in _RULES}


def against_strong_runs(runs: Sequence[AuditEvidence]) -> Iterator[Verdict]:
    """Tasks for which all runs of the better half give the same answer, which is not the key."""
    answers: list[dict[str, list[AuditRow]]] = []
    means = []
    for run in runs:
        rows = run.last
        means.append(float(np.mean([row.reward for row in rows])) if rows else 0.0)
        given: dict[str, list[AuditRow]] = defaultdict(list)
        for row in rows:
            if row.answer is not None:
                given[row.task].append(row)
        answers.append(given)
    strong = sorted(range(len(runs)), key=lambda run: -means[run])[: (len(runs) + 1) // 2]
    shared = set.intersection(*(set(answers[run]) for run in strong)) if strong else set()
    samples = {task: [row for run in strong for row in answers[run][task]] for task in shared}
    against = sorted(
        task
        for task, of_task in samples.items()
        if len({repr(row.answer) for row in of_task}) == 1 and not any(row.passed for row in of_task)
    )
    if not against:
        return
    says = f"tasks where all of the {len(strong)} better runs give one answer, which is not the key"
    examples = [f"task {task!r}: {samples[task][0].answer!r:.40}" for task in against[:NAMED]]
    if len(strong) >= STRONG:
        yield Anomaly("strong_runs", IMPOSSIBLE, len(against), says, expected=0.01, examples=examples)
    else:
        yield Listed("strong_runs", len(against), len(shared), says, examples)


def _rejudged(path: str) -> Verdict:
    """Rewards that the run's own verifier does not give when it judges again."""
    from calipers.analyses.rescore import changed_verdicts

    _, changed = changed_verdicts(path)
    if not changed:
        return None
    count = sum(flip.count for flip in changed)
    examples = [f"task {task!r} sample {sample}" for flip in changed for task, sample in flip.which]
    says = "rewards that the run's own verifier does not give: " + ", ".join(f"{f.what} {f.count:,}" for f in changed)
    return Anomaly("rejudged", IMPOSSIBLE, count, says, expected=0.0, examples=examples[:NAMED])


def document(audit: Audit) -> Document:
    """The page of an audit."""
    return Document(partial(_blocks, audit), audit.to_dict, FIELDS, partial(rows, audit))


def rows(audit: Audit) -> list[dict[str, Any]]:
    """A flat row for each finding and each list."""
    empty = dict.fromkeys(FIELDS)
    flat = [{**empty, **asdict(finding)} for finding in audit.findings]
    flat += [{**empty, "kind": "list", **asdict(listed)} for listed in audit.lists]
    return [{**row, "examples": "; ".join(row["examples"])} for row in flat]


def _blocks(audit: Audit) -> Iterator[Block]:
    count = counted(audit.rollouts, "rollout")
    if audit.findings:
        yield Sentence(f"{count}: {counted(len(audit.findings), 'finding')}", "strong")
    else:
        yield Sentence(f"{count}: nothing found that an honest run does not show", "strong")
    if audit.findings:
        yield Blank()
        cells = [
            [found.rule, f"{found.count:,}", _expected(found.expected), _p(found.p), _text(found.says, found.examples)]
            for found in audit.findings
        ]
        yield plain_table(["finding", "count", "expected", "p", ""], cells, numbers={1, 2, 3}, strong={0})
    if audit.lists:
        yield Blank()
        yield Title("To look at, which proves nothing")
        cells = [
            [item.rule, f"{item.count:,}", f"{item.of:,}", _text(item.says, item.examples)] for item in audit.lists
        ]
        yield plain_table(["list", "count", "of", ""], cells, numbers={1, 2})
    yield Blank()
    if audit.tried:
        yield Sentence(f"Tried without a finding: {', '.join(audit.tried)}.", "note")
    for gap in audit.unknown:
        yield Sentence(f"Not known: {gap}.", "note")
    yield Sentence(
        "A retry on few tasks cannot be seen from outcomes; at most 5 % of honest runs have a finding.", "note"
    )


def _expected(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value % 1 else f"{value:.0f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _text(says: str, examples: Any) -> str:
    """The sentence of a finding or list, with its first examples."""
    shown = f" ({clean('; '.join(examples[:2]), 160)})" if examples else ""
    return clean(says, 300) + shown
