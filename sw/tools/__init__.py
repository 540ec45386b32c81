"""The other side of well-known RDMA programs, as modules and as commands: ibv_rc_pingpong and perftest.

What waits is a session: a generator that yields, so that several ends, or an end and something else, take turns in one
thread (:mod:`.session`).
"""
