"""``calipers serve`` as a user runs it: another process, on a free port of the loopback."""

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
    """A server that is up, and what it said on its way."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], url: str, said: str) -> None:
        self.process, self.url, self.said = process, url, said

    def ended(self, signal: int) -> tuple[int, str]:
        """End it by a signal; its exit code, and what it said since."""
        self.process.send_signal(signal)
        said = self.process.communicate(timeout=PATIENCE)[1]
        return self.process.returncode, said.decode()


@contextmanager
def running(*arguments: str, cwd: Path, **environment: str) -> Iterator[Running]:
    """Start a server, and end it."""
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
