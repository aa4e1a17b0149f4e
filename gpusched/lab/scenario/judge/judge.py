"""Judging expectations while a scenario is played.

    judge = Judge(scenario.expect)
    ground.on_change(judge.heed)       # and ``judge.heed`` of every Event, as kind ``Event``
    ...                                # whenever ``judge.wants(now)`` has come:
    judge.look(now, record)
    ...
    judge.finish(now, record)
    judge.verdicts()

What is expected of something by name is judged at each of its changes: the state before a change
counts when it lasted a tenth of a second. What is expected of many objects is judged once a second
while they change, statistics sixty times over their span. Nothing in here waits or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from gpusched.base.classes import define, frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.scenario.judge.object_index import (
    WORKLOADS,
    ObjectIndex,
    event_subject,
    is_pattern,
    key_of,
    name_matches,
    workloads_of_pod,
)
from gpusched.lab.scenario.judge.subjects import ClusterView, Observation, observe_subject
from gpusched.lab.scenario.judge.tolerance import NOTED, lateness_s, relax_expectation
from gpusched.lab.scenario.model.scenario import (
    Count,
    EventSeen,
    Expectation,
    JobIs,
    ObjectIs,
    Statistic,
)
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

GRAIN_S: Final = 0.1
"""A state that lasted less is not judged: objects of one workload change one after another."""
MANY_EVERY_S: Final = 1.0
"""So often is looked at expectations that speak of many objects, while any of them changes."""
STATISTICS_LOOKS: Final = 60
Supply = Callable[[], RunRecord]


@frozen(kw_only=True)
class ExpectationVerdict:
    """What became of an expectation.

    Attributes:
        at: when it was decided, seconds since the run began.
        seen: a sentence of what was there, instead of what was expected when it is not ok.
    """

    expectation: Expectation
    ok: bool
    at: float
    seen: str


@define
class _OpenExpectation:
    """An expectation that is not decided yet.

    Attributes:
        place: among all.
        many: it speaks of many objects.
        recorded: it needs the record.
        changed: since when something it speaks of is as it is; None when that was judged.
        first: the first change since it was judged; it is not put off for ever.
        looked: when it was judged last.
    """

    place: int
    expectation: Expectation
    many: bool
    recorded: bool
    changed: float | None = None
    first: float = math.inf
    looked: float = -math.inf


class Judge:
    """Judges the expectations of one run. All times are seconds since it began.

    Args:
        expectations: in their order.
        slack_s: by how much later things may happen, see ``gpusched.lab.scenario.judge.tolerance``.
    """

    def __init__(self, expectations: Sequence[Expectation], *, slack_s: float = 0.0) -> None:
        self._all = tuple(expectations)
        self._slack_s = slack_s
        self._kinds = frozenset(self.kinds)
        self._index = ObjectIndex()
        self._verdicts: dict[int, ExpectationVerdict] = {}
        self._open = [
            _OpenExpectation(place, relax_expectation(each, slack_s), _many(each), _recorded(each))
            for place, each in enumerate(self._all)
        ]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of objects that it must be told changes of; ``Event`` among them when needed."""
        found: set[str] = set()
        for each in self._all:
            subject = each.subject
            if isinstance(subject, JobIs):
                found |= {*WORKLOADS, "Event"}
                found |= {"Node", "Topology"} if subject.within else set()
            elif isinstance(subject, (ObjectIs, Count)):
                found.add(subject.target.kind)
            elif isinstance(subject, EventSeen):
                found.add("Event")
        return tuple(sorted(found))

    def observe_change(self, change: ObjectChange) -> None:
        """Take in one change; what lasted until now is judged first where it is worth it."""
        if change.kind not in self._kinds:
            return
        for each in tuple(self._open):
            span = each.expectation.span
            if span.kind not in ("by", "during") or not _concerns(each.expectation, change):
                continue
            if each.recorded:
                continue
            since = each.changed
            due = not each.many or change.at - each.looked >= MANY_EVERY_S
            if due and since is not None and change.at - since >= GRAIN_S:
                self._judge(each, since, change.at, self._sight(_no_record))
            each.changed, each.first = change.at, min(each.first, change.at)
        self._index.observe_change(change)

    def wants(self, now: float) -> float:
        """The next moment at which it must be asked; infinite when only the end is left."""
        return min((max(now, self._next(each)) for each in self._open), default=math.inf)

    def look(self, now: float, record: Supply) -> tuple[ExpectationVerdict, ...]:
        """Judge what is due.

        Args:
            now: the moment.
            record: makes the record so far; called once at most, and only when it is needed.

        Returns:
            What was decided since the last look.
        """
        before = set(self._verdicts)
        sight = self._sight(record)
        for each in tuple(self._open):
            if self._next(each) <= now:
                self._judge(each, now if each.changed is None else each.changed, now, sight)
        return tuple(
            verdict for place, verdict in sorted(self._verdicts.items()) if place not in before
        )

    def finish(self, now: float, record: Supply) -> None:
        """The run is over: judge what is expected at the end, and what it did not live to see."""
        sight = self._sight(record)
        self.look(now, lambda: sight.record)
        for each in tuple(self._open):
            span = each.expectation.span
            found = observe_subject(each.expectation.subject, sight)
            lived = span.kind == "by" and now >= span.since_s
            if span.kind == "end" or (lived and found.ok):
                self._decide(each, now, found)
            else:
                ended = (
                    f"the run ended at {duration_text(now)}, before {duration_text(span.until_s)}"
                )
                self._decide(each, now, Observation(False, f"{ended}; {found.seen}"))

    def verdicts(self) -> tuple[ExpectationVerdict, ...]:
        """Those that were decided, in the order of the expectations."""
        return tuple(verdict for _, verdict in sorted(self._verdicts.items()))

    def _next(self, each: _OpenExpectation) -> float:
        """When it has to be judged next, without a change until then."""
        span = each.expectation.span
        if span.kind == "end":
            return math.inf
        if span.kind == "at":
            return span.until_s
        # What happens at the very moment has happened when it is looked at.
        start = span.since_s
        if span.kind == "during":
            start = min(start + GRAIN_S, span.until_s)
        if each.looked < start:
            return start
        if each.recorded:
            step = max(MANY_EVERY_S, (span.until_s - start) / STATISTICS_LOOKS)
            due = each.looked + step
        elif each.changed is None:
            due = math.inf
        else:
            due = min(each.changed + GRAIN_S, each.first + MANY_EVERY_S)
            due = max(due, each.looked + MANY_EVERY_S) if each.many else due
        return min(due, span.until_s)

    def _judge(self, each: _OpenExpectation, at: float, now: float, sight: ClusterView) -> None:
        """Judge the state of ``at`` that lasted to ``now``."""
        span = each.expectation.span
        if now < span.since_s:
            return
        found = observe_subject(each.expectation.subject, sight)
        each.looked, each.changed, each.first = now, None, math.inf
        if span.kind == "at":
            self._decide(each, now, found)
        elif span.kind == "by":
            if found.ok and at <= span.until_s:
                self._decide(each, max(at, span.since_s), found)
            elif now >= span.until_s:
                self._decide(each, now, Observation(False, found.seen))
        elif not found.ok and at <= span.until_s:
            self._decide(each, max(at, span.since_s), found)
        elif now >= span.until_s:
            self._decide(each, now, found)

    def _sight(self, record: Supply) -> ClusterView:
        return ClusterView(self._index, record, slack_s=self._slack_s)

    def _decide(self, each: _OpenExpectation, at: float, found: Observation) -> None:
        self._open.remove(each)
        asked = self._all[each.place]
        seen = found.seen
        late = lateness_s(asked, at) if found.ok else 0.0
        if late > GRAIN_S:
            seen = f"{seen}; {late:.1f} s late, {NOTED}"
        self._verdicts[each.place] = ExpectationVerdict(
            expectation=asked, ok=found.ok, at=at, seen=seen
        )


