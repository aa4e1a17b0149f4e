"""Two lease machines over one register, with delays, losses, cuts and pauses."""

from __future__ import annotations

import itertools
import random

import attrs
import pytest

from gpusched.base import limits
from gpusched.leader.lease_machine import LeaseMachine
from gpusched.leader.lease_state import (
    CallLease,
    ClockReading,
    LeaseCallFailed,
    LeaseOperation,
    LeasePhase,
    LeaseRecord,
    LeaseRefused,
    LeaseSeen,
    LeaseState,
    LeaseTiming,
    LeaseWritten,
    StartLeading,
    TimerFired,
)

TIMING = LeaseTiming()


def may_begin(logic: LeaseMachine, current: LeaseState, at: ClockReading) -> bool:
    """Whether this machine would begin a binding now."""
    return logic.may_act(current, at, limits.BIND_TIMEOUT_CLIENT_S)


@pytest.mark.parametrize("seed", range(40))
def test_two_machines_never_act_at_once(seed):
    """Random delays, losses and pauses over one compare-and-set register: one actor at most."""
    rng = random.Random(seed)
    lease = {"version": 1, "holder": "", "transitions": 0}

    def record() -> LeaseRecord:
        return LeaseRecord(
            version=str(lease["version"]),
            holder=lease["holder"],
            transitions=lease["transitions"],
            duration_s=15.0,
        )

    def server(call: CallLease, identity: str, at: ClockReading):
        if call.op is LeaseOperation.READ:
            return LeaseSeen(at, record())
        if call.version != str(lease["version"]):
            return LeaseRefused(at)
        holder = "" if call.op is LeaseOperation.RELEASE else identity
        lease.update(version=lease["version"] + 1, holder=holder, transitions=call.transitions)
        return LeaseWritten(at, record())

    logics = [LeaseMachine(identity=f"m{n}", timing=TIMING) for n in range(2)]
    # Each machine's monotonic clock has its own zero.
    zero = [rng.uniform(0, 1000) for _ in logics]
    states = [logic.first_state(ClockReading(z, z)) for logic, z in zip(logics, zero, strict=True)]
    under_way: list[tuple[float, object] | None] = [None, None]
    paused_until = [0.0, 0.0]
    cut_off_until = [0.0, 0.0]
    acted: list[tuple[float, int]] = []
    leaders = 0
    for step in range(6000):
        true_time = step * 0.05
        for n, logic in enumerate(logics):
            if true_time < paused_until[n]:
                continue
            at = ClockReading(zero[n] + true_time, zero[n] + true_time)
            if states[n].phase is LeasePhase.ENDED:
                logics[n] = LeaseMachine(identity=f"m{n}-{step}", timing=TIMING)
                states[n], under_way[n] = logics[n].first_state(at), None
                continue
            call = None
            if under_way[n] is None:
                states[n], effects = logic.advance_lease(states[n], TimerFired(at))
                call = next((e for e in effects if isinstance(e, CallLease)), None)
            elif true_time >= under_way[n][0]:
                answer = attrs.evolve(under_way[n][1], at=at)
                under_way[n] = None
                states[n], effects = logic.advance_lease(states[n], answer)
                leaders += any(isinstance(e, StartLeading) for e in effects)
                call = next((e for e in effects if isinstance(e, CallLease)), None)
            if call is not None:
                if rng.random() < 0.02:
                    cut_off_until[n] = true_time + rng.uniform(1, 40)
                reached = true_time >= cut_off_until[n] and rng.random() < 0.95
                took = rng.uniform(0, 1.2 * call.timeout_s)
                answer = server(call, logics[n].identity, at) if reached else None
                if answer is None or took > call.timeout_s:
                    took, answer = call.timeout_s, LeaseCallFailed(at, "lost")
                under_way[n] = (true_time + took, answer)
            if may_begin(logics[n], states[n], at):
                acted.append((true_time, n))
            if rng.random() < 0.001:
                paused_until[n] = true_time + rng.uniform(1, 40)
    # A call begun at t may last until t + 5: no two machines within that of each other.
    for (t1, n1), (t2, n2) in itertools.pairwise(acted):
        assert n1 == n2 or t2 - t1 >= limits.BIND_TIMEOUT_CLIENT_S
    assert leaders >= 1
