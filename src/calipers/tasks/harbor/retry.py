"""When Harbor runs a trial again, and how long it waits before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

HOPELESS: Final = frozenset(
    {
        "AgentAuthenticationError",
        "AgentSafetyRefusalError",
        "AgentTimeoutError",
        "ApiUsageLimitError",
        "ModelNotFoundError",
        "RewardFileEmptyError",
        "RewardFileNotFoundError",
        "UnsupportedModelParametersError",
        "VerifierOutputParseError",
        "VerifierTimeoutError",
    }
)
"""What no second try mends, or what is the trial's own result: not run again unless a job says otherwise."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A job's ``retry`` settings, by their names there."""

    max_retries: int = 0
    include_exceptions: Collection[str] | None = None  # only these; None or none of them: any
    exclude_exceptions: Collection[str] | None = HOPELESS  # never these, included or not
    wait_multiplier: float = 1.0
    min_wait_sec: float = 1.0
    max_wait_sec: float = 60.0

    def worthwhile(self, exception: str | None) -> bool:
        """Whether an exception, by its class name, is one to try again after; None never is.

        Rewards are not asked about, nor how often it was tried: ``max_retries`` is the caller's.
        """
        if exception is None or exception in (self.exclude_exceptions or ()):
            return False
        return not self.include_exceptions or exception in self.include_exceptions

    def seconds(self, attempt: int) -> float:
        """How long to wait after this attempt, counted from 0.

        >>> [Retry(wait_multiplier=3.0, max_wait_sec=5.0).seconds(n) for n in range(3)]
        [1.0, 3.0, 5.0]
        """
        try:
            return min(self.min_wait_sec * self.wait_multiplier**attempt, self.max_wait_sec)
        except OverflowError:
            return self.max_wait_sec
