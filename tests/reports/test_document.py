import io

from calipers.reports import markdown, terminal
from calipers.reports.document import Document, Name, Sentence, Title, plain_table, spaced

TABLE = plain_table(
    ["task", "value", ""],
    [["a|b", "0.5", "fine"], ["@you", "12.25", "<b>"]],
    numbers={1},
    names={0},
)


def document(blocks):
    return Document(lambda: spaced(blocks), dict)


def render(blocks, **settings):
    return terminal.render(document(blocks), **settings)


def test_numbers_stand_on_their_points():
    assert render([TABLE]).splitlines() == [
        "task  value",
        "─────────────────",
        "a|b    0.5   fine",
        "@you  12.25  <b>",
    ]


def test_a_table_without_rows_keeps_its_head():
    assert render([plain_table(["k", "value"], [])]).splitlines() == ["k  value", "────────"]


def test_blocks_stand_apart_and_sentences_wrap():
    text = render([Title("one"), Sentence("a b " * 20), TABLE, Sentence("end"), Title("two")], columns=40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert "\n\nend\n\ntwo\n" in text
    assert text.startswith("one\na b ")


def test_the_last_column_breaks_where_there_is_no_room():
    table = plain_table(
        ["score", "what it is"], [["PPI", "labels, and the judge as far as worth it"], ["judge", "alone"]]
    )
    assert render([table], columns=30).splitlines() == [
        "score  what it is",
        "────────────────────────────",
        "PPI    labels, and the judge",
        "       as far as worth it",
        "judge  alone",
    ]


def test_no_name_becomes_markup_or_a_mention():
    text = markdown.render(
        document([Title(Name("evil `x` @you", None)), Sentence("see @you, pass@3 and [x](y) *a* b_c"), TABLE])
    )
    assert "``evil `x` @you``" in text
    assert "@\N{WORD JOINER}you, pass@3 and \\[x\\](y) \\*a\\* b\\_c" in text
    assert "| `a\\|b` | 0.5 | fine |" in text
    assert "&lt;b>" in text


def test_harmful_characters_are_marked():
    text = render([Title("a\x1b[31m"), Sentence("b\x9bc"), plain_table(["d\x07"], [["e\u202e"]])])
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_a_terminal_that_knows_no_signs_gets_ascii():
    class Ascii(io.StringIO):
        encoding = "ascii"

    stream = Ascii()
    terminal.show(document([Title("é"), TABLE]), stream)
    assert stream.getvalue().isascii()
