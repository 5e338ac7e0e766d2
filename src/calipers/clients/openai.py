"""Completions and log-likelihoods from a server with an OpenAI-compatible API.

Log-likelihoods use the completions route: the server returns the log-probability of each token of a prompt.

::

    context + continuation ──► tokens of the prompt, each with its log-probability
                                    └── scored from the border on, which the tokens' texts show

There are two ways to request them, and a short probe finds the one that a server supports: OpenAI's ``echo`` with
``logprobs``, and vLLM's ``prompt_logprobs``. No tokenizer is needed here. If a token crosses the border, the context is
also sent by itself: as in lm-evaluation-harness, as many tokens are skipped as the context has by itself, and the rest
is scored as the continuation of the unchanged context.
"""

from __future__ import annotations

import asyncio
import errno
import io
import math
import os
import re
import resource
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import Any, Final

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from calipers.clients import (
    NONE_HERE,
    Completion,
    Connection,
    Continuation,
    Request,
    Rolling,
    Scored,
    Text,
    as_text,
    reply,
)
from calipers.clients.address import Address, find
from calipers.clients.reply import cleaned, described, from_status, malformed, read_refusal
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError
from calipers.typed import complete


async def read_body(content: aiohttp.StreamReader, most: int, *, whole: bool) -> bytes:
    """Read a body of limited size; a larger body is an error if ``whole``, else only its start is returned."""
    chunks, size = [], 0
    try:
        while size <= most and not content.at_eof():
            chunk = await content.readany()
            chunks.append(chunk)
            size += len(chunk)
    except aiohttp.ClientPayloadError:
        if whole:
            raise
    if whole and size > most:
        raise ClientError(f"the response is longer than {most} bytes", kind="malformed")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


PROBE: Final = "one two"
ECHO: Final = {"echo": True, "logprobs": 1}
LISTED: Final = {"prompt_logprobs": 1}
REFUSED: Final = ("http_400", "http_422", "http_501")  # kinds of errors of a server that does not support the request
_SPECIAL: Final = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")  # a special token, as servers print it


class _Echoed(msgspec.Struct, gc=False):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Listed(msgspec.Struct, gc=False):
    logprob: float
    rank: int
    decoded_token: str | None = None


class _ScoredChoice(msgspec.Struct, gc=False):
    logprobs: _Echoed | None = None
    prompt_logprobs: list[dict[str, _Listed] | None] | None = None


class _ScoredReply(msgspec.Struct, gc=False):
    choices: list[_ScoredChoice] = []
    usage: Any = None


_decode = msgspec.json.Decoder(complete(_ScoredReply)).decode


@dataclass(frozen=True, slots=True)
class Read:
    """The tokens of a prompt, as the server read it. The first has no log-probability, as it has no context."""

    tokens: Sequence[str]  # the text of each token
    logprobs: Sequence[float | None]
    greedy: Sequence[bool]  # whether each token is the most likely one
    read: int | None  # input tokens, as the server counted them
    wrote: int | None  # output tokens, likewise

    def spells(self, prompt: str) -> bool:
        """Whether the texts of the tokens are the prompt, perhaps after tokens that the server added."""
        return "".join(self.tokens).endswith(prompt)

    def border(self, prompt: str, at: int) -> int | None:
        """The index of the token that begins at a character of the prompt; None if there is none, or if unknown."""
        starts = [0, *accumulate(map(len, self.tokens))]
        added = starts[-1] - len(prompt)  # characters that the server put before the prompt
        if not self.spells(prompt) or added + at not in starts:
            return None
        return len(starts) - 1 - starts[::-1].index(added + at)  # the last: a token without text belongs before it


Counts = tuple[int | None, int | None]  # the numbers of input and output tokens; None if unknown


