"""Labels and annotations under our prefix that mean nothing: the daemon says so where people look."""

from __future__ import annotations

import pytest

from gpusched.api.gang.decode import POD_GROUPS
from gpusched.api.jobs.decode import JOBS
from gpusched.api.pod.decode import PODS
from gpusched.base.known_keys import may_hold_unknown_keys
from tests.daemon.conftest import GROUPS
from tests.daemon.sentences.explained import explained, facts

SAID = "annotation gpusched.io/min-membr means nothing to gpusched; did you mean gpusched.io/min-member?"
WRONG = {"gpusched.io/min-membr": "2"}


def warnings(w):
    """What events of reason UnknownKey are about, and what they say."""
    return {
        (each["involvedObject"]["kind"], each["involvedObject"]["name"]): each["message"]
        for each in w.client.list("events")
        if each["reason"] == "UnknownKey"
    }


def test_a_pod_that_runs_is_told(play):
    """Given a pod alone, which should have waited for another one, then an event says why it did not."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        w.pod("p", annotations=WRONG)
        await w.until(lambda: len(w.bound()) == 1)
        await w.until(lambda: warnings(w), within=15)
        assert warnings(w) == {("Pod", "p"): SAID}

    play(scenario)


def test_a_pod_that_waits_is_told_beside_why(play):
    """Given no room for it, then its condition says both, and explain says it once."""

    async def scenario(w):
        await w.start(nodes=0)
        w.daemon()
        w.pod("p", annotations=WRONG)
        await w.until(lambda: SAID in w.told("p").get("message", ""), within=15)
        assert w.told("p")["message"].startswith("needs 1 pod with 8 nvidia.com/gpu")
        await w.until(lambda: warnings(w) == {("Pod", "p"): SAID}, within=15)
        lines = await explained(w, "pod", "p")
        assert facts(lines, "note") == []
        assert "\n".join(lines).count("means nothing") == 1

    play(scenario)


@pytest.mark.parametrize("where", ["template", "job", "group"])
def test_a_group_is_told_whoever_misspells(play, where):
    """Given the key on the pods' template, on their Job or on the PodGroup, then Admitted names it."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        if where == "group":
            w.client.create(
                GROUPS,
                {
                    "apiVersion": "scheduling.gpusched.io/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": "g", "namespace": "default", "annotations": WRONG},
                    "spec": {"minMember": 1},
                },
            )
        else:
            w.group("g", minMember=1)
        notes = WRONG if where == "template" else {}
        w.pod("p", labels={"gpusched.io/pod-group": "g"}, annotations=notes)
        if where == "job":
            job = w.job("j", 2, queue="default", suspend=True)
            w.client.patch("jobs.batch", "default", "j", {"metadata": {"annotations": WRONG}})
            assert job
            await w.until(lambda: ("Job", "j") in warnings(w), within=15)
            return
        await w.until(lambda: SAID in w.condition("g", "Admitted").get("message", ""), within=15)
        await w.until(lambda: warnings(w) == {("PodGroup", "g"): SAID}, within=15)

    play(scenario)


def test_what_is_mended_is_not_told_any_more(play):
    """Given the key taken away, then what the pod waits for is all that is said."""

    async def scenario(w):
        await w.start(nodes=0)
        w.daemon()
        w.pod("p", annotations=WRONG)
        await w.until(lambda: SAID in w.told("p").get("message", ""), within=15)
        mended = {"metadata": {"annotations": {"gpusched.io/min-membr": None}}}
        w.client.patch("pods", "default", "p", mended)
        await w.until(lambda: "means nothing" not in w.told("p").get("message", ""), within=15)

    play(scenario)


@pytest.mark.parametrize(
    ("raw", "may"),
    [
        (b'{"gpusched.io/min-member": "2"}', False),
        (b'{"gpusched.io/min-membr": "2"}', True),
        (b'{"gpusched.io/min-membr" : "2"}', True),
        (b'{"last": "{\\"gpusched.io/min-membr\\":\\"2\\"}"}', False),
        (b'{"key": "gpusched.io/min-membr"}', False),
        (b'{"f:gpusched.io/min-membr": {}}', False),
        (b'{"gpusched.io/min-membr', False),
    ],
)
def test_only_keys_are_looked_at(raw, may):
    """Values, escaped texts and names of managed fields are none."""
    assert may_hold_unknown_keys(raw) is may


@pytest.mark.parametrize("codec", [PODS, JOBS, POD_GROUPS])
def test_lists_and_watches_tell_the_same(codec):
    """Given an object with three misspelt keys and more, then three are told, in a list and in an event."""
    keys = ", ".join(f'"gpusched.io/odd-{number}": "x"' for number in range(5))
    item = (
        '{"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", '
        f'"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {{{keys}}}}}, "spec": {{}}}}'
    )
    page = codec.decode_page(
        f'{{"metadata": {{"resourceVersion": "1"}}, "items": [{item}]}}'.encode()
    )
    event = codec.decode_event(f'{{"type": "ADDED", "object": {item}}}'.encode())
    assert page.items[0] == event.item
    assert len(event.item.strange_keys) == 3
    assert event.item.strange_keys[0].startswith("label gpusched.io/odd-0 means nothing")
