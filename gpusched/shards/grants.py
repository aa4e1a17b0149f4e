"""Divides a queue's capability between shards whose daemons do not talk: grants, which never exceed it together.

A daemon changes the grants of its own shards alone, and only by a write that fails when anybody has written since
what it read. It raises them by no more than what no shard is granted, and lowers them to no less than what is used.
So whatever the others do meanwhile, the sum of all grants stays within the capability, and so does the sum of all use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from gpusched.shards.board import Amounts, GrantRow


def divide_evenly(amount: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Parts of an amount: nobody gets more than is wanted, and what some do not want goes to the others."""
    parts: dict[str, int] = {}
    left = amount
    for number, name in enumerate(sorted(wanted, key=lambda name: (wanted[name], name))):
        parts[name] = min(wanted[name], left // (len(wanted) - number))
        left -= parts[name]
    return parts


def divide_by_demand(
    amount: int, demand: Mapping[str, int], room: Mapping[str, int], *, unit: int = 1
) -> dict[str, int]:
    """Parts that follow demand; what is not asked for is divided by room. They sum up to the amount.

    Args:
        amount: to be divided.
        demand: of each shard, in the same unit.
        room: of each shard, in the same unit.
        unit: of which parts are multiples, but for what is left of the amount at the end.
    """
    names = sorted({*demand, *room})
    if not names:
        return {}
    parts = divide_evenly(amount // unit, {name: demand.get(name, 0) // unit for name in names})
    left, rooms = amount // unit - sum(parts.values()), sum(room.values())
    for number, name in enumerate(names):
        last = number == len(names) - 1
        more = left if last or not rooms else left * room.get(name, 0) // rooms
        rooms -= room.get(name, 0)
        parts[name] += more
        left -= more
    parts = {name: part * unit for name, part in parts.items()}
    parts[names[0]] += amount - sum(parts.values())
    return parts


def grant_goals(capability: Mapping[str, int], rows: Mapping[str, GrantRow]) -> dict[str, Amounts]:
    """What each shard should be granted, by what all of them use and want.

    The gang that has waited longest, over all shards, comes first and is counted as a whole: parts of what it needs
    in two shards would start nothing in either. What is left is divided evenly.
    """
    goals = {
        shard: {name: row.used.get(name, 0) for name in capability} for shard, row in rows.items()
    }
    left = {
        name: max(0, most - sum(goal[name] for goal in goals.values()))
        for name, most in capability.items()
    }
    waiting = [shard for shard, row in rows.items() if row.since]
    for shard in sorted(waiting, key=lambda shard: (rows[shard].since, shard)):
        more = {
            name: max(0, rows[shard].next.get(name, 0) - goals[shard][name]) for name in capability
        }
        if all(more[name] <= left[name] for name in capability):
            for name in capability:
                goals[shard][name] += more[name]
                left[name] -= more[name]
    for name in capability:
        lacking = {
            shard: max(0, rows[shard].wanted.get(name, 0) - goals[shard][name]) for shard in waiting
        }
        for shard, more_of_it in divide_evenly(left[name], lacking).items():
            goals[shard][name] += more_of_it
    return goals


def settle_grants(
    capability: Mapping[str, int],
    rows: Mapping[str, GrantRow],
    mine: Collection[str],
    *,
    may_raise: Collection[str],
) -> dict[str, Amounts]:
    """New grants of one's own shards.

    Args:
        capability: of the queue, in base units.
        rows: of all shards, with what one's own use and want now.
        mine: shards of which this daemon holds the Leases.
        may_raise: names of which every shard has counted its use.
    """
    goals = grant_goals(capability, rows)
    granted = {shard: dict(row.granted) for shard, row in rows.items()}
    for name, most in capability.items():
        free = most - sum(each.get(name, 0) for each in granted.values())
        asked = free < 0 or any(
            goals[shard][name] > granted[shard].get(name, 0) for shard in rows if shard not in mine
        )
        short = any(goals[shard][name] > granted[shard].get(name, 0) for shard in mine)
        for shard in sorted(mine):
            before, goal = granted[shard].get(name, 0), goals[shard][name]
            if before > goal and (asked or short):
                granted[shard][name] = max(goal, rows[shard].used.get(name, 0))
                free += before - granted[shard][name]
        for shard in sorted(mine):
            before, goal = granted[shard].get(name, 0), goals[shard][name]
            more = min(goal - before, free) if name in may_raise else 0
            granted[shard][name] = max(before + max(0, more), rows[shard].used.get(name, 0))
            free -= granted[shard][name] - before
    return {shard: granted[shard] for shard in mine}


def row_with_asked(
    row: GrantRow, least: Amounts, everything: Amounts, most: Amounts, *, since: float
) -> GrantRow:
    """The row with a gang that waits for a part of an account, after those that came before it.

    Args:
        row: of the account.
        least: what the gang starts with.
        everything: that its members ask for.
        most: the limits of the account.
        since: when it was made.
    """
    names = row.used
    wanted = {
        name: max(
            amount := row.wanted.get(name, row.used[name]),
            min(most.get(name, 0), amount + everything.get(name, 0)),
        )
        for name in names
    }
    if row.since:
        return msgspec.structs.replace(row, wanted=wanted)
    reached = {name: amount + least.get(name, 0) for name, amount in row.used.items()}
    return msgspec.structs.replace(row, wanted=wanted, next=reached, since=since)
