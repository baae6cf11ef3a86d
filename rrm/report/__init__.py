"""The HTML report: one self-contained page of transcripts beside a judge's words."""

from rrm.report.page import write_report

__all__ = ["write_report"]
