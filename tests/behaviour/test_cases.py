"""Every behaviour case, by sessions alone and on the whole daemon; see tests.behaviour.notation.cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.behaviour.notation.cases import load_cases
from tests.behaviour.notation.known_differences import read_known_differences
from tests.behaviour.notation.parser import PLAYERS
from tests.behaviour.notation.players import case_differences
from tests.populations import one_of

HERE = Path(__file__).parent
CASES = [case for file in sorted((HERE / "cases").glob("*.cases")) for case in load_cases(file)]
DIFFERS = read_known_differences(HERE / "differs.txt")


BY_SESSIONS = [case for case in CASES if not case.not_for("session")]
CHOSEN = {
    "session": CASES,
    "blackbox": [*one_of(4, BY_SESSIONS), *(case for case in CASES if case.not_for("session"))],
}
"""Every fourth case is played on the whole daemon as well, and each that is for it alone."""


def params():
    assert CHOSEN.keys() == set(PLAYERS)
    for player in PLAYERS:
        for case in CHOSEN[player]:
            marks = []
            if why := case.not_for(player):
                marks.append(pytest.mark.skip(reason=why))
            if why := DIFFERS.get((player, case.title)):
                marks.append(pytest.mark.xfail(reason=why, strict=True))
            yield pytest.param(player, case, id=f"{player}-{case.title}", marks=marks)


@pytest.mark.parametrize(("player", "case"), [*params()])
def test_a_case_comes_to_what_it_asks_for(player, case):
    """Who runs, where, who was evicted and who waits is what the case says."""
    assert case_differences(case, player) == []


def test_the_list_names_only_cases_that_exist():
    """A case that was renamed or taken away is no longer on the list of those that differ."""
    titles = {case.title for case in CASES}
    assert [key for key in DIFFERS if key[1] not in titles] == []
