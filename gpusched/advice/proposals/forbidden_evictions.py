"""What forbids evictions for a gang, with the edit that takes each away from the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final

from gpusched.advice.proposals.own_proposals import OwnProposals
from gpusched.advice.proposals.proposal import ChangeProposal, Family, ForbiddenBy, gang_title
from gpusched.advice.trial import ObjectEdit, TrialCluster
from gpusched.advice.workload import Workload, with_terms
from gpusched.api.devices.slots import accelerator
from gpusched.api.gang.pod_group import EXTRAS
from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.identity import GangKey, ObjectKey, format_time
from gpusched.api.meta.resources import NOTHING, Resources, total
from gpusched.api.policy.kinds import DisruptionBudget
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.engine.objects import Obj, key_of, plural_of

_IN_LINE: Final = ("Fifo", "StrictFifo")
_SHORTEST: Final = "1s"
"""A ``minRuntime`` that counts in place of the queue's."""


class EvictionRule(StrEnum):
    """What may forbid an eviction, in the order in which it is told: what ends by itself first."""

    MIN_RUNTIME = "minRuntime"
    MAX_WAIT = "maxWait"
    DISRUPTION_BUDGET = "disruptionBudget"
    PREEMPTIBLE = "preemptible"
    RECLAIMABLE = "reclaimable"
    ORDERING = "ordering"
    GUARANTEE = "guarantee"
    DESERVED = "deserved"
    PRIORITY = "priority"


RULES: Final = tuple(EvictionRule)


@frozen(kw_only=True, eq=False)
class Obstacle:
    """One thing that forbids evictions, and how the cluster is without it.

    Attributes:
        kind, key: of the object that says so.
        message: what is so, one sentence.
        condition: what would have to be, as the rest of "if ...".
        change: the manifest of a target without it; None for no such object.
        targets: plural and key of the objects that are changed.
        protects: whether a gang is kept by it.
        until: when it ends by itself, seconds since the Unix epoch; 0.0 for never.
    """

    rule: EvictionRule
    kind: str
    key: ObjectKey
    message: str
    condition: str
    command: str
    change: Callable[[Obj], Obj | None]
    targets: tuple[tuple[str, ObjectKey], ...]
    protects: Callable[[Gang], bool]
    until: float = 0.0

    def named(self, gangs: Sequence[Gang]) -> ForbiddenBy:
        """For an answer, with those of the gangs that it keeps."""
        return ForbiddenBy(
            rule=self.rule,
            kind=self.kind,
            key=self.key,
            message=self.message,
            until=self.until,
            gangs=tuple(sorted(each.key for each in gangs if self.protects(each))),
        )


