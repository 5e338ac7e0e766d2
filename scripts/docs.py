"""Regenerate the generated parts of the documentation: shown outputs, and the page of metrics.

    python scripts/docs.py            write what is out of date
    python scripts/docs.py --check    write nothing; exit 1 and name the files that are out of date

Between ``<!-- output: COMMAND -->`` and ``<!-- /output -->`` in README.md and docs/*.md is the output of the command,
including standard error, when it is run here. ``docs/metrics.md`` consists of the metric cards.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from calipers.metrics.cards import CARDS

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^<!-- output: (?P<command>.+?) -->\n(?P<shown>.*?)^<!-- /output -->$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^<!-- /?output\b.*$", re.MULTILINE)
EXPECTED = {0, 2, 3}  # done, bad input, incomplete: a page may show an error
SECONDS = 120


def main(arguments: list[str]) -> int:
    """Renew every page, or say which ones need it."""
    if arguments not in ([], ["--check"]):
        print("usage: python scripts/docs.py [--check]", file=sys.stderr)
        return 2
    pages = {ROOT / "docs" / "metrics.md": metrics_page()}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path not in pages:
            pages[path] = renewed(path.read_text(encoding="utf-8"), path.name)
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date; run make docs' if arguments else 'written'}")
        if not arguments:
            path.write_text(pages[path], encoding="utf-8")
    return 1 if stale and arguments else 0


def renewed(page: str, name: str) -> str:
    """The page with the output of every command it shows, as it is now."""
    blocks = list(BLOCK.finditer(page))
    inside = sum(len(MARKER.findall(block[0])) for block in blocks)
    if inside != len(MARKER.findall(page)) or inside != 2 * len(blocks):
        raise SystemExit(
            f"{name}: its output markers do not pair; expected <!-- output: COMMAND --> ... <!-- /output -->"
        )
    return BLOCK.sub(
        lambda block: f"<!-- output: {block['command']} -->\n{shown(block['command'])}<!-- /output -->", page
    )


@cache
def shown(command: str) -> str:
    """A command and what it prints, fenced."""
    text = f"$ {command}\n{output(command)}"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}console\n{text.rstrip()}\n{fence}\n"


def output(command: str) -> str:
    """What a command prints when it is run in the repository, in plain text of 100 columns."""
    here = str(Path(sys.executable).parent)
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    settings = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env={**kept, **settings, "PATH": f"{here}{os.pathsep}{kept.get('PATH', os.defpath)}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    text = done.stdout.decode()
    if done.returncode not in EXPECTED:
        raise SystemExit(f"{command}: exit {done.returncode}\n{text}")
    if str(ROOT) in text:
        raise SystemExit(f"{command}: it prints {ROOT}, which is useless to a reader; use a relative path")
    return text


def metrics_page() -> str:
    """Every metric's card, in the order of the index."""
    head = (
        "# Metrics\n\n"
        "<!-- Made by scripts/docs.py from the cards in src/calipers/metrics/cards.toml. -->\n\n"
        "This page defines every built-in metric: its formula and source, its interval, and what other systems mean\n"
        "by the same name. `calipers explain NAME` prints the entry of one metric, for the k you give. In the\n"
        "formulas T is the number of tasks, n the number of samples of a task, c the number of passes among them,\n"
        "and r a reward.\n\n"
    )
    return head + "\n".join(card.to_markdown() for card in CARDS.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
