"""Runs of equal claims, about which policies are asked once: as if the last of the run were made.

Equal claims are of equal gangs for victims of the same kinds, so that each moves the accounts of the same
queues by the same amounts. Where all policies are monotone (``Hooks.monotone_claims``), what they allow while the
claimant's queues hold most and all others least, they allow at every moment of the run. So they are asked about
that ahead of time, for all runs together that are under way; what they refuse there says nothing, and is asked
again at once about a quarter as many, at last about the one that is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Final

from gpusched.api.gang.pod_group import GangTerms
from gpusched.api.gang.running_kind import RunningKind
from gpusched.api.meta.resources import Resources
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.node_sets import NodeSet
from gpusched.session.framework.proposal import RECLAIM, Chunk, Proposal, allowed_victims
from gpusched.session.framework.verdict import Verdict, first_refusal
from gpusched.session.preempt.claims.giving_order import eviction_steps
from gpusched.session.preempt.claims.stability import ChainCheck
from gpusched.session.preempt.claims.swaps import Swaps
from gpusched.session.preempt.victim_pool import VictimGroup
from gpusched.session.preempt.victim_selection import ClaimantClass, VictimSelector
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Assignment, EvictOperation

AHEAD_FIRST: Final = 8
"""Claims of a run that are asked about together at first; more, fourfold, where policies allow them."""
AHEAD_MAX: Final = 512
RUNS_MAX: Final = 8
"""Runs under way at once: each is asked about again where another begins."""


class ClaimResult(Enum):
    """How a claim of victims that were chosen ended."""

    CLAIMED = "claimed"
    REFUSED = "refused"
    """A policy objects to a victim, which is excluded now."""
    UNSTABLE = "unstable"
    """A victim would have a third gang evicted, and is excluded now."""
    STANDS = "stands"
    """Nothing is in the way of a claim that was only looked at."""
    NO_PLACE = "no place"
    LEFT = "left to the next session"
    """It would take back no start of this session, and is no late claim therefore."""


ENDS_SEARCH: Final = frozenset({ClaimResult.CLAIMED, ClaimResult.LEFT})
REFUSALS: Final = frozenset({ClaimResult.REFUSED, ClaimResult.UNSTABLE})

Checks = Sequence[Callable[[Gang], Verdict]]
Path = tuple[str, ...]
"""Names of accounts of queues, from the leaf up."""


@frozen(slots=True)
class _Equal:
    """What equal claims have in common.

    Attributes:
        kind: class of the claimants.
        sizes: how many members there are, and how many start.
        terms: of the claimants.
        path: of the claimants.
        victims: kinds of those that leave, with their paths.
    """

    kind: ClaimantClass
    sizes: tuple[int, ...]
    terms: GangTerms
    path: Path
    victims: tuple[tuple[RunningKind, Path], ...]


@define(eq=False)
class _Run:
    """Equal claims of which one was made.

    Attributes:
        kind: class of the claimants.
        sizes: how many members of theirs there are, and how many start.
        claimant: of the one about which policies were asked last.
        lost: paths, and amounts that are taken off them with each.
        moves: by how much each moves accounts, by account and resource.
        path: of the claimants.
        chunks: in which the victims of that one leave.
        left: claims that come next and are allowed.
        ahead: how many to ask about next.
        freely: whether limits on losses, and quotas as long as nobody leaves, are in the way of none of those that come next.
    """

    kind: ClaimantClass
    sizes: tuple[int, ...]
    claimant: Gang
    lost: Sequence[tuple[Path, Resources]]
    moves: Mapping[tuple[str, str], int]
    path: Path
    chunks: tuple[Chunk, ...] = ()
    left: int = 0
    ahead: int = AHEAD_FIRST
    freely: bool = False

    @property
    def victims(self) -> list[Gang]:
        """Gangs that leave."""
        return list({chunk.victim.key: chunk.victim for chunk in self.chunks}.values())


class ClaimRuns:
    """See the module. One for each action of a session.

    Args:
        session: in which is evicted.
        victims: of the session.
        action: ``preempt`` or ``reclaim``.
        chooser: of victims.
        chains: gives who knows which victims would have others evicted.
        known: whether policies have the last word: not where claims are supposed, or take back starts.
    """

    def __init__(
        self,
        session: Session,
        victims: Victims,
        action: str,
        *,
        chooser: VictimSelector,
        chains: Callable[[], ChainCheck],
        known: bool = True,
    ) -> None:
        self._session = session
        self._victims = victims
        self._action = action
        self._chooser = chooser
        self._chains = chains
        self._possible = (
            known
            and action == RECLAIM
            and session.hooks.all_monotone
            and session.queue_accounts.pools is None  # what is held there differs with the node
        )
        self._runs: dict[int, _Run] = {}
        """By the ``id`` of what their claims have in common."""
        self._equals: dict[_Equal, _Equal] = {}
        self._known_equals: dict[Hashable, tuple[GangTerms, _Equal]] = {}
        """The same by the ``id`` of terms, and these with it, so that no other gets their ``id``: hashing terms costs."""
        self._swaps = Swaps(session, victims, chooser)
        self._asked: tuple[_Equal, Gang, Sequence[VictimGroup]] | None = None
        self._joined = False
        self._claims = -1
        """Nominations of the session after the last claim; others end all runs."""

    def may_claim(self, gang: Gang, claimant: Gang, kind: ClaimantClass, checks: Checks) -> bool:
        """Whether checks allow a gang to claim: within a run, those of policies have done so ahead of time.

        Args:
            gang: that waits.
            claimant: the same with those members alone that others may be evicted for.
            kind: its class.
            checks: of the action.
        """
        hooks = self._session.hooks
        known = (
            checks is hooks.reclaim_checks
            and claimant is gang
            and self._claims == len(self._session.nominations.plans)
            and any(
                run.left and run.kind == kind and run.sizes == _sizes(gang)
                for run in self._runs.values()
            )
        )
        if known and not hooks.guard.compares_lists:
            return True
        allowed = not first_refusal(checks, gang).refuses
        if known and not allowed:
            hooks.faults.append(f"monotone policies refuse {gang.key} what they allow later")
        return allowed

    def choose_victims(
        self,
        claimant: Gang,
        kind: ClaimantClass,
        need: int,
        areas: Sequence[NodeSet],
        *,
        quick: bool = False,
    ) -> list[VictimGroup] | None:
        """The victims that the chooser chooses; within a run it need not be told what queues may lose."""
        if self._loses_freely(kind):
            chosen = self._chooser.choose_victims(claimant, kind, need, areas, freely=True)
            if chosen is not None and self.joins(claimant, kind, chosen):
                return chosen
        return self._chooser.choose_victims(claimant, kind, need, areas, quick=quick)

    def choose_swap(
        self, gang: Gang, claimant: Gang, kind: ClaimantClass
    ) -> list[VictimGroup] | None:
        """The victim that would be chosen, where a run goes on with a claimant that gets its very place; else None."""
        if not self._loses_freely(kind):
            return None
        chosen = self._swaps.next_victim(gang, claimant, kind)
        return chosen if chosen is not None and self.joins(claimant, kind, chosen) else None

    def _loses_freely(self, kind: ClaimantClass) -> bool:
        """Whether neither limits on losses nor quotas are in the way of claimants of a class."""
        return self._claims == len(self._session.nominations.plans) and any(
            run.left and run.freely and run.kind == kind for run in self._runs.values()
        )

    def joins(self, claimant: Gang, kind: ClaimantClass, chosen: Sequence[VictimGroup]) -> bool:
        """Whether policies allow a claim as one of a run of equal ones; False says nothing."""
        if self._asked is not None and self._asked[2] is chosen:
            return self._joined  # it was asked when they were chosen
        about = self._equal_claim(claimant, kind, chosen)
        self._asked = None if about is None else (about, claimant, chosen)
        if self._claims != len(self._session.nominations.plans):
            self._end_runs()
        run = None if about is None else self._runs.get(id(about))
        self._joined = run is not None and self._continues(run, claimant, chosen)
        return self._joined

    def note_claim(self, evictions: Sequence[EvictOperation], places: Sequence[Assignment]) -> None:
        """The claim that was asked about last was made, with these evictions and places."""
        self._claims = len(self._session.nominations.plans)
        self._swaps.note_claim(evictions, places)
        if not self._joined:
            self._end_runs()  # it moved accounts further than anybody was asked about
        if self._asked is None:
            return
        about, claimant, chosen = self._asked
        if len(places) != claimant.members_at_start:
            self._end_runs()
            return
        run = self._runs.get(id(about))
        if run is not None:
            run.left = max(0, run.left - 1)
        elif len(self._runs) < RUNS_MAX:
            lost = [
                (path, seat.member.pod.pod_class.charged)
                for part, (_, path) in zip(chosen, about.victims, strict=True)
                for seat in part.seats
            ]
            moves = _moves(about.path, [each.pod.pod_class.charged for each in places], lost)
            self._runs[id(about)] = _Run(about.kind, about.sizes, claimant, lost, moves, about.path)

    def _end_runs(self) -> None:
        self._swaps.end()
        for run in self._runs.values():
            if run.left:  # shorter than it seemed
                run.left, run.ahead = 0, min(run.ahead, AHEAD_FIRST)

    def _continues(self, run: _Run, claimant: Gang, chosen: Sequence[VictimGroup]) -> bool:
        """Whether a run goes on with this claim."""
        hooks = self._session.hooks
        if run.left and not hooks.guard.compares_lists:
            return True
        if not (run.left or run.ahead):
            return False
        steps = eviction_steps(self._session, claimant, self._victims, chosen)
        run.claimant, run.chunks = claimant, tuple(each for _, some in steps for each in some)
        if run.left:
            allowed = self._allows(run, ())
            if not allowed:
                hooks.faults.append(
                    f"monotone policies refuse {claimant.key} what they allow later"
                )
            return allowed
        while run.ahead:
            run.left = run.ahead
            if self._allows_ahead():
                run.ahead = min(4 * run.ahead, AHEAD_MAX)
                return True
            run.left, run.ahead = 0, run.ahead // 4
        return False

    def _equal_claim(
        self, claimant: Gang, kind: ClaimantClass, chosen: Sequence[VictimGroup]
    ) -> _Equal | None:
        """What a claim has in common with others; None where it can have no equal."""
        if not self._possible or not chosen or len(claimant.pod_sets) != 1 or claimant.is_lasting:
            return None  # what cannot be taken back is counted beside the rest
        victims = []
        for part in chosen:
            what = part.gang.running_kind
            if what is None:
                return None
            victims.append((what, self._session.queue_path(part.gang)))
        sizes, terms, path = _sizes(claimant), claimant.terms, self._session.queue_path(claimant)
        key = (kind, sizes, id(terms), path, *victims)
        known = self._known_equals.get(key)
        if known is None:
            about = _Equal(kind, sizes, terms, path, tuple(victims))
            known = self._known_equals[key] = (terms, self._equals.setdefault(about, about))
        return known[1]

    # -- asking ------------------------------------------------------------------------------
    def _allows_ahead(self) -> bool:
        """Whether policies allow a claim of each run under way, however many of all were made before it."""
        left = [(run, run.left) for run in self._runs.values() if run.left]
        return all(
            self._allows(run, [(each, count - (each is run)) for each, count in left])
            for run, _ in left
        )

    def _allows(self, run: _Run, before: Sequence[tuple[_Run, int]]) -> bool:
        """Whether policies allow a claim of a run after any of so many claims of runs."""
        hooks, claimant, gangs = self._session.hooks, run.claimant, run.victims
        asked = self._session.view.minimum(claimant)
        proposal = Proposal(claimant=claimant, requests=asked, chunks=run.chunks)
        gone = [(path, amounts, -1) for path, amounts in run.lost]
        with self._assume(before, more_on=run.path):
            if first_refusal(hooks.reclaim_checks, claimant).refuses:
                return False
            if allowed_victims(hooks.victim_filters, claimant, gangs, self._action) != gangs:
                return False
            if first_refusal(hooks.reclaim_gates, proposal).refuses:
                return False
            quotas = (*hooks.quota_checks, *hooks.reserve_checks)
            freely = self._chooser.loses_freely(claimant, run.kind)
            run.freely = freely and not first_refusal(hooks.quota_checks, claimant).refuses
            with self._session.queue_accounts.assume_moves(gone):
                if first_refusal(quotas, claimant).refuses:
                    return False
        if not hooks.stable.chains:
            return True
        for gang in gangs:  # for whom it counts what they hold least, and others most
            path = self._session.queue_path(gang)
            with self._assume([*before, (run, 1)], less_on=path):
                if self._chains().may_claim_again(gang):
                    return False
        return True

    def _assume(
        self,
        claims: Sequence[tuple[_Run, int]],
        *,
        more_on: Path = (),
        less_on: Path | None = None,
    ) -> AbstractContextManager[None]:
        """Inside, accounts hold what any of these claims can make of them at worst.

        Args:
            claims: runs, and how many claims of each.
            more_on: accounts that hold more, where all others hold less.
            less_on: accounts that hold less, where all others hold more.
        """
        sums: Counter[tuple[str, str]] = Counter()
        for run, count in claims:
            for (name, resource), amount in run.moves.items() if count else ():
                grows = name in more_on if less_on is None else name not in less_on
                if grows == (amount > 0):
                    sums[name, resource] += count * amount
        moves = [
            ((name,), Resources.of({resource: abs(amount)}), 1 if amount > 0 else -1)
            for (name, resource), amount in sums.items()
        ]
        return self._session.queue_accounts.assume_moves(moves)


def _sizes(claimant: Gang) -> tuple[int, ...]:
    """How many members a claimant has, and how many start."""
    least = (claimant.min_member, claimant.expected_count, claimant.members_at_start)
    return (*least, *(len(each.pods) for each in claimant.pod_sets))


def _moves(
    path: Path, gained: Iterable[Resources], lost: Iterable[tuple[Path, Resources]]
) -> Mapping[tuple[str, str], int]:
    """By how much one claim moves accounts, by account and resource."""
    moved: Counter[tuple[str, str]] = Counter()
    for names, amounts, sign in (
        *((path, amounts, 1) for amounts in gained),
        *((names, amounts, -1) for names, amounts in lost),
    ):
        for name in names:
            for resource, amount in amounts.items:
                moved[name, resource] += sign * amount
    return moved
