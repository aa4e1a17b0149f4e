"""``gpusched get shards`` says which daemon decides about which part, and what is wrong with it."""

from __future__ import annotations

import asyncio
import json

import pytest

from gpusched.cli.inspect.ask.recorded_cluster import record_cluster
from gpusched.cli.inspect.cluster_reader import leader_text
from gpusched.cli.inspect.listing.shard_list import read_shards
from gpusched.cli.main import main
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT


def read(shards, what=read_shards):
    """The listing, or something else that is read, by a client of its own."""

    async def run():
        api = await ApiClient.connect(str(shards.world.kubeconfig), clock=shards.world.clock)
        try:
            return await what(api, LeaderElectionConfig(), now=shards.world.clock.now())
        finally:
            await api.close()

    return asyncio.create_task(run())


def test_shards_are_listed_with_their_holders(sharded):
    async def story(shards):
        # given two daemons, a node in no shard, and one gang that runs
        await shards.start(nodes=2)
        shards.world.node("nowhere")
        shards.daemon("a", "b")
        second = shards.daemon("b")
        shards.world.pod("one", spec={"nodeSelector": {"pool": "a"}})
        await shards.world.until(shards.world.bound)
        await shards.world.clock.sleep(15)

        # then each has a line, and the node is named
        listing = await read(shards)
        assert [line[:6] for line in listing.lines] == [
            ("a", "d-0", "2", "16", "8", "0"),
            ("b", "d-1", "2", "16", "0", "0"),
        ]
        assert any("node nowhere belongs to no shard" in note for note in listing.notes)

        # when one is killed, the other is told to have taken over
        second.kill()
        await shards.world.until(lambda: shards.holders()["b"] == "d-0", 90)
        await shards.world.clock.sleep(5)
        assert (await read(shards)).lines[1][-1] == "taken over by the daemon of shard a"

    sharded(story, "a", "b")


def test_questions_say_that_they_leave_shards_out(sharded, capsys):
    async def recorded(api, election, now):
        return await record_cluster(api, election)

    async def story(shards):
        # given a cluster without daemons, then nobody leads
        await shards.start(nodes=1)
        assert (await read(shards, leader_text)).startswith("no daemon leads")
        await read(shards, recorded)
        assert SHARDS_LEFT_OUT not in capsys.readouterr().err

        # when it is in shards, then explain says who decides, and answers that they are of one daemon
        shards.daemon("a")
        await shards.world.until(shards.board)
        assert await read(shards, leader_text) == (
            "daemons decide about their shards: gpusched get shards lists them"
        )
        await read(shards, recorded)
        assert SHARDS_LEFT_OUT in capsys.readouterr().err

    sharded(story, "a", "b")


def test_a_cluster_without_shards_is_told_so(sharded):
    async def story(shards):
        await shards.start(nodes=1)
        listing = await read(shards)
        assert listing.lines == ()
        assert "one daemon decides about the whole cluster" in listing.empty

    sharded(story, "a")


def test_labels_are_refused(capsys):
    assert main(["get", "shards", "-l", "x=y"]) == 2
    assert "they have no labels and no objects" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shard", "sentence"),
    [
        ("c", "the configuration has no shard 'c', but a"),
        ("a,a", "--shard names a shard twice"),
    ],
)
def test_a_daemon_of_no_such_shard_does_not_start(tmp_path, capsys, shard, sentence):
    file = tmp_path / "gpusched.yaml"
    file.write_text("shards: [{name: a, nodeSelector: {matchLabels: {x: y}}}]")
    assert main(["run", "--config", str(file), "--shard", shard]) == 2
    assert sentence in capsys.readouterr().err


def test_check_config_says_what_the_shards_are(tmp_path, capsys):
    file = tmp_path / "gpusched.yaml"
    file.write_text("shards: [{name: a, nodeSelector: {matchLabels: {x: y}}}]")
    assert main(["check-config", str(file)]) == 0
    assert "a (nodes with x In y)" in capsys.readouterr().out
    assert main(["check-config", str(file), "-o", "json"]) == 0
    shards = json.loads(capsys.readouterr().out)["config"]["shards"]
    assert shards == [
        {
            "name": "a",
            "nodeSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]},
        }
    ]
