"""The types of GPUs that a gang gets: one before several, then what costs the cluster least.

The types are the first terms of what is compared between places: ``gpu types`` (of how many its
GPUs are), then ``lost throughput`` (by the slowest of them, see ``throughput``), then ``gpu weight``
where GPUs of some types weigh more in queues. Each candidate is a
set of types on whose nodes the same search as ever looks for the best place. Candidates are tried
from the best on: the first with a place is the best, and those before it have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, groupby
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import SearchOutcome, Term
from gpusched.session.framework.reasons import Reason, shorten, truncate_message
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.gpu_types.competition import type_competition
from gpusched.session.gpu_types.options import (
    GpuTypeOption,
    GpuTypeRefusal,
    find_contradiction,
    gpu_type_options,
    must_be_of_one_type,
    placed_gpu_rows,
    takes_gpus,
)
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

TYPES_TERM: Final = "gpu types"
THROUGHPUT_TERM: Final = "lost throughput"
WEIGHT_TERM: Final = "gpu weight"
MIXTURES_MAX: Final = 8
"""Sets of several types that are searched for one gang before it gets any; each may cost a search."""
_REFUSALS_NAMED_MAX: Final = 3

Place = Callable[[], "GpuTypeRefusal | None"]
"""Gives places to a gang on the nodes it is confined to, or says why there are none."""


@frozen(slots=True, kw_only=True)
class TypeSet:
    """Types of GPUs that a gang may get together.

    Attributes:
        options: of the gang, at least one.
        lost: throughput lost by the slowest of them, in thousandths of a GPU.
        weight: of the heaviest of them in queues, in thousandths.
    """

    options: tuple[GpuTypeOption, ...]
    lost: int
    weight: int

    @property
    def types(self) -> tuple[int, ...]:
        """Numbers of the products, ascending."""
        return tuple(sorted(number for each in self.options for number in each.types))


def place_on_best_types(
    session: Session, gang: Gang, statement: Statement, place: Place
) -> GpuTypeRefusal | None:
    """Place a gang on the best types of GPUs that have room for it.

    Args:
        session: whose nodes are looked at.
        gang: for which types make a difference, see ``chooses_gpu_types``.
        statement: takes the places.
        place: called with the session confined to some types.
    """
    options = gpu_type_options(session, gang)
    if isinstance(options, GpuTypeRefusal):
        return options
    refusal = find_contradiction(session, gang, options)
    if refusal is not None:
        return refusal
    search = _TypeSearch(session, gang, statement, place, options)
    if gang.terms.gpu_types.same_type is False:
        return search.by_speed_alone()
    return search.few_types_first()


@frozen(slots=True, eq=False)
class _Found:
    """Places that were found on a set of types.

    Attributes:
        used: number of the gang's types that they are on.
        members: that have them; more than it starts with where it may grow.
        proof: how good they are among those on these types, as ``Statement.proof``.
        terms: of their objective; empty where nothing was compared.
    """

    types: TypeSet
    used: int
    members: int
    proof: str
    terms: tuple[Term, ...]


class _TypeSearch:
    """The search of one gang's places, one set of types after another."""

    def __init__(
        self,
        session: Session,
        gang: Gang,
        statement: Statement,
        place: Place,
        options: tuple[GpuTypeOption, ...],
    ) -> None:
        self._session = session
        self._gang = gang
        self._statement = statement
        self._place = place
        self._options = options
        lost = type_competition(session).lost_by_option(gang, options)
        self._lost = dict(zip(options, lost, strict=True))
        taken = session.gpu_types.types_on(placed_gpu_rows(session, gang))
        self._base = tuple(each for each in options if not set(taken).isdisjoint(each.types))
        """Types of members that have places already."""
        session.types_given.pop(gang.key, None)
        pools = session.queue_accounts.pools
        self._weighed = pools if pools is not None and pools.weighs_gpu_types else None
        self._start = statement.checkpoint()
        weights = session.gpu_types.weights
        self._least_weight = min(weights[number] for each in options for number in each.types)
        """What the gang was asked about already is that its GPUs weigh no more."""
        self._proven = True
        """Whether every set that was given up is proven to have no place."""
        self._refused: dict[TypeSet, GpuTypeRefusal] = {}
        self._mixtures_left = MIXTURES_MAX

    def few_types_first(self) -> GpuTypeRefusal | None:
        """Sets of types from the fewest on; that of placed members alone, if it must be of one."""
        if self._take_first(
            [[self._set_of(self._base)]] if self._base else self._candidate_sets(1)
        ):
            return None
        if must_be_of_one_type(self._session, self._gang, self._options):
            return self._refusal_of_one_type()
        every = self._set_of(self._options)
        if every not in self._refused and self._try_types(every) is not None:
            # There is room on all of them: as few as possible, as long as that is searched for.
            for more in range(1 if self._base else 2, len(self._options) - len(self._base) + 1):
                if self._take_first(self._candidate_sets(more)):
                    return None
            self._proven = False
            found = self._try_types(every)
            if found is not None:
                self._complete_result(found, [found])
                return None
        return self._refused[every]

    def by_speed_alone(self) -> GpuTypeRefusal | None:
        """Types from the best on, and as many of them as it takes."""
        ranked = sorted(self._options, key=lambda each: self._lost[each])
        sets = [
            self._set_of(ranked[:count])
            for count in range(1, len(ranked) + 1)
            if count == len(ranked) or self._lost[ranked[count]] > self._lost[ranked[count - 1]]
        ]
        for each in sets:
            found = self._try_types(each)
            if found is not None:
                self._complete_result(found, [found])
                return None
        return self._refused[sets[-1]]

    # -- sets of types ---------------------------------------------------------------------
    def _set_of(self, options: Sequence[GpuTypeOption]) -> TypeSet:
        ordered = tuple(sorted(options, key=lambda each: each.types))
        weights = self._session.gpu_types.weights
        return TypeSet(
            options=ordered,
            lost=max(self._lost[each] for each in ordered),
            weight=max(weights[number] for each in ordered for number in each.types),
        )

    def _candidate_sets(self, more: int) -> Iterator[list[TypeSet]]:
        """Sets with so many types beside those of placed members; those that lose equally together."""
        others = [each for each in self._options if each not in self._base]
        found = [self._set_of((*self._base, *chosen)) for chosen in combinations(others, more)]
        found.sort(key=lambda each: (each.lost, each.weight, each.types))
        for _, group in groupby(found, key=lambda each: (each.lost, each.weight)):
            yield list(group)

    # -- trying ----------------------------------------------------------------------------
    def _take_first(self, groups: Iterable[list[TypeSet]]) -> bool:
        """Take the best place of the first group with one: its sets are equally good types."""
        for group in groups:
            if len(group) > 1 and len(group[0].options) == 1:
                # Where the best place of all is on one of them, it is the best of each.
                every = self._set_of([option for each in group for option in each.options])
                together = self._try_types(every)
                if together is None:
                    continue
                if together.used == 1:
                    self._complete_result(together, [together])
                    return True
            found = [each for each in map(self._try_mixture, group) if each is not None]
            if found:
                best = min(
                    found, key=lambda each: (-each.members, [term.value for term in each.terms])
                )
                if best is not found[-1] or len(found) < len(group):
                    self._try_types(best.types)
                self._complete_result(best, found)
                return True
            if self._mixtures_left <= 0:
                return False
        return False

    def _try_mixture(self, types: TypeSet) -> _Found | None:
        if len(types.options) > 1 and types.options != self._base:
            self._mixtures_left -= 1
            if self._mixtures_left < 0:
                self._proven = False
                return None
        return self._try_types(types)

    def _try_types(self, types: TypeSet) -> _Found | None:
        """Place the gang on these types, in place of where it was; None and no place where it cannot be."""
        session, statement = self._session, self._statement
        statement.rollback(self._start)
        statement.proof, statement.terms = "", ()
        searches = len(session.searches)
        refusal = self._beyond_quota(types)
        if refusal is None:
            with session.confined_to_gpu_types(types.types):
                refusal = self._place()
        if refusal is None:
            members = len(statement.assignments)
            used = self._options_used()
            return _Found(types, used, members, statement.proof, statement.terms)
        statement.rollback(self._start)
        self._refused[types] = refusal
        if any(each.outcome is SearchOutcome.UNKNOWN for each in session.searches[searches:]):
            self._proven = False
        return None

    def _beyond_quota(self, types: TypeSet) -> GpuTypeRefusal | None:
        """Whether quotas forbid the gang GPUs that weigh as much as the heaviest of these."""
        if self._weighed is None or types.weight == self._least_weight:
            return None
        with self._weighed.assuming_gpu_weight(types.weight):
            # Another object: what a gang requests is known by its identity.
            asked = attrs.evolve(self._gang)
            verdict = first_refusal(self._session.hooks.quota_checks, asked)
        return GpuTypeRefusal(Reason(verdict.reason), verdict.message) if verdict.refuses else None

    def _options_used(self) -> int:
        """Number of types that the gang's GPUs are of, those of placed members included."""
        used = set(self._types_used())
        return sum(1 for each in self._options if not used.isdisjoint(each.types))

    def _types_used(self) -> tuple[int, ...]:
        rows = [each.row for each in self._statement.assignments if takes_gpus(each.pod.pod_class)]
        rows += placed_gpu_rows(self._session, self._gang)
        return self._session.gpu_types.types_on(rows)

    # -- the answer ------------------------------------------------------------------------
    def _complete_result(self, best: _Found, equal: Sequence[_Found]) -> None:
        """Put the terms of types before the others, and say what is proven of them all.

        Args:
            best: what the statement has.
            equal: what was found on all sets that are as good, with the best.
        """
        statement, lost = self._statement, best.types.lost
        terms = [Term(THROUGHPUT_TERM, lost, lost if self._proven else 0)]
        if self._weighed:
            weight = best.types.weight
            terms.append(Term(WEIGHT_TERM, weight, weight if self._proven else 0))
        if self._gang.terms.gpu_types.same_type is not False:
            least = best.used if self._proven else max(1, len(self._base))
            terms.insert(0, Term(TYPES_TERM, best.used, least))
        statement.terms = (*terms, *best.terms)
        self._session.types_given[self._gang.key] = self._types_used()
        statement.proof = best.proof
        if not best.proof:
            return
        for term in terms:
            if term.value != term.bound:
                statement.proof = f"{term.name} {term.value}, at least {term.bound}"
                return
        bounds = min([term.bound for term in each.terms] for each in equal)
        for term, bound in zip(best.terms, bounds, strict=False):
            if bound < term.value and term.bound == term.value and len(equal) > 1:
                name = term.name.removeprefix("domains:")
                statement.proof = f"{name} {term.value}, at least {bound}"
                return
            if bound != term.value:
                return

    def _refusal_of_one_type(self) -> GpuTypeRefusal:
        """Why the gang, which must be of one type, has no place on any."""
        if len(self._refused) == 1:
            return next(iter(self._refused.values()))
        singles = [(types, why) for types, why in self._refused.items() if len(types.options) == 1]
        told = singles or list(self._refused.items())
        words = [
            f"{shorten(' and '.join(each.name for each in types.options))}: {why.message}"
            for types, why in told[:_REFUSALS_NAMED_MAX]
        ]
        named = self._gang.terms.gpu_types.same_type is None
        field = "gpuTypes.speeds" if named else "gpuTypes.sameType"
        return GpuTypeRefusal(
            told[0][1].reason,
            truncate_message(f"{field}, no one type has room for it: {'; '.join(words)}"),
        )
