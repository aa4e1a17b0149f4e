"""Files that snapshot and bundle write: whole or not at all, and nothing but a file takes the place of something."""

from __future__ import annotations

import gzip
import os
import threading

import pytest

from gpusched.base.errors import UsageError
from gpusched.cli.bundle.output_file import open_output


def write(file, text=b"told", *, compressed=False):
    with open_output(str(file), compressed=compressed) as out:
        out.write(text)


def test_a_file_takes_the_place_of_one(tmp_path):
    """Given a file of that name, when another is written, then it is that one, for its owner alone."""
    file = tmp_path / "file"
    file.write_text("before")
    write(file)
    assert file.read_bytes() == b"told"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("compressed", [True, False])
def test_a_pipe_is_written_to_and_stays_one(tmp_path, compressed):
    """Given a named pipe, as devices and the standard output are, then who reads it gets all, and no file takes its place."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, compressed=compressed)
    reader.join()
    assert (gzip.decompress(read[0]) if compressed else read[0]) == b"told"
    assert pipe.is_fifo()


def test_a_link_stays_one(tmp_path):
    """Given a link to a file, then that file is another one, and the link leads to it."""
    (tmp_path / "there").write_text("before")
    link = tmp_path / "link"
    link.symlink_to("there")
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "there").read_bytes() == b"told"


def test_a_device_that_is_full_is_one_sentence(tmp_path):
    """Given a link to a device that takes nothing, then that is told, and the device is still there."""
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        write(link)
    assert link.resolve().is_char_device()
