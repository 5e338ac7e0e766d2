"""What a collection is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calipers.dialects.nemo_gym_inputs import Materializing
from calipers.errors import InputError
from calipers.run.collect_head import HEAD


@dataclass(frozen=True, slots=True)
class Collecting:
    """What a collection is asked to do, every value decided."""

    input: str  # a file of tasks, one JSON object a line
    output: Path
    agents: Mapping[str, str] = field(default_factory=dict)  # name -> URL of an agent server, or KIND/NAME of a model
    how: Materializing = field(default_factory=Materializing)
    # the built-in agent
    base_url: str | None = None
    verify_url: str | None = None
    verifier: str | None = None
    # how they are reached
    concurrency: int = 32
    retries: int = 8
    timeout: float = 1800.0
    head: str = HEAD
    token_env: str | None = None  # the variable that holds the servers' token
    # what becomes of it
    overwrite: bool = False
    local: bool = False  # no agent is asked for metrics
    aggregate: bool = True
    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, lowest in {"concurrency": 1, "retries": 0}.items():
            if getattr(self, name) < lowest:
                raise InputError.at(f"--{name}", f"is {getattr(self, name)}", f"expected an integer >= {lowest}")
        if not self.timeout > 0:
            raise InputError.at("--timeout", f"is {self.timeout:g}", "expected a number > 0")
        if self.how.limit is not None and self.how.limit < 0:
            raise InputError.at("--limit", f"is {self.how.limit}", "expected an integer >= 0")
        if self.verify_url is not None and self.verifier is not None:
            raise InputError.at("--verifier", "there is --verify-url, too", "expected one of the two")