@frozen(slots=False)
class ForbiddenEvictions:
    """Everything that may forbid evictions for one gang.

    Attributes:
        gang: that waits.
        snapshot: that it is part of.
        own: what it could ask for instead.
    """

    trial: TrialCluster
    gang: Gang
    snapshot: Snapshot
    own: OwnProposals

    @cached_property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """All of them, by rule."""
        found = [
            *(each for gang in self._running for each in self._of_gang(gang)),
            *self._of_budgets(),
            *(each for node in self.snapshot.queues.queues.values() for each in self._of_queue(node)),
            *self._of_own_queue(),
            *self._of_own_priority(),
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda each: (RULES.index(each.rule), each.key)))

    def without(
        self, obstacles: Sequence[Obstacle], evicted: Sequence[Gang] = ()
    ) -> ChangeProposal:
        """The cluster without some of them.

        Args:
            obstacles: that are taken away.
            evicted: gangs that lose members then.
        """
        objects: dict[tuple[str, ObjectKey], Obj | None] = {}
        for each in obstacles:
            for target in each.targets:
                obj = objects[target] if target in objects else self.trial.objects.get(*target)
                objects[target] = each.change(obj) if obj is not None else None
        commands = list(dict.fromkeys(each.command for each in obstacles))
        plain = all(each.startswith("kubectl ") for each in commands)
        ends = [each.until for each in obstacles]
        return ChangeProposal(
            family=Family.PERMISSION,
            size=len(obstacles),
            message=f"if {' and '.join(each.condition for each in obstacles)}",
            edits=tuple(
                ObjectEdit(plural, key, obj) for (plural, key), obj in sorted_edits(objects)
            ),
            command=(" && " if plain else "; ").join(commands),
            at=max(ends) if ends and all(ends) else 0.0,
            forbidden_by=tuple(each.named(evicted) for each in obstacles),
        )

    def other_orderings(self) -> list[ChangeProposal]:
        """Its queue is not served in line, so that it may pass those that came before."""
        return [self.without([each]) for each in self._of_own_line()]

    @property
    def count(self) -> int:
        """Gangs that run."""
        return len(self._running)

    def gangs_of(self, keys: Collection[GangKey]) -> list[Gang]:
        """Running gangs of these names."""
        return [each for each in self._running if each.key in keys]

    def tightened(self, obstacle: Obstacle, evicted: Sequence[Gang]) -> Obstacle | None:
        """An amount of a queue lowered by no more than these evictions need; None where there is none."""
        if obstacle.rule not in (EvictionRule.DESERVED, EvictionRule.GUARANTEE):
            return None
        node = self.snapshot.queues.get(obstacle.key.name)
        if node is None or obstacle.key.name in self._own_path:
            return None
        freed = total(
            member.pod.pod_class.charged
            for each in evicted
            if obstacle.protects(each)
            for member in each.placed
        )
        return self._lowered(node, obstacle.rule, freed)

    # -- gangs -------------------------------------------------------------------------------
    @cached_property
    def _running(self) -> list[Gang]:
        return [
            each
            for _, each in sorted(self.snapshot.placed_gangs.items())
            if each.key != self.gang.key and each.placed
        ]

    def _of_gang(self, gang: Gang) -> Iterator[Obstacle]:
        title = gang_title(gang.key)
        if not gang.terms.preemptible:
            extras = gang.terms.disruption == EXTRAS
            why = "disruption.mode: Extras" if extras else "it is not preemptible"
            yield self._gang_obstacle(
                gang,
                EvictionRule.PREEMPTIBLE,
                message=f"{title} may not be evicted: {why}",
                condition=f"{title} were preemptible",
                terms={"preemptible": True, "disruption": {"mode": "Pod"}}
                if extras
                else {"preemptible": True},
            )
        own, queue, length_ns = self._min_runtime(gang)
        until = gang.started_at + length_ns / NANOSECONDS
        if length_ns and gang.started_at and until > self.snapshot.now:
            whose = "its minRuntime" if own else f"minRuntime of queue {queue}"
            length = format_duration(length_ns)
            yield self._gang_obstacle(
                gang,
                EvictionRule.MIN_RUNTIME,
                message=f"{title} may not be evicted before {format_time(until)}, as {whose} is {length}",
                condition=f"{title} could be evicted before {whose} of {length} is over "
                f"({format_time(until)})",
                terms={"minRuntime": None if own and not self._queue_runtime(gang) else _SHORTEST},
                until=until,
            )
        yield from self._of_max_wait(gang)

    def _gang_obstacle(
        self,
        gang: Gang,
        rule: EvictionRule,
        *,
        message: str,
        condition: str,
        terms: dict[str, object],
        until: float = 0.0,
    ) -> Obstacle:
        work = running_workload(self.trial, gang)
        return Obstacle(
            rule=rule,
            kind=gang.key.kind,
            key=ObjectKey(gang.key.namespace, gang.key.name),
            message=message,
            condition=condition,
            command=work.command({"spec": terms})
            or f"annotate the pods of {gang_title(gang.key)}: "
            + ", ".join(_annotation_text(name, value) for name, value in terms.items()),
            change=lambda obj: with_terms(obj, terms),
            targets=work.targets,
            protects=lambda other: other.key == gang.key,
            until=until,
        )

    def _min_runtime(self, gang: Gang) -> tuple[bool, str, int]:
        """Whether it is its own, else its queue; nanoseconds."""
        if gang.terms.min_runtime_ns:
            return True, "", gang.terms.min_runtime_ns
        node = self._queue_runtime(gang)
        return (False, node.queue.name, node.queue.min_runtime_ns) if node else (False, "", 0)

    def _queue_runtime(self, gang: Gang) -> QueueNode | None:
        return next((node for node in self._path(gang) if node.queue.min_runtime_ns), None)

    def _of_max_wait(self, gang: Gang) -> Iterator[Obstacle]:
        """It waited for so long that it is safe for a while."""
        path = self._path(gang)
        node = next((each for each in path if each.queue.max_wait_ns), None)
        if node is None or not gang.started_at:
            return
        limit = node.queue.max_wait_ns // NANOSECONDS
        lasts = -(-gang.terms.expected_duration_ns // NANOSECONDS)
        until = gang.started_at + (lasts if limit < lasts <= 2 * limit else limit)
        late = int(gang.started_at) >= int(gang.waits_since) + limit
        if not late or until <= self.snapshot.now:
            return
        title, name = gang_title(gang.key), node.queue.name
        bounds = [each.queue.name for each in path if each.queue.max_wait_ns]
        yield Obstacle(
            rule=EvictionRule.MAX_WAIT,
            kind="Queue",
            key=ObjectKey("", name),
            message=f"{title} may not be evicted before {format_time(until)}, as it waited for longer "
            f"than maxWait of queue {name}",
            condition=f"{title} were not kept until {format_time(until)} by maxWait of queue {name}",
            command=" && ".join(_queue_patch(each, {"maxWait": None}) for each in bounds),
            change=lambda obj: _with_spec(obj, maxWait=None),
            targets=tuple(("queues", ObjectKey("", each)) for each in bounds),
            protects=lambda other: other.key == gang.key,
            until=until,
        )

    # -- disruption budgets --------------------------------------------------------------------
    def _of_budgets(self) -> Iterator[Obstacle]:
        running: dict[str, list[Gang]] = {}
        for each in self._running:
            running.setdefault(each.key.namespace, []).append(each)
        for budget in self.snapshot.budgets:
            counted = {
                each.key for each in running.get(budget.namespace, ()) if _counts(budget, each)
            }
            if not counted:
                continue
            title = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
            allowed = budget.disruptions_allowed
            yield Obstacle(
                rule=EvictionRule.DISRUPTION_BUDGET,
                kind="PodDisruptionBudget",
                key=ObjectKey(budget.namespace, budget.name),
                message=f"{title} allows {allowed} eviction{'s' * (allowed != 1)}",
                condition=f"{title} were gone",
                command=f"kubectl delete pdb {budget.name} -n {budget.namespace}",
                change=lambda _obj: None,
                targets=(("poddisruptionbudgets", ObjectKey(budget.namespace, budget.name)),),
                protects=_is_one_of(counted),
            )

    # -- queues ------------------------------------------------------------------------------
    @cached_property
    def _own_path(self) -> tuple[str, ...]:
        leaf = self.snapshot.queues.get(self.gang.queue)
        return leaf.path if leaf is not None else ()

    def _path(self, gang: Gang) -> list[QueueNode]:
        leaf = self.snapshot.queues.get(gang.queue)
        found = (self.snapshot.queues.get(name) for name in (leaf.path if leaf else ()))
        return [each for each in found if each is not None]

    def _of_queue(self, node: QueueNode) -> Iterator[Obstacle]:
        name = node.queue.name
        if name in self._own_path or not node.allocated or self._queue_object(name) is None:
            return
        if not node.queue.reclaimable:
            yield self._queue_obstacle(
                name,
                EvictionRule.RECLAIMABLE,
                message=f"queue {name} is not reclaimable",
                condition=f"queue {name} were reclaimable",
                spec={"reclaimable": True},
            )
        for rule in (EvictionRule.GUARANTEE, EvictionRule.DESERVED):
            lowered = self._lowered(node, rule, node.allocated)
            if lowered is not None:
                yield lowered

    def _lowered(self, node: QueueNode, rule: EvictionRule, freed: Resources) -> Obstacle | None:
        """A queue's guarantee, or what it deserves, lowered so that so much may leave it."""
        name, queue = node.queue.name, node.queue
        had = queue.guarantee if rule is EvictionRule.GUARANTEE else queue.deserved
        # What a queue deserves cannot be less than it is guaranteed.
        least = NOTHING if rule is EvictionRule.GUARANTEE else queue.guarantee
        to = {
            each: lower
            for each, amount in had.items
            if self._asked.get(each)
            and (lower := max(least.get(each), node.allocated.get(each) - freed.get(each))) < amount
        }
        if not to:
            return None
        was = Resources.of({each: had.get(each) for each in to})
        holds = Resources.of({each: node.allocated.get(each) for each in to})
        verb = "is guaranteed" if rule is EvictionRule.GUARANTEE else "deserves"
        would = "were guaranteed" if rule is EvictionRule.GUARANTEE else "deserved"
        become = Resources.of({**dict(had.items), **to}).quantities()
        amounts = " and ".join(_amount_text(each, amount) for each, amount in sorted(to.items()))
        return self._queue_obstacle(
            name,
            rule,
            message=f"queue {name} {verb} {was.text()} and holds {holds.text() or 'none'}",
            condition=f"queue {name} {would} {amounts} in place of {was.text()}",
            spec={"guarantee": {"resource": become}}
            if rule is EvictionRule.GUARANTEE
            else {"deserved": become},
        )

    def _of_own_queue(self) -> Iterator[Obstacle]:
        """What its queues deserve is too little to take from others; and no one passes in a line."""
        stated = False
        for node in self._path(self.gang):
            deserved, name = node.queue.deserved, node.queue.name
            would = node.allocated.plus(self._asked)
            to = {
                each: would.get(each)
                for each, amount in deserved.items
                if self._asked.get(each) and would.get(each) > amount
            }
            stated = stated or any(accelerator(each) for each, _ in deserved.items)
            if not to and node.leaf and not stated:
                to = {each: would.get(each) for each in self._accelerators}
            if not to or self._queue_object(name) is None:
                continue
            says = (
                Resources.of({each: deserved.get(each) for each in to}).text() or "no such amount"
            )
            wants = Resources.of(to).text()
            yield self._queue_obstacle(
                name,
                EvictionRule.DESERVED,
                message=f"queue {name} would hold {wants} with it and deserves {says}",
                condition=f"queue {name} deserved {wants} in place of {says}",
                spec={"deserved": Resources.of({**dict(deserved.items), **to}).quantities()},
                protects_all=True,
            )
        yield from self._of_own_line()

    def _of_own_line(self) -> Iterator[Obstacle]:
        leaf = self.snapshot.queues.get(self.gang.queue)
        if (
            leaf is not None
            and leaf.queue.ordering in _IN_LINE
            and self._queue_object(leaf.queue.name)
        ):
            name, ordering = leaf.queue.name, leaf.queue.ordering
            yield self._queue_obstacle(
                name,
                EvictionRule.ORDERING,
                message=f"queue {name} is served {ordering}: none is preempted for a younger gang",
                condition=f"queue {name} were ordered by Priority in place of {ordering}",
                spec={"ordering": "Priority"},
            )

    def _queue_obstacle(
        self,
        name: str,
        rule: EvictionRule,
        *,
        message: str,
        condition: str,
        spec: dict[str, object],
        protects_all: bool = False,
    ) -> Obstacle:
        return Obstacle(
            rule=rule,
            kind="Queue",
            key=ObjectKey("", name),
            message=message,
            condition=condition,
            command=_queue_patch(name, spec),
            change=lambda obj: _with_spec(obj, **spec),
            targets=(("queues", ObjectKey("", name)),),
            protects=lambda gang: (
                protects_all or any(each.queue.name == name for each in self._path(gang))
            ),
        )

    def _queue_object(self, name: str) -> Obj | None:
        return self.trial.objects.get("queues", ObjectKey("", name))

    # -- its own -----------------------------------------------------------------------------
    def _of_own_priority(self) -> Iterator[Obstacle]:
        """No gang of its queue leaves for one of its priority: the highest class there is."""
        classes = self.own.higher_classes()
        queue = self.gang.queue
        if classes and any(
            each.queue == queue and each.priority >= self.gang.priority for each in self._running
        ):
            yield self._priority_obstacle(classes[-1])

    def lower_priorities(self) -> Iterator[Obstacle]:
        """The same with each class that is higher than its own, the lowest first."""
        return map(self._priority_obstacle, self.own.higher_classes())

    def _priority_obstacle(self, higher: ChangeProposal) -> Obstacle:
        made = {(edit.plural, edit.key): edit.becomes for edit in higher.edits}
        queue, priority = self.gang.queue, self.gang.priority
        return Obstacle(
            rule=EvictionRule.PRIORITY,
            kind=self.gang.key.kind,
            key=ObjectKey(self.gang.key.namespace, self.gang.key.name),
            message=f"it has priority {priority}, and gangs of queue {queue} leave only for a higher "
            "one than their own",
            condition=f"it were submitted {higher.message}",
            command=higher.command,
            change=lambda obj: made[plural_of(obj), key_of(obj)],
            targets=tuple(made),
            protects=lambda gang: gang.queue == queue and gang.priority >= priority,
        )

    @cached_property
    def _asked(self) -> Resources:
        pods = [each.pod_class.charged for each in self.gang.pod_sets for _ in each.pods]
        pods.sort(key=lambda amounts: amounts.items)
        return total(pods[: self.gang.members_at_start])

    @property
    def _accelerators(self) -> list[str]:
        return [name for name, amount in self._asked.items if amount and accelerator(name)]


def running_workload(trial: TrialCluster, gang: Gang) -> Workload:
    """The objects that a gang which runs is made of."""
    key = ObjectKey(gang.key.namespace, gang.key.name)
    pods = [trial.objects.get("pods", member.pod.key) for member in gang.placed]
    return Workload(
        gang.key,
        trial.objects.get("podgroups", key) if gang.key.kind == "PodGroup" else None,
        trial.objects.get("jobs", key) if gang.key.kind == "Job" else None,
        tuple(pod for pod in pods if pod is not None),
    )


def sorted_edits(
    objects: dict[tuple[str, ObjectKey], Obj | None],
) -> list[tuple[tuple[str, ObjectKey], Obj | None]]:
    """By kind and name."""
    return sorted(objects.items(), key=lambda each: each[0])


def _counts(budget: DisruptionBudget, gang: Gang) -> bool:
    selector = budget.selector
    return selector is not None and any(selector.matches(each.pod.labels) for each in gang.placed)


def _is_one_of(keys: Collection[GangKey]) -> Callable[[Gang], bool]:
    return lambda gang: gang.key in keys


def _with_spec(obj: Obj, **fields: object) -> Obj:
    spec = {**obj["spec"], **fields}
    return {**obj, "spec": {name: value for name, value in spec.items() if value is not None}}


def _queue_patch(name: str, spec: dict[str, object]) -> str:
    body = json.dumps({"spec": spec}, separators=(",", ":"), sort_keys=True)
    return f"kubectl patch queue {name} --type merge -p '{body}'"


def _annotation_text(name: str, value: object) -> str:
    label = "min-runtime" if name == "minRuntime" else name
    return f"gpusched.io/{label}={str(value).lower() if isinstance(value, bool) else value}"


def _amount_text(resource: str, amount: int) -> str:
    return Resources.of({resource: amount}).text() if amount else f"0 {resource}"
