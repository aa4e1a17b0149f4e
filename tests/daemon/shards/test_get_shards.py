"""``gpusched get shards`` says which daemon decides about which part, and what is wrong with it."""

from __future__ import annotations

import asyncio
import json

import pytest

from gpusched.cli.inspect.ask.recorded_cluster import record_cluster
from gpusched.cli.inspect.cluster_reader import leader_text
from gpusched.cli.inspect.listing.shard_list import read_node_notes, read_shards
from gpusched.cli.main import main
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT, LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.recordings.snapshot_file import write_snapshot
from gpusched.io.recordings.snapshot_reader import take_snapshot
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


def test_a_shard_that_no_daemon_in_force_knows_goes_when_its_daemon_has_gone(sharded, tmp_path):
    async def story(shards):
        # given two daemons, and for a while one whose configuration has a shard more
        await shards.start(nodes=1)
        shards.daemon("a")
        shards.daemon("b")
        await shards.world.until(lambda: {*shards.board().get("shards", {})} == {"a", "b"}, 60)
        await shards.world.clock.sleep(5)
        rules = (
            f"{{name: {each}, nodeSelector: {{matchLabels: {{pool: {each}}}}}}}" for each in "abc"
        )
        other = tmp_path / "other.yaml"
        other.write_text(f"shards: [{', '.join(rules)}]")
        late = shards.world.daemon(config_file=str(other), shards=("c",))
        await shards.world.until(lambda: "c" in shards.board()["shards"], 60)
        told = [line[-1] for line in (await read(shards)).lines]
        assert told[-1] == "its daemon has another configuration of shards, and stands still"

        # when it has stood still for longer than one is waited for that has gone, then its line stays
        await shards.world.clock.sleep(400)
        assert [line[0] for line in (await read(shards)).lines] == ["a", "b", "c"]

        # when it has ended, then its line says so, and goes, and the others decide as before
        await late.stop()
        assert (
            (await read(shards))
            .lines[-1][-1]
            .startswith("no daemon holds it, and the last one had another configuration of shards")
        )
        await shards.world.until(lambda: "c" not in shards.board()["shards"], 400)
        assert [line[:2] for line in (await read(shards)).lines] == [("a", "d-0"), ("b", "d-1")]
        for name in shards.names:
            shards.gang(f"in-{name}", 1, only=name)
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 60)

        # when it comes again, then its line is there again
        shards.world.daemon(config_file=str(other), shards=("c",))
        await shards.world.until(lambda: "c" in shards.board()["shards"], 60)
        await shards.world.clock.sleep(100)
        assert "c" in shards.board()["shards"]

    sharded(story, "a", "b")


def test_questions_know_whether_the_cluster_is_in_shards(sharded):
    async def recorded(api, election, now):
        return await record_cluster(api, election)

    async def story(shards):
        # given a cluster without daemons, then nobody leads
        await shards.start(nodes=1)
        assert (await read(shards, leader_text)).startswith("no daemon leads")
        assert not (await read(shards, recorded))[1]

        # when it is in shards, then explain says who decides, and answers that they are of one daemon
        shards.daemon("a")
        await shards.world.until(shards.board)
        assert await read(shards, leader_text) == (
            "daemons decide about their shards: gpusched get shards lists them"
        )
        assert (await read(shards, recorded))[1]

    sharded(story, "a", "b")


def test_explain_says_of_a_node_that_it_is_in_no_shard(sharded):
    async def story(shards):
        # given nodes in no shard, more than daemons name
        await shards.start(nodes=1)
        for number in range(6):
            shards.world.node(f"nowhere-{number}")
        shards.daemon("a")
        await shards.world.until(
            lambda: shards.board().get("shards", {}).get("a", {}).get("strays") == 6, 60
        )
        config, labels = load_file(shards.config), {"pool": "a"}

        async def notes(api, _election, now):
            assert now
            none = await read_node_notes(api, DEFAULT, "nowhere-0", {})
            last = await read_node_notes(api, config, "nowhere-5", {})
            return none, last, await read_node_notes(api, config, "a-0", labels)

        # then each is told, the last one to who has the configuration
        for told, name in zip(
            await read(shards, notes), ("nowhere-0", "nowhere-5", ""), strict=True
        ):
            assert [each.startswith(f"node {name} belongs to no shard") for each in told] == (
                [True] if name else []
            )

    sharded(story, "a")


def test_every_answer_of_a_recorded_cluster_in_shards_says_that_they_are_left_out(
    sharded, tmp_path, capsys
):
    file, gang = tmp_path / "snapshot.jsonl", tmp_path / "gang.yaml"
    gang.write_text(
        """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {schedulerName: gpusched, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""
    )

    async def recorded(api, _election, now):
        return await take_snapshot(api, now=now)

    async def story(shards):
        # given a recorded cluster of two shards in which a gang waits
        await shards.start(nodes=1)
        shards.queue("team")
        shards.daemon("a")
        shards.daemon("b")
        shards.gang("waits", 2, queue="team")
        await shards.world.until(lambda: shards.world.condition("waits"), 60)
        await shards.world.clock.sleep(10)
        recording = await read(shards, recorded)
        with file.open("wb") as out:
            write_snapshot(out, recording.header, recording.lines)

    sharded(story, "a", "b")

    # when somebody asks about it who has neither the board nor the configuration, then each answer says so
    questions = [
        ["advise", "podgroup/waits", "--snapshot", str(file)],
        ["when", "-f", str(gang), "--snapshot", str(file)],
        ["what-if", "--drain", "pool=a", "--from", "+1h", "--for", "1h", "--until", "3h", "--snapshot", str(file)],
    ]  # fmt: skip
    for question in questions:
        for form in ("text", "json"):
            main([*question, *(["-o", "json"] if form == "json" else [])])
            told = capsys.readouterr()
            assert SHARDS_LEFT_OUT in told.out, (question, told)

    # when somebody asks what happens who has the configuration, then shards are played, and none has room for the gang
    config = tmp_path / "gpusched.yaml"
    for more, starts in ([], 1.0), (["--config", str(config)], 0.0):
        main([*questions[-1], *more, "-o", "json"])
        answer = json.loads(capsys.readouterr().out)
        played = "a daemon for each shard (a, b) is played" in answer["assumptions"]
        assert (played, SHARDS_LEFT_OUT in answer["assumptions"]) == (not starts, bool(starts))
        assert answer["figures"][0]["name"] == "gangs that start"
        assert answer["figures"][0]["asItIs"] == starts


def test_a_simulation_says_that_it_plays_a_daemon_for_each_shard(tmp_path, capsys):
    file = tmp_path / "gpusched.yaml"
    file.write_text("shards: [{name: a, nodeSelector: {matchLabels: {pool: a}}}]")
    main(["simulate", "--generate", "m6", "--jobs", "2", "--days", "1", "--config", f"now={file}"])
    told = capsys.readouterr().err
    assert "configuration now: a daemon for each shard (a) is played" in told
    assert "belongs to no shard, so that nothing is placed on it" in told


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
