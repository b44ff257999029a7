"""What a writer does when the broker, the topic or the permit fails: nothing is lost, nothing is out of order, and the error says what to do."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType, ResourcePatternType
from confluent_kafka.admin._resource import ResourceType

from changefeed.documents.document import Document
from changefeed.errors import DdlRefused, FencedError, RowRejected, SinkRefused, SinkUnavailable, TargetOccupied
from changefeed.event import DdlType
from changefeed.table import TableName
from devstack.kafka.broker import KafkaBroker
from devstack.kafka.security import KafkaSecurity
from sink.ddl import CreateTable
from sink.messages.kafka.kafka_clients import kafka_clients
from sink.messages.kafka.topic_admin import TopicAdmin
from sink.row import RowChange
from tests.certificates import Certificates
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.kafka.seen import seen
from tests.component.sink.vocabulary import NOTHING_SEEN, A, B, described, insert, recorded
from tests.e2e.node.topic_judge import judge_topics
from tests.until import PATIENCE_SECONDS, until

Brokers = Callable[..., KafkaBroker]
_ROWS = 3000


@pytest.fixture
def mortal_kafka(kafka: KafkaBroker) -> Iterator[KafkaBroker]:
    """The session's broker. The test may freeze it, or kill and start it: it loses nothing."""
    yield kafka
    if kafka.running:
        kafka.resume()
    else:
        kafka.start()


def _window(times: int = 6) -> list[RowChange]:
    """Each key again and again, at rising times."""
    keys = _ROWS // times
    return [insert(A, 1000 + number, number % keys, size=200) for number in range(_ROWS)]


def _judged(feed: KafkaFeed) -> list[str]:
    return judge_topics(seen(feed.broker, feed.topics.of(TableName("shop", "a"))), [], [])[:-1]  # there is no mark


@pytest.mark.soak
def test_a_broker_that_dies_in_a_window_and_comes_back_delays_it(own_kafka: Brokers) -> None:
    broker = own_kafka()
    feed = KafkaFeed(broker)
    feed.claim()
    asked: list[int] = []

    def permit() -> float:
        asked.append(len(asked))
        if asked[-1] == 3:
            broker.kill()
            broker.start()
        return 60.0

    feed.permit = permit
    feed.open()
    run = feed.writer.begin(lambda _: False)
    changes = _window()
    for start in range(0, _ROWS, 100):
        run.prepare(changes[start : start + 100], replay=False)()
    run.settle()
    assert len(asked) > 4
    rows = feed.rows()
    assert len(rows) == _ROWS
    assert _judged(feed) == []


