// The reset networks of an ECP5 and the flip-flops that they reach, as far as synthesis uses them: a reset of its own wins over the enable, and comes
// with the clock. The network takes effect at once and lets go with an edge of the clock, a cycle after resets that are wires.

package reset_network;
  logic active = 0;
endpackage

module SGSR(input GSR, CLK);
  always @(posedge CLK, negedge GSR) reset_network::active <= ~GSR;
endmodule

// A network made for clocks that a reset has instead of wires.
module DCCA(input CLKI, output CLKO);
  assign CLKO = CLKI;
endmodule

module TRELLIS_FF(input CLK, LSR, CE, DI, M, output reg Q);
  parameter GSR = "ENABLED", CEMUX = "1", CLKMUX = "CLK", LSRMUX = "LSR", REGSET = "RESET", SRMODE = "LSR_OVER_CE";
  localparam VALUE = REGSET == "SET";
  if (SRMODE != "LSR_OVER_CE") $error("no model of SRMODE %s", SRMODE);

  wire clock = CLKMUX == "INV" ? ~CLK : CLK;
  wire reset = (LSRMUX == "INV" ? ~LSR : LSR) || GSR == "ENABLED" && reset_network::active;
  wire enable = CEMUX == "1" || (CEMUX == "INV" ? ~CE : CE);

  initial Q = VALUE;
  always @(posedge clock)
    if (reset) Q <= VALUE;
    else if (enable) Q <= DI;
endmodule
