"""Tells what was contained: log, dump, metrics, events, and what ``/readyz`` adds.

Nothing here decides anything. What is written is bounded: one line and one dump for each defect
and object, until it goes well again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.serializer.requests import EventNote, ObjectRef
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import Fenced, InvariantBroken
from gpusched.cache.snapshot import Snapshot
from gpusched.io.observe.daemon_events import CONTAINED, DIED, DOMAINS, DaemonEvents, EventSink
from gpusched.io.observe.fault_dumps import FaultDumps
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.write.events.gang_events import event_object
from gpusched.io.write.status_cache import StatusCache
from gpusched.session.containment.set_aside import (
    DECISIONS_OFF,
    EVICTIONS_OFF,
    SOLVER_OFF,
    TOGETHER_OFF,
    SetAside,
)
from gpusched.session.containment.set_aside_status import error_gang_status
from gpusched.session.containment.suspects import (
    SessionFault,
    Suspect,
    SuspectKind,
    gang_suspect,
    source_location,
)
from gpusched.session.decide import Decision
from gpusched.session.framework.reasons import Reason, shorten
from gpusched.topology.levels import TopologyLevel
from gpusched.topology.topology_verdicts import too_many_domains_text

_LOUD: Final = "our own bookkeeping contradicts itself: "
_WELL: Final = "sessions are held in full again"
_CALLED: Final = {
    EVICTIONS_OFF: "evictions",
    SOLVER_OFF: "solver",
    TOGETHER_OFF: "gangs_together",
    DECISIONS_OFF: "decisions",
}
_log = Logger(__name__)


class SetAsideSink(Protocol):
    """What objects are set aside in; see ``session.containment``."""

    def set_aside(
        self, snapshot: Snapshot, found: dict[Suspect, SessionFault]
    ) -> tuple[SetAside, ...]:
        """Leave these out from now on."""


class FaultReport:
    """See the module. Everything is called in the event loop.

    Args:
        clock: time.
        telemetry: counts.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._dumps = FaultDumps(most=limits.FAULT_DUMPS_MAX)
        self._too_many_domains = ""
        """What was told of it last."""
        self._daemon_events: DaemonEvents | None = None
        self._events: EventSink | None = None
        self._cache: StatusCache | None = None
        self._failing: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[str, str], None] = {}
        self._off: tuple[str, ...] = ()
        self._aside = 0

    def set_reporters(
        self, daemon_events: DaemonEvents, events: EventSink, cache: StatusCache
    ) -> None:
        """Where to tell it; called before the first session."""
        self._daemon_events, self._events, self._cache = daemon_events, events, cache

    def tell_too_many_domains(self, level: TopologyLevel | None) -> None:
        """Labels alone make more domains of a level than count; None when none does."""
        message = "" if level is None else too_many_domains_text(level)
        if message == self._too_many_domains or self._daemon_events is None:
            return
        self._too_many_domains = message
        if message:
            self._daemon_events.warn(
                DOMAINS, reason="TooManyDomains", action="Scheduling", message=message
            )
        else:
            self._daemon_events.recovered(
                DOMAINS,
                reason="DomainsCount",
                action="Scheduling",
                message="every domain of every level counts",
            )

    @property
    def degraded(self) -> tuple[str, ...]:
        """What ``/readyz`` adds: which parts of a session are off, and how many objects; no names."""
        now = self._clock.monotonic()
        for key, at in list(self._failing.items()):
            if now - at > limits.SET_ASIDE_RETRY_S:
                del self._failing[key]
        found = [f"no {', no '.join(self._off)} after a fault"] if self._off else []
        if self._aside:
            found.append(f"{self._aside} objects set aside after faults")
        found += [f"{stage} failed" for stage in sorted({stage for stage, _ in self._failing})]
        return tuple(found)

    # -- sessions ----------------------------------------------------------------------------
    def report_session(self, decision: Decision, snapshot: Snapshot) -> None:
        """A session was held."""
        for entry in decision.contained:
            self._telemetry.contained(str(entry.suspect.what), entry.fault.stage)
            self._dump_entry(entry, snapshot)
            with suppress(Exception):
                self._tell_entry(entry, snapshot)
        for queue, fault in decision.untold:
            self._report_untold(queue, fault)
        counts: dict[str, int] = {}
        for entry in decision.set_aside:
            counts[str(entry.suspect.what)] = counts.get(str(entry.suspect.what), 0) + 1
        if counts or self._aside:
            self._telemetry.replace_set_aside(counts)
        self._aside = len(decision.set_aside)
        self._report_degraded(decision)

    def _report_untold(self, queue: str, fault: SessionFault) -> None:
        """The status of a queue is not written; everything else is decided as always."""
        self._telemetry.contained("object", fault.stage)
        key = (fault.stage, queue)
        if len(self._failing) < limits.SET_ASIDE_MAX:
            self._failing[key] = self._clock.monotonic()
        message = f"{fault.stage} failed for {queue}: {fault.kind}: {fault.says}"
        defect = (fault.stage, f"{queue}{fault.kind}{fault.place}")
        self._tell_once(defect, message, fault.story)

    def set_aside(self, entries: Sequence[SetAside], snapshot: Snapshot) -> None:
        """These are left out for what raised outside of a session, which is counted already."""
        for entry in entries:
            with suppress(Exception):
                self._tell_entry(entry, snapshot)

    def _report_degraded(self, decision: Decision) -> None:
        degraded = decision.degraded
        off = degraded.mode.omitted_parts if degraded is not None else ()
        if off == self._off:
            return
        self._off = off
        self._telemetry.replace_degraded([_CALLED.get(each, each) for each in off])
        if degraded is None:
            _log.info(_WELL)
            if self._daemon_events is not None:
                self._daemon_events.recovered(
                    CONTAINED, reason="SchedulerRecovered", action="Scheduling", message=_WELL
                )
            return
        fault = degraded.fault
        self._dumps.write(degraded.message, fault.story if fault is not None else "")
        _log.error("sessions are made plainer", why=degraded.message)
        if fault is not None:
            self._telemetry.contained("session", fault.stage)
        if self._daemon_events is not None:
            self._daemon_events.warn(
                CONTAINED, reason="SchedulerDegraded", action="Scheduling",
                message=degraded.message,
            )  # fmt: skip

    def _dump_entry(self, entry: SetAside, snapshot: Snapshot) -> None:
        loud = _LOUD if entry.fault.loud else ""
        _log.error("an object is set aside", why=f"{loud}{entry.message}")
        body = b""
        with suppress(Exception):
            text = repr(_object(entry.suspect, snapshot))
            body = text.encode(errors="replace")[: limits.FAULT_DUMP_BYTES_MAX]
        story = entry.fault.story.encode(errors="replace")
        self._dumps.write(
            f"{loud}{entry.message}", entry.fault.story,
            what=str(entry.suspect.what), body=story + b"\n" + body, suffix=".txt",
        )  # fmt: skip

    def _tell_entry(self, entry: SetAside, snapshot: Snapshot) -> None:
        ref = self._object_ref(entry.suspect, snapshot)
        if ref is not None and self._events is not None:
            note = EventNote(
                regarding=ref, type="Warning", reason=Reason.SCHEDULER_ERROR, action="Scheduling",
                note=entry.message,
            )  # fmt: skip
            self._events.record(note, line="contained")

    def _object_ref(self, suspect: Suspect, snapshot: Snapshot) -> ObjectRef | None:
        found = _object(suspect, snapshot)
        if suspect.what in (SuspectKind.GANG, SuspectKind.MOVE):
            gangs = {gang.key: gang for gang in snapshot.gangs}
            gang = gangs.get(suspect.key) or snapshot.placed_gangs.get(suspect.key)
            if gang is None or self._cache is None:
                return None
            return event_object(error_gang_status(gang, ""), self._cache)
        uid = getattr(found, "uid", None)
        if uid is None:
            return None
        key = ObjectKey(suspect.key.namespace, suspect.key.name)
        return ObjectRef(suspect.key.kind, key, uid)

    def report_crashes(self, message: str, deaths: int) -> None:
        """Earlier processes died; told by the one that leads next."""
        _log.error("an earlier process died", why=message)
        self._telemetry.set_crashes(deaths)
        if self._daemon_events is not None:
            self._daemon_events.warn(
                DIED, reason="SchedulerDied", action="Starting", message=message
            )

    # -- everything around them ---------------------------------------------------------------
    @contextmanager
    def contain(self, stage: str, about: object = "") -> Iterator[None]:
        """What raises inside is told, and goes no further; the end of our leadership does.

        Args:
            stage: what is done, for metrics.
            about: the object it is done for.
        """
        try:
            yield
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - containment is the task
            self.report_failure(stage, error, about)
        else:
            self.note_success(stage, about)

    def note_success(self, stage: str, about: object = "") -> None:
        """It went well, or does so again."""
        if self._failing:
            self._failing.pop((stage, _name_of(about)), None)

    def report_failure(self, stage: str, error: BaseException, about: object = "") -> None:
        """Something around a session raised, and was contained."""
        name = _name_of(about)
        key = (stage, name)
        if len(self._failing) < limits.SET_ASIDE_MAX:
            self._failing[key] = self._clock.monotonic()
        try:
            self._telemetry.contained("object" if name else "part", stage)
            self._tell_failed(stage, error, name)
        except Exception:  # noqa: BLE001 - a fault of telling must not add to it
            _log.error("a fault was contained and cannot be told", stage=stage)

    def _tell_failed(self, stage: str, error: BaseException, about: str) -> None:
        whom = f" for {about}" if about else ""
        loud = _LOUD if isinstance(error, InvariantBroken) else ""
        message = f"{loud}{stage} failed{whom}: {type(error).__name__}: {shorten(str(error))}"
        story = "".join(traceback.format_exception(error))[-limits.FAULT_STORY_MAX :]
        defect = f"{about}{type(error).__name__}{source_location(error)}"
        self._tell_once((stage, defect), message, story)

    def _tell_once(self, defect: tuple[str, str], message: str, story: str) -> None:
        if defect in self._told:
            return
        if len(self._told) >= limits.SET_ASIDE_MAX:
            self._told.pop(next(iter(self._told)))
        self._told[defect] = None
        _log.error("a fault was contained", why=message)
        stage, _ = defect
        self._dumps.write(message, story, what=stage, body=story.encode(), suffix=".txt")


