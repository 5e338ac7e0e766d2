"""What a run still owes, and how it asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calipers.jobs.job import Job
from calipers.jobs.observe import Watcher
from calipers.rollouts.record import FIRST_GAP, OUTCOMES
from calipers.run.client import Request
from calipers.run.history import Past
from calipers.run.loop import Status
from calipers.run.order import sample_seed
from calipers.run.rollout import Owed
from calipers.tasks.task import Task

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
