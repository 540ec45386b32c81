"""The other side of well-known RDMA programs, as modules and as commands: ibv_rc_pingpong and perftest.

What waits is a generator: it yields whenever it has let the device work and there is still nothing, so that several
ends, or an end and something else, take turns in one thread (:func:`.session.run`).
"""
