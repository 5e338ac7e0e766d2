"""The pages of the viewer: shells with the same style as the report, which their script fills from the server."""

from __future__ import annotations

from calipers.web.draw import hatch
from calipers.web.markup import Child, Markup, element
from calipers.web.page import MARK

STYLES = ("page.css", "runs.css", "viewer.css")


def runs_page() -> str:
    """The list of runs."""
    return _page("runs", "Runs", element("main", element("h1", "Runs"), element("div", id="content")))


def rollouts_page() -> str:
    """The rollouts of one run, and one of them."""
    return _page("run", "Rollouts", _panes("rollouts"), search="Search task, prompt, answer")


def pair_shell() -> str:
    """Two runs beside each other."""
    return _page("pair", "Two runs", _panes("tasks"), search="Search task, prompt, answer")


def labelling_page() -> str:
    """Blind labelling."""
    return _page("label", "Blind labelling", element("main", element("div", id="content")))


def _panes(what: str) -> Markup:
    listed = element(
        "div",
        element("div", id="head", class_="list-head", aria_hidden="true"),
        element("div", id="rows", class_="list-rows", role="listbox", tabindex="0", aria_label=what.capitalize()),
        class_="pane-list",
    )
    return element(
        "main",
        element("h1", what.capitalize(), class_="hidden", id="title"),
        element("section", id="ledger", class_="ledger-strip", aria_label="Ledger and filters"),
        element(
            "div",
            listed,
            element("article", id="detail", class_="detail", tabindex="-1", aria_label="Rollout"),
            class_="panes",
        ),
        class_="viewer",
    )


def _page(kind: str, title: str, main: Markup, search: str = "") -> str:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} · Calipers"),
        [element("link", rel="stylesheet", href=f"/asset/{style}") for style in STYLES],
    )
    find: Child = None
    if search:
        find = element("input", type="search", id="search", placeholder=search, aria_label=search, autocomplete="off")
    header = element(
        "header",
        element("a", MARK, element("b", "Calipers"), href="/?all", class_="brand"),
        element("nav", id="path", class_="about", aria_label="Path"),
        find,
        element("span", id="modes", class_="modes"),
        element("button", "Theme", type="button", id="theme", class_="control"),
        class_="strip top-bar",
    )
    footer = (
        element("footer", element("span", id="keys"), element("span", id="position"), class_="keys")
        if kind != "label"
        else None
    )
    skip = element("a", "Skip to rollouts", href="#rows", class_="skip") if kind in ("run", "pair") else None
    body = element(
        "body",
        hatch(),
        skip,
        header,
        main,
        footer,
        element("div", id="announce", class_="hidden", aria_live="polite"),
        element("script", src="/asset/viewer.js", defer=True),
        data_page=kind,
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'
