"""``python/MODULE:OBJECT`` and ``python/FILE.py:OBJECT``: a model in user code, in this process.

Synchronous user code runs in one daemon thread, which is not joined at exit. The threads of `concurrent.futures` are,
so a model that hangs would keep a command from ending after the user pressed Ctrl-C twice.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from types import ModuleType
from typing import Any

import msgspec

from calipers.clients import Client, Completion, Connection, Request, Scored, Text, as_text, priced
from calipers.clients.reply import described
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, PluginError, nearest
from calipers.formats.lines import odd_key
from calipers.names import compiled_file
from calipers.typed import complete


class CallThread:
    """A thread that makes one call after another; it is started by the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._begun = False

    async def call(self, code: Callable[[], Any]) -> Any:
        """The return value of the code; an exception, also one that ends the process, is returned and not raised."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((answer, code))
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return await answer

    def close(self) -> None:
        """Let the thread end after its current call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, code = call
            if answer.cancelled():  # its caller has given up before it began
                continue
            try:
                result = code()
            except BaseException as error:  # if the thread ended here, all later calls would wait forever
                result = error
            with suppress(RuntimeError):  # the loop is closed, so nobody waits for the result
                answer.get_loop().call_soon_threadsafe(_set_result, answer, result)


def _set_result(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():  # it may be cancelled
        answer.set_result(result)


class OwnScorer:
    """A user's client that also returns log-likelihoods. Synchronous code runs in one thread, one call at a time.

    ``score`` gets `Continuation` and `Rolling` values and returns a `Scored` for each. Any exception fails that one
    call, without a retry; a `ClientError` passes unchanged.
    """

    def __init__(self, client: Client, score: Callable[..., Any], secrets: Secrets) -> None:
        self._client, self._score, self._secrets = client, score, secrets
        waits = inspect.iscoroutinefunction(score)
        self._thread = None if waits else CallThread("calipers-scores")

    @property
    def notes(self) -> Sequence[str]:
        """The notes of the client."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The completion that the user's code returns."""
        return await self._client.complete(request)

    async def close(self) -> None:
        """Release the thread, and close the user's object if it can be closed."""
        if self._thread is not None:
            self._thread.close()
        await self._client.close()

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods that the user's code returns; `ClientError` unless there is one for each text."""
        result: Any
        try:
            if self._thread is None:
                result = await self._score(requests)
            elif isinstance(result := await self._thread.call(lambda: self._score(requests)), BaseException):
                raise result
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise _call_failed(error, self._secrets) from None
        scored = list(result) if isinstance(result, (list, tuple)) else []
        if len(scored) != len(requests) or not all(isinstance(item, Scored) for item in scored):
            message = f"score() returned {type(result).__name__} for {len(requests)} texts; expected a Scored for each"
            raise ClientError(message, kind="python", hopeless=True)
        try:
            return [_plain(item) for item in scored]
        except (TypeError, ValueError, OverflowError) as error:
            message = f"score() returned an invalid Scored: {described(error, self._secrets)}"
            raise ClientError(message, kind="python", hopeless=True) from error


class _ErrorFields(msgspec.Struct):
    """The fields of a `ClientError`, with the types that the loop and the log need."""

    kind: str
    retry: bool
    wait: float | None
    slow_down: bool
    hopeless: bool


def _call_failed(error: BaseException, secrets: Secrets) -> ClientError:
    """The error of a call for an exception of user code: itself if it is a valid `ClientError`."""
    if isinstance(error, ClientError):
        with suppress(Exception):  # from the error's own code, or an invalid field, which would end the run
            msgspec.json.encode(msgspec.convert(error, complete(_ErrorFields), from_attributes=True))
            str(error)
            return error
    return ClientError(described(error, secrets), kind="python")


def _plain(scored: Scored) -> Scored:
    """The likelihood in types of Python, as a log cannot have numpy's."""
    counts = (None if count is None else int(count) for count in (scored.read, scored.wrote))
    return Scored(float(scored.logprob), bool(scored.greedy), int(scored.tokens), *counts)


Ask = Callable[[Request], Any]
"""The user's code with a uniform signature; it returns an answer or an awaitable answer."""

_EXPECTED = "expected MODULE:OBJECT or FILE.py:OBJECT"
_FORMS = "expected a client with complete(), EvSys' generate(), or a function that takes a prompt or messages"


def connect(name: str, connection: Connection) -> Client:
    """The client of a user's object; a class is instantiated without arguments."""
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        raise InputError.at(f"python/{name}", "no object is named", _EXPECTED)
    target = _attribute(_from_file(module) if module.endswith(".py") else _import(module), attribute, name)
    if inspect.isclass(target):
        try:
            target = target()
        except (Exception, SystemExit) as error:
            raise PluginError(f"python/{name}: {attribute}() failed: {type(error).__name__}: {error}") from error
    return guarded(target, f"python/{name}", connection)


def guarded(target: Any, name: str, connection: Connection) -> Client:
    """The client of an object that is not ours: an exception fails only one call, and keys are not shown."""
    connection.secrets.add_environment()
    client, score = wrap(target, name, connection), getattr(target, "score", None)
    return OwnScorer(client, score, connection.secrets) if callable(score) else client


def wrap(target: Any, name: str, connection: Connection) -> Client:
    """The client of an object with ``complete``, ``generate`` or ``score``, or of a function."""
    close = getattr(target, "close", None)
    if callable(getattr(target, "complete", None)):
        return OwnModel(target.complete, True, close, connection, getattr(target, "notes", ()))
    if callable(getattr(target, "generate", None)):
        return OwnModel(_evsys(target.generate), _waits(target.generate), close, connection)
    if callable(target):
        return OwnModel(_function(target), _waits(target), close, connection)
    if callable(getattr(target, "score", None)):
        return OwnModel(_writes_nothing, False, close, connection)
    raise InputError.at(name, f"it is {type(target).__name__}", _FORMS)


def _writes_nothing(_: Request) -> Any:
    problem = "it has score() but not complete(), so it cannot generate; expected both"
    raise ClientError(problem, kind="python", hopeless=True)


class OwnModel:
    """User code as a client. Synchronous code runs in one thread, one call at a time.

    Any exception of the code fails that one request, without a retry; its own `ClientError`
    passes unchanged.
    """

    def __init__(self, ask: Ask, waits: bool, close: Any, connection: Connection, notes: Any = ()) -> None:
        self._notes = notes  # the object's own list, to which it may add
        self._own_notes: list[str] = []
        self._ask, self._close, self._connection = ask, close, connection
        self._thread = None if waits else CallThread("calipers-model")

    @property
    def notes(self) -> list[str]:
        """The notes of the user's object, and why it could not be closed."""
        notes = [self._notes] if isinstance(self._notes, str) else self._notes
        return [*(map(str, notes) if isinstance(notes, (list, tuple)) else ()), *self._own_notes]

    async def complete(self, request: Request) -> Completion:
        """The completion that the user's code returns."""
        if self._thread is None:
            return await self._finish(*self._call(request))
        called = await self._thread.call(lambda: self._call(request))
        if isinstance(called, BaseException):  # such as the CancelledError of an event loop in the user's code
            called = called, 0.0, 0.0
        return await self._finish(*called)

    async def close(self) -> None:
        """Release the thread, and close the user's object if it can be closed."""
        if self._thread is not None:
            self._thread.close()
        try:
            if callable(self._close) and inspect.isawaitable(closing := self._close()):
                await closing
        except (Exception, SystemExit) as error:
            self._own_notes.append(f"close() failed: {described(error, self._connection.secrets)}")

    def _call(self, request: Request) -> tuple[Any, float, float]:
        """The result or the exception of the code, its start time, and its seconds without those in the queue."""
        started = perf_counter()
        try:
            answer = self._ask(request)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # a future cannot carry every exception
            answer = error
        return answer, started, perf_counter() - started

    async def _finish(self, answer: Any, started: float, latency_s: float) -> Completion:
        if inspect.isawaitable(answer):
            try:
                answer = await answer
            except (Exception, SystemExit) as error:
                answer = error
            latency_s = perf_counter() - started
        if isinstance(answer, BaseException):
            raise _call_failed(answer, self._connection.secrets)
        if isinstance(answer, str):
            return Completion(str(answer), usage={"latency_s": latency_s})  # a log cannot have a subclass of str
        if not isinstance(answer, Completion):
            raise ClientError(f"it returned {type(answer).__name__}; expected text or a Completion", kind="python")
        usage = priced({"latency_s": latency_s, **_checked(answer).usage}, self._connection.price)
        return msgspec.structs.replace(answer, text=str(answer.text), usage=usage)


def _checked(answer: Completion) -> Completion:
    """The completion; ClientError if a field has an invalid value, with which it could not be logged."""
    try:
        msgspec.convert(msgspec.structs.asdict(answer), complete(Completion))
        with suppress(UnicodeEncodeError):  # a lone surrogate, which the log replaces
            msgspec.json.encode(msgspec.structs.replace(answer, text="", usage={}))
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise ClientError(f"it returned an invalid Completion: {error}", kind="python") from error
    if (odd := odd_key(answer.usage)) is not None:
        problem = f"its usage has the name {odd!r:.80}; expected one without quotes and backslashes"
        raise ClientError(problem, kind="python")
    for name, value in answer.usage.items():
        if not math.isfinite(value):
            raise ClientError(f"its usage.{name} is {value}; expected a finite number", kind="python")
    return answer


def _waits(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _evsys(generate: Callable[..., Any]) -> Ask:
    """EvSys' ``generate``, which takes and returns text; settings that are not given keep its defaults."""

    def ask(request: Request) -> Any:
        if request.extra:
            unknown = ", ".join(sorted(request.extra))
            raise ClientError(f"generate() does not accept {unknown}; remove it", kind="python", hopeless=True)
        limits = {"max_tokens": request.max_tokens, "temperature": request.temperature}
        given = {name: value for name, value in limits.items() if value is not None}
        prompt = as_text(request, "give the object an async complete()")
        return generate(prompt=prompt, stop=list(request.stop) or None, **given)

    return ask


def _function(function: Callable[..., Any]) -> Ask:
    """A function that gets the chat messages if its first argument is ``messages``, else the prompt as text."""
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except ValueError:  # a built-in without a signature
        first = ""
    if first == "messages":
        return lambda request: function(request.messages)
    return lambda request: function(
        as_text(request, "name the function's argument 'messages' to receive the chat messages")
    )


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            public = [key for key, value in vars(module).items() if not key.startswith("_") and callable(value)]
            close = nearest(attribute, public, 1)
            expected = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(public) or 'nothing'}"
            raise InputError.at(f"python/{name}", f"it has no {attribute!r}", expected)
        target = getattr(target, part)
    return target


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError.at(f"python/{name}", "is neither a module nor a .py file", _EXPECTED)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InputError.at(f"python/{name}", "no such module", "write a file as FILE.py:OBJECT") from error
        raise PluginError(f"python/{name}: {type(error).__name__}: {error}") from error


def _from_file(name: str) -> ModuleType:
    """Run a file as a module. No bytecode is written, and its folder is not added to ``sys.path``."""
    path = Path(name)
    _, code = compiled_file(name, _EXPECTED)
    module = ModuleType(f"calipers_model_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up there
    try:
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        sys.modules.pop(module.__name__, None)
        raise PluginError(f"{name}: {type(error).__name__}: {error}") from error
    return module
