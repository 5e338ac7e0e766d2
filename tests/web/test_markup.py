import json
import re

import pytest

from calipers.web.markup import Markup, element, identifier, island, joined, name, text, visible

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "a&lt;b",
    "\ud800",
    "\x00\x1b[2J",
    "\u202edrowssap",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_an_island_holds_any_text_and_never_ends_early(words):
    content = island("data", {"said": words})
    inside = re.fullmatch(r'<script type="application/json" id="data">(.*)</script>', content, re.DOTALL)[1]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside) == {"said": words}
    content.encode()  # a lone surrogate could not be written to a file


@pytest.mark.parametrize("words", HOSTILE)
def test_text_is_never_markup(words):
    shown = element("p", words, title=words)
    assert not re.search(r"<(?!p |/p>)", shown)
    shown.encode()


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("\x1b", "␛"),
        ("\u202e", "⟨U+202E⟩"),
        ("\u2066", "⟨U+2066⟩"),
        ("\x00", "⟨U+0000⟩"),
        ("\x9b", "⟨U+009B⟩"),  # an ANSI command in one character
        ("\ud800", "⟨U+D800⟩"),
        ("\r", "⟨U+000D⟩"),  # without a line feed, it returns to the start of the line
        ("\r\n", "\n"),
        ("\t", "\t"),
        ("\u200d", "\u200d"),  # joins emoji
        ("é", "é"),
    ],
)
def test_what_hides_or_reorders_text_is_shown(character, shown):
    assert visible(f"a{character}b") == f"a{shown}b"


def test_only_markup_is_taken_as_it_is():
    assert element("p", "<b>", Markup("<b>")) == "<p>&lt;b&gt;<b></p>"
    assert joined(["a", None, [element("i", "x"), "&"]]) == "a<i>x</i>&amp;"
    assert text(Markup("&amp;")) == "&amp;"


def test_attributes():
    assert element("input", type="radio", checked=True, disabled=False, value=None) == '<input type="radio" checked>'
    assert element("p", aria_label='"x"', class_="y") == '<p aria-label="&quot;x&quot;" class="y"></p>'


def test_a_long_name_keeps_its_end_and_its_whole_in_the_title():
    shown = name("Claude-3.5-Sonnet-20241022", 21)
    assert shown == '<bdi class="name" title="Claude-3.5-Sonnet-20241022">Claude-3.5-S…20241022</bdi>'
    assert name("m") == '<bdi class="name">m</bdi>'


def test_different_names_have_different_ids():
    names = ["pass@4", "pass^4", "pass-40-4", "pass 4", "é"]
    made = [identifier(each) for each in names]
    assert len(set(made)) == len(names)
    assert all(re.fullmatch(r"[\w-]+", each, re.ASCII) for each in made)
