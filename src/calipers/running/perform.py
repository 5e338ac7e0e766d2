"""A run from its benchmark to its result.

::

    benchmark ──► tasks, shuffled ──► what is owed ──► loop ──► log ──► score ──► result.json
                        └── checked, named and hashed before the first call
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from calipers.clients.address import endpoint
from calipers.clients.client import Client, Connection, Request
from calipers.clients.likelihood import NONE_HERE
from calipers.clients.models import connect
from calipers.clients.secrets import Secrets
from calipers.errors import CalipersError, ClientError, InputError, LogError, SandboxError
from calipers.formats.run_plan import DOCUMENTS, RunStop
from calipers.pipeline import score_plan
from calipers.reports.result import Result
from calipers.reports.untrusted_text import safe_json
from calipers.request import Plan, make_plan
from calipers.rollouts.record import FIRST_GAP, OUTCOMES
from calipers.rollouts.stop import Stop
from calipers.running import provenance
from calipers.running.event_loop import conduct
from calipers.running.folder import Folder, Past
from calipers.running.job import Job, first
from calipers.running.library import Loaded, check_apart, library
from calipers.running.library import Report as TaskReport
from calipers.running.loop import MOST_ERRORS, Limits, Loop, Status
from calipers.running.resume import find_folder
from calipers.running.rollout import Owed
from calipers.running.watcher import Headline, Screen, Until, Watcher
from calipers.tasks.store import load_suite
from calipers.tasks.task import Suite, Task
from calipers.verifiers.find import NamedVerifier, judge_of, opened


def shuffled(tasks: Sequence[Task], seed: int) -> list[Task]:
    """The tasks in an order that is random and always the same.

    By the hash of seed and id, so that neither the order of the file nor a task that is added later
    changes which of two tasks comes first.
    """
    return sorted(tasks, key=lambda task: _digest(seed, task.id))


def sample_seed(seed: int, task: str, sample: int) -> int:
    """The seed that a server is given for one sample: 31 bits, another one for each sample.

    A checksum is enough, as nobody's order depends on it, and is cheap beside a call.

    >>> sample_seed(0, "t1", 0) != sample_seed(0, "t1", 1)
    True
    """
    return crc32(f"{seed}\0{task}\0{sample}".encode("utf-8", "surrogatepass")) >> 1


def _digest(seed: int, text: str) -> bytes:
    return sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()


MOST_FAILURES = 3


def last_words(status: Status, job: Job, folder: Path, speakers: Sequence[object]) -> Iterator[str]:
    """Everything to be said of a run that is over; the speakers are its client and its verifiers."""
    yield from _notes(speakers)
    yield from _failures(status)
    yield from _remedies(status, job, folder)
    yield from _advice(job)


def _failures(status: Status) -> Iterator[str]:
    """What went wrong most often, in its own words."""
    told = status.errors.most_common(MOST_FAILURES)
    for (outcome, said), count in told:
        yield f"{count} {outcome}: {said}"
    others = status.errors.total() - sum(count for _, count in told)
    if others:
        least = "at least " if len(status.errors) >= MOST_ERRORS else ""
        yield f"and {least}{others} more, each with its error in the log"


def _remedies(status: Status, job: Job, folder: Path) -> Iterator[str]:
    """What to do about gaps: the same command leaves them, and an answer that only lacks a judge is paid for."""
    if status.outcomes["client_failed"] and not job.model.startswith("replay/"):
        yield "client_failed stays as it is when the same command goes on; --retry-failed asks again"
    if job.lm_eval is None and any(status.outcomes[word] for word in ("judge_failed", "verifier_failed")):
        yield f"answers without a verdict are kept: calipers rescore {folder} judges them again, without the model"


def _notes(speakers: Sequence[object]) -> Iterator[str]:
    """What client and verifiers have to say when all is over, such as that a server accepts no seed."""
    for speaker in speakers:
        yield from getattr(speaker, "notes", ())


def _advice(job: Job) -> Iterator[str]:
    if job.samples > 1 and job.temperature == 0:
        yield (
            f"{job.samples} samples at temperature 0 are mostly one answer repeated, "
            "and pass@k then says little more than pass@1; set --temperature, or take one sample"
        )


GAPS = frozenset(OUTCOMES[FIRST_GAP:])

History = Mapping[tuple[str, int], Past]


class Asker:
    """Turns what is owed into a request."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, owed: Owed) -> Request:
        """The request for a rollout."""
        job, task = self._job, owed.task
        prompt = task.prompt
        return Request(
            task.id,
            owed.sample,
            job.user_template.replace("{prompt}", prompt) if isinstance(prompt, str) else prompt,
            job.system_prompt,
            job.max_tokens,
            job.temperature,
            job.stop,
            sample_seed(job.seed, task.id, owed.sample),
            job.gen_kwargs,
        )


