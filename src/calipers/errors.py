"""Every error Calipers raises on purpose.

::

    CalipersError
    ├── InputError            the user's mistake: one line, no traceback, exit 2   (a ValueError)
    │   ├── UnknownName       an unknown name; suggests the nearest               (a KeyError too)
    │   └── UnrelatedRuns     runs of different benchmarks, compared only with --force
    ├── NotPassed             what was asserted does not hold; the text is the page      (an AssertionError)
    ├── PluginError           code of a plugin failed; names the plugin
    │   └── ScriptError       a metric script gave no metric, exit 3            (systems/harbor)
    ├── RunError              a failure outside Calipers: recorded on the rollout, which is then missing
    │   ├── ClientError       no completion came back; says whether a retry could help
    │   └── VerifierError     a completion could not be verified
    ├── SandboxError          no sandbox is available, or it failed: the program was not judged
    ├── HarborError           a job that only Harbor can run, and that it cannot run here
    ├── EngineError           the machines that work was sent to are gone; what was finished is kept, exit 3
    ├── LogError              a file of a run cannot be written; earlier results are kept, exit 3
    └── Incomplete            numbers were refused because rollouts are missing, exit 3

Any other exception is a bug in Calipers and keeps its traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

_SHOWN: dict[str, str] = {}  # hidden text -> the text to show instead


def show_as(text: str, instead: str) -> None:
    """Replace a text in everything that is shown, such as an address with a key in it or the path of a private copy."""
    if text:
        _SHOWN[text] = instead


def display(text: str) -> str:
    """A text with all replacements of `show_as`: keys are hidden, and private copies have their original address."""
    for hidden, instead in _SHOWN.items():
        text = text.replace(hidden, instead)
    return text


class CalipersError(Exception):
    """An error that a user can act on; its text says what to do."""

    exit_code = 2

    def __str__(self) -> str:
        return display(super().__str__())


class InputError(CalipersError, ValueError):
    """An input cannot be used; the text says where, what is wrong, and what is expected."""

    @classmethod
    def at(cls, location: str, problem: str, expected: str = "") -> InputError:
        """An error in the common format ``location: problem; what was expected``.

        >>> str(InputError.at("a.jsonl:3", "reward is 'high'", "expected a number or null"))
        "a.jsonl:3: reward is 'high'; expected a number or null"
        """
        return cls(f"{location}: {problem}; {expected}" if expected else f"{location}: {problem}")


class UnknownName(InputError, KeyError):
    """A name that is not registered."""

    def __str__(self) -> str:  # KeyError would print the repr
        return display(str(self.args[0]))

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownName:
        """An error such as ``no metric named 'pas@3'; did you mean 'pass@{k}'?``."""
        close = nearest(name, known)
        if hint:
            return cls(f"no {kind} named {name!r}; {hint}")
        if close:
            return cls(f"no {kind} named {name!r}; did you mean {' or '.join(map(repr, close))}?")
        return cls(f"no {kind} named {name!r}; known: {', '.join(sorted(known)) or '(none)'}")


class UnrelatedRuns(InputError):
    """Two runs of different benchmarks; the argument describes the difference."""

    def __str__(self) -> str:
        return f"{self.args[0]}; --force compares them anyway"


class NotPassed(CalipersError, AssertionError):
    """A gate, a certificate, an audit or a comparison is not what was asserted; the text is its page."""

    exit_code = 1


class PluginError(CalipersError):
    """Code named by the user, or an installed plugin, failed while it was used."""


class RunError(CalipersError):
    """A failure of one rollout. Its text is written to the log, so it must not contain a secret."""


class ClientError(RunError):
    """A request that returned no completion."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "client",  # a short word for the log: http_429, connection, timeout, malformed, absent
        retry: bool = False,  # a retry may succeed
        wait: float | None = None,  # seconds to wait before a retry, as the server requested
        slow_down: bool = False,  # the server reported too many requests
        hopeless: bool = False,  # every other call would fail too: wrong key, wrong address, wrong model
        before_answer: bool = False,  # the request was not accepted, so that no answer can be the cause
    ) -> None:
        super().__init__(message)
        self.kind, self.retry, self.wait = kind, retry, wait
        self.slow_down, self.hopeless, self.before_answer = slow_down, hopeless, before_answer


class VerifierError(RunError):
    """A completion that could not be verified; ``outcome`` is the outcome of its rollout in the ledger."""

    def __init__(
        self,
        message: str,
        *,
        outcome: str = "verifier_failed",
        usage: Mapping[str, float] | None = None,  # the usage of the failed verification
        blameless: bool = False,  # a server or the user's code looks like the cause
        suspect: bool = False,  # but the answer may be, too: a server broke off, or a pattern ran out of time
        tried: Mapping[str, object] | None = None,  # how the cause of the failure was determined
        kind: str = "verifier",  # a short word for the log
    ) -> None:
        super().__init__(message)
        self.outcome, self.usage = outcome, usage or {}
        self.blameless, self.suspect, self.tried, self.kind = blameless, suspect, tried or {}, kind


class SandboxError(CalipersError):
    """No sandbox is available, or the sandbox failed; the program was not judged."""


class HarborError(CalipersError):
    """A job that only Harbor can run, and that it cannot run here."""


class EngineError(CalipersError):
    """The cluster that does the work is gone; finished work is kept."""

    exit_code = 3


class LogError(CalipersError):
    """A file of a run cannot be written; earlier results are kept."""

    exit_code = 3

    @classmethod
    def of(cls, path: object, error: OSError) -> LogError:
        """The error for a file that cannot be written, and what to do about it."""
        free_space = "free some space and run the same command again"
        remedies = {
            errno.ENOSPC: free_space,
            errno.EDQUOT: free_space,
            errno.EFBIG: "raise the limit on the size of a file and run the same command again",
        }
        remedy = remedies.get(error.errno or 0, "check the disk and run the same command again")
        return cls(f"{path}: cannot be written ({error.strerror}); what was finished before is kept: {remedy}")


class Incomplete(CalipersError):
    """Rollouts are missing and the user asked for all or nothing (``--missing fail``)."""

    exit_code = 3


def nearest(name: str, known: Iterable[str], most: int = 2) -> list[str]:
    """The known names closest to a mistyped one, best first; digits and ``{k}`` count as equal.

    >>> nearest("pas@3", ["pass@{k}", "mean_reward"])
    ['pass@{k}']
    >>> nearest("llama-3-8", ["llama-3-70b", "llama-3-8b"])
    ['llama-3-8b']
    """
    import difflib
    import re

    plain: dict[str, list[str]] = {}
    for word in sorted(known):
        plain.setdefault(re.sub(r"\{k\}|\d+", "#", word).lower(), []).append(word)
    close = difflib.get_close_matches(re.sub(r"\d+", "#", name).lower(), plain, most, 0.6)
    # of names that differ only in their digits, the one whose spelling is closest
    return [
        max(plain[form][::-1], key=lambda word: difflib.SequenceMatcher(None, name, word).ratio()) for form in close
    ]
