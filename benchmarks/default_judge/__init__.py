"""The default judge: its training mixture, what it must beat, and how it is measured."""
