"""Budgets on whole daemons: exhausted and opened in the next period, a restart in the middle."""

from __future__ import annotations

from gpusched.api.meta.identity import parse_time
from tests.daemon.conftest import QUEUES

HOUR = 3_600


def queue(w, name, **budget):
    """A queue with a budget."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
    w.client.create(QUEUES, {**head, "metadata": {"name": name}, "spec": {"budget": budget}})


def budget(w, name="q"):
    """What its status says of it."""
    return (w.client.get(QUEUES, None, name).get("status") or {}).get("budget") or {}


def condition(w, name="q"):
    """Status, reason and message of the condition WithinBudget."""
    status = w.client.get(QUEUES, None, name).get("status") or {}
    found = [c for c in status.get("conditions", ()) if c["type"] == "WithinBudget"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


def gang(w, name, gpus=8, **spec):
    """A gang of one pod."""
    w.group(name, queue="q", minMember=1, **spec)
    w.pod(
        f"{name}-0", gpus=gpus, labels={"gpusched.io/pod-group": name},
        annotations={"gpusched.io/run-for": "1000h"},
    )  # fmt: skip


def test_a_budget_is_used_and_opens_again_with_the_next_period(play):
    """Half a GPU-hour is 225 seconds of eight GPUs; the next hour's budget starts the next gang."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "q", gpuHours="500m", period="1h", warnPercent=50)
        await w.clock.sleep(-(w.clock.now() + 400) % HOUR)  # an idle hour costs nothing yet
        daemon = w.daemon()
        await w.until(lambda: daemon.leading and budget(w))
        gang(w, "first")
        await w.until(lambda: w.running("first"))
        start = w.clock.now()
        await w.until(lambda: condition(w)[1] == "BudgetWarning", within=300)
        assert 112 <= w.clock.now() - start < 125
        await w.until(lambda: condition(w)[0] == "False", within=300)
        assert 225 <= w.clock.now() - start < 240
        gang(w, "second")
        await w.until(lambda: w.condition("second").get("reason") == "BudgetExhausted")
        told = w.condition("second")["message"]
        opens = budget(w)["nextPeriod"]
        assert "of its budget of 0.5 GPU-hours" in told
        assert told.endswith(f"the next period begins {opens}")
        assert len(w.running("first")) == 1
        await w.clock.sleep(parse_time(opens) - w.clock.now() - 5)
        assert w.bound("second") == []
        await w.until(lambda: w.bound("second"), within=7)
        await daemon.stop()

    play(scenario, limit_s=12_000)


def test_a_restart_charges_what_ran_meanwhile_once(play):
    """Given a daemon that is killed, when another begins ten minutes later, then the use is exact."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "q", gpuHours=1000, period="8784h")
        first = w.daemon()
        await w.until(lambda: first.leading and budget(w))
        gang(w, "a", gpus=4)
        await w.until(lambda: w.running("a"))
        began = parse_time(w.told("a-0")["lastTransitionTime"])
        await w.clock.sleep(200)
        first.kill()
        await w.clock.sleep(600)
        second = w.daemon()
        await w.until(lambda: second.leading, within=120)
        before = parse_time(budget(w)["asOf"])
        await w.until(lambda: parse_time(budget(w)["asOf"]) > before, within=120)
        told = budget(w)
        assert float(told["gpuSeconds"]) == 4 * (parse_time(told["asOf"]) - began)
        w.client.delete("pods", "default", "a-0", grace_s=0)
        await w.clock.sleep(120)
        ended = budget(w)
        await w.clock.sleep(300)
        assert budget(w)["gpuSeconds"] == ended["gpuSeconds"]
        used = float(ended["gpuSeconds"])
        assert used >= float(told["gpuSeconds"])
        await second.stop()

    play(scenario, limit_s=12_000)


def test_a_budget_that_is_absurd_freezes_its_own_queue_alone(play):
    """The API server refuses what the schema can tell; a period of a minute is told on the Queue."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "q", gpuHours=2, period="1m")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        gang(w, "a")
        w.group("b", minMember=1)
        w.pod("b-0", labels={"gpusched.io/pod-group": "b"})
        await w.until(lambda: w.running("b"))
        await w.until(lambda: w.condition("a").get("reason") == "QueueStopped")
        assert "'1m' is not whole seconds from 1h to 8784h" in w.condition("a")["message"]
        await daemon.stop()

    play(scenario)
