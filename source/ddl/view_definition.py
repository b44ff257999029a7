"""`created_view`, `modified_view`: the options of views, and of the time-series collections that look like views. Pure.

The server stores a time-series collection as `system.buckets.<name>` and a view over it. Servers with that view show only the view in
the stream; the first stage of its pipeline contains the time-series options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BUCKETS = "system.buckets."
_UNPACK = "$_internalUnpackBucket"
_GRANULARITY_OF_SPAN = {3600: "seconds", 86400: "minutes", 2592000: "hours"}


def is_timeseries(definition: Mapping[str, Any]) -> bool:
    return str(definition.get("viewOn", "")).startswith(_BUCKETS)


def created_view(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a `create` of the same view or time-series collection."""
    if not is_timeseries(definition):
        return _without_name(definition)
    unpack = _unpack_stage(definition)
    names = {name: unpack[name] for name in ("timeField", "metaField") if name in unpack}
    return {"timeseries": names | _span(unpack)}


def modified_view(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `collMod` that gives a view this definition. Of a time series only the bucket span can change."""
    if not is_timeseries(definition):
        return _without_name(definition)
    return {"timeseries": _span(_unpack_stage(definition))}


def _without_name(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in definition.items() if name != "_id"}


def _unpack_stage(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    stage: Mapping[str, Any] = next((stage[_UNPACK] for stage in definition["pipeline"] if _UNPACK in stage), {})
    return stage


def _span(unpack: Mapping[str, Any]) -> dict[str, Any]:
    """A span that equals one of the three granularities is given as that granularity: `create` accepts one of the two, not both."""
    span = unpack.get("bucketMaxSpanSeconds")
    if span is None:
        return {}
    if span in _GRANULARITY_OF_SPAN:
        return {"granularity": _GRANULARITY_OF_SPAN[span]}
    return {"bucketMaxSpanSeconds": span, "bucketRoundingSeconds": span}
