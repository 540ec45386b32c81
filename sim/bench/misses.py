"""Misses of the translation cache: WRITEs to pages drawn at random, and what they do to those that always hit."""

import mmap
import random

from verbena.sim.devices import world
from verbena.sim.pair import ALL_ACCESS, End, connect
from verbena.sw.verbs.mr import MR

from .batch import MTU, OPERATIONS, REGION, cqe_written, cycle_of, figures, sends
from .rows import pace

__all__ = ["PAGES", "hits_beside", "random_pages", "small_pages"]

PAGE = 4096
PAGES = 4096
"""Pages of 4 KiB in the region: 16 MiB, many times what a translation cache holds."""


def small_pages(pd):
    """A region of :data:`PAGES` pages of 4 KiB. The process's own memory lies page by page anywhere on the bus, so that
    no allocator of the driver makes larger ones of them. ``RuntimeError`` if they are larger nevertheless.
    """
    region = MR(pd, PAGE * PAGES, ALL_ACCESS, mmap.mmap(-1, PAGE * PAGES))
    if (size := 1 << region._region.entry["log_page_size"]) != PAGE:
        raise RuntimeError(f"the pages are of {size} bytes, not of {PAGE}")
    return region


def random_pages(qps, seed=1):
    """One row: 8-byte WRITEs, each to a page drawn at random from :data:`PAGES`."""
    drawn = random.Random(seed)

    def place(qp, n):
        return drawn.randrange(PAGES) * PAGE + drawn.randrange(PAGE // 8) * 8

    cycles, more = pace("WRITE", 8, qps, share=1024 // qps, place=place, target=small_pages)
    return figures("WRITE", 8, MTU, qps, cycles, pages=PAGES, page_size=PAGE, seed=seed, **more)


def _hits(beside, seed, first=64, last=320):
    """Cycles a message of a QP whose WRITEs always hit; ``beside`` it another QP that "hits" or "misses", or none."""
    pages = random.Random(seed).sample(range(PAGES), 1024)
    sizes = {"depth": 1024, "cqe": 1032}
    with (
        End("sim0", REGION, **sizes) as a,
        End("sim1", REGION) as b,
        End("sim0", REGION, **sizes) as c,
        End("sim1", REGION) as d,
    ):
        connect(a, b, mtu=MTU)
        connect(c, d, mtu=MTU)
        target = small_pages(d.pd)
        write = OPERATIONS["WRITE"]
        for end, other in ((a, b), (c, d)):  # WQEs' and buffers' translations, keys, and the pages that are hit
            end.qp.post_send(sends(end, other, write, 8, 256))
            cycle_of(end.cq, 255, world().cycles)
            end.cq.poll(256)
        if beside == "misses":
            c.qp.post_send(sends(c, d, write, 8, 1024, place=lambda n: pages[n] * PAGE, target=target))
        elif beside == "hits":
            c.qp.post_send(sends(c, d, write, 8, 1024, place=lambda n: n % 256 * 64))
        requests = sends(a, b, write, 8, last + 64, place=lambda n: n % 256 * 64)
        start = world().cycles
        a.qp.post_send(requests)
        begun = cycle_of(a.cq, 256 + first - 1, start)
        ended = cycle_of(a.cq, 256 + last - 1, start)
        if beside and cqe_written(c.cq, 256 + 1023):
            raise RuntimeError("the other QP was done before the one that is measured")
        cycle_of(a.cq, 256 + last + 63, start)
        if beside:
            cycle_of(c.cq, 256 + 1023, start)
    return (ended - begun) / (last - first)


def hits_beside(seed=1):
    """One row: 8-byte WRITEs of a QP that always hits, beside one that always misses; and the slowdown against one that
    hits as well.
    """
    alone, hits, misses = (_hits(beside, seed) for beside in (None, "hits", "misses"))
    more = {"beside": "misses", "pages": PAGES, "page_size": PAGE, "seed": seed}
    more |= {"alone_cycles": round(alone, 2), "beside_hits_cycles": round(hits, 2), "slowdown": round(misses / hits, 3)}
    return figures("WRITE", 8, MTU, 1, misses, **more)
