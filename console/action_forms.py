"""`ACTIONS`, `action_page`: what an operator may do, and the form that says what it will do. Pure.

What loses data, or ends a changefeed, is done only after its name was typed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.frame import Visitor, WebPage, hidden
from console.markup import Content, Markup, join, link, name, tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """`choices`: of a list; `flag`: a box to tick. `hint` stands beside it."""

    name: str
    label: str
    hint: str = ""
    flag: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`command`: the same in a shell. `typed`: the changefeed's name must be typed."""

    title: str
    says: str
    command: str
    typed: bool = False
    inputs: Sequence[Input] = ()


_LIMIT = 'such as 20MB/s; "none" for no limit; empty: as it is'
ACTIONS: Mapping[str, Action] = {
    "pause": Action(
        title="Pause",
        says="Nothing more is written until it is resumed. Its place in the oplog has to last as long.",
        command="sluice changefeed pause {feed}",
    ),
    "resume": Action(title="Resume", says="It goes on where it stopped.", command="sluice changefeed resume {feed}"),
    "update": Action(
        title="Update limits and delay",
        says="They change while it runs.",
        command="sluice changefeed update {feed} --copy-limit RATE --apply-limit RATE --delay TIME",
        inputs=(
            Input(name="copy_limit", label="Copy limit", hint=_LIMIT),
            Input(name="apply_limit", label="Apply limit", hint=_LIMIT),
            Input(name="delay", label="Delay", hint='such as 1h; "none" for no delay; empty: as it is'),
        ),
    ),
    "verify": Action(
        title="Verify",
        says="This node compares source and target, table by table. Both are read as fast as they can be. It may run during replication.",
        command="sluice verify {feed}",
    ),
    "finalize": Action(
        title="Finalize",
        says="Cut over: all changes until now are replicated, then the changefeed is finished. Later writes at the source are not replicated: "
        "stop its writers first.",
        command="sluice changefeed finalize {feed}",
        typed=True,
        inputs=(
            Input(name="leave_stopped", label="Finish although tables are stopped; they stay as they are", flag=True),
        ),
    ),
    "table-stop": Action(
        title="Stop table",
        says="From here on nothing of it is written until it is resumed. Other tables go on.",
        command="sluice table stop {feed} {subject}",
    ),
    "table-resume": Action(
        title="Resume table",
        says="It goes on where it stands, and its refused DDLs are tried again.",
        command="sluice table resume {feed} {subject}",
    ),
    "table-recopy": Action(
        title="Copy table anew",
        says="It is copied beside the running changefeed. The target's table stands still until the copy takes its place; what only the target has is "
        "gone then.",
        command="sluice table recopy {feed} {subject}",
    ),
    "table-move": Action(
        title="Move table",
        says="Another node takes it over.",
        command="sluice table move {feed} {subject} NODE",
        inputs=(Input(name="node", label="Node"),),
    ),
    "ddl-skip": Action(
        title="Skip DDL",
        says="The changefeed goes on without it: the target stays as it is there.",
        command="sluice ddl skip {feed} {subject}",
        typed=True,
    ),
    "letters-retry": Action(
        title="Try rejected rows again",
        says="The node that has the table writes them as the source has them now. First remove what the target refused them for.",
        command="sluice table retry-rejected {feed} {subject}",
    ),
    "letters-drop": Action(
        title="Forget rejected rows",
        says="The target keeps these rows as they are, or without them. Later changes are applied as to any row.",
        command="sluice table drop-rejected {feed} {subject}",
        typed=True,
    ),
}
NODE_ACTIONS: Mapping[str, Action] = {
    "drain": Action(
        title="Drain",
        says="The node gives up its tables and takes no new ones, until it is undrained or starts again.",
        command="sluice node drain {subject}",
        inputs=(Input(name="force", label="Although no other node takes tables: they stay where they are", flag=True),),
    ),
    "undrain": Action(title="Undrain", says="The node takes tables again.", command="sluice node undrain {subject}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAction:
    """An action on a changefeed, on something of it, or on a node. `subject` is for the service, `called` for people."""

    verb: str
    feed: str = ""
    subject: str = ""
    called: str = ""
    nodes: Sequence[str] = ()
    """That may take tables."""

    @property
    def action(self) -> Action:
        return (ACTIONS if self.feed else NODE_ACTIONS)[self.verb]

    @property
    def place(self) -> tuple[str, ...]:
        return ("feed", self.feed, "act", self.verb) if self.feed else ("node", self.subject, "act", self.verb)

    @property
    def back(self) -> str:
        return link("feed", self.feed) if self.feed else "/"

    @property
    def command(self) -> str:
        called = shlex.quote(self.called or self.subject)
        return self.action.command.format(feed=shlex.quote(self.feed), subject=called)


def action_page(asked: AskedAction, visitor: Visitor, given: Mapping[str, str], problem: str = "") -> WebPage:
    """`given`: what a user has written already. `problem`: why it was not done."""
    action = asked.action
    what = asked.feed if not asked.subject else asked.called or asked.subject
    danger = action.typed
    form = tag(
        "form",
        tag("h1", f"{action.title}: ", name(what), id="act-title"),
        tag("p", "of changefeed ", name(asked.feed), class_="dim") if asked.subject and asked.feed else None,
        tag("p", problem, class_="problem", role="alert") if problem else None,
        tag("p", action.says),
        (_input(each, asked, given) for each in action.inputs),
        _typed(asked) if danger else None,
        hidden(visitor),
        tag("input", type="hidden", name="subject", value=asked.subject),
        tag(
            "div",
            tag("button", action.title, class_="button danger" if danger else "button primary"),
            tag("a", "Cancel", href=asked.back, class_="button quiet", data_close=True),
            class_="actions",
        ),
        tag("p", "The same in a shell:", class_="dim"),
        tag("pre", asked.command, tabindex="0"),
        method="post",
        action=link(*asked.place),
        class_="card act",
        id="act",
    )
    return WebPage(title=f"{action.title}: {what}", above=form)


def _typed(asked: AskedAction) -> Markup:
    return tag(
        "label",
        "Type the name of the changefeed, ",
        tag("b", name(asked.feed)),
        ", to go on ",
        tag("input", name="typed", autocomplete="off", required=True),
    )


def _input(each: Input, asked: AskedAction, given: Mapping[str, str]) -> Markup:
    value = given.get(each.name, "")
    if each.flag:
        box = tag("input", type="checkbox", name=each.name, value="yes", checked=value == "yes")
        return tag("label", box, f" {each.label}", class_="flag")
    field: Content = tag("input", name=each.name, value=value, id=f"in-{each.name}")
    if each.name == "node":
        field = tag("select", (tag("option", node, value=node) for node in asked.nodes), name=each.name)
    return join(tag("label", f"{each.label} ", field), tag("p", each.hint, class_="hint") if each.hint else None)
