"""Control tokens: how the command block resets, starts and stops a QP in every block that has state of it."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..stream.transfer import QpControl

__all__ = ["Tokens"]

PASSAGES = (QpAction.RESET, QpAction.SAVE, QpAction.LOAD)
RECEIVER = "response_receiver"

ON_PATH = 127
"""More tokens than can be on the transmit path, where SAVE does not always wait for its own."""

USUAL = (("requester",), ("responder",), (RECEIVER,), ("completer",), ("sq_fetch",), ("rq_fetch",))
SAVING = (
    ("requester",),
    ("responder",),
    (RECEIVER,),
    ("timers",),
    ("completer",),
    ("requester",),
    ("sq_fetch", "rq_fetch"),
)
LOADING = (("responder", RECEIVER, "completer", "sq_fetch"), ("rq_fetch", "timers", "requester"))
"""Who hears of a token, step by step: in general, of SAVE, and of LOAD."""


class Tokens(wiring.Component):
    """Says a token to one block after the other, or to several at once.

    RESET goes to all, and waits on its way: for requester, responder and READ/atomic responder, until their tokens have
    come out at the ends of the transmit and the receive path; then for the response receiver's. So what comes to the
    completer and to the prefetchers last belongs to no packet of the old life. DRAIN and SEND_ERROR go to the requester
    alone, all others but these to all but the response receiver.

    SAVE goes the ways of RESET. The response receiver hears it when the requester's token has come out, or at once if
    the QP is not ``sending``: no more READs are asked for. The prefetchers hear it when all others have come out. And
    the requester hears STOP first, and SAVE behind the completer, which may want a retry until then. The timers hear
    it, too, as long as the completer has what they watch.
    LOAD goes those ways, too, but finds nothing of its QP there: so it is said to most at once, and to timers
    and requester when it has come out at all ends. Nothing is sent before all is there. The prefetcher of receive WQEs
    hears it then, too: there it waits for its words, which come behind the responder's, and until the responder has it
    a packet of another QP may need that prefetcher, to set its ring to a WQE of a shared receive queue.

    While ``new``, nothing of an old life is on any path: RESET waits for nobody, and ``under_way`` tells whether tokens
    of it still are.

    A block sees its token 1 cycle after the one before was taken, and each costs 3 cycles. Every ``valid`` is a
    register, and a block's ``ready`` goes to that register only.

    Members
    -------
    request : stream of ``QpControl``
        The token; ``ready`` when all have it, and RESET has waited.
    new, under_way : 1
    requester, responder, response_receiver, completer, sq_fetch, rq_fetch : streams of ``QpControl``
    timers : stream of ``QpControl``; sending : 1
        With ``swaps``. ``sending``: the QP of ``request`` has requests on the transmit path, as of 2 cycles ago.
    requester_done, responder_done, read_atomic_responder_done, response_receiver_done : 1
        Strobes: a RESET token has left the pipeline. Those of a token come after it was taken.

    Parameters
    ----------
    most : int
        RESET tokens at most that are on one path at once.
    swaps : bool
        There are SAVE and LOAD.
    """

    def __init__(self, most, *, swaps=False):
        self.most = most
        self.swaps = swaps
        token = stream.Signature(QpControl)
        super().__init__(
            {
                "request": In(token),
                "new": In(1),
                "under_way": Out(1),
                "requester": Out(token),
                "responder": Out(token),
                "response_receiver": Out(token),
                "completer": Out(token),
                "sq_fetch": Out(token),
                "rq_fetch": Out(token),
                "requester_done": In(1),
                "responder_done": In(1),
                "read_atomic_responder_done": In(1),
                "response_receiver_done": In(1),
            }
            | ({"timers": Out(token), "sending": In(1)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        token = Signal(QpControl)  # of the request that is under way: what says it need not reach all blocks in a cycle
        action = self.request.payload.action
        names = [name for step in USUAL for name in step] + (["timers"] if self.swaps else [])
        ports = {name: getattr(self, name) for name in names}
        numbers = {name: number for number, name in enumerate(ports)}
        open_ = Signal(len(ports))  # said and not taken
        alone, may = Signal(), Signal()
        save, load = Signal(), Signal()
        passes = Signal()  # it goes through the pipelines, and is waited for at their ends
        for number, port in enumerate(ports.values()):
            m.d.comb += [port.valid.eq(open_[number]), port.payload.eq(token)]
            with m.If(port.ready):
                m.d.sync += open_[number].eq(0)

        # -- Its way: whom it is said to, and what is waited for before.
        step = Signal(range(max(map(len, (USUAL, SAVING, LOADING)))))
        targets, last = Signal(len(ports)), Signal()
        received = Signal()  # the response receiver had it in the step before

        def way(steps):
            for number, names in enumerate(steps):
                with m.Case(number):
                    m.d.comb += [
                        targets.eq(sum(1 << numbers[name] for name in names)),
                        last.eq(number == len(steps) - 1),
                        received.eq(number > 0 and RECEIVER in steps[number - 1]),
                    ]

        with m.If(~(save | load)):
            with m.Switch(step):
                way(USUAL)
        if self.swaps:
            for mine, names in ((save, SAVING), (load, LOADING)):
                with m.If(mine), m.Switch(step):
                    way(names)
            with m.If(save & (step == 0)):
                m.d.comb += self.requester.payload.action.eq(QpAction.STOP)

        # Who is told of what comes out at each end. What comes to the requester in a later step stays there.
        paths = [
            ("requester", self.requester_done),
            ("responder", self.responder_done),
            ("responder", self.read_atomic_responder_done),
            (RECEIVER, self.response_receiver_done),
        ]
        said = Signal()
        out = Signal(len(paths))
        for path, (first, done) in enumerate(paths):
            count = Signal(range(max(self.most, ON_PATH) + 1), name=f"under_way_{path}")
            mine = said & targets[numbers[first]]
            if first == "requester":
                mine &= (step == 0) & ~load
            told, gone = Signal(name=f"told_{path}"), Signal(name=f"gone_{path}")
            m.d.sync += [told.eq(mine), gone.eq(done), count.eq(count + told - gone)]
            m.d.sync += out[path].eq((count == 0) & ~told)
        m.d.comb += [said.eq(may & passes), self.under_way.eq(~out.all())]

        to_receiver = targets[numbers[RECEIVER]] & ~load
        stays = Signal()  # a SAVE whose QP has nothing on the transmit path
        if self.swaps:
            m.d.comb += stays.eq(save & ~self.sending)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    step.eq(0),
                    token.eq(self.request.payload),
                    alone.eq((action == QpAction.DRAIN) | (action == QpAction.SEND_ERROR)),
                    passes.eq(action == QpAction.RESET),
                ]
                if self.swaps:
                    m.d.sync += [
                        save.eq(action == QpAction.SAVE),
                        load.eq(action == QpAction.LOAD),
                        passes.eq(reduce(or_, (action == each for each in PASSAGES))),
                    ]
                with m.If(self.request.valid):
                    m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += may.eq(1)
                with m.If(to_receiver):
                    m.d.comb += may.eq(~passes | self.new | ((out[0] | stays) & (save | out[1:3].all())))
                with m.Elif((save | load) & last):
                    m.d.comb += may.eq(out[1:].all())
                with m.Elif(received):
                    m.d.comb += may.eq(~passes | self.new | out[3])
                with m.If(may):
                    m.d.sync += open_.eq(Mux(passes | ~to_receiver, targets, 0))
                    m.next = "TAKEN"
            with m.State("TAKEN"), m.If(~open_.any()):
                m.d.sync += step.eq(step + 1)
                m.next = "SAY"
                with m.If(alone | last):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.request.ready.eq(1)
                m.next = "IDLE"
        return m
