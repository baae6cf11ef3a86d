"""A judge as an HTTP service (`rrm serve`), and its client for `http://HOST:PORT`.

schemas.py   requests and answers, and their limits
worker.py    a process that holds a judge: jobs in, rows out, as lines of JSON
pool.py      waiting items in batches over the workers; a worker that dies loses nothing
metrics.py   counts and times for Prometheus
app.py       the endpoints
limits.py    limits of connections, keys, sizes and times
calls.py     requests to one server together: retries and giving up
address.py   one server: requests to it, and the meaning of its refusals
client.py    the judge at an address
"""
