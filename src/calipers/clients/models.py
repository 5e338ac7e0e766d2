"""A model by its spec, ``KIND/NAME``: ``openai/gpt-x``, ``replay/rollouts.jsonl``, ``python/mine.py:answer``."""

from __future__ import annotations

from typing import cast

from calipers.clients.client import Client, Connection
from calipers.errors import CalipersError, InputError, PluginError, UnknownName, nearest
from calipers.names import CLIENTS


def connect(spec: str, connection: Connection) -> Client:
    """The client of a model. Nothing is sent yet, but what can be checked before the first call is.

    The kind is built in, or an entry point of the group ``calipers.clients``: a function
    ``connect(name, connection)``, where the name is all that follows the first slash.
    """
    kind, _, name = _parts(spec)
    if CLIENTS.match(kind):
        return cast(Client, CLIENTS.load(kind)(name, connection))
    factory = CLIENTS.plugin(kind)
    if factory is None:
        raise _unknown(kind, spec)
    from calipers.clients.python import guarded

    try:
        client = factory(name, connection)
    except CalipersError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"model {spec!r}: its plugin failed: {type(error).__name__}: {error}") from error
    return guarded(client, spec, connection)


def model_name(spec: str) -> str:
    """The name of a model in records and reports: its spec as given, so that two kinds never share one."""
    return "".join(_parts(spec))


def _parts(spec: str) -> tuple[str, str, str]:
    kind, slash, name = spec.strip().partition("/")
    if slash and kind and name:
        return kind, slash, name
    if CLIENTS.match(kind):
        raise InputError(f"model {spec!r} lacks a name; expected {kind}/NAME")
    raise _unknown("", spec)


def _unknown(kind: str, spec: str) -> UnknownName:
    """A spec nobody can serve: which kinds there are, and what was probably meant."""
    kinds = CLIENTS.names()
    close = nearest(kind, kinds, most=1)
    example = f"{close[0]}/{spec.strip().partition('/')[2]}" if close else f"openai/{spec.strip().strip('/') or 'NAME'}"
    hint = f"did you mean {example!r}?" if close else f"expected KIND/NAME, such as {example!r}"
    error = CLIENTS.unknown(kind, hint=hint)
    message = str(error) if kind else f"model {spec!r} says no kind; {hint}"
    return UnknownName(f"{message} (kinds: {', '.join(kinds)})")
