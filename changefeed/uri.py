"""`ConnectionUri`: where a source or a sink is, without ever showing how to get in.

Credentials need not stand in a configuration: `${env:NAME}` and `${file:/path}` stand for the value of an environment variable
and for the content of a file. What is stored and shown is the text with these references; only a node that is about to
connect expands them, with its own environment and files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from changefeed.errors import ConfigurationError

SCHEMES = ("mongodb", "mongodb+srv", "blackhole")

_SHAPE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:(?P<user>[^@/]*)@)?(?P<rest>[^@]*)", re.IGNORECASE | re.DOTALL)
_REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionUri:
    """`str` and `repr` hide user, password and options; `reference` is what the user wrote, references unexpanded."""

    reference: str

    def __post_init__(self) -> None:
        scheme = self.scheme
        if scheme not in SCHEMES:
            raise ValueError(f"its scheme is {scheme or 'missing'!r}")

    @property
    def scheme(self) -> str:
        return self.reference.partition("://")[0] if "://" in self.reference else ""

    def expand(self, environment: Mapping[str, str], read_file: Callable[[str], str]) -> str:
        """The URI to connect with: the one place where the credentials themselves are in hand."""

        def value(match: re.Match[str]) -> str:
            kind, name = match.groups()
            if kind == "env" and name not in environment:
                raise ConfigurationError([f"{self}: environment variable {name} is not set on this node"])
            text = environment[name] if kind == "env" else read_file(name).strip()
            return text if match.span() == (0, len(self.reference)) else quote_plus(text)

        return _REFERENCE.sub(value, self.reference)

    def __str__(self) -> str:
        match = _SHAPE.fullmatch(self.reference)
        if match is None:
            return f"{self.scheme}://{_HIDDEN}"
        user = f"{_HIDDEN}@" if match["user"] is not None else ""
        return f"{match['scheme']}://{user}{match['rest'].partition('?')[0]}"

    def __repr__(self) -> str:
        return f"ConnectionUri({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> ConnectionUri:
            return value if isinstance(value, ConnectionUri) else cls(str(value))

        def serialize(value: ConnectionUri) -> str:
            return value.reference

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize)
        )
