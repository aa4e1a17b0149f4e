"""Use that decays, and shares of the most used resource."""

from __future__ import annotations

import attrs
import msgspec
import pytest
from gpusched_plugins.queues.usage import BITS, _decayed_part, decay_factor

from gpusched.api.meta.units import DEVICE
from gpusched.api.queue.queue import QueueUsage
from gpusched.config.model import DEFAULT, PluginChoice, PluginTier
from gpusched.pluginhost.registry import load_policy
from gpusched.testing.entities import BORN, GPU, NOW
from gpusched.testing.given import Given

DAY = 86_400


def under(*choices):
    """A cluster with more plugins than by default."""
    tiers = (*DEFAULT.tiers, PluginTier(tuple(PluginChoice(name, args) for name, args in choices)))
    return Given(policy=load_policy(attrs.evolve(DEFAULT, tiers=tiers)))


def measured():
    """A cluster where use of a day ago counts half; it grows old with its sessions."""
    return under(("usage", {"halfLife": "24h"}))


def remember(c, name):
    """What the last session wants remembered of a queue is what the API shows."""
    usage = c.then.queue(name).usage
    key = next(key for key in c.cache.queues.items if key.name == name)
    c.cache.queues.items[key] = attrs.evolve(c.cache.queues.items[key], usage=usage)
    return usage


def runs(c, gang, queue, gpus, *, start=0):
    """A gang of one that has its place."""
    c.group(gang, queue=queue)
    return c.pod(
        f"{gang}-0", group=gang, gpus=gpus, cpu=0, memory=0, node="node-0", plan="p",
        slots=((1 << gpus) - 1) << start, scheduled=NOW,
    )  # fmt: skip


@pytest.mark.parametrize("halves", range(0, 61, 7))
def test_whole_half_lives_are_exact(halves):
    """One half for each."""
    assert decay_factor(halves * 10**9, 10**9) == (1 << BITS) >> halves


def test_parts_of_a_half_life_multiply():
    """Two halves of a half-life are one, up to the last digits; more time leaves less."""
    half = decay_factor(500, 1000)
    assert abs((half * half >> BITS) - (1 << BITS - 1)) < 1 << 10
    left = [decay_factor(passed, 997) for passed in range(0, 6000, 13)]
    assert left == sorted(left, reverse=True)


@pytest.mark.parametrize(("amount", "left"), [(7, 3), (-7, -3), (0, 0), (8, 4), (-8, -4)])
def test_what_is_left_of_a_difference_is_rounded_towards_zero(amount, left):
    """So a share that rises and one that falls come to rest alike."""
    assert _decayed_part(amount, 1 << BITS - 1) == left


def test_a_queue_that_uses_all_for_a_half_life_used_half():
    """The record holds the share, so the average follows without being written again."""
    c = runs(measured().nodes(1, gpus=8).queue("a"), "g", "a", 8)
    c.when.one_session()
    first = remember(c, "a")
    assert first == QueueUsage(NOW, (), ((GPU, 10**9),))
    c.now = NOW + DAY
    c.when.one_session()
    assert remember(c, "a") == first
    c.gone("g-0").when.one_session()
    assert remember(c, "a") == QueueUsage(NOW + DAY, ((GPU, 500_000_000),), ())
    c.now += 2 * DAY
    c.when.one_session()
    assert remember(c, "a") == QueueUsage(NOW + DAY, ((GPU, 500_000_000),), ())


def test_changes_are_remembered_at_a_bounded_rate():
    """A share that moves all the time is written once a minute."""
    c = runs(measured().nodes(1, gpus=8).queue("a"), "g", "a", 4)
    c.when.one_session()
    first = remember(c, "a")
    runs(c, "h", "a", 2, start=4)
    c.now = NOW + 30
    c.when.one_session()
    assert remember(c, "a") == first
    c.now = NOW + 61
    c.when.one_session()
    assert remember(c, "a").share == ((GPU, 750_000_000),)


def test_who_used_much_yields():
    """Two equal queues ask for all; the one that used half the cluster of late is due less."""

    def due(c):
        c.nodes(1, gpus=10).queue("a").queue("b")
        key = next(key for key in c.cache.queues.items if key.name == "a")
        used = QueueUsage(NOW, ((GPU, 500_000_000),), ())
        c.cache.queues.items[key] = attrs.evolve(c.cache.queues.items[key], usage=used)
        for name in ("a", "b"):
            c.gang(f"{name}-g", pods=10, gpus=1, queue=name)
        c.when.one_session()
        return [c.then.queue(name).fair_share.get(GPU) // DEVICE for name in ("a", "b")]

    assert due(measured()) == [3, 7]
    assert due(Given()) == [5, 5]


def test_nothing_is_remembered_of_who_never_used_anything():
    """No write for a queue that is idle from the start; none at all without the policy."""
    c = measured().nodes(1).queue("a")
    c.when.one_session()
    assert c.then.queue("a").usage == QueueUsage()
    c = Given().nodes(1).queue("a")
    c.when.one_session()
    assert c.then.queue("a").usage is None


def test_the_record_survives_the_api():
    """It is read back from the status as it was written."""
    from gpusched.api.meta.status import UsageStatus  # noqa: PLC0415 - the other half
    from gpusched.api.queue.decode import _usage_of  # noqa: PLC0415 - the other half
    from gpusched.io.write.status.object_writes import _usage  # noqa: PLC0415 - the other half

    usage = QueueUsage(NOW, ((GPU, 5),), (("cpu", 7),))
    written = msgspec.json.encode(_usage(usage))
    assert _usage_of(msgspec.json.decode(written, type=UsageStatus)) == usage


def test_gangs_share_a_queue_by_what_they_hold():
    """With ordering FairShare the gang that holds less grows first; else the older does."""

    def grows(ordering):
        c = Given().nodes(1, gpus=6).queue("q", ordering=ordering)
        c.gang("old", pods=4, min_member=1, gpus=1, queue="q")
        c.gang("young", pods=3, min_member=1, gpus=1, queue="q", created=BORN + 1)
        for number, name in enumerate(("old-0", "old-1", "old-2", "young-0", "young-1")):
            c.pod(
                name, group=name[:-2], gpus=1, node="node-0", slots=1 << number, plan="p",
                scheduled=NOW,
            )  # fmt: skip
        c.when.one_session()
        return c.then.started()

    assert grows("FairShare") == ["young"]
    assert grows("Fifo") == ["old"]


def test_queues_by_dominant_share_as_policy():
    """In its own tier before fairshare's it decides; weights count.

    Also for a start that ``reclaim`` of fairshare takes back at once, where such starts are allowed.
    """
    tiers = (
        PluginTier((PluginChoice("drf", {"queues": True}), PluginChoice("predicates"))),
        PluginTier((PluginChoice("fairshare", {"starts": "any"}),)),
    )
    c = Given(policy=load_policy(attrs.evolve(DEFAULT, tiers=tiers)))
    c.nodes(1, gpus=8).queue("a", limits={"deserved": {GPU: 8}}).queue("b", weight=4)
    c.gang("a-g", pods=1, gpus=4, queue="a").gang("b-g", pods=1, gpus=8, queue="b")
    c.when.one_session()
    assert c.then.started() == ["b-g"]
