"""`Proxy`: a TCP connection with a place to cut it.

Bytes go through unchanged until it is told otherwise: `cut` breaks every connection there is, `block` lets nothing through in either direction
while connections stay open and new ones are still taken, as a network does that drops packets; `unblock` lets go on what was held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

from devstack.ports import free_port

_CHUNK = 1 << 16

Barred = Callable[[int], bool]
"""Whether a block concerns the connection that came from this port."""


class Loop:
    """An event loop in a thread of its own, which all proxies of a run share."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)

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

    @staticmethod
    async def _end() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(eq=False)
class _Link:
    """One connection through the proxy. Bytes wait while its gate is closed."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def from_port(self) -> int:
        peer = self.near.get_extra_info("peername")
        return int(peer[1]) if peer else 0  # it was over before it was looked at

    def abort(self) -> None:
        for end in (self.near, self.far):
            if end is not None:
                end.transport.abort()


class Proxy:
    """Listens as soon as it is made, until its loop ends."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._to = port
        self.port = free_port()
        self._links: set[_Link] = set()
        self._barred: Barred = lambda _: False
        loop.run(self._listen())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._loop.run(self._abort())

    def block(self, barred: Barred | None = None) -> None:
        """All connections, or those that are barred; what was blocked before is replaced by this."""
        self._loop.run(self._block(barred or (lambda _: True)))

    def unblock(self) -> None:
        self._loop.run(self._block(lambda _: False))

    async def _listen(self) -> None:
        await asyncio.start_server(self._carry, "127.0.0.1", self.port)

    async def _abort(self) -> None:
        for link in self._links:
            link.abort()

    async def _block(self, barred: Barred) -> None:
        self._barred = barred
        for link in self._links:
            self._open_or_close(link)

    def _open_or_close(self, link: _Link) -> None:
        if self._barred(link.from_port):
            link.gate.clear()
        else:
            link.gate.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: when either side ends, both do."""
        link = _Link(writer)
        self._links.add(link)
        self._open_or_close(link)
        try:
            await link.gate.wait()
            far_reader, link.far = await asyncio.open_connection("127.0.0.1", self._to)
            ways = {
                asyncio.ensure_future(_pump(reader, link.far, link.gate)),
                asyncio.ensure_future(_pump(far_reader, writer, link.gate)),
            }
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens there, or the loop ends: the near side is told so by the end of its connection
        finally:
            self._links.discard(link)
            link.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            await gate.wait()
            writer.write(data)
            await writer.drain()
