"""Where a gang may be: one domain of a level, or anywhere, from the most wanted outwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from gpusched.arrays.columns import Bools
from gpusched.base.classes import former_names, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason, shorten
from gpusched.session.state.session import Session
from gpusched.topology.levels import KNOWN, TopologyLevel, labels_of_level

_LABELS_NAMED_MAX: Final = 2


@frozen(slots=True)
class Unschedulable:
    """Why a gang got no places.

    Attributes:
        by_windows: whether Reservations of the API keep the nodes on which it would fit.
    """

    reason: Reason
    message: str
    by_windows: bool = False

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names("Unschedulable", {"sentence": "message"})


@frozen(slots=True, eq=False)
class NodeSet:
    """Where a gang may sit: rows (None: anywhere) and words for its sentence."""

    rows: Bools | None
    where: str


ALL_NODES = NodeSet(None, "")


@frozen(slots=True)
class LevelConstraint:
    """Of which level one domain must hold a gang now.

    Attributes:
        required: name of the level, empty for none.
        waits: whether it is only what the gang prefers, and still holds out for.
    """

    required: str = ""
    waits: bool = False


def level_constraint_now(
    session: Session, gang: Gang, *, at: float | None = None
) -> LevelConstraint | Unschedulable:
    """What the gang's wish for a topology comes to.

    Args:
        session: whose topology counts.
        gang: with its wishes.
        at: when it would start, seconds since the epoch; None for now.
    """
    wish = gang.topology
    if not wish.required and not wish.preferred and not gang.sub_groups:
        return LevelConstraint()
    names = [level.name for level in session.levels]
    refusal = _unknown_level(session, gang, names)
    if refusal is not None:
        return refusal
    crossed = _crossing_message(session, gang)
    if crossed:
        return Unschedulable(Reason.INVALID_SPEC, crossed)
    if not wish.required and not wish.preferred:
        return LevelConstraint()
    if wish.preferred and not _is_over(session, gang.created + wish.max_wait_ns / 1e9, at):
        narrower = names.index(wish.preferred) > names.index(wish.required or names[0])
        if narrower or not wish.required:
            return LevelConstraint(wish.preferred, waits=True)
    return LevelConstraint(wish.required)


def _is_over(session: Session, moment: float, at: float | None) -> bool:
    """Whether a moment has come by the time of a start, which is now where none is given."""
    return session.snapshot.is_past(moment) if at is None else at >= moment


def _unknown_level(session: Session, gang: Gang, names: Sequence[str]) -> Unschedulable | None:
    """The refusal of a level that there is not, which the gang or a sub-group of it names."""
    wishes = [(gang.topology.required, ""), (gang.topology.preferred, "")]
    wishes += [
        (part.topology.required, f" of sub-group {shorten(part.name)}")
        for part in (*gang.sub_groups, *gang.parent_groups)
    ]
    for name, whose in wishes:
        if not name or name in names:
            continue
        known = ", ".join(each.name for each in session.levels if not each.on_request)
        if "/" in name:  # a node label; nodes that have it may come
            message = f"no node has the label {name[:64]!r}{whose}, nor is it a topology level; "
            message += f"levels are: {known}"
            return Unschedulable(Reason.TOPOLOGY_UNSATISFIABLE, message)
        if not session.snapshot.topologies and name in KNOWN:
            message = no_domain_message(session, name, whose)
            return Unschedulable(Reason.TOPOLOGY_UNSATISFIABLE, message)
        message = f"topology level {name[:64]!r}{whose} does not exist; levels are: "
        return Unschedulable(Reason.INVALID_SPEC, message + (known or "none"))
    return None


def no_domain_message(session: Session, name: str, whose: str = "") -> str:
    """That no node has the label of a level, and which label that is.

    Args:
        session: whose topology counts.
        name: of the level.
        whose: words for the sub-group that names it; empty for the gang.
    """
    labels = labels_of_level(name, session.snapshot.topologies)[:_LABELS_NAMED_MAX]
    named = f": label nodes with {' or '.join(labels)}, or name another level" if labels else ""
    return f"no node is labelled for topology level {name[:64]!r}{whose}{named}"


def _crossing_message(session: Session, gang: Gang) -> str:
    """That two levels of the gang's requests cannot be in one tree; empty where all can."""
    named = {
        name for each in gang.topology_requests for name in (each.required, each.preferred) if name
    }
    for level in session.levels:
        if level.name in named and (crossed := sorted(level.crosses & named)):
            return (
                f"topology levels {level.name[:64]} and {crossed[0][:64]} divide each other's "
                "domains; name levels of which one lies whole in the other"
            )
    return ""


def candidate_node_sets(
    session: Session, gang: Gang, *, at: float | None = None
) -> tuple[list[NodeSet], Unschedulable | None]:
    """The areas in which a gang may start, best level first; or why it has none.

    From the preferred level outwards to the required one, or to the whole cluster; while the
    gang still holds out for its preferred level, that level alone.

    Args:
        session: whose topology counts.
        gang: with its wishes.
        at: when it would start, seconds since the epoch; None for now.
    """
    confines = level_constraint_now(session, gang, at=at)
    if isinstance(confines, Unschedulable):
        return [], confines
    spare = session.cluster_map.spared_rows(gang)
    usable = None if spare is None else ~spare
    wish = gang.topology
    names = [level.name for level in session.levels]
    widest = names.index(confines.required) if confines.required else 0
    narrowest = max(widest, names.index(wish.preferred)) if wish.preferred else widest
    areas: list[NodeSet] = []
    if wish.required or wish.preferred:
        for level in reversed(session.levels[widest : narrowest + 1]):
            areas.extend(_node_sets_of_level(session, gang, level))
    if not confines.required:
        areas.append(ALL_NODES)
    return [NodeSet(intersect_rows(area.rows, usable), area.where) for area in areas], None


def intersect_rows(one: Bools | None, other: Bools | None) -> Bools | None:
    """Rows that are in both; None stands for all."""
    if one is None or other is None:
        return other if one is None else one
    return np.logical_and(one, other)


def _node_sets_of_level(session: Session, gang: Gang, level: TopologyLevel) -> list[NodeSet]:
    """The domains of a level, only that of the placed members when there are any."""
    rows = [session.snapshot.nodes.row.get(member.node, -1) for member in gang.placed]
    rows += [place.row for place in session.placements.assigned(gang)]
    fixed = {int(level.domain[row]) for row in rows if row >= 0}
    if len(fixed) > 1 or -1 in fixed:
        return []
    numbers = sorted(fixed) if fixed else range(len(level.names))
    return [NodeSet(level.domain == number, f"in one {level.name}") for number in numbers]
