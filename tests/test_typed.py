"""Decoding into one struct in several threads at once: without `complete` the process crashed now and then."""

import ast
import subprocess
import sys

from source import SOURCE

RACE = """
import sys, threading
import msgspec
from calipers.typed import complete

sys.setswitchinterval(1e-6)
for turn in range(150):
    inner = msgspec.defstruct("Inner", [(f"field{n}", int | None, None) for n in range(40)])
    outer = msgspec.defstruct("Outer", [("inner", inner | None, None), ("number", int | None, None)])
    start, numbers = threading.Barrier(3), []

    def work():
        start.wait()
        for _ in range(3):
            numbers.append(msgspec.json.decode(b'{"inner":{"field3":1},"number":2}', type=complete(outer)).number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers == [2] * 9
"""
"""Of 150 turns without `complete`, one ends in a segmentation fault nearly always."""

BUILT_IN = {"dict", "list", "tuple", "str", "int", "float", "bool", "Any", "Raw", "msgspec", "Number"}


def test_threads_that_first_use_a_struct_at_once():
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def decoded_types():
    """Every type that the source passes to msgspec, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called = ast.unparse(node.func)
            kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
            if called == "msgspec.convert":
                kinds = node.args[1:2]
            elif called.endswith(".Decoder"):
                kinds = node.args[:1]
            if called.startswith("msgspec."):
                yield from ((f"{path.relative_to(SOURCE)}:{node.lineno}", kind) for kind in kinds)


def test_every_struct_is_complete_before_it_is_decoded_into():
    types = [(place, kind) for place, kind in decoded_types() if not place.startswith("typed.py")]
    assert len(types) > 60
    for place, kind in types:
        names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
        completed = isinstance(kind, ast.Call) and ast.unparse(kind.func) == "complete"
        assert completed or names <= BUILT_IN, f"{place}: expected complete({ast.unparse(kind)})"
