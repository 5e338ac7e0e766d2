"""The HTML file of a report: its content, what it may load, and its size."""

import base64
import hashlib
import html.parser
import json
import re

import pytest
from cli.running import ARITH, lines

import calipers
from calipers.glossary import explain
from calipers.web.page import SCRIPTS, STYLES, asset

OWN = 150_000  # bytes of our own style and scripts


def written(folder, *rows):
    """The path of a file of these rollouts."""
    return str(folder / lines(folder, *rows))


class Parsed(html.parser.HTMLParser):
    """The text of a page that a browser would show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.scripts, self.style = [], [], [], [], ""
        self.policy, self._inside = "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append((tag, named))
        self._inside = tag
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if tag == "a" and "href" in named else []
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        if tag == "script":
            self.scripts.append((named, ""))

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] = self.scripts[-1][0], self.scripts[-1][1] + data
        elif self._inside == "style":
            self.style += data

    def handle_endtag(self, tag):
        self._inside = None


@pytest.fixture(scope="module")
def page():
    return calipers.report(ARITH, by="difficulty").html


@pytest.fixture(scope="module")
def parsed(page):
    return Parsed(page)


def test_it_loads_nothing(page, parsed):
    for tag, attributes in parsed.tags:
        assert not {"src", "style", "action", "srcset"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
    assert "@import" not in parsed.style
    assert not re.findall(r"url\((?!#)", parsed.style)
    assert all(link.startswith("#") for link in parsed.links)


def test_its_policy_allows_its_own_style_and_scripts_alone(parsed):
    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    run = [text for attributes, text in parsed.scripts if attributes.get("type") != "application/json"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in parsed.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == digest(parsed.style)
    assert rules["script-src"].split() == [digest(text) for text in run]
    assert run


def test_every_number_leads_to_its_card_and_no_id_is_there_twice(parsed):
    assert len(parsed.ids) == len(set(parsed.ids))
    targets = {link[1:] for link in parsed.links}
    assert targets <= set(parsed.ids)
    assert {"card-mean_reward", "card-pass-40-4", "card-wilson_t", "card-mean_reward--difficulty--hard"} <= targets


def test_cards_have_the_words_of_explain(page):
    said = " ".join(explain("pass@4").split())
    card = re.search(r'<article class="card" id="card-pass-40-4">(.*?)</article>', page, re.DOTALL)[1]
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", card)).split())
    assert "The probability of at least one pass in 4 samples of a task, averaged over tasks." in words
    formula = "(1/T) sum_t (1 - C(n_t - c_t, 4) / C(n_t, 4)) for c_t passes in n_t samples"
    assert formula in said
    assert formula in words
    assert "Harbor" in words


def test_sentence_numbers_and_ledger_need_no_script(page):
    body = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    words = html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\xa0", " ")
    words = " ".join(words.split())
    for said in (
        "tiny-calculator passes 44 % of its samples on arith; with the 17 missing rollouts, anything from 33 to 57 %.",
        "From 40 tasks and 303 of 320 planned rollouts. 17 rollouts are missing and excluded.",
        "320 planned = 281 scored + 22 counted as 0 + 17 missing",
        "135 passed",
        "12 verifier failed",
        "0.339 to 0.546",
        "33,813 tokens, $0.055 and 14 min 16 s in total. Per solved task: $0.0018 and 27.6 s.",
        "Half of the rollouts took under 2.4 s, nine in ten under 4.6 s.",
        "82 % which tasks were asked 18 % luck of sampling",
        "= pass@1 (rewards are 0 or 1)",
        "calipers score",
    ):
        assert said in words


def test_every_picture_says_what_it_shows(parsed):
    pictures = [attributes for tag, attributes in parsed.tags if tag == "svg" and attributes.get("role") == "img"]
    assert len(pictures) >= 9
    assert all(len(attributes["aria-label"]) > 10 for attributes in pictures)
    (first,) = [each for each in pictures if each["class"] == "headline"]
    assert first["aria-label"] == (
        "mean_reward 0.440, 95 percent interval 0.339 to 0.546, "
        "0.422 to 0.475 if all 17 missing rollouts had failed or passed"
    )


def test_sections_are_absent_where_there_is_nothing_to_show():
    page = calipers.report([[1, 0], [0, 1], [1, 1]]).html
    assert "<h2>Cost</h2>" not in page
    assert "<h2>Metrics</h2>" in page
    one = calipers.report([[1]]).html
    assert "The run scored 1.000 on one task." in one
    assert "no interval: one task" in one
    assert "pass@k for every k" not in one


def test_slices_that_differ_by_rounding_have_an_axis(tmp_path):
    rows = [{"task": f"t{n}", "reward": 5.0 + n * 1e-15, "metadata": {"key": f"{n}"}} for n in range(2)]
    assert "<h2>By key</h2>" in calipers.report(written(tmp_path, *rows), by="key").html


def test_no_texts_leaves_every_text_out(tmp_path):
    rows = [{"task": "a", "reward": 0, "prompt": "secret-1", "completion": "secret-2", "answer": "secret-3"}]
    path = written(tmp_path, *rows)
    assert "secret-1" in calipers.report(path).html
    bare = calipers.report(path, texts=False).html
    assert "secret" not in bare
    assert "Texts were left out of this file (--no-texts)." in bare


def test_a_result_says_what_it_cannot_show(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(calipers.score(ARITH).to_json())
    page = calipers.report(str(path)).html
    assert "has numbers and no rollouts" in page
    assert "281 scored" in page
    assert 'id="rollouts"' not in page
    assert "Skip to rollouts" not in page


@pytest.mark.parametrize("words", ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u202eevil\x1b[2J\x00"])
def test_hostile_text_is_text_everywhere(tmp_path, words):
    row = {"task": words, "sample": 0, "reward": 1, "model": words, "dataset": words, "prompt": words}
    rows = [
        {**row, "completion": words, "answer": words, "metadata": {"key": words}},
        {**row, "task": "b", "sample": 1},
    ]
    page = calipers.report(written(tmp_path, *rows), by="key").html
    parsed = Parsed(page)
    assert "img" not in [tag for tag, _ in parsed.tags]
    assert not set("\u202e\x1b\x00") & set(page)
    (data,) = [text for attributes, text in parsed.scripts if attributes.get("id") == "data"]
    assert json.loads(data)["rollouts"]["planned"] == 2


def test_a_result_by_training_step_has_the_answer_of_its_last_step(tmp_path):
    """Only the steps have metrics: the page had none, and a table without rows."""
    for step in (1, 2):
        rows = [{"input": f"q{n}", "output": "", "gts": "", "score": n % step, "step": step} for n in range(4)]
        (tmp_path / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "result.json").write_text(calipers.score(tmp_path, by="step").to_json())
    page = calipers.report(tmp_path / "result.json")
    assert page.title == "The run has a mean_reward of 0.500 on step 2, the last of 2."
    parsed = Parsed(page.html)
    assert {link for link in parsed.links if link.startswith("#card-")} == {
        "#card-mean_reward--step--1",
        "#card-mean_reward--step--2",
    }
    assert {link[1:] for link in parsed.links} <= set(parsed.ids)
    assert "dashed line" not in page.html.partition("<main>")[2]


def test_our_own_part_is_small():
    assert sum(len(asset(file).encode()) for file in (*STYLES, *SCRIPTS)) < OWN
    for file in SCRIPTS:
        assert "innerHTML" not in asset(file)
        assert "</script" not in asset(file)


def test_ten_thousand_rollouts_fit_into_3_mb(tmp_path):
    text = "so the sum is <b>12</b> & that is it. " * 50
    rows = [
        {"task": f"task-{task}", "sample": sample, "reward": int(task % 5 > sample), "prompt": text, "completion": text}
        for task in range(2_500)
        for sample in range(4)
    ]
    page = calipers.report(written(tmp_path, *rows), by="task").html
    assert 2_000_000 < len(page.encode()) <= 3_000_000
    left = re.search(r"Texts of ([\d,]+) of 10,000 rollouts are in this file; the others were left out", page)
    assert 300 < int(left[1].replace(",", "")) < 10_000
    assert "The 200 lowest of 2,500 slices are in this file." in page


def test_a_file_that_cannot_be_written(tmp_path):
    made = calipers.report([[1], [0]])
    made.write(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(calipers.InputError, match="cannot be written"):
        made.write(tmp_path / "no" / "report.html")


def test_one_of_something_is_singular():
    page = calipers.report([[1, 0, 1], [1, 1, 0], [1]], metrics=["mean_reward", "pass@3"], texts=False).html
    assert "1 task has fewer than 3 samples" in page
    assert "1 has fewer than 3 samples" in page
    rows = [{"task": "a", "sample": 0, "reward": 1}, {"task": "b", "sample": 0, "outcome": "client_failed"}]
    rows += [{"task": "c", "sample": 0, "attempt": attempt, "reward": 0} for attempt in (1, 2)]
    other = [{"task": task, "sample": 0, "reward": 1} for task in "ab"]
    page = calipers.report(rows, other, texts=False).html
    assert "1 rollout of A and 0 of B are missing" in page
    assert "1 task is only in A and 0 only in B: excluded" in page
    assert "<p>The switches need JavaScript.</p>" in page  # there is no command for values in memory
    assert "1 earlier attempt was replaced by a later one." in calipers.report(rows, texts=False).html
