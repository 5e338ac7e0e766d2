"""The agents of a collection: NeMo Gym's agent servers, which its head server lists, or the built-in agent.

The built-in agent asks any model for one answer, and has it judged by a resources server's ``/verify`` or by a verifier
of Calipers::

    row ──► /seed_session ──► model ──► /verify ──► rollout
              └── its cookies are also sent to /verify

It does the same as NeMo Gym's simple agent with a model that calls no tools, but without an agent server.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from calipers.clients import Client, Completion, Request
from calipers.clients.openai import LARGEST_ERROR, SECONDS_TO_CONNECT, call_failed, make_room, read_body
from calipers.clients.reply import from_status, malformed, read_refusal
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError, VerifierError
from calipers.running.loop import finish
from calipers.systems.nemo_gym import FAILURE, PARAMS, ROLLOUT, TASK
from calipers.systems.nemo_gym.collect.request import Key, Row, key_of
from calipers.systems.nemo_gym.wire import TEXTS, response_object, response_usage, target_of, verdict_keys
from calipers.tasks import Message, Task
from calipers.verifiers import NamedVerifier, Verifier, judged, ready
from calipers.verifiers.reasoning import keeping

LARGEST = 64 * 2**20  # bytes of a rollout; a longer line could not be read back
LARGEST_METRICS = 2**30  # bytes of the metrics of all rollouts
ABSENT = frozenset({404, 405, 501})  # HTTP statuses of a route that does not exist
_LARGE_BODY = 2**20  # bytes; aiohttp warns about larger bodies unless they are files
_EXPECTED = "expected http(s)://HOST:PORT, such as http://127.0.0.1:8000"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Reach:
    """The settings of connections to servers."""

    timeout: float = 1800.0  # seconds per call; a rollout may have many turns
    most: int = 32  # the largest number of calls in flight
    token: str | None = field(default=None, repr=False)  # bearer token, sent to every server
    secrets: Secrets = field(default_factory=Secrets)


@dataclass(frozen=True, slots=True)
class GymReply:
    """The successful response of a server."""

    raw: bytes = field(repr=False)
    cookies: Mapping[str, str] = field(repr=False, default_factory=dict)  # name -> value, quoted as in the header


def checked(url: str, option: str) -> str:
    """A server's address without a trailing slash; InputError if it is invalid, without showing a password."""
    if not url.isprintable() or " " in url:
        raise InputError.at(option, "the URL contains spaces or control characters", _EXPECTED)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise InputError.at(option, "cannot parse the host or port of the URL", _EXPECTED) from None
    if parts.username is not None or parts.password is not None:
        raise InputError.at(option, "the URL contains a user name or a password", _EXPECTED)
    if parts.query or parts.fragment:
        raise InputError.at(option, "the URL contains a query", _EXPECTED)
    if not usable:
        raise InputError.at(option, f"{url!r} is not a server address", _EXPECTED)
    return url.rstrip("/")


