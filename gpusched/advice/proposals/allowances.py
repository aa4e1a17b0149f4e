"""What queues let a user, a group or a period have, raised for one gang that waits."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import attrs

from gpusched.advice.proposals.proposal import ChangeProposal, Family
from gpusched.advice.trial import TrialCluster, edit_to
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.budget import GPU_HOUR, format_gpu_hours
from gpusched.api.queue.user_limits import UNKNOWN_USER, UserLimit, account_of
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.engine.objects import Obj
from gpusched.session.framework.accounts.queue_accounts import BudgetUse
from gpusched.session.state.session import Session

_LISTS: Final = {"user": "users", "group": "groups"}
_THOUSAND: Final = 1_000


@frozen(kw_only=True)
class _UserUse:
    """A limit that holds for the gang, and what counts against it.

    Attributes:
        kind, name: ``user`` or ``group``, and of which name.
        need: what the gang takes at its start.
        held: amounts of its gangs.
        running: other gangs of it that have places.
    """

    kind: str
    name: str
    limit: UserLimit
    need: Resources
    held: Resources
    running: int


@frozen(kw_only=True)
class _QueueUse:
    """What a queue on the path of the gang lets people have, and what they have had."""

    spec: Obj
    limits: tuple[_UserUse, ...]
    budget: BudgetUse | None


@define
class _Raised:
    """Fields of queues as they would have to be.

    Attributes:
        says: what becomes what, for a sentence.
        size: by how much, in thousandths of a piece, a gang or a GPU-hour.
    """

    says: list[str] = attrs.Factory(list)
    size: int = 0

    def note(self, becomes: str, whose: str, had: str, *, by: int) -> None:
        """One field becomes another."""
        self.says.append(f"{becomes} {whose} in place of {had}")
        self.size += by


@frozen(slots=False)
class AllowanceProposals:
    """Limits of users and groups, and budgets, that keep one gang from starting.

    Attributes:
        gang: that waits.
        snapshot: that it is part of.
    """

    trial: TrialCluster
    gang: Gang
    snapshot: Snapshot

    @property
    def refuse(self) -> bool:
        """Whether any of them keeps it from starting now."""
        queues = self.snapshot.queues
        leaf = queues.get(self.gang.queue)
        above = [queues.queues[name].queue for name in leaf.path] if leaf is not None else []
        if not any(each.user_limits or each.budget for each in above):
            return False  # as nearly always: no session is opened for it
        return bool(self.raised(1).edits)

    def raised(self, size: int) -> ChangeProposal:
        """All that refuse it, raised so that it may start beside ``size - 1`` others like it."""
        found, edits, commands = _Raised(), [], []
        for name, use in self._uses.items():
            patch = {
                **self._raised_limits(name, use, found, size),
                **self._raised_budget(name, use, found),
            }
            if not patch:
                continue
            spec = {**use.spec}
            for field, values in patch.items():
                spec[field] = {**spec[field], **values}
            obj = self.trial.objects.get("queues", ObjectKey("", name))
            assert obj is not None, "its use was looked at"
            edits.append(edit_to({**obj, "spec": spec}))
            body = json.dumps({"spec": patch}, separators=(",", ":"), sort_keys=True)
            commands.append(f"kubectl patch queue {name} --type merge -p '{body}'")
        return ChangeProposal(
            family=Family.QUOTA,
            size=found.size,
            message=f"with {' and '.join(found.says)}",
            edits=tuple(edits),
            command=" && ".join(commands),
        )

    @cached_property
    def _uses(self) -> dict[str, _QueueUse]:
        """By name, queues on its path that limit people or have a budget."""
        with self.trial.opened_session() as session:
            return dict(self._read_uses(session))

    def _read_uses(self, session: Session) -> Iterator[tuple[str, _QueueUse]]:
        view = session.view
        leaf = view.queue(self.gang.queue)
        for name in leaf.path if leaf is not None else ():
            node, obj = view.queue(name), self.trial.objects.get("queues", ObjectKey("", name))
            budget = view.budgets.get(name)
            if node is None or obj is None or not (node.queue.user_limits or budget):
                continue
            limits = []
            for kind, who, limit in node.queue.user_limits.of_creator(self.gang.creator):
                account = account_of(name, kind, who)
                running = [
                    each for each in view.running_of_user(account) if each.key != self.gang.key
                ]
                limits.append(
                    _UserUse(
                        kind=kind, name=who, limit=limit, need=view.minimum(self.gang),
                        held=view.allocated(account), running=len(running),
                    )
                )  # fmt: skip
            yield name, _QueueUse(spec=obj["spec"], limits=tuple(limits), budget=budget)

    def _raised_limits(self, queue: str, use: _QueueUse, found: _Raised, size: int) -> Obj:
        """Fields of ``userLimits`` that are too low, as they would have to be."""
        limits = copy.deepcopy(use.spec.get("userLimits") or {})
        fields: dict[str, Any] = {}
        for each in use.limits:
            who = f"for {each.kind} {each.name}" if each.name else "for each user"
            raised = self._raised_limit(each, found, f"{who} in queue {queue}", size)
            if not raised:
                continue
            where = "perUser" if each.name == UNKNOWN_USER else _LISTS[each.kind]
            if where == "perUser":
                limits[where] = fields[where] = _merged(limits.get(where) or {}, raised)
                continue
            entries = limits.setdefault(where, [])
            entry = next((one for one in entries if one["name"] == each.name), None)
            if entry is None:  # an entry of its own counts in place of perUser
                entry = {"name": each.name, **(limits.get("perUser") or {})}
                entries.append(entry)
            entry.update(_merged(entry, raised))
            fields[where] = entries
        return {"userLimits": fields} if fields else {}

    def _raised_limit(self, use: _UserUse, found: _Raised, whose: str, size: int) -> Obj:
        raised: Obj = {}
        amounts = {}
        for resource, most in use.limit.resources.items:
            need = use.need.get(resource)
            wanted = use.held.get(resource) + size * need
            if need and use.held.get(resource) + need > most:
                amounts[resource] = wanted
                had, becomes = (
                    Resources.of({resource: amount}).text() for amount in (most, wanted)
                )
                found.note(becomes, whose, had, by=wanted - most)
        if amounts:
            raised["resources"] = Resources.of(amounts).quantities()
        most_running = use.limit.max_running
        if most_running is not None and use.running >= most_running and not self.gang.placed:
            raised["maxRunning"] = wanted = use.running + size
            found.note(
                f"{wanted} running gang{'s' if wanted > 1 else ''}",
                whose,
                str(most_running),
                by=_THOUSAND * (wanted - most_running),
            )
        return raised

    def _raised_budget(self, queue: str, use: _QueueUse, found: _Raised) -> Obj:
        """Fields of a budget that is used, as they would have to be: with a whole GPU-hour left at least."""
        if use.budget is None or not use.budget.is_exhausted_for(self.gang.creator.user):
            return {}
        user, budget, fields = self.gang.creator.user, use.budget.budget, {}
        for field, whose, had, used in (
            (
                "gpuHours",
                "for queue",
                budget.amount,
                use.budget.record.used - use.budget.record.rolled_over,
            ),
            (
                "gpuHoursPerUser",
                "for each user in queue",
                budget.per_user,
                use.budget.used_by(user),
            ),
        ):
            if had is None or used < had:
                continue
            hours = -(-used // GPU_HOUR) + 1
            fields[field] = str(hours)
            found.note(
                f"a budget of {hours} GPU-hours", f"{whose} {queue}", format_gpu_hours(had),
                by=_THOUSAND * (hours * GPU_HOUR - had) // GPU_HOUR,
            )  # fmt: skip
        return {"budget": fields} if fields else {}


def _merged(limit: Obj, raised: Obj) -> Obj:
    """A limit with fields that are raised."""
    resources = {**(limit.get("resources") or {}), **(raised.get("resources") or {})}
    return {**limit, **raised, **({"resources": resources} if resources else {})}
