"""Time zones by their names in the IANA database, as the package ``tzdata`` has it.

The machine's own database is not asked: an image has none, and two daemons must read the same
clock from the same name.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

UTC_NAME: Final = "UTC"
_SHOWN_MAX: Final = 40


@lru_cache(maxsize=64)
def find_time_zone(name: str) -> ZoneInfo:
    """The zone of that name.

    Raises:
        ValueError: there is none; says which one may have been meant.
    """
    if name not in _known_names():
        raise ValueError(_unknown_zone_message(name))
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _unknown_zone_message(name: str) -> str:
    shown = name[:_SHOWN_MAX]
    by_folded = {known.casefold(): known for known in sorted(_known_names())}
    like = get_close_matches(shown.casefold(), by_folded, n=1)
    advice = f"did you mean {by_folded[like[0]]}?" if like else "write one such as Europe/Berlin"
    return f"there is no time zone {shown!r}; {advice}"


@cache
def _known_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())
