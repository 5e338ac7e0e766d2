"""A tracker of experiments: its client library, which gets a run for each group of a result."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from calipers.errors import InputError
from calipers.reports.result import Result
from calipers.reports.untrusted_text import clean

RESULT: Final = "result.json"
PROJECT: Final = "calipers"
LONGEST: Final = 200  # characters of a client's message

Log = Callable[[Result, str | None], Iterator[str]]
"""``log(result, target)``: hand a result to the client; a note for each run."""


class Tracker:
    """``--export NAME[=TARGET]`` for a client library that may not be installed."""

    def __init__(self, name: str, target: str | None, paths: Sequence[str], log: Log) -> None:
        if importlib.util.find_spec(name) is None:
            raise InputError.at(f"--export {name}", f"the package {name} is not installed", f"pip install {name}")
        self.paths, self.files = paths, list[str]()
        self._name, self._target, self._log = name, target, log

    def begin(self) -> None:
        """It needs nothing of the files but the result."""

    def contents(self, result: Result) -> tuple[list[Any], list[str]]:
        """Log every group; notes say where."""
        with _explained(self._name):
            return [], list(self._log(result, self._target))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """An error of the client, which may be of any kind, as one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        first = clean((str(error).strip() or "no message").splitlines()[0], LONGEST)
        wrong = f"its client failed ({type(error).__name__}: {first})"
        raise InputError.at(f"--export {name}", wrong, "is it set up on this machine?") from error
