import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pandas
import polars as pl
import pyarrow
import pytest

import calipers
from calipers.analyses.gate.gate import check_policy
from calipers.analyses.gate.requirement import NamedResult, Policy, parse
from calipers.analyses.plan_study import StudyRequest, from_numbers, study
from calipers.errors import InputError
from calipers.names import DOCUMENTS
from calipers.reports import terminal
from calipers.reports.page import Page
from calipers.reports.result import document as document_of

ROWS = [
    {"task": f"t{t}", "sample": s, "reward": float((t * 7 + s * 3) % 5 > 1), "level": "easy" if t % 2 else "hard"}
    for t in range(12)
    for s in range(3)
]
WORSE = [{**row, "reward": row["reward"] * (row["sample"] > 0)} for row in ROWS]
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&amp;"


def written(tmp_path, rows, name):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def reports(tmp_path):
    old, new = written(tmp_path, WORSE, "old.jsonl"), written(tmp_path, ROWS, "new.jsonl")
    rules = [parse("lower(mean_reward) >= 0.1"), parse("mean_reward >= 0.99")]
    labels = tmp_path / "labels.csv"
    labels.write_text("task,sample,label\n" + "".join(f"t{t},0,{t % 2}\n" for t in range(12)))
    return {
        "result": calipers.score(new, ["mean_reward", "pass@2"], by="level"),
        "comparison": calipers.compare(old, new, by="level"),
        "three": calipers.compare(old, new, ROWS),
        "curves": calipers.curve(new),
        "items": calipers.items(old, new, ROWS),
        "gate": check_policy(Policy(rules, [NamedResult(new, new, None)], None)),
        "plan": study(from_numbers(0.1, 0.05, None, None), StudyRequest(detect=0.1)),
        "judge": calipers.judge_check(new, labels),
        "leaderboard": calipers.leaderboard(old, new, ROWS, baseline="old.jsonl"),
        "matrix": calipers.matrix([{**row, "dataset": row["level"]} for row in ROWS]),
    }


def test_every_document_has_its_class():
    from calipers.names import load

    assert all(issubclass(load(target), Page) for target in DOCUMENTS.values())


def test_print_is_the_page_repr_is_a_line_and_rows_are_frames(reports):
    for report in reports.values():
        assert str(report).count("\n") > 3
        assert "\n" not in repr(report)
        assert len(repr(report)) < 240
        frame = report.to_polars()
        assert isinstance(frame, pl.DataFrame)
        assert report.to_pandas().shape == report.to_arrow().shape == frame.shape
        assert isinstance(report.to_pandas(), pandas.DataFrame)
        assert isinstance(report.to_arrow(), pyarrow.Table)
        assert report.to_markdown()


def test_a_report_comes_back_from_its_json(reports, tmp_path):
    for name, report in reports.items():
        again = type(report).from_json(report.to_json())
        assert json.loads(again.to_json()) == json.loads(report.to_json()), name
        path = tmp_path / f"{name}.json"
        path.write_text(report.to_json())
        loaded = calipers.load(path)
        assert type(loaded) is type(report)
        assert loaded.to_json() == report.to_json()
        assert str(loaded) == str(report)


def test_a_result_that_is_loaded_has_its_numbers_and_its_digest(reports):
    result = reports["result"]
    again = calipers.Result.from_json(result.to_json())
    assert again.digest == result.digest
    assert again["pass@2"] == result["pass@2"]
    assert (
        again.groups[0].breakdowns["level"]["easy"]["mean_reward"]
        == result.groups[0].breakdowns["level"]["easy"]["mean_reward"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"schema": "calipers.result/1", "confidence": NaN}', r"not JSON \(Out of range float values"),
        ('{"schema": "calipers.result/1", "confidence": 1e999}', r"not JSON \(Out of range float values"),
        ('{"schema": "calipers.reslt/1"}', r"schema is 'calipers.reslt/1'; expected one of calipers.result/1"),
        ('{"schema": ["calipers.result/1"]}', r"schema is \['calipers.result/1'\]; expected one of calipers.result/1"),
        ('{"schema": "calipers.result/1"}', "not a result of this version: KeyError: 'dialect'"),
        ('{"schema": "calipers.gate/1"}', "not a Gate of this version"),
    ],
)
def test_what_is_no_document_is_refused_in_a_line(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        calipers.load(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["dialect"], 0),
        (["confidence"], "high"),
        (["groups", 0, "model"], 7),
        (["groups", 0, "warnings"], {"a": 1}),
        (["groups", 0, "economics", "total"], {"cost_usd": "0.1"}),
        (["groups", 0, "metrics", "mean_reward", "value"], []),
        (["groups", 0, "metrics", "mean_reward", "tasks"], "4"),
        (["groups", 0, "metrics", "mean_reward", "why"], 1.5),
        (["groups", 0, "metrics", "mean_reward", "interval"], [0.1]),
    ],
)
def test_a_result_with_a_value_of_another_type_is_refused_in_a_line(reports, place, value):
    document = inner = reports["result"].to_dict()
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError, match="not a result of this version: ValidationError: Expected "):
        calipers.Result.from_dict(document)


