"""The viewer in a real browser: runs, filters, a rollout, two runs, a run being written, labelling, keys, links."""

import csv
import json
import re
import shutil
from importlib.resources import files

import pytest
from browser.test_accessible import violations
from playwright.sync_api import expect
from web.hostile import TEXTS

EXAMPLES = files("calipers") / "examples"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("arith.jsonl", "arith_next.jsonl"):
        shutil.copy(str(EXAMPLES / name), folder / name)
    return folder


def the_run(viewer, name="tiny-calculator", **options):
    """The page of one run."""
    page = viewer.open(**options)
    page.get_by_role("row", name=name).get_by_role("link").click()
    expect(page.locator(".row-line .mono").first).to_be_visible()
    expect(page.locator(".number")).to_be_visible()
    return page


def position(page):
    return page.locator("#position")


def test_the_list_of_runs(viewing, runs):
    page = viewing("runs").open()
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    row = page.get_by_role("row", name="tiny-calculator")
    for words in ("arith", "0.440", "0.339 to 0.546", "17", "$0.055"):
        expect(row).to_contain_text(words)
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("c")
    expect(page.locator(".badge")).to_be_visible()
    assert "/compare/" in page.url


def test_filters_and_search(viewing, runs):
    page = the_run(viewing("runs"))
    expect(position(page)).to_contain_text("of 320")
    page.get_by_role("button", name="146 wrong, filter").click()
    expect(position(page)).to_contain_text("of 146")
    expect(page.get_by_role("button", name="146 wrong, filter")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#left")).to_contain_text("146 rollouts; of these: no score")
    expect(page.locator("#announce")).to_have_text("146 rollouts")
    page.get_by_label("slice").select_option("difficulty=easy")
    expect(position(page)).not_to_contain_text("of 146")
    page.get_by_label("slice").select_option("")
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    expect(position(page)).to_contain_text("of 320")
    page.get_by_label("outcome").select_option("refused")
    expect(position(page)).to_contain_text("of 8")
    page.get_by_label("outcome").select_option("")
    page.get_by_label("reward at least").fill("1")
    page.get_by_label("reward at least").press("Enter")
    expect(position(page)).to_contain_text("of 135")
    page.get_by_label("reward at least").fill("")
    page.get_by_label("reward at least").press("Enter")
    expect(page.get_by_label("reward at least")).not_to_be_focused()  # the filters were drawn again
    page.locator("body").press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("66330")
    page.keyboard.press("Enter")
    expect(position(page)).to_contain_text("1 to 1 of 1")
    expect(page.locator(".row-line").first).to_contain_text("mul-00")


def test_what_flipped_against_another_run_and_sorting(viewing, runs):
    page = the_run(viewing("runs"))
    page.get_by_label("flipped against another run").select_option(index=1)
    expect(position(page)).not_to_contain_text("of 320")
    page.get_by_label("which flips").select_option("worse")
    page.get_by_label("sort").select_option("-tokens")
    expect(page.locator(".row-line").first).to_be_visible()
    tokens = [int(words) for words in page.locator(".row-line .right").all_inner_texts()[:5]]
    assert tokens == sorted(tokens, reverse=True)


def test_a_rollout_and_its_keys(viewing, runs):
    page = the_run(viewing("runs"))
    head = page.locator("#detail h2")
    page.keyboard.press("n")
    expect(head).to_have_text("add-00 sample 0 of 8")
    page.keyboard.press("n")
    expect(head).to_have_text("add-00 sample 5 of 8")
    page.keyboard.press("j")
    expect(head).to_have_text("add-00 sample 6 of 8")
    page.keyboard.press("N")
    expect(head).to_have_text("add-00 sample 5 of 8")
    page.keyboard.press("]")
    expect(head).to_have_text("add-00 sample 6 of 8")
    page.keyboard.press("[")
    expect(head).to_have_text("add-00 sample 5 of 8")
    detail = page.locator("#detail")
    for words in ("Prompt", "Completion", "85 + 87 makes 202.", "This task", "5 of 7 passed", "difficulty easy"):
        expect(detail).to_contain_text(words)
    page.keyboard.press("r")
    expect(detail).to_contain_text('"task": "add-00"')
    expect(page.get_by_role("tab", name="Raw record")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Other samples").click()
    detail.get_by_role("button", name="sample 3: passed").click()
    expect(head).to_have_text("add-00 sample 3 of 8")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("next, previous failure")
    dialog.get_by_label("Single keys off").check()
    dialog.get_by_role("button", name="Close").click()
    page.locator("#rows").press("n")
    expect(head).to_have_text("add-00 sample 3 of 8")


def test_a_link_leads_to_the_same_rollout_with_the_same_filters(viewing, runs):
    viewer = viewing("runs")
    page = the_run(viewer)
    page.keyboard.press("2")
    expect(position(page)).to_contain_text("of 146")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#detail h2")).to_be_visible()
    expect(page.locator(".row-line[aria-selected=true]")).to_have_attribute("data-position", "1")
    task = page.locator("#detail h2").inner_text()
    again = viewer.open(page.url.removeprefix(viewer.base))
    expect(again.locator("#detail h2")).to_have_text(task)
    expect(position(again)).to_contain_text("of 146")
    expect(again.locator(".row-line[aria-selected=true]")).to_have_attribute("data-position", "1")


def test_two_runs_beside_each_other(viewing, runs):
    page = the_run(viewing("runs"))
    page.get_by_label("Beside another").select_option(index=1)
    expect(page.locator(".badge")).to_have_text("~ Undecided")
    expect(page.locator("#ledger")).to_contain_text(
        "Not decided: the missing rollouts decide (22 of 320 of B, 17 of A)."
    )
    page.get_by_role("button", name="9 worse, filter").click()
    expect(position(page)).to_contain_text("of 9")
    page.locator("#rows .row-line", has_text="add-18").click()
    expect(page.locator("#detail h2")).to_have_text("add-18 sample 0 of 8")
    page.keyboard.press("]")
    expect(page.locator("#detail h2")).to_have_text("add-18 sample 1 of 8")
    expect(page.locator("#detail")).to_contain_text("Prompt, the same in both")
    expect(page.locator("mark.a").first).to_be_visible()
    page.keyboard.press("d")
    expect(page.locator("mark")).to_have_count(0)
    page.get_by_role("button", name="answer differs").click()
    expect(page.get_by_role("button", name="15 answer differs")).to_have_attribute("aria-pressed", "true")
    expect(position(page)).to_contain_text("of 15")
    page.get_by_label("slice").select_option("difficulty=easy")
    expect(position(page)).to_contain_text("of 2")
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    expect(page.locator(".none")).to_have_text("No tasks here. Filters may exclude them.")
    page.reload()
    expect(page.locator(".none")).to_be_visible()
    page.get_by_role("link", name="Report").click()
    expect(page.locator("h1")).to_contain_text("better")


def test_a_run_that_is_written_while_it_is_viewed(viewing, tmp_path):
    path = tmp_path / "live.jsonl"
    line = '{"task": "%s", "sample": 0, "reward": 1, "completion": "said %s"}\n'
    path.write_text(line % ("a", "first"))
    page = viewing("live.jsonl").open()
    expect(page.locator(".row-line")).to_have_count(1)
    page.evaluate("window.notReloaded = true")
    with open(path, "a") as file:
        file.write(line % ("b", "second") + '{"task": "torn", "rew')
    expect(page.locator(".row-line")).to_have_count(2)
    expect(page.locator(".row-line").nth(1)).to_contain_text("said second")
    expect(page.locator("body")).not_to_contain_text("torn")
    with open(path, "a") as file:
        file.write('ard": 0}\n')
    expect(page.locator(".row-line")).to_have_count(3)
    expect(page.locator(".row-line").nth(2)).to_contain_text("torn")
    expect(page.locator("#ledger .sentence")).to_contain_text("67")
    assert page.evaluate("window.notReloaded") is True


def test_a_list_of_many_rollouts_scrolls_by_pages(viewing, tmp_path):
    rows = ({"task": f"task-{n}", "sample": 0, "reward": n % 2, "completion": f"text {n}"} for n in range(30_000))
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = viewing("many.jsonl").open()
    expect(page.locator(".row-line .mono").first).to_have_text("task-0")
    page.locator("#rows").press("End")
    expect(page.locator(".row-line", has_text="task-29999")).to_be_visible()
    expect(page.locator("#detail")).to_contain_text("text 29999")
    assert page.locator(".row-line").count() < 60
    page.locator("#rows").press("Home")
    expect(page.locator("#detail")).to_contain_text("text 0")


def test_rows_that_cannot_be_loaded_are_requested_again_only_when_somebody_scrolls(viewing, tmp_path):
    rows = ({"task": f"task-{n}", "sample": 0, "reward": n % 2, "completion": f"text {n}"} for n in range(3_000))
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    viewer = viewing("many.jsonl")
    page = viewer.open()
    expect(page.locator(".row-line .mono").first).to_have_text("task-0")
    refused = []

    def refuse(route):
        refused.append(route.request.url)
        route.fulfill(status=400, json={"error": "gone for a moment"})

    page.route("**/rollouts?*", refuse)
    page.locator("#rows").press("End")
    expect(page.locator("#announce")).to_have_text("gone for a moment")
    page.evaluate("() => new Promise((done) => setTimeout(done, 200))")
    assert len(refused) <= 3
    page.unroute("**/rollouts?*")
    page.locator("#rows").evaluate("rows => rows.dispatchEvent(new Event('scroll'))")
    expect(page.locator(".row-line", has_text="task-2999")).to_be_visible()
    viewer.faults.clear()  # the browser says on the console that requests were refused


def test_labelling_with_keys_and_undo(viewing, runs, tmp_path):
    viewer = viewing("runs/arith.jsonl", "--label", "30")
    page = viewer.open()
    done = page.locator(".label-head b")
    expect(done).to_have_text("1")
    for number in range(12):
        page.keyboard.press("1" if number % 3 else "0")
        expect(done).to_have_text(str(number + 2))
    page.keyboard.press("u")
    expect(done).to_have_text("12")
    page.keyboard.press("s")
    expect(done).to_have_text("13")
    page.keyboard.press("c")
    page.keyboard.type("not sure about 1 and 0")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Correct").click()
    expect(done).to_have_text("14")
    expect(page.locator(".widths")).to_contain_text("12 labels give the corrected score an interval")
    for word in ("tiny-calculator", "reward", "tokens", "0.44"):
        expect(page.locator("main .blocks")).not_to_contain_text(word)
    assert violations(page) == []
    page.reload()
    expect(done).to_have_text("14")
    page.locator("#finish").click()
    expect(page.get_by_role("heading", name="Labelling finished")).to_be_visible()
    expect(page.locator("main")).to_contain_text("The corrected score is")
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["0", "1", "1"] * 3 + ["0", "1", "", "1"]
    assert rows[-1]["comment"] == "not sure about 1 and 0"


def test_the_chosen_rollout_stays_in_sight(viewing, runs):
    page = the_run(viewing("runs"))
    for _ in range(3):  # a deep link: the strip above the list grows after the list was scrolled
        page.goto(f"{page.url.partition('?')[0]}?task=mul-00&sample=5")
        expect(page.locator(".number")).to_be_visible()
        chosen = page.locator(".row-line[aria-selected=true]")
        expect(chosen).to_be_in_viewport()
        expect(chosen).to_contain_text("mul-00")


def test_a_long_name_of_a_task_keeps_its_end(viewing, tmp_path):
    names = [f"{'benchmark-of-many-words/' * 3}task-{number:04d}" for number in range(3)]
    rows = [json.dumps({"task": name, "reward": 1, "model": "m", "completion": "x"}) for name in names]
    (tmp_path / "long.jsonl").write_text("\n".join(rows) + "\n")
    page = viewing("long.jsonl").open()
    expect(page.locator(".row-line .mono").nth(0)).to_have_text("ben…ask-0000")
    expect(page.locator(".row-line [title]").first).to_have_attribute("title", names[0])


def test_on_a_phone_everything_of_a_run_is_in_the_list(viewing, runs):
    page = viewing("runs").open(**PHONE)
    row = page.locator("table.runs tbody tr").first
    for words in ("0.440", "0.339 to 0.546", "$0.055"):
        expect(page.get_by_text(words, exact=True)).to_be_in_viewport(ratio=1)
    expect(row.locator(".mini-axis svg.row")).to_be_visible()
    row.get_by_role("link").click()
    expect(page.locator(".row-line .mono").first).to_be_visible()
    expect(page.get_by_label("slice")).not_to_be_visible()
    page.get_by_role("button", name="More filters").click()
    expect(page.get_by_label("slice")).to_be_visible()


def test_on_a_phone_the_list_and_a_rollout_are_pages(viewing, runs):
    page = the_run(viewing("runs"), **PHONE)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 390
    page.locator(".row-line").nth(2).click()
    expect(page.locator("#detail h2")).to_be_visible()
    expect(page.locator("#rows")).not_to_be_visible()
    assert page.evaluate(wide) <= 390
    page.get_by_role("button", name="Next rollout").click()
    expect(page.locator("#detail h2")).to_have_text("add-00 sample 3 of 8")
    page.get_by_role("button", name="List").click()
    expect(page.locator("#rows")).to_be_visible()


@pytest.mark.parametrize("options", [{}, {"color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"])
def test_axe_finds_nothing(viewing, runs, options):
    page = viewing("runs").open(**options)
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    assert violations(page) == []
    page.get_by_role("row", name="tiny-calculator").get_by_role("link").click()
    expect(page.locator(".row-line .mono").first).to_be_visible()
    expect(page.locator(".number")).to_be_visible()
    assert violations(page) == []
    page.locator(".row-line").nth(5).click()
    expect(page.locator("#detail h2")).to_be_visible()
    assert violations(page) == []
    second = page.locator("#beside option").nth(1).get_attribute("value")
    page.goto(page.url.partition("?")[0].replace("/run/", "/compare/") + f"/{second}")
    expect(page.locator(".badge")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert page.locator("#path").bounding_box()["height"] < 60  # names stand beside each other, not letter by letter
    assert violations(page) == []


def test_the_theme_is_changed_and_kept(viewing, runs):
    page = the_run(viewing("runs"), color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 22)"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 252, 250)"
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(252, 252, 250)"


def test_hostile_texts_stay_texts(viewing, tmp_path):
    rows = [
        {"task": f"t{at} {text}", "sample": 0, "model": TEXTS[0], "dataset": TEXTS[2], "reward": at % 2, "prompt": text,
         "completion": [{"role": text, "content": text}, {"role": "tool", "content": text}], "answer": text,
         "error": text, "metadata": {"kind": TEXTS[at % 5]}, "judge_words": text}
        for at, text in enumerate(TEXTS)
    ]  # fmt: skip
    (tmp_path / "hostile.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = viewing("hostile.jsonl").open()
    expect(page.locator(".row-line .mono").first).to_be_visible()
    expect(page.locator(".number")).to_be_visible()
    for _ in range(40):
        before = page.locator("#detail h2").inner_text() if page.locator("#detail h2").count() else ""
        page.locator("#rows").press("j")
        expect(page.locator("#detail h2")).not_to_have_text(before)
    page.keyboard.press("e")
    expect(page.locator("details.step").first).to_be_visible()
    assert page.evaluate("window.hostile") is None
    assert page.locator("#detail img, #detail script, #rows script, #detail iframe, main form, main style").count() == 0
    assert re.search("hostile|script", page.locator("#detail").inner_text())
