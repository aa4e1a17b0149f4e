"""The list of cases that are known to differ, and why: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

Known = Mapping[tuple[str, str], str]
NEW: Final = "new: not looked into"
_HEAD: Final = (
    "# Cases that do not agree yet: player, title, :: and why. Whoever makes one agree takes it\n"
    "# off, by hand or with: python -m tests.behaviour.notation.cases tests/behaviour/cases\n"
    "#   --list tests/behaviour/differs.txt --update\n"
)


def read_known_differences(path: Path) -> dict[tuple[str, str], str]:
    """Reasons by player and title of the case.

    Raises:
        ValueError: a line has no reason.
    """
    known = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if not line.strip() or line.startswith("#"):
            continue
        key, split, why = line.partition(" :: ")
        player, _, title = key.partition(" ")
        if not split or not why.strip():
            raise ValueError(f"{path.name}: {line!r} has no reason after ' :: '")
        known[player, title.strip()] = why.strip()
    return known


def write_known_differences(
    path: Path, known: Known, seen: Mapping[tuple[str, str], list[str]]
) -> None:
    """Write the list anew: what was not played stays, what agrees goes, what is new says so."""
    kept = {key: why for key, why in known.items() if key not in seen}
    kept |= {key: known.get(key, NEW) for key, wrong in seen.items() if wrong}
    lines = [f"{player} {title} :: {why}" for (player, title), why in sorted(kept.items())]
    path.write_text(_HEAD + "".join(line + "\n" for line in lines))