class Server:
    """A server. Its connections belong to the event loop of the first call, until `close`.

    Redirects are not followed and no proxy is used, as between NeMo Gym's own servers.
    """

    def __init__(self, url: str, reach: Reach) -> None:
        self.url = url
        self.shown = urlsplit(url).netloc
        self._reach = reach
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if reach.token:
            self._headers["Authorization"] = f"Bearer {reach.token}"
        self._http: aiohttp.ClientSession | None = None

    async def post(
        self, route: str, body: Row, *, cookies: Mapping[str, str] | None = None, most: int = LARGEST
    ) -> GymReply:
        """The response to one call of a route; `ClientError` if the call fails in any way."""
        try:
            data = _encode(body)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise ClientError(f"the request cannot be encoded as JSON: {error}", kind="prompt") from None
        http = self._http or self._open()
        try:
            async with http.post(
                URL(self.url + route),
                data=data if len(data) <= _LARGE_BODY else io.BytesIO(data),
                headers={**self._headers, **_cookie_header(cookies or {})},
                allow_redirects=False,
            ) as response:
                success = response.status < 300
                raw = await read_body(response.content, most if success else LARGEST_ERROR, whole=success)
                if success:
                    return GymReply(raw, {name: morsel.coded_value for name, morsel in response.cookies.items()})
                raise from_status(response.status, read_refusal(raw), response.headers, self._reach.secrets)
        except (aiohttp.ClientError, TimeoutError) as error:
            failed = call_failed(error, self.shown, self._reach.timeout, self._reach.secrets)
            raise failed from None  # the repr of the original error may contain headers

    async def run(self, row: Row) -> dict[str, Any]:
        """The rollout that the agent server's ``/run`` returns."""
        return decoded((await self.post("/run", row)).raw)

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The metrics that ``/aggregate_metrics`` returns for an agent's rows; None if there is no such route."""
        try:
            answer = await self.post("/aggregate_metrics", {"verify_responses": rows}, most=LARGEST_METRICS)
        except ClientError as error:
            if error.kind in {f"http_{status}" for status in ABSENT}:
                return None
            raise
        return decoded(answer.raw)

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _open(self) -> aiohttp.ClientSession:
        make_room(self._reach.most)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._reach.most),
            timeout=aiohttp.ClientTimeout(total=self._reach.timeout, sock_connect=SECONDS_TO_CONNECT),
            cookie_jar=aiohttp.DummyCookieJar(),  # no shared cookies, because a session belongs to one rollout
        )
        return self._http


def _cookie_header(cookies: Mapping[str, str]) -> dict[str, str]:
    """The header with cookies as the server wrote them: aiohttp itself sends fewer names than it reads."""
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}


def decoded(raw: bytes) -> dict[str, Any]:
    """A response body that is a JSON object. Bare NaN and Infinity, which Python's servers write, are accepted.

    For anything else, a ClientError that allows a retry.
    """
    try:
        answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            answer = json.loads(raw)
            _encode(answer)  # half of a surrogate pair can be parsed, but not be encoded
        except UnicodeEncodeError:
            raise malformed("the response contains half of a surrogate pair") from None
        except (ValueError, RecursionError):
            raise malformed("the response is not JSON") from None
    if not isinstance(answer, dict):
        raise malformed("the response is not a JSON object")
    return answer


ROUTE: Final = "/global_config_dict_yaml"
KIND: Final = "responses_api_agents"
LARGEST_HEAD = 16 * 2**20
SECONDS = 10.0


def head_agents(head: str) -> dict[str, str]:
    """The address of every agent that a head server lists, by name; ClientError if no head server answers."""
    return addresses(finish(lambda: _fetched(head)))


def addresses(configuration: bytes) -> dict[str, str]:
    """The addresses of the agents in a head server's configuration, which is YAML in a JSON string.

    >>> addresses(b'"math: {responses_api_agents: {simple_agent: {host: 0.0.0.0, port: 10007}}}"')
    {'math': 'http://127.0.0.1:10007'}
    """
    import yaml

    try:
        blocks = yaml.safe_load(msgspec.json.decode(configuration, type=str))
    except (msgspec.MsgspecError, ValueError, yaml.YAMLError, RecursionError):  # ValueError: such as an invalid date
        raise ClientError("the head server's configuration cannot be read", kind="malformed") from None
    urls = {}
    for name, block in blocks.items() if isinstance(blocks, Mapping) else ():
        kinds = block.get(KIND) if isinstance(block, Mapping) else None
        for settings in kinds.values() if isinstance(kinds, Mapping) else ():
            if address := _address(settings):
                urls[str(name)] = address
    return urls


def _address(settings: Any) -> str | None:
    if not isinstance(settings, Mapping) or not isinstance(settings.get("port"), int):
        return None
    host = str(settings.get("host") or "127.0.0.1")
    host = "127.0.0.1" if host in ("0.0.0.0", "localhost") else host  # 0.0.0.0 means that it listens on all interfaces
    return f"http://{host}:{settings['port']}"


