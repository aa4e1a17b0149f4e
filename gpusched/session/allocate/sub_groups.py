"""Gangs in parts: each sub-group starts with its own minimum or not at all, in its own domain.

Sub-groups compete for nodes, so their order matters: a bounded search goes through orders and
domains, the first that works is taken. What it tries is counted, never timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from gpusched.api.gang.pod_group import SubGroup
from gpusched.arrays.columns import Bools
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.framework.reasons import pods_text, shorten
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

_TRIES_MAX: Final = 400
"""Attempts to place one sub-group in one domain, for one gang in one session."""

MemberCounts = list[tuple[PodSet, int]]
PlaceAll = Callable[[Session, MemberCounts, Statement, Bools | None], bool]
"""Places all of it inside these rows (None: anywhere), or nothing and answers False."""


@attrs.define
class _SubGroupSearch:
    """One gang in one area.

    Attributes:
        best: the most sub-groups that were complete at a time.
        stuck: a sub-group that found no place then.
    """

    session: Session
    gang: Gang
    statement: Statement
    rows: Bools | None
    place_all: PlaceAll
    tries: int = 0
    best: int = -1
    stuck: SubGroup | None = None

    def run(self) -> bool:
        """Whether the gang's minimum got its places."""
        lacking = [part for part in self.gang.sub_groups if self.gang.missing_in_sub_group(part)]
        done = len(self.gang.sub_groups) - len(lacking)
        # Those with members that run come first: without them nothing else is of use.
        started = Counter(member.pod.sub_group for member in self.gang.placed)

        def order(part: SubGroup, sign: int) -> tuple[bool, int, str]:
            return (not started[part.name], sign * self.gang.missing_in_sub_group(part), part.name)

        for sign in (-1, 1):
            if self._complete_sub_groups(sorted(lacking, key=lambda part: order(part, sign)), done):
                return True
        return False

    def _complete_sub_groups(self, parts: Sequence[SubGroup], done: int) -> bool:
        """Complete enough of these parts, given how many are complete."""
        if done >= self.gang.min_sub_groups:
            return self._rest()
        if done + len(parts) < self.gang.min_sub_groups:
            return False
        if done > self.best:
            self.best, self.stuck = done, parts[0]
        part, others = parts[0], parts[1:]
        chosen = members_to_complete(self.gang, part)
        for rows in self._domains(part, chosen) if chosen else ():
            self.tries += 1
            if self.tries > _TRIES_MAX:
                return False
            mark = self.statement.checkpoint()
            if self.place_all(self.session, chosen, self.statement, rows):
                if self._complete_sub_groups(others, done + 1):
                    return True
                self.statement.rollback(mark)
        return self._complete_sub_groups(others, done)

    def _domains(self, part: SubGroup, chosen: MemberCounts) -> Iterator[Bools | None]:
        return sub_group_rows(self.session, self.gang, part, self.rows, chosen)

    def _rest(self) -> bool:
        """Members beyond the sub-groups' minima: roles first, then any until there are enough."""
        taken = Counter(id(place.pod) for place in self.statement.assignments)
        placed = len(self.statement.assignments)
        roles = Counter(place.pod.role for place in self.statement.assignments)
        left = {
            index: [pod for pod in pod_set.pods if not taken[id(pod)]]
            for index, pod_set in enumerate(self.gang.pod_sets)
            if not pod_set.sub_group or pod_set.sub_group in self._complete()
        }
        wanted: MemberCounts = []
        for role, lacking in self.gang.missing_roles:
            missing = lacking - roles[role]
            for index, pods in left.items():
                pod_set = self.gang.pod_sets[index]
                if pod_set.role == role and missing > 0 and pods:
                    count = min(missing, len(pods))
                    wanted.append((attrs.evolve(pod_set, pods=tuple(pods[:count])), count))
                    left[index] = pods[count:]
                    missing -= count
            if missing > 0:
                return False
        need = self.gang.min_member - self.gang.ready_members - placed - sum(n for _, n in wanted)
        for index, pods in left.items():
            count = min(max(0, need), len(pods))
            if count:
                pod_set = self.gang.pod_sets[index]
                wanted.append((attrs.evolve(pod_set, pods=tuple(pods[:count])), count))
                need -= count
        return need <= 0 and self._place_extra_members(wanted)

    def _place_extra_members(self, wanted: MemberCounts) -> bool:
        """Place members beyond the minima, each where the others of its sub-group have to be."""
        mark = self.statement.checkpoint()
        parts = {part.name: part for part in self.gang.sub_groups}
        bound = {name for name, part in parts.items() if part.topology.required}
        by_part: dict[str, MemberCounts] = {}
        for pod_set, count in wanted:
            name = pod_set.sub_group if pod_set.sub_group in bound else ""
            by_part.setdefault(name, []).append((pod_set, count))
        for name in sorted(by_part, key=lambda each: (not each, each)):
            rows = self._rows_of_required_domain(parts[name]) if name else [self.rows]
            if not any(
                self.place_all(self.session, by_part[name], self.statement, each) for each in rows
            ):
                self.statement.rollback(mark)
                return False
        return True

    def _rows_of_required_domain(self, part: SubGroup) -> list[Bools | None]:
        """Where more members of a sub-group with a required level may be."""
        level = next((x for x in self.session.levels if x.name == part.topology.required), None)
        if level is None:
            return []
        rows = _rows_of_placed_members(self.session, self.gang, part)
        rows += [each.row for each in self.statement.assignments if each.pod.sub_group == part.name]
        homes = {int(level.domain[row]) for row in rows}
        if len(homes) > 1:
            return []
        numbers = sorted(homes) or list(range(len(level.names)))
        found = [level.domain == number for number in numbers if number < len(level.names)]
        return [each if self.rows is None else each & self.rows for each in found]

    def _complete(self) -> set[str]:
        have = Counter(dict(self.gang.ready_sub_groups))
        have.update(place.pod.sub_group for place in self.statement.assignments)
        return {part.name for part in self.gang.sub_groups if have[part.name] >= part.min_member}


