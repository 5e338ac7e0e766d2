"""The comment block in which a script declares its requirements."""

from __future__ import annotations

import sys

import pytest
from systems.harbor.metric_page import PAGE

from calipers.systems.harbor.metric_script import Declaration, Unusable, declared

HERE = "{}.{}".format(*sys.version_info[:2])


def block(*lines: str) -> bytes:
    return "\n".join(["import json", "# /// script", *(f"# {line}" for line in lines), "# ///", ""]).encode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", Declaration()),
        (b"print(1)", Declaration()),
        (PAGE.encode(), Declaration()),
        (b"# /// other\n# dependencies = ['a']\n# ///\n", Declaration()),  # somebody else's block
        (b"    # /// script\n# dependencies = ['a']\n", Declaration()),  # no block: it does not begin its line
        (block("dependencies = ['b', 'a', 'b']"), Declaration(("a", "b"))),
        (block("dependencies = [", "  'numpy>=2',", "]"), Declaration(("numpy>=2",))),
        (block("dependencies = ['a']").replace(b"\n", b"\r\n"), Declaration(("a",))),
        (b"# /// script\n# dependencies = ['a']\n#\n# ///", Declaration(("a",))),  # no newline at the end
        (block("dependencies = ['a']", "[tool.uv]", "exclude-newer = '2026-01-01'"), Declaration(("a",), "2026-01-01")),
        (block("[tool.other]", "x = 1"), Declaration()),
        (block(f"requires-python = '>={HERE},<4'"), Declaration()),
        (block(f"requires-python = '~={HERE}'"), Declaration()),
        (block(f"requires-python = '=={HERE}.*, !=2.7'"), Declaration()),
        (block("requires-python = ''"), Declaration()),
    ],
)
def test_what_is_declared(source, expected):
    assert declared(source) == expected


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"\xff\xfe", "it is not text"),
        (block("dependencies = ["), "its block '# /// script' is not valid TOML"),
        (b"# /// script\n# dependencies = []\nimport json\n", "its block '# /// script' does not end"),
        (block("x = 1") + block("x = 1"), "it has 2 blocks '# /// script'; expected one"),
        (block("dependencies = 'numpy'"), "its dependencies are not a list of strings"),
        (block("dependencies = [1]"), "its dependencies are not a list of strings"),
        (block("dependencies = ['']"), "its dependency '' cannot be read"),
        (block("dependencies = ['-r /etc/passwd']"), "its dependency '-r /etc/passwd' cannot be read"),  # an option
        (block("dependencies = ['./beside']"), "its dependency './beside' cannot be read"),
        (block('dependencies = ["a\\nb"]'), "cannot be read"),
        (block("[tool.uv.sources]", "a = {git = 'https://x'}"), r"its \[tool.uv\] sets 'sources'"),
        (
            block("[tool.uv]", "index-url = 'https://x'"),
            (r"its \[tool.uv\] sets 'index-url'; " r"expected only exclude-newer"),
        ),
        (block("requires-python = '>=3.99'"), "it requires Python >=3.99, but this is 3"),
        (block("requires-python = '<3.11'"), "it requires Python <3.11, but this is 3"),
        (block(f"requires-python = '=={HERE}'"), "it requires Python =="),  # which is 3.11.0 alone
        (block("requires-python = 'new'"), "its requires-python is 'new'; expected one such as '>=3.11'"),
        (block("dependencies = " + "1" * 5000), "its block '# /// script' is not valid TOML"),
        (block("dependencies = " + "[" * 5000), "its block '# /// script' is not valid TOML"),
        (block(f"requires-python = '>={'1' * 5000}'"), "expected one such as '>=3.11'"),
        (block("requires-python = 3"), "its requires-python is 3; expected one such as '>=3.11'"),
    ],
)
def test_what_cannot_be_honoured(source, said):
    with pytest.raises(Unusable, match=said):
        declared(source)
