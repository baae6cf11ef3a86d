"""Labelling by people: a local page that a keyboard works, a file of labels that no crash empties, and how far raters agree.

said.py       what a rater said of one transcript, how a key changes it, and the annotation it makes
sayings.py    all that a rater said, action by action, and which tab has not seen what
journal.py    the file of a rater: every change appended, annotations made from them
address.py    where the page is, kept beside the file
pool.py       the transcripts, kept on disk and read one at a time
server.py     the page over HTTP, for this machine alone
agreement.py  the labels of several raters held against one another
"""
