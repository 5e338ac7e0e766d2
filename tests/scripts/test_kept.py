"""What users have, they keep: nothing that tests/kept.json lists is gone."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from cli.running import calipers

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "kept.py"
_spec = importlib.util.spec_from_file_location("script_kept", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def run(arguments, folder):
    done = calipers(*arguments, cwd=folder)
    return done.stdout, done.stderr


def test_nothing_that_users_have_is_gone(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kept.py"])
    script.main(run)


def test_what_is_gone_is_named(monkeypatch, tmp_path):
    kept = json.loads(script.KEPT.read_text())
    (tmp_path / "kept.json").write_text(json.dumps({**kept, "outcomes": [*kept["outcomes"], "vanished"]}))
    monkeypatch.setattr(script, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(script, "now", lambda run: kept)  # the test above looks at what is there
    monkeypatch.setattr(sys, "argv", ["kept.py"])
    with pytest.raises(SystemExit, match="outcomes: vanished"):
        script.main(run)


def test_a_command_in_a_process_of_its_own(tmp_path):
    printed, errors = script.started(("--version",), tmp_path)
    assert (printed.split()[0], errors) == ("calipers", "")


def test_the_list_has_every_kind():
    kept = json.loads((ROOT / "tests" / "kept.json").read_text())
    assert {"score", "run", "compare"} <= set(kept["commands"])
    assert "run --environment" in kept["options"]
    assert "compare: schema calipers.comparison/1" in kept["keys"]
    assert {"scored", "verifier_failed", "broke_verifier"} <= set(kept["outcomes"])


def test_keys_by_names_of_the_data_are_not_listed():
    document = {"metrics": {"mean": {"value": 1}}, "groups": [{"ledger": {"outcomes": {"scored": 3}}}]}
    assert list(script.paths(document)) == [
        *("metrics", "metrics.*", "metrics.*.value"),
        *("groups", "groups[].ledger", "groups[].ledger.outcomes", "groups[].ledger.outcomes.*"),
    ]
