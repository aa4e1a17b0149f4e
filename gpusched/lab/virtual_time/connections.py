"""Connections that stay inside one event loop: no kernel decides in which order bytes arrive.

What one end writes, the other is given in the next turn of the loop, in the order of the
writes; so the same program has the same history however busy the machine is.
"""
# ruff: noqa: SLF001 - both ends of a connection are one class and know each other

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

_HIGH: Final = 1 << 20
"""Unread bytes at which the writer is asked to pause; it may go on below a quarter of it."""
Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        extra: dict[str, Any],
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self._protocol = protocol
        self._peer: MemoryTransport | None = None
        self._inbox: list[bytes] = []
        self._unread = 0
        self._ended = False
        self._reading = True
        self._delivering = False
        self._closing = False
        self._lost = False
        self._full = False

    def join(self, peer: MemoryTransport) -> None:
        """Make the other end known and let both protocols begin."""
        self._peer, peer._peer = peer, self
        for end in (peer, self):
            end._protocol.connection_made(end)

    # -- writing -----------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Write bytes to the other end; what comes after the end is lost, as on a socket."""
        peer = self._peer
        if peer is None or self._closing or peer._lost or not data:
            return
        peer._inbox.append(bytes(data))
        peer._unread += len(data)
        peer._wake()
        if peer._unread > _HIGH and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Write the chunks as one."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Bytes the other end has not read."""
        return 0 if self._peer is None else self._peer._unread

    def can_write_eof(self) -> bool:
        """False: connections are never half-closed."""
        return False

    # -- reading -----------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Deliver no bytes to the protocol for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver bytes to the protocol again."""
        self._reading = True
        self._wake()

    def is_reading(self) -> bool:
        """Whether bytes are delivered to the protocol."""
        return self._reading and not self._closing

    def _wake(self) -> None:
        if not self._delivering and not self._lost:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._closing or not self._reading:
            return
        if self._inbox:
            data = b"".join(self._inbox)
            self._inbox.clear()
            self._unread = 0
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)
            if self._peer is not None:
                self._peer._drained()
        if self._ended and not self._inbox and not self._closing:
            assert isinstance(self._protocol, asyncio.Protocol)
            if not self._protocol.eof_received():
                self.close()

    def _drained(self) -> None:
        if self._full and not self._lost:
            self._full = False
            self._protocol.resume_writing()

    # -- ends --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this end; the other one still reads what was written."""
        self._end(None)

    def abort(self) -> None:
        """Close this end at once; the other one is reset."""
        self._end(None, reset=True)

    def _end(self, error: Exception | None, *, reset: bool = False) -> None:
        if self._closing:
            return
        self._closing = True
        self._loop.call_soon(self._lose, error)
        peer = self._peer
        if peer is None or peer._closing:
            return
        if reset:
            peer._end(ConnectionResetError("the other end was aborted"))
        else:
            peer._ended = True
            peer._wake()

    def _lose(self, error: Exception | None) -> None:
        self._lost = True
        self._inbox.clear()
        self._unread = 0
        self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        """Whether this end is closed or closing."""
        return self._closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that receives the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol receive the bytes."""
        self._protocol = protocol


class MemoryNetwork:
    """Listeners by address, and connections to them; addresses are real, bytes stay here."""

    def __init__(self) -> None:
        self._servers: dict[Address, tuple[asyncio.Server, Callable[[], asyncio.BaseProtocol]]] = {}
        self._called: dict[socket.socket, Address] = {}
        self._port = 40_000

    def serve(self, server: asyncio.Server, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Answer at every address a server is bound to until it is closed."""
        for each in server.sockets:
            self._servers[each.getsockname()[:2]] = (server, factory)

    def call(self, sock: socket.socket, address: Any) -> None:
        """Remember the address that a socket is for.

        Raises:
            ConnectionRefusedError: no server listens there, or not on this network.
        """
        where: Address = address[:2]
        found = self._servers.get(where)
        if found is None or not found[0].sockets:
            raise ConnectionRefusedError(111, f"nobody listens at {where[0]}:{where[1]}")
        self._called[sock] = where

    def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect what ``call`` remembered; the socket itself is not needed any more."""
        where = self._called.pop(sock)
        sock.close()
        self._port += 1
        here = ("127.0.0.1", self._port)
        protocol, served = factory(), self._servers[where][1]()
        near = MemoryTransport(loop, protocol, {"peername": where, "sockname": here})
        near.join(MemoryTransport(loop, served, {"peername": here, "sockname": where}))
        return near, protocol