async def _fetched(head: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(head + ROUTE, allow_redirects=False) as response,
        ):
            body = await response.content.read(LARGEST_HEAD)
    except (aiohttp.ClientError, TimeoutError):
        raise ClientError(f"no head server answers at {head}", kind="connection") from None
    if response.status != 200:
        raise ClientError(f"the head server at {head} returns HTTP {response.status}", kind=f"http_{response.status}")
    return body


_UNABLE: Final = ("tools", "previous_response_id", "conversation", "prompt", "stream", "background")
_SENT: Final = ("top_p", "user", "service_tier", "parallel_tool_calls", "top_logprobs")


class SimpleAgent:
    """An agent of one turn: a model, and a judge that is a resources server or a verifier.

    An answer whose judgement failed is kept for the retry, so that the model is not called twice.
    """

    def __init__(self, model: str, client: Client, judge: Server | NamedVerifier, secrets: Secrets) -> None:
        self._model, self._client, self._judge, self._secrets = model, client, judge, secrets
        self._open_verifier: Any = None  # the judge while it holds connections, if it is such a verifier
        self._answers: dict[Key, tuple[Completion, Mapping[str, str]]] = {}
        self._closed = False

    @property
    def notes(self) -> Sequence[str]:
        """The notes of the model's client and of the judge."""
        return *getattr(self._client, "notes", ()), *getattr(self._open_verifier, "notes", ())

    def check(self, row: Row, path: str) -> None:
        """Raise InputError for a row that cannot be requested or judged."""
        try:
            request_of(row)
            if not isinstance(self._judge, Server):
                self._judge.check(task_of(row, self._judge.name))
        except ClientError as error:
            raise InputError.at(path, f"task {row[TASK]}: {error}", "use an agent server for it") from None

    def ready(self) -> None:
        """Raise SandboxError if the verifier needs a sandbox that this machine does not have."""
        if not isinstance(self._judge, Server):
            ready([self._judge])

    async def run(self, row: Row) -> dict[str, Any]:
        """The rollout of a row."""
        key = key_of(row)
        answer = self._answers.pop(key, None)
        if answer is None:
            cookies = await self._seeded(row)
            answer = await self._client.complete(request_of(row)), cookies
        try:
            return await self._judge_answer(row, *answer)
        except ClientError:
            self._answers[key] = answer
            raise

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The resources server's metrics, because NeMo Gym's simple agent forwards the call; None without a server."""
        return await self._judge.aggregate(rows) if isinstance(self._judge, Server) else None

    async def close(self) -> None:
        """Close the connections."""
        if not self._closed:  # a client may be closed only once
            self._closed = True
            await self._client.close()
            if self._open_verifier is not None:
                await self._open_verifier.close()
        if isinstance(self._judge, Server):
            await self._judge.close()

    async def _seeded(self, row: Row) -> Mapping[str, str]:
        """The cookies of this rollout's session; empty if the judge has no sessions."""
        if not isinstance(self._judge, Server):
            return {}
        try:
            return (await self._judge.post("/seed_session", row)).cookies
        except ClientError as error:
            if error.kind in {f"http_{status}" for status in ABSENT}:
                return {}
            raise _verifier_error(error) from None

    async def _judge_answer(self, row: Row, completion: Completion, cookies: Mapping[str, str]) -> dict[str, Any]:
        answered = {**row, "response": response_of(row, self._model, completion)}
        if isinstance(self._judge, Server):
            try:
                return decoded((await self._judge.post("/verify", answered, cookies=cookies)).raw)
            except ClientError as error:
                raise _verifier_error(error) from None
        try:
            verdict = await judged(self._opened(self._judge), keeping(task_of(row, self._judge.name)), completion)
            return {**answered, **verdict_keys(verdict)}
        except VerifierError as error:
            problem = {"kind": "verifier", "message": str(error)}
            return {**answered, FAILURE: error.outcome, "error": problem}

    def _opened(self, judge: NamedVerifier) -> Verifier:
        """The verifier, opened once if it holds connections, as a model judge does."""
        use = getattr(judge, "use", None)
        if use is None:
            return judge
        self._open_verifier = self._open_verifier or use(self._secrets)
        verifier: Verifier = self._open_verifier
        return verifier


