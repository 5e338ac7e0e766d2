import pytest
from systems.harbor.given import task

from calipers.errors import InputError
from calipers.systems.harbor.task import (
    agent_timeout,
    read_task,
    resolve_env,
    verifier_timeout,
)


def test_limits_of_a_step(tmp_path):
    toml = "agent.timeout_sec = 7\nverifier.timeout_sec = 8\n[[steps]]\nname = 'a'\n[[steps]]\nname = 'b'\n"
    toml += "agent.timeout_sec = 1\nverifier.timeout_sec = 2\n"
    steps = {f"steps/{name}/instruction.md": "x" for name in "ab"}
    found = read_task(task(tmp_path / "t", toml, **steps))
    a, b = found.config.steps
    assert [agent_timeout(found, step) for step in (None, a, b)] == [7.0, 7.0, 1.0]
    assert [verifier_timeout(found, step) for step in (None, a, b)] == [8.0, 600.0, 2.0]  # Harbor's: not inherited
    assert agent_timeout(read_task(task(tmp_path / "u"))) is None


@pytest.mark.parametrize(
    ("value", "host", "expected"),
    [
        ("plain", {}, "plain"),
        ("${X}", {"X": "x"}, "x"),
        ("${X:-d}", {}, "d"),
        ("${X:-d}", {"X": ""}, ""),  # set, and empty
        ("${X:-}", {}, ""),
        ("${X:-a}b}", {}, "a}b"),
        ("https://${X}/", {"X": "x"}, "https://${X}/"),  # only a whole value is a reference
        ("$X", {"X": "x"}, "$X"),
        ("${X}", {"X": "${Y}", "Y": "y"}, "${Y}"),  # once
    ],
)
def test_variables(value, host, expected):
    assert resolve_env({"A": value}, host) == {"A": expected}


def test_variables_that_nobody_set():
    env = {"A": "${KEY}", "B": "${OTHER}", "C": "${KEY}", "D": "${GIVEN}", "E": "secret"}
    with pytest.raises(InputError) as error:
        resolve_env(env, {"GIVEN": "hush"}, "a/task.toml: verifier.env")
    assert str(error.value) == (
        "a/task.toml: verifier.env: KEY, OTHER not set here; export it, or give a default as in ${NAME:-value}"
    )
