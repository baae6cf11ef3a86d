"""The HTML report: one self-contained page to read transcripts beside what the judge said of them."""

from rrm.report.page import write_report

__all__ = ["write_report"]
