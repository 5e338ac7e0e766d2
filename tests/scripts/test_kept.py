"""What users have, they keep: nothing that tests/kept.json lists is gone."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "kept.py"
_spec = importlib.util.spec_from_file_location("script_kept", SCRIPT)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def test_nothing_that_users_have_is_gone():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


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
