"""Verbs with the names and habits of pyverbs.

Submodules are pyverbs': ``device, pd, addr, mr, cq, wr, qp, mem_alloc, base, pyverbs_error, libibverbs_enums``.
"""
