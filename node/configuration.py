"""`NodeConfiguration`: the configuration of a node, from a file, from flags, or from both; flags override the file.

    cluster: default
    name: n1                               # default: the host's name
    roles: [owner, processor]
    etcd:
      endpoints: [etcd-1:2379, etcd-2:2379]
      user: sluice
      password_file: /run/secrets/etcd
      ca: /etc/sluice/etcd-ca.pem          # TLS
      cert: /etc/sluice/etcd.pem           # only if etcd requires a client certificate
      key: /etc/sluice/etcd.key
    session_ttl: 10                        # seconds
    admin:
      address: 127.0.0.1:8300
      advertise: n1.example:8300           # the address for others; default: the address
      cert: /etc/sluice/admin.pem          # TLS
      key: /etc/sluice/admin.key
      client_ca: /etc/sluice/clients.pem   # mTLS
      token_file: /etc/sluice/tokens       # lines name:role:token
      allow_unauthenticated: false
    http_address: 127.0.0.1:8301           # /metrics, /healthz, /readyz
    console_address: 127.0.0.1:8302        # the web console, with TLS and tokens as the admin API; default: none
    spark:                                 # docs/how-to/spark.md
      master: "local[2]"                   # or spark://host:port, k8s://https://host:port, yarn
      conf: {spark.driver.memory: 2g}
    secret_directories: [/run/secrets]     # where ${file:...} of changefeeds may point
    grace: 60                              # seconds for handing tables over when stopped
    log_format: json                       # or console

All mistakes are reported at once, each with its path.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from changefeed.config import yaml_text
from changefeed.config.options import Flag, Mistake, Options, did_you_mean, each_once, merged, problems, shown
from changefeed.errors import ConfigurationError
from changefeed.records.node import Role
from credentials.logging import LogFormat
from credentials.secret_files import DEFAULT_DIRECTORIES, SecretFiles

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@\s]+):(?P<port>\d{1,5})")
_SPARK_MASTER = re.compile(r"local(\[[^\]]+\])?|spark://[^\s/:]+:\d+(,[^\s/:]+:\d+)*|k8s://\S+|yarn")
_SECRET_SETTING = re.compile(r"secret|password|token|access[.]?key|credential|javaoptions", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*")


def loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(value: object) -> str:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65535:
        raise Mistake(f"found {shown(value)}; write host:port, for example 127.0.0.1:8300")
    return match[0]


def _seconds(value: object) -> timedelta:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or not 1 <= number <= 86_400:
        raise Mistake(f"found {shown(value)}; write a number of seconds from 1 to 86400")
    return timedelta(seconds=number)


def _role(value: object) -> Role:
    if not isinstance(value, str) or value not in tuple(Role):
        raise Mistake(f"found {shown(value)}; allowed are {', '.join(Role)}{did_you_mean(value, Role)}")
    return Role(value)


def _spark_master(value: object) -> str:
    match = _SPARK_MASTER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Mistake(f"found {shown(value)}; write local[N], spark://host:port, k8s://https://host:port or yarn")
    return match[0]


def _roles(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    if not roles:
        raise Mistake("found []; write owner, processor or both")
    return each_once(roles, "role")


def _file(path: Path) -> Path:
    if not path.is_file():
        raise Mistake(f"found {str(path)!r}, which is not a file; write the path of one")
    return path


Address: TypeAlias = Annotated[StrictStr, BeforeValidator(_address)]
Seconds: TypeAlias = Annotated[timedelta, BeforeValidator(_seconds)]
File: TypeAlias = Annotated[Path, AfterValidator(_file)]


class EtcdOptions(Options):
    endpoints: Annotated[tuple[Address, ...], Flag("Endpoints, with commas between.", "HOST:PORT", name="etcd")] = (
        Field(("127.0.0.1:2379",), description="write a list of host:port, for example [etcd-1:2379]")
    )
    user: Annotated[StrictStr | None, Flag("User of etcd.", "NAME")] = None
    password_file: Annotated[File | None, Flag("File with the password.", "FILE")] = None
    ca: Annotated[File | None, Flag("CA of etcd's certificate; enables TLS.", "FILE")] = None
    cert: Annotated[File | None, Flag("Client certificate.", "FILE")] = None
    key: Annotated[File | None, Flag("Key of the certificate.", "FILE")] = None

    @field_validator("endpoints")
    @classmethod
    def _some_endpoint(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        if not endpoints:
            raise Mistake("found none; write at least one host:port, for example etcd-1:2379")
        return endpoints

    @model_validator(mode="after")
    def _belong_together(self) -> EtcdOptions:
        if (self.user is None) != (self.password_file is None):
            raise Mistake("found user or password_file without the other; write both or none")
        if (self.cert is None) != (self.key is None) or (self.cert is not None and self.ca is None):
            raise Mistake("found a part of ca, cert and key; write ca alone, or all three")
        return self


class AdminOptions(Options):
    address: Annotated[Address, Flag("Address to serve at.", "HOST:PORT")] = "127.0.0.1:8300"
    advertise: Annotated[Address | None, Flag("Address for other machines.", "HOST:PORT", default="the address")] = None
    cert: Annotated[File | None, Flag("Certificate; enables TLS.", "FILE")] = None
    key: Annotated[File | None, Flag("Key of the certificate.", "FILE")] = None
    client_ca: Annotated[File | None, Flag("Require client certificates of this CA.", "FILE")] = None
    token_file: Annotated[
        File | None, Flag("File of lines NAME:viewer:TOKEN and NAME:operator:TOKEN.", "FILE", name="token-file")
    ] = None
    allow_unauthenticated: Annotated[
        StrictBool, Flag("Serve other machines without authentication.", name="allow-unauthenticated")
    ] = False

    @model_validator(mode="after")
    def _nobody_unknown_gets_in(self) -> AdminOptions:
        if (self.cert is None) != (self.key is None):
            raise Mistake("found cert or key without the other; write both or none")
        if self.client_ca is not None and self.cert is None:
            raise Mistake("found client_ca without cert and key, which TLS needs; write all three")
        authenticated = self.token_file is not None or self.client_ca is not None
        if not authenticated and not self.allow_unauthenticated and not loopback(self.address):
            raise Mistake(
                f"found address {self.address}, which other machines can reach, and no authentication; write token_file or client_ca, "
                "or allow_unauthenticated: true if the network itself is protected"
            )
        return self


class SparkOptions(Options):
    master: Annotated[
        StrictStr, BeforeValidator(_spark_master), Flag("Where Spark runs (docs/how-to/spark.md).", "MASTER")
    ] = "local[*]"
    conf: Annotated[
        dict[StrictStr, StrictStr], Flag("A setting of Spark; may be repeated.", "KEY=VALUE", repeated=True)
    ] = Field({}, description="write a mapping of text to text, numbers in quotes")


class NodeConfiguration(Options):
    cluster: Annotated[StrictStr, Flag("Name of the cluster.", "NAME")] = Field(
        "default", min_length=1, description="write the cluster's name"
    )
    name: Annotated[StrictStr, Flag("Name of the node.", "NAME", default="the host's")] = Field(
        default_factory=socket.gethostname,
        pattern=rf"^{_NAME.pattern}$",
        max_length=64,
        description="write up to 64 letters, digits and single - _ . between them",
    )
    roles: Annotated[
        tuple[Annotated[Role, BeforeValidator(_role)], ...],
        AfterValidator(_roles),
        Field(description="write a list of roles: owner, processor"),
        Flag("owner, processor or both.", "ROLES"),
    ] = (Role.OWNER, Role.PROCESSOR)
    http_address: Annotated[Address, Flag("Address of /metrics, /healthz and /readyz.", "HOST:PORT")] = "127.0.0.1:8301"
    console_address: Annotated[
        Address | None, Flag("Address of the web console.", "HOST:PORT", default="no console")
    ] = None
    secret_directories: Annotated[
        tuple[StrictStr, ...], Flag("Where ${file:...} of changefeeds may point, with commas between.", "DIRECTORY")
    ] = Field(DEFAULT_DIRECTORIES, description="write a list of directories, for example [/run/secrets/sluice]")
    grace: Annotated[Seconds, Flag("Time to hand tables over when the node stops.", "SECONDS")] = timedelta(seconds=60)
    session_ttl: Annotated[Seconds, Flag("Time after which a dead node's session expires.", "SECONDS")] = timedelta(
        seconds=10
    )
    log_format: Annotated[LogFormat, Flag("Form of the log.")] = LogFormat.CONSOLE
    etcd: Annotated[EtcdOptions, Flag(panel="etcd")] = EtcdOptions()
    admin: Annotated[AdminOptions, Flag(panel="Admin API")] = AdminOptions()
    spark: Annotated[SparkOptions, Flag(panel="Spark")] = SparkOptions()

    @field_validator("secret_directories")
    @classmethod
    def _secret_directories_are_absolute(cls, directories: tuple[str, ...]) -> tuple[str, ...]:
        for directory in directories:
            if not directory.startswith("/") or not directory.strip("/"):
                raise Mistake(f"found {shown(directory)}; write the absolute path of a directory, not of the root")
        return directories

    @model_validator(mode="after")
    def _nobody_unknown_sees_the_console(self) -> NodeConfiguration:
        address = self.console_address
        if address is not None and not loopback(address) and (self.admin.token_file is None or self.admin.cert is None):
            raise Mistake(
                f"found console_address {address}, which other machines can reach, without admin.token_file, admin.cert and admin.key; write them, "
                "since browsers sign in with a token over TLS, or an address of this machine"
            )
        return self

    @property
    def secret_files(self) -> SecretFiles:
        """What changefeeds may read on this node."""
        own = (self.etcd.password_file, self.etcd.key, self.admin.key, self.admin.token_file)
        return SecretFiles(
            directories=self.secret_directories, own=tuple(str(path) for path in own if path is not None)
        )

    def shown(self) -> str:
        """As YAML. Of Spark's settings those that may be secrets have no value; all other secrets are in files."""
        fields = self.model_dump(mode="json")
        conf = self.spark.conf
        fields["spark"]["conf"] = {name: "***" if _SECRET_SETTING.search(name) else conf[name] for name in conf}
        return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> NodeConfiguration:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ConfigurationError(problems(error, cls)) from None

    @classmethod
    def of(cls, text: str | None, flags: Mapping[str, Any]) -> NodeConfiguration:
        """`flags` have the structure of the file and override it."""
        return cls.parse(merged(yaml_text.read(text) if text is not None else {}, flags))
