"""`tag`, `text`: the only way from a value to HTML. Pure.

Everything that is not `Markup` is escaped, in content and in attributes. Characters that a reader cannot see, or that turn the text around
them, are shown as escapes: a table may be called anything.

    tag("a", "<b>", href="/x?y=1&z=2", class_="n")    <a href="/x?y=1&amp;z=2" class="n">&lt;b&gt;</a>
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import quote, urlencode

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_EMPTY = frozenset({"input", "link", "meta", "rect", "line", "circle", "path", "polyline"})
_LINKS = frozenset({"href", "action", "formaction", "src"})


class Markup(str):
    """HTML. It is made here only."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[str] | None"


def text(value: str) -> Markup:
    return Markup(html.escape(_UNSEEN.sub(_shown, value)))


def tag(name: str, /, *content: Content, **attributes: str | bool | None) -> Markup:
    """An attribute that is None or False is left out; `class_` is `class`, and `aria_label` is `aria-label`."""
    written = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    return Markup("".join(map(_inner, content)))


def name(value: str) -> Markup:
    """A name that a user chose. Letters of one that runs from right to left do not turn its neighbours around."""
    return tag("bdi", value)


def link(*path: str, **query: str) -> str:
    """An address of this server."""
    asked = urlencode({key: value for key, value in query.items() if value}, errors="surrogatepass")
    return "/" + "/".join(quote(part, safe="", errors="surrogatepass") for part in path) + (asked and f"?{asked}")


def _inner(content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return text(content)
    return join(*content)


def _attribute(key: str, value: str | bool) -> str:
    if value is True:
        return f" {key}"
    if key in _LINKS and not (str(value).startswith(("/", "#")) and not str(value).startswith("//")):
        raise ValueError(f"{key}: found {value!r}; write an address of this server, from its root")
    return f' {key}="{text(str(value))}"'


def _shown(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
