"""The configuration reaches the decisions, and each session leaves its spans."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpusched.api.meta.identity import Owner
from gpusched.app.view import follow_sessions
from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT, LimitsConfig, PlacementConfig
from gpusched.io.cycle.session_cycle import SessionCycle, SessionRules
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.observe.tracing import Tracing
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.policy import Policy
from gpusched.testing import entities
from gpusched.testing.given import Given


class Accepting:
    """A binder, a status writer and a lease that agree to everything."""

    fence = "test/1"
    busy = False
    binds_waiting = queued = 0

    def __init__(self) -> None:
        self.gangs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: False

    def submit(self, gang: Any, *_queues: Any) -> tuple[()]:
        """Gangs come alone, statuses as lists; nothing of a plan cannot be carried out."""
        if hasattr(gang, "binds"):
            self.gangs.append(gang)
        return ()

    def may_act(self, *_: float) -> bool:
        """The lease holds."""
        return True

    def server_now(self) -> float:
        """Nothing was bound in part, so any time will do."""
        return 0.0


def awkward() -> Given:
    """Members of 4, 3, 2 and 2 GPUs on nodes with 5 and 6: one pass misses the only placement."""
    c = Given().node("a", gpus=5).node("b", gpus=6).group("mixed", min_member=4)
    for name, gpus in (("four", 4), ("three", 3), ("two", 2), ("deux", 2)):
        c.pod(name, group="mixed", gpus=gpus)
    return c


def make_cycle(
    c: Given, config: Any, telemetry: Telemetry, accepting: Accepting, clock: Any
) -> SessionCycle:
    """A cycle on what is given, whose sessions run in the loop."""
    return SessionCycle(
        c.cache,
        accepting,  # type: ignore[arg-type]
        accepting,
        preemption_executor=Accepting(),  # type: ignore[arg-type]
        lease=accepting,
        ready=lambda: "",
        rules=SessionRules(config, load_policy(config), PluginGuard(clock)),
        clock=clock,
        telemetry=telemetry,
        inline=True,
    )


def one_cycle(config: Any, telemetry: Telemetry) -> list[Any]:
    """The gangs that one session of the cycle commits."""
    accepting = Accepting()

    async def live(clock: Any) -> None:
        cycle = make_cycle(awkward(), config, telemetry, accepting, clock)
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(1.0)
        task.cancel()

    run_virtual(live)
    telemetry.shutdown()
    return accepting.gangs


def test_sessions_grow_while_a_burst_starts() -> None:
    """Given more pods than a session looks at, then each session may look at more; one that comes later is decided as ever."""
    c = Given().nodes(60, gpus=8)
    c.cache.use_limits(LimitsConfig(session_work=8_000))
    for number in range(200):
        c.pod(f"p-{number:03d}", gpus=1)
    times: list[int] = []
    accepting = Accepting()

    async def live(clock: Any) -> None:
        cycle = make_cycle(c, DEFAULT, Telemetry(), accepting, clock)
        cycle.shown.append(lambda snapshot, _plan, _decision: times.append(snapshot.work_times))
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(1.0)
        c.pod("late", gpus=1)
        await asyncio.sleep(1.0)
        task.cancel()

    run_virtual(live)
    assert len(accepting.gangs) == 201
    assert times == [1, 2, 4, 5, 1]


class ShownView:
    """A view that remembers the plans of the sessions that it is to show."""

    def __init__(self) -> None:
        self.plans: list[Any] = []

    def forget(self) -> None:
        """A new term begins."""

    def session(self, _snapshot: Any, plan: Any, _decision: Any, **_parts: Any) -> None:
        """A session is to be shown."""
        self.plans.append(plan)


def test_a_start_is_carried_out_before_everybody_had_a_turn() -> None:
    """Given long lines at rest, when a pod ends, then the session that starts a gang tells of nothing else, and the next one does."""
    c = Given().nodes(1, gpus=8)
    c.cache.use_limits(LimitsConfig(session_work=3_000))
    for slot in range(8):
        c.pod(f"small-{slot}", gpus=1, node="node-0", slots=1 << slot, scheduled=c.now, plan="p")
    for queue in ("a", "b"):
        c.queue(queue)
        for number in range(25):
            c.gang(f"{queue}-{number}", pods=1, gpus=9 + number, queue=queue)
    c.gang("fits", pods=1, gpus=1, queue="a").gang("second", pods=1, gpus=1, queue="b")
    plans: list[Any] = []
    shown: list[Any] = []
    view = ShownView()

    async def live(clock: Any) -> None:
        cycle = make_cycle(c, DEFAULT, Telemetry(), Accepting(), clock)
        follow_sessions(view, cycle, c.cache)
        cycle.decided.append(plans.append)
        cycle.shown.append(lambda _snapshot, plan, _decision: shown.append(plan))
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(60.0)
        for told in (plans, shown, view.plans):
            told.clear()
        c.gone("small-0")
        await asyncio.sleep(60.0)
        task.cancel()

    run_virtual(live)
    first, second, *_ = plans
    assert [each.gang.name for each in first.binds] == ["fits"]
    assert (first.gangs, first.queues, second.binds) == ((), (), ())
    assert {each.gang.name for each in second.gangs} >= {"second", "b-0"}
    assert len(shown) == len(plans), "the history is told for whom gangs leave"
    assert view.plans == shown[1:], "people see the cluster as a whole session left it"


def sessions_of_started_jobs(
    jobs: int, *come_after_s: float, nodes: int
) -> list[tuple[float, bool, bool]]:
    """Sessions after Jobs of two pods with 4 GPUs were started: when they begin, whether nothing but their pods has come, whether they end early.

    Args:
        jobs: how many.
        come_after_s: seconds from the first pods of each Job to its own; those of others do not come.
        nodes: with room for one Job each.
    """
    c = Given().nodes(nodes, gpus=8)
    names = [f"job-{number:02d}" for number in range(jobs)]
    about = {"parallelism": 2, "completions": 2, "queue": "default", "gpus": 4, "pods": 0}
    for name in names:
        c.job(name, **about, started={"admitted": c.now - 1})  # type: ignore[arg-type]
    told: list[tuple[float, bool, bool]] = []

    async def live(clock: Any) -> None:
        cycle = make_cycle(c, DEFAULT, Telemetry(), Accepting(), clock)
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(3.0)
        began = clock.monotonic()
        cycle.shown.append(
            lambda snapshot, _plan, decision: told.append(
                (round(clock.monotonic() - began, 3), snapshot.foreseen, decision.ended_early)
            )
        )
        for name, at in zip(names, come_after_s, strict=False):
            await asyncio.sleep(began + at - clock.monotonic())
            owner = Owner("Job", name, entities.uid("Job", name, "default"))
            for number in (0, 1):
                c.pod(f"{name}-{number}", rank=number, owner=owner, gpus=4)
        await asyncio.sleep(5.0)
        task.cancel()

    run_virtual(live)
    return told


def test_who_starts_beside_one_that_was_awaited_in_vain_is_followed_by_a_whole_session() -> None:
    """Given two started Jobs with room for one, when its pods come, then the session that binds them has not settled how it stands with the other: the next one follows at once."""
    first, second = sessions_of_started_jobs(2, 0.0, nodes=1)
    assert first == (0.005, True, True)
    assert (second[0] < 0.1, second[2]) == (True, False), "status waits for more"


def test_awaited_pods_that_do_not_come_keep_nobody_from_being_told() -> None:
    """Given two started Jobs, when pods of one come, then the session behind the one that binds them is whole, and no other follows."""
    assert [each[1:] for each in sessions_of_started_jobs(2, 0.0, nodes=2)] == [
        (True, True),
        (False, False),
    ]


def test_while_awaited_pods_come_one_after_the_other_people_are_told() -> None:
    """Given Jobs whose pods come for seconds without a pause, then no two whole sessions are further apart than is promised."""
    told = sessions_of_started_jobs(60, *(0.15 * number for number in range(60)), nodes=60)
    whole = [0.0, *(began for began, _, early in told if not early)]
    assert whole[-1] > 8.0
    assert max(after - before for before, after in itertools.pairwise(whole)) <= 2.5


def sessions_after(*happens: tuple[float, Callable[[Given], object]]) -> list[float]:
    """When sessions begin after things that happen in a cluster at rest, each so many seconds after the first one."""
    c = Given().nodes(4, gpus=8).group("pair", min_member=2)
    began: list[float] = []

    async def live(clock: Any) -> None:
        cycle = make_cycle(c, DEFAULT, Telemetry(), Accepting(), clock)
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(1.0)
        first = clock.monotonic()
        cycle.shown.append(lambda *_: began.append(round(clock.monotonic() - first, 4)))
        for at, happen in happens:
            await asyncio.sleep(first + at - clock.monotonic())
            happen(c)
        await asyncio.sleep(0.15)
        task.cancel()

    run_virtual(live)
    return began


def test_a_pod_that_comes_alone_after_a_rest_waits_for_no_others() -> None:
    """Its session begins at once; those of more that come meanwhile are decided together, as ever."""

    def single(c: Given) -> object:
        return c.pod(f"p-{len(c.cache.pods)}", gpus=1)

    assert sessions_after((0.0, single)) == [0.0]
    assert sessions_after((0.0, single), (0.05, single)) == [0.0, 0.05]
    later = ((number / 1000, single) for number in range(1, 8))
    assert sessions_after((0.0, single), *later) == [0.0, 0.012]
    assert sessions_after((0.0, lambda c: (single(c), single(c)))) == [0.005]


def test_what_may_be_the_first_of_several_changes_is_waited_for() -> None:
    """A member of a gang, a node or a group: more of the kind is likely to follow."""

    def member(c: Given) -> object:
        return c.pod(f"m-{len(c.cache.pods)}", group="pair", gpus=1)

    assert sessions_after((0.0, member), (0.002, member)) == [0.007]
    assert sessions_after((0.0, lambda c: c.node("more", gpus=8))) == [0.005]
    assert sessions_after((0.0, lambda c: c.group("other", min_member=2))) == [0.005]


def test_bindings_are_sent_before_it_is_told_how_the_session_went() -> None:
    """Whoever binds has its turns first: a pod does not wait for metrics."""
    order: list[str] = []

    class Sending(Accepting):
        def submit(self, gang: Any, *queues: Any) -> tuple[()]:
            if hasattr(gang, "binds"):
                asyncio.get_running_loop().create_task(self.send())
            return super().submit(gang, *queues)

        async def send(self) -> None:
            """As a client does that writes a request's body in a turn of its own."""
            await asyncio.sleep(0)
            order.append("sent")

    async def live(clock: Any) -> None:
        cycle = make_cycle(
            Given().nodes(1, gpus=8).pod("p", gpus=1), DEFAULT, Telemetry(), Sending(), clock
        )
        cycle.judged.append(lambda _guard: order.append("told"))
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        await asyncio.sleep(0.01)
        task.cancel()

    run_virtual(live)
    assert order[:2] == ["sent", "told"]


