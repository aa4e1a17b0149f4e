"""The name of the API server is not resolved for a while: row 52 of docs/faults.md."""

from __future__ import annotations

import logging
import socket

import pytest
from aiohttp.resolver import DefaultResolver

from gpusched.base import limits

WHY = "Temporary failure in name resolution"


@pytest.fixture
def connections_matter() -> bool:
    """The API server goes away in these tests, with every connection."""
    return True


class Resolver:
    """Stands for the machine's; it may be out of order.

    Attributes:
        asked: so many times in all.
        refused: so many of them without an answer.
    """

    def __init__(self):
        self.works = True
        self.asked = self.refused = 0

    async def resolve(self, host, port=0, family=socket.AF_INET):
        """See aiohttp's ``AbstractResolver.resolve``."""
        self.asked += 1
        if not self.works:
            self.refused += 1
            raise OSError(socket.EAI_AGAIN, WHY)
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": port,
                "family": family or socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]


@pytest.fixture
def resolver(monkeypatch):
    made = Resolver()

    async def resolve(_self, *where, **how):
        return await made.resolve(*where, **how)

    monkeypatch.setattr(DefaultResolver, "resolve", resolve)
    return made


def by_name(w):
    """Daemons know the cluster by a name from now on."""
    write = w.write_kubeconfig

    def named():
        write()
        w.kubeconfig.write_text(w.kubeconfig.read_text().replace("127.0.0.1", "localhost"))

    w.write_kubeconfig = named


def said(caplog):
    """How often the reader of nodes said why it cannot connect."""
    lines = [record.getMessage() for record in caplog.records]
    return sum("cannot connect to the API server http://localhost" in line for line in lines)


def test_a_name_that_is_not_resolved_at_the_start_is_waited_for(play, resolver, caplog):
    """Given no answer for two minutes, a daemon says why, asks ever more slowly, and then leads."""

    async def scenario(w):
        resolver.works = False
        by_name(w)
        await w.start(nodes=1)
        w.gang("g", 2, gpus=4)
        daemon = w.daemon()
        await w.clock.sleep(60)
        assert not daemon.task.done()
        assert WHY in daemon.app.readers.unready()
        first = resolver.refused
        await w.clock.sleep(60)
        assert 0 < resolver.refused - first < first
        resolver.works = True
        await w.until(lambda: len(w.running("g")) == 2, within=limits.BACKOFF_MAX_S + 60)
        assert daemon.app.telemetry._cache_resets == {}

    with caplog.at_level(logging.WARNING, logger="gpusched"):
        play(scenario)
    assert 1 <= said(caplog) <= 40


def test_a_name_that_is_not_resolved_for_a_while_costs_nothing_else(play, resolver, monkeypatch):
    """Given no answer after connections were cut, a daemon lives, stands by and goes on later."""
    monkeypatch.setattr(limits, "DNS_AGE_S", 0)  # aiohttp measures that in real time

    async def scenario(w):
        by_name(w)
        await w.start(nodes=2)
        daemon = w.daemon()
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1)
        resolver.works = False
        await w.clock.sleep(31)
        assert daemon.leading
        assert resolver.refused == 0
        await w.unplug()
        await w.plug()
        w.gang("b", 1)
        await w.clock.sleep(60)
        assert resolver.refused > 5
        assert not daemon.task.done()
        assert not daemon.leading
        assert w.bound("b") == []
        resolver.works = True
        await w.until(lambda: len(w.running("b")) == 1, within=limits.BACKOFF_MAX_S + 60)
        assert daemon.leading
        assert len(w.running("a")) == 1

    play(scenario)


def test_a_name_that_was_resolved_is_not_asked_for_again_by_each_request(play, resolver):
    """Given a storm of bindings, an address that was found is believed by all new connections."""

    async def scenario(w):
        by_name(w)
        await w.start(nodes=4)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        asked = resolver.asked
        w.gang("g", 32, gpus=1)
        await w.until(lambda: len(w.running("g")) == 32)
        assert resolver.asked - asked <= 4

    play(scenario)
