"""Hugging Face models in this process: loaded once, called in batches, released when idle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

from calipers.clients import Callers, Completion, Connection, Request, Scored
from calipers.clients.huggingface import ADAPTER, CONFIG, DEFAULT_OPTIONS, LoadOptions, folder_of
from calipers.clients.huggingface.batches import BatchBounds, PrefixCache
from calipers.clients.huggingface.checkpoint import BatchPlan, Checkpoint, Template, load, place
from calipers.clients.huggingface.generate import completions
from calipers.clients.huggingface.score import Texts, scores
from calipers.clients.reply import cleaned
from calipers.errors import ClientError, InputError

Asked = TypeVar("Asked")
Given = TypeVar("Given")
Work = Callable[[Sequence[Asked]], Sequence[Given | Exception]]
"""Answers to some calls, in their order; an exception among them is raised to its caller."""

LINGER = 0.005  # seconds without another arrival after which a batch is whole, if nobody says how many may come
PATIENCE = 60.0  # seconds without another arrival after which a batch begins without those that are still to come


class Batching(Generic[Asked, Given]):
    """A queue before one thread. What arrives while the thread is busy goes in together when it is free.

    Workers that were answered together come back together, but not in the same instant: each has its answer verified
    and logged first. So a batch begins when all workers wait, and which calls it has depends on their order and not on
    their timing. Only a worker that is away for longer than anybody has patience is left behind.

    ``order`` sorts the calls of a batch.
    """

    def __init__(
        self,
        thread: Executor,
        work: Work[Asked, Given],
        callers: Callers | None = None,
        order: Callable[[Asked], Any] | None = None,
    ) -> None:
        self._thread, self._work, self._order = thread, work, order
        self._callers = callers or Callers()
        self.impatient = False  # a batch began although a worker was still to come
        self._arrival: asyncio.Event | None = None  # of the loop that is waited in
        self._callers.observe(self._arrived)
        self._waiting: list[tuple[Asked, asyncio.Future[Given]]] = []
        self._draining: asyncio.Task[None] | None = None

    async def ask(self, request: Asked) -> Given:
        """The answer to one call."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Given] = loop.create_future()
        self._waiting.append((request, answer))
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        self._callers.wait()
        try:
            return await answer
        finally:
            if answer.cancelled():  # its caller has gone
                self._callers.answered()

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._arrivals()
                batch, self._waiting = self._waiting, []
                present = [(request, answer) for request, answer in batch if not answer.done()]
                if (order := self._order) is not None:
                    present.sort(key=lambda call: order(call[0]))
                if present:
                    await self._answer(present)
        finally:
            self._draining = None

    async def _arrivals(self) -> None:
        """Wait until all workers wait; without their number, or beyond all patience, until nobody comes any more."""
        self._arrival = asyncio.Event()
        while not self._callers.all_wait:
            self._arrival.clear()
            try:
                async with asyncio.timeout(LINGER if self._callers.workers is None else PATIENCE):
                    await self._arrival.wait()
            except TimeoutError:
                self.impatient |= self._callers.workers is not None
                return

    def _arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.set()

    async def _answer(self, batch: Sequence[tuple[Asked, asyncio.Future[Given]]]) -> None:
        requests = [request for request, _ in batch]
        ends: Sequence[Given | Exception]
        try:
            ends = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, requests)
        except Exception as error:  # a bug of ours: every caller shall see it, none shall wait for ever
            ends = [error] * len(batch)
        for end, (_, answer) in zip(ends, batch, strict=True):
            if answer.done():
                continue  # its caller has gone
            self._callers.answered()
            if isinstance(end, Exception):
                answer.set_exception(end)
            else:
                answer.set_result(end)


Stamp = tuple[str, LoadOptions, tuple[tuple[str, int, int], ...]]

_lock = Lock()
_idle: list[tuple[Stamp, Checkpoint]] = []  # one at most


def take(path: str, options: LoadOptions = DEFAULT_OPTIONS) -> tuple[Stamp, Checkpoint]:
    """The idle checkpoint, when it is the one that lies at that path as it is now; else that one, loaded.

    Whoever takes it has it alone. An idle one of another path makes room before another is loaded.
    """
    stamp = _stamp(path, options)
    with _lock:  # over the loading too: while transformers loads, it changes settings of the whole process
        loaded = _idle.pop() if _idle else None
        if loaded is not None and loaded[0] == stamp:
            return loaded
        del loaded
        return stamp, load(path, options)