def owed(order: Sequence[Task], history: History, job: Job) -> Iterator[Owed]:
    """What is still to be made: all that is not in the log, and the gaps in it if they are to be tried again."""
    for position, task in enumerate(order):
        for sample in range(job.samples):
            past = history.get((task.id, sample))
            if past is None:
                yield Owed(position, task, sample)
            elif job.retry_failed and past.outcome in GAPS:
                yield Owed(position, task, sample, past.attempt + 1)


def begun(order: Sequence[Task], history: History, samples: int) -> int:
    """How many tasks of the planned order earlier starts had begun, up to the last one whose last sample they made."""
    last = samples - 1
    return max((place + 1 for place, task in enumerate(order) if (task.id, last) in history), default=0)


def past_of(history: History, order: Sequence[Task], job: Job, watcher: Watcher) -> Status:
    """Where a run that goes on stands before it does."""
    status = Status(planned=len(order) * job.samples)
    for position, task in enumerate(order) if history else ():
        for sample in range(job.samples):
            past = history.get((task.id, sample))
            if past is not None and not (job.retry_failed and past.outcome in GAPS):
                status.outcomes[past.outcome] += 1
                watcher.settled(position, sample, past.outcome, past.reward)
    return status


RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Report:
    """What a run left behind."""

    job: Job
    folder: Path
    scoring: Plan
    result: Result
    stopped: str  # why it ended before everything was done; "" when it did not
    by_rule: bool  # it was --until that ended it
    notes: tuple[str, ...]
    part: TaskReport | None = None  # what a task of lm-evaluation-harness comes to in its own terms

    @property
    def complete(self) -> bool:
        """Whether it did what it was asked to: every planned rollout has a number, or its rule ended it.

        Where nothing is to be judged, an answer is all that is asked.
        """
        if self.by_rule:
            return True
        if self.job.lm_eval is not None and self.part is None:
            return False  # its own numbers are what was asked for
        ledgers = [group.ledger for group in self.result.groups]
        answered = sum(one.outcomes.get("missing", 0) for one in ledgers) if self.job.predict_only else 0
        return not self.stopped and sum(one.gaps for one in ledgers) == answered


