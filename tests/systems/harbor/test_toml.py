import pytest
from systems.harbor.given import write

from calipers.errors import InputError
from calipers.systems.harbor.manifest import line_of, read_toml

TEXT = """\
version = "1"
[agent]
timeout_sec = 3
[environment.healthcheck]
command = "x"
[[steps]]
name = "a"
[steps.agent]
timeout_sec = 1
[[steps]]
"name" = "b"
agent.timeout_sec = 2
[[steps.verifier.collect]]
command = "y"
"""


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (("version",), 1),
        (("agent", "timeout_sec"), 3),
        (("agent", "user"), 2),  # not there: the table where it would be
        (("environment", "healthcheck", "command"), 5),
        (("steps",), 6),
        (("steps", 0, "name"), 7),
        (("steps", 0, "agent", "timeout_sec"), 9),
        (("steps", 1, "name"), 11),
        (("steps", 1, "agent", "timeout_sec"), 12),
        (("steps", 1, "verifier", "collect", 0, "command"), 14),
        (("steps", 2), None),
        (("absent",), None),
    ],
)
def test_the_line_of_a_value(steps, line):
    assert line_of(TEXT, steps) == line


def test_only_a_newline_ends_a_line():
    assert line_of("# a form feed \f, U+2028 \u2028\nb = 1\n", ("b",)) == 2


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a = 1\nb = \n", "t.toml:2: not valid TOML: invalid value"),
        (b"a = 1\na = 2\n", "t.toml:2: not valid TOML: cannot overwrite a value"),
        (b"a = 1\nb = [1,", "t.toml:2: not valid TOML: "),
        (b"a = 1\n# \xff\n", "t.toml:2: is not UTF-8; expected UTF-8 text"),
        (b"a = " + b"[" * 5000, "t.toml: not valid TOML: it is nested too deeply"),
        (b"a = " + b"1" * 5000, "t.toml: not valid TOML: Exceeds the limit (4300 digits)"),
    ],
)
def test_what_is_no_toml(tmp_path, monkeypatch, raw, said):
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    Path("t.toml").write_bytes(raw)
    with pytest.raises(InputError) as error:
        read_toml(Path(), Path("t.toml"))
    assert str(error.value).startswith(said)


def test_a_file_that_is_too_large_or_elsewhere(tmp_path, monkeypatch):
    path = write(tmp_path / "t.toml", "a = 1\n")
    monkeypatch.setattr("calipers.systems.harbor.manifest.LARGEST", 3)
    with pytest.raises(InputError, match="is larger than 0 MiB"):
        read_toml(tmp_path, path)
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "t.toml").symlink_to(path)
    with pytest.raises(InputError, match="is a link out of"):
        read_toml(tmp_path / "l", tmp_path / "l" / "t.toml")
