"""Data sets of judged and labelled transcripts for others: rows without this machine's paths, keys looked for, and a card."""
