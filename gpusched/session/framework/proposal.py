"""What an action that evicts asks hooks: about victims one by one or all at once, and what it proposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.resources import Resources, total
from gpusched.base.classes import former_names, frozen
from gpusched.base.limits import MOVES_COST_MAX_S, MOVES_MAX
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.sort_keys import Excluded, Key, comparable_key
from gpusched.session.framework.verdict import Verdict

R = TypeVar("R")
A = TypeVar("A")

PREEMPT = "preempt"
"""Eviction inside one queue, by priority."""
RECLAIM = "reclaim"
"""Eviction across queues, by what each is due."""
CONSOLIDATE = "consolidate"
"""Eviction of gangs that have other places: they are moved."""


@frozen(slots=True)
class VictimHook(Generic[R, A]):
    """What a plugin says of victims for a claimant.

    Attributes:
        of_one: called with the claimant, one victim and the action.
        of_all: called with victims in place of one: an answer for each. None where the plugin has no
            such callable; None from it where it failed, so that victims are asked about one by one.
        alike: whether it says the same of all victims of one ``RunningKind``.
    """

    of_one: Callable[[Gang, Gang, str], R]
    of_all: Callable[[Gang, Sequence[Gang], str], Sequence[A] | None] | None = None
    alike: bool = False
    of_claimants: Callable[[Sequence[Gang], Gang, str], Sequence[A] | None] | None = None

    def __call__(self, claimant: Gang, victim: Gang, action: str) -> R:
        """Say it of one victim."""
        return self.of_one(claimant, victim, action)

    def ask_at_once(
        self, claimant: Gang, victims: Sequence[Gang], action: str
    ) -> Sequence[A] | None:
        """Answers for all victims; None where they must be asked about one by one."""
        return self.of_all(claimant, victims, action) if self.of_all is not None else None


VictimFilterHook = VictimHook[Verdict, bool]
VictimKeyHook = VictimHook[Key, Key]


def allowed_victims(
    filters: Sequence[VictimFilterHook], claimant: Gang, victims: Sequence[Gang], action: str
) -> list[Gang]:
    """Of these victims those that every filter allows, in their order."""
    left = list(victims)
    alike = [each for each in filters if each.alike]
    if alike and len(left) > 1:
        asked, places = _one_of_each_kind(left)
        allowed = set(map(id, _allowed(alike, claimant, asked, action)))
        said = [id(victim) in allowed for victim in asked]
        if False in said:
            left = [victim for victim, place in zip(left, places, strict=True) if said[place]]
        filters = [each for each in filters if not each.alike]
    return _allowed(filters, claimant, left, action)


def _allowed(
    filters: Sequence[VictimFilterHook], claimant: Gang, left: list[Gang], action: str
) -> list[Gang]:
    """The same, where each filter is asked about all that are left."""
    for each in filters:
        if not left:
            break
        said = each.ask_at_once(claimant, left, action)
        if said is None:
            said = [not each.of_one(claimant, victim, action).refuses for victim in left]
        if False in said:
            left = [victim for victim, allowed in zip(left, said, strict=True) if allowed]
    return left


def allowed_claimants(
    filters: Sequence[VictimFilterHook], claimants: Sequence[Gang], victim: Gang, action: str
) -> list[Gang]:
    """Of these claimants those to which every filter lets a victim lose something, in their order."""
    left = list(claimants)
    for each in filters:
        if not left:
            break
        said = each.of_claimants(left, victim, action) if each.of_claimants is not None else None
        if said is None:
            said = [bool(_allowed([each], claimant, [victim], action)) for claimant in left]
        if False in said:
            left = [claimant for claimant, allowed in zip(left, said, strict=True) if allowed]
    return left


def _one_of_each_kind(victims: Sequence[Gang]) -> tuple[list[Gang], list[int]]:
    """Victims, those of one kind once, and for each of all the place of the one that speaks for it."""
    asked: list[Gang] = []
    places: list[int] = []
    known: dict[RunningKind, int] = {}
    for victim in victims:
        kind = victim.running_kind
        place = len(asked) if kind is None else known.setdefault(kind, len(asked))
        if place == len(asked):
            asked.append(victim)
        places.append(place)
    return asked, places


def victim_sort_keys(
    orders: Sequence[VictimKeyHook], claimant: Gang, victims: Sequence[Gang], action: str
) -> list[Any]:
    """The key of each victim as ``joined_sort_key`` joins it; None to leave it out."""
    if len(orders) == 1:
        return _comparable_keys(orders[0], claimant, victims, action)
    keys: list[Any] = [()] * len(victims)
    for order in orders:
        asked = [number for number, key in enumerate(keys) if key is not None]
        parts = _comparable_keys(order, claimant, [victims[number] for number in asked], action)
        for number, part in zip(asked, parts, strict=True):
            keys[number] = None if part is None else (*keys[number], *part)
    return keys


def _comparable_keys(
    order: VictimKeyHook, claimant: Gang, victims: Sequence[Gang], action: str
) -> list[Any]:
    if order.alike:
        asked, places = _one_of_each_kind(victims)
        found = _keys_of_each(order, claimant, asked, action)
        return [found[place] for place in places]
    return _keys_of_each(order, claimant, victims, action)


def _keys_of_each(
    order: VictimKeyHook, claimant: Gang, victims: Sequence[Gang], action: str
) -> list[Any]:
    said = order.ask_at_once(claimant, victims, action) if victims else ()
    if said is not None:
        known = {key: comparable_key(key) for key in set(said)}
        return [known[key] for key in said]
    keys: list[Any] = []
    for victim in victims:
        try:
            keys.append(comparable_key(order.of_one(claimant, victim, action)))
        except Excluded:
            keys.append(None)
    return keys


@frozen(kw_only=True)
class Moving:
    """How much may be moved for one gang that waits.

    Attributes:
        gangs_max: gangs that are moved together at most; 0 for none.
        lost_s: bound of the work they lose in all, in seconds of the gang that waits.
    """

    gangs_max: int = MOVES_MAX
    lost_s: int = MOVES_COST_MAX_S


@frozen(kw_only=True)
class Stable:
    """Which decisions must last.

    Attributes:
        starts: whether no gang is started that a claim of the same session would evict next.
        chains: whether no gang is evicted that would have a third one evicted in turn.
        chain_wait_s: seconds after which a gang that waits may have such victims, where there are no
            others; None for never.
    """

    starts: bool = False
    chains: bool = True
    chain_wait_s: float | None = None


@frozen(kw_only=True)
class EvictionRight:
    """A right by which a gang may take from queues on one side of the tree.

    Attributes:
        frees: queues of the claimant's own, resources, and how much of each must be freed there by
            the same decision.
        above: queues of the victims, and amounts above which each gives: a step may go while the
            queue holds more than this of some resource that decides about the step. Queues that
            are not named give without such a limit.
        returns: queues, and amounts within which their gangs could claim back what they lose: with
            what a gang lost, some queue of its path must hold more than this. Gangs with no such
            queue on their path could not claim it back.
    """

    frees: tuple[tuple[str, str, int], ...] = ()
    above: tuple[tuple[str, Resources], ...] = ()
    returns: tuple[tuple[str, Resources], ...] = ()


@frozen(kw_only=True)
class EvictionLimits:
    """What a claimant's victims must respect, in amounts; ``reclaim_gate`` has the last word.

    Attributes:
        decide: resources by which steps are judged: of the first of these groups of which a step
            takes anything, those that it takes.
        frees: queues, resources, and how much must be freed there by whoever leaves.
        keeps: queues, and amounts below which none is taken.
        sides: leaf queues of each side, with the rights of which one must hold where anything is
            taken of them. A queue of no side needs no right.
    """

    decide: tuple[tuple[str, ...], ...] = ()
    frees: tuple[tuple[str, str, int], ...] = ()
    keeps: tuple[tuple[str, Resources], ...] = ()
    sides: tuple[tuple[frozenset[str], tuple[EvictionRight, ...]], ...] = ()


@frozen(slots=True, eq=False)
class Chunk:
    """One step of an eviction: members that a gang loses at once.

    A member above the minimum is a chunk of its own; what is left when a gang is stopped as a
    whole is one chunk, because no part of it runs without the rest.

    Attributes:
        victim: the gang; its queue is charged less afterwards, and so is every queue above.
        released: requests of the members that go.
    """

    victim: Gang
    released: Resources

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "Chunk",
            {
                "taken": "released",
            },
        )


@frozen(slots=True, kw_only=True, eq=False)
class Proposal:
    """Victims for a claimant, not carried out yet.

    It is judged on the accounts as they are *without* it: its victims still count as staying,
    and its claimant holds nothing of what it requests. An action therefore checks it before it
    moves anything in a statement, or after it rolled the statement back to that point.

    Attributes:
        claimant: the gang for which room is made.
        requests: what the claimant gets: its missing minimum, or one extra.
        chunks: in the order in which they go; each is judged on what those before it left.
    """

    claimant: Gang
    requests: Resources
    chunks: tuple[Chunk, ...]

    @property
    def released(self) -> Resources:
        """The sum of all chunks."""
        return total(chunk.released for chunk in self.chunks)

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "Proposal",
            {
                "asked": "requests",
                "taken": "released",
            },
        )
