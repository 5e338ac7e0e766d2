"""What is said when a run is over: what went wrong most often, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from calipers.jobs.job import Job
from calipers.run.loop import MOST_ERRORS, Status

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
