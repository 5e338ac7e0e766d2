"""No violation of the accessibility rules that axe knows, on any page, in either theme."""

import pytest
from axe_playwright_python.sync_playwright import Axe

KINDS = ("run", "pair", "board", "suite")


def violations(page):
    found = Axe().run(page).response["violations"]
    return [(each["id"], node["html"][:160]) for each in found for node in each["nodes"][:3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(kind, scheme, opened, reports):
    page = opened(reports[kind], color_scheme=scheme)
    page.evaluate("document.querySelectorAll('main details').forEach((details) => { details.open = true })")
    assert violations(page) == []


def test_axe_finds_nothing_in_what_opens(opened, reports):
    page = opened(reports["run"])
    page.locator("button.rollout").first.click()
    page.locator("#metrics a.term").first.click()
    assert violations(page) == []
    page = opened(reports["pair"])
    page.get_by_role("button", name="mul-02").click()
    page.locator("#tasks button.chip").first.click()
    assert violations(page) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_has_a_sentence(kind, opened, reports):
    page = opened(reports[kind])
    silent = page.evaluate(
        """() => [...document.querySelectorAll("main svg")].filter((node) => !node.closest("[aria-hidden=true]")
        && !(node.parentNode.closest && node.parentNode.closest("svg[role]"))
        && !(["img", "group"].includes(node.getAttribute("role")) && node.getAttribute("aria-label")))
        .map((node) => node.outerHTML.slice(0, 120))"""
    )
    assert silent == []
