"""A run from its benchmark to its result.

::

    benchmark ──► tasks, shuffled ──► outstanding ──► loop ──► log ──► score ──► result.json
                        └── checked, named and hashed before the first call

`run` is ``calipers.run``, the command ``calipers run`` as a call, for one benchmark and one model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final, Unpack
from zlib import crc32

import msgspec

from calipers.clients import NONE_HERE, Client, Price, Request, connect, is_local
from calipers.clients.address import endpoint, remember_keys
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, LogError, SandboxError, UnknownName
from calipers.formats.run_folder import DOCUMENTS, MOST_PLANNED, PLAN, RunStop
from calipers.names import AGENT_RUNS, ENGINES, engine_of, load
from calipers.pipeline import score_plan
from calipers.remarks import Remark
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Result
from calipers.reports.untrusted_text import safe_json
from calipers.request import Plan, make_plan
from calipers.rollouts.record import FIRST_GAP, NOTHING_CAME, OUTCOMES, Stop
from calipers.running import OF_AGENTS, Job, RunSettings, provenance, selected
from calipers.running.folder import Folder, Past, find_folder, kept_batch
from calipers.running.library import (
    JobBenchmark,
    Loaded,
    MemoryBenchmark,
    code_of,
    library,
    loaded_for,
    with_own_numbers,
)
from calipers.running.library import Report as TaskReport
from calipers.running.loop import INTERRUPTED, MOST_ERRORS, Loop, RunLimits, Status, conduct
from calipers.running.rollout import Outstanding, notes_of
from calipers.running.settings import LISTS, job_in_memory, jobs_of, setting, suite_file
from calipers.running.watcher import Headline, Screen, Until, Watcher
from calipers.tasks import Suite, Task
from calipers.verifiers import NamedVerifier
from calipers.verifiers.reasoning import keeping, split_remarks
from calipers.verifiers.text import EXACT_MATCH, ExactMatchOfRun
from calipers.verifiers.user_code import judge_of, opened


def shuffled(tasks: Sequence[Task], seed: int) -> list[Task]:
    """The tasks in a random order that is the same every time.

    They are sorted by the hash of seed and id, so that neither the order of the file nor added tasks change which of
    two tasks comes first.
    """
    return sorted(tasks, key=lambda task: sha256(f"{seed}\0{task.id}".encode("utf-8", "surrogatepass")).digest())


def sample_seed(seed: int, task: str, sample: int) -> int:
    """The seed for one sample that is sent to the server: 31 bits, different for each sample.

    It is a checksum, which is fast; no order depends on it.

    >>> sample_seed(0, "t1", 0) != sample_seed(0, "t1", 1)
    True
    """
    return crc32(f"{seed}\0{task}\0{sample}".encode("utf-8", "surrogatepass")) >> 1


MOST_FAILURES = 3


def closing_notes(status: Status, job: Job, folder: Path, speakers: Sequence[object]) -> Iterator[str]:
    """The notes at the end of a run; ``speakers`` are its client and its verifiers."""
    yield from notes_of(speakers)
    yield from _failures(status)
    yield from _remedies(status, job, folder)
    if job.samples > 1 and job.temperature == 0:
        yield (
            f"{job.samples} samples at temperature 0 are usually the same answer, "
            "so pass@k adds little to pass@1; set --temperature above 0, or use one sample"
        )


def _failures(status: Status) -> Iterator[str]:
    """The most frequent errors, with their messages."""
    commonest = status.errors.most_common(MOST_FAILURES)
    for (outcome, message), count in commonest:
        yield f"{count} {outcome}: {message}"
    others = status.errors.total() - sum(count for _, count in commonest)
    if others:
        least = "at least " if len(status.errors) >= MOST_ERRORS else ""
        yield f"and {least}{others} more, each with its error in the log"


def _remedies(status: Status, job: Job, folder: Path) -> Iterator[str]:
    """Advice for missing rollouts: how to retry failed requests, and how to verify logged answers again."""
    if status.outcomes["client_failed"] and not job.model.startswith("replay/"):
        yield "resuming does not retry client_failed rollouts; --retry-failed does"
    if not job.from_library and any(status.outcomes[word] for word in ("judge_failed", "verifier_failed")):
        verifier_option = f" --verifier {code}" if (code := code_of(job)) is not None else ""
        command = f"calipers rescore {folder}{verifier_option}"
        yield f"answers without a verdict are kept: {command} verifies them again without calling the model"


GAPS = frozenset(OUTCOMES[FIRST_GAP:])

History = Mapping[tuple[str, int], Past]


def request_for(job: Job, rollout: Outstanding) -> Request:
    """The request to the model for a rollout."""
    task = rollout.task
    prompt = task.prompt
    return Request(
        task.id,
        rollout.sample,
        job.user_template.replace("{prompt}", prompt) if isinstance(prompt, str) else prompt,
        job.system_prompt,
        job.max_tokens,
        job.temperature,
        job.stop,
        sample_seed(job.seed, task.id, rollout.sample),
        job.gen_kwargs,
    )


def outstanding(order: Sequence[Task], history: History, job: Job) -> Iterator[Outstanding]:
    """The outstanding rollouts: those that are not in the log, and its missing ones if the job retries them."""
    for position, task in enumerate(order):
        for sample in range(job.samples):
            past = history.get((task.id, sample))
            if past is None:
                yield Outstanding(position, task, sample)
            elif job.retry_failed and past.outcome in GAPS:
                yield Outstanding(position, task, sample, past.attempt + 1)


def begun(order: Sequence[Task], history: History, samples: int) -> int:
    """The number of tasks that earlier starts had begun: up to the last task whose last sample is in the log."""
    last = samples - 1
    return max((position + 1 for position, task in enumerate(order) if (task.id, last) in history), default=0)


def past_of(history: History, order: Sequence[Task], job: Job, watcher: Watcher) -> Status:
    """The progress of a resumed run before it continues."""
    status = Status(planned=len(order) * job.samples)
    for position, task in enumerate(order) if history else ():
        for sample in range(job.samples):
            past = history.get((task.id, sample))
            if past is not None and not (job.retry_failed and past.outcome in GAPS):
                status.outcomes[past.outcome] += 1
                status.completions += past.outcome not in NOTHING_CAME
                status.splits.update([past.marker] if past.marker else [])
                watcher.settled(position, sample, past.outcome, past.reward)
    return status


RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run."""

    job: Job
    folder: Path
    scoring: Plan
    result: Result
    stopped: str  # the reason why it ended early; "" if it did not
    by_rule: bool  # --until has ended it
    notes: tuple[str, ...]
    part: TaskReport | None = None  # the task library's own report
    remarks: tuple[Remark, ...] = ()  # those of its notes that are remarks

    @property
    def interrupted(self) -> bool:
        """Whether SIGINT (Ctrl-C) or SIGTERM has ended it."""
        return self.stopped == INTERRUPTED

    @property
    def complete(self) -> bool:
        """Whether the run is complete: every planned rollout has a number, or its stopping rule ended it.

        Without verification, an answer is enough.
        """
        if self.by_rule:
            return True
        if self.job.from_library and self.part is None:
            return False  # the library's own numbers were requested, and there are none
        ledgers = [group.ledger for group in self.result.groups]
        answered = sum(ledger.outcomes.get("missing", 0) for ledger in ledgers) if self.job.predict_only else 0
        return not self.stopped and sum(ledger.gaps for ledger in ledgers) == answered


