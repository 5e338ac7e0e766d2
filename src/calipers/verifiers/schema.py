"""JSON verifier: the answer fits a schema and, with ``equals``, equals the target.

The package jsonschema checks this in a worker process, because patterns in a schema can run forever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.tasks import Task
from calipers.verifiers import Verdict, check_flag, check_names, check_number, fault, workers
from calipers.verifiers.python_tests import fenced, same
from calipers.verifiers.reasoning import of_answer
from calipers.verifiers.workers import WorkerPool

SECONDS: Final = 5.0
LONGEST: Final = 1_000_000  # characters of a completion, and of a schema
PATTERN: Final = '"pattern'  # also patternProperties: a regular expression in the schema, which may be the slow part
WORKERS: Final = WorkerPool(
    Path(workers.__file__).with_name("schema.py"),
    ("jsonschema", "jsonschema_specifications", "referencing", "rpds", "attrs"),
)


class JsonSchema:
    """Reward 1 for JSON that fits the schema (with ``equals``: and equals the target), else 0; `unparsed` without JSON.

    The JSON is the whole completion, else its last fenced block of JSON, else what begins at its first brace or
    bracket. The answer is its text with sorted keys; the fields say what of it was right.
    """

    name = "json_schema"
    rerunnable = True
    forgeable = False

    def check(self, task: Task) -> None:
        """Refuse an invalid schema, and one that refers to something that would have to be downloaded."""
        check_names(task, ("schema", "equals", "seconds"))
        check_flag(task, "equals")
        check_number(task, "seconds", least=0.1)
        if WORKERS.missing():
            raise fault(task, f"verifier 'json_schema' needs {WORKERS.missing()}", "pip install 'calipers[schema]'")
        schema = task.params.get("schema")
        expected = 'expected a JSON Schema such as {"type": "object"}'
        if not isinstance(schema, (Mapping, bool)):
            raise fault(task, f"schema is {schema!r:.80}", expected)
        if len(json.dumps(schema)) > LONGEST:
            raise fault(task, f"schema has more than {LONGEST} characters", expected)
        if task.params.get("equals") and task.target is None:
            raise fault(task, "equals is true, but there is no target", "expected the JSON value to compare with")
        try:
            problem = WORKERS.ask({"schema": schema}, SECONDS)["schema"]
        except VerifierError as error:
            raise fault(task, "schema cannot be checked", str(error)) from error
        if problem:
            raise fault(task, f"schema cannot be used: {problem}", expected)

    def gold(self, task: Task) -> str | None:
        """An answer that must pass: the target, if it is compared; else None."""
        return json.dumps(task.target) if task.params.get("equals") else None

    @of_answer
    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict on one completion; `verifier_failed` if the check does not end in time."""
        params = task.params
        if WORKERS.missing() or "schema" not in params:
            raise VerifierError(f"json_schema needs {WORKERS.missing() or 'a schema'}")
        if len(completion.text) > LONGEST:
            return Verdict(0.0, outcome="unparsed")
        question = {"schema": params["schema"], "text": completion.text, "block": block_in(completion.text)}
        try:
            seconds = float(params.get("seconds", SECONDS))
            reply: dict[str, Any] = await WORKERS.answer(question, seconds)
        except (TypeError, ValueError) as error:
            raise VerifierError(f"{self.name}: {error}") from error
        except VerifierError as error:
            has_pattern = PATTERN in json.dumps(params["schema"])
            raise VerifierError(str(error), blameless=has_pattern, suspect=has_pattern) from error
        if reply["schema"]:
            raise VerifierError(f"schema cannot be used: {reply['schema']}")
        if "value" not in reply:
            return Verdict(0.0, outcome="unparsed")
        fields = {"valid": float(reply["valid"])}
        if params.get("equals"):
            fields["equal"] = float(same(reply["value"], task.target, {}))
        return Verdict(min(fields.values()), answer=json.dumps(reply["value"], sort_keys=True), fields=fields)


def block_in(text: str) -> str:
    """The last fenced block marked as JSON, else the last unmarked one; "" without one."""
    blocks = fenced(text)
    marked = [code for language, code in blocks if language == "json"]
    return (marked or [code for language, code in blocks if not language] or [""])[-1]


JSON_SCHEMA: Final = JsonSchema()