def _counts(usage: Any) -> Counts:
    """The counts that a server returned; a count that is not valid is unknown, as for a completion."""
    counts = usage if isinstance(usage, dict) else {}
    read, wrote = (counts.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return int(read) if reply.is_count(read) else None, int(wrote) if reply.is_count(wrote) else None


def _echoed(choice: _ScoredChoice, counts: Counts) -> Read | None:
    """The echoed tokens of a prompt, without the generated token; None if their log-probabilities are incomplete."""
    echo = choice.logprobs
    if echo is None or not echo.token_logprobs or echo.top_logprobs is None:
        return None
    returned = len(echo.token_logprobs)
    count = counts[0] if counts[0] in (returned - 1, returned) else returned - 1
    logprobs, tops = echo.token_logprobs[:count], echo.top_logprobs[:count]
    if len(tops) < len(logprobs):
        return None
    greedy = []
    for logprob, top in zip(logprobs, tops, strict=True):
        if logprob is not None and not top:
            return None
        greedy.append(logprob is None or not top or logprob >= max(top.values()))
    return Read((echo.tokens or [])[:count], logprobs, greedy, *counts)


def _listed(choice: _ScoredChoice, counts: Counts, prompt: str) -> Read | None:
    """The tokens of a prompt from vLLM's list: each entry has the token itself and the most likely one."""
    if choice.prompt_logprobs is None:
        return None
    entries = [
        None if not entry else max(entry.values(), key=lambda token: token.rank) for entry in choice.prompt_logprobs
    ]
    tokens = ["" if token is None else token.decoded_token or "" for token in entries]
    known = "".join(tokens)
    if tokens and entries[0] is None and prompt.endswith(known):
        tokens[0] = prompt.removesuffix(known)  # vLLM returns nothing for the first token: it is what remains
    logprobs = [None if token is None else token.logprob for token in entries]
    greedy = [token is None or token.rank <= 1 for token in entries]
    return Read(tokens, logprobs, greedy, *counts)


def _lead(probe: Read) -> int | None:
    """The number of tokens that the server put before the probe; None if it cannot be determined."""
    border = probe.border(PROBE, 0)
    if border is not None:
        return border
    return 1 if probe.tokens and _SPECIAL.fullmatch(probe.tokens[0]) else None


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _empty(text: Continuation) -> ClientError:
    return ClientError(f"the continuation {text.continuation!r} has no tokens of its own", kind="prompt")


class Deadlines:
    """Cancels calls that take longer than a number of seconds.

    All calls have the same time limit, so the oldest is always due first, and one timer for the oldest is enough. A
    timer for each call, as in aiohttp, takes a twelfth of the time of a call to a fast server.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[object]:
        """Start the time limit of the current task's call; returns the task, for `end`."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        due = self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._look)
        return task

    def end(self, task: asyncio.Task[object]) -> bool:
        """End the time limit of a call; returns whether only the time limit has cancelled it."""
        self._due.pop(task, None)
        if task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Cancel all calls that are due, and set the timer for the next one."""
        loop, self._timer = asyncio.get_running_loop(), None
        now = loop.time()
        for task, due in list(self._due.items()):
            if due > now:
                self._timer = loop.call_at(due, self._look)
                return
            del self._due[task]
            self._late.add(task)
            task.cancel()


MOST: Final = 4  # stop strings that OpenAI's own servers accept


def cut(completion: Completion, stops: Sequence[str]) -> Completion:
    """The completion cut at the first stop string, as if it had ended there; unchanged if it has none.

    >>> completion = cut(Completion("4\\n\\nQ: 3 + 3", "length", "truncated"), ["Q:", "\\n\\n"])
    >>> completion.text, completion.finish_reason, completion.ending
    ('4', 'stop', '')
    """
    starts = [start for stop in stops if stop and (start := completion.text.find(stop)) >= 0]
    if not starts:
        return completion
    ending = "" if completion.ending == "truncated" else completion.ending  # it stopped before it ran out of tokens
    text = completion.text[: min(starts)]
    return msgspec.structs.replace(completion, text=text, finish_reason="stop", ending=ending)


def fewer(sent: int) -> tuple[int, str]:
    """The number of stop strings to send to a server that refused this many, and a note for the user."""
    if sent > MOST:
        return MOST, (
            f"the server does not accept {sent} stop strings; the first {MOST} "
            "are sent, and Calipers truncates answers at the others"
        )
    note = "the server does not accept stop strings; Calipers truncates the answers itself, after you paid for them"
    return 0, note


LARGEST = 64 * 2**20
"""Maximum bytes of a reply, after decompression."""

LARGEST_ERROR = 64 * 2**10
SECONDS_TO_CONNECT = 30.0
SECONDS_WITHOUT_FILES = 1.0
"""The pause after this process could not open another connection, so that others are closed first."""

SPARE_FILES = 128  # open files besides the connections
_LARGE_BODY = 2**20  # bytes; aiohttp warns if a larger body is not a file

_encode = msgspec.json.Encoder().encode


def connect(name: str, connection: Connection) -> ServedModel:
    """The client of a served model; on the completions route, it also returns log-likelihoods."""
    kind = ServedModel if connection.api == "chat" else ScoringModel
    return kind(name, connection, find(connection))


class ServedModel:
    """Completions from one model behind an OpenAI-style route.

    A setting that the server does not accept (a seed, the name ``max_tokens``, or too many stop strings) is not sent
    again; ``notes`` mentions it once.
    """

    def __init__(self, name: str, connection: Connection, address: Address) -> None:
        self.notes: list[str] = []
        if address.exposed:
            self.notes.append(f"the API key is sent to {address.shown} unencrypted: the URL is http, not https")
        self._name, self._connection, self._address = name, connection, address
        self._url = URL(address.url)
        self._headers = CIMultiDict(address.headers)  # the type that aiohttp needs, made once
        self._deadlines = Deadlines(connection.timeout)
        self._secrets = connection.secrets
        self._http: aiohttp.ClientSession | None = None  # belongs to the loop of the first call
        self._limit, self._seeds = "max_tokens", True  # the name of the token limit; whether seeds are sent
        self._stops: int | None = None  # number of stop strings to send; None: all
        self._frames: dict[Any, tuple[bytes, bytes, Any]] = {}  # settings -> the body before and after the prompt

    async def complete(self, request: Request) -> Completion:
        """The model's completion; `ClientError` if the request fails in any way."""
        body = self._body(request)
        while True:
            started, stops = perf_counter(), self._stops
            seed = request.extra.get("seed", request.seed if self._seeds else None)
            status, headers, raw = await self._post(body)
            if 200 <= status < 300:
                latency_s = perf_counter() - started
                seed = seed if isinstance(seed, int) else None  # --gen-kwargs may send anything
                completion = reply.completion(reply.decode(raw), latency_s, self._connection.price, self._secrets, seed)
                if not request.stop or request.extra.get("include_stop_str_in_output"):
                    return completion
                return cut(completion, request.stop)
            refusal = read_refusal(raw)
            if status in (400, 422):
                self._learn(request, refusal.message, refusal.param, len(request.stop[:stops]))
            sent, body = body, self._body(request)
            if body == sent:
                raise from_status(status, refusal, headers, self._secrets)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._deadlines.close()
            await self._http.close()

    def _body(self, request: Request) -> bytes:
        """The body of a call. Everything except prompt and seed is the same in all calls of a run, and encoded once."""
        if not isinstance(request.prompt, str) or request.system or self._connection.api != "chat":
            return self._whole_body(request)
        key = request.max_tokens, request.temperature, tuple(request.stop), id(request.extra), self._limit, self._stops
        frame = self._frames.get(key)
        if frame is None:
            if "seed" in request.extra or "messages" in request.extra:
                return self._whole_body(request)
            mark = f"{id(self)}-here"
            whole = self._whole_body(msgspec.structs.replace(request, prompt=mark, seed=None))
            before, _, after = whole.partition(_encode(mark))
            frame = self._frames[key] = before, after[:-1], request.extra  # a reference to extra keeps its id unique
        try:
            prompt = _encode(request.prompt)
        except UnicodeEncodeError:  # a lone surrogate
            return self._whole_body(request)
        seed = b',"seed":%d}' % request.seed if request.seed is not None and self._seeds else b"}"
        return b"%b%b%b%b" % (frame[0], prompt, frame[1], seed)

    def _whole_body(self, request: Request) -> bytes:
        body: dict[str, Any] = {"model": self._name}
        if self._connection.api == "chat":
            body["messages"] = request.messages
        else:
            body["prompt"] = as_text(request, "use the chat route")
        if request.max_tokens is not None:
            body[self._limit] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stops := request.stop[: self._stops]:
            body["stop"] = list(stops)
        if request.seed is not None and self._seeds:
            body["seed"] = request.seed
        body.update(request.extra)
        return self._written(body)

    def _written(self, body: dict[str, Any]) -> bytes:
        try:
            return _encode(body)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:  # a lone surrogate, or a value that JSON lacks
            problem = f"the request cannot be encoded as JSON: {described(error, self._secrets)}"
            raise ClientError(problem, kind="prompt") from error

    def _learn(self, request: Request, message: str, param: str, stops: int) -> None:
        """Stop sending the setting that a refusal names; ``stops`` is the number of stop strings in that request."""
        if "max_completion_tokens" in message and request.max_tokens is not None and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"
            self.notes.append(
                "the server requires max_completion_tokens instead of max_tokens; max_completion_tokens is sent"
            )
        blamed = param == "seed" if param else re.search(r"\bseed\b", message, re.IGNORECASE)
        if blamed and request.seed is not None and self._seeds:
            self._seeds = False
            self.notes.append("the server does not accept a seed; none is sent, so answers may differ between runs")
        blamed = param.startswith("stop") if param else re.search(r"\bstop\b", message, re.IGNORECASE)
        if blamed and stops and stops == len(request.stop[: self._stops]):  # otherwise another call has reduced it
            self._stops, note = fewer(stops)
            self.notes.append(note)

    async def _post(self, body: bytes) -> tuple[int, Any, bytes]:
        """The status, headers and body of the response to one call."""
        http = self._http or self._open()
        data = body if len(body) <= _LARGE_BODY else io.BytesIO(body)
        call = self._deadlines.begin()
        try:
            # Not as headers of the session, because aiohttp sends those, including the key, to a proxy.
            response = await http.post(
                self._url, data=data, headers=self._headers, allow_redirects=False, proxy=self._address.proxy
            )
            try:
                good = response.status < 300
                raw = await read_body(response.content, LARGEST if good else LARGEST_ERROR, whole=good)
                return response.status, response.headers, raw
            finally:
                response.close()  # if the body was read to its end, the connection is already back in the pool
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._failed(error) from None  # the repr of aiohttp's error has the key
        except asyncio.CancelledError:
            if not self._deadlines.end(call):
                raise
            raise self._failed(TimeoutError()) from None
        finally:
            self._deadlines.end(call)

    def _failed(self, error: Exception) -> ClientError:
        return call_failed(error, self._address.shown, self._connection.timeout, self._secrets)

    def _open(self) -> aiohttp.ClientSession:
        make_room(self._connection.most)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connection.most),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=SECONDS_TO_CONNECT),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._http


