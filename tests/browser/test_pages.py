"""Every page of the report as somebody uses it: it renders, filters, opens, prints, and works without a mouse."""

import json
import re

import pytest
from browser.pdf import page_texts
from playwright.sync_api import expect

import calipers

KINDS = ("run", "pair", "board", "suite")
SECTIONS = {
    "run": [
        *("Ledger", "Metrics", "Cost", "By difficulty", "Every rollout", "pass@k for every k"),
        *("Where the uncertainty comes from", "What if", "Rollouts", "Provenance"),
    ],
    "pair": [
        *("Both runs", "Ledger", "By difficulty", "Task by task", "What changed", "Score against cost"),
        *("What if", "Notes", "Provenance"),
    ],
    "board": ["Every pair", "Each run", "Provenance"],
    "suite": ["Each run", "Notes", "Provenance"],
}
PHONES = (390, 320)


def heads(page):
    return [head for head in page.locator("main section:not(.glossary) h2").all_inner_texts() if head]


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_is_there_in_its_order(kind, opened, reports):
    page = opened(reports[kind])
    assert heads(page) == SECTIONS[kind]
    assert page.locator("h1").count() == 1
    assert page.locator("h1").inner_text().replace("\n", " ").startswith(page.title())


def sideways(page):
    """By how many pixels the page is wider than its window, and which elements stick out."""
    return page.evaluate(
        """() => { const wide = document.documentElement.clientWidth;
        const out = (node) => !node.closest(".scroll, .wide, .pairs-frame, pre, svg") && node.getClientRects().length
          && node.getBoundingClientRect().right > wide + 1;
        const over = [...document.querySelectorAll("main *")].filter(out).slice(0, 5);
        return [document.documentElement.scrollWidth - wide, over.map((node) => node.outerHTML.slice(0, 120))] }"""
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", PHONES)
def test_a_phone_shows_it_without_scrolling_sideways(kind, width, opened, reports):
    page = opened(reports[kind], viewport={"width": width, "height": 800}, has_touch=True)
    for details in page.locator("main details").all()[:3]:
        details.evaluate("details => details.open = true")
    assert sideways(page) == [0, []]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [720, 768, 1024])
def test_every_axis_of_a_tablet_has_room(kind, width, opened, reports):
    page = opened(reports[kind], viewport={"width": width, "height": 1024})
    axes = page.locator("svg.row:visible:not(.rank *)").evaluate_all("all => all.map((svg) => svg.clientWidth)")
    assert axes
    assert min(axes) > 60
    assert sideways(page) == [0, []]


@pytest.mark.parametrize("kind", KINDS)
def test_at_twice_the_size_nothing_is_cut(kind, opened, reports):
    """A browser at 200 % has half the pixels, and text that is twice as large on the same screen."""
    page = opened(reports[kind], viewport={"width": 576, "height": 450}, device_scale_factor=2)
    assert sideways(page) == [0, []]


@pytest.mark.parametrize("kind", KINDS)
def test_controls_are_large_enough_for_a_thumb(kind, opened, reports):
    page = opened(reports[kind], viewport={"width": 390, "height": 800}, has_touch=True)
    small = page.evaluate(
        """() => [...document.querySelectorAll("main button, main summary, header button")]
        .filter((node) => node.checkVisibility() && !node.closest(".triangle"))
        .map((node) => [node.getBoundingClientRect().height, node.outerHTML.slice(0, 120)])
        .filter(([height]) => height < 24)"""
    )
    assert small == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(scheme, opened, reports):
    page = opened(reports["run"], color_scheme=scheme)
    colours = {"light": "rgb(252, 252, 250)", "dark": "rgb(17, 19, 22)"}
    other = {"light": "dark", "dark": "light"}[scheme]

    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert paper() == colours[scheme]
    page.get_by_role("button", name="Theme").click()
    assert paper() == colours[other]
    page.keyboard.press("t")
    assert paper() == colours[scheme]


def listed(page):
    return page.locator("#list .rollouts > li").count()


def test_the_ledger_filters_the_rollouts(opened, reports):
    page = opened(reports["run"])
    refused = page.locator("button.chip", has_text="refused")
    count = int(re.search(r"\d+", refused.inner_text())[0])
    refused.click()
    assert refused.get_attribute("aria-pressed") == "true"
    assert listed(page) == min(count, 8)
    assert all("refused" in words for words in page.locator("#list .state").all_inner_texts())
    assert page.locator("#list-note").inner_text().startswith(f"{count} refused")
    page.locator("svg.bar [data-state=missing]").first.press("Enter")
    words = set(page.locator("#list .state").all_inner_texts())
    assert words <= {"refused", "verifier failed", "client failed"}
    assert len(words) > 1


def test_a_rollout_opens_in_place(opened, reports):
    page = opened(reports["run"])
    page.locator("button.rollout").first.click()
    assert "Prompt" in page.locator(".blocks h3").all_inner_texts()
    assert "####" in page.locator(".blocks pre").first.inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".blocks").count() == 0


CARDS = {"run": "#metrics a.term", "pair": "#both a.term"}


