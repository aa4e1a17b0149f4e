"""A few random lives of whole clusters, and that their watch sees what is wrong."""

from __future__ import annotations

import re

import pytest

from tests.behaviour.histories import life
from tests.behaviour.histories.histories import draw_story, run_history
from tests.behaviour.histories.starvation import StarvationCheck
from tests.behaviour.notation import objects
from tests.behaviour.notation.cases import parse_cases
from tests.populations import one_of

RACE = """
case the watch looks
node n0 4g
queue a des=2g ; b des=2g
gang low a 1g @n0*2 -> 0..2
gang high b 1g @n0*2 -> 0..2
"""


@pytest.mark.parametrize("seed", one_of(2, [4, 5, 8, 9, 82]))
def test_a_random_life_keeps_every_promise(seed):
    """See ``histories.life`` for what is checked."""
    assert run_history(seed) == [], draw_story(seed)


def test_stories_are_repeatable_and_differ():
    """A seed is a story, and seeds are many."""
    assert draw_story(3) == draw_story(3)
    assert len({draw_story(seed).partition("\n")[2] for seed in range(50)}) == 50


def test_the_watch_sees_an_eviction_that_no_rule_allows(monkeypatch):
    """Somebody evicts a pod of a queue that is within its share: the watch tells."""
    (case,) = parse_cases(RACE, family="watch")
    second = life.DaemonPlayer.second

    async def evicting(self, now):
        if now == 20:
            self.world.client.delete("pods", "default", "low-0")
        await second(self, now)

    monkeypatch.setattr(life.DaemonPlayer, "second", evicting)
    wrong = life.run_watched_case(case, seed=1)
    assert "I5: low is reclaimed from a, within its share" in wrong


def test_the_watch_sees_that_it_never_gets_quiet(monkeypatch):
    """The same pod is evicted again and again: the end never comes."""
    (case,) = parse_cases(RACE, family="watch")
    second = life.DaemonPlayer.second

    async def evicting(self, now):
        if now < 0 and int(self.world.clock.monotonic()) % 60 == 0:
            for pod in self.world.client.list("pods")[:1]:
                self.world.client.delete("pods", "default", pod["metadata"]["name"])
        await second(self, now)

    monkeypatch.setattr(life.DaemonPlayer, "second", evicting)
    monkeypatch.setattr(life, "_END_S", 400)
    wrong = life.run_watched_case(case, seed=1)
    assert any(message.startswith("I10: pods still move") for message in wrong), wrong
    assert any(message.startswith("P: ") for message in wrong), wrong


def witness(text):
    """A moment in which the pods of a case are where it says, and all others wait."""
    (case,) = parse_cases("case it\n" + text, family="watch")
    pods = []
    for gang in case.gangs:
        for number, member in enumerate(objects.members(gang)):
            pod = objects.pod(member, name=f"{gang.name}-{number}")
            if member.kind.node:
                pod["spec"]["nodeName"] = member.kind.node
            pods.append(pod)
    return StarvationCheck(
        case=case,
        pods=pods,
        nodes=[objects.node(node) for node in case.nodes],
        groups=[],
        queues={queue.name: objects.queue(queue)["spec"] for queue in case.queues},
    )


NODES = "node n0 2g rack=r0 ; n1 2g rack=r1\nlevels rack\n"
FULL = "gang low a 1g @n0*2 min=1 p25 -> 2\ngang other b 1g @n1*2 min=1 p25 -> 2\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queue a\ngang late a 2g x2 -> 0", ["there is room"]),
        ("queue a\ngang late a 2g x3 -> 0", []),
        ("queue a\ngang late a 2g x2 required=rack -> 0", []),
        ("queue a cap=3g\ngang late a 2g x2 -> 0", []),
        ("queue a des=3g\ngang late a 2g x2 hard -> 0", []),
        (f"queue a ; b\n{FULL}gang late a 1g x1 -> 0", ["its queue's gangs of lower priority"]),
        (f"queue a ; b\n{FULL}gang late a 1g x1 p25 -> 0", []),
        (f"queue a ; b\n{FULL}gang late a 1g x3 -> 0", []),
        (f"queue a ; b des=1g ; c des=1g\n{FULL}gang late c 1g x1 p25 -> 0", ["1 pods of others"]),
        (f"queue a ; b des=2g ; c des=1g\n{FULL}gang late c 1g x1 p25 -> 0", []),
        (f"queue a ; b des=1g ; c des=1g\n{FULL}gang late c 1g x2 p25 -> 0", []),
    ],
)
def test_the_witness_tells_who_waits_though_he_could_run(text, told):
    """I7 by brute force: free room, lower gangs of the same queue, and surplus of other queues."""
    found = witness(NODES + text).starving()
    assert [message.partition(", and ")[2][: len(told[0])] for message in found] == told


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("preempted for default/low: so", "I6: low is preempted for low, which is not above it"),
        ("preempted for default/high: so", "I6: low is preempted for high, which is not above it"),
        ("reclaimed for default/low: so", "I6: low is reclaimed for low of its own queue"),
        ("reclaimed for default/high: so", "I6: others left for high, and it got nothing"),
    ],
)
def test_the_watch_reads_for_whom_a_pod_leaves(monkeypatch, told, said):
    """What victims are told names who gains by it: he must have the right, and get a place."""
    text = RACE.replace("gang high b 1g @n0*2 -> 0..2", "gang high b 8g x1 -> 0")
    (case,) = parse_cases(text, family="watch")
    monkeypatch.setattr(life, "_FOR", re.compile(life._FOR.pattern.replace(r"g\d+", r"\w+")))
    second = life.DaemonPlayer.second

    async def telling(self, now):
        if now == 20:
            why = {"type": "DisruptionTarget", "status": "True", "reason": "x", "message": told}
            pod = self.world.client.get("pods", "default", "low-0")
            pod["status"].setdefault("conditions", []).append(why)
            self.world.client.update("pods", pod, "status")
        await second(self, now)

    monkeypatch.setattr(life.DaemonPlayer, "second", telling)
    assert said in life.run_watched_case(case, seed=1)
