"""The course of a test, on either side.

What is exchanged when differs from test to test; all that count is done here in perftest's order. The server of a test
that reads, or that writes in one direction, has nothing to do but to keep its memory alive.
"""

import contextlib
from dataclasses import replace

from ...verbs.datagram import GRH_BYTES
from ...verbs.libibverbs_enums import ibv_mtu
from ..endpoint import Endpoint, clock_hz, clock_text, is_cut, mtu_of
from ..exchange.channel import connect
from ..exchange.perftest import Exchange, Key, Report
from . import report
from .bandwidth import Receiver, Sender, receiving, transfer
from .kinds import Verb
from .latency import Latency, ask, post_receives, send_and_receive, write_and_watch
from .managed import Managed
from .messages import CACHE_LINE, CYCLE_BUFFER, Layout, Messages
from .options import CONNECTIONS
from .progress import begin

__all__ = ["PORT", "client", "managed_server", "play", "server"]

PORT = 18515
NOTHING = Report(0, 0, 0.0, 0.0, 0.0)


class Side:
    """One side of a test, once its resources are there."""

    def __init__(self, kind, options, exchange, end, layout, *, server, tell, steps, clock_hz, progress=None):
        self.kind = kind
        self.options = options
        self.exchange = exchange
        self.end = end
        self.layout = layout
        self.server = server
        self.tell = tell
        self.steps = steps  # of the layout of each size: the cycle buffer and the cache line
        self.clock_hz = clock_hz  # of who counts in cycles; None: in microseconds
        self.progress = progress
        reads = options.outstanding if kind.reading else 1
        self.mine = [
            Key(qp.qp_num, psn, end.gid, reads, end.mr.rkey, end.mr.buf + layout.target(i))
            for i, (qp, psn) in enumerate(zip(end.qps, end.psns, strict=True))
        ]

    def connect(self, mtu):
        """A session that exchanges the keys and brings all queue pairs to RTS, unless the connection manager has done
        so; returns the peer's keys.
        """
        kind, options = self.kind, self.options
        for key in self.mine:
            self._tell(report.address("local", kind, key))
        if kind.latency and kind.verb is not Verb.SEND:
            yield from self.barrier()
        theirs = yield from self._keys()
        for i, key in enumerate(theirs):
            self._tell(report.address("remote", kind, key))
            if options.rdma_cm:
                continue
            self.end.connect(
                i,
                gid=key.gid,
                qpn=key.qpn,
                psn=key.psn,
                mtu=mtu,
                timeout=options.timeout,
                initiator=key.out_reads,
                responder=self.mine[i].out_reads,
                service_level=options.service_level,
                traffic_class=options.traffic_class,
            )
        if kind.verb is Verb.SEND:
            yield from self.barrier()
            yield from self._keys()
        else:
            yield from self._keys()
            yield from self.barrier()
        return theirs

    def _keys(self):
        theirs = []
        for key in self.mine:
            theirs.append((yield from self.exchange.key(key)))
        return theirs

    def barrier(self):
        """A session that ends when the peer is here, too."""
        yield from self.exchange.key(self.mine[0])

    def _tell(self, lines):
        for line in lines:
            self.tell(line)

    def rounds(self, keys):
        """The test of each size, a session: returns what was measured, and tells each as soon as it is there."""
        has_table = not (self.kind.latency and self.kind.reading and self.server)
        if has_table:
            self._tell([report.LINE, report.columns(self.kind, self.options)])
        outcomes, largest = [], self.options.size
        for options in self.options.rounds():
            layout = Layout(options.size, options.qps, *self.steps, largest=largest, header=self.end.header)
            messages = Messages(self.end, self.kind, options, layout, keys)
            if self.kind.latency:
                outcome = yield from self._latency(messages, options, layout)
            else:
                outcome = yield from self._bandwidth(messages, options)
            self._note(outcomes, outcome, options)
        if not self.kind.latency and not self.options.bidirectional and self.kind.verb is not Verb.SEND:
            yield from self.barrier()
            theirs = yield from self.exchange.report(outcomes[-1] if outcomes else NOTHING)
            if self.server:
                self._note(outcomes, theirs, self.options)
        if has_table:
            self._tell([report.LINE])
        return outcomes

    def _note(self, outcomes, outcome, options):
        if outcome is not None:
            outcomes.append(outcome)
            self._tell(report.row(outcome, options))

    def _bandwidth(self, messages, options):
        """The messages of a bandwidth test, a session: returns what both measured; None if only the other side does."""
        both = options.bidirectional
        sends = both or not self.server
        receives = self.kind.verb is Verb.SEND and (self.server or both)
        progress = begin(self.progress, options, sends + receives)
        sender = Sender(self.end, messages, options, progress, cuts=sends and receives) if sends else None
        receiver = Receiver(self.end, messages, options, progress) if receives else None
        if receiver is not None:
            receiver.post()
        if both or self.kind.verb is Verb.SEND:
            yield from self.barrier()
        if sender is not None or receiver is not None:
            yield from transfer(self.end, sender, receiver, answer=receives and self.server)
        mine = None if sender is None else sender.report()
        if both:
            talk = self.exchange.report(mine)
            theirs = yield from (receiving(talk, self.end, receiver) if sender.cuts else talk)
            return _sum(mine, theirs)
        return receiver.report() if receives else mine

    def _latency(self, messages, options, layout):
        """The messages of a latency test, a session: returns the :class:`.Latency`, None if this side has none."""
        kind, progress = self.kind, begin(self.progress, options)
        if kind.reading:
            times = None if self.server else (yield from ask(self.end, messages, options, progress))
        elif kind.verb is Verb.SEND:
            post_receives(self.end, messages, options)
            yield from self.barrier()
            times = yield from send_and_receive(self.end, messages, options, progress, server=self.server)
        else:
            times = yield from write_and_watch(self.end, messages, options, layout, progress, server=self.server)
        if times is None:
            return None
        return Latency.of(options.size, times, ways=2 if kind.symmetric else 1, clock_hz=self.clock_hz)

    def leave(self):
        """A session that ends when nobody needs this side any more."""
        if not (self.kind.latency and self.kind.verb is Verb.WRITE):
            yield from self.exchange.close(self.mine[0])
        else:
            yield from self.exchange.finish()
        yield from self.end.settle()


