"""Connection strings that allow reads from a secondary are refused, with a remedy."""

from __future__ import annotations

import pytest

from changefeed.capture import ASKED_FOR, Capture
from changefeed.config.configuration import Configuration
from changefeed.config.read_preference import refused_at_source, refused_at_target
from changefeed.errors import ConfigurationError

_REMEDY = (
    "Sluice reads the primary only, since a secondary may lack what the primary has: "
    "leave readPreference, readPreferenceTags and maxStalenessSeconds out"
)


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://db1",
        "mongodb://db1/?replicaSet=rs&w=1",
        "mongodb://db1/?readPreference=primary",
        "mongodb://db1/?readpreference=Primary&retryReads=true",
        "mongodb://user:readPreference=secondary@db1/",
    ],
)
def test_the_primary_may_be_named(uri: str) -> None:
    assert refused_at_target(uri) is None


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("readPreference=secondary", "readPreference=secondary"),
        ("replicaSet=rs;READPREFERENCE=nearest", "READPREFERENCE=nearest"),
        ("readPreference=%73econdaryPreferred", "readPreference=secondaryPreferred"),
        ("readPreference=primary&readPreference=primaryPreferred", "readPreference=primaryPreferred"),
        ("readPreference=primary&readPreferenceTags=dc:east", "readPreferenceTags=dc:east"),
        ("maxStalenessSeconds=120", "maxStalenessSeconds=120"),
        ("readPreference=nearest&maxStalenessSeconds=-1", "readPreference=nearest, maxStalenessSeconds=-1"),
    ],
)
def test_each_option_that_reads_elsewhere_is_named(options: str, found: str) -> None:
    assert refused_at_target(f"mongodb://db1/?{options}") == f"found {found}; {_REMEDY}"


def test_an_option_from_a_reference_is_checked_after_its_expansion() -> None:
    assert refused_at_target("mongodb://db1/?readPreference=${env:PREFERENCE}") is None
    assert refused_at_target("mongodb://${file:/run/a?b}/?readPreference=nearest&x=${env:A}") is not None


_SECONDARY = "mongodb://me:secret@host/?readPreference=secondaryPreferred"


@pytest.mark.parametrize("capture", ASKED_FOR)
def test_a_target_with_one_is_refused_without_its_credentials(capture: Capture) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Configuration.parse({"id": "f", "source": "mongodb://db1", "sink": _SECONDARY, "capture": capture.value})
    assert caught.value.problems == (f"sink: found readPreference=secondaryPreferred; {_REMEDY}",)


def test_a_source_with_one_is_refused_for_change_streams() -> None:
    fields = {"id": "f", "source": _SECONDARY, "sink": "mongodb://dr1"}
    with pytest.raises(ConfigurationError) as caught:
        Configuration.parse(fields | {"capture": "change_stream"})
    remedy = f"{_REMEDY}, or read the oplog (capture: oplog), which obeys them"
    assert caught.value.problems == (f"source: found readPreference=secondaryPreferred; {remedy}",)
    assert refused_at_source("mongodb://db1") is None


@pytest.mark.parametrize("capture", ["auto", "oplog"])
def test_a_source_that_is_read_by_the_oplog_may_prefer_a_secondary(capture: str) -> None:
    fields = {"id": "f", "source": _SECONDARY, "sink": "mongodb://dr1", "capture": capture}
    assert Configuration.parse(fields).source.reference == _SECONDARY


def test_a_stored_configuration_with_one_can_still_be_read() -> None:
    fields = {"id": "f", "source": "mongodb://db1/?readPreference=nearest", "sink": "mongodb://dr1"}
    assert Configuration.model_validate(fields).source.reference.endswith("nearest")
