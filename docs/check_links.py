"""Every link inside the built documentation leads somewhere: python docs/check_links.py docs/_build/html

Looks at the pages as they were built: files that links and pictures name, and the places within pages behind a `#`.
Addresses on other hosts are left alone; ``sphinx -b linkcheck`` asks them where there is a network.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAMES = {"a": "href", "link": "href", "img": "src", "script": "src", "object": "data"}


class Page(HTMLParser):
    """Links of a page, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names."""
        found = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag in NAMES and (link := found.get(NAMES[tag])):
            self.links.append(link)


def dead_links(folder: Path) -> list[str]:
    """Links that lead nowhere, as "page: link"."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            missing = not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.places)
            if missing:
                dead.append(f"{path.relative_to(folder)}: {link}")
    return dead


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "no dead links")
    sys.exit(bool(found))
