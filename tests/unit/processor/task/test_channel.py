"""The messages between a driver and a staying task, over real sockets."""

from __future__ import annotations

import errno
import pickle
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from processor.task.channel import Call, Channel, ChannelLost, Switchboard, dial
from tests.until import PATIENCE_SECONDS


@pytest.fixture
def board() -> Iterator[Switchboard]:
    made = Switchboard("127.0.0.1", "127.0.0.1")
    yield made
    made.close()


class Told:
    """An object that only the two sides may unpickle."""

    def __init__(self) -> None:
        self.opened = False

    def __setstate__(self, state: object) -> None:
        raise AssertionError("it was unpickled")

    def __getstate__(self) -> dict[str, bool]:
        return {"opened": True}


def _connected(board: Switchboard) -> tuple[Channel, Channel, Call]:
    met: queue.Queue[Channel] = queue.Queue()
    call = board.expect(met.put)
    return dial(call), met.get(timeout=PATIENCE_SECONDS), call


def test_messages_arrive_in_order_both_ways(board: Switchboard) -> None:
    task, driver, _ = _connected(board)
    with task, driver:
        assert task.silent(0)
        for number in range(3):
            driver.send({"window": number, "large": b"x" * 3_000_000}) if number == 2 else driver.send(number)
            received = task.receive()
            task.send(received)
            assert driver.receive() == received
        assert task.silent(0)


def test_a_lost_connection_is_no_silence(board: Switchboard) -> None:
    task, driver, _ = _connected(board)
    with task, driver:
        driver.hang_up()
        assert not task.silent(1)
        with pytest.raises(ChannelLost):
            task.receive()
        with pytest.raises(ChannelLost):
            driver.receive()


def test_hanging_up_wakes_who_waits(board: Switchboard) -> None:
    task, driver, _ = _connected(board)
    lost = threading.Event()

    def wait() -> None:
        with pytest.raises(ChannelLost):
            driver.receive()
        lost.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    driver.hang_up()
    assert lost.wait(PATIENCE_SECONDS)
    waiter.join()
    task.close()


def test_nothing_is_unpickled_without_the_key(board: Switchboard) -> None:
    met: queue.Queue[Channel] = queue.Queue()
    call = board.expect(met.put)
    with pytest.raises(ChannelLost):
        dial(replace(call, key=b"another key"))
    with socket.create_connection((call.host, call.port)) as stranger:
        content = pickle.dumps(Told())
        stranger.sendall(call.name + len(content).to_bytes(8, "big") + b"\0" * 32 + content)
        assert stranger.recv(1) == b""
    assert met.empty()
    with dial(call), met.get(timeout=PATIENCE_SECONDS):
        pass


def test_a_message_cannot_be_sent_back_or_repeated(board: Switchboard) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    raw = socket.create_connection(listener.getsockname())
    met, _ = listener.accept()
    task = Channel(met, b"key", driver=False)
    with listener, raw, task:
        task.send("outcome")
        frame = raw.recv(1000)
        raw.sendall(frame)
        with pytest.raises(ChannelLost, match="not signed"):
            task.receive()


def test_a_stay_is_dialled_once_and_not_when_nobody_expects_it_any_more(board: Switchboard) -> None:
    task, driver, call = _connected(board)
    with task, driver, pytest.raises(ChannelLost):
        dial(call)
    forgotten = board.expect(lambda _: None)
    board.forget(forgotten)
    with pytest.raises(ChannelLost):
        dial(forgotten)


class ShortOfDescriptors:
    """A listener whose first calls cannot be accepted. Patched in, since a test cannot use up the descriptors of its process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def accept(self) -> tuple[socket.socket, Any]:
        if self.refused < 2:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()


def test_a_driver_without_a_free_descriptor_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *args, **options: ShortOfDescriptors(made(*args, **options)))
    with structlog.testing.capture_logs() as logged:
        board = Switchboard("127.0.0.1", "127.0.0.1")
        try:
            task, driver, _ = _connected(board)
            with task, driver:
                pass
        finally:
            board.close()
            board.close()
    assert [(each["event"], each["error"]) for each in logged] == [
        ("calls_not_accepted", "[Errno 24] Too many open files")
    ] * 2


def test_a_driver_that_is_not_there_is_told_with_its_address(board: Switchboard) -> None:
    call = board.expect(lambda _: None)
    board.close()
    with pytest.raises(ChannelLost, match=f"127.0.0.1:{call.port}"):
        dial(call)
