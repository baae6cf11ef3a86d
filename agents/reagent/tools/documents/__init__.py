"""Files and pages as text, read in a process of their own: callers use `run.py`.

A hostile file can keep its reader busy for hours or fill the memory, so it is read in a child with limits, which starts without
`reagent`: modules here import only the standard library at the top, and each other relatively."""
