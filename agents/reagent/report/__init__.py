"""`reagent report`: one HTML page on agents' trainings, the judge, and transcripts before and after.

runs.py       run folders as tables and curves need them
examples.py   policies' transcripts joined with the judge's rows, and which questions are shown
curves.py     inline SVG over episodes
page.py       the page: strings for every cell, then the template
"""

from reagent.report.examples import PolicyAttempts, read_policy
from reagent.report.page import write_page
from reagent.report.runs import RecordedRun, read_runs

__all__ = ["PolicyAttempts", "RecordedRun", "read_policy", "read_runs", "write_page"]
