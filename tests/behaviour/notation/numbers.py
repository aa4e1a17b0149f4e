"""Words that stand for numbers: amounts, times, ranges and series of names."""

from __future__ import annotations

import re
from typing import Any, Final

from gpusched.api.meta.quantity import parse_quantity
from tests.behaviour.notation.model import Amount

_GPUS: Final = re.compile(r"\d+g")
_SERIES: Final = re.compile(r"(\D*)(\d+)\.\.(\D*)(\d+)")


class InvalidCase(ValueError):
    """A line of a case that is not understood."""


def series(text: str) -> list[str]:
    """Names from ``n0..n3``, or the one name."""
    found = _SERIES.fullmatch(text)
    if found is None:
        return [text]
    stem, low, _, high = found.groups()
    return [f"{stem}{number}" for number in range(int(low), int(high) + 1)]


def between(text: str) -> tuple[int, int]:
    """Least and most from ``2`` or ``0..2``."""
    low, dots, high = text.partition("..")
    return (int(low), int(high if dots else low))


def seconds(text: str) -> int:
    """From ``30s``."""
    return int(text.removesuffix("s"))


def amount(text: str) -> Amount:
    """From ``2g+500m+4G``; ``0`` is nothing."""
    return Amount(**amounts(text)) if text != "0" else Amount()


_SHARE: Final = re.compile(r"(0\.\d+)g")
_SHARE_MIB: Final = re.compile(r"(\d+)Mg")
_PIECES: Final = re.compile(r"(\d+)x(\dg\.\d+gb)")


def amounts(text: str) -> dict[str, Any]:
    """Fields of an ``Amount`` from words joined by ``+``: ``0.5g`` is a share of a GPU, ``50Mg`` MiB of one,
    ``2x1g.10gb`` are MIG slices.
    """
    made: dict[str, Any] = {}
    for each in text.split("+"):
        if found := _SHARE.fullmatch(each):
            made["share"] = found[1]
        elif found := _SHARE_MIB.fullmatch(each):
            made["share_mib"] = int(found[1])
        elif found := _PIECES.fullmatch(each):
            pair = (f"nvidia.com/mig-{found[2]}", int(found[1]))
            made["pieces"] = (*made.get("pieces", ()), pair)
        elif _GPUS.fullmatch(each):
            made["gpus"] = int(each[:-1])
        elif each.endswith("m"):
            made["cpu"] = int(each[:-1])
        elif each.endswith("c"):
            made["cpu"] = int(each[:-1]) * 1000
        else:
            made["memory"] = parse_quantity(each, power=0)
    return made
