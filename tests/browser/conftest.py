"""A real Chromium for the HTML report: ``make test-browser`` installs Playwright and axe, and finds Chromium."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser.samples import REPORTS
from browser.viewing import Viewing
from browser.watching import Watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

if importlib.util.find_spec("playwright") is None:  # make test: no browser there
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests. It has no sandbox as root, where Chromium refuses to start one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=os.environ["CALIPERS_BROWSER"], args=root)
        yield started
        started.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Paths of reports by their kind: run, pair, board and suite."""
    folder = tmp_path_factory.mktemp("reports")
    paths = {}
    for kind, make in REPORTS.items():
        paths[kind] = folder / f"{kind}.html"
        make(folder).write(paths[kind])
    return paths


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """``opened(path)`` is a page showing a file from disk; any fault of the page fails the test (see `Watch`).

    ``anchor`` is what follows ``#`` in its address. Other options are those of a Playwright context, such as
    ``viewport``, ``color_scheme``, ``forced_colors`` and ``java_script_enabled``.
    """
    watch = Watch(browser)
    yield watch.open
    watch.close()
    assert not watch.faults, "\n".join(watch.faults)


@pytest.fixture
def viewing(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Viewing]]:
    """``viewing("runs")`` is a viewer of a path, in a process of its own; any fault of its pages fails the test."""
    started: list[Viewing] = []

    def start(*arguments: str) -> Viewing:
        started.append(Viewing(browser, tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()
    assert not [fault for each in started for fault in each.faults]
