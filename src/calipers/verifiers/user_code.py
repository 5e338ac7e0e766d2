"""User code as a verifier: a plain function, EvSys' function or class, or an object.

Its exceptions become a `VerifierError` that names the verifier; a `VerifierError` is left unchanged.

Verifier functions are registered by name, as in EvSys: ``fn(model_output, expected, params) -> float``. A registered
function is a verifier of that name in every run. As in EvSys, registering a name again silently replaces it, including
built-in functions. This module is also ``evsys_sdk.verifiers.fns`` for code that imports EvSys; two things are stricter
than in EvSys: `regex_match` gives up after a second (`calipers.text.patterns.RegexTimeout`), and a coordinate that is
not a pair of numbers is a miss for `tool_calls_match`, not a TypeError.

A verifier is looked up by name: registered functions first, then built-in verifiers, then installed plugins.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

from calipers.clients import Completion
from calipers.clients.secrets import Secrets
from calipers.errors import InputError, PluginError, UnknownName, VerifierError, nearest
from calipers.names import VERIFIERS, is_code, load_code
from calipers.tasks import Task
from calipers.verifiers import NamedVerifier, Verdict, Verifier, VerifierGuard, checked, fault, message_of, shown
from calipers.verifiers.reasoning import of_answer, own_params
from calipers.verifiers.text import contains, exact_match, regex_match, tool_calls_match

__all__ = [  # the names in ``evsys_sdk.verifiers.fns``
    "VerifierFn",
    "contains",
    "exact_match",
    "get",
    "list_fns",
    "regex_match",
    "register",
    "register_fn",
    "tool_calls_match",
]


@dataclass(frozen=True, slots=True)
class FunctionVerifier:
    """A verifier function of EvSys: ``fn(model_output, expected, params) -> float``. It may also be async."""

    name: str
    fn: Callable[..., Any]
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Accept every task, because the function's requirements are unknown."""

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        reward = await _call(self.name, self.fn, completion.text, task.target, own_params(task))
        return Verdict(_number(self.name, reward))


@dataclass(frozen=True, slots=True)
class ClassVerifier:
    """A verifier class of EvSys: its ``verify(*, prompt, completion, target)`` returns a reward and some info.

    The task's params become its ``Config``. A target that is not an object is passed as ``{"expected": target}``,
    and the numbers of the info become fields.
    """

    name: str
    judge: Any  # the class, or an instance
    rerunnable: bool = True

    def check(self, task: Task) -> None:
        """Reject params that its ``Config`` rejects, or all params if it has no ``Config``."""
        self._instance(task)

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        try:
            judge = self._instance(task)
        except InputError as error:
            raise VerifierError(str(error)) from error
        target = task.target if isinstance(task.target, Mapping) else {"expected": task.target}
        result = await _call(self.name, judge.verify, prompt=task.prompt, completion=completion.text, target=target)
        reward = _number(self.name, getattr(result, "reward", result))
        return Verdict(reward, fields=_numbers(getattr(result, "info", None)))

    def _instance(self, task: Task) -> Any:
        config = getattr(self.judge, "Config", None) if isinstance(self.judge, type) else None
        params = own_params(task)
        if config is None and params:
            raise fault(task, f"verifier {self.name!r} accepts no params", f"remove {', '.join(params)}")
        if not isinstance(self.judge, type):
            return self.judge
        try:
            return self.judge() if config is None else self.judge(config(**params))
        except Exception as error:
            raise fault(task, f"verifier {self.name!r} rejects its params", message_of(error)) from error


@dataclass(frozen=True, slots=True)
class ObjectVerifier:
    """A verifier object: ``async verify(task, completion)``, and optionally ``check`` and ``rerunnable``."""

    name: str
    judge: Verifier
    several_rewards = True  # its verdicts may have

    @property
    def rerunnable(self) -> bool:
        """Whether stored completions may be verified again; true unless the object sets `rerunnable` to false."""
        return bool(getattr(self.judge, "rerunnable", True))

    def check(self, task: Task) -> None:
        """Reject what the verifier's own `check` rejects, if it has one."""
        check = getattr(self.judge, "check", None)
        if check is not None:
            try:
                check(task)
            except InputError:
                raise
            except Exception as error:
                raise PluginError(f"verifier {self.name!r} failed on task {task.id!r}: {message_of(error)}") from error

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        verdict = await _call(self.name, self.judge.verify, task, completion)
        if not isinstance(verdict, Verdict):
            raise VerifierError(f"verifier {self.name!r} returned {shown(verdict)}; expected a Verdict")
        return verdict


