from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from verifiers.judging import judge, task

from calipers.errors import InputError, VerifierError
from calipers.isolate.launch import NONE
from calipers.verifiers import schema, workers
from calipers.verifiers.schema import JSON_SCHEMA, WORKERS
from calipers.verifiers.workers import WorkerPool

pytestmark = pytest.mark.skipif(bool(WORKERS.missing()), reason="jsonschema is not installed: calipers[schema]")

HAS_A = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ('{"a": 1}', '{"a": 1}', 1),
        ('  {"b": 2, "a": 1}\n', '{"a": 1, "b": 2}', 1),
        ('{"a": "1"}', '{"a": "1"}', 0),
        ("3", "3", 0),  # JSON, and not what was asked for
        ("null", "null", 0),
        ('Here:\n```json\n{"a": 1}\n```\nDone.', '{"a": 1}', 1),
        ('```json\n{"a": 1}\n```\nor rather\n```json\n{"b": 1}\n```', '{"b": 1}', 0),  # the last word
        ('```\n{"b": 1}\n```\n```json\n{"a": 1}\n```\n```\nlog\n```', '{"a": 1}', 1),
        ('```\n{"a": 1}\n```', '{"a": 1}', 1),
        ('Sure: {"a": 1} is it.', '{"a": 1}', 1),
        ('[1] {"a": 1}', "[1]", 0),  # the first brace or bracket
        ('{"a": 1, "a": "x"}', '{"a": "x"}', 0),  # as every parser reads it
        ('{"a": 1e2}', '{"a": 100.0}', 1),  # a whole number, however it is written
    ],
)
def test_the_json_in_a_completion(text: str, answer: str, reward: float) -> None:
    verdict = judge(JSON_SCHEMA, text, schema=HAS_A)
    assert (verdict.reward, verdict.answer, verdict.outcome) == (reward, answer, "")
    assert verdict.fields == {"valid": reward}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "{'a': 1}",
        '{"a": 1',
        '{"a": [1, 2], oops}',  # its inner list is not what was said
        "see [this]: {}",  # nor is what comes after
        "NaN",
        "[Infinity]",
        "1e999",
        "9" * 5000,
        "[" * 100_000,
        "[" * 65 + "]" * 65,
        '{"a":' * 30_000,
        '"' + "x" * 1_000_001 + '"',
    ],
)
def test_what_is_no_json_or_too_much_of_it_is_unparsed(text: str) -> None:
    verdict = judge(JSON_SCHEMA, text, schema=True)
    assert (verdict.reward, verdict.outcome, verdict.answer) == (0, "unparsed", None)


def test_depth_is_counted() -> None:
    assert judge(JSON_SCHEMA, "[" * 64 + "]" * 64, schema=True).reward == 1


@pytest.mark.parametrize(
    ("text", "target", "fields"),
    [
        ('{"a": 1}', {"a": 1.0}, {"valid": 1, "equal": 1}),
        ('{"a": 1, "b": 2}', {"a": 1}, {"valid": 1, "equal": 0}),
        ('{"b": 1}', {"b": 1}, {"valid": 0, "equal": 1}),  # right, and not in the form that was asked for
        ('{"a": true}', {"a": 1}, {"valid": 0, "equal": 0}),
    ],
)
def test_equals_compares_with_the_target(text: str, target: Any, fields: dict[str, float]) -> None:
    verdict = judge(JSON_SCHEMA, text, target, schema=HAS_A, equals=True)
    assert (verdict.fields, verdict.reward) == (fields, min(fields.values()))


def test_a_number_beyond_every_float_is_a_multiple_of_none() -> None:
    assert judge(JSON_SCHEMA, "9" * 400, None, schema={"multipleOf": 0.5}).reward == 0.0


def test_a_dynamic_reference_to_an_anchor_is_followed() -> None:
    schema = {"$dynamicAnchor": "node", "type": "object", "additionalProperties": {"$dynamicRef": "#node"}}
    JSON_SCHEMA.check(task(None, "json_schema", schema=schema))
    assert judge(JSON_SCHEMA, '{"a": {"b": {}}}', schema=schema).reward == 1
    assert judge(JSON_SCHEMA, '{"a": {"b": 1}}', schema=schema).reward == 0


