"""``calipers gate --policy``: tiers over several results."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from cli.inside import inside  # noqa: F401
from cli.running import lines, rewards

POLICY = """
results:
  math: math.json
  code: {path: code.jsonl, baseline: code-before.jsonl}
allowed_failures: 1
critical:
  - mean_reward > 0.5
  - {require: delta(mean_reward) >= -0.1, of: code}
supporting:
  - {require: pass@2 >= 0.9, of: math}
  - {require: pass@2 >= 0.1, of: math}
advisory:
  - {require: lower(mean_reward) > 0.9, of: math}
"""


@pytest.fixture
def folder(tmp_path):
    """Three results and the policy above, whose paths are its neighbours, in a folder of their own."""
    there = tmp_path / "release"
    there.mkdir()
    rewards(there, [[1, 1], [1, 0], [1, 1], [0, 0]], name="math.json")
    lines(there, *({"task": str(n), "reward": n < 7} for n in range(10)), name="code.jsonl")
    lines(there, *({"task": str(n), "reward": n < 6} for n in range(10)), name="code-before.jsonl")
    (there / "policy.yaml").write_text(POLICY)
    return tmp_path


@pytest.fixture
def gate(inside):  # noqa: F811
    return lambda folder, *more, **environment: inside(
        "gate", "--policy", "release/policy.yaml", *more, cwd=folder, **environment
    )


def words(done):
    return [(check["tier"], check["result"], check["word"]) for check in json.loads(done.stdout)["checks"]]


def test_a_policy_holds(gate, folder):
    done = gate(folder, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert words(done) == [
        ("critical", "math", "passed"),
        ("supporting", "math", "failed"),  # 3 of 4 tasks, and one may fail
        ("supporting", "math", "passed"),
        ("advisory", "math", "failed"),
        ("critical", "code", "passed"),
        ("critical", "code", "passed"),
    ]


def test_what_is_let_pass_is_seen(gate, folder):
    done = gate(folder, "--junit", "gate.xml")
    assert done.stdout.splitlines()[1:3] == [
        "Passed: 4 of 6 rules.",
        "1 supporting rule failed (allowed), 1 advisory rule failed (allowed)",
    ]
    root = ElementTree.parse(folder / "gate.xml").getroot()
    assert (root.get("failures"), root.get("skipped")) == ("0", "2")


def test_a_wide_table_sets_the_intervals_under_its_rows(gate, folder):
    policy = POLICY.replace("math: math.json", "mathematics-of-grade-seven: math.json").replace("of: math", "of: code")
    (folder / "release" / "policy.yaml").write_text(policy)
    answer, _, table = gate(folder).stdout.partition("\n\n")
    assert "interval  n" not in table
    assert "\n  95 % interval " in table
    assert answer.startswith("gate · ")


def test_warnings_for_what_does_not_stop_the_gate(gate, folder):
    done = gate(folder, GITHUB_ACTIONS="true")
    assert [line.partition(" ")[0] for line in done.stderr.splitlines()] == ["::warning", "::warning"]


def test_a_result_that_cannot_be_read_is_an_error_and_the_others_are_answered(gate, folder):
    (folder / "release" / "math.json").unlink()
    done = gate(folder, "--junit", "gate.xml", "--format", "json")
    assert done.returncode == 3
    assert [word for _, result, word in words(done) if result == "code"] == ["passed", "passed"]
    assert ElementTree.parse(folder / "gate.xml").getroot().get("errors") == "3"


def test_a_policy_without_results_is_asked_of_the_one_given(inside, folder):  # noqa: F811
    (folder / "p.yaml").write_text("critical: [mean_reward > 0.5]")
    assert inside("gate", "release/math.json", "--policy", "p.yaml", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("critical: [x", "p.yaml:1: is not YAML"),
        ("[]", "is not a mapping"),
        ("", "is not a mapping"),
        ("critical: []", "has no requirements"),
        ("crtical: [x > 1]", "no key of a policy named 'crtical'; did you mean 'critical'?"),
        ("critical: x > 1", "critical is 'x > 1'; expected a list"),
        ("critical: [3]", "p.yaml: critical[0]: 3 cannot be read"),
        ("critical: [x > 1, y]", "p.yaml: critical[1]: 'y' cannot be read"),
        ("critical: [{require: x > 1, datset: a}]", "did you mean 'dataset'?"),
        ("critical: [{require: x > 1, of: mth}]\nresults: {math: a}", "did you mean 'math'?"),
        ("critical: [x > 1]\nresults: [a]", "expected NAME: PATH for each"),
        ("critical: [x > 1]\nresults: {a: 3}", "expected a path, or"),
        ("critical: [x > 1]\nresults: {a: {path: b, basline: c}}", "did you mean 'baseline'?"),
        ("critical: [x > 1]\nallowed_failures: -1", "allowed_failures is -1; expected an integer >= 0"),
        ("critical: [x > 1]\nallowed_failures: 1", "allowed_failures is 1, but there are no supporting requirements"),
        ("critical: [x > 1]\nmax_gaps: lots", "p.yaml: max_gaps: 'lots' cannot be read"),
        ("critical: [x > 1]", "names no results"),
        ("critical: [x > 1]\nadvisory: [x > 2]\ncritical: [x > 0]", "p.yaml:3: 'critical' appears twice"),
        ("critical: [!!python/object/apply:os.system [ls]]", "is not YAML"),
    ],
)
def test_a_policy_that_is_none(inside, tmp_path, text, said):  # noqa: F811
    (tmp_path / "p.yaml").write_text(text)
    assert said in inside.refused("gate", "--policy", "p.yaml", cwd=tmp_path)


def test_a_policy_that_is_not_there(inside, tmp_path):  # noqa: F811
    assert "p.yaml: cannot be read" in inside.refused("gate", "--policy", "p.yaml", cwd=tmp_path)