class AnswerText(str):
    """A completion for a grading function: its text, with the other fields of the completion as attributes.

    ``completion.text`` is the same text; ``finish_reason``, ``ending`` and ``usage`` are those of the completion.
    """

    completion: Completion

    @classmethod
    def of(cls, completion: Completion) -> AnswerText:
        """The text of a completion."""
        answer = cls(completion.text)
        answer.completion = completion
        return answer

    def __getattr__(self, name: str) -> Any:
        if name not in Completion.__struct_fields__:
            raise AttributeError(f"a completion has no {name!r}; it has {', '.join(Completion.__struct_fields__)}")
        return getattr(self.completion, name)


@dataclass(frozen=True, slots=True)
class GradeFunction:
    """A plain function of the user: ``grade(task, completion)`` returns a number, True or False, or a `Verdict`.

    It may be async. Any exception is a failure of the verifier, and the rollout is missing: a mistake in the user's
    code is likelier than an answer that was written to break it, and a missing reward is visible, unlike a 0.
    """

    name: str
    fn: Callable[..., Any]
    rerunnable: bool = True
    several_rewards = True  # its verdicts may have

    def check(self, task: Task) -> None:
        """Accept every task, because the function's requirements are unknown."""

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion."""
        try:
            result = await _call(self.name, self.fn, task, AnswerText.of(completion))
            if isinstance(result, Verdict):
                return checked(result)
            if isinstance(result, (str, bytes)) or result is None:
                problem = f"verifier {self.name!r} returned {shown(result)}"
                raise VerifierError(f"{problem}; expected a number, True or False, or a Verdict")
            return checked(Verdict(_number(self.name, result)))
        except VerifierError as error:
            raise VerifierError(str(error), outcome=error.outcome, blameless=True, suspect=error.suspect) from error


def code_verifier(name: str) -> GradeFunction | FunctionVerifier | ClassVerifier | ObjectVerifier:
    """The verifier named by ``FILE.py:OBJECT``, whose file is run."""
    thing = load_code(name)
    if inspect.isroutine(thing) and _positional(thing) not in (2, 3):
        expected = f"expected def {thing.__name__}(task, completion)"
        raise InputError.at(name, f"its parameters are {_signature(thing) or 'not known'}", expected)
    return wrap(name, thing)


Registered = TypeVar("Registered", bound=Callable[..., Any])  # a function or a class, which is returned unchanged


@overload
def verifier(name: str | None = None) -> Callable[[Registered], Registered]: ...
@overload
def verifier(name: Registered) -> Registered: ...
def verifier(name: Any = None) -> Any:
    """Register a grading function under a name, for ``--plugin``: ``@verifier`` or ``@verifier("NAME")``.

    >>> @verifier
    ... def is_short(task, completion):
    ...     return len(completion) < 100
    >>> VERIFIERS.plugin("is_short") is is_short, VERIFIERS.discard("is_short")
    (True, None)
    """
    if not isinstance(name, str) and name is not None:
        VERIFIERS.define(name.__name__, name)
        return name

    def decorate(thing: Any) -> Any:
        VERIFIERS.define(name or thing.__name__, thing)
        return thing

    return decorate


def _positional(fn: Callable[..., Any]) -> int | None:
    """The number of required positional parameters of a function; None if it accepts any number, or is unknown."""
    signature = _signature(fn)
    if signature is None:
        return None
    parameters = signature.parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function; None for a built-in function without one."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def wrap(name: str, thing: Any) -> GradeFunction | FunctionVerifier | ClassVerifier | ObjectVerifier:
    """A plugin as a verifier; PluginError if it is not one."""
    method = getattr(thing, "verify", None)
    if callable(method):
        signature = _signature(method)
        if signature is not None and {"prompt", "target"} <= signature.parameters.keys():
            return ClassVerifier(name, thing)
        return ObjectVerifier(name, _instance(name, thing))
    if callable(thing) and not isinstance(thing, type):
        return GradeFunction(name, thing) if _positional(thing) == 2 else FunctionVerifier(name, thing)
    expected = "grade(task, completion), fn(model_output, expected, params), or an object with verify(task, completion)"
    raise PluginError(f"verifier {name!r} is {thing!r:.80}; expected {expected}")


def _instance(name: str, thing: Any) -> Any:
    try:
        return thing() if isinstance(thing, type) else thing
    except Exception as error:
        raise PluginError(f"verifier {name!r} cannot be created without arguments: {message_of(error)}") from error


async def _call(name: str, fn: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with VerifierGuard(name):
        result = fn(*args, **named)
        return await result if isinstance(result, Awaitable) else result


def _number(name: str, value: Any) -> float:
    """A reward converted with `float`, as in EvSys; NaN counts as a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise VerifierError(f"verifier {name!r} returned {shown(value)}; expected a number") from None


