"""A binding that is refused for good leaves no gang in part longer than two minutes."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gpusched.base import limits
from tests.populations import WHOLE

GROUPS = "podgroups.scheduling.gpusched.io"


def members(w, group, count, *, gpus=8):
    """Pods of a PodGroup that nobody makes again."""
    for number in range(count):
        w.pod(
            f"{group}-{number}", gpus=gpus, labels={"gpusched.io/pod-group": group},
            annotations={"gpusched.io/run-for": "10h"},
        )  # fmt: skip


async def longest_in_part(w, need, seconds):
    """For how many seconds at a stretch some of the pods and fewer than needed were bound."""
    longest = since = 0.0
    for _ in range(int(seconds)):
        await w.clock.sleep(1)
        bound = sum(not each["metadata"].get("deletionTimestamp") for each in w.bound())
        now = w.clock.now()
        since = (since or now) if 0 < bound < need else 0.0
        longest = max(longest, now - since if since else 0.0)
    return longest


ANSWERS = ["422", "403", "404", "409", "500", "400"]
MADE = ["group", "group-of-job", "job"]
EACH_TWICE = [*zip(ANSWERS, MADE * 2, strict=True)]


@pytest.mark.parametrize(
    ("answer", "made"), [*itertools.product(ANSWERS, MADE)] if WHOLE else EACH_TWICE
)
def test_a_gang_of_which_one_binding_is_always_refused_is_not_left_in_part(play, answer, made):
    """Given a server that refuses one pod on and on, then what was bound of its gang leaves in time."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=3)
        daemon = w.daemon()
        refused = []

        def fault(method, path):
            if not path.endswith("/binding"):
                return ""
            pod = path.split("/")[-2]
            last = max(each["metadata"]["name"] for each in w.pods())
            if pod in refused or (pod == last and made != "group"):
                refused.append(pod)
                return answer
            return answer if pod == "a-2" else ""

        daemon.fault = fault
        if made == "group":
            w.group("a", minMember=3)
            members(w, "a", 3)
        elif made == "job":
            w.job("a", 3, backoffLimit=1000)
        else:
            w.group("a", minMember=3)
            w.job("a", 3, group="a", backoffLimit=1000)
        longest = await longest_in_part(w, 3, 480)  # three rounds; 700 s saw no fourth
        assert longest <= limits.GANG_RECOVERY_MAX_S + 5

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("made", ["group", "job"])
def test_a_refused_member_that_is_made_anew_shows_no_gang_that_once_was_whole(
    play, made, restarted
):
    """Given a refused pod that is replaced now and then, it looks like one that was lost: it is not."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=3)
        first = w.daemon()
        bound = set()

        def fault(_method, path):
            if not path.endswith("/binding"):
                return ""
            pod = path.split("/")[-2]
            if len(bound) < 2:
                bound.add(pod)
            return "" if pod in bound else "422"

        first.fault = fault
        if made == "group":
            w.group("a", minMember=3)
            w.job("a", 3, group="a", backoffLimit=1000)
        else:
            w.job("a", 3, backoffLimit=1000)
        await w.until(lambda: len(w.bound()) == 2)

        async def replace():
            while True:
                await w.clock.sleep(25)
                for each in w.pods():
                    if not each["spec"].get("nodeName"):
                        w.client.delete("pods", "default", each["metadata"]["name"], grace_s=0)

        task = asyncio.create_task(replace())
        if restarted:
            await w.clock.sleep(28)
            first.kill()
            second = w.daemon()
            second.fault = fault
        longest = await longest_in_part(w, 3, 400)
        task.cancel()
        assert longest <= limits.GANG_RECOVERY_MAX_S + 5

    play(scenario)