def _name_of(about: object) -> str:
    """The name of an object, whatever becomes of asking for it."""
    try:
        return str(about)
    except Exception:  # noqa: BLE001 - a fault of telling must not add to the one that is told
        return type(about).__name__


def fault_of_gang_in_hand(stage: str, error: BaseException, key: GangKey) -> SessionFault:
    """What raised around a session while one gang was in hand, so that it is set aside."""
    return SessionFault(
        kind=type(error).__name__,
        says=shorten(str(error)),
        stage=stage,
        place=source_location(error),
        suspects=(gang_suspect(key),),
        story="".join(traceback.format_exception(error))[-limits.FAULT_STORY_MAX :],
        loud=isinstance(error, InvariantBroken),
    )


def _object(suspect: Suspect, snapshot: Snapshot) -> object:
    key = suspect.key
    match suspect.what:
        case SuspectKind.GANG:
            found = next((gang for gang in snapshot.gangs if gang.key == key), None)
            return found or snapshot.placed_gangs.get(key)
        case SuspectKind.MOVE:
            return next((move for gang, move in snapshot.move_records if gang == key), None)
        case SuspectKind.QUEUE:
            node = snapshot.queues.get(key.name)
            return node.queue if node is not None else None
        case SuspectKind.NODE:
            row = snapshot.nodes.row.get(key.name)
            return snapshot.nodes.nodes[row] if row is not None else None
        case SuspectKind.TOPOLOGY:
            return next((each for each in snapshot.topologies if each.name == key.name), None)
        case SuspectKind.RESERVATION:
            return next((each for each in snapshot.reservations if each.name == key.name), None)
        case SuspectKind.BUDGET:
            name = (key.namespace, key.name)
            return next((b for b in snapshot.budgets if (b.namespace, b.name) == name), None)
        case SuspectKind.POD:
            pods = (pod for pods in snapshot.pods_by_node.pods for pod in pods)
            name = (key.namespace, key.name)
            return next((pod for pod in pods if (pod.namespace, pod.name) == name), None)
