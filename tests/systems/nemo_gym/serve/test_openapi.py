"""The server against its OpenAPI document: schemathesis generates valid and invalid requests."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from systems.nemo_gym.serve.running import running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUTES = [
    ("/", "GET"),
    ("/health", "GET"),
    *((f"/{name}", "POST") for name in ("aggregate_metrics", "seed_session", "verify")),
]
BOUNDED = settings(
    max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    with running("--verifier", "exact_match", cwd=tmp_path_factory.mktemp("served")) as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_the_document_lists_the_routes(schema):
    assert sorted(schema) == sorted(path for path, _ in ROUTES)


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_good_requests(schema, path, method):
    @BOUNDED
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE))
    def ask(case):
        case.call_and_validate(checks=CHECKS)

    ask()


@pytest.mark.parametrize(("path", "method"), [route for route in ROUTES if route[1] == "POST"])
def test_bad_requests(schema, path, method):
    @BOUNDED
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def ask(case):
        case.call_and_validate(checks=[*CHECKS, negative_data_rejection])

    ask()