def _sum(mine, theirs):
    return replace(
        mine,
        peak=mine.peak + theirs.peak,
        average=mine.average + theirs.average,
        message_rate=mine.message_rate + theirs.message_rate,
    )


def play(context, kind, options, channel, *, server, tell=print, rng=None, inspect=None, progress=None, managed=None):
    """One side of a test, a session: ``channel`` leads to the other one; with ``rdma_cm`` it is that of ``managed``, a
    :class:`.Managed`.

    Returns what was measured, a :class:`.Report` or a :class:`.Latency`, None on the server of a latency test that
    reads; with ``all_sizes`` a list of them, of which a server that does not measure has the last alone.
    ``inspect(side)`` is called before its resources go; where PSNs and content come from is ``rng``; ``progress`` is a
    :class:`.Progress`, or None.
    """
    wanted = options.resolved(kind)
    with channel:
        exchange = Exchange(channel, server=server) if managed is None else managed.exchange(channel)
        yield from exchange.version()
        cycle_buffer, cache_line = yield from exchange.layout(CYCLE_BUFFER, CACHE_LINE)
        largest = context.query_port(1).active_mtu if wanted.mtu is None else mtu_of(wanted.mtu)
        mtu = ibv_mtu((yield from exchange.mtu(largest)))
        options = options.resolved(kind, 128 << mtu)
        times = clock_text(context)
        for line in report.header(kind, options, context.name, 128 << mtu, server=server, times=times):
            tell(line)
        header = GRH_BYTES if options.connection == "UD" else 0
        layout = Layout(options.size, options.qps, cycle_buffer, cache_line, header=header)
        with (
            _endpoint(context, kind, options, layout, channel, server=server, rng=rng) as end,
            contextlib.ExitStack() as stack,
        ):
            if managed is not None:
                stack.callback(managed.close)
                yield from managed.connect(end, exchange, kind, options)
            side = Side(
                kind,
                options,
                exchange,
                end,
                layout,
                server=server,
                tell=tell,
                steps=(cycle_buffer, cache_line),
                clock_hz=clock_hz(context) if options.cycles else None,
                progress=progress,
            )
            keys = yield from side.connect(mtu)
            outcomes = yield from side.rounds(keys)
            yield from side.leave()
            if inspect is not None:
                inspect(side)
    if options.all_sizes:
        return outcomes
    return outcomes[0] if outcomes else None


def _endpoint(context, kind, options, layout, channel, *, server, rng):
    sends = not server or options.bidirectional or kind.symmetric
    receives = kind.verb is Verb.SEND and (server or options.bidirectional or kind.symmetric)
    end = Endpoint(
        context,
        layout.size,
        qps=options.qps,
        qp_type=CONNECTIONS[options.connection],
        send_depth=options.tx_depth if sends else 1,
        recv_depth=options.rx_depth if receives else 1,
        shared=options.use_srq and receives,
        managed=options.rdma_cm,
        inline=options.inline,
        access=kind.access,
        gid_index=options.gid_index,
        channel=channel,
        patience=options.patience,
        events=options.events,
        rng=rng,
    )
    if not (kind.latency and kind.verb is Verb.WRITE):  # whose content counts
        end.mr.write(end.rng.randbytes(layout.size), layout.size)
    return end


def server(context, kind, options, listener, *, connected=lambda: None, **arguments):
    """A server, a session: waits for a client on ``listener``, and then calls ``connected()``; other arguments and the
    result are :func:`play`'s.
    """
    channel = yield from listener.accept(context.advance, options.patience, lambda: is_cut(context))
    connected()
    return (yield from play(context, kind, options, channel, server=True, **arguments))


def managed_server(context, kind, options, port=PORT, *, connected=lambda: None, **arguments):
    """A server of the connection manager's, a session: as :func:`server`."""
    managed = Managed(context, port, None, options.patience)
    channel = yield from managed.talk()
    connected()
    return (yield from play(context, kind, options, channel, server=True, managed=managed, **arguments))


def client(context, kind, options, host, port=PORT, *, connected=lambda: None, **arguments):
    """A client, a session: ``connected`` is as :func:`server`'s, other arguments and the result are :func:`play`'s."""
    managed = Managed(context, port, host, options.patience) if options.rdma_cm else None
    talk = connect(host, port, context.advance, options.patience) if managed is None else managed.talk()
    channel = yield from talk
    connected()
    return (yield from play(context, kind, options, channel, server=False, managed=managed, **arguments))
