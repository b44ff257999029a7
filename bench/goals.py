"""`GOALS`: what the figures are to reach, by name. A figure without a goal is shown, no more."""

from __future__ import annotations

from bench.result import Goal

GOALS = {
    "catch_up_insert": Goal(ratio=5.5),
    "catch_up_mixed": Goal(ratio=4.0),
    "catch_up_alternating": Goal(ratio=15),
    "catch_up_unique": Goal(ratio=6),
    "catch_up_unique_beside_plain": Goal(ratio=0.6),
    "catch_up_capped": Goal(ratio=0.5),
    "peak_memory": Goal(most=650),
    "files_insert": Goal(ratio=2),
    "files_mixed": Goal(ratio=2),
    "kafka_insert": Goal(ratio=2),
    "kafka_mixed": Goal(ratio=2),
    "divided_window_cpu": Goal(ratio=0.77),
    "copy_first_document": Goal(most=2),
    "copy_20_tables": Goal(ratio=1.2),
    "copy_small_tables": Goal(ratio=0.8),
    "lag_median": Goal(most=45),
    "lag_p99": Goal(most=95),
    "cpu_200_writes": Goal(most=60),
    "cpu_at_rest": Goal(most=18),
    "first_row_after_start": Goal(most=7.2),
    "first_row_after_idle": Goal(most=300),
    "memory_following": Goal(most=450),
    "memory_10000_tables": Goal(ratio=0.77),
    "ddl_of_one_name": Goal(ratio=1),
    "recopy_at_rest": Goal(ratio=1),
    "sharded_2_files_cpu": Goal(ratio=0.8),
    "sync_points_whole": Goal(ratio=0.95),
    "sync_points_held": Goal(most=3),
    "verify_at_a_point": Goal(ratio=1),
    "continuous_verification": Goal(most=16),
    "spark_stream": Goal(ratio=5),
    "spark_read": Goal(ratio=0.5),
    "sluice_help": Goal(most=200),
    "changefeed_query": Goal(most=350),
}