@pytest.mark.parametrize(("solver", "gangs"), [("cpsat", 1), ("greedy", 0)])
def test_the_configured_search_is_the_one_that_is_used(solver, gangs) -> None:
    """``placement.solver`` decides whether a gang that one pass misses is found."""
    config = attrs.evolve(DEFAULT, placement=PlacementConfig(solver=solver))
    assert len(one_cycle(config, Telemetry())) == gangs


def test_a_session_leaves_a_span_with_its_actions_and_gangs_below() -> None:
    """One span a cycle; its children are the actions and the gangs it committed."""
    seen = InMemorySpanExporter()
    one_cycle(DEFAULT, Telemetry(Tracing(seen)))
    spans = {span.name: span for span in seen.get_finished_spans()}
    session = spans["session"]
    for child in ("enqueue", "allocate", "gang"):
        assert spans[child].parent is not None
        assert spans[child].parent.span_id == session.context.span_id
    assert spans["gang"].attributes is not None
    assert spans["gang"].attributes["pods"] == 4


def test_a_session_that_waits_for_a_plugin_says_for_which() -> None:
    """The call under way can be read while the session's thread is in it, across a reload too."""
    inside, release = threading.Event(), threading.Event()

    class Slow:
        name, api = "slow", 1

        def open(self, _hooks: Any, _view: Any) -> None:
            """Take long."""
            inside.set()
            assert release.wait(60)

    async def main() -> None:
        accepting, clock = Accepting(), SystemClock()
        shipped = load_policy(DEFAULT)
        rules = SessionRules(DEFAULT, Policy(shipped.actions, ((Slow(),),)), PluginGuard(clock))
        cycle = SessionCycle(
            awkward().cache,
            accepting,  # type: ignore[arg-type]
            accepting,
            preemption_executor=Accepting(),  # type: ignore[arg-type]
            lease=accepting,
            ready=lambda: "",
            rules=rules,
            clock=clock,
            telemetry=Telemetry(),
        )
        cycle.wake()
        task = asyncio.create_task(cycle.run())
        assert await asyncio.to_thread(inside.wait, 60)
        cycle.rules = SessionRules(DEFAULT, shipped, PluginGuard(clock))
        running = cycle.running
        assert running is not None
        assert running.who == ("slow", "open")
        assert cycle.thread not in {0, threading.get_ident()}
        release.set()
        task.cancel()

    asyncio.run(main())
