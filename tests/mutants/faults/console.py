"""Faults of the room `console`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_PAGES = ("tests/unit/console/test_pages.py",)
_SITE = ("tests/unit/console/test_site.py",)

CONSOLE = (
    Fault(
        "names are not escaped in attributes",
        """    return f' {key}="{text(str(value))}"'""",
        """    return f' {key}="{value}"'""",
        tests=_PAGES,
    ),
    Fault(
        "characters that nobody sees are shown as they are",
        "html.escape(_UNSEEN.sub(_shown, value))",
        "html.escape(value)",
        tests=_PAGES,
    ),
    Fault(
        "a form may lead to another server",
        '.startswith("//")):\n        raise ValueError(',
        '.startswith("//")) and key == "src":\n        raise ValueError(',
        tests=_PAGES,
    ),
    Fault(
        "a form of another site is obeyed",
        "urlsplit(asked.origin).netloc != asked.host):",
        "not urlsplit(asked.origin).netloc.startswith(asked.host)):",
        tests=_SITE,
    ),
    Fault(
        "a form needs no value of our own pages",
        "        if asked.form is not None and not hmac.compare_digest(\n",
        "        if False and not hmac.compare_digest(\n",
        tests=_SITE,
    ),
    Fault(
        "another name leads to a console where nobody signs in",
        "if self._sessions.open and host not in _HERE:",
        "if self._sessions.open and not host:",
        tests=_SITE,
    ),
    Fault(
        "a cookie holds as long as its user says",
        """"session", ends), signature)""",
        """"session", ""), signature)""",
        tests=_SITE,
    ),
    Fault(
        "an open page outlives its login's role",
        "draw() if self._who(asked) == signed else None",
        "draw() if self._who(asked) else None",
        tests=_SITE,
    ),
    Fault(
        "a viewer is shown the forms of an operator",
        "        caller.demand(Access.OPERATOR)\n        if asked.form is None:",
        "        if asked.form is None:",
        tests=_SITE,
    ),
    Fault(
        "a changefeed is ended without its name",
        'asked.form.get("typed", "").strip() != action.feed',
        'not asked.form.get("typed", "").strip()',
        tests=_SITE,
    ),
    Fault(
        "a viewer has buttons",
        'if may_act and "processor" in node.roles',
        'if "processor" in node.roles',
        tests=_PAGES,
    ),
    Fault(
        "the first page reads what the start should have read",
        "                self._tables(id, known)\n                if lag",
        "                if lag",
        tests=("tests/unit/console/test_many.py",),
    ),
)
