"""The table of docs/security.md: what a tenant can write, what it can cause at most, which tests show it."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusched.base import installed_files

_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """One line."""

    keys: tuple[str, ...]
    of: str
    at_most: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    """All lines, top down."""
    text = (installed_files.path("docs") / "security.md").read_text()
    table = text.partition("<!-- table")[2].partition("## ")[0]
    found = []
    for line in table.splitlines():
        if not line.startswith("| `"):
            continue
        keys, of, at_most, tests = (cell.strip() for cell in line.strip("|").split("|"))
        found.append(Row(tuple(_CODE.findall(keys)), of, at_most, tuple(_CODE.findall(tests))))
    return found


def metadata_keys() -> list[str]:
    """Labels and annotations, sorted, each once."""
    keys = {key for row in rows() for key in row.keys}
    return sorted(key for key in keys if not key.startswith("spec.") and key != "status")
