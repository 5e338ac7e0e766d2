"""NeMo Gym's aggregation: rows sent to the endpoint, called in process, or collected in a file."""

from __future__ import annotations

import json
from pathlib import Path

from calipers.compat import GYM, activate
from calipers.formats.read import begin
from calipers.systems.nemo_gym.aggregate import (
    Hooks,
    aggregate,
    by_agent,
    encoded,
    entries_of,
    file_chunks,
    gym_table,
)


def hooks(source):
    """The hooks that a vector's Python text defines, as methods of no object in particular."""
    held = {}
    if source:
        activate(GYM)
        exec(source, held)
    names = ("compute_metrics", "get_key_metrics")
    return Hooks(*(bound(held[name]) if name in held else None for name in names))


def bound(method):
    def called(argument):
        return method(None, argument)

    return called


def direct(vector):
    """The function itself: NaN stays NaN."""
    found = aggregate(vector["input_rollouts"], hooks(vector.get("hooks_py"))).to_dict()
    return found, reordered(vector["expected_aggregate"], found)


def endpoint(vector):
    """The same over the wire, where no number but a finite one exists."""
    found = aggregate(vector["input_rollouts"], hooks(vector.get("hooks_py"))).to_dict()
    return json.loads(encoded(found)), reordered(vector["expected_aggregate"], found)


def collector(vector):
    """Full rows to the metrics file; without hooks the file is also made from a file of rollouts."""
    agents = by_agent(vector["input_rollouts"])
    posted = vector["expected_posted_verify_responses"]
    own = {name: hooks(source) for name, source in (vector.get("hooks_py_by_agent") or {}).items()}
    Path("rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in vector["input_rollouts"]))
    kept = []
    begin(["rollouts.jsonl"], kept=kept)
    entries = [(agent, aggregate(agents[agent], own.get(agent, Hooks()))) for agent in sorted(agents)]
    made = json.loads(b"".join(file_chunks(entries)))
    found = {"posted": agents, "file": made}
    expected = {"posted": reordered(posted, agents), "file": sorted(vector["expected_aggregate"] or [], key=name)}
    if not own:
        found["read"] = json.loads(b"".join(file_chunks(entries_of(gym_table(kept)))))
        expected["read"] = expected["file"]
    return found, expected


def name(entry):
    return entry["agent_ref"]["name"]


def reordered(expected, found):
    """The order of the outermost keys says nothing: a vector lists blocks, or agents, as it likes."""
    return {key: expected[key] for key in found if key in expected} | expected if expected else expected
