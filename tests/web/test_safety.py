"""The rules for every file: a strict policy that allows only its own style and scripts, and a limited size."""

import base64
import hashlib
import json
import re
from functools import cache
from html import unescape
from importlib.resources import files

import pytest
from web.hostile import HALVES, TEXTS

from calipers.web import report
from calipers.web.markup import island, text

ARITH, NEXT, CALCULATORS = (
    str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl", "calculators.csv")
)
SOURCES = {"run": [ARITH], "pair": [ARITH, NEXT], "board": [CALCULATORS], "rewards": [[[1, 0], [1, 1], [0, 0]]]}
LARGEST = 3_000_000  # bytes


@cache
def page_of(kind):
    return report(*SOURCES[kind]).html


def digest(content):
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def policy_of(page):
    """Directive -> its sources."""
    content = unescape(re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    return {name: rest.split() for name, _, rest in (part.strip().partition(" ") for part in content.split(";"))}


@pytest.mark.parametrize("kind", SOURCES)
def test_the_policy_allows_what_is_in_the_file_and_nothing_else(kind):
    page = page_of(kind)
    policy = policy_of(page)
    styles = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert policy["default-src"] == ["'none'"]
    assert policy["style-src"] == [digest(content) for content in styles]
    assert policy["script-src"] == [digest(content) for content in scripts]
    assert policy["base-uri"] == policy["form-action"] == ["'none'"]
    every = [source for sources in policy.values() for source in sources]
    assert not [source for source in every if "unsafe" in source or "*" in source or "http" in source]
    assert len(re.findall(r"<script", page)) == len(scripts) + page.count('<script type="application/json"')


@pytest.mark.parametrize("kind", SOURCES)
def test_the_policy_stands_before_all_that_it_governs(kind):
    page = page_of(kind)
    assert page.index("Content-Security-Policy") < page.index("<style") < page.index("<body")


@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_names_no_address(kind):
    page = page_of(kind)
    assert set(re.findall(r"\w+://[^\s\"'<>;)]+", page)) <= {"http://www.w3.org/2000/svg", "file://"}
    assert not re.search(
        r"\s(?:src|srcset|action|data|poster|style)=", re.sub(r"<script.*?</script>", "", page, flags=re.S)
    )


def test_two_runs_of_ten_thousand_rollouts_are_three_megabytes_at_most(tmp_path):
    words = "a longer text that a model wrote, word after word, line after line\n" * 20
    paths = []
    for run in range(2):
        rows = [
            {
                "task": f"task-{number // 4:05}",
                "sample": number % 4,
                "model": f"model-{run}",
                "reward": int((number + run) % 3 == 0),
                "prompt": f"{number // 4} {words}",
                "completion": f"{number} {words}",
                "answer": f"{number}",
            }
            for number in range(10_000)
        ]
        paths.append(tmp_path / f"{run}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(report(*paths).html.encode()) < LARGEST


@pytest.mark.parametrize("words", [*TEXTS, *HALVES])
def test_a_text_leaves_no_character_that_html_gives_a_meaning(words):
    shown = text(words)
    assert not set(shown) & set("<>\"'")
    assert not re.search(r"&(?!(?:amp|lt|gt|quot|#39);)", shown)
    assert island("data", {words[:100]: [words]}).count("<") == 2
    island("data", [words]).encode()  # lone surrogates are escaped, too
    shown.encode()


def test_texts_can_be_left_out():
    page = report(ARITH, NEXT, texts=False).html
    assert "End with" not in page
    assert "makes 172" not in page
    assert not re.search(r"<mark", page.partition("<script>")[0])