def place_sub_groups(
    session: Session,
    gang: Gang,
    statement: Statement,
    *,
    areas: Sequence[Bools | None],
    place_all: PlaceAll,
) -> str | None:
    """Place the minimum of a gang that has sub-groups, or nothing.

    Args:
        session: on whose nodes.
        gang: with sub-groups.
        statement: takes the places.
        areas: rows of each area in which the gang may be, best first; None for all.
        place_all: places members of equal right.

    Returns:
        None when it was placed, else how far the best attempt came, as a sentence.
    """
    best: _SubGroupSearch | None = None
    for rows in areas:
        search = _SubGroupSearch(session, gang, statement, rows, place_all)
        mark = statement.checkpoint()
        if search.run():
            return None
        statement.rollback(mark)
        if best is None or search.best > best.best:
            best = search
    return _shortfall_message(session, gang, best)


def unknown_sub_group_message(gang: Gang) -> str:
    """That pods name a sub-group that the gang does not have; empty when none does."""
    known = {part.name for part in gang.sub_groups}
    strange = sorted({pod_set.sub_group for pod_set in gang.pod_sets if pod_set.sub_group} - known)
    if not strange or not known:
        return ""
    names = ", ".join(sorted(known))
    return (
        f"pods name sub-group {shorten(strange[0])!r}, which spec.subGroups does not have: {names}"
    )