def test_a_window_that_is_given_up_and_repeated_keeps_the_order(mortal_kafka: KafkaBroker) -> None:
    """What was under way arrives late, or not at all."""
    feed = KafkaFeed(mortal_kafka)
    feed.claim()
    feed.window(_window()[:10])
    changes = _window()
    for stop in (700, 1500, 2900):
        run = feed.writer.begin(lambda _: False)
        feed.writer._sender._patience = 0.5
        run.prepare(changes[: stop // 2], replay=False)()
        mortal_kafka.pause()
        run.prepare(changes[stop // 2 : stop], replay=False)()
        with pytest.raises(SinkUnavailable, match=r"expected acknowledgements of \d+ messages, found none within"):
            run.settle()
        mortal_kafka.resume()
    feed.writer._sender._patience = 20
    feed.window(changes)
    assert {row.headers["sluice.pos"] for row in feed.rows()} == {
        f"{change.time:016X}.40000000000000" for change in changes
    }
    assert _judged(feed) == []


def test_what_is_known_of_the_leaders_is_forgotten_when_it_is_out_of_date(mortal_kafka: KafkaBroker) -> None:
    """A broker that died leads in a new epoch. The client itself would ask for that after five minutes."""
    feed = KafkaFeed(mortal_kafka)
    feed.claim()
    feed.window(_window()[:50])
    topics = [feed.topics.of(TableName("shop", "a"))]
    before = feed.shown(topics)
    mortal_kafka.kill()
    mortal_kafka.start()
    assert feed.shown(topics) == before


@pytest.mark.soak
def test_without_a_permit_nothing_more_is_sent(own_kafka: Brokers) -> None:
    broker = own_kafka()
    feed = KafkaFeed(broker)
    feed.claim()
    fenced: list[bool] = []

    def permit() -> float:
        if fenced:
            raise FencedError("the node is gone")
        return 60.0

    feed.permit = permit
    feed.open()
    changes = _window()
    feed.window(changes[:1])
    run = feed.writer.begin(lambda _: False)
    broker.pause()
    run.prepare(changes, replay=False)()
    fenced.append(True)
    with pytest.raises(FencedError):
        run.settle()
    broker.resume()
    sent = {row.headers["sluice.pos"] for row in feed.rows()}
    fenced.clear()
    feed.window(changes[:1])
    assert {row.headers["sluice.pos"] for row in feed.rows()} <= sent | {f"{changes[0].time:016X}.40000000000000"}
    assert _judged(feed) == []


def test_a_deleted_topic_is_an_error_until_it_is_there_again(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 1, 1)])
    topic = feed.topics.of(TableName("shop", "a"))
    admin = AdminClient(kafka.client)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(PATIENCE_SECONDS)
    until(lambda: topic not in admin.list_topics(timeout=PATIENCE_SECONDS).topics)
    feed.writer._facts.forget()
    with pytest.raises(
        SinkRefused, match=r"expected a topic .*, found none; it was deleted, with all messages in it: create it with 6"
    ):
        feed.window([insert(A, 2, 1)])
    feed.claim()  # and the marks find it again
    feed.window([insert(A, 2, 1)])
    assert [row.json["after"]["at"] for row in feed.rows()] == [{"$numberInt": "2"}]


@pytest.mark.soak
def test_a_topic_that_is_deleted_in_a_window_fails_it(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 1, 1)])
    topic = feed.topics.of(TableName("shop", "a"))
    admin = AdminClient(kafka.client)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(PATIENCE_SECONDS)
    with pytest.raises((SinkRefused, SinkUnavailable), match=topic):
        feed.window([insert(A, 2, 1)])


def test_partitions_that_somebody_adds_stop_the_writer_before_a_key_moves(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 1, key) for key in range(50)])
    topic = feed.topics.of(TableName("shop", "a"))
    admin = AdminClient(kafka.client)
    admin.create_partitions([NewPartitions(topic, 12)])[topic].result(PATIENCE_SECONDS)
    feed.window([insert(A, 2, key) for key in range(50)])  # not noticed yet
    assert _judged(feed) == []
    feed.writer._facts.forget()
    with pytest.raises(SinkRefused, match="expected 6 partitions, found 12"):
        feed.window([insert(A, 3, 1)])


@pytest.mark.parametrize("how", ["fail", "key_only", "claim_check"])
def test_a_row_that_is_larger_than_its_topic_takes(kafka: KafkaBroker, tmp_path: Path, how: str) -> None:
    claims = f"&claims={quote(f'file://{tmp_path}/claims', safe='')}" if how == "claim_check" else ""
    feed = KafkaFeed(kafka, f"large={how}{claims}&topic.max.message.bytes=700000")
    feed.claim()
    window = [insert(A, 1, 1), insert(A, 2, 2, size=600_000), insert(A, 3, 3, size=800_000), insert(A, 4, 4)]
    if how == "fail":
        with pytest.raises(
            RowRejected, match=r"bytes as a message, expected at most 700000 \(max.message.bytes\)"
        ) as raised:
            feed.window(window)
        assert raised.value.table == A
        return
    feed.window(window)
    feed.window(window)
    large = [row for row in feed.rows() if "sluice.large" in row.headers]
    assert {row.headers["sluice.large"] for row in large} == {how}
    assert {row.json["bytes"] > 800_000 for row in large} == {True}
    files = sorted(tmp_path.rglob("claim/*/*"))
    assert len(files) == (how == "claim_check")
    if files:
        assert {row.json["claim"] for row in large} == {str(files[0])}
        assert b"x" * 800_000 in files[0].read_bytes()


