"""`sluice server`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.failure import ExitCode, Failure
from credentials.logging import LogFormat
from node.configuration import NodeConfiguration

_ETCD, _ADMIN, _SPARK = "etcd", "Admin API", "Spark"
_FLAGS = {
    "etcd.endpoints": "etcd",
    "admin.token_file": "token-file",
    "admin.allow_unauthenticated": "allow-unauthenticated",
}
"""The flags that are not named like their options."""


def server(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file of the node; flags override it.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster. Default: default.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the node. Default: the host's.")] = None,
    roles: Annotated[str | None, typer.Option(help="owner, processor or both. Default: owner,processor.")] = None,
    http_address: Annotated[
        str | None, typer.Option(help="For /metrics, /healthz and /readyz. Default: 127.0.0.1:8301.")
    ] = None,
    secret_directories: Annotated[
        str | None,
        typer.Option(help="Where ${file:...} of changefeeds may point, comma-separated. Default: /run/secrets."),
    ] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds for handing tables over when stopped. Default: 60.")
    ] = None,
    session_ttl: Annotated[
        float | None, typer.Option(help="Seconds until the session of a dead node expires. Default: 10.")
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Default: console.")] = None,
    etcd: Annotated[
        str | None,
        typer.Option(help="Endpoints, host:port,host:port. Default: 127.0.0.1:2379.", rich_help_panel=_ETCD),
    ] = None,
    etcd_user: Annotated[str | None, typer.Option(rich_help_panel=_ETCD, help="User of etcd.")] = None,
    etcd_password_file: Annotated[
        str | None, typer.Option(rich_help_panel=_ETCD, help="File with its password.")
    ] = None,
    etcd_ca: Annotated[
        str | None, typer.Option(rich_help_panel=_ETCD, help="CA of etcd's certificate; enables TLS.")
    ] = None,
    etcd_cert: Annotated[str | None, typer.Option(rich_help_panel=_ETCD, help="Client certificate.")] = None,
    etcd_key: Annotated[str | None, typer.Option(rich_help_panel=_ETCD, help="Its key.")] = None,
    admin_address: Annotated[str | None, typer.Option(help="Default: 127.0.0.1:8300.", rich_help_panel=_ADMIN)] = None,
    admin_advertise: Annotated[
        str | None, typer.Option(help="Address for other machines. Default: the address.", rich_help_panel=_ADMIN)
    ] = None,
    admin_cert: Annotated[str | None, typer.Option(help="Certificate; enables TLS.", rich_help_panel=_ADMIN)] = None,
    admin_key: Annotated[str | None, typer.Option(help="Its key.", rich_help_panel=_ADMIN)] = None,
    admin_client_ca: Annotated[
        str | None, typer.Option(help="Require client certificates of this CA.", rich_help_panel=_ADMIN)
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help="File of lines viewer:TOKEN and operator:TOKEN.", rich_help_panel=_ADMIN)
    ] = None,
    allow_unauthenticated: Annotated[
        bool | None,
        typer.Option(
            "--allow-unauthenticated", help="Serve other machines without authentication.", rich_help_panel=_ADMIN
        ),
    ] = None,
    spark_master: Annotated[str | None, typer.Option(help="Default: local[*].", rich_help_panel=_SPARK)] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option(help="key=value; may be repeated.", rich_help_panel=_SPARK)
    ] = None,
) -> None:
    """Run a node: the admin API and, depending on its roles, a candidate for owner and a processor.

    SIGTERM or Ctrl-C hands its tables over and ends the node; a second one ends it at once.
    """
    with reported():
        given = {
            "cluster": cluster,
            "name": name,
            "roles": _split(roles),
            "http_address": http_address,
            "secret_directories": _split(secret_directories),
            "grace": grace,
            "session_ttl": session_ttl,
            "log_format": log_format.value if log_format else None,
            "etcd.endpoints": _split(etcd),
            "etcd.user": etcd_user,
            "etcd.password_file": etcd_password_file,
            "etcd.ca": etcd_ca,
            "etcd.cert": etcd_cert,
            "etcd.key": etcd_key,
            "admin.address": admin_address,
            "admin.advertise": admin_advertise,
            "admin.cert": admin_cert,
            "admin.key": admin_key,
            "admin.client_ca": admin_client_ca,
            "admin.token_file": token_file,
            "admin.allow_unauthenticated": allow_unauthenticated,
            "spark.master": spark_master,
            "spark.conf": dict(_pair(text) for text in spark_conf) if spark_conf else None,
        }
        flags = _nested(given)
        try:
            configuration = NodeConfiguration.of(_text(config), flags)
        except ConfigurationError as error:
            raise ConfigurationError([_by_flag(problem, given) for problem in error.problems]) from None
        from cli.serving import serve  # noqa: PLC0415 - it loads Spark, which takes time and only this command needs

        serve(configuration)


def _by_flag(problem: str, given: Mapping[str, Any]) -> str:
    """A mistake in a flag is told with the flag's name. Flags have commas where the file has lists."""
    path, separator, rest = problem.partition(": ")
    option = re.sub(r"\[\d+\]$", "", path)
    if not separator or given.get(option) is None:
        return problem
    name = _FLAGS.get(option, option.replace(".", "-")).replace("_", "-")
    return f"--{name}: {rest}"


def _text(config: Path | None) -> str | None:
    if config is None:
        return None
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(ExitCode.USAGE, f"{config}: cannot be read: {error}") from None


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise Failure(ExitCode.USAGE, f"--spark-conf: found {text!r}; write key=value")
    return key, value


def _nested(flags: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flags.items():
        if value is None:
            continue
        *parents, key = path.split(".", 1) if path != "spark.conf" else ("spark", "conf")
        below = nested
        for parent in parents:
            below = below.setdefault(parent, {})
        below[key] = value
    return nested
