"""Sentences on requests that find no device, short for conditions or whole for a person who asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpusched.devices.extended_resources import is_extended_title
from gpusched.devices.shortage.causes import DeviceState, Relief, RequestShortage

HOLDERS_SHOWN: Final = 2
"""Holders that a condition names; ``gpusched explain`` names all."""


def request_shortage_text(found: RequestShortage, *, shown: int | None = HOLDERS_SHOWN) -> str:
    """``claim c, request r: 8 devices match, 2 free, 6 held (4 by ml/llm, 2 by web/app)``.

    Args:
        found: of one request.
        shown: holders and taints that are named, None for all.
    """
    states = found.states
    parts = [devices_text(found.matching), f"{found.free} free"]
    if found.free and found.needed > found.most_on_node:
        parts[-1] += f" (at most {found.most_on_node} on one node, {found.needed} needed)"
    if elsewhere := states.get(DeviceState.ELSEWHERE):
        parts.append(f"{elsewhere} free on nodes without room for the pod")
    if held := states.get(DeviceState.HELD):
        parts.append(f"{held} held{_in_brackets(_names_text(found.holders, shown, by=True))}")
    if tainted := states.get(DeviceState.TAINTED):
        parts.append(f"{tainted} tainted{_in_brackets(_names_text(found.taints, shown))}")
    if short := states.get(DeviceState.COUNTERS):
        why = _users_text("used by", found.counter_holders, shown)
        parts.append(f"{short} short of a counter (nearest: {found.counter}{why})")
    if short := states.get(DeviceState.CAPACITY):
        why = _users_text("shared by", found.capacity_holders, shown)
        parts.append(f"{short} short of capacity (nearest: {found.capacity}{why})")
    if unusable := states.get(DeviceState.POOL):
        parts.append(f"{unusable} in pools that are not complete or contradict themselves")
    if found.unanswered:
        parts.append(found.unanswered)
    extended = is_extended_title(found.claim)
    claim = f"devices for {found.claim.strip('<>')}" if extended else f"claim {found.claim}"
    return f"{claim}, request {found.request}: {', '.join(parts)}"


def reliefs_text(found: Sequence[Relief]) -> str:
    """``without matchAttribute m of claim c 4 pods would fit``, for each that helps."""
    return ", ".join(
        f"without {each.without} {'' if each.exact else 'at least '}{each.pods} "
        f"pod{'' if each.pods == 1 else 's'} would fit"
        for each in found
    )


def devices_text(count: int) -> str:
    """``1 device matches``, ``8 devices match``."""
    return "1 device matches" if count == 1 else f"{count} devices match"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _users_text(verb: str, names: Sequence[tuple[str, int]], shown: int | None) -> str:
    if not names:
        return ""
    kept = names if shown is None else names[:shown]
    more = len(names) - len(kept)
    text = ", ".join(name for name, _ in kept)
    return f"; {verb} {text}" + (f" and {more} more" if more else "")


def _names_text(names: Sequence[tuple[str, int]], shown: int | None, *, by: bool = False) -> str:
    """``4 by ml/llm, 2 by web/app, 3 by 2 more`` or ``1 broken:NoSchedule``; a lone taint has no number."""
    kept = names if shown is None else names[:shown]
    word = "by " if by else ""
    parts = [f"{count} {word}{name}" for name, count in kept]
    if not by and len(names) == 1:
        parts = [names[0][0]]
    rest = names[len(kept) :]
    if rest:
        parts.append(f"{sum(count for _, count in rest)} {word}{len(rest)} more")
    return ", ".join(parts)
