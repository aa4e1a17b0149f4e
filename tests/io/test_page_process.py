"""Long lists of pods: processes beside the daemon decode pages, and whatever becomes of them the list is the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal

import pytest

from benchmarks.inputs import listed_pods, page
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, gpu_resources_in_force
from gpusched.api.pod.decode import PODS
from gpusched.base import limits
from gpusched.io.observe.process_limits import usable_processors
from gpusched.io.watch.kind_spec import KindSpec
from gpusched.io.watch.list_pages import ListPages
from gpusched.io.watch.page_process import PageProcesses

_PODS = listed_pods(240, seed=5, templates=12, nodes=40)
_A_PAGE = 10


class _Server:
    """Answers lists as an API server does; ``pages`` are what it answered, by token."""

    def __init__(self, pods=_PODS):
        self.pods, self.asked = pods, []

    async def request(self, _method, _path, *, query, timeout_s):
        at = int(query.get("continue", "0"))
        self.asked.append(at)
        more = at + _A_PAGE
        body = page(self.pods[at:more], token=str(more) if more < len(self.pods) else "")
        return _Answer(body)


class _Answer:
    ok = True

    def __init__(self, body):
        self.body = body


def _listed(beside, *, pods=_PODS, at_page=lambda _number: None):
    """Names of all pods of a list, in its order, and how it was asked for."""

    async def main():
        server, names = _Server(pods), []
        pages = ListPages(server, KindSpec("pods", "/api/v1/pods"), PODS, beside)
        number = 0
        async for each in pages.all():
            names += [item.name for item in each.items]
            at_page(number)
            number += 1
            await asyncio.sleep(0.02)
        return names, server.asked

    return asyncio.run(main())


class _Counted(PageProcesses):
    """Notes what was decoded beside."""

    made: list[_Counted] = []  # noqa: RUF012 - one test at a time

    def __init__(self, processors=3):
        super().__init__(processors)
        self.tasks = []
        _Counted.made.append(self)

    def decode_soon(self, body):
        task = super().decode_soon(body)
        if task is not None:
            self.tasks.append(task)
        return task

    @property
    def answered(self):
        """Pages that came back decoded."""
        return [each.result() for each in self.tasks if not each.cancelled() and each.result()]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(limits, "PAGES_BEFORE_PROCESSES", 2)
    _Counted.made.clear()


def test_a_long_list_is_decoded_beside_and_arrives_in_its_order():
    """Given 24 pages and three processors, processes decode most of them and the list is as without them."""
    alone, asked = _listed(None)
    assert _listed(_Counted) == (alone, asked)
    assert len(_Counted.made[0].answered) > 5


def test_a_short_list_starts_no_process():
    """Given a list shorter than ``PAGES_BEFORE_PROCESSES``, or one processor, the daemon decodes all."""
    _listed(_Counted, pods=_PODS[:_A_PAGE])
    _listed(lambda: _Counted(1))
    assert [each.tasks for each in _Counted.made] == [[], []]


def test_a_list_survives_the_process(caplog):
    """Given a process that is killed while it decodes, the daemon decodes what it would have."""
    alone, _ = _listed(None)

    def kill(number):
        for each in _Counted.made[0]._processes:
            if number > 8 and each._process is not None and each._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # gone, and nobody was told yet
                    os.kill(each._process.pid, signal.SIGKILL)

    names, _ = _listed(_Counted, at_page=kill)
    assert names == alone
    assert "the daemon decodes them itself" in caplog.text


def test_a_process_that_does_not_answer_is_given_up(monkeypatch, caplog):
    """Given a process that stands still, the list goes on without it."""
    monkeypatch.setattr(limits, "PAGE_ANSWER_MAX_S", 0.2)
    alone, _ = _listed(None)

    def stop(number):
        for each in _Counted.made[0]._processes:
            if number > 8 and each._process is not None and each._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it was given up a moment ago
                    os.kill(each._process.pid, signal.SIGSTOP)

    names, _ = _listed(_Counted, at_page=stop)
    assert names == alone
    assert "did not answer in time" in caplog.text


def test_a_page_that_holds_what_cannot_be_believed_is_read_here():
    """Given a broken pod in the middle of the list, it arrives as one that is rejected."""
    pods = list(_PODS)
    pods[155] = b'{"metadata":{"name":"broken","namespace":"n"},"spec":{}}'

    async def main():
        pages = ListPages(_Server(pods), KindSpec("pods", "/api/v1/pods"), PODS, _Counted)
        found = []
        async for each in pages.all():
            found += each.items
            await asyncio.sleep(0.02)
        return found

    found = asyncio.run(main())
    assert [getattr(item, "why", "") for item in found].count("is missing") == 1
    assert found[155].key.name == "broken"
    assert _Counted.made[0].answered


def test_processes_know_which_resources_are_gpus():
    """Given a configuration with other GPU resources, pods decoded beside ask for these."""

    async def main():
        processes = PageProcesses(2)
        body = page(listed_pods(20, seed=5), token="on")
        while (task := processes.decode_soon(body)) is None:  # noqa: ASYNC110 - it says nothing when it is there
            await asyncio.sleep(0.01)
        found = await task
        await processes.close()
        return {item.pod_class.gpu for item in found.items}, {
            item.pod_class.gpu for item in PODS.decode_page(body).items
        }

    others = DEFAULT_GPU_RESOURCES.__class__(DEFAULT_GPU_RESOURCES.listed[1:])
    with gpu_resources_in_force(others):
        beside, here = asyncio.run(main())
    assert beside == here == {""}


def test_a_token_that_stands_elsewhere_is_found(monkeypatch):
    """Given pages whose token is seen only as they are decoded, each is asked for once."""
    monkeypatch.setattr("gpusched.io.watch.list_pages._CONTINUE", re.compile(b"never"))
    alone = _listed(None)
    assert _listed(_Counted) == alone
    assert len(alone[1]) == len(_PODS) // _A_PAGE


@pytest.mark.parametrize(
    ("text", "expected"), [("200000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", None)]
)
def test_a_quota_bounds_the_processors(tmp_path, text, expected):
    """Given a control group with so much processor time, no more processes than that run at a time."""
    (tmp_path / "cpu.max").write_text(text)
    everywhere = usable_processors(tmp_path / "none")
    seen = usable_processors(tmp_path / "cpu.max")
    assert seen == (everywhere if expected is None else min(expected, everywhere))