def _numbers(info: Any) -> dict[str, float]:
    """The numbers of an info, without its other values."""
    items = info.items() if isinstance(info, Mapping) else ()
    return {
        str(key): float(value)
        for key, value in items
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
    }


VerifierFn = Callable[[str, Any, Mapping[str, Any]], float]
"""A function of a completion's text, the task's target and its params; it returns a reward."""

F = TypeVar("F", bound=VerifierFn)

BUILT_IN: Final[Mapping[str, VerifierFn]] = {
    "contains": contains,
    "exact_match": exact_match,
    "regex_match": regex_match,
    "tool_calls_match": tool_calls_match,
}

_registered: dict[str, VerifierFn] = {}


def get(name: str) -> VerifierFn:
    """The function of a name; UnknownName, a ValueError and a KeyError, lists the known names."""
    fn = _registered.get(name) or BUILT_IN.get(name)
    if fn is None:
        close = nearest(str(name), list_fns(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownName(f"Unknown verifier fn {name!r}; registered: {list_fns()}{hint}")
    return fn


def register(name: str, fn: VerifierFn) -> None:
    """Register a function under a name; an earlier function of that name is replaced."""
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
    """Unregister a function, so that its name has its original meaning again; an unknown name is not an error."""
    _registered.pop(name, None)


def list_fns() -> list[str]:
    """The names, sorted."""
    return sorted({*BUILT_IN, *_registered})


def registered() -> Mapping[str, VerifierFn]:
    """The registered functions, without built-in functions that were not replaced."""
    return dict(_registered)


def opened(judge: Verifier, secrets: Secrets) -> Verifier:
    """The verifier for one run; one that keeps connections (``use``) gets new ones, and the run's secrets."""
    if isinstance(judge, (GradeFunction, FunctionVerifier, ClassVerifier, ObjectVerifier)):
        secrets.add_environment()
    use: Callable[[Secrets], Verifier] | None = getattr(judge, "use", None)
    return judge if use is None else use(secrets)


def find_verifier(name: str) -> NamedVerifier:
    """The verifier of a name; UnknownName names the nearest, PluginError if its plugin is invalid.

    >>> find_verifier("exact_match").rerunnable
    True
    """
    if fn := _registered.get(name):
        return FunctionVerifier(name, fn)
    if name in VERIFIERS.entries:
        built_in: NamedVerifier = VERIFIERS.load(name)
        return built_in
    if is_code(name):
        problem = "is code in a file, and tasks may not name code to run"
        raise UnknownName(f"verifier {name!r} {problem}; name it yourself: --verifier {name}")
    thing = VERIFIERS.plugin(name)
    if thing is None:
        raise VERIFIERS.unknown(name, known=verifier_names())
    return wrap(name, thing)


def named_verifier(name: str) -> NamedVerifier:
    """The verifier named by the user: a name for `find_verifier`, or ``FILE.py:OBJECT``, whose file is run."""
    if name.endswith(".py"):
        raise InputError.at(name, "no verifier is named", f"expected {name}:FUNCTION")
    return code_verifier(name) if is_code(name) else find_verifier(name)


def judge_of(task: Task) -> NamedVerifier:
    """The verifier that a task names; UnknownName names the task."""
    try:
        return find_verifier(str(task.verifier))
    except UnknownName as error:
        raise UnknownName(f"task {task.id!r}: {error}") from None


def verifier_names() -> list[str]:
    """Every name that `find_verifier` knows, sorted."""
    return sorted({*VERIFIERS.names(), *list_fns()})
