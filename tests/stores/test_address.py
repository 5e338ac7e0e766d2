from __future__ import annotations

import pytest

from calipers.cli import options
from calipers.errors import InputError, display
from calipers.names import is_remote
from calipers.stores import check_target, local, shown


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("s3://bucket/a.jsonl", True),
        ("ftp://host/a.jsonl", True),  # which is refused, and not taken for a file
        ("a.jsonl", False),
        ("-", False),
        ("C:/a.jsonl", False),
        (None, False),
    ],
)
def test_an_address_has_a_scheme(path, remote):
    assert is_remote(path) is remote


def test_a_file_with_the_name_of_an_address_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    (tmp_path / "s3:" / "a.jsonl").write_text('{"task": "a", "reward": 1}\n')
    assert local("s3://a.jsonl") == "s3://a.jsonl"


def test_local_paths_stay_what_they_are():
    paths = ["a.jsonl", "b/"]
    assert local(paths) is paths
    assert local({"task": ["a"]}) == {"task": ["a"]}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("ftp://host/a", "there is no store ftp://"),
        ("http://example.org/a", "is not encrypted; expected https://"),
        ("s3:///a", "names no bucket"),
        ("https://[host/a", r"https://\[host/a: is no address \(Invalid IPv6 URL\)"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_before_anything_is_loaded(wrong, text):
    with pytest.raises(InputError, match=text):
        local(wrong)


def test_nothing_is_written_to_a_web_server_or_over_a_folder():
    for target, text in (("https://host/a", "can only be read"), ("s3://bucket/a/", "is a folder")):
        with pytest.raises(InputError, match=text):
            check_target(target)


def test_an_address_is_shown_without_its_keys_in_every_later_error():
    signed = "https://me:word@127.0.0.1/a.jsonl?X-Amz-Signature=0123"
    assert shown(signed) == "https://127.0.0.1/a.jsonl"
    assert str(InputError.at(signed, "cannot be read")) == "https://127.0.0.1/a.jsonl: cannot be read"
    assert display(f"note: {signed}") == "note: https://127.0.0.1/a.jsonl"


def test_the_log_of_a_run_stays_on_this_machine():
    with pytest.raises(InputError, match="the log of a run needs a local folder"):
        options.FolderPath().convert("s3://bucket/run", None, None)