def test_topics_of_another_changefeed_are_used_if_it_is_said(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    with pytest.raises(TargetOccupied, match="are those of"):
        feed.claim(life="c/2")
    feed.open("existing=append")
    feed.claim(life="c/2")
    assert list(feed.sink.obstacles([TableName("shop", "a")])) == []


def test_topics_that_would_lose_rows_by_compaction_are_named(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "format=debezium")
    topic = NewTopic(f"{feed.prefix}.shop.a", 6, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient(kafka.client)
    for answer in admin.create_topics([topic]).values():
        answer.result(PATIENCE_SECONDS)
    feed.shown([topic.topic])
    names = [TableName("shop", name) for name in ("a", "b$1", "b_1")]
    (problem,) = feed.sink.obstacles(names)
    assert "set it to delete" in problem
    feed.open("format=debezium&topic.cleanup.policy=compact")
    (problem,) = feed.sink.obstacles(names)
    assert f"rows of several tables would go to {feed.prefix}.shop.b_1" in problem


def test_a_table_that_comes_to_a_compacted_topic_of_another_one_waits(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "format=debezium&topic.cleanup.policy=compact")
    feed.claim(described(A, "b$1"))
    create = CreateTable(name=TableName("shop", "b_1"), options=Document.of({}))
    with pytest.raises(DdlRefused, match=r"has those of shop.b\$1"):
        feed.sink.ddl().apply(create, NOTHING_SEEN, recorded(DdlType.CREATE, 200, B))


def test_topics_that_brokers_take_for_one_are_named_and_stop_one_table(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "partitions=2")
    one, other = TableName("app", "my_users"), TableName("app_my", "users")
    collides = (
        r"collides with existing topic: \S+\.app\.my_users"  # a prefix may be redacted for a secret of another test
    )
    first, second = map(feed.topics.of, (one, other))
    (problem,) = feed.sink.obstacles([one, other])
    assert f"{first}, {second}" in problem
    assert "topics=DB.COLL:NAME" in problem
    feed.claim((replace(described(A)[0], name=one), one))
    feed.open("partitions=2&existing=append")
    problems = list(feed.sink.obstacles([other, TableName("app", "my.users")]))
    assert any(re.search(collides, problem) for problem in problems), problems
    assert all("topics=DB.COLL:NAME" in problem for problem in problems), problems
    create = CreateTable(name=other, options=Document.of({}))
    with pytest.raises(DdlRefused, match=f"{collides}.*delete it and resume the table"):
        feed.sink.ddl().apply(create, NOTHING_SEEN, recorded(DdlType.CREATE, 200, B))


def test_topics_of_rows_are_not_compacted_unless_it_is_said(own_kafka: Brokers) -> None:
    """Whatever the brokers' default is."""
    kafka = own_kafka(properties={"log.cleanup.policy": "compact"})
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 1, 1)])
    assert len(feed.rows()) == 1


