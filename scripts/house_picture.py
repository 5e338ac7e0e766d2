"""Draw the packages of Calipers and their imports as docs/house.svg, with a box for each package.

    python scripts/house_picture.py            check whether docs/house.svg is up to date
    python scripts/house_picture.py --write    draw it

A package is drawn one row above the highest package it imports, so every import points down, and packages in one row
do not import each other. An import that is also reachable through another package has no arrow of its own.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

from house import ROOT, SOURCE, imports_of, module_of

PAGE = ROOT / "docs" / "house.svg"
WIDTH, FLOOR, GAP, BOX = 940, 70, 24, (200, 36)  # width of the picture, height of a row, gap between boxes, box size
SAYS = {
    "cli": "the commands",
    "web": "the HTML report",
    "glossary": "words, explained",
    "systems": "everything about other systems",
    "analyses": "analyses of results",
    "running": "the run loop and its log",
    "compat": "imports of other systems, plugins",
    "pipeline": "scoring, step by step",
    "tally": "tasks reduced, numbers joined",
    "request": "the request, resolved",
    "reports": "output",
    "stats": "intervals and tests",
    "metrics": "from rollouts to numbers",
    "verifiers": "from completions to rewards",
    "clients": "models and servers",
    "formats": "files into rollouts",
    "rollouts": "rollouts as columns, the ledger",
    "text": "extraction and filters",
    "tasks": "tasks and their files",
    "isolate": "the sandbox",
    "names": "registered names and their modules",
    "errors": "all errors",
}


def graph() -> dict[str, set[str]]:
    """The imports of each package; all systems count as one package."""
    known = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
    uses: dict[str, set[str]] = {room: set() for room in SAYS}
    for name, path in known.items():
        room = room_of(name)
        if room and room != "names":  # names.py has modules as text, and imports none of them
            tree = ast.parse(path.read_text(), str(path))
            uses[room] |= {room_of(target) for target in imports_of(name, tree, known)} - {"", room}
    return uses


def room_of(name: str) -> str:
    """The package of a module; "" for `calipers/__init__.py`, which only names modules."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in SAYS else ""


def floors(uses: dict[str, set[str]]) -> dict[str, int]:
    """The row of each package: one above the highest package that it imports. ValueError for circular imports."""
    rows: dict[str, int] = {}

    def floor(room: str, path: tuple[str, ...] = ()) -> int:
        if room in path:
            raise ValueError("imports go round: " + " -> ".join((*path, room)))
        if room not in rows:
            rows[room] = 1 + max((floor(below, (*path, room)) for below in uses[room]), default=-1)
        return rows[room]

    for room in SAYS:
        floor(room)
    return rows


def direct(uses: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that are not also reachable through another package."""

    def below(room: str) -> set[str]:
        return uses[room] | {deeper for next_room in uses[room] for deeper in below(next_room)}

    return sorted(
        (room, used) for room in uses for used in uses[room] if not any(used in below(other) for other in uses[room])
    )


def drawn() -> str:
    """The picture as SVG; the same graph gives the same bytes."""
    uses = graph()
    floor_of = floors(uses)
    top = max(floor_of.values())
    by_floor: dict[int, list[str]] = defaultdict(list)
    for room, floor in floor_of.items():
        by_floor[floor].append(room)
    at: dict[str, tuple[float, float]] = {}
    for floor, rooms in by_floor.items():
        left = (WIDTH - BOX[0] * len(rooms) - GAP * (len(rooms) - 1)) / 2
        for column, room in enumerate(sorted(rooms, key=list(SAYS).index)):
            at[room] = left + column * (BOX[0] + GAP), 12 + (top - floor) * FLOOR
    height = 24 + top * FLOOR + BOX[1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<title>The packages of Calipers; an arrow points to what a package imports</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8a94a3"/></marker></defs>',
    ]
    for room, used in direct(uses):
        (left, above), (right, below) = at[room], at[used]
        a, b, c, d = left + BOX[0] / 2, above + BOX[1], right + BOX[0] / 2, below
        bend = (d - b) / 2
        parts.append(
            f'<path d="M{a:.0f} {b:.0f}C{a:.0f} {b + bend:.0f} {c:.0f} {d - bend:.0f} {c:.0f} {d:.0f}" fill="none" '
            'stroke="#8a94a3" stroke-width="1.1" marker-end="url(#tip)"/>'
        )
    for room, (left, above) in at.items():
        middle = left + BOX[0] / 2
        parts.append(
            f'<rect x="{left:.0f}" y="{above:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="#eef3f8" '
            f'stroke="#33526e"/><text x="{middle:.0f}" y="{above + 15:.0f}" font-size="13" font-weight="600" '
            f'text-anchor="middle" fill="#14202b">{escape(room)}</text><text x="{middle:.0f}" y="{above + 29:.0f}" '
            f'font-size="10.5" text-anchor="middle" fill="#45505c">{escape(SAYS[room])}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Draw the picture, or check whether it is up to date."""
    picture = drawn()
    if "--write" in sys.argv[1:]:
        Path(PAGE).write_text(picture)
    elif not PAGE.exists() or PAGE.read_text() != picture:
        raise SystemExit("docs/house.svg is out of date: run python scripts/house_picture.py --write")


if __name__ == "__main__":
    main()
