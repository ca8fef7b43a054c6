"""The image file formats that the server reads: their headers and structure, without decoding a pixel."""
