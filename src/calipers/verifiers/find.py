"""Find a verifier by name: registered functions first, then built-in verifiers, then installed plugins."""

from __future__ import annotations

from typing import Protocol

from calipers.errors import UnknownName
from calipers.names import VERIFIERS, is_code
from calipers.tasks import Task
from calipers.verifiers import Verifier, user_code
from calipers.verifiers.user_code import FunctionVerifier, code_verifier, wrap


class NamedVerifier(Verifier, Protocol):
    """A verifier as a run uses it."""

    @property
    def name(self) -> str:
        """Its name in tasks."""
        ...

    @property
    def rerunnable(self) -> bool:
        """Whether it may verify stored completions again: its verdict depends only on them."""
        ...

    def check(self, task: Task) -> None:
        """Accept a task that can be verified; InputError if it cannot be verified with any answer."""
        ...


def verifier(name: str) -> NamedVerifier:
    """The verifier of a name; UnknownName names the nearest, PluginError if its plugin is invalid.

    >>> verifier("exact_match").rerunnable
    True
    """
    if fn := user_code.registered().get(name):
        return FunctionVerifier(name, fn)
    if name in VERIFIERS.entries:
        built_in: NamedVerifier = VERIFIERS.load(name)
        return built_in
    if is_code(name):
        wrong = "is code in a file, and tasks may not name code to run"
        raise UnknownName(f"verifier {name!r} {wrong}; name it yourself: --verifier {name}")
    thing = VERIFIERS.plugin(name)
    if thing is None:
        raise VERIFIERS.unknown(name, known=names())
    return wrap(name, thing)


def named_verifier(name: str) -> NamedVerifier:
    """The verifier that the user named: a name that `verifier` knows, or ``FILE.py:OBJECT``, whose file is run."""
    return code_verifier(name) if is_code(name) else verifier(name)


def judge_of(task: Task) -> NamedVerifier:
    """The verifier that a task names; UnknownName says which task."""
    try:
        return verifier(str(task.verifier))
    except UnknownName as error:
        raise UnknownName(f"task {task.id!r}: {error}") from None


def names() -> list[str]:
    """Every name that `verifier` knows, sorted."""
    return sorted({*VERIFIERS.names(), *user_code.list_fns()})
