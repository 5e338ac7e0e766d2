"""A contestant of a benchmark: its name, its requirements, and its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".bench" / "envs"

Work = Callable[[], Any]
Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Peer:
    """A contestant, declared in its own file in bench/peers.

    Besides its ``PEER``, that file has ``prepare(**asked) -> Work``, which imports what is needed and returns the call
    to time, and ``numbers(answer) -> Numbers``: the results of the call, under names that all contestants use.

    Without ``requirement`` it runs in the interpreter of the benchmark. With a requirement, or several separated by
    spaces, it runs in its own environment, made with that interpreter unless ``python`` names another version. With
    ``imports``, the requirement is installed without its dependencies, except for these. Both interpreters load the
    file, so outside its functions it may import only this module and the standard library.
    """

    name: str  # of its file, and of its environment
    title: str
    packages: tuple[str, ...]  # whose versions to report
    requirement: str = ""
    python: str = ""
    imports: tuple[str, ...] = ()
    note: str = ""


class MissingPeerError(Exception):
    """The reason why a contestant cannot run on this machine."""


def interpreter(peer: Peer) -> str:
    """The interpreter of a contestant, whose environment is made on first use; MissingPeerError if that fails."""
    if not peer.requirement:
        return sys.executable
    home = ENVIRONMENTS / peer.name
    python, stamp = home / "bin" / "python", home / "installed"
    wanted = "\n".join((peer.python, peer.requirement, *peer.imports))
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(home, ignore_errors=True)
        base = _find_python(peer.python)
        print(f"creating the environment of {peer.title}", file=sys.stderr, flush=True)
        _run([base, "-m", "venv", str(home)])
        alone = ["--no-deps"] if peer.imports else []
        _run([str(python), "-m", "pip", "install", "--quiet", *alone, *peer.requirement.split()])
        if peer.imports:
            _run([str(python), "-m", "pip", "install", "--quiet", *peer.imports])
        stamp.write_text(wanted)
    return str(python)


def _find_python(version: str) -> str:
    if not version:
        return sys.executable
    variable = "CALIPERS_BENCH_PYTHON" + version.replace(".", "")
    for candidate in (os.environ.get(variable), sys.executable, shutil.which(f"python{version}")):
        if candidate and _version(candidate) == version:
            return candidate
    raise MissingPeerError(f"no Python {version} here (name one in {variable}, or put python{version} on the PATH)")


def _version(python: str) -> str:
    """The version of an interpreter, such as 3.12; "" if it does not run."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    if done.returncode:
        why = (done.stderr.strip() or "no message").splitlines()[-1]
        raise MissingPeerError(f"its environment cannot be made ({why})")


def clean_environment() -> dict[str, str]:
    """The environment variables of a measured process: ours, without those that affect imports."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
