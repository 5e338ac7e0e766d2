"""Build the documentation as a static site, offline, and check every link in it.

    python scripts/site.py    writes build/site; open build/site/index.html

The pages are README.md, those below docs/, CONTRIBUTING.md and CHANGELOG.md, laid out by mkdocs.yml. A broken link, a
missing heading or a page without a place in the navigation is an error. No page may load anything from the network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
CONFIG = ROOT / "mkdocs.yml"
SEARCH = ROOT / "scripts" / "site_search.js"
# The theme loads this script for pages that are opened as files; site_search.js replaces it.
SHIM = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LINK = re.compile(r"\]\(([^)\s]+)\)")
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


def main() -> int:
    """Stage the pages, build the site, and check it."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            if (PAGES / path.name).exists():
                print(
                    f"{path.relative_to(ROOT)}: another page has this name; in the site they lie side by side",
                    file=sys.stderr,
                )
                return 1
            staged(path, PAGES / path.name)
    for name, target in TOP.items():
        staged(ROOT / name, PAGES / target)
    if lost := set(re.findall(r"\S+\.md", CONFIG.read_text(encoding="utf-8").partition("nav:")[2])) ^ {
        path.name for path in PAGES.glob("*.md")
    }:
        print(f"mkdocs.yml: nav and pages differ: {', '.join(sorted(lost))}", file=sys.stderr)
        return 1
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if built.returncode:
        print(ANSI.sub("", built.stdout.partition("Traceback")[0]).rstrip(), file=sys.stderr)
        return 1
    pages = sorted(SITE.rglob("*.html"))
    search = f"<script>{SEARCH.read_text(encoding='utf-8')}</script>"
    for page in pages:
        page.write_text(page.read_text(encoding="utf-8").replace(SHIM, search), encoding="utf-8")
    if outside := [f"{page.relative_to(SITE)}: loads {address}" for page in pages for address in loaded(page)]:
        print("\n".join(outside), file=sys.stderr)
        return 1
    print(f"{len(pages)} pages, links checked: {(SITE / 'index.html').relative_to(ROOT)}")
    return 0


def staged(path: Path, target: Path) -> None:
    """Copy a page, with links for the site, in which all pages are in one folder."""
    if path.suffix != ".md":
        shutil.copyfile(path, target)
        return
    page = path.read_text(encoding="utf-8")
    target.write_text(LINK.sub(lambda link: f"]({moved(link[1])})", page), encoding="utf-8")


def moved(address: str) -> str:
    """The address in the site for a link between pages of the repository."""
    if "://" in address:
        return address
    page, mark, heading = address.partition("#")
    name = page.rpartition("/")[2]
    return f"{TOP.get(name, name)}{mark}{heading}"


def loaded(page: Path) -> list[str]:
    """The addresses that a page loads from other hosts."""
    addresses: list[str] = []

    class Loads(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            address = dict(attributes).get(LOADS.get(tag, "")) or ""
            if address.startswith(("http:", "https:", "//")) and dict(attributes).get("rel") != "canonical":
                addresses.append(address)

    Loads().feed(page.read_text(encoding="utf-8"))
    return addresses


def slug(title: str, separator: str) -> str:
    """The anchor of a heading by GitHub's rule, so that links work on GitHub and in the site."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", separator)


if __name__ == "__main__":
    sys.exit(main())
