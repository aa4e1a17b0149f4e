"""What is wrong with shards is said in a sentence, and stops nothing else."""

from __future__ import annotations

import json

import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config, load_file
from gpusched.shards.board import BoardUnreadable
from gpusched.shards.layout import gang_hash
from tests.daemon.shards.test_get_shards import read


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


def test_a_board_that_could_not_be_read_for_a_while_stops_nobody_for_longer(sharded):
    async def story(shards):
        # given two daemons that decide, of which one is not answered when it asks for the board
        world = shards.world
        await shards.start(nodes=1)
        daemons = [shards.daemon("a"), shards.daemon("b")]
        for name, daemon in zip(shards.names, daemons, strict=True):
            await world.until(lambda d=daemon, n=name: readiness(d) == f"leader; shards: {n}", 60)
        daemons[0].fault = lambda method, path: "500" if path.endswith("-shards") else ""
        await world.until(lambda: "made by the test" in readiness(daemons[0]), 60)

        # when it is answered again, then it goes on
        daemons[0].fault = lambda _method, _path: ""
        await world.until(lambda: readiness(daemons[0]) == "leader; shards: a", 30)
        for name in shards.names:
            shards.gang(f"in-{name}", 1, only=name)
        await world.until(lambda: len(world.bound()) == 2, 60)

    sharded(story, "a", "b")


DAMAGED = {
    "cut off": "{",
    "a list": "[]",
    "nothing": "null",
    "a shard that is a number": '{"format":1,"shards":{"a":3}}',
    "an owner of no gang": '{"format":1,"owners":{"zz":"a"}}',
    "less than nothing": '{"format":1,"grants":{"team":{"a":{"granted":{"nvidia.com/gpu":-5}}}}}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_board_stops_all_until_it_is_deleted(sharded, text):
    async def story(shards):
        # given two daemons, a queue with a capability, and gangs that were passed on
        world = shards.world
        await shards.start(nodes=2)
        shards.queue("team", capability=16)
        shards.cap("team", 16)
        daemons = [shards.daemon("a"), shards.daemon("b")]
        for name in shards.names:
            shards.gang(f"early-{name}", 1, gpus=4, queue="team", only=name, run_for="10h")
        await world.until(lambda: len(world.bound()) == 2, 60)

        # when somebody damages the board
        world.client.patch(
            "configmaps", "gpusched-system", "gpusched-shards", {"data": {"board": text}}
        )
        await world.clock.sleep(5)
        shards.gang("late", 1, queue="team")
        await world.clock.sleep(10)

        # then nothing starts, and everybody says what to do
        assert not world.bound("late")
        for daemon in daemons:
            assert "the board of shards cannot be read" in readiness(daemon)
            assert "nothing starts until its ConfigMap is deleted" in readiness(daemon)

        # when that is done, they go on
        world.client.delete("configmaps", "gpusched-system", "gpusched-shards")
        await world.clock.sleep(5)
        for daemon in daemons:
            assert "the board of shards was made anew" in readiness(daemon)
        assert not world.bound("late")
        await world.until(lambda: world.bound("late"), 60)
        for name, daemon in zip(shards.names, daemons, strict=True):
            assert readiness(daemon) == f"leader; shards: {name}"
        assert shards.exceeded == []

    sharded(story, "a", "b")


def test_a_gang_that_the_board_has_in_no_shard_starts_all_the_same(sharded):
    async def story(shards):
        # given a board on which somebody wrote a shard that there is not as the owner of gangs
        world = shards.world
        await shards.start(nodes=1)
        shards.daemon("a")
        shards.daemon("b")
        await world.until(lambda: len(shards.board().get("shards", {})) == 2, 60)
        board = shards.board()
        names = [f"g{number}" for number in range(2)]
        board["owners"] = {
            gang_hash(GangKey("PodGroup", "default", name)): "nowhere" for name in names
        }
        world.client.patch(
            "configmaps", "gpusched-system", "gpusched-shards",
            {"data": {"board": json.dumps(board)}},
        )  # fmt: skip

        # when they come, they are in the shards where they begin
        for name in names:
            shards.gang(name, 1)
        await world.until(lambda: len(world.bound()) == 2, 60)

    sharded(story, "a", "b")


def test_get_shards_says_that_the_board_is_damaged(sharded):
    async def story(shards):
        await shards.start(nodes=1)
        shards.daemon("a")
        await shards.world.until(shards.board)
        shards.world.client.patch(
            "configmaps", "gpusched-system", "gpusched-shards", {"data": {"board": "{"}}
        )
        with pytest.raises(BoardUnreadable) as caught:
            await read(shards)
        assert caught.value.exit_status == 78

    sharded(story, "a")


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
        (
            "shards: [{name: A, nodeSelector: {matchLabels: {x: y}}}]",
            "a shard's name must be a DNS label such as north, not",
        ),
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


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "nodeSelector: {matchLabels: {bad key/x/y: v v}}",
            [
                'matchLabels has "bad key/x/y", which no label can have as key: such as datacenter/hall'
            ],
        ),
        (
            "nodeSelector: {matchLabels: {x: v v}}",
            ['matchLabels.x is "v v", which no label can have as value'],
        ),
        (
            "nodeSelector: {matchLabels: {x: 5}}",
            ["matchLabels.x must be a text, in quotes where needed, not 5"],
        ),
        (
            "nodeSelector: {matchExpressions: [{key: /x, operator: Exists}]}",
            ['key has "/x", which no label can have as key: such as datacenter/hall'],
        ),
        (
            f"nodeSelector: {{matchExpressions: [{{key: x, operator: In, values: [{'v' * 64}]}}]}}",
            [f'an item of values is "{"v" * 64}", which no label can have as value'],
        ),
        (
            "nodeSelector: {matchExpressions: [{key: x, operator: Near, values: [v]}]}",
            ['operator must be one of DoesNotExist, Exists, In, NotIn, not "Near"'],
        ),
    ],
)
def test_what_no_label_can_be_is_told_once(text, sentences):
    """Given a selector that no node can match, then that is said, and nothing that follows from it."""
    raw = f"shards: [{{name: a, {text}}}, {{name: b, {text}}}]"
    with pytest.raises(ConfigError) as raised:
        load_config(raw, source="f.yaml")
    assert list(raised.value.problems) == [f"f.yaml:1: {each}" for each in sentences] * 2


def test_names_of_shards_that_are_wrong_are_no_twins():
    """Each is told for itself."""
    labels = "nodeSelector: {matchLabels: {x: %s}}"
    raw = (
        f"shards:\n- name: North\n  {labels % 1.0}\n- {labels % 'a'}\n- name: 5\n  {labels % 'a'}\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_config(raw, source="f.yaml")
    assert list(raised.value.problems) == [
        'f.yaml:2: a shard\'s name must be a DNS label such as north, not "North"',
        "f.yaml:3: matchLabels.x must be a text, in quotes where needed, not 1.0",
        "f.yaml:4: a shard needs the keys name and nodeSelector",
        "f.yaml:5: a shard's name must be a DNS label such as north, not 5",
    ]


@pytest.mark.parametrize(
    "label", ["a: ''", "x.example/Y_z.1: v-1_2.B", f"{'p' * 60}.example/{'n' * 63}: {'v' * 63}"]
)
def test_every_label_that_a_node_can_have_selects(label):
    """Keys with and without a prefix; no value is one, too."""
    (shard,) = load_config(
        f"shards: [{{name: a, nodeSelector: {{matchLabels: {{{label}}}}}}}]", source="f.yaml"
    ).shards
    assert len(shard.selector.requirements) == 1
