"""What a gang can lose and still run: members one by one, and sub-groups as a whole."""

from __future__ import annotations

from collections import Counter

from gpusched.session.victims import Running, Seat


class Spares:
    """The spare part of a gang in pieces of which any number may leave, in any order.

    Args:
        running: the gang.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._left = running.surplus
        self._roles = Counter(running.spare_roles)
        self._parts = Counter(running.spare_parts)

    def in_turn(self) -> list[tuple[Seat, ...]]:
        """The pieces, each member in one at most: first members above all minima, one by one.

        Then what is left of sub-groups for which others stand in, the cheapest first.
        """
        singles: list[tuple[Seat, ...]] = []
        staying: list[Seat] = []
        for seat in self._running.seats:
            if self._left and self._one(seat):
                self._left -= 1
                singles.append((seat,))
            else:
                staying.append(seat)
        return singles + self._sub_groups(staying)

    def _one(self, seat: Seat) -> bool:
        """Take a member from its role and its sub-group, if both can spare it."""
        running, pod = self._running, seat.member.pod
        role_bound, part_bound = pod.role in running.spare_roles, pod.sub_group in self._known
        if role_bound and self._roles[pod.role] < 1:
            return False
        if part_bound and self._parts[pod.sub_group] < 1:
            return False
        self._roles[pod.role] -= role_bound
        self._parts[pod.sub_group] -= part_bound
        return True

    @property
    def _known(self) -> dict[str, int]:
        return self._running.spare_parts

    def _sub_groups(self, staying: list[Seat]) -> list[tuple[Seat, ...]]:
        found: list[tuple[Seat, ...]] = []
        for seats in complete_parts(self._running, staying):
            roles = Counter(
                seat.member.pod.role
                for seat in seats
                if seat.member.pod.role in self._running.spare_roles
            )
            if len(found) >= self._running.spare_sub_groups or len(seats) > self._left:
                continue
            if any(self._roles[role] < count for role, count in roles.items()):
                continue
            self._roles -= roles
            self._left -= len(seats)
            found.append(seats)
        return found


def complete_parts(running: Running, seats: list[Seat]) -> list[tuple[Seat, ...]]:
    """Of these members, those of each sub-group that may leave as a whole: cheapest first."""
    of: dict[str, list[Seat]] = {}
    for seat in seats:
        if seat.member.pod.sub_group in running.may_leave:
            of.setdefault(seat.member.pod.sub_group, []).append(seat)
    keyed = sorted((sum(seat.cost for seat in part), name) for name, part in of.items())
    keyed.sort(key=lambda each: (each[0], [-ord(letter) for letter in each[1]]))
    return [tuple(of[name]) for _, name in keyed]
