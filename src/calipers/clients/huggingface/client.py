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
from calipers.clients.huggingface.checkpoint import BatchPlan, Checkpoint, Template, load, placement_of
from calipers.clients.huggingface.generate import completions
from calipers.clients.huggingface.score import Texts, scores
from calipers.clients.reply import cleaned, described
from calipers.errors import ClientError, InputError

Asked = TypeVar("Asked")
Given = TypeVar("Given")
Work = Callable[[Sequence[Asked]], Sequence[Given | Exception]]
"""Returns the answers to a batch of calls, in order; an exception among them is raised to its caller."""

LINGER = 0.005  # seconds without a new call after which a batch begins, if the number of workers is unknown
PATIENCE = 60.0  # seconds without a new call after which a batch begins although not all workers wait


class Batching(Generic[Asked, Given]):
    """A queue of calls for one thread, which processes them in batches.

    Workers that are answered together call again at about the same time, but not at once: each answer is verified and
    logged first. So a batch begins when all workers wait; then its calls depend on their order and not on their timing.
    Only a worker that does not call for `PATIENCE` seconds is not waited for.

    ``order`` is the sort key for the calls of a batch.
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
        self.impatient = False  # a batch has begun although not all workers waited
        self._arrival: asyncio.Event | None = None  # set at each new call; belongs to the running event loop
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
            if answer.cancelled():  # the caller has given up
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
        """Wait until all workers wait, or until no new call arrives for `PATIENCE` seconds.

        If the number of workers is unknown, until no new call arrives for `LINGER` seconds.
        """
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
        results: Sequence[Given | Exception]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._work, requests)
        except Exception as error:  # a bug of ours: raise it to every caller, so that none waits forever
            results = [error] * len(batch)
        for result, (_, answer) in zip(results, batch, strict=True):
            if answer.done():
                continue  # the caller has given up
            self._callers.answered()
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)


Stamp = tuple[str, LoadOptions, tuple[tuple[str, int, int], ...]]

_lock = Lock()
_loaded: list[tuple[Stamp, Checkpoint]] = []  # a loaded checkpoint that is not in use; at most one


def take(path: str, options: LoadOptions = DEFAULT_OPTIONS) -> tuple[Stamp, Checkpoint]:
    """The checkpoint at a path: the idle one if it has the same path, options and unchanged files, else a new one.

    The caller has exclusive use of it until `leave`. Another idle checkpoint is freed before a new one is loaded.
    """
    stamp = _stamp(path, options)
    with _lock:  # also during loading, because transformers changes settings of the whole process meanwhile
        loaded = _loaded.pop() if _loaded else None
        if loaded is not None and loaded[0] == stamp:
            return loaded
        del loaded
        return stamp, load(path, options)


def leave(taken: tuple[Stamp, Checkpoint]) -> None:
    """Keep a checkpoint that is no longer in use as the idle one."""
    with _lock:
        _loaded[:] = [taken]


def facts(name: str, model_args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The fields about a model and its tokenizer in lm-evaluation-harness' files; None if it is not the idle one."""
    path, options = Path(name).expanduser(), LoadOptions.of(model_args)
    stamp = _stamp(str(path) if path.exists() else name, options)
    with _lock:
        checkpoint = next((checkpoint for kept, checkpoint in _loaded if kept == stamp), None)
        if checkpoint is None:
            return None
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        parameters, dtype = model.num_parameters(), str(model.dtype)
    adapter = None if options.peft is None else folder_of(options.peft, ADAPTER, options.revision)
    about_model = {
        "model_num_parameters": parameters,
        "model_dtype": dtype,
        "model_revision": options.revision or "main",
        "model_sha": _commit(folder_of(name, CONFIG, options.revision, options.subfolder)),
        **({} if options.peft is None else {"peft_sha": _commit(adapter)}),
    }
    about_tokenizer = {
        "tokenizer_pad_token": [tokenizer.convert_ids_to_tokens(checkpoint.pads), str(checkpoint.pads)],
        "tokenizer_eos_token": [tokenizer.eos_token, str(tokenizer.eos_token_id)],
        "tokenizer_bos_token": [tokenizer.bos_token, str(tokenizer.bos_token_id)],
        "eot_token_id": tokenizer.eos_token_id,
        "max_length": checkpoint.longest,
    }
    return about_model, about_tokenizer