@pytest.mark.parametrize("kind", CARDS)
@pytest.mark.parametrize("key", ["click", "Enter", "Space"])
def test_a_card_opens_and_escape_returns_the_focus(kind, key, opened, reports):
    page = opened(reports[kind])
    term = page.locator(CARDS[kind]).first
    if key == "click":
        term.click()
    else:
        term.focus()
        page.keyboard.press(key)
    card = page.get_by_role("dialog")
    assert "Interval" in card.inner_text()
    assert term.get_attribute("aria-expanded") == "true"
    row, box = term.locator("xpath=ancestor::tr").bounding_box(), card.bounding_box()
    assert box["y"] >= row["y"] + row["height"]
    page.keyboard.press("Escape")
    assert card.count() == 0
    assert term.evaluate("term => document.activeElement === term")


def test_a_command_that_is_copied_twice_can_be_copied_again(opened, reports):
    button = opened(reports["run"]).locator("[data-copy]")
    button.click()
    button.click()
    expect(button).to_have_text("Copied")
    expect(button).to_have_text("Copy")


def test_a_click_elsewhere_closes_the_card(opened, reports):
    page = opened(reports["run"])
    page.locator("#metrics a.term").first.click()
    page.locator("h1").click()
    assert page.get_by_role("dialog").count() == 0


def test_the_keys_work_and_can_be_switched_off(opened, reports):
    page = opened(reports["run"])
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className") == "rollout"
    page.keyboard.press("/")
    page.keyboard.type("t?")  # in a text field they are letters
    assert page.locator("#list input").input_value() == "t?"
    page.locator("h1").click()
    page.keyboard.press("Control+?")
    assert page.locator("dialog").count() == 0
    page.keyboard.press("?")
    assert "Single keys off" in page.locator("dialog").inner_text()
    page.get_by_label("Single keys off").check()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("dialog")).to_have_count(0)  # it is removed by an event after the click
    page.keyboard.press("?")
    assert page.locator("dialog").count() == 0


