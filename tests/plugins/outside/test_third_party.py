"""Packages of outside authors come in through entry points, as the shipped policies do."""

from __future__ import annotations

import json
import sys

import pytest

from gpusched.cli.main import main
from gpusched.config.load import load_config
from gpusched.testing.given import Given

BOTH = """\
actions: [enqueue, acmesmall, allocate]
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins:
  - name: acmecap
    arguments: {maxGpus: 8}
"""


def given(text):
    return Given(config=load_config(text, source="f.yaml")).nodes(2, gpus=8).queue("a")


@pytest.mark.parametrize(
    ("actions", "started"),
    [("enqueue, acmesmall, allocate", ["small"]), ("enqueue, allocate", ["big"])],
)
def test_an_installed_action_decides(acme, actions, started):
    """The older gang fills the only node, unless the action lets the smaller one go first."""
    c = Given(
        config=load_config(BOTH.replace("enqueue, acmesmall, allocate", actions), source="f.yaml")
    )
    c.nodes(1, gpus=8).queue("a")
    c.gang("big", pods=2, gpus=4, queue="a", created=1.0)
    c.gang("small", pods=1, gpus=1, queue="a", created=2.0)
    c.when.bound()
    assert c.then.started() == started


def test_the_plugins_argument_counts(acme):
    """What is in the file reaches the plugin, typed."""
    text = BOTH.replace("enqueue, acmesmall, allocate", "enqueue, allocate")
    c = given(text).gang("one", pods=1, gpus=8, queue="a").gang("two", pods=1, gpus=1, queue="a")
    c.when.bound()
    assert c.then.started() == ["one"]
    assert c.then.why("two") == "needs 1, 0 left"


def test_only_what_is_named_is_imported(acme):
    """A package that is installed and broken costs nothing while no configuration names it."""
    given(BOTH)
    assert "acme_policies.cap" in sys.modules
    assert "acme_policies.lost" not in sys.modules


def problems(capsys, tmp_path, text):
    file = tmp_path / "f.yaml"
    file.write_text(text)
    assert main(["check-config", str(file)]) == 78
    return [
        line.removeprefix(f"gpusched: {file}:") for line in capsys.readouterr().err.splitlines()
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("maxGpus: 8", "maxGpu: 8"),
            (
                '6: unknown argument "maxGpu" of plugin "acmecap": known arguments are maxGpus; '
                'did you mean "maxGpus"?'
            ),
        ),
        (
            ("maxGpus: 8", "maxGpus: true"),
            '6: argument maxGpus of plugin "acmecap" must be a whole number, not true',
        ),
        (
            ("maxGpus: 8", "maxGpus: -1"),
            '6: argument maxGpus of plugin "acmecap" must be a whole number of 0 or more, not -1',
        ),
        (
            ("name: acmecap", "name: acmecup"),
            '5: unknown plugin "acmecup": known plugins are acmecap, acmelost, ',
        ),
        (
            ("acmesmall", "acmesmal"),
            '1: unknown action "acmesmal": known actions are acmesmall, allocate, ',
        ),
        (
            ("name: acmecap\n    arguments: {maxGpus: 8}", "name: acmelost"),
            '5: plugin "acmelost" cannot be used: SystemExit: never to be seen',
        ),
        (
            ("name: acmecap\n", "name: gang\n"),
            '5: plugin "gang" is named twice: it is already in line 3',
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_and_known_names(acme, capsys, tmp_path, change, message):
    """Exit status 78, before anything runs."""
    told = problems(capsys, tmp_path, BOTH.replace(*change))
    assert told[0].startswith(message)


@pytest.mark.parametrize("version", ["2", "None", "'1'"])
def test_a_plugin_for_another_api_is_refused(packages, capsys, tmp_path, version):
    """Hooks may mean something else there: nothing is guessed."""
    packages.install(
        "acme_future",
        plugins="future = acme_future.it:Future",
        it=f"""
            import attrs

            @attrs.frozen
            class Future:
                name = "future"
                api = {version}

                def open(self, hooks, view):
                    pass
        """,
    )
    told = problems(capsys, tmp_path, "tiers:\n- plugins: [{name: future}]\n")
    assert told == [
        f'2: plugin "future" cannot be used: it is written for api {version}, this is api 1'
    ]


def test_an_action_for_another_api_is_refused(packages, capsys, tmp_path):
    """An action need not say its version; if it does, it counts."""
    packages.install(
        "acme_later",
        actions="later = acme_later.it:Later",
        it="""
            class Later:
                name = "later"
                api = 2

                def run(self, session):
                    pass
        """,
    )
    told = problems(capsys, tmp_path, "actions: [later]\n")
    assert told == [
        '1: action "later" cannot be used: it is written for api 2, this is api 1',
    ]


def test_a_name_that_two_packages_offer_is_refused(acme, packages, capsys, tmp_path):
    """Nobody's plugin stands in for somebody else's, a shipped one's neither."""
    packages.install("acme_rival", plugins="gang = acme_policies.cap:Cap")
    told = problems(capsys, tmp_path, "tiers:\n- plugins: [{name: gang}]\n")
    assert told == [
        '2: plugin "gang" is offered twice: by acme_policies.cap:Cap and gpusched_plugins.order.gang:Gang'
    ]


def test_check_config_shows_what_outside_policies_would_run(acme, capsys, tmp_path):
    """The same words as for shipped ones."""
    file = tmp_path / "f.yaml"
    file.write_text(BOTH)
    assert main(["check-config", str(file), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["config"]["actions"] == ["enqueue", "acmesmall", "allocate"]
