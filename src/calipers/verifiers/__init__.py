"""The interface of verifiers: a task and its completion in, a verdict with the reward out, or a `VerifierError`.

A failing verifier affects only its own rollout, never the run (`judged`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Real
from typing import Any, Final, Protocol

import msgspec
from msgspec import field

from calipers.clients import Completion
from calipers.errors import InputError, UnknownName, VerifierError
from calipers.formats.lines import odd_key
from calipers.rollouts.record import OUTCOMES
from calipers.tasks import Task
from calipers.text.patterns import RegexTimeout


class Verdict(msgspec.Struct, frozen=True):
    """The result of a verifier. ``rewards`` is for verifiers with several; ``reward`` is then one of them, or None."""

    reward: float | None
    rewards: Mapping[str, float] = field(default_factory=dict)
    answer: Any = None  # the answer found in the text, a JSON scalar or list; maj@k votes with it
    outcome: str = ""  # an outcome of the ledger, such as `unparsed`; "" follows from the reward
    fields: Mapping[str, float] = field(default_factory=dict)  # further columns of numbers
    usage: Mapping[str, float] = field(default_factory=dict)  # the tokens, cost and time of verifying


class Verifier(Protocol):
    """A verifier. It must not keep state between calls, because rollouts come in any order."""

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict; `VerifierError` if there is none."""


class NamedVerifier(Verifier, Protocol):
    """A verifier with a name and a check of its tasks, as a run needs it."""

    @property
    def name(self) -> str:
        """Its name in tasks."""

    @property
    def rerunnable(self) -> bool:
        """Whether stored completions may be verified again, because the verdict depends only on them."""

    def check(self, task: Task) -> None:
        """InputError for a task that the verifier cannot verify, whatever the answer."""


def fault(task: Task, problem: str, expected: str) -> InputError:
    """The error for a task that its verifier can never verify."""
    return InputError.at(f"task {task.id!r}", problem, expected)


REASONING: Final = "reasoning"
"""The param of every task that says whether reasoning is split off its completions, see `verifiers.reasoning`."""

SPLIT: Final = "split"
KEEP: Final = "keep"
"""The values of the param."""


def check_names(task: Task, known: Collection[str]) -> None:
    """Reject a param that the verifier does not have, such as a typo."""
    if (choice := task.params.get(REASONING, SPLIT)) not in (SPLIT, KEEP):
        raise fault(task, f"{REASONING} is {choice!r:.60}", "expected split or keep")
    for name in task.params:
        if name not in known and name != REASONING:
            raise UnknownName(f"task {task.id!r}: {UnknownName.of(f'param of {task.verifier}', name, known)}")


def check_flag(task: Task, name: str) -> None:
    """Reject a param that is neither true nor false, because any text would count as true, even "false"."""
    value = task.params.get(name, False)
    if value not in (True, False):
        raise fault(task, f"{name} is {value!r}", "expected true or false")


def check_number(task: Task, name: str, *, least: float = -math.inf) -> None:
    """Reject a param that is not a finite number, or is below the minimum."""
    value: Any = task.params.get(name)
    if name in task.params and not (is_number(value) and value >= least):
        expected = "expected a number" if least == -math.inf else f"expected a number of at least {least:g}"
        raise fault(task, f"{name} is {value!r}", expected)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; true and false are not numbers."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


LONGEST = 500
"""Maximum characters of a foreign error message."""


async def judged(verifier: Verifier, task: Task, completion: Completion) -> Verdict:
    """The verdict of a verifier, which `checked` accepts; any exception of the verifier becomes a VerifierError."""
    with VerifierGuard(name_of(verifier)):
        return checked(await verifier.verify(task, completion))


