"""What `mkdocs build` does beside mkdocs.yml: figures of benchmarks/results enter the site, and pages that the navigation does not name yet are listed at its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = re.compile(r"\]\(\.\./((?:benchmarks/results)/[\w.-]+\.png)\)")


def on_config(config: Any) -> Any:
    """Add pages that are not in the navigation."""
    named = set(re.findall(r"[\w/.-]+\.md", str(config.nav)))
    more = sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in named)
    if more:
        config.nav.append({"More": more})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Take the figures that pages show from where the studies left them."""
    shown = {
        name
        for path in Path(config.docs_dir).glob("*.md")
        for name in OUTSIDE.findall(path.read_text(encoding="utf-8"))
    }
    for name in sorted(shown):
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name them as the site has them."""
    return OUTSIDE.sub(r"](\1)", markdown)
