from __future__ import annotations

import os
from pathlib import Path

import pytest

from changefeed.config.written_values import RateLimit
from changefeed.errors import CoordinationUnavailable, FencedError
from processor.rate import Amount, TokenBucket
from processor.task.limiter import UNLIMITED, FollowedLimit, Limiter, SharedBucket


class Clock:
    def __init__(self) -> None:
        self.now = 50.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


class Bench:
    """One limiter with a bucket of its own, and what it is told."""

    def __init__(self, present: RateLimit | None, share: float = 1.0) -> None:
        self.clock = Clock()
        self.present = present
        self.fenced = False
        self.asked = 0
        self._bucket = TokenBucket()
        self.limiter = Limiter(
            FollowedLimit(present, self._limit),
            share,
            lambda: self,
            permit=self._permit,
            monotonic=self.clock,
            pause=self.clock.pause,
        )

    def take(self, cost_seconds: float, share: float, told_at: float) -> float:
        told = self._bucket.told(share, told_at, self.clock.now)
        self._bucket, wait = told.take(cost_seconds, self.clock.now)
        return wait

    def _limit(self) -> RateLimit | None:
        self.asked += 1
        return self.present

    def _permit(self) -> None:
        if self.fenced:
            raise FencedError("paused")


def test_a_batch_is_handed_out_at_the_rate_in_small_parts() -> None:
    bench = Bench(RateLimit(bytes=1_000_000), share=0.5)
    documents = [bytes(10_000)] * 100
    parts = list(bench.limiter.parts(documents))
    assert [document for part in parts for document in part] == documents
    assert max(len(part) for part in parts) == 12
    assert bench.clock.now - 50 == pytest.approx(1.75, abs=0.1)


def test_the_permit_is_asked_twice_a_second_while_it_waits() -> None:
    bench = Bench(RateLimit(documents=10))
    bench.limiter.pay(100, 1)
    bench.limiter.pay(1, 1)
    assert bench.clock.now == pytest.approx(59.75)
    assert max(bench.clock.naps) == 0.5


def test_a_task_that_lost_its_permit_ends_its_wait() -> None:
    bench = Bench(RateLimit(documents=10))
    bench.limiter.pay(100, 1)
    bench.fenced = True
    with pytest.raises(FencedError):
        bench.limiter.pay(1, 1)
    assert not bench.clock.naps


def test_a_limit_that_is_lifted_ends_the_wait_within_two_seconds() -> None:
    bench = Bench(RateLimit(documents=10))
    bench.limiter.pay(1_000, 1)
    bench.present = None
    bench.limiter.pay(1, 1)
    assert bench.clock.now == 52
    assert bench.limiter.room() is None


def test_a_changed_limit_is_obeyed_by_a_running_task() -> None:
    bench = Bench(RateLimit(documents=10))
    bench.present = RateLimit(documents=400)
    assert bench.limiter.room() == Amount(documents=10, bytes=2**62)
    bench.clock.now += 2
    assert bench.limiter.room() == Amount(documents=400, bytes=2**62)


def test_the_limit_stays_while_etcd_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(RateLimit(documents=10))

    def unavailable() -> RateLimit | None:
        raise CoordinationUnavailable("no answer")

    monkeypatch.setattr(bench.limiter, "_limit", unavailable)
    bench.clock.now += 5
    assert bench.limiter.room() == Amount(documents=10, bytes=2**62)


def test_without_a_limit_nothing_waits_and_etcd_is_not_asked() -> None:
    bench = Bench(None)
    bench.clock.now += 60
    assert list(bench.limiter.parts([b"a", b"b"])) == [[b"a", b"b"]]
    bench.limiter.pay(10**9, 10**12)
    assert (bench.clock.now, bench.asked, UNLIMITED.room()) == (110, 0, None)


def test_processes_of_one_parent_share_a_bucket(tmp_path: Path) -> None:
    one, other = SharedBucket("f copy", tmp_path), SharedBucket("f copy", tmp_path)
    one.take(2.0, 1.0, 1.0)
    assert 1 < other.take(1.0, 1.0, 1.0) < 2
    assert SharedBucket("f apply", tmp_path).take(1.0, 1.0, 1.0) == 0


def test_older_tasks_follow_the_share_that_the_newest_was_told(tmp_path: Path) -> None:
    older, newer = SharedBucket("f copy", tmp_path), SharedBucket("f copy", tmp_path)
    older.take(0.1, 1.0, 5.0)
    newer.take(1.0, 0.5, 6.0)
    assert 1.5 < older.take(1.0, 1.0, 5.0) < 2.1
    assert 3.5 < older.take(1.0, 1.0, 5.0) < 4.1


def test_a_closed_bucket_keeps_no_file_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len([each for each in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(each)])

    bucket = SharedBucket("f copy", tmp_path)
    assert opened() == 1
    bucket.close()
    bucket.close()
    assert opened() == 0


def test_files_of_parents_that_are_gone_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "999999999-abc"
    old.touch()
    SharedBucket("f copy", tmp_path)
    assert [each.name.partition("-")[0] for each in tmp_path.iterdir()] == [str(os.getppid())]


def test_a_directory_of_others_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    bucket = SharedBucket("f copy", tmp_path)
    bucket.take(2.0, 1.0, 1.0)
    assert bucket.take(1.0, 1.0, 1.0) > 1
    assert not list(tmp_path.iterdir())
