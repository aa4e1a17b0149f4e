"""Faults in force: counts what matched, draws, decides. The decision itself touches nothing else.

``decide_faults`` is a pure function of the facts of a request, the rules' counters, a moment and the
rules' own random streams, so that the same requests meet the same faults over HTTP and in this
process, in real and in virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gpusched.base.classes import define, frozen
from gpusched.devcluster.apimachinery.limits import FAULT_RULES_MAX
from gpusched.devcluster.control.fault_rules import (
    APPLIES,
    FaultEffect,
    FaultRule,
    FaultRuleError,
    FaultSchedule,
    RequestFacts,
)

Obj = dict[str, Any]


@define
class ActiveFault:
    """A rule with its counters and its own stream of draws: rules never shift one another."""

    rule: FaultRule
    rng: random.Random
    matched: int = 0
    fired: int = 0


@frozen(kw_only=True)
class FaultOutcome:
    """What becomes of a request: it waits, then meets at most one other fault."""

    delay_s: float = 0.0
    fault: FaultEffect | None = None
    rule: str = ""


UNHARMED = FaultOutcome()


def decide_faults(
    armed: Sequence[ActiveFault], facts: RequestFacts, now: float, *, can_wait: bool = True
) -> FaultOutcome:
    """Hold a request against the rules in their order.

    Every rule that matches counts it. Delays add up; of the other faults the first to fire is
    the one, and later rules do not fire any more.

    Args:
        armed: the rules; their counters and streams move on.
        facts: of the request.
        now: seconds of the cluster's clock since its start.
        can_wait: False for callers that cannot be delayed: such rules do not match them.
    """
    delay_s, chosen, name = 0.0, None, ""
    for one in armed:
        fault = one.rule.fault
        able = can_wait or fault.type != "delay"
        if not (able and _strikes(fault, facts) and one.rule.match.fits(facts)):
            continue
        one.matched += 1
        due = _due(one.rule.when, one.matched, now) and (
            one.rule.when.rate >= 1 or one.rng.random() < one.rule.when.rate
        )
        if not due or (chosen is not None and fault.type != "delay"):
            continue
        one.fired += 1
        if fault.type == "delay":
            delay_s += one.rng.uniform(*fault.seconds)
        else:
            chosen, name = fault, one.rule.name
    return FaultOutcome(delay_s=delay_s, fault=chosen, rule=name)


def _strikes(fault: FaultEffect, facts: RequestFacts) -> bool:
    can = APPLIES.get(fault.type)
    return can is None or facts.verb in can


def _due(when: FaultSchedule, count: int, now: float) -> bool:
    return (
        when.since <= now < when.until
        and (not when.nth or count == when.nth)
        and (not when.every or count % when.every == 0)
        and (not when.first or count <= when.first)
    )


class ActiveFaults:
    """The rules of one cluster, by name, in the order they were added."""

    def __init__(self, seed: int, rules: Sequence[FaultRule] = ()) -> None:
        self._seed = seed
        self._armed: dict[str, ActiveFault] = {}
        self.add(rules)

    def __len__(self) -> int:
        return len(self._armed)

    def add(self, rules: Sequence[FaultRule]) -> None:
        """Put rules in force; a name in use raises FaultRuleError and adds none of them."""
        if len(self._armed) + len(rules) > FAULT_RULES_MAX:
            raise FaultRuleError((), f"{FAULT_RULES_MAX} rules are the most")
        for rule in rules:
            if rule.name in self._armed:
                raise FaultRuleError(("name",), f"{rule.name!r} is in force already")
        for rule in rules:
            rng = random.Random(f"{self._seed}/fault/{rule.name}")  # noqa: S311  # repeatable
            self._armed[rule.name] = ActiveFault(rule, rng)

    def free_name(self) -> str:
        """Return a name that no rule has."""
        number = len(self._armed) + 1
        while f"rule-{number}" in self._armed:
            number += 1
        return f"rule-{number}"

    def remove(self, name: str) -> bool:
        """Put a rule out of force; False when there is none of that name."""
        return self._armed.pop(name, None) is not None

    def clear(self) -> None:
        """Put every rule out of force."""
        self._armed.clear()

    def meet(self, facts: RequestFacts, now: float, *, can_wait: bool = True) -> FaultOutcome:
        """Decide about one request; see ``decide_faults``."""
        if not self._armed:
            return UNHARMED
        return decide_faults(list(self._armed.values()), facts, now, can_wait=can_wait)

    def counters(self) -> list[Obj]:
        """Return each rule's name, type and how often it matched and fired."""
        return [
            {
                "name": one.rule.name,
                "type": one.rule.fault.type,
                "matched": one.matched,
                "fired": one.fired,
            }
            for one in self._armed.values()
        ]
