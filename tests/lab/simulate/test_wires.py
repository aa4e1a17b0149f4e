"""Connections inside the loop behave as sockets do, but for the order of bytes, which is fixed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gpusched.base.clock import LoopClock
from gpusched.lab.virtual_time.connections import MemoryNetwork
from gpusched.lab.virtual_time.loop import Deadlock, run_virtual


class Notes(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes."""
        self.told.append(data)

    def eof_received(self) -> bool:
        """The end of the bytes."""
        self.told.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, and why."""
        self.told.append(type(exc).__name__ if exc else "lost")

    def pause_writing(self) -> None:
        """Too much unread."""
        self.told.append("pause")

    def resume_writing(self) -> None:
        """Read enough."""
        self.told.append("resume")


async def connected() -> tuple[Notes, Notes, asyncio.Server]:
    loop = asyncio.get_running_loop()
    served: list[Notes] = []

    def factory() -> Notes:
        served.append(Notes())
        return served[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, server.sockets[0].getsockname())
    _, client = await loop.create_connection(Notes, sock=sock)
    return client, served[0], server


def run(story: Any) -> Any:
    async def given(_clock: LoopClock) -> Any:
        client, served, server = await connected()
        try:
            return await story(client, served, server)
        finally:
            server.close()

    return run_virtual(given, network=MemoryNetwork())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_bytes_arrive_in_the_order_of_the_writes_and_the_end_comes_after_them():
    """Writes before a close are read; then both ends are told."""

    async def story(client: Notes, served: Notes, _server: Any) -> Any:
        client.transport.write(b"a")
        client.transport.writelines([b"b", b"c"])
        client.transport.close()
        client.transport.write(b"too late")
        await turns()
        return client.told, served.told

    assert run(story) == (["lost"], [b"abc", "eof", "lost"])


def test_an_aborted_connection_is_reset_at_the_other_end():
    """What was under way is dropped."""

    async def story(client: Notes, served: Notes, _server: Any) -> Any:
        client.transport.write(b"a")
        client.transport.abort()
        await turns()
        return client.told, served.told

    assert run(story) == (["lost"], ["ConnectionResetError"])


def test_a_reader_that_pauses_makes_the_writer_pause():
    """The writer is told above a mebibyte unread and again when it was read."""

    async def story(client: Notes, served: Notes, _server: Any) -> Any:
        served.transport.pause_reading()
        client.transport.write(b"x" * (2**20 + 1))
        await turns()
        paused = list(client.told), client.transport.get_write_buffer_size(), list(served.told)
        served.transport.resume_reading()
        await turns()
        return *paused, client.told

    assert run(story) == (["pause"], 2**20 + 1, [], ["pause", "resume"])


def test_nobody_answers_where_nobody_listens():
    """A closed server refuses; connections it had go on."""

    async def story(client: Notes, served: Notes, server: Any) -> Any:
        address = server.sockets[0].getsockname()
        server.close()
        with socket.socket() as sock:
            sock.setblocking(False)
            with pytest.raises(ConnectionRefusedError, match="nobody listens at 127"):
                await asyncio.get_running_loop().sock_connect(sock, address)
        client.transport.write(b"still here")
        await turns()
        return served.told

    assert run(story) == [b"still here"]


def test_two_ends_that_wait_for_each_other_are_a_deadlock():
    """No bytes can come from outside, so waiting for them without a timer is told."""

    async def story(_client: Notes, _served: Notes, _server: Any) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="test_wires"):
        run(story)
