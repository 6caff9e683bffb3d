"""Take the site's pages from where they lie, so that a relative link is the same there and here. Hooks of mkdocs."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["PAGES", "on_files", "on_post_page"]

PAGES: Final = (
    "README.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "docs/openapi.json",
    "docs/site.css",
    "evals/*.md",
    "evals/reports/*.json",
    "evals/bench/README.md",
    "evals/collections/lighthouse/README.md",
    "calibration/*",
    "deploy/prometheus/*.yaml",
)
"""What the site holds, by its path in the repository. What is no Markdown is copied as it is, for links to it."""
_FETCHED: Final = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]*"""
)
_log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the repository's pages in place of those of ``docs_dir``, under their paths in the repository."""
    root = Path(config.config_file_path).parent
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted({path for pattern in PAGES for path in root.glob(pattern) if path.is_file()}):
        where = path.relative_to(root).as_posix()
        files.append(File(where, str(root), config.site_dir, config.use_directory_urls))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Warn of what a browser would fetch from elsewhere; strict, that fails the build."""
    for found in _FETCHED.findall(output):
        _log.warning("'%s' would fetch %s", page.file.src_uri, found)
    return output