def test_a_pattern_that_comes_to_no_end_is_no_verdict() -> None:
    with pytest.raises(VerifierError, match=r"no verdict within 0\.3 s") as failed:
        judge(JSON_SCHEMA, '"' + "a" * 60 + '!"', schema={"pattern": "^(a+)+$"}, seconds=0.3)
    assert failed.value.outcome == "verifier_failed"
    assert judge(JSON_SCHEMA, '"aaa"', schema={"pattern": "^(a+)+$"}).reward == 1


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "task 't1': schema is None"),
        ({"schema": "object"}, "schema is 'object'"),
        ({"schema": {"type": "objekt"}}, "type: 'objekt' is not valid"),
        ({"schema": {"properties": {"a": {"minimum": "x"}}}}, "properties/a/minimum: 'x' is not of type 'number'"),
        ({"schema": {"pattern": "("}}, "is not a 'regex'"),
        (
            {"schema": {"$ref": "http://127.0.0.1:9/s.json"}},
            r"\$ref 'http://127.0.0.1:9/s.json' cannot be resolved; nothing is downloaded",
        ),
        ({"schema": {"items": {"$ref": "other.json"}}}, "cannot be resolved; nothing is downloaded"),
        ({"schema": {"$ref": "#/$defs/a"}}, "cannot be resolved"),
        ({"schema": {"items": {"$dynamicRef": "#a"}}}, r"\$ref '#a' cannot be resolved"),
        ({"schema": {"$schema": 5}}, r"\$schema is not text"),
        ({"schema": {"$ref": "#"}}, "RecursionError"),
        ({"schema": {"description": "x" * 1_000_001}}, "more than 1000000 characters"),
        ({"schema": {}, "equals": "yes"}, "equals is 'yes'"),
        ({"schema": {}, "equals": True}, "there is no target"),
        ({"schema": {}, "seconds": 0}, "seconds is 0"),
        ({"shema": {}}, "did you mean 'schema'"),
    ],
)
def test_check_refuses_what_is_no_schema(params: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        JSON_SCHEMA.check(task(None, "json_schema", **params))


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        HAS_A,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},  # known without being fetched
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {"$defs": {"a": {"$id": "a.json", "$ref": "#/$defs/b", "$defs": {"b": {}}}}},  # relative to a.json
    ],
)
def test_check_passes_a_schema(schema: Any) -> None:
    JSON_SCHEMA.check(task(None, "json_schema", schema=schema))


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "http://127.0.0.1:9/s.json"}])
def test_a_schema_that_slipped_through_is_no_verdict(schema: Any) -> None:
    with pytest.raises(VerifierError, match="schema cannot be used"):
        judge(JSON_SCHEMA, "{}", schema=schema)
    with pytest.raises(VerifierError, match="json_schema needs a schema"):
        judge(JSON_SCHEMA, "{}")


def test_nothing_is_fetched_even_where_the_network_could_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(workers, "mechanism", lambda: NONE)
    WORKERS.close()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        reference = {"$ref": f"http://127.0.0.1:{server.server_port}/schema.json"}
        try:
            for schema in (reference, {"$defs": {"a": {"$id": "a.json"}}, **reference}):
                with pytest.raises(VerifierError):
                    judge(JSON_SCHEMA, "{}", schema=schema)
        finally:
            server.shutdown()
    WORKERS.close()
    assert asked == []


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(schema, "WORKERS", WorkerPool(tmp_path, ("jsonschema_of_elsewhere",)))
    with pytest.raises(InputError, match=r"needs jsonschema_of_elsewhere; pip install 'calipers\[schema\]'"):
        JSON_SCHEMA.check(task(None, "json_schema", schema={}))


def test_its_card() -> None:
    assert (JSON_SCHEMA.name, JSON_SCHEMA.rerunnable, JSON_SCHEMA.forgeable) == ("json_schema", True, False)
