"""Two judges compared by people who do not know which is which.

sheet.py      one page to hand out, and its key, which stays here
analysis.py   the answers that come back, read with the key
"""
