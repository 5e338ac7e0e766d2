"""One answer before its judge. Whatever the judge does, it is about this one rollout and never about the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from calipers.errors import VerifierError
from calipers.regexes import RegexTimeout
from calipers.run.client import Completion
from calipers.run.rollout import checked
from calipers.run.verifier import Verdict, Verifier
from calipers.tasks.task import Task

LONGEST = 500
"""Characters of an error that somebody else worded."""


async def judged(verifier: Verifier, task: Task, completion: Completion) -> Verdict:
    """The verdict, as a log can hold it; VerifierError where there is none, whatever else was raised instead."""
    return await given(verifier, task, completion, checked)


async def given(
    verifier: Verifier, task: Task, completion: Completion, check: Callable[[Verdict], Verdict] | None = None
) -> Verdict:
    """The verdict as it was given, or as a ``check`` of it returns it; else as `judged`."""
    try:
        verdict = await verifier.verify(task, completion)
        return verdict if check is None else check(verdict)
    except VerifierError:
        raise
    except BaseException as error:
        if (failed := failure(name_of(verifier), error)) is error:
            raise
        raise failed from error


def ready(verifiers: Iterable[Verifier]) -> None:
    """Ask those that need something of this machine whether it is there; SandboxError with the reason where it is not.

    To be called before the first call to a model: an answer that cannot be judged is paid for in vain.
    """
    for verifier in verifiers:
        look: Callable[[], None] | None = getattr(verifier, "ready", None)
        if look is not None:
            look()


def failure(name: str, error: BaseException) -> BaseException:
    """What a verifier raised, as the failure of one rollout; what is meant for the run itself stays as it is."""
    if isinstance(error, RegexTimeout):
        return VerifierError(str(error), outcome="filter_timeout")
    if isinstance(error, asyncio.CancelledError):
        asking = asyncio.current_task()
        if asking is None or asking.cancelling():
            return error
        wrong = f"verifier {name!r} failed: something in it was cancelled"  # not the run; perhaps by its user
        return VerifierError(wrong, blameless=True)
    if isinstance(error, (Exception, SystemExit)):  # one that ends itself may not end the run
        lost = isinstance(error, (TimeoutError, ConnectionError))  # of a server that it asks
        return VerifierError(f"verifier {name!r} failed: {said(error)}", blameless=lost)
    return error


def name_of(verifier: Verifier) -> str:
    """What tasks call a verifier; its type for one that has no name."""
    return str(getattr(verifier, "name", type(verifier).__name__))


def said(error: BaseException) -> str:
    """What an exception says, at a length that a screen and a line of the log can bear."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