def perform(
    job: Job,
    screen: Screen | None = None,
    tell: Callable[[str], None] | None = None,
    tasks: Loaded | None = None,
    benchmark: JobBenchmark | None = None,
) -> Report:
    """Run a job, or resume it, and score its log.

    ``tell`` is called with notes for the user before the first request; without it, these are among the report's notes.
    ``tasks`` are tasks that earlier jobs have loaded; None if there are none. ``benchmark`` is a benchmark in memory.

    InputError, before the first request, for settings that cannot work; SandboxError if a verifier needs a sandbox and
    there is none; ClientError if the first request shows that no other can succeed.
    """
    engine = engine_of(job.location("engine"), job.engine)
    if engine is not None and benchmark is not None:
        expected = "write it to a file that every machine can read"
        raise InputError.at(job.location("engine"), "a benchmark in memory stays in this process", expected)
    benchmark = benchmark or JobBenchmark.of(job, tasks)
    suite = benchmark.suite
    questions = _questions(job, suite)
    if not questions:
        raise InputError.at(job.benchmark, "no tasks", "expected at least one")
    scoring, until = _scoring_and_rule(job, suite)
    verifiers, warnings = _judges(questions, benchmark.verifiers, scoring.dialect.lenient, suite.places)
    secrets = Secrets()
    secrets.add_named(job.gen_kwargs)
    remember_keys(job.base_url or "", secrets)
    judges = {
        name: ExactMatchOfRun() if judge is EXACT_MATCH else opened(judge, secrets) for name, judge in verifiers.items()
    }
    connection = benchmark.connection(secrets)
    model = connect(job.model, connection)
    client = benchmark.client(model)
    order = shuffled(questions, job.seed)
    source = endpoint(job.model, job.base_url, job.model_args)
    identity, path, opening_notes = _run_folder(
        job, provenance.identity(job, suite, source, _judged_at(questions, verifiers), benchmark.code), secrets
    )
    benchmark.check_folder(path)
    opening_notes = [*suite.opening, *opening_notes]
    if tell is not None:  # before the first request, because a new run repeats the costs of an old one
        for note in opening_notes:
            tell(secrets.scrub(note))
        opening_notes = []
    plan = provenance.plan(job, suite, order, source, _batch_plan(model, path))
    execution = nullcontext((client, judges, job.in_flight))
    if engine is not None:
        execution = load(ENGINES[engine[0]])(job, engine[1], questions, client, judges)
    with (
        execution as (client, judges, in_flight),
        Folder.open(path, identity, plan, secrets.scrub_bytes, job.same_model) as folder,
    ):
        order.sort(key=lambda task: folder.position[task.id])  # tasks that were planned before come first

        def reached(stop: Stop) -> None:
            with suppress(LogError):  # a full disk is reported at the end of the run
                _keep(folder, stop, status)

        watcher = Watcher(_headline(scoring, until, order, job), until, screen, reached)
        status = past_of(folder.history, order, job, watcher)
        loop = Loop(
            client,
            judges,
            partial(request_for, job),
            folder.log,
            dataset=suite.name,
            model=job.model,
            status=status,
            observer=watcher,
            limits=RunLimits(in_flight, job.retries, job.max_cost, job.max_time),
            endpoint=source,
            callers=connection.callers,
        )
        logged = status.done
        status.stopped = watcher.look(status)  # rollouts of earlier starts may have reached the rule
        begun_before = begun(order, folder.history, job.samples)
        # if the rule is reached, no task is begun; only tasks that a killed start had begun are completed
        remaining = outstanding(order[:begun_before] if status.stopped else order, folder.history, job)
        if not status.stopped and (first_rollout := next(remaining, None)) is not None:
            folder.continues()
            remaining = chain([first_rollout], remaining)
        try:
            conduct(loop, client, folder.log, remaining, judges.values())
        except (SandboxError, ClientError) as error:  # no request was made, or the first one failed
            folder.stays()
            folder.abandon()
            if isinstance(error, ClientError):
                raise _first_call_failed(job.model, error) from None
            raise
        if status.done == status.planned and status.stopped != INTERRUPTED:
            status.stopped = ""  # the last rollout has reached the limit
        watcher.last(status)
        stop = watcher.stop
        if stop is not None and watcher.headline is not None:
            finished = watcher.headline.settled_all(max(begun_before, loop.begun))
            _keep(folder, stop, status, finished=finished)
        result, part, report_notes = _scored(folder, benchmark, scoring)
    remarks = [*split_remarks(status.splits, status.completions)]
    notes = (
        *opening_notes,
        *suite.notes,
        *warnings,
        *folder.notes,
        *([f"{status.done - logged:,} requested, {logged:,} read from the log"] if logged else []),
        *map(text_of, remarks),
        *closing_notes(status, job, path, [client, *judges.values()]),
        *report_notes,
    )
    scrubbed = tuple(map(secrets.scrub, notes))
    return Report(job, path, scoring, result, status.stopped, stop is not None, scrubbed, part, tuple(remarks))


