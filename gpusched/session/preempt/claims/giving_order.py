"""In which order queues give what a choice of victims takes, in which steps each gang goes, and who is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.api.devices.slots import accelerator
from gpusched.api.meta.resources import Resources, total
from gpusched.cache.gangs.gang import Gang, Placed
from gpusched.session.framework.accounts.node_pools import NodePoolAccounts
from gpusched.session.framework.proposal import RECLAIM, Chunk, Proposal
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.victim_pool import VictimGroup
from gpusched.session.preempt.victims import CandidateVictim, RunningGang, Victims
from gpusched.session.state.session import Session


def in_giving_order(
    session: Session, claimant: Gang, victims: Victims, parts: Iterable[VictimGroup]
) -> list[VictimGroup]:
    """Parts in the order in which their queues give: nearest to the claimant first.

    What makes the largest step in a queue goes last there, as a queue that holds too much before
    a step may hold less than it is due after it.
    """
    parts = list(parts)
    if len(parts) < 2:
        return parts
    queues = session.snapshot.queues
    node = queues.get(claimant.queue)
    own = set(node.path) if node is not None else set()
    gpus = [name for name, amount in session.view.minimum(claimant).items if amount]
    gpus = [name for name in gpus if accelerator(name)] or gpus

    def path(part: VictimGroup) -> tuple[str, ...]:
        found = queues.get(part.gang.queue)
        return tuple(reversed(found.path)) if found is not None else ()

    known: dict[int, tuple[int, ...]] = {}

    def step(part: VictimGroup) -> tuple[int, ...]:
        if id(part) not in known:
            chunks = _chunks_of(part, victims)
            steps = [[chunk.released.get(name) for name in gpus] for chunk in chunks]
            known[id(part)] = tuple(max(steps, default=[]))
        return known[id(part)]

    def ordered(some: list[VictimGroup], depth: int) -> list[VictimGroup]:
        if len(some) == 1:
            return some
        below: dict[str, list[VictimGroup]] = {}
        for part in some:
            names = path(part)
            below.setdefault(names[depth] if depth < len(names) else "", []).append(part)
        if set(below) == {""}:
            return sorted(some, key=step)
        groups = [ordered(each, depth + 1) for _, each in sorted(below.items())]
        if len(groups) > 1:
            groups.sort(key=lambda each: step(each[-1]))
        return [part for each in groups for part in each]

    near: dict[int, list[VictimGroup]] = {}
    for part in parts:
        near.setdefault(len(own.intersection(path(part))), []).append(part)
    return [part for _, some in sorted(near.items(), reverse=True) for part in ordered(some, 0)]


def eviction_steps(
    session: Session, claimant: Gang, victims: Victims, parts: Iterable[VictimGroup]
) -> list[tuple[VictimGroup, list[Chunk]]]:
    """Parts in the order in which their queues give, each with the steps in which it goes."""
    pools = session.queue_accounts.pools
    return [
        (part, _chunks_of(part, victims, pools))
        for part in in_giving_order(session, claimant, victims, parts)
    ]


def refused_victim(
    session: Session, claimant: Gang, victims: Victims, chosen: Sequence[VictimGroup], action: str
) -> tuple[list[VictimGroup], Gang] | None:
    """The first gang that reclaim may not take, and what it takes before; None where it may take all.

    Args:
        session: in which is asked.
        claimant: for which room is made.
        victims: those that are left.
        chosen: what would leave, each allowed by filters.
        action: ``preempt``, which may take all, or ``reclaim``.
    """
    gates = session.hooks.reclaim_gates
    if action != RECLAIM or not chosen or not gates:
        return None
    asked = session.view.minimum(claimant)
    steps = eviction_steps(session, claimant, victims, chosen)
    parts = [part for part, _ in steps]
    chunks = [chunk for _, some in steps for chunk in some]

    def passes(count: int) -> bool:
        proposal = Proposal(claimant=claimant, requests=asked, chunks=tuple(chunks[:count]))
        return not first_refusal(gates, proposal).refuses

    if passes(len(chunks)):
        return None
    low, high = 0, len(chunks)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    number = next(n for n, owner in enumerate(parts) if owner.gang is chunks[high - 1].victim)
    return parts[:number], parts[number].gang


def _chunks_of(
    part: VictimGroup, victims: Victims, pools: NodePoolAccounts | None = None
) -> list[Chunk]:
    """The steps in which a part of a choice of these victims goes."""
    if part.gang.running_kind is not None:  # whatever it could lose: it goes at once
        return [Chunk(part.gang, _requests_of(part.seats, pools))]
    return eviction_chunks(part, victims.running(part.gang), pools)


def eviction_chunks(
    part: VictimGroup, running: RunningGang | None, pools: NodePoolAccounts | None = None
) -> list[Chunk]:
    """The steps in which a part of a choice goes, the last in rank first.

    Args:
        part: members of one gang.
        running: what the gang could lose before they go; None for nothing.
        pools: what is taken there is told beside the rest, by dimension.
    """
    leaving = sorted(part.seats, key=lambda seat: _last_rank_first(seat.member))
    spare = min(len(leaving), running.single_steps if running is not None else 0)
    steps = [leaving[number : number + 1] for number in range(spare)]
    if leaving[spare:]:
        steps.append(leaving[spare:])
    return [Chunk(part.gang, _requests_of(step, pools)) for step in steps]


def _requests_of(seats: Sequence[CandidateVictim], pools: NodePoolAccounts | None) -> Resources:
    taken = total(seat.member.pod.pod_class.charged for seat in seats)
    if pools is None:
        return taken
    return taken.plus(total(pools.charge(seat.member.pod.pod_class, seat.row) for seat in seats))


def _last_rank_first(member: Placed) -> tuple[int, str]:
    return -member.pod.rank, member.pod.uid
