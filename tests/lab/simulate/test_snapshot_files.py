"""The file of a recorded cluster is read as it was written, or refused with file and line."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.base.errors import ConfigError
from gpusched.io.recordings.snapshot_file import (
    MissingKind,
    SnapshotFile,
    compressed_writer,
    read_snapshot,
    write_snapshot,
)

TAKEN = 1_767_225_600.0


def pod(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "a"}}


def job(name: str) -> dict[str, object]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "a"}}


def written(**objects: list[dict[str, object]]) -> bytes:
    by_resource = {name.replace("__", "."): items for name, items in objects.items()}
    out = BytesIO()
    header = SnapshotFile(
        path="", taken_at=TAKEN, server="v1.36.1", recorder="0.1.0",
        missing=(MissingKind("jobsets.jobset.x-k8s.io", "not served", served=False),), objects={},
    )  # fmt: skip
    lines = {
        name: [msgspec.json.encode(item) for item in items] for name, items in by_resource.items()
    }
    write_snapshot(out, header, lines)
    return out.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cluster.snapshot"


def refused(file: Path, body: bytes) -> str:
    file.write_bytes(body)
    with pytest.raises(ConfigError) as caught:
        read_snapshot(file)
    assert len(caught.value.problems) == 1
    assert caught.value.exit_status == 78
    return str(caught.value).replace(str(file), "FILE")


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_written_is_read(file: Path, packed: bool) -> None:
    """Header and objects come back, whether the file is compressed or not."""
    body = written(pods=[pod("p0"), pod("p1")], jobs__batch=[job("j")], nodes=[])
    file.write_bytes(gzip.compress(body) if packed else body)
    read = read_snapshot(file)
    assert read.objects == {"pods": (pod("p0"), pod("p1")), "jobs.batch": (job("j"),), "nodes": ()}
    assert list(read.objects) == ["pods", "jobs.batch", "nodes"]
    assert (read.taken_at, read.server, read.recorder) == (TAKEN, "v1.36.1", "0.1.0")
    assert read.missing == (MissingKind("jobsets.jobset.x-k8s.io", "not served", served=False),)
    assert len(read) == 3
    assert [item["metadata"]["name"] for item in read] == ["p0", "p1", "j"]


def test_the_same_content_is_the_same_compressed_file() -> None:
    """Neither the time nor the name of the file is in its bytes."""
    bodies = []
    for _ in range(2):
        out = BytesIO()
        with compressed_writer(out) as packed:
            packed.write(written(pods=[pod("p0")]))
        bodies.append(out.getvalue())
    assert bodies[0] == bodies[1]
    assert gzip.decompress(bodies[0]) == written(pods=[pod("p0")])


def test_other_files_are_no_snapshots(file: Path) -> None:
    """A sentence says what it is not, and what makes one."""
    for body in (
        b"",
        b"apiVersion: v1\n",
        b"\x00\xff" * 9,
        b"[1]\n",
        b'{"kind": "List"}\n',
        b"[" * 10**5,
    ):
        assert refused(file, body) == (
            "FILE:1: this is no snapshot of a cluster; gpusched snapshot --output-file FILE makes one"
        )


def test_another_version_is_told(file: Path) -> None:
    """The sentence names both formats."""
    body = written(pods=[]).replace(b'"gpuschedSnapshot":1', b'"gpuschedSnapshot":2')
    assert refused(file, body) == (
        "FILE:1: this is a snapshot of format 2; this version of gpusched reads format 1"
    )


def test_what_is_cut_off_is_told(file: Path) -> None:
    """Between objects and inside of one; compressed files too."""
    body = written(pods=[pod("p0"), pod("p1")])
    first, second = body.index(b"p0"), body.index(b"p1")
    assert refused(file, body[: first + body[first:].index(b"\n") + 1]) == (
        "FILE:3: the file is cut off: of 2 pods that line 1 tells of there are 1"
    )
    assert refused(file, body[:second]) == (
        "FILE:3: the file is cut off in the middle of this line"
    )
    assert refused(file, gzip.compress(body)[:-12]) == (
        "FILE: the file is cut off: its compressed content ends early"
    )


def test_what_is_damaged_is_told(file: Path) -> None:
    """With the line on which it stands."""
    body = written(pods=[pod("p0"), pod("p1")])
    assert refused(file, body.replace(b'"name":"p1"', b'"name":"p1')).startswith(
        "FILE:3: this line is no object of the API: "
    )
    assert refused(file, body.replace(b'"kind":"Pod"', b'"kind":7', 1)).startswith(
        "FILE:2: this line is no object of the API: "
    )
    assert refused(file, body.replace(b'"server"', b'"servers"')).startswith(
        "FILE:1: the description of the snapshot is damaged: "
    )
    assert refused(file, body.replace(b"2026-01-01T", b"yesterday")).startswith("FILE:1: takenAt: ")
    packed = bytearray(gzip.compress(body))
    packed[-6] ^= 0xFF
    assert refused(file, bytes(packed)).startswith("FILE: the file is damaged: ")


def test_counts_guard_edited_files(file: Path) -> None:
    """An object more, or one of another kind, is told with what to do."""
    body = written(pods=[pod("p0")])
    assert refused(file, body + body.splitlines(keepends=True)[1]) == (
        "FILE:3: there are more objects than the 1 that line 1 tells of; who edits a snapshot has "
        "to correct its counts"
    )
    assert refused(file, body.replace(b'"pods":1', b'"pods":0,"jobs.batch":1')) == (
        "FILE:2: Pod of v1 stands among jobs.batch; who edits a snapshot has to correct its counts"
    )


def test_a_last_line_without_its_end_is_whole(file: Path) -> None:
    """Editors leave it off."""
    file.write_bytes(written(pods=[pod("p0")]).rstrip(b"\n"))
    assert read_snapshot(file).objects["pods"] == (pod("p0"),)


def test_a_file_that_cannot_be_opened_is_told(file: Path) -> None:
    """As every other fault of a file."""
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_snapshot(file)


@given(at=st.integers(0, 400), value=st.integers(0, 255), packed=st.booleans())
def test_no_damage_is_a_bug(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, packed: bool
) -> None:
    """One byte that is another: read, or refused in one sentence."""
    body = written(pods=[pod("p0"), pod("p1")], jobs__batch=[job("j")])
    damaged = bytearray(gzip.compress(body, mtime=0) if packed else body)
    damaged[at % len(damaged)] = value
    file = tmp_path_factory.getbasetemp() / "damaged.snapshot"
    file.write_bytes(bytes(damaged))
    try:
        read_snapshot(file)
    except ConfigError as error:
        assert str(error).startswith(str(file))  # noqa: PT017 - either outcome is right
