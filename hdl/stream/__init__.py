"""How packets and requests move: layouts that several floors share, and the blocks that carry them unchanged."""