def _shortfall_message(session: Session, gang: Gang, best: _SubGroupSearch | None) -> str:
    need, parts = gang.min_sub_groups, len(gang.sub_groups)
    if best is None or best.stuck is None:
        return f"needs {pods_text(gang.missing_members)} in {need} of {parts} sub-groups; there is no room for all"
    part = best.stuck
    waiting = sum(len(pod_set.pods) for pod_set in gang.pod_sets if pod_set.sub_group == part.name)
    lacks = gang.missing_in_sub_group(part)
    text = f"needs {need} of {parts} sub-groups complete; {max(0, best.best)} can be"
    if waiting < lacks:
        return f"{text}; sub-group {shorten(part.name)} needs {pods_text(lacks)} more and has {waiting}"
    where = f" in one {shorten(part.topology.required)}" if part.topology.required else ""
    text = f"{text}; sub-group {shorten(part.name)} finds no room for {pods_text(lacks)}{where}"
    return f"{text}{_roomiest_domain_text(session, gang, part)}{_common_level_text(gang)}"


def _roomiest_domain_text(session: Session, gang: Gang, part: SubGroup) -> str:
    """The domain of its level that comes nearest, where none would hold the sub-group even alone."""
    level = next((each for each in session.levels if each.name == part.topology.required), None)
    pod_sets = [pod_set for pod_set in gang.pod_sets if pod_set.sub_group == part.name]
    if level is None or not level.names or len(pod_sets) != 1:
        return ""
    lacks = gang.missing_in_sub_group(part)
    class_fit = session.class_info(pod_sets[0].pod_class).class_fit
    rooms = [
        class_fit.total(level.domain == number, most=lacks) for number in range(len(level.names))
    ]
    best = max(range(len(rooms)), key=lambda number: (rooms[number], -number))
    if rooms[best] >= lacks:
        return ""
    return f"; best {shorten(level.name)} {level.names[best]} has room for {rooms[best]}"


def _common_level_text(gang: Gang) -> str:
    required = gang.topology.required
    return f"; all sub-groups must be in one {shorten(required)}" if required else ""


def members_to_complete(gang: Gang, part: SubGroup) -> MemberCounts:
    """Pods that complete a sub-group, largest class first; empty when too few exist."""
    missing = gang.missing_in_sub_group(part)
    chosen: MemberCounts = []
    for pod_set in gang.pod_sets:
        if pod_set.sub_group == part.name and missing > 0:
            count = min(missing, len(pod_set.pods))
            chosen.append((pod_set, count))
            missing -= count
    return [] if missing > 0 else chosen


def sub_group_rows(
    session: Session, gang: Gang, part: SubGroup, rows: Bools | None, chosen: MemberCounts
) -> Iterator[Bools | None]:
    """Where a sub-group may sit inside the gang's rows, tightest domain that fits first."""
    wish = part.topology
    name = wish.required or wish.preferred
    level = next((each for each in session.levels if each.name == name), None)
    if not name:
        yield rows
        return
    if level is not None:
        homes = _rows_of_placed_members(session, gang, part)
        fixed = {int(level.domain[row]) for row in homes}
        numbers = sorted(fixed) if fixed else list(range(len(level.names)))
        found: list[tuple[int, int, Bools]] = []
        for number in numbers if len(fixed) <= 1 else []:
            inside = level.domain == number
            inside = inside if rows is None else inside & rows
            class_fits = [
                (session.class_info(pod_set.pod_class).class_fit, count)
                for pod_set, count in chosen
            ]
            if all(class_fit.total(inside, most=count) >= count for class_fit, count in class_fits):
                spare = sum(class_fit.total(inside, most=2**20) for class_fit, _ in class_fits)
                found.append((spare, number, inside))
        for _, _, inside in sorted(found, key=lambda each: each[:2]):
            yield inside
    if not wish.required:
        yield rows


def _rows_of_placed_members(session: Session, gang: Gang, part: SubGroup) -> list[int]:
    """Rows of its members that have places."""
    row_of = session.snapshot.nodes.row
    rows = [
        row_of[each.node]
        for each in gang.placed
        if each.pod.sub_group == part.name and each.node in row_of
    ]
    return rows + [
        place.row for place in session.placements.assigned(gang) if place.pod.sub_group == part.name
    ]