def perform(
    job: Job,
    screen: Screen | None = None,
    tell: Callable[[str], None] | None = None,
    tasks: Loaded | None = None,
) -> Report:
    """Run a job, or go on with it, and score what is there.

    ``tell`` is called with what somebody should know before the first call; else it stands among the notes.
    ``tasks`` are those that jobs before this one have loaded; None: this one is alone.

    InputError, before the first call, for whatever cannot work, and SandboxError where a verifier needs a sandbox and
    there is none; ClientError when the first call says that no other would fare better.
    """
    suite, own, tasks = _suite(job, tasks)
    taken = suite.tasks[: first(len(suite.tasks), job.limit)]
    questions = [replace(task, verifier=None) if job.predict_only else task for task in taken]
    if not questions:
        raise InputError.at(job.benchmark, "no tasks", "expected at least one")
    scoring = _scoring(job)
    until = Until.of(job.until, scoring) if job.until else None
    if until and until.asked.text not in [one.text for one in scoring.asked]:
        scoring = replace(scoring, asked=[*scoring.asked, until.asked])
    named, doubts = _judges(questions, own, lenient=scoring.dialect.name == "evsys")
    secrets = Secrets()
    secrets.add_named(job.gen_kwargs)
    judges = {name: opened(judge, secrets) for name, judge in named.items()}
    connection = Connection(job.base_url, job.api, job.timeout, job.concurrency, job.price, secrets, _template(job))
    client = _client(job, suite, connection)
    order = shuffled(questions, job.seed)
    source = endpoint(job.model, job.base_url)
    identity, path, begins = _place(job, provenance.identity(job, suite, source, _judged_at(questions, named)), secrets)
    _check_documents(path, suite)
    if tell is not None:  # before the first call: a new run costs what the old one has paid for
        for note in begins:
            tell(secrets.scrub(note))
        begins = []
    plan = provenance.plan(job, suite, order, source)
    with Folder.open(path, identity, plan, secrets.scrub_bytes, job.same_model) as folder:
        order.sort(key=lambda task: folder.place[task.id])  # what was planned before is done first

        def reached(stop: Stop) -> None:
            with suppress(LogError):  # a full disk is told when the run ends
                _keep(folder, stop, status)

        watcher = Watcher(_headline(scoring, until, order, job), until, screen, reached)
        status = past_of(folder.history, order, job, watcher)
        loop = Loop(
            client,
            judges,
            Asker(job),
            folder.log,
            dataset=suite.name,
            model=job.model,
            status=status,
            observer=watcher,
            limits=Limits(job.concurrency, job.retries, job.max_cost, job.max_time),
            endpoint=source,
        )
        logged = status.done
        status.stopped = watcher.look(status)  # it may be sure enough by what an earlier start did
        before = begun(order, folder.history, job.samples)
        # a run that is sure enough begins no task; of those that a killed start had begun it makes what is owed
        rest = owed(order[:before] if status.stopped else order, folder.history, job)
        if not status.stopped and (first_owed := next(rest, None)) is not None:
            folder.continues()
            rest = chain([first_owed], rest)
        try:
            conduct(loop, client, folder.log, rest, judges.values())
        except SandboxError:  # nothing was asked, as nothing could be judged
            folder.stays()
            folder.abandon()
            raise
        except ClientError as error:  # the very first call says that no other would fare better
            folder.stays()
            folder.abandon()
            where = "" if job.model.startswith("hf/") else " --base-url, the key, and"
            advice = f"no other call was sent: check{where} the model's name"
            if error.kind == NONE_HERE:
                advice = "nothing was asked: use a server that returns prompt logprobs, or hf/PATH"
            raise ClientError(f"{job.model}: {error}; {advice}", kind=error.kind, hopeless=True) from None
        watcher.last(status)
        stop = watcher.stop
        if stop is not None and watcher.headline is not None:
            finished = watcher.headline.settled_all(max(before, loop.begun))
            _keep(folder, stop, status, finished=finished)
        result = score_plan([str(path)], scoring)
        part, said = _part(job, path, tasks)
        _keep_documents(part, folder)
        result = _with_parts(result, [part])
        folder.write("result.json", safe_json(result.to_json()).encode())
    notes = (
        *begins,
        *suite.notes,
        *doubts,
        *folder.notes,
        *([f"{status.done - logged:,} requested, {logged:,} from the log"] if logged else []),
        *last_words(status, job, path, [client, *judges.values()]),
        *said,
    )
    told = tuple(map(secrets.scrub, notes))
    return Report(job, path, scoring, result, status.stopped, stop is not None, told, part)


def _keep(folder: Folder, stop: Stop, status: Status, *, finished: bool = False) -> None:
    """Write a stop into the run's folder: when the rule is reached, and again when what was in flight has ended."""
    folder.stopped(
        RunStop(
            rule=stop.rule,
            metric=stop.metric,
            side=stop.side,
            tasks=stop.tasks or 0,
            planned_tasks=stop.planned_tasks or 0,
            rollouts=status.done,
            stopped_at=datetime.now(UTC).isoformat(timespec="seconds"),
            finished=finished,
        )
    )


def _place(job: Job, identity: Mapping[str, Any], secrets: Secrets) -> tuple[dict[str, Any], Path, list[str]]:
    """The identity of a run without secrets, its folder, and why that is a new one where there are others like it."""
    asked: dict[str, Any] = msgspec.json.decode(secrets.scrub_bytes(msgspec.json.encode(identity)))
    if job.out and not job.among:
        return asked, job.out, []
    return asked, *find_folder(job.out or RUNS, asked, job.same_model)


def together(reports: Sequence[Report]) -> list[Result]:
    """The results of several runs: one for all that are scored alike, so that they share a table."""
    if len(reports) == 1:
        return [reports[0].result]
    alike: list[tuple[Plan, list[Report]]] = []
    for report in reports:
        held = next((held for plan, held in alike if plan == report.scoring), None)
        if held is None:
            alike.append((report.scoring, held := []))
        held.append(report)
    return [
        _with_parts(score_plan([str(one.folder) for one in held], plan), [one.part for one in held])
        for plan, held in alike
    ]


