// Block RAM of an ECP5, as far as synthesis uses it, after Lattice's FPGA-TN-02204: widths of 9, 18 and 36 bits, and of
// 1, 2 and 4, which have no parity. A port that writes keeps its output ("NORMAL") or shows the old row. A read of what
// the other port writes at the same edge is undefined; here the old row comes. Reset is synchronous.

module DP16KD (
  input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
  input DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
  input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
  input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
  output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
  input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
  input DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
  input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
  input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
  output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
  parameter DATA_WIDTH_A = 18;
  parameter REGMODE_A = "NOREG", WRITEMODE_A = "NORMAL", CSDECODE_A = "0b000", CLKAMUX = "CLKA";
  parameter DATA_WIDTH_B = 18;
  parameter REGMODE_B = "NOREG", WRITEMODE_B = "NORMAL", CSDECODE_B = "0b000", CLKBMUX = "CLKB";
  parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC", GSR = "ENABLED", INIT_DATA = "STATIC";
  parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0, INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0;
  parameter [319:0] INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0, INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F = 0;
  parameter [319:0] INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0, INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0;
  parameter [319:0] INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0, INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0;
  parameter [319:0] INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0, INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0;
  parameter [319:0] INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0, INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0;
  parameter [319:0] INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0, INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0;
  parameter [319:0] INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0, INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;

  // Rows of 18 bits stand in slots of 20.
  localparam [64*320-1:0] INITIAL = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
    INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30,
    INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
    INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20,
    INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
    INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
    INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
    INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00
  };

  reg [17:0] rows [0:1023];
  integer n;
  initial for (n = 0; n < 1024; n = n + 1) rows[n] = INITIAL[20*n +: 18];

  wire clockA = CLKAMUX == "INV" ? ~CLKA : CLKA;
  wire [13:0] addressA = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
  wire [17:0] inA = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
  wire [17:0] rowA = rows[addressA[13:4]];
  wire [8:0] byteA = addressA[3] ? rowA[17:9] : rowA[8:0];
  wire clockB = CLKBMUX == "INV" ? ~CLKB : CLKB;
  wire [13:0] addressB = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
  wire [17:0] inB = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};
  wire [17:0] rowB = rows[addressB[13:4]];
  wire [8:0] byteB = addressB[3] ? rowB[17:9] : rowB[8:0];

  // A port of 36 bits writes, or reads, through the data pins of both.
  localparam WIDE_WRITE = DATA_WIDTH_A == 36, WIDE_READ = DATA_WIDTH_B == 36;
  reg [17:0] heldA = 0, heldB = 0, outA = 0, outB = 0;

  function [17:0] written(input [17:0] row, input [17:0] in, input [13:0] address, input integer width);
    integer n;
    begin
      written = row;
      if (width == 18) begin
        if (address[0]) written[8:0] = in[8:0];
        if (address[1]) written[17:9] = in[17:9];
      end else if (width == 9) written[9*address[3] +: 9] = in[8:0];
      else for (n = 0; n < width; n = n + 1)
        written[9*address[3] + (address[2:0] & ~(width - 1)) + n] = in[n];
    end
  endfunction

  function [17:0] read(input [17:0] row, input [8:0] half, input [13:0] address, input integer width);
    begin
      if (width >= 18) read = row;
      else if (width == 9) read = half;
      else read = (half >> (address[2:0] & ~(width - 1))) & ((1 << width) - 1);
    end
  endfunction

  always @(posedge clockA) begin
    if (CEA && WEA) begin
      if (WIDE_WRITE) begin
        rows[{addressA[13:5], 1'b0}] <= written(rows[{addressA[13:5], 1'b0}], inA, {12'b0, addressA[1:0]}, 18);
        rows[{addressA[13:5], 1'b1}] <= written(rows[{addressA[13:5], 1'b1}], inB, {12'b0, addressA[3:2]}, 18);
      end else rows[addressA[13:4]] <= written(rowA, inA, addressA, DATA_WIDTH_A);
    end
    if (RSTA) heldA <= 0;
    else if (CEA && !(WEA && WRITEMODE_A == "NORMAL")) heldA <= read(rowA, byteA, addressA, DATA_WIDTH_A);
    if (RSTA) outA <= 0;
    else if (OCEA) outA <= heldA;
  end

  reg [17:0] lowB = 0, outLowB = 0;  // of a port of 36 bits
  always @(posedge clockB) begin
    if (CEB && WEB && !WIDE_WRITE) rows[addressB[13:4]] <= written(rowB, inB, addressB, DATA_WIDTH_B);
    if (RSTB) {heldB, lowB} <= 0;
    else if (CEB && !(WEB && WRITEMODE_B == "NORMAL")) begin
      lowB <= rows[{addressB[13:5], 1'b0}];
      heldB <= WIDE_READ ? rows[{addressB[13:5], 1'b1}] : read(rowB, byteB, addressB, DATA_WIDTH_B);
    end
    if (RSTB) {outB, outLowB} <= 0;
    else if (OCEB) {outB, outLowB} <= {heldB, lowB};
  end

  assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} = WIDE_READ ? (REGMODE_B == "OUTREG" ? outLowB : lowB) : (REGMODE_A == "OUTREG" ? outA : heldA);
  assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0} = REGMODE_B == "OUTREG" ? outB : heldB;
endmodule
