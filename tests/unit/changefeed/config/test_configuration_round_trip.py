"""A configuration that is written down and read again is the same."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.config.configuration import Configuration, Ttl

PATTERNS = st.builds(
    "{}.{}".format,
    st.sampled_from(["shop", "crm", "*", "t?", r"a\*"]),
    st.sampled_from(["*", "orders", "tmp_*", "a.b", "商品", r"\!x"]),
)
TABLES = st.lists(PATTERNS, min_size=1, max_size=3, unique=True)
TIMES = st.builds(lambda seconds, increment: f"{seconds}.{increment}", st.integers(0, 2**31), st.integers(0, 2**32 - 1))
LITERALS = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    st.sampled_from(
        [{"$date": "2026-01-01T00:00:00Z"}, {"$oid": "0" * 24}, {"$numberDecimal": "1.5"}, {"$numberLong": "5"}]
    ),
)
EXPRESSIONS = st.dictionaries(
    st.sampled_from(["a", "a.b", "_id"]),
    st.one_of(
        LITERALS,
        st.builds(lambda value: {"$gt": value}, LITERALS),
        st.builds(lambda values: {"$nin": values}, st.lists(LITERALS, min_size=1, max_size=2)),
        st.just({"$regex": "^x", "$options": "i"}),
    ),
    min_size=1,
)
EVENT_RULES = st.one_of(
    st.fixed_dictionaries({"tables": TABLES, "ignore": st.sampled_from([["insert"], ["update", "drop"]])}),
    st.fixed_dictionaries(
        {
            "tables": TABLES,
            "ignore_where": st.dictionaries(st.sampled_from(["insert", "update_old"]), EXPRESSIONS, min_size=1),
        }
    ),
)
CONFIGURATIONS = st.fixed_dictionaries(
    {
        "id": st.from_regex(r"[A-Za-z0-9]{1,8}(-[a-z]{1,4})?", fullmatch=True),
        "source": st.sampled_from(["mongodb://db1.example", "mongodb+srv://u:${env:P}@c.example/?w=1"]),
        "sink": st.sampled_from(["mongodb://u:p@dr.example", "blackhole://"]),
    },
    optional={
        "start": st.sampled_from(["initial", "now"]) | TIMES,
        "target": st.none() | st.just("4000000000.0"),
        "filter": st.fixed_dictionaries({}, optional={"tables": TABLES, "events": st.lists(EVENT_RULES, max_size=2)}),
        "routes": st.sampled_from([[], [{"from": "t*.*", "to": "x*.*"}]]),
        "ddl": st.fixed_dictionaries(
            {}, optional={"async_indexes": st.booleans(), "ttl": st.sampled_from(list(Ttl)).map(str)}
        ),
        "capture": st.sampled_from(["auto", "oplog", "change_stream"]),
        "on_divergence": st.sampled_from(["repair", "fail"]),
        "pipeline": st.fixed_dictionaries(
            {},
            optional={
                "parallelism": st.integers(1, 1024),
                "max_lag_batch": st.integers(1 << 20, 16 << 30) | st.integers(1, 16).map(lambda n: f"{n}GiB"),
                "pre_images": TABLES,
            },
        ),
    },
)


@given(CONFIGURATIONS)
@settings(max_examples=60)
def test_a_configuration_round_trips_through_yaml_and_json(fields: dict[str, Any]) -> None:
    read = Configuration.parse(fields)

    assert Configuration.parse(read.model_dump(mode="json", exclude_none=True)) == read
    assert Configuration.model_validate_json(read.model_dump_json()) == read
    assert Configuration.from_yaml(yaml.safe_dump(fields, sort_keys=False)) == read
