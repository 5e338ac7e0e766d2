"""The recorded requests to NeMo Gym's own endpoint over HTTP: the same answers, and refusals where it refused."""

import json

import pytest
from golden import vectors
from golden.nemo_gym_aggregate import reordered
from systems.nemo_gym.serve.asking import asking, server_file, strict

VECTORS = [one for one in vectors.nemo_gym(vectors.HERE / "nemo_gym") if one.kind == "endpoint"]
CLASS = "{name} = {name}"


@pytest.fixture(scope="module")
def bare():
    with asking() as ask:
        yield ask


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_vector(vector, bare, tmp_path):
    content = vector.content
    body = json.dumps({"verify_responses": content["input_rollouts"]}).encode()  # NaN included
    if source := content.get("hooks_py"):
        names = [name for name in ("compute_metrics", "get_key_metrics") if f"def {name}(" in source]
        spec = server_file(tmp_path, "\n    ".join(CLASS.format(name=name) for name in names), hooks=source)
        with asking(spec) as ask:
            found = ask.post("/aggregate_metrics", body)
    else:
        found = bare.post("/aggregate_metrics", body)
    if vector.quirk and found.status == 200:
        pytest.skip("a recorded defect: our answer to it is in docs/dialects.md")
    if content.get("expected_error"):
        assert found.status == (500 if source else 422)
        assert found.message
        return
    assert found.status == 200, found.body
    answer = strict(found.body)
    assert vectors.differences(answer, reordered(content["expected_aggregate"], answer)) == []
