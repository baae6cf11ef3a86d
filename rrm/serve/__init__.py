"""A judge as an HTTP service: `rrm serve`, and the client that stands for it wherever a judge is named, `http://HOST:PORT`.

    schemas.py   requests and answers, and their limits
    worker.py    a process that holds a judge: jobs in, rows out, as lines of JSON
    pool.py      what waits, in batches over the workers; a worker that dies loses nothing
    metrics.py   counts and times for Prometheus
    app.py       the endpoints
    limits.py    who may ask, how much, how long
    calls.py     requests that are made of a server together: when to ask again, and when to give it up
    address.py   one server: requests to it, and what its refusals mean
    client.py    the judge at an address

A judge runs in a process of its own, so that one transcript too many for its memory ends that process and no accepted request.
"""
