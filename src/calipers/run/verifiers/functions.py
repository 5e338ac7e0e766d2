"""Verifier functions by name, as EvSys has them: ``fn(model_output, expected, params) -> float``.

What is registered here is a verifier of that name in every run. As in EvSys, registering a name again
replaces what it meant without a word, our own functions included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from calipers.errors import UnknownName, nearest
from calipers.run.verifiers.text import contains, exact_match, regex_match
from calipers.run.verifiers.tools import tool_calls_match

VerifierFn = Callable[[str, Any, Mapping[str, Any]], float]
"""A completion's text, the task's target and its params in; a reward out."""

F = TypeVar("F", bound=VerifierFn)

BUILT_IN: Final[Mapping[str, VerifierFn]] = {
    "contains": contains,
    "exact_match": exact_match,
    "regex_match": regex_match,
    "tool_calls_match": tool_calls_match,
}

_registered: dict[str, VerifierFn] = {}


def get(name: str) -> VerifierFn:
    """The function of a name; UnknownName, a ValueError and a KeyError, lists the names there are."""
    fn = _registered.get(name) or BUILT_IN.get(name)
    if fn is None:
        close = nearest(str(name), list_fns(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownName(f"Unknown verifier fn {name!r}; registered: {list_fns()}{hint}")
    return fn


def register(name: str, fn: VerifierFn) -> None:
    """Give a function a name; whatever had it before has it no longer."""
    _registered[name] = fn


def register_fn(name: str) -> Callable[[F], F]:
    """`register` as a decorator.

    >>> @register_fn("is_long")
    ... def is_long(model_output, expected, params):
    ...     return float(len(model_output) > params.get("least", 100))
    >>> get("is_long")("short", None, {}), unregister("is_long")
    (0.0, None)
    """

    def decorate(fn: F) -> F:
        register(name, fn)
        return fn

    return decorate


def unregister(name: str) -> None:
    """Take a registered function back, so that its name means what it meant at first; an unknown one is no error."""
    _registered.pop(name, None)


def list_fns() -> list[str]:
    """The names, sorted."""
    return sorted({*BUILT_IN, *_registered})


def registered() -> Mapping[str, VerifierFn]:
    """The functions that were registered, without those that are built in and still mean what they did."""
    return dict(_registered)
