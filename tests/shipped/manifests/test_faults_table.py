"""The table of faults names tests that are there, for every row."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
TABLE = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = {
    int(number): re.findall(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", tests)
    for number, tests in re.findall(r"^\| (\d+) \|.*\|([^|]*)\|$", TABLE, re.MULTILINE)
}


def test_every_row_has_a_test():
    """Rows 1 to 69 are there once, each with a test at least."""
    assert sorted(ROWS) == list(range(1, 70))
    assert len(re.findall(r"^\| \d+ \|", TABLE, re.MULTILINE)) == 69
    assert [number for number, tests in ROWS.items() if not tests] == []


def test_every_test_that_is_named_is_there():
    """Each is a function of the file that is named."""
    missing = [
        f"{number}: {file}::{name}"
        for number, tests in ROWS.items()
        for file, name in tests
        if not (TESTS / file).is_file()
        or not re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
