"""Somebody else's code as a verifier: a function, an EvSys class, an object of one's own.

Whatever it raises becomes a `VerifierError` that says whose it is; only what such an error already is stays so.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calipers.errors import InputError, PluginError, VerifierError
from calipers.run.client import Completion
from calipers.run.judged import failure, said
from calipers.run.verifier import Verdict, Verifier
from calipers.run.verifiers.params import fault
from calipers.tasks.task import Task


@dataclass(frozen=True, slots=True)
class FunctionVerifier:
    """EvSys' kind: ``fn(model_output, expected, params) -> float``. It may also be async."""

    name: str
    fn: Callable[..., Any]
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Nothing is known of what it demands."""

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        return Verdict(_number(self.name, await _call(self.name, self.fn, completion.text, task.target, task.params)))


@dataclass(frozen=True, slots=True)
class ClassVerifier:
    """EvSys' other kind: a class whose ``verify(*, prompt, completion, target)`` gives a reward and some info.

    The task's params become its ``Config``. A target that is no object is handed over as ``{"expected": target}``,
    and the numbers of the info become fields.
    """

    name: str
    judge: Any  # the class, or an instance that somebody made
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Refuse params that its ``Config`` refuses, or any where it has none."""
        self._made(task)

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        try:
            judge = self._made(task)
        except InputError as error:
            raise VerifierError(str(error)) from error
        target = task.target if isinstance(task.target, Mapping) else {"expected": task.target}
        result = await _call(self.name, judge.verify, prompt=task.prompt, completion=completion.text, target=target)
        reward = _number(self.name, getattr(result, "reward", result))
        return Verdict(reward, fields=_numbers(getattr(result, "info", None)))

    def _made(self, task: Task) -> Any:
        config = getattr(self.judge, "Config", None) if isinstance(self.judge, type) else None
        if config is None and task.params:
            raise fault(task, f"verifier {self.name!r} takes no params", f"leave out {', '.join(task.params)}")
        if not isinstance(self.judge, type):
            return self.judge
        try:
            return self.judge() if config is None else self.judge(config(**task.params))
        except Exception as error:
            raise fault(task, f"verifier {self.name!r} refuses its params", said(error)) from error


@dataclass(frozen=True, slots=True)
class ObjectVerifier:
    """Our own kind, `Verifier`: ``async verify(task, completion)``, and ``check`` and ``rerunnable`` if it likes."""

    name: str
    judge: Verifier

    @property
    def rerunnable(self) -> bool:
        """Whether it may judge a stored completion again; it may, unless it says otherwise."""
        return bool(getattr(self.judge, "rerunnable", True))

    def check(self, task: Task) -> None:
        """What the verifier itself refuses, if it has a `check`."""
        check = getattr(self.judge, "check", None)
        if check is not None:
            try:
                check(task)
            except InputError:
                raise
            except Exception as error:
                raise PluginError(f"verifier {self.name!r} failed at task {task.id!r}: {said(error)}") from error

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        verdict = await _call(self.name, self.judge.verify, task, completion)
        if not isinstance(verdict, Verdict):
            raise VerifierError(f"verifier {self.name!r} returned {verdict!r:.80}; expected a Verdict")
        return verdict


def wrap(name: str, thing: Any) -> FunctionVerifier | ClassVerifier | ObjectVerifier:
    """A plugin as a verifier; PluginError for what is none."""
    method = getattr(thing, "verify", None)
    if callable(method):
        if {"prompt", "target"} <= inspect.signature(method).parameters.keys():
            return ClassVerifier(name, thing)
        return ObjectVerifier(name, _instance(name, thing))
    if callable(thing) and not isinstance(thing, type):
        return FunctionVerifier(name, thing)
    right = "fn(model_output, expected, params), or verify(task, completion), or EvSys' verify(*, prompt, ...)"
    raise PluginError(f"verifier {name!r} is {thing!r:.80}; expected {right}")


def _instance(name: str, thing: Any) -> Any:
    try:
        return thing() if isinstance(thing, type) else thing
    except Exception as error:
        raise PluginError(f"verifier {name!r} cannot be made without arguments: {said(error)}") from error


async def _call(name: str, fn: Callable[..., Any], *args: Any, **named: Any) -> Any:
    try:
        result = fn(*args, **named)
        return await result if isinstance(result, Awaitable) else result
    except VerifierError:
        raise
    except BaseException as error:
        if (failed := failure(name, error)) is error:
            raise
        raise failed from error


def _number(name: str, value: Any) -> float:
    """A reward as EvSys takes it, by `float`; NaN is a number somebody sent."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise VerifierError(f"verifier {name!r} returned {value!r:.80}; expected a number") from None


def _numbers(info: Any) -> dict[str, float]:
    """What of an info is a number; the rest has no column to go to."""
    found = info if isinstance(info, Mapping) else {}
    return {str(key): float(value) for key, value in found.items() if isinstance(value, (bool, float)) or _small(value)}


def _small(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**63
