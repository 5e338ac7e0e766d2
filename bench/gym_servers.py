"""Measure which resources servers of a NeMo Gym checkout load in Calipers, and what the others need.

``python -m bench.gym_servers CHECKOUT [--only NAME]`` runs ``CHECKOUT/resources_servers/*/app.py`` as ``calipers
serve`` does. The files are other people's code, and importing them runs it. Each has its own process, a time limit, a
temporary home folder, and proxies that lead nowhere, but no sandbox. Run it where that is safe.

If ``nemo_gym`` is installed in the interpreter, the real package is used; otherwise the modules that Calipers provides.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SECONDS: Final = 120.0  # for one file; torch alone takes ten
AT_ONCE: Final = 2
NOWHERE: Final = "http://127.0.0.1:9"  # the port of "discard", where nothing listens: a download fails at once
LOADED: Final = "loaded"
MARK: Final = "gym_servers:"  # the prefix of the result line; servers may print other lines

LOAD: Final = """
import json, sys
from pathlib import Path
from calipers.errors import CalipersError
from calipers.systems.nemo_gym.hooks import load_class, server_class
try:
    path = sys.argv[1]
    load_class(f"{path}:{server_class(path)}", "bench")
    why = ""
except CalipersError as error:
    why = f"{type(error.__cause__).__name__}: {error}"
print("gym_servers:" + json.dumps(why), flush=True)
"""

REASONS: Final = (
    (r"No module named '(?P<what>[\w.]+)'", "needs the package {what}"),
    (r"Calipers provides .* but not (?P<what>[\w.]+)", "needs {what}, which is not provided"),
    (r"cannot import name '(?P<what>\w+)' from '(?P<where>nemo_gym[\w.]*)'", "needs {where}.{what}"),
    (r"it starts no server", "is a base class of others, and starts no server"),
    (r"CUDA|NVIDIA driver|GPU", "needs a GPU"),
    (r"git clone|URLError|urlopen|ConnectionError|ProxyError|Max retries|LookupError|LocalEntryNotFound|offline|"
     r"CalledProcessError|HTTPError|wget|download|ProxyConn", "needs a download"),
    (r"SyntaxError|f-string|invalid syntax", "needs a newer Python"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of loading one server."""

    name: str
    reason: str  # LOADED, or what the server needs
    message: str = ""


def reason_of(message: str) -> str:
    """The need of a server, from the error message of its failed import.

    >>> reason_of("ModuleNotFoundError: app.py:3: ModuleNotFoundError: No module named 'ray.util'")
    'needs the package ray'
    >>> reason_of("ValueError: app.py:9: ValueError: no")
    'fails'
    """
    for pattern, reason in REASONS:
        if match := re.search(pattern, message):
            groups = match.groupdict()
            if "package" in reason:
                groups["what"] = groups["what"].partition(".")[0]
            return reason.format(**groups)
    return "fails"


def tried(app: Path, seconds: float = SECONDS) -> LoadResult:
    """Load one server in a process of its own."""
    with TemporaryDirectory(prefix="gym-server-") as home:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", LOAD, str(app)],
            cwd=app.parent,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return LoadResult(app.parent.name, f"takes more than {seconds:.0f} s")
    answers = [line.removeprefix(MARK) for line in printed.splitlines() if line.startswith(MARK)]
    if not answers:
        return LoadResult(app.parent.name, f"ended with {process.returncode}", printed[-300:])
    message = json.loads(answers[-1])
    return LoadResult(app.parent.name, reason_of(message) if message else LOADED, message)


def _environment(home: str) -> dict[str, str]:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    return {**kept, **proxies, "HOME": home, "HF_HUB_OFFLINE": "1", "GIT_TERMINAL_PROMPT": "0", "PIP_NO_INDEX": "1"}


def table(results: Mapping[str, list[LoadResult]], total: int) -> str:
    """Servers by reason, the largest group first."""
    lines = [f"{len(results.get(LOADED, ()))} of {total} resources servers load"]
    for reason, group in sorted(results.items(), key=lambda item: (item[0] != LOADED, -len(item[1]), item[0])):
        names = ", ".join(sorted(result.name for result in group))
        lines.append(f"{len(group):4} {reason}: {names}")
    return "\n".join(lines)


def main() -> None:
    """Try every server, and print the table."""
    parser = argparse.ArgumentParser(description="Which resources servers of a NeMo Gym checkout load here.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", help="only these servers, with every message")
    given = parser.parse_args()
    apps = sorted(given.checkout.resolve().glob("resources_servers/*/app.py"))
    apps = [app for app in apps if not given.only or app.parent.name in given.only]
    if not apps:
        parser.error(f"{given.checkout}: no resources_servers/*/app.py; expected a checkout of NeMo Gym")
    by_reason: dict[str, list[LoadResult]] = defaultdict(list)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(tried, apps):
            by_reason[result.reason].append(result)
            if result.message and (given.only or result.reason.startswith(("fails", "ended"))):
                print(f"{result.name}: {result.message}", file=sys.stderr)
    print(table(by_reason, len(apps)))


if __name__ == "__main__":
    main()
