"""Each mistake in a configuration is answered with its path, what was found and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError

REQUIRED = {"id": "orders-to-dr", "source": "mongodb://db1.example", "sink": "mongodb://dr1.example"}


def problems_of(fields: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        Configuration.from_yaml(fields if isinstance(fields, str) else yaml.safe_dump(fields))
    return list(caught.value.problems)


def problem_with(**fields: Any) -> str:
    (problem,) = problems_of(REQUIRED | fields)
    return problem


EVENT_TYPES = (
    "insert, update, replace, delete, create, createIndexes, dropIndexes, modify, drop, rename, dropDatabase, "
    "shardCollection, reshardCollection, refineCollectionShardKey"
)
FIELD_OPERATORS = "$eq, $gt, $gte, $lt, $lte, $ne, $in, $nin, $exists, $regex, $options, $not"
A_TIME = "a time such as 2026-11-21T00:00:00Z or a cluster time such as 1795224774.9"


def ignoring(**rule: Any) -> dict[str, Any]:
    return {"filter": {"events": [{"tables": ["shop.audit"]} | rule]}}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"sinc": "x"},
        ("sinc: unknown key; allowed are id, source, sink, start, target, filter, routes, columns, ddl, capture, images, on_occupied, on_divergence, on_rejected, dead_letter, shard_target, users, "
        "copy_limit, apply_limit, delay, sync_points, verify, pipeline, managed_by (did you mean 'sink'?)"),
    ),
    ({"zzz": {"a": 1}}, "zzz: unknown key; allowed are id, source, sink, start, target, filter, routes, columns, ddl, capture, images, on_occupied, on_divergence, on_rejected, dead_letter, shard_target, users, copy_limit, apply_limit, delay, sync_points, verify, pipeline, managed_by"),
    (
        {"id": "orders to dr"},
        "id: found 'orders to dr'; write up to 64 letters, digits and single - _ . between them, for example orders-to-dr",
    ),
    ({"delay": "1 hour"}, "delay: found '1 hour'; write null or a time such as 30s, 15m, 1h, 2d"),
    ({"delay": 3600}, "delay: found 3600; write null or a time such as 30s, 15m, 1h, 2d"),
    ({"delay": "0s"}, "delay: found '0s'; allowed are 1s to 30d"),
    ({"delay": "31d"}, "delay: found '31d'; allowed are 1s to 30d"),
    ({"id": 5}, "id: found 5; write up to 64 letters, digits and single - _ . between them, for example orders-to-dr"),
    ({"id": None}, "id: found null; write up to 64 letters, digits and single - _ . between them, for example orders-to-dr"),
    ({"source": "db1.example:27017"}, "source: found a text without ://; write a URI that begins with mongodb://, mongodb+srv://"),
    ({"source": "blackhole://"}, "source: found the scheme 'blackhole'; allowed are mongodb://, mongodb+srv://"),
    ({"source": ["mongodb://a:secret@b"]}, "source: found no text; write a URI such as mongodb://host:27017"),
    ({"source": "mongodb://reader:hunter2"}, "source: found a host whose port is no number; write for example mongodb://host:27017"),
    ({"source": "mongodb:///shop"}, "source: found no host; write for example mongodb://host:27017"),
    (
        {"sink": "mongo://dr1.example"},
        "sink: found the scheme 'mongo'; allowed are mongodb://, mongodb+srv://, blackhole://, file://, s3://, kafka:// (did you mean 'mongodb'?)",
    ),
    (
        {"sink": "mongodb://u:p@ss@dr1.example"},
        "sink: found @, / or : unescaped in user or password; percent-encode it, @ is %40, / is %2F",
    ),
    ({"sink": "mongodb://${vault:x}@h"}, "sink: found ${ of an unknown kind; write ${env:NAME} or ${file:/path}"),
    (
        {"sink": "mongodb://other.example,DB1.example:27017/?tls=true"},
        "sink: found db1.example:27017, which is the source's too; Sluice would replicate its own writes, name another target",
    ),
    ({"start": "inital"}, f"start: found 'inital'; write initial, now, {A_TIME} (did you mean 'initial'?)"),
    ({"start": "yesterday"}, f"start: found 'yesterday'; write initial, now, {A_TIME}"),
    ({"start": []}, f"start: found []; write initial, now, {A_TIME}, in quotes"),
    ({"start": "2026-11-21T00:00:00"}, "start: found '2026-11-21T00:00:00', which has no time zone; write 2026-11-21T00:00:00Z for UTC"),
    ({"start": "9999999999.1"}, "start: cluster time 9999999999.1 does not fit two unsigned 32-bit numbers"),
    ({"target": "now"}, f"target: found 'now'; write {A_TIME}"),
    (
        {"start": "200.1", "target": "100.1"},
        "target: found 100.1, which is not after start 200.1; write a later time",
    ),
    ({"filter": None}, "filter: found null; write a mapping; allowed are the keys tables, events"),
    ({"filter": {"table": ["a.b"]}}, "filter.table: unknown key; allowed are tables, events (did you mean 'tables'?)"),
    ({"filter": {"tables": "shop.*"}}, "filter.tables: found 'shop.*'; write a list of table patterns, for example [shop.*]"),
    ({"filter": {"tables": []}}, "filter.tables: found []; write at least one table pattern, for example shop.*"),
    ({"filter": {"tables": ["a.*", "a.*"]}}, "filter.tables: found 'a.*' twice; write each table pattern once"),
    (
        {"filter": {"tables": ["a.*", "shop"]}},
        "filter.tables[1]: found 'shop'; write database.collection with wildcards * and ?, for example shop.* or !shop.tmp_*",
    ),
    (
        {"filter": {"tables": [None]}},
        "filter.tables[0]: found null; write database.collection with wildcards * and ?, for example shop.* or !shop.tmp_*",
    ),
    ({"filter": {"tables": ["a/b.c"]}}, "filter.tables[0]: found 'a/b.c'; a database name holds no space and none of / \\ . \" $"),
    (
        {"filter": {"tables": ["a.b\\c"]}},
        "filter.tables[0]: found 'a.b\\\\c'; a backslash is allowed only before * ? ! or another backslash",
    ),
    (
        {"filter": {"tables": ["admin.*"]}},
        "filter.tables[0]: found 'admin.*'; the server's own databases and system.* are never replicated, leave it out",
    ),
    (
        {"filter": {"tables": ["!a.b", "a.*"]}},
        "filter.tables: found '!a.b' first; there is nothing to exclude it from, put for example \"*.*\" before it",
    ),
    (
        {"filter": {"tables": ["a.*", "!*.*"]}},
        'filter.tables: found "!*.*" last; it excludes every table, put the wanted tables after it',
    ),
    ({"filter": {"events": {}}}, "filter.events: found {}; write a list of mappings; allowed are the keys tables, ignore, ignore_where"),
    (
        {"filter": {"events": ["shop.*"]}},
        "filter.events[0]: found 'shop.*'; write a mapping; allowed are the keys tables, ignore, ignore_where",
    ),
    (
        {"filter": {"events": [{"ignore": ["delete"]}]}},
        "filter.events[0].tables: missing; write a list of table patterns, for example [shop.audit]",
    ),
    (ignoring(), "filter.events[0]: found a rule that ignores nothing; write ignore, ignore_where or both"),
    (
        ignoring(ignore=["dropIndex"]),
        f"filter.events[0].ignore[0]: found 'dropIndex'; allowed are {EVENT_TYPES} (did you mean 'dropIndexes'?)",
    ),
    (ignoring(ignore=["delete", "delete"]), "filter.events[0].ignore: found 'delete' twice; write each event type once"),
    (
        ignoring(ignore=["dropDatabase"]),
        "filter.events[0]: found dropDatabase ignored for single tables; it concerns whole databases, for example shop.*",
    ),
    (
        ignoring(ignore=["update"], ignore_where={"update_old": {"a": 1}}),
        "filter.events[0]: found update under ignore and update_old under ignore_where; leave one of them out",
    ),
    (
        ignoring(ignore_where={"update": {"a": 1}}),
        ("filter.events[0].ignore_where.update: unknown key; allowed are insert, update_old, update_new, replace, delete "
        "(did you mean 'update_old'?)"),
    ),
    (
        ignoring(ignore_where={"insert": "debug"}),
        "filter.events[0].ignore_where.insert: found 'debug'; write a match expression such as {level: debug}",
    ),
    (
        ignoring(ignore_where={"insert": {}}),
        "filter.events[0].ignore_where.insert: found {}, which matches every event; list the event type under ignore instead",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"b": {"$gtt": 5}}}}),
        ("filter.events[0].ignore_where.insert: at 'a.b.$gtt': found an operator inside a value; "
        "write the path with dots, for example {customer.age: {$gt: 5}}"),
    ),
    (
        ignoring(ignore_where={"insert": {"level": {"$gtt": 5}}}),
        (f"filter.events[0].ignore_where.insert: at 'level.$gtt': found unknown operator '$gtt'; allowed are {FIELD_OPERATORS} "
        "(did you mean '$gt'?)"),
    ),
    (
        ignoring(ignore_where={"delete": {"$nand": [{"a": 1}]}}),
        ("filter.events[0].ignore_where.delete: at '$nand': found unknown operator '$nand'; allowed are $and, $or, $nor "
        "(did you mean '$and'?)"),
    ),
    (
        ignoring(ignore_where={"insert": {"$or": []}}),
        "filter.events[0].ignore_where.insert: at '$or': found []; $or takes a list of one or more match expressions",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"$in": 5}}}),
        "filter.events[0].ignore_where.insert: at 'a.$in': found 5; $in takes a list of one or more values",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"$exists": 1}}}),
        "filter.events[0].ignore_where.insert: at 'a.$exists': found 1; $exists takes true or false",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"$regex": "("}}}),
        "filter.events[0].ignore_where.insert: at 'a.$regex': found '(', which has missing ): (?:; repeat at most 1000 times, also inside another repetition",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"$regex": "x", "$options": "g"}}}),
        "filter.events[0].ignore_where.insert: at 'a.$regex': found $options 'g'; allowed are the letters i, m, s",
    ),
    (
        ignoring(ignore_where={"insert": {"a": {"$not": 5}}}),
        "filter.events[0].ignore_where.insert: at 'a.$not': found 5; $not takes operators, for example {$not: {$gt: 5}}",
    ),
    (
        ignoring(ignore_where={"insert": {"a..b": 5}}),
        "filter.events[0].ignore_where.insert: at 'a..b': found an empty field name; write a dotted path such as customer.name",
    ),
    (
        ignoring(ignore_where={"insert": {"n": 2**64}}),
        "filter.events[0].ignore_where.insert: found a value that BSON does not have: MongoDB can only handle up to 8-byte ints",
    ),
    (
        ignoring(ignore_where={"insert": {"_id": {"$oid": "xyz"}}}),
        ("filter.events[0].ignore_where.insert: at '_id': found {'$oid': 'xyz'}, which is no Extended JSON: "
        "'xyz' is not a valid ObjectId, it must be a 12-byte input or a 24-character hex string"),
    ),
    (
        ignoring(ignore_where={"insert": {"at": {"$lt": {"$date": "tomorrow"}}}}),
        ("filter.events[0].ignore_where.insert: at 'at.$lt': found {'$date': 'tomorrow'}, which is no Extended JSON: "
        "time data 'tomorrow' does not match format '%Y-%m-%dT%H:%M:%S'"),
    ),
    ({"routes": {"shop.*": "dr.*"}}, 'routes: found a mapping; write a list of {from: "shop.*", to: "shop_dr.*"}'),
    ({"routes": [{"to": "dr.*"}]}, "routes[0].from: missing; write a table pattern, for example shop.*"),
    (
        {"routes": [{"from": "!shop.*", "to": "dr.*"}]},
        "routes[0].from: found '!shop.*'; a route only renames tables, exclude tables under filter.tables",
    ),
    (
        {"routes": [{"from": "shop.orders", "to": "dr.*"}]},
        ("routes[0]: found collection '*' made from 'orders'; write the collection as it is in from, without wildcards, "
        "or with one * where from has one *"),
    ),
    (
        {"routes": [{"from": "shop.*", "to": "dr.*"}, {"from": "shop.orders", "to": "dr.all"}]},
        "routes: found 'shop.orders' in rule 1, whose tables rule 0 already matches; remove one, or put the narrower rule first",
    ),
    (
        {"routes": [{"from": "shop.*", "to": "dr.*"}, {"from": "crm.*", "to": "dr.*"}]},
        "routes: found 'dr.*' in the rules 0 and 1; two rules would give two tables one name, give one of them another target",
    ),
    (
        {"filter": {"tables": ["shop.*"]}, "routes": [{"from": "crm.people", "to": "dr.people"}]},
        "routes: found a route for crm.people, which filter.tables leaves out; add the table there or remove the route",
    ),
    ({"ddl": {"unsupported": "ignore"}}, "ddl.unsupported: found 'ignore'; allowed are fail, skip"),
    ({"ddl": {"async_indexes": "yes"}}, "ddl.async_indexes: found 'yes'; allowed are true, false"),
    ({"ddl": {"async_indexes": 1}}, "ddl.async_indexes: found 1; allowed are true, false"),
    ({"ddl": {"ttl": "defered"}}, "ddl.ttl: found 'defered'; allowed are deferred, copied (did you mean 'deferred'?)"),
    ({"images": "all"}, "images: found 'all'; allowed are none, available, required"),
    ({"images": "required"}, "images: found required, and a mongodb has no messages; leave it out, or name a sink of messages"),
    ({"capture": "oplg"}, "capture: found 'oplg'; allowed are auto, oplog, change_stream (did you mean 'oplog'?)"),
    ({"on_divergence": "repiar"}, "on_divergence: found 'repiar'; allowed are repair, stop_table, fail (did you mean 'repair'?)"),
    ({"dead_letter": "rejected"}, "dead_letter: found 'rejected'; write null or a table name of the target, for example sluice.rejected"),
    ({"dead_letter": "local.rejected"}, "dead_letter: found 'local.rejected'; write null or a table name of the target, for example sluice.rejected"),
    (
        {"sink": "blackhole://", "dead_letter": "sluice.rejected"},
        "dead_letter: found a table name; a blackhole:// sink keeps nothing and refuses nothing, leave dead_letter out",
    ),
    ({"sink": "blackhole://", "users": True}, "users: a blackhole has no users; leave it out, or name a MongoDB as sink"),
    ({"sink": "blackhole://", "shard_target": True}, "shard_target: a blackhole has no shards; leave it out, or name a MongoDB as sink"),
    ({"pipeline": {"parallelism": "4"}}, "pipeline.parallelism: found '4'; write a whole number from 1 to 1024"),
    ({"pipeline": {"parallelism": 0}}, "pipeline.parallelism: found 0; write a whole number from 1 to 1024"),
    ({"pipeline": {"parallelism": 2.5}}, "pipeline.parallelism: found 2.5; write a whole number from 1 to 1024"),
    ({"pipeline": {"parallelism": True}}, "pipeline.parallelism: found true; write a whole number from 1 to 1024"),
    ({"pipeline": {"order_by": "ids"}}, "pipeline.order_by: found 'ids'; allowed are auto, id, table (did you mean 'id'?)"),
    ({"pipeline": {"max_lag_batch": "64MIB"}}, "pipeline.max_lag_batch: found '64MIB'; write a size such as 64MiB (did you mean 'MiB'?)"),
    ({"pipeline": {"max_lag_batch": "-1MiB"}}, "pipeline.max_lag_batch: found '-1MiB'; write a size such as 64MiB"),
    ({"pipeline": {"max_lag_batch": "1kB"}}, "pipeline.max_lag_batch: found '1kB'; allowed are 1MiB to 16GiB"),
    ({"pipeline": {"pre_images": ["a.b", "a.b"]}}, "pipeline.pre_images: found 'a.b' twice; write each table pattern once"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "problem"), MISTAKES, ids=[problem.partition(";")[0] for _, problem in MISTAKES])
def test_a_mistake_shows_its_path_what_was_found_and_what_is_allowed(fields: dict[str, Any], problem: str) -> None:
    assert problem_with(**fields) == problem


@pytest.mark.parametrize("fields", [5, None, ["id"]])
def test_a_value_that_is_no_mapping_is_answered_with_the_allowed_keys(fields: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^the configuration: found .*; write a mapping; allowed are the keys id, source"
    ):
        Configuration.parse(fields)


def test_all_mistakes_are_reported_at_once() -> None:
    fields = {
        "source": "mongodb://a",
        "start": "soon",
        "pipeline": {"parallelism": 0, "ordr_by": "id"},
        "ddl": {"ttl": 1},
    }

    assert [problem.partition(":")[0] for problem in problems_of(fields)] == [
        "id",
        "sink",
        "start",
        "ddl.ttl",
        "pipeline.parallelism",
        "pipeline.ordr_by",
    ]