def _commit(folder: Path | None) -> str:
    """The commit of a snapshot in the hub's cache, from the name of its folder; "" for any other folder."""
    parts = folder.parts if folder is not None else ()
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts[:-1] else ""


def _stamp(path: str, options: LoadOptions) -> Stamp:
    """A key that identifies a checkpoint, its options and the state of its files."""
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
    """The client of a checkpoint: a directory, or an id in the hub's local cache.

    Its files are checked now, and loaded at the first call. Nothing is downloaded.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise InputError(f"model 'hf/{name}' needs {package}; pip install 'calipers[hf]'")
    path, options = Path(name).expanduser(), LoadOptions.of(connection.model_args)
    folder = folder_of(name, CONFIG, options.revision, options.subfolder)
    if folder is None:
        problem = "no such directory"
        if options.revision is not None and folder_of(name, CONFIG, None, options.subfolder) is not None:
            problem = f"the hub's local cache has no revision {options.revision!r} of it"
        raise InputError.at(f"hf/{name}", problem, "expected a directory with a config.json")
    if not (folder / CONFIG).is_file():
        raise InputError.at(f"hf/{name}", "it has no config.json", "expected a directory with a checkpoint")
    options.check(name, connection.trust)
    return HfModel(str(path) if path.exists() else name, connection)


class HfModel:
    """Completions and log-likelihoods from one checkpoint. One thread does all the work, in batches of calls."""

    def __init__(self, path: str, connection: Connection) -> None:
        self.notes: list[str] = []
        self._path, self._connection = path, connection
        self._options = LoadOptions.of(connection.model_args)
        self._closed = threading.Event()
        self._busy = threading.Lock()  # held while the thread uses the checkpoint, and forever after it was left
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

    def batch_plan(self, kept: Any = None, location: str = "") -> dict[str, Any]:
        """The batch plan to use, as JSON: the ``kept`` plan of a resumed run, else the plan for the present device."""
        self._plan = placement_of(self._path, self._options).batch if kept is None else BatchPlan.read(kept, location)
        plan: dict[str, Any] = msgspec.to_builtins(self._plan)
        return plan

    async def complete(self, request: Request) -> Completion:
        """The model's completion; `ClientError` if the request fails in any way."""
        return await self._completions.ask(request)

    async def score(self, requests: Texts) -> list[Scored]:
        """The likelihoods of texts, in their order; `ClientError` if one of them has none."""
        return await self._scores.ask(requests)

    async def close(self) -> None:
        """Stop the thread at its next token, and leave the checkpoint for the next model."""
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
            no_template = chat and self._template is None and not checkpoint.chats
            joined = no_template and any(not isinstance(request.prompt, str) for request in requests)
            if joined and NO_TEMPLATE not in self.notes:
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
        """Do the work for a batch of calls; if it fails as a whole, each call fails."""
        try:
            if not self._busy.acquire(blocking=False):
                raise ClientError("the model was closed before it answered", kind="closed")
            try:
                return work(self._loaded())
            finally:
                self._busy.release()
        except ClientError as error:
            return [error] * calls
        except Exception as error:  # torch, transformers and the checkpoint's code can raise any type
            return [ClientError(described(error, self._connection.secrets), kind="hf")] * calls

    def _cache_of(self, checkpoint: Checkpoint, bounds: BatchBounds) -> PrefixCache:
        """The prefix cache, which is kept from one batch to the next."""
        self._cache = self._cache or PrefixCache(checkpoint, bounds.plan)
        return self._cache

    def _bounds(self, checkpoint: Checkpoint) -> BatchBounds:
        """The bounds of batches: by the plan that was set, else by the plan for the checkpoint's device."""
        own_plan = checkpoint.batch
        plan = self._plan or own_plan
        if plan.where != own_plan.where:
            note = f"the run was planned for {plan.device_words} and now uses {own_plan.device_words}; "
            note += "its batches stay as planned, but the last digits of scores may differ"
            self.notes += [note] if note not in self.notes else []
        return BatchBounds(self._connection.most, self._connection.timeout, self._closed, plan)

    def _loaded(self) -> Checkpoint:
        """The checkpoint, which is loaded once; if that fails, it is not tried again."""
        if self._taken is None:
            try:
                self._taken = take(self._path, self._options)
            except ClientError as error:
                message = cleaned(str(error), self._connection.secrets)
                self._taken = ClientError(message, kind=error.kind, hopeless=True)
        if isinstance(self._taken, ClientError):
            raise self._taken
        return self._taken[1]