class VerifierGuard:
    """A context in which each exception of a verifier becomes a VerifierError, except those meant for the run.

    A class, because a generator would add a microsecond to every verdict.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, VerifierError):
            return
        if isinstance(error, RegexTimeout):
            raise VerifierError(str(error), outcome="filter_timeout", suspect=True) from error
        if isinstance(error, asyncio.CancelledError):
            current = asyncio.current_task()
            if current is None or current.cancelling():  # the run itself is being cancelled
                return
            problem = f"verifier {self._name!r} failed: something inside it was cancelled"
            raise VerifierError(problem, blameless=True) from error
        if isinstance(error, (Exception, SystemExit)):  # a verifier that exits must not end the run
            lost = isinstance(error, (TimeoutError, ConnectionError))  # from a server that the verifier uses
            suspect = lost and not isinstance(error, ConnectionRefusedError)
            problem = f"verifier {self._name!r} failed: {message_of(error)}"
            raise VerifierError(problem, blameless=lost, suspect=suspect) from error


def ready(verifiers: Iterable[Verifier]) -> None:
    """Check that this machine has all that the verifiers need; SandboxError with the reason if it does not.

    To be called before the first request to a model, because an answer that cannot be verified is wasted money.
    """
    for verifier in verifiers:
        check: Callable[[], None] | None = getattr(verifier, "ready", None)
        if check is not None:
            check()


def name_of(verifier: Verifier) -> str:
    """The name of a verifier in tasks; the name of its type if it has none."""
    return str(getattr(verifier, "name", type(verifier).__name__))


def message_of(error: BaseException) -> str:
    """The type and message of an exception, cut to a length that fits the screen and the log."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except Exception:  # from the exception's own code
        text = type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def shown(value: Any) -> str:
    """The start of a value's repr, for an error; its type if it has none, such as an integer of too many digits."""
    try:
        return f"{value!r:.80}"
    except Exception:  # from the value's own code
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name} that cannot be shown"


def checked(verdict: Verdict) -> Verdict:
    """The verdict with plain floats, if it is valid; else VerifierError, as then nothing is known of the answer.

    Rewards and usage must be finite numbers, fields numbers, the answer a JSON scalar or list, and the outcome a word
    of the ledger. A line with anything else would make the whole log unreadable.
    """
    if type(verdict.reward) is float and math.isfinite(verdict.reward) and _is_plain(verdict):
        return verdict
    if verdict.outcome and verdict.outcome not in OUTCOMES:
        raise VerifierError(f"outcome is {verdict.outcome!r:.80}; expected one of {', '.join(OUTCOMES)}")
    if verdict.outcome == "scored" and verdict.reward is None and not verdict.rewards:
        raise VerifierError("outcome is 'scored' but there is no reward; expected a reward, or another outcome")
    answer = str(verdict.answer) if isinstance(verdict.answer, str) else verdict.answer  # a subclass of str is no JSON
    encoded = b""
    try:
        encoded = msgspec.json.encode(answer)
    except (TypeError, ValueError, RecursionError) as error:
        if not isinstance(error, UnicodeEncodeError):  # half a surrogate pair, which the log handles
            raise VerifierError(f"answer is {shown(answer)}; expected a JSON scalar or a list") from None
    if isinstance(answer, Mapping) or encoded.startswith(b"{"):  # also a dataclass, which msgspec writes as an object
        raise VerifierError(f"answer is {shown(answer)}; expected a JSON scalar or a list")
    reward = None if verdict.reward is None else _finite("reward", verdict.reward)
    rewards, fields, usage = (
        {str(name): value for name, value in (numbers or {}).items()}
        for numbers in (verdict.rewards, verdict.fields, verdict.usage)
    )
    if (odd := odd_key((*rewards, *fields, *usage))) is not None:
        raise VerifierError(f"{odd!r:.80} contains a quote, a backslash or a control character; expected a plain name")
    rewards = {name: _finite(name, value) for name, value in rewards.items() if value is not None}
    if reward is not None and rewards.get("reward", reward) != reward:
        raise VerifierError(f"reward is {reward:g}, and {rewards['reward']:g} among the rewards; expected one of them")
    return Verdict(
        reward,
        rewards,
        answer,
        verdict.outcome or "",
        {name: _number(name, value) for name, value in fields.items()},
        {name: _finite(name, value) for name, value in usage.items()},
    )


def _is_plain(verdict: Verdict) -> bool:
    """Whether a verdict has only a reward and a plain answer, as most verdicts do; a fast check."""
    bare = verdict.outcome == "" and verdict.rewards == verdict.fields == verdict.usage == {}
    answer = verdict.answer
    if type(answer) is int:
        return bare and -(2**63) <= answer < 2**64  # a larger one may have too many digits for JSON
    return bare and (answer is None or type(answer) in (str, float))


def _finite(name: str, value: Any) -> float:
    number = _number(name, value)
    if not math.isfinite(number):
        raise VerifierError(f"{name} is {number}; expected a finite number")
    return number


def _number(name: str, value: Any) -> float:
    """A value as an int or float, from any real number such as NumPy's; VerifierError for anything else."""
    try:
        if isinstance(value, int) and not isinstance(value, bool) and math.isfinite(value):
            return value
        if isinstance(value, Real):
            return float(value)
    except OverflowError:
        pass
    raise VerifierError(f"{name} is {shown(value)}; expected a number")
