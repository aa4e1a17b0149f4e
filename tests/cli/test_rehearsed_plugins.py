"""check-config tries plugins on gangs that exist nowhere, and tells which of them raise."""

from __future__ import annotations

import json

import pytest

from gpusched.base import installed_files
from gpusched.base.clock import SystemClock
from gpusched.cli.main import main
from gpusched.config.load import load_file
from gpusched.pluginhost import rehearsal
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy

CONFIG = """\
actions: [enqueue, allocate, preempt, reclaim, backfill]
tiers:
- plugins: [{name: priority}, {name: gang}, {name: quota}, {name: predicates}, {name: fairshare}]
- plugins:
  - {name: moody}
"""
PLUGIN = """
import attrs

def fail(*_about, **_how):
    raise LookupError("no such mood")

@attrs.frozen
class Moody:
    name = "moody"
    api = 1

    def open(self, hooks, view):
        %s
"""


def installed(packages, tmp_path, line):
    """A configuration with a plugin whose hook is registered by this line."""
    packages.install("acme_moody", plugins="moody = acme_moody.it:Moody", it=PLUGIN % line)
    file = tmp_path / "gpusched.yaml"
    file.write_text(CONFIG)
    return file


@pytest.mark.parametrize(
    ("hook", "line"),
    [
        ("queue_order", "hooks.queue_order(fail)"),
        ("gang_order", "hooks.gang_order(fail)"),
        ("node_filter", "hooks.node_filter('are moody', fail)"),
        ("node_score", "hooks.node_score(fail)"),
        ("enqueue_check", "hooks.enqueue_check(fail)"),
        ("quota_check", "hooks.quota_check(fail)"),
        ("reclaim_check", "hooks.reclaim_check(fail)"),
        ("victim_filter", "hooks.victim_filter(fail)"),
        ("reclaim_gate", "hooks.reclaim_gate(fail)"),
        ("pair_filter", "hooks.pair_filter('are moody', fail, concerns=lambda _: True)"),
    ],
)
def test_a_hook_that_raises_for_gangs_is_bad_configuration(capsys, packages, tmp_path, hook, line):
    """Given a plugin that opens on nothing, then its first gang tells: line, hook and error, status 78."""
    file = installed(packages, tmp_path, line)
    assert main(["check-config", str(file)]) == 78
    said = capsys.readouterr()
    assert not said.out
    assert f'{file}:5: plugin "moody" fails on a made-up cluster with gangs: ' in said.err
    assert f"hook {hook}: LookupError: no such mood" in said.err
    assert main(["check-config", str(file), "-o", "json"]) == 78
    assert json.loads(capsys.readouterr().out)["valid"] is False


def test_a_hook_that_says_something_else_of_lists_is_bad_configuration(capsys, packages, tmp_path):
    """Given a filter that refuses a victim alone and allows it in a list, then both answers are told."""
    line = "hooks.victim_filter(ask, for_all=lambda _claimant, victims, _action: [True] * len(victims))"
    refuses = "ask = lambda *_about: deny('BackOff', 'it is tired')\n        "
    file = installed(
        packages, tmp_path, f"from gpusched.plugin import deny\n        {refuses}{line}"
    )
    assert main(["check-config", str(file)]) == 78
    said = capsys.readouterr().err
    assert f'{file}:5: plugin "moody" fails on a made-up cluster with gangs: ' in said
    assert "hook victim_filter: for_all says True of gang made-up/" in said


def test_a_plugin_that_does_not_raise_is_good(capsys, packages, tmp_path):
    """Given the same plugin with a hook that answers, then nothing is said."""
    file = installed(packages, tmp_path, "hooks.node_filter('are moody', lambda _p, _n: None)")
    assert main(["check-config", str(file)]) == 0
    assert not capsys.readouterr().err


def test_the_made_up_cluster_asks_every_hook_that_decides(monkeypatch):
    """Given the shipped configuration, then orders, filters, checks and victims are all asked."""
    config = load_file(str(installed_files.path("conf") / "gpusched.yaml"))
    seen = []

    def watched(clock, **how):
        seen.append(PluginGuard(clock, **how))
        return seen[-1]

    monkeypatch.setattr(rehearsal, "PluginGuard", watched)
    assert rehearsal.rehearse_on_pods(config, load_policy(config), clock=SystemClock()) == ()
    asked = {who.hook for who, record in seen[0].hook_records().items() if record.calls}
    assert asked >= {
        "open", "queue_turn", "gang_order", "node_filter", "node_score", "pair_filter", "quota_check",
        "reclaim_check", "victim_filter", "reclaim_gate", "fair_share",
    }  # fmt: skip
