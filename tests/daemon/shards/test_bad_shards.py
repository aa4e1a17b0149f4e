"""What is wrong with shards is said in a sentence, and stops nothing else."""

from __future__ import annotations

import json

import pytest

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_file


def said(caplog):
    return [str(vars(record)) for record in caplog.records]


def readiness(daemon):
    return daemon.app.readiness()[1]


def test_nodes_in_no_shard_or_in_two_get_nothing(sharded, caplog):
    async def story(shards):
        # given a node without a label, one that changes, and gangs for all of them
        await shards.start(nodes=1)
        shards.world.node("nowhere")
        daemon = shards.daemon("a", "b")
        for number in range(3):
            shards.gang(f"g{number}", 1)

        # then the others are used, and the node is named
        await shards.world.until(lambda: len(shards.world.bound()) == 2, 90)
        await shards.world.clock.sleep(5)
        assert {pod["spec"]["nodeName"] for pod in shards.world.bound()} == {"a-0", "b-0"}
        assert any("node nowhere belongs to no shard" in text for text in said(caplog))
        assert b"gpusched_shard_stray_nodes 1.0" in daemon.app.telemetry.render()

        # when it gets a label, it is used
        shards.world.client.patch("nodes", None, "nowhere", {"metadata": {"labels": {"pool": "b"}}})
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 90)

    sharded(story, "a", "b")


def test_daemons_of_other_shards_do_not_decide_beside_each_other(sharded, tmp_path):
    async def story(shards):
        # given a daemon of the shards a and b
        await shards.start(nodes=1)
        first = shards.daemon("a")
        await shards.world.until(lambda: shards.board().get("layout"))

        # when one comes that divides nodes in another way
        other = tmp_path / "other.yaml"
        other.write_text("shards: [{name: b, nodeSelector: {matchLabels: {pool: a}}}]")
        late = shards.world.daemon(config_file=str(other), shards=("b",))
        await shards.world.until(lambda: late.leading)
        await shards.world.clock.sleep(5)

        # then it stands still and says why, and gangs of the first go on
        assert "the configuration of shards differs from that of the daemons of a" in readiness(
            late
        )
        for number in range(4):
            shards.gang(f"g{number}", 1)
        await shards.world.until(shards.world.bound, 60)
        assert {pod["spec"]["nodeName"] for pod in shards.world.bound()} == {"a-0"}

        # when all have ended and the board is deleted, the new shards hold
        await first.stop()
        await late.stop()
        shards.world.client.delete("configmaps", "gpusched-system", "gpusched-shards")
        again = shards.world.daemon(config_file=str(other), shards=("b",))
        await shards.world.until(lambda: readiness(again) == "leader; shards: b", 60)

    sharded(story, "a", "b")


def test_a_daemon_without_shards_stops_those_with_shards(sharded):
    async def story(shards):
        # given a daemon that leads the whole cluster
        await shards.start(nodes=1)
        lone = shards.world.daemon()
        await shards.world.until(lambda: lone.leading)

        # when one with shards is started beside it
        late = shards.daemon("a", "b")
        await shards.world.until(lambda: late.leading)
        await shards.world.clock.sleep(20)

        # then it stands still until the other has ended
        assert "a daemon without shards leads" in readiness(late)
        await lone.stop()
        shards.gang("g", 1)
        await shards.world.until(lambda: shards.world.bound("g"), 60)

    sharded(story, "a", "b")


def test_a_board_of_a_later_format_is_not_touched(sharded):
    async def story(shards):
        # given a board that a later version wrote
        await shards.start(nodes=1)
        board = {"format": 99, "anything": "else"}
        shards.world.client.create("namespaces", {
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpusched-system"},
        })  # fmt: skip
        shards.world.client.create("configmaps", {
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "gpusched-shards", "namespace": "gpusched-system"},
            "data": {"board": json.dumps(board)},
        })  # fmt: skip

        # when a daemon of this version comes
        daemon = shards.daemon("a")
        shards.gang("g", 1)
        await shards.world.until(lambda: daemon.leading)
        await shards.world.clock.sleep(20)

        # then it takes no part, says why, and leaves the board as it is
        assert "format 99, and this daemon knows formats up to 3: upgrade it" in readiness(daemon)
        assert shards.world.bound() == []
        assert shards.board() == board

    sharded(story, "a", "b")


def test_a_daemon_of_another_version_is_named(sharded, caplog):
    async def story(shards):
        # given a daemon of another version in shard b
        await shards.start(nodes=1)
        shards.daemon("a")
        await shards.world.until(
            lambda: shards.board().get("shards", {}).get("a", {}).get("settled")
        )
        board = shards.board()
        board["shards"]["b"] = {
            **board["shards"]["a"], "holder": "b:x", "first": "b", "version": "9.9.9",
        }  # fmt: skip
        shards.world.client.patch(
            "configmaps", "gpusched-system", "gpusched-shards",
            {"data": {"board": json.dumps(board)}},
        )  # fmt: skip
        await shards.world.clock.sleep(5)

        # then that is said, and both go on
        assert any("shard b is held by version 9.9.9" in text for text in said(caplog))
        for number in range(2):
            shards.gang(f"g{number}", 1)
        await shards.world.until(shards.world.bound, 60)

    sharded(story, "a", "b")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("shards: [{name: a}]", "a shard needs the keys name and nodeSelector"),
        ("shards: [{name: a, nodeSelector: {}}]", "it selects all nodes"),
        ("shards: [{name: A, nodeSelector: {matchLabels: {x: y}}}]", "must be a namespace's name"),
        (
            "shards: [{name: a, nodeSelector: {matchLabels: {x: y}}}, {name: a, nodeSelector: {matchLabels: {x: z}}}]",
            'shard "a" is named twice',
        ),
        (
            "shards: [{name: a, nodeSelector: {matchLabels: {x: y}}}, {name: b, nodeSelector: {matchLabels: {x: y}}}]",
            "every node of theirs would belong to both",
        ),
        (
            "shards: [{name: a, nodeSelector: {matchExpressions: [{key: x, operator: In}]}}]",
            "needs a key, an operator, and values",
        ),
        (
            "shards: [{name: a, idleNodes: maybe, nodeSelector: {matchLabels: {x: y}}}]",
            'idleNodes must be one of keep, lend, not "maybe"',
        ),
        (
            "gpuTypeWeights: {h100: 2}\nshards: [{name: a, nodeSelector: {matchLabels: {x: y}}}]",
            "shards and gpuTypeWeights do not go together",
        ),
    ],
)
def test_a_configuration_of_shards_that_cannot_work_is_refused(tmp_path, text, sentence):
    file = tmp_path / "gpusched.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_file(str(file))
    assert sentence in " ".join(caught.value.problems)
