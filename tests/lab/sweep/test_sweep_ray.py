"""Points on a Ray cluster: the same bytes as here, and workers that are lost. Skipped where Ray is not installed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpusched.cli.lab.sweep import ray_workers
from gpusched.cli.lab.sweep.ray_workers import RayWorkers, play_on_ray
from gpusched.cli.lab.sweep.sweep_inputs import pack
from gpusched.cli.lab.sweep.workers import TRIES_MAX, InThisProcess, run_points

from .test_sweep_command import JOBS, SWEEP, run
from .test_sweep_workers import Deadly, by_number, works  # noqa: F401 - a fixture


class DeadlyOnce:
    """Work that kills the first process that unpacks it, and is what it was for the next one."""

    def __init__(self, work: bytes, marker: Path) -> None:
        self._work, self._marker = work, str(marker)

    def __reduce__(self) -> object:
        said = (
            f"__import__('os').path.exists({self._marker!r}) or (open({self._marker!r}, 'w').close(), "
            "__import__('os').kill(__import__('os').getpid(), 9))"
        )
        return eval, (f"({said}, __import__('pickle').loads({self._work!r}))[1]",)


def test_a_missing_library_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """78, with what to install, before anything is read."""
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(tmp_path / "sweep.yaml", "--ray", "local") == 78
    assert (
        '--ray needs ray, which is not installed: run pip install ".[ray]"'
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_told(
    tmp_path: Path,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """69 at once, and nothing has run; Ray is asked only where somebody listens."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    assert run(tmp_path / "sweep.yaml", "--ray", address) == 69
    assert f"the Ray cluster {address} cannot be reached: [Errno 111]" in capsys.readouterr().err
    assert list((tmp_path / "out" / "points").iterdir()) == []


def test_what_sigterm_does_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a library that, as Ray, ends the program by SIGTERM once it is imported: the table is written all the same."""
    (tmp_path / "ray.py").write_text(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray_workers.load_ray()
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.modules.pop("ray", None)


class LocalRayletDiedError(Exception):
    """As Ray's, by name."""


class LostAfter:
    """A Ray that says something on standard output, plays so many points, and is gone."""

    def __init__(self, plays: int, *, when: str) -> None:
        self._left, self._when = plays, when
        self.is_initialized = lambda: True
        self.cluster_resources = lambda: {"CPU": 1}

    @property
    def plays_left(self) -> int:
        """Points that it plays before it is gone."""
        return self._left

    def remote(self, function: Any) -> Any:
        """A task; ``wait`` breaks or ``get`` says what became of it."""
        task = SimpleNamespace(remote=lambda *given: (function, given))
        task.options = lambda **_: task
        return task

    def wait(self, references: list[Any], **_: object) -> tuple[list[Any], list[Any]]:
        """The first one has ended."""
        sys.stdout.write("(raylet) a node is gone\n")
        if not self._left and self._when == "wait":
            raise ConnectionError("the client is not connected")
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        """What came of it."""
        if not self._left:
            raise LocalRayletDiedError("the raylet died")
        self._left -= 1
        function, given = reference
        return function(*given)

    def cancel(self, reference: Any, **_: object) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("when", ["get", "wait"])
