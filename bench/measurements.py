"""`MEASUREMENTS`: the measurements by name. A new one is a function from a stack to results, with its name added here."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures.at_rest import at_rest
from bench.figures.catch_up import catch_up
from bench.figures.clusters.sharded import sharded
from bench.figures.clusters.spark_cluster import spark_cluster
from bench.figures.copies.initial_copy import initial_copy
from bench.figures.copies.large_table import large_table
from bench.figures.ddl_in_sequence import ddl_of_one_name, recopy_at_rest
from bench.figures.dependent_rows import capped, unique
from bench.figures.event_scan import event_scan, extended_json
from bench.figures.files import files
from bench.figures.filtered import one_of_a_hundred
from bench.figures.hot_table import hot_table
from bench.figures.kafka import kafka
from bench.figures.lag import lag, lag_beside_an_index_build
from bench.figures.many_tables.collections import collections
from bench.figures.many_tables.dropped_database import dropped_database
from bench.figures.many_tables.etcd_writes import etcd_writes
from bench.figures.many_tables.tables import tables
from bench.figures.one_node import one_node
from bench.figures.quick_commands import quick_commands
from bench.figures.quiet_table import quiet_table
from bench.figures.slices import slices
from bench.figures.spark_reader import spark_reader
from bench.figures.sync_points import sync_points
from bench.result import Figure
from devstack.stack import DevStack

MEASUREMENTS: dict[str, Callable[[DevStack], list[Figure]]] = {
    "event_scan": event_scan,
    "extended_json": extended_json,
    "catch_up": catch_up,
    "unique": unique,
    "capped": capped,
    "files": files,
    "kafka": kafka,
    "spark_reader": spark_reader,
    "slices": slices,
    "initial_copy": initial_copy,
    "large_table": large_table,
    "lag": lag,
    "lag_beside_an_index_build": lag_beside_an_index_build,
    "hot_table": hot_table,
    "one_of_a_hundred": one_of_a_hundred,
    "quiet_table": quiet_table,
    "at_rest": at_rest,
    "one_node": one_node,
    "quick_commands": quick_commands,
    "ddl_of_one_name": ddl_of_one_name,
    "recopy_at_rest": recopy_at_rest,
    "sync_points": sync_points,
    "etcd_writes": etcd_writes,
    "tables": tables,
    "collections": collections,
    "dropped_database": dropped_database,
    "spark_cluster": spark_cluster,
    "sharded": sharded,
}
