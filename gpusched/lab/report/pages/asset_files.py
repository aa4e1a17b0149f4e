"""The style sheets and the script of pages: files of this package, below assets/.

``make lint`` reads the script with oxlint, and tests/lab/report parses the style sheets.
"""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def read_asset(name: str) -> str:
    """The text of an asset such as ``page.css``, without the line break at its end."""
    file = resources.files("gpusched.lab.report.pages") / "assets" / name
    return file.read_text(encoding="utf-8").removesuffix("\n")


def read_declarations(name: str) -> str:
    """The declarations of a style sheet with the one rule ``:root``, to be put into another."""
    return read_asset(name).partition("{")[2].rpartition("}")[0]
