"""A viewer in a process of its own, and pages of it that are watched for what a page must never do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser.watching import LIMIT, WIDE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request


class Viewing:
    """A server, its address, and the faults of its pages.

    A fault is a request to anything but the server, one with the token in its address after the first, an error on the
    console (which is also how a breach of the content security policy shows), an uncaught error, and a dialog.
    """

    def __init__(self, browser: Browser, folder: Path, *arguments: str) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.faults: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "calipers", "view", "--no-browser", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        )
        stderr = self.process.stderr
        assert stderr is not None
        line = stderr.readline()
        match = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", line)
        assert match, line + stderr.read()
        self.base, self.token = match[1], match[2]

    def open(self, path: str = "/", **options: Any) -> Page:
        """A page of the server, in a browser profile of its own that was let in with the token."""
        context = self._browser.new_context(**({"viewport": WIDE, "reduced_motion": "reduce"} | options))
        self._contexts.append(context)
        context.set_default_timeout(LIMIT)
        context.on("request", self._requested)
        page = context.new_page()
        page.on("console", lambda line: line.type == "error" and self.faults.append(f"console: {line.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(f"{self.base}{path}{'&' if '?' in path else '?'}token={self.token}")
        assert self.token not in page.url
        return page

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.base + "/", "data:")):
            self.faults.append(f"request: {request.url[:200]}")
        if self.token in request.headers.get("referer", ""):
            self.faults.append(f"the token in a Referer: {request.url[:200]}")

    def close(self) -> None:
        """Close every page and stop the server, which must end by itself and have said nothing more."""
        for context in self._contexts:
            context.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=LIMIT / 1000) == 0
        stderr = self.process.stderr
        assert stderr is not None
        assert stderr.read() == ""
        stderr.close()
