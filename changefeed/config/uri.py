"""`ConnectionUri`: the address of a source or a sink. It never shows credentials.

A configuration need not contain credentials: `${env:NAME}` and `${file:/path}` are references to an environment variable and to
the content of a file. The text with these references is what is stored and returned. Only a node that connects expands them,
from its own environment and files.

    mongodb://${env:SLUICE_USER}:${file:/run/secrets/password}@db1.example,db2.example/?replicaSet=rs0
    mongodb+srv://${file:/run/secrets/source}

Some options of a MongoDB's URI are refused, because they let reads go to members other than the primary (`refused_at_source`,
`refused_at_target`, `not_the_primary`). At a target, writes are checked against the primary's oplog, and what Sluice compares or clears must be
as new as that. At a source read by change streams, the stream, the copy and the repair would read different members. With the oplog capture
all read one member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from changefeed.config.options import Mistake, did_you_mean, parsed
from changefeed.config.sinks.file_options import SESSION_TOKEN, FileSinkOptions
from changefeed.config.sinks.kafka_options import CLAIMS, DEFAULT_PORT, KafkaSinkOptions
from changefeed.errors import ConfigurationError

SCHEMES = ("mongodb", "mongodb+srv", "blackhole", "file", "s3", "kafka")
_WITHOUT_HOSTS = ("blackhole", "file", "s3")

_REFERENCE = re.compile(r"\$\{(?P<kind>env|file):(?P<name>[^{}]+)\}")
_SHAPE = re.compile(
    r"(?P<scheme>[a-z0-9+]+)://(?:(?P<user>[^@/?]*)@)?(?P<hosts>[^@/?]*)(?P<rest>(?:[/?][^@]*)?)", re.DOTALL
)
_PORT_OF = re.compile(r"^(\[[^\]]*\]|[^:]*)(:(\d{1,5}|x+))?$")
_HIDDEN = "***"
SECRET_OPTIONS = frozenset({"tlscertificatekeyfilepassword", "authmechanismproperties", "proxypassword", SESSION_TOKEN})
_PORTS = {"mongodb": ":27017", "kafka": DEFAULT_PORT}
_EXAMPLES = {"kafka": "kafka://b1:9092,b2:9092/shop"}


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionUri:
    """`reference` is what the user wrote; `str` and `repr` show scheme, hosts and database only."""

    reference: str

    @classmethod
    def parse(cls, value: object) -> ConnectionUri:
        """The errors never repeat the value: a mistyped URI may contain a password too."""
        if not isinstance(value, str):
            raise Mistake("found no text; write a URI such as mongodb://host:27017")
        check_scheme(value, SCHEMES)
        scheme, _, rest = value.partition("://")
        if "${" in _masked(rest):
            raise Mistake("found ${ of an unknown kind; write ${env:NAME} or ${file:/path}")
        match = _SHAPE.fullmatch(_masked(value))
        if match is None:
            raise Mistake("found @, / or : unescaped in user or password; percent-encode it, @ is %40, / is %2F")
        if any(_PORT_OF.search(host) is None for host in match["hosts"].split(",")):
            raise Mistake("found a host whose port is no number; write for example mongodb://host:27017")
        if scheme in ("file", "s3"):
            _refuse_stray_references(value)
            FileSinkOptions.parse(value)
        elif not match["hosts"] and scheme not in _WITHOUT_HOSTS:
            raise Mistake(f"found no host; write for example {_EXAMPLES.get(scheme, 'mongodb://host:27017')}")
        if scheme == "kafka":
            _refuse_stray_references(value)
            KafkaSinkOptions.parse(value)
        return cls(value)

    @property
    def scheme(self) -> str:
        return self.reference.partition("://")[0]

    @property
    def is_mongodb(self) -> bool:
        return self.scheme in ("mongodb", "mongodb+srv")

    @property
    def hosts(self) -> frozenset[str]:
        """As written, in lower case and with the port. Two URIs that share a host mean the same deployment. A bucket is none."""
        if self.scheme in _WITHOUT_HOSTS:
            return frozenset()
        hosts = self._part("hosts").lower().split(",")
        default = _PORTS.get(self.scheme, "")
        return frozenset(host if re.search(r":\d+$", host) else host + default for host in hosts if host)

    def expand(
        self, environment: Mapping[str, str], read_file: Callable[[str], str], inserted: Callable[[str], None]
    ) -> str:
        """The URI to connect with. `inserted` is told each value.

        In user and password the values are percent-encoded. Elsewhere they are inserted unchanged, so that a reference may
        also replace everything after the scheme.
        """
        end_of_user = _masked(self.reference).rfind("@")

        def value(match: re.Match[str]) -> str:
            name = match["name"]
            text = _variable(name, environment) if match["kind"] == "env" else read_file(name)
            text = quote_plus(text) if match.start() < end_of_user else text
            inserted(text)
            return text

        return _REFERENCE.sub(value, self.reference)

    def without_credentials(self) -> ConnectionUri:
        """For those who do not connect."""
        return ConnectionUri(str(self))

    def with_references(self, name: str) -> ConnectionUri:
        """With all its options. Each secret that is written out becomes a reference to a variable that begins with `name`."""
        masked = _masked(self.reference)
        end = masked.find("?") if "?" in masked else len(masked)
        base, query = self.reference[:end], self.reference[end + 1 :]
        at, begin = masked[:end].rfind("@"), masked.find("://") + len("://")
        colon = masked.find(":", begin, max(at, begin))
        if colon >= 0 and "${" not in base[colon:at]:
            base = f"{base[: colon + 1]}${{env:{name}_PASSWORD}}{base[at:]}"
        options = "&".join(_with_reference(part, name) for part in query.split("&"))
        return ConnectionUri(f"{base}?{options}" if query else base)

    @property
    def variables(self) -> list[str]:
        """The environment variables that it refers to."""
        found = _REFERENCE.finditer(unquote(self.reference))
        return sorted({match["name"] for match in found if match["kind"] == "env"})

    def _part(self, name: str) -> str:
        match = _SHAPE.fullmatch(_masked(self.reference))
        return self.reference[slice(*match.span(name))] if match else ""

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.reference
        if self.scheme in ("s3", "kafka"):
            return _without_user(self.reference)
        user = f"{_HIDDEN}@" if "@" in _masked(self.reference) else ""
        return f"{self.scheme}://{user}{self._part('hosts')}{self._part('rest').partition('?')[0]}"

    def __repr__(self) -> str:
        return f"ConnectionUri({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return parsed(cls, lambda uri: uri.reference)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise ConfigurationError([f"the environment variable {name} is not set on this node; set it"])
    return environment[name]


def _masked(text: str) -> str:
    """The text with its references blanked out, so that their content is not parsed as part of the URI."""
    return _REFERENCE.sub(lambda match: "x" * len(match[0]), text)


def _refuse_stray_references(uri: str) -> None:
    """Only credentials may be references: processes that do not connect read the other options."""
    base, _, query = uri.partition("?")
    parts = [part for part in query.split("&") if not part.startswith(f"{SESSION_TOKEN}=")]
    for claims in (part for part in parts if part.startswith(f"{CLAIMS}=")):
        _refuse_stray_references(unquote(claims.removeprefix(f"{CLAIMS}=")))
    options = (part for part in parts if not part.startswith(f"{CLAIMS}="))
    if "${" in base[_masked(base).rfind("@") + 1 :] or any("${" in option for option in options):
        raise Mistake(
            f"found ${{ elsewhere than in user, password or {SESSION_TOKEN}; write the name or the option itself"
        )


def _without_user(uri: str) -> str:
    """With its options, for those who do not connect, and without credentials."""
    base, _, query = uri.partition("?")
    scheme, _, rest = base.partition("://")
    after = rest[_masked(rest).rfind("@") + 1 :]
    options = "&".join(_public(part) for part in query.split("&") if not part.startswith(f"{SESSION_TOKEN}="))
    return f"{scheme}://{after}?{options}" if options else f"{scheme}://{after}"


def _with_reference(option: str, name: str) -> str:
    key, _, value = option.partition("=")
    if key == CLAIMS:
        return f"{key}={quote(ConnectionUri(unquote(value)).with_references(f'{name}_CLAIMS').reference, safe='')}"
    return f"{key}=${{env:{name}_{key.upper()}}}" if key.lower() in SECRET_OPTIONS and "${" not in value else option


def _public(option: str) -> str:
    """The URI of claims is an option with credentials of its own."""
    name, _, value = option.partition("=")
    return f"{name}={quote(_without_user(unquote(value)), safe='')}" if name == CLAIMS else option


def check_scheme(uri: str, allowed: Collection[str]) -> None:
    scheme, separator, _ = uri.partition("://")
    named = ", ".join(f"{each}://" for each in allowed)
    if not separator:
        raise Mistake(f"found a text without ://; write a URI that begins with {named}")
    if scheme not in allowed:
        known = f"the scheme {scheme!r}" if re.fullmatch(r"[a-z0-9+]{1,20}", scheme) else "an unknown scheme"
        raise Mistake(f"found {known}; allowed are {named}{did_you_mean(scheme, allowed)}")


_ANY_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_OPTION = re.compile(r"[^&;]+")
_PRIMARY_ONLY = {"readpreference": "primary", "readpreferencetags": None, "maxstalenessseconds": None}


def refused_at_source(uri: str) -> str | None:
    """The problem and the remedy, at a source read by change streams."""
    return _refusal(uri, ", or read the oplog (capture: oplog), which obeys them")


def refused_at_target(uri: str) -> str | None:
    return _refusal(uri, "")


def _refusal(uri: str, otherwise: str) -> str | None:
    """A value that is a reference `${...}` is checked after its expansion."""
    found = ", ".join(_refused(uri))
    if not found:
        return None
    return (
        f"found {found}; Sluice reads the primary only, since a secondary may lack what the primary has: "
        f"leave readPreference, readPreferenceTags and maxStalenessSeconds out{otherwise}"
    )


def _refused(uri: str) -> Iterator[str]:
    options = _ANY_REFERENCE.sub("\0", uri).partition("?")[2]
    for option in _OPTION.findall(options):
        name, _, value = (unquote_plus(part) for part in option.partition("="))
        if name.lower() in _PRIMARY_ONLY and "\0" not in value and value.lower() != _PRIMARY_ONLY[name.lower()]:
            yield f"{name}={value}"


def not_the_primary(hello: Mapping[str, Any]) -> str | None:
    """The problem and the remedy, if the member's reply to `hello` or `isMaster` says that it is not the primary.

    With `directConnection=true` the driver uses one member, also after an election; it has to be the primary.
    """
    if "setName" not in hello or hello.get("isWritablePrimary", hello.get("ismaster")):
        return None
    primary = f"the primary is {hello['primary']}" if "primary" in hello else "there is no primary now"
    return (
        f"its connection string says directConnection=true, so only {hello.get('me')} is used, a member of replica set {hello['setName']!r} "
        f"that is not the primary ({primary}): leave directConnection out, and Sluice finds the primary, also after an election"
    )