def test_a_cluster_that_is_lost_is_told_once_and_what_has_ended_is_kept(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given four points, when the cluster goes away after one: 69, one sentence, a partial table, and --resume."""
    monkeypatch.setitem(sys.modules, "ray", LostAfter(1, when=when))
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    assert run(tmp_path / "sweep.yaml", "--ray", "local") == 69
    said = capsys.readouterr()
    assert said.err.count("the Ray cluster local was lost") == 1
    assert "go on with --resume" in said.err
    assert "its worker was lost" not in said.err
    told = json.loads(said.out)
    assert not told["complete"]
    assert len(list((tmp_path / "out" / "points").iterdir())) == 1
    assert run(tmp_path / "sweep.yaml", "--resume") == 0
    assert json.loads(capsys.readouterr().out)["complete"]


def test_a_head_that_is_gone_is_told_before_ray_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given four points, when nothing ends any more and nobody listens where the head was, then 69 as above."""
    ray = LostAfter(1, when="get")
    ray.get_runtime_context = lambda: SimpleNamespace(gcs_address="127.0.0.1:1")
    ray.wait = lambda references, **_: (references[:1], []) if ray.plays_left else ([], references)
    monkeypatch.setitem(sys.modules, "ray", ray)
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    assert run(tmp_path / "sweep.yaml", "--ray", "local") == 69
    said = capsys.readouterr()
    assert said.err.count("the Ray cluster local was lost: 127.0.0.1:1 does not answer") == 1
    assert len(list((tmp_path / "out" / "points").iterdir())) == 1


@pytest.mark.parametrize(
    ("there", "mode"), [({}, None), ({"RAY_AUTH_TOKEN": "t"}, "token"), ({"file": "t"}, "token")]
)
def test_a_token_that_is_there_is_used(
    tmp_path: Path, there: dict[str, str], mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ``ray start``: one in the environment, or the one that Ray left in the home of the user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is taken back
        monkeypatch.delenv(name)
    for name, value in there.items():
        if name == "file":
            (tmp_path / ".ray").mkdir()
            (tmp_path / ".ray" / "auth_token").write_text(value)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    ray_workers.load_ray()
    assert os.environ.get("RAY_AUTH_MODE") == mode
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray_workers.load_ray()
    assert os.environ["RAY_AUTH_MODE"] == "disabled", "what the user says holds"


def test_a_worker_of_another_version_plays_nothing(works: list[bytes]) -> None:  # noqa: F811
    """Its results would be kept as those of this version."""
    result, error = play_on_ray(works[0], "0.0.1")
    assert result is None
    assert "this is 0.0.1: install the same" in error


@pytest.mark.filterwarnings("default")  # those of Ray and its libraries are not ours
@pytest.mark.early
@pytest.mark.long
class TestOnRay:
    """On a cluster that is started here."""

    @pytest.fixture
    def cluster(self) -> Iterator[RayWorkers]:
        """Two processors."""
        ray = pytest.importorskip("ray", reason='Ray is not installed: pip install ".[ray]"')
        found = RayWorkers(ray_workers.LOCAL, 2)
        yield found
        found.close()
        ray.shutdown()

    def test_lost_workers_are_told_and_results_are_the_same_bytes(
        self,
        works: list[bytes],  # noqa: F811
        cluster: RayWorkers,
        tmp_path: Path,
    ) -> None:
        """One whose worker is killed once has its result; one that kills every worker fails."""
        here = by_number(run_points(range(3), works.__getitem__, InThisProcess(), note=pytest.fail))
        given = [
            works[0],
            pack(DeadlyOnce(works[1], tmp_path / "killed")),
            works[2],
            pack(Deadly()),
        ]
        notes: list[str] = []
        ends = by_number(run_points(range(4), given.__getitem__, cluster, note=notes.append))
        assert [ends[turn].result for turn in range(3)] == [here[turn].result for turn in range(3)]
        assert ends[3].result is None
        assert f"lost {TRIES_MAX} times: WorkerCrashedError" in ends[3].error
        assert len(notes) == 1 + TRIES_MAX - 1

    def test_the_command_plays_on_the_cluster(
        self, cluster: RayWorkers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The same files as without it, to the byte."""
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert cluster.size == 2
        for name, more in (("here", ()), ("there", ("--ray", "local"))):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "jobs.csv").write_text(JOBS)
            (folder / "sweep.yaml").write_text(SWEEP)
            assert run(folder / "sweep.yaml", *more) == 0
        capsys.readouterr()
        kept = [
            {
                each.name: each.read_bytes()
                for each in (tmp_path / name / "out" / "points").iterdir()
            }
            for name in ("here", "there")
        ]
        assert kept[0] == kept[1]
        assert len(kept[0]) == 4