def _scoring_and_rule(job: Job, suite: Suite) -> tuple[Plan, Until | None]:
    """The scoring settings of a job, checked for its suite and with the metric of its stopping rule; and the rule."""
    scoring = _scoring(job)
    for name in (scoring.reward, *(request.params.get("reward") for request in scoring.requests)):
        if name and suite.rewards and name not in suite.rewards:
            raise UnknownName.of(f"reward of {suite.name}", name, suite.rewards)
    until = Until.of(job.until, scoring) if job.until else None
    if until and until.request.text not in [request.text for request in scoring.requests]:
        scoring = replace(scoring, requests=[*scoring.requests, until.request])
    return scoring, until


def _scored(folder: Folder, benchmark: JobBenchmark, scoring: Plan) -> tuple[Result, TaskReport | None, Sequence[str]]:
    """Score the log of a run and write the result; also the task library's own report, and notes on it."""
    result = score_plan([str(folder.path)], scoring)
    part, notes = benchmark.report(folder.path)
    if part is not None and not benchmark.job.predict_only:
        folder.write(DOCUMENTS, library().documents(part, folder.path))
    result = with_own_numbers(result, [part])
    folder.write("result.json", safe_json(result.to_json()).encode())
    return result, part, notes


def rehearse(job: Job, tasks: Loaded | None = None) -> tuple[Suite, list[Task]]:
    """The benchmark of a job and the tasks that it would run, checked as in `perform`; no request is made."""
    benchmark = JobBenchmark.of(job, tasks)
    questions = _questions(job, benchmark.suite)
    _judges(questions, benchmark.verifiers, _scoring(job).dialect.lenient, benchmark.suite.places)
    return benchmark.suite, questions


