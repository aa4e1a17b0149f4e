"""Which queue may reclaim from which: by what queues deserve, or else by what they are due.

Two queues are compared below their lowest common ancestor: above it nothing changes. The chain
of a queue are the levels from the leaf up to the child of that ancestor. A claimant reclaims

* what its queue *deserves*, when every level of its chain that states a deserved amount stays
  within it, from a queue that is over what it deserves at every level that states one;
* its *fair share*, when every level of its chain stays within its share, from a queue that is
  over its own at every level.

Only resources that the claimant asks for count, and accelerators alone when it asks for any; in
node pools that are divided, those of the pool count in place of the whole.
Victims are judged chunk by chunk, each before it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from gpusched_plugins.queues.fairshare.claimant import Claimant, Rights, keys_by_queue
from gpusched_plugins.queues.fairshare.entitlement import (
    Held,
    ReclaimRequest,
    keeps_better_entitlements,
)
from gpusched_plugins.queues.fairshare.messages import (
    claim_above_share,
    claimant_more_saturated,
    growth_above_deserved,
    no_common_tree,
    not_preemptible_above_deserved,
    victim_below_guarantee,
    victim_within_share,
)
from gpusched_plugins.queues.fairshare.shares import Shares, saturation
from gpusched_plugins.queues.fairshare.sides import Side, Sides, levels_below_common_ancestor

from gpusched.plugin import (
    ABSTAIN,
    ALLOW,
    NOTHING,
    RECLAIM,
    EvictionLimits,
    EvictionRight,
    Gang,
    Key,
    Proposal,
    Queue,
    Reason,
    Resources,
    Verdict,
    View,
    less,
    pool_of,
    resource_of,
    wait,
)

PERCENT = 100


class ReclaimRules:
    """Rules of reclaim between two queues; see the module.

    Args:
        view, shares: of the session.
        saturation: percent, at least 100: a claimant that goes above its share must stay that
            much below the saturation of each sibling it takes from.
    """

    def __init__(self, view: View, shares: Shares, *, saturation: int) -> None:
        self._view = view
        self._shares = shares
        self._saturation = saturation
        self._sides = Sides(view, shares)
        self._paths: dict[str, tuple[str, ...]] = {}
        """Of queues that gangs name; they stay during a session."""
        self._above: dict[tuple[str, frozenset[str]], tuple[Resources, Rights]] = {}
        """By level and resources what it held, and whether that is more than it deserves, and than it is due."""
        self._largest: dict[tuple[str, tuple[str, ...]], tuple[Resources, int]] = {}
        """The same for its largest share."""

    # -- hooks -----------------------------------------------------------------------------
    def may_claim(self, gang: Gang) -> Verdict:
        """Whether the gang could reclaim from any queue at all."""
        path = self.path_of(gang)
        if not path:
            return wait(Reason.WAITING_FOR_QUOTA, "its queue has no part in what is divided")
        asked = self._view.minimum(gang)
        names = self._shares.deciding(asked)
        if gang.is_lasting:
            lasting = self._firm(path, asked, names)
            if lasting.refuses:
                return lasting
        held = self._view.staying
        if self._within_deserved(self._nearest(path, names), asked, names, held):
            return ALLOW
        if self._within_fair_share(path[:1], asked, names, held):
            return ALLOW
        return claim_above_share(path[0], asked, names, shares=self._shares, held=held(path[0]))

    def may_grow(self, claimant: Gang, waiting: Resources) -> Verdict:
        """Whether the gang may ask others to give for its growth: within what its queue deserves.

        Above that its growth is lent. Gangs of its queue that wait for their minimum come first.
        """
        path = self.path_of(claimant)
        if not path:
            return wait(Reason.WAITING_FOR_QUOTA, "its queue has no part in what is divided")
        asked = self._view.minimum(claimant)
        names = self._shares.deciding(asked)
        if claimant.is_lasting:
            lasting = self._firm(path, asked, names)
            if lasting.refuses:
                return lasting
        held = self._view.staying
        both = asked.plus(waiting)
        if names and self._within_deserved(self._nearest(path, names), both, names, held):
            return ALLOW
        return growth_above_deserved(
            path[0], asked, names, waiting=waiting, shares=self._shares, held=held(path[0])
        )

    def may_lose(self, claimant: Gang, victim: Gang, action: str) -> Verdict:
        """Whether the victim could lose anything to the claimant."""
        if action != RECLAIM:
            return ABSTAIN
        return self._may_lose(Claimant(self, claimant), victim, self._view.held(victim))

    def may_each_lose(self, claimant: Gang, victims: Sequence[Gang], action: str) -> list[bool]:
        """The same of many victims: one answer for all of a queue that hold the same."""
        if action != RECLAIM:
            return [True] * len(victims)
        about, held = Claimant(self, claimant), self._view.held
        known: dict[tuple[str, bool, tuple[tuple[str, int], ...]], bool] = {}
        gives: dict[tuple[str, bool], bool] = {}
        answers = []
        for victim in victims:
            holds = held(victim)
            queue = (victim.queue, any(holds.get(name) for name in about.names))
            if queue not in gives:
                gives[queue] = self._may_give(about, victim, decided=queue[1])
            alike = (victim.queue, victim.terms.preemptible or victim.gives_extras, holds.items)
            answer = known.get(alike) if gives[queue] else False
            if answer is None:
                answer = known[alike] = not self._may_lose(about, victim, holds).refuses
            answers.append(answer)
        return answers

    def may_lose_to_each(self, claimants: Sequence[Gang], victim: Gang, action: str) -> list[bool]:
        """Whether the victim could lose anything to each of many claimants: its levels are looked at once."""
        if action != RECLAIM:
            return [True] * len(claimants)
        holds, answers = self._view.held(victim), []
        for about in (Claimant(self, claimant) for claimant in claimants):
            decided = any(holds.get(name) for name in about.names)
            gives = self._may_give(about, victim, decided=decided)
            answers.append(gives and not self._may_lose(about, victim, holds).refuses)
        return answers

    def _may_give(self, claimant: Claimant, victim: Gang, *, decided: bool) -> bool:
        """Whether a queue may give anything, however much a victim of it holds of the resources that decide.

        Args:
            claimant: for which.
            victim: of the queue.
            decided: whether such victims hold some of these.
        """
        mine, theirs = levels_below_common_ancestor(claimant.path, self.path_of(victim))
        if not mine or not theirs:
            return False
        above = self._are_above(theirs, self._names_that_count(claimant, decided=decided))
        # Whatever rights the claimant has, which cost more to find.
        return any(above) and claimant.has_right(mine, *above)

    @staticmethod
    def _names_that_count(claimant: Claimant, *, decided: bool) -> frozenset[str]:
        """Resources by which victims are judged that hold some of those that decide, or none."""
        if decided:
            return frozenset(claimant.names)
        asked = {name for name, amount in claimant.asked.items if amount}
        return frozenset(asked.union(claimant.names, map(resource_of, claimant.names)))

    def _are_above(self, levels: Sequence[str], names: frozenset[str]) -> Rights:
        """Whether all levels hold more of one of some resources than they deserve, where they say so, and than they are due."""
        above_deserved = above_due = True
        for level in levels:
            deserved, due = self._is_above(level, names)
            above_deserved, above_due = above_deserved and deserved, above_due and due
            if not (above_deserved or above_due):
                break
        return above_deserved, above_due

    def _is_above(self, level: str, names: frozenset[str]) -> Rights:
        """The same of one level, worked out anew where its account has moved."""
        held, known = self._view.staying(level), self._above.get((level, names))
        if known is not None and known[0] is held:
            return known[1]
        holds, stated = dict(held.items), self._shares.stated(level)
        entitled = self._shares.entitlement(level)
        above = (
            any(name not in stated or holds.get(name, 0) > stated[name] for name in names),
            any(holds.get(name, 0) > entitled.get(name, 0) for name in names),
        )
        self._above[level, names] = (held, above)
        return above

    def _may_lose(self, claimant: Claimant, victim: Gang, holds: Resources) -> Verdict:
        mine, theirs = levels_below_common_ancestor(claimant.path, self.path_of(victim))
        if not mine or not theirs:
            return no_common_tree(theirs)
        for name in theirs:
            if not self._queue(name).reclaimable:
                return wait(
                    Reason.WAITING_FOR_QUOTA, "queue {name!r} is not reclaimable", name=name
                )
        if not (victim.terms.preemptible or victim.gives_extras):
            return wait(Reason.WAITING_FOR_QUOTA, "gang {key} is not preemptible", key=victim.key)
        claim, rights = claimant.claim_with(mine)
        # Which pools its members leave is the gate's to judge: some may stay.
        taken = Resources(
            tuple(each for each in holds.items if each[0] in claim.names or not pool_of(each[0]))
        )
        held = self._view.staying
        if self._may_take_chunk(claim, theirs, taken, held=held, rights=rights):
            return ALLOW
        return victim_within_share(
            theirs, self._deciding_resources(claim, taken), shares=self._shares, held=held
        )

    def lane(self, claimant: Gang, victim: Gang, action: str) -> Key:
        """Lowest queue priority first: that of the highest queue that only the victim has, of its own."""
        _, theirs = self._levels_below_common_ancestor(claimant, victim)
        if action != RECLAIM or not theirs:
            return (0, 0)
        return (self._queue(theirs[-1]).priority, self._queue(theirs[0]).priority)

    def preferred(self, claimant: Gang, victim: Gang, action: str) -> Key:
        """Among victims that cost the same: of the queue most over its due, nearest in the tree."""
        return self.each_preferred(claimant, [victim], action)[0]

    def each_preferred(self, claimant: Gang, victims: Sequence[Gang], action: str) -> list[Key]:
        """The same of many victims: those of one queue have the same, and levels are looked at once."""
        if action != RECLAIM:
            return [(0, 0, 0, "")] * len(victims)
        path, names = self.path_of(claimant), self._shares.deciding(self._view.minimum(claimant))
        shares: dict[str, int] = {}

        def share_of(level: str) -> int:
            if level not in shares:
                shares[level] = self._largest_share(level, names)
            return shares[level]

        def key(victim: Gang) -> Key:
            mine, theirs = levels_below_common_ancestor(path, self.path_of(victim))
            if not mine or not theirs:
                return (0, 0, 0, "")
            return (-share_of(theirs[-1]), len(theirs), -share_of(theirs[0]), theirs[0])

        return keys_by_queue(victims, key)

    def limits(self, claimant: Gang, action: str, queues: Sequence[str]) -> EvictionLimits | None:
        """The same as ``may_go`` in amounts; None where node pools are divided, which it cannot say.

        What is left to ``may_go`` is seldom: claimants above their fair share, and claims that
        victims could reverse.
        """
        if action != RECLAIM:
            return EvictionLimits()
        path = self.path_of(claimant)
        if self._shares.dimensions or not path:
            return None
        asked = self._view.minimum(claimant)
        names = self._shares.deciding(asked)
        others = tuple(name for name, amount in asked.items if amount and name not in names)
        sides, keeps = self._sides.of_path(path, tuple(queues), names, others)
        return EvictionLimits(
            decide=(names, others),
            keeps=keeps,
            sides=tuple((side.leaves, self._rights(side, asked, names)) for side in sides),
        )

    def _rights(
        self, side: Side, asked: Resources, names: tuple[str, ...]
    ) -> tuple[EvictionRight, ...]:
        """What it deserves, then its fair share; nothing of queues that share no level with it."""
        if not side.mine:
            return ()
        shares, rights = self._shares, []
        wanted = [
            (level, name, held.get(name) + asked.get(name), shares.deserved(level, name))
            for level in side.mine
            for held in (self._view.staying(level),)
            for name in names
        ]
        stated = [
            (level, name, amount - deserved)
            for level, name, amount, deserved in wanted
            if deserved is not None
        ]
        if stated:
            rights.append(EvictionRight(frees=tuple(stated), above=side.deserved))
        frees = tuple(
            (level, name, amount - shares.fair(level, name)) for level, name, amount, _ in wanted
        )
        # Who takes by its fair share more than it deserves may have to give that back.
        lasts = any(beyond <= 0 for _, _, beyond in stated)
        returns = () if lasts else side.deserved
        rights.append(EvictionRight(frees=frees, above=side.entitled, returns=returns))
        return tuple(rights)

    def deciding_request(self, claimant: Gang) -> tuple[Resources, tuple[str, ...]]:
        """What a claimant requests, and the resources by which it is judged."""
        asked = self._view.minimum(claimant)
        return asked, self._shares.deciding(asked)

    def held_after_all_reclaims(self, claimant: Gang, names: Sequence[str]) -> Held:
        """What the claimant's levels hold of some resources when all leave that may, outside its own queue.

        Victims of one proposal leave together: what goes inside a department makes it one that
        may claim from others. ``may_go`` judges by the actual victims.
        """
        leaf, view = claimant.queue, self._view
        # Only for levels above it, which are often not asked about.
        own = cache(lambda: less(view.staying(leaf), view.not_preemptible(leaf)))

        def held(queue: str) -> Resources:
            now = view.staying(queue)
            if queue == leaf:
                return now
            fixed, mine = view.not_preemptible(queue), own()
            least = ((name, fixed.get(name) + mine.get(name)) for name in names)
            return Resources(tuple([(name, min(amount, now.get(name))) for name, amount in least]))

        return held

    def _largest_share(self, queue: str, names: tuple[str, ...]) -> int:
        """Its largest share of the resources that decide, worked out anew where its account has moved."""
        held, known = self._view.staying(queue), self._largest.get((queue, names))
        if known is None or known[0] is not held:
            amounts = {name: held.get(name) for name in names}
            known = (held, saturation(self._shares.entitlement(queue), amounts))
            self._largest[queue, names] = known
        return known[1]

    def may_go(self, proposal: Proposal) -> Verdict:
        """Whether exactly these chunks may go for the claimant."""
        claimant, asked = proposal.claimant, proposal.requests
        path, names = self.path_of(claimant), self._shares.deciding(asked)
        if claimant.is_lasting:
            lasting = self._firm(path, asked, names)
            if lasting.refuses:
                return lasting
        after = self._held_after(proposal)
        left: dict[str, Resources] = {}
        known: dict[tuple[str, ...], Rights] = {}

        def held(queue: str) -> Resources:
            return left[queue] if queue in left else self._view.staying(queue)

        for chunk in proposal.chunks:
            mine, theirs = self._levels_below_common_ancestor(claimant, chunk.victim)
            claim = ReclaimRequest(mine, asked, names)
            if not mine or not theirs:
                return no_common_tree(self.path_of(chunk.victim))
            kept = self._keeps_guarantee(theirs, chunk.released, held)
            if kept.refuses:
                return kept
            rights = known.get(mine) or known.setdefault(mine, self.rights_of(claim, after))
            if not self._may_take_chunk(claim, theirs, chunk.released, held=held, rights=rights):
                decided = self._deciding_resources(claim, chunk.released)
                return victim_within_share(theirs, decided, shares=self._shares, held=held)
            for name in self.path_of(chunk.victim):
                left[name] = less(held(name), chunk.released)
        unfair = self._saturated(path, proposal, after)
        if unfair.refuses:
            return unfair
        return self._cannot_be_taken_back(proposal, after)

    # -- rules -----------------------------------------------------------------------------
    def rights_of(self, claim: ReclaimRequest, claimed: Held) -> Rights:
        """Whether a chain that holds so much may claim by what it deserves, and by its fair share."""
        about = (claim.chain, claim.requests, claim.names, claimed)
        return self._within_deserved(*about), self._within_fair_share(*about)

    def has_right(self, claim: ReclaimRequest, claimed: Held, deserved: bool, due: bool) -> bool:
        """Whether it may claim by what it deserves, or by its fair share, where each of these counts."""
        about = (claim.chain, claim.requests, claim.names, claimed)
        return (deserved and self._within_deserved(*about)) or (
            due and self._within_fair_share(*about)
        )

    def _may_take_chunk(
        self,
        claim: ReclaimRequest,
        theirs: Sequence[str],
        taken: Resources,
        *,
        held: Held,
        rights: Rights,
    ) -> bool:
        """Whether a chunk may be taken from a chain that holds so much before it goes."""
        names = self._deciding_resources(claim, taken)
        if not names:
            return False
        by_deserved, by_fair_share = rights
        for due, has_right in ((False, by_deserved), (True, by_fair_share)):
            if (
                has_right
                and self._all_hold_more(theirs, names, held, due=due)
                and keeps_better_entitlements(
                    self._shares, claim, theirs, taken=taken, held=held, due=due
                )
            ):
                return True
        return False

    def _all_hold_more(
        self, levels: Sequence[str], names: Sequence[str], held: Held, *, due: bool
    ) -> bool:
        """Whether each level holds more of one of some resources than it is due, or than it deserves where it says so."""
        most = self._shares.entitled if due else self._shares.deserved
        for level in levels:
            holds, states = held(level), False
            for name in names:
                amount = most(level, name)
                if amount is None:
                    continue
                states = True
                if holds.get(name) > amount:
                    break
            else:
                if states:
                    return False
        return True

    def _deciding_resources(self, claim: ReclaimRequest, taken: Resources) -> tuple[str, ...]:
        """Resources by which a victim is judged: of those that decide, those it holds.

        Where a claim is on a pool and the victim runs elsewhere, the same resources as a whole.
        """
        wholes = dict.fromkeys(resource_of(name) for name in claim.names)
        for names in (claim.names, tuple(wholes)):
            of_both = tuple(name for name in names if taken.get(name))
            if of_both:
                return of_both
        return tuple(name for name, amount in claim.requests.items if amount and taken.get(name))

    def _within_deserved(
        self, chain: Sequence[str], asked: Resources, names: Sequence[str], held: Held
    ) -> bool:
        stated = False
        for level in chain:
            says = self._shares.stated(level)
            holds = held(level) if says else NOTHING
            for name in names:
                if name not in says:
                    continue
                stated = True
                if holds.get(name) + asked.get(name) > says[name]:
                    return False
        return stated

    def _within_fair_share(
        self, chain: Sequence[str], asked: Resources, names: Sequence[str], held: Held
    ) -> bool:
        for level in chain:
            holds = held(level)
            for name in names:
                if holds.get(name) + asked.get(name) > self._shares.fair(level, name):
                    return False
        return True

    def _nearest(self, path: Sequence[str], names: Sequence[str]) -> Sequence[str]:
        """The chain up to the first level that states a deserved amount."""
        for index, level in enumerate(path):
            if any(self._shares.deserved(level, name) is not None for name in names):
                return path[: index + 1]
        return ()

    def _firm(self, path: Sequence[str], asked: Resources, names: Sequence[str]) -> Verdict:
        """What cannot be taken back later must lie within what is deserved, at every level."""
        stated = False
        for level in path:
            fixed = self._view.not_preemptible(level)
            for name in names:
                deserved = self._shares.deserved(level, name)
                if deserved is None:
                    continue
                stated = True
                if fixed.get(name) + asked.get(name) > deserved:
                    return not_preemptible_above_deserved(
                        level, name, asked=asked, deserved=deserved, fixed=fixed
                    )
        if stated:
            return ALLOW
        return wait(
            Reason.WAITING_FOR_QUOTA,
            "is not preemptible, and queue {level!r} deserves nothing that it could claim",
            level=path[0],
        )

    def _keeps_guarantee(self, chain: Sequence[str], taken: Resources, held: Held) -> Verdict:
        for level in chain:
            holds = held(level)
            for name, amount in self._guarantee_of(level).items:
                if taken.get(name) and holds.get(name) - taken.get(name) < amount:
                    return victim_below_guarantee(level, name, held=holds, amount=amount)
        return ALLOW

    def _saturated(self, path: Sequence[str], proposal: Proposal, after: Held) -> Verdict:
        """A claimant that ends above its share must stay below every queue it took from."""
        touched: dict[str, set[str]] = {}
        for chunk in proposal.chunks:
            for name in self.path_of(chunk.victim):
                touched.setdefault(name, set()).update(n for n, a in chunk.released.items if a)
        asked = {name for name, amount in proposal.requests.items if amount}
        asked_for = set(self._shares.deciding(proposal.requests))
        for level in path:
            parent = self._queue(level).parent
            for sibling in sorted(touched):
                if sibling in path or self._queue(sibling).parent != parent:
                    continue
                for name in sorted(asked_for & (touched[sibling] | asked)):
                    mine = after(level).get(name) + proposal.requests.get(name)
                    if self._is_further_above(level, mine, sibling, after(sibling).get(name), name):
                        due = self._shares.fair(level, name)
                        return claimant_more_saturated(level, sibling, name, mine=mine, due=due)
        return ALLOW

    def _is_further_above(
        self, level: str, mine: int, sibling: str, theirs: int, name: str
    ) -> bool:
        """Whether level is over its share, and more so than the sibling is. Exact."""
        due, their_due = self._shares.fair(level, name), self._shares.fair(sibling, name)
        if mine <= due or not their_due:
            return False
        return mine * self._saturation * their_due >= theirs * due * PERCENT

    def _cannot_be_taken_back(self, proposal: Proposal, after: Held) -> Verdict:
        """The victims, submitted again, must not be able to take the room back."""
        claimant = proposal.claimant
        gained = dict.fromkeys(self.path_of(claimant), proposal.requests)

        def held(queue: str) -> Resources:
            return after(queue).plus(gained.get(queue, NOTHING))

        lost: dict[str, tuple[Gang, Resources]] = {}
        for chunk in proposal.chunks:
            key = str(chunk.victim.key)
            before = lost.get(key, (chunk.victim, NOTHING))[1]
            lost[key] = (chunk.victim, before.plus(chunk.released))
        for key, (victim, taken) in sorted(lost.items()):
            theirs, mine = self._levels_below_common_ancestor(victim, claimant)
            claim = ReclaimRequest(theirs, taken, self._shares.deciding(taken))
            rights = self.rights_of(claim, held)
            if self._may_take_chunk(claim, mine, proposal.requests, held=held, rights=rights):
                return wait(
                    Reason.WAITING_FOR_QUOTA,
                    "gang {key} could take the room back at once, so it is not taken",
                    key=key,
                )
        return ALLOW

    # -- reading ---------------------------------------------------------------------------
    def path_of(self, gang: Gang) -> tuple[str, ...]:
        """Levels of a gang's queue, from the leaf up; none for a queue that hangs in the air."""
        path = self._paths.get(gang.queue)
        if path is None:
            node = self._view.queue(gang.queue)
            path = node.path if node is not None and node.rooted else ()
            self._paths[gang.queue] = path
        return path

    def _queue(self, name: str) -> Queue:
        node = self._view.queue(name)
        assert node is not None, "a path names queues that exist"
        return node.queue

    def _levels_below_common_ancestor(
        self, one: Gang, other: Gang
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The levels of both below their lowest common ancestor; empty for one of the same line."""
        return levels_below_common_ancestor(self.path_of(one), self.path_of(other))

    def _guarantee_of(self, level: str) -> Resources:
        node = self._view.queue(level)
        return node.guarantee if node is not None else NOTHING

    def _held_after(self, proposal: Proposal) -> Held:
        gone: dict[str, Resources] = {}
        for chunk in proposal.chunks:
            for name in self.path_of(chunk.victim):
                gone[name] = gone.get(name, NOTHING).plus(chunk.released)

        def after(queue: str) -> Resources:
            return less(self._view.staying(queue), gone.get(queue, NOTHING))

        return after
