"""Verbs with the names and habits of pyverbs; docs/verbs.md tells call by call what there is.

Submodules are pyverbs': ``device, pd, addr, mr, cq, wr, qp, srq, xrcd, wq, flow, spec, mem_alloc, dma_util, dmabuf,
base, pyverbs_error, libibverbs_enums, utils, fork``. All others belong to these.
"""
