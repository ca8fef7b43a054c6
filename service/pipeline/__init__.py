"""Media in, meaning out: decoding, preprocessing and postprocessing, one file per task."""
