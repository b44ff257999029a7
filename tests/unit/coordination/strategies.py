"""Positions and ids of tables, of any form."""

from __future__ import annotations

from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId

positions = st.builds(
    Position,
    st.builds(ClusterTime, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.text("0123456789ABCDEF", max_size=8),
)
tables = st.one_of(
    st.uuids().map(lambda uuid: TableId(uuid.hex)),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda coll: TableId(f"view:db.{coll}")),
)
