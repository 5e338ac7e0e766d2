"""``calipers serve``: serve NeMo Gym's HTTP routes."""

from __future__ import annotations

import os

import click

from calipers.cli.options import Command
from calipers.cli.options import plugins as plugins_option
from calipers.cli.output import print_err
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean


@click.command(cls=Command)
@click.argument("server", metavar="[FILE.py:CLASS]", required=False)
@click.option(
    "--config",
    multiple=True,
    metavar="FILE.yaml",
    help="NeMo Gym configuration of the server and of the models it calls; may be repeated.",
)
@click.option("--verifier", metavar="NAME", help="Verifier to use if no FILE.py:CLASS is given.")
@plugins_option
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    metavar="PORT",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free port.",
)
@click.option("--token-env", metavar="VAR", help="Environment variable with the token that requests must carry.")
def serve(
    server: str | None,
    config: tuple[str, ...],
    verifier: str | None,
    plugins: tuple[str, ...],
    host: str,
    port: int,
    token_env: str | None,
) -> None:
    """Serve /aggregate_metrics, /verify and /seed_session as a NeMo Gym server does.

    FILE.py:CLASS is a resources server written for nemo_gym.base_resources_server. It runs unchanged, and its hooks
    add to the metrics. --config reads a NeMo Gym configuration file, and serves the resources server in it and the
    model servers that it calls. Ctrl-C or SIGTERM stops the server after it has answered open requests.
    """
    if config and verifier:
        raise InputError.at("--verifier", "--config names a server that verifies answers", "expected one of the two")
    if server and verifier:
        raise InputError.at("--verifier", f"{server} verifies answers itself", "expected one of the two")
    token = _token(token_env)
    try:
        from calipers.systems.nemo_gym.serve.app import Door
        from calipers.systems.nemo_gym.serve.serving import Served
        from calipers.systems.nemo_gym.serve.serving import serve as serve_until_stopped
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "pydantic", "starlette", "uvicorn"):
            raise
        missing = f"{error.name} is not installed"
        raise InputError.at("calipers serve", missing, "install it with pip install 'calipers[serve]'") from None
    from calipers.compat import load_plugin

    for plugin in plugins:
        load_plugin(plugin)
    door = Door(host, token)
    served = Served(server, verifier, config)
    serve_until_stopped(served, door, port, lambda url: _announce(url, door.local or token is not None))


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise InputError.at("--token-env", f"{variable} is not set", "expected the name of a variable with a token")
    return token


def _announce(url: str, guarded: bool) -> None:
    if not guarded:
        print_err("note: other machines can call this server; --token-env VAR requires a token")
    print_err(f"calipers serves {clean(url, None)} (Ctrl-C stops it)")
