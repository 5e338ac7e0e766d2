"""Notifications at the end of a run: a real command, a real server on this machine, and failures of both."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from running.loopback import hook
from waiting import PATIENCE, until

from calipers.errors import InputError
from calipers.running.notify import NotifyCommand, Webhook, listener, message_of, notify

SHORT = 0.2  # seconds; the limit for those that never end by themselves


@dataclass
class Report:
    folder: Path
    complete: bool = True


@pytest.fixture
def report(tmp_path):
    folder = tmp_path / "r"
    folder.mkdir()
    document = {"schema": "calipers.result/1", "groups": [{"breakdowns": {"prompt": {"Who?": {}}, "level": {"a": {}}}}]}
    (folder / "result.json").write_text(json.dumps(document))
    return Report(folder)


def notes_of(text, reports, complete=True, limit=PATIENCE):
    notes = []
    notify([listener(text)], reports, complete, notes.append, limit)
    return notes


def python(tmp_path, code):
    """A command that runs this code."""
    script = tmp_path / "hear.py"
    script.write_text(code)
    return f"{sys.executable} {script}"


def test_a_webhook_gets_the_result_as_json(report):
    with hook(204) as (url, posts):
        assert notes_of(url, [report]) == []
    ((path, headers, body),) = posts
    assert (path, headers["Content-Type"]) == ("/v1", "application/json")
    assert "Authorization" not in headers
    assert json.loads(body) == {
        "schema": "calipers.notification/1",
        "complete": True,
        "runs": [
            {
                "folder": str(report.folder),
                "complete": True,
                "result": {"schema": "calipers.result/1", "groups": [{"breakdowns": {"level": {"a": {}}}}]},
            }
        ],
    }


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 429, 500, 503])
def test_an_answer_that_is_no_success_is_one_note_without_the_path(report, status):
    with hook(status, [("Location", "/elsewhere")]) as (url, posts):
        (note,) = notes_of(f"{url}/T0PSECRET?key=T0PSECRET", [report])
    assert len(posts) == 1  # redirects are not followed, and there are no retries
    assert note.startswith(f"--notify {url.removesuffix('/v1')}: HTTP {status}")
    assert "T0PSECRET" not in note


def test_a_server_that_never_answers_is_given_up(report):
    release = threading.Event()
    with hook(delay=release) as (url, _):
        (note,) = notes_of(url, [report], limit=SHORT)
        release.set()
    assert note.endswith(": no answer within 0.2 s")


def test_a_server_that_answers_byte_by_byte_is_given_up(report):
    """Each byte arrives within the limit; all of them together do not."""
    over = threading.Event()

    def drip(server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not over.wait(SHORT / 10):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=[server])
        thread.start()
        (note,) = notes_of(f"http://127.0.0.1:{server.getsockname()[1]}/", [report], limit=SHORT)
        over.set()
        thread.join()
    assert note.endswith(": no answer within 0.2 s")


def test_a_server_that_is_not_there_and_one_that_speaks_no_http(report):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def mumble():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"220 mail ready\r\n")

        thread = threading.Thread(target=mumble)
        thread.start()
        (note,) = notes_of(f"http://127.0.0.1:{port}/", [report])
        thread.join()
    assert note == f"--notify http://127.0.0.1:{port}: cannot be reached (no HTTP answer)"
    (note,) = notes_of(f"http://127.0.0.1:{port}/", [report])
    assert note == f"--notify http://127.0.0.1:{port}: cannot be reached (connection refused)"


def test_a_command_gets_the_paths_and_the_json_and_no_shell(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "import json, sys\njson.dump([sys.argv[1:], json.load(sys.stdin)], open('heard.json', 'w'))\n"
    assert (
        notes_of(f"{python(tmp_path, code)} 'a b' $HOME *.py ';' '>' x", [Report(Path("r"), complete=False)], False)
        == []
    )
    words, message = json.loads((tmp_path / "heard.json").read_text())
    assert words == ["a b", "$HOME", "*.py", ";", ">", "x", str(tmp_path / "r" / "result.json")]
    assert (message["complete"], [run["complete"] for run in message["runs"]]) == (False, [False])


def test_a_command_sees_no_key(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    monkeypatch.setenv("HUB_TOKEN", "hf-0123456789")
    monkeypatch.setenv("HEADER", "Bearer sk-0123456789")
    monkeypatch.setenv("ALL_PROXY", "http://me:word@127.0.0.1:1")
    monkeypatch.setenv("HARMLESS", "yes")
    code = "import json, os\njson.dump(dict(os.environ), open('seen.json', 'w'))\n"
    assert notes_of(python(tmp_path, code), [report]) == []
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["HARMLESS"] == "yes"
    assert {"OPENAI_API_KEY", "HUB_TOKEN", "HEADER", "ALL_PROXY"}.isdisjoint(seen)
    assert "0123456789" not in json.dumps(seen)


def test_no_key_is_in_a_message_or_in_a_note(report, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_GATEWAY_TOKEN", "tok-0123456789")
    (report.folder / "result.json").write_text('{"groups": [], "notes": ["tok-0123456789 was refused"]}')
    assert b"tok-" not in message_of([report], True)
    assert b"[secret] was refused" in message_of([report], True)
    code = (
        "import sys\nprint('first')\nprint('no \\x1b[31m tok-' + '0123456789', file=sys.stderr)\nprint()\nsys.exit(7)\n"
    )
    (note,) = notes_of(python(tmp_path, code), [report])
    assert note == f"--notify {sys.executable}: exit code 7: no \N{REPLACEMENT CHARACTER}[31m [secret]"


def test_a_command_that_does_not_exist_or_may_not_be_run(report, tmp_path):
    (note,) = notes_of("there-is-no-such-program --flag", [report])
    assert note == "--notify there-is-no-such-program: cannot be run (No such file or directory)"
    (note,) = notes_of(str(tmp_path), [report])
    assert note == f"--notify {tmp_path}: cannot be run (Permission denied)"


def test_a_command_that_never_ends_is_ended_with_all_it_started(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "open(f'pid{min(child, 1)}', 'w').write(str(os.getpid()))\n"
        "time.sleep(3600)\n"
    )
    (note,) = notes_of(python(tmp_path, code), [report], limit=2.0)
    assert note == f"--notify {sys.executable}: did not end within 2 s"

    def gone(name):
        if not (tmp_path / name).exists():
            return True  # on a busy machine it was killed before it could write
        state = Path("/proc", (tmp_path / name).read_text(), "stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"

    until(lambda: gone("pid0") and gone("pid1"), "the end of both")


def test_a_command_that_writes_much_and_reads_nothing(report, tmp_path):
    (report.folder / "result.json").write_text(json.dumps({"groups": [], "notes": ["x" * (1 << 20)]}))
    code = (
        "import os, sys\nfor _ in range(400):\n    os.write(1, b'y' * 65536)\nos.write(1, b'\\nthe end')\nsys.exit(1)\n"
    )
    (note,) = notes_of(python(tmp_path, code), [report])
    assert note.endswith(": exit code 1: the end")


def test_a_command_that_is_killed(report, tmp_path):
    (note,) = notes_of(python(tmp_path, "import os\nos.kill(os.getpid(), 9)\n"), [report])
    assert note.endswith(": ended by signal 9")


def test_one_that_fails_keeps_no_other_from_being_told(report):
    notes = []
    with hook() as (url, posts):
        notify([listener("there-is-no-such-program"), listener(url)], [report], True, notes.append)
    assert (len(notes), len(posts)) == (1, 1)


def test_a_result_that_is_gone_is_a_note(report):
    os.unlink(report.folder / "result.json")
    with hook() as (url, posts):
        (note,) = notes_of(url, [report])
    assert note == "--notify: result.json cannot be read (No such file or directory), so nobody was notified"
    assert posts == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("''", "is empty"),
        ("say 'open", "the command cannot be read"),
        ("a\0b", "null character"),
        ("http://me:SECRET@127.0.0.1/x", "user name or a password"),
        ("https://SECRET@127.0.0.1/x", "user name or a password"),
        ("http://127.0.0.1:99999/SECRET", "cannot parse the host or port"),
        ("https:///SECRET", "no host"),
        ("http://127.0.0.1:0/SECRET", "no valid port"),
        ("http://127.0.0.1/SECRET x", "spaces or control characters"),
    ],
)
def test_what_cannot_be_told_anything_is_an_error_that_shows_no_secret(text, wrong):
    with pytest.raises(InputError, match=wrong) as error:
        listener(text)
    assert str(error.value).startswith("--notify: ")
    assert "SECRET" not in str(error.value)


def test_only_http_is_a_webhook():
    assert isinstance(listener("HTTPS://host/x"), Webhook)
    assert isinstance(listener("httpie POST host"), NotifyCommand)
    assert "x" not in repr(listener("http://host/x"))
