"""A recorded decision is repeated byte for byte, in this process and in others."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from gpusched.api.pod.pod import GangAnnotations
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError
from gpusched.cli.main import main
from gpusched.config.model import DEFAULT, PlacementConfig
from gpusched.io.decisions.decision_file import (
    DecisionFile,
    DecisionInputs,
    RecordedSearch,
    pack_decision,
    read_decision,
)
from gpusched.io.decisions.plan_json import plan_as_json
from gpusched.io.decisions.recorder import DecisionRecorder, RecordingOptions, SearchRecorder
from gpusched.lab.recordings.replay import replay_decision, version_notes
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision, decide
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.given import Given

PROGRAM = Path(__file__).with_name("gang_lives.py")
CLOCK = SystemClock()


def gang_lives() -> Any:
    spec = importlib.util.spec_from_file_location("gang_lives", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def two_gangs(world: ClusterRun) -> None:
    """One that stays, one that comes beside it and a third for which there is no room."""
    lives = gang_lives()
    for number in range(lives.NODES):
        lives.node(world, f"n{number}")
    for name, count, run_for in (("stays", 4, "100h"), ("ends", 2, "1m"), ("waits", 6, "1m")):
        lives.gang(world, name, count, run_for=run_for)
        await world.clock.sleep(3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every decision while gangs came and went, those that did nothing too."""
    folder = tmp_path_factory.mktemp("decisions")
    recording = RecordingOptions(folder=folder, everything=True)
    simulate_cluster(two_gangs, options=SimulationOptions(seed=7, recording=recording))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def first(recorded: list[Path]) -> Path:
    """One that bound a gang."""
    return next(path for path in recorded if read_decision(path).decided["binds"])


# -- the same ------------------------------------------------------------------------------------
def test_every_decision_of_a_life_is_repeated(recorded: list[Path]) -> None:
    """What the daemon decided with caches of a long life is decided anew without them."""
    bound = 0
    for path in recorded:
        file = read_decision(path)
        bound += len(file.decided["binds"])
        again = replay_decision(file, clock=CLOCK)
        assert again.identical, [str(each) for each in again.differences]
        assert (again.differences, again.notes) == ((), ())
    assert bound == 2
    assert len(recorded) > 10


def test_only_what_acts_is_recorded_unless_told(recorded: list[Path], tmp_path: Path) -> None:
    """A quiet cluster fills no disk."""
    recorder = DecisionRecorder(RecordingOptions(folder=tmp_path), inline=True)
    for path in recorded:
        give(recorder, read_decision(path))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_process_with_another_hash_seed_agrees(first: Path) -> None:
    """No order of a set, no address and no import enters a plan."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "4711" else "4711"
    done = subprocess.run(
        [sys.executable, "-m", "gpusched.cli.main", "replay", str(first), "-o", "json"],
        check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["identical"]
    assert said["plan"] == read_decision(first).header.plan


def test_the_command_says_that_it_is_identical(first: Path, capsys: Any) -> None:
    """With the plan's digest; exit status 0."""
    assert main(["replay", str(first)]) == 0
    out = capsys.readouterr().out
    assert f"identical: plan {read_decision(first).header.plan[:12]}\n" in out


# -- different -----------------------------------------------------------------------------------
def rewritten(path: Path, folder: Path, change: Any) -> Path:
    """The same inputs with another plan in line 3."""
    header, body, plan, _ = gzip.decompress(path.read_bytes()).split(b"\n")
    plain = json.loads(plan)
    change(plain)
    other = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    head = {**json.loads(header), "plan": hashlib.sha256(other).hexdigest()}
    made = folder / "forged.decision.gz"
    made.write_bytes(gzip.compress(b"\n".join((json.dumps(head).encode(), body, other, b""))))
    return made


def test_another_node_is_told_pod_by_pod(first: Path, tmp_path: Path, capsys: Any) -> None:
    """Exit status 1, with the gang, the pod, and both places."""

    def move(plan: Any) -> None:
        plan["binds"][0]["binds"][0]["node"] = "elsewhere"

    made = rewritten(first, tmp_path, move)
    bind = read_decision(first).decided["binds"][0]["binds"][0]
    assert main(["replay", str(made)]) == 1
    out = capsys.readouterr().out
    assert "1 differences" in out
    assert f"  pod {bind['key']}\n    then  goes to elsewhere with GPUs" in out
    assert f"    now   goes to {bind['node']} with GPUs" in out