def _questions(job: Job, suite: Suite) -> list[Task]:
    """The tasks that a job runs, in the order of their file; InputError if no reader would accept its plan."""
    tasks = [_as_verified(task, job) for task in selected(suite.tasks, job)]
    if (planned := len(tasks) * job.samples) > MOST_PLANNED:
        problem = f"{planned:,} rollouts would be planned"
        raise InputError.at(job.location("samples"), problem, f"expected at most {MOST_PLANNED:,}")
    return tasks


def _as_verified(task: Task, job: Job) -> Task:
    """A task of the suite as the job verifies it: not at all, the whole completion, or the answer alone."""
    if job.predict_only:
        return replace(task, verifier=None)
    return task if job.splits_reasoning else keeping(task)


def _batch_plan(model: Client, folder: Path) -> Mapping[str, Any] | None:
    """The batch plan of a local model: that of the run in the folder, else for this device; None for other models."""
    plan = getattr(model, "batch_plan", None)
    batch: Mapping[str, Any] | None = None if plan is None else plan(kept_batch(folder), str(folder / PLAN))
    return batch


def _first_call_failed(model: str, error: ClientError) -> ClientError:
    """The error of the first request, with advice."""
    connection = "" if is_local(model) else " --base-url, the key, and"
    advice = f"no other request was sent; check{connection} the model's name"
    if error.kind == NONE_HERE:
        advice = "no request was sent; use a server that returns prompt logprobs, or hf/PATH"
    return ClientError(f"{model}: {error}; {advice}", kind=error.kind, hopeless=True)


def _keep(folder: Folder, stop: Stop, status: Status, *, finished: bool = False) -> None:
    """Write a stop into the run's folder: when the rule is reached, and again when rollouts in flight have ended."""
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


def _run_folder(job: Job, identity: Mapping[str, Any], secrets: Secrets) -> tuple[dict[str, Any], Path, list[str]]:
    """The identity of a run without secrets, its folder, and a note why that is new if there are similar runs."""
    scrubbed: dict[str, Any] = msgspec.json.decode(secrets.scrub_bytes(msgspec.json.encode(identity)))
    if job.out and not job.among:
        return scrubbed, job.out, []
    return scrubbed, *find_folder(job.out or RUNS, scrubbed, job.same_model)


