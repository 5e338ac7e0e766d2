"""Whether a sandbox works is found by trying, and the error gives the reasons."""

from __future__ import annotations

import os

import pytest
from isolate.captive import as_ordinary_user

from calipers.isolate import SandboxError, probe, run
from calipers.isolate.launch import attempt, forgo


@pytest.fixture
def anew():
    """Clear the cached results of `attempt` before and after the test."""
    attempt.cache_clear()
    yield
    attempt.cache_clear()


@pytest.mark.usefixtures("anew")
def test_without_any_mechanism_it_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError) as refused:
        probe()
    assert str(refused.value) == (
        "no sandbox works on this machine (bwrap is not installed; unshare is not installed); install bubblewrap, or"
        " allow user namespaces, or use --unsafe-no-sandbox to run model-written code without protection"
    )


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'bwrap: no permission' >&2; exit 1", "bwrap could not create a sandbox: bwrap: no permission"),
        ("exit 7", "bwrap could not create a sandbox: exit status 7"),
        ("exec no-such-command", "bwrap could not create a sandbox: .*not found"),
        ("kill -9 $$", "bwrap could not create a sandbox: exit status -9"),
    ],
)
def test_a_mechanism_that_does_not_work_says_why(monkeypatch, tmp_path, script, reason):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=reason):
        probe()


@pytest.mark.usefixtures("anew")
def test_a_mechanism_that_shuts_nothing_in_is_none(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="is not process 1"):
        probe()


@pytest.mark.usefixtures("anew")
def test_a_program_of_the_system_is_never_run_without(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    forgo()
    try:
        with pytest.raises(SandboxError, match="needs a sandbox, even with --unsafe-no-sandbox"):
            run(["/bin/true"])
    finally:
        forgo(False)


def test_a_second_question_costs_nothing():
    try:
        assert probe() is probe()
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user already")
@pytest.mark.parametrize("name", ["bwrap", "unshare"])
def test_an_ordinary_user_has_one_too(name):
    code = """
        from calipers.isolate import run
        print(run(['/bin/sh', '-c', 'id -u; cat /tests/a'], files={'tests/a': b'here'}, mechanism=how).stdout)
    """
    assert as_ordinary_user(code, name) == ["b'65534\\nhere'"]
