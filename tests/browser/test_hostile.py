"""Hostile texts in every field that a page shows: no script runs, no foreign element appears, nothing is loaded."""

import json
from html.parser import HTMLParser

import pytest
from web.hostile import HALVES, LINE, TEXTS

import calipers
from calipers.metrics import mean, task_mean
from calipers.web import report

SAFE_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "script", "noscript", "header", "main", "footer", "section"),
    *("svg", "defs", "pattern", "rect", "line", "circle", "path", "text", "tspan", "polyline", "polygon"),
    *("h1", "h2", "h3", "p", "a", "b", "span", "small", "bdi", "code", "pre", "mark", "kbd", "div", "article"),
    *("dl", "dt", "dd", "ul", "li", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
    *("button", "input", "label", "fieldset", "legend", "details", "summary", "dialog", "output"),
}
KINDS = ("run", "pair", "board", "suite")
KEY = "</h2><script>hostile=1</script>"  # of a slice: without a dot, which would lead into an object


class Tags(HTMLParser):
    """Every start tag of a page with its attributes."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))


def rows_of(texts, *, model="m", dataset="d", samples=2, better=0):
    """Rollouts in which every field that a page shows has one of the texts."""
    rows = []
    for number, text in enumerate(texts):
        who = {"task": text or "(empty)", "dataset": dataset, "model": model}
        said = {"prompt": f"prompt {text}", "completion": f"completion {text}"}
        labels = {"metadata": {"kind": texts[number % 7], KEY: texts[number % 5]}}
        rows += [
            {
                **who,
                **said,
                **labels,
                "sample": sample,
                "outcome": "scored",
                "reward": int((number + sample) % 3 < 1 + better),
                "answer": text[sample:],
                "usage": {"cost_usd": 0.001 * (sample + 1), "output_tokens": 5, "latency_s": 0.1},
            }
            for sample in range(samples)
        ]
        error = {"kind": text[:80], "message": text}
        rows.append({**who, **labels, "sample": samples, "outcome": "client_failed", "error": error})
    return rows


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


NAMES = [
    TEXTS[0],
    TEXTS[18],
    "__proto__",
    "\u202egnp.exe",
    TEXTS[2],
    "\x1b[31mred\x1b[0m",
    "</script><script>window.hostile=1</script>",
]


def hostile_report(kind, folder):
    """A page whose every name and text is hostile; the path of its file, too."""
    name = "x\"'><img src=x onerror=window.hostile=1>‮.jsonl"
    by = ["kind", KEY]
    if kind == "run":
        return report(written(folder / name, rows_of(TEXTS, model=NAMES[0], dataset=NAMES[1])), by=by)
    if kind == "pair":
        first = written(folder / f"1{name}", rows_of(TEXTS, model=NAMES[0], dataset=NAMES[1]))
        second = written(folder / f"2{name}", rows_of(TEXTS, model=NAMES[4], dataset=NAMES[1], better=1))
        return report(first, second, by=by)
    datasets = NAMES[1:2] if kind == "board" else NAMES[1:4]
    rows = [
        row
        for dataset in datasets
        for number, model in enumerate(NAMES if kind == "board" else NAMES[:3])
        for row in rows_of(TEXTS[number : number + 40], model=model, dataset=dataset, better=number % 2)
    ]
    return report(written(folder / name, rows))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    pages = {}
    for kind in KINDS:
        pages[kind] = folder / f"{kind}.html"
        hostile_report(kind, folder).write(pages[kind])
    return pages


def checked(page, kind):
    """Nothing of a text became part of the page."""
    assert page.evaluate("window.hostile") is None
    assert page.evaluate("({}).hostile") is None
    tags = page.evaluate("[...new Set([...document.querySelectorAll('*')].map((node) => node.localName))]")
    assert set(tags) <= SAFE_TAGS
    on = page.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap((node) => [...node.attributes])
        .map(({ name, value }) => [name, value])
        .filter(([name, value]) => name.startsWith("on") || ["src", "srcdoc", "action", "formaction"].includes(name)
          || (["href", "xlink:href"].includes(name) && !value.startsWith("#")))"""
    )
    assert on == []
    assert page.locator("h1").count() == 1
    assert page.locator("body > footer").count() == 1
    assert page.locator("main section#provenance").count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_texts_stay_texts(kind, hostile, opened):
    page = opened(hostile[kind])
    checked(page, kind)
    if kind == "run":
        page.locator("button[data-mode=all]").click()
        while page.locator(".list-foot button").count():
            page.locator(".list-foot button").click()
        page.evaluate("document.querySelectorAll('button.rollout').forEach((button) => button.click())")
        assert page.locator(".blocks pre").count() > 600
    if kind == "pair":
        page.evaluate("document.querySelectorAll('button.opener').forEach((button) => button.click())")
        page.evaluate("document.querySelectorAll('.sides details').forEach((details) => { details.open = true })")
        assert page.locator(".opened pre").count() > 600
    if kind == "board":
        page.locator("table.triangle button").first.click()
    for term in page.locator("main a.term").all()[:5]:
        term.click()
        page.keyboard.press("Escape")
    for details in page.locator("main details").all()[:40]:
        details.evaluate("details => details.open = true")
    checked(page, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_page_has_the_elements_of_a_harmless_one(kind, hostile, opened):
    """Without scripts, too: the policy is not what keeps the page intact."""
    page = opened(hostile[kind], java_script_enabled=False)
    tags = {tag for tag, _ in Tags(hostile[kind].read_text(encoding="utf-8")).found}
    assert tags <= SAFE_TAGS
    assert page.locator("body > *").evaluate_all("nodes => nodes.map((node) => node.localName)")[1:3] in (
        ["a", "header"],
        ["header", "main"],
    )


def test_a_hostile_page_does_not_scroll_sideways_on_a_phone(hostile, opened):
    for kind in KINDS:
        page = opened(hostile[kind], viewport={"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), kind


def test_bidi_and_control_characters_are_shown_as_what_they_are(hostile):
    for path in hostile.values():
        page = path.read_text(encoding="utf-8")
        assert not set(page) & {"\u202e", "\u2066", "\x1b", "\x00", "\x9b", "\ufeff", "\u2028"}
        assert "⟨U+202E⟩" in page


def test_ten_megabytes_on_a_line_are_cut(opened, tmp_path):
    rows = rows_of(["a", "b", "c"])
    rows[0]["completion"] = LINE
    rows[1]["prompt"] = LINE
    made = report(written(tmp_path / "long.jsonl", rows))
    assert len(made.html) < 3_000_000
    made.write(tmp_path / "long.html")
    page = opened(tmp_path / "long.html")
    page.locator("button[data-mode=all]").click()
    page.evaluate("document.querySelectorAll('button.rollout').forEach((button) => button.click())")
    assert page.locator("b b").count() == 0
    checked(page, "run")


def test_halves_of_characters_are_refused_by_the_reader(tmp_path):
    """As an escape they stand in JSON, but no text in UTF-8 can hold them."""
    rows = [{"task": half, "sample": 0, "reward": 1} for half in HALVES]
    with pytest.raises(calipers.InputError, match="half of a surrogate pair"):
        report(written(tmp_path / "halves.jsonl", rows))


def test_the_name_of_a_metric_is_a_text_too(opened, tmp_path):
    name = "<img src=x onerror=window.hostile=1>"
    metric = calipers.Metric(name, reduce=task_mean, aggregate=mean)
    made = report([[1, 0], [1, 1], [0, 0], [1, 0]], metrics=[metric])
    made.write(tmp_path / "metric.html")
    page = opened(tmp_path / "metric.html")
    checked(page, "run")
    assert name in page.locator("#metrics").inner_text()
