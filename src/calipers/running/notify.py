"""Notifications of the end of a command (``--notify``): a command is run, or a URL is called, with the results as JSON.

::

    reports ──► message: complete, and the result document of each run, without keys ──► standard input, or POST

A message has numbers and names, and no prompts or completions. A failed notification becomes a note, and does not
change the exit code, which is about the run.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, Protocol
from urllib.parse import SplitResult

from calipers.clients.address import proxy_of, url_parts
from calipers.clients.reply import cleaned
from calipers.clients.secrets import Secrets, environment_without_keys, key_like
from calipers.errors import InputError
from calipers.reports.untrusted_text import safe_json
from calipers.rollouts.record import TEXTS
from calipers.running.loop import finish

LIMIT: Final = 60.0  # seconds for each notification
OUTPUT_WAIT: Final = 1.0  # seconds to wait for output after a command has ended, as its child processes may still write
KEPT: Final = 4096  # bytes at the end of a command's output that are kept
SCHEMA: Final = "calipers.notification/1"
SCHEMES: Final = ("http", "https")
WRITTEN: Final = (*TEXTS, "answer")  # keys of slices whose values are texts by the user or the model
_EXPECTED: Final = "expected a command, or a URL such as https://HOST/PATH"


class NotifiedReport(Protocol):
    """The part of a run's report that a notification uses."""

    @property
    def folder(self) -> str | Path:
        """The folder that has its result.json."""

    @property
    def complete(self) -> bool:
        """Whether the run is complete."""


class NotNotified(Exception):
    """A notification failed; the text has the reason, and no secret."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that is called with POST."""

    parts: SplitResult = field(repr=False)  # its path may be a secret

    @property
    def name(self) -> str:
        """The URL as it may be shown: without path and query."""
        return f"{self.parts.scheme}://{self.parts.netloc}"

    def tell(self, message: bytes, paths: Sequence[Path], limit: float) -> None:
        """Post the message; NotNotified unless the response within the limit is 2xx."""
        finish(lambda: self._post(message, limit))

    async def _post(self, message: bytes, limit: float) -> None:
        import aiohttp

        headers = {"Content-Type": "application/json"}
        proxy = proxy_of(self.parts, Secrets())
        try:
            # without credentials from ~/.netrc, and without cookies
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=limit), trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
                ) as session,
                session.post(
                    self.parts.geturl(), data=message, headers=headers, proxy=proxy, allow_redirects=False
                ) as answer,
            ):
                status = answer.status
        except TimeoutError:
            raise NotNotified(f"no answer within {limit:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotNotified(f"cannot be reached ({_why(error)})") from None
        if 300 <= status < 400:
            raise NotNotified(f"HTTP {status}; redirects are not followed, so give the final URL")
        if not 200 <= status < 300:
            raise NotNotified(f"HTTP {status}")


def _why(error: Exception) -> str:
    """The reason why a URL cannot be reached, in our own words, because the text of an error may have the URL."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorDNSError():
            return "no such host"
        case aiohttp.ClientSSLError() | aiohttp.ClientConnectorCertificateError():
            return "TLS failed"
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) | OSError(errno=int(number)):
            return os.strerror(number).lower()
    return "no HTTP answer"


@dataclass(frozen=True, slots=True)
class NotifyCommand:
    """A command that is run without a shell."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program, without its arguments: one of them may be a secret."""
        return self.words[0]

    def tell(self, message: bytes, paths: Sequence[Path], limit: float) -> None:
        """Run the command; NotNotified if it does not end with exit code 0 within the limit.

        It has a process group of its own, so that its child processes are killed with it at the time limit.
        """
        with TemporaryFile() as file:  # writing to a pipe blocks if the command does not read it
            file.write(message)
            file.seek(0)
            try:
                process = subprocess.Popen(
                    [*self.words, *map(str, paths)],
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=environment_without_keys(os.environ),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a command"
                raise NotNotified(f"cannot be run ({why})") from None
        output = _Tail(process.stdout)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise NotNotified(f"did not end within {limit:g} s") from None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            last_line = output.last_line()
            reason = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
            raise NotNotified(f"{reason}: {last_line}" if last_line else reason)


class _Tail:
    """The last bytes of a process's output; all output is read, so that the process never blocks."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._pipe, self._kept = pipe, b""
        self._thread = threading.Thread(target=self._read, name="calipers-notify", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        if self._pipe is not None:
            with self._pipe:
                while chunk := os.read(self._pipe.fileno(), 1 << 16):
                    self._kept = (self._kept + chunk)[-KEPT:]

    def last_line(self) -> str:
        """The last line that is not blank, without keys and control characters; "" if there is none."""
        self._thread.join(OUTPUT_WAIT)
        lines = [line for line in self._kept.decode(errors="replace").splitlines() if line.strip()]
        return cleaned(lines[-1], key_like(os.environ)) if lines else ""


Listener = Webhook | NotifyCommand


def listener(text: str) -> Listener:
    """The listener that ``--notify`` names; InputError, which never shows a URL, if it is invalid."""
    if text.lstrip().lower().startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return Webhook(_url(text.strip()))
    try:
        words = shlex.split(text)
    except ValueError as error:
        problem = f"the command cannot be read ({str(error)[:1].lower()}{str(error)[1:]})"
        raise InputError.at("--notify", problem, _EXPECTED) from None
    if not words or not words[0]:
        raise InputError.at("--notify", "is empty", _EXPECTED)
    if "\0" in text:
        raise InputError.at("--notify", "the command contains a null character", _EXPECTED)
    return NotifyCommand(tuple(words))


def _url(text: str) -> SplitResult:
    parts = url_parts(text, "--notify", _EXPECTED, "expected a URL without them")
    if not parts.hostname or parts.port == 0:
        raise InputError.at("--notify", "the URL has no host or no valid port", _EXPECTED)
    return parts


def message_of(reports: Sequence[NotifiedReport], complete: bool) -> bytes:
    """The message: the result document in the folder of each run, without slices by a text."""
    runs = []
    for report in reports:
        path = Path(report.folder, "result.json")
        document = json.loads(path.read_bytes())
        for group in document.get("groups", ()):
            group["breakdowns"] = {
                key: breakdown for key, breakdown in group.get("breakdowns", {}).items() if key not in WRITTEN
            }
        runs.append({"folder": str(report.folder), "complete": report.complete, "result": document})
    message = {"schema": SCHEMA, "complete": complete, "runs": runs}
    return key_like(os.environ).scrub_bytes(safe_json(json.dumps(message, ensure_ascii=False)).encode())


def notify(
    listeners: Iterable[Listener],
    reports: Sequence[NotifiedReport],
    complete: bool,
    note: Callable[[str], None],
    limit: float = LIMIT,
) -> None:
    """Notify each listener of the end of the command, one after the other; ``note`` gets a note on each failure."""
    listeners = list(listeners)
    if not listeners:
        return
    try:
        message = message_of(reports, complete)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not JSON"
        note(f"--notify: result.json cannot be read ({why}), so nobody was notified")
        return
    paths = [Path(report.folder, "result.json").absolute() for report in reports]
    for target in listeners:
        try:
            target.tell(message, paths, limit)
        except NotNotified as failed:
            note(f"--notify {target.name}: {failed}")
        except InputError as error:  # an invalid proxy in the environment
            note(f"--notify {target.name}: {error}")
        except KeyboardInterrupt:
            note(f"--notify {target.name}: interrupted")
            return
