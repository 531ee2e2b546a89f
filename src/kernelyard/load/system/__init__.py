"""The machine that a kernel is to run on: this one, another that wrote itself down, or one described by hand."""
