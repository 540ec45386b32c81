"""The connection manager: MADs on QP1, and what two sides say to each other by them before they have a connection.

:mod:`.layout`, :mod:`.mad` and :mod:`.messages` know how messages look; :mod:`.connection` and :mod:`.sidr` know what
is answered by what, and when; :mod:`.manager` runs both on the QP1 of an adapter. rdma_cm's interface stands on it:
:mod:`verbena.sw.verbs.cmid`.
"""
