"""What holds for every test: no network, the same examples on every machine, no colours."""

from __future__ import annotations

import gc
import ipaddress
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

from examples import EXPLORED

set_hypothesis_home_dir(Path(__file__).parents[1] / ".pytest_cache" / "hypothesis")  # one cache folder, not two
settings.register_profile("check", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=EXPLORED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))

for variable in ("COLUMNS", "FORCE_COLOR", "OPENAI_API_KEY", "OPENAI_BASE_URL"):  # the developer's, not the tests'
    os.environ.pop(variable, None)
os.environ["NO_COLOR"] = "1"
os.environ.setdefault("CALIPERS_IMAGES", "none")  # no test fetches packages, but those of make test-docker
# Images of Docker have apt's cache turned off: then each process that asks for the mirror reads a list of all packages.
APT = Path(__file__).parents[1] / ".pytest_cache" / "apt"
APT_SETTINGS = f'Dir::Etc::main "{APT}/conf";\nDir::Cache::pkgcache "{APT}/pkgcache.bin";\n'
APT.mkdir(parents=True, exist_ok=True)
if not (APT / "conf").is_file() or (APT / "conf").read_text() != APT_SETTINGS:
    (APT / "conf").write_text(APT_SETTINGS)
os.environ["APT_CONFIG"] = str(APT / "conf")  # which apt reads at first, and as its main file once more at the end
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "20"  # as our command sets it; read when numpy is loaded
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process of hundreds compiles everything for itself
sys.dont_write_bytecode = False


def _is_here(host: object) -> bool:
    """Whether a host is this machine, without asking anybody."""
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _no_network(event: str, args: tuple[Any, ...]) -> None:
    """Refuse to look up or to reach any other machine; loopback and Unix sockets stay open."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if not _is_here(host):
        raise RuntimeError(f"a test reached for the network: {event} {host!r}")


sys.addaudithook(_no_network)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave alone the million objects that the tests are made of, which live as long as we do; collect more rarely."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in docstrings of the source, not of the tests."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    """Have a worker of xdist tell only what is shown: of a test that passes its call, and neither start nor clean-up.

    Six messages for each of 15,000 tests take both sides longer than many of the tests.
    """
    told_in_full = config.get_verbosity() > 0 or config.getoption("durations") or config.getoption("xmlpath")
    for plugin in () if told_in_full else config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = partial(_tell, plugin.sendevent)


def _tell(send: Callable[..., None], name: str, **details: Any) -> None:
    report = details.get("data") or {}
    quiet = name == "testreport" and report["when"] != "call" and report["outcome"] == "passed"
    if not quiet and name not in ("logstart", "logfinish"):
        send(name, **details)


@pytest.fixture(scope="module")
def kept() -> Iterator[None]:
    """Have processes that read a part of a file wait for the next test: to start one takes longer than such a test."""
    from calipers.formats.lines import kept_processes

    with kept_processes():
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop patterns after a fifth of a second: those that never end would only burn the rest of the real limit."""
    from calipers.systems.lm_eval import pipelines
    from calipers.text import patterns

    run = patterns._run
    monkeypatch.setattr(
        patterns, "_run", lambda action, pattern, text, case, limit: run(action, pattern, text, case, min(limit, 0.2))
    )
    monkeypatch.setattr(pipelines, "PROBE_SECONDS", 0.2)


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if mount is None or os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a disk of 64 KiB can be made by root only")
    yield place
    subprocess.run(["umount", str(place)], check=True)