def _no_record() -> RunRecord:
    raise AssertionError("an expectation that needs the record is judged at looks only")


def _many(expectation: Expectation) -> bool:
    subject = expectation.subject
    if isinstance(subject, JobIs):
        return is_pattern(subject.job) or is_pattern(subject.namespace)
    if isinstance(subject, ObjectIs):
        return is_pattern(subject.target.name) or is_pattern(subject.target.namespace)
    return True


def _recorded(expectation: Expectation) -> bool:
    subject = expectation.subject
    if isinstance(subject, JobIs):
        return subject.evicted is not None
    return isinstance(subject, Statistic)


def _concerns(expectation: Expectation, change: ObjectChange) -> bool:
    """Whether what is expected may be otherwise after a change."""
    subject = expectation.subject
    if isinstance(subject, JobIs):
        return _concerns_job(subject, change)
    if isinstance(subject, (ObjectIs, Count)):
        space, name = key_of(change.obj)
        mine = subject.target
        return (
            change.kind == mine.kind
            and name_matches(mine.name, name)
            and (not space or name_matches(mine.namespace, space))
        )
    return isinstance(subject, EventSeen) and change.kind == "Event"


def _concerns_job(subject: JobIs, change: ObjectChange) -> bool:
    space, name = key_of(change.obj)
    names: tuple[str, ...] = ()
    if change.kind == "Event":
        about = event_subject(change.obj)
        space, name = about.get("namespace", ""), about.get("name", "")
    elif change.kind == "Pod":
        names = workloads_of_pod(change.obj)
    elif change.kind not in WORKLOADS:
        return bool(subject.within) and change.kind in ("Node", "Topology")
    return name_matches(subject.namespace, space) and any(
        name_matches(subject.job, each) for each in names or (name,)
    )
