"""``hf/PATH``: a transformers causal model in this process, which writes and says how likely texts are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from calipers.errors import ClientError, InputError
from calipers.run.client import Completion, Connection, Request
from calipers.run.clients.failure import cleaned
from calipers.run.clients.hf_checkpoint import Checkpoint
from calipers.run.clients.hf_gather import Gathering
from calipers.run.clients.hf_generate import Bounds, completions
from calipers.run.clients.hf_idle import Stamp, leave, take
from calipers.run.clients.hf_score import Texts, scores
from calipers.run.clients.hf_template import Template
from calipers.run.clients.hf_trunks import Trunks
from calipers.run.likelihood import Scored

T = TypeVar("T")

NO_TEMPLATE = "the model has no chat template; the turns of a chat are joined with blank lines between them"


def connect(name: str, connection: Connection) -> HfModel:
    """The client of a checkpoint: a directory, or the id of one that the hub's local cache holds.

    It is looked for now, and loaded at the first call. Nothing is ever downloaded.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise InputError(f"model 'hf/{name}' needs {package}; pip install 'calipers[hf]'")
    path = Path(name).expanduser()
    if not path.exists():
        if not _cached(name):
            raise InputError.at(f"hf/{name}", "no such directory", "expected one that holds a config.json")
        return HfModel(name, connection)
    if not (path / "config.json").is_file():
        raise InputError.at(f"hf/{name}", "it holds no config.json", "expected a directory with a checkpoint")
    return HfModel(str(path), connection)


class HfModel:
    """Answers and likelihoods of one checkpoint. All its work is done in one thread, many calls at once."""

    def __init__(self, path: str, connection: Connection) -> None:
        self.notes: list[str] = []
        self._path, self._connection = path, connection
        self._closed = threading.Event()
        self._busy = threading.Lock()  # held while the thread uses the checkpoint, and for good once that is given away
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="calipers-model")
        self._taken: tuple[Stamp, Checkpoint] | ClientError | None = None
        self._trunks: Trunks | None = None
        self._template = None if connection.template is None else Template(connection.template, self.notes)
        self._completions: Gathering[Request, Completion] = Gathering(self._thread, self._complete)
        self._scores: Gathering[Texts, list[Scored]] = Gathering(self._thread, self._score)

    async def complete(self, request: Request) -> Completion:
        """The model's answer; `ClientError` for every other end of a call."""
        return await self._completions.ask(request)

    async def score(self, requests: Texts) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none."""
        return await self._scores.ask(requests)

    async def close(self) -> None:
        """Let the thread go; what it is busy with ends at the next token. The next model may have the checkpoint."""
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._busy.acquire(blocking=False) and isinstance(self._taken, tuple):
            leave(self._taken)
            self._taken = None

    def _complete(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        connection, chat = self._connection, self._connection.api == "chat"

        def work(checkpoint: Checkpoint) -> Sequence[Completion | Exception]:
            bare = chat and self._template is None and not checkpoint.chats
            turns = bare and any(not isinstance(one.prompt, str) for one in requests)
            if turns and NO_TEMPLATE not in self.notes:
                self.notes.append(NO_TEMPLATE)
            bounds = Bounds(connection.most, connection.timeout, self._closed)
            trunks, price = self._trunks_of(checkpoint), connection.price
            return completions(checkpoint, trunks, requests, chat, bounds, price, self._template)

        return self._with_model(work, len(requests))

    def _score(self, calls: Sequence[Texts]) -> Sequence[list[Scored] | Exception]:
        most = self._connection.most

        def work(checkpoint: Checkpoint) -> Sequence[list[Scored] | Exception]:
            return scores(checkpoint, self._trunks_of(checkpoint), calls, most, self._closed, self._template)

        return self._with_model(work, len(calls))

    def _with_model(self, work: Callable[[Checkpoint], Sequence[T | Exception]], calls: int) -> Sequence[T | Exception]:
        """The work on a batch of calls; when it fails as a whole, so does each of them."""
        try:
            if not self._busy.acquire(blocking=False):
                raise ClientError("the model was closed before it had answered", kind="closed")
            try:
                return work(self._loaded())
            finally:
                self._busy.release()
        except ClientError as error:
            return [error] * calls
        except Exception as error:  # of torch, transformers or the checkpoint; whatever it is, there is no answer
            said = cleaned(f"{type(error).__name__}: {error}", self._connection.secrets)
            return [ClientError(said, kind="hf")] * calls

    def _trunks_of(self, checkpoint: Checkpoint) -> Trunks:
        """What it remembers from one batch to the next."""
        self._trunks = self._trunks or Trunks(checkpoint)
        return self._trunks

    def _loaded(self) -> Checkpoint:
        """The checkpoint, loaded once; one that cannot be loaded is not tried again."""
        if self._taken is None:
            try:
                self._taken = take(self._path)
            except ClientError as error:
                said = cleaned(str(error), self._connection.secrets)
                self._taken = ClientError(said, kind=error.kind, hopeless=True)
        if isinstance(self._taken, ClientError):
            raise self._taken
        return self._taken[1]


def _cached(name: str) -> bool:
    """Whether the hub's local cache holds a model of this id."""
    from huggingface_hub import try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except ValueError:  # it cannot be the id of a model
        return False