def request_of(row: Row) -> Request:
    """The model request of a row's ``responses_create_params``; ClientError if it needs more than one answer."""
    params: Mapping[str, Any] = {name: value for name, value in row[PARAMS].items() if value is not None}
    for name in _UNABLE:
        if params.get(name):
            raise _unable(f"{name} is set, but the built-in agent gives one answer and calls no tools")
    extra = {name: params[name] for name in _SENT if name in params}
    reasoning = params.get("reasoning") or {}
    if not isinstance(reasoning, Mapping):
        raise _unable("reasoning is not an object")
    if effort := reasoning.get("effort"):
        extra["reasoning_effort"] = effort
    extra |= _extra_body(params)
    seed = extra.pop("seed", None)
    system = params.get("instructions")
    turns = params.get("input")
    return Request(
        task=str(row[TASK]),
        sample=row[ROLLOUT],
        prompt=turns if isinstance(turns, str) else _turns(turns),
        system=system if isinstance(system, str) else None,
        max_tokens=params.get("max_output_tokens"),
        temperature=params.get("temperature"),
        seed=seed,
        extra=extra,
    )


def _extra_body(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in ``metadata.extra_body``, which is JSON in a string; the collector puts seeds there."""
    try:
        body = json.loads((params.get("metadata") or {}).get("extra_body") or "{}")
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise _unable("metadata.extra_body is not JSON") from None
    if not isinstance(body, dict):
        raise _unable("metadata.extra_body is not a JSON object")
    return body


def _turns(items: Any) -> list[Message]:
    """The input items of a request as the messages of a chat."""
    if not isinstance(items, list) or not items:
        raise _unable("input is neither text nor a list of messages")
    messages: list[Message] = []
    for item in items:
        if not isinstance(item, Mapping) or item.get("type", "message") != "message" or "role" not in item:
            raise _unable("input contains an item that is not a message")
        content = item.get("content")
        if isinstance(content, list):
            texts = [
                part.get("text", "") for part in content if isinstance(part, Mapping) and part.get("type") in TEXTS
            ]
            if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
                raise _unable("input contains a part that is not text")
            content = "".join(texts)
        if not isinstance(content, str):
            raise _unable("a message of the input has no content")
        messages.append({"role": item["role"], "content": content})
    return messages


def task_of(row: Row, verifier: str) -> Task:
    """A row as a task of Calipers. The key ``params`` of the row has the parameters of the verifier."""
    params = row.get("params") or {}
    prompt = request_of(row).prompt
    return Task(str(row[TASK]), prompt, verifier, target_of(row), params if isinstance(params, Mapping) else {})


def response_of(row: Row, model: str, completion: Completion) -> dict[str, Any]:
    """A completion as the response object that ``/verify`` expects; its usage is null unless both counts are known."""
    refusal = {"type": "refusal", "refusal": completion.text}
    text = {"type": "output_text", "text": completion.text, "annotations": []}
    counts, usage = completion.usage, None
    if "input_tokens" in counts and "output_tokens" in counts:
        read, written = int(counts["input_tokens"]), int(counts["output_tokens"])
        cached, reasoning = (int(counts.get(name, 0)) for name in ("cached_tokens", "reasoning_tokens"))
        usage = response_usage(read, written, read + written, cached, reasoning)
    return response_object(
        f"{row[TASK]}_{row[ROLLOUT]}",
        model,
        refusal if completion.ending == "refused" else text,
        created=int(time.time()),
        cut=completion.ending == "truncated",
        usage=usage,
    )


def _unable(message: str) -> ClientError:
    return ClientError(message, kind="prompt")


def _verifier_error(error: ClientError) -> ClientError:
    """The same error, attributed to the verifier."""
    return ClientError(
        f"verifier: {error}",
        kind=f"verifier_{error.kind}",
        retry=error.retry,
        wait=error.wait,
        slow_down=error.slow_down,
        hopeless=error.hopeless,
    )
