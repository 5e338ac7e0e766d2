"""``calipers serve FILE:CLASS``: a resources server out of a user's file, made and ready to be served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.compat.nemo_gym.hooks import failure, hooks_of, load_class
from calipers.errors import InputError, PluginError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from calipers.dialects.nemo_gym_aggregate import Hooks

METHOD = "aggregate_metrics"
_OURS = ("calipers.", "nemo_gym.")


class Alone:
    """The client of a server that stands alone: there is no other server to call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PluginError(f"server_client.{name}: calipers serve runs one server, which can call no other")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A user's server: where it comes from, the object itself, and what it adds to the metrics."""

    path: str
    server: Any
    hooks: Hooks

    @property
    def aggregates_itself(self) -> bool:
        """Whether it has a route of its own for metrics, which then stays."""
        method = getattr(type(self.server), METHOD, None)
        return method is not None and not (method.__module__ or "").startswith(_OURS)

    def web(self) -> FastAPI:
        """Its web application, with the routes it adds."""
        try:
            app: FastAPI = self.server.setup_webserver()
        except Exception as error:
            raise failure(self.path, "setup_webserver failed", error) from error
        from fastapi import FastAPI

        if not isinstance(app, FastAPI):
            right = "expected the FastAPI application that super().setup_webserver() returns"
            raise PluginError(f"{self.path}: setup_webserver returned {type(app).__name__}; {right}")
        return app


def load_server(spec: str, host: str = "127.0.0.1", port: int = 0) -> Hosted:
    """Run a Python file and make a server of one of its classes; the code is yours, and runs in this process.

    InputError for what is no such file or class, or for one whose settings nobody has given; PluginError for one
    that fails.
    """
    path, kind = load_class(spec, "calipers serve")
    if not callable(getattr(kind, "setup_webserver", None)):
        wrong = f"{kind.__name__} is no resources server"
        raise InputError.at(path, wrong, "expected a subclass of nemo_gym.base_resources_server.SimpleResourcesServer")
    server = _made(path, kind, settings(path, kind, host, port))
    return Hosted(path, server, hooks_of(path, server))


def settings(path: str, kind: Any, host: str = "127.0.0.1", port: int = 0) -> Any:
    """The configuration in the class that the server declares for it."""
    from pydantic import ValidationError

    declared = kind.model_fields["config"].annotation
    given = {"name": kind.__name__, "host": host, "port": port, "entrypoint": Path(path).name, "domain": "other"}
    try:
        return declared(**{name: value for name, value in given.items() if name in declared.model_fields})
    except ValidationError as error:
        missing = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        right = f"calipers serve knows {', '.join(given)}; give the others a default"
        raise InputError.at(path, f"{declared.__name__} does not do without {missing}", right) from error


def _made(path: str, kind: Any, config: Any) -> Any:
    """The object; where the real package demands a client of its own kind, as that package makes one unchecked."""
    from pydantic import ValidationError

    try:
        try:
            return kind(config=config, server_client=Alone())
        except ValidationError:
            client = kind.model_fields["server_client"].annotation
            return kind(config=config, server_client=client.model_construct(global_config_dict={}))
    except Exception as error:
        raise failure(path, f"{kind.__name__} cannot be made", error) from error