def _part(job: Job, folder: Path, tasks: Loaded | None) -> tuple[TaskReport | None, list[str]]:
    """A run in lm-evaluation-harness' terms where it is of one of its tasks; and a note where it has no numbers."""
    if job.lm_eval is None:
        return None, []
    try:
        return library().report(job, folder, tasks), []
    except CalipersError as error:
        return None, [f"lm-evaluation-harness' own numbers: {error}"]


def _keep_documents(part: TaskReport | None, folder: Folder) -> None:
    """Write what each document of one of lm-evaluation-harness' tasks keeps for its numbers."""
    if part is not None and not part.job.predict_only:
        folder.write(DOCUMENTS, library().documents(part, folder.path))


def _with_parts(result: Result, parts: Sequence[TaskReport | None]) -> Result:
    """A result with every number that lm-evaluation-harness' table of these runs has."""
    held = [part for part in parts if part is not None]
    if not held:
        return result
    tasks = library()
    return replace(result, own={tasks.name: [report.document() for report in tasks.joined(held)]})


def _scoring(job: Job) -> Plan:
    plan = make_plan(
        job.metrics or None,
        by=job.by,
        cluster=job.cluster,
        dialect=job.dialect,
        missing=job.missing,
        reward=job.reward,
        confidence=job.confidence,
        seed=job.seed,
        interval=job.interval,
    )
    return replace(plan, asked=()) if job.predict_only else plan  # an answer that nobody judged is worth nothing yet


def _suite(job: Job, tasks: Loaded | None) -> tuple[Suite, Mapping[str, NamedVerifier], Loaded | None]:
    """The benchmark, the verifiers that it brings itself, and the tasks that are loaded by now."""
    if job.lm_eval is None:
        check_apart(job)
        return load_suite(job.benchmark), {}, tasks
    tasks = tasks or library().loaded()
    return *library().suite(job, tasks), tasks


def _check_documents(path: Path, suite: Suite) -> None:
    """Refuse to go on with a task of lm-evaluation-harness whose documents have changed."""
    if "lm_eval" in suite.metadata:
        library().check_documents(path, suite)


def _client(job: Job, suite: Suite, connection: Connection) -> Client:
    """The model, as the benchmark asks it: for answers, or for the likelihoods of texts."""
    client = connect(job.model, connection)
    return client if job.lm_eval is None else library().client(client, job, suite)


def _judges(
    tasks: Sequence[Task], own: Mapping[str, NamedVerifier], lenient: bool
) -> tuple[Mapping[str, NamedVerifier], list[str]]:
    """Every verifier the tasks name, and doubts about what they are to judge.

    A task that can never be judged is an InputError, here and not after the first call; EvSys judges
    it all the same, so in its dialect it is a doubt.
    """
    judges: dict[str, NamedVerifier] = {}
    for task in tasks:
        if task.verifier is not None and task.verifier not in judges:
            judges[task.verifier] = own.get(task.verifier) or judge_of(task)
    doubts = []
    for task in tasks:
        if task.verifier is not None:
            try:
                judges[task.verifier].check(task)
            except InputError as error:
                if not lenient:
                    raise
                doubts.append(str(error))
    return judges, [*doubts[:3], *([f"and {len(doubts) - 3} more tasks like these"] if len(doubts) > 3 else [])]


def _judged_at(tasks: Sequence[Task], judges: Mapping[str, NamedVerifier]) -> dict[str, str]:
    """The models that judge these tasks and where they are, as far as the environment alone says that."""
    found: dict[str, str] = {}
    for task in tasks:
        where = getattr(judges.get(task.verifier or ""), "endpoints", None)
        found |= where(task) if where is not None else {}
    return dict(sorted(found.items()))


def _headline(scoring: Plan, until: Until | None, order: Sequence[Task], job: Job) -> Headline | None:
    asked = until.asked if until else next(iter(scoring.asked), None)
    if asked is None or job.predict_only:
        return None
    return Headline(asked, len(order), job.samples, scoring.confidence, scoring.missing)


def _template(job: Job) -> str | None:
    return library().template(job) if job.lm_eval is not None else None
