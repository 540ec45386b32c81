// Which 16 of 64 rows of LUT RAM are read: two LUT4 and the multiplexer of their slice a bit. yosys takes three LUT4.
(* techmap_celltype = "$bmux" *)
module lut_ram_mux (A, S, Y);
  parameter WIDTH = 1;
  parameter S_WIDTH = 2;
  input [(WIDTH << S_WIDTH) - 1 : 0] A;
  input [S_WIDTH - 1 : 0] S;
  output [WIDTH - 1 : 0] Y;
  wire _TECHMAP_FAIL_ = S_WIDTH != 2;
  genvar k;
  generate
    for (k = 0; k < WIDTH; k = k + 1) begin : bits
      wire low, high;
      LUT4 #(.INIT(16'hCACA)) of_low (.A(A[k]), .B(A[WIDTH + k]), .C(S[0]), .D(1'b0), .Z(low));
      LUT4 #(.INIT(16'hCACA)) of_high (.A(A[2 * WIDTH + k]), .B(A[3 * WIDTH + k]), .C(S[0]), .D(1'b0), .Z(high));
      PFUMX chosen (.ALUT(high), .BLUT(low), .C0(S[1]), .Z(Y[k]));
    end
  endgenerate
endmodule
