"""EvSys' verifier functions and their registry; lent as ``evsys_sdk.verifiers.fns``.

They are the functions that runs use: what is registered here judges there. Two things are stricter than in
EvSys: `regex_match` gives up after a second (`calipers.text.patterns.RegexTimeout`), and a coordinate that is no
pair of numbers is a miss for `tool_calls_match`, not a TypeError.
"""

from __future__ import annotations

from calipers.verifiers.text import contains, exact_match, regex_match
from calipers.verifiers.tools import tool_calls_match
from calipers.verifiers.user_code import VerifierFn, get, list_fns, register, register_fn

__all__ = [
    "VerifierFn",
    "contains",
    "exact_match",
    "get",
    "list_fns",
    "regex_match",
    "register",
    "register_fn",
    "tool_calls_match",
]
