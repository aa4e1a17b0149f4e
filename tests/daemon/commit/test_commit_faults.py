"""Exceptions planted while a gang is being bound: that gang is set aside, the books stay right."""

from __future__ import annotations

import pytest

from gpusched.cache.cache import Cache
from gpusched.commit.machine import CommitStep
from gpusched.io.write import binder
from gpusched.io.write.bind_calls import BindCalls
from gpusched.io.write.binder import Binder
from tests.daemon.containment.test_containment import KINDS, Planted, condition, events, metric

pytestmark = pytest.mark.contains

WHERE = {
    "placement_error": (Cache, "placement_error", lambda a: a[1]),
    "confirm": (Cache, "confirm_binding", lambda a: a[2]),
    "enqueue": (Binder, "_enqueue_pods", lambda a: a[1]),
    "bind": (Binder, "_bind", lambda a: a[1]),
    "read_group": (Binder, "_read_group", lambda a: a[1]),
}


def about_bad(w, value):
    """Whether a value (name of a node, run, pod) belongs to the gang called bad."""
    if isinstance(value, str):
        return value.startswith("bad")
    gang = getattr(getattr(getattr(value, "state", None), "gang", None), "gang", None)
    if gang is not None:
        return gang.name == "bad"
    return getattr(value, "name", "").startswith("bad")


async def bad_and_good(w, patch, where, kind, fired):
    """A daemon, one gang for which a function raises, another for which it does not."""
    await w.start(nodes=2)
    w.node("bad-0", **{"for": "bad"})
    w.node("bad-1", **{"for": "bad"})
    owner, name, of = WHERE[where]
    original = getattr(owner, name)

    def broken(*args, **how):
        if about_bad(w, of(args)):
            fired.append(name)
            raise kind(name)
        return original(*args, **how)

    patch.setattr(owner, name, broken)
    daemon = w.daemon()
    await w.until(lambda: daemon.leading)
    w.group("bad", minMember=2)
    selecting = {"nodeSelector": {"for": "bad"}}
    for number in range(2):
        w.pod(f"bad-{number}", labels={"gpusched.io/pod-group": "bad"}, spec=selecting)
    w.gang("good", 2)
    return daemon


@KINDS
@pytest.mark.parametrize("where", WHERE)
def test_a_commit_that_raises_costs_its_gang_alone(play, monkeypatch, kind, where):
    """The process stays, the others run; it is told, counted, and afterwards it runs too."""

    async def scenario(w):
        fired = []
        with monkeypatch.context() as patch:
            daemon = await bad_and_good(w, patch, where, kind, fired)
            await w.until(lambda: len(w.running("good")) == 2)
            w.node("another")
            w.gang("small", 1)
            await w.until(lambda: w.running("small"))
            await w.clock.sleep(10)
            assert fired
            assert daemon.leading
            assert not daemon.task.done()
            assert metric(daemon, "contained_faults_total")[("commit", "object")] >= 1
            if not w.bound("bad"):
                told = condition(w, "bad")
                assert (told["status"], told["reason"]) == ("False", "SchedulerError")
                assert "set aside: the scheduler failed on it in commit" in told["message"]
                await w.until(lambda: events(w, "SchedulerError", "bad"))
                assert metric(daemon, "set_aside_objects") == {("gang",): 1}
        await w.until(lambda: len(w.running("bad")) == 2, within=1500)
        await w.clock.sleep(10)
        assert metric(daemon, "set_aside_objects") == {}
        assert condition(w, "bad")["status"] == "True"

    play(scenario)


@pytest.mark.parametrize("call", range(1, 9))
def test_a_machine_that_raises_at_its_kth_step_keeps_the_books_right(play, monkeypatch, call):
    """Whatever was sent is read back: no room is lost and none is given twice."""

    async def scenario(w):
        original, fired = CommitStep.settle_gang, []

        def settle(draft):
            if draft.old.gang.gang.name == "bad":
                fired.append(1)
                if len(fired) == call:
                    raise Planted("settle")
            original(draft)

        monkeypatch.setattr(CommitStep, "settle_gang", settle)
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        w.gang("bad", 2)
        await w.clock.sleep(20)
        assert not daemon.task.done()
        w.client.patch(
            "podgroups.scheduling.gpusched.io", "default", "bad",
            {"spec": {"priorityClassName": "changed"}},
        )  # fmt: skip
        await w.until(lambda: len(w.running("bad")) == 2, within=200)
        ledger = daemon.app.cache.ledger
        held = [ledger.get(pod["metadata"]["uid"]) for pod in w.pods("bad")]
        nodes = [pod["spec"]["nodeName"] for pod in w.pods("bad")]
        assert [each.node for each in held] == nodes
        w.client.delete("jobs.batch", "default", "bad")
        for pod in w.pods("bad"):
            w.client.delete("pods", "default", pod["metadata"]["name"])
        w.gang("next", 2)
        await w.until(lambda: len(w.running("next")) == 2, within=200)

    play(scenario)


def test_what_was_sent_is_read_back_until_it_is_known(play, monkeypatch):
    """The room of a binding with an unknown end stays taken while the API does not answer."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        sent, reads, silent = [], [], [True]
        bind, read_pod = BindCalls.bind, BindCalls.read_pod

        async def lost(self, state, index):
            if state.gang.gang.name != "bad":
                return await bind(self, state, index)
            sent.append(index)
            raise Planted("sent")

        async def read(self, state, index):
            reads.append(state.gang.gang.name)
            if silent[0]:
                raise Planted("no answer")
            return await read_pod(self, state, index)

        def doubted(*_args):
            raise Planted("the commit does not hear of it either")

        monkeypatch.setattr(BindCalls, "bind", lost)
        monkeypatch.setattr(BindCalls, "read_pod", read)
        monkeypatch.setattr(binder, "BindUnknown", doubted)
        w.gang("bad", 1)
        await w.until(lambda: sent)
        w.gang("good", 1)
        await w.clock.sleep(60)
        assert not w.running("good")  # nobody knows yet whether bad is there
        assert len(reads) < 8  # with pauses that grow
        silent[0] = False
        await w.until(lambda: w.running("good"))
        assert not w.bound("bad")
        assert sent == [0]
        assert not daemon.task.done()

    play(scenario)
