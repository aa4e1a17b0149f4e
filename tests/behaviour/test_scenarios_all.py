"""Every scenario of the list, 1 to 71, is a test, or is known to be tested elsewhere or not yet."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ELSEWHERE = {
    7: "tests/daemon/inputs/test_daemon_bad_days.py",
    13: "tests/daemon/deaths/test_daemon_deaths.py",
    24: "tests/plugins/test_usage_and_drf.py",
    71: "tests/daemon/commit/test_daemon_refusals.py",
}
"""File whose tests promise it."""
NOT_YET = {}
"""Why there is no test here."""
FROM_LAST = 71


def written():
    found = set()
    for file in HERE.glob("test_scenarios_*.py"):
        names = re.findall(r"^def test_s(\d\d)_\w+\(", file.read_text(), re.MULTILINE)
        found |= {int(number) for number in names}
    return found


def test_every_number_is_a_test_or_has_a_reason():
    """A scenario that is neither tested nor explained is missing; one that is both is told once."""
    known = [*written(), *ELSEWHERE, *NOT_YET]
    assert sorted(set(range(1, FROM_LAST + 1)) - set(known)) == []
    assert sorted(number for number in set(known) if known.count(number) > 1) == []


def test_what_is_tested_elsewhere_is_there():
    """The files that are named exist."""
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).is_file()] == []
