"""Gangs in parts: each sub-group starts with its own minimum or not at all, in its own domain.

Sub-groups compete for nodes, so their order matters: a bounded search goes through orders and
domains, the first that works is taken. What it tries is counted, never timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.gang.pod_group import SubGroup
from gpusched.arrays.columns import Bools
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.node_sets import intersect_rows
from gpusched.session.framework.reasons import pods_text, shorten
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

_TRIES_MAX: Final = 400
"""Attempts to place one sub-group in one domain, for one gang in one session."""

MemberCounts = list[tuple[PodSet, int]]
PlaceAll = Callable[[Session, MemberCounts, Statement, Bools | None], bool]
"""Places all of it inside these rows (None: anywhere), or nothing and answers False."""


@define
class _SubGroupSearch:
    """One gang in one area.

    Attributes:
        best: the most members of complete sub-groups that had places at a time.
        stuck: a sub-group that found no place then; itself or in it.
        around: that it is in, None for the gang.
        completed: how many sub-groups were complete then of those beside it.
        short: one that holds fewer than it needs.
        minima: the most members with which enough sub-groups were complete, while those that the
            gang needs beyond found no place; 0 where sub-groups never were.
    """

    session: Session
    gang: Gang
    statement: Statement
    rows: Bools | None
    place_all: PlaceAll
    tries: int = 0
    best: int = -1
    stuck: SubGroup | None = None
    around: SubGroup | None = None
    completed: int = 0
    short: SubGroup | None = None
    minima: int = 0

    def run(self) -> bool:
        """Whether the gang's minimum got its places."""
        for sign in (-1, 1):
            for _ in self._complete_inside(None, self.rows, sign):
                self.minima = max(self.minima, len(self.statement.assignments))
                if self._place_spare_members():
                    return True
        return not self.gang.missing_members and self._complete_one_more()

    def _complete_one_more(self) -> bool:
        """Whether a gang whose minimum succeeded got the smallest sub-group that waits."""
        gang, have = self.gang, dict(self.gang.ready_sub_groups)
        waiting = {pod_set.sub_group for pod_set in gang.pod_sets}
        lacking = {
            part.name: part
            for name in waiting
            if (part := outermost_incomplete(gang, have, name)) is not None
            and gang.missing_in_sub_group(part) <= gang.members_at_start
        }
        for _, part in sorted(lacking.items()):
            self.stuck = self.stuck or part
            for rows in rows_around_sub_group(self.session, gang, part, self.rows):
                for sign in (-1, 1):
                    if any(True for _ in self.complete_sub_group(part, rows, sign)):
                        return True
        return False

    def _complete_inside(
        self, around: SubGroup | None, rows: Bools | None, sign: int
    ) -> Iterator[None]:
        """Each way of completing enough of the sub-groups in one; it is undone for the next."""
        gang = self.gang
        every = gang.sub_groups_in.get(around.name if around else "", ())
        if around is not None and around.min_sub_groups > len(every):
            self.short = around
            return
        lacking = [part for part in every if gang.missing_in_sub_group(part)]
        # Those with members that run come first: without them nothing else is of use.
        started = Counter(member.pod.sub_group for member in gang.placed)

        def order(part: SubGroup) -> tuple[bool, int, str]:
            runs = any(started[name] for name in gang.pod_groups_below[part.name])
            return (not runs, sign * gang.missing_in_sub_group(part), part.name)

        lacking.sort(key=order)
        yield from self._ways_to_complete(around, lacking, len(every) - len(lacking), rows, sign)

    def _ways_to_complete(
        self,
        around: SubGroup | None,
        parts: Sequence[SubGroup],
        done: int,
        rows: Bools | None,
        sign: int,
    ) -> Iterator[None]:
        """Each way of completing enough of these parts, given how many are complete."""
        needed = around.min_sub_groups if around else self.gang.min_sub_groups
        if done >= needed:
            yield
            return
        if done + len(parts) < needed:
            return
        part, others = parts[0], parts[1:]
        if (placed := len(self.statement.assignments)) > self.best:
            self.best, self.stuck, self.around, self.completed = placed, part, around, done
        for _ in self.complete_sub_group(part, rows, sign):
            yield from self._ways_to_complete(around, others, done + 1, rows, sign)
        yield from self._ways_to_complete(around, others, done, rows, sign)

    def complete_sub_group(self, part: SubGroup, rows: Bools | None, sign: int) -> Iterator[None]:
        """Each way of completing one sub-group; it is undone for the next."""
        if part.name in self.gang.sub_groups_in:
            for inside in sub_group_rows(self.session, self.gang, part, rows, []):
                yield from self._complete_inside(part, inside, sign)
            return
        chosen = members_to_complete(self.gang, part)
        domains = sub_group_rows(self.session, self.gang, part, rows, chosen) if chosen else ()
        for inside in domains:
            self.tries += 1
            if self.tries > _TRIES_MAX:
                return
            mark = self.statement.checkpoint()
            if self.place_all(self.session, chosen, self.statement, inside):
                yield
                self.statement.rollback(mark)

    def _place_spare_members(self) -> bool:
        """Members beyond the sub-groups' minima: roles first, then any until there are enough."""
        taken = Counter(id(place.pod) for place in self.statement.assignments)
        placed = len(self.statement.assignments)
        roles = Counter(place.pod.role for place in self.statement.assignments)
        left = {
            index: [pod for pod in pod_set.pods if not taken[id(pod)]]
            for index, pod_set in enumerate(self.gang.pod_sets)
            if not pod_set.sub_group or pod_set.sub_group in self._complete_parts()
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
        need = self.gang.members_at_start - placed - sum(n for _, n in wanted)
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
        bound = {
            part.name
            for part in self.gang.sub_groups
            if any(each.topology.required for each in self.gang.groups_around(part.name))
        }
        by_part: dict[str, MemberCounts] = {}
        for pod_set, count in wanted:
            name = pod_set.sub_group if pod_set.sub_group in bound else ""
            by_part.setdefault(name, []).append((pod_set, count))
        for name in sorted(by_part, key=lambda each: (not each, each)):
            rows = self._rows_of_required_domains(name) if name else [self.rows]
            if not any(
                self.place_all(self.session, by_part[name], self.statement, each) for each in rows
            ):
                self.statement.rollback(mark)
                return False
        return True

    def _rows_of_required_domains(self, name: str) -> list[Bools | None]:
        """Where more members of a sub-group may be that is, or is in one, of a required level."""
        found = [self.rows]
        for part in self.gang.groups_around(name):
            if part.topology.required:
                inside = self._rows_of_required_domain(part)
                found = [intersect_rows(one, other) for one in found for other in inside]
        return found

    def _rows_of_required_domain(self, part: SubGroup) -> list[Bools]:
        level = next((x for x in self.session.levels if x.name == part.topology.required), None)
        if level is None:
            return []
        names = self.gang.pod_groups_below[part.name]
        rows = _rows_of_placed_members(self.session, self.gang, part)
        rows += [each.row for each in self.statement.assignments if each.pod.sub_group in names]
        homes = {int(level.domain[row]) for row in rows}
        if len(homes) > 1:
            return []
        numbers = sorted(homes) or list(range(len(level.names)))
        return [level.domain == number for number in numbers if number < len(level.names)]

    def _complete_parts(self) -> set[str]:
        """Sub-groups of pods that are complete, and with them all that they are in."""
        have = Counter(dict(self.gang.ready_sub_groups))
        have.update(place.pod.sub_group for place in self.statement.assignments)
        return complete_pod_groups(self.gang, have)


def outermost_incomplete(gang: Gang, have: Mapping[str, int], name: str) -> SubGroup | None:
    """Of a sub-group of pods and those that it is in, the widest that is not complete."""
    complete = gang.complete_groups(have)
    return next((each for each in gang.groups_around(name) if each.name not in complete), None)


def complete_pod_groups(gang: Gang, have: Mapping[str, int]) -> set[str]:
    """Sub-groups of pods that are complete with so many members, and with them all around them."""
    complete = gang.complete_groups(have)
    return {
        part.name
        for part in gang.sub_groups
        if all(each.name in complete for each in gang.groups_around(part.name))
    }


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
        if best is None or (search.minima, search.best) > (best.minima, best.best):
            best = search
    return _shortfall_message(session, gang, best)


def complete_sub_group(
    session: Session,
    gang: Gang,
    part: SubGroup,
    statement: Statement,
    *,
    rows: Bools | None,
    place_all: PlaceAll,
) -> bool:
    """Place what one sub-group lacks, which may hold others, or nothing; arguments as above."""
    search = _SubGroupSearch(session, gang, statement, rows, place_all)
    return any(True for sign in (-1, 1) for _ in search.complete_sub_group(part, rows, sign))


def rows_around_sub_group(
    session: Session, gang: Gang, part: SubGroup, rows: Bools | None
) -> Iterator[Bools | None]:
    """Where the sub-groups that a sub-group is in allow it, the tightest domains first."""
    found: list[Bools | None] = [rows]
    for around in gang.groups_around(part.parent):
        found = [
            inside for each in found for inside in sub_group_rows(session, gang, around, each, [])
        ]
    yield from found


def unknown_sub_group_message(gang: Gang) -> str:
    """That pods name a sub-group that the gang does not have; empty when none does."""
    known = {part.name for part in gang.sub_groups}
    strange = sorted({pod_set.sub_group for pod_set in gang.pod_sets if pod_set.sub_group} - known)
    if not strange or not known:
        return ""
    names = ", ".join(sorted(known))
    if strange[0] in gang.sub_groups_in:
        return (
            f"pods name sub-group {shorten(strange[0])!r}, which holds other sub-groups; "
            f"those of pods are: {names}"
        )
    return (
        f"pods name sub-group {shorten(strange[0])!r}, which spec.subGroups does not have: {names}"
    )


def _shortfall_message(session: Session, gang: Gang, best: _SubGroupSearch | None) -> str:
    top = gang.sub_groups_in.get("", ())
    if not gang.missing_members:
        return _beyond_succeeded_message(session, gang, best)
    if best is not None and best.minima:
        return _beyond_minima_message(gang, best.minima)
    if best is None or best.stuck is None:
        return f"needs {pods_text(gang.missing_members)} in {gang.min_sub_groups} of {len(top)} sub-groups; there is no room for all"
    if best.short is not None:
        name, inside = best.short.name, gang.sub_groups_in.get(best.short.name, ())
        return f"sub-group {shorten(name)} needs {best.short.min_sub_groups} sub-groups complete; {len(inside)} exist"
    part, around = best.stuck, best.around
    need, every = gang.min_sub_groups, len(top)
    whose = ""
    if around is not None:
        need, every = around.min_sub_groups, len(gang.sub_groups_in[around.name])
        whose = f"sub-group {shorten(around.name)} "
    lacks = gang.missing_in_sub_group(part)
    below = gang.pod_groups_below[part.name]
    waiting = sum(len(pod_set.pods) for pod_set in gang.pod_sets if pod_set.sub_group in below)
    text = f"{whose}needs {need} of {every} sub-groups complete; {max(0, best.completed)} can be"
    if waiting < lacks:
        return f"{text}; sub-group {shorten(part.name)} needs {pods_text(lacks)} more and has {waiting}"
    where = f" in one {shorten(part.topology.required)}" if part.topology.required else ""
    text = f"{text}; sub-group {shorten(part.name)} finds no room for {pods_text(lacks)}{where}"
    return f"{text}{_roomiest_domain_text(session, gang, part)}{_common_level_text(gang, around)}"


def _beyond_succeeded_message(session: Session, gang: Gang, best: _SubGroupSearch | None) -> str:
    """That members which wait find no room, of a gang whose minimum succeeded."""
    part = best.stuck if best is not None else None
    if part is None:
        return f"its minimum has succeeded; there is no room for {gang.members_at_start} more"
    lacks = pods_text(gang.missing_in_sub_group(part))
    where = f" in one {shorten(part.topology.required)}" if part.topology.required else ""
    room = _roomiest_domain_text(session, gang, part)
    return f"its minimum has succeeded; sub-group {shorten(part.name)} finds no room for {lacks}{where}{room}"


def _beyond_minima_message(gang: Gang, placed: int) -> str:
    """That sub-groups find room and the members that are needed beside their minima do not."""
    more = gang.members_at_start - placed
    need = f"needs {pods_text(gang.members_at_start)} together"
    room = f"its sub-groups find room with {pods_text(placed)}"
    if more > 0:
        return f"{need}; {room}, and there is no room for {more} more"
    roles = " and ".join(shorten(role) for role, _ in gang.missing_roles)
    return f"{need}; {room}, and there is none for as many pods of role {roles} as it needs"


def _roomiest_domain_text(session: Session, gang: Gang, part: SubGroup) -> str:
    """The domain of its level that comes nearest, where none would hold the sub-group even alone."""
    level = next((each for each in session.levels if each.name == part.topology.required), None)
    pod_sets = [pod_set for pod_set in gang.pod_sets if pod_set.sub_group == part.name]
    if level is None or not level.names or len(pod_sets) != 1:
        return ""
    lacks = gang.missing_in_sub_group(part)
    class_fit = session.class_info(pod_sets[0].pod_class).class_fit
    rooms = [
        class_fit.count_fitting(level.domain == number, most=lacks)
        for number in range(len(level.names))
    ]
    best = max(range(len(rooms)), key=lambda number: (rooms[number], -number))
    if rooms[best] >= lacks:
        return ""
    return f"; best {shorten(level.name)} {level.names[best]} has room for {rooms[best]}"


def _common_level_text(gang: Gang, around: SubGroup | None) -> str:
    """In which one domain sub-groups must be together."""
    found = ""
    for part in gang.groups_around(around.name) if around is not None else ():
        if part.topology.required:
            level = shorten(part.topology.required)
            found += f"; all of sub-group {shorten(part.name)} must be in one {level}"
    if gang.topology.required:
        found += f"; all sub-groups must be in one {shorten(gang.topology.required)}"
    return found


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
        class_fits = [
            (session.class_info(pod_set.pod_class).class_fit, count) for pod_set, count in chosen
        ]
        fitting = [
            class_fit.count_fitting_by_domain(
                level.domain, len(level.names), most=2**20, within=rows
            )
            for class_fit, _ in class_fits
        ]
        for number in numbers if len(fixed) <= 1 else []:
            enough = all(
                room[number] >= count for room, (_, count) in zip(fitting, class_fits, strict=True)
            )
            if not enough:
                continue
            inside = level.domain == number
            inside = inside if rows is None else inside & rows
            if chosen or _room_inside(session, gang, part, inside):
                found.append((sum(room[number] for room in fitting), number, inside))
        for _, _, inside in sorted(found, key=lambda each: each[:2]):
            yield inside
    if not wish.required:
        yield rows


def _room_inside(session: Session, gang: Gang, part: SubGroup, rows: Bools) -> bool:
    """Whether as many members as a sub-group lacks may fit on these nodes, each class alone."""
    lacks = gang.missing_in_sub_group(part)
    below = gang.pod_groups_below.get(part.name, frozenset())
    for pod_set in gang.pod_sets:
        if pod_set.sub_group in below and lacks > 0:
            most = min(lacks, len(pod_set.pods))
            lacks -= session.class_info(pod_set.pod_class).class_fit.count_fitting(rows, most=most)
    return lacks <= 0


def _rows_of_placed_members(session: Session, gang: Gang, part: SubGroup) -> list[int]:
    """Rows of its members that have places."""
    row_of = session.snapshot.nodes.row
    names = gang.pod_groups_below.get(part.name, frozenset())
    rows = [
        row_of[each.node]
        for each in gang.placed
        if each.pod.sub_group in names and each.node in row_of
    ]
    return rows + [
        place.row for place in session.placements.assigned(gang) if place.pod.sub_group in names
    ]
