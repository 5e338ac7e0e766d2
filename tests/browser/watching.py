"""Pages of a browser that are watched for what a report must never do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request

WIDE = {"width": 1152, "height": 900}
LIMIT = 60_000  # milliseconds until a state that never comes fails a test; no test waits for a time


class Watch:
    """Files opened in a browser, and every fault of their pages.

    A fault is a request for anything but the file itself, an error on the console (which is also how a breach of the
    content security policy shows), an uncaught error of a script, and a dialog.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.faults: list[str] = []

    def open(self, path: Path | str, *, anchor: str = "", **options: Any) -> Page:
        """A page showing a file, in a browser profile of its own; options are those of a Playwright context."""
        context = self._browser.new_context(**({"viewport": WIDE, "reduced_motion": "reduce"} | options))
        self._contexts.append(context)
        context.set_default_timeout(LIMIT)
        address = Path(path).resolve().as_uri()
        context.on("page", self._watch)
        context.on("request", lambda request: self._requested(request, address))
        page = context.new_page()
        page.goto(address + (f"#{anchor}" if anchor else ""))
        return page

    def close(self) -> None:
        """Close every page."""
        for context in self._contexts:
            context.close()

    def _watch(self, page: Page) -> None:
        page.on("console", lambda line: line.type == "error" and self.faults.append(f"console: {line.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("dialog", self._dismiss)

    def _requested(self, request: Request, address: str) -> None:
        if request.url.partition("#")[0] != address:
            self.faults.append(f"request: {request.url[:200]}")

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()
