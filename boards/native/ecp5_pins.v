// What the tests need of an ECP5's pin registers, after Lattice's FPGA-TN-02035. Delays are not modelled.

module IDDRX1F (input D, input SCLK, input RST, output reg Q0, output reg Q1);
  reg rising, falling;
  always @(posedge SCLK) begin
    rising <= D;
    Q0 <= rising;
    Q1 <= falling;
  end
  always @(negedge SCLK) falling <= D;
endmodule

module ODDRX1F (input D0, input D1, input SCLK, input RST, output Q);
  reg first, second;
  always @(posedge SCLK) begin
    first <= D0;
    second <= D1;
  end
  assign Q = SCLK ? first : second;
endmodule

module DELAYG #(parameter DEL_MODE = "USER_DEFINED", parameter DEL_VALUE = 0) (input A, output Z);
  assign Z = A;
endmodule
