"""Connection strings that would let a secondary be read are refused, with what to do."""

from __future__ import annotations

import pytest

from changefeed.configuration import Configuration
from changefeed.errors import ConfigurationError
from changefeed.read_preference import refused_read_preference

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
    assert refused_read_preference(uri) is None


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
    assert refused_read_preference(f"mongodb://db1/?{options}") == f"found {found}; {_REMEDY}"


def test_an_option_that_is_not_known_yet_is_judged_when_it_is() -> None:
    assert refused_read_preference("mongodb://db1/?readPreference=${env:PREFERENCE}") is None
    assert refused_read_preference("mongodb://${file:/run/a?b}/?readPreference=nearest&x=${env:A}") is not None


@pytest.mark.parametrize("which", ["source", "sink"])
def test_a_configuration_with_one_is_refused_without_its_credentials(which: str) -> None:
    fields = {"id": "f", "source": "mongodb://db1", "sink": "mongodb://dr1"}
    fields[which] = "mongodb://me:secret@host/?readPreference=secondaryPreferred"
    with pytest.raises(ConfigurationError) as caught:
        Configuration.parse(fields)
    assert caught.value.problems == (f"{which}: found readPreference=secondaryPreferred; {_REMEDY}",)


def test_a_stored_configuration_with_one_can_still_be_read() -> None:
    fields = {"id": "f", "source": "mongodb://db1/?readPreference=nearest", "sink": "mongodb://dr1"}
    assert Configuration.model_validate(fields).source.reference.endswith("nearest")
