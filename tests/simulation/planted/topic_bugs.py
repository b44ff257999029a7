"""Bugs of sinks in topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from owner.chores import SinkChores
from sink.messages.kafka.feed_topic import FeedTopic
from sink.messages.kafka.kafka_writer import KafkaRowWriter
from sink.messages.kafka.owner_log import KafkaDdlApplier
from sink.messages.kafka.sender import Sender
from sink.messages.kafka.topics import partitions_of
from sink.row import WriteResult
from sluice_client.feed_history import FeedHistory
from tests.simulation.planted.bug import Bug


def _windows_count_before_they_are_acknowledged() -> AbstractContextManager[Any]:
    return patch.object(KafkaRowWriter, "settle", lambda self: WriteResult())


def _refused_messages_are_passed_over() -> AbstractContextManager[Any]:
    return patch.object(Sender, "_check", lambda self, lent: lent.failed.clear())


def _watermarks_do_not_name_who_is_behind() -> AbstractContextManager[Any]:
    mark = SinkChores.mark
    return patch.object(SinkChores, "mark", lambda self, checkpoint, behind, tables: mark(self, checkpoint, {}, tables))


def _the_partition_of_a_row_changes() -> AbstractContextManager[Any]:
    """As if it were computed from the number of partitions that the topic has at the moment."""

    def moved(keys: Sequence[bytes], partitions: int) -> list[int]:
        return [(place + len(keys)) % partitions for place in partitions_of(keys, partitions)]

    return patch("sink.messages.kafka.kafka_writer.partitions_of", moved)


def _a_copy_that_begins_again_does_not_say_so() -> AbstractContextManager[Any]:
    return patch.object(KafkaDdlApplier, "emptied", lambda self, table, name, at: None)


def _a_ddl_is_told_in_the_topic_of_all_ddl_alone() -> AbstractContextManager[Any]:
    return patch("sink.messages.kafka.owner_log.names_of", lambda ddl: ())


def _documents_of_a_copy_that_has_ended_are_shown() -> AbstractContextManager[Any]:
    return patch.object(FeedHistory, "ends_copy", lambda self, table, version, at: False)


def _a_begin_does_not_say_where() -> AbstractContextManager[Any]:
    say = FeedTopic.say
    return patch.object(FeedTopic, "say", lambda self, **more: None if "start" in more else say(self, **more))


TOPIC_BUGS: Mapping[str, Bug] = {
    "windows count before they are acknowledged": Bug(_windows_count_before_they_are_acknowledged, 10, sink="topics"),
    "refused messages are passed over": Bug(_refused_messages_are_passed_over, 80, sink="topics"),
    "watermarks in topics do not name who is behind": Bug(_watermarks_do_not_name_who_is_behind, 60, sink="topics"),
    "the partition of a row changes": Bug(_the_partition_of_a_row_changes, 10, sink="topics"),
    "a copy into topics begins again and does not say so": Bug(
        _a_copy_that_begins_again_does_not_say_so, 150, sink="topics"
    ),
    "documents of a copy that has ended are shown": Bug(
        _documents_of_a_copy_that_has_ended_are_shown, 80, sink="topics"
    ),
    "a begin does not say where": Bug(_a_begin_does_not_say_where, 80, sink="topics"),
    "a DDL is told in the topic of all DDL alone": Bug(_a_ddl_is_told_in_the_topic_of_all_ddl_alone, 10, sink="topics"),
}