def together(reports: Sequence[Report]) -> list[Result]:
    """The results of several runs: runs with the same scoring settings share one result, and so a table."""
    if len(reports) == 1:
        return [reports[0].result]
    alike: list[tuple[Plan, list[Report]]] = []
    for report in reports:
        group = next((group for plan, group in alike if plan == report.scoring), None)
        if group is None:
            alike.append((report.scoring, group := []))
        group.append(report)
    return [
        with_own_numbers(score_plan([str(member.folder) for member in group], plan), [member.part for member in group])
        for plan, group in alike
    ]


def _scoring(job: Job) -> Plan:
    plan = make_plan(
        job.metrics or None,
        by=job.by,
        cluster=job.cluster,
        dialect=job.dialect,
        missing=job.missing,
        reward=job.reward,
        threshold=job.threshold,
        confidence=job.confidence,
        seed=job.seed,
        interval=job.interval,
    )
    return replace(plan, requests=()) if job.predict_only else plan  # answers that are not verified have no metrics


def _judges(
    tasks: Sequence[Task], own_verifiers: Mapping[str, NamedVerifier], lenient: bool, places: Mapping[str, str]
) -> tuple[Mapping[str, NamedVerifier], list[str]]:
    """The verifiers that the tasks name, and warnings about tasks that they reject.

    A rejected task is an InputError, so that it is found before the first request; a ``lenient`` dialect verifies it
    anyway, with a warning.
    """
    judges: dict[str, NamedVerifier] = {}
    for task in tasks:
        if task.verifier is not None and task.verifier not in judges:
            judges[task.verifier] = own_verifiers.get(task.verifier) or judge_of(task)
    warnings = []
    for task in tasks:
        if task.verifier is not None:
            try:
                judges[task.verifier].check(task)
            except InputError as error:
                if not lenient:
                    raise InputError(f"{places[task.id]}: {error}") if task.id in places else error from None
                warnings.append(str(error))
    return judges, [*warnings[:3], *([f"and {len(warnings) - 3} more tasks like these"] if len(warnings) > 3 else [])]


def _judged_at(tasks: Sequence[Task], judges: Mapping[str, NamedVerifier]) -> dict[str, str]:
    """The endpoints of the judge models of these tasks, if only the environment determines them."""
    endpoints: dict[str, str] = {}
    for task in tasks:
        endpoints_of = getattr(judges.get(task.verifier or ""), "endpoints", None)
        endpoints |= endpoints_of(task) if endpoints_of is not None else {}
    return dict(sorted(endpoints.items()))


def _headline(scoring: Plan, until: Until | None, order: Sequence[Task], job: Job) -> Headline | None:
    request = until.request if until else next(iter(scoring.requests), None)
    if request is None or job.predict_only:
        return None
    return Headline(request, len(order), job.samples, scoring.confidence, scoring.missing)


ALIKE: Final = (
    *("metrics", "dialect", "by", "cluster", "reward", "threshold"),
    *("missing", "interval", "confidence", "seed", "until"),
)
"""The settings that runs must have in common to share a result."""


