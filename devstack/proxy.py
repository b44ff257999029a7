"""`Proxy`: forwards TCP connections, and can cut or block them.

By default it forwards bytes unchanged. `cut` breaks all connections. `block` forwards nothing in either direction, while connections
stay open and new ones are accepted, like a network that drops packets. `unblock` forwards the bytes that were held back, except those
of a connection that was reset meanwhile: its kernel sends them no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import psutil

from devstack.ports import free_port

_CHUNK = 1 << 16

Ports = Callable[[], Container[int]]
"""Returns the client ports of the connections to act on. It may take a while, so it is never called in the event loop."""


class Loop:
    """An event loop in a thread of its own; all proxies of a run share it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self.servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        for server in self.servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _EveryPort:
    def __contains__(self, _: object) -> bool:
        return True


def everybody() -> Container[int]:
    return _EveryPort()


def opened_by(processes: Callable[[], Iterable[psutil.Process]]) -> Ports:
    """The connections that these processes have open at the time of the call."""
    return lambda: {port for process in processes() for port in _ports_of(process)}


def _ports_of(process: psutil.Process) -> set[int]:
    try:
        return {connection.laddr.port for connection in process.net_connections("tcp4")}
    except psutil.NoSuchProcess:
        return set()


@dataclass(eq=False)
class _Link:
    """One connection through the proxy. Bytes wait while its gate is closed."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    blocks: set[str] = field(default_factory=set)
    gives_up_seconds: float | None = None

    @property
    def from_port(self) -> int:
        peer = self.near.get_extra_info("peername")
        return int(peer[1]) if peer else 0  # the connection has already ended

    @property
    def was_reset(self) -> bool:
        """By the client, maybe just now: the kernel knows it before the event loop does."""
        connection = self.near.get_extra_info("socket")
        return self.near.is_closing() or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def open_unless_blocked(self) -> None:
        if not self.blocks:
            self.gate.set()

    def abort(self) -> None:
        for end in (self.near, self.far):
            if end is not None:
                end.transport.abort()


class Proxy:
    """Listens from its creation until its loop ends."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._to = port
        self.port = free_port()
        self._links: set[_Link] = set()
        self._blocks: dict[str, Ports] = {}
        loop.run(self._listen())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, whose: Ports = everybody) -> None:
        self._loop.run(self._abort(whose()))

    def block(self, name: str = "", whose: Ports = everybody, *, gives_up_seconds: float | None = None) -> None:
        """Several blocks may exist at a time, each with a name; a block replaces one of the same name.

        `gives_up_seconds`: after which a client's kernel resets a connection that has not delivered what it sent (`TCP_USER_TIMEOUT`). It
        cannot know, since the proxy takes it.
        """
        self._loop.run(self._set(name, whose))
        self._loop.run(self._close(name, whose(), gives_up_seconds))

    def unblock(self, name: str = "") -> None:
        self._loop.run(self._open(name))

    async def _listen(self) -> None:
        self._loop.servers.append(await asyncio.start_server(self._carry, "127.0.0.1", self.port))

    async def _abort(self, ports: Container[int]) -> None:
        for link in self._links:
            if link.from_port in ports:
                link.abort()

    async def _set(self, name: str, whose: Ports) -> None:
        """Registers a block for new connections; `_close` then applies it to the existing ones."""
        await self._open(name)
        self._blocks[name] = whose

    async def _close(self, name: str, ports: Container[int], gives_up_seconds: float | None) -> None:
        for link in self._links:
            if link.from_port in ports:
                link.gives_up_seconds = gives_up_seconds
                link.blocks.add(name)
                link.gate.clear()

    async def _open(self, name: str) -> None:
        self._blocks.pop(name, None)
        for link in self._links:
            link.blocks.discard(name)
            link.open_unless_blocked()

    async def _judge(self, link: _Link) -> None:
        """Keeps the gate of a new connection closed until it is known whether a block applies to it."""
        judged: dict[str, Ports] = {}
        while judged != self._blocks:
            judged = dict(self._blocks)
            link.blocks = {name for name, whose in judged.items() if link.from_port in await asyncio.to_thread(whose)}
        self._links.add(link)
        link.open_unless_blocked()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection; when either side ends, both end."""
        link = _Link(writer)
        try:
            await self._judge(link)
            await link.gate.wait()
            far_reader, link.far = await asyncio.open_connection("127.0.0.1", self._to)
            ways = {
                asyncio.ensure_future(_pump(reader, link.far, lambda: _opened(link))),
                asyncio.ensure_future(_pump(far_reader, writer, link.gate.wait)),
            }
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # no server listens there, or the loop ends: closing the connection shows it to the client
        finally:
            self._links.discard(link)
            link.abort()


async def _opened(link: _Link) -> None:
    """What a connection had sent before it was reset is lost."""
    await asyncio.wait_for(link.gate.wait(), link.gives_up_seconds)
    if link.was_reset:
        raise ConnectionResetError


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opened: Callable[[], Awaitable[object]]
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            await opened()
            writer.write(data)
            await writer.drain()