def leave(taken: tuple[Stamp, Checkpoint]) -> None:
    """Leave a checkpoint that nobody uses any more."""
    with _lock:
        _idle[:] = [taken]


def facts(name: str, model_args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What lm-evaluation-harness' files say of a model and of its tokenizer; None where it is not the idle one."""
    path, options = Path(name).expanduser(), LoadOptions.of(model_args)
    stamp = _stamp(str(path) if path.exists() else name, options)
    with _lock:
        taken = next((checkpoint for kept, checkpoint in _idle if kept == stamp), None)
        if taken is None:
            return None
        model, words = taken.model, taken.tokenizer
        parameters, dtype = model.num_parameters(), str(model.dtype)
    adapter = None if options.peft is None else folder_of(options.peft, ADAPTER, options.revision)
    about_model = {
        "model_num_parameters": parameters,
        "model_dtype": dtype,
        "model_revision": options.revision or "main",
        "model_sha": _commit(folder_of(name, CONFIG, options.revision, options.subfolder)),
        **({} if options.peft is None else {"peft_sha": _commit(adapter)}),
    }
    about_words = {
        "tokenizer_pad_token": [words.convert_ids_to_tokens(taken.pads), str(taken.pads)],
        "tokenizer_eos_token": [words.eos_token, str(words.eos_token_id)],
        "tokenizer_bos_token": [words.bos_token, str(words.bos_token_id)],
        "eot_token_id": words.eos_token_id,
        "max_length": taken.longest,
    }
    return about_model, about_words


def _commit(folder: Path | None) -> str:
    """The commit of a snapshot in the hub's cache, whose folder has its name; "" for any other folder."""
    parts = folder.parts if folder is not None else ()
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts[:-1] else ""


def _stamp(path: str, options: LoadOptions) -> Stamp:
    """What tells one checkpoint from another, and from itself after a file of it was changed."""
    folders = [folder for folder in options.folders(path) if folder.is_dir()]
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    states = [(file.name, file.stat()) for file in files if file.is_file()]
    return path, options, tuple((name, state.st_mtime_ns, state.st_size) for name, state in states)


T = TypeVar("T")

IMPATIENT = (
    f"some batches started without a rollout whose verification took longer than {PATIENCE:g} s; "
    "in another run the last digits of scores may differ"
)
NO_TEMPLATE = "the model has no chat template; chat messages are joined with blank lines"


def connect(name: str, connection: Connection) -> HfModel:
    """The client of a checkpoint: a directory, or the id of one that the hub's local cache holds.

    It is looked for now, and loaded at the first call. Nothing is ever downloaded.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise InputError(f"model 'hf/{name}' needs {package}; pip install 'calipers[hf]'")
    path, options = Path(name).expanduser(), LoadOptions.of(connection.model_args)
    folder = folder_of(name, CONFIG, options.revision, options.subfolder)
    if folder is None:
        wrong = "no such directory"
        if options.revision is not None and folder_of(name, CONFIG, None, options.subfolder) is not None:
            wrong = f"the hub's local cache has no revision {options.revision!r} of it"
        raise InputError.at(f"hf/{name}", wrong, "expected a directory with a config.json")
    if not (folder / CONFIG).is_file():
        raise InputError.at(f"hf/{name}", "it has no config.json", "expected a directory with a checkpoint")
    options.check(name, connection.trust)
    return HfModel(str(path) if path.exists() else name, connection)


class HfModel:
    """Answers and likelihoods of one checkpoint. All its work is done in one thread, many calls at once."""

    def __init__(self, path: str, connection: Connection) -> None:
        self.notes: list[str] = []
        self._path, self._connection = path, connection
        self._options = LoadOptions.of(connection.model_args)
        self._closed = threading.Event()
        self._busy = threading.Lock()  # held while the thread uses the checkpoint, and for good once that is given away
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="calipers-model")
        self._taken: tuple[Stamp, Checkpoint] | ClientError | None = None
        self._cache: PrefixCache | None = None
        self._template = None if connection.template is None else Template(connection.template, self.notes)
        self._plan: BatchPlan | None = None
        callers = connection.callers
        self._completions: Batching[Request, Completion] = Batching(
            self._thread, self._complete, callers, lambda request: (request.task, request.sample)
        )
        self._scores: Batching[Texts, list[Scored]] = Batching(self._thread, self._score, callers)

    def batch_plan(self, kept: Any = None, where: str = "") -> dict[str, Any]:
        """The batch plan to use, as JSON: the one that a run has ``kept``, else the one for the device that is here."""
        self._plan = place(self._path, self._options).batch if kept is None else BatchPlan.read(kept, where)
        plan: dict[str, Any] = msgspec.to_builtins(self._plan)
        return plan

    async def complete(self, request: Request) -> Completion:
        """The model's answer; `ClientError` for every other end of a call."""
        return await self._completions.ask(request)

    async def score(self, requests: Texts) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none."""
        return await self._scores.ask(requests)

    async def close(self) -> None:
        """Let the thread go; what it is busy with ends at the next token. The next model may have the checkpoint."""
        self._closed.set()
        if self._completions.impatient or self._scores.impatient:
            self.notes.append(IMPATIENT)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._busy.acquire(blocking=False) and isinstance(self._taken, tuple):
            leave(self._taken)
            self._taken = None

    def _complete(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        connection, chat = self._connection, self._connection.api == "chat"

        def work(checkpoint: Checkpoint) -> Sequence[Completion | Exception]:
            bare = chat and self._template is None and not checkpoint.chats
            turns = bare and any(not isinstance(request.prompt, str) for request in requests)
            if turns and NO_TEMPLATE not in self.notes:
                self.notes.append(NO_TEMPLATE)
            bounds = self._bounds(checkpoint)
            cache = self._cache_of(checkpoint, bounds)
            return completions(checkpoint, cache, requests, chat, bounds, connection.price, self._template)

        return self._with_model(work, len(requests))

    def _score(self, calls: Sequence[Texts]) -> Sequence[list[Scored] | Exception]:
        def work(checkpoint: Checkpoint) -> Sequence[list[Scored] | Exception]:
            bounds = self._bounds(checkpoint)
            return scores(checkpoint, self._cache_of(checkpoint, bounds), calls, bounds, self._template)

        return self._with_model(work, len(calls))

    def _with_model(self, work: Callable[[Checkpoint], Sequence[T | Exception]], calls: int) -> Sequence[T | Exception]:
        """The work on a batch of calls; when it fails as a whole, so does each of them."""
        try:
            if not self._busy.acquire(blocking=False):
                raise ClientError("the model was closed before it answered", kind="closed")
            try:
                return work(self._loaded())
            finally:
                self._busy.release()
        except ClientError as error:
            return [error] * calls
        except Exception as error:  # of torch, transformers or the checkpoint; whatever it is, there is no answer
            message = cleaned(f"{type(error).__name__}: {error}", self._connection.secrets)
            return [ClientError(message, kind="hf")] * calls

    def _cache_of(self, checkpoint: Checkpoint, bounds: BatchBounds) -> PrefixCache:
        """What it remembers from one batch to the next."""
        self._cache = self._cache or PrefixCache(checkpoint, bounds.plan)
        return self._cache

    def _bounds(self, checkpoint: Checkpoint) -> BatchBounds:
        """What batches may use: by the plan that was set, else the one for the device that the checkpoint is on."""
        here = checkpoint.batch
        plan = self._plan or here
        if plan.where != here.where:
            note = f"the run was planned for {plan.device_words} and now uses {here.device_words}; its batches stay as "
            note += "planned, but the last digits of scores may differ"
            self.notes += [note] if note not in self.notes else []
        return BatchBounds(self._connection.most, self._connection.timeout, self._closed, plan)

    def _loaded(self) -> Checkpoint:
        """The checkpoint, loaded once; one that cannot be loaded is not tried again."""
        if self._taken is None:
            try:
                self._taken = take(self._path, self._options)
            except ClientError as error:
                message = cleaned(str(error), self._connection.secrets)
                self._taken = ClientError(message, kind=error.kind, hopeless=True)
        if isinstance(self._taken, ClientError):
            raise self._taken
        return self._taken[1]
