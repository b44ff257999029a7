"""Faults of the room `cli`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_VERIFY = ("tests/unit/cli/commands/test_verify_results.py",)
_ENSURE = ("tests/unit/cli/commands/test_ensure.py",)

CLI = (
    Fault(
        "a flag does not override the environment",
        "merged = {**filed, **server, **token, **given}",
        "merged = {**filed, **given, **server, **token}",
    ),
    Fault(
        "an unknown key of the file is passed over",
        "        unknown = sorted(set(known) - set(allowed))\n",
        "        unknown = sorted(set(allowed) - set(allowed))\n",
    ),
    Fault(
        "a client certificate is sent nowhere",
        "        if address.cert is not None or address.key is not None:\n            raise Failure(",
        "        if address.cert is not None and address.key is None:\n            raise Failure(",
    ),
    Fault(
        "a token is sent with its role",
        "lines[0].rpartition(':')[2]",
        "lines[0]",
    ),
    Fault(
        "a conflict has the exit code of any failure",
        "    grpc.StatusCode.ABORTED: ExitCode.CONFLICT,\n",
        "",
    ),
    Fault(
        "an etcd that does not answer has the exit code of any failure",
        "    if code in _NO_ANSWER:\n        return Failure(ExitCode.UNREACHABLE, *problems)\n",
        "",
    ),
    Fault(
        "what differs has the exit code of success",
        "    if not summary.succeeded:\n        raise Failure(",
        "    if not summary.succeeded and not found:\n        raise Failure(",
        tests=_VERIFY,
    ),
    Fault(
        "a verification that the server ended early is a success",
        '        raise Failure(ExitCode.UNREACHABLE, "the server ended the verification early; run the command again")',
        "        summary = pb.VerifySummary(succeeded=True)",
        tests=_VERIFY,
    ),
    Fault(
        "a command without a terminal takes its confirmation for given",
        "    if not sys.stdin.isatty():\n        raise Failure(",
        "    if sys.stdin.isatty():\n        raise Failure(",
        tests=_VERIFY,
    ),
    Fault(
        "a changefeed whose update is refused stays paused",
        "    finally:\n        if runs:\n            connection.ask(connection.changefeeds.ResumeChangefeed",
        "    except ValueError:\n        if runs:\n            connection.ask(connection.changefeeds.ResumeChangefeed",
        tests=_ENSURE,
    ),
    Fault(
        "one file with a mistake hides those after it",
        '        except Failure as failure:\n            yield from (f"{file}: {failure.lines[0]}", *failure.lines[1:])\n',
        '        except Failure as failure:\n            yield from (f"{file}: {failure.lines[0]}", *failure.lines[1:])\n            return\n',
        tests=_ENSURE,
    ),
    Fault(
        "an absent value of a document is shown as its default",
        "    if field.has_presence and not message.HasField(field.name):\n        return None\n",
        "",
    ),
)
