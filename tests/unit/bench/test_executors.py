from __future__ import annotations

from bench.executors import expected


def test_more_executors_help_until_the_servers_have_no_more_cores() -> None:
    rates = [expected(executors, server_cores=16).rate for executors in (1, 2, 4, 16, 64)]
    assert rates == sorted(rates)
    assert [expected(executors, server_cores=16).limit for executors in (1, 4, 16)] == ["one task", "tasks", "target"]
    assert expected(64, server_cores=16).rate < 1.2 * expected(32, server_cores=16).rate
