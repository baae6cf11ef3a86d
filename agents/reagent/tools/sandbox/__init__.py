"""Runs an untrusted program. Callers use `run.py`; the other modules run in processes of their own.

The supervisor starts with `python -I -S` and imports this package without `reagent`: only the standard library may be imported here, and
imports between these modules are relative."""
