"""The configuration file changes under a running daemon: taken as a whole, or not at all."""

from __future__ import annotations

import re

import pytest

from gpusched.base.errors import ConfigError
from gpusched.base.limits import CONFIG_POLL_S

BINPACK = """\
actions: [enqueue, allocate]
tiers:
- plugins: [{name: priority}, {name: gang}, {name: quota}, {name: predicates}]
- plugins: [{name: nodeorder, arguments: {strategy: binpack}}]
"""
SPREAD = BINPACK.replace("binpack", "spread")
LOOKS = 3 * CONFIG_POLL_S
"""Virtual seconds in which a change has been seen twice."""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "gpusched.yaml"
    path.write_text(BINPACK)
    return path


def metric(daemon, name):
    """Rows of one metric by their labels as text."""
    text = daemon.app.telemetry.render().decode()
    return {
        found[1] or "": float(found[2])
        for found in re.finditer(rf"^gpusched_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    }


def told(world):
    """Reason and note of the events about the daemon itself, in order of time."""
    events = world.client.list("events")
    ours = [event for event in events if event["involvedObject"]["kind"] == "Lease"]
    ours.sort(key=lambda event: event["eventTime"])
    return [(event["reason"], event["message"]) for event in ours]


def hashes(daemon):
    return metric(daemon, "config_info")


async def leading(world, file, **cluster):
    await world.start(**cluster)
    daemon = world.daemon(config_file=str(file))
    await world.until(lambda: daemon.leading)
    return daemon


def places(world):
    """How many pods each node has."""
    nodes = [pod["spec"]["nodeName"] for pod in world.bound()]
    return sorted(nodes.count(node) for node in set(nodes))


async def two_more(world, names):
    for name in names:
        world.pod(name, gpus=1)
        await world.until(lambda: len(world.bound()) == len(world.pods()))


def test_a_changed_file_decides_the_next_session(play, file):
    """Binpack fills one node; after the change to spread the next pod goes to the other one."""

    async def scenario(world):
        daemon = await leading(world, file)
        before = hashes(daemon)
        await two_more(world, ("a", "b"))
        assert places(world) == [2]
        file.write_text(SPREAD)
        await world.clock.sleep(LOOKS)
        await two_more(world, ("c", "d"))
        assert places(world) == [2, 2]
        assert metric(daemon, "config_reloads_total") == {'result="applied"': 1}
        assert metric(daemon, "config_last_reload_successful") == {"": 1}
        assert hashes(daemon) != before
        assert told(world) == [("ConfigApplied", f"{file}: applied; what changed: tiers")]

    play(scenario)


BAD = [
    ("tiers: [", "is not YAML"),
    ("", "is empty"),
    ("cycle: {debounse: 5ms}\n", 'unknown key "debounse"'),
    ("tiers:\n- plugins: [{name: no-such}]\n", 'unknown plugin "no-such"'),
    ("actions: [alocate]\n", 'unknown action "alocate"'),
    (SPREAD.replace("spread", "sideways"), "must be one of binpack, spread"),
    ("schedulerNames: [other]\n", "schedulerNames changed, which takes a restart"),
    (SPREAD + "leaderElection: {leaseName: x}\n", "leaderElection changed, which takes a restart"),
]


@pytest.mark.parametrize(("text", "why"), BAD)
def test_a_bad_file_leaves_the_old_one_in_force_and_is_told(play, file, caplog, text, why):
    """One line in the log, one event, a count and a gauge; pods are placed as before."""

    async def scenario(world):
        daemon = await leading(world, file)
        before = hashes(daemon)
        file.write_text(text)
        await world.clock.sleep(LOOKS)
        await two_more(world, ("a", "b"))
        assert places(world) == [2]
        assert metric(daemon, "config_reloads_total") == {'result="refused"': 1}
        assert metric(daemon, "config_last_reload_successful") == {"": 0}
        assert hashes(daemon) == before
        ((reason, note),) = told(world)
        assert reason == "ConfigRefused"
        assert why in note
        assert "the configuration in force stays" in note
        await world.clock.sleep(10 * LOOKS)
        assert len(told(world)) == 1

    play(scenario)
    said = [record for record in caplog.records if "refused" in record.message]
    assert len(said) == 1


def test_mending_the_file_ends_the_trouble(play, file):
    """Back to what is in force: nothing is swapped, and the gauge says that all is well."""

    async def scenario(world):
        daemon = await leading(world, file)
        file.write_text("tiers: [")
        await world.clock.sleep(LOOKS)
        rules = daemon.app.cycle.rules
        file.write_text("# as it was\n" + BINPACK)
        await world.clock.sleep(LOOKS)
        assert daemon.app.cycle.rules is rules
        assert metric(daemon, "config_last_reload_successful") == {"": 1}
        assert metric(daemon, "config_reloads_total") == {
            'result="refused"': 1,
            'result="unchanged"': 1,
        }
        assert [reason for reason, _ in told(world)] == ["ConfigRefused", "ConfigUnchanged"]

    play(scenario)


def test_a_config_map_is_swapped_by_a_link(play, tmp_path):
    """The kubelet's way: a new folder, then one link is moved; the file never seems to be gone."""
    for name, text in (("..1", BINPACK), ("..2", SPREAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gpusched.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    file = tmp_path / "gpusched.yaml"
    file.symlink_to("..data/gpusched.yaml")

    async def scenario(world):
        daemon = await leading(world, file)
        (tmp_path / "..tmp").symlink_to("..2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")
        await world.clock.sleep(LOOKS)
        assert metric(daemon, "config_reloads_total") == {'result="applied"': 1}

    play(scenario)


def test_a_file_that_is_being_written_is_not_read_yet(play, file):
    """What changes at every look is no content; when it rests it counts, once."""

    async def scenario(world):
        daemon = await leading(world, file)
        for end in range(10, len(SPREAD), 20):
            file.write_text(SPREAD[:end])
            await world.clock.sleep(CONFIG_POLL_S)
        assert metric(daemon, "config_reloads_total") == {}
        file.write_text(SPREAD)
        await world.clock.sleep(LOOKS)
        assert metric(daemon, "config_reloads_total") == {'result="applied"': 1}

    play(scenario)


def test_a_file_that_is_gone_is_told_and_changes_nothing(play, file):
    """Somebody deleted the ConfigMap: what is in force stays."""

    async def scenario(world):
        daemon = await leading(world, file)
        file.unlink()
        await world.clock.sleep(LOOKS)
        ((reason, note),) = told(world)
        assert reason == "ConfigRefused"
        assert f"{file}: cannot be read: No such file" in note
        await two_more(world, ("a", "b"))
        assert places(world) == [2]
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)


def test_a_signal_reads_at_once_and_says_so_even_when_nothing_changed(play, file):
    """SIGHUP: an operator who asks gets an answer."""

    async def scenario(world):
        daemon = await leading(world, file)
        daemon.app.reload()
        await world.clock.sleep(0.1)
        assert metric(daemon, "config_reloads_total") == {'result="unchanged"': 1}
        file.write_text(SPREAD)
        daemon.app.reload()
        await world.clock.sleep(0.1)
        assert metric(daemon, "config_reloads_total") == {
            'result="applied"': 1,
            'result="unchanged"': 1,
        }

    play(scenario)


def test_who_comes_to_lead_tells_what_still_holds(play, file):
    """A standby may not write events: its refused file is told when it leads."""

    async def scenario(world):
        first = await leading(world, file)
        other = file.with_name("other.yaml")
        other.write_text(BINPACK)
        second = world.daemon(config_file=str(other))
        await world.clock.sleep(5)
        other.write_text("tiers: [")
        await world.clock.sleep(LOOKS)
        assert told(world) == []
        await first.stop()
        await world.until(lambda: second.leading and told(world))
        assert [reason for reason, _ in told(world)] == ["ConfigRefused"]

    play(scenario)


def test_without_a_file_a_signal_is_answered_too(play, caplog):
    """The built-in configuration cannot be read again; nobody dies of asking."""

    async def scenario(world):
        await world.start()
        daemon = world.daemon()
        await world.until(lambda: daemon.leading)
        daemon.app.reload()
        await world.clock.sleep(1)
        assert daemon.leading
        assert hashes(daemon) == {'hash="built-in"': 1}

    play(scenario)
    assert "there is no configuration file to read again" in caplog.text


def test_a_start_with_a_plugin_that_cannot_open_is_refused(play, file, monkeypatch):
    """A fault that would stop all placing is found before the daemon stands for the lease."""
    from gpusched_plugins.order.priority import Priority  # noqa: PLC0415

    def broken(self, hooks, view):
        raise ZeroDivisionError("1/0")

    async def scenario(world):
        await world.start()
        monkeypatch.setattr(Priority, "open", broken)
        daemon = world.daemon(config_file=str(file))
        with pytest.raises(ConfigError, match=':3: plugin "priority" fails on an'):
            await daemon.task

    play(scenario)
