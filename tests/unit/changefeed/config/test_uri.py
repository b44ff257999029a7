"""URIs are expanded where they are used and hidden everywhere else. Those that allow reads from a secondary are refused, with a remedy."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from changefeed.capture import ASKED_FOR, Capture
from changefeed.config.configuration import Configuration
from changefeed.config.uri import ConnectionUri, refused_at_source, refused_at_target
from changefeed.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("mongodb://db1.example", "mongodb://db1.example"),
        (
            "mongodb://reader:hunter2@db1.example:27018,db2.example/shop?w=1",
            "mongodb://***@db1.example:27018,db2.example/shop",
        ),
        ("mongodb://db1.example/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2", "mongodb://db1.example/"),
        ("mongodb+srv://${env:USER}:${file:/run/secrets/p@ss}@c.example/", "mongodb+srv://***@c.example/"),
        ("mongodb://[::1]:27017", "mongodb://[::1]:27017"),
        ("blackhole://", "blackhole://"),
    ],
)
def test_what_is_shown_is_scheme_hosts_and_database(written: str, shown: str) -> None:
    uri = ConnectionUri.parse(written)

    assert str(uri) == shown
    assert repr(uri) == f"ConnectionUri({shown!r})"


def test_credentials_come_from_environment_and_file_and_are_escaped() -> None:
    uri = ConnectionUri.parse("mongodb://${env:USER}:${file:/run/secrets/dr}@db1.example/?replicaSet=${env:SET}")
    files = {"/run/secrets/dr": "p@ss/word"}

    inserted: list[str] = []

    expanded = uri.expand({"USER": "reader", "SET": "rs/0"}, files.__getitem__, inserted.append)

    assert expanded == "mongodb://reader:p%40ss%2Fword@db1.example/?replicaSet=rs/0"
    assert inserted == ["reader", "p%40ss%2Fword", "rs/0"]


def test_a_reference_may_stand_for_all_that_follows_the_scheme() -> None:
    uri = ConnectionUri.parse("mongodb://${file:/run/secrets/source}")

    assert uri.expand({}, lambda path: "u:p%40@db1.example/?w=1", print) == "mongodb://u:p%40@db1.example/?w=1"


def test_a_variable_that_is_not_set_is_named_but_nothing_else() -> None:
    uri = ConnectionUri.parse("mongodb://hunter2:${env:PASSWORD}@db1.example")

    with pytest.raises(ConfigurationError) as caught:
        uri.expand({}, str, print)

    assert str(caught.value) == "the environment variable PASSWORD is not set on this node; set it"


def test_without_credentials_it_keeps_scheme_and_hosts() -> None:
    uri = ConnectionUri.parse("mongodb://u:hunter2@db1.example/?appName=hunter3").without_credentials()

    assert (uri.reference, uri.scheme, uri.hosts) == (
        "mongodb://***@db1.example/",
        "mongodb",
        frozenset({"db1.example:27017"}),
    )


def test_a_stored_uri_keeps_its_references() -> None:
    adapter = TypeAdapter(ConnectionUri)
    uri = ConnectionUri.parse("mongodb://u:${env:PASSWORD}@db1.example")

    assert adapter.dump_json(uri) == b'"mongodb://u:${env:PASSWORD}@db1.example"'
    assert adapter.validate_json(adapter.dump_json(uri)) == uri


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("mongodb://a,b", "mongodb://B:27017,c", True),
        ("mongodb://a:27018", "mongodb://a", False),
        ("mongodb://u@a/x", "mongodb://v@a/y", True),
        ("blackhole://", "mongodb://a", False),
        ("mongodb+srv://c.example", "mongodb+srv://c.example/?w=1", True),
    ],
)
def test_uris_of_one_deployment_share_a_host(left: str, right: str, same: bool) -> None:
    assert bool(ConnectionUri.parse(left).hosts & ConnectionUri.parse(right).hosts) is same


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


@pytest.mark.parametrize(
    ("written", "exported", "variables"),
    [
        ("mongodb://db1.example/?replicaSet=rs0&w=1", "mongodb://db1.example/?replicaSet=rs0&w=1", []),
        ("mongodb://u:hunter2@a,b/db?w=1", "mongodb://u:${env:X_PASSWORD}@a,b/db?w=1", ["X_PASSWORD"]),
        ("mongodb://u:${file:/run/p?x}@a/?w=1", "mongodb://u:${file:/run/p?x}@a/?w=1", []),
        ("mongodb://${file:/run/secrets/source}", "mongodb://${file:/run/secrets/source}", []),
        (
            "mongodb://a/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
            "mongodb://a/?authMechanismProperties=${env:X_AUTHMECHANISMPROPERTIES}",
            ["X_AUTHMECHANISMPROPERTIES"],
        ),
        ("s3://AK:hunter2@bkt/p?region=eu", "s3://AK:${env:X_PASSWORD}@bkt/p?region=eu", ["X_PASSWORD"]),
        (
            "kafka://u:hunter2@b1:9092/shop?large=claim_check&claims=s3%3A%2F%2FAK%3Ahunter3%40bkt%2Fp&sasl=PLAIN",
            "kafka://u:${env:X_PASSWORD}@b1:9092/shop?large=claim_check&claims=s3%3A%2F%2FAK%3A%24%7Benv%3AX_CLAIMS_PASSWORD%7D%40bkt%2Fp&sasl=PLAIN",
            ["X_CLAIMS_PASSWORD", "X_PASSWORD"],
        ),
        ("blackhole://", "blackhole://", []),
    ],
)
def test_what_is_exported_has_all_options_and_references_for_secrets(
    written: str, exported: str, variables: list[str]
) -> None:
    found = ConnectionUri.parse(written).with_references("X")
    assert found.reference == exported
    assert found.variables == variables
    assert ConnectionUri.parse(exported) == found
