"""Names of other namespaces in sentences that one namespace reads: taken out, as Kubernetes does.

Sentences are made where things are decided, for gangs of every namespace at once, by policies of
others, too. So names are not left out where a sentence is made, but where it is given to its
readers: all of a plan that is written into a namespace goes through here once. See
docs/adr/0029-names-of-other-namespaces.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from gpusched.api.gang.eviction_record import (
    EVICTIONS,
    GangEvictions,
    format_evictions,
    parse_evictions,
)
from gpusched.api.meta.identity import GangKey
from gpusched.cache.snapshot import Snapshot
from gpusched.session.state.plan import (
    GangStatus,
    GangStop,
    JobSuspendChange,
    PendingReason,
    Plan,
    PreemptionPlan,
)

_NAMED: Final = re.compile(
    r"(?P<place>\bbest \S+ |\bfit )?"
    r"(?:\b(?P<kind>gang|pod|claim|[A-Z][A-Za-z]+) )?"
    r"(?<![\w./-])(?P<namespace>[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/[A-Za-z0-9](?:[\w.-]*\w)?"
)
"""``team-b/llm-7`` with what it is said to be, or a path of domains such as ``best rack zone-a/r3``."""
_MARK: Final = "\x00"
_SEVERAL: Final = re.compile(f"{_MARK}[a-zA-Z]+{_MARK}(?:(?:, | and ){_MARK}[a-zA-Z]+{_MARK})+")
_ONE: Final = re.compile(f"{_MARK}([a-zA-Z]+){_MARK}")
_ANYTHING: Final = "workload"

HideNames = Callable[[str, str], str]
"""Given a sentence and the namespace that reads it, the sentence without names of others."""


def hide_names(text: str, reader: str, is_namespace: Callable[[str], bool]) -> str:
    """A sentence without names of gangs and pods of other namespaces.

    Args:
        text: of a condition, an event or the view.
        reader: the namespace whose users read it.
        is_namespace: whether there is a namespace of a name.
    """

    def marked(found: re.Match[str]) -> str:
        namespace = found["namespace"]
        if found["place"] or namespace == reader or not is_namespace(namespace):
            return found[0]
        return f"{_MARK}{found['kind'] or _ANYTHING}{_MARK}"

    if "/" not in text:
        return text
    told = _NAMED.sub(marked, text)
    if _MARK not in told:
        return text
    told = _SEVERAL.sub(f"{_ANYTHING}s of other namespaces", told)
    return _ONE.sub(r"a \1 of another namespace", told)


class ForeignNames:
    """Takes names of other namespaces out of plans; what names none stays the same object."""

    def __init__(self) -> None:
        self._statuses: dict[GangKey, tuple[GangStatus, GangStatus]] = {}

    def hide(self, plan: Plan, snapshot: Snapshot) -> Plan:
        """The plan as it is written and shown.

        Args:
            plan: as it was decided.
            snapshot: on which; knows the namespaces.
        """
        hide = hide_names_of(snapshot)
        return attrs.evolve(
            plan,
            gangs=self._hidden_statuses(plan.gangs, hide),
            stops=tuple(_hidden_stop(stop, hide) for stop in plan.stops),
            preemptions=tuple(_hidden_claim(claim, hide) for claim in plan.preemptions),
            job_changes=tuple(_hidden_change(change, hide) for change in plan.job_changes),
        )

    def _hidden_statuses(
        self, statuses: Iterable[GangStatus], hide: HideNames
    ) -> tuple[GangStatus, ...]:
        known, self._statuses = self._statuses, {}
        found = []
        for status in statuses:
            before = known.get(status.gang)
            if before is None or before[0] is not status:
                before = (status, _hidden_status(status, hide))
            self._statuses[status.gang] = before
            found.append(before[1])
        return tuple(found)


def hide_names_of(snapshot: Snapshot) -> HideNames:
    """``hide_names`` with the namespaces of a snapshot."""
    of_gangs: set[str] = set()

    def is_namespace(name: str) -> bool:
        if name in snapshot.namespaces:
            return True
        if not of_gangs:  # namespaces that the watch has not shown yet
            of_gangs.update(key.namespace for key in snapshot.placed_gangs)
            of_gangs.update(gang.key.namespace for gang in snapshot.gangs)
        return name in of_gangs

    return lambda text, reader: hide_names(text, reader, is_namespace)


def _hidden_status(status: GangStatus, hide: HideNames) -> GangStatus:
    reader = status.gang.namespace
    changed: dict[str, Any] = {
        name: told
        for name, reason in (
            ("admitted", status.admitted),
            ("scheduled", status.scheduled),
            ("pending_reason", status.pending_reason),
            ("preempted", status.preempted),
        )
        if (told := _hidden_reason(reason, reader, hide)) is not reason
    }
    return attrs.evolve(status, **changed) if changed else status


def _hidden_reason(
    reason: PendingReason | None, reader: str, hide: HideNames
) -> PendingReason | None:
    if reason is None:
        return None
    told = hide(reason.message, reader)
    return reason if told == reason.message else attrs.evolve(reason, message=told)


def _hidden_stop(stop: GangStop, hide: HideNames) -> GangStop:
    return attrs.evolve(
        stop,
        evictions=tuple(
            attrs.evolve(each, message=hide(each.message, each.key.namespace))
            for each in stop.evictions
        ),
        pause=_hidden_change(stop.pause, hide) if stop.pause is not None else None,
        count=attrs.evolve(
            stop.count, record=_hidden_record(stop.count.record, stop.gang.namespace, hide)
        )
        if stop.count is not None
        else None,
    )


def _hidden_record(record: GangEvictions, reader: str, hide: HideNames) -> GangEvictions:
    past = tuple(
        attrs.evolve(each, claimant_name=hide(each.claimant_name, reader)) for each in record.past
    )
    return attrs.evolve(record, past=past)


def _hidden_claim(claim: PreemptionPlan, hide: HideNames) -> PreemptionPlan:
    return attrs.evolve(
        claim,
        message=hide(claim.message, claim.gang.namespace),
        stops=tuple(_hidden_stop(stop, hide) for stop in claim.stops),
    )


def _hidden_change(change: JobSuspendChange, hide: HideNames) -> JobSuspendChange:
    reader, notes = change.key.namespace, dict(change.annotations)
    if EVICTIONS in notes:
        record = _hidden_record(parse_evictions(notes[EVICTIONS]), reader, hide)
        notes[EVICTIONS] = format_evictions(record, seal="")
    return attrs.evolve(
        change, message=hide(change.message, reader), annotations=tuple(sorted(notes.items()))
    )
