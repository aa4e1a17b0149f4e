"""Budgets on whole daemons: exhausted and opened in the next period, a restart in the middle."""

from __future__ import annotations

import copy
import re

import pytest
import yaml

from gpusched.api.meta.identity import parse_time
from gpusched.base import installed_files
from gpusched.config.load import load_config
from tests.daemon.conftest import GROUPS, QUEUES

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


def gang(w, name, gpus=8, run_for="1000h", **spec):
    """A gang of one pod."""
    w.group(name, queue="q", minMember=1, **spec)
    w.pod(
        f"{name}-0", gpus=gpus, labels={"gpusched.io/pod-group": name},
        annotations={"gpusched.io/run-for": run_for},
    )  # fmt: skip


def began(w, pod):
    """When it was bound, seconds since the epoch."""
    return parse_time(w.told(pod)["lastTransitionTime"])


def ended(w, pod):
    """When its container ended, seconds since the epoch."""
    (container,) = w.client.get("pods", "default", pod)["status"]["containerStatuses"]
    return parse_time(container["state"]["terminated"]["finishedAt"])


def say_ended(w, pod, at):
    """Its kubelet says another end."""
    status = copy.deepcopy(w.client.get("pods", "default", pod)["status"])
    status["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = at
    w.client.patch("pods", "default", pod, {"status": status}, subresource="status")


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
        metrics = daemon.app.telemetry.render().decode()
        assert 'gpusched_queue_budget_gpu_hours{part="available",queue="q"} 0.5' in metrics
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
        await w.clock.sleep(20)
        told = [
            (event["type"], event["reason"])
            for event in w.client.list("events.events.k8s.io", "default")
            if (event.get("regarding") or event["involvedObject"])["kind"] == "Queue"
        ]
        assert sorted(told) == [
            ("Normal", "WithinBudget"), ("Warning", "BudgetExhausted"), ("Warning", "BudgetWarning"),
        ]  # fmt: skip
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


def test_what_ends_while_no_daemon_runs_is_charged_and_holds_up_the_next_gang(play):
    """Given 300 s of eight GPUs in a budget of 0.5 hours, when most of it is used while none runs."""

    async def scenario(w):
        await w.start(nodes=2)
        queue(w, "q", gpuHours="500m", period="8784h")
        first = w.daemon()
        await w.until(lambda: first.leading and budget(w))
        gang(w, "a", run_for="300s")
        await w.until(lambda: w.running("a"))
        await w.clock.sleep(20)
        first.kill()
        await w.clock.sleep(600)
        gang(w, "b")
        second = w.daemon()
        await w.until(lambda: w.condition("b").get("reason") == "BudgetExhausted")
        await w.clock.sleep(60)
        used = 8 * (ended(w, "a-0") - began(w, "a-0"))
        assert used >= 8 * 295
        assert float(budget(w)["gpuSeconds"]) == used
        assert condition(w)[:2] == ("False", "BudgetExhausted")
        second.kill()
        third = w.daemon()
        await w.until(lambda: third.leading, within=120)
        await w.clock.sleep(120)
        assert float(budget(w)["gpuSeconds"]) == used
        assert w.bound("b") == []
        await third.stop()

    play(scenario, limit_s=12_000)


def test_a_period_that_turns_while_no_daemon_runs_is_charged_with_its_own_part(play):
    """Given 8 GPUs from a quarter of an hour before the turn to 10 minutes after it, and no daemon."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w, "q", gpuHours=20, period="1h", rolloverPercent=100)
        await w.clock.sleep(-(w.clock.now() + 1000) % HOUR)
        first = w.daemon()
        await w.until(lambda: first.leading and budget(w))
        gang(w, "a", run_for="25m")
        await w.until(lambda: w.running("a"))
        first.kill()
        await w.clock.sleep(2000)
        second = w.daemon()
        await w.until(lambda: second.leading, within=120)
        await w.clock.sleep(60)
        told = budget(w)
        turn = parse_time(told["periodStart"])
        assert began(w, "a-0") < turn < ended(w, "a-0")
        assert float(told["gpuSeconds"]) == 8 * (ended(w, "a-0") - turn)
        left = 20 * HOUR - float(told["rolledOverGpuSeconds"])
        assert left == 8 * (turn - began(w, "a-0"))
        await second.stop()

    play(scenario, limit_s=12_000)


@pytest.mark.parametrize("said", ["9999-12-31T23:59:59Z", "1970-01-01T00:00:01Z"])
def test_an_end_that_cannot_be_is_not_believed(play, said):
    """Charged until the daemon saw it ended; one that did not see it run has nothing to charge after its record."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w, "q", gpuHours=1000, period="8784h")
        first = w.daemon()
        await w.until(lambda: first.leading and budget(w))
        gang(w, "a", run_for="130s")
        await w.until(lambda: w.told("a-0").get("status") == "True")
        await w.clock.sleep(70)
        recorded = float(budget(w)["gpuSeconds"])
        assert recorded > 0
        first.kill()
        await w.until(
            lambda: w.client.get("pods", "default", "a-0")["status"]["phase"] == "Succeeded",
            within=200,
        )
        say_ended(w, "a-0", said)
        for _ in range(2):
            await w.clock.sleep(600)
            daemon = w.daemon()
            await w.until(lambda daemon=daemon: daemon.leading, within=120)
            await w.clock.sleep(120)
            assert float(budget(w)["gpuSeconds"]) == recorded
            daemon.kill()

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


def test_the_examples_of_the_page_are_good(play):
    """The Queue of docs/budgets.md takes jobs and is within its budget; the prices are read."""
    page = (installed_files.path("docs") / "budgets.md").read_text(encoding="utf-8")
    queues, notes, prices = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    resources = load_config(prices, source="f.yaml").gpu_resources
    assert (dict(resources.prices), resources.other_price) == ({"a100": 1500, "h100": 4000}, 800)

    async def scenario(w):
        await w.start(nodes=2)
        w.client.create(QUEUES, yaml.safe_load(queues))
        daemon = w.daemon()
        await w.until(lambda: condition(w, "research")[0] == "True")
        w.group("train", queue="research", minMember=1)
        w.client.patch(GROUPS, "default", "train", yaml.safe_load(notes))
        w.pod("train-0", labels={"gpusched.io/pod-group": "train"})
        await w.until(lambda: w.running("train"))
        await w.clock.sleep(2)
        metrics = daemon.app.telemetry.render().decode()
        assert 'gpusched_queue_budget_gpu_hours{part="available",queue="research"} 10000' in metrics
        await daemon.stop()

    play(scenario)