def run(benchmark: str | Path | MemoryBenchmark, model: str | None = None, **settings: Unpack[RunSettings]) -> Result:
    """Run a benchmark against a model, or resume the run, and score it: ``calipers run`` from Python.

    ``benchmark`` is what the command accepts: a table of questions (with ``prompt="question"`` and so on), a folder, a
    name in the store, a YAML file, a task file of lm-evaluation-harness, or with ``include_path`` the name of a task,
    group or tag; with several tasks the result has one group per task. For an agent it is a directory of Harbor tasks.
    It may also be a `Benchmark` in memory, such as one from `Benchmark.from_table`. ``settings`` are the command's
    options by name: ``samples=4``, ``base_url=...``, ``metrics=["pass@3"]``, ``trust=True``; None means not given.
    Missing rollouts are not an error: the ledger of the result lists them. It also works inside a running event loop,
    as in a notebook.
    """
    if model is not None and not isinstance(model, str):
        expected = "expected a model name such as 'openai/gpt-x'; for your own code, 'python/FILE.py:OBJECT'"
        raise InputError.at("model", f"is {type(model).__name__}", expected)
    given = {**({} if model is None else {"model": (model,)}), **_given(settings)}
    if not isinstance(benchmark, (str, os.PathLike)):
        if not hasattr(benchmark, "tasks"):
            expected = "expected a path, a name, or a Benchmark: Benchmark.from_table(frame, prompt=...) makes one"
            raise InputError.at("benchmark", f"is {type(benchmark).__name__}", expected)
        job = job_in_memory(benchmark.name, given)
        return _with_remarks([perform(job, benchmark=JobBenchmark.in_memory(job, benchmark))])
    if by_agents([str(benchmark)], given):
        return _run_agent(str(benchmark), given)
    jobs, _ = jobs_of([str(benchmark)], given)
    for name in ALIKE:
        if len({repr(getattr(job, name)) for job in jobs}) > 1:
            problem = f"its runs differ in {name}, so they have no common result"
            raise InputError.at(str(benchmark), problem, "evaluate the parts separately")
    tasks = loaded_for(jobs)
    reports = list[Report]()
    for job in jobs:
        if reports and reports[-1].interrupted:
            raise KeyboardInterrupt  # a result without the other runs would look like the result of all runs
        reports.append(perform(job, tasks=tasks))
    result = _with_remarks(reports)
    suite = suite_file([str(benchmark)])
    if suite is not None and suite.gate is not None:
        unchecked = f"{suite.path}: its gate was not checked; the command calipers run does, and calipers.gate"
        result = replace(result, notes=[*result.notes, unchecked])
    return result


def _with_remarks(reports: Sequence[Report]) -> Result:
    """The result that several runs share, with the remarks on each of them."""
    [result] = together(reports)
    notes = list(result.notes)
    for report in reports:
        notes += map(text_of, report.remarks)
    return replace(result, notes=notes)


def evaluate(benchmark: str | Path | MemoryBenchmark, model: str, **settings: Unpack[RunSettings]) -> Result:
    """The same as `run`, by its older name."""
    return run(benchmark, model, **settings)


def by_agents(benchmarks: Sequence[str], given: Mapping[str, Any]) -> bool:
    """Whether agents run these benchmarks: an agent is named, or all benchmarks are directories of agents' tasks."""
    # a dataset for agents is a directory or a name in a registry, so files need no check by other systems
    files = bool(benchmarks) and all(map(os.path.isfile, benchmarks))
    wanted: bool = not (files and given.get("agent") is None) and load(AGENT_RUNS).wanted(benchmarks, given)
    return wanted


def _run_agent(benchmark: str, given: Mapping[str, Any]) -> Result:
    """Run an agent on a dataset, and score it."""
    notes: list[str] = []
    [report] = load(AGENT_RUNS).run([benchmark], given, lambda: nullcontext(lambda done, total: None), notes.append)
    result: Result = report.result
    return replace(result, notes=[*notes, *result.notes])


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword settings in the form of command-line options: lists for settings with several values, text for paths."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in RunSettings.__annotations__:
            raise UnknownName.of("setting of a run", name, RunSettings.__annotations__)
        if value is None:
            continue
        if name in LISTS:
            items = value if isinstance(value, (list, tuple)) else [value]
            if name == "metrics" and not all(isinstance(item, (str, Mapping)) for item in items):
                expected = "name it as 'my.py:worst', or score the run's folder: calipers.score(folder, [metric])"
                raise InputError.at("metrics", "a run's plan holds names of metrics, and no objects", expected)
            texts = [str(item) if isinstance(item, Path) else item for item in items]
            value = tuple(texts) if name == "metrics" else setting(name, name, texts)
        elif name == "gen_kwargs" and not isinstance(value, str):
            value = _json(value)
        elif isinstance(value, Price):
            value = (value.input, value.output)
        elif name in OF_AGENTS:
            value = str(value)
        elif name not in ("price", "fewshot_seed"):  # these are checked together with command-line options
            value = setting(name, name, str(value) if isinstance(value, Path) else value)
        values[name] = value
    return values


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(dict(value)).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InputError.at(
            "gen_kwargs", f"is {value!r} ({error})", "expected a mapping such as {'top_p': 0.9}"
        ) from None