def test_another_configuration_shows_what_it_would_have_changed(
    first: Path, tmp_path: Path, capsys: Any
) -> None:
    """That is its purpose: exit status 0."""
    config = tmp_path / "other.yaml"
    config.write_text("actions: [enqueue]\n")
    assert main(["replay", str(first), "--config", str(config), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert not said["identical"]
    assert said["config"] == str(config)
    assert any(each["what"].startswith("pod ") and not each["now"] for each in said["differences"])


# -- searches that a clock ended -----------------------------------------------------------------
@attrs.frozen
class Late:
    """A search of which only a part was done."""

    answer: int = 1

    def run(self) -> object:
        """The whole answer."""
        return ("whole", self.answer)


def test_a_search_that_was_stopped_by_the_clock_is_not_asked_to_end_alike(first: Path) -> None:
    """The recorded answer is used, and a note says so; what it leads to can still be compared."""
    from gpusched.lab.recordings.replay import _RecordedAnswers  # noqa: PLC0415

    search = _RecordedAnswers((RecordedSearch(job="Late", answer=("half", 1)),))
    assert search(Late()) == ("half", 1)
    (note,) = search.notes()
    assert note.startswith("search 1 (late) was answered otherwise when this was recorded")
    same = _RecordedAnswers((RecordedSearch(job="Late", answer=("whole", 1)),))
    assert same(Late()) == ("whole", 1)
    assert list(same.notes()) == []


def test_versions_are_compared(first: Path) -> None:
    """Another version is a warning, not an obstacle."""
    file = read_decision(first)
    assert version_notes(file) == []
    old = attrs.evolve(file, header=msgspec.structs.replace(file.header, gpusched="0.0.9"))
    (note,) = version_notes(old)
    assert "recorded by gpusched 0.0.9, this is" in note


# -- files ---------------------------------------------------------------------------------------
def refused(path: Path, body: bytes) -> str:
    path.write_bytes(body)
    with pytest.raises(ConfigError) as caught:
        read_decision(path)
    return str(caught.value).replace(str(path), "FILE")


def test_what_is_no_decision_is_told(first: Path, tmp_path: Path, capsys: Any) -> None:
    """One sentence, exit status 78."""
    path = tmp_path / "x"
    whole = first.read_bytes()
    lines = gzip.decompress(whole).split(b"\n")

    def packed(*parts: bytes) -> bytes:
        return gzip.compress(b"\n".join(parts))

    no_decision = (
        "FILE: this is no recorded decision; gpusched run --record-decisions DIR writes them"
    )
    assert refused(path, b"") == no_decision
    assert refused(path, b"kind: List") == no_decision
    assert refused(path, packed(b'{"gpuschedSnapshot":1}', b"")) == no_decision
    assert refused(
        path, packed(lines[0].replace(b'"gpuschedDecision":1', b'"gpuschedDecision":2'))
    ) == ("FILE:1: this is a decision of format 2; this version of gpusched reads format 1")
    assert "cut off" in refused(path, whole[:-20])
    assert "damaged" in refused(path, packed(*lines[:2], b""))
    assert refused(path, packed(lines[0], lines[1].replace(b"Pod", b"Pad"), *lines[2:])) == (
        "FILE:2: the file is damaged: this line has another sum than line 1 says"
    )
    path.write_bytes(b"")
    assert main(["replay", str(path)]) == 78
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["replay", str(tmp_path / "nowhere")]) == 78


def test_files_that_are_too_many_go_and_others_stay(recorded: list[Path], tmp_path: Path) -> None:
    """The last are kept; what is not ours is left alone."""
    (tmp_path / "notes.txt").write_text("mine")
    recorder = DecisionRecorder(
        RecordingOptions(folder=tmp_path, last=2, everything=True), inline=True
    )
    for path in recorded[:4]:
        give(recorder, read_decision(path))
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == [*(path.name for path in recorded[2:4]), "notes.txt"]
    assert {each.stat().st_mode & 0o777 for each in tmp_path.glob("*.gz")} == {0o600}


def give(recorder: DecisionRecorder, file: DecisionFile) -> None:
    tape = SearchRecorder(lambda job: job.run(), ())
    recorder.record(
        file.inputs.snapshot, file.inputs.config, tape, decision=decided_on(file.inputs.snapshot)
    )


def decided_on(snapshot: Any) -> Decision:
    from gpusched.pluginhost.registry import load_policy  # noqa: PLC0415

    return decide(
        snapshot,
        load_policy(DEFAULT),
        guard=PluginGuard(CLOCK),
        session_cache=SessionCache(),
        placement=PlacementConfig(),
    )


def test_a_full_disk_is_one_warning(first: Path, tmp_path: Path, caplog: Any) -> None:
    """Deciding goes on."""
    (tmp_path / "file").write_text("in the way")
    recorder = DecisionRecorder(RecordingOptions(folder=tmp_path / "file"), inline=True)
    file = read_decision(first)
    with caplog.at_level("WARNING"):
        give(recorder, file)
        give(recorder, file)
    assert len(caplog.records) == 1
    assert "decisions cannot be recorded in" in caplog.text


def test_the_plan_in_the_file_is_the_plan(first: Path) -> None:
    """Nothing of it is lost."""
    file = read_decision(first)
    decision = decided_on(file.inputs.snapshot)
    assert plan_as_json(decision.plan) == file.decided
    assert pack_decision(file.inputs, decision.plan) == pack_decision(file.inputs, decision.plan)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--record-decisions", "d", "--record-last", "0"],
        ["run", "--record-all"],
        ["run", "--record-last", "7"],
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(words: list[str], capsys: Any) -> None:
    """Told before anything starts."""
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_who_is_told_a_start_can_be_recorded(tmp_path: Path) -> None:
    """The session after the one that told it is made of what was told."""
    hour = GangAnnotations(expected_duration_ns=3600 * 10**9)
    c = Given().nodes(1, gpus=4).queue("q")
    c.pod("runs", queue="q", node="node-0", slots=15, gpus=4, plan="p", scheduled=c.now, hints=hour)
    c.gang("waits", pods=1, gpus=4, queue="q")
    c.when.one_session()
    assert c.decision is not None
    c.cache.expected_starts = told = c.decision.expected_starts
    c.now += 1
    plan = c.when.one_session()
    assert c.snapshot is not None
    assert [key.name for key in c.snapshot.expected_starts.estimates] == ["waits"]
    path = tmp_path / "told.decision.gz"
    path.write_bytes(pack_decision(DecisionInputs(snapshot=c.snapshot, config=DEFAULT), plan))
    file = read_decision(path)
    assert file.inputs.snapshot.expected_starts == told
    assert replay_decision(file, clock=CLOCK).identical