def _allow(broker: KafkaBroker, pattern: ResourcePatternType, topic: str, *operations: AclOperation) -> None:
    admin = AdminClient(broker.client)
    asked = [
        AclBinding(
            *(ResourceType.TOPIC, topic, pattern, "User:writer", "*"),
            *(operation, AclPermissionType.ALLOW),
        )
        for operation in operations
    ]
    for answer in admin.create_acls(asked).values():
        answer.result(PATIENCE_SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize("format", ["sluice", "debezium"])
def test_rights_and_passwords_that_are_missing_are_named(own_kafka: Brokers, tmp_path: Path, format: str) -> None:
    """Those that the handbook lists are enough."""
    certificate = Certificates(tmp_path).tls("broker")
    security = KafkaSecurity(["writer"], certificate)
    broker = own_kafka(security=security)
    tls = f"format={format}&sasl=PLAIN&tls=true&tlsCAFile={certificate.ca}&tlsCertificateKeyFile={certificate.certificate_and_key}"
    feed = KafkaFeed(broker, tls, user=f"writer:{security.passwords['writer']}@")
    table = TableName("shop", "a")
    problems = list(feed.sink.obstacles([table]))
    assert problems
    assert all("AUTHORIZATION_FAILED" in problem for problem in problems), problems
    assert all("grant the rights that docs/how-to/kafka.md lists" in problem for problem in problems)
    with pytest.raises(SinkRefused, match="grant the rights"):
        feed.claim()
    of_all = AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE
    _allow(
        *(broker, ResourcePatternType.PREFIXED, f"{feed.prefix}."),
        *(*of_all, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ),
    )
    if format == "debezium":
        assert any("AUTHORIZATION_FAILED" in problem for problem in feed.sink.obstacles([table]))
        _allow(broker, ResourcePatternType.LITERAL, feed.prefix, *of_all)
    assert list(feed.sink.obstacles([table])) == []
    feed.claim()
    feed.window([insert(A, 1, 1)])
    assert len(feed.rows()) == 1
    feed.open(tls, user="writer:wrong@")
    for _ in range(3):
        with pytest.raises(SinkRefused, match="uthentication") as raised:
            feed.window([insert(A, 2, 1)])
        assert "wrong" not in str(raised.value)
        (problem,) = feed.sink.obstacles([table])
        assert "check user, password and sasl" in problem
    assert described()[0].id == A


def _write_on(feed: KafkaFeed) -> None:
    for _ in range(20):
        feed.window(_window())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB. Mounting it needs a right that not every machine gives."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True, timeout=30)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=30)


@pytest.mark.soak
def test_a_broker_whose_disk_is_full_loses_nothing(small: Path) -> None:
    """It ends. When it has space again and is started, the window is written whole."""
    with KafkaBroker(small / "kafka", small.parent / "log") as broker:
        feed = KafkaFeed(broker)
        feed.claim()
        feed.window(_window()[:600])
        filler = small / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(64 << 20))
        feed.writer._sender._patience = 8
        with pytest.raises(SinkUnavailable):
            _write_on(feed)
        filler.unlink()
        broker.kill()
        broker.start()
        feed.window(_window())
        assert {row.headers["sluice.pos"] for row in feed.rows()} == {
            f"{change.time:016X}.40000000000000" for change in _window()
        }
        assert _judged(feed) == []


def test_a_client_that_is_forgotten_still_answers_those_who_asked_it(kafka: KafkaBroker) -> None:
    """The client is shared by all threads, and one that is destroyed never answers."""
    feed = KafkaFeed(kafka)
    feed.claim()
    clients = kafka_clients(feed.options)
    admin, topic = TopicAdmin(lambda: clients, feed.options), feed.topics.of(TableName("shop", "a"))
    answers: list[int] = []

    def ask() -> None:
        answers.extend(
            len(admin.existing([topic])) + len(admin.limits([topic])) + len(admin.ends({topic: 6})) for _ in range(30)
        )

    asking = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(thread.is_alive() for thread in asking):
        clients.forget_admin()
        assert time.monotonic() < deadline, f"{len(answers)} of 120 questions were answered"
        time.sleep(0.001)
    assert answers == [1 + 1 + 6] * 120


def test_topics_without_a_leader_have_no_end_and_are_not_called_empty(kafka: KafkaBroker) -> None:
    """So is a topic just made, until its brokers show who leads it."""
    feed = KafkaFeed(kafka)
    feed.claim()
    admin = TopicAdmin(lambda: kafka_clients(feed.options), feed.options)
    assert admin.ends({f"{feed.prefix}.none": 6}) == {}
    assert len(admin.ends({f"{feed.prefix}.none": 6, feed.topics.of(TableName("shop", "a")): 6})) == 6
    with pytest.raises(SinkUnavailable, match=r"none: partition 0 has no leader, or was deleted"):
        admin.occupied({f"{feed.prefix}.none": 6})
