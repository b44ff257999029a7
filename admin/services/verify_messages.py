"""`progress`, `table`, `summary`: the results of a verification as messages of the admin API."""

from __future__ import annotations

from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from verify.report import DocumentDifference, DocumentsReport, Outcome, Report, TableReport, VerifyProgress


def progress(found: VerifyProgress) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        progress=pb.VerifyProgress(
            tables=found.tables,
            tables_done=found.tables_done,
            ranges=found.ranges,
            ranges_done=found.ranges_done,
            documents=found.documents,
        )
    )


def table(report: TableReport) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        table=pb.TableVerification(
            name=str(report.name),
            sources=map(str, report.sources),
            outcome=_outcome(report.outcome),
            aspects=[
                pb.AspectVerification(aspect=aspect, outcome=_outcome(result.outcome), details=result.details)
                for aspect, result in report.results.items()
            ],
            documents=_documents(report.documents) if report.documents else None,
        )
    )


def summary(report: Report, *, live: bool) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        summary=pb.VerifySummary(
            outcome=_outcome(report.outcome),
            succeeded=report.succeeded,
            live=live,
            tables=len(report.tables),
            documents=sum(each.documents.source for each in report.tables if each.documents),
            repaired=sum(each.documents.repaired for each in report.tables if each.documents),
        )
    )


def _documents(found: DocumentsReport) -> pb.DocumentsVerification:
    return pb.DocumentsVerification(
        source=found.source,
        target=found.target,
        differences=map(_difference, found.differences),
        complete=found.complete,
        repaired=found.repaired,
    )


def _difference(found: DocumentDifference) -> pb.DocumentDifference:
    return pb.DocumentDifference(kind=f"DIFFERENCE_KIND_{found.kind.name}", key=found.key, details=found.details)


def _outcome(outcome: Outcome) -> str:
    return f"VERIFY_OUTCOME_{outcome.name}"
