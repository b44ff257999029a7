"""`KafkaReader`: the messages of a changefeed in the order of its source, each once, from nothing but its topics.

    look    the newest watermark W, then everything up to where the topics end after it: all before W is there (W3). If that is much, no more than up to
            a watermark that all partitions have in-band
    read    what is between two watermarks, sorted by pos. A repeat has the pos and the key of its first copy, and is dropped
    later   what comes again from before a watermark that was shown is dropped

So what partitions do not say, the order of messages of different keys, is said by `pos`; a DDL stands behind every row before it, of all
partitions of its tables, and a transaction is whole. DDL is read from the topic of all DDL; in-band it is for consumers that do not
sort.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush, merge
from itertools import chain

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.errors import ConfigurationError, NotFoundError
from changefeed.position import Position
from changefeed.table import TableId, TableName
from sink.messages.files.store import Store
from sink.messages.kafka.kafka_clients import KafkaClients
from sink.messages.kafka.topic_reader import HeldRow, HeldRows, Partition, ReadMessage, TopicReader
from sink.messages.kafka.topics import Topics
from sink.messages.message_format import LARGE, OP, POS, SCHEMA, TABLE, KeyedMessage, claim_name
from sink.messages.row_message import COPIED, OPS
from sluice_client.feed_history import FeedHistory, just_before
from sluice_client.feed_reader import NOTHING, MessageGap, Rank, Round, Shown, StoredMessage, Watermark
from sluice_client.pos import pos_of

_ROWS = frozenset({COPIED.encode(), *(op.encode() for op in OPS.values())})
_COPIED, _MARK = COPIED.encode(), b"w"
_CLAIM = b"claim_check"
_TOLD_EACH = 100_000


class KafkaReader:
    def __init__(
        self,
        clients: Callable[[], KafkaClients],
        options: KafkaSinkOptions,
        *,
        claims: Store | None = None,
        whole: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`claims`: where the values of large messages are. `whole`: a message of which only the key was sent is an error. `progress` is told now
        and then how many messages were read.
        """
        self.mark = NOTHING
        """Everything before it was shown."""
        self._topics = Topics(options)
        self._options = options
        self._claims = claims
        self._whole = whole
        self._progress = progress
        self._identity: tuple[str, str] | None = None
        self._history = FeedHistory(_missing)
        self._ids: dict[str, str] = {}
        """Those of the topics of rows, as the changefeed says."""
        self._held = HeldRows()
        self._said = TopicReader(clients, options)
        self._rows = TopicReader(clients, options, gapless=True)
        self._starts: dict[Partition, int] = {}
        self._newest = NOTHING
        self._goal = NOTHING
        """The newest watermark of the last look."""
        self._collected = NOTHING
        """What is before it and was not shown is held."""
        self._marks: dict[Partition, Watermark] = {}
        """Of each partition the newest watermark that it has in-band, of those that were read."""
        self._count = 0

    def identity(self) -> tuple[str, str]:
        """The changefeed, and which life of it. First of all calls."""
        topic = self._topics.feed
        if self._said.partitions(topic) is not None:
            self._said.add({topic: 1, self._topics.ddl: 1, self._topics.watermark: 1})
            self._listen()
        if self._identity is None:
            raise NotFoundError(
                f"{self._options}: expected topic {topic} of a changefeed, found none; no changefeed has written here yet"
            )
        return self._identity

    @property
    def bookmark(self) -> str:
        first = self._held.first_offsets()
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for (topic, number), following in self._rows.next.items():
            found[topic][number] = first.get(f"{topic}/{number}", following)
        return json.dumps({topic: [self._rows.ids.get(topic, ""), offsets] for topic, offsets in found.items()})

    @property
    def more(self) -> bool:
        return not self.mark.covers(self._goal)

    def look(self) -> Round | None:
        self._listen()
        if not self.more:
            self._goal = self.mark.joined(self._newest)
        if not self.more:
            return None
        self._collected = self._collect(self.mark)
        return Round(self.mark, self._collected)

    def read(self, round: Round) -> Iterator[Shown]:
        if not self._collected.covers(round.now):
            self._goal = self._goal.joined(round.now)
            self._collected = self._collect(round.now)
        yield from merge(self._history.shown(round), self._rows_of(round))
        self.mark = round.now
        self._history.passed(self.mark)
        behind = {str(table): _limits(at) for table, at in round.now.behind.items()}
        self._held.forget(*_limits(round.now.at), behind)

    def skim(self, mark: Watermark, bookmark: str) -> Iterator[Shown]:
        self.mark = mark
        for topic, (id, partitions) in json.loads(bookmark or "{}").items():
            self._starts |= {(topic, int(number)): offset for number, offset in partitions.items()}
            self._rows.ids |= {topic: id} if id else {}
        self._listen()
        yield from self._history.skimmed(Round(NOTHING, mark))

    def close(self) -> None:
        self._said.close()
        self._rows.close()
        self._held.close()

    def _listen(self) -> None:
        """To everything that is not a row, up to now."""
        for message in chain.from_iterable(self._said.to_ends()):
            topic, value = message.partition[0], message.value or b""
            if topic == self._topics.feed:
                self._identity = self._identity or _identity(value)
                if self._identity == _identity(value):
                    self._ids |= json.loads(value).get("topics", {})
                    if start := json.loads(value).get("start"):
                        self._history.begin(start)
            elif topic == self._topics.ddl:
                headers = message.headers
                self._history.take(StoredMessage(headers[POS].decode(), headers.get(TABLE, b"").decode(), value))
            else:
                self._newest = self._newest.joined(_watermark(value))

    def _collect(self, wanted: Watermark) -> Watermark:
        """Reads until all before the result is held: the goal, or if that is much, something between. It is at least `wanted`, and beyond the mark.

        Tables that begin meanwhile have topics, too: their rows may have come before the last row of others.
        """
        while True:
            self._add_topics()
            for batch in self._rows.to_ends():
                self._held.add(self._to_hold(batch))
                if self._held.many:
                    reached = self.mark.joined(self._reached())
                    if reached.covers(wanted) and reached.at > self.mark.at:
                        return reached
            known = len(self._history.names)
            self._listen()
            if len(self._history.names) == known:
                return self._goal

    def _reached(self) -> Watermark:
        """What all partitions say together. One that was read to its end has all that is before the goal."""
        reached = self._goal
        for partition, offset in self._rows.next.items():
            if partition not in self._rows.ends or offset < self._rows.ends[partition]:
                reached = reached.met(self._marks.get(partition, NOTHING))
        return reached

    def _add_topics(self) -> None:
        known = {topic for topic, _ in self._rows.next}
        for topic in dict.fromkeys(map(self._topics.of, map(TableName.parse, self._history.names))):
            if topic not in known:
                partitions = self._rows.partitions(topic)
                if partitions is None:
                    raise MessageGap(f"{self._options}: expected topic {topic} of a table, found none; it was deleted")
                if topic in self._ids:
                    self._rows.ids.setdefault(topic, self._ids[topic])
                self._rows.add({topic: partitions}, self._starts)

    def _to_hold(self, messages: Iterable[ReadMessage]) -> Iterator[HeldRow]:
        limits = {str(table): _limits(at) for table, at in self.mark.behind.items()}
        everywhere = _limits(self.mark.at)
        for message in messages:
            self._count += 1
            if self._count % _TOLD_EACH == 0:
                self._progress(self._count)
            headers = message.headers
            op = headers.get(OP, b"")
            if op == _MARK:
                known = self._marks.get(message.partition, NOTHING)
                self._marks[message.partition] = known.joined(_watermark(message.value or b""))
            if op not in _ROWS:
                continue
            pos, table, copied = headers[POS].decode(), headers[TABLE].decode(), op == _COPIED
            before, copied_before = limits.get(table, everywhere)
            if pos < (copied_before if copied else before):
                continue
            topic, number = message.partition
            place, version = f"{topic}/{number}", headers[SCHEMA].decode() if copied else ""
            yield HeldRow(pos, table, message.key, copied, version, place, message.offset, self._value(message))

    def _value(self, message: ReadMessage) -> bytes:
        """The whole message, if a file has it."""
        value, headers = message.value or b"", message.headers
        how = headers.get(LARGE)
        about = f"{self._options}: topic {message.partition[0]}: the row {message.key.decode(errors='replace')} at {headers[POS].decode()}"
        if how == _CLAIM:
            name = claim_name(KeyedMessage(message.key, value, list(headers.items())))
            if self._claims is None:
                raise ConfigurationError(
                    [f"{about} is in a file; write large=claim_check and claims=.. as in the sink of the changefeed"]
                )
            content = self._claims.read(name)
            if content is None or zlib.crc32(content) != json.loads(value)["crc32"]:
                raise MessageGap(
                    f"{about}: expected its message in {self._claims}/{name}, found none, or another one: restore it"
                )
            return content
        if how is not None and self._whole:
            raise MessageGap(
                f"{about} was too large for its topic, and only its key was sent (large=key_only): a target cannot be made from it; "
                f"create the changefeed with large=claim_check"
            )
        return value

    def _rows_of(self, round: Round) -> Iterator[Shown]:
        """In the order of their places: few copied documents stand later than their pos."""
        moved: list[Shown] = []
        for number, row in enumerate(self._held.before(pos_of(round.now.at))):
            table = TableId(row.table)
            at = self._history.place_of_copy(row.table, row.pos) if row.copied else row.pos
            while moved and moved[0].at <= row.pos:
                yield heappop(moved)
            if row.copied and self._history.ends_copy(row.table, row.version, at):
                continue
            if pos_of(round.before.of(table)) <= at < pos_of(round.now.of(table)):
                shown = Shown(at, Rank.ROW, row.table, number, StoredMessage(row.pos, row.table, row.raw))
                if at == row.pos:
                    yield shown
                else:
                    heappush(moved, shown)
        while moved:
            yield heappop(moved)


def _limits(mark: Position) -> tuple[str, str]:
    """What is dropped: changes before the first, copied documents before the second. A copy that begins there may have been read just before."""
    pos = pos_of(mark)
    return pos, just_before(pos)


def _watermark(value: bytes) -> Watermark:
    return Watermark.of_fields(StoredMessage("", "", value).fields)


def _identity(value: bytes) -> tuple[str, str]:
    fields = json.loads(value)
    return fields["feed"], fields["life"]


def _missing(begins: StoredMessage) -> str:
    return (
        f"table {begins.table}: expected its schema at {begins.pos} in the topic of DDL, since it begins again there; found none: some messages of that "
        f"topic were removed"
    )
