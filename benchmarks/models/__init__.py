"""Making the judges that ship: base models, sources, training rows."""
