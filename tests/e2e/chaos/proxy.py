"""`Proxy`: a TCP connection with a place to cut it.

Bytes go through unchanged until it is told otherwise: `cut` breaks every connection there is, `block` lets nothing through in either direction
while connections stay open and new ones are still taken, as a network does that drops packets; `unblock` lets go on what was held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self

from devstack.ports import free_port

_CHUNK = 1 << 16


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


class Proxy:
    """Listens as soon as it is made, until its loop ends."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._to = port
        self.port = free_port()
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        loop.run(self._listen())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._loop.run(self._abort())

    def block(self) -> None:
        self._loop.run(self._close())

    def unblock(self) -> None:
        self._loop.run(self._let_go())

    async def _listen(self) -> None:
        await asyncio.start_server(self._carry, "127.0.0.1", self.port)

    async def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _close(self) -> None:
        self._open.clear()

    async def _let_go(self) -> None:
        self._open.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: when either side ends, both do."""
        self._writers.add(writer)
        far = None
        try:
            await self._open.wait()
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers.add(far)
            ways = {
                asyncio.ensure_future(self._pump(reader, far)),
                asyncio.ensure_future(self._pump(far_reader, writer)),
            }
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
        except OSError:
            pass  # nobody listens there: the near side is told so by the end of its connection
        finally:
            for end in (writer, far):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
