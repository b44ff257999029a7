"""`read`: the text of a configuration file as plain values, without the surprising rules of YAML.

A repeated key is an error. `yes`, `no` and dates are texts. `start` and `target` are always texts: `1795224774.10` is the tenth
increment of its second, not the number 1795224774.1.

A configuration that is too large is refused at once, before anything is compared in it. etcd takes requests of 1.5 MiB, and the patterns and
routes of a configuration stand in two records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from changefeed.errors import ConfigurationError

LARGEST = 512 << 10
"""In bytes, also as YAML, with its blanks and comments."""
MOST_ENTRIES = 10_000
"""Of all its lists together."""

_REMEDY = (
    f"at most {LARGEST >> 10} KiB and {MOST_ENTRIES:,} entries of lists can be stored, all table patterns, routes and rules together; name tables by "
    "patterns with wildcards, or divide them among several changefeeds"
)

_HINT = "indent with spaces, and put a text that begins with * or ! in quotes"
_TIMES = ("start", "target")
_TEXT = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ConfigurationError([f"{_place(key)}: found a key that is no text; write key: value"])
            if key.value in seen:
                raise ConfigurationError([f"{_place(key)}: found the key {key.value!r} twice; write each key once"])
            seen.add(key.value)
        return {str(key): value for key, value in super().construct_mapping(node, deep=deep).items()}


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))


def read(text: str) -> Mapping[str, Any]:
    _check_length(text)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, MappingNode):
            raise ConfigurationError(["the configuration: found no mapping; write keys and values, beginning with id:"])
        for key, value in node.value:
            if isinstance(value, ScalarNode) and key.value in _TIMES and value.tag != _NULL:
                value.tag = _TEXT
        fields: Mapping[str, Any] = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ConfigurationError([_syntax(error)]) from None
    except RecursionError:
        raise ConfigurationError(["the configuration: found brackets or mappings nested too deeply"]) from None
    return fields


def _check_length(text: str) -> None:
    """Before YAML is read, which takes seconds for each megabyte."""
    if (size := len(text.encode(errors="surrogatepass"))) > LARGEST:
        raise ConfigurationError([f"the configuration: found {size:,} bytes; {_REMEDY}"])


def check_size(fields: Mapping[str, Any]) -> None:
    """Of what is written: a value to which YAML refers several times counts each time."""
    size = entries = 0
    waiting: list[object] = [fields]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            entries += len(value)
            waiting += value
        size += len(value.encode(errors="surrogatepass")) if isinstance(value, str) else 1
        if size > LARGEST or entries > MOST_ENTRIES:
            found = (
                f"more than {LARGEST >> 10} KiB" if size > LARGEST else f"more than {MOST_ENTRIES:,} entries of lists"
            )
            raise ConfigurationError([f"the configuration: found {found}; {_REMEDY}"])


def _place(node: Node) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


def _syntax(error: yaml.YAMLError) -> str:
    """Without the line itself, which may contain a password."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: found text that is no YAML: {error.problem}; {_HINT}"
    return f"the configuration: found text that is no YAML: {str(error).partition(chr(10))[0]}; {_HINT}"
