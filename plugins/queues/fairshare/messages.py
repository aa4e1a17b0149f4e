"""Messages of refused reclaims: the queue level, what it needs or uses, what it is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpusched_plugins.queues.fairshare.shares import Shares

from gpusched.plugin import Reason, Resources, Verdict, format_quantity, wait


def claim_above_share(
    queue: str, asked: Resources, names: Sequence[str], *, shares: Shares, held: Resources
) -> Verdict:
    """The claimant's own queue would go above its share."""
    for name in names:
        due = shares.fair(queue, name)
        if held.get(name) + asked.get(name) > due:
            deserved = shares.deserved(queue, name)
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "needs {need} {name}; queue {queue!r} holds {held} and is due {due}{deserves}: it "
                "may not take from others",
                need=_amount_text(asked.get(name), name),
                name=name,
                queue=queue,
                held=_amount_text(held.get(name), name),
                due=_amount_text(due, name),
                deserves="" if deserved is None else f", deserves {_amount_text(deserved, name)}",
            )
    return wait(Reason.WAITING_FOR_QUOTA, "asks for nothing that queues divide")


def growth_above_deserved(
    queue: str,
    asked: Resources,
    names: Sequence[str],
    *,
    waiting: Resources,
    shares: Shares,
    held: Resources,
) -> Verdict:
    """A gang above its minimum would bring its queue above what it deserves."""
    for name in names:
        deserved = shares.deserved(queue, name)
        ahead = waiting.get(name)
        if deserved is not None and held.get(name) + ahead + asked.get(name) > deserved:
            return wait(
                Reason.WAITING_FOR_QUOTA,
                "others give members for its growth only within what queue {queue!r} deserves: it "
                "holds {held} of {deserved} {name}{before}",
                queue=queue,
                held=_amount_text(held.get(name), name),
                deserved=_amount_text(deserved, name),
                name=name,
                before=f", and {_amount_text(ahead, name)} are for gangs that wait"
                if ahead
                else "",
            )
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "others give members for its growth only within what its queue deserves, and queue {queue!r} "
        "and those above it leave it none of {names}",
        queue=queue,
        names=", ".join(names) or "it",
    )


def no_common_tree(path: Sequence[str]) -> Verdict:
    """Claimant and victim are below the same queue, or one of them below none."""
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "queue {name!r} is not another queue's to take from: nothing would change hands",
        name=path[0] if path else "",
    )


def victim_within_share(
    chain: Sequence[str], names: Sequence[str], *, shares: Shares, held: Callable[[str], Resources]
) -> Verdict:
    """A level of the victim's chain is not over what it deserves, or else what it is due."""
    for stated in (True, False):
        for level in chain:
            holds = held(level)
            for name in names:
                limit = shares.deserved(level, name) if stated else shares.entitled(level, name)
                if limit is None or holds.get(name) > limit:
                    continue
                return wait(
                    Reason.WAITING_FOR_QUOTA,
                    "queue {level!r} is within what it {has}: it holds {held} {name} of {limit}",
                    level=level,
                    has="deserves" if stated else "is due",
                    held=_amount_text(holds.get(name), name),
                    name=name,
                    limit=_amount_text(limit, name),
                )
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "queue {level!r} gives nothing back to a queue that would go above its own share",
        level=chain[0],
    )


def not_preemptible_above_deserved(
    level: str, name: str, *, asked: Resources, deserved: int, fixed: Resources
) -> Verdict:
    """What could not be taken back would go above what a level deserves."""
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "is not preemptible and needs {need} {name}; queue {level!r} deserves {deserved}, of which "
        "{fixed} are held by others that are not preemptible",
        need=_amount_text(asked.get(name), name),
        name=name,
        level=level,
        deserved=_amount_text(deserved, name),
        fixed=_amount_text(fixed.get(name), name),
    )


def victim_below_guarantee(level: str, name: str, *, held: Resources, amount: int) -> Verdict:
    """A chunk would take a level below its guarantee."""
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "queue {level!r} holds {held} {name} and is guaranteed {amount}",
        level=level,
        held=_amount_text(held.get(name), name),
        name=name,
        amount=_amount_text(amount, name),
    )


def claimant_more_saturated(level: str, sibling: str, name: str, *, mine: int, due: int) -> Verdict:
    """The claimant would end above its share, and more so than the queue it takes from."""
    return wait(
        Reason.WAITING_FOR_QUOTA,
        "queue {level!r} would hold {mine} {name} with a share of {due}, and {sibling!r}, from "
        "which it takes, less of its own",
        level=level,
        mine=_amount_text(mine, name),
        name=name,
        due=_amount_text(due, name),
        sibling=sibling,
    )


def _amount_text(amount: int, resource: str) -> str:
    return format_quantity(amount, resource=resource)