def test_the_class_of_another_document_refuses_it(reports):
    with pytest.raises(InputError, match=r"the document is 'calipers.result/1'; expected the document of a Comparison"):
        calipers.Comparison.from_json(reports["result"].to_json())


class Checked(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_a_notebook_shows_every_report_as_a_sentence_and_a_table(reports):
    for name, report in reports.items():
        text = report._repr_html_()
        assert len(text.encode()) < 6_000, name
        assert "style>" not in text
        assert not re.search(r"\bid=|background|class=|https?:", text), name
        page = Checked()
        page.feed(text)
        page.close()
        assert page.open == [], name
        assert "table" in page.tags, name
        assert "script" not in page.tags


def test_the_three_parts_of_a_result():
    path = str(files("calipers") / "examples" / "arith.jsonl")
    made = calipers.score(path, ["mean_reward", "pass@4", "pass^4"])
    assert repr(made) == (
        "<Result arith · tiny-calculator: mean_reward 0.440 [0.339, 0.546], 40 tasks, 17 of 320 missing>"
    )
    text = made._repr_html_().replace("\xa0", " ")
    assert "tiny-calculator passes 44 % of its samples on arith; with the 17 missing rollouts, anything from" in text
    assert text.count("<tr") == 4
    assert text.count("<rect") == 3  # what the missing rollouts could change
    assert "320 planned = 281 scored + 22 counted as 0 + 17 missing (excluded). Hollow: from all missing failed" in text
    assert f"{made.digest[:19]}…</div>" in text


@pytest.mark.parametrize(("models", "left"), [(3, 0), (20, 0), (57, 37)])
@pytest.mark.parametrize("name", ["m{}", "<b>" * 200 + "{}", "\N{GRINNING FACE}" * 300 + "{}"])
def test_a_notebook_has_twenty_rows_and_six_kilobytes(models, left, name):
    rows = [{"task": t, "reward": t % 2, "model": name.format(m)} for m in range(models) for t in range(4)]
    text = calipers.score(rows, "mean_reward")._repr_html_()
    assert len(text.encode()) < 6_000
    shown = text.count("<tr") - 1
    assert shown <= 20
    if left and len(name) < 10:
        assert (shown, f"… {left} more rows: result.to_pandas()" in text) == (20, True)


def test_the_words_of_others_are_text_in_a_notebook():
    rows = [{"task": "a", "reward": 1, "model": HOSTILE, "agent": "<img src=x onerror=y>", "level": HOSTILE}]
    page = Checked()
    page.feed(calipers.score(rows, by="level")._repr_html_())
    assert page.tags.isdisjoint({"script", "img"})
    assert "\x1b" not in "".join(page.text)


def test_a_table_of_rollouts_is_a_line():
    assert repr(calipers.read(ROWS)) == "<Rollouts: 36 of 12 tasks; reward>"
    many = [{"task": t, "reward": 1, "model": m} for t in range(3) for m in "ab"]
    assert re.fullmatch(r"<Rollouts: 6 of 6 tasks, 2 groups; reward>", repr(calipers.read(many)))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["groups", 0, "model"], "\ud800", "UnicodeEncodeError"),
        (["groups", 0, "metrics", "mean_reward", "signature"], "mean_reward|seed:\udfff", "UnicodeEncodeError"),
        (
            ["suites"],
            [{"agent": None, "model": "m", "datasets": [None], "metrics": {}}],
            "ValidationError: Expected `str`",
        ),
    ],
)
def test_a_result_that_could_have_no_digest_or_no_page_is_refused_in_a_line(reports, place, value, message):
    document = inner = reports["result"].to_dict()
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError, match=f"not a result of this version: {message}"):
        calipers.Result.from_dict(document)


def test_a_standard_error_below_zero_is_shown(reports):
    document = reports["result"].to_dict()
    document["groups"][0]["metrics"]["mean_reward"]["stderr"] = -1
    page = document_of(calipers.Result.from_dict(document), details=True)
    assert "-1.0000" in terminal.render(page)
