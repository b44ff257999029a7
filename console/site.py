"""`Site`: which page is at which path, and who may see and do what. It knows no sockets.

    GET /  /feed/ID                          pages that stay open; /live says what has changed on them
    GET /feed/ID/readiness  .../letters  .../history   asked once, of source, target or etcd
    GET, POST /feed/ID/act/VERB  /node/ID/act/VERB     a form, and what it asks
    GET, POST /login  POST /logout           console.css, console.js, console.svg are open

A POST needs an Origin that is our own host, and the value that only our own pages have. Where nobody signs in, the Host must be this machine: another
site's name may lead to it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import urlsplit

import grpc
import structlog

from admin.access import Access, Caller, Credentials, Guard
from admin.services.rpc import status_of
from changefeed.errors import ConfigurationError, NotFoundError, NotPermitted, SluiceError
from changefeed.records.requests import ChangefeedId
from console.action_forms import ACTIONS, NODE_ACTIONS, AskedAction, action_page
from console.actions import MOST_LETTERS, TASKS, Actions
from console.feed_page import feed_page
from console.frame import Visitor, WebPage, document, login_page, message_page
from console.lookups import history_page, letters_page, readiness_page
from console.markup import link, tag
from console.observer import Observer
from console.overview_page import overview
from console.picture import TableQuery
from console.sessions import LIFETIME, Sessions, SignedIn
from credentials.redaction import redacted

HTML = "text/html; charset=utf-8"
_STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "console.svg": "image/svg+xml",
}
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_QUERY = 300

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """`form` is None unless something was posted. `cookies`: the header."""

    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    host: str = ""
    origin: str = ""
    cookies: str = ""
    address: str = ""
    secure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """`live`: instead of a body, the page whose changes are to be sent; it gives None once the login has ended or has another role."""

    status: HTTPStatus = HTTPStatus.OK
    body: str = ""
    kind: str = HTML
    location: str = ""
    cookie: str = ""
    live: Callable[[], WebPage | None] | None = None


class Site:
    def __init__(
        self, guard: Guard, sessions: Sessions, observer: Observer, actions: Actions, stale: Callable[[], str]
    ) -> None:
        self._guard = guard
        self._sessions = sessions
        self._observer = observer
        self._actions = actions
        self._stale = stale
        package = files("console") / "static"
        self._static = {name: (package / name).read_text(encoding="utf-8") for name in _STATIC}

    @property
    def stale(self) -> str:
        """Why what is shown may be old."""
        return self._stale()

    def answer(self, asked: WebRequest) -> WebAnswer:
        signed: SignedIn | None = None
        try:
            self._check_origin(asked)
            if asked.path[0] in _STATIC and len(asked.path) == 1:
                return WebAnswer(body=self._static[asked.path[0]], kind=_STATIC[asked.path[0]])
            signed = self._who(asked)
            if asked.path == ("login",):
                return self._login(asked)
            if signed is None:
                return self._refusal(asked)
            return self._signed(asked, signed)
        except SluiceError as error:
            status = _status(error)
            _log.info("console_refused", path="/".join(asked.path)[:200], code=error.code, address=asked.address)
            return self._shown(message_page("It did not work", tag("p", redacted(str(error)))), signed, status)

    def _who(self, asked: WebRequest) -> SignedIn | None:
        return self._sessions.who(_cookie_named(asked.cookies, self._sessions.cookie))

    def _check_origin(self, asked: WebRequest) -> None:
        host = urlsplit(f"//{asked.host}").hostname or ""
        if self._sessions.open and host not in _HERE:
            raise NotPermitted(
                f"this console answers to localhost only, and was asked as {asked.host!r}; open it by its own address"
            )
        if asked.form is not None and (not asked.host or urlsplit(asked.origin).netloc != asked.host):
            raise NotPermitted(
                f"this form was not sent by a page of {asked.host!r}, but by {asked.origin or 'nobody'!r}; open the console, and try again"
            )

    def _login(self, asked: WebRequest) -> WebAnswer:
        if self._sessions.open:
            return WebAnswer(status=HTTPStatus.SEE_OTHER, location="/")
        if asked.form is None:
            return self._shown(login_page(), None)
        cookie = self._sessions.enter(asked.form.get("token", ""))
        if cookie is None:
            _log.warning("console_sign_in_refused", address=asked.address)
            return self._shown(login_page("This node does not know the token."), None, HTTPStatus.FORBIDDEN)
        ends = int(LIFETIME.total_seconds())
        return WebAnswer(status=HTTPStatus.SEE_OTHER, location="/", cookie=self._cookie(asked, cookie, ends))

    def _cookie(self, asked: WebRequest, value: str, seconds: int) -> str:
        secure = "; Secure" if asked.secure else ""
        return f"{self._sessions.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _refusal(self, asked: WebRequest) -> WebAnswer:
        if asked.path == ("live",) or asked.form is not None:
            return self._shown(login_page("Sign in first."), None, HTTPStatus.UNAUTHORIZED)
        return WebAnswer(status=HTTPStatus.SEE_OTHER, location="/login")

    def _signed(self, asked: WebRequest, signed: SignedIn) -> WebAnswer:
        if asked.form is not None and not hmac.compare_digest(
            asked.form.get("csrf", "").encode(), signed.visitor.csrf.encode()
        ):
            raise NotPermitted(
                "this form is from before you signed in, or before the node started; go back, reload, and try again"
            )
        match asked.path:
            case ("",) | ("feed", _):
                return self._open(asked, signed)
            case ("live",):
                path = tuple(asked.query.get("path", "").split("/"))
                draw, _ = self._drawing(path[1:] or ("",), asked.query, signed.visitor)
                return WebAnswer(live=lambda: draw() if self._who(asked) == signed else None)
            case ("logout",) if asked.form is not None:
                return WebAnswer(status=HTTPStatus.SEE_OTHER, location="/login", cookie=self._cookie(asked, "", 0))
            case ("feed" | "node", _, "act", _):
                return self._act(asked, self._asked(asked), signed)
            case ("feed", id, what):
                return self._looked_up(id, what, self._caller(asked, signed), signed)
        raise NotFoundError(f"there is no page /{'/'.join(asked.path)}")

    def _looked_up(self, id: str, what: str, caller: Caller, signed: SignedIn) -> WebAnswer:
        """Unlike the pages that stay open, it asks the source, the target or etcd."""
        match what:
            case "readiness":
                page = readiness_page(id, self._actions.readiness(id, caller))
            case "letters":
                letters = self._actions.letters(id, caller)
                page = letters_page(id, letters, MOST_LETTERS, may_act=signed.visitor.may_act)
            case "history":
                page = history_page(id, self._actions.history(id, caller))
            case _:
                raise NotFoundError(f"there is no page of a changefeed named {what!r}")
        return self._shown(page, signed)

    def _open(self, asked: WebRequest, signed: SignedIn) -> WebAnswer:
        draw, live = self._drawing(asked.path, asked.query, signed.visitor)
        done = asked.query.get("done", "")
        action = {**ACTIONS, **NODE_ACTIONS}.get(done)
        said = "Started" if done in TASKS else "Done"
        note = f"{said}: {action.title}." if action else ""
        return self._shown(draw(), signed, live=live, note=note)

    def _drawing(
        self, path: tuple[str, ...], query: Mapping[str, str], visitor: Visitor
    ) -> tuple[Callable[[], WebPage], str]:
        """A function that draws a page as it is then, and the address of its changes."""
        observer, may_act = self._observer, visitor.may_act
        match path:
            case ("",):
                draw = partial(observer.drawn, may_act, lambda: overview(observer.overview(), may_act=may_act))
                return draw, link("live", path="/")
            case ("feed", id):
                asked = _query(query)
                part = {"q": asked.text, "state": asked.state, "page": str(asked.page)}
                draw = partial(observer.drawn, (id, asked, may_act), lambda: self._feed(id, asked, may_act=may_act))
                return draw, link("live", path=f"/feed/{id}", **part)
        raise NotFoundError(f"there is no page /{'/'.join(path)} that stays open")

    def _feed(self, id: str, asked: TableQuery, *, may_act: bool) -> WebPage:
        return feed_page(self._observer.feed(ChangefeedId(id), asked, self._actions.tasks(id)), may_act=may_act)

    def _asked(self, asked: WebRequest) -> AskedAction:
        kind, id, _, verb = asked.path
        if verb not in (ACTIONS if kind == "feed" else NODE_ACTIONS):
            raise NotFoundError(f"there is no action {verb!r}")
        if kind == "node":
            return AskedAction(verb=verb, subject=id, called=self._observer.node_name(id))
        given = asked.form if asked.form is not None else asked.query
        subject = given.get("subject") or given.get("table") or given.get("ddl") or ""
        called, nodes = self._observer.subject(ChangefeedId(id), subject)
        return AskedAction(verb=verb, feed=id, subject=subject, called=called, nodes=nodes)

    def _act(self, asked: WebRequest, action: AskedAction, signed: SignedIn) -> WebAnswer:
        caller = self._caller(asked, signed)
        caller.demand(Access.OPERATOR)
        if asked.form is None:
            return self._shown(action_page(action, signed.visitor, asked.query), signed)
        try:
            if action.action.typed and asked.form.get("typed", "").strip() != action.feed:
                raise ConfigurationError([f"typed: found another name than {action.feed!r}; nothing was done"])
            self._actions.carry_out(action, asked.form, caller)
        except SluiceError as error:
            _log.info("console_action_refused", verb=action.verb, code=error.code, caller=caller.name)
            page = action_page(action, signed.visitor, asked.form, redacted(str(error)))
            return self._shown(page, signed, _status(error))
        self._observer.forget()
        return WebAnswer(status=HTTPStatus.SEE_OTHER, location=f"{action.back}?done={action.verb}")

    def _caller(self, asked: WebRequest, signed: SignedIn) -> Caller:
        secret = signed.token.secret if signed.token is not None else None
        return self._guard.caller(Credentials(token=secret, address=asked.address))

    def _shown(
        self,
        page: WebPage,
        signed: SignedIn | None,
        status: HTTPStatus = HTTPStatus.OK,
        *,
        live: str = "",
        note: str = "",
    ) -> WebAnswer:
        visitor = signed.visitor if signed is not None else Visitor()
        stale = self._stale() if page.at is not None else ""
        body = document(page, visitor, cluster=self._observer.cluster, live=live, stale=stale, note=note)
        return WebAnswer(status=status, body=body)


def _cookie_named(header: str, name: str) -> str:
    """By hand: `SimpleCookie` gives none if one of another application on this host is `prefs={"a":1}`, as browsers send it."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _query(query: Mapping[str, str]) -> TableQuery:
    page = query.get("page", "1")
    number = int(page) if page.isascii() and page.isdecimal() and len(page) < 6 else 1
    return TableQuery(text=query.get("q", "")[:_MOST_QUERY], state=query.get("state", "")[:_MOST_QUERY], page=number)


_STATUSES = {
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    grpc.StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.ABORTED: HTTPStatus.CONFLICT,
    grpc.StatusCode.FAILED_PRECONDITION: HTTPStatus.CONFLICT,
    grpc.StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def _status(error: SluiceError) -> HTTPStatus:
    return _STATUSES.get(status_of(error), HTTPStatus.INTERNAL_SERVER_ERROR)
