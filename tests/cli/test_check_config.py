"""check-config: the same verdict as the daemon's start, without starting."""

from __future__ import annotations

import json

import pytest

from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.cli import check_config
from gpusched.cli.main import main
from gpusched.session.state.policy import Policy


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "gpusched.yaml"
    path.write_text("cycle: {debounce: 5ms}\n")
    return path


@pytest.fixture
def loadable(monkeypatch):
    """Every action and plugin exists."""
    monkeypatch.setattr(check_config, "load_policy", lambda _config: Policy(actions=(), tiers=()))
    monkeypatch.setattr(check_config, "rehearse", lambda *_args, **_how: ())
    monkeypatch.setattr(check_config, "rehearse_on_pods", lambda *_args, **_how: ())


def test_a_good_file_shows_what_would_run(capsys, file, loadable):
    """Names, tiers with arguments, and timing, with defaults filled in."""
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{file} is good; the daemon would run:",
        "  schedulerNames           gpusched",
        "  namesOfOtherNamespaces   shown",
        "  podGroupPriority         trusted",
        "  users                    annotated: not safe without the policy gpusched-users, as anybody may write any name",
        (
            "  gpuResources             nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915, "
            "gpu.intel.com/xe, habana.ai/gaudi, huawei.com/Ascend910"
        ),
        "  deviceQuota              gpu.nvidia.com 1 nvidia.com/gpu; mig.nvidia.com 1 nvidia.com/gpu",
        "  actions                  enqueue, allocate, preempt, reclaim, backfill",
        "  tier 1                   sla, priority, gang, quota, conformance, minruntime",
        (
            "  tier 2                   predicates, fairshare, lifetime (staleAfter: 60s), drain, "
            "walltime (reservations: 8), drf, topology (compact: gangs), nodeorder (strategy: binpack)"
        ),
        "  placement                cpsat, budget 500ms, workers 1, seed 1",
        "  cycle                    5ms after a change, at least every 10s; incremental: always",
        "  playStarts               every 5m",
        "  limits                   as by default",
        "  clientConnection         4000 requests a second, 96 connections",
        "  history                  no file; in one of --history for 720h, 1,000,000 runs at most",
        (
            "  leaderElection           lease gpusched-system/gpusched of 15s, renewed every 2s, "
            "given up after 10s"
        ),
    ]


def test_json_is_a_configuration_again(capsys, file, loadable):
    """What -o json shows under config is a file that says the same."""
    from gpusched.config.load import load_config, load_file  # noqa: PLC0415

    assert main(["check-config", str(file), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["valid"], told["problems"]) == (True, [])
    assert load_config(json.dumps(told["config"]), source="again") == load_file(str(file))


def test_all_problems_and_status_78(capsys, file):
    """Each problem is one line on stderr."""
    file.write_text("cycle: {debounse: 5ms}\nplacement: {workers: 0}\n")
    assert main(["check-config", str(file)]) == 78
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.splitlines() == [
        (
            f'gpusched: {file}:1: unknown key "debounse" in cycle: '
            'known keys are debounce, maxPeriod, incremental, playStarts; did you mean "debounce"?'
        ),
        f"gpusched: {file}:2: workers must be a whole number from 1 to 64, not 0",
    ]


def test_what_it_names_is_loaded_too(capsys, file):
    """An unknown plugin is found although the file itself is good."""
    file.write_text("tiers:\n- plugins: [{name: no-such-plugin}]\n")
    assert main(["check-config", str(file)]) == 78
    assert f'{file}:2: unknown plugin "no-such-plugin": known plugins are ' in (
        capsys.readouterr().err
    )


def test_problems_as_json(capsys, file, monkeypatch):
    """A program reads the problems from stdout."""

    def refuse(config):
        raise ConfigError("a", "b")

    monkeypatch.setattr(check_config, "load_policy", refuse)
    assert main(["check-config", str(file), "-o", "json"]) == 78
    assert json.loads(capsys.readouterr().out)["problems"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "actions: [allocate, enqueue]\n",
            (
                ":1: action allocate stands before enqueue: "
                "gangs are placed a session after they were admitted"
            ),
        ),
        (
            "actions: [allocate, reclaim]\ntiers:\n- plugins: [{name: quota}]\n",
            (":1: action reclaim does nothing: no plugin registers reclaim_check and reclaim_gate"),
        ),
        ("actions: [enqueue]\n", ": actions do not name allocate: no gang is ever placed"),
        (
            "tiers:\n- plugins: [{name: quota}]\n",
            (
                ": no plugin registers node_filter: "
                "pods go to nodes whatever their taints, selectors and conditions"
            ),
        ),
        (
            "tiers:\n- plugins: [{name: predicates}]\n",
            ": no plugin registers quota_check: nothing holds queues to their capability",
        ),
    ],
)
def test_what_makes_no_sense_is_a_warning(capsys, file, text, said):
    """It is allowed, as an outside policy may mean it; the person is told on stderr."""
    file.write_text(text)
    assert main(["check-config", str(file)]) == 0
    assert f"warning: {file}{said}" in capsys.readouterr().err.splitlines()
    assert main(["check-config", str(file), "-o", "json"]) == 0
    assert f"{file}{said}" in json.loads(capsys.readouterr().out)["warnings"]


def test_the_shipped_configuration_has_no_warnings(capsys):
    """What we ship makes sense."""
    assert main(["check-config", str(installed_files.path("conf") / "gpusched.yaml")]) == 0
    assert not capsys.readouterr().err