class ScoringModel(ServedModel):
    """A served model that also returns log-likelihoods. Before the first of them, it sends a probe."""

    def __init__(self, name: str, connection: Connection, address: Address) -> None:
        super().__init__(name, connection, address)
        self._way: dict[str, Any] | None = None  # the body's fields that request likelihoods; None before the probe
        self._lead: int | None = None  # number of tokens that the server puts before a text; None if unknown
        self._probing = asyncio.Lock()

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods of texts, in their order; `ClientError` if one of them has none."""
        async with self._probing:
            if self._way is None:
                await self._probe()
        results = await asyncio.gather(*map(self._scored, requests), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Scored)]

    async def _scored(self, text: Text) -> Scored:
        if isinstance(text, Rolling):
            return await self._from(text.text, 0) if text.text else Scored(0.0, True, 0)
        if not text.continuation:
            raise _empty(text)
        if not isinstance(text.context, str):
            raise ClientError("the context is a chat, but only text can be scored here", kind="prompt")
        return await self._from(text.context + text.continuation, len(text.context.rstrip()), text)

    async def _from(self, prompt: str, at: int, text: Continuation | None = None) -> Scored:
        """The likelihood of the part of a prompt that begins at a character."""
        if at == 0 and not self._lead:
            raise ClientError(
                "a text without a context cannot be scored: the server adds no token before it, "
                "and servers return no log-probability for a first token",
                kind="prompt" if text else NONE_HERE,
                hopeless=text is None,  # every whole text would fail in the same way
            )
        calls = [whole := await self._ask(prompt)]
        first = self._lead if at == 0 else whole.border(prompt, at)
        if first is None:  # a token crosses the border, or has a part of a character
            calls.append(alone := await self._ask(prompt[:at]))
            first = len(alone.logprobs)
            if whole.spells(prompt):  # then score the rest of the continuation after the unchanged context
                calls.append(whole := await self._ask(prompt[:at] + "".join(whole.tokens[first:])))
        logprobs = whole.logprobs[first:]
        if text is not None and not logprobs:
            raise _empty(text)
        known = [logprob for logprob in logprobs if logprob is not None]
        if len(known) < len(logprobs):
            raise malformed("a token of the prompt has no log-probability")
        counts = (_sum(call.read for call in calls), _sum(call.wrote for call in calls))
        return Scored(math.fsum(known), all(whole.greedy[first:]), len(known), *counts)

    async def _ask(self, prompt: str) -> Read:
        prompt_read = await self._try(prompt, self._way or ECHO)
        if prompt_read is None:
            raise malformed("the response has no log-probabilities for the prompt")
        return prompt_read

    async def _try(self, prompt: str, way: dict[str, Any]) -> Read | None:
        """The tokens of a prompt, requested in one way; None if the response does not have them."""
        body = {"model": self._name, "prompt": prompt, "max_tokens": 1, "temperature": 0, **way}
        status, headers, raw = await self._post(self._written(body))
        if not 200 <= status < 300:
            raise from_status(status, read_refusal(raw), headers, self._secrets)
        try:
            scored = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise malformed("the response body is not a JSON completion with log-probabilities") from error
        if not scored.choices:
            raise malformed("the response has no choices")
        choice, counts = scored.choices[0], _counts(scored.usage)
        return _listed(choice, counts, prompt) if way is LISTED else _echoed(choice, counts)

    async def _probe(self) -> None:
        """Find the way in which this server returns likelihoods; ClientError if there is none."""
        message = ""
        for way in (ECHO, LISTED):
            try:
                probe = await self._try(PROBE, way)
            except ClientError as error:
                if error.kind not in REFUSED:
                    raise
                message = f" (the server says: {error})"
                continue
            if probe is not None and len(probe.logprobs) > 1 and None not in probe.logprobs[1:]:
                self._way, self._lead = way, _lead(probe)
                return
        tried = "neither echo with logprobs nor prompt_logprobs returns them"
        raise ClientError(
            f"the server does not return log-likelihoods of a prompt: {tried}{message}", kind=NONE_HERE, hopeless=True
        )


def call_failed(error: Exception, server: str, timeout: float, secrets: Secrets) -> ClientError:
    """The error for a request without a response, in our own words: aiohttp's may contain URLs and headers."""
    if "content-encoding" in str(error).lower():  # aiohttp raises different types of errors for it
        return reply.malformed("the response uses a compression that cannot be read")
    match error:
        case aiohttp.ClientPayloadError():
            return reply.malformed("the connection closed in the middle of the response")
        case aiohttp.ConnectionTimeoutError():
            return _unreachable(f"cannot connect to {server}: connection refused")
        case TimeoutError():
            return ClientError(f"no answer within {timeout:g} s", kind="timeout", retry=True)
        case aiohttp.ClientProxyConnectionError():
            return _unreachable(f"cannot connect to {server}: the proxy cannot be reached")
        case aiohttp.ClientHttpProxyError(status=status):
            return _unreachable(f"cannot connect to {server}: the proxy returned HTTP {status}")
        case aiohttp.ClientConnectorDNSError():
            return _unreachable(f"cannot connect to {server}: no such host")
        case aiohttp.ClientConnectorCertificateError():
            return _unreachable(f"cannot connect to {server}: its certificate is not trusted")
        case aiohttp.ClientSSLError(os_error=why):  # its errno is not one of the system
            reason = getattr(why, "reason", None) or "no reason given"
            return _unreachable(f"cannot connect to {server}: TLS failed ({cleaned(str(reason), secrets)})")
        case aiohttp.ClientConnectorError(os_error=OSError(errno=errno.EMFILE | errno.ENFILE)):
            problem = "this process cannot open more connections; lower --concurrency, or raise ulimit -n"
            return ClientError(
                problem, kind="connection", retry=True, slow_down=True, wait=SECONDS_WITHOUT_FILES, before_answer=True
            )
        case aiohttp.ClientConnectorError(os_error=why):
            reason = os.strerror(why.errno) if why.errno else cleaned(str(why), secrets)
            return _unreachable(f"cannot connect to {server}: {reason.lower()}")
        case aiohttp.ClientResponseError():
            return reply.malformed("the response is not HTTP")
        case _:
            return ClientError("the connection closed before the response", kind="connection", retry=True)


def make_room(calls: int) -> None:
    """Raise the limit of open files to the number of concurrent requests, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = calls + SPARE_FILES if hard == resource.RLIM_INFINITY else min(calls + SPARE_FILES, hard)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
        with suppress(OSError, ValueError):  # otherwise, calls that cannot open a connection report it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _unreachable(message: str) -> ClientError:
    """The error for a request that did not reach the server, because no connection to it was made."""
    return ClientError(message, kind="connection", retry=True, hopeless=True, before_answer=True)
