"""The daemon with a stop watch: ``python -m benchmarks.placement_daemon_run F PODS [PROFILE]``.

When so many pods are decided, one line of JSON goes to standard output: seconds from the first
pod that the cache was told of to the last decision, seconds in sessions that decided something,
and processor time until then. The daemon goes on binding until it is ended.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import random
import resource
import sys
import time

from gpusched.api.pod.pod import Pod
from gpusched.app import App, AppOptions
from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT
from gpusched.io.cycle import session_cycle
from gpusched.io.observe.logs import set_up_logging
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.session.decide import Decision, decide
from gpusched.session.state.plan import Plan


class Watch:
    """Notes when things happen to a daemon."""

    def __init__(self, pods: int, profile: str) -> None:
        self._left = pods
        self._first = 0.0
        self._in_sessions = 0.0
        self._profile = cProfile.Profile() if profile else None
        self._file = profile

    def seen(self, _pod: Pod) -> None:
        """The cache is told of a pod."""
        if not self._first:
            self._first = time.monotonic()

    def decide(self, *given: object, **how: object) -> Decision:
        """``decide`` with its time taken."""
        began = time.monotonic()
        if self._profile is not None:
            self._profile.enable()
        decision = decide(*given, **how)  # type: ignore[arg-type]
        if self._profile is not None:
            self._profile.disable()
        if decision.plan.binds:
            self._in_sessions += time.monotonic() - began
        return decision

    def decided(self, plan: Plan) -> None:
        """A plan was carried out."""
        new = sum(len(gang.binds) for gang in plan.binds)
        self._left -= new
        if new and self._left <= 0:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            told = {
                "decided_s": time.monotonic() - self._first,
                "sessions_s": self._in_sessions,
                "cpu_s": usage.ru_utime + usage.ru_stime,
            }
            if self._profile is not None:
                self._profile.dump_stats(self._file)
            print(json.dumps(told), flush=True)


def main(kubeconfig: str, pods: int, profile: str = "") -> None:
    """Run until killed."""
    set_up_logging(level=30)
    collect_garbage_rarely()
    watch = Watch(pods, profile)
    session_cycle.decide = watch.decide  # type: ignore[attr-defined]
    daemon = App(
        AppOptions(config=DEFAULT, clock=SystemClock(), rng=random.Random(1), kubeconfig=kubeconfig)
    )
    daemon.cache.on_pod.append(watch.seen)
    daemon.on_plan.append(watch.decided)
    asyncio.run(daemon.run())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
