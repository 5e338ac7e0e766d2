"""``calipers serve`` as a user runs it: in another process, on a free port of the loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.running import begun
from forks import Forked
from waiting import PATIENCE

SAID = "calipers serves http://"


class Running:
    """A running server, and its output so far."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], url: str, said: str) -> None:
        self.process, self.url, self.said = process, url, said

    def ended(self, signal: int) -> tuple[int, str]:
        """Stop the server with a signal; return its exit code and its further output."""
        self.process.send_signal(signal)
        said = self.process.communicate(timeout=PATIENCE)[1]
        return self.process.returncode, said.decode()


@contextmanager
def running(*arguments: str, cwd: Path, **environment: str) -> Iterator[Running]:
    """Start a server, and stop it with the context."""
    with begun("serve", *arguments, "--port", "0", cwd=cwd, **environment) as process:
        try:
            said = [""]
            while not said[-1].startswith(SAID):
                said.append(process.stderr.readline().decode())
                assert said[-1], "".join(said)
            yield Running(process, "http://" + said[-1].removeprefix(SAID).split()[0], "".join(said))
        finally:
            process.terminate()
            process.wait(PATIENCE)
