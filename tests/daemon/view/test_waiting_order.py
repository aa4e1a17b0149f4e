"""Places in the order are those in which gangs then start, and say by which keys they were sorted."""

from __future__ import annotations

from gpusched.view.access import EVERYTHING
from tests.daemon.view.followed import leader

QUEUES = "queues.scheduling.gpusched.io"
DOMAIN = "scheduling.gpusched.io/v1alpha1"


def priority_class(w, name, value):
    w.client.create(
        "priorityclasses.scheduling.k8s.io",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


def queue(w, name, **spec):
    w.client.create(
        QUEUES,
        {"apiVersion": DOMAIN, "kind": "Queue", "metadata": {"name": name}, "spec": spec},
    )


def pod(w, name, *, of="", queue="", gpus=8, run_for="20s"):
    """A pod that runs for a while, of a priority class and in a queue."""
    spec = {"priorityClassName": of} if of else {}
    labels = {"gpusched.io/queue": queue} if queue else {}
    w.pod(name, gpus=gpus, spec=spec, labels=labels, annotations={"gpusched.io/run-for": run_for})


def names(store):
    """Gangs in line, in their order."""
    return [
        gang.metadata.name
        for gang in store.waiting_gangs(EVERYTHING)
        if store.order(gang, EVERYTHING).position
    ]


def told(store, name):
    """The order of a waiting pod."""
    return store.order(store.gangs[f"default/Pod/{name}"], EVERYTHING)


async def starts(w, store, count):
    """Names of pods in the order in which they start, and for each who was first in line before."""
    found, first = [], []
    seen = {each["metadata"]["name"] for each in w.running()}

    def fresh():
        return {each["metadata"]["name"] for each in w.running()} - seen

    while len(found) < count:
        first += names(store)[:1]
        await w.until(fresh)
        (name,) = fresh()
        seen.add(name)
        found.append(name)
    return found, first


def test_positions_are_the_order_of_starts(play):
    """Given one node and gangs of several classes and ages: they start as their positions said."""

    async def scenario(w):
        await w.start(nodes=1)
        priority_class(w, "training", 1000)
        priority_class(w, "batch", 0)
        store, _ = await leader(w)
        pod(w, "runs", of="training", run_for="60s")
        await w.until(lambda: len(w.running()) == 1)
        for number, (name, of) in enumerate(
            [("b1", "batch"), ("t1", "training"), ("b0", "batch"), ("t0", "training")]
        ):
            await w.clock.sleep(2 + number % 2)
            pod(w, name, of=of)
        await w.until(lambda: len(names(store)) == 4)
        line = names(store)
        assert line == ["t1", "t0", "b1", "b0"]
        t0, b1 = told(store, "t0"), told(store, "b1")
        assert (t0.position, t0.total, t0.queue_position, t0.queue_total) == (2, 4, 2, 4)
        assert (t0.after.name, t0.decided_by) == ("t1", "since")
        assert (b1.after.name, b1.decided_by) == ("t0", "priority")
        assert b1.message == (
            "is after Pod default/t0 because class batch counts 0; that one: class training counts 1000"
        )
        assert told(store, "t1").message == "is the first in line"
        values = {term.policy: term.value for term in b1.terms}
        assert (values["priority"], values["gang"]) == ("0", "new")
        found, first = await starts(w, store, 4)
        assert found == line
        assert first == line

    play(scenario, limit_s=3000)


def test_of_several_queues_the_first_in_line_starts_next(play):
    """Given a queue that holds its share and one that holds nothing: who of the latter is first starts first."""

    async def scenario(w):
        await w.start(nodes=2)
        for name in ("ml", "guest", "web"):
            queue(w, name, minRuntime="1h")
        store, _ = await leader(w)
        pod(w, "long", queue="ml", run_for="10h")
        pod(w, "short", queue="guest", run_for="60s")
        await w.until(lambda: len(w.running()) == 2)
        for name in ("ml-0", "web-0", "ml-1", "web-1"):
            await w.clock.sleep(2)
            pod(w, name, queue=name.partition("-")[0])
        await w.until(lambda: len(names(store)) == 4)
        assert names(store) == ["web-0", "web-1", "ml-0", "ml-1"]
        ml, web = told(store, "ml-0"), told(store, "web-1")
        assert (ml.position, ml.queue_position, ml.queue_total) == (3, 1, 2)
        assert (ml.after.name, ml.decided_by) == ("web-1", "fairshare")
        assert ml.message == (
            "is after Pod default/web-1 because queue ml holds more than it is due; "
            "that one: queue web holds no more than it is due"
        )
        assert [(t.policy, t.queue, t.value) for t in web.terms if "/" in t.value] == [
            ("fairshare", "web", "8/5")
        ]
        found, first = await starts(w, store, 1)
        assert found == first == ["web-0"]

    play(scenario, limit_s=3000)


def test_in_a_line_priority_does_not_count(play):
    """Given a queue whose ordering is Fifo: who came first is first, and says so."""

    async def scenario(w):
        await w.start(nodes=1)
        priority_class(w, "training", 1000)
        queue(w, "line", ordering="Fifo")
        store, _ = await leader(w)
        pod(w, "runs", queue="line", run_for="60s")
        await w.until(lambda: len(w.running()) == 1)
        pod(w, "early", queue="line")
        await w.clock.sleep(3)
        pod(w, "late", of="training", queue="line")
        await w.until(lambda: names(store) == ["early", "late"])
        late = told(store, "late")
        assert late.decided_by == "since"
        assert "in queue line priority does not count, but who came first" in [
            term.message for term in late.terms
        ]
        found, first = await starts(w, store, 2)
        assert found == first == ["early", "late"]

    play(scenario, limit_s=3000)


def test_a_gang_without_a_turn_says_why(play):
    """Given pods that are gated: they are in no line, and their reason is told."""

    async def scenario(w):
        await w.start(nodes=1)
        store, _ = await leader(w)
        gates = {"schedulingGates": [{"name": "example.com/wait"}]}
        w.pod("gated", spec=gates)
        pod(w, "runs")
        await w.until(lambda: len(store.gangs) == 2 and len(w.running()) == 1)
        order = told(store, "gated")
        assert (order.position, order.terms) == (0, ())
        assert order.message.startswith("is not in line: ")
        assert store.order(store.gangs["default/Pod/runs"], EVERYTHING) is None

    play(scenario, limit_s=3000)