def test_everything_on_a_page_can_be_reached_by_tab(opened, reports):
    page = opened(reports["run"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to rollouts"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#rollouts"


def tasks(page):
    return [row.get_attribute("data-way") for row in page.locator("table.changed tbody tr[data-row]:visible").all()]


def test_the_tasks_of_two_runs_are_filtered(opened, reports):
    page = opened(reports["pair"])
    assert tasks(page) == ["worse"] * 5 + ["better"] * 5
    for word, count in (("better", 25), ("same", 6), ("worse", 9)):
        chip = page.locator("#tasks button.chip", has_text=word)
        assert chip.inner_text().split() == [*chip.inner_text().split()[:1], str(count), word]
        chip.click()
        assert tasks(page) == [word] * count
        assert page.locator("#changed-count").inner_text() == f"{count} of 40 listed tasks"
    chip.click()
    assert len(tasks(page)) == 40
    page.locator("#ledger button.chip", has_text="missing").click()
    assert 0 < len(tasks(page)) < 40


def test_all_tasks_of_two_runs_are_shown_on_demand(opened, reports):
    page = opened(reports["pair"])
    page.get_by_role("button", name="Show all 40").click()
    assert len(tasks(page)) == 40
    assert page.evaluate("document.activeElement.className") == "opener"


def test_a_task_of_two_runs_opens_in_two_columns(opened, reports):
    page = opened(reports["pair"])
    opener = page.get_by_role("button", name="mul-02")
    opener.click()
    assert page.locator(".opened h3").all_inner_texts() == ["Prompt", "A", "B"]
    assert page.locator(".opened .sides > div").count() == 2
    assert "What is 665 * 18?" in page.locator(".opened pre").first.inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".opened").count() == 0
    assert opener.evaluate("node => document.activeElement === node")


def test_the_keys_of_two_runs_move_among_tasks(opened, reports):
    page = opened(reports["pair"])

    def here():
        return page.evaluate("document.activeElement.closest('tr')?.dataset.row")

    found = []
    for key in "jjnNk":
        page.keyboard.press(key)
        found.append(here())
    assert found == ["0", "1", "2", "1", "0"]
    page.keyboard.press("?")
    assert "that got worse" in page.locator("dialog").inner_text()
    page.get_by_label("Single keys off").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("j")
    assert here() in (None, "0")


def test_a_part_of_a_bar_of_two_runs_selects_its_tasks(opened, reports):
    page = opened(reports["pair"])
    page.locator("#ledger .bar [data-state=missing]").first.click()
    assert page.locator("#ledger button.chip", has_text="missing").get_attribute("aria-pressed") == "true"
    assert 0 < len(tasks(page)) < 40


def test_differing_characters_are_marked_for_readers_too(opened, reports):
    row = opened(reports["pair"]).locator("tr", has_text="add-18")
    assert row.get_by_role("deletion").inner_text() == "13"
    assert row.get_by_role("insertion").inner_text() == "21"


def test_a_pair_of_models_says_its_difference(opened, reports):
    page = opened(reports["board"])
    cell = page.locator("table.triangle tbody tr").nth(2).locator("button").nth(1)
    cell.click()
    said = page.locator(".chosen").inner_text()
    assert said.startswith("slide-rule against adder-7b: undecided (among all pairs), difference +0.058 (−")
    assert cell.get_attribute("aria-label") == said
    assert page.locator("table.triangle .lit").all_inner_texts() == ["3 adder-7b", "2"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert page.locator(".chosen").inner_text().startswith("abacus is better than adder-7b by 0.242")


def test_pairs_stand_in_a_table_too(opened, reports):
    page = opened(reports["board"])
    page.locator("#pairs summary").click()
    assert page.locator("#pairs .as-table tbody tr").count() == 21


def test_many_models_can_be_searched(opened, tmp_path):
    from calipers.web import report

    rows = [
        {"task": f"t{t}", "model": f"model-{m:02}", "reward": (t * 7 + m) % 3 > 0} for t in range(12) for m in range(45)
    ]
    report(rows).write(tmp_path / "many.html")
    page = opened(tmp_path / "many.html")
    assert page.locator("#pairs").count() == 0
    page.get_by_label("Find a model").fill("MODEL-4")
    assert page.locator("table.board tbody tr:visible").count() == 5
    assert page.locator(".find [role=status]").inner_text() == "5 of 45 models"


@pytest.mark.parametrize("kind", KINDS)
def test_print_has_no_controls_and_a_glossary(kind, opened, reports):
    page = opened(reports[kind], color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen = page.locator("button.control:visible, input:visible, button.link:visible").all_inner_texts()
    assert seen == []
    if kind in CARDS:
        assert page.locator(".glossary .card:visible").count() > 2
    pdf = page.pdf(format="A4", prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    texts = page_texts(pdf)
    assert len(texts) > 1
    digest = page.locator("footer").inner_text().partition("sha256:")[2][:16]
    for number, text in enumerate(texts, start=1):
        assert f"{number} / {len(texts)}" in text  # the number of the sheet
        assert f"Calipers sha256:{digest}" in text


def test_runs_among_others_have_their_slices_curves_and_the_command_of_their_own_page(opened, tmp_path):
    paths = []
    for model in range(3):
        rows = [
            {"task": f"t{t}", "sample": s, "model": f"m{model}", "dataset": "d", "reward": float((t + s) % 4 <= model)}
            | {"metadata": {"level": ["easy", "hard"][t % 2]}}
            for t in range(12)
            for s in range(4)
        ]
        path = tmp_path / f"m{model}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(str(path))
    calipers.report(*paths, by="level").write(tmp_path / "many.html")
    page = opened(tmp_path / "many.html")
    last = page.locator("#runs details.folded").nth(2)
    last.locator("summary").first.click()
    assert last.locator("h3:visible").all_inner_texts() == [
        "By level",
        "Every task",
        "pass@k for every k",
        "Where the uncertainty comes from",
    ]
    assert last.locator("svg:visible").count() > 3
    command = last.locator(".command code").inner_text().split()
    assert command == ["calipers", "report", paths[2], "--by", "level"]
    assert sideways(page) == [0, []]


@pytest.mark.parametrize("kind", KINDS)
def test_without_scripts_it_can_be_read(kind, opened, reports):
    page = opened(reports[kind], java_script_enabled=False)
    text = page.locator("body").inner_text()
    said = {
        "run": [
            "tiny-calculator passes 44",
            "320 planned = 281 scored + 22 counted as 0 + 17 missing",
            "0.339 to 0.546",
        ],
        "pair": ["Not decided: the missing rollouts decide (22 of 320 of", "+0.052 to +0.168", "135 | 164 passed"],
        "board": ["abacus is first of 7.", "0.833 to 0.942", "2 to 4"],
        "suite": ["benchmarks.", "Mean of three", "Missing"],
    }[kind]
    for words in said:
        assert words in re.sub(r"\s+", " ", text)
    if kind in CARDS:
        assert page.locator(".glossary .card").first.is_visible()
    hidden = page.locator("button:visible").all_inner_texts()
    assert not [words for words in hidden if words in ("Theme", "Copy", "Show all 40")]


@pytest.mark.parametrize("kind", KINDS)
def test_forced_colours_keep_every_line(kind, opened, reports):
    page = opened(reports[kind], forced_colors="active")
    drawn = "svg.row .ci, svg.row .end, svg.row .ranks, svg.ties .tie, .bar rect, .squares rect, .hatch-line"
    strokes = page.evaluate(
        """(drawn) => { const probe = document.createElement("p"); probe.style.color = "CanvasText";
        document.body.append(probe); const ink = getComputedStyle(probe).color; probe.remove();
        return [...new Set([...document.querySelectorAll(drawn)].map((node) => getComputedStyle(node).stroke))]
        .filter((stroke) => stroke !== ink) }""",
        drawn,
    )
    assert strokes == []


def test_nothing_moves_for_who_asked_for_that(opened, reports):
    page = opened(reports["run"], reduced_motion="reduce")
    page.locator("#metrics a.term").first.click()
    assert page.get_by_role("dialog").evaluate("card => getComputedStyle(card).animationName") == "none"
