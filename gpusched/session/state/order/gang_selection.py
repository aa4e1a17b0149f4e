"""Which gangs a session looks at where more wait than it has time for, and how far the rounds through them have come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot, TenantRound
from gpusched.session.framework.accounts.gang_lines import (
    GangLine,
    GangLines,
)
from gpusched.session.state.equivalence import EquivalenceClasses
from gpusched.session.state.order.kept_orders import (
    GangOrder,
    KeptOrders,
    Spots,
    in_order,
    sort_key,
)
from gpusched.session.state.order.order_keys import OrderKeys
from gpusched.session.state.order.room_totals import GangRoom, RoomTotals
from gpusched.session.state.order.tenant_looks import (
    HEAD_DIVISOR,
    KeptLooks,
    LookBasis,
    TenantLook,
    choose,
    first_within_share,
    same_names,
)
from gpusched.session.state.order.work_budget import (
    GangCosts,
    Tenant,
    WorkBudget,
    WorkNeeded,
    asks_for_place,
    tenant_of_gang,
    work_by_tenant,
    work_limits,
)


class KeptSelection:
    """What is known of selections from session to session."""

    def __init__(self) -> None:
        self.work_needed = WorkNeeded()
        self.rounds: dict[Tenant, tuple[TenantRound, Sequence[Gang]]] = {}
        """The last round of each tenant, with the gangs that it is about."""
        self.room = RoomTotals()
        self.orders = KeptOrders()
        self.looks = KeptLooks()

    def is_about(self, begun: TenantRound, tenant: Tenant, gangs: Sequence[Gang]) -> bool:
        """Whether a round names these very gangs, so that none came, went or changed since."""
        known = self.rounds.get(tenant)
        return (
            known is not None
            and known[0].left is begun.left
            and known[0].looked_at is begun.looked_at
            and known[1] == gangs
        )


@define(slots=True, eq=False)
class _TenantBacklog:
    """The gangs of a tenant that has more than its share.

    Attributes:
        gangs: all of them, those with a line of their own sorted by key.
        head: keys of gangs that were first in line when the round began.
        chosen: gangs that this session looks at, by key.
        for_room: keys of those that are chosen because nodes may have room for them, and for nothing else.
        given_left: what ``keys_left`` is where no look says it.
        before: how far the rounds had come.
        presses: whether some of those that are left press.
        same: whether the rounds before were about the same gangs.
        rests: whether only its head and what is new are looked at.
        look: that says who is chosen and who is left; None where something else was found since.
    """

    tenant: Tenant
    gangs: Sequence[Gang]
    head: Sequence[GangKey]
    chosen: dict[GangKey, Gang]
    for_room: AbstractSet[GangKey]
    given_left: Sequence[GangKey]
    before: TenantRound
    presses: bool = False
    same: bool = False
    rests: bool = False
    look: TenantLook | None = None

    @property
    def keys_left(self) -> Sequence[GangKey]:
        """Keys of gangs that this round is still to look at, in queue order."""
        return self.given_left if self.look is None else self.look.keys_left


class GangSelection:
    """Gangs that one session looks at, and those that it leaves to the next ones.

    Args:
        snapshot: says how far the last session came.
        lines: all gangs that are not finished.
        order_keys: their order inside each queue.
        equivalence: classes of gangs, of which all but the first cost less.
        kept: as it was left by earlier sessions.
        nominated: keys of gangs for which room is held; each of them is looked at.
        evicts: whether this session may evict pods.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        lines: GangLines,
        order_keys: OrderKeys,
        equivalence: EquivalenceClasses,
        kept: KeptSelection,
        *,
        nominated: AbstractSet[GangKey],
        evicts: bool,
    ) -> None:
        self._order_keys = order_keys
        self._equivalence = equivalence
        self._queues = snapshot.queues
        self._nodes = len(snapshot.nodes)
        self._evicts = evicts
        self._most = snapshot.limits.session_work
        self._lines = lines
        self._nominated = nominated
        self._kept = kept
        self.room = GangRoom(kept.room, snapshot.nodes, equivalence, snapshot.spare_room)
        """Whether nodes may have room for gangs, before anybody starts."""
        self._backlogs: dict[Tenant, _TenantBacklog] = {}
        self._put_off: set[GangKey] = set()
        self._put_back: set[GangKey] = set()
        """Gangs that were chosen for room that others have taken before their turn."""
        self._overtakers: set[GangKey] = set()
        """Gangs of tenants without a backlog that are left out."""
        self._waiting = self._gangs_by_tenant()
        asked = kept.work_needed.count_by_tenant(
            self._waiting, self._work_needed, rests_on=(self._nodes, evicts, self._most)
        )
        rounds = {Tenant(each.queue, each.namespace): each for each in snapshot.tenant_rounds}
        shares = self._shares(asked, rounds)
        self.work_budget = WorkBudget(work_limits(shares, self._most), most=self._most)
        for tenant in sorted(asked):
            begun = rounds.get(tenant, TenantRound(*tenant))
            if asked[tenant] > shares[tenant] or begun.left or begun.rests:
                gangs = self._waiting[tenant]
                self._backlogs[tenant] = self._build_backlog(tenant, gangs, shares[tenant], begun)
        self._kept.orders.forget_others(tuple(self._backlogs))
        self._kept.looks.forget_others(tuple(self._backlogs))
        if self._backlogs:
            self._defer_overtakers()
        self.for_room: AbstractSet[GangKey] = frozenset().union(
            *(each.for_room for each in self._backlogs.values())
        )
        """Keys of gangs that are looked at because nodes may have room for them, and for nothing else."""
        self.looked_at: tuple[Gang, ...] = self._gather()
        """Gangs that this session looks at, sorted by key."""

    @property
    def leaves_out(self) -> bool:
        """Whether there are gangs that this session does not look at."""
        return bool(self._backlogs)

    @property
    def all_known(self) -> bool:
        """Whether there are such gangs, and none that is looked at of their tenants wants a place for the first time."""
        return bool(self._backlogs) and not any(
            key not in each.before.known and asks_for_place(gang)
            for each in self._backlogs.values()
            for key, gang in each.chosen.items()
        )

    @cached_property
    def heads_left_out(self) -> tuple[Gang, ...]:
        """The first in line of tenants of whom the last session put gangs off: these have their turns in place of the first.

        They are not looked at, and those who are must leave them the room that is reserved for them.
        """
        there = self._lines.by_key
        found = (
            there[key]
            for each in self._backlogs.values()
            if each.before.cut
            for key in each.head
            if key in there and key not in each.chosen and key not in self._nominated
        )
        return tuple(gang for gang in found if asks_for_place(gang))

    def left_out(self, of_line: Callable[[GangLine], Iterable[Gang]]) -> Iterator[tuple[Gang, int]]:
        """Gangs that this session does not look at, and how many of their tenant that ask for a place come before, sorted by key.

        Args:
            of_line: gives those of each line that are meant, sorted by key.
        """
        if not self._backlogs:
            return
        looked_at = {gang.key for gang in self.looked_at}
        places: dict[Tenant, dict[GangKey, int]] = {}
        for gang in self._lines.gathered(of_line):
            if gang.key in looked_at:
                continue
            tenant = tenant_of_gang(gang, self._queues)
            if tenant not in places:
                left = self._backlogs[tenant].keys_left if tenant in self._backlogs else ()
                places[tenant] = self._places_in_line(left)
            yield gang, places[tenant].get(gang.key, 0)

    def _places_in_line(self, keys: Sequence[GangKey]) -> dict[GangKey, int]:
        """How many gangs come before each of some: PodGroups without pods, which nobody waits for, do not count."""
        there = self._lines.by_key
        asking = [asks_for_place(there[key]) for key in keys]
        return dict(zip(keys, accumulate(asking, initial=0), strict=False))

    def defer_gang(self, gang: Gang) -> None:
        """Put the gang off to the next session, as its tenant has used up its share of this one."""
        self._put_off.add(gang.key)

    def put_back(self, gang: Gang) -> None:
        """Leave a gang where it was in line that was chosen for room alone: it is gone, or of no use to gangs like it."""
        self._put_back.add(gang.key)

    def is_put_back(self, gang: Gang) -> bool:
        """Whether the gang was left where it was in line."""
        return gang.key in self._put_back

    def is_deferred(self, gang: Gang) -> bool:
        """Whether the gang was left to a later session after all."""
        return gang.key in self._put_off or gang.key in self._put_back

    def tenant_rounds(self) -> tuple[TenantRound, ...]:
        """How far this session came, for the next one; empty for tenants that were served in full."""
        found = {each.tenant: self._round_after(each) for each in self._backlogs.values()}
        if self._put_off:
            for tenant, gangs in self._waiting.items():
                if tenant in found:
                    continue
                cut = [gang for gang in gangs if gang.key in self._put_off]
                if cut:
                    found[tenant] = self._cut_round(tenant, gangs, cut)
        self._kept.rounds = {
            tenant: (round_, self._waiting[tenant]) for tenant, round_ in found.items()
        }
        return tuple(round_ for _, round_ in sorted(found.items()))

    # -- choosing ----------------------------------------------------------------------------
    def _gangs_by_tenant(self) -> dict[Tenant, Sequence[Gang]]:
        """Gangs that may be left to the next sessions."""
        held = {(gang.queue, gang.key.namespace) for gang in self._nominated_gangs()}
        found: dict[Tenant, Sequence[Gang]] = {}
        for line in self._lines.sorted_lines:
            gangs: Sequence[Gang] = line.optional
            if line.key in held:
                gangs = [gang for gang in gangs if gang.key not in self._nominated]
            if gangs:
                tenant = tenant_of_gang(gangs[0], self._queues)
                before = found.get(tenant)
                found[tenant] = gangs if before is None else (*before, *gangs)
        return found

    def _shares(
        self, asked: Mapping[Tenant, int], rounds: Mapping[Tenant, TenantRound]
    ) -> dict[Tenant, int]:
        """Units of this session for each tenant; of one that rests only what its head may cost, the rest is others'."""
        shares = work_by_tenant(asked, self._most)
        resting = {
            tenant: max(1, share // HEAD_DIVISOR)
            for tenant, share in shares.items()
            if tenant in rounds and rounds[tenant].rests and asked[tenant] > share
        }
        if not resting:
            return shares
        return shares | {
            tenant: units
            for tenant, units in work_by_tenant({**asked, **resting}, self._most).items()
            if tenant not in resting
        }

    def _nominated_gangs(self) -> list[Gang]:
        there = self._lines.by_key
        return [there[key] for key in self._nominated if key in there]

    def _work_needed(self, gangs: Iterable[Gang]) -> int:
        """Units for all of them together, counted up to a session's worth."""
        costs, units = self._gang_costs(), 0
        for gang in gangs:
            units += costs.units_for(gang)
            if units > self._most:
                break
        return units

    def _gang_costs(self) -> GangCosts:
        return GangCosts(self._equivalence, nodes=self._nodes, evicts=self._evicts)

    def _build_backlog(
        self, tenant: Tenant, gangs: Sequence[Gang], share: int, before: TenantRound
    ) -> _TenantBacklog:
        if not tenant.namespace:
            ordered = in_order(gangs, self._order_keys)
            chosen, _ = first_within_share(ordered, self._gang_costs(), share)
            return _TenantBacklog(tenant, gangs, (), _by_key(chosen), frozenset(), [], before)
        same = self._kept.is_about(before, tenant, gangs)
        begins = not before.left and not before.rests
        if begins:
            before = attrs.evolve(before, looked_at=(), head=(), cut=False)
        if begins or (before.changed and not before.rests):
            found = self._look_anew(tenant, gangs, share, before)
        else:
            found = self._continue_round(tenant, gangs, share, before, same=same)
        found.same, found.rests = same, before.rests
        return found

    def _look_anew(
        self,
        tenant: Tenant,
        gangs: Sequence[Gang],
        share: int,
        before: TenantRound,
    ) -> _TenantBacklog:
        """Who is looked at in a round that begins, or after a change in the middle of one."""
        order = self._order_of(tenant, gangs)
        pressing = frozenset(self._pressing(order, before))
        behind = self._behind(order, before, pressing)
        basis = LookBasis(order, before, share, self._nodes, self._evicts, pressing, behind)
        look = self._kept.looks.find(tenant, basis, self._gang_costs)
        return _TenantBacklog(
            tenant, gangs, look.head, dict(look.chosen), look.for_room, (), before,
            look.presses, look=look,
        )  # fmt: skip

    def _continue_round(
        self,
        tenant: Tenant,
        gangs: Sequence[Gang],
        share: int,
        before: TenantRound,
        *,
        same: bool,
    ) -> _TenantBacklog:
        costs = self._gang_costs()
        there: Mapping[GangKey, Gang] = self._lines.by_key if same else _by_key(gangs)
        head: Sequence[GangKey] = before.head
        waiting: Sequence[GangKey] = before.left
        fresh: list[Gang] = []
        if not same:
            head = [key for key in head if key in there]
            waiting = [key for key in waiting if key in there]
            known = before.looked_at.union(before.left)
            fresh = [gang for key, gang in there.items() if key not in known]
        chosen_head: list[Gang] = []
        units = share
        if not before.cut:
            units -= share // HEAD_DIVISOR
            heads = (there[key] for key in head)
            chosen_head, _ = first_within_share(heads, costs, share // HEAD_DIVISOR)
        late = {gang.key for gang in chosen_head} - before.looked_at
        if late:  # they were put off, and wait with the others, too
            waiting = [key for key in waiting if key not in late]
        if before.presses:
            order = self._order_of(tenant, gangs)
            ordered, more = order.in_turn(chain(waiting, map(_key_of, fresh))), waiting[:0]
            pressing = self._pressing(order, before).intersection(map(_key_of, ordered))
            behind = self._behind(order, before, pressing)
        else:
            left_ones = (there[key] for key in waiting)
            nearest, _ = first_within_share(left_ones, self._gang_costs(), share)
            ordered, more = in_order([*nearest, *fresh], self._order_keys), waiting[len(nearest) :]
            pressing = {gang.key for gang in ordered if self._presses(gang, before)}
            behind = frozenset()
        pressing -= before.in_vain
        found = choose(
            (gang for gang in ordered if gang.key not in before.looked_at),
            [gang for gang in ordered if gang.key in pressing],
            before,
            costs,
            units,
            behind=behind,
            shared=bool(pressing),
        )
        gone = {gang.key for gang in found.chosen}
        left = [
            gang.key
            for gang in ordered
            if gang.key not in gone and (gang.key in pressing or gang.key not in before.looked_at)
        ]
        return _TenantBacklog(
            tenant, gangs, head, _by_key((*chosen_head, *found.chosen)), found.for_room,
            [*left, *more], before, found.presses,
        )  # fmt: skip

    def _order_of(self, tenant: Tenant, gangs: Sequence[Gang]) -> GangOrder:
        return self._kept.orders.order_of(tenant, gangs, self._order_keys, self._equivalence)

    def _pressing(self, order: GangOrder, before: TenantRound) -> set[GangKey]:
        """Gangs that press; of equal ones the room is compared once."""
        pressing = {gang.key for gang in order.others if self._presses(gang, before)}
        new = order.gangs_not_in(before.known).names
        suffice = self.room.each_may_suffice(order.asking)
        for (_, names), suffices in zip(order.asking.kinds, suffice, strict=True):
            if suffices:
                pressing.update(names)
            elif new:
                pressing.update(new.intersection(names))
        return pressing

    def _behind(
        self, order: GangOrder, before: TenantRound, pressing: AbstractSet[GangKey]
    ) -> frozenset[GangKey]:
        """Of those that press, gangs that were looked at before and for which room that is not reserved is too little."""
        if not pressing:
            return frozenset()
        asking, known = order.asking, before.known & pressing
        there = self.room.each_may_suffice(asking)
        beside = self.room.each_may_suffice_beside(asking)
        # Those for which all room is too little press only where they were never looked at.
        return frozenset().union(
            *(
                known.intersection(names)
                for (_, names), any_room, enough in zip(asking.kinds, there, beside, strict=True)
                if any_room and not enough
            )
        )

    def _presses(self, gang: Gang, before: TenantRound) -> bool:
        """Whether the gang has not had to wait for its turn: it was never looked at, or nodes may have room for it."""
        if not asks_for_place(gang):
            return False
        return gang.key not in before.known or self.room.may_suffice(gang)

    def _defer_overtakers(self) -> None:
        """Leave out gangs that would pass one of another namespace that was never looked at."""
        tenants: dict[str, list[Tenant]] = {}
        for tenant in self._waiting:
            tenants.setdefault(tenant.queue, []).append(tenant)
        barred: dict[str, Any] = {}
        for line in self._backlogs.values():
            queue, before = line.tenant.queue, line.before
            if queue and len(tenants[queue]) > 1:
                first = next(
                    (
                        key
                        for key in line.keys_left
                        if key not in before.known
                        and key not in before.looked_at
                        and asks_for_place(self._lines.by_key[key])
                    ),
                    None,
                )
                if first is not None:
                    place = sort_key(self._lines.by_key[first], self._order_keys)
                    barred[queue] = min(barred.get(queue, place), place)
        for queue, bar in barred.items():
            for tenant in tenants[queue]:
                self._defer_after(tenant, self._backlogs.get(tenant), bar)

    def _defer_after(self, tenant: Tenant, line: _TenantBacklog | None, bar: Any) -> None:
        """Leave out gangs of the tenant whose turn comes after this key."""
        if line is None:
            self._overtakers.update(
                gang.key for gang in self._waiting[tenant] if sort_key(gang, self._order_keys) > bar
            )
            return
        for key, gang in sorted(line.chosen.items()):
            if sort_key(gang, self._order_keys) > bar:
                line.given_left, line.look = line.keys_left, None
                del line.chosen[key]
                if key not in line.keys_left:
                    line.given_left = [key, *line.keys_left]

    def _gather(self) -> tuple[Gang, ...]:
        if not self._backlogs:
            return self._lines.gangs
        parts: list[Iterable[Gang]] = [self._nominated_gangs()]
        parts += [line.always for line in self._lines.lines.values()]
        for tenant, gangs in self._waiting.items():
            backlog = self._backlogs.get(tenant)
            if backlog is not None:
                parts.append(backlog.chosen.values())
            elif self._overtakers:
                parts.append(gang for gang in gangs if gang.key not in self._overtakers)
            else:
                parts.append(gangs)
        found = {gang.key: gang for gang in chain.from_iterable(parts)}
        return tuple(gang for _, gang in sorted(found.items()))

    # -- afterwards --------------------------------------------------------------------------
    def _round_after(self, line: _TenantBacklog) -> TenantRound:
        if not line.tenant.namespace:
            return TenantRound(*line.tenant)
        look = line.look
        if look is None or not line.same:
            return self._work_out_round_after(line)
        turns = (
            frozenset(look.for_room & self._put_back),
            frozenset(look.chosen.keys() & self._put_off),
        )
        if turns not in look.after:
            look.keep_after(turns, self._work_out_round_after(line))
        return look.after[turns]

    def _work_out_round_after(self, line: _TenantBacklog) -> TenantRound:
        cut = [line.chosen[key] for key in sorted(line.chosen.keys() & self._put_off)]
        back = line.for_room & self._put_back - line.before.looked_at
        gone = self._put_off | back
        looked_at = _with_names(
            _without_names(line.before.looked_at, gone), line.chosen.keys() - gone
        )
        known = _with_names(line.before.known, _with_places_to_find(line.chosen) - self._put_off)
        if not line.same:
            there = {gang.key for gang in line.gangs}
            looked_at, known = looked_at & there, known & there
        left = line.keys_left
        if cut:
            left = [*(gang.key for gang in in_order(cut, self._order_keys)), *left]
        spots = None if cut or line.look is None else line.look.spots_left
        if back and line.look is not None and spots is not None:
            order = line.look.basis.order
            spots = order.changed(spots, gone=(), more=back)
            left = order.keys_at(spots)
        elif back:
            still = set(back).union(left)
            left = [gang.key for gang in self._order_of(line.tenant, line.gangs).in_turn(still)]
        return TenantRound(
            *line.tenant,
            head=tuple(line.head),
            left=same_names(left, line.before.left),
            looked_at=looked_at,
            known=known,
            cut=bool(cut),
            rests=line.rests and not left,
            presses=line.presses,
            in_vain=self._still_in_vain(line, left, spots),
        )

    def _still_in_vain(
        self, line: _TenantBacklog, left: Sequence[GangKey], spots: Spots | None
    ) -> AbstractSet[GangKey]:
        """Of those that are left, gangs that were to have a turn for room since something last changed, which was gone.

        Args:
            line: of the tenant.
            left: keys of those that are left.
            spots: their places in the order of the line's look; None where they are not known.
        """
        vain = line.for_room & self._put_back
        if not line.before.changed:
            vain = vain | line.before.in_vain
        if line.look is not None and spots is not None:
            return line.look.basis.order.those_at(spots, vain)
        return vain & set(left) if vain else vain

    def _cut_round(self, tenant: Tenant, gangs: Sequence[Gang], cut: Sequence[Gang]) -> TenantRound:
        if not tenant.namespace:
            return TenantRound(*tenant)
        found = {gang.key: gang for gang in gangs if gang.key not in self._put_off}
        return TenantRound(
            *tenant,
            left=tuple(each.key for each in in_order(cut, self._order_keys)),
            looked_at=frozenset(found),
            known=frozenset(_with_places_to_find(found)),
            cut=True,
        )


_key_of: Final = attrgetter("key")


def _by_key(gangs: Iterable[Gang]) -> dict[GangKey, Gang]:
    return {gang.key: gang for gang in gangs}


def _with_names(names: frozenset[GangKey], more: Collection[GangKey]) -> frozenset[GangKey]:
    """Names with some more; the same object where all are among them, which tells the next session so."""
    return names if names.issuperset(more) else names.union(more)


def _without_names(names: frozenset[GangKey], gone: AbstractSet[GangKey]) -> frozenset[GangKey]:
    """Names without some; the same object where none is among them."""
    return names if names.isdisjoint(gone) else names - gone


def _with_places_to_find(gangs: Mapping[GangKey, Gang]) -> set[GangKey]:
    return {key for key, gang in gangs.items() if asks_for_place(gang)}
