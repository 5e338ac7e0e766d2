import io

from calipers.reports.sheet import Said, Table, Title, as_csv, markdown, render, show

TABLE = Table(
    ["task", "value", ""],
    [["a|b", "0.5", "fine"], ["@you", "12.25", "<b>"]],
    numbers=frozenset({1}),
    names=frozenset({0}),
)


def test_numbers_stand_on_their_points():
    assert render([TABLE]).splitlines() == [
        "task  value",
        "─────────────────",
        "a|b    0.5   fine",
        "@you  12.25  <b>",
    ]


def test_a_table_without_rows_keeps_its_head():
    assert render([Table(["k", "value"], [])]).splitlines() == ["k  value", "────────"]


def test_blocks_stand_apart_and_sentences_wrap():
    text = render([Title("one"), Said("a b " * 20), TABLE, Said("end"), Title("two")], columns=40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert "\n\nend\n\ntwo\n" in text
    assert text.startswith("one\na b ")


def test_the_last_column_breaks_where_there_is_no_room():
    table = Table(["score", "what it is"], [["PPI", "labels, and the judge as far as worth it"], ["judge", "alone"]])
    assert render([table], columns=30).splitlines() == [
        "score  what it is",
        "────────────────────────────",
        "PPI    labels, and the judge",
        "       as far as worth it",
        "judge  alone",
    ]


def test_no_name_becomes_markup_or_a_mention():
    text = markdown([Title("evil `x` @you", foreign=True), Said("see @you, pass@3 and [x](y) *a* b_c"), TABLE])
    assert "``evil `x` @you``" in text
    assert "@\N{WORD JOINER}you, pass@3 and \\[x\\](y) \\*a\\* b\\_c" in text
    assert "| `a\\|b` | 0.5 | fine |" in text
    assert "&lt;b>" in text


def test_harmful_characters_are_marked():
    text = render([Title("a\x1b[31m"), Said("b\x9bc"), Table(["d\x07"], [["e\u202e"]])])
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_a_terminal_that_knows_no_signs_gets_ascii():
    class Ascii(io.StringIO):
        encoding = "ascii"

    stream = Ascii()
    show([Title("é"), TABLE], stream)
    assert stream.getvalue().isascii()


def test_cells_of_csv_are_safe_to_open():
    assert as_csv(("a", "b"), [{"a": "=1+1", "b": None}, {"a": "-2", "b": True}]) == "a,b\n'=1+1,\n-2,true\n"
