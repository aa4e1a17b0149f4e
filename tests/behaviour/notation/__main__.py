"""``python -m tests.behaviour.notation.cases [--player NAME] [--pick TEXT] [--list FILE] PATH...``

Plays cases and prints how many agree, per family, and what differs. A list names the cases that
are known to differ, one a line: player, title, ``::`` and why. Exit 1 when a case differs that is
not on the list, or one on it agrees; ``--update`` writes the list anew instead.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.behaviour.notation.known_differences import (
    NEW,
    Known,
    read_known_differences,
    write_known_differences,
)
from tests.behaviour.notation.model import Case
from tests.behaviour.notation.parser import PLAYERS, load_cases
from tests.behaviour.notation.players import case_differences


def main(arguments: Sequence[str]) -> int:
    """Play and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.behaviour.notation.cases")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--player", choices=PLAYERS, action="append")
    parser.add_argument("--pick", default="", help="only cases whose title contains this")
    parser.add_argument("--list", type=Path, help="cases that are known to differ")
    parser.add_argument("--update", action="store_true", help="write the list anew")
    chosen = parser.parse_args(arguments)
    files = [file for path in chosen.paths for file in _files(path)]
    cases = [case for file in files for case in load_cases(file) if chosen.pick in case.title]
    players = chosen.player or PLAYERS
    known = read_known_differences(chosen.list) if chosen.list else {}
    seen = {(player, case.title): _one(player, case) for player in players for case in cases}
    surprises = _tell(seen, known)
    for player in players:
        _sums(player, cases, seen)
    if chosen.update:
        write_known_differences(chosen.list, known, seen)
        return 0
    return 1 if surprises else 0


def _one(player: str, case: Case) -> list[str]:
    return [] if case.not_for(player) else case_differences(case, player)


def _tell(seen: Mapping[tuple[str, str], list[str]], known: Known) -> int:
    """Print what differs; returns how many are not as the list says."""
    surprises = 0
    for key, wrong in sorted(seen.items()):
        listed = key in known
        if not wrong and not listed:
            continue
        surprises += listed != bool(wrong)
        mark = known.get(key, NEW) if wrong else "AGREES NOW: take it off the list"
        _say(f"{key[0]:8} {key[1]}: {'; '.join(wrong)} [{mark}]")
    return surprises


def _sums(player: str, cases: Iterable[Case], seen: Mapping[tuple[str, str], list[str]]) -> None:
    every: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for case in cases:
        if not case.not_for(player):
            every[case.family] += 1
            good[case.family] += not seen[player, case.title]
    for family in sorted(every):
        _say(f"{player:8} {family:20} {good[family]:4} of {every[family]:4} agree")
    _say(f"{player:8} {'all':20} {good.total():4} of {every.total():4} agree")


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.cases")) if path.is_dir() else [path]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
